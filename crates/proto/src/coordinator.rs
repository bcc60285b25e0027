//! Between servers (and the command line) and the coordinator: its registers, over the wire.

use serde::{Deserialize, Serialize};

/// The key prefix of tablets; `tablet/<start in hex>/<prefix bits>` holds a [`bearing_placement::Tablet`].
pub const TABLET_PREFIX: &str = "tablet/";
/// The key prefix of servers; `server/<id>` holds a [`crate::client::ServerEntry`].
pub const SERVER_PREFIX: &str = "server/";
/// The key of the first filesystem; holds a [`crate::client::FilesystemRecord`].
pub const FILESYSTEM_KEY: &str = "filesystem/1";

/// The register of a tablet.
pub fn tablet_key(block: bearing_types::Block) -> String {
    format!("{TABLET_PREFIX}{:016x}/{}", block.start().0, block.prefix_bits())
}

/// The register of a server.
pub fn server_key(server: bearing_types::ServerId) -> String {
    format!("{SERVER_PREFIX}{:08}", server.0)
}

/// A question to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Chosen by the asker; comes back with the answer.
    pub id: u64,
    /// What is asked.
    pub call: AskCall,
}

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AskCall {
    /// One register.
    Read {
        /// Its key.
        key: String,
    },
    /// All registers under a prefix, unless nothing changed since a version.
    List {
        /// The prefix.
        prefix: String,
        /// The version that the asker has seen.
        since: Option<u64>,
    },
    /// A compare-and-swap.
    Swap {
        /// The key.
        key: String,
        /// The version it must have; `None`: absent.
        expected: Option<u64>,
        /// The new value; `None` removes it.
        value: Option<Vec<u8>>,
    },
}

/// An answer of the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// The question's id.
    pub id: u64,
    /// The answer, or the engine's complaint in words.
    pub result: Result<TellBody, String>,
}

/// What an answer holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TellBody {
    /// One register.
    Register(Option<Register>),
    /// Registers, with the version of the last change; `None` when nothing changed.
    Registers(u64, Option<Vec<Register>>),
    /// The swap took effect under this version.
    Swapped(u64),
    /// The register had another version.
    Conflict(Option<Register>),
}

/// A register.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// Its key.
    pub key: String,
    /// Its version.
    pub version: u64,
    /// Its value.
    pub value: Vec<u8>,
}
