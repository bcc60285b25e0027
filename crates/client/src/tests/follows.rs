//! A program that walks from a delegated directory into one below: that is asked for before it is listed.

use super::delegation::*;
use super::world::*;
use crate::*;
use bearing_placement::Seat;
use bearing_proto::client::{Body, Call, Detail, Handle, ListedEntry};
use bearing_proto::delegation::LentDirectory;
use bearing_types::*;

const LISTED: u32 = 100;

/// A directory in the root whose names and node lie in the root's tablet.
fn below() -> (&'static str, Seat) {
    let tablet_of = |position| map().assignment.tablet_at(position).block;
    let seat_of = |text: &str| root_seat().child(NodeId(6), hash_of(text));
    let here = |text: &&str| tablet_of(seat_of(text).home) == tablet_of(root().home);
    let text = ["d", "e", "f", "g", "h", "i", "j"].into_iter().find(here).unwrap();
    (text, seat_of(text))
}

fn list(directory: Handle) -> Operation {
    let (who, after) = (Credentials::ROOT, Cookie::START);
    Operation::List { directory, who, after, count_max: LISTED, detail: Detail::Names }
}

/// The root is ours, the directory in it is not, and its attributes are known: it has so many entries.
fn world_of(entries: u64) -> (World, Handle, Seat) {
    let (text, seat) = below();
    let directory = Handle { node: seat.node, home: seat.home };
    let mut world = with_root_and(vec![lent(directory, text, FileType::Directory)], Vec::new());
    known(&mut world, directory, seat, entries);
    (world, directory, seat)
}

fn known(world: &mut World, directory: Handle, seat: Seat, entries: u64) {
    let ticket = world.start(Operation::Attributes { node: directory, file_type: FileType::Directory });
    let mut view = directory_view(seat, 20_000);
    for _ in 0..entries {
        bearing_proto::rules::entry_added(&mut view.node.attributes, FileType::Regular, Wall(0));
    }
    world.answer_one(Body::Directory(Box::new(view)));
    world.found(ticket);
}

#[test]
fn a_small_directory_in_one_of_ours_is_asked_for_instead_of_listed() {
    let (mut world, directory, seat) = world_of(3);
    let ticket = world.start(list(directory));
    let asked = world.take_request();
    assert!(matches!(asked.call, Call::Delegate { directory: of, .. } if of == directory), "{asked:?}");
    let entries = vec![lent(file(7, "x"), "x", FileType::Symlink)];
    let now = Wall(5_000_000_000);
    lend_those(
        &mut world,
        &asked,
        now,
        vec![LentDirectory { view: directory_view(seat, 0), entries, whole: true }],
    );
    assert!(world.sent.is_empty(), "what it lists is known");
    let Ok(Answer::Listed(listed)) = world.result(ticket) else { panic!("a listing was expected") };
    assert_eq!(listed.iter().map(|entry| entry.node).collect::<Vec<_>>(), [file(7, "x")]);
}

#[test]
fn what_is_refused_is_listed_by_its_home_and_not_asked_for_again_at_once() {
    let (mut world, directory, _) = world_of(3);
    for is_first in [true, false] {
        let ticket = world.start(list(directory));
        if is_first {
            let asked = world.refuse_one(Code::Unsupported);
            assert!(matches!(asked.call, Call::Delegate { .. }), "{asked:?}");
        }
        let listed = world.answer_one(Body::List { entries: Vec::<ListedEntry>::new(), next: None });
        assert!(matches!(listed.call, Call::List { .. }), "{listed:?}");
        assert!(matches!(world.result(ticket), Ok(Answer::Listed(_))));
    }
}

#[test]
fn large_directories_and_those_of_others_are_only_listed() {
    let (mut world, directory, _) = world_of(1000);
    world.start(list(directory));
    let listed = world.take_request();
    assert!(matches!(listed.call, Call::List { .. }), "{listed:?}");
    // Who may not change it cannot have it.
    let (mut world, directory, _) = world_of(3);
    let who = Credentials { uid: Uid(9), gid: Gid(9), groups: vec![] };
    let after = Cookie::START;
    world.start(Operation::List { directory, who, after, count_max: LISTED, detail: Detail::Names });
    assert!(!matches!(world.take_request().call, Call::Delegate { .. }));
    // The directory that it lies in is nobody's.
    let (_, seat) = below();
    let directory = Handle { node: seat.node, home: seat.home };
    let mut world = delegating();
    known(&mut world, directory, seat, 3);
    world.start(list(directory));
    let listed = world.take_request();
    assert!(matches!(listed.call, Call::List { .. }), "{listed:?}");
}

#[test]
fn a_listing_does_not_wait_for_long_for_what_is_not_lent() {
    let (mut world, directory, _) = world_of(3);
    let ticket = world.start(list(directory));
    let asked = world.take_request();
    assert!(matches!(asked.call, Call::Delegate { .. }), "{asked:?}");
    world.pass(std::time::Duration::from_millis(101));
    let listed = world.take_request();
    assert!(matches!(listed.call, Call::List { .. }), "{listed:?}");
    world.reply_done(&listed, Ok(Body::List { entries: Vec::new(), next: None }));
    assert!(matches!(world.result(ticket), Ok(Answer::Listed(_))));
}
