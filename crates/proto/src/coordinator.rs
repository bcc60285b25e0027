//! Between servers (and the command line) and the coordinator: its registers, over the wire.

use crate::client::{FilesystemRecord, ServerEntry};
use crate::disk::DiskRecord;
use crate::enrolment::EnrolmentName;
use crate::holders::HoldersView;
use crate::sessions::SessionsView;
use crate::tablets::TabletsView;
use bearing_placement::{Scheme, Tablet};
use bearing_seams::RegisterChange;
use bearing_types::{
    Block, Epoch, FilesystemId, LogIndex, NameKey, NodeId, ServerId, Squash, TabletSerial, Wall,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The key prefix of tablets; `tablet/<start in hex>/<prefix bits>` holds a [`bearing_placement::Tablet`].
pub const TABLET_PREFIX: &str = "tablet/";
/// The key prefix of servers; `server/<id>` holds a [`crate::client::ServerEntry`].
pub const SERVER_PREFIX: &str = "server/";
/// The key prefix of servers that leave; `server-drain/<id>` holds a [`DrainRecord`].
pub const DRAIN_PREFIX: &str = "server-drain/";
/// What the keys of servers and of those that leave begin with.
pub const SERVERS_PREFIX: &str = "server";
/// The key prefix of named enrolments; `enrolment/<name>` holds an [`EnrolmentRecord`].
pub const ENROLMENT_PREFIX: &str = "enrolment/";
/// The key of the first filesystem; holds a [`crate::client::FilesystemRecord`].
pub const FILESYSTEM_KEY: &str = "filesystem/1";

/// The register of a tablet.
pub fn tablet_key(block: bearing_types::Block) -> String {
    format!("{TABLET_PREFIX}{:016x}/{}", block.start().0, block.prefix_bits())
}

/// The tablet that a register is of.
pub fn block_of_key(key: &str) -> Option<bearing_types::Block> {
    let (start, bits) = key.strip_prefix(TABLET_PREFIX)?.split_once('/')?;
    let start = bearing_types::Position(u64::from_str_radix(start, 16).ok()?);
    let block = bearing_types::Block::around(start, bits.parse().ok().filter(|bits| *bits <= 64)?);
    (tablet_key(block) == key).then_some(block)
}

/// The register of a server.
pub fn server_key(server: bearing_types::ServerId) -> String {
    format!("{SERVER_PREFIX}{:08}", server.0)
}

/// The register of a server that leaves.
pub fn drain_key(server: bearing_types::ServerId) -> String {
    format!("{DRAIN_PREFIX}{:08}", server.0)
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

/// A server that leaves: it is given nothing more, and what it has goes to others. Without this register it
/// stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainRecord {
    /// The server.
    pub server: ServerId,
    /// When that was wanted.
    pub since: Wall,
    /// When it was removed, for ever: its number does not come back.
    pub removed: Option<Wall>,
}

/// The version of the values of registers. In version 2 tablets have serials, members and learners, and
/// filesystems the number of copies of metadata.
pub const REGISTER_VERSION: u8 = 2;
const BEFORE_SERIALS: u8 = 1;

/// What a register can hold.
pub trait RegisterValue: Serialize + DeserializeOwned {
    /// The same before version 2.
    type Older: DeserializeOwned;

    /// What it became; `None` if it cannot have been.
    fn from_older(older: Self::Older) -> Option<Self>;
}

macro_rules! as_ever {
    ($($value:ty),* $(,)?) => {
        $(impl RegisterValue for $value {
            type Older = Self;

            fn from_older(older: Self) -> Option<Self> {
                Some(older)
            }
        })*
    };
}

as_ever!(ServerEntry, DrainRecord, EnrolmentRecord, DiskRecord);

/// A tablet before there were serials: its owner held it alone.
#[derive(Deserialize)]
pub struct OlderTablet {
    block: Block,
    epoch: Epoch,
    owner: ServerId,
    members: Vec<ServerId>,
}

impl RegisterValue for Tablet {
    type Older = OlderTablet;

    fn from_older(older: OlderTablet) -> Option<Tablet> {
        let OlderTablet { block, epoch, owner, members } = older;
        let serial = TabletSerial::of_first(block)?;
        Some(Tablet { block, serial, epoch, owner, members, learner: None, committed: LogIndex::ZERO })
    }
}

/// A filesystem before there were copies of metadata.
#[derive(Deserialize)]
pub struct OlderFilesystem {
    filesystem: FilesystemId,
    name_key: NameKey,
    scheme: Scheme,
    root: NodeId,
    data_copies: u8,
}

impl RegisterValue for FilesystemRecord {
    type Older = OlderFilesystem;

    fn from_older(older: OlderFilesystem) -> Option<FilesystemRecord> {
        let OlderFilesystem { filesystem, name_key, scheme, root, data_copies } = older;
        Some(FilesystemRecord { filesystem, name_key, scheme, root, data_copies, metadata_copies: 1 })
    }
}

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
                write!(
                    f,
                    "makes no sense; restore the coordinator's file from a copy of its last state (an older one is \
                     refused by servers that know newer registers)"
                )
            }
        }
    }
}

impl std::error::Error for RegisterError {}

/// The bytes of a register's value: a version byte, then the value in postcard's encoding.
pub fn encode_register<T: RegisterValue>(value: &T) -> Vec<u8> {
    postcard::to_extend(value, vec![REGISTER_VERSION]).expect("plain values always encode")
}

