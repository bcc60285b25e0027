//! Locks: asked for, waited for, given back, and what they make of caches.

use super::files::*;
use super::world::*;
use crate::*;
use bearing_proto::Message;
use bearing_proto::client::{Body, Call, Handle, LockFree, LockView, Request, WaitId};
use bearing_types::*;
use std::collections::BTreeMap;
use std::time::Duration;

const FILE: Handle = Handle { node: NodeId(50), home: Position(50) };

fn lock(mode: LockMode) -> Lock {
    Lock { owner: LockOwner(3), space: LockSpace::Ranges, range: LockRange::ALL, mode, pid: 7 }
}

fn take(waits: bool) -> Operation {
    Operation::Lock { node: FILE, lock: lock(LockMode::Exclusive), waits }
}

/// What comes after the server gave a lock: the file is looked at, and the kernel forgets what it knew of it.
fn look(world: &mut World, version: u64) {
    let asked = world.answer_one(Body::Node(file_view(FILE, version, 0)));
    assert!(matches!(asked.call, Call::Attributes { .. }), "{asked:?}");
}

fn forget(world: &mut World) -> bool {
    match world.invalidations.pop() {
        Some((number, what)) => {
            assert_eq!(what, [Invalidation::Node { node: FILE.node }]);
            world.step(Event::Invalidated(number));
            true
        }
        None => false,
    }
}

fn free(world: &mut World, wait: WaitId) {
    let message = Message::LockFree(LockFree { node: FILE.node, wait });
    world.step(Event::Message { from: Target::Server(ServerId(1)), message, attachment: Vec::new() });
}

fn wait_of(call: &Call) -> Option<WaitId> {
    match call {
        Call::Lock { wait, .. } => *wait,
        other => panic!("a lock was to be asked for, not {other:?}"),
    }
}

#[test]
fn a_lock_is_had_when_nothing_from_before_it_is_known_any_more() {
    let mut world = World::open();
    let ticket = world.start(take(false));
    world.answer_one(Body::Done);
    look(&mut world, 4);
    assert!(forget(&mut world), "the kernel may hold bytes from before");
    assert_eq!(world.result(ticket), Ok(Answer::Done));
    // Nobody wrote meanwhile: what the kernel has is still right.
    let ticket = world.start(take(false));
    world.answer_one(Body::Done);
    look(&mut world, 4);
    assert!(!forget(&mut world));
    assert_eq!(world.result(ticket), Ok(Answer::Done));
    let ticket = world.start(take(false));
    world.answer_one(Body::Done);
    look(&mut world, 5);
    assert!(forget(&mut world));
    assert_eq!(world.result(ticket), Ok(Answer::Done));
}

#[test]
fn who_does_not_wait_is_told_at_once() {
    let mut world = World::open();
    let ticket = world.start(take(false));
    assert_eq!(wait_of(&world.refuse_one(Code::Locked).call), None);
    assert_eq!(world.result(ticket), Err(Code::Locked));
}

#[test]
fn who_waits_asks_again_when_told_and_now_and_then() {
    let mut world = World::open();
    let ticket = world.start(take(true));
    let wait = wait_of(&world.refuse_one(Code::Locked).call).unwrap();
    assert!(world.sent.is_empty());
    world.pass(Duration::from_secs(1));
    let asked = world.take_request();
    assert_eq!(wait_of(&asked.call), Some(wait));
    // The word that it is free overtakes the answer that it is not.
    free(&mut world, wait);
    world.reply_done(&asked, Err(Code::Locked));
    assert_eq!(wait_of(&world.refuse_one(Code::Locked).call), Some(wait));
    free(&mut world, WaitId(wait.0 + 1));
    assert!(world.sent.is_empty(), "another wait");
    free(&mut world, wait);
    world.answer_one(Body::Done);
    look(&mut world, 1);
    forget(&mut world);
    assert_eq!(world.result(ticket), Ok(Answer::Done));
}

#[test]
fn a_wait_that_is_given_up_ends_at_once_and_leaves_the_queue() {
    let mut world = World::open();
    let ticket = world.start(take(true));
    let wait = wait_of(&world.refuse_one(Code::Locked).call).unwrap();
    world.step(Event::GiveUp(ticket));
    assert_eq!(world.result(ticket), Err(Code::Interrupted));
    assert_eq!(world.answer_one(Body::Done).call, Call::StopWaiting { node: FILE, wait });
}

#[test]
fn a_lock_that_comes_when_the_wait_is_given_up_is_had() {
    let mut world = World::open();
    let ticket = world.start(take(true));
    world.step(Event::GiveUp(ticket));
    world.answer_one(Body::Done);
    look(&mut world, 1);
    forget(&mut world);
    assert_eq!(world.result(ticket), Ok(Answer::Done));
}

