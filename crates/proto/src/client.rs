//! Between clients and metadata servers.

use crate::delegation::{DelegationView, LentIds, Step, StepsDone};
use crate::grant::{
    Admission, Capability, CapabilityBody, DataRight, FramePart, Grant, OpenToken, ReadRights,
};
pub use crate::inspect::{CheckDepth, ChunkFate, ChunkReport, ReplicaState};
pub use crate::map::{ClusterMap, ServerEntry, ServerKind};
use crate::sessions::SessionDescription;
use bearing_placement::Scheme;
use bearing_types::{
    Amount, Attributes, Block, ChunkId, Code, Cookie, Credentials, Epoch, FileType, FilesystemId, Gid, Lock,
    LockOwner, LockRange, LockSpace, MapVersion, Mode, Name, NameHash, NameKey, NodeId, Position, Sequence,
    ServerId, SessionId, SetIds, Uid, Version, Wall, XattrName,
};
use serde::{Deserialize, Serialize};

pub use crate::space::{QuotaView, StatfsView};

pub use crate::notice::{LeaseKey, LockFree, OpenState, OpenStateQuery, Recall, Recalled, WaitId};

/// What finds a node whatever was renamed or unlinked: its id and the position at which it was born.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Handle {
    /// The node.
    pub node: NodeId,
    /// Its home.
    pub home: Position,
}

/// What finds a chunk's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChunkRef {
    /// The chunk.
    pub chunk: ChunkId,
    /// The position of its record.
    pub position: Position,
}

/// A run of a file's bytes in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// The first byte of the file that it gives.
    pub file_offset: u64,
    /// Its length in bytes.
    pub length: u32,
    /// The chunk.
    pub chunk: ChunkRef,
    /// Where in the chunk's log the frame starts.
    pub frame: u64,
    /// How many bytes of the frame's payload to skip.
    pub skip: u32,
}

impl Extent {
    /// The bytes of the frame that it gives.
    pub fn part(&self) -> FramePart {
        FramePart { frame: self.frame, skip: self.skip, length: self.length }
    }

    /// What lets a session read it.
    pub fn read_right(&self, session: SessionId, expires: Wall) -> CapabilityBody {
        CapabilityBody { session, chunk: self.chunk.chunk, right: DataRight::Read(self.part()), expires }
    }
}

/// A request of a session. (session, sequence) identifies a mutation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Its number in the session.
    pub sequence: Sequence,
    /// All requests with smaller numbers are finished at the client: their replies may be forgotten. With a
    /// call that says whether a file is open (`keep_open`) it is of the moment at which that was so: files
    /// that were got by later replies may be open all the same.
    pub finished_below: Sequence,
    /// The position it is addressed to: any in the tablet that shall answer.
    pub position: Position,
    /// The tablet's epoch as the client knows it. A mutation under another epoch is referred, so that a
    /// datagram which an earlier owner left in the network is never executed by a later one.
    pub epoch: Epoch,
    /// What is asked.
    pub call: Call,
}

