//! What a generator wants done. Directories and files are named by the handles that earlier answers gave.

use crate::tree::TreeStep;
use bearing_proto::client::Handle;
use bearing_proto::operation::Operation;
use bearing_types::{Credentials, Lock, Name};

/// One thing to do. Listings and files are small programs of their own, of many operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// One operation.
    One(Operation),
    /// List a directory, so many entries at a time.
    List {
        /// The directory.
        directory: Handle,
        /// Who asks.
        who: Credentials,
        /// Entries in one part.
        count_max: u32,
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
    /// Make a tree of files, and remove it.
    Tree {
        /// In which directory.
        directory: Handle,
        /// Who asks.
        who: Credentials,
        /// What to do.
        steps: Vec<TreeStep>,
    },
}

impl From<Operation> for Action {
    fn from(operation: Operation) -> Action {
        Action::One(operation)
    }
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
