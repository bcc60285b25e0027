//! What is served without asking, and how that ends.

use super::delegation::{delegating, make};
use super::world::*;
use crate::*;
use bearing_proto::Message;
use bearing_proto::client::{AttributeChange, Body, Call, LeaseKey, RenameMode};
use bearing_types::*;
use std::time::Duration;

fn recalled(world: &mut World) -> (u64, Vec<NodeId>) {
    match world.take_one().message {
        Message::Recalled(recalled) => (recalled.number, recalled.open),
        other => panic!("a recall was to be answered, not {other:?}"),
    }
}

/// A world that has the root and the name `a` (node 5) cached.
fn with_name_cached() -> World {
    let mut world = with_root_cached();
    let ticket = world.start(lookup("a"));
    world.answer_one(entry(file(5, "a"), 10_000));
    let found = world.found(ticket);
    assert_eq!(found.name_remaining, Remaining(Duration::from_millis(9_895)));
    world
}

fn name_key(text: &str) -> LeaseKey {
    LeaseKey::Name(NodeId::ROOT, hash_of(text))
}

#[test]
fn a_leased_name_is_served_until_its_lease_minus_the_margin_is_over() {
    let mut world = with_name_cached();
    world.pass(Duration::from_millis(9_894));
    let ticket = world.start(lookup("a"));
    assert_eq!(world.found(ticket).node, file(5, "a"));
    world.pass(Duration::from_millis(1));
    world.start(lookup("a"));
    assert!(is_lookup(&world.take_request().call));
}

#[test]
fn a_lease_counts_from_the_first_sending_of_its_request() {
    let mut world = with_root_cached();
    let ticket = world.start(lookup("a"));
    let request = world.take_request();
    world.pass(Duration::from_millis(500));
    world.sent.clear();
    world.reply_done(&request, Ok(entry(file(5, "a"), 10_000)));
    assert_eq!(world.found(ticket).name_remaining, Remaining(Duration::from_millis(9_395)));
}

#[test]
fn a_name_without_a_lease_is_asked_for_every_time() {
    let mut world = with_root_cached();
    for _ in 0..2 {
        let ticket = world.start(lookup("a"));
        world.answer_one(entry(file(5, "a"), 0));
        assert_eq!(world.found(ticket).name_remaining, Remaining(Duration::ZERO));
    }
}

#[test]
fn who_may_not_search_the_directory_gets_no_cached_name() {
    let mut world = with_name_cached();
    let nobody = Credentials { uid: Uid(9), gid: Gid(9), groups: vec![] };
    let mut closed = root_view(20_000);
    closed.grant.body.access.mode = Mode::new(0o700);
    let ticket = world.start(Operation::Root);
    world.answer_one(Body::Directory(Box::new(closed)));
    world.found(ticket);
    let ticket = world.start(Operation::Lookup { directory: root(), name: name("a"), who: nobody });
    assert_eq!(world.result(ticket), Err(Code::Access));
}

#[test]
fn a_recall_is_answered_only_when_the_kernel_has_forgotten() {
    let mut world = with_name_cached();
    world.recall(3, vec![name_key("a"), LeaseKey::File(NodeId(5))]);
    assert!(world.sent.is_empty());
    let (number, what) = world.invalidations.remove(0);
    let entry = Invalidation::Entry { directory: NodeId::ROOT, name: name("a") };
    assert_eq!(what, [entry, Invalidation::Node { node: NodeId(5) }]);
    world.step(Event::Invalidated(number));
    assert_eq!(recalled(&mut world), (3, vec![]));
    world.start(lookup("a"));
    assert!(is_lookup(&world.take_request().call), "it is not served any more");
}

