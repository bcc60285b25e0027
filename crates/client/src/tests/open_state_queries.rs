//! What servers are told of open files, so that they keep those that are unlinked and free those that are
//! closed.

use super::world::*;
use crate::*;
use bearing_proto::Message;
use bearing_proto::client::{Body, Call, Handle, LeaseKey, NewNode, OpenState, OpenStateQuery};
use bearing_types::*;
use std::time::Duration;

fn open_state_query(world: &mut World, number: u64, nodes: &[u64]) {
    let tablet = map().assignment.tablet_at(Position(0)).clone();
    let nodes = nodes.iter().copied().map(NodeId).collect();
    let message =
        Message::OpenStateQuery(OpenStateQuery { tablet: tablet.block, epoch: tablet.epoch, number, nodes });
    world.step(Event::Message { from: Target::Server(S1), message, attachment: Vec::new() });
}

/// The answer to a open-state query, which is the last thing that was sent.
fn open_state(world: &mut World) -> OpenState {
    match world.sent.pop().unwrap().message {
        Message::OpenState(open_state) => open_state,
        other => panic!("a open_state_query was to be answered, not {other:?}"),
    }
}

fn handle(number: u64) -> Handle {
    Handle { node: NodeId(100 + number), home: Position(number) }
}

fn create() -> Operation {
    let new = NewNode { file_type: FileType::Regular, mode: Mode::new(0o644), device: 0, target: vec![] };
    Operation::Create { directory: root(), name: name("a"), who: Credentials::ROOT, new, open: true }
}

fn opened(world: &mut World, ticket: Ticket) -> OpenFile {
    match world.result(ticket) {
        Ok(Answer::Opened(file, _)) => file,
        other => panic!("an open file was expected, not {other:?}"),
    }
}

fn open_one(world: &mut World, node: Handle) -> OpenFile {
    let ticket = world.start(open_to_read(node));
    world.answer_one(Body::Opened(file_view(node, 1, 1000), None));
    opened(world, ticket)
}

#[test]
fn a_survey_is_answered_at_once_with_what_is_open_and_drops_nothing() {
    let mut world = with_root_cached();
    let file = open_one(&mut world, handle(0));
    open_one(&mut world, handle(1));
    world.start(open_to_read(Handle { node: NodeId(7), home: Position(7) }));
    world.sent.clear();
    open_state_query(&mut world, 5, &[100, 101, 7, 55]);
    let answer = open_state(&mut world);
    assert_eq!((answer.number, &answer.open[..]), (5, &[NodeId(100), NodeId(101), NodeId(7)][..]));
    assert!(world.invalidations.is_empty());
    let ticket = world.start(Operation::Attributes { node: handle(0), file_type: FileType::Regular });
    assert!(world.found(ticket).attributes_remaining > Remaining(Duration::ZERO), "its lease goes on");
    world.start(Operation::Close { file });
    world.sent.clear();
    open_state_query(&mut world, 6, &[100]);
    assert_eq!(open_state(&mut world).open, []);
}

#[test]
fn a_survey_of_no_files_asks_for_all_of_the_tablet() {
    let mut world = World::open();
    open_one(&mut world, handle(0));
    open_one(&mut world, Handle { node: NodeId(9), home: Position(u64::MAX) });
    open_state_query(&mut world, 1, &[]);
    assert_eq!(open_state(&mut world).open, [NodeId(100)]);
}

#[test]
fn what_was_named_as_open_is_released_when_it_is_closed() {
    let mut world = World::open();
    let (first, second) = (open_one(&mut world, handle(0)), open_one(&mut world, handle(1)));
    open_state_query(&mut world, 1, &[100]);
    world.sent.clear();
    world.start(Operation::Close { file: second });
    assert!(world.sent.is_empty());
    world.start(Operation::Close { file: first });
    assert_eq!(world.take_request().call, Call::Release { node: handle(0) });
}

#[test]
fn a_close_releases_nothing_that_is_being_opened_again_and_the_last_close_does() {
    let mut world = with_root_cached();
    let first = open_one(&mut world, handle(0));
    open_state_query(&mut world, 1, &[100]);
    assert_eq!(open_state(&mut world).open, [NodeId(100)]);
    world.sent.clear();
    // For writing, so that the server is asked.
    let Operation::Open { node, who, .. } = open_to_read(handle(0)) else { unreachable!() };
    let again =
        world.start(Operation::Open { node, who, read: true, write: true, truncate: false, execute: false });
    let asked = world.take_request();
    world.start(Operation::Close { file: first });
    assert!(world.sent.is_empty(), "a release could cross the open: {:?}", world.sent);
    world.reply_done(&asked, Ok(Body::Opened(file_view(handle(0), 1, 1000), None)));
    let file = opened(&mut world, again);
    world.sent.clear();
    world.start(Operation::Close { file });
    assert!(matches!(world.take_request().call, Call::Release { node } if node == handle(0)));
}

