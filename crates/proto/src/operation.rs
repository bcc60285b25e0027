//! What programs (the mount, the session API, the simulator, generators, benchmarks) ask of a client: the
//! operations that are on the way to [`crate::client::Call`]s and [`crate::delegation::Change`]s. They are
//! never sent, so their form is free.

use crate::client::{AttributeChange, CheckDepth, Detail, Handle, NewNode, RenameMode, XattrChange};
use bearing_types::{
    Amount, ChunkId, Cookie, Credentials, FileType, Lock, LockOwner, LockRange, LockSpace, Mode, Name,
    Position, SetIds, Squash, XattrName,
};
use std::net::IpAddr;

/// An open file of this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpenFile(pub u64);

/// What is looked for in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTarget {
    /// Bytes that were written (SEEK_DATA).
    Data,
    /// A range that was not, or the end (SEEK_HOLE).
    Hole,
}

/// What the flow server is asked for people and for programs that place tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advice {
    /// From where would what follows in a file be read, and why?
    Read {
        /// The file, open for reading.
        file: OpenFile,
        /// From here on.
        offset: u64,
        /// By this host; `None`: by this one.
        reader: Option<IpAddr>,
    },
    /// How long would each of these hosts read a file?
    Rank {
        /// The file, open for reading.
        file: OpenFile,
        /// The hosts.
        readers: Vec<IpAddr>,
    },
    /// What flows now?
    Traffic,
}

