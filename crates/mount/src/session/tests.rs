//! Paths and files on a filesystem in memory.

use super::*;
use crate::memory::{MemoryTree, SOMEBODY};
use crate::path::LINKS_MAX;
use proptest::prelude::*;
use std::time::Duration;

fn sessions() -> (Session, Session) {
    let tree: Arc<dyn Caller> = Arc::new(MemoryTree::new(Duration::ZERO));
    let root = Session::new(tree.clone(), Credentials::ROOT).unwrap();
    (root, Session::new(tree, SOMEBODY).unwrap())
}

fn session() -> Session {
    sessions().0
}

fn directory_mode() -> Mode {
    Mode::new(0o755)
}

fn file_mode() -> Mode {
    Mode::new(0o644)
}

fn reason<T>(result: Result<T, PathError>) -> Reason {
    result.err().unwrap().reason
}

#[test]
fn directories_are_made_with_those_above_them_and_again_without_harm() {
    let session = session();
    session.make_directories(b"/a/b//c/", directory_mode()).unwrap();
    session.make_directories(b"a/b/c", directory_mode()).unwrap();
    session.make_directories(b"/", directory_mode()).unwrap();
    assert!(session.stat(b"/a/b/c").unwrap().attributes.is_directory());
    session.write_file(b"/a/file", file_mode(), b"x").unwrap();
    let refused = session.make_directories(b"/a/file", directory_mode());
    assert_eq!(reason(refused), Reason::Refused(Code::NotDirectory));
    assert_eq!(reason(session.make_directory(b"/", directory_mode())), Reason::NoName);
}

#[test]
fn a_file_gives_back_what_was_written_over_many_parts() {
    let session = session();
    let content: Vec<u8> = (0..(2 * PART_BYTES + 17)).map(|at| (at * 7) as u8).collect();
    session.write_file(b"/big", file_mode(), &content).unwrap();
    assert!(session.read_file(b"/big").unwrap() == content);
    session.write_file(b"/big", file_mode(), b"short").unwrap();
    assert_eq!(session.read_file(b"/big").unwrap(), b"short", "it was cut first");
    let file = session.open(b"/big", OpenMode::ReadWrite).unwrap();
    file.append(b"er").unwrap();
    assert_eq!(file.read_at(3, 100).unwrap(), b"rter");
    file.close().unwrap();
}

#[test]
fn opening_makes_replaces_or_refuses_as_asked() {
    let session = session();
    let not_found = Reason::Refused(Code::NotFound);
    assert_eq!(reason(session.open(b"/f", OpenMode::Read)), not_found);
    session.open(b"/f", OpenMode::CreateNew(file_mode())).unwrap().close().unwrap();
    let again = session.open(b"/f", OpenMode::CreateNew(file_mode()));
    assert_eq!(reason(again), Reason::Refused(Code::Exists));
    session.open(b"/f", OpenMode::Create(file_mode())).unwrap().write_at(0, b"kept").unwrap();
    session.open(b"/f", OpenMode::Create(file_mode())).unwrap().close().unwrap();
    assert_eq!(session.read_file(b"/f").unwrap(), b"kept");
    assert_eq!(reason(session.open(b"/", OpenMode::Read)), Reason::Refused(Code::IsDirectory));
}

#[test]
fn links_are_followed_from_where_they_stand() {
    let session = session();
    session.make_directories(b"/a/b", directory_mode()).unwrap();
    session.write_file(b"/a/target", file_mode(), b"here").unwrap();
    session.make_link(b"/a/b/up", b"../target").unwrap();
    session.make_link(b"/jump", b"/a/b").unwrap();
    assert_eq!(session.read_file(b"/jump/up").unwrap(), b"here");
    assert_eq!(
        session.read_file(b"/jump/../target").unwrap(),
        b"here",
        ".. is the parent of the link's target"
    );
    assert_eq!(session.read_link(b"/jump").unwrap(), b"/a/b");
    let link = session.find(b"/jump", LastLink::Keep).unwrap();
    assert_eq!(link.attributes.file_type, FileType::Symlink);
    assert!(session.find(b"/jump/", LastLink::Keep).unwrap().attributes.is_directory());
}

