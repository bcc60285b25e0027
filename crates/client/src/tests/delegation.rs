//! Directories that are delegated to the client: what is answered at once, what goes out when, and how they
//! are given back and lost.

use super::servers::{Servers, steps_done};
use super::world::*;
use crate::*;
use bearing_placement::Seat;
use bearing_proto::Message;
use bearing_proto::client::{
    AttributeChange, Body, Call, Handle, LeaseKey, LeaseMs, NewNode, RenameMode, Request, TimeChange,
    XattrChange, XattrMode,
};
use bearing_proto::delegation::{Change, DelegationView, LentDirectory, LentEntry, LentIds, LentNode, Step};
use bearing_proto::grant::{OpenRights, OpenToken};
use bearing_proto::keys::Key;
use bearing_types::*;
use std::time::Duration;

pub fn delegating_config() -> ClientConfig {
    ClientConfig { delegates: true, ..config() }
}

pub fn delegating() -> World {
    World::open_with(delegating_config())
}

pub fn make(text: &str) -> Operation {
    let new =
        NewNode { file_type: FileType::Symlink, mode: Mode::new(0o777), device: 0, target: b"x".to_vec() };
    Operation::Create { directory: root(), name: name(text), who: Credentials::ROOT, new, open: false }
}

/// Two links are made in the root by its home; then the root is delegated, as if they had gone meanwhile.
pub fn with_root() -> World {
    with_root_and(Vec::new(), Vec::new())
}

/// The root is delegated with these entries, and with directories below it.
pub fn with_root_and(entries: Vec<LentEntry>, below: Vec<LentDirectory>) -> World {
    lend_root(delegating(), entries, below)
}

pub fn lend_root(mut world: World, entries: Vec<LentEntry>, below: Vec<LentDirectory>) -> World {
    let asked = ask_for_root(&mut world);
    lend(&mut world, &asked, entries, below);
    assert!(world.sent.is_empty());
    world
}

/// Two changes of the root make it worth asking for.
pub fn ask_for_root(world: &mut World) -> Request {
    world.start(make("a"));
    world.answer_one(Body::Directory(Box::new(root_view(20_000))));
    world.answer_one(entry(file(4, "a"), 0));
    world.start(make("b"));
    world.answer_one(entry(file(5, "b"), 0));
    let asked = world.take_request();
    let Call::Delegate { directory, .. } = asked.call else { panic!("{asked:?}") };
    assert_eq!(directory, root());
    asked
}

pub fn lend(world: &mut World, asked: &Request, entries: Vec<LentEntry>, below: Vec<LentDirectory>) {
    lend_at(world, asked, Wall(5_000_000_000), entries, below);
}

/// The same at this time of the owner.
fn lend_at(
    world: &mut World,
    asked: &Request,
    now: Wall,
    entries: Vec<LentEntry>,
    below: Vec<LentDirectory>,
) {
    let directories = [vec![LentDirectory { view: root_view(0), entries, whole: true }], below].concat();
    lend_those(world, asked, now, directories);
}

/// These directories are lent.
pub fn lend_those(world: &mut World, asked: &Request, now: Wall, directories: Vec<LentDirectory>) {
    let Call::Delegate { incarnation, .. } = asked.call else { panic!("{asked:?}") };
    let ids = LentIds::sign(NodeId(1000 * incarnation), 100, SESSION, &Key::new([9; 32]));
    let lent = DelegationView { directories, lease: LeaseMs(10_000), ids, now };
    world.reply_done(asked, Ok(Body::Delegation(Box::new(lent))));
}

pub fn lent(node: Handle, text: &str, file_type: FileType) -> LentEntry {
    let cookie = Cookie::new(hash_of(text), 1);
    let attributes = attributes(file_type, 1);
    let lent = (file_type != FileType::Directory).then_some(LentNode { attributes, extended: false });
    LentEntry { cookie, name: name(text), node, file_type, lent }
}

pub fn steps_of(request: &Request) -> (Vec<Step>, Vec<NodeId>) {
    match &request.call {
        Call::Delegated { steps, returned, .. } => (steps.clone(), returned.clone()),
        other => panic!("steps were expected, not {other:?}"),
    }
}

pub fn done(world: &mut World, request: &Request) {
    world.reply_done(request, Ok(steps_done(&steps_of(request).0)));
}

fn created(step: &Step) -> &Name {
    match &step.change {
        Change::Create { name, .. } => name,
        other => panic!("{other:?}"),
    }
}