/// An operation. Directories and files are named by handles that earlier answers gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The root directory.
    Root,
    /// A name in a directory.
    Lookup {
        /// The directory.
        directory: Handle,
        /// The name.
        name: Name,
        /// Who asks.
        who: Credentials,
    },
    /// The parent of a directory.
    Parent {
        /// The directory.
        directory: Handle,
    },
    /// Attributes of a node. Answers see this client's own unflushed writes.
    Attributes {
        /// The node.
        node: Handle,
        /// The kind of node: a directory is asked for its content too.
        file_type: FileType,
    },
    /// Changes attributes. Flushes the file's buffered writes first.
    SetAttributes {
        /// The node.
        node: Handle,
        /// The kind of node.
        file_type: FileType,
        /// Who asks.
        who: Credentials,
        /// What to change.
        change: AttributeChange,
        /// The file, if it is done through one that is open for writing.
        file: Option<OpenFile>,
    },
    /// Makes a file, symbolic link or special file.
    Create {
        /// The directory.
        directory: Handle,
        /// The name.
        name: Name,
        /// Who asks.
        who: Credentials,
        /// What to make.
        new: NewNode,
        /// Whether to open the new file for reading and writing.
        open: bool,
    },
    /// Makes a directory.
    MakeDirectory {
        /// The parent.
        directory: Handle,
        /// The name.
        name: Name,
        /// Who asks.
        who: Credentials,
        /// Permission bits, umask applied.
        mode: Mode,
    },
    /// Removes a name that is no directory.
    Unlink {
        /// The directory.
        directory: Handle,
        /// The name.
        name: Name,
        /// Who asks.
        who: Credentials,
    },
    /// Removes an empty directory.
    RemoveDirectory {
        /// The parent.
        directory: Handle,
        /// The name.
        name: Name,
        /// Who asks.
        who: Credentials,
    },
    /// Moves a name.
    Rename {
        /// The directory that has it.
        source: Handle,
        /// The name.
        source_name: Name,
        /// The directory that shall have it.
        target: Handle,
        /// The new name.
        target_name: Name,
        /// Who asks.
        who: Credentials,
        /// What to do when the new name exists.
        mode: RenameMode,
    },
    /// Gives a node a further name.
    Link {
        /// The node.
        node: Handle,
        /// The directory.
        directory: Handle,
        /// The name.
        name: Name,
        /// Who asks.
        who: Credentials,
    },
    /// The target of a symbolic link.
    ReadLink {
        /// The link.
        node: Handle,
    },
    /// A part of a listing.
    List {
        /// The directory.
        directory: Handle,
        /// Who asks.
        who: Credentials,
        /// Entries after this one.
        after: Cookie,
        /// At most so many.
        count_max: u32,
        /// What is wanted of each entry: names alone are many times faster. With [`Detail::Lookups`] lookups
        /// of the entries need not ask for a while.
        detail: Detail,
    },
    /// Opens a file.
    Open {
        /// The file.
        node: Handle,
        /// Who asks.
        who: Credentials,
        /// Whether to read.
        read: bool,
        /// Whether to write.
        write: bool,
        /// Whether to cut it to length 0.
        truncate: bool,
        /// Whether to execute it: it is read then, whether or not it may be read otherwise.
        execute: bool,
    },
    /// Closes a file. Its writes must have been flushed.
    Close {
        /// The file.
        file: OpenFile,
    },
    /// Reads bytes; fewer only at the end of the file. Sees this client's own unflushed writes; holes read as
    /// zeros.
    Read {
        /// The file.
        file: OpenFile,
        /// The first byte.
        offset: u64,
        /// How many.
        length: u32,
    },
    /// Writes bytes. Buffered: visible to others after `Flush`, stable after `Sync`.
    Write {
        /// The file.
        file: OpenFile,
        /// The first byte; `None` appends at the end that the file has when the bytes are flushed, whoever
        /// appended before. Up to 4 MiB go in one piece.
        offset: Option<u64>,
        /// The bytes.
        bytes: Vec<u8>,
        /// What becomes of the file's set-user-id and set-group-id bits.
        set_ids: SetIds,
    },
    /// Makes a range of a file a hole, which reads as zeros, and the file at least so long. Flushes the
    /// file's buffered writes first.
    MakeHole {
        /// The file, open for writing.
        file: OpenFile,
        /// The first byte.
        start: u64,
        /// The first byte after the range; the file does not grow by it.
        end: u64,
        /// The file is at least so long afterwards.
        size_min: u64,
        /// What becomes of the file's set-user-id and set-group-id bits.
        set_ids: SetIds,
    },
    /// Makes sure that there is space for a range of a file, and makes the file so long. Nothing is reserved.
    /// Flushes the file's buffered writes first.
    Allocate {
        /// The file, open for writing.
        file: OpenFile,
        /// The first byte.
        start: u64,
        /// The first byte after the range.
        end: u64,
        /// Whether the file becomes longer.
        grows: bool,
        /// What becomes of the file's set-user-id and set-group-id bits.
        set_ids: SetIds,
    },
    /// Copies bytes of a file to another place, where others see them at once: data servers take them from
    /// where they are. Holes stay holes. Flushes the buffered writes of both files first. Answered with how
    /// much was copied, which may be less than asked for: go on behind it. None is left at the end of the
    /// source.
    Copy {
        /// The file that has them, open for reading.
        source: OpenFile,
        /// The first byte there.
        source_offset: u64,
        /// The file that gets them, open for writing; it may be the same one.
        target: OpenFile,
        /// Where the first byte goes. The ranges must not overlap.
        target_offset: u64,
        /// How many.
        length: u64,
        /// What becomes of the target's set-user-id and set-group-id bits.
        set_ids: SetIds,
    },
    /// Where the next stored bytes, or the next hole, begin; the end of a file counts as a hole. Flushes the
    /// file's buffered writes first.
    Seek {
        /// The file.
        file: OpenFile,
        /// Where to begin.
        offset: u64,
        /// What to look for.
        target: SeekTarget,
    },
    /// Makes this client's writes to the file visible to later opens (what close(2) needs).
    Flush {
        /// The file.
        file: OpenFile,
    },
    /// Makes them stable too (what fsync(2) needs).
    Sync {
        /// The file.
        file: OpenFile,
    },
    /// Makes all writes of this client stable, and all that it decided by itself.
    SyncAll,
    /// Makes all that it decided by itself stable: names and attributes (what fsync(2) of a directory needs).
    SyncNames,
    /// Space and entries.
    Statfs,
    /// Where the bytes of a file lie, as its owner has it: for whoever checks a cluster.
    Extents {
        /// The file.
        node: Handle,
        /// From this byte on.
        offset: u64,
    },
    /// A page of the chunks of the tablet at a position, and whether their servers hold them.
    Chunks {
        /// Any position of the tablet.
        position: Position,
        /// Who asks; only root may.
        who: Credentials,
        /// Chunks from this one on.
        from: ChunkId,
        /// How sure the answer is to be.
        depth: CheckDepth,
    },
    /// The value of an extended attribute.
    Xattr {
        /// The node.
        node: Handle,
        /// The kind of node.
        file_type: FileType,
        /// Who asks.
        who: Credentials,
        /// The attribute.
        name: XattrName,
    },
    /// The names of all extended attributes that the asker may know of.
    Xattrs {
        /// The node.
        node: Handle,
        /// The kind of node.
        file_type: FileType,
        /// Who asks.
        who: Credentials,
    },
    /// Sets or removes an extended attribute.
    SetXattr {
        /// The node.
        node: Handle,
        /// The kind of node.
        file_type: FileType,
        /// Who asks.
        who: Credentials,
        /// The attribute.
        name: XattrName,
        /// What to do with it.
        change: XattrChange,
    },
    /// Takes a lock on a file that is open. Ends with `Locked` if somebody else stands in the way, or waits;
    /// see the client's `Event::GiveUp`. What is read afterwards is at least what others had written when
    /// they gave their locks back.
    Lock {
        /// The file.
        node: Handle,
        /// The lock.
        lock: Lock,
        /// Whether to wait for it.
        waits: bool,
    },
    /// Gives a range back. What this client wrote is made visible before.
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
    /// Who stands in the way of a lock.
    TestLock {
        /// The file.
        node: Handle,
        /// The lock.
        lock: Lock,
    },
    /// Limits what a directory may hold with all below it (root only). It gets its first limit while it is
    /// empty.
    SetQuota {
        /// The directory.
        directory: Handle,
        /// Who asks.
        who: Credentials,
        /// The limit.
        limit: Amount,
    },
    /// The quota that counts a node.
    Quota {
        /// The node.
        node: Handle,
    },
    /// Where a directory is and how it is called.
    Place {
        /// The directory.
        directory: Handle,
    },
    /// Asks the flow server.
    Advise(Advice),
    /// Flushes everything and ends the session.
    End,
}

