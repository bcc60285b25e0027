//! A chunk that is mostly dead: what is in use of it goes into another one, whatever happens meanwhile, and
//! the old one goes.

use crate::cluster::{ALICE, Cluster, DATA, filled_by, opened_by, regular, root_user};
use bearing_meta::Config;
use bearing_placement::Scheme;
use bearing_proto::client::{AttributeChange, Body, Call, ChunkView, CommitMode, Extent, Handle};
use bearing_proto::data::{DataBody, DataCall, DataError, FrameAt, Pieces};
use bearing_proto::grant::{Admission, OpenToken};
use bearing_types::{ChunkId, Code, Position, ServerId, SetIds, Wall};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

const LENGTH: u64 = 2 << 20;
/// Where the second frame starts; the first fills what is before.
const SECOND: u64 = 1_500_000;

type File = (Handle, OpenToken);
/// Offset, length, chunk, frame, skip.
type Shape = (u64, u32, ChunkId, u64, u32);

/// Data servers that hold the same two frames of every chunk that was sealed.
#[derive(Default)]
struct Disks {
    frames: Vec<FrameAt>,
    held: BTreeSet<(ServerId, ChunkId)>,
    gathered: Vec<(ChunkId, ChunkId, Pieces, u64)>,
    /// What a server says that shall make a chunk of frames of another.
    refusal: Option<Result<DataBody, DataError>>,
    /// Bytes of chunks on each server. One that has more than a few has little room for others.
    used: u64,
}

impl Disks {
    fn answer(&mut self, server: ServerId, chunk: ChunkId, call: &DataCall) -> Result<DataBody, DataError> {
        let here = (server, chunk);
        match call {
            DataCall::Ping => Ok(DataBody::Space {
                used: self.used,
                free: 1 << 30,
                filesystem: None,
                damaged: Vec::new(),
                life: 1,
                waiting: 0,
            }),
            DataCall::Fence { .. } => {
                self.held.insert(here);
                Ok(DataBody::Fenced { length: LENGTH, restarted: false, damaged: Vec::new() })
            }
            DataCall::Remove { .. } => {
                self.held.remove(&here);
                Ok(DataBody::Done)
            }
            DataCall::Gather { from, pieces, length, .. } => {
                if let Some(refusal) = &self.refusal {
                    return refusal.clone();
                }
                self.gathered.push((*from, chunk, pieces.clone(), *length));
                self.held.insert(here);
                Ok(DataBody::Done)
            }
            _ if !self.held.contains(&here) => Err(DataError::NoChunk),
            DataCall::Frames { from, end, .. } => {
                let made = self.gathered.iter().find(|(_, target, ..)| *target == chunk);
                let place = |frame| made.map_or(Some(frame), |(_, _, pieces, _)| pieces.new_place(frame));
                let here = self
                    .frames
                    .iter()
                    .filter_map(|frame| place(frame.frame).map(|place| FrameAt { frame: place, ..*frame }));
                let asked = here.filter(|frame| (*from..*end).contains(&frame.frame));
                Ok(DataBody::Frames { frames: asked.collect(), next: None })
            }
            _ => Ok(DataBody::Done),
        }
    }
}

fn cluster() -> (Cluster, Rc<RefCell<Disks>>) {
    let config = Config { writer_patience: Duration::ZERO, ..Config::standard() };
    let mut cluster = Cluster::with_config(2, Scheme::AnglecutHashed, config);
    let disks: Rc<RefCell<Disks>> = Rc::default();
    let shared = Rc::clone(&disks);
    cluster.data = Box::new(move |server, request| {
        Some(shared.borrow_mut().answer(server, request.chunk, &request.call))
    });
    cluster.open_session(ALICE);
    cluster.pass(Duration::from_secs(2));
    (cluster, disks)
}

fn is_gone(cluster: &mut Cluster, chunk: &ChunkView) -> bool {
    let shown = cluster.call(ALICE, chunk.chunk.position, Call::Chunk { chunk: chunk.chunk });
    shown == Err(Code::Stale)
}

fn create(cluster: &mut Cluster, text: &str) -> File {
    let grant = cluster.root(ALICE).grant;
    cluster.create_open(ALICE, &grant, text, regular(0o600)).unwrap()
}

fn commit(cluster: &mut Cluster, (node, token): File, extent: Extent) {
    let (extents, mode) = (vec![extent], CommitMode::Put);
    let opened = filled_by(ALICE, &extents);
    let (size_min, modified, set_ids) = (0, Wall(0), SetIds::Keep);
    let call = Call::Commit { node, token, extents, size_min, modified, mode, opened, set_ids };
    cluster.call(ALICE, node.home, call).unwrap();
}

