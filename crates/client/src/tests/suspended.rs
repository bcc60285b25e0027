//! What is decided of files while the directory of one of them is on its way back to its home.

use super::delegation::*;
use super::servers::{Servers, steps_done};
use super::world::*;
use crate::*;
use bearing_proto::Message;
use bearing_proto::client::{Body, Call, Handle, LeaseKey, NewNode, Request};
use bearing_proto::delegation::{Change, Step};
use bearing_proto::grant::{OpenRights, OpenToken};
use bearing_proto::keys::Key;
use bearing_types::*;
use std::time::Duration;

/// Makes a file and has it open.
fn make_open(world: &mut World, directory: Handle, text: &str) -> (OpenFile, Handle) {
    let new = NewNode { file_type: FileType::Regular, mode: Mode::new(0o644), device: 0, target: Vec::new() };
    let (who, open) = (Credentials::ROOT, true);
    let ticket = world.start(Operation::Create { directory, name: name(text), who, new, open });
    let Ok(Answer::Opened(file, found)) = world.result(ticket) else { panic!("it is open") };
    (file, found.node)
}

fn write(world: &mut World, file: OpenFile, bytes: &[u8]) {
    let (offset, bytes) = (Some(0), bytes.to_vec());
    world.start(Operation::Write { file, offset, bytes, set_ids: SetIds::Keep });
}

fn call_back(world: &mut World, directory: NodeId) {
    world.recall(7, vec![LeaseKey::Delegation(directory)]);
    let (number, _) = world.invalidations.pop().unwrap();
    world.step(Event::Invalidated(number));
    world.pass(Duration::from_millis(3));
}

/// Answers steps as their home does that gives rights to files.
fn done_with_tokens(world: &mut World, request: &Request) {
    let steps = steps_of(request).0;
    let Body::Steps(mut told) = steps_done(&steps) else { unreachable!() };
    let made = |step: &Step| match &step.change {
        Change::Create { node, new, .. } if new.file_type == FileType::Regular => Some(*node),
        _ => None,
    };
    for (step, told) in steps.iter().zip(&mut told.steps) {
        let token = |node| OpenToken::sign(node, SESSION, OpenRights::ReadWrite, &Key::new([9; 32]));
        told.token = made(step).map(token);
    }
    world.reply_done(request, Ok(Body::Steps(told)));
}

/// Answers all but steps, which are kept, until nothing else is sent any more.
fn answer_all_but_steps(world: &mut World, servers: &mut Servers) -> Vec<Request> {
    let mut kept = Vec::new();
    for _ in 0..20 {
        let is_steps = |sent: &Sent| matches!(&sent.message, Message::Request(request) if matches!(request.call, Call::Delegated { .. }));
        let (steps, others): (Vec<Sent>, Vec<Sent>) =
            std::mem::take(&mut world.sent).into_iter().partition(is_steps);
        kept.extend(steps.iter().map(|sent| sent.request().clone()));
        world.sent = others;
        servers.answer_all(world);
        world.pass(Duration::from_millis(1));
    }
    kept
}

#[test]
fn what_was_decided_of_a_file_comes_to_its_home_before_what_that_decides() {
    let (mut world, mut servers) = (with_root(), Servers::new(1));
    let (file, node) = make_open(&mut world, root(), "f");
    servers.put(node, "f");
    world.pass(Duration::from_millis(3));
    let made = world.take_request();
    call_back(&mut world, NodeId::ROOT);
    write(&mut world, file, b"old");
    let old = world.start(Operation::Flush { file });
    assert!(answer_all_but_steps(&mut world, &mut servers).is_empty(), "one batch at a time");
    assert_eq!(world.result(old), Ok(Answer::Done), "decided here");
    done_with_tokens(&mut world, &made);
    let kept = answer_all_but_steps(&mut world, &mut servers);
    let [commit] = &kept[..] else { panic!("{kept:?}") };
    assert!(matches!(steps_of(commit).0[..], [Step { change: Change::Commit { .. }, .. }]), "{commit:?}");
    write(&mut world, file, b"new");
    let new = world.start(Operation::Flush { file });
    let asked = world.start(Operation::Attributes { node, file_type: FileType::Regular });
    let before = servers.log.len();
    answer_all_but_steps(&mut world, &mut servers);
    assert!(!servers.log[before..].contains(&"commit".to_owned()), "{:?}", servers.log);
    assert!(!world.finished.contains_key(&asked), "its home has not heard of the bytes");
    done_with_tokens(&mut world, commit);
    assert_eq!(servers.run(&mut world, new), Ok(Answer::Done));
    assert_eq!(servers.log.iter().filter(|call| *call == "commit").count(), 1);
    servers.run(&mut world, asked).unwrap();
}

#[test]
fn a_file_without_a_name_stays_writable_while_another_directory_is_called_back() {
    let (handles, entries, below) = two_below(["idle", "busy"]);
    let (mut world, mut servers) = (with_root_and(entries, below), Servers::new(1));
    world.start(make("c"));
    world.pass(Duration::from_millis(3));
    let first = world.take_request();
    call_back(&mut world, handles[0].node);
    let (file, node) = make_open(&mut world, handles[1], "t");
    let who = Credentials::ROOT;
    let unlinked = world.start(Operation::Unlink { directory: handles[1], name: name("t"), who });
    assert_eq!(world.result(unlinked), Ok(Answer::Done));
    servers.put(node, "t");
    done_with_tokens(&mut world, &first);
    world.pass(Duration::from_millis(3));
    for request in answer_all_but_steps(&mut world, &mut servers) {
        done_with_tokens(&mut world, &request);
    }
    write(&mut world, file, b"bytes");
    assert_eq!(servers.perform(&mut world, Operation::Flush { file }), Ok(Answer::Done));
    assert!(!world.notes.iter().any(|note| matches!(note, Note::WritesLost(..))), "{:?}", world.notes);
}
