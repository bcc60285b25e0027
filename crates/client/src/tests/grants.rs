//! What is sent again shows the grant that is good by then; what was given up leaves no lease behind.

use super::world::*;
use crate::*;
use bearing_proto::client::{Answer as WireAnswer, Body, Call, DirectoryView, LeaseKey, RenameMode, Request};
use bearing_proto::grant::Grant;
use bearing_proto::keys::Key;
use bearing_types::*;
use std::time::Duration;

const ACCESS: LeaseKey = LeaseKey::Access(NodeId::ROOT);

fn make_directory() -> Operation {
    let who = Credentials::ROOT;
    Operation::MakeDirectory { directory: root(), name: name("d"), who, mode: Mode::new(0o755) }
}

/// The root after a chmod.
fn changed_root(mode: u32, lease: u32) -> DirectoryView {
    let mut view = root_view(lease);
    let mut body = view.grant.body.clone();
    body.access.mode = Mode::new(mode);
    view.grant = Grant::sign(body, &Key::new([9; 32]));
    view
}

fn shown_mode(request: &Request) -> Mode {
    match &request.call {
        Call::MakeDirectory { grant, .. } => grant.body.access.mode,
        other => panic!("mkdir was expected, not {other:?}"),
    }
}

fn recall(world: &mut World, number: u64, keys: Vec<LeaseKey>) {
    world.recall(number, keys);
    for (number, _) in std::mem::take(&mut world.invalidations) {
        world.step(Event::Invalidated(number));
    }
    world.sent.clear();
}

fn retry(world: &mut World, request: &Request) {
    world.reply(request.sequence, WireAnswer::Retry { after_us: 1000 });
}

fn pause(world: &mut World) {
    world.pass(Duration::from_millis(10));
}

#[test]
fn what_has_to_retry_after_its_directory_was_recalled_shows_the_new_grant_under_its_old_number() {
    let mut world = with_root_cached();
    let ticket = world.start(make_directory());
    let first = world.take_request();
    assert_eq!(shown_mode(&first), Mode::new(0o755));
    retry(&mut world, &first);
    recall(&mut world, 1, vec![ACCESS]);
    pause(&mut world);
    let asked = world.answer_one(Body::Directory(Box::new(changed_root(0o2775, 20_000))));
    assert!(matches!(asked.call, Call::Directory { .. }));
    let again = world.take_request();
    assert_eq!((again.sequence, shown_mode(&again)), (first.sequence, Mode::new(0o2775)));
    world.reply_done(&again, Err(Code::Exists));
    assert_eq!(world.result(ticket), Err(Code::Exists));
}

#[test]
fn what_has_to_retry_under_a_living_lease_asks_for_nothing() {
    let mut world = with_root_cached();
    world.start(make_directory());
    let first = world.take_request();
    retry(&mut world, &first);
    pause(&mut world);
    assert_eq!(world.take_request().call, first.call);
}

#[test]
fn a_grant_that_was_refreshed_meanwhile_is_shown() {
    let mut world = with_root_cached();
    world.start(make_directory());
    let first = world.take_request();
    retry(&mut world, &first);
    world.start(Operation::Root);
    world.answer_one(Body::Directory(Box::new(changed_root(0o2775, 20_000))));
    pause(&mut world);
    let again = world.take_request();
    assert_eq!((again.sequence, shown_mode(&again)), (first.sequence, Mode::new(0o2775)));
}

#[test]
fn a_grant_without_a_living_lease_is_asked_for_before_every_retry() {
    let mut world = World::open();
    world.start(make_directory());
    world.answer_one(Body::Directory(Box::new(root_view(0))));
    for mode in [0o700, 0o711] {
        let request = world.take_request();
        retry(&mut world, &request);
        world.pass(Duration::from_millis(300));
        world.answer_one(Body::Directory(Box::new(changed_root(mode, 0))));
        assert_eq!(world.sent.len(), 1);
        assert_eq!(shown_mode(world.sent[0].request()), Mode::new(mode));
    }
}

#[test]
fn what_is_sent_again_without_an_answer_shows_a_new_grant_only_if_the_old_one_was_recalled() {
    let mut world = with_root_cached();
    world.start(make_directory());
    let first = world.take_request();
    world.pass(Duration::from_millis(200));
    assert_eq!(world.take_request().call, first.call);
    recall(&mut world, 1, vec![LeaseKey::Content(NodeId::ROOT)]);
    world.pass(Duration::from_millis(400));
    let calls: Vec<_> =
        std::mem::take(&mut world.sent).iter().map(|sent| sent.request().call.clone()).collect();
    assert!(calls.contains(&first.call), "times and counts are not in the grant");
    recall(&mut world, 2, vec![ACCESS]);
    world.pass(Duration::from_secs(1));
    let asked = world.sent.iter().map(|sent| sent.request().clone());
    let asked: Vec<_> = asked.filter(|request| !matches!(request.call, Call::Map { .. })).collect();
    assert!(matches!(asked[..], [Request { call: Call::Directory { .. }, .. }]), "{asked:?}");
    world.sent.clear();
    world.reply_done(&asked[0], Ok(Body::Directory(Box::new(changed_root(0o2775, 20_000)))));
    let again = world.take_request();
    assert_eq!((again.sequence, shown_mode(&again)), (first.sequence, Mode::new(0o2775)));
}

