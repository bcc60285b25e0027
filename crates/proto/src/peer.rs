//! Between metadata servers: parts of transactions, queued items, questions.

use crate::client::{ChunkRef, Extent, Handle, NodeView, QuotaView};
use bearing_placement::Seat;
use bearing_types::{
    Access, AclHash, Acls, Amount, Block, ChunkId, Credentials, Epoch, FileType, Gid, LogIndex, Mode, Name,
    NameHash, NodeId, Position, SessionId, TabletSerial, TransactionId, Uid, Version, Wall,
};
use serde::{Deserialize, Serialize};

/// A message to the owner of a position, from the owner of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerMessage {
    /// A position in the tablet that sends: where the answer goes.
    pub from: Position,
    /// A position in the tablet that shall act.
    pub to: Position,
    /// The epoch of the addressed tablet as the sender knows it. Prepares under another epoch are refused, so
    /// that a stray copy is never executed by a later owner.
    pub epoch: Epoch,
    /// What it says.
    pub body: PeerBody,
}

/// What metadata servers say to each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerBody {
    /// Prepare a part of a transaction.
    Prepare {
        /// The transaction.
        transaction: TransactionId,
        /// Which of its parts; a participant may hold several.
        part_number: u8,
        /// The session that asked; its own leases are in nobody's way.
        session: SessionId,
        /// All transactions of the same coordinator epoch with smaller numbers are over.
        over_below: u64,
        /// What to prepare.
        part: Box<Part>,
    },
    /// The part is prepared (or refused, or cannot be now).
    Prepared {
        /// The transaction.
        transaction: TransactionId,
        /// Which part.
        part_number: u8,
        /// The result.
        vote: Vote,
    },
    /// The transaction is decided: apply or drop all its parts here.
    Decided {
        /// The transaction.
        transaction: TransactionId,
        /// Whether it committed.
        commit: bool,
    },
    /// All parts here are applied or dropped.
    Settled {
        /// The transaction.
        transaction: TransactionId,
    },
    /// A participant in doubt asks the coordinator, which decides or aborts.
    Inquire {
        /// The transaction.
        transaction: TransactionId,
    },
    /// An item of the outbox.
    Deliver {
        /// Its id.
        item: ItemId,
        /// All items of the same tablet to this one with smaller ids are acknowledged.
        done_below: ItemId,
        /// What to do.
        work: Deferred,
    },
    /// The item is executed.
    Delivered {
        /// Its id.
        item: ItemId,
    },
    /// A question that changes nothing that matters if asked twice.
    Ask {
        /// Chosen by the asker.
        id: u64,
        /// The question.
        question: Question,
    },
    /// Its answer.
    Told {
        /// The question's id.
        id: u64,
        /// The answer.
        told: Told,
    },
    /// The position is not served here (under that epoch).
    NotMine {
        /// What the sender believes instead.
        tablet: Option<(Block, Epoch, bearing_types::ServerId)>,
    },
    /// An item could not be executed yet; perhaps it can be now.
    Again {
        /// Its id.
        item: ItemId,
    },
    /// A session is over, as its home has logged. A hint: whoever holds something for it asks there before it
    /// is let go.
    SessionOver {
        /// The session.
        session: SessionId,
    },
}

/// What the home of a session says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionLife {
    /// It lives.
    Lives,
    /// Its client has closed it, and uses nothing any more.
    Closed,
    /// It is over. Its client may not know yet, and use what it has leased from others until that is over.
    Over,
}

/// The id of an outbox item: the tablet that queued it, the log record that wrote it, and its place in that
/// record. It stays the same wherever the tablet is served and whatever becomes of its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ItemId {
    /// The tablet.
    pub tablet: TabletSerial,
    /// The record.
    pub index: LogIndex,
    /// The place in it.
    pub place: u8,
}

