//! Values of a tablet's records, and the log record that changes them.
//!
//! A stored value is one version byte, then the record in postcard's encoding. Adding a field makes a new
//! version with a migration in [`Record::decode`]; a version that this program does not know is refused,
//! never guessed at.

use crate::record::entry::LoggedChange;
use crate::record::key::Key;
use crate::record::{Reach, older};
use bearing_placement::Seat;
use bearing_proto::client::{Body, ChunkRef, Handle};
use bearing_proto::data::Pieces;
use bearing_proto::peer::{Deferred, ItemId, Promise};
use bearing_types::{
    Access, Acls, Amount, Attributes, Block, ChunkId, Code, Credentials, Epoch, FileLocks, FileType,
    LogIndex, Name, NodeId, Permission, Position, Sequence, ServerId, SessionId, Version, Wall, XattrName,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The version of stored records.
pub const RECORD_VERSION: u8 = 5;
/// Room for most records, so that few of them grow while they are encoded.
const RECORD_BYTES: usize = 192;

/// A directory entry. A removed entry whose hash has further names stays as `Vacant`, so that ordinals (and
/// so cookies) never change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameRecord {
    /// What it names, or nothing any more.
    pub entry: Option<NameEntry>,
    /// Whether names of the same hash with higher ordinals may exist.
    pub more: bool,
}

/// What a name leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameEntry {
    /// The name.
    pub name: Name,
    /// The node.
    pub node: Handle,
    /// The kind of node.
    pub file_type: FileType,
}

/// A node (inode).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its home.
    pub home: Position,
    /// Its own attributes; a directory's times and counts also live in its fragments.
    pub attributes: Attributes,
    /// What its kind needs.
    pub content: NodeContent,
    /// Whether it has extended attributes.
    pub xattrs: bool,
    /// Its access control lists.
    pub acls: Acls,
    /// The directory whose quota counts it, and of a directory all that is in it.
    pub quota: Option<Handle>,
}

/// What a node of each kind needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeContent {
    /// Extents have keys of their own.
    File,
    /// A directory.
    Directory(Box<DirectoryContent>),
    /// The target of a symbolic link.
    Symlink(Vec<u8>),
    /// Nothing.
    Special,
}

/// What a directory's node knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryContent {
    /// Where its children go.
    pub seat: Seat,
    /// Its parent; itself for a root.
    pub parent: Handle,
    /// Its name there; empty for a root.
    pub name: Vec<u8>,
    /// The blocks in which it has a fragment. A listed block covers its later splits.
    pub fragments: Vec<Block>,
    /// When somebody last set its content change time: changes of its fragments up to then do not show in
    /// that time.
    pub modified_set: Wall,
    /// Grows when its mode, owner or group changes.
    pub access_version: Version,
}

/// A directory's content in one tablet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FragmentRecord {
    /// Its entries.
    pub entries: u64,
    /// Of these, directories.
    pub directories: u32,
    /// Last change of the entries.
    pub modified: Wall,
    /// Grows with every change of the entries.
    pub version: Version,
    /// Changes under a grant of an older access version of the directory are refused.
    pub access_version: Version,
    /// The directory whose quota counts the entries.
    pub quota: Option<Handle>,
    /// Where the directory's names lie, so that a split finds each one's half. `None` from before version 4,
    /// until somebody shows a grant and changes an entry.
    pub name_block: Option<Block>,
}

/// A run of a file's bytes; the file offset is in the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtentRecord {
    /// Bytes.
    pub length: u32,
    /// The chunk.
    pub chunk: ChunkRef,
    /// Where the frame starts.
    pub frame: u64,
    /// Payload bytes to skip.
    pub skip: u32,
}