/// What a client can ask. Operations on a child show the grant of its directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
    /// Opens the session of the packet's sender, at the position of the session.
    OpenSession,
    /// Keeps it alive.
    RenewSession,
    /// Ends it.
    CloseSession,
    /// The map of tablets and servers, unless the client has this version already. Any metadata server
    /// answers.
    Map {
        /// The version that the client has.
        have: Option<MapVersion>,
    },
    /// The root directory of a filesystem. Asked at position 0.
    Root {
        /// The filesystem.
        filesystem: FilesystemId,
    },
    /// A directory's grant and attributes, at its home.
    Directory {
        /// The directory.
        directory: Handle,
    },
    /// A name.
    Lookup {
        /// The directory's grant.
        grant: Grant,
        /// Who asks.
        who: Credentials,
        /// The name.
        name: Name,
    },
    /// A part of a listing, in the order of cookies.
    List {
        /// The directory's grant.
        grant: Grant,
        /// Who asks.
        who: Credentials,
        /// Entries after this one.
        after: Cookie,
        /// At most so many entries.
        count_max: u32,
        /// Whether attributes are wanted where they are at hand.
        with_attributes: bool,
    },
    /// A new file, symbolic link or special file.
    Create {
        /// The directory's grant.
        grant: Grant,
        /// Who asks.
        who: Credentials,
        /// The name.
        name: Name,
        /// What to make.
        new: NewNode,
    },
    /// A new directory.
    MakeDirectory {
        /// The directory's grant.
        grant: Grant,
        /// Who asks.
        who: Credentials,
        /// The name.
        name: Name,
        /// Permission bits, umask applied.
        mode: Mode,
    },
    /// Removes a name that is no directory.
    Unlink {
        /// The directory's grant.
        grant: Grant,
        /// Who asks.
        who: Credentials,
        /// The name.
        name: Name,
        /// What it leads to as far as the client knows: that is what the client's own leases are released of,
        /// so if it is something else, the answer is `Stale`, and the client looks again.
        node: NodeId,
        /// The client has the file open: keep the node for this session if this was the last link.
        keep_open: bool,
    },
    /// Removes an empty directory.
    RemoveDirectory {
        /// The parent's grant.
        grant: Grant,
        /// Who asks.
        who: Credentials,
        /// The name.
        name: Name,
        /// What it leads to, as for `Unlink`.
        node: NodeId,
    },
    /// A further name for a node, asked at the new name's position.
    Link {
        /// The directory's grant.
        grant: Grant,
        /// Who asks.
        who: Credentials,
        /// The new name.
        name: Name,
        /// The node.
        node: Handle,
    },
    /// Moves a name, asked at the new name's position.
    Rename {
        /// The grant of the directory that has the name.
        source: Grant,
        /// The name.
        source_name: Name,
        /// The grant of the directory that shall have it.
        target: Grant,
        /// The new name.
        target_name: Name,
        /// Who asks.
        who: Credentials,
        /// What to do when the new name exists.
        mode: RenameMode,
        /// What the old name leads to, as for `Unlink`.
        moved: NodeId,
        /// What the new name leads to, if it exists, as for `Unlink`.
        replaced: Option<NodeId>,
        /// The client has the target open: keep its node for this session if this was its last link.
        keep_open: bool,
    },
    /// A node's attributes, at its home.
    Attributes {
        /// The node.
        node: Handle,
    },
    /// Changes attributes, at the node's home.
    SetAttributes {
        /// The node.
        node: Handle,
        /// Who asks.
        who: Credentials,
        /// What to change.
        change: AttributeChange,
        /// The file is open for writing: ftruncate needs no permission bits then.
        token: Option<OpenToken>,
    },
    /// The target of a symbolic link.
    ReadLink {
        /// The link.
        node: Handle,
    },
    /// Checks permission to open a file, at its home; gives a token of what it is opened for.
    Open {
        /// The file.
        node: Handle,
        /// Who asks.
        who: Credentials,
        /// Whether to read.
        read: bool,
        /// Whether to write.
        write: bool,
        /// Whether to cut to length 0.
        truncate: bool,
        /// Whether to execute it: it is read then, whether or not it may be read otherwise.
        execute: bool,
    },
    /// The extents of a file that overlap with the range from an offset on, with the rights to read them if
    /// the file may be read.
    Extents {
        /// The file.
        node: Handle,
        /// What admits the client to them.
        by: Admission,
        /// The offset.
        offset: u64,
        /// At most so many.
        count_max: u32,
    },
    /// Makes written extents part of a file. The bytes must be acknowledged by all servers of their chunks
    /// (and synced there, if the client promised stability to its caller).
    Commit {
        /// The file.
        node: Handle,
        /// The right to write it.
        token: OpenToken,
        /// The extents, in the order written: a later one covers an earlier one.
        extents: Vec<Extent>,
        /// The file is at least so long afterwards.
        size_min: u64,
        /// When the content last changed; never later than the owner's clock says.
        modified: Wall,
        /// Where the extents go.
        mode: CommitMode,
        /// The rights to append to their chunks: nobody refers to bytes of a chunk that he did not fill
        /// himself.
        opened: Vec<Capability>,
        /// What becomes of the file's set-user-id and set-group-id bits.
        set_ids: SetIds,
    },
    /// The session has no file of this unlinked node open any more.
    Release {
        /// The node.
        node: Handle,
    },
    /// A new chunk with its record at this request's position.
    OpenChunk {
        /// Servers to do without, because the client has failed with them again and again.
        avoid: Vec<ServerId>,
        /// Servers to do without if enough others are there: they have failed the client once lately, as one
        /// does that is started again.
        doubted: Vec<ServerId>,
    },
    /// The servers of a chunk. The right to read comes with the extents of a file.
    Chunk {
        /// The chunk.
        chunk: ChunkRef,
    },
    /// Seals a chunk that cannot be appended to any more, where the furthest whole frame of its servers ends.
    SealChunk {
        /// The chunk.
        chunk: ChunkRef,
        /// The epoch that failed.
        epoch: Epoch,
    },
    /// Space and entries of the filesystem.
    Statfs,
    /// To be the only one who changes a directory's entries, at its home, until that is recalled. Refused as
    /// `Unsupported` where it cannot be: others use the directory, it is large, or it lies in several
    /// tablets.
    Delegate {
        /// The directory.
        directory: Handle,
        /// For whom: needs the permission to see what is in it and to change its entries.
        who: Credentials,
        /// Chosen by the client, anew whenever it lost what was lent to it: steps that it gave up are told by
        /// it from those that it sends now.
        incarnation: u64,
        /// It holds other directories of the tablet under this incarnation. Refused as `Stale` if its owner
        /// has taken all of them back meanwhile.
        joins: bool,
    },
    /// What was decided in delegated directories of one tablet, in order; done whole or not at all. Without
    /// steps it only renews.
    Delegated {
        /// What was decided.
        steps: Vec<Step>,
        /// The lent ids that the steps use.
        ids: Vec<LentIds>,
        /// So many further ids are wanted.
        ids_wanted: u32,
        /// These directories are given back after the steps.
        returned: Vec<NodeId>,
        /// Files of what is given back that are open: they were opened without anybody being told.
        open: Vec<NodeId>,
        /// Their names are leased to the client for [`crate::delegation::names_life`].
        names_kept: bool,
        /// What the directories were asked for with.
        incarnation: u64,
        /// All that was lent under this incarnation, or an earlier one, is given up: steps of it that come
        /// later are refused.
        over: bool,
    },
    /// Makes a range of a file a hole and lets its bytes go, in one step.
    MakeHole {
        /// The file.
        node: Handle,
        /// The right to write it.
        token: OpenToken,
        /// The first byte.
        start: u64,
        /// The first byte after the range; what lies beyond the file's end is no part of it.
        end: u64,
        /// The file is at least so long afterwards.
        size_min: u64,
        /// What becomes of the file's set-user-id and set-group-id bits.
        set_ids: SetIds,
    },
    /// The value of an extended attribute, at the node's home.
    Xattr {
        /// The node.
        node: Handle,
        /// Who asks.
        who: Credentials,
        /// The attribute.
        name: XattrName,
    },
    /// The names of all extended attributes that the asker may know of, at the node's home.
    Xattrs {
        /// The node.
        node: Handle,
        /// Who asks.
        who: Credentials,
    },
    /// Sets or removes an extended attribute, at the node's home.
    SetXattr {
        /// The node.
        node: Handle,
        /// Who asks.
        who: Credentials,
        /// The attribute.
        name: XattrName,
        /// What to do with it.
        change: XattrChange,
    },
    /// Takes a lock, or changes what its owner has of the range, at the file's home.
    Lock {
        /// The file.
        node: Handle,
        /// The lock.
        lock: Lock,
        /// If somebody else stands in the way, the client keeps its place as long as it goes on asking, and
        /// is told when it is free.
        wait: Option<WaitId>,
    },
    /// Gives a range back, at the file's home.
    Unlock {
        /// The file.
        node: Handle,
        /// Whose.
        owner: LockOwner,
        /// Which kind.
        space: LockSpace,
        /// The range.
        range: LockRange,
    },
    /// Who stands in the way of a lock, at the file's home.
    TestLock {
        /// The file.
        node: Handle,
        /// The lock.
        lock: Lock,
    },
    /// The client waits no more, at the file's home.
    StopWaiting {
        /// The file.
        node: Handle,
        /// The wait.
        wait: WaitId,
    },
    /// Where a directory is and how it is called, at its home.
    Place {
        /// The directory.
        directory: Handle,
    },
    /// A page of a tablet's chunks, and whether their servers hold them: for whoever checks a cluster. Asked
    /// at any position of the tablet.
    Chunks {
        /// Who asks; only root may.
        who: Credentials,
        /// Chunks from this one on.
        from: ChunkId,
        /// At most so many.
        count_max: u32,
        /// How sure the answer is to be.
        depth: CheckDepth,
    },
    /// Limits what a directory may hold with all below it, at its home.
    SetQuota {
        /// The directory.
        directory: Handle,
        /// Who asks.
        who: Credentials,
        /// The limit.
        limit: Amount,
    },
    /// The quota that counts a node, at the node's home.
    Quota {
        /// The node.
        node: Handle,
    },
    /// A part of a directory for lookups to come, in the order of cookies. Refused as `Unsupported` while the
    /// directory is delegated to anybody.
    Prefetch {
        /// The directory's grant.
        grant: Grant,
        /// Who asks; needs the permission to list and to search.
        who: Credentials,
        /// Entries after this one.
        after: Cookie,
        /// At most so many entries.
        count_max: u32,
    },
    /// The writer of a chunk appends no more to it, and all that it appended for any file is committed at the
    /// file's home. A promise that only saves time: if it is wrong, a commit that comes later is refused and
    /// its bytes have to be appended again.
    FinishChunk {
        /// The chunk.
        chunk: ChunkRef,
        /// Bytes of files that were committed in it.
        payload: u64,
        /// The right to append to it.
        opened: Capability,
    },
    /// Who uses the session and where, for an operator's eyes. Asked at the session's position, again and
    /// again: its home keeps it in memory only.
    Describe(SessionDescription),
    /// A file was read. Changes the time of access alone, if that is old enough to be changed, and nothing
    /// that is leased.
    Accessed {
        /// The file.
        node: Handle,
        /// When.
        at: Wall,
    },
}