#[test]
fn in_a_delegated_directory_all_is_answered_at_once_and_goes_out_in_order_and_together() {
    let mut world = with_root();
    for text in ["c", "d", "e"] {
        let ticket = world.start(make(text));
        assert_eq!(world.found(ticket).attributes.born, Wall(5_000_000_000), "as its home tells time");
    }
    let ticket = world.start(make("d"));
    assert_eq!(world.result(ticket), Err(Code::Exists));
    let ticket = world.start(lookup("nothing"));
    assert_eq!(world.result(ticket), Err(Code::NotFound));
    let ticket =
        world.start(Operation::Unlink { directory: root(), name: name("c"), who: Credentials::ROOT });
    assert_eq!(world.result(ticket), Ok(Answer::Done));
    assert!(world.sent.is_empty(), "the first waits a moment for others");
    world.pass(GATHERED);
    let batch = world.take_request();
    let (steps, returned) = steps_of(&batch);
    let names: Vec<_> = steps[..3].iter().map(created).cloned().collect();
    assert_eq!(names, [name("c"), name("d"), name("e")]);
    assert!(matches!(steps[3].change, Change::Unlink { .. }) && steps.len() == 4 && returned.is_empty());
    world.start(make("f"));
    world.pass(Duration::from_millis(50));
    assert!(world.sent.is_empty(), "one batch at a time");
    done(&mut world, &batch);
    world.pass(GATHERED);
    let next = world.take_request();
    assert_eq!(steps_of(&next).0.iter().map(created).cloned().collect::<Vec<_>>(), [name("f")]);
}

#[test]
fn a_sync_waits_until_all_that_was_decided_before_is_done() {
    let mut world = with_root();
    world.start(make("c"));
    let sync = world.start(Operation::SyncNames);
    world.pass(GATHERED);
    let batch = world.take_request();
    assert!(!world.finished.contains_key(&sync));
    done(&mut world, &batch);
    assert_eq!(world.result(sync), Ok(Answer::Done));
}

#[test]
fn a_chunk_is_finished_when_the_commits_that_were_decided_here_are_done() {
    let world = World::open_with(ClientConfig { delegates: true, chunk_bytes_max: 1, ..config() });
    let (mut world, mut servers) = (lend_root(world, Vec::new(), Vec::new()), Servers::new(1));
    let Operation::Create { directory, who, mut new, .. } = make("f") else { unreachable!() };
    (new.file_type, new.target) = (FileType::Regular, Vec::new());
    let create = Operation::Create { directory, name: name("f"), who, new, open: true };
    let ticket = world.start(create);
    let Ok(Answer::Opened(file, _)) = world.result(ticket) else { panic!("it is open") };
    for offset in [0, 10] {
        world.start(Operation::Write {
            file,
            offset: Some(offset),
            bytes: vec![7; 10],
            set_ids: SetIds::Keep,
        });
        servers.perform(&mut world, Operation::Flush { file }).unwrap();
    }
    while servers.finished.is_empty() {
        assert!(servers.answer_all(&mut world) || world.pass_to_next());
    }
    let open_and_append = ["open chunk avoiding []", "append"];
    assert_eq!(servers.log, [&open_and_append[..], &open_and_append, &["steps", "finish"]].concat());
}

#[test]
fn what_is_being_appended_while_its_directory_is_given_back_is_committed_at_its_home() {
    let (mut world, mut servers) = (with_root(), Servers::new(1));
    let Operation::Create { directory, who, mut new, .. } = make("f") else { unreachable!() };
    (new.file_type, new.target) = (FileType::Regular, Vec::new());
    let create = Operation::Create { directory, name: name("f"), who, new, open: true };
    let ticket = world.start(create);
    let Ok(Answer::Opened(file, found)) = world.result(ticket) else { panic!("it is open") };
    let node = found.node;
    world.recall(7, vec![LeaseKey::Delegation(NodeId::ROOT)]);
    let (number, _) = world.invalidations.pop().unwrap();
    world.step(Event::Invalidated(number));
    world.pass(GATHERED);
    let made = world.take_request();
    world.start(Operation::Write { file, offset: Some(0), bytes: vec![7; 10], set_ids: SetIds::Keep });
    let flush = world.start(Operation::Flush { file });
    assert!(servers.answer_all(&mut world), "a chunk is opened");
    let append = world.take_one();
    assert!(matches!(append.message, Message::Data(_)), "{append:?}");
    let key = Key::new([9; 32]);
    let token = OpenToken::sign(node.node, SESSION, OpenRights::ReadWrite, &key);
    let Body::Steps(mut told) = steps_done(&steps_of(&made).0) else { unreachable!() };
    told.steps[0].token = Some(token);
    world.reply_done(&made, Ok(Body::Steps(told)));
    world.pass(GATHERED);
    let returning = world.take_request();
    assert_eq!(steps_of(&returning), (vec![], vec![NodeId::ROOT]));
    done(&mut world, &returning);
    servers.put(node, "f");
    world.sent.push(append);
    assert_eq!(servers.run(&mut world, flush), Ok(Answer::Done));
    assert_eq!(servers.log.last().map(String::as_str), Some("commit"));
    assert!(!world.notes.iter().any(|note| matches!(note, Note::WritesLost(..))), "{:?}", world.notes);
}