/// What a queued item does. It cannot be refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Deferred {
    /// Make the node of a new directory (mkdir into another tablet).
    MakeDirectory {
        /// The directory's seat.
        seat: Seat,
        /// Its parent.
        parent: Handle,
        /// Its name.
        name: Name,
        /// Mode, owner and group.
        access: Access,
        /// Access control lists.
        acls: Box<Acls>,
        /// When.
        born: Wall,
        /// The quota that counts what is in it.
        quota: Option<Handle>,
    },
    /// A name of the node is gone.
    DropLink {
        /// The node.
        node: Handle,
        /// Sessions that still have the file open, if this was the last link.
        open: Vec<SessionId>,
        /// When.
        changed: Wall,
    },
    /// So many bytes of a chunk are referred to by nobody.
    ReleaseSpace {
        /// The chunk.
        chunk: ChunkRef,
        /// Bytes of frames.
        bytes: u64,
    },
    /// A name of the node was moved: that is a change of its attributes.
    Touch {
        /// The node.
        node: Handle,
        /// When.
        changed: Wall,
    },
}

/// What a participant prepares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// Rename: take a name away from a directory.
    TakeName {
        /// The directory.
        directory: NodeId,
        /// The hash of the name.
        hash: NameHash,
        /// The name.
        name: Name,
        /// The user, for the sticky rule, with the directory's mode and owner.
        remover: Remover,
        /// The directory's access version that the shown grant is of.
        access_version: Version,
        /// When.
        changed: Wall,
    },
    /// Rename of a directory: it has this parent and name from now on.
    SetParent {
        /// The directory.
        node: Handle,
        /// Its new parent.
        parent: Handle,
        /// Its new name.
        name: Name,
        /// Who moves it: moving to another parent changes the directory's own `..`, which needs the right to
        /// write it.
        who: Credentials,
        /// When.
        changed: Wall,
    },
    /// Rename of a directory to another parent: the move token of the filesystem.
    MoveToken,
    /// Link: one more name for a node.
    AddLink {
        /// The node.
        node: Handle,
        /// When.
        changed: Wall,
        /// The quota that counts the new name: the node has to be of the same.
        quota: Option<Handle>,
    },
    /// rmdir, at the directory's home: no new fragment is listed from now on.
    KillNode {
        /// The directory.
        node: Handle,
    },
    /// rmdir, at each listed fragment: it is empty, and refuses every child operation from now on.
    KillFragment {
        /// The directory.
        node: NodeId,
    },
    /// chmod or chown of a directory, at each listed fragment: it takes changes under no older grant from now
    /// on.
    AgeGrants {
        /// The directory.
        node: NodeId,
        /// Where its names lie.
        name_block: Block,
        /// Its new access version.
        access_version: Version,
        /// The quota that counts its entries: another one than before only if there are none.
        quota: Option<Handle>,
    },
    /// Exchange of two names: lets one of them lead to what the other leads to.
    SwapName {
        /// The directory.
        directory: NodeId,
        /// The hash of the name.
        hash: NameHash,
        /// The name.
        name: Name,
        /// What it leads to from now on.
        node: Handle,
        /// Its kind.
        file_type: FileType,
        /// The user, for the sticky rule, with the directory's mode and owner.
        remover: Remover,
        /// The directory's access version that the shown grant is of.
        access_version: Version,
        /// When.
        changed: Wall,
    },
}

/// Who removes a name, as far as the sticky rule asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remover {
    /// The user.
    pub uid: Uid,
    /// The directory's mode.
    pub directory_mode: Mode,
    /// The directory's owner.
    pub directory_uid: Uid,
}

/// A participant's word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Vote {
    /// Prepared and stable, with what the coordinator needs to know.
    Yes(Promise),
    /// Refused; the transaction aborts with this code.
    No(bearing_types::Code),
    /// Something else holds what it needs, or leases are being recalled: abort, and try again a little later.
    Later,
}

/// What a prepared part tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Promise {
    /// Nothing.
    Done,
    /// The name that is taken.
    Taken {
        /// What it names.
        node: Handle,
        /// The kind of node.
        file_type: FileType,
    },
    /// The fragments that the directory lists.
    Fragments(Vec<Block>),
    /// The node that has one more link.
    Linked(NodeView),
}

