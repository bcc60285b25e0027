//! What became of what, for people.

use bearing_types::{NodeId, TabletSerial};
use std::fmt;

/// What was brought back and what was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Directories, files and others that came out of checkpoints.
    pub directories: u64,
    /// See `directories`.
    pub files: u64,
    /// Symbolic links, devices, sockets and pipes.
    pub others: u64,
    /// Names of all these: a file may have several.
    pub names: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// Files that no checkpoint has: made after it, and known by their bytes.
    pub younger: Vec<(NodeId, Path)>,
    /// Files of checkpoints that were changed afterwards, with what was written since.
    pub changed: Vec<(NodeId, Path)>,
    /// What is there and is not what it was, or is not there.
    pub lost: Vec<Lost>,
    /// Tablets of which a checkpoint was found that cannot be read: it is damaged, or of another version.
    pub unread: Vec<TabletSerial>,
    /// Tablets of which no checkpoint was found.
    pub tablets_without: Vec<TabletSerial>,
}

/// A path as it is now. Names need not be text.
pub type Path = Vec<u8>;

/// Something that is not what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Where it is, or was.
    pub path: Path,
    /// What it is.
    pub node: NodeId,
    /// What became of it.
    pub why: Why,
}

/// What became of something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// None of its bytes is on a data server: it is not there.
    NoBytes,
    /// Some of its bytes are not: reading these is an error. So many bytes, the first of them here.
    SomeBytes(u64, u64),
    /// Its name is known, and nothing else of it: it is not there.
    NoNode,
    /// A directory of which nothing is known but its number and what is in it.
    NoDirectory,
    /// No checkpoint has its name: it has the last one that a writer of its bytes knew.
    LastName,
    /// It was moved or linked between the checkpoints of two tablets: it has both names.
    MoreNames,
    /// So many bytes that were appended after the checkpoint belong nobody knows where: they are not there.
    Misplaced(u64),
    /// Nobody knows its name.
    NoName,
    /// Another one has its name: it has this one.
    NameTaken,
    /// It had a second name, in this place, which a directory cannot have.
    SecondName,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::NoBytes => write!(
                f,
                "not brought back: none of its bytes is on a data server (it was removed after the checkpoint, or they were lost)"
            ),
            Why::SomeBytes(bytes, at) => {
                write!(f, "{bytes} bytes, the first at {at}, are on no data server: reading them is an error")
            }
            Why::NoNode => {
                write!(f, "not brought back: no checkpoint says what it was, and it has no bytes to tell")
            }
            Why::NoDirectory => {
                write!(f, "no checkpoint has this directory: its name and attributes are new")
            }
            Why::LastName => write!(f, "no checkpoint has its name: it has the last one that a writer knew"),
            Why::MoreNames => {
                write!(
                    f,
                    "it was moved or linked while checkpoints were stored: it has more names than it had"
                )
            }
            Why::Misplaced(bytes) => {
                write!(
                    f,
                    "{bytes} bytes that were appended after the checkpoint are left out: several may have appended"
                )
            }
            Why::NoName => write!(f, "nobody knows its name"),
            Why::NameTaken => write!(f, "another one has its name, so it has this one"),
            Why::SecondName => {
                write!(f, "the directory was moved after the checkpoint: it has its other name")
            }
        }
    }
}
