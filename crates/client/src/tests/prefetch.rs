//! Names that are looked up before anybody asks for them.

use super::files::stage_with;
use super::world::*;
use crate::*;
use bearing_proto::Message;
use bearing_proto::client::{Body, Call, EntryView, LeaseKey, LeaseMs, NodeView, Request};
use bearing_types::*;
use std::time::Duration;

const AFTER: u32 = 3;

fn ahead_config() -> ClientConfig {
    ClientConfig { prefetch_after: AFTER, ..config() }
}

fn texts(numbers: std::ops::Range<u64>) -> Vec<String> {
    numbers.map(|number| format!("f{number}")).collect()
}

/// A world that has asked for three names one by one, of a root that may be listed so; what it sent then.
fn with_names_missed(mode: u32, who: &Credentials, acl: AclHash) -> (World, Vec<Request>) {
    let mut world = World::open_with(ahead_config());
    let ticket = world.start(Operation::Root);
    let mut view = root_view(20_000);
    view.grant.body.access.mode = Mode::new(mode);
    view.grant.body.acl = acl;
    world.answer_one(Body::Directory(Box::new(view)));
    world.found(ticket);
    for (number, text) in texts(0..3).iter().enumerate() {
        let ticket = world.start(look_up(text, who));
        world.answer_one(entry(file(10 + number as u64, text), 300));
        world.found(ticket);
    }
    let sent = std::mem::take(&mut world.sent);
    (world, sent.iter().map(|sent| sent.request().clone()).collect())
}

fn look_up(text: &str, who: &Credentials) -> Operation {
    Operation::Lookup { directory: root(), name: name(text), who: who.clone() }
}

fn nobody() -> Credentials {
    Credentials { uid: Uid(9), gid: Gid(9), groups: vec![] }
}

/// The names of a page, each with a node of its own.
fn page(texts: &[String], next: Option<Cookie>) -> Body {
    let listed = |(number, text): (usize, &String)| {
        let node = file(10 + number as u64, text);
        let attributes = NodeView { may_open: false, ..file_view(node, 1, 2000) };
        let lease = LeaseMs(2000);
        let file_type = FileType::Regular;
        (name(text), EntryView { node, file_type, lease, attributes: Some(attributes), directory: None })
    };
    Body::Prefetched { entries: texts.iter().enumerate().map(listed).collect(), next }
}

/// The names `f0` to `f9`, of which three were asked for, are looked up ahead.
fn with_names_ahead() -> World {
    let (mut world, sent) = with_names_missed(0o755, &Credentials::ROOT, AclHash(0));
    world.reply_done(&sent[0], Ok(page(&texts(0..10), None)));
    assert!(world.sent.is_empty());
    world
}

fn served(world: &mut World, text: &str) -> bool {
    let ticket = world.start(lookup(text));
    let served = world.sent.is_empty();
    if served {
        world.found(ticket);
    }
    served
}

#[test]
fn after_some_names_the_others_of_the_directory_cost_no_request() {
    let (mut world, mut servers) = stage_with(ahead_config());
    servers.lease = 300;
    for (text, number) in texts(0..40).iter().zip(10..) {
        servers.put(file(number, text), text);
    }
    for text in texts(0..3) {
        servers.perform(&mut world, lookup(&text)).unwrap();
    }
    while servers.answer_all(&mut world) {}
    let before = world.client.counters().requests;
    for (text, number) in texts(0..40).iter().zip(10..) {
        let ticket = world.start(lookup(text));
        let found = world.found(ticket);
        assert_eq!(found.node, file(number, text));
        assert!(found.attributes_remaining > Remaining(Duration::ZERO));
    }
    let counters = world.client.counters();
    assert_eq!((counters.requests, counters.names_prefetched_used), (before, 37));
    // One page after the other, in the order of cookies.
    assert_eq!(servers.log.iter().filter(|call| *call == "ahead").count(), 4);
}

#[test]
fn names_that_are_not_there_or_come_slowly_are_no_reason() {
    let mut world = World::open_with(ahead_config());
    let ticket = world.start(Operation::Root);
    world.answer_one(Body::Directory(Box::new(root_view(20_000))));
    world.found(ticket);
    for text in texts(0..6) {
        world.start(lookup(&text));
        world.refuse_one(Code::NotFound);
    }
    for text in texts(0..6) {
        world.start(lookup(&text));
        world.answer_one(entry(file(5, &text), 300));
        world.pass(Duration::from_millis(101));
    }
    assert!(world.sent.is_empty());
}

#[test]
fn a_directory_that_one_may_not_list_and_search_or_that_has_a_list_is_not_looked_up_ahead() {
    let is_ahead = |(_, sent): (World, Vec<Request>)| {
        assert!(sent.iter().all(|request| matches!(request.call, Call::Prefetch { .. })));
        !sent.is_empty()
    };
    assert!(is_ahead(with_names_missed(0o755, &nobody(), AclHash(0))));
    assert!(!is_ahead(with_names_missed(0o751, &nobody(), AclHash(0))), "no permission to list");
    assert!(!is_ahead(with_names_missed(0o755, &nobody(), AclHash(2))), "only servers judge by lists");
}

#[test]
fn who_may_not_search_is_refused_a_name_that_was_looked_up_for_another() {
    let mut world = with_names_ahead();
    let mut closed = root_view(20_000);
    closed.grant.body.access.mode = Mode::new(0o700);
    let ticket = world.start(Operation::Root);
    world.answer_one(Body::Directory(Box::new(closed)));
    world.found(ticket);
    let ticket = world.start(look_up("f5", &nobody()));
    assert_eq!(world.result(ticket), Err(Code::Access));
}