/// A chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkRecord {
    /// Where this record lies.
    pub position: Position,
    /// The chunk's epoch.
    pub epoch: Epoch,
    /// The servers that hold it, the primary first.
    pub servers: Vec<ServerId>,
    /// The length at which it was sealed.
    pub sealed: Option<u64>,
    /// Bytes that files let go of since it was last scanned.
    pub dead_bytes: u64,
    /// When it was opened.
    pub opened: Wall,
    /// Every server of it has said that it holds all of it, sealed.
    pub confirmed: bool,
    /// A server that is being given a copy.
    pub pending_replica: Option<ServerId>,
    /// Servers that may hold what counts no more, to be told to remove it.
    pub former: Vec<ServerId>,
    /// Positions in the tablets whose files may refer to it.
    pub users: Vec<Position>,
    /// No further tablet may refer to it, and no file of those that do takes anything new from it.
    pub closed: bool,
    /// What was found when it was last scanned.
    pub scanned: Option<UsageScan>,
    /// Nobody refers to it, and nobody can any more: its replicas are being removed.
    pub deleting: bool,
    /// Bytes of the frames that files refer to, as of the last usage scan.
    pub live_frame_bytes: u64,
    /// The chunk that takes what is in use of it.
    pub compaction_target: Option<ChunkId>,
    /// It is a compaction target itself, and has not got everything yet.
    pub gather: Option<Gather>,
    /// Nothing is appended to it any more, nor referred to for the first time.
    pub finished: Option<Finished>,
    /// Ranges below the sealed length of which no replica had a frame that fits its checksums: who refers to
    /// them reads an error.
    pub holes: Vec<(u64, u64)>,
    /// When what was in use of it was found to be moved to its compaction target; since version 5.
    pub moved: Option<Wall>,
}

impl ChunkRecord {
    /// Of a chunk in which nothing is yet.
    pub fn new(position: Position, servers: Vec<ServerId>, opened: Wall) -> ChunkRecord {
        ChunkRecord {
            position,
            epoch: Epoch(1),
            servers,
            sealed: None,
            dead_bytes: 0,
            opened,
            confirmed: false,
            pending_replica: None,
            former: Vec::new(),
            users: Vec::new(),
            closed: false,
            scanned: None,
            deleting: false,
            live_frame_bytes: 0,
            compaction_target: None,
            gather: None,
            finished: None,
            holes: Vec::new(),
            moved: None,
        }
    }
}

/// What a compaction target is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gather {
    /// The old chunk; its record lies in the same tablet.
    pub from: ChunkId,
    /// Which of its frames, in their order.
    pub pieces: Pieces,
    /// All servers of the target have all of it, stable and sealed.
    pub made: bool,
}

/// What the writer of a chunk said when it was done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// When.
    pub at: Wall,
    /// Bytes of files that were committed in it.
    pub payload: u64,
}

/// What a usage scan at a sealed chunk found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageScan {
    /// Bytes that files refer to.
    pub live_bytes: u64,
    /// When.
    pub at: Wall,
}

/// A prepared part of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrepareRecord {
    /// What was promised to the coordinator.
    pub promise: Promise,
    /// What is locked until the decision, as encoded keys.
    pub locks: Vec<Vec<u8>>,
    /// What commit changes.
    pub changes: Vec<LoggedChange>,
    /// By how much it changes what is used of quotas: space and entries.
    pub usage: Vec<(Handle, i64, i64)>,
    /// What it was addressed to: where it goes when the tablet is split. `None` from before version 4: such a
    /// part is settled first.
    pub position: Option<Position>,
}

/// The quota of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaRecord {
    /// The limit.
    pub limit: Amount,
    /// What each tablet uses and may use.
    pub shares: Vec<Share>,
}

/// A tablet's part of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The tablet's start.
    pub tablet: Position,
    /// What it said it uses.
    pub used: Amount,
    /// What it may use.
    pub allowed: Amount,
}

/// What is used of a quota in one tablet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRecord {
    /// The quota.
    pub quota: Handle,
    /// Used.
    pub used: Amount,
}

/// An item on its way to another tablet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxRecord {
    /// A position in the tablet that shall execute it.
    pub to: Position,
    /// What to do.
    pub work: Deferred,
    /// The mutation whose reply waits for the delivery.
    pub waiter: Option<(SessionId, Sequence)>,
    /// What is locked until the delivery, as encoded keys.
    pub locks: Vec<Vec<u8>>,
    /// What the request was addressed to that queued it: where it goes when the tablet is split. `None` from
    /// before version 4: such an item is delivered first.
    pub position: Option<Position>,
}

