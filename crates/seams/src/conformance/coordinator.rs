//! The promises of [`Coordinator`].

use super::{Stop, Subject};
use crate::{Changes, Coordinator, Entry, Found, RegisterChange, Swap};
use std::collections::BTreeMap;

/// Holds a coordinator to its promises. `make` gives a fresh, empty one each time, which remembers
/// `removals_kept` removals: a few, so that some are forgotten here.
pub fn coordinator<C: Coordinator>(removals_kept: usize, mut make: impl FnMut() -> Subject<C>) {
    a_swap_needs_the_present_version(&mut make());
    versions_grow_with_every_change_of_any_key(&mut make());
    removing_needs_the_version_too(&mut make());
    a_swap_changes_all_registers_or_none(&mut make());
    changes_are_by_prefix_and_in_order(&mut make());
    every_change_survives_a_crash(&mut make());
    changes_are_those_of_a_model(removals_kept, &mut make());
}

fn swap(coordinator: &mut impl Coordinator, key: &str, expected: Option<u64>, value: Option<&[u8]>) -> Swap {
    coordinator.swap(&[RegisterChange::new(key, expected, value.map(<[u8]>::to_vec))]).unwrap()
}

fn set(coordinator: &mut impl Coordinator, key: &str, expected: Option<u64>, value: &[u8]) -> u64 {
    match swap(coordinator, key, expected, Some(value)) {
        Swap::Done(version) => version,
        Swap::Conflict(found) => panic!("{key} was expected at {expected:?}: {found:?}"),
    }
}

fn entry(key: &str, version: u64, value: &[u8]) -> Entry {
    Entry { key: key.to_owned(), version, value: value.to_vec() }
}

fn conflict(present: &[Entry], absent: &[&str]) -> Swap {
    let absent = absent.iter().map(|key| (*key).to_owned()).collect();
    Swap::Conflict(Found { present: present.to_vec(), absent })
}

fn whole(version: u64, present: Vec<Entry>) -> Changes {
    Changes { version, whole: true, found: Found { present, absent: Vec::new() } }
}

fn a_swap_needs_the_present_version(subject: &mut Subject<impl Coordinator>) {
    let coordinator = subject.engine();
    assert_eq!(coordinator.read("k").unwrap(), None);
    let absent = swap(coordinator, "k", Some(1), Some(b"x"));
    assert_eq!(absent, conflict(&[], &["k"]), "an absent key has no version");
    let first = set(coordinator, "k", None, b"one");
    assert_ne!(first, 0, "0 is never used");
    let present = entry("k", first, b"one");
    assert_eq!(coordinator.read("k").unwrap(), Some(present.clone()));
    for wrong in [None, Some(first + 1)] {
        let swapped = swap(coordinator, "k", wrong, Some(b"x"));
        assert_eq!(swapped, conflict(std::slice::from_ref(&present), &[]), "a conflict shows what is there");
    }
    let second = set(coordinator, "k", Some(first), b"");
    assert!(second > first);
    assert_eq!(coordinator.read("k").unwrap(), Some(entry("k", second, b"")));
}

fn versions_grow_with_every_change_of_any_key(subject: &mut Subject<impl Coordinator>) {
    let coordinator = subject.engine();
    let mut last = coordinator.changes("", 0).unwrap().version;
    for key in ["a", "b", "c"] {
        let version = set(coordinator, key, None, b"v");
        assert!(version > last);
        last = version;
        assert_eq!(coordinator.changes("nothing like this", 0).unwrap(), whole(last, vec![]));
    }
    swap(coordinator, "a", Some(last), Some(b""));
    assert_eq!(coordinator.changes("", 0).unwrap().version, last, "a conflict is not a change");
}

fn removing_needs_the_version_too(subject: &mut Subject<impl Coordinator>) {
    let coordinator = subject.engine();
    let version = set(coordinator, "k", None, b"v");
    assert_eq!(swap(coordinator, "k", None, None), conflict(&[entry("k", version, b"v")], &[]));
    let Swap::Done(removed) = swap(coordinator, "k", Some(version), None) else {
        panic!("the version was right")
    };
    assert!(removed > version, "a removal is a change");
    assert_eq!(coordinator.read("k").unwrap(), None);
    let nothing = swap(coordinator, "k", None, None);
    assert_eq!(nothing, Swap::Done(removed), "removing nothing changes nothing");
    assert_eq!(swap(coordinator, "k", Some(version), Some(b"")), conflict(&[], &["k"]));
    assert!(set(coordinator, "k", None, b"again") > removed, "a version never comes back");
}

fn a_swap_changes_all_registers_or_none(subject: &mut Subject<impl Coordinator>) {
    let coordinator = subject.engine();
    assert_eq!(coordinator.swap(&[]).unwrap(), Swap::Done(0), "no change, no version");
    let (a, b) = (set(coordinator, "a", None, b"1"), set(coordinator, "b", None, b"1"));
    let before = coordinator.changes("", 0).unwrap();
    let value = || Some(b"2".to_vec());
    let refused = coordinator.swap(&[
        RegisterChange::new("a", Some(a), value()),
        RegisterChange::new("b", Some(a), None),
        RegisterChange::new("c", None, value()),
        RegisterChange::new("d", Some(b), value()),
    ]);
    let others = conflict(&[entry("b", b, b"1")], &["d"]);
    assert_eq!(refused.unwrap(), others, "all that differ are shown, and no other");
    assert_eq!(coordinator.changes("", 0).unwrap(), before);
    let done = coordinator.swap(&[
        RegisterChange::new("a", Some(a), value()),
        RegisterChange::new("b", Some(b), None),
        RegisterChange::new("c", None, value()),
        RegisterChange::new("d", None, None),
    ]);
    let Swap::Done(version) = done.unwrap() else { panic!("all versions were right") };
    let present = vec![entry("a", version, b"2"), entry("c", version, b"2")];
    assert_eq!(coordinator.changes("", 0).unwrap(), whole(version, present.clone()));
    let found = Found { present, absent: vec!["b".to_owned()] };
    assert_eq!(coordinator.changes("", b).unwrap(), Changes { version, whole: false, found });
}

