//! What the oracle is told and asked, and what it says.

use super::List;
use crate::history::OwnWrites;
use bearing_proto::client::{AttributeChange, CommitMode, NewNode, RenameMode, XattrChange};
use bearing_types::{
    Access, Attributes, Credentials, FileType, Gid, Mode, Name, NodeId, SetIds, Uid, Wall, XattrName,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Bytes that a file gets at an offset.
#[derive(Clone, PartialEq, Eq)]
pub struct Piece {
    /// The first byte.
    pub offset: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.offset, self.bytes.len())
    }
}

/// A change, as a client asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// A new file, symbolic link or special file.
    Create {
        /// The directory.
        directory: NodeId,
        /// The name.
        name: Name,
        /// Who asks.
        who: Credentials,
        /// What to make.
        new: NewNode,
    },
    /// A new directory.
    MakeDirectory {
        /// The parent.
        directory: NodeId,
        /// The name.
        name: Name,
        /// Who asks.
        who: Credentials,
        /// Permission bits.
        mode: Mode,
    },
    /// Removes a name that is no directory.
    Unlink {
        /// The directory.
        directory: NodeId,
        /// The name.
        name: Name,
        /// Who asks.
        who: Credentials,
    },
    /// Removes an empty directory.
    RemoveDirectory {
        /// The parent.
        directory: NodeId,
        /// The name.
        name: Name,
        /// Who asks.
        who: Credentials,
    },
    /// Moves a name.
    Rename {
        /// The directory that has it.
        source: NodeId,
        /// The name.
        source_name: Name,
        /// The directory that shall have it.
        target: NodeId,
        /// The new name.
        target_name: Name,
        /// Who asks.
        who: Credentials,
        /// What to do when the new name exists.
        mode: RenameMode,
    },
    /// A further name.
    Link {
        /// The node.
        node: NodeId,
        /// The directory.
        directory: NodeId,
        /// The name.
        name: Name,
        /// Who asks.
        who: Credentials,
    },
    /// Changes attributes.
    SetAttributes {
        /// The node.
        node: NodeId,
        /// Who asks.
        who: Credentials,
        /// What to change.
        change: AttributeChange,
        /// Whether it is done through a file open for writing: cutting needs no permission bits then.
        through_file: bool,
    },
    /// Opens a file and cuts it to length 0.
    Truncate {
        /// The file.
        node: NodeId,
        /// Who asks.
        who: Credentials,
        /// Whether to read it too.
        read: bool,
    },
    /// Makes a range of a file read as zeros, through a file open for writing.
    MakeHole {
        /// The file.
        node: NodeId,
        /// The first byte.
        start: u64,
        /// The first byte after the range; the file does not grow by it.
        end: u64,
        /// The file is at least so long afterwards.
        size_min: u64,
        /// What becomes of the set-user-id and set-group-id bits.
        set_ids: SetIds,
    },
    /// Sets or removes an extended attribute.
    SetXattr {
        /// The node.
        node: NodeId,
        /// Who asks.
        who: Credentials,
        /// The attribute.
        name: XattrName,
        /// What to do with it.
        change: XattrChange,
    },
    /// Makes written bytes part of a file.
    Commit {
        /// The file.
        node: NodeId,
        /// The bytes, in the order written.
        pieces: Vec<Piece>,
        /// The file is at least so long afterwards.
        size_min: u64,
        /// Whether offsets and length count from the file's start or from the end that it has before.
        mode: CommitMode,
        /// What becomes of the set-user-id and set-group-id bits.
        set_ids: SetIds,
    },
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// What a name names.
    Lookup {
        /// The directory.
        directory: NodeId,
        /// The name.
        name: Name,
        /// Who asks.
        who: Credentials,
    },
    /// The attributes of a node.
    Attributes {
        /// The node.
        node: NodeId,
        /// The asker's own writes that are not committed reach up to here; they show in the size.
        own_end: u64,
    },
    /// A whole listing, from the first part to the last.
    List {
        /// The directory.
        directory: NodeId,
        /// Who asks.
        who: Credentials,
    },
    /// The target of a symbolic link.
    ReadLink {
        /// The link.
        node: NodeId,
    },
    /// The value of an extended attribute.
    Xattr {
        /// The node.
        node: NodeId,
        /// Who asks.
        who: Credentials,
        /// The attribute.
        name: XattrName,
    },
    /// The names of all extended attributes that the asker may know of.
    Xattrs {
        /// The node.
        node: NodeId,
        /// Who asks.
        who: Credentials,
    },
    /// Whether a file may be opened (without cutting it).
    Open {
        /// The file.
        node: NodeId,
        /// Who asks.
        who: Credentials,
        /// Whether to read.
        read: bool,
        /// Whether to write.
        write: bool,
    },
    /// A part of an open file's content.
    Content {
        /// The file.
        node: NodeId,
        /// The first byte.
        offset: u64,
        /// How many.
        length: u32,
        /// What the asker itself wrote.
        own: OwnWrites,
    },
}