#[test]
fn a_grant_that_is_recalled_while_it_is_fetched_is_fetched_again() {
    let mut world = with_root_cached();
    world.start(make_directory());
    let first = world.take_request();
    retry(&mut world, &first);
    recall(&mut world, 1, vec![ACCESS]);
    pause(&mut world);
    let asked = world.take_request();
    recall(&mut world, 2, vec![]);
    world.reply_done(&asked, Ok(Body::Directory(Box::new(changed_root(0o700, 20_000)))));
    world.answer_one(Body::Directory(Box::new(changed_root(0o2775, 20_000))));
    assert_eq!(shown_mode(&world.take_request()), Mode::new(0o2775));
}

#[test]
fn a_directory_that_is_gone_leaves_the_answer_to_the_server_that_may_have_done_it() {
    let mut world = with_root_cached();
    let ticket = world.start(make_directory());
    let first = world.take_request();
    retry(&mut world, &first);
    recall(&mut world, 1, vec![ACCESS]);
    pause(&mut world);
    world.refuse_one(Code::Stale);
    let again = world.take_request();
    assert_eq!(again.call, first.call);
    world.reply_done(&again, Err(Code::NotFound));
    assert_eq!(world.result(ticket), Err(Code::NotFound));
}

#[test]
fn an_answer_that_comes_while_the_grant_is_fetched_is_taken() {
    let mut world = with_root_cached();
    let ticket = world.start(make_directory());
    let first = world.take_request();
    retry(&mut world, &first);
    recall(&mut world, 1, vec![ACCESS]);
    pause(&mut world);
    let asked = world.take_request();
    world.reply_done(&first, Err(Code::Exists));
    assert_eq!(world.result(ticket), Err(Code::Exists));
    world.reply_done(&asked, Ok(Body::Directory(Box::new(changed_root(0o700, 20_000)))));
    assert!(world.sent.is_empty());
}

#[test]
fn both_grants_of_a_rename_are_renewed_alike() {
    let mut world = with_root_cached();
    world.start(Operation::Rename {
        source: root(),
        source_name: name("a"),
        target: root(),
        target_name: name("b"),
        who: Credentials::ROOT,
        mode: RenameMode::Replace,
    });
    world.answer_one(entry(file(4, "a"), 0));
    world.refuse_one(Code::NotFound);
    let first = world.take_request();
    retry(&mut world, &first);
    recall(&mut world, 1, vec![ACCESS]);
    pause(&mut world);
    world.answer_one(Body::Directory(Box::new(changed_root(0o2775, 20_000))));
    match world.take_request().call {
        Call::Rename { source, target, .. } => {
            assert_eq!((source.body.access.mode, &source), (Mode::new(0o2775), &target));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_change_given_up_leaves_nothing_leased_and_its_name_unleased_for_as_long_again() {
    let mut world = with_root_cached();
    let ticket =
        world.start(Operation::Unlink { directory: root(), name: name("a"), who: Credentials::ROOT });
    world.answer_one(entry(file(4, "a"), 0));
    world.sent.clear();
    world.pass(Duration::from_secs(58));
    let look = |world: &mut World, text: &str| {
        world.sent.clear();
        let ticket = world.start(lookup(text));
        loop {
            let asked = world.sent.iter().map(|sent| sent.request().clone());
            let mut asked = asked
                .filter(|request| is_lookup(&request.call) || matches!(request.call, Call::Directory { .. }));
            let Some(request) = asked.next() else { break };
            drop(asked);
            world.sent.clear();
            let body = match request.call {
                Call::Directory { .. } => Body::Directory(Box::new(root_view(20_000))),
                _ => entry(file(5, text), 10_000),
            };
            world.reply_done(&request, Ok(body));
        }
        world.found(ticket).name_remaining > Remaining(Duration::ZERO)
    };
    assert!(look(&mut world, "b"));
    world.pass(Duration::from_secs(2));
    assert_eq!(world.result(ticket), Err(Code::Unreachable));
    let (_, forgotten) = world.invalidations.pop().unwrap();
    assert!(forgotten.contains(&Invalidation::Entry { directory: NodeId::ROOT, name: name("b") }));
    assert!(forgotten.contains(&Invalidation::Node { node: NodeId::ROOT }));
    world.sent.clear();
    world.start(lookup("b"));
    assert!(world.sent.iter().any(|sent| matches!(sent.request().call, Call::Directory { .. })));
    assert!(!look(&mut world, "a"), "it may go at any moment");
    assert!(look(&mut world, "b"));
    world.pass(Duration::from_secs(61));
    assert!(look(&mut world, "a"));
}