fn changes_are_by_prefix_and_in_order(subject: &mut Subject<impl Coordinator>) {
    let coordinator = subject.engine();
    for key in ["b/2", "b", "a/1", "b/10", "c", "b/\u{10ffff}"] {
        set(coordinator, key, None, key.as_bytes());
    }
    let mut keys = |prefix: &str| {
        let present = coordinator.changes(prefix, 0).unwrap().found.present;
        present.into_iter().map(|entry| entry.key).collect::<Vec<_>>()
    };
    assert_eq!(keys("b/"), ["b/10", "b/2", "b/\u{10ffff}"]);
    assert_eq!(keys("b"), ["b", "b/10", "b/2", "b/\u{10ffff}"]);
    assert_eq!(keys("").len(), 6);
}

fn every_change_survives_a_crash(subject: &mut Subject<impl Coordinator>) {
    let coordinator = subject.engine();
    let first = set(coordinator, "kept", None, b"v");
    let second = set(coordinator, "gone", None, b"v");
    swap(coordinator, "gone", Some(second), None);
    let listed = [0, first].map(|since| coordinator.changes("", since).unwrap());
    let coordinator = subject.restart(Stop::Crash);
    assert_eq!([0, first].map(|since| coordinator.changes("", since).unwrap()), listed);
    assert_eq!(coordinator.read("kept").unwrap(), Some(entry("kept", first, b"v")));
    assert!(set(coordinator, "gone", None, b"v") > listed[0].version, "versions grow on");
}

/// What every key held after its last change, all versions that there were, and those of removals.
#[derive(Default)]
struct Model {
    last: u64,
    versions: Vec<u64>,
    keys: BTreeMap<String, (u64, Option<Vec<u8>>)>,
    removals: Vec<u64>,
}

impl Model {
    fn version(&self, key: &str) -> Option<u64> {
        self.keys.get(key).filter(|(_, value)| value.is_some()).map(|(version, _)| *version)
    }

    /// What it says to a swap that the engine did under a version, or did not.
    fn swap(&mut self, changes: &[RegisterChange], done: Option<u64>) -> bool {
        if changes.iter().any(|change| self.version(&change.key) != change.expected) {
            return false;
        }
        let differ = |change: &&RegisterChange| change.expected.is_some() || change.value.is_some();
        let changes: Vec<&RegisterChange> = changes.iter().filter(differ).collect();
        if let Some(version) = done.filter(|_| !changes.is_empty()) {
            assert!(version > self.last, "versions grow");
            self.last = version;
            self.versions.push(version);
        }
        for change in changes {
            self.keys.insert(change.key.clone(), (self.last, change.value.clone()));
            self.removals.extend(change.value.is_none().then_some(self.last));
        }
        true
    }

    fn changes(&self, prefix: &str, since: u64, whole: bool) -> Changes {
        let mut found = Found::default();
        for (key, (version, value)) in self.keys.iter().filter(|(key, _)| key.starts_with(prefix)) {
            match value {
                Some(value) if whole || *version > since => found.present.push(entry(key, *version, value)),
                None if !whole && *version > since => found.absent.push(key.clone()),
                _ => {}
            }
        }
        Changes { version: self.last, whole, found }
    }
}

fn changes_are_those_of_a_model(removals_kept: usize, subject: &mut Subject<impl Coordinator>) {
    let mut state = 19_u64;
    let mut below = |count: u64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) % count
    };
    let (mut model, mut forgotten) = (Model::default(), 0);
    for round in 0..300_u64 {
        let first = below(16);
        let changes = (first..first + 1 + below(4)).map(|number| {
            let key = format!("{}/{}", ["a", "b"][number as usize % 2], number % 16);
            let expected = model.version(&key).filter(|_| below(12) > 0);
            let value = (below(3) > 0).then(|| round.to_be_bytes().to_vec());
            RegisterChange { key, expected, value }
        });
        let changes: Vec<RegisterChange> = changes.collect();
        let swapped = subject.engine().swap(&changes).unwrap();
        let done = match &swapped {
            Swap::Done(version) => Some(*version),
            Swap::Conflict(_) => None,
        };
        assert_eq!(done.is_some(), model.swap(&changes, done), "{changes:?}: {swapped:?}");
        if below(10) == 0 {
            subject.restart(Stop::Crash);
        }
        let prefix = ["", "a/", "b/"][below(3) as usize];
        let known = [0, model.last + 1].into_iter().chain(model.versions.iter().copied());
        let known: Vec<u64> = known.collect();
        let since = known[below(known.len() as u64) as usize];
        let found = subject.engine().changes(prefix, since).unwrap();
        assert_eq!(found, model.changes(prefix, since, found.whole), "{prefix} since {since}");
        let never = since == 0 || since > model.last;
        assert!(found.whole || !never, "what never was is not followed by changes");
        if found.whole && !never {
            let since_then = model.removals.iter().filter(|version| **version > since).count();
            assert!(
                since_then >= removals_kept,
                "{since_then} removals after {since} and some are forgotten"
            );
            forgotten += 1;
        }
    }
    assert!(forgotten > 0, "removals are not kept for ever");
}