/// Makes a file of root's in the directory, closed again.
fn make_file(world: &mut World, mode: u32) -> Handle {
    let Operation::Create { directory, who, .. } = make("f") else { unreachable!() };
    let new = NewNode { file_type: FileType::Regular, mode: Mode::new(mode), device: 0, target: Vec::new() };
    let create = Operation::Create { directory, name: name("f"), who, new, open: false };
    let ticket = world.start(create);
    world.found(ticket).node
}

const SOMEBODY: Credentials = Credentials { uid: Uid(9), gid: Gid(9), groups: Vec::new() };

#[test]
fn a_program_that_was_made_here_is_executed_by_its_x_bit_and_read_by_its_r_bit() {
    let mut world = with_root();
    let node = make_file(&mut world, 0o711);
    let mut open = |execute| {
        let (who, read, write, truncate) = (SOMEBODY, true, false, false);
        let ticket = world.start(Operation::Open { node, who, read, write, truncate, execute });
        world.result(ticket).map(|_| ())
    };
    assert_eq!((open(true), open(false)), (Ok(()), Err(Code::Access)));
}

#[test]
fn what_somebody_writes_here_takes_the_set_id_bits_of_a_file_away_before_it_is_answered() {
    let (mut world, mut servers) = (with_root(), Servers::new(1));
    let node = make_file(&mut world, 0o6777);
    let open =
        Operation::Open { node, who: SOMEBODY, read: false, write: true, truncate: false, execute: false };
    let ticket = world.start(open);
    let Ok(Answer::Opened(file, _)) = world.result(ticket) else { panic!("it is open") };
    let write = |set_ids| Operation::Write { file, offset: Some(0), bytes: vec![7; 10], set_ids };
    let attributes = Operation::Attributes { node, file_type: FileType::Regular };
    for (set_ids, mode) in [(SetIds::Keep, 0o6777), (SetIds::Clear(Gid(8)), 0o777)] {
        servers.perform(&mut world, write(set_ids)).unwrap();
        let ticket = world.start(attributes.clone());
        assert_eq!(world.found(ticket).attributes.mode, Mode::new(mode));
    }
}

#[test]
fn a_call_back_is_answered_after_the_kernel_forgot_and_the_last_step_is_done() {
    let mut world = with_root();
    let ticket = world.start(make("c"));
    let c = world.found(ticket).node;
    let kept = |world: &mut World| {
        let ticket = world.start(Operation::Attributes { node: c, file_type: FileType::Symlink });
        world.found(ticket).attributes_remaining.0
    };
    assert!(kept(&mut world) > Duration::from_secs(2));
    world.recall(7, vec![LeaseKey::Delegation(NodeId::ROOT)]);
    assert_eq!(kept(&mut world), Duration::ZERO, "the kernel would keep that after it is given back");
    let (number, forgotten) = world.invalidations.pop().unwrap();
    let is_node = |what: &Invalidation| matches!(what, Invalidation::Node { .. });
    assert!(forgotten.len() == 2 && forgotten.iter().all(is_node), "names are kept: {forgotten:?}");
    let ticket = world.start(make("d"));
    assert_eq!(
        world.found(ticket).name_remaining,
        Remaining(Duration::ZERO),
        "goes on, and the kernel keeps nothing"
    );
    world.step(Event::Invalidated(number));
    let waiting = world.start(make("e"));
    world.pass(GATHERED);
    let batch = world.take_request();
    assert_eq!(steps_of(&batch).0.len(), 2);
    done(&mut world, &batch);
    world.pass(GATHERED);
    let mut requests = world.sent.iter().map(|sent| sent.request().clone());
    let returning = requests.find(|request| matches!(request.call, Call::Delegated { .. })).unwrap();
    drop(requests);
    world.sent.clear();
    assert!(!world.finished.contains_key(&waiting), "its home decides it");
    assert_eq!(steps_of(&returning), (vec![], vec![NodeId::ROOT]));
    done(&mut world, &returning);
    let told = |sent: &Sent| matches!(&sent.message, Message::Recalled(answer) if answer.number == 7);
    assert!(world.sent.iter().any(told), "{:?}", world.sent);
}