fn extent(chunk: &ChunkView, file_offset: u64, length: u32, frame: u64) -> Extent {
    Extent { file_offset, length, chunk: chunk.chunk, frame, skip: 0 }
}

fn truncate(cluster: &mut Cluster, (node, token): File) {
    let change = AttributeChange { size: Some(0), ..AttributeChange::default() };
    let call = Call::SetAttributes { node, who: root_user(), change, token: Some(token) };
    cluster.call(ALICE, node.home, call).unwrap();
}

/// The extents of a file, and its version.
fn extents(cluster: &mut Cluster, (node, token): File) -> (Vec<Shape>, u64) {
    let call = Call::Extents { node, by: Admission::Open(token), offset: 0, count_max: 100 };
    match cluster.call(ALICE, node.home, call).unwrap() {
        Body::Extents { extents, version, .. } => {
            let shape = |e: &Extent| (e.file_offset, e.length, e.chunk.chunk, e.frame, e.skip);
            (extents.iter().map(shape).collect(), version.0)
        }
        other => panic!("{other:?}"),
    }
}

/// Time passes, and the session is kept alive.
fn live_on(cluster: &mut Cluster, seconds: u64) {
    for _ in 0..seconds / 5 {
        cluster.pass(Duration::from_secs(5));
        let renewed = cluster.call(ALICE, bearing_placement::position_of_session(ALICE), Call::RenewSession);
        assert!(renewed.is_ok());
    }
}

/// A chunk with a frame of each of two files.
fn two_files(cluster: &mut Cluster, disks: &Rc<RefCell<Disks>>) -> (File, File, ChunkView) {
    let (first, second) = (create(cluster, "first"), create(cluster, "second"));
    let frame =
        |frame, (node, _): File| FrameAt { frame, payload: 400_000, node: node.node, home: node.home };
    disks.borrow_mut().frames = vec![frame(0, first), frame(SECOND, second)];
    let chunk = cluster.open_chunk(ALICE, Position(0));
    commit(cluster, first, extent(&chunk, 0, 400_000, 0));
    commit(cluster, second, extent(&chunk, 10, 400_000, SECOND));
    (first, second, chunk)
}

fn chunks(cluster: &Cluster) -> u64 {
    cluster.hosts.values().map(|host| host.machine.chunk_tally().chunks).sum()
}

#[test]
fn what_is_in_use_of_a_mostly_dead_chunk_goes_into_another_one_and_the_file_does_not_change() {
    let (mut cluster, disks) = cluster();
    let (first, second, chunk) = two_files(&mut cluster, &disks);
    let (before, version) = extents(&mut cluster, second);
    assert_eq!(before, [(10, 400_000, chunk.chunk.chunk, SECOND, 0)]);
    // All of it is in use.
    live_on(&mut cluster, 740);
    assert!(disks.borrow().gathered.is_empty() && !is_gone(&mut cluster, &chunk));
    truncate(&mut cluster, first);
    live_on(&mut cluster, 10);
    let gathered = disks.borrow().gathered.clone();
    let (from, target, pieces, length) = gathered[0].clone();
    assert_eq!((from, length), (chunk.chunk.chunk, LENGTH - SECOND));
    assert_eq!(pieces, Pieces::of(std::slice::from_ref(&(SECOND..LENGTH))));
    assert_eq!(extents(&mut cluster, second), (vec![(10, 400_000, target, 0, 0)], version));
    assert!(is_gone(&mut cluster, &chunk));
    // Checkpoints of metadata may say yet that its bytes lie there: it is kept until there are newer ones.
    let old = chunk.chunk.chunk;
    let both = DATA.into_iter().flat_map(|server| [(server, old), (server, target)]).collect();
    assert_eq!(disks.borrow().held, both);
    live_on(&mut cluster, 2 * 300 + 5);
    assert_eq!(disks.borrow().held, DATA.map(|server| (server, target)).into());
    // It is a chunk as any other: it goes when nobody refers to it.
    truncate(&mut cluster, second);
    live_on(&mut cluster, 5);
    assert!(disks.borrow().held.is_empty());
    assert_eq!(chunks(&cluster), 0);
}

fn finish(cluster: &mut Cluster, chunk: &ChunkView, payload: u64) {
    let opened = opened_by(ALICE, chunk.chunk.chunk);
    let call = Call::FinishChunk { chunk: chunk.chunk, payload, opened };
    cluster.call(ALICE, chunk.chunk.position, call).unwrap();
}

