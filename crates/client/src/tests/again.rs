//! A session that servers end is followed by another one.

use super::files::*;
use super::world::*;
use crate::*;
use bearing_proto::client::{Body, Call};
use bearing_proto::envelope::Refusal;
use bearing_proto::sessions::SessionDescription;
use bearing_types::*;

/// The servers end the session, and agree on another one.
fn lose_session(world: &mut World) {
    world.step(Event::Refused(Refusal::Expired));
    let is_of_the_session = |sent: &Sent| match &sent.message {
        bearing_proto::Message::Request(request) => matches!(request.call, Call::Map { .. }),
        _ => false,
    };
    // What was sent under the old one is answered by nobody.
    world.sent.retain(is_of_the_session);
    world.answer_one(Body::Map(Some(Box::new(map()))));
    world.answer_one(Body::Session { renew_within_ms: 30_000 });
}

#[test]
fn a_session_that_servers_end_is_followed_by_another_one() {
    let mut world = with_root_cached();
    let (a, b) = (world.start(Operation::Statfs), world.start(lookup("x")));
    let request = world.sent.remove(0).request().clone();
    world.sent.clear();
    world.reply_done(&request, Err(Code::SessionEnded));
    assert_eq!((world.result(a), world.result(b)), (Err(Code::Io), Err(Code::Io)));
    assert!(world.notes.contains(&Note::SessionLost));
    let (_, forgotten) = world.invalidations.last().expect("the kernel forgets what it was told");
    assert!(forgotten.contains(&Invalidation::Node { node: NodeId::ROOT }), "{forgotten:?}");
    let waiting = world.start(Operation::Root);
    world.answer_one(Body::Map(Some(Box::new(map()))));
    world.answer_one(Body::Session { renew_within_ms: 30_000 });
    // What was leased is asked for again.
    world.answer_one(Body::Directory(Box::new(root_view(20_000))));
    world.found(waiting);
    assert_eq!(world.client.counters().sessions_lost, 1);
}

#[test]
fn a_revoked_client_gets_no_other_session() {
    let mut world = World::open();
    let waiting = world.start(Operation::Statfs);
    world.step(Event::Refused(Refusal::Revoked));
    assert_eq!(world.result(waiting), Err(Code::Unauthenticated));
    let later = world.start(Operation::Statfs);
    assert_eq!(world.result(later), Err(Code::Unauthenticated));
}

#[test]
fn nothing_unsigned_ends_a_client_that_had_a_session_while_it_gets_another_one() {
    let mut world = World::open();
    world.is_mute = true;
    world.step(Event::Refused(Refusal::Expired));
    let waiting = world.start(Operation::Root);
    let unsigned =
        [Refusal::Version { speaks: 99 }, Refusal::Unauthenticated, Refusal::NeedTicket, Refusal::Expired];
    unsigned.iter().for_each(|refusal| world.step(Event::Refused(*refusal)));
    world.is_mute = false;
    while world.sent.is_empty() {
        assert!(world.pass_to_next(), "it goes on trying: {:?}", world.finished);
    }
    unsigned[..3].iter().for_each(|refusal| world.step(Event::Refused(*refusal)));
    world.answer_one(Body::Map(Some(Box::new(map()))));
    world.answer_one(Body::Session { renew_within_ms: 30_000 });
    world.answer_one(Body::Directory(Box::new(root_view(20_000))));
    world.found(waiting);
    assert_eq!(world.client.counters().sessions_lost, 1, "an overheard word of the first session is nothing");
}

#[test]
fn a_file_that_was_open_is_opened_again_and_its_loss_is_told_once() {
    let (mut world, mut servers) = stage();
    let (file, node) = create_open(&mut world, &mut servers, "a");
    let (clean, _) = create_open(&mut world, &mut servers, "b");
    done(&mut world, &mut servers, write(file, 0, b"stable"));
    done(&mut world, &mut servers, Operation::Sync { file });
    done(&mut world, &mut servers, write(file, 6, b" and not"));
    lose_session(&mut world);
    servers.begin_session();
    servers.log.clear();
    assert_eq!(servers.perform(&mut world, Operation::Sync { file }), Err(Code::Io));
    assert_eq!(servers.log, ["open"], "by its handle");
    done(&mut world, &mut servers, Operation::Sync { file });
    assert_eq!(read(&mut world, &mut servers, file, 0, 100), b"stable");
    done(&mut world, &mut servers, write(file, 0, b"STABLE"));
    done(&mut world, &mut servers, Operation::Sync { file });
    done(&mut world, &mut servers, Operation::Sync { file: clean });
    done(&mut world, &mut servers, Operation::Close { file });
    let again = opened(servers.perform(&mut world, open(node, false)));
    assert_eq!(read(&mut world, &mut servers, again, 0, 100), b"STABLE");
}

#[test]
fn who_opens_a_closed_file_that_lost_something_is_told_at_its_sync() {
    let (mut world, mut servers) = stage();
    let (file, node) = flushed(&mut world, &mut servers, "a", b"visible, not stable");
    done(&mut world, &mut servers, Operation::Close { file });
    lose_session(&mut world);
    servers.begin_session();
    let again = opened(servers.perform(&mut world, open(node, true)));
    assert_eq!(servers.perform(&mut world, Operation::Sync { file: again }), Err(Code::Io));
    done(&mut world, &mut servers, Operation::Sync { file: again });
}