/// The root, with a link in it, is called back and given back.
pub fn given_back() -> World {
    let mut world = with_root();
    let ticket = world.start(make("c"));
    let remaining = world.found(ticket).name_remaining.0;
    assert!(remaining > Duration::from_secs(2) && remaining < Duration::from_millis(2_500), "{remaining:?}");
    world.pass(GATHERED);
    let batch = world.take_request();
    done(&mut world, &batch);
    world.recall(7, vec![LeaseKey::Delegation(NodeId::ROOT)]);
    let (number, _) = world.invalidations.pop().unwrap();
    world.step(Event::Invalidated(number));
    world.pass(GATHERED);
    world
}

fn entry_c() -> Invalidation {
    Invalidation::Entry { directory: NodeId::ROOT, name: name("c") }
}

#[test]
fn names_that_the_kernel_keeps_are_leased_with_the_return_and_forgotten_when_they_are_recalled() {
    let mut world = given_back();
    let returning = world.take_request();
    let kept = matches!(&returning.call, Call::Delegated { names_kept: true, over: false, .. });
    assert!(kept, "{returning:?}");
    done(&mut world, &returning);
    world.sent.clear();
    world.recall(8, vec![LeaseKey::Names(NodeId::ROOT)]);
    let (number, forgotten) = world.invalidations.pop().unwrap();
    assert_eq!(forgotten, [entry_c()]);
    assert!(world.sent.is_empty(), "not before the kernel has");
    world.step(Event::Invalidated(number));
    let told = |sent: &Sent| matches!(&sent.message, Message::Recalled(answer) if answer.number == 8);
    assert!(world.sent.iter().any(told), "{:?}", world.sent);
    world.recall(9, vec![LeaseKey::Names(NodeId::ROOT)]);
    assert!(world.invalidations.is_empty(), "there are none any more");
}

#[test]
fn names_are_forgotten_also_when_their_recall_comes_before_the_answer_that_leases_them() {
    let mut world = given_back();
    world.recall(8, vec![LeaseKey::Names(NodeId::ROOT)]);
    assert_eq!(world.invalidations.pop().unwrap().1, [entry_c()]);
    let mut world = given_back();
    world.recall(8, vec![]);
    assert!(world.invalidations.pop().unwrap().1.contains(&entry_c()), "a new owner knows of no leases");
}

/// Two links are made in the root by its home. Whether the root is asked for then.
fn asks_for_root_after_two_changes(world: &mut World, first: u64) -> bool {
    root_asked_for(world, first).is_some()
}

/// The same, and how.
pub fn root_asked_for(world: &mut World, first: u64) -> Option<Request> {
    world.sent.clear();
    for (number, text) in [(first, "x"), (first + 1, "y")] {
        let (text, mut answered) = (format!("{text}{first}"), 0);
        world.start(make(&text));
        while let Some(sent) = world.sent.get(answered) {
            let request = sent.request().clone();
            answered += 1;
            match &request.call {
                Call::Directory { .. } => {
                    world.reply_done(&request, Ok(Body::Directory(Box::new(root_view(20_000)))));
                }
                Call::Create { .. } => world.reply_done(&request, Ok(entry(file(number, &text), 0))),
                Call::Delegate { .. } => return Some(request),
                _ => {}
            }
        }
        world.sent.clear();
    }
    None
}

#[test]
fn a_directory_is_not_asked_for_again_while_its_home_has_not_said_that_it_was_given_back() {
    let mut world = given_back();
    let returning = world.take_request();
    // Longer than a directory that was called back is left alone.
    world.pass(Duration::from_secs(3));
    assert!(!asks_for_root_after_two_changes(&mut world, 30), "its return, done late, would end the new one");
    done(&mut world, &returning);
    world.pass(Duration::from_secs(3));
    assert!(asks_for_root_after_two_changes(&mut world, 40));
}

#[test]
fn of_names_that_the_kernel_has_long_asked_for_again_nothing_is_forgotten() {
    let mut world = given_back();
    let returning = world.take_request();
    done(&mut world, &returning);
    world.pass(Duration::from_millis(2_500));
    world.recall(8, vec![LeaseKey::Names(NodeId::ROOT)]);
    assert!(world.invalidations.is_empty(), "{:?}", world.invalidations);
}

#[test]
fn a_batch_that_its_owner_refuses_is_lost_and_not_sent_again() {
    let mut world = with_root();
    world.start(make("c"));
    world.pass(GATHERED);
    let batch = world.take_request();
    for _ in 0..110 {
        world.pass(Duration::from_millis(100));
    }
    world.reply_done(&batch, Err(Code::Stale));
    assert!(world.notes.iter().any(|note| matches!(note, Note::StepsLost(1))), "{:?}", world.notes);
    world.sent.clear();
    world.pass(Duration::from_secs(3));
    let requests: Vec<Request> = world.sent.iter().map(|sent| sent.request().clone()).collect();
    assert!(requests.iter().all(|request| request.sequence != batch.sequence), "{requests:?}");
    let fence = |request: &Request| matches!(request.call, Call::Delegated { over: true, .. });
    assert!(requests.iter().any(fence), "its owner hears that it is over, until it answers: {requests:?}");
}

