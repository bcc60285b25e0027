//! Operations on names: what is asked of whom, with what.

use super::world::*;
use crate::*;
use bearing_proto::client::{Body, Call, Detail, EntryView, LeaseMs, ListedEntry, NewNode};
use bearing_types::*;
use std::time::Duration;

fn listed(text: &str, ordinal: u16) -> ListedEntry {
    ListedEntry {
        cookie: Cookie::new(hash_of(text), ordinal),
        name: name(text),
        node: file(5, text),
        file_type: FileType::Regular,
        attributes: None,
        found: None,
    }
}

fn list(after: Cookie, count_max: u32) -> Operation {
    Operation::List {
        directory: root(),
        who: Credentials::ROOT,
        after,
        count_max,
        detail: Detail::Attributes,
    }
}

#[test]
fn a_child_operation_fetches_the_directorys_grant_and_asks_the_childs_position() {
    let mut world = World::open();
    let ticket = world.start(lookup("a"));
    let request = world.answer_one(Body::Directory(Box::new(root_view(0))));
    assert_eq!((request.position, request.call), (root().home, Call::Directory { directory: root() }));
    let request = world.answer_one(entry(file(5, "a"), 0));
    assert_eq!(request.position, root_seat().position_of(hash_of("a")));
    assert_eq!(world.found(ticket).node, file(5, "a"));
}

#[test]
fn attributes_that_the_names_owner_does_not_have_are_asked_of_the_nodes_home() {
    let mut world = with_root_cached();
    let ticket = world.start(lookup("a"));
    let far = bearing_proto::client::Handle { node: NodeId(5), home: Position(1 << 63) };
    let view = EntryView {
        node: far,
        file_type: FileType::Regular,
        lease: LeaseMs(1000),
        attributes: None,
        directory: None,
    };
    world.answer_one(Body::Entry(view, None));
    let sent = world.take_one();
    assert_eq!(sent.to, Target::Server(S2));
    assert_eq!(sent.request().call, Call::Attributes { node: far });
    let request = sent.request().clone();
    world.reply_done(&request, Ok(Body::Node(file_view(far, 1, 1000))));
    assert_eq!(world.found(ticket).node, far);
}

#[test]
fn a_node_that_vanished_between_two_questions_makes_the_lookup_begin_again() {
    let mut world = with_root_cached();
    let ticket = world.start(lookup("a"));
    let view = EntryView {
        node: file(5, "a"),
        file_type: FileType::Regular,
        lease: LeaseMs(1000),
        attributes: None,
        directory: None,
    };
    world.answer_one(Body::Entry(view, None));
    world.refuse_one(Code::Stale);
    let request = world.refuse_one(Code::NotFound);
    assert!(is_lookup(&request.call));
    assert_eq!(world.result(ticket), Err(Code::NotFound));
}

#[test]
fn a_created_file_is_cached_with_its_leases() {
    let mut world = with_root_cached();
    let new = NewNode { file_type: FileType::Regular, mode: Mode::new(0o644), device: 0, target: vec![] };
    let ticket = world.start(Operation::Create {
        directory: root(),
        name: name("a"),
        who: Credentials::ROOT,
        new,
        open: false,
    });
    world.answer_one(entry(file(5, "a"), 10_000));
    world.found(ticket);
    let ticket = world.start(lookup("a"));
    assert_eq!(world.found(ticket).node, file(5, "a"));
}

#[test]
fn a_new_directory_in_another_tablet_is_looked_at_there() {
    let mut world = with_root_cached();
    let ticket = world.start(Operation::MakeDirectory {
        directory: root(),
        name: name("d"),
        who: Credentials::ROOT,
        mode: Mode::new(0o755),
    });
    let seat = root_seat().child(NodeId(6), hash_of("d"));
    let node = bearing_proto::client::Handle { node: NodeId(6), home: seat.home };
    let view = EntryView {
        node,
        file_type: FileType::Directory,
        lease: LeaseMs(1000),
        attributes: None,
        directory: None,
    };
    world.answer_one(Body::Entry(view, None));
    let request = world.answer_one(Body::Directory(Box::new(directory_view(seat, 1000))));
    assert_eq!((request.position, request.call), (seat.home, Call::Directory { directory: node }));
    assert_eq!(world.found(ticket).node, node);
}

#[test]
fn the_parent_of_a_directory_comes_from_its_view() {
    let mut world = with_root_cached();
    let seat = root_seat().child(NodeId(6), hash_of("d"));
    let node = bearing_proto::client::Handle { node: NodeId(6), home: seat.home };
    let ticket = world.start(Operation::Parent { directory: node });
    world.answer_one(Body::Directory(Box::new(directory_view(seat, 1000))));
    assert_eq!(world.found(ticket).node, root());
}

#[test]
fn a_listing_walks_on_to_where_it_is_told_until_it_is_full_or_at_the_end() {
    let mut world = with_root_cached();
    let mut texts = ["a", "b", "c", "d"];
    texts.sort_by_key(|text| hash_of(text));
    let ticket = world.start(list(Cookie::START, 3));
    let request = world.answer_one(Body::List {
        entries: vec![listed(texts[0], 1), listed(texts[1], 1)],
        next: Some(hash_of(texts[2])),
    });
    assert!(matches!(request.call, Call::List { after: Cookie::START, count_max: 3, .. }));
    let request =
        world.answer_one(Body::List { entries: vec![listed(texts[2], 1)], next: Some(hash_of(texts[3])) });
    let expected = Cookie::new(hash_of(texts[2]), 0);
    assert!(matches!(request.call, Call::List { after, count_max: 1, .. } if after == expected));
    assert_eq!(request.position, root_seat().position_of(hash_of(texts[2])));
    let Ok(Answer::Listed(entries)) = world.result(ticket) else { panic!("a listing") };
    assert_eq!(entries.len(), 3);

    let ticket = world.start(list(entries[2].cookie, 3));
    world.answer_one(Body::List { entries: vec![listed(texts[3], 1)], next: None });
    let Ok(Answer::Listed(entries)) = world.result(ticket) else { panic!("a listing") };
    assert_eq!(entries.len(), 1);
}

