//! A directory that only one client changes is lent to it: the client decides creates, writes and removals by
//! itself, and sends what it decided as steps, in order and in batches (`docs/formats/protocol.md`).

use crate::client::{
    AttributeChange, CommitMode, DirectoryView, Extent, Handle, LeaseMs, NewNode, RenameMode,
};
use crate::grant::{Capability, OpenToken};
use crate::keys::{Key, Mac};
use bearing_types::{
    Attributes, Cookie, Credentials, FileType, Mode, Name, NodeId, Sequence, SessionId, SetIds, Wall,
};
use serde::{Deserialize, Serialize};

/// Open files that one batch of steps tells of, at most.
pub const OPEN_TOLD_MAX: usize = 64;

/// How long a kernel may go by a name of a delegated directory without asking, and so how long names are
/// leased when the directory is given back and they are kept. `life` is that of the delegation.
pub fn names_life(life: LeaseMs) -> LeaseMs {
    LeaseMs(life.0 / 4)
}

/// One change that a client decided in directories delegated to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Its number in the session, as that of a request.
    pub sequence: Sequence,
    /// When it was decided, by the clock that the delegation came with. Never taken for later than the
    /// owner's present.
    pub at: Wall,
    /// What was decided.
    pub change: Change,
}

/// What a step changes. Directories are named by their ids alone: that they are delegated to the session is
/// what admits the step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// A new file, symbolic link or special file.
    Create {
        /// The directory.
        directory: Handle,
        /// Who asked.
        who: Credentials,
        /// The name.
        name: Name,
        /// What was made.
        new: NewNode,
        /// Its id, out of those lent to the session.
        node: NodeId,
    },
    /// A new directory, delegated from its birth.
    MakeDirectory {
        /// The parent.
        directory: Handle,
        /// Who asked.
        who: Credentials,
        /// The name.
        name: Name,
        /// Permission bits, umask applied.
        mode: Mode,
        /// Its id, out of those lent to the session.
        node: NodeId,
    },
    /// A name that is no directory is gone.
    Unlink {
        /// The directory.
        directory: Handle,
        /// Who asked.
        who: Credentials,
        /// The name.
        name: Name,
        /// What it led to.
        node: NodeId,
        /// The client has the file open.
        keep_open: bool,
    },
    /// An empty directory is gone.
    RemoveDirectory {
        /// The parent.
        directory: Handle,
        /// Who asked.
        who: Credentials,
        /// The name.
        name: Name,
        /// What it led to.
        node: NodeId,
    },
    /// A name moved.
    Rename {
        /// The directory that had it.
        source: Handle,
        /// The name.
        source_name: Name,
        /// The directory that has it now.
        target: Handle,
        /// The new name.
        target_name: Name,
        /// Who asked.
        who: Credentials,
        /// What to do when the new name existed.
        mode: RenameMode,
        /// What the old name led to.
        moved: NodeId,
        /// What the new name led to.
        replaced: Option<NodeId>,
        /// The client has the replaced file open.
        keep_open: bool,
    },
    /// Attributes of a node that was made under the delegation or lent with it.
    SetAttributes {
        /// The node.
        node: Handle,
        /// Who asked.
        who: Credentials,
        /// What changed.
        change: AttributeChange,
    },
    /// Written extents of a file that was made under the delegation.
    Commit {
        /// The file.
        node: Handle,
        /// The extents, in the order written.
        extents: Vec<Extent>,
        /// The file is at least so long afterwards.
        size_min: u64,
        /// Where the extents go.
        mode: CommitMode,
        /// The right to write it; none is needed for a node whose id is of those that the batch shows.
        token: Option<OpenToken>,
        /// The rights to append to the extents' chunks.
        opened: Vec<Capability>,
        /// What becomes of the file's set-user-id and set-group-id bits.
        set_ids: SetIds,
    },
    /// An unlinked file is open no more.
    Release {
        /// The node.
        node: Handle,
    },
    /// A file was read: see [`crate::client::Call::Accessed`].
    Accessed {
        /// The file.
        node: Handle,
        /// When.
        at: Wall,
    },
}

/// Ids for nodes that a session makes under its delegations. Nobody else gets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LentIds {
    /// The first.
    pub first: NodeId,
    /// How many.
    pub count: u32,
    /// The signature over these and the session.
    pub mac: Mac,
}

impl LentIds {
    /// Lends a range to a session.
    pub fn sign(first: NodeId, count: u32, session: SessionId, key: &Key) -> LentIds {
        LentIds { first, count, mac: LentIds::mac(first, count, session, key) }
    }

    /// Whether the range was lent to this session.
    pub fn verify(&self, session: SessionId, key: &Key) -> bool {
        self.mac == LentIds::mac(self.first, self.count, session, key)
    }

    /// Whether an id is of the range.
    pub fn contains(&self, node: NodeId) -> bool {
        node.0.checked_sub(self.first.0).is_some_and(|place| place < u64::from(self.count))
    }

    fn mac(first: NodeId, count: u32, session: SessionId, key: &Key) -> Mac {
        let parts = [b"lent ids", &first.0.to_le_bytes()[..], &count.to_le_bytes(), &session.0.to_le_bytes()];
        key.sign(&parts)
    }
}

/// A node that is lent with the directory that names it: whoever else asks for it has that called back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LentNode {
    /// Its attributes.
    pub attributes: Attributes,
    /// Whether it has extended attributes.
    pub extended: bool,
}

/// What is in a delegated directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LentEntry {
    /// Its place in the listing.
    pub cookie: Cookie,
    /// The name.
    pub name: Name,
    /// What it names.
    pub node: Handle,
    /// The kind of node.
    pub file_type: FileType,
    /// The node, if it is lent too.
    pub lent: Option<LentNode>,
}

/// A directory as it is delegated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LentDirectory {
    /// The directory.
    pub view: DirectoryView,
    /// All that is in it, if it is shown whole.
    pub entries: Vec<LentEntry>,
    /// Otherwise it was lent to who asks before, and is too large to be shown again: none of it is.
    pub whole: bool,
}

/// Directories as they are delegated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegationView {
    /// The directory that was asked for, and then others below it.
    pub directories: Vec<LentDirectory>,
    /// How long all delegations of this tablet may be used, from when this was asked for.
    pub lease: LeaseMs,
    /// Ids for what is made in it.
    pub ids: LentIds,
    /// The owner's present.
    pub now: Wall,
}

/// A step that was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepDone {
    /// Its number.
    pub sequence: Sequence,
    /// The node that it made.
    pub made: Option<NodeId>,
    /// The rights of who has that open, if it is a file.
    pub token: Option<OpenToken>,
}

/// What became of a batch of steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepsDone {
    /// The steps.
    pub steps: Vec<StepDone>,
    /// How long all delegations of this tablet may be used, from when this was asked for.
    pub lease: LeaseMs,
    /// Further ids, if some were wanted.
    pub ids: Option<LentIds>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lent_ids_are_good_for_their_session_and_range_only() {
        let key = Key::new([3; 32]);
        let lent = LentIds::sign(NodeId(10), 5, SessionId(1), &key);
        assert!(lent.verify(SessionId(1), &key) && !lent.verify(SessionId(2), &key));
        assert!(!LentIds { count: 6, ..lent }.verify(SessionId(1), &key));
        let inside: Vec<u64> = (0..20).filter(|node| lent.contains(NodeId(*node))).collect();
        assert_eq!(inside, [10, 11, 12, 13, 14]);
        assert!(!LentIds { first: NodeId(u64::MAX), ..lent }.contains(NodeId(0)));
    }
}
