//! Made anew of few frames and checkpoints, which each test damages in its way. That all of a cluster is, is
//! tested in the simulator.

use super::{Found, FoundFrame, FoundReplica, Rebuilt, Shape, Why, rebuild};
use crate::record::{
    CheckpointHeader, EntryKind, ExtentRecord, Key, LogEntry, LoggedChange, NameEntry, NameRecord,
    NodeContent, Record, frame_owner, push_end, push_entry,
};
use bearing_placement::{Scheme, Seat};
use bearing_proto::frame::FrameOwner;
use bearing_types::{
    Block, ChunkId, Epoch, FileType, Gid, LogIndex, Mode, Name, NameHash, NameKey, NodeId, Position,
    ServerId, TabletSerial, Uid, Version, Wall,
};
use std::collections::BTreeMap;

const SECOND: i64 = 1_000_000_000;
/// When checkpoints of these tests end.
const ENDED: i64 = 1_000 * SECOND;

type Records = BTreeMap<Key, Record>;

fn shape() -> Shape {
    let (lower, upper) = Block::RING.halves().unwrap();
    Shape {
        tablets: vec![(TabletSerial(2), lower), (TabletSerial(3), upper)],
        root: Seat::root(NodeId::ROOT, Scheme::AnglecutHashed.seating()),
        name_key: NameKey(5),
        now: Wall(2 * ENDED),
    }
}

/// A frame of a file, in the root.
fn frame(chunk: u64, at: u64, node: u64, name: &str) -> FoundFrame {
    let owner = FrameOwner {
        node: NodeId(node),
        home: Position(node << 56),
        parent: NodeId::ROOT,
        name: name.as_bytes().to_vec(),
        file_offset: 0,
        version: Version(1),
        mode: Mode::new(0o640),
        uid: Uid(7),
        gid: Gid(8),
        written: Wall(ENDED - 100 * SECOND),
        is_guess: false,
    };
    FoundFrame { chunk: ChunkId(chunk), frame: at, payload: 100, owner }
}

fn found(frames: impl IntoIterator<Item = FoundFrame>) -> Found {
    let mut found = Found::default();
    for frame in frames {
        for server in [ServerId(1001), ServerId(1002)] {
            let replica = FoundReplica { epoch: Epoch(2), sealed: Some(4096), length: 4096 };
            found.replica(server, frame.chunk, replica);
        }
        found.frame(frame, || panic!("of files the payload is not wanted"));
    }
    found
}

/// The same with checkpoints of what was made anew.
fn with_checkpoints(found: &Found, tablets: &BTreeMap<TabletSerial, Records>) -> Found {
    let mut found = found.clone();
    for (serial, records) in tablets {
        let block = shape().tablets.iter().find(|(of, _)| of == serial).unwrap().1;
        let header = CheckpointHeader { serial: *serial, block, epoch: Epoch(3), at: Wall(ENDED - SECOND) };
        let mut stream = header.encode();
        let changes = records.iter().map(|(key, record)| LoggedChange::new(key, Some(record))).collect();
        push_entry(
            &mut stream,
            &LogEntry { kind: EntryKind::Part { first: true, last: true }, changes }.encode(),
        );
        push_end(&mut stream, 1, LogIndex(50), Wall(ENDED));
        let chunk = ChunkId(9_000 + serial.0);
        let replica = FoundReplica { epoch: Epoch(2), sealed: Some(4096), length: 4096 };
        found.replica(ServerId(1001), chunk, replica);
        // In two pieces, the second one first.
        let (one, two) = stream.split_at(stream.len() / 2);
        for (offset, piece) in [(one.len(), two), (0, one)] {
            let owner = frame_owner((*serial, block.start()), chunk, offset as u64, Wall(ENDED));
            let frame = FoundFrame { chunk, frame: offset as u64, payload: piece.len() as u32, owner };
            found.frame(frame, || piece.to_vec());
        }
    }
    found
}

fn records(rebuilt: &Rebuilt) -> BTreeMap<TabletSerial, Records> {
    rebuilt.tablets.iter().map(|(serial, (_, records))| (*serial, records.clone())).collect()
}

