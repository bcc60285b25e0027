//! Delegated directories that are too large to be held whole.

use super::delegation::*;
use super::world::*;
use crate::*;
use bearing_proto::client::{AttributeChange, Body, Call, Detail, Handle, LeaseMs, ListedEntry, Request};
use bearing_proto::delegation::{DelegationView, LentDirectory, LentIds};
use bearing_proto::keys::Key;
use bearing_types::*;
use std::time::Duration;

/// The root is ours, has so many links, and is not held whole any more.
fn thinned(links: u64) -> World {
    let config = ClientConfig { delegates: true, delegated_entries_max: 8, ..config() };
    let mut world = lend_root(World::open_with(config), Vec::new(), Vec::new());
    for number in 0..links {
        let ticket = world.start(make(&format!("link-{number}")));
        world.found(ticket);
    }
    settle(&mut world);
    renew(&mut world);
    assert_eq!(world.client.counters().thinned, 1);
    assert_eq!(world.client.counters().entries_dropped, links);
    world
}

/// All steps are done.
fn settle(world: &mut World) {
    world.pass(GATHERED);
    while !world.sent.is_empty() {
        let batch = world.take_request();
        done(world, &batch);
    }
}

/// The lease is renewed; then it is looked how much is held.
fn renew(world: &mut World) {
    world.pass(Duration::from_secs(4));
    // What was asked before is asked once more meanwhile.
    world.sent.retain(|sent| matches!(sent.request().call, Call::Delegated { .. }));
    let batch = world.take_request();
    done(world, &batch);
    forget(world);
}

/// The kernel forgets all that it has to.
fn forget(world: &mut World) -> Vec<Invalidation> {
    let mut all = Vec::new();
    while !world.invalidations.is_empty() {
        for (number, what) in std::mem::take(&mut world.invalidations) {
            all.extend(what);
            world.step(Event::Invalidated(number));
        }
    }
    all
}

/// What is asked next, but for what admits to the root.
fn next(world: &mut World) -> Request {
    loop {
        let asked = world.take_request();
        if !matches!(asked.call, Call::Directory { .. }) {
            return asked;
        }
        world.reply_done(&asked, Ok(Body::Directory(Box::new(root_view(20_000)))));
    }
}

fn link(number: u64) -> Handle {
    file(5000 + number, &format!("link-{number}"))
}

/// Answers the two questions for a name: what admits to the root, and what the name leads to.
fn tell(world: &mut World, has_grant: bool, found: Result<Body, Code>) -> Request {
    if !has_grant {
        let asked = world.answer_one(Body::Directory(Box::new(root_view(20_000))));
        assert!(matches!(asked.call, Call::Directory { .. }), "{asked:?}");
    }
    let asked = world.take_request();
    assert!(matches!(asked.call, Call::Lookup { .. }), "{asked:?}");
    world.reply_done(&asked, found);
    asked
}

#[test]
fn new_names_are_made_without_asking_and_old_ones_are_asked_for_once() {
    let mut world = thinned(20);
    let ticket = world.start(make("new"));
    world.found(ticket);
    let ticket = world.start(lookup("never there"));
    assert_eq!(world.result(ticket), Err(Code::NotFound));
    settle(&mut world);
    let ticket = world.start(lookup("link-3"));
    tell(&mut world, false, Ok(entry(link(3), 20_000)));
    assert_eq!(world.found(ticket).node, link(3));
    let ticket = world.start(lookup("link-3"));
    assert_eq!(world.found(ticket).node, link(3), "its name is at hand, and its node is leased");
    let ticket = world.start(make("link-4"));
    tell(&mut world, true, Ok(entry(link(4), 20_000)));
    assert_eq!(world.result(ticket), Err(Code::Exists));
    assert!(world.sent.is_empty());
}

#[test]
fn a_name_that_is_not_there_any_more_may_be_made_again() {
    let mut world = thinned(20);
    let ticket = world.start(make("link-5"));
    tell(&mut world, false, Err(Code::NotFound));
    world.found(ticket);
    world.pass(GATHERED);
    let (steps, _) = steps_of(&world.take_request());
    assert_eq!(steps.len(), 1);
}

#[test]
fn an_answer_that_something_came_before_is_asked_for_again() {
    let mut world = thinned(20);
    let ticket = world.start(lookup("link-6"));
    world.answer_one(Body::Directory(Box::new(root_view(20_000))));
    let asked = world.take_request();
    for number in 0..20 {
        world.start(make(&format!("more-{number}")));
    }
    settle(&mut world);
    renew(&mut world);
    assert_eq!(world.client.counters().thinned, 2);
    world.reply_done(&asked, Ok(entry(link(6), 20_000)));
    tell(&mut world, true, Ok(entry(link(7), 20_000)));
    assert_eq!(world.found(ticket).node, link(7));
}

