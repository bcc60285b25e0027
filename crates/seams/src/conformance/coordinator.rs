//! The promises of [`Coordinator`].

use super::{Stop, Subject};
use crate::{Coordinator, Entry, Swap};

/// Holds a coordinator to its promises. `make` gives a fresh, empty one each time.
pub fn coordinator<C: Coordinator>(mut make: impl FnMut() -> Subject<C>) {
    a_swap_needs_the_present_version(&mut make());
    versions_grow_with_every_change_of_any_key(&mut make());
    removing_needs_the_version_too(&mut make());
    lists_are_by_prefix_and_in_order(&mut make());
    every_change_survives_a_crash(&mut make());
}

fn set(coordinator: &mut impl Coordinator, key: &str, expected: Option<u64>, value: &[u8]) -> u64 {
    match coordinator.swap(key, expected, Some(value.to_vec())).unwrap() {
        Swap::Done(version) => version,
        Swap::Conflict(entry) => panic!("{key} was expected at {expected:?}, it holds {entry:?}"),
    }
}

fn entry(key: &str, version: u64, value: &[u8]) -> Entry {
    Entry { key: key.to_owned(), version, value: value.to_vec() }
}

fn a_swap_needs_the_present_version(subject: &mut Subject<impl Coordinator>) {
    let coordinator = subject.engine();
    assert_eq!(coordinator.read("k").unwrap(), None);
    let conflict = coordinator.swap("k", Some(1), Some(b"x".to_vec())).unwrap();
    assert_eq!(conflict, Swap::Conflict(None), "an absent key has no version");
    let first = set(coordinator, "k", None, b"one");
    assert_ne!(first, 0, "0 is never used");
    let present = entry("k", first, b"one");
    assert_eq!(coordinator.read("k").unwrap(), Some(present.clone()));
    for wrong in [None, Some(first + 1)] {
        let conflict = coordinator.swap("k", wrong, Some(b"x".to_vec())).unwrap();
        assert_eq!(conflict, Swap::Conflict(Some(present.clone())), "a conflict shows what is there");
    }
    let second = set(coordinator, "k", Some(first), b"");
    assert!(second > first);
    assert_eq!(coordinator.read("k").unwrap(), Some(entry("k", second, b"")));
}

fn versions_grow_with_every_change_of_any_key(subject: &mut Subject<impl Coordinator>) {
    let coordinator = subject.engine();
    let mut last = coordinator.list("").unwrap().0;
    for key in ["a", "b", "c"] {
        let version = set(coordinator, key, None, b"v");
        assert!(version > last);
        last = version;
        assert_eq!(coordinator.list("nothing like this").unwrap(), (last, vec![]));
    }
    coordinator.swap("a", Some(last), Some(Vec::new())).unwrap();
    assert_eq!(coordinator.list("").unwrap().0, last, "a conflict is not a change");
}

fn removing_needs_the_version_too(subject: &mut Subject<impl Coordinator>) {
    let coordinator = subject.engine();
    let version = set(coordinator, "k", None, b"v");
    assert_eq!(coordinator.swap("k", None, None).unwrap(), Swap::Conflict(Some(entry("k", version, b"v"))));
    let Swap::Done(removed) = coordinator.swap("k", Some(version), None).unwrap() else {
        panic!("the version was right")
    };
    assert!(removed > version, "a removal is a change");
    assert_eq!(coordinator.read("k").unwrap(), None);
    assert_eq!(
        coordinator.swap("k", None, None).unwrap(),
        Swap::Done(removed),
        "removing nothing changes nothing"
    );
    assert_eq!(coordinator.swap("k", Some(version), Some(Vec::new())).unwrap(), Swap::Conflict(None));
    assert!(set(coordinator, "k", None, b"again") > removed, "a version never comes back");
}

fn lists_are_by_prefix_and_in_order(subject: &mut Subject<impl Coordinator>) {
    let coordinator = subject.engine();
    for key in ["b/2", "b", "a/1", "b/10", "c", "b/\u{10ffff}"] {
        set(coordinator, key, None, key.as_bytes());
    }
    let mut keys = |prefix: &str| {
        let (_, entries) = coordinator.list(prefix).unwrap();
        entries.into_iter().map(|entry| entry.key).collect::<Vec<_>>()
    };
    assert_eq!(keys("b/"), ["b/10", "b/2", "b/\u{10ffff}"]);
    assert_eq!(keys("b"), ["b", "b/10", "b/2", "b/\u{10ffff}"]);
    assert_eq!(keys("").len(), 6);
}

fn every_change_survives_a_crash(subject: &mut Subject<impl Coordinator>) {
    let coordinator = subject.engine();
    let first = set(coordinator, "kept", None, b"v");
    let second = set(coordinator, "gone", None, b"v");
    coordinator.swap("gone", Some(second), None).unwrap();
    let listed = coordinator.list("").unwrap();
    let coordinator = subject.restart(Stop::Crash);
    assert_eq!(coordinator.list("").unwrap(), listed);
    assert_eq!(coordinator.read("kept").unwrap(), Some(entry("kept", first, b"v")));
    assert!(set(coordinator, "gone", None, b"v") > listed.0, "versions grow on");
}