#[test]
fn what_was_lent_waits_for_an_owner_that_was_away_longer_than_the_lease_and_goes_on_when_it_is_back() {
    let mut world = with_root();
    world.start(make("c"));
    world.pass(GATHERED);
    let batch = world.take_request();
    for _ in 0..1000 {
        world.pass(Duration::from_millis(100));
    }
    let (sync, looked) = (world.start(Operation::SyncNames), world.start(lookup("c")));
    world.pass(Duration::from_millis(50));
    let open = [sync, looked].iter().all(|ticket| !world.finished.contains_key(ticket));
    assert!(open, "nothing is served, and nobody is told that it is stable");
    world.sent.clear();
    done(&mut world, &batch);
    assert_eq!(world.result(sync), Ok(Answer::Done));
    world.pass(Duration::from_millis(50));
    let renewal = world.take_request();
    assert!(!world.finished.contains_key(&looked), "the answer was to a question of long ago");
    done(&mut world, &renewal);
    world.pass(Duration::from_millis(50));
    world.found(looked);
    assert!(!world.notes.iter().any(|note| matches!(note, Note::StepsLost(_))), "{:?}", world.notes);
}

#[test]
fn what_is_not_done_when_the_lease_ends_is_lost_if_its_owner_refuses_it_and_told_to_the_next_who_syncs() {
    let mut world = with_root();
    world.start(make("c"));
    world.pass(GATHERED);
    let batch = world.take_request();
    for _ in 0..200 {
        world.pass(Duration::from_millis(100));
    }
    assert!(!world.notes.iter().any(|note| matches!(note, Note::StepsLost(_))), "{:?}", world.notes);
    world.reply_done(&batch, Err(Code::Stale));
    assert!(world.notes.iter().any(|note| matches!(note, Note::StepsLost(1))), "{:?}", world.notes);
    let sync = world.start(Operation::SyncNames);
    assert_eq!(world.result(sync), Err(Code::Io));
    let sync = world.start(Operation::SyncNames);
    assert_eq!(world.result(sync), Ok(Answer::Done), "told once");
    world.sent.clear();
    let ticket = world.start(lookup("c"));
    world.pass(Duration::from_millis(10));
    assert!(!world.finished.contains_key(&ticket), "nothing of it is served");
}

#[test]
fn what_was_lent_with_a_directory_is_renamed_changed_and_removed_without_asking() {
    let mut world = with_root_and(vec![lent(file(20, "old"), "old", FileType::Regular)], Vec::new());
    let ticket = world.start(lookup("old"));
    assert_eq!(world.found(ticket).node, file(20, "old"));
    let who = Credentials::ROOT;
    let ticket = world.start(Operation::Rename {
        source: root(),
        source_name: name("old"),
        target: root(),
        target_name: name("new"),
        who: who.clone(),
        mode: RenameMode::Replace,
    });
    assert_eq!(world.result(ticket), Ok(Answer::Done));
    let change = AttributeChange { mode: Some(Mode::new(0o600)), ..AttributeChange::default() };
    let (node, file_type) = (file(20, "old"), FileType::Regular);
    let set = Operation::SetAttributes { node, file_type, who: who.clone(), change, file: None };
    let ticket = world.start(set);
    assert_eq!(world.found(ticket).attributes.mode, Mode::new(0o600));
    let ticket = world.start(Operation::Unlink { directory: root(), name: name("new"), who });
    assert_eq!(world.result(ticket), Ok(Answer::Done));
    assert!(world.sent.is_empty());
    world.pass(GATHERED);
    let batch = world.take_request();
    let kinds = steps_of(&batch).0;
    assert!(matches!(kinds[0].change, Change::Rename { .. }), "{kinds:?}");
    assert!(matches!(kinds[1].change, Change::SetAttributes { .. }), "{kinds:?}");
    assert!(matches!(kinds[2].change, Change::Unlink { keep_open: false, .. }), "{kinds:?}");
}

#[test]
fn a_file_that_was_lent_is_like_any_other_once_it_is_opened() {
    let mut world = with_root_and(vec![lent(file(20, "old"), "old", FileType::Regular)], Vec::new());
    let (node, who) = (file(20, "old"), Credentials::ROOT);
    world.start(Operation::Open { node, who, read: true, write: true, truncate: false, execute: false });
    let (number, forgotten) = world.invalidations.pop().unwrap();
    assert_eq!(forgotten, [Invalidation::Node { node: NodeId(20) }]);
    world.step(Event::Invalidated(number));
    assert!(matches!(world.take_request().call, Call::Open { .. }));
}

