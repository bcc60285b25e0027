//! What is decided in a delegated directory is what its home will say of it when it decides the steps again.

use super::delegation::*;
use super::world::*;
use crate::*;
use bearing_proto::client::{
    AttributeChange, Body, Call, Detail, EntryView, Handle, LeaseMs, NewNode, RenameMode,
};
use bearing_proto::delegation::{Change, DelegationView, LentDirectory, LentIds, Step};
use bearing_proto::keys::Key;
use bearing_types::*;
use std::time::Duration;

const SOMEBODY: Credentials = Credentials { uid: Uid(9), gid: Gid(9), groups: Vec::new() };

fn make_directory(world: &mut World, text: &str, mode: u32) -> Handle {
    let (who, mode) = (Credentials::ROOT, Mode::new(mode));
    let ticket = world.start(Operation::MakeDirectory { directory: root(), name: name(text), who, mode });
    world.found(ticket).node
}

fn make_file(world: &mut World, directory: Handle, text: &str) -> Handle {
    let new = NewNode { file_type: FileType::Regular, mode: Mode::new(0o644), device: 0, target: Vec::new() };
    let (who, open) = (Credentials::ROOT, false);
    let ticket = world.start(Operation::Create { directory, name: name(text), who, new, open });
    world.found(ticket).node
}

fn attributes_of(world: &mut World, node: Handle, file_type: FileType) -> Attributes {
    let ticket = world.start(Operation::Attributes { node, file_type });
    world.found(ticket).attributes
}

/// All steps that are sent by now, which are done.
fn steps_sent(world: &mut World) -> Vec<Step> {
    let mut sent = Vec::new();
    while !world.sent.is_empty() {
        let batch = world.take_request();
        done(world, &batch);
        sent.extend(steps_of(&batch).0);
        world.pass(GATHERED);
    }
    sent
}

#[test]
fn who_may_list_a_directory_and_not_search_it_sees_names_and_kinds_only() {
    let mut world = with_root();
    let directory = make_directory(&mut world, "d", 0o704);
    make_file(&mut world, directory, "f");
    for (who, detail, told) in [
        (Credentials::ROOT, Detail::Attributes, true),
        (Credentials::ROOT, Detail::Names, false),
        (SOMEBODY, Detail::Attributes, false),
    ] {
        let (after, count_max) = (Cookie::START, 10);
        let list = Operation::List { directory, who: who.clone(), after, count_max, detail };
        let ticket = world.start(list);
        let Ok(Answer::Listed(listed)) = world.result(ticket) else { panic!("it may be listed") };
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].attributes.is_some(), told, "{who:?} {detail:?}");
    }
}

#[test]
fn a_directory_that_is_renamed_here_changes_as_at_its_home() {
    let mut world = with_root();
    let directory = make_directory(&mut world, "d", 0o755);
    let before = attributes_of(&mut world, directory, FileType::Directory);
    world.pass(Duration::from_millis(1));
    let ticket = world.start(Operation::Rename {
        source: root(),
        source_name: name("d"),
        target: root(),
        target_name: name("e"),
        who: Credentials::ROOT,
        mode: RenameMode::Replace,
    });
    assert_eq!(world.result(ticket), Ok(Answer::Done));
    let after = attributes_of(&mut world, directory, FileType::Directory);
    assert!(after.changed > before.changed && after.modified == before.modified);
    assert_eq!(after.version, before.version.next(), "equal versions are equal attributes");
}

#[test]
fn what_is_made_here_sets_a_time_of_the_directory_that_somebody_put_into_the_future_back_to_the_present() {
    let (handles, entries, mut below) = two_below(["d", "e"]);
    below[0].view.node.attributes.modified = Wall(i64::MAX);
    let mut world = with_root_and(entries, below);
    let before = attributes_of(&mut world, handles[0], FileType::Directory);
    assert_eq!(before.modified, Wall(i64::MAX));
    make_file(&mut world, handles[0], "f");
    let after = attributes_of(&mut world, handles[0], FileType::Directory);
    world.pass(GATHERED);
    let steps = steps_sent(&mut world);
    assert_eq!((after.modified, after.changed), (steps[0].at, steps[0].at));
}

