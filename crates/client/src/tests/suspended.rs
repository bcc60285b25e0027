//! What is decided, and what is lent, while a directory is on its way back to its home.

use super::delegation::*;
use super::servers::{Servers, steps_done};
use super::world::*;
use crate::*;
use bearing_proto::Message;
use bearing_proto::client::{Body, Call, Handle, LeaseKey, NewNode, RenameMode, Request};
use bearing_proto::delegation::{Change, LentEntry, OPEN_TOLD_MAX, Step};
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
    world.pass(GATHERED);
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

fn are_steps(sent: &Sent) -> bool {
    let Message::Request(request) = &sent.message else { return false };
    matches!(request.call, Call::Delegated { .. })
}

/// Answers all but steps, which are kept, until nothing else is sent any more.
fn answer_all_but_steps(world: &mut World, servers: &mut Servers) -> Vec<Request> {
    let mut kept = Vec::new();
    for _ in 0..20 {
        let (steps, others): (Vec<Sent>, Vec<Sent>) =
            std::mem::take(&mut world.sent).into_iter().partition(are_steps);
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
    world.pass(GATHERED);
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
fn bytes_that_are_gone_before_their_commit_cost_nothing_that_was_decided_before() {
    let (mut world, mut servers) = (with_root(), Servers::new(1));
    let (file, node) = make_open(&mut world, root(), "f");
    servers.put(node, "f");
    world.pass(GATHERED);
    let made = world.take_request();
    let made_too = world.start(make("before"));
    assert!(matches!(world.result(made_too), Ok(Answer::Found(_))), "decided here");
    write(&mut world, file, b"bytes");
    world.start(Operation::Flush { file });
    answer_all_but_steps(&mut world, &mut servers);
    done_with_tokens(&mut world, &made);
    let mut sent = Vec::new();
    // The chunk was damaged, and closed, before its owner heard of the file.
    for _ in 0..10 {
        for request in answer_all_but_steps(&mut world, &mut servers) {
            let steps = steps_of(&request).0;
            let commits = |step: &Step| matches!(step.change, Change::Commit { .. });
            match steps.iter().any(commits) {
                true => world.reply_done(&request, Err(Code::NotFound)),
                false => done_with_tokens(&mut world, &request),
            }
            sent.push(steps.len());
        }
    }
    assert_eq!(sent[..3], [2, 1, 1], "together, then one by one");
    assert!(world.notes.contains(&Note::WritesLost(node.node, Code::Io)), "{:?}", world.notes);
    assert!(world.notes.contains(&Note::StepsLost(1)), "{:?}", world.notes);
    assert_eq!(servers.perform(&mut world, Operation::Sync { file }), Err(Code::Io));
}

#[test]
fn a_file_without_a_name_stays_writable_while_another_directory_is_called_back() {
    let (handles, entries, below) = two_below(["idle", "busy"]);
    let (mut world, mut servers) = (with_root_and(entries, below), Servers::new(1));
    world.start(make("c"));
    world.pass(GATHERED);
    let first = world.take_request();
    call_back(&mut world, handles[0].node);
    let (file, node) = make_open(&mut world, handles[1], "t");
    let who = Credentials::ROOT;
    let unlinked = world.start(Operation::Unlink { directory: handles[1], name: name("t"), who });
    assert_eq!(world.result(unlinked), Ok(Answer::Done));
    servers.put(node, "t");
    done_with_tokens(&mut world, &first);
    world.pass(GATHERED);
    for request in answer_all_but_steps(&mut world, &mut servers) {
        done_with_tokens(&mut world, &request);
    }
    write(&mut world, file, b"bytes");
    assert_eq!(servers.perform(&mut world, Operation::Flush { file }), Ok(Answer::Done));
    assert!(!world.notes.iter().any(|note| matches!(note, Note::WritesLost(..))), "{:?}", world.notes);
}

/// Makes something in a directory. Gives what came of it, if that is decided at once.
fn make_in(
    world: &mut World,
    directory: Handle,
    text: &str,
    file_type: FileType,
) -> Option<Result<Answer, Code>> {
    let (who, open) = (Credentials::ROOT, false);
    let new = NewNode { file_type, mode: Mode::new(0o644), device: 0, target: Vec::new() };
    let ticket = world.start(Operation::Create { directory, name: name(text), who, new, open });
    world.finished.remove(&ticket)
}

/// The steps that were sent. What else was is kept.
fn take_steps(world: &mut World) -> Request {
    let Some(place) = world.sent.iter().position(are_steps) else { panic!("{:#?}", world.sent) };
    world.sent.remove(place).request().clone()
}

#[test]
fn a_directory_whose_return_is_on_its_way_is_not_taken_though_it_was_asked_for_before() {
    let (handles, entries, below) = two_below(["asked", "busy"]);
    let mut world = with_root_and(entries, below.clone());
    world.pass(Duration::from_millis(100));
    world.start(make("c"));
    world.pass(GATHERED);
    let first = world.take_request();
    call_back(&mut world, NodeId::ROOT);
    // Devices are for homes to decide: so the directory is its home's, though it goes back later, with the
    // busy one.
    assert!(make_in(&mut world, handles[0], "device", FileType::CharDevice).is_none());
    assert!(make_in(&mut world, handles[1], "d", FileType::Fifo).is_some());
    done(&mut world, &first);
    let second = world.take_request();
    assert!(make_in(&mut world, handles[1], "e", FileType::Fifo).is_some());
    done(&mut world, &second);
    let third = take_steps(&mut world);
    let seat = below[0].view.grant.body.seat;
    world.answer_one(Body::Directory(Box::new(directory_view(seat, 20_000))));
    world.answer_one(entry(file(40, "device"), 0));
    // Longer than it is its home's without being asked for.
    world.pass(Duration::from_millis(300));
    world.sent.clear();
    assert!(make_in(&mut world, handles[0], "x", FileType::Fifo).is_none());
    world.answer_one(entry(file(41, "x"), 0));
    let asked = world.take_request();
    assert!(matches!(asked.call, Call::Delegate { .. }), "{asked:?}");
    done(&mut world, &third);
    world.pass(GATHERED);
    let returning = take_steps(&mut world);
    assert_eq!(steps_of(&returning).1, [NodeId::ROOT, handles[0].node, handles[1].node]);
    lend_those(&mut world, &asked, Wall(5_000_000_000), vec![below[0].clone()]);
    world.sent.clear();
    assert!(make_in(&mut world, handles[0], "y", FileType::Fifo).is_none(), "its return ends what was lent");
    assert!(matches!(world.take_request().call, Call::Create { .. }));
}

#[test]
fn a_file_that_is_opened_while_its_removal_waits_for_steps_is_kept() {
    let (mut world, node) = (delegating(), file(20, "f"));
    world.start(Operation::Unlink { directory: root(), name: name("f"), who: Credentials::ROOT });
    world.answer_one(Body::Directory(Box::new(root_view(20_000))));
    let looked = world.take_request();
    assert!(is_lookup(&looked.call), "{looked:?}");
    // Meanwhile the directory is lent, but for the file.
    let asked = root_asked_for(&mut world, 60).unwrap();
    world.sent.clear();
    let entry_lent = LentEntry { lent: None, ..lent(node, "f", FileType::Regular) };
    lend(&mut world, &asked, vec![entry_lent], Vec::new());
    world.start(make("c"));
    world.pass(GATHERED);
    let steps = world.take_request();
    world.reply_done(&looked, Ok(entry(node, 0)));
    assert!(world.sent.is_empty(), "its home has to hear of the step first");
    let opening = world.start(open_to_read(node));
    world.answer_one(Body::Opened(file_view(node, 1, 0), Some(read_token(node))));
    assert!(matches!(world.result(opening), Ok(Answer::Opened(..))));
    done(&mut world, &steps);
    let removal = world.take_request();
    assert!(matches!(removal.call, Call::Unlink { keep_open: true, .. }), "{removal:?}");
}

/// The root is called back, which waits for this append; meanwhile it is lost, and asked for anew.
fn lost_while_called_back() -> (World, Servers, Sent, Request) {
    let (mut world, mut servers) = (with_root(), Servers::new(1));
    let (file, _) = make_open(&mut world, root(), "f");
    world.pass(GATHERED);
    let made = world.take_request();
    done_with_tokens(&mut world, &made);
    write(&mut world, file, b"bytes");
    call_back(&mut world, NodeId::ROOT);
    assert!(servers.answer_all(&mut world), "a chunk is opened");
    let append = world.take_one();
    assert!(matches!(append.message, Message::Data(_)), "{append:?}");
    world.pass(Duration::from_millis(3_400));
    let renewal = world.refuse_one(Code::Stale);
    assert!(matches!(renewal.call, Call::Delegated { .. }), "{renewal:?}");
    let asked = root_asked_for(&mut world, 60).expect("it is lost");
    (world, servers, append, asked)
}

#[test]
fn what_is_lent_anew_is_left_alone_by_whoever_was_suspending_what_was_lost() {
    for is_lent_first in [true, false] {
        let (mut world, mut servers, append, asked) = lost_while_called_back();
        world.sent = vec![append];
        if is_lent_first {
            lend(&mut world, &asked, Vec::new(), Vec::new());
        }
        // The call back goes on.
        while servers.answer_all(&mut world) {}
        let made = make_in(&mut world, root(), "c", FileType::Fifo);
        assert_eq!(made.is_some(), is_lent_first);
        assert!(world.sent.is_empty(), "{:#?}", world.sent);
        if !is_lent_first {
            lend(&mut world, &asked, Vec::new(), Vec::new());
        }
        world.pass(GATHERED);
        let steps = steps_of(&world.take_request()).0;
        assert!(matches!(steps[..], [Step { change: Change::Create { .. }, .. }]), "{steps:?}");
    }
}

#[test]
fn what_is_lent_anew_is_not_given_back_by_whoever_was_called_back_from_what_was_lost() {
    let (mut world, mut servers, append, asked) = lost_while_called_back();
    lend(&mut world, &asked, Vec::new(), Vec::new());
    // The kernel goes by this name; then something else has the directory suspended.
    assert!(make_in(&mut world, root(), "c", FileType::Fifo).is_some());
    let device = NewNode {
        file_type: FileType::CharDevice,
        mode: Mode::new(0o600),
        device: 0x0501,
        target: Vec::new(),
    };
    let (who, directory) = (Credentials::ROOT, root());
    world.start(Operation::Create { directory, name: name("device"), who, new: device, open: false });
    for round in 0..40 {
        let call = |sent: &Sent| match &sent.message {
            Message::Request(request) => Some(request.call.clone()),
            _ => None,
        };
        let returns = |call: &Call| matches!(call, Call::Delegated { returned, .. } if !returned.is_empty());
        let returned: Vec<Call> = world.sent.iter().filter_map(call).filter(returns).collect();
        assert!(returned.is_empty(), "nobody called it back: {returned:?}");
        world.sent.retain(|sent| !matches!(call(sent), Some(Call::Delegate { .. })));
        servers.answer_all(&mut world);
        if round == 10 {
            world.sent.push(append.clone());
        }
        world.pass(Duration::from_millis(1));
    }
    assert!(!world.sent.iter().any(|sent| matches!(sent.message, Message::Data(_))), "all is answered");
}

#[test]
fn files_that_are_open_are_named_when_their_directory_is_given_back_however_many_they_are() {
    let mut world = with_root();
    let names: Vec<String> = (0..OPEN_TOLD_MAX + 20).map(|number| format!("f{number}")).collect();
    let opened: Vec<(OpenFile, Handle)> =
        names.iter().map(|text| make_open(&mut world, root(), text)).collect();
    world.pass(GATHERED);
    while !world.sent.is_empty() {
        let steps = world.take_request();
        done_with_tokens(&mut world, &steps);
    }
    world.start(Operation::Close { file: opened[0].0 });
    call_back(&mut world, NodeId::ROOT);
    let mut told = Vec::new();
    loop {
        let request = world.take_request();
        let Call::Delegated { open, returned, .. } = &request.call else { panic!("{request:?}") };
        assert!(open.len() <= OPEN_TOLD_MAX);
        told.extend(open.iter().copied());
        let is_last = !returned.is_empty();
        assert_eq!(is_last, told.len() == names.len() - 1, "all are named before it is given back");
        done(&mut world, &request);
        if is_last {
            break;
        }
    }
    let mut expected: Vec<NodeId> = opened[1..].iter().map(|(_, node)| node.node).collect();
    told.sort_unstable();
    expected.sort_unstable();
    assert_eq!(told, expected);
}

#[test]
fn the_kernel_keeps_nothing_of_a_directory_that_is_called_back_though_its_name_stays_ours() {
    let (handles, entries, below) = two_below(["called", "ours"]);
    let mut world = with_root_and(entries, below);
    let kept = |world: &mut World, text| {
        let ticket = world.start(lookup(text));
        world.found(ticket).attributes_remaining.0
    };
    assert!(kept(&mut world, "called") > Duration::ZERO);
    world.recall(7, vec![LeaseKey::Delegation(handles[0].node)]);
    assert_eq!(kept(&mut world, "called"), Duration::ZERO);
    assert!(kept(&mut world, "ours") > Duration::ZERO);
}

#[test]
fn what_is_moved_into_a_directory_that_is_called_back_is_moved_by_its_home() {
    let (handles, entries, below) = two_below(["idle", "busy"]);
    let mut world = with_root_and(entries, below);
    let mut made = make("c");
    if let Operation::Create { directory, .. } = &mut made {
        *directory = handles[1];
    }
    let ticket = world.start(made);
    world.found(ticket);
    world.recall(7, vec![LeaseKey::Delegation(handles[0].node)]);
    let ticket = world.start(Operation::Rename {
        source: handles[1],
        source_name: name("c"),
        target: handles[0],
        target_name: name("c"),
        who: Credentials::ROOT,
        mode: RenameMode::Replace,
    });
    assert!(!world.finished.contains_key(&ticket), "the kernel was told how long it may go by the file");
}

#[test]
fn who_calls_a_directory_back_does_not_wait_until_steps_have_gathered() {
    let mut world = with_root();
    let ticket = world.start(make("a"));
    world.found(ticket);
    assert!(world.sent.is_empty(), "more may be decided soon");
    world.recall(7, vec![LeaseKey::Delegation(NodeId::ROOT)]);
    let (number, _) = world.invalidations.pop().unwrap();
    world.step(Event::Invalidated(number));
    let steps = world.take_request();
    assert_eq!(steps_of(&steps).0.len(), 1);
    done(&mut world, &steps);
    assert_eq!(steps_of(&world.take_request()).1, [NodeId::ROOT]);
}

#[test]
fn a_full_batch_is_sent_at_once_and_what_follows_gathers_meanwhile() {
    let mut world = with_root();
    let ticket = world.start(make("0"));
    world.found(ticket);
    let mut renamed = 0;
    let mut rename_until = |world: &mut World, last: usize| {
        while renamed < last {
            let ticket = world.start(Operation::Rename {
                source: root(),
                source_name: name(&renamed.to_string()),
                target: root(),
                target_name: name(&(renamed + 1).to_string()),
                who: Credentials::ROOT,
                mode: RenameMode::Replace,
            });
            assert_eq!(world.result(ticket), Ok(Answer::Done), "decided here");
            renamed += 1;
        }
    };
    rename_until(&mut world, 254);
    assert!(world.sent.is_empty(), "more may be decided soon");
    rename_until(&mut world, 259);
    let first = world.take_request();
    assert_eq!(steps_of(&first).0.len(), 256);
    done(&mut world, &first);
    assert!(world.sent.is_empty(), "nobody waits for the rest");
    world.pass(GATHERED);
    assert_eq!(steps_of(&world.take_request()).0.len(), 4);
}