#[test]
fn links_in_a_circle_end_with_the_reason() {
    let session = session();
    session.make_link(b"/a", b"b").unwrap();
    session.make_link(b"/b", b"/a").unwrap();
    let error = session.stat(b"/a").unwrap_err();
    assert_eq!(error.reason, Reason::Links);
    assert!(error.to_string().contains(&format!("stat /a: more than {LINKS_MAX}")), "{error}");
    // A link that doubles the rest of the path each time is stopped by its length.
    session.make_link(b"/long", "x/".repeat(5000).as_bytes()).unwrap();
    assert_eq!(reason(session.stat(b"/long/y")), Reason::Components);
}

#[test]
fn the_parent_of_the_root_is_the_root() {
    let session = session();
    let root = session.stat(b"/").unwrap().node;
    assert_eq!(session.stat(b"/../../.").unwrap().node, root);
    assert_eq!(session.stat(b"").unwrap().node, root);
}

#[test]
fn a_file_is_no_directory_whatever_the_path_says() {
    let session = session();
    session.write_file(b"/f", file_mode(), b"").unwrap();
    for path in [&b"/f/"[..], b"/f/.", b"/f/x", b"/f/.."] {
        assert_eq!(reason(session.stat(path)), Reason::Refused(Code::NotDirectory), "{path:?}");
    }
    assert_eq!(reason(session.list(b"/f")), Reason::Refused(Code::NotDirectory));
}

#[test]
fn names_are_moved_linked_and_removed() {
    let session = session();
    session.make_directories(b"/a", directory_mode()).unwrap();
    session.write_file(b"/f", file_mode(), b"1").unwrap();
    session.rename(b"/f", b"/a/g", RenameMode::Replace).unwrap();
    session.link(b"/a/g", b"/h").unwrap();
    assert_eq!(session.stat(b"/h").unwrap().attributes.links, 2);
    assert_eq!(reason(session.rename(b"/h", b"/a", RenameMode::NoReplace)), Reason::Refused(Code::Exists));
    assert_eq!(reason(session.remove_directory(b"/a")), Reason::Refused(Code::NotEmpty));
    assert_eq!(reason(session.remove(b"/a")), Reason::Refused(Code::IsDirectory));
    session.remove(b"/a/g").unwrap();
    session.remove_directory(b"/a/").unwrap();
    assert_eq!(session.read_file(b"/h").unwrap(), b"1");
}

#[test]
fn everybody_is_asked_for_permission() {
    let (root, somebody) = sessions();
    root.make_directories(b"/closed", Mode::new(0o700)).unwrap();
    root.write_file(b"/closed/f", file_mode(), b"1").unwrap();
    assert_eq!(reason(somebody.read_file(b"/closed/f")), Reason::Refused(Code::Access));
    assert_eq!(reason(somebody.make_directory(b"/mine", directory_mode())), Reason::Refused(Code::Access));
}

proptest! {
    #[test]
    fn a_listing_has_every_name_once(count in 0usize..1300) {
        let session = session();
        let mut names: Vec<String> = (0..count).map(|at| format!("name-{at}")).collect();
        for name in &names {
            session.open(name.as_bytes(), OpenMode::CreateNew(file_mode())).unwrap();
        }
        let mut listed: Vec<String> =
            session.list(b"/").unwrap().map(|entry| entry.unwrap().name.to_string()).collect();
        names.sort();
        listed.sort();
        prop_assert_eq!(listed, names);
    }

    #[test]
    fn no_path_panics(path in "[a./]{0,40}") {
        let session = session();
        let _ = session.stat(path.as_bytes());
        let _ = session.make_directories(path.as_bytes(), directory_mode());
        let _ = session.write_file(path.as_bytes(), file_mode(), b"x");
    }
}