/// Which of its tablet's items an item is: the log record that wrote it and its place there.
pub type ItemPlace = (LogIndex, u8);

/// What was executed of the items of another tablet, which the key names: all below `done_below`, and those
/// listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxRecord {
    /// All items before it are executed and acknowledged.
    pub done_below: Option<ItemPlace>,
    /// Executed items that are not below it.
    pub done: Vec<ItemPlace>,
}

/// The reply to a mutation that went well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyRecord {
    /// The position that the request concerned: where the record goes when the tablet is split.
    pub position: Position,
    /// What was answered.
    pub body: Body,
}

/// To whom a directory is delegated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Holder {
    /// The session.
    pub session: SessionId,
    /// What it was asked for with; steps of another incarnation are refused.
    pub incarnation: u64,
}

/// A directory that is delegated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegated {
    /// To whom.
    pub holder: Holder,
    /// Nodes that were lent with it: they are named in it and nowhere else, and nobody else has them open.
    pub nodes: Vec<NodeId>,
}

/// Any record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// For [`Key::Name`].
    Name(NameRecord),
    /// For [`Key::Node`].
    Node(Box<NodeRecord>),
    /// For [`Key::Fragment`].
    Fragment(Box<FragmentRecord>),
    /// For [`Key::Extent`].
    Extent(ExtentRecord),
    /// For [`Key::Chunk`].
    Chunk(Box<ChunkRecord>),
    /// For [`Key::Prepare`].
    Prepare(Box<PrepareRecord>),
    /// For [`Key::Decision`]: positions of the participants.
    Decision(Vec<Position>),
    /// For [`Key::Outbox`].
    Outbox(Box<OutboxRecord>),
    /// For [`Key::Inbox`].
    Inbox(Box<InboxRecord>),
    /// For [`Key::Reply`].
    Reply(Box<ReplyRecord>),
    /// For [`Key::NextId`].
    NextId(NodeId),
    /// For marks that say all with their key and the time they were made: dead, orphan, session, ended.
    Mark(Wall),
    /// For [`Key::Delegation`].
    Delegation(Box<Delegated>),
    /// For [`Key::Xattr`] 0: the names, each with the number of its value.
    XattrNames(Vec<(XattrName, u16)>),
    /// For other [`Key::Xattr`]: a value.
    Xattr(Vec<u8>),
    /// For [`Key::Locks`].
    Locks(FileLocks),
    /// For [`Key::Quota`].
    Quota(Box<QuotaRecord>),
    /// For [`Key::Usage`].
    Usage(UsageRecord),
    /// For [`Key::Intent`].
    Intent(Epoch),
    /// For [`Key::Holder`]: a session's part of the lease horizon. Until version 2 there was a mark, which
    /// stands for leases on anything.
    Holder(Reach),
    /// For [`Key::Checkpoint`]; since version 5.
    Checkpoint(Box<CheckpointRecord>),
}

/// Why stored bytes are no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// Written by a newer program; the version found.
    Version(u8),
    /// Not a record.
    Malformed,
    /// A record, but not one of the kind that its key stands for.
    Misplaced,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Version(found) => {
                write!(
                    f,
                    "record of format version {found}; this program knows up to {RECORD_VERSION}; use a newer `bearing`"
                )
            }
            RecordError::Malformed => {
                write!(f, "record that makes no sense; restore this server from its replicas")
            }
            RecordError::Misplaced => {
                write!(f, "record of another kind than its key; restore this server from its replicas")
            }
        }
    }
}

impl std::error::Error for RecordError {}

