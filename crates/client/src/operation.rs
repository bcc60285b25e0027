//! What the client machine answers to the operations that programs ask of it.

use bearing_proto::client::{ChunkReport, Detail, Extent, Handle, QuotaView, StatfsView};
use bearing_proto::flow::{FlowBody, FlowError};
pub use bearing_proto::operation::{Advice, OpenFile, Operation, SeekTarget};
use bearing_types::{Attributes, Block, ChunkId, Cookie, FileType, Lock, Name, ServerId};
use std::ops::Range;
use std::time::Duration;

/// Identifies an operation under way. Chosen by the caller, unique among those under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// How long the kernel may use something without asking: what remains of its lease, minus a margin. Zero: not
/// at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remaining(pub Duration);

/// A node with its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The node.
    pub node: Handle,
    /// Its attributes.
    pub attributes: Attributes,
    /// How long the name may be used.
    pub name_remaining: Remaining,
    /// How long the attributes may be used.
    pub attributes_remaining: Remaining,
}

/// What is wanted of a listing: so many entries after this one.
#[derive(Clone, Copy)]
pub(crate) struct ListPart {
    pub after: Cookie,
    pub count_max: u32,
    pub detail: Detail,
}

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Where to go on after it.
    pub cookie: Cookie,
    /// The name.
    pub name: Name,
    /// What it names.
    pub node: Handle,
    /// The kind of node.
    pub file_type: FileType,
    /// Its attributes, when they were at hand.
    pub attributes: Option<Attributes>,
}

/// The answer to an operation that went well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done.
    Done,
    /// A node (root, lookup, parent, attributes, set attributes, mkdir, link, create without open).
    Found(Found),
    /// An open file, with its node (open, create with open).
    Opened(OpenFile, Found),
    /// The target of a symbolic link.
    Target(Vec<u8>),
    /// Entries; fewer than asked only at the end (an empty answer is the end).
    Listed(Vec<Listed>),
    /// Bytes.
    Bytes(Vec<u8>),
    /// So many bytes were written, or copied.
    Written(u32),
    /// Where it is; `None`: not before the end of the file.
    Place(Option<u64>),
    /// Space.
    Statfs(StatfsView),
    /// Where bytes lie.
    Extents {
        /// In order of their offsets.
        extents: Vec<Extent>,
        /// These are all to the end of the file.
        complete: bool,
    },
    /// What the flow server says; `None`: there is none, or it does not answer.
    Advice {
        /// The part of the file that it is about.
        range: Range<u64>,
        /// Who has that, in the order in which it is read without advice.
        servers: Vec<ServerId>,
        /// What it says.
        told: Option<Result<FlowBody, FlowError>>,
    },
    /// A page of chunks.
    Chunks {
        /// The tablet whose chunks these are.
        tablet: Block,
        /// The chunks.
        chunks: Vec<ChunkReport>,
        /// Where to go on; `None` at the end.
        next: Option<ChunkId>,
    },
    /// The value of an extended attribute, or the names of all, each with a NUL behind it.
    Xattr(Vec<u8>),
    /// A lock that stands in the way; its process is 0 if it is another session's.
    Lock(Option<Lock>),
    /// A directory's parent and its name there; of the root itself and nothing.
    Named(Handle, Vec<u8>),
    /// The quota that counts a node, if one does.
    Quota(Option<QuotaView>),
}
