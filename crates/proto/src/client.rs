//! Between clients and metadata servers.

pub use crate::answer::{
    Answer, Body, ChangedDirectory, ChunkView, Detail, DirectoryView, EntryView, LeaseMs, ListedEntry,
    LockView, NodeView, Reply,
};
use crate::delegation::{LentIds, Step};
use crate::grant::{Admission, Capability, CapabilityBody, DataRight, FramePart, Grant, OpenToken};
pub use crate::handles::{ChunkRef, Handle};
pub use crate::inspect::{CheckDepth, ChunkFate, ChunkReport, ReplicaState};
pub use crate::map::{ClusterMap, ServerEntry, ServerKind};
use crate::sessions::SessionDescription;
use bearing_placement::Scheme;
use bearing_types::{
    Amount, ChunkId, Cookie, Credentials, Epoch, FileType, FilesystemId, Gid, Lock, LockOwner, LockRange,
    LockSpace, MapVersion, Mode, Name, NameKey, NodeId, Position, Sequence, ServerId, SessionId, SetIds, Uid,
    Wall, XattrName,
};
use serde::{Deserialize, Serialize};

pub use crate::space::{QuotaView, StatfsView};

pub use crate::notice::{LeaseKey, LockFree, OpenState, OpenStateQuery, Recall, Recalled, WaitId};

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
        /// What is wanted of each entry besides its name and what that leads to.
        detail: Detail,
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
