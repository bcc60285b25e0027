//! Locks: never two holders that conflict, whoever restarts; those who wait get them in turn; what a session
//! holds goes with it.

use crate::cluster::{self, ALICE, BOB, Cluster, serial};
use bearing_meta::Event;
use bearing_placement::{Scheme, position_of_session};
use bearing_proto::client::{Body, Call, Handle, LockFree, WaitId};
use bearing_types::{Code, Lock, LockMode, LockOwner, LockRange, LockSpace, SessionId};
use std::time::Duration;

const CAROL: SessionId = SessionId(13);

fn with_file() -> (Cluster, Handle) {
    let mut cluster = Cluster::new(2, Scheme::AnglecutHashed);
    for session in [ALICE, BOB, CAROL] {
        cluster.open_session(session);
    }
    let grant = cluster.root(ALICE).grant;
    let file = cluster.create(ALICE, &grant, "a").unwrap();
    (cluster, file)
}

fn range(start: u64, last: u64, mode: LockMode) -> Lock {
    let (owner, range) = (LockOwner(1), LockRange { start, last });
    Lock { owner, space: LockSpace::Ranges, range, mode, pid: 7 }
}

fn take(
    cluster: &mut Cluster,
    session: SessionId,
    node: Handle,
    lock: Lock,
    wait: Option<u64>,
) -> Result<(), Code> {
    cluster.call(session, node.home, Call::Lock { node, lock, wait: wait.map(WaitId) }).map(|_| ())
}

fn give_back(cluster: &mut Cluster, session: SessionId, node: Handle, start: u64, last: u64) {
    let (owner, space, range) = (LockOwner(1), LockSpace::Ranges, LockRange { start, last });
    cluster.call(session, node.home, Call::Unlock { node, owner, space, range }).unwrap();
}

fn in_the_way(cluster: &mut Cluster, session: SessionId, node: Handle, lock: Lock) -> Option<u64> {
    match cluster.call(session, node.home, Call::TestLock { node, lock }).unwrap() {
        Body::Lock(held) => held.map(|held| held.holder),
        other => panic!("{other:?}"),
    }
}

/// By what a holder is told of.
fn number(session: SessionId, node: Handle) -> u64 {
    let parts = [b"lock holder", &node.node.0.to_le_bytes()[..], &session.0.to_le_bytes()];
    let mac = cluster::keys().grants().sign(&parts).0;
    u64::from_le_bytes(mac[..8].try_into().unwrap())
}

fn told(cluster: &mut Cluster) -> Vec<(SessionId, u64)> {
    let free = |(session, LockFree { wait, .. }): (SessionId, LockFree)| (session, wait.0);
    std::mem::take(&mut cluster.free).into_iter().map(free).collect()
}

use LockMode::{Exclusive, Shared};

#[test]
fn a_lock_is_held_through_a_restart_and_a_move_and_goes_when_it_is_given_back() {
    let (mut cluster, file) = with_file();
    take(&mut cluster, ALICE, file, range(0, 9, Exclusive), None).unwrap();
    let (owner, block, _) = cluster.owner(file.home);
    cluster.restart(owner);
    assert_eq!(take(&mut cluster, BOB, file, range(9, 9, Shared), None), Err(Code::Locked));
    let other = *cluster.hosts.keys().find(|id| **id != owner).unwrap();
    cluster.send(owner, Event::Move(block, other));
    cluster.pass(Duration::from_secs(1));
    assert_eq!(cluster.owner(file.home).0, other);
    assert_eq!(take(&mut cluster, BOB, file, range(9, 9, Shared), None), Err(Code::Locked));
    assert_eq!(in_the_way(&mut cluster, BOB, file, range(0, 99, Shared)), Some(number(ALICE, file)));
    give_back(&mut cluster, ALICE, file, 5, u64::MAX);
    take(&mut cluster, BOB, file, range(9, 9, Shared), None).unwrap();
    assert_eq!(take(&mut cluster, BOB, file, range(4, 4, Shared), None), Err(Code::Locked));
}

