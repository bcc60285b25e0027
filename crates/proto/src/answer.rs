//! Answers to clients: what can be said, and how directories, names, nodes and chunks look.

use crate::client::Extent;
use crate::delegation::{DelegationView, StepsDone};
use crate::grant::{Capability, Grant, OpenToken, ReadRights};
use crate::handles::{ChunkRef, Handle};
use crate::inspect::ChunkReport;
use crate::map::ClusterMap;
use crate::space::{QuotaView, StatfsView};
use bearing_types::{
    Attributes, Block, ChunkId, Code, Cookie, Epoch, FileType, Lock, Name, NameHash, Sequence, ServerId,
    Version,
};
use serde::{Deserialize, Serialize};

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The request's number.
    pub sequence: Sequence,
    /// The answer.
    pub answer: Answer,
}

/// What an answer can be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It was decided by the owner of this tablet.
    Done {
        /// The tablet that answered: requests for positions in it may be packed together.
        tablet: Block,
        /// Its epoch.
        epoch: Epoch,
        /// The result.
        result: Result<Box<Body>, Code>,
        /// The directories whose entries the request changed, as far as they are at hand where it was
        /// decided: a client that goes on in them does not have to ask.
        changed: Vec<ChangedDirectory>,
    },
    /// Not now: something is being recalled, prepared or handed over. Nothing was done; ask again after so
    /// many microseconds.
    Retry {
        /// Microseconds to wait.
        after_us: u32,
    },
    /// The position is served elsewhere, or under another epoch than the request says. Nothing was done.
    Referral {
        /// The tablet.
        tablet: Block,
        /// Its epoch.
        epoch: Epoch,
        /// Its owner.
        owner: ServerId,
    },
    /// This server does not know who serves the position; ask for the map.
    Unknown,
    /// The answer does not fit a datagram: ask again over a stream.
    TooLarge,
}

/// How long something may be used without asking again, in milliseconds from when the request was sent; 0:
/// not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaseMs(pub u32);

/// A node as seen by its home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// The node.
    pub node: Handle,
    /// Its attributes.
    pub attributes: Attributes,
    /// How long they may be used.
    pub lease: LeaseMs,
    /// Whether the node's home remembers whom it gave the lease: if so, a regular file may be read unasked
    /// while it lasts.
    pub may_open: bool,
    /// Whether it has extended attributes: if not, nobody needs to ask for one while the lease lasts.
    pub extended: bool,
}

/// A directory as seen by its home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryView {
    /// Its node; the lease is that of its content (times, counts).
    pub node: NodeView,
    /// Its parent; itself for a root.
    pub parent: Handle,
    /// The grant for its children; good while both its expiry and `access_lease` last.
    pub grant: Grant,
    /// How long mode, owner and seat may be used.
    pub access_lease: LeaseMs,
}

/// A directory whose entries a request changed, as it is since then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedDirectory {
    /// Its node; the lease is that of its content (times, counts).
    pub node: NodeView,
    /// Grows with every change of its entries.
    pub version: Version,
}

/// A name as seen by its owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryView {
    /// What it names.
    pub node: Handle,
    /// The kind of node.
    pub file_type: FileType,
    /// How long the name may be used.
    pub lease: LeaseMs,
    /// The node's attributes, when its home answers the same request and it is no directory; and those of a
    /// directory that was made just now elsewhere.
    pub attributes: Option<NodeView>,
    /// The directory's view, when its home answers the same request.
    pub directory: Option<Box<DirectoryView>>,
}

/// What is wanted of each entry of a listing, besides its name and what that leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Detail {
    /// Nothing.
    Names,
    /// Its attributes, where they are at hand, not leased.
    Attributes,
    /// What a lookup of it would say, with the same leases, where that is at hand.
    Lookups,
}

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedEntry {
    /// Its place in the listing.
    pub cookie: Cookie,
    /// The name.
    pub name: Name,
    /// What it names.
    pub node: Handle,
    /// The kind of node.
    pub file_type: FileType,
    /// Its attributes, when they were at hand. Not leased.
    pub attributes: Option<Attributes>,
    /// What a lookup of it says.
    pub found: Option<Box<EntryView>>,
}

/// A chunk as seen by its record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkView {
    /// The chunk.
    pub chunk: ChunkRef,
    /// Its epoch.
    pub epoch: Epoch,
    /// The servers that hold it; the first is the primary.
    pub servers: Vec<ServerId>,
    /// The length at which it was sealed, once it is.
    pub sealed: Option<u64>,
    /// The right to append to it, for the session that opens it.
    pub capability: Option<Capability>,
    /// Ranges below the sealed length of which no replica had a whole frame when it was sealed.
    pub holes: Vec<(u64, u64)>,
}

/// A lock that stands in the way, as others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockView {
    /// Tells the holders of one file's locks apart, and nothing else about them.
    pub holder: u64,
    /// The lock; whose it is within its session, and its process, are told to that session only.
    pub lock: Lock,
}

/// The content of an answer that went well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// Nothing to say but that it is done.
    Done,
    /// The session is open.
    Session {
        /// It ends unless renewed within so many milliseconds.
        renew_within_ms: u32,
    },
    /// The map, or nothing when the client has it.
    Map(Option<Box<ClusterMap>>),
    /// A directory.
    Directory(Box<DirectoryView>),
    /// A name; after create, also the rights of who has the new file open.
    Entry(EntryView, Option<OpenToken>),
    /// A part of a listing.
    List {
        /// The entries, in order of their cookies.
        entries: Vec<ListedEntry>,
        /// The hash from which to go on (perhaps at another tablet), or `None` at the end.
        next: Option<NameHash>,
    },
    /// A node.
    Node(NodeView),
    /// The target of a symbolic link.
    Link(Vec<u8>),
    /// An open file.
    Opened(NodeView, Option<OpenToken>),
    /// Extents in order of file offsets, not overlapping.
    Extents {
        /// The file's version.
        version: Version,
        /// Its length.
        size: u64,
        /// The extents.
        extents: Vec<Extent>,
        /// Whether these are all to the end of the file.
        complete: bool,
        /// The rights to read them, if the client may.
        reads: Option<ReadRights>,
        /// The file counts as open for reading from now on, if it was not before.
        token: Option<OpenToken>,
    },
    /// A chunk.
    Chunk(ChunkView),
    /// Space.
    Statfs(StatfsView),
    /// A directory that is delegated now.
    Delegation(Box<DelegationView>),
    /// Steps that were done.
    Steps(StepsDone),
    /// The value of an extended attribute, or the names of all, each with a NUL behind it.
    Xattr(Vec<u8>),
    /// A lock that stands in the way.
    Lock(Option<LockView>),
    /// A directory's parent and its name there; of the root itself and nothing.
    Place(Handle, Vec<u8>),
    /// A page of chunks.
    Chunks {
        /// The tablet whose chunks these are.
        tablet: Block,
        /// The chunks.
        chunks: Vec<ChunkReport>,
        /// Where to go on; `None` at the end.
        next: Option<ChunkId>,
    },
    /// The quota that counts a node, if one does.
    Quota(Option<QuotaView>),
    /// A part of a directory.
    Prefetched {
        /// Names and what they lead to, in order of their cookies. Names are leased together, under
        /// [`LeaseKey::Names`] of the directory; the attributes of nodes one by one, without the right to
        /// open. Of directories nothing is said. None while no lease can be given.
        entries: Vec<(Name, EntryView)>,
        /// The cookie after which to go on (perhaps at another tablet), or `None` at the end.
        next: Option<Cookie>,
    },
}
