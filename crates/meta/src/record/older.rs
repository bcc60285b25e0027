//! Records of version 1. There were no access versions, so those of all directories and fragments begin at 0
//! alike. Replies held grants without them; whoever could ask for such a reply speaks a protocol that is
//! refused by now, so only the place of the reply is read.

use crate::record::entry::LoggedChange;
use crate::record::records::{
    ChunkRecord, DirectoryContent, ExtentRecord, FragmentRecord, InboxRecord, NameRecord, NodeContent,
    NodeRecord, OutboxRecord, PrepareRecord, Record, ReplyRecord,
};
use bearing_placement::Seat;
use bearing_proto::client::{Body, ChunkRef, Handle, LeaseMs, NodeView};
use bearing_proto::peer::{Deferred, Promise};
use bearing_types::{
    Access, Acls, Attributes, Block, Epoch, FileType, Name, NodeId, Position, Sequence, ServerId, SessionId,
    Version, Wall,
};
use serde::Deserialize;

/// The version byte.
pub const V1: u8 = 1;
/// That of the next. Replies held rights that named no session; of these too only the place is read. There
/// was no [`Record::Holder`].
pub const V2: u8 = 2;
/// And the next. Fragments did not say where their directory's names lie, nor prepares and items what they
/// were addressed to.
pub const V3: u8 = 3;
/// And the next: the records of now, but for [`Record::Checkpoint`], which there was none of.
pub const V4: u8 = 4;

#[derive(Deserialize)]
enum RecordV1 {
    Name(NameRecord),
    Node(Box<NodeRecordV1>),
    Fragment(FragmentRecordV1),
    Extent(ExtentRecord),
    Chunk(Box<ChunkRecordV1>),
    Prepare(Box<PrepareRecordV1>),
    Decision(Vec<Position>),
    Outbox(Box<OutboxRecordV1>),
    Inbox(Box<InboxRecord>),
    Reply(ReplyRecordV1),
    NextId(NodeId),
    Mark(Wall),
}

#[derive(Deserialize)]
struct NodeRecordV1 {
    home: Position,
    attributes: Attributes,
    content: NodeContentV1,
}

#[derive(Deserialize)]
enum NodeContentV1 {
    File,
    Directory(DirectoryContentV1),
    Symlink(Vec<u8>),
    Special,
}

#[derive(Deserialize)]
struct DirectoryContentV1 {
    seat: Seat,
    parent: Handle,
    name: Vec<u8>,
    fragments: Vec<Block>,
    modified_set: Wall,
}

#[derive(Deserialize)]
struct FragmentRecordV1 {
    entries: u64,
    directories: u32,
    modified: Wall,
    version: Version,
}

#[derive(Deserialize)]
struct PrepareRecordV1 {
    promise: PromiseV1,
    locks: Vec<Vec<u8>>,
    changes: Vec<LoggedChange>,
}

#[derive(Deserialize)]
struct OutboxRecordV1 {
    to: Position,
    work: WorkV1,
    waiter: Option<(SessionId, Sequence)>,
    locks: Vec<Vec<u8>>,
}

#[derive(Deserialize)]
enum WorkV1 {
    MakeDirectory { seat: Seat, parent: Handle, name: Name, access: Access, born: Wall },
    DropLink { node: Handle, open: Vec<SessionId>, changed: Wall },
    ReleaseSpace { chunk: ChunkRef, bytes: u64 },
}

#[derive(Deserialize)]
enum PromiseV1 {
    Done,
    Taken { node: Handle, file_type: FileType },
    Fragments(Vec<Block>),
    Linked(NodeViewV1),
}

#[derive(Deserialize)]
struct NodeViewV1 {
    node: Handle,
    attributes: Attributes,
    lease: LeaseMs,
    may_open: bool,
}

/// When it was opened was not kept: long ago.
#[derive(Deserialize)]
struct ChunkRecordV1 {
    position: Position,
    epoch: Epoch,
    servers: Vec<ServerId>,
    sealed: Option<u64>,
    dead_bytes: u64,
}

/// The body that follows is not read.
#[derive(Deserialize)]
struct ReplyRecordV1 {
    position: Position,
}

