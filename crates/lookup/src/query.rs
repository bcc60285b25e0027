//! The query that travels: what is looked for, how far it has come, and why it may end without an answer.

use bearing_types::{Block, NameHash, NodeId, Position, ServerId};
use std::fmt;
use std::ops::RangeInclusive;

/// The number of a query at whoever drives the machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryId(pub u64);

/// What Bloom filters know a file by: its directory and name; or, where the ring says who has what, the part
/// of the ring that its position lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey(pub u64);

impl FileKey {
    /// The key of a name in a directory. The directory is in it: equal names in two directories are two files
    /// (MetaFlow's text forgets that).
    pub fn of(directory: NodeId, name: NameHash) -> FileKey {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&directory.0.to_le_bytes());
        bytes[8..].copy_from_slice(&name.to_bits().to_le_bytes());
        FileKey(xxhash_rust::xxh3::xxh3_64_with_seed(&bytes, 0x6669_6c65))
    }

    /// The ring is cut into 2^12 equal parts, each with a key: so many at most are in any filter, and no
    /// tablet is as small as one.
    pub const RING_PARTS: u64 = 1 << FileKey::PART_BITS;
    const PART_BITS: u32 = 12;

    /// The key of the part of the ring that a position lies in.
    pub fn of_part(position: Position) -> FileKey {
        FileKey(position.0 >> (u64::BITS - FileKey::PART_BITS))
    }

    /// The keys of all parts that a block touches.
    pub fn of_parts(block: Block) -> RangeInclusive<u64> {
        FileKey::of_part(block.start()).0..=FileKey::of_part(block.last()).0
    }
}

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where it lies on the ring. Schemes that choose homes freely do not look at it.
    pub position: Position,
    /// What filters know it by.
    pub file: FileKey,
}

/// A request on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Its number.
    pub id: QueryId,
    /// What it is for.
    pub target: Target,
    /// How often it was passed on so far.
    pub hops: u8,
    /// What the machines of its lookup noted on the way. Others leave it as it is.
    pub trail: Trail,
}

/// Notes of a lookup's machines on a query, for the next machine of the same lookup. Only lookups that decide
/// in levels write any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trail {
    /// How far the lookup has come: 0 at first. What else means what is the lookup's own.
    pub level: u8,
    /// The server that it came to first, if that one wants to learn where it ended.
    pub entry: Option<ServerId>,
}

impl Query {
    /// A query that nobody has seen yet.
    pub fn new(id: QueryId, target: Target) -> Query {
        Query { id, target, hops: 0, trail: Trail::default() }
    }

    /// The same after one more hop.
    pub fn passed(self) -> Query {
        Query { hops: self.hops.saturating_add(1), ..self }
    }
}

/// Why a query ends without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupError {
    /// No server is known to ask.
    NobodyKnown,
    /// It was passed on this often, the bound of its lookup.
    TooManyHops(u8),
    /// All servers that could be reached were asked; none has it.
    Absent,
    /// None of those that answered has it, but this one, which is not known to be gone, did not say.
    Unanswered(ServerId),
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LookupError::NobodyKnown => {
                f.write_str("no server is known to ask; give the address of one that is up")
            }
            LookupError::TooManyHops(hops) => {
                write!(f, "gave up after {hops} hops; servers may be joining or failing, try again")
            }
            LookupError::Absent => f.write_str("no server has it"),
            LookupError::Unanswered(server) => {
                write!(f, "{server} did not say whether it has it; it may be busy, try again")
            }
        }
    }
}

impl std::error::Error for LookupError {}