#[test]
fn a_file_that_is_lent_while_a_link_to_it_is_made_is_its_homes_before_that_is_asked() {
    let mut world = delegating();
    let lending = ask_for_root(&mut world);
    let linked = file(20, "old");
    let elsewhere = Seat { node: NodeId(9), home: Position(9 << 56), ..root_seat() };
    let directory = Handle { node: elsewhere.node, home: elsewhere.home };
    let link = Operation::Link { node: linked, directory, name: name("new"), who: Credentials::ROOT };
    let ticket = world.start(link);
    let asked = world.take_request();
    assert!(matches!(asked.call, Call::Directory { .. }), "{asked:?}");
    // The directory in which it was is lent now, and it with it.
    lend(&mut world, &lending, vec![lent(linked, "old", FileType::Regular)], Vec::new());
    world.reply_done(&asked, Ok(Body::Directory(Box::new(directory_view(elsewhere, 20_000)))));
    assert!(world.sent.is_empty());
    let (number, forgotten) = world.invalidations.pop().unwrap();
    assert_eq!(forgotten, [Invalidation::Node { node: linked.node }]);
    world.step(Event::Invalidated(number));
    let asked = world.answer_one(entry(linked, 0));
    assert!(matches!(asked.call, Call::Link { .. }), "{asked:?}");
    world.result(ticket).unwrap();
    // What was lent of it is not shown any more.
    world.start(Operation::Attributes { node: linked, file_type: FileType::Regular });
    assert!(matches!(world.take_request().call, Call::Attributes { .. }));
}

#[test]
fn a_file_that_was_opened_by_its_home_is_removed_without_asking_once_nothing_of_it_is_under_way() {
    let mut world = with_root_and(vec![lent(file(20, "old"), "old", FileType::Regular)], Vec::new());
    let (node, who) = (file(20, "old"), Credentials::ROOT);
    let opening =
        world.start(Operation::Open { node, who, read: true, write: false, truncate: false, execute: false });
    let (number, _) = world.invalidations.pop().unwrap();
    world.step(Event::Invalidated(number));
    world.answer_one(Body::Opened(file_view(node, 1, 0), None));
    let Ok(Answer::Opened(open, _)) = world.result(opening) else { panic!("it was opened") };
    world.start(Operation::Close { file: open });
    let remove = Operation::Unlink { directory: root(), name: name("old"), who: Credentials::ROOT };
    let ticket = world.start(remove);
    assert_eq!(world.result(ticket), Ok(Answer::Done));
    assert!(world.sent.is_empty() && world.invalidations.is_empty(), "the directory stays ours");
    world.pass(GATHERED);
    let steps = steps_of(&world.take_request()).0;
    assert!(matches!(steps[0].change, Change::Unlink { keep_open: false, .. }), "{steps:?}");
}

#[test]
fn a_file_that_is_open_by_its_home_is_removed_by_it() {
    let mut world = with_root_and(vec![lent(file(20, "old"), "old", FileType::Regular)], Vec::new());
    let (node, who) = (file(20, "old"), Credentials::ROOT);
    world.start(Operation::Open { node, who, read: true, write: false, truncate: false, execute: false });
    let (number, _) = world.invalidations.pop().unwrap();
    world.step(Event::Invalidated(number));
    world.answer_one(Body::Opened(file_view(node, 1, 0), None));
    world.start(Operation::Unlink { directory: root(), name: name("old"), who: Credentials::ROOT });
    let asked = world.take_request();
    assert!(!matches!(asked.call, Call::Delegated { .. }), "{asked:?}");
}

#[test]
fn asking_how_much_room_there_is_leaves_a_directory_delegated() {
    let mut world = with_root();
    let made = world.start(make("c"));
    for node in [root(), world.found(made).node] {
        let ticket = world.start(Operation::Quota { node });
        assert_eq!(world.result(ticket), Ok(Answer::Quota(None)));
    }
    assert!(world.sent.is_empty() && world.invalidations.is_empty());
}

/// Two empty directories, numbers 30 and 31, that are lent with the root.
pub fn two_below(names: [&str; 2]) -> ([Handle; 2], Vec<LentEntry>, Vec<LentDirectory>) {
    let seat = |number: u64, text: &str| {
        let node = NodeId(30 + number);
        Seat { node, ..root_seat().child(node, hash_of(text)) }
    };
    let seats = [seat(0, names[0]), seat(1, names[1])];
    let handles = seats.map(|seat| Handle { node: seat.node, home: seat.home });
    let entries = handles.iter().zip(names).map(|(node, text)| lent(*node, text, FileType::Directory));
    let below =
        seats.map(|seat| LentDirectory { view: directory_view(seat, 0), entries: Vec::new(), whole: true });
    (handles, entries.collect(), below.to_vec())
}