/// How a fragment's record begins.
const FRAGMENT_TAG: u8 = 2;
/// How a prepare's record begins.
const PREPARE_TAG: u8 = 5;
/// How an item's record begins.
const OUTBOX_TAG: u8 = 7;
/// What these three lack at their end until version 3: it is not known.
const NO_PLACE: [u8; 1] = [0];
/// How a chunk's record begins.
const CHUNK_TAG: u8 = 4;
/// How a reply's record begins.
const REPLY_TAG: u8 = 9;
/// What a chunk's record lacks from before it said when its content was moved: it was not.
const NOT_MOVED: [u8; 1] = [0];
/// What it lacks from before damage within it was kept: there is none, and that.
const NO_HOLES: [u8; 2] = [0; 2];
/// What it lacks from before writers said when they are done: it was not said, and that.
const NOT_FINISHED: [u8; 3] = [0; 3];
/// What it lacks from before there was compaction: nothing kept, no target, none itself, and that.
const NO_COMPACTION: [u8; 6] = [0; 6];

/// A record of version 2.
pub(crate) fn decode_v2(body: &[u8]) -> Result<Record, postcard::Error> {
    match body.split_first() {
        Some((&REPLY_TAG, reply)) => {
            let (position, _) = postcard::take_from_bytes(reply)?;
            Ok(Record::Reply(Box::new(ReplyRecord { position, body: Body::Done })))
        }
        _ => decode_v3(body),
    }
}

/// A record of version 3.
pub(crate) fn decode_v3(body: &[u8]) -> Result<Record, postcard::Error> {
    match body.first() {
        Some(&(FRAGMENT_TAG | PREPARE_TAG | OUTBOX_TAG)) => postcard::from_bytes(&[body, &NO_PLACE].concat()),
        _ => decode_whole(body),
    }
}

/// A record of the present version, with fields at its end that were added since.
pub(crate) fn decode_whole(body: &[u8]) -> Result<Record, postcard::Error> {
    let decoded = postcard::from_bytes(body);
    let with = |lacking: &[u8]| postcard::from_bytes(&[body, lacking].concat());
    match body.first() {
        _ if decoded.is_ok() => decoded,
        Some(&CHUNK_TAG) => {
            let older = [&NOT_MOVED[..], &NO_HOLES, &NOT_FINISHED, &NO_COMPACTION];
            older.into_iter().map(with).find(Result::is_ok).unwrap_or(decoded)
        }
        _ => decoded,
    }
}

/// A record from the bytes behind its version.
pub(crate) fn decode(body: &[u8]) -> Result<Record, postcard::Error> {
    Ok(match postcard::from_bytes(body)? {
        RecordV1::Name(record) => Record::Name(record),
        RecordV1::Node(record) => Record::Node(Box::new(node(*record))),
        RecordV1::Fragment(FragmentRecordV1 { entries, directories, modified, version }) => {
            Record::Fragment(Box::new(FragmentRecord {
                entries,
                directories,
                modified,
                version,
                access_version: Version(0),
                quota: None,
                name_block: None,
            }))
        }
        RecordV1::Extent(record) => Record::Extent(record),
        RecordV1::Chunk(record) => Record::Chunk(Box::new(chunk(*record))),
        RecordV1::Prepare(record) => Record::Prepare(Box::new(prepare(*record))),
        RecordV1::Decision(participants) => Record::Decision(participants),
        RecordV1::Outbox(record) => Record::Outbox(Box::new(outbox(*record))),
        RecordV1::Inbox(record) => Record::Inbox(record),
        RecordV1::Reply(ReplyRecordV1 { position }) => {
            Record::Reply(Box::new(ReplyRecord { position, body: Body::Done }))
        }
        RecordV1::NextId(next) => Record::NextId(next),
        RecordV1::Mark(made) => Record::Mark(made),
    })
}

