//! Times of access: reads are noted, and told later, once.

use super::world::*;
use crate::*;
use bearing_proto::client::{Body, Call, Handle};
use bearing_types::*;
use std::time::Duration;

fn noting() -> World {
    World::open_with(ClientConfig { access_times: true, access_delay: Duration::from_secs(2), ..config() })
}

fn open_to_read(world: &mut World, node: Handle) {
    let (who, read, write, truncate, execute) = (Credentials::ROOT, true, false, false, false);
    let ticket = world.start(Operation::Open { node, who, read, write, truncate, execute });
    if !world.sent.is_empty() {
        world.answer_one(Body::Opened(file_view(node, 1, 10_000), None));
    }
    assert!(matches!(world.result(ticket), Ok(Answer::Opened(..))));
}

fn accessed(world: &mut World, node: Handle) -> Wall {
    let ticket = world.start(Operation::Attributes { node, file_type: FileType::Regular });
    world.found(ticket).attributes.accessed
}

#[test]
fn a_read_is_shown_at_once_and_told_once_after_a_while() {
    let mut world = noting();
    let node = file(20, "a");
    open_to_read(&mut world, node);
    let at = accessed(&mut world, node);
    assert!(at > file_view(node, 1, 0).attributes.modified, "{at:?}");
    open_to_read(&mut world, node);
    world.pass(Duration::from_millis(1900));
    assert!(world.sent.is_empty(), "reading waits for nothing");
    world.pass(Duration::from_millis(200));
    let told = world.take_request();
    assert_eq!(told.call, Call::Accessed { node, at });
    world.reply_done(&told, Ok(Body::Done));
    assert_eq!(accessed(&mut world, node), at, "also from what is leased");
    open_to_read(&mut world, node);
    world.pass(Duration::from_millis(2100));
    let again = world.sent.iter().any(|sent| matches!(sent.request().call, Call::Accessed { .. }));
    assert!(!again, "one read after a change is enough");
}

#[test]
fn without_times_of_access_nothing_is_noted() {
    let mut world = World::open();
    let node = file(20, "a");
    open_to_read(&mut world, node);
    assert_eq!(accessed(&mut world, node), file_view(node, 1, 0).attributes.accessed);
    world.pass(Duration::from_millis(2500));
    assert!(world.sent.is_empty());
}