#[test]
fn a_program_that_is_executed_is_opened_again_to_be_executed() {
    let (mut world, mut servers) = stage();
    let (_, node) = create_open(&mut world, &mut servers, "a");
    let who = Credentials { uid: Uid(9), gid: Gid(9), groups: Vec::new() };
    let execute = Operation::Open { node, who, read: true, write: false, truncate: false, execute: true };
    let file = opened(servers.perform(&mut world, execute));
    lose_session(&mut world);
    world.start(Operation::Read { file, offset: 0, length: 10 });
    let asked = world.take_request().call;
    assert!(matches!(asked, Call::Open { execute: true, write: false, .. }), "{asked:?}");
}

#[test]
fn a_file_is_opened_again_whatever_is_done_with_it_first() {
    let set_ids = SetIds::Keep;
    type With = fn(OpenFile, SetIds) -> Operation;
    let all: [With; 6] = [
        |file, set_ids| Operation::Allocate { file, start: 0, end: 10, grows: true, set_ids },
        |file, set_ids| Operation::MakeHole { file, start: 0, end: 10, size_min: 0, set_ids },
        |file, set_ids| Operation::Write { file, offset: None, bytes: vec![1], set_ids },
        |file, _| Operation::Read { file, offset: 0, length: 10 },
        |file, _| Operation::Seek { file, offset: 0, target: SeekTarget::Hole },
        |file, _| Operation::Sync { file },
    ];
    for with in all {
        let (mut world, mut servers) = stage();
        let (file, _) = create_open(&mut world, &mut servers, "a");
        lose_session(&mut world);
        servers.begin_session();
        servers.log.clear();
        let done = servers.perform(&mut world, with(file, set_ids));
        assert!(done.is_ok(), "{:?}: {done:?}", with(file, set_ids));
        assert_eq!(servers.log.first().map(String::as_str), Some("open"));
    }
}

#[test]
fn a_session_is_renewed_in_time_though_nobody_hears_who_uses_it() {
    let (host, version) = ("host".into(), "1".into());
    let description = SessionDescription { host, path: None, process: 1, version, since: Wall(0) };
    let mut world = World::new(ClientConfig { description: Some(description), ..config() });
    world.step(Event::Tick);
    world.answer_one(Body::Map(Some(Box::new(map()))));
    world.answer_one(Body::Session { renew_within_ms: 30_000 });
    assert!(matches!(world.take_request().call, Call::Describe(_)));
    let opened = world.now.mono;
    let renews = |sent: &Sent| sent.request().call == Call::RenewSession;
    while !std::mem::take(&mut world.sent).iter().any(renews) {
        assert!(world.pass_to_next());
    }
    assert_eq!(world.now.mono.since(opened), std::time::Duration::from_secs(10));
}

#[test]
fn a_sync_of_everything_tells_once_what_was_lost_with_the_session_before() {
    let (mut world, mut servers) = stage();
    let (file, _) = flushed(&mut world, &mut servers, "a", b"visible, not stable");
    done(&mut world, &mut servers, Operation::Close { file });
    lose_session(&mut world);
    servers.begin_session();
    assert_eq!(servers.perform(&mut world, Operation::SyncAll), Err(Code::Io));
    done(&mut world, &mut servers, Operation::SyncAll);
}

#[test]
fn a_session_after_which_all_was_stable_has_lost_nothing() {
    let (mut world, mut servers) = stage();
    let (file, _) = flushed(&mut world, &mut servers, "a", b"one");
    done(&mut world, &mut servers, Operation::Close { file });
    synced(&mut world, &mut servers, "b", b"two, in the same chunk");
    lose_session(&mut world);
    servers.begin_session();
    done(&mut world, &mut servers, Operation::SyncAll);
}

#[test]
fn of_more_files_than_are_remembered_every_one_may_have_lost_something_with_the_session() {
    let (mut world, mut servers) = stage_with(ClientConfig { closed_files_max: 1, ..config() });
    let nodes = ["a", "b", "c"].map(|text| {
        let (file, node) = create_open(&mut world, &mut servers, text);
        done(&mut world, &mut servers, write(file, 0, b"visible, not stable"));
        done(&mut world, &mut servers, Operation::Flush { file });
        done(&mut world, &mut servers, Operation::Close { file });
        node
    });
    lose_session(&mut world);
    servers.begin_session();
    for node in nodes {
        let file = opened(servers.perform(&mut world, open(node, true)));
        assert_eq!(servers.perform(&mut world, Operation::Sync { file }), Err(Code::Io));
        done(&mut world, &mut servers, Operation::Sync { file });
        done(&mut world, &mut servers, Operation::Close { file });
    }
    let (new, _) = create_open(&mut world, &mut servers, "d");
    done(&mut world, &mut servers, Operation::Sync { file: new });
}

#[test]
fn a_file_that_is_gone_answers_eio_and_closes() {
    let (mut world, mut servers) = stage();
    let (file, node) = create_open(&mut world, &mut servers, "a");
    lose_session(&mut world);
    servers.begin_session();
    servers.files.remove(&node.node);
    let ticket = world.start(Operation::Read { file, offset: 0, length: 10 });
    assert_eq!(servers.run(&mut world, ticket), Err(Code::Io));
    done(&mut world, &mut servers, Operation::Close { file });
}

#[test]
fn an_end_that_finds_the_session_over_is_an_end() {
    let mut world = World::open();
    let end = world.start(Operation::End);
    world.kernel_forgets();
    while let Some(sent) = world.sent.pop() {
        let request = sent.request().clone();
        let over = matches!(request.call, Call::CloseSession);
        world.reply_done(&request, if over { Err(Code::SessionEnded) } else { Ok(Body::Done) });
    }
    assert_eq!(world.result(end), Ok(Answer::Done));
    let later = world.start(Operation::Statfs);
    assert_eq!(world.result(later), Err(Code::SessionEnded));
}