fn outbox(record: OutboxRecordV1) -> OutboxRecord {
    let work = match record.work {
        WorkV1::MakeDirectory { seat, parent, name, access, born } => {
            Deferred::MakeDirectory { seat, parent, name, access, acls: Box::default(), born, quota: None }
        }
        WorkV1::DropLink { node, open, changed } => Deferred::DropLink { node, open, changed },
        WorkV1::ReleaseSpace { chunk, bytes } => Deferred::ReleaseSpace { chunk, bytes },
    };
    OutboxRecord { to: record.to, work, waiter: record.waiter, locks: record.locks, position: None }
}

fn prepare(record: PrepareRecordV1) -> PrepareRecord {
    let promise = match record.promise {
        PromiseV1::Done => Promise::Done,
        PromiseV1::Taken { node, file_type } => Promise::Taken { node, file_type },
        PromiseV1::Fragments(fragments) => Promise::Fragments(fragments),
        PromiseV1::Linked(NodeViewV1 { node, attributes, lease, may_open }) => {
            Promise::Linked(NodeView { node, attributes, lease, may_open, extended: false })
        }
    };
    PrepareRecord { promise, locks: record.locks, changes: record.changes, usage: Vec::new(), position: None }
}

fn chunk(record: ChunkRecordV1) -> ChunkRecord {
    let ChunkRecordV1 { position, epoch, servers, sealed, dead_bytes } = record;
    ChunkRecord { epoch, sealed, dead_bytes, ..ChunkRecord::new(position, servers, Wall(0)) }
}

