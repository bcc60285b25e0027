//! Marks that have done their work are removed, never early, whatever clocks say and whoever owns the tablet.

use crate::cluster::{ALICE, BOB, Cluster, Host};
use bearing_meta::{Event, Key};
use bearing_placement::{Scheme, position_of_session};
use bearing_proto::client::Call;
use bearing_proto::grant::Grant;
use bearing_seams::{KeyRange, Store};
use bearing_types::{Block, Code, NodeId, Position, SessionId, TabletSerial, Wall};
use std::time::Duration;

/// A grant lives for 300 s, and clocks may differ by 250 ms, either way.
const KEPT: Duration = Duration::from_millis(300_500);
const MINUTE: Duration = Duration::from_secs(60);

fn cluster() -> Cluster {
    let mut cluster = Cluster::new(3, Scheme::AnglecutHashed);
    cluster.open_session(ALICE);
    cluster.open_session(BOB);
    cluster
}

/// The marks of a kind that are stored anywhere.
fn marks(cluster: &mut Cluster, of: Key) -> usize {
    // What is committed is in the stores after the next upkeep.
    cluster.pass(Duration::from_millis(50));
    let tag = of.encode()[0];
    let range = KeyRange { start: vec![tag], end: Some(vec![tag + 1]) };
    let mut count = 0;
    for host in cluster.hosts.values_mut() {
        for tablet in host.store.tablets().unwrap() {
            count += host.store.range(tablet, &range, usize::MAX).unwrap().len();
        }
    }
    count
}

fn dead(cluster: &mut Cluster) -> usize {
    marks(cluster, Key::Dead(NodeId(0)))
}

fn ended(cluster: &mut Cluster) -> usize {
    marks(cluster, Key::Ended(SessionId(0)))
}

/// A tablet of a server that has the mark of a removed directory.
fn block_with_dead(host: &mut Host) -> Option<Block> {
    let tag = Key::Dead(NodeId(0)).encode()[0];
    let range = KeyRange { start: vec![tag], end: Some(vec![tag + 1]) };
    let tablets = host.store.tablets().unwrap();
    let found = tablets.into_iter().find(|tablet| !host.store.range(*tablet, &range, 1).unwrap().is_empty());
    found.and_then(TabletSerial::first_block)
}

/// Time passes while Alice and Bob are there.
fn live_on(cluster: &mut Cluster, time: Duration) {
    let mut left = time;
    while left > Duration::ZERO {
        let step = left.min(Duration::from_secs(10));
        cluster.pass(step);
        for session in [ALICE, BOB] {
            cluster.call(session, position_of_session(session), Call::RenewSession).unwrap();
        }
        left -= step;
    }
}

/// Directories that were made and removed. A grant of the last one.
fn remove_directories(cluster: &mut Cluster, count: u32) -> Grant {
    let root = cluster.root(ALICE).grant;
    let mut last = None;
    for number in 0..count {
        let name = format!("d{number}");
        let directory = cluster.mkdir(ALICE, &root, &name).unwrap();
        last = Some(cluster.directory(ALICE, directory).unwrap().grant);
        cluster.rmdir(ALICE, &root, &name).unwrap();
    }
    last.expect("at least one")
}

#[test]
fn marks_of_removed_directories_go_after_the_life_of_grants_and_not_before() {
    let mut cluster = cluster();
    live_on(&mut cluster, KEPT);
    // More than one step's worth.
    let grant = remove_directories(&mut cluster, 300);
    assert_eq!(dead(&mut cluster), 300);
    live_on(&mut cluster, KEPT - Duration::from_secs(5));
    assert_eq!(dead(&mut cluster), 300, "none is removed early");
    live_on(&mut cluster, Duration::from_secs(30));
    assert_eq!(dead(&mut cluster), 0);
    // A clock that was set back lets the grant pass; the node is gone all the same.
    cluster.now.wall = Wall(cluster.now.wall.0 - 3_600_000_000_000);
    assert_eq!(cluster.create(ALICE, &grant, "child"), Err(Code::NotFound));
}

#[test]
fn marks_survive_a_clock_that_jumps_a_restart_and_a_move_and_go_in_the_end() {
    let mut cluster = cluster();
    live_on(&mut cluster, KEPT);
    remove_directories(&mut cluster, 5);
    cluster.now.wall = cluster.now.wall.after(Duration::from_secs(7_200));
    live_on(&mut cluster, MINUTE);
    assert_eq!(dead(&mut cluster), 5, "a clock that was set forward makes nothing old");
    live_on(&mut cluster, 3 * MINUTE);
    for id in cluster.hosts.keys().copied().collect::<Vec<_>>() {
        cluster.restart(id);
    }
    live_on(&mut cluster, KEPT - MINUTE);
    assert_eq!(dead(&mut cluster), 5, "a new owner knows only how long it had the tablet");
    let block = cluster.hosts.values_mut().find_map(block_with_dead).expect("the marks lie somewhere");
    let (owner, ..) = cluster.owner(block.start());
    let other = cluster.hosts.keys().copied().find(|id| *id != owner).unwrap();
    cluster.send(owner, Event::Move(block, other));
    cluster.pass(Duration::from_secs(2));
    assert_eq!(cluster.owner(block.start()).0, other);
    live_on(&mut cluster, KEPT - MINUTE);
    let there = cluster.hosts.get_mut(&other).and_then(block_with_dead);
    assert_eq!(there, Some(block), "of all tablets only the one that moved still has marks");
    live_on(&mut cluster, 2 * MINUTE);
    assert_eq!(dead(&mut cluster), 0);
}

#[test]
fn an_ended_session_is_refused_also_when_its_marks_are_gone() {
    let mut cluster = cluster();
    let grant = cluster.root(ALICE).grant;
    cluster.create(ALICE, &grant, "f").unwrap();
    // As late as can be: with a grant that has not expired, by a clock that is set back below.
    let wall = cluster.now.wall;
    cluster.call(ALICE, position_of_session(ALICE), Call::CloseSession).unwrap();
    let mut passed = Duration::ZERO;
    while passed < Duration::from_secs(3_500) {
        cluster.pass(Duration::from_secs(10));
        cluster.call(BOB, position_of_session(BOB), Call::RenewSession).unwrap();
        passed += Duration::from_secs(10);
    }
    assert!(ended(&mut cluster) >= 2, "at its home, and where it left something");
    for _ in 0..30 {
        cluster.pass(Duration::from_secs(10));
        cluster.call(BOB, position_of_session(BOB), Call::RenewSession).unwrap();
    }
    assert_eq!(ended(&mut cluster), 0);
    assert_eq!(marks(&mut cluster, Key::Session(SessionId(0))), 1, "Bob's");
    cluster.now.wall = wall;
    assert_eq!(cluster.unlink(ALICE, &grant, "f"), Err(Code::SessionEnded));
    assert_eq!(cluster.lookup(ALICE, &grant, "f"), Err(Code::SessionEnded));
    let renewed = cluster.call(ALICE, position_of_session(ALICE), Call::RenewSession);
    assert_eq!(renewed, Err(Code::SessionEnded));
    let bobs = cluster.root(BOB).grant;
    assert!(cluster.lookup(BOB, &bobs, "f").is_ok());
}

#[test]
fn a_session_that_never_was_is_refused_wherever_it_asks() {
    let mut cluster = cluster();
    let stranger = SessionId(99);
    for bits in 0..16u64 {
        let position = Position(bits << 60);
        let call = Call::OpenChunk { avoid: Vec::new(), doubted: Vec::new() };
        assert_eq!(cluster.call(stranger, position, call), Err(Code::SessionEnded));
    }
}
