//! What is lent when its lease has lapsed, when more of its tablet is asked for, and when its owner has no ids to give.

use super::delegation::*;
use super::world::*;
use crate::*;
use bearing_proto::client::{Body, Call, Handle, LeaseMs, NewNode, Request};
use bearing_proto::delegation::{DelegationView, LentDirectory, LentIds};
use bearing_proto::keys::Key;
use bearing_types::*;
use std::time::Duration;

#[test]
fn a_directory_that_is_asked_for_when_all_was_given_back_joins_nothing() {
    let mut world = given_back();
    let returning = world.take_request();
    let Call::Delegated { incarnation: before, .. } = returning.call else { panic!("{returning:?}") };
    done(&mut world, &returning);
    world.pass(Duration::from_millis(30));
    let asked = root_asked_for(&mut world, 60).expect("it is worth asking for");
    let Call::Delegate { incarnation, joins, .. } = asked.call else { panic!("{asked:?}") };
    assert!(incarnation > before && !joins);
}

#[test]
fn what_is_lent_when_the_lease_on_the_rest_has_lapsed_makes_nothing_of_that_current() {
    // A directory in the same tablet that is not lent with the root.
    let tablet = |home| map().assignment.tablet_at(home).block;
    let number = (50..).find(|number| {
        let seat = root_seat().child(NodeId(*number), hash_of("d"));
        tablet(seat.home) == tablet(root().home)
    });
    let seat = root_seat().child(NodeId(number.unwrap()), hash_of("d"));
    let directory = Handle { node: seat.node, home: seat.home };
    let mut world = with_root_and(vec![lent(directory, "d", FileType::Directory)], Vec::new());
    world.pass(Duration::from_millis(3_400));
    let renewal = world.take_request();
    done(&mut world, &renewal);
    world.pass(Duration::from_millis(9_000));
    world.sent.clear();
    let mut asked = None;
    for text in ["x", "y"] {
        let Operation::Create { who, new, .. } = make(text) else { unreachable!("it makes a link") };
        world.start(Operation::Create { directory, name: name(text), who, new, open: false });
        while let Some(sent) = world.sent.pop() {
            let request = sent.request().clone();
            match &request.call {
                Call::Directory { .. } => {
                    let view = directory_view(seat, 20_000);
                    world.reply_done(&request, Ok(Body::Directory(Box::new(view))));
                }
                Call::Create { .. } => world.reply_done(&request, Ok(entry(file(70, text), 0))),
                Call::Delegate { .. } => asked = Some(request),
                _ => {}
            }
        }
    }
    let asked = asked.expect("it is worth asking for");
    assert!(matches!(asked.call, Call::Delegate { joins: true, .. }), "{asked:?}");
    world.pass(Duration::from_millis(1_000));
    let lent = DelegationView {
        directories: vec![LentDirectory { view: directory_view(seat, 0), entries: Vec::new() }],
        lease: LeaseMs(10_000),
        ids: LentIds::sign(NodeId(2000), 100, SESSION, &Key::new([9; 32])),
        now: Wall(15_000_000_000),
    };
    world.reply_done(&asked, Ok(Body::Delegation(Box::new(lent))));
    let looked = world.start(lookup("nothing"));
    world.pass(Duration::from_millis(50));
    assert!(
        !world.finished.contains_key(&looked),
        "only the answer to a renewal says that the root is lent yet"
    );
}