#[test]
fn those_who_wait_are_told_in_turn_and_nobody_comes_before_them() {
    let (mut cluster, file) = with_file();
    take(&mut cluster, ALICE, file, range(0, 9, Exclusive), None).unwrap();
    for (session, wait) in [(BOB, 1), (CAROL, 2)] {
        let lock = range(0, 9, Exclusive);
        assert_eq!(take(&mut cluster, session, file, lock, Some(wait)), Err(Code::Locked));
    }
    assert_eq!(told(&mut cluster), []);
    give_back(&mut cluster, ALICE, file, 0, 9);
    assert_eq!(told(&mut cluster), [(BOB, 1)]);
    // It is kept for Bob: neither who had it before nor who came after gets it.
    assert_eq!(take(&mut cluster, ALICE, file, range(0, 9, Exclusive), None), Err(Code::Locked));
    assert_eq!(take(&mut cluster, CAROL, file, range(0, 9, Exclusive), Some(2)), Err(Code::Locked));
    take(&mut cluster, BOB, file, range(0, 9, Exclusive), Some(1)).unwrap();
    give_back(&mut cluster, BOB, file, 0, 9);
    assert_eq!(told(&mut cluster), [(CAROL, 2)]);
}

#[test]
fn who_does_not_come_for_a_lock_or_waits_no_more_lets_the_next_have_it() {
    let (mut cluster, file) = with_file();
    take(&mut cluster, ALICE, file, range(0, 9, Exclusive), None).unwrap();
    for (session, wait) in [(BOB, 1), (CAROL, 2)] {
        let lock = range(0, 9, Exclusive);
        assert_eq!(take(&mut cluster, session, file, lock, Some(wait)), Err(Code::Locked));
    }
    give_back(&mut cluster, ALICE, file, 0, 9);
    told(&mut cluster);
    cluster.pass(Duration::from_millis(1200));
    assert_eq!(told(&mut cluster), [(CAROL, 2)], "Bob did not come within a second");
    // He asks again, and has his place again.
    assert_eq!(take(&mut cluster, ALICE, file, range(0, 9, Exclusive), None), Err(Code::Locked));
    let stop = Call::StopWaiting { node: file, wait: WaitId(2) };
    cluster.call(CAROL, file.home, stop).unwrap();
    take(&mut cluster, BOB, file, range(0, 9, Exclusive), Some(1)).unwrap();
}

#[test]
fn shared_locks_are_given_beside_shared_ones_also_while_somebody_waits_for_all() {
    let (mut cluster, file) = with_file();
    take(&mut cluster, ALICE, file, range(0, 9, Shared), None).unwrap();
    assert_eq!(take(&mut cluster, BOB, file, range(0, 9, Exclusive), Some(1)), Err(Code::Locked));
    take(&mut cluster, CAROL, file, range(0, 9, Shared), None).unwrap();
    // Alone among those who share, one may change his lock to an exclusive one although somebody waits.
    give_back(&mut cluster, CAROL, file, 0, 9);
    take(&mut cluster, ALICE, file, range(0, 9, Exclusive), None).unwrap();
}

#[test]
fn a_wait_that_would_wait_for_itself_is_refused() {
    let (mut cluster, file) = with_file();
    let grant = cluster.root(ALICE).grant;
    let other = cluster.create(ALICE, &grant, "b").unwrap();
    assert_eq!(
        cluster.owner(file.home).1,
        cluster.owner(other.home).1,
        "files of one directory lie together"
    );
    take(&mut cluster, ALICE, file, range(0, 0, Exclusive), None).unwrap();
    take(&mut cluster, BOB, other, range(0, 0, Exclusive), None).unwrap();
    take(&mut cluster, CAROL, file, range(1, 1, Exclusive), None).unwrap();
    assert_eq!(take(&mut cluster, CAROL, other, range(0, 0, Shared), Some(1)), Err(Code::Locked));
    assert_eq!(take(&mut cluster, BOB, file, range(0, 0, Shared), Some(1)), Err(Code::Locked));
    assert_eq!(take(&mut cluster, ALICE, file, range(1, 1, Shared), Some(1)), Err(Code::Deadlock));
    // Not waiting is no deadlock.
    assert_eq!(take(&mut cluster, ALICE, file, range(1, 1, Shared), None), Err(Code::Locked));
}