/// The time of access of a file of ours that was read, after its home was told; and the steps that told it.
/// `between` happens after the read.
fn accessed_and_told(mut world: World, between: impl Fn(&mut World, Handle)) -> (Wall, Vec<Step>) {
    let node = make_file(&mut world, root(), "f");
    world.pass(Duration::from_millis(50));
    let (who, read, write, truncate, execute) = (Credentials::ROOT, true, false, false, false);
    let ticket = world.start(Operation::Open { node, who, read, write, truncate, execute });
    assert!(matches!(world.result(ticket), Ok(Answer::Opened(..))));
    between(&mut world, node);
    steps_sent(&mut world);
    world.pass(Duration::from_secs(2));
    world.pass(GATHERED);
    let told = steps_sent(&mut world);
    (attributes_of(&mut world, node, FileType::Regular).accessed, told)
}

/// With the root; its home's clock is behind ours, by this time.
fn noting_accesses(behind: Duration) -> World {
    let config =
        ClientConfig { access_times: true, access_delay: Duration::from_secs(2), ..delegating_config() };
    let mut world = World::open_with(config);
    world.now.wall = Wall(5_000_000_000).after(behind);
    lend_root(world, Vec::new(), Vec::new())
}

#[test]
fn a_read_of_before_the_last_change_is_no_access_here_either() {
    let (accessed, told) = accessed_and_told(noting_accesses(Duration::ZERO), |world, node| {
        world.pass(Duration::from_millis(50));
        let change = AttributeChange { mode: Some(Mode::new(0o600)), ..AttributeChange::default() };
        let (who, file_type) = (Credentials::ROOT, FileType::Regular);
        let ticket = world.start(Operation::SetAttributes { node, file_type, who, change, file: None });
        world.found(ticket);
    });
    assert!(accessed < told[0].at && told.len() == 1, "{told:?}");
    assert_eq!(accessed, Wall(5_000_000_000), "as when it was made");
}

#[test]
fn an_access_is_of_no_time_that_its_home_has_yet_to_see() {
    let (accessed, told) = accessed_and_told(noting_accesses(Duration::from_secs(3600)), |_, _| {});
    assert_eq!((accessed, told.len()), (told[0].at, 1));
}

#[test]
fn in_a_directory_that_was_removed_here_its_home_is_asked_only_after_it_heard_of_that() {
    let mut world = with_root();
    let directory = make_directory(&mut world, "d", 0o755);
    let who = Credentials::ROOT;
    let removed = world.start(Operation::RemoveDirectory { directory: root(), name: name("d"), who });
    assert_eq!(world.result(removed), Ok(Answer::Done));
    world.pass(Duration::from_millis(50));
    let sent = world.take_request();
    let late = world.start(Operation::Unlink { directory, name: name("f"), who: Credentials::ROOT });
    assert!(world.sent.is_empty(), "its home would decide before what was decided here: {:?}", world.sent);
    done(&mut world, &sent);
    let asked = world.take_request();
    assert!(matches!(asked.call, Call::Directory { .. } | Call::Lookup { .. }), "{asked:?}");
    world.reply_done(&asked, Err(Code::NotFound));
    assert_eq!(world.result(late), Err(Code::NotFound));
}

#[test]
fn what_was_asked_for_before_its_directory_was_lent_and_removed_here_is_changed_after_that() {
    let mut world = delegating();
    let lending = ask_for_root(&mut world);
    let ([directory, _], entries, below) = two_below(["d", "e"]);
    let mut made = make("c");
    if let Operation::Create { directory: of, .. } = &mut made {
        *of = directory;
    }
    world.start(made);
    let asked = world.take_request();
    assert!(matches!(asked.call, Call::Directory { .. }), "{asked:?}");
    let view = below[0].view.clone();
    lend(&mut world, &lending, entries, below);
    let who = Credentials::ROOT;
    let removed = world.start(Operation::RemoveDirectory { directory: root(), name: name("d"), who });
    assert_eq!(world.result(removed), Ok(Answer::Done));
    world.reply_done(&asked, Ok(Body::Directory(Box::new(view))));
    world.pass(Duration::from_millis(50));
    let sent = world.take_request();
    assert!(matches!(steps_of(&sent).0[0].change, Change::RemoveDirectory { .. }), "{sent:?}");
    done(&mut world, &sent);
    let changed = world.take_request();
    assert!(matches!(changed.call, Call::Create { .. }), "{changed:?}");
}

