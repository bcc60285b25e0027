//! What is shown of open files: tokens, users, rights to bytes.

use super::world::*;
use crate::*;
use bearing_proto::Message;
use bearing_proto::client::{AttributeChange, Body, Call, ChunkRef, ChunkView, Extent, LeaseKey};
use bearing_proto::data::{DataCall, DataRequest};
use bearing_proto::grant::{Admission, DataRight, ReadRights};
use bearing_proto::keys::Mac;
use bearing_types::*;
use std::time::Duration;

const NODE: u64 = 5;

fn who() -> Credentials {
    Credentials { uid: Uid(7), gid: Gid(7), groups: vec![] }
}

/// A file of five bytes that its user opened under a lease, without asking.
fn opened_unasked() -> (World, OpenFile) {
    let mut world = with_root_cached();
    let ticket = world.start(lookup("a"));
    let Body::Entry(mut view, token) = entry(file(NODE, "a"), 3000) else { panic!("an entry") };
    let shown = view.attributes.as_mut().unwrap();
    (shown.attributes.size, shown.attributes.mode) = (5, Mode::new(0o644));
    world.answer_one(Body::Entry(view, token));
    world.found(ticket);
    let ticket = world.start(Operation::Open {
        node: file(NODE, "a"),
        who: who(),
        read: true,
        write: false,
        truncate: false,
        execute: false,
    });
    assert!(world.sent.is_empty(), "it is opened without asking");
    match world.result(ticket) {
        Ok(Answer::Opened(file, _)) => (world, file),
        other => panic!("{other:?}"),
    }
}

fn opened(world: &mut World) -> bearing_proto::client::Request {
    let asked = world.take_request();
    assert_eq!(
        asked.call,
        Call::Open {
            node: file(NODE, "a"),
            who: who(),
            read: true,
            write: false,
            truncate: false,
            execute: false
        }
    );
    asked
}

fn extents(token: Option<bearing_proto::grant::OpenToken>, expires: Wall) -> (Body, Extent) {
    let chunk = ChunkRef { chunk: ChunkId(3), position: Position(9) };
    let extent = Extent { file_offset: 0, length: 5, chunk, frame: 80, skip: 2 };
    let reads = Some(ReadRights { expires, macs: vec![Mac([6; 16])] });
    (
        Body::Extents { version: Version(1), size: 5, extents: vec![extent], complete: true, reads, token },
        extent,
    )
}

fn data_request(world: &mut World) -> DataRequest {
    match world.take_one().message {
        Message::Data(request) => request,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_that_was_opened_without_asking_is_read_as_its_user_until_there_is_a_token_with_the_right_to_its_bytes()
 {
    let (mut world, opened) = opened_unasked();
    world.start(Operation::Read { file: opened, offset: 1, length: 3 });
    let asked = world.take_request();
    let Call::Extents { by, .. } = &asked.call else { panic!("{asked:?}") };
    assert_eq!(*by, Admission::User(who()));
    let token = read_token(file(NODE, "a"));
    // A right that is over is asked for again, and the token shown.
    let (late, extent) = extents(Some(token), Wall(0));
    world.reply_done(&asked, Ok(late));
    let view = ChunkView {
        chunk: extent.chunk,
        epoch: Epoch(1),
        servers: vec![S1],
        sealed: None,
        capability: None,
        holes: Vec::new(),
    };
    world.answer_one(Body::Chunk(view));
    let asked = world.take_request();
    let Call::Extents { by, .. } = &asked.call else { panic!("{asked:?}") };
    assert_eq!(*by, Admission::Open(token));
    let expires = world.now.wall.after(Duration::from_secs(600));
    world.reply_done(&asked, Ok(extents(None, expires).0));
    let DataCall::Read { capability, frame, skip, length, .. } = data_request(&mut world).call else {
        panic!("a read")
    };
    assert_eq!((frame, skip, length), (80, 3, 3));
    // The right is to all of the extent, as its home signed it.
    assert_eq!((capability.body, capability.mac), (extent.read_right(SESSION, expires), Mac([6; 16])));
    assert!(matches!(capability.body.right, DataRight::Read(_)));
}

fn sized(node: bearing_proto::client::Handle) -> bearing_proto::client::NodeView {
    let mut view = file_view(node, 1, 3000);
    view.attributes.size = 5;
    view
}

#[test]
fn before_a_recall_is_answered_the_token_of_a_file_that_was_opened_without_is_asked_for() {
    let (mut world, _) = opened_unasked();
    world.recall(3, vec![LeaseKey::File(NodeId(NODE))]);
    let asked = opened(&mut world);
    for (number, _) in std::mem::take(&mut world.invalidations) {
        world.step(Event::Invalidated(number));
    }
    assert!(world.sent.is_empty(), "the mode may change with the answer");
    world.reply_done(&asked, Ok(Body::Opened(sized(file(NODE, "a")), Some(read_token(file(NODE, "a"))))));
    assert!(matches!(world.take_one().message, Message::Recalled(recalled) if recalled.number == 3));
    // The next recall finds the token here.
    world.recall(4, vec![LeaseKey::File(NodeId(NODE))]);
    for (number, _) in std::mem::take(&mut world.invalidations) {
        world.step(Event::Invalidated(number));
    }
    assert!(matches!(world.take_one().message, Message::Recalled(recalled) if recalled.number == 4));
}

#[test]
fn a_recall_is_answered_also_when_the_token_is_refused() {
    let (mut world, _) = opened_unasked();
    world.recall(3, vec![LeaseKey::File(NodeId(NODE))]);
    let asked = opened(&mut world);
    world.reply_done(&asked, Err(Code::Access));
    // Perhaps it was opened to be executed.
    let asked = world.take_request();
    assert!(matches!(asked.call, Call::Open { execute: true, .. }));
    world.reply_done(&asked, Err(Code::Access));
    for (number, _) in std::mem::take(&mut world.invalidations) {
        world.step(Event::Invalidated(number));
    }
    assert!(matches!(world.take_one().message, Message::Recalled(_)));
}

#[test]
fn the_token_is_asked_for_before_an_own_chmod_and_not_before_a_touch() {
    let (mut world, _) = opened_unasked();
    let set = |change| Operation::SetAttributes {
        node: file(NODE, "a"),
        file_type: FileType::Regular,
        who: who(),
        change,
        file: None,
    };
    let touch = AttributeChange {
        accessed: Some(bearing_proto::client::TimeChange::Now),
        ..AttributeChange::default()
    };
    world.start(set(touch));
    assert!(matches!(world.take_request().call, Call::SetAttributes { .. }));
    let (mut world, _) = opened_unasked();
    world.start(set(AttributeChange { mode: Some(Mode::new(0)), ..AttributeChange::default() }));
    let asked = opened(&mut world);
    world.reply_done(&asked, Ok(Body::Opened(sized(file(NODE, "a")), Some(read_token(file(NODE, "a"))))));
    assert!(matches!(world.take_request().call, Call::SetAttributes { .. }));
}

#[test]
fn a_squashed_user_is_asked_for_and_decided_about_as_whom_he_counts() {
    let (uid, gid) = (Uid(Squash::NOBODY), Gid(Squash::NOBODY));
    let mut world = World::open_with(ClientConfig { squash: Squash::Root { uid, gid }, ..config() });
    let node = file(NODE, "a");
    world.start(open_to_read(node));
    let Call::Open { who, .. } = world.take_request().call else { panic!("an open") };
    assert_eq!(who, Credentials { uid, gid, groups: Vec::new() });
}