impl Operation {
    /// Has it done for those as whom its users count: what is decided here is decided as servers do it.
    pub fn squash(&mut self, squash: Squash) {
        match self {
            Operation::Lookup { who, .. }
            | Operation::SetAttributes { who, .. }
            | Operation::Create { who, .. }
            | Operation::MakeDirectory { who, .. }
            | Operation::Unlink { who, .. }
            | Operation::RemoveDirectory { who, .. }
            | Operation::Rename { who, .. }
            | Operation::Link { who, .. }
            | Operation::List { who, .. }
            | Operation::Open { who, .. }
            | Operation::Chunks { who, .. }
            | Operation::Xattr { who, .. }
            | Operation::Xattrs { who, .. }
            | Operation::SetXattr { who, .. }
            | Operation::SetQuota { who, .. } => *who = squash.apply(who).into_owned(),
            Operation::Root
            | Operation::Parent { .. }
            | Operation::Attributes { .. }
            | Operation::ReadLink { .. }
            | Operation::Close { .. }
            | Operation::Read { .. }
            | Operation::Write { .. }
            | Operation::MakeHole { .. }
            | Operation::Allocate { .. }
            | Operation::Copy { .. }
            | Operation::Seek { .. }
            | Operation::Flush { .. }
            | Operation::Sync { .. }
            | Operation::Advise(_)
            | Operation::SyncAll
            | Operation::SyncNames
            | Operation::Statfs
            | Operation::Extents { .. }
            | Operation::Lock { .. }
            | Operation::Unlock { .. }
            | Operation::TestLock { .. }
            | Operation::Quota { .. }
            | Operation::Place { .. }
            | Operation::End => {}
        }
    }
}