#[test]
fn of_a_finished_chunk_the_rest_is_given_a_while_to_be_let_go_of_before_it_is_moved() {
    let (mut cluster, disks) = cluster();
    let (first, _, chunk) = two_files(&mut cluster, &disks);
    finish(&mut cluster, &chunk, 800_000);
    truncate(&mut cluster, first);
    live_on(&mut cluster, 50);
    assert!(disks.borrow().gathered.is_empty());
    live_on(&mut cluster, 20);
    assert_eq!(disks.borrow().gathered.len(), DATA.len());
    assert!(is_gone(&mut cluster, &chunk));
}

#[test]
fn where_room_is_short_the_rest_of_a_finished_chunk_is_moved_at_once() {
    let (mut cluster, disks) = cluster();
    disks.borrow_mut().used = 9 << 30;
    let (first, second, chunk) = two_files(&mut cluster, &disks);
    truncate(&mut cluster, first);
    live_on(&mut cluster, 10);
    assert!(disks.borrow().gathered.is_empty(), "more may come in it");
    finish(&mut cluster, &chunk, 800_000);
    live_on(&mut cluster, 10);
    let target = disks.borrow().gathered[0].1;
    assert_eq!(extents(&mut cluster, second).0, [(10, 400_000, target, 0, 0)]);
    assert!(is_gone(&mut cluster, &chunk));
}

#[test]
fn what_was_overwritten_while_a_chunk_was_compacted_stays_as_it_is() {
    let (mut cluster, disks) = cluster();
    let (first, second, chunk) = two_files(&mut cluster, &disks);
    truncate(&mut cluster, first);
    disks.borrow_mut().refusal = Some(Ok(DataBody::Busy { done: 0 }));
    live_on(&mut cluster, 740);
    let other = cluster.open_chunk(ALICE, Position(0));
    commit(&mut cluster, second, extent(&other, 1_000, 500, 0));
    disks.borrow_mut().refusal = None;
    live_on(&mut cluster, 10);
    let target = disks.borrow().gathered[0].1;
    let expected =
        [(10, 990, target, 0, 0), (1_000, 500, other.chunk.chunk, 0, 0), (1_500, 398_510, target, 0, 1_490)];
    assert_eq!(extents(&mut cluster, second).0, expected);
    assert!(is_gone(&mut cluster, &chunk));
}

#[test]
fn a_compaction_that_a_server_refuses_is_called_off_and_tried_again() {
    let (mut cluster, disks) = cluster();
    let (first, second, chunk) = two_files(&mut cluster, &disks);
    truncate(&mut cluster, first);
    disks.borrow_mut().refusal = Some(Err(DataError::Full));
    live_on(&mut cluster, 740);
    assert_eq!(extents(&mut cluster, second).0, [(10, 400_000, chunk.chunk.chunk, SECOND, 0)]);
    disks.borrow_mut().refusal = None;
    live_on(&mut cluster, 40);
    let gathered = disks.borrow().gathered.clone();
    assert_eq!(extents(&mut cluster, second).0, [(10, 400_000, gathered[0].1, 0, 0)]);
    assert!(is_gone(&mut cluster, &chunk));
    live_on(&mut cluster, 2 * 300 + 5);
    assert_eq!(chunks(&cluster), 1, "of those that were called off no record is left");
}

#[test]
fn no_extent_says_that_it_is_in_a_chunk_of_which_it_is_not_stable_that_it_is_made() {
    let (mut cluster, disks) = cluster();
    let (first, second, chunk) = two_files(&mut cluster, &disks);
    truncate(&mut cluster, first);
    disks.borrow_mut().refusal = Some(Ok(DataBody::Busy { done: 0 }));
    live_on(&mut cluster, 740);
    cluster.hold_syncs = true;
    disks.borrow_mut().refusal = None;
    cluster.pass(Duration::from_secs(3));
    assert!(!disks.borrow().gathered.is_empty());
    cluster.release_syncs();
    live_on(&mut cluster, 10);
    let target = disks.borrow().gathered[0].1;
    assert_eq!(extents(&mut cluster, second).0, [(10, 400_000, target, 0, 0)]);
    assert!(is_gone(&mut cluster, &chunk));
}

#[test]
fn a_commit_may_cover_bytes_in_more_chunks_of_other_tablets_than_can_be_told_of_at_once() {
    let (mut cluster, _) = cluster();
    let file = create(&mut cluster, "f");
    let elsewhere = Position(!file.0.home.0);
    for number in 0..300 {
        let chunk = cluster.open_chunk(ALICE, elsewhere);
        commit(&mut cluster, file, extent(&chunk, number * 100, 100, 0));
    }
    let chunk = cluster.open_chunk(ALICE, elsewhere);
    commit(&mut cluster, file, extent(&chunk, 0, 30_000, 0));
    let (shapes, _) = extents(&mut cluster, file);
    assert_eq!(shapes, [(0, 30_000, chunk.chunk.chunk, 0, 0)]);
}
