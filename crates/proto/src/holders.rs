//! What an operator is told of data servers: by each metadata server, what the chunks of its tablets have
//! there.

use bearing_types::ServerId;
use serde::{Deserialize, Serialize};

/// What one metadata server knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldersView {
    /// Tablets that it serves.
    pub tablets: u64,
    /// Those of them of which all chunks were counted since the servers that leave were last others.
    pub counted: u64,
    /// The servers that leave, as far as it knows.
    pub leaving: Vec<ServerId>,
    /// All data servers.
    pub holders: Vec<HolderView>,
}

/// A data server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderView {
    /// Which.
    pub server: ServerId,
    /// What the chunks that were counted have there.
    pub held: Held,
    /// Whether it answers.
    pub answers: bool,
    /// Bytes used and free on it, as it said last.
    pub used: u64,
    /// See `used`.
    pub free: u64,
}

/// What chunks have on a data server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Chunks with a copy there, written or about to be, one without a byte left out; and those whose writer
    /// may come yet to append.
    pub chunks: u64,
    /// Their bytes, of those that are sealed.
    pub bytes: u64,
    /// Of these chunks, those that have no good copy anywhere else.
    pub alone: u64,
}

impl Held {
    /// Both together.
    pub fn add(&mut self, other: Held) {
        self.chunks += other.chunks;
        self.bytes += other.bytes;
        self.alone += other.alone;
    }
}