#[test]
fn a_directory_of_another_tablet_is_removed_by_its_home_after_what_emptied_it() {
    let tablet_of = |position| map().assignment.tablet_at(position).block;
    let seat_of = |text: &str| root_seat().child(NodeId(6), hash_of(text));
    let elsewhere = |text: &&str| tablet_of(seat_of(text).home) != tablet_of(root().home);
    let text = ["d", "e", "f", "g", "h", "i", "j"].into_iter().find(elsewhere).unwrap();
    let seat = seat_of(text);
    let directory = Handle { node: seat.node, home: seat.home };
    let mut world = with_root_and(vec![lent(directory, text, FileType::Directory)], Vec::new());
    let in_it = |text: &str| {
        let mut made = make(text);
        if let Operation::Create { directory: of, .. } = &mut made {
            *of = directory;
        }
        made
    };
    world.start(in_it("a"));
    world.answer_one(Body::Directory(Box::new(directory_view(seat, 20_000))));
    world.answer_one(entry(file(4, "a"), 0));
    // One change is enough where the directory that it lies in is ours.
    let asked = world.take_request();
    assert!(matches!(asked.call, Call::Delegate { directory: of, .. } if of == directory), "{asked:?}");
    let key = Key::new([9; 32]);
    let entries = vec![lent(file(7, "c"), "c", FileType::Symlink)];
    let view = DelegationView {
        directories: vec![LentDirectory { view: directory_view(seat, 0), entries, whole: true }],
        lease: LeaseMs(10_000),
        ids: LentIds::sign(NodeId(2000), 100, SESSION, &key),
        now: Wall(5_000_000_000),
    };
    world.reply_done(&asked, Ok(Body::Delegation(Box::new(view))));
    let who = Credentials::ROOT;
    let emptied = world.start(Operation::Unlink { directory, name: name("c"), who: who.clone() });
    assert_eq!(world.result(emptied), Ok(Answer::Done));
    let removed = world.start(Operation::RemoveDirectory { directory: root(), name: name(text), who });
    assert!(!world.finished.contains_key(&removed), "its home has not said that it is empty");
    let mut asked = Vec::new();
    for _ in 0..20 {
        while !world.sent.is_empty() {
            let request = world.sent.remove(0).request().clone();
            match &request.call {
                Call::Delegated { .. } => {
                    asked.extend(steps_of(&request).0.iter().map(|_| "unlink"));
                    done(&mut world, &request);
                }
                Call::Directory { .. } => {
                    world.reply_done(&request, Ok(Body::Directory(Box::new(root_view(20_000)))));
                }
                Call::Lookup { .. } => {
                    let (file_type, lease) = (FileType::Directory, LeaseMs(0));
                    let view =
                        EntryView { node: directory, file_type, lease, attributes: None, directory: None };
                    world.reply_done(&request, Ok(Body::Entry(view, None)));
                }
                Call::RemoveDirectory { .. } => {
                    asked.push("rmdir");
                    world.reply_done(&request, Ok(Body::Done));
                }
                other => panic!("{other:?}"),
            }
        }
        world.pass(GATHERED);
    }
    assert_eq!(world.result(removed), Ok(Answer::Done));
    assert_eq!(asked, ["unlink", "rmdir"]);
}

#[test]
fn a_name_that_was_told_under_a_lease_of_its_own_is_forgotten_when_it_is_renamed_here() {
    for lease in [0, 3000] {
        let mut world = World::open_with(delegating_config());
        let ticket = world.start(lookup("c"));
        world.answer_one(Body::Directory(Box::new(root_view(0))));
        world.answer_one(entry(file(7, "c"), lease));
        world.found(ticket);
        let entries = vec![lent(file(7, "c"), "c", FileType::Regular)];
        let mut world = lend_root(world, entries, Vec::new());
        world.invalidations.clear();
        let ticket = world.start(Operation::Rename {
            source: root(),
            source_name: name("c"),
            target: root(),
            target_name: name("k"),
            who: Credentials::ROOT,
            mode: RenameMode::Replace,
        });
        assert_eq!(world.result(ticket), Ok(Answer::Done));
        let moved = Invalidation::Entry { directory: NodeId::ROOT, name: name("k") };
        let forgotten = world.invalidations.iter().any(|(_, what)| what.contains(&moved));
        assert_eq!(forgotten, lease > 0, "{:?}", world.invalidations);
    }
}
