//! Between servers (and the command line) and the coordinator: its registers, over the wire.

use crate::enrolment::EnrolmentName;
use crate::sessions::SessionsView;
use bearing_seams::{Coordinator, EngineError, EngineResult, Entry, Swap};
use bearing_types::{Squash, Wall};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The key prefix of tablets; `tablet/<start in hex>/<prefix bits>` holds a [`bearing_placement::Tablet`].
pub const TABLET_PREFIX: &str = "tablet/";
/// The key prefix of servers; `server/<id>` holds a [`crate::client::ServerEntry`].
pub const SERVER_PREFIX: &str = "server/";
/// The key prefix of named enrolments; `enrolment/<name>` holds an [`EnrolmentRecord`].
pub const ENROLMENT_PREFIX: &str = "enrolment/";
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

/// The register of a named enrolment.
pub fn enrolment_key(name: &EnrolmentName) -> String {
    format!("{ENROLMENT_PREFIX}{}", name.as_str())
}

/// The enrolment that a register is of.
pub fn enrolment_of_key(key: &str) -> Option<EnrolmentName> {
    key.strip_prefix(ENROLMENT_PREFIX).and_then(EnrolmentName::new)
}

/// What people want to know of a named enrolment, and servers if it is good no more. Its secret is nowhere:
/// it follows from name, rule and cluster key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrolmentRecord {
    /// Its rule.
    pub squash: Squash,
    /// When it was made.
    pub made: Wall,
    /// When it was revoked, for ever.
    pub revoked: Option<Wall>,
}

/// The version of the values of registers.
pub const REGISTER_VERSION: u8 = 1;

/// Why a register's value cannot be used. Whoever meets one stops: a tablet or a server that is left out is a
/// wrong map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterError {
    /// Written by a newer program; the version found.
    Newer(u8),
    /// Not a value of the kind that was looked for.
    Malformed,
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegisterError::Newer(found) => write!(
                f,
                "was written in format version {found}, this program knows up to version {REGISTER_VERSION}; use a newer `bearing`"
            ),
            RegisterError::Malformed => {
                write!(f, "makes no sense; restore the coordinator's file from a copy")
            }
        }
    }
}

impl std::error::Error for RegisterError {}

/// The bytes of a register's value: a version byte, then the value in postcard's encoding.
pub fn encode_register<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_extend(value, vec![REGISTER_VERSION]).expect("plain values always encode")
}

/// A register's value from its bytes.
pub fn decode_register<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, RegisterError> {
    match bytes.split_first() {
        Some((&REGISTER_VERSION, value)) => postcard::from_bytes(value).map_err(|_| RegisterError::Malformed),
        Some((&found, _)) if found > REGISTER_VERSION => Err(RegisterError::Newer(found)),
        _ => Err(RegisterError::Malformed),
    }
}

/// A question to the coordinator, or of an operator to a metadata server.
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
    /// To a metadata server, by an operator: the sessions that it knows of.
    Sessions,
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
    /// What a metadata server knows of sessions.
    Sessions(SessionsView),
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

/// What a coordinator with these registers answers. It decides nothing; compare-and-swap is the engine's.
pub fn answer(registers: &mut dyn Coordinator, ask: Ask) -> Told {
    let result = body(registers, ask.call).map_err(|error| error.to_string());
    Told { id: ask.id, result }
}

fn body(registers: &mut dyn Coordinator, call: AskCall) -> EngineResult<TellBody> {
    match call {
        AskCall::Read { key } => Ok(TellBody::Register(registers.read(&key)?.map(register))),
        AskCall::List { prefix, since } => {
            let (version, entries) = registers.list(&prefix)?;
            let news = since.is_none_or(|since| since < version);
            Ok(TellBody::Registers(version, news.then(|| entries.into_iter().map(register).collect())))
        }
        AskCall::Swap { key, expected, value } => match registers.swap(&key, expected, value)? {
            Swap::Done(version) => Ok(TellBody::Swapped(version)),
            Swap::Conflict(entry) => Ok(TellBody::Conflict(entry.map(register))),
        },
        AskCall::Sessions => {
            Err(EngineError::Failed { doing: "only metadata servers know sessions".to_owned() })
        }
    }
}

fn register(entry: Entry) -> Register {
    Register { key: entry.key, version: entry.version, value: entry.value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_seams::MemCoordinator;
    use bearing_types::{NodeId, ServerId};
    use proptest::prelude::*;

    fn swap(expected: Option<u64>, value: &[u8]) -> AskCall {
        AskCall::Swap { key: "server/1".into(), expected, value: Some(value.to_vec()) }
    }

    fn told(registers: &mut MemCoordinator, call: AskCall) -> TellBody {
        let told = answer(registers, Ask { id: 7, call });
        assert_eq!(told.id, 7);
        told.result.expect("registers in memory never fail")
    }

    #[test]
    fn a_swap_over_an_old_version_shows_what_is_there() {
        let mut registers = MemCoordinator::default();
        let TellBody::Swapped(version) = told(&mut registers, swap(None, b"a")) else { panic!("swaps") };
        let there = Register { key: "server/1".into(), version, value: b"a".to_vec() };
        assert_eq!(told(&mut registers, swap(None, b"b")), TellBody::Conflict(Some(there)));
    }

    #[test]
    fn a_listing_without_news_is_empty_handed() {
        let mut registers = MemCoordinator::default();
        told(&mut registers, swap(None, b"a"));
        let list = |since| AskCall::List { prefix: "server/".into(), since };
        let TellBody::Registers(version, Some(found)) = told(&mut registers, list(None)) else {
            panic!("lists")
        };
        assert_eq!(found.len(), 1);
        assert_eq!(told(&mut registers, list(Some(version))), TellBody::Registers(version, None));
    }

    #[test]
    fn a_register_of_a_newer_version_is_refused_naming_both() {
        let mut bytes = encode_register(&ServerId(7));
        assert_eq!(decode_register(&bytes), Ok(ServerId(7)));
        bytes[0] = 9;
        let error = decode_register::<ServerId>(&bytes).unwrap_err();
        assert_eq!(error, RegisterError::Newer(9));
        let message = error.to_string();
        assert!(message.contains("version 9") && message.contains("version 1"), "{message}");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_are_never_a_register_without_a_version(bytes in proptest::collection::vec(any::<u8>(), 0..30)) {
            let known = bytes.first() == Some(&REGISTER_VERSION);
            prop_assert!(known || decode_register::<NodeId>(&bytes).is_err());
        }
    }
}