/// A server is there again: it takes what is owed, and tells maps. Whether a lock is asked for.
fn take_back(world: &mut World) -> bool {
    world.sent.clear();
    world.pass(Duration::from_secs(3));
    let asked: Vec<Request> = world.sent.drain(..).filter_map(|sent| request_of(sent.message)).collect();
    let asked: BTreeMap<Sequence, Request> = asked.into_iter().map(|asked| (asked.sequence, asked)).collect();
    for asked in asked.values() {
        match asked.call {
            Call::Unlock { range: GIVEN_BACK, .. } => world.reply_done(asked, Ok(Body::Done)),
            Call::Map { .. } => world.reply_done(asked, Ok(Body::Map(None))),
            Call::RenewSession => world.reply_done(asked, Ok(Body::Session { renew_within_ms: 30_000 })),
            _ => {}
        }
    }
    let all = |asked: &Request| matches!(asked.call, Call::Unlock { range: LockRange::ALL, .. });
    assert!(!asked.values().any(all), "its owner holds other ranges yet");
    asked.values().any(|asked| matches!(asked.call, Call::Lock { .. }))
}

const GIVEN_BACK: LockRange = LockRange { start: 0, last: 4 };
const OWNER: (LockOwner, LockSpace) = (LockOwner(3), LockSpace::Ranges);

fn give_back() -> Operation {
    let (owner, space) = OWNER;
    Operation::Unlock { node: FILE, owner, space, range: GIVEN_BACK }
}

#[test]
fn a_lock_that_no_server_takes_back_is_owed_and_its_owner_gets_no_other_before() {
    let mut world = World::open();
    let ticket = world.start(give_back());
    world.pass(config().request_timeout);
    assert_eq!(world.result(ticket), Err(Code::Unreachable));
    world.start(take(false));
    assert!(!take_back(&mut world));
    assert!((0..30).any(|_| take_back(&mut world)));
}

#[test]
fn whoever_waits_for_what_is_owed_goes_on_though_it_is_owed_twice() {
    let mut world = World::open();
    world.start(give_back());
    world.pass(config().request_timeout);
    world.start(take(false));
    world.start(give_back());
    world.pass(config().request_timeout);
    assert!(!take_back(&mut world));
    assert!((0..30).any(|_| take_back(&mut world)));
}

#[test]
fn who_waits_for_a_lock_does_not_get_it_while_its_owner_owes_another() {
    let mut world = World::open();
    world.start(take(true));
    let returned = world.start(give_back());
    // Another process has the lock; the return gets no answer.
    let refuse = |world: &mut World| {
        world.pass(Duration::from_secs(1));
        let sent: Vec<Request> = world.sent.drain(..).filter_map(|sent| request_of(sent.message)).collect();
        let asked = sent.into_iter().rfind(|asked| matches!(asked.call, Call::Lock { .. }));
        asked.map(|asked| world.reply_done(&asked, Err(Code::Locked))).is_some()
    };
    let refused = (0..=config().request_timeout.as_secs()).filter(|_| refuse(&mut world)).count();
    assert!(refused > 10);
    assert_eq!(world.result(returned), Err(Code::Unreachable));
    refuse(&mut world);
    assert!(!(0..10).any(|_| refuse(&mut world)), "what is owed may take what it gets");
    let other = world.start(take(true));
    world.step(Event::GiveUp(other));
    assert_eq!(world.result(other), Err(Code::Interrupted));
    assert!((0..30).any(|_| take_back(&mut world)));
}

#[test]
fn what_is_owed_is_given_back_until_a_server_can_tell_that_the_first_try_is_over() {
    let (mut world, mut servers) = stage();
    let (file, _) = create_open(&mut world, &mut servers, "a");
    // Older than the lock's return, and tried for longer.
    world.start(write(file, 0, b"x"));
    world.start(Operation::Flush { file });
    let older = world.take_request();
    assert!(matches!(older.call, Call::OpenChunk { .. }), "{older:?}");
    world.start(give_back());
    world.pass(config().request_timeout);
    world.start(take(false));
    assert!(
        (0..10).all(|_| !take_back(&mut world)),
        "the first try, if it came now, would take the new lock"
    );
    world.reply_done(&older, Err(Code::Io));
    assert!((0..30).any(|_| take_back(&mut world)));
}

#[test]
fn a_lock_in_the_way_is_told_as_its_home_tells_it() {
    let mut world = World::open();
    let ticket = world.start(Operation::TestLock { node: FILE, lock: lock(LockMode::Shared) });
    let held = LockView { holder: 9, lock: lock(LockMode::Exclusive) };
    world.answer_one(Body::Lock(Some(held)));
    assert_eq!(world.result(ticket), Ok(Answer::Lock(Some(held.lock))));
}

fn request_of(message: Message) -> Option<Request> {
    match message {
        Message::Request(request) => Some(request),
        _ => None,
    }
}