/// A question between tablets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// List my block as a fragment of this directory.
    ListFragment {
        /// The directory.
        directory: Handle,
        /// The block.
        block: Block,
    },
    /// The parent of a directory.
    Parent {
        /// The directory.
        directory: Handle,
    },
    /// The record of a directory's fragment.
    Fragment {
        /// The directory.
        directory: NodeId,
    },
    /// A range of new ids, from the tablet at position 0.
    Ids {
        /// How many.
        count: u32,
    },
    /// Whether a session lives.
    Session {
        /// The session.
        session: SessionId,
    },
    /// The access control lists of a directory, if they are those that a grant speaks of.
    Acls {
        /// The directory.
        directory: Handle,
        /// What the grant says of them.
        hash: AclHash,
    },
    /// The owner of a node and its kind, for the sticky rule.
    Owner {
        /// The node.
        node: Handle,
    },
    /// May files of my tablet refer to a chunk?
    Join {
        /// The chunk.
        chunk: ChunkRef,
        /// A position in the tablet that asks.
        user: Position,
    },
    /// Which extents of these nodes lie in a chunk. None more will from the answer on.
    Uses {
        /// The chunk.
        chunk: ChunkId,
        /// The nodes, all at home in one tablet.
        nodes: Vec<Handle>,
        /// Extents from this file offset on.
        from: u64,
    },
    /// A tablet tells a quota's home what it uses and wants to use.
    Share {
        /// The quota.
        quota: Handle,
        /// The tablet's start.
        tablet: Position,
        /// What it uses.
        used: Amount,
        /// What it wants to use.
        wanted: Amount,
    },
    /// A quota, at its home.
    Quota {
        /// The quota.
        quota: Handle,
    },
    /// Frames of a chunk lie in another one as well: extents that are still in the old one are in the new one
    /// from the answer on.
    Move {
        /// The old chunk.
        from: ChunkId,
        /// The new one.
        to: ChunkRef,
        /// Which extents, all of nodes at home in one tablet.
        moves: Vec<ExtentMove>,
    },
}

/// An extent that is to be in another chunk, if it still is where it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtentMove {
    /// Whose it is.
    pub node: Handle,
    /// Where it begins in the file.
    pub file_offset: u64,
    /// Its length when it was seen; parts of it may have been replaced since.
    pub length: u32,
    /// Where its frame starts in the old chunk.
    pub frame: u64,
    /// Where that frame starts in the new one.
    pub place: u64,
}

/// An extent that lies in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkUse {
    /// Whose it is.
    pub node: Handle,
    /// Where it lies.
    pub extent: Extent,
}

/// The answer to a [`Question`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// The block is listed.
    Listed {
        /// The directory's access version.
        access_version: Version,
    },
    /// The parent; itself for a root.
    Parent(Handle),
    /// The fragment's record.
    Fragment(FragmentStat),
    /// Ids from `first` on.
    Ids {
        /// The first.
        first: NodeId,
        /// How many.
        count: u32,
    },
    /// Whether the session lives.
    Session(SessionLife),
    /// The node's owner and group.
    Owner {
        /// The user.
        uid: Uid,
        /// The group.
        gid: Gid,
    },
    /// The lists that were asked for.
    Acls(Box<Acls>),
    /// What the tablet may use of the quota.
    Share(Amount),
    /// The quota.
    Quota(QuotaView),
    /// No such thing.
    Refused(bearing_types::Code),
    /// Ask again a little later.
    Later,
    /// They may.
    Joined {
        /// The chunk.
        chunk: ChunkId,
    },
    /// Extents in a chunk.
    Uses {
        /// The extents.
        uses: Vec<ChunkUse>,
        /// Nodes with more extents than were looked at, and from which file offset on.
        unfinished: Vec<(Handle, u64)>,
    },
    /// The extents lie where they were to be moved, or were changed since.
    Moved,
}

/// A directory's content in one tablet: what stat of the directory merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FragmentStat {
    /// Entries.
    pub entries: u64,
    /// Of these, directories.
    pub directories: u32,
    /// Last change of the entries.
    pub modified: Wall,
}
