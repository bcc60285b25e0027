//! Directories as our own changes left them: shown without asking, as long as nothing newer is known.

use super::world::*;
use crate::*;
use bearing_proto::client::{Body, LeaseKey, Request};
use bearing_types::*;
use std::time::Duration;

/// A world in which `a` and `b` lead to files, and the names are leased.
fn with_names() -> World {
    named(with_root_cached())
}

fn named(mut world: World) -> World {
    for (node, text) in [(5, "a"), (6, "b")] {
        let ticket = world.start(lookup(text));
        world.answer_one(entry(file(node, text), 10_000));
        world.found(ticket);
    }
    world.pass(Duration::from_millis(1));
    world
}

fn unlink(world: &mut World, text: &str) -> Request {
    world.start(Operation::Unlink { directory: root(), name: name(text), who: Credentials::ROOT });
    world.take_request()
}

/// Recalls a lease; the kernel forgets what it covers, and the recall is answered.
fn recall(world: &mut World, key: LeaseKey) {
    world.recall(3, vec![key]);
    let (number, _) = world.invalidations.remove(0);
    world.step(Event::Invalidated(number));
    world.sent.clear();
}

fn attributes_of_root() -> Operation {
    Operation::Attributes { node: root(), file_type: FileType::Directory }
}

/// What the root's size is said to be, and for how long; nothing if that has to be asked.
fn shown(world: &mut World) -> Option<(u64, Duration)> {
    let ticket = world.start(attributes_of_root());
    if !world.sent.is_empty() {
        world.answer_one(Body::Directory(Box::new(root_view(0))));
        world.found(ticket);
        return None;
    }
    let found = world.found(ticket);
    Some((found.attributes.size, found.attributes_remaining.0))
}

#[test]
fn what_a_change_left_is_leased_with_its_reply() {
    let mut world = with_names();
    let request = unlink(&mut world, "a");
    world.reply_changed(&request, Body::Done, 7, 2, 10_000);
    assert_eq!(shown(&mut world).unwrap().0, 7);
    world.pass(Duration::from_secs(5));
    assert_eq!(shown(&mut world).unwrap().0, 7);
}

#[test]
fn without_a_lease_it_is_shown_for_a_second_from_when_the_change_was_sent() {
    let mut world = with_names();
    let request = unlink(&mut world, "a");
    world.pass(Duration::from_millis(300));
    world.sent.clear();
    world.reply_changed(&request, Body::Done, 7, 2, 0);
    assert_eq!(shown(&mut world), Some((7, Duration::from_millis(700))));
    world.pass(Duration::from_millis(700));
    assert_eq!(shown(&mut world), None);
}

#[test]
fn a_strict_mount_shows_nothing_without_a_lease() {
    let mut world = World::open_with(ClientConfig { directory_ttl: Duration::ZERO, ..config() });
    let ticket = world.start(Operation::Root);
    world.answer_one(Body::Directory(Box::new(root_view(20_000))));
    world.found(ticket);
    let mut world = named(world);
    let request = unlink(&mut world, "a");
    world.reply_changed(&request, Body::Done, 7, 2, 0);
    assert_eq!(shown(&mut world), None);
}

#[test]
fn of_two_changes_at_once_the_later_one_counts_in_whichever_order_they_are_answered() {
    let mut world = with_names();
    let (first, second) = (unlink(&mut world, "a"), unlink(&mut world, "b"));
    world.reply_changed(&first, Body::Done, 7, 2, 10_000);
    assert_eq!(shown(&mut world).unwrap().0, 7, "the second is not answered yet");
    world.reply_changed(&second, Body::Done, 6, 3, 10_000);
    let (entries, remaining) = shown(&mut world).unwrap();
    assert!(entries == 6 && remaining <= Duration::from_secs(1), "{remaining:?} under no lease");

    let mut world = with_names();
    let (first, second) = (unlink(&mut world, "a"), unlink(&mut world, "b"));
    world.reply_changed(&second, Body::Done, 6, 3, 10_000);
    assert_eq!(shown(&mut world).unwrap().0, 6);
    world.reply_changed(&first, Body::Done, 7, 2, 10_000);
    assert_eq!(shown(&mut world), None, "of an older one nothing can be said");
}

#[test]
fn a_change_whose_reply_does_not_say_it_makes_what_is_known_old() {
    let mut world = with_names();
    let (first, second) = (unlink(&mut world, "a"), unlink(&mut world, "b"));
    world.reply_done(&second, Ok(Body::Done));
    world.reply_changed(&first, Body::Done, 7, 2, 10_000);
    assert_eq!(shown(&mut world), None, "the second may have come after the first");
    let mut world = with_names();
    let request = unlink(&mut world, "a");
    world.reply_changed(&request, Body::Done, 7, 2, 10_000);
    let request = unlink(&mut world, "b");
    world.reply_done(&request, Ok(Body::Done));
    assert_eq!(shown(&mut world), None);
}

#[test]
fn a_recall_ends_it_and_what_was_asked_before() {
    for change_first in [false, true] {
        let mut world = with_names();
        let request = unlink(&mut world, "a");
        if change_first {
            world.reply_changed(&request, Body::Done, 7, 2, 10_000);
        }
        recall(&mut world, LeaseKey::Content(NodeId::ROOT));
        if !change_first {
            world.reply_changed(&request, Body::Done, 7, 2, 10_000);
        }
        assert_eq!(shown(&mut world), None);
    }
}

/// Nothing of the content is leased, so nobody recalls it for a change of another client; but what was asked
/// for since then knows of that.
#[test]
fn what_was_asked_for_later_is_not_replaced_by_a_late_reply() {
    let mut world = with_names();
    let request = unlink(&mut world, "a");
    world.pass(Duration::from_millis(10));
    world.sent.clear();
    let ticket = world.start(Operation::Root);
    let mut view = root_view(0);
    (view.access_lease, view.node.attributes.size) = (bearing_proto::client::LeaseMs(20_000), 9);
    world.answer_one(Body::Directory(Box::new(view)));
    world.found(ticket);
    world.reply_changed(&request, Body::Done, 7, 2, 0);
    assert_eq!(shown(&mut world), None);
}

#[test]
fn a_recall_of_the_permissions_ends_it_too() {
    let mut world = with_names();
    let request = unlink(&mut world, "a");
    recall(&mut world, LeaseKey::Access(NodeId::ROOT));
    world.reply_changed(&request, Body::Done, 7, 2, 0);
    assert_eq!(shown(&mut world), None);
}