/// What is below the root: paths, and how large files are.
fn paths(rebuilt: &Rebuilt) -> BTreeMap<String, u64> {
    let all: Records = records(rebuilt).into_values().flatten().collect();
    let mut paths = BTreeMap::new();
    let mut below = vec![(NodeId::ROOT, String::new())];
    while let Some((directory, path)) = below.pop() {
        for (key, record) in &all {
            let (Key::Name(parent, ..), Record::Name(NameRecord { entry: Some(entry), .. })) = (key, record)
            else {
                continue;
            };
            if *parent != directory {
                continue;
            }
            let Some(Record::Node(node)) = all.get(&Key::Node(entry.node.node)) else {
                panic!("{entry:?} leads nowhere");
            };
            assert_eq!(node.home, entry.node.home);
            let path = format!("{path}/{}", String::from_utf8_lossy(entry.name.as_bytes()));
            if entry.file_type == FileType::Directory {
                below.push((entry.node.node, path.clone()));
            }
            paths.insert(path, node.attributes.size);
        }
    }
    paths
}

fn whys(rebuilt: &Rebuilt) -> Vec<(String, Why)> {
    let lost = rebuilt.report.lost.iter();
    lost.map(|lost| (String::from_utf8_lossy(&lost.path).into_owned(), lost.why.clone())).collect()
}

#[test]
fn of_frames_alone_files_come_back_under_their_last_names() {
    let mut renamed = frame(500, 400, 10, "new-name");
    (renamed.owner.version, renamed.owner.file_offset) = (Version(2), 50);
    let mut stranger = frame(501, 0, 12, "inside");
    stranger.owner.parent = NodeId(77);
    let mut nameless = frame(501, 200, 13, "");
    nameless.owner.parent = NodeId(0);
    let frames =
        [frame(500, 0, 10, "old-name"), renamed, frame(500, 800, 11, "new-name"), stranger, nameless];
    let rebuilt = rebuild(&shape(), &found(frames));
    let seen = paths(&rebuilt);
    let expected = [
        ("/lost+found", 0),
        ("/lost+found/directory-n77", 0),
        ("/lost+found/directory-n77/inside", 100),
        ("/lost+found/node-n13", 100),
        ("/new-name", 150),
        ("/new-name.recovered-n11", 100),
    ];
    assert_eq!(seen, expected.map(|(path, size)| (path.to_owned(), size)).into());
    assert_eq!(rebuilt.report.tablets_without.len(), 2);
    assert_eq!(rebuilt.report.younger.len(), 4);
    let whys = whys(&rebuilt);
    assert!(whys.contains(&("/new-name.recovered-n11".to_owned(), Why::NameTaken)), "{whys:?}");
    assert!(whys.contains(&("/lost+found/node-n13".to_owned(), Why::NoName)), "{whys:?}");
    assert!(whys.contains(&("/lost+found/directory-n77".to_owned(), Why::NoDirectory)), "{whys:?}");
    let all: Records = records(&rebuilt).into_values().flatten().collect();
    let Some(Record::Node(node)) = all.get(&Key::Node(NodeId(10))) else { panic!("it is there") };
    assert_eq!((node.attributes.mode, node.attributes.uid), (Mode::new(0o640), Uid(7)));
    // What was written over it counts from where it begins.
    let extents: Vec<(u64, u32)> = all
        .iter()
        .filter_map(|(key, record)| match (key, record) {
            (Key::Extent(NodeId(10), offset), Record::Extent(extent)) => Some((*offset, extent.length)),
            _ => None,
        })
        .collect();
    assert_eq!(extents, [(0, 50), (50, 100)]);
    let Some(Record::NextId(next)) = all.get(&Key::NextId) else { panic!("ids go on") };
    assert!(next.0 > 501, "no id is given twice: {next:?}");
}

/// Two files and a directory, made anew of their frames, and checkpoints of that.
fn checkpointed() -> (Found, BTreeMap<TabletSerial, Records>) {
    let mut inside = frame(501, 0, 200, "inside");
    inside.owner.parent = NodeId(77);
    let found = found([frame(500, 0, 10, "one"), frame(500, 200, 10, "one"), inside]);
    let tablets = records(&rebuild(&shape(), &found));
    (found, tablets)
}

#[test]
fn checkpoints_give_back_what_they_are_of_and_say_nothing_is_lost() {
    let (found, tablets) = checkpointed();
    let again = rebuild(&shape(), &with_checkpoints(&found, &tablets));
    assert_eq!(whys(&again), []);
    assert!(again.report.younger.is_empty() && again.report.changed.is_empty(), "{:?}", again.report);
    for (serial, mut records) in records(&again) {
        let mut before = tablets[&serial].clone();
        // Ids that may have been given out are left out each time; checkpoints are others.
        for key in [Key::NextId, Key::Checkpoint] {
            before.remove(&key);
            records.remove(&key);
        }
        assert_eq!(records, before);
    }
    let index = again.tablets[&TabletSerial(2)].0;
    assert!(index > LogIndex(50), "entries that may have been written are left out: {index:?}");
}