/// Others wait for none of its leases once its home has heard of the end, and programs may go on after a lazy
/// unmount.
#[test]
fn nothing_is_used_under_a_lease_any_more_when_the_end_of_the_session_is_told() {
    let mut world = with_name_cached();
    world.start(Operation::End);
    assert!(world.sent.is_empty(), "the kernel goes by the name yet");
    let (number, what) = world.invalidations.remove(0);
    assert!(what.contains(&Invalidation::Entry { directory: NodeId::ROOT, name: name("a") }), "{what:?}");
    world.step(Event::Invalidated(number));
    assert_eq!(world.take_request().call, Call::CloseSession);
    let ticket = world.start(Operation::Root);
    world.answer_one(Body::Directory(Box::new(root_view(20_000))));
    world.found(ticket);
    for _ in 0..2 {
        let ticket = world.start(lookup("a"));
        let request = world.take_request();
        if matches!(request.call, Call::Directory { .. }) {
            world.reply_done(&request, Ok(Body::Directory(Box::new(root_view(20_000)))));
            assert!(is_lookup(&world.take_request().call));
        } else {
            assert!(is_lookup(&request.call), "{request:?}");
        }
        assert!(!world.finished.contains_key(&ticket), "it is asked for each time");
    }
}

#[test]
fn no_directory_is_asked_for_while_the_session_ends() {
    let mut world = delegating();
    world.start(Operation::End);
    world.kernel_forgets();
    assert_eq!(world.take_request().call, Call::CloseSession);
    for number in 0..5 {
        world.start(make(&format!("file-{number}")));
        while let Some(sent) = world.sent.pop() {
            let request = sent.request().clone();
            let body = match &request.call {
                Call::Directory { .. } => Body::Directory(Box::new(root_view(20_000))),
                Call::Create { .. } => entry(file(number + 4, &format!("file-{number}")), 0),
                other => panic!("{other:?}"),
            };
            world.reply_done(&request, Ok(body));
        }
    }
}

#[test]
fn a_kernel_that_does_not_forget_is_not_waited_for_long_at_the_end() {
    let mut world = with_name_cached();
    world.start(Operation::End);
    world.pass(Duration::from_millis(1_100));
    assert!(world.sent.iter().any(|sent| matches!(sent.request().call, Call::CloseSession)));
}

fn rename_a_to_b() -> Operation {
    Operation::Rename {
        source: root(),
        source_name: name("a"),
        target: root(),
        target_name: name("b"),
        who: Credentials::ROOT,
        mode: RenameMode::Replace,
    }
}

/// The kernel takes the new name when the rename is answered, and does not ask then whether it was recalled.
#[test]
fn a_recall_of_a_name_that_a_rename_makes_is_answered_after_the_kernel_has_dropped_that() {
    let mut world = with_name_cached();
    world.start(rename_a_to_b());
    world.refuse_one(Code::NotFound);
    let rename = world.take_request();
    assert!(matches!(rename.call, Call::Rename { .. }), "{:?}", rename.call);
    world.recall(3, vec![name_key("b")]);
    assert!(world.sent.is_empty(), "it waits");
    let (number, what) = world.invalidations.remove(0);
    assert_eq!(what, [Invalidation::Entry { directory: NodeId::ROOT, name: name("b") }]);
    world.step(Event::Invalidated(number));
    assert_eq!(recalled(&mut world), (3, vec![]));
}

#[test]
fn a_repeated_recall_is_answered_again() {
    let mut world = with_name_cached();
    world.recall(3, vec![name_key("a")]);
    world.recall(3, vec![name_key("a")]);
    assert_eq!(world.invalidations.len(), 1, "the first is still being dealt with");
    let (number, _) = world.invalidations.remove(0);
    world.step(Event::Invalidated(number));
    assert_eq!(recalled(&mut world).0, 3);
    world.recall(3, vec![name_key("a")]);
    assert_eq!(recalled(&mut world).0, 3);
}

#[test]
fn a_reply_to_a_request_older_than_the_recall_gives_no_lease() {
    let mut world = with_root_cached();
    let ticket = world.start(lookup("a"));
    let request = world.take_request();
    world.recall(3, vec![name_key("a"), LeaseKey::File(NodeId(5))]);
    world.reply_done(&request, Ok(entry(file(5, "a"), 10_000)));
    let found = world.found(ticket);
    assert_eq!(found.name_remaining, Remaining(Duration::ZERO));
    assert_eq!(found.attributes_remaining, Remaining(Duration::ZERO));
    world.sent.clear();
    let ticket = world.start(lookup("a"));
    world.answer_one(entry(file(5, "a"), 10_000));
    assert!(world.found(ticket).name_remaining > Remaining(Duration::ZERO));
}