fn node(record: NodeRecordV1) -> NodeRecord {
    let content = match record.content {
        NodeContentV1::File => NodeContent::File,
        NodeContentV1::Directory(DirectoryContentV1 { seat, parent, name, fragments, modified_set }) => {
            let access_version = Version(0);
            NodeContent::Directory(Box::new(DirectoryContent {
                seat,
                parent,
                name,
                fragments,
                modified_set,
                access_version,
            }))
        }
        NodeContentV1::Symlink(target) => NodeContent::Symlink(target),
        NodeContentV1::Special => NodeContent::Special,
    };
    NodeRecord {
        home: record.home,
        attributes: record.attributes,
        content,
        xattrs: false,
        acls: Acls::default(),
        quota: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::records::RecordError;
    use bearing_placement::Scheme;
    use bearing_types::{Gid, LogIndex, Mode, Uid};

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    fn attributes() -> Attributes {
        Attributes {
            file_type: FileType::Directory,
            mode: Mode::new(0o2755),
            uid: Uid(7),
            gid: Gid(8),
            links: 3,
            size: 0,
            space: 0,
            device: 0,
            accessed: Wall(1),
            modified: Wall(2),
            changed: Wall(3),
            born: Wall(4),
            version: Version(5),
        }
    }

    fn node_with(content: NodeContent) -> Record {
        Record::Node(Box::new(NodeRecord {
            home: Position(0),
            attributes: attributes(),
            content,
            xattrs: false,
            acls: Acls::default(),
            quota: None,
        }))
    }

    #[test]
    fn records_as_version_1_stored_them_open() {
        let content = NodeContent::Directory(Box::new(DirectoryContent {
            seat: Seat::root(NodeId(1), Scheme::AnglecutHashed.seating()),
            parent: Handle { node: NodeId(1), home: Position(0) },
            name: b"d".to_vec(),
            fragments: vec![Block::RING],
            modified_set: Wall(6),
            access_version: Version(0),
        }));
        let fragment = FragmentRecord {
            entries: 300,
            directories: 2,
            modified: Wall(9),
            version: Version(10),
            access_version: Version(0),
            quota: None,
            name_block: None,
        };
        let chunk = ChunkRecord {
            position: Position(5),
            epoch: Epoch(1),
            servers: vec![ServerId(100), ServerId(6)],
            sealed: Some(300),
            dead_bytes: 12,
            opened: Wall(0),
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
        };
        let reply = ReplyRecord { position: Position(77), body: Body::Done };
        let stored = [
            ("01010001ed0b0708030000000204060805010101000000002800010001640100000c", node_with(content)),
            ("0102ac0202120a", Record::Fragment(Box::new(fragment))),
            ("01094d00", Record::Reply(Box::new(reply))),
            ("0104050102640601ac020c", Record::Chunk(Box::new(chunk))),
            ("01010001ed0b07080300000002040608050202746f", node_with(NodeContent::Symlink(b"to".to_vec()))),
        ];
        for (hex, expected) in stored {
            assert_eq!(Record::decode(&bytes(hex)).unwrap(), expected);
            let again = expected.encode();
            assert_eq!(again[0], crate::record::records::RECORD_VERSION);
            assert_eq!(Record::decode(&again).unwrap(), expected);
        }
        assert_eq!(Record::decode(&[1, 2]), Err(RecordError::Malformed));
    }

    #[test]
    fn of_replies_as_version_2_stored_them_only_the_place_is_read() {
        // An open chunk's, with a capability for all of it.
        let reply = "02094d0a04050102640600040005ffffffffffffffffff01010112";
        let place = ReplyRecord { position: Position(77), body: Body::Done };
        assert_eq!(Record::decode(&bytes(reply)), Ok(Record::Reply(Box::new(place))));
        assert_eq!(Record::decode(&bytes("0209")), Err(RecordError::Malformed));
        assert_eq!(Record::decode(&bytes("020b12")), Ok(Record::Mark(Wall(9))));
    }

    #[test]
    fn what_versions_2_and_3_stored_without_a_place_has_none() {
        let fragment = FragmentRecord {
            entries: 300,
            directories: 2,
            modified: Wall(9),
            version: Version(10),
            access_version: Version(11),
            quota: None,
            name_block: None,
        };
        let handle = Handle { node: NodeId(9), home: Position(5) };
        let prepare = PrepareRecord {
            promise: Promise::Fragments(vec![Block::RING]),
            locks: vec![vec![16]],
            changes: Vec::new(),
            usage: vec![(handle, -1, 1)],
            position: None,
        };
        let outbox = OutboxRecord {
            to: Position(5),
            work: Deferred::Touch { node: handle, changed: Wall(4) },
            waiter: Some((SessionId(3), Sequence(7))),
            locks: Vec::new(),
            position: None,
        };
        let inbox = InboxRecord { done_below: Some((LogIndex(300), 1)), done: vec![(LogIndex(301), 0)] };
        let stored = [
            ("02ac0202120a0b00", Record::Fragment(Box::new(fragment))),
            ("0502010000010110000109050102", Record::Prepare(Box::new(prepare))),
            ("07050309050801030700", Record::Outbox(Box::new(outbox))),
            ("0801ac020101ad0200", Record::Inbox(Box::new(inbox))),
        ];
        for (hex, expected) in stored {
            for version in ["02", "03"] {
                let before = bytes(&format!("{version}{hex}"));
                assert_eq!(Record::decode(&before).as_ref(), Ok(&expected));
                assert_eq!(Record::decode(&before[..before.len() - 1]), Err(RecordError::Malformed));
            }
            assert_eq!(Record::decode(&expected.encode()), Ok(expected));
        }
    }

    #[test]
    fn a_reply_as_version_3_stored_it_is_read_whole() {
        let reply = ReplyRecord { position: Position(77), body: Body::Session { renew_within_ms: 300 } };
        assert_eq!(Record::decode(&bytes("03094d01ac02")), Ok(Record::Reply(Box::new(reply))));
    }

    #[test]
    fn a_chunk_that_was_stored_before_there_was_compaction_or_a_word_of_its_writer_or_of_holes_opens() {
        let record = ChunkRecord {
            sealed: Some(300),
            scanned: Some(crate::record::records::UsageScan { live_bytes: 7, at: Wall(8) }),
            ..chunk(ChunkRecordV1 {
                position: Position(5),
                epoch: Epoch(1),
                servers: vec![ServerId(6)],
                sealed: None,
                dead_bytes: 0,
            })
        };
        let record = Record::Chunk(Box::new(record));
        let bytes = record.encode();
        for since in [&NOT_MOVED[..], &NO_HOLES, &NOT_FINISHED, &NO_COMPACTION] {
            let before = bytes.strip_suffix(since).unwrap();
            assert_eq!(Record::decode(before), Ok(record.clone()));
        }
        let shorter = &bytes[..bytes.len() - NO_COMPACTION.len() - 1];
        assert_eq!(Record::decode(shorter), Err(RecordError::Malformed));
    }
}
