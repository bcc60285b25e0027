//! What a generator wants done. Directories and files are named by the handles that earlier answers gave.

use bearing_proto::client::{AttributeChange, Handle, NewNode, RenameMode, XattrChange};
use bearing_types::{Credentials, FileType, Lock, Mode, Name, XattrName};

/// One thing to do. A `File` is a small program of its own; all others are one operation each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Look a name up.
    Lookup {
        /// The directory.
        directory: Handle,
        /// The name.
        name: Name,
        /// Who asks.
        who: Credentials,
    },
    /// Read attributes.
    Attributes {
        /// The node.
        node: Handle,
        /// Its kind.
        file_type: FileType,
    },
    /// Change attributes.
    SetAttributes {
        /// The node.
        node: Handle,
        /// Its kind.
        file_type: FileType,
        /// Who asks.
        who: Credentials,
        /// What to change.
        change: AttributeChange,
    },
    /// Make a file, symbolic link or special file.
    Create {
        /// The directory.
        directory: Handle,
        /// The name.
        name: Name,
        /// Who asks.
        who: Credentials,
        /// What to make.
        new: NewNode,
    },
    /// Make a directory.
    MakeDirectory {
        /// The parent.
        directory: Handle,
        /// The name.
        name: Name,
        /// Who asks.
        who: Credentials,
        /// Permission bits.
        mode: Mode,
    },
    /// Remove a name that is no directory.
    Unlink {
        /// The directory.
        directory: Handle,
        /// The name.
        name: Name,
        /// Who asks.
        who: Credentials,
    },
    /// Remove an empty directory.
    RemoveDirectory {
        /// The parent.
        directory: Handle,
        /// The name.
        name: Name,
        /// Who asks.
        who: Credentials,
    },
    /// Move a name.
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
    /// Give a node a further name.
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
    /// Read a symbolic link.
    ReadLink {
        /// The link.
        node: Handle,
    },
    /// List a directory, so many entries at a time.
    List {
        /// The directory.
        directory: Handle,
        /// Who asks.
        who: Credentials,
        /// Entries in one part.
        count_max: u32,
    },
    /// Read an extended attribute.
    Xattr {
        /// The node.
        node: Handle,
        /// Its kind.
        file_type: FileType,
        /// Who asks.
        who: Credentials,
        /// The attribute.
        name: XattrName,
    },
    /// List extended attributes.
    Xattrs {
        /// The node.
        node: Handle,
        /// Its kind.
        file_type: FileType,
        /// Who asks.
        who: Credentials,
    },
    /// Set or remove an extended attribute.
    SetXattr {
        /// The node.
        node: Handle,
        /// Its kind.
        file_type: FileType,
        /// Who asks.
        who: Credentials,
        /// The attribute.
        name: XattrName,
        /// What to do with it.
        change: XattrChange,
    },
    /// Open a file, do the steps, flush and close it.
    File {
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
        /// What to do with it.
        steps: Vec<FileSteps>,
    },
}

/// What to do with an open file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileSteps {
    /// Read bytes.
    Read {
        /// The first byte.
        offset: u64,
        /// How many.
        length: u32,
    },
    /// Write bytes.
    Write {
        /// The first byte.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Write bytes to the end that the file has when they are flushed.
    Append {
        /// The bytes.
        bytes: Vec<u8>,
        /// The number by which they are looked for in the file at the end, if they are a [`crate::Record`].
        record: Option<u64>,
    },
    /// Make writes visible.
    Flush,
    /// Make them stable.
    Sync,
    /// Cut or extend through the open file.
    Resize {
        /// The new length.
        size: u64,
    },
    /// Make a range a hole.
    MakeHole {
        /// The first byte.
        start: u64,
        /// The first byte after it.
        end: u64,
        /// The file is at least so long afterwards.
        size_min: u64,
    },
    /// Copy bytes of the file to another place in it, which does not overlap the first.
    Copy {
        /// The first byte.
        from: u64,
        /// Where it goes.
        to: u64,
        /// How many, if there are so many.
        length: u64,
    },
    /// Lock the file, or a part of it, until it is closed. Comes first.
    Lock {
        /// The lock; its owner is filled in by whoever carries it out.
        lock: Lock,
        /// Whether to wait for it.
        waits: bool,
    },
    /// Remove the name by which it was found; the open file goes on.
    Unlink {
        /// The directory.
        directory: Handle,
        /// The name.
        name: Name,
    },
}