#[test]
fn what_was_removed_before_the_checkpoint_stays_so_and_what_is_younger_is_there() {
    let (mut found, tablets) = checkpointed();
    found.frame(frame(502, 0, 20, "removed"), Vec::new);
    let mut young = frame(502, 400, 21, "young");
    young.owner.written = Wall(ENDED + SECOND / 2);
    found.frame(young, Vec::new);
    let mut more = frame(502, 800, 10, "one");
    (more.owner.file_offset, more.owner.written) = (100, Wall(ENDED + 2 * SECOND));
    found.frame(more, Vec::new);
    // It was overwritten when the checkpoint was stored: only time tells, as versions may be equal.
    let mut old = frame(502, 1200, 10, "one");
    (old.owner.file_offset, old.owner.version) = (300, Version(9));
    found.frame(old, Vec::new);
    let rebuilt = rebuild(&shape(), &with_checkpoints(&found, &tablets));
    let seen = paths(&rebuilt);
    assert_eq!(seen.get("/removed"), None);
    assert_eq!((seen["/young"], seen["/one"]), (100, 200));
    assert_eq!(rebuilt.report.changed, [(NodeId(10), b"/one".to_vec())]);
    assert_eq!(rebuilt.report.younger, [(NodeId(21), b"/young".to_vec())]);
}

/// Those of some chunks only.
fn of_chunks(found: Found, kept: impl Fn(u64) -> bool) -> Found {
    let mut less = Found::default();
    for (chunk, replicas) in &found.chunks {
        for (server, replica) in replicas.iter().filter(|_| kept(chunk.0)) {
            less.replica(*server, *chunk, *replica);
        }
    }
    for frame in found.frames.values().filter(|frame| kept(frame.chunk.0)) {
        less.frame(frame.clone(), Vec::new);
    }
    less
}

#[test]
fn bytes_that_nobody_has_are_an_error_and_a_file_without_any_is_not_there() {
    let (found, mut tablets) = checkpointed();
    let (serial, key) = tablets
        .iter()
        .find_map(|(serial, records)| {
            let key = records.keys().find(|key| matches!(key, Key::Extent(NodeId(10), 0)))?;
            Some((*serial, *key))
        })
        .unwrap();
    let records = tablets.get_mut(&serial).unwrap();
    let Some(Record::Extent(extent)) = records.get(&key).cloned() else { panic!("an extent") };
    let other = ExtentRecord { frame: 0, ..extent };
    records.insert(Key::Extent(NodeId(10), 100), Record::Extent(other));
    // Chunk 501 is gone, and of chunk 500 one of the two frames.
    let mut less = of_chunks(found, |chunk| chunk != 501);
    less.frames.remove(&(ChunkId(500), extent.frame));
    let rebuilt = rebuild(&shape(), &with_checkpoints(&less, &tablets));
    let mut whys = whys(&rebuilt);
    whys.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(
        whys,
        [
            ("/lost+found/directory-n77/inside".to_owned(), Why::NoBytes),
            ("/one".to_owned(), Why::SomeBytes(100, 0)),
        ]
    );
    assert!(!paths(&rebuilt).contains_key("/lost+found/directory-n77/inside"));
    // Reading them is an error, never zeros: the extent is there and leads to nothing.
    assert_eq!(rebuilt.tablets[&serial].1.get(&key), Some(&Record::Extent(extent)));
}