impl Record {
    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        encode_versioned(self, RECORD_VERSION, RECORD_BYTES)
    }

    /// A record from its bytes.
    pub fn decode(bytes: &[u8]) -> Result<Record, RecordError> {
        match bytes.split_first() {
            Some((&older::V1, body)) => older::decode(body).map_err(|_| RecordError::Malformed),
            Some((&older::V2, body)) => older::decode_v2(body).map_err(|_| RecordError::Malformed),
            Some((&older::V3, body)) => older::decode_v3(body).map_err(|_| RecordError::Malformed),
            Some((&(older::V4 | RECORD_VERSION), body)) => {
                older::decode_whole(body).map_err(|_| RecordError::Malformed)
            }
            _ => decode_versioned(bytes, RECORD_VERSION),
        }
    }

    /// The record of a key from its bytes. Every stored pair of key and record comes through here once, from
    /// the store, the log or a peer: what follows relies on it that they fit each other.
    pub fn decode_at(key: &Key, bytes: &[u8]) -> Result<Record, RecordError> {
        let record = Record::decode(bytes)?;
        if !record.fits(key) {
            return Err(RecordError::Misplaced);
        }
        // Found when it is promised again, not when it is to be done.
        if let Record::Prepare(prepared) = &record {
            prepared.changes.iter().try_for_each(|change| change.decode().map(drop))?;
        }
        Ok(record)
    }

    /// Whether this is the kind of record that a key stands for.
    fn fits(&self, key: &Key) -> bool {
        match self {
            Record::Name(_) => matches!(key, Key::Name(..)),
            Record::Node(_) => matches!(key, Key::Node(_)),
            Record::Fragment(_) => matches!(key, Key::Fragment(_)),
            Record::Extent(extent) => {
                matches!(key, Key::Extent(_, from) if from.checked_add(u64::from(extent.length)).is_some())
            }
            Record::Chunk(_) => matches!(key, Key::Chunk(_)),
            Record::Prepare(_) => matches!(key, Key::Prepare(..)),
            Record::Decision(_) => matches!(key, Key::Decision(_)),
            Record::Outbox(_) => matches!(key, Key::Outbox(_)),
            Record::Inbox(_) => matches!(key, Key::Inbox(_)),
            Record::Reply(_) => matches!(key, Key::Reply(..)),
            Record::NextId(_) => matches!(key, Key::NextId),
            Record::Mark(_) => key.is_mark(),
            Record::Delegation(_) => matches!(key, Key::Delegation(_)),
            Record::XattrNames(_) => matches!(key, Key::Xattr(_, 0)),
            Record::Xattr(_) => matches!(key, Key::Xattr(_, 1..)),
            Record::Locks(_) => matches!(key, Key::Locks(_)),
            Record::Quota(_) => matches!(key, Key::Quota(_)),
            Record::Usage(_) => matches!(key, Key::Usage(_)),
            Record::Intent(_) => matches!(key, Key::Intent),
            Record::Holder(_) => matches!(key, Key::Holder(_)),
            Record::Checkpoint(_) => matches!(key, Key::Checkpoint),
        }
    }
}

/// Where a tablet's checkpoint lies, and what is left of others. These chunks have no [`Record::Chunk`]: this
/// is the record of all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRecord {
    /// The checkpoint: what is to be read after a loss of all metadata.
    pub whole: Option<Checkpoint>,
    /// Chunks of one that is being written, or was given up.
    pub draft: Vec<CheckpointChunk>,
    /// Chunks that are to be removed.
    pub former: Vec<CheckpointChunk>,
}

/// A checkpoint that is stable on all its servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Its chunks in their order.
    pub chunks: Vec<CheckpointChunk>,
    /// The tablet is in it as it was after this entry.
    pub index: LogIndex,
    /// When it was begun.
    pub at: Wall,
}

/// A chunk of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointChunk {
    /// Its id.
    pub chunk: ChunkId,
    /// Where it lies.
    pub servers: Vec<ServerId>,
}

/// What a record of each kind holds, as [`crate::view::View::get_as`] takes it.
macro_rules! taken_as {
    ($($name:ident, $variant:ident($held:ident) -> $kind:ty = $taken:expr;)*) => {
        impl Record {
            $(pub(crate) fn $name(self) -> Option<$kind> {
                if let Record::$variant($held) = self { Some($taken) } else { None }
            })*
        }
    };
}