#[test]
fn a_recall_of_a_whole_tablet_drops_everything_that_lies_in_it() {
    let mut world = with_name_cached();
    world.recall(4, vec![]);
    let (number, what) = world.invalidations.remove(0);
    let entry = Invalidation::Entry { directory: NodeId::ROOT, name: name("a") };
    let node = |node| Invalidation::Node { node };
    assert_eq!(what, [entry, node(NodeId::ROOT), node(NodeId(5))]);
    world.step(Event::Invalidated(number));
    assert_eq!(recalled(&mut world).0, 4);
    world.start(lookup("a"));
    assert!(matches!(world.take_request().call, Call::Directory { .. }), "the grant went too");
}

#[test]
fn a_recall_of_a_whole_tablet_names_no_file_whose_lease_is_over() {
    let mut world = with_name_cached();
    world.pass(Duration::from_secs(11));
    world.recall(4, vec![]);
    let (_, what) = world.invalidations.remove(0);
    assert_eq!(what, [Invalidation::Node { node: NodeId::ROOT }], "the kernel drops them one by one");
}

#[test]
fn a_recall_of_a_whole_tablet_names_a_file_that_the_kernel_was_told_of_under_a_longer_lease_before() {
    let mut world = with_name_cached();
    let ticket = world.start(lookup("a"));
    world.found(ticket);
    // A change of ours that is refused: we ask again, and the kernel goes on to go by what it was told.
    let unlink = Operation::Unlink { directory: root(), name: name("a"), who: Credentials::ROOT };
    world.start(unlink);
    world.refuse_one(Code::NotPermitted);
    let ticket = world.start(lookup("a"));
    world.answer_one(entry(file(5, "a"), 300));
    world.found(ticket);
    world.pass(Duration::from_secs(3));
    world.recall(4, vec![]);
    let (_, what) = world.invalidations.remove(0);
    assert!(what.contains(&Invalidation::Node { node: NodeId(5) }), "{what:?}");
}

#[test]
fn what_the_kernel_may_have_is_taken_from_it_before_it_is_forgotten_here() {
    let mut world = World::open_with(ClientConfig { names_max: 1, ..config() });
    let ticket = world.start(Operation::Root);
    world.answer_one(Body::Directory(Box::new(root_view(20_000))));
    world.found(ticket);
    for (node, text) in [(5, "a"), (6, "b")] {
        let ticket = world.start(lookup(text));
        world.answer_one(entry(file(node, text), 10_000));
        world.found(ticket);
    }
    let (first, what) = world.invalidations.remove(0);
    assert_eq!(what, [Invalidation::Entry { directory: NodeId::ROOT, name: name("a") }]);
    world.recall(1, vec![name_key("a")]);
    assert!(world.sent.is_empty(), "the earlier invalidation may concern this name");
    world.step(Event::Invalidated(first));
    assert_eq!(recalled(&mut world).0, 1);
}

#[test]
fn an_own_change_drops_what_it_ends_before_it_is_sent() {
    let mut world = with_name_cached();
    let change = Default::default();
    let operation = Operation::SetAttributes {
        node: file(5, "a"),
        file_type: FileType::Regular,
        who: Credentials::ROOT,
        change,
        file: None,
    };
    let changing = world.start(operation);
    let request = world.take_request();
    // While it is under way the attributes are asked for, and what comes back is not kept.
    let reading = world.start(Operation::Attributes { node: file(5, "a"), file_type: FileType::Regular });
    world.answer_one(Body::Node(file_view(file(5, "a"), 1, 10_000)));
    assert_eq!(world.found(reading).attributes_remaining, Remaining(Duration::ZERO));
    world.reply_done(&request, Ok(Body::Node(file_view(file(5, "a"), 2, 10_000))));
    assert!(world.found(changing).attributes_remaining > Remaining(Duration::ZERO));
    let reading = world.start(Operation::Attributes { node: file(5, "a"), file_type: FileType::Regular });
    assert_eq!(world.found(reading).attributes.version, Version(2));
}