#[test]
fn what_is_being_let_go_of_is_opened_again_only_after_that() {
    for write in [false, true] {
        let mut world = with_root_cached();
        let file = open_one(&mut world, handle(0));
        open_state_query(&mut world, 1, &[100]);
        world.sent.clear();
        world.start(Operation::Close { file });
        let release = world.take_request();
        // Its lease would let it be opened for reading at once; and a request would be another than the one
        // that is on its way.
        let Operation::Open { node, who, .. } = open_to_read(handle(0)) else { unreachable!() };
        let again =
            world.start(Operation::Open { node, who, read: true, write, truncate: false, execute: false });
        assert!(world.sent.is_empty(), "the release may be late: {:?}", world.sent);
        world.reply_done(&release, Ok(Body::Done));
        if write {
            world.answer_one(Body::Opened(file_view(handle(0), 1, 1000), None));
        }
        opened(&mut world, again);
    }
}

#[test]
fn answers_tell_which_replies_were_taken_when_open_files_were_gathered() {
    let mut world = with_root_cached();
    let ticket = world.start(create());
    let request = world.take_request();
    // The server has made the file, and its reply is on its way: this client does not know the file.
    open_state_query(&mut world, 1, &[5]);
    let answer = open_state(&mut world);
    assert_eq!((answer.finished_below, &answer.open[..]), (request.sequence, &[][..]));
    world.recall(2, vec![LeaseKey::File(NodeId(5))]);
    world.reply_done(&request, Ok(entry(file(5, "a"), 1000)));
    opened(&mut world, ticket);
    // The kernel took its time: what was gathered is told, not what holds now.
    let (number, _) = world.invalidations.pop().unwrap();
    world.sent.clear();
    world.step(Event::Invalidated(number));
    match world.take_one().message {
        Message::Recalled(recalled) => {
            assert_eq!((recalled.finished_below, &recalled.open[..]), (request.sequence, &[][..]));
        }
        other => panic!("{other:?}"),
    }
    open_state_query(&mut world, 3, &[5]);
    let answer = open_state(&mut world);
    assert_eq!(answer.finished_below, request.sequence.next());
    assert_eq!(answer.open, [NodeId(5)]);
}

#[test]
fn a_lease_that_its_server_does_not_track_opens_no_file() {
    let mut world = with_root_cached();
    let ticket = world.start(lookup("a"));
    let mut crowded = entry(file(5, "a"), 200);
    if let Body::Entry(view, _) = &mut crowded
        && let Some(node) = &mut view.attributes
    {
        node.may_open = false;
    }
    world.answer_one(crowded);
    assert!(world.found(ticket).attributes_remaining > Remaining(Duration::ZERO), "but it is served");
    world.start(open_to_read(file(5, "a")));
    assert!(matches!(world.take_request().call, Call::Open { .. }));
}

#[test]
fn a_removal_tells_as_of_when_its_file_was_not_open_also_when_it_is_sent_again() {
    let mut world = with_root_cached();
    let creating = world.start(create());
    let made = world.take_request();
    // Another program of this client removes the name before the maker has its reply: nobody knows here that
    // it is the file being made.
    world.start(Operation::Unlink { directory: root(), name: name("a"), who: Credentials::ROOT });
    world.answer_one(entry(file(5, "a"), 0));
    let unlink = world.take_request();
    assert!(matches!(unlink.call, Call::Unlink { keep_open: false, .. }), "{:?}", unlink.call);
    assert_eq!(unlink.finished_below, made.sequence);
    world.reply_done(&made, Ok(entry(file(5, "a"), 0)));
    opened(&mut world, creating);
    world.sent.clear();
    world.pass(Duration::from_millis(300));
    let again = world.sent.iter().map(Sent::request).find(|request| request.sequence == unlink.sequence);
    assert_eq!(again, Some(&unlink), "the file is open by now, but was not when this was made");
    world.sent.clear();
    world.reply_done(&unlink, Ok(Body::Done));
    world.start(Operation::Unlink { directory: root(), name: name("b"), who: Credentials::ROOT });
    world.answer_one(entry(file(6, "b"), 0));
    let alone = world.take_request();
    assert!(alone.finished_below <= alone.sequence, "or it would be taken for a stray copy");
}