#[test]
fn a_listing_is_its_homes_after_all_steps_are_done() {
    let mut world = thinned(20);
    world.start(make("new"));
    let (who, after) = (Credentials::ROOT, Cookie::START);
    let ticket = world.start(Operation::List {
        directory: root(),
        who,
        after,
        count_max: 100,
        detail: Detail::Attributes,
    });
    world.pass(GATHERED);
    let batch = world.take_request();
    assert_eq!(steps_of(&batch).0.len(), 1);
    assert!(world.sent.is_empty(), "its home has not heard of what was made");
    done(&mut world, &batch);
    world.answer_one(Body::Directory(Box::new(root_view(20_000))));
    let listed = |text: &str, node: Handle| ListedEntry {
        cookie: Cookie::new(hash_of(text), 1),
        name: name(text),
        node,
        file_type: FileType::Symlink,
        attributes: Some(attributes(FileType::Symlink, 1)),
        found: None,
    };
    let entries = vec![listed("link-1", link(1)), listed("new", file(9, "new"))];
    let asked = world.answer_one(Body::List { entries, next: None });
    assert!(matches!(asked.call, Call::List { .. }), "{asked:?}");
    let Ok(Answer::Listed(listed)) = world.result(ticket) else { panic!("a listing was expected") };
    let shown: Vec<bool> = listed.iter().map(|entry| entry.attributes.is_some()).collect();
    assert_eq!(shown, [true, false], "what is ours is not shown as its home knows it");
}

#[test]
fn what_was_left_to_its_home_for_a_while_is_decided_in_again_without_being_shown() {
    let mut world = thinned(20);
    let unlink =
        |text: &str| Operation::Unlink { directory: root(), name: name(text), who: Credentials::ROOT };
    let ticket = world.start(lookup("link-9"));
    tell(&mut world, false, Ok(entry(link(9), 20_000)));
    world.found(ticket);
    let ticket = world.start(unlink("link-8"));
    tell(&mut world, true, Ok(entry(link(8), 20_000)));
    // Its node is not ours, so its home decides.
    let asked = next(&mut world);
    assert!(matches!(asked.call, Call::Lookup { .. }), "{asked:?}");
    world.reply_done(&asked, Ok(entry(link(8), 0)));
    let asked = next(&mut world);
    assert!(matches!(asked.call, Call::Unlink { .. }), "{asked:?}");
    world.reply_done(&asked, Ok(Body::Done));
    assert_eq!(world.result(ticket), Ok(Answer::Done));
    world.pass(Duration::from_millis(400));
    let ticket = world.start(make("by-home"));
    let asked = next(&mut world);
    assert!(matches!(asked.call, Call::Create { .. }), "{asked:?}");
    world.reply_done(&asked, Ok(entry(file(77, "by-home"), 0)));
    world.found(ticket);
    let asked = next(&mut world);
    assert!(matches!(asked.call, Call::Delegate { .. }), "{asked:?}");
    let ids = LentIds::sign(NodeId(70_000), 100, SESSION, &Key::new([9; 32]));
    let directories = vec![LentDirectory { view: root_view(20_000), entries: Vec::new(), whole: false }];
    let lent = DelegationView { directories, lease: LeaseMs(10_000), ids, now: Wall(1) };
    world.reply_done(&asked, Ok(Body::Delegation(Box::new(lent))));
    assert_eq!(world.client.counters().shown_again, 1);
    let known = forget(&mut world);
    assert!(
        known.contains(&Invalidation::Node { node: link(9).node }),
        "nobody could name it later: {known:?}"
    );
    let ticket = world.start(make("new"));
    world.found(ticket);
    // What its home made meanwhile is not taken for new.
    let ticket = world.start(make("by-home"));
    tell(&mut world, true, Ok(entry(file(77, "by-home"), 20_000)));
    assert_eq!(world.result(ticket), Err(Code::Exists));
}

#[test]
fn a_grant_from_before_a_chmod_here_is_not_shown_again() {
    let mut world = thinned(20);
    let ticket = world.start(lookup("link-1"));
    tell(&mut world, false, Ok(entry(link(1), 20_000)));
    world.found(ticket);
    let mode = Some(Mode::new(0o711));
    let change = AttributeChange { mode, ..AttributeChange::default() };
    let (node, file_type, who) = (root(), FileType::Directory, Credentials::ROOT);
    world.start(Operation::SetAttributes { node, file_type, who, change, file: None });
    settle(&mut world);
    let ticket = world.start(lookup("link-2"));
    let asked = world.take_request();
    assert!(matches!(asked.call, Call::Directory { .. }), "{asked:?}");
    let mut view = root_view(20_000);
    view.grant.body.access.mode = Mode::new(0o711);
    world.reply_done(&asked, Ok(Body::Directory(Box::new(view))));
    let asked = world.take_request();
    assert!(matches!(asked.call, Call::Lookup { .. }), "{asked:?}");
    world.reply_done(&asked, Ok(entry(link(2), 20_000)));
    world.found(ticket);
}