/// What becomes of an extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum XattrChange {
    /// It goes.
    Remove,
    /// It gets a value.
    Set {
        /// The value.
        value: Vec<u8>,
        /// Whether it may or must be there before.
        mode: XattrMode,
    },
}

/// Whether an extended attribute that is set may or must be there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum XattrMode {
    /// All the same.
    Any,
    /// It must not be there (XATTR_CREATE).
    Create,
    /// It must be there (XATTR_REPLACE).
    Replace,
}

/// What to create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewNode {
    /// The kind; not a directory.
    pub file_type: FileType,
    /// Permission bits, umask applied.
    pub mode: Mode,
    /// Device number of a device node, else 0.
    pub device: u32,
    /// The target of a symbolic link, else empty.
    pub target: Vec<u8>,
}

/// What to do when the new name of a rename exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RenameMode {
    /// Replace it (POSIX rename).
    Replace,
    /// Refuse (RENAME_NOREPLACE).
    NoReplace,
    /// Let the two names change places (RENAME_EXCHANGE): both have to exist.
    Exchange,
}

/// Where the extents of a commit go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommitMode {
    /// To their file offsets.
    Put,
    /// Behind the end of the file as it is when the owner decides: their file offsets, and `size_min`, count
    /// from there. The size told in the answer, minus `size_min`, is where they went.
    Append,
}

/// A new time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimeChange {
    /// The owner's present time.
    Now,
    /// This time.
    To(Wall),
}

/// What `SetAttributes` changes; `None` leaves a thing as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttributeChange {
    /// Permission bits.
    pub mode: Option<Mode>,
    /// Owner.
    pub uid: Option<Uid>,
    /// Group.
    pub gid: Option<Gid>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub accessed: Option<TimeChange>,
    /// Content change time.
    pub modified: Option<TimeChange>,
}

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
}

/// The constants of a filesystem, kept in its root's node and in the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesystemRecord {
    /// The filesystem.
    pub filesystem: FilesystemId,
    /// The key of its name hash.
    pub name_key: NameKey,
    /// The scheme of its root.
    pub scheme: Scheme,
    /// Its root directory.
    pub root: NodeId,
    /// On how many servers a chunk lies.
    pub data_copies: u8,
    /// On how many servers a tablet lies.
    pub metadata_copies: u8,
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