/// A register's value from its bytes.
pub fn decode_register<T: RegisterValue>(bytes: &[u8]) -> Result<T, RegisterError> {
    match bytes.split_first() {
        Some((&BEFORE_SERIALS, value)) => {
            let older = postcard::from_bytes(value).map_err(|_| RegisterError::Malformed)?;
            T::from_older(older).ok_or(RegisterError::Malformed)
        }
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
    /// The registers under a prefix that changed after a version.
    Changes {
        /// The prefix.
        prefix: String,
        /// The version that the asker has seen; 0: none.
        since: u64,
    },
    /// A compare-and-swap of [`SWAP_MAX`] different registers at most: all of them, or none.
    Swap {
        /// What each is to become.
        changes: Vec<RegisterChange>,
    },
    /// To a metadata server, by an operator: the sessions that it knows of.
    Sessions,
    /// Likewise: the tablets that it has.
    Tablets,
    /// Likewise: have the members of these of its tablets compute digests of them, all as of one entry.
    /// Answered like [`AskCall::Tablets`], with the index of that entry.
    Compare {
        /// The tablets, [`COMPARED_MAX`] at most.
        tablets: Vec<TabletSerial>,
    },
    /// Like [`AskCall::Changes`], but answered only when something has changed.
    Await {
        /// The prefix.
        prefix: String,
        /// The version that the asker has seen; 0: none, which is answered at once.
        since: u64,
    },
    /// To any server, by an operator: what its page of metrics shows.
    Metrics,
    /// To a metadata server, by an operator: what the chunks of its tablets have on each data server.
    Holders,
    /// Likewise: store checkpoints of its tablets now, and not when they are due. Answered like
    /// [`AskCall::Tablets`].
    Checkpoint,
}

/// So many tablets are compared at a time.
pub const COMPARED_MAX: usize = 64;
/// So many registers a swap changes at most: etcd takes 128 operations in a transaction as it comes, and a
/// register may need two.
pub const SWAP_MAX: usize = 60;

impl AskCall {
    /// A compare-and-swap of one register, see [`RegisterChange::new`].
    pub fn swap(key: String, expected: Option<u64>, value: Option<Vec<u8>>) -> AskCall {
        AskCall::Swap { changes: vec![RegisterChange::new(key, expected, value)] }
    }
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
    /// What changed.
    Registers(RegisterChanges),
    /// The swap took effect under this version.
    Swapped(u64),
    /// Nothing changed, because registers had other versions.
    Conflict {
        /// Those that are there.
        present: Vec<Register>,
        /// The keys of those that are not.
        absent: Vec<String>,
    },
    /// What a metadata server knows of sessions.
    Sessions(SessionsView),
    /// What a metadata server has of tablets.
    Tablets(TabletsView),
    /// The question came before and is being worked on, or waits for a change: the answer will come.
    Slow,
    /// What a server does, in Prometheus' text format.
    Metrics(String),
    /// What a metadata server knows of data servers.
    Holders(HoldersView),
}

/// What changed under a prefix after a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterChanges {
    /// The version of the last change of any register.
    pub version: u64,
    /// This is everything under the prefix: what is not here is absent.
    pub whole: bool,
    /// The registers that changed.
    pub present: Vec<Register>,
    /// The keys of those that were removed.
    pub absent: Vec<String>,
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

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::Position;
    use proptest::prelude::*;

    #[test]
    fn the_key_of_a_tablet_says_its_block() {
        for block in [Block::RING, Block::around(Position(u64::MAX), 5), Block::around(Position(77), 64)] {
            assert_eq!(block_of_key(&tablet_key(block)), Some(block));
        }
        for key in ["server/1", "tablet/0", "tablet/0/0", "tablet/0000000000000001/3"] {
            assert_eq!(block_of_key(key), None, "{key}");
        }
    }

    fn tablet() -> Tablet {
        let block = Block::RING.sub_block(4, 3);
        let (serial, members) = (TabletSerial(0b1_0011), vec![ServerId(7)]);
        Tablet {
            block,
            serial,
            epoch: Epoch(5),
            owner: ServerId(7),
            members,
            learner: None,
            committed: LogIndex(9),
        }
    }

    #[test]
    fn a_register_of_a_newer_version_is_refused_naming_both() {
        let mut bytes = encode_register(&tablet());
        assert_eq!(decode_register(&bytes), Ok(tablet()));
        bytes[0] = 9;
        let error = decode_register::<Tablet>(&bytes).unwrap_err();
        assert_eq!(error, RegisterError::Newer(9));
        let message = error.to_string();
        assert!(message.contains("version 9") && message.contains("version 2"), "{message}");
    }

    /// As 3e94025 wrote them.
    #[test]
    fn registers_from_before_serials_are_read() {
        let older = postcard::to_extend(
            &(Block::RING.sub_block(4, 3), Epoch(5), ServerId(7), vec![ServerId(7)]),
            vec![BEFORE_SERIALS],
        );
        let known = Tablet { committed: LogIndex::ZERO, ..tablet() };
        assert_eq!(decode_register(&older.unwrap()), Ok(known));
        let record = FilesystemRecord {
            filesystem: FilesystemId(1),
            name_key: NameKey(2),
            scheme: Scheme::AnglecutHashed,
            root: NodeId(3),
            data_copies: 2,
            metadata_copies: 1,
        };
        let fields = (record.filesystem, record.name_key, record.scheme, record.root, record.data_copies);
        let older = postcard::to_extend(&fields, vec![BEFORE_SERIALS]);
        assert_eq!(decode_register(&older.unwrap()), Ok(record));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_are_never_a_register_without_a_version(bytes in proptest::collection::vec(any::<u8>(), 0..30)) {
            let known = matches!(bytes.first(), Some(&(BEFORE_SERIALS | REGISTER_VERSION)));
            prop_assert!(known || decode_register::<Tablet>(&bytes).is_err());
        }
    }
}