taken_as! {
    into_name, Name(name) -> NameRecord = name;
    into_node, Node(node) -> NodeRecord = *node;
    into_fragment, Fragment(fragment) -> FragmentRecord = *fragment;
    into_chunk, Chunk(chunk) -> ChunkRecord = *chunk;
    into_next_id, NextId(next) -> NodeId = next;
    into_xattr_names, XattrNames(names) -> Vec<(XattrName, u16)> = names;
    into_xattr, Xattr(value) -> Vec<u8> = value;
    into_locks, Locks(locks) -> FileLocks = locks;
    into_quota, Quota(quota) -> QuotaRecord = *quota;
    into_intent, Intent(epoch) -> Epoch = epoch;
    into_checkpoint, Checkpoint(record) -> CheckpointRecord = *record;
}

pub(super) fn encode_versioned<T: Serialize>(value: &T, version: u8, about: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(about);
    bytes.push(version);
    postcard::to_extend(value, bytes).expect("plain values always encode")
}

pub(super) fn decode_versioned<'a, T: Deserialize<'a>>(bytes: &'a [u8], known: u8) -> Result<T, RecordError> {
    match bytes.split_first() {
        Some((version, body)) if *version == known => {
            postcard::from_bytes(body).map_err(|_| RecordError::Malformed)
        }
        Some((version, _)) if *version > known => Err(RecordError::Version(*version)),
        _ => Err(RecordError::Malformed),
    }
}

/// What a range of a store holds; or what of it makes no sense.
pub(crate) fn decode_pairs(pairs: Vec<bearing_seams::Pair>) -> Result<Vec<(Key, Record)>, String> {
    let decode = |(key, value): bearing_seams::Pair| {
        let decoded = Key::decode(&key).ok_or_else(|| format!("key {key:02x?} makes no sense"))?;
        let record = Record::decode_at(&decoded, &value).map_err(|error| format!("{decoded:?}: {error}"))?;
        Ok((decoded, record))
    };
    pairs.into_iter().map(decode).collect()
}

impl NodeRecord {
    /// What finds the node.
    pub fn handle(&self, node: NodeId) -> Handle {
        Handle { node, home: self.home }
    }

    /// The directory's part, or `NotDirectory`.
    pub fn directory(&self) -> Result<&DirectoryContent, Code> {
        match &self.content {
            NodeContent::Directory(directory) => Ok(directory),
            NodeContent::File | NodeContent::Symlink(_) | NodeContent::Special => Err(Code::NotDirectory),
        }
    }

    /// Mode, owner and group.
    pub fn access(&self) -> Access {
        self.attributes.access()
    }

    /// Whether permission bits and access control list allow a wish.
    pub fn allows(&self, who: &Credentials, wish: Permission) -> bool {
        let named = self.acls.access.as_deref();
        self.access().allows_with(named, who, wish, self.attributes.file_type)
    }

    /// Whether it has extended attributes or access control lists, so that whoever wants to know has to ask.
    pub fn is_extended(&self) -> bool {
        self.xattrs || !self.acls.is_empty()
    }
}

impl ChunkRecord {
    /// Whether something that begins there was kept when it was sealed, as far as that is known.
    pub fn keeps(&self, offset: u64) -> bool {
        let hole = self.holes.iter().any(|(start, end)| (*start..*end).contains(&offset));
        !hole && self.sealed.is_none_or(|length| offset < length)
    }

    /// It is to be made of frames of another chunk, and its servers may not have it yet.
    pub fn is_in_the_making(&self) -> bool {
        self.gather.as_ref().is_some_and(|gather| !gather.made)
    }
}

impl InboxRecord {
    /// Whether an item was executed.
    pub fn executed(&self, item: ItemId) -> bool {
        let place = (item.index, item.place);
        self.done_below.is_some_and(|below| place < below) || self.done.contains(&place)
    }

    /// Notes an execution, and lets go of what the sender will not repeat.
    pub fn note(&mut self, item: ItemId, done_below: ItemId) {
        // Of another tablet it says nothing.
        let below = Some((done_below.index, done_below.place)).filter(|_| done_below.tablet == item.tablet);
        self.done_below = self.done_below.max(below);
        self.done.retain(|done| Some(*done) >= below);
        self.done.push((item.index, item.place));
    }
}