#[test]
fn a_recall_of_a_directorys_names_reaches_the_kernel_for_those_that_it_was_told_of() {
    let mut world = with_names_ahead();
    assert!(served(&mut world, "f5") && served(&mut world, "f6"));
    world.recall(3, vec![LeaseKey::Names(NodeId::ROOT)]);
    assert!(world.sent.is_empty(), "not answered before the kernel has forgotten");
    let (number, what) = world.invalidations.remove(0);
    let entry = |text| Invalidation::Entry { directory: NodeId::ROOT, name: name(text) };
    // The first three are leased together with the others since, for longer than they were alone.
    assert_eq!(what, ["f0", "f1", "f2", "f5", "f6"].map(entry));
    world.step(Event::Invalidated(number));
    assert!(matches!(world.take_one().message, Message::Recalled(recalled) if recalled.number == 3));
    assert!(!served(&mut world, "f5"));
    assert!(is_lookup(&world.take_request().call));
    assert!(!served(&mut world, "f7"));
}

#[test]
fn a_recall_of_one_name_ends_it_alone_and_asks_no_kernel_that_does_not_know_it() {
    let mut world = with_names_ahead();
    world.recall(3, vec![LeaseKey::Name(NodeId::ROOT, hash_of("f5"))]);
    assert!(world.invalidations.is_empty());
    world.take_one();
    assert!(served(&mut world, "f6"));
    assert!(!served(&mut world, "f5"));
}

#[test]
fn a_page_that_was_asked_for_before_a_recall_or_a_change_of_ours_says_nothing_of_that() {
    let (mut world, sent) = with_names_missed(0o755, &Credentials::ROOT, AclHash(0));
    let unlink = Operation::Unlink { directory: root(), name: name("f1"), who: Credentials::ROOT };
    let ticket = world.start(unlink);
    world.answer_one(Body::Done);
    assert_eq!(world.result(ticket), Ok(Answer::Done));
    world.reply_done(&sent[0], Ok(page(&texts(0..10), None)));
    assert!(served(&mut world, "f5"));
    assert!(!served(&mut world, "f1"));
    assert!(is_lookup(&world.take_request().call), "it may be gone");

    let (mut world, sent) = with_names_missed(0o755, &Credentials::ROOT, AclHash(0));
    world.recall(3, vec![LeaseKey::Names(NodeId::ROOT)]);
    world.sent.clear();
    world.reply_done(&sent[0], Ok(page(&texts(0..10), None)));
    assert!(!served(&mut world, "f5"));
    assert!(is_lookup(&world.take_request().call));
}

#[test]
fn it_ends_when_nobody_asks_any_more_and_rests_when_little_was_used() {
    let (mut world, sent) = with_names_missed(0o755, &Credentials::ROOT, AclHash(0));
    world.pass(Duration::from_millis(201));
    world.sent.clear();
    world.reply_done(&sent[0], Ok(page(&texts(0..100), Some(Cookie::new(hash_of("f7"), 0)))));
    assert!(world.sent.is_empty(), "nobody has asked for a while");
    let missed = |world: &mut World| {
        world.pass(Duration::from_secs(2));
        world.sent.clear();
        for text in texts(0..3) {
            world.start(lookup(&text));
            world.answer_one(entry(file(5, &text), 0));
        }
        !std::mem::take(&mut world.sent).is_empty()
    };
    // Of a hundred names nobody used one: rests for 5 s.
    assert!(!missed(&mut world));
    assert!(!missed(&mut world));
    assert!(!missed(&mut world));
    assert!(missed(&mut world));
}

#[test]
fn what_is_looked_up_ahead_gives_no_right_to_open_and_takes_none_away() {
    let mut world = with_names_ahead();
    assert!(served(&mut world, "f5"));
    let open = |node, text: &str| Operation::Open {
        node: file(node, text),
        who: Credentials::ROOT,
        read: true,
        write: false,
        truncate: false,
        execute: false,
    };
    let ticket = world.start(open(10, "f0"));
    assert!(matches!(world.result(ticket), Ok(Answer::Opened(..))), "it was leased alone, too");
    world.start(open(15, "f5"));
    assert!(matches!(world.take_request().call, Call::Open { .. }));
}

#[test]
fn the_kernel_is_told_of_a_recall_also_when_the_name_was_leased_for_a_shorter_time_since() {
    let mut world = with_names_ahead();
    assert!(served(&mut world, "f5"));
    // A change of ours that is refused: we ask again, and the kernel goes on to go by what it was told.
    let unlink = Operation::Unlink { directory: root(), name: name("f5"), who: Credentials::ROOT };
    let ticket = world.start(unlink);
    world.refuse_one(Code::NotPermitted);
    assert_eq!(world.result(ticket), Err(Code::NotPermitted));
    let ticket = world.start(lookup("f5"));
    world.answer_one(entry(file(15, "f5"), 300));
    world.found(ticket);
    world.pass(Duration::from_millis(400));
    world.recall(3, vec![LeaseKey::Names(NodeId::ROOT)]);
    let (_, what) = world.invalidations.remove(0);
    assert!(what.contains(&Invalidation::Entry { directory: NodeId::ROOT, name: name("f5") }));
}