/// Attributes as far as they are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The node.
    pub node: NodeId,
    /// The kind of node.
    pub file_type: FileType,
    /// Permission bits.
    pub mode: Mode,
    /// Owner.
    pub uid: Uid,
    /// Group.
    pub gid: Gid,
    /// Number of names; for a directory 2 + its child directories.
    pub links: u32,
    /// Bytes; for a directory the number of its entries in the oracle, and a multiple of it in what a client
    /// sees.
    pub size: u64,
    /// When the content was last changed. `None` in the oracle: at a time that nobody chose.
    pub modified: Option<Wall>,
}

impl View {
    /// Whether what a client sees is this.
    pub fn is_seen_as(&self, seen: &View) -> bool {
        let fits = self.modified.is_none() || self.modified == seen.modified;
        fits && View { modified: seen.modified, ..*self } == *seen
    }

    /// What a client was told of a node.
    pub fn of(node: NodeId, attributes: &Attributes) -> View {
        View {
            node,
            file_type: attributes.file_type,
            mode: attributes.mode,
            uid: attributes.uid,
            gid: attributes.gid,
            links: attributes.links,
            size: attributes.size,
            modified: Some(attributes.modified),
        }
    }
}

/// The answer to an operation that went well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Done.
    Done,
    /// A node.
    Node(View),
    /// A listing, in the order in which it came.
    Listing(Vec<(Name, NodeId, FileType)>),
    /// The target of a symbolic link.
    Target(Vec<u8>),
    /// The value of an extended attribute.
    Value(Vec<u8>),
    /// Names of extended attributes.
    Names(BTreeSet<Vec<u8>>),
    /// Content.
    Bytes(Vec<u8>),
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The kind.
    pub file_type: FileType,
    /// Mode, owner, group.
    pub access: Access,
    /// Number of names; for a directory 2 + its child directories; 0: it is unlinked.
    pub links: u32,
    /// A directory's parent.
    pub parent: Option<NodeId>,
    /// A directory's number of entries.
    pub entries: u64,
    /// A file's bytes, or a symbolic link's target.
    pub content: Arc<Vec<u8>>,
    /// Extended attributes, without the lists.
    pub xattrs: BTreeMap<XattrName, Vec<u8>>,
    /// Its access control list, if permission bits do not say all of it.
    pub access_list: Option<List>,
    /// Of a directory: the list of what is made in it.
    pub default_list: Option<List>,
    /// The time of the last change of the content, if somebody set it and nothing changed the content since.
    /// Of a directory it is never known: its entries change it a little later.
    pub modified: Option<Wall>,
}

impl Node {
    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.file_type == FileType::Directory
    }

    /// Its attributes.
    pub fn view(&self, node: NodeId) -> View {
        let size = if self.is_directory() { self.entries } else { self.content.len() as u64 };
        let Access { mode, uid, gid } = self.access;
        View {
            node,
            file_type: self.file_type,
            mode,
            uid,
            gid,
            links: self.links,
            size,
            modified: self.modified,
        }
    }
}

/// A state of the filesystem: now, or at some point of the past.
pub trait State {
    /// A node.
    fn node(&self, node: NodeId) -> Option<&Node>;

    /// What a name names.
    fn entry(&self, directory: NodeId, name: &Name) -> Option<NodeId>;
}