#[test]
fn directories_below_one_that_is_called_back_go_with_it_if_nothing_happens_in_them() {
    let (handles, entries, below) = two_below(["idle", "busy"]);
    let mut world = with_root_and(entries, below);
    world.pass(Duration::from_millis(100));
    let mut made = make("c");
    if let Operation::Create { directory, .. } = &mut made {
        *directory = handles[1];
    }
    let ticket = world.start(made);
    world.found(ticket);
    world.recall(7, vec![LeaseKey::Delegation(NodeId::ROOT)]);
    let (number, _) = world.invalidations.pop().unwrap();
    world.step(Event::Invalidated(number));
    world.pass(GATHERED);
    let batch = world.take_request();
    done(&mut world, &batch);
    world.pass(GATHERED);
    assert_eq!(steps_of(&world.take_request()).1, [NodeId::ROOT, NodeId(30)]);
}

#[test]
fn of_more_than_may_be_held_what_was_used_longest_ago_is_given_back() {
    let (handles, entries, below) = two_below(["old", "new"]);
    let config = ClientConfig { delegates: true, delegated_entries_max: 5, ..config() };
    let mut world = lend_root(World::open_with(config), entries, below);
    for directory in handles {
        world.pass(Duration::from_millis(100));
        let mut made = make("a");
        if let Operation::Create { directory: of, .. } = &mut made {
            *of = directory;
        }
        world.start(made);
        world.pass(GATHERED);
        let batch = world.take_request();
        done(&mut world, &batch);
    }
    world.start(lookup("new"));
    for _ in 0..40 {
        world.pass(Duration::from_millis(100));
        while let Some((number, _)) = world.invalidations.pop() {
            world.step(Event::Invalidated(number));
        }
        if let Some(Sent { message: Message::Request(request), .. }) = world.sent.last() {
            let (request, returned) = (request.clone(), steps_of(request).1);
            world.sent.clear();
            done(&mut world, &request);
            if !returned.is_empty() {
                assert_eq!(returned, [handles[0].node]);
                return;
            }
        }
    }
    panic!("nothing was given back");
}

#[test]
fn nothing_is_served_past_the_end_of_a_lease_while_a_batch_is_put_off() {
    let mut world = with_root();
    world.pass(Duration::from_millis(3_400));
    let renewal = world.take_request();
    world.start(make("c"));
    done(&mut world, &renewal);
    for _ in 0..200 {
        world.pass(Duration::from_millis(100));
    }
    let looked = world.start(lookup("c"));
    world.pass(Duration::from_millis(50));
    assert!(!world.finished.contains_key(&looked));
}

#[test]
fn what_was_lost_is_told_to_a_sync_too_while_an_end_that_will_tell_it_is_not_answered_yet() {
    let mut world = with_root();
    world.start(make("c"));
    world.pass(GATHERED);
    let batch = world.take_request();
    world.reply_done(&batch, Err(Code::Stale));
    world.sent.clear();
    let end = world.start(Operation::End);
    assert!(!world.finished.contains_key(&end), "the session is being closed");
    let sync = world.start(Operation::SyncNames);
    assert_eq!(world.result(sync), Err(Code::Io));
}

#[test]
fn the_end_of_the_session_gives_back_what_is_lent_and_waits_for_no_server_that_is_silent() {
    for answers in [true, false] {
        let mut world = with_root();
        world.start(make("c"));
        world.pass(GATHERED);
        let end = world.start(Operation::End);
        let steps = world.take_request();
        assert_eq!(steps_of(&steps).0.len(), 1, "first all is sent");
        done(&mut world, &steps);
        let given = world.take_request();
        let Call::Delegated { over: true, incarnation, .. } = given.call else { panic!("{given:?}") };
        assert!(matches!(steps.call, Call::Delegated { incarnation: sent, .. } if sent == incarnation));
        if answers {
            world.reply_done(&given, Ok(steps_done(&[])));
        } else {
            world.pass(config().finish_timeout);
            world.sent.retain(|sent| !matches!(sent.request().call, Call::Delegated { .. }));
        }
        world.kernel_forgets();
        let closing = world.take_request();
        assert_eq!(closing.call, Call::CloseSession);
        world.reply_done(&closing, Ok(Body::Done));
        assert_eq!(world.result(end), Ok(Answer::Done), "{answers}");
    }
}