#[test]
fn a_silent_session_loses_its_locks_when_it_is_over_and_not_before() {
    let (mut cluster, file) = with_file();
    take(&mut cluster, ALICE, file, range(0, 9, Exclusive), None).unwrap();
    assert_eq!(take(&mut cluster, BOB, file, range(0, 9, Exclusive), Some(1)), Err(Code::Locked));
    let renew = |cluster: &mut Cluster, session: SessionId| {
        cluster.call(session, position_of_session(session), Call::RenewSession).unwrap();
    };
    for _ in 0..3 {
        cluster.pass(Duration::from_secs(20));
        for session in [ALICE, BOB, CAROL] {
            renew(&mut cluster, session);
        }
        let waits = take(&mut cluster, BOB, file, range(0, 9, Exclusive), Some(1));
        assert_eq!(waits, Err(Code::Locked), "a session that lives keeps what it has");
    }
    for _ in 0..5 {
        cluster.pass(Duration::from_secs(9));
        renew(&mut cluster, BOB);
        renew(&mut cluster, CAROL);
        let _ = take(&mut cluster, BOB, file, range(0, 9, Exclusive), Some(1));
    }
    assert_eq!(in_the_way(&mut cluster, CAROL, file, range(0, 9, Shared)), Some(number(BOB, file)));
    let late = take(&mut cluster, ALICE, file, range(20, 20, Shared), None);
    assert_eq!(late, Err(Code::SessionEnded));
}

#[test]
fn locks_go_with_their_file() {
    let (mut cluster, file) = with_file();
    take(&mut cluster, ALICE, file, range(0, 9, Exclusive), None).unwrap();
    let (server, block, _) = cluster.owner(file.home);
    let key = bearing_meta::Key::Locks(file.node).encode();
    let stored = |cluster: &mut Cluster| {
        use bearing_seams::Store;
        cluster.pass(Duration::from_millis(100));
        cluster.hosts.get_mut(&server).unwrap().store.get(serial(block), &key).unwrap()
    };
    assert!(stored(&mut cluster).is_some());
    let grant = cluster.root(ALICE).grant;
    cluster.unlink(ALICE, &grant, "a").unwrap();
    cluster.pass(Duration::from_secs(10));
    assert_eq!(stored(&mut cluster), None);
    give_back(&mut cluster, ALICE, file, 0, 9);
    assert_eq!(take(&mut cluster, BOB, file, range(0, 9, Shared), None), Err(Code::Stale));
}

#[test]
fn only_files_are_locked_and_only_ranges_that_make_sense() {
    let (mut cluster, file) = with_file();
    let root = cluster.root(ALICE).node.node;
    assert_eq!(take(&mut cluster, ALICE, root, range(0, 9, Shared), None), Err(Code::InvalidArgument));
    assert_eq!(take(&mut cluster, ALICE, file, range(9, 0, Shared), None), Err(Code::InvalidArgument));
}

#[test]
fn a_file_takes_a_bounded_number_of_locks() {
    let (mut cluster, file) = with_file();
    for at in 0..bearing_types::LOCKS_PER_FILE_MAX as u64 {
        take(&mut cluster, ALICE, file, range(2 * at, 2 * at, Shared), None).unwrap();
    }
    assert_eq!(take(&mut cluster, BOB, file, range(1, 1, Shared), None), Err(Code::NoLocks));
    // One that is whole is given back; to cut one in two would be one too many.
    give_back(&mut cluster, ALICE, file, 0, 0);
    take(&mut cluster, ALICE, file, range(u64::MAX - 9, u64::MAX, Shared), None).unwrap();
    let (owner, space) = (LockOwner(1), LockSpace::Ranges);
    let inner = LockRange { start: u64::MAX - 5, last: u64::MAX - 5 };
    let cut = Call::Unlock { node: file, owner, space, range: inner };
    assert_eq!(cluster.call(ALICE, file.home, cut), Err(Code::NoLocks));
    give_back(&mut cluster, ALICE, file, 0, u64::MAX);
    take(&mut cluster, BOB, file, range(1, 1, Shared), None).unwrap();
}

#[test]
fn who_holds_a_lock_is_told_to_others_by_a_number_that_says_nothing_else() {
    let (mut cluster, file) = with_file();
    let mine = range(0, 9, Exclusive);
    take(&mut cluster, ALICE, file, mine, None).unwrap();
    let mut ask = |session, lock| match cluster.call(session, file.home, Call::TestLock { node: file, lock })
    {
        Ok(Body::Lock(Some(held))) => held,
        other => panic!("{other:?}"),
    };
    let (seen, other) = (ask(BOB, mine), Lock { owner: LockOwner(2), ..mine });
    assert_eq!((seen.lock.pid, seen.lock.owner, seen.lock.range), (0, LockOwner(0), mine.range));
    assert!(seen.holder != ALICE.0 && seen.holder == ask(CAROL, mine).holder);
    // Its own machine sees which process it is.
    assert_eq!((ask(ALICE, other).lock, ask(ALICE, other).holder), (mine, seen.holder));
}