#[test]
fn a_name_that_an_own_refused_change_dropped_is_still_taken_from_the_kernel_at_a_recall() {
    let mut world = with_name_cached();
    let ticket =
        world.start(Operation::Unlink { directory: root(), name: name("a"), who: Credentials::ROOT });
    world.refuse_one(Code::NotPermitted);
    assert_eq!(world.result(ticket), Err(Code::NotPermitted));
    world.recall(1, vec![name_key("a")]);
    assert_eq!(world.invalidations[0].1, [Invalidation::Entry { directory: NodeId::ROOT, name: name("a") }]);
}

#[test]
fn a_changed_directory_is_asked_for_again_before_its_grant_is_shown() {
    let mut world = with_root_cached();
    let change = AttributeChange { mode: Some(Mode::new(0o700)), ..AttributeChange::default() };
    let ticket = world.start(Operation::SetAttributes {
        node: root(),
        file_type: FileType::Directory,
        who: Credentials::ROOT,
        change,
        file: None,
    });
    world.answer_one(Body::Node(root_view(10_000).node));
    assert_eq!(world.found(ticket).attributes_remaining, Remaining(Duration::ZERO));
    world.start(lookup("a"));
    assert!(matches!(world.take_request().call, Call::Directory { .. }));
}

#[test]
fn a_refused_grant_is_fetched_again_and_shown() {
    let mut world = with_root_cached();
    let ticket = world.start(lookup("a"));
    let refused = world.refuse_one(Code::Unauthenticated);
    let request = world.answer_one(Body::Directory(Box::new(root_view(20_000))));
    assert!(matches!(request.call, Call::Directory { .. }));
    let again = world.answer_one(entry(file(5, "a"), 0));
    assert!(again.sequence > refused.sequence && is_lookup(&again.call));
    assert_eq!(world.found(ticket).node, file(5, "a"));
}

#[test]
fn a_grant_that_is_refused_for_ever_ends_the_operation() {
    let mut world = with_root_cached();
    let ticket = world.start(lookup("a"));
    world.refuse_one(Code::Unauthenticated);
    for _ in 0..crate::namespace::GRANT_TRIES {
        world.answer_one(Body::Directory(Box::new(root_view(20_000))));
        world.refuse_one(Code::Unauthenticated);
    }
    assert_eq!(world.result(ticket), Err(Code::Unauthenticated));
}

#[test]
fn a_renamed_name_is_not_served_under_either_name() {
    let mut world = with_name_cached();
    let ticket = world.start(rename_a_to_b());
    let request = world.refuse_one(Code::NotFound);
    assert!(is_lookup(&request.call), "what the new name leads to is asked first");
    let request = world.answer_one(Body::Done);
    assert!(matches!(request.call, Call::Rename { keep_open: false, .. }));
    assert_eq!(request.position, root_seat().position_of(hash_of("b")));
    assert_eq!(world.result(ticket), Ok(Answer::Done));
    world.start(lookup("a"));
    assert!(is_lookup(&world.take_request().call));
}

#[cfg(feature = "mutants")]
#[test]
fn the_planted_bug_serves_a_recalled_name() {
    let mut world = World::open_with(ClientConfig { mutant: Some(Mutant::ServeAfterRecall), ..config() });
    let ticket = world.start(Operation::Root);
    world.answer_one(Body::Directory(Box::new(root_view(20_000))));
    world.found(ticket);
    let ticket = world.start(lookup("a"));
    world.answer_one(entry(file(5, "a"), 10_000));
    world.found(ticket);
    world.recall(3, vec![name_key("a")]);
    assert_eq!(recalled(&mut world).0, 3);
    let ticket = world.start(lookup("a"));
    world.found(ticket);
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