/// A list that names these users beside the classes of permission bits.
fn set_list(node: Handle, file_type: FileType, users: &[u32], mode: u32) -> Operation {
    let rights = |shift: u32| (mode >> shift & 7) as u8;
    let users: Vec<(Uid, u8)> = users.iter().map(|user| (Uid(*user), 4)).collect();
    let mask = (!users.is_empty()).then_some(7);
    let named = bearing_types::Named { users, group: rights(3), groups: Vec::new() };
    let list = bearing_types::Acl { owner: rights(6), other: rights(0), named, mask };
    let change = XattrChange::Set { value: list.encode(), mode: XattrMode::Any };
    let name = XattrName::of_list(XattrSpace::AccessList).unwrap();
    Operation::SetXattr { node, file_type, who: Credentials::ROOT, name, change }
}

#[test]
fn a_list_that_says_no_more_than_permission_bits_is_a_chmod_and_decided_here_like_one() {
    let mut world = with_root();
    let (who, mode) = (Credentials::ROOT, Mode::new(0o2700));
    let make = Operation::MakeDirectory { directory: root(), name: name("d"), who: who.clone(), mode };
    let ticket = world.start(make);
    let directory = world.found(ticket).node;
    let kind = FileType::Directory;
    let ticket = world.start(set_list(directory, kind, &[], 0o751));
    assert_eq!(world.result(ticket), Ok(Answer::Done));
    let owner = AttributeChange {
        uid: Some(Uid(5)),
        modified: Some(TimeChange::To(Wall(77))),
        ..AttributeChange::default()
    };
    let ticket = world.start(Operation::SetAttributes {
        node: directory,
        file_type: kind,
        who: who.clone(),
        change: owner,
        file: None,
    });
    let seen = world.found(ticket).attributes;
    assert_eq!((seen.mode, seen.uid, seen.modified), (Mode::new(0o2751), Uid(5), Wall(77)));
    let name = XattrName::of_list(XattrSpace::DefaultList).unwrap();
    let change = XattrChange::Remove;
    let ticket = world.start(Operation::SetXattr { node: directory, file_type: kind, who, name, change });
    assert_eq!(world.result(ticket), Err(Code::NoData));
    assert!(world.sent.is_empty());
    world.pass(GATHERED);
    let batch = world.take_request();
    let steps = steps_of(&batch).0;
    let modes: Vec<Option<Mode>> = steps
        .iter()
        .filter_map(|step| match &step.change {
            Change::SetAttributes { change, .. } => Some(change.mode),
            _ => None,
        })
        .collect();
    assert_eq!(modes, [Some(Mode::new(0o2751)), None]);
    done(&mut world, &batch);
    // A list that says more is its home's, which has heard of all that was decided before.
    world.start(set_list(directory, kind, &[7], 0o751));
    assert!(matches!(world.take_request().call, Call::SetXattr { .. }));
}

#[test]
fn whoever_may_not_search_a_directory_after_its_chmod_here_finds_nothing_in_it() {
    let mut world = with_root();
    let user = Credentials { uid: Uid(9), gid: Gid(9), groups: Vec::new() };
    let (who, mode) = (Credentials::ROOT, Mode::new(0o755));
    let make = Operation::MakeDirectory { directory: root(), name: name("d"), who: who.clone(), mode };
    let ticket = world.start(make);
    let directory = world.found(ticket).node;
    let look = Operation::Lookup { directory, name: name("x"), who: user };
    let ticket = world.start(look.clone());
    assert_eq!(world.result(ticket), Err(Code::NotFound));
    let change = AttributeChange { mode: Some(Mode::new(0o700)), ..AttributeChange::default() };
    let file_type = FileType::Directory;
    world.start(Operation::SetAttributes { node: directory, file_type, who, change, file: None });
    let ticket = world.start(look);
    assert_eq!(world.result(ticket), Err(Code::Access));
    assert!(world.sent.is_empty());
}

#[test]
fn what_is_decided_here_is_never_older_than_what_was_lent_though_the_clock_was_read_late_before() {
    let mut world = given_back();
    let returned = world.take_request();
    done(&mut world, &returned);
    world.pass(Duration::from_millis(30));
    assert!(asks_for_root_after_two_changes(&mut world, 60));
    let asked = world.sent.pop().unwrap().request().clone();
    world.sent.clear();
    let late = Wall(9_000_000_000);
    lend_at(&mut world, &asked, late, Vec::new(), Vec::new());
    world.start(make("d"));
    world.pass(GATHERED);
    let batch = world.take_request();
    assert!(steps_of(&batch).0[0].at >= late, "{batch:?}");
}