#[test]
fn what_is_newer_counts_and_a_guess_only_where_it_can_be_no_other() {
    let (mut found, tablets) = checkpointed();
    let mut append = |at: u64, offset: u64, is_guess: bool| {
        let mut frame = frame(502, at, 10, "one");
        (frame.owner.written, frame.owner.version) = (Wall(ENDED + 2 * SECOND + at as i64), Version(3));
        (frame.owner.file_offset, frame.owner.is_guess) = (offset, is_guess);
        found.frame(frame, Vec::new);
    };
    // One behind the other, and one of somebody who did not know of them.
    append(0, 100, true);
    append(200, 200, true);
    append(400, 100, true);
    // A clock that is far ahead: what was overwritten when the checkpoint was stored is no newer for that.
    let mut ahead = frame(502, 600, 10, "one");
    (ahead.owner.written, ahead.owner.version) = (Wall(ENDED + 9 * SECOND), Version(0));
    found.frame(ahead, Vec::new);
    let rebuilt = rebuild(&shape(), &with_checkpoints(&found, &tablets));
    assert_eq!(paths(&rebuilt)["/one"], 300);
    assert_eq!(whys(&rebuilt), [("/one".to_owned(), Why::Misplaced(100))]);
    let all: Records = records(&rebuilt).into_values().flatten().collect();
    let extents = all.iter().filter_map(|(key, record)| match (key, record) {
        (Key::Extent(NodeId(10), offset), Record::Extent(extent)) => {
            Some((*offset, extent.chunk.chunk.0, extent.frame))
        }
        _ => None,
    });
    let before: Vec<(u64, u64, u64)> = extents.collect();
    assert_eq!(before[1..], [(100, 502, 0), (200, 502, 200)]);
    assert_eq!(before[0].1, 500, "the checkpoint's own bytes: {before:?}");
}

/// Puts a name into a directory of a checkpoint.
fn name(tablets: &mut BTreeMap<TabletSerial, Records>, directory: NodeId, name: &str, entry: NameEntry) {
    let name = Name::new(name.as_bytes()).unwrap();
    let hash = NameHash::of(shape().name_key, &name);
    let record = NameRecord { entry: Some(NameEntry { name, ..entry }), more: false };
    tablets.values_mut().next().unwrap().insert(Key::Name(directory, hash, 1), Record::Name(record));
}

#[test]
fn a_directory_has_one_name_and_hangs_below_the_root() {
    let (found, mut tablets) = checkpointed();
    let all: Records = tablets.clone().into_values().flatten().collect();
    let entry = all
        .values()
        .find_map(|record| match record {
            Record::Name(NameRecord { entry: Some(entry), .. }) if entry.node.node == NodeId(77) => {
                Some(entry)
            }
            _ => None,
        })
        .unwrap();
    // It was moved between two tablets' checkpoints, and has a name in both.
    name(&mut tablets, NodeId::ROOT, "second", entry.clone());
    let rebuilt = rebuild(&shape(), &with_checkpoints(&found, &tablets));
    assert!(whys(&rebuilt).iter().all(|(_, why)| *why == Why::SecondName), "{:?}", whys(&rebuilt));
    let seen = paths(&rebuilt);
    assert!(
        seen.contains_key("/lost+found/directory-n77/inside") && !seen.contains_key("/second"),
        "{seen:?}"
    );
    // It is in itself, and nowhere else.
    let (_, mut tablets) = checkpointed();
    for records in tablets.values_mut() {
        records.retain(|_, record| match record {
            Record::Name(name) => name.entry.as_ref().is_none_or(|entry| entry.node.node != NodeId(77)),
            _ => true,
        });
        for record in records.values_mut() {
            if let Record::Node(node) = record
                && let NodeContent::Directory(content) = &mut node.content
                && content.seat.node == NodeId(77)
            {
                (content.parent.node, content.name) = (NodeId(77), b"itself".to_vec());
            }
        }
    }
    name(&mut tablets, NodeId(77), "itself", entry.clone());
    let seen = paths(&rebuild(&shape(), &with_checkpoints(&found, &tablets)));
    assert!(seen.contains_key("/lost+found/node-n77/inside"), "{seen:?}");
}

#[test]
fn a_name_that_leads_to_nothing_and_has_no_bytes_is_listed() {
    let (found, mut tablets) = checkpointed();
    for records in tablets.values_mut() {
        records.retain(|key, _| !matches!(key, Key::Node(NodeId(10)) | Key::Extent(NodeId(10), _)));
    }
    let whole = rebuild(&shape(), &with_checkpoints(&found, &tablets));
    assert_eq!((paths(&whole)["/one"], whys(&whole)), (100, vec![]), "its frames tell what it was");
    let less = of_chunks(found, |chunk| chunk != 500);
    let rebuilt = rebuild(&shape(), &with_checkpoints(&less, &tablets));
    assert_eq!(whys(&rebuilt), [("/one".to_owned(), Why::NoNode)]);
    assert!(!paths(&rebuilt).contains_key("/one"));
}