#[test]
fn a_listing_goes_on_within_names_of_one_hash() {
    let mut world = with_root_cached();
    let ticket = world.start(list(Cookie::START, 10));
    world.answer_one(Body::List { entries: vec![listed("a", 1)], next: Some(hash_of("a")) });
    let request = world.answer_one(Body::List { entries: vec![listed("a", 2)], next: None });
    let expected = Cookie::new(hash_of("a"), 1);
    assert!(matches!(request.call, Call::List { after, .. } if after == expected));
    assert!(matches!(world.result(ticket), Ok(Answer::Listed(entries)) if entries.len() == 2));
}

#[test]
fn a_listing_that_is_sent_in_circles_ends_with_an_error() {
    let mut world = with_root_cached();
    let ticket = world.start(list(Cookie::new(hash_of("a"), 1), 10));
    world.answer_one(Body::List { entries: vec![], next: Some(hash_of("a")) });
    assert_eq!(world.result(ticket), Err(Code::Io));
}

#[test]
fn a_removal_says_what_its_name_leads_to_and_looks_again_if_that_is_over() {
    let mut world = with_root_cached();
    let ticket =
        world.start(Operation::Unlink { directory: root(), name: name("a"), who: Credentials::ROOT });
    world.answer_one(entry(file(5, "a"), 10_000));
    let request = world.refuse_one(Code::Stale);
    assert!(matches!(request.call, Call::Unlink { node: NodeId(5), keep_open: false, .. }));
    // The directory's grant may be what was stale.
    world.answer_one(entry(file(6, "a"), 0));
    world.answer_one(Body::Directory(Box::new(root_view(20_000))));
    let request = world.answer_one(Body::Done);
    assert!(matches!(request.call, Call::Unlink { node: NodeId(6), keep_open: false, .. }));
    assert_eq!(world.result(ticket), Ok(Answer::Done));
}

#[test]
fn a_name_that_is_not_there_is_not_asked_to_go() {
    let mut world = with_root_cached();
    let ticket =
        world.start(Operation::Unlink { directory: root(), name: name("a"), who: Credentials::ROOT });
    world.refuse_one(Code::NotFound);
    assert_eq!(world.result(ticket), Err(Code::NotFound));
}

#[test]
fn that_a_node_has_no_attributes_is_known_as_long_as_its_lease_lasts() {
    let mut world = with_root_cached();
    let node = file(5, "a");
    let ticket = world.start(lookup("a"));
    world.answer_one(entry(node, 1000));
    world.found(ticket);
    let other = Credentials { uid: Uid(9), gid: Gid(9), groups: vec![] };
    let who = other.clone();
    let xattr = move |node, file_type, attribute: &str| {
        let name = XattrName::new(attribute.as_bytes()).unwrap();
        Operation::Xattr { node, file_type, who: who.clone(), name }
    };
    // 0755: others may read, so they may know that there is nothing.
    for (node, file_type) in [(node, FileType::Regular), (root(), FileType::Directory)] {
        let ticket = world.start(xattr(node, file_type, "user.a"));
        assert_eq!(world.result(ticket), Err(Code::NoData));
        let ticket = world.start(Operation::Xattrs { node, file_type, who: other.clone() });
        assert_eq!(world.result(ticket), Ok(Answer::Xattr(vec![])));
    }
    world.pass(Duration::from_secs(2));
    let ticket = world.start(xattr(node, FileType::Regular, "user.a"));
    let request = world.answer_one(Body::Xattr(b"v".to_vec()));
    assert!(matches!(request.call, Call::Xattr { .. }));
    assert_eq!(world.result(ticket), Ok(Answer::Xattr(b"v".to_vec())));
    // A closed file does not even tell that.
    let ticket = world.start(Operation::Attributes { node, file_type: FileType::Regular });
    let mut view = file_view(node, 2, 1000);
    view.attributes.mode = Mode::new(0o700);
    world.answer_one(Body::Node(view));
    world.found(ticket);
    let ticket = world.start(xattr(node, FileType::Regular, "user.a"));
    assert_eq!(world.result(ticket), Err(Code::Access));
    let ticket = world.start(xattr(node, FileType::Regular, "security.a"));
    assert_eq!(world.result(ticket), Err(Code::NoData));
}

#[test]
fn what_is_listed_to_be_looked_up_needs_no_lookups() {
    let mut world = with_root_cached();
    let mut entry = listed("f", 1);
    let attributes = Some(file_view(entry.node, 1, 20_000));
    let (node, file_type) = (entry.node, entry.file_type);
    let found = EntryView { node, file_type, lease: LeaseMs(20_000), attributes, directory: None };
    entry.found = Some(Box::new(found));
    let (directory, who, after) = (root(), Credentials::ROOT, Cookie::START);
    let ticket =
        world.start(Operation::List { directory, who, after, count_max: 10, detail: Detail::Lookups });
    let asked = world.answer_one(Body::List { entries: vec![entry, listed("g", 1)], next: None });
    assert!(matches!(asked.call, Call::List { detail: Detail::Lookups, .. }), "{asked:?}");
    assert!(matches!(world.result(ticket), Ok(Answer::Listed(listed)) if listed.len() == 2));
    let ticket = world.start(lookup("f"));
    assert_eq!(world.found(ticket).node, node);
    world.start(lookup("g"));
    assert!(is_lookup(&world.take_request().call), "nothing was said of it");
}
