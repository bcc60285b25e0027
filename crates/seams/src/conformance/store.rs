//! The promises of [`Store`].

use super::{Stop, Subject};
use crate::{Change, KeyRange, Store};
use bearing_types::{LogIndex, TabletSerial};

/// Holds an entry store to its promises. `make` gives a fresh, empty one each time.
pub fn store<S: Store>(mut make: impl FnMut() -> Subject<S>) {
    tablets_are_listed_in_order_and_start_empty(&mut make());
    changes_are_puts_and_deletes_in_order(&mut make());
    ranges_are_half_open_ordered_and_bounded(&mut make());
    a_snapshot_is_of_when_it_was_taken_whatever_comes_after_it(&mut make());
    tablets_do_not_share_keys(&mut make());
    a_missing_tablet_is_an_error(&mut make());
    a_removed_tablet_is_gone_for_good(&mut make());
    flushed_changes_survive_a_crash(&mut make());
    after_a_crash_a_tablet_holds_exactly_a_prefix(&mut make());
    replay_after_a_crash_gives_the_same_content(&mut make());
    a_clean_stop_keeps_flushed_changes(&mut make());
}

const LOW: TabletSerial = TabletSerial(2);
const HIGH: TabletSerial = TabletSerial(u64::MAX);

fn put(key: &[u8], value: &[u8]) -> Change {
    Change { key: key.to_vec(), value: Some(value.to_vec()) }
}

fn delete(key: &[u8]) -> Change {
    Change { key: key.to_vec(), value: None }
}

fn all() -> KeyRange {
    KeyRange { start: Vec::new(), end: None }
}

/// The batch with a given index: it puts one key of its own, overwrites one that all share, and deletes the
/// key before the last.
fn batch(index: u64) -> Vec<Change> {
    vec![
        put(format!("own {index:08}").as_bytes(), &index.to_be_bytes()),
        put(b"shared", &index.to_be_bytes()),
        delete(format!("own {:08}", index.wrapping_sub(2)).as_bytes()),
    ]
}

fn expect_prefix(store: &mut impl Store, tablet: TabletSerial, applied: u64) {
    let mut expected = Vec::new();
    for index in applied.saturating_sub(1).max(1)..=applied {
        expected.push((format!("own {index:08}").into_bytes(), index.to_be_bytes().to_vec()));
    }
    if applied > 0 {
        expected.push((b"shared".to_vec(), applied.to_be_bytes().to_vec()));
    }
    let found = store.range(tablet, &all(), 1000).unwrap();
    assert_eq!(found, expected, "the content of {tablet} must be exactly that of index {applied}");
}

fn apply_batches(store: &mut impl Store, tablet: TabletSerial, indices: std::ops::RangeInclusive<u64>) {
    for index in indices {
        store.apply(tablet, LogIndex(index), &batch(index)).unwrap();
    }
}

fn tablets_are_listed_in_order_and_start_empty(subject: &mut Subject<impl Store>) {
    let store = subject.engine();
    assert_eq!(store.tablets().unwrap(), vec![]);
    assert_eq!(store.applied(HIGH).unwrap(), None, "no tablet, no applied index");
    store.create_tablet(HIGH).unwrap();
    store.create_tablet(LOW).unwrap();
    assert_eq!(store.tablets().unwrap(), vec![LOW, HIGH]);
    assert_eq!(store.applied(HIGH).unwrap(), Some(LogIndex::ZERO));
    assert_eq!(store.range(HIGH, &all(), 10).unwrap(), vec![], "the applied index is not among the pairs");
    store.apply(HIGH, LogIndex(1), &batch(1)).unwrap();
    store.create_tablet(HIGH).unwrap();
    expect_prefix(store, HIGH, 1);
}

fn changes_are_puts_and_deletes_in_order(subject: &mut Subject<impl Store>) {
    let store = subject.engine();
    store.create_tablet(LOW).unwrap();
    let changes = [
        put(b"a", b"1"),
        put(b"b", b""),
        put(b"a", b"2"),
        delete(b"b"),
        delete(b"never there"),
        put(b"", b"empty"),
    ];
    store.apply(LOW, LogIndex(3), &changes).unwrap();
    assert_eq!(store.get(LOW, b"a").unwrap(), Some(b"2".to_vec()), "the later change of a key counts");
    assert_eq!(store.get(LOW, b"b").unwrap(), None);
    assert_eq!(store.get(LOW, b"").unwrap(), Some(b"empty".to_vec()), "the empty key is a key");
    store.apply(LOW, LogIndex(4), &[put(b"b", b"")]).unwrap();
    assert_eq!(store.get(LOW, b"b").unwrap(), Some(Vec::new()), "an empty value is a value");
    store.apply(LOW, LogIndex(5), &[]).unwrap();
    assert_eq!(store.applied(LOW).unwrap(), Some(LogIndex(5)), "a batch without changes moves the index");
}

fn ranges_are_half_open_ordered_and_bounded(subject: &mut Subject<impl Store>) {
    let store = subject.engine();
    store.create_tablet(LOW).unwrap();
    let keys: [&[u8]; 5] = [b"a", b"a\x00", b"b", b"b\xff\xff", b"\xff\xff\xff"];
    let changes: Vec<Change> = keys.iter().rev().map(|key| put(key, key)).collect();
    store.apply(LOW, LogIndex(1), &changes).unwrap();
    let mut keys_of = |start: &[u8], end: Option<&[u8]>, count_max| {
        let range = KeyRange { start: start.to_vec(), end: end.map(<[u8]>::to_vec) };
        let pairs = store.range(LOW, &range, count_max).unwrap();
        pairs.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
    };
    assert_eq!(keys_of(b"", None, 10), keys, "all keys, in order of their bytes");
    assert_eq!(keys_of(b"a", Some(b"b"), 10), keys[..2], "the start is in, the end is not");
    assert_eq!(keys_of(b"a\x00", None, 2), keys[1..3]);
    assert_eq!(keys_of(b"b", None, 0), Vec::<Vec<u8>>::new());
    assert_eq!(keys_of(b"b", Some(b"b"), 10), Vec::<Vec<u8>>::new());
    assert_eq!(
        keys_of(b"c", Some(b"b"), 10),
        Vec::<Vec<u8>>::new(),
        "a range that ends before it starts is empty"
    );
}

fn a_snapshot_is_of_when_it_was_taken_whatever_comes_after_it(subject: &mut Subject<impl Store>) {
    let store = subject.engine();
    store.create_tablet(LOW).unwrap();
    apply_batches(store, LOW, 1..=5);
    let range = KeyRange { start: b"own".to_vec(), end: Some(b"shared".to_vec()) };
    let (whole, part) = (store.snapshot(LOW, &all()).unwrap(), store.snapshot(LOW, &range).unwrap());
    let (expected, of_range) =
        (store.range(LOW, &all(), 100).unwrap(), store.range(LOW, &range, 100).unwrap());
    apply_batches(store, LOW, 6..=9);
    store.flush().unwrap();
    apply_batches(store, LOW, 10..=12);
    let pairs = |read: crate::Pairs| read.map(Result::unwrap).collect::<Vec<_>>();
    assert_eq!((pairs(whole), pairs(part)), (expected, of_range));
    let none = KeyRange { start: b"s".to_vec(), end: Some(b"o".to_vec()) };
    assert_eq!(store.snapshot(LOW, &none).unwrap().count(), 0);
    expect_prefix(store, LOW, 12);
}

fn tablets_do_not_share_keys(subject: &mut Subject<impl Store>) {
    let store = subject.engine();
    for (tablet, value) in [(LOW, 0), (HIGH, 1)] {
        store.create_tablet(tablet).unwrap();
        store.apply(tablet, LogIndex(7 + u64::from(value)), &[put(b"k", &[value])]).unwrap();
    }
    assert_eq!(store.get(LOW, b"k").unwrap(), Some(vec![0]));
    assert_eq!(store.get(HIGH, b"k").unwrap(), Some(vec![1]));
    assert_eq!(store.applied(LOW).unwrap(), Some(LogIndex(7)));
    assert_eq!(store.applied(HIGH).unwrap(), Some(LogIndex(8)));
}

fn a_missing_tablet_is_an_error(subject: &mut Subject<impl Store>) {
    let store = subject.engine();
    assert!(store.get(LOW, b"k").is_err(), "reading nothing is not finding nothing");
    assert!(store.range(LOW, &all(), 1).is_err());
    assert!(store.apply(LOW, LogIndex(1), &batch(1)).is_err());
    store.remove_tablet(LOW).expect("removing what is gone changes nothing");
    store.create_tablet(LOW).expect("a refused call breaks nothing");
}

fn a_removed_tablet_is_gone_for_good(subject: &mut Subject<impl Store>) {
    let store = subject.engine();
    for tablet in [LOW, HIGH] {
        store.create_tablet(tablet).unwrap();
        apply_batches(store, tablet, 1..=5);
    }
    store.flush().unwrap();
    store.remove_tablet(LOW).unwrap();
    assert_eq!(store.tablets().unwrap(), vec![HIGH]);
    let store = subject.restart(Stop::Crash);
    if store.tablets().unwrap() == vec![LOW, HIGH] {
        expect_prefix(store, LOW, 5);
        store.remove_tablet(LOW).unwrap();
    }
    store.flush().unwrap();
    let store = subject.restart(Stop::Crash);
    assert_eq!(store.tablets().unwrap(), vec![HIGH], "a flush makes removals stable");
    store.create_tablet(LOW).unwrap();
    assert_eq!(store.applied(LOW).unwrap(), Some(LogIndex::ZERO));
    expect_prefix(store, LOW, 0);
    expect_prefix(store, HIGH, 5);
    store.flush().unwrap();
    expect_prefix(subject.restart(Stop::Crash), LOW, 0);
}

fn flushed_changes_survive_a_crash(subject: &mut Subject<impl Store>) {
    let store = subject.engine();
    store.create_tablet(LOW).unwrap();
    store.create_tablet(HIGH).unwrap();
    apply_batches(store, LOW, 1..=9);
    store.flush().unwrap();
    let store = subject.restart(Stop::Crash);
    assert_eq!(store.tablets().unwrap(), vec![LOW, HIGH]);
    assert_eq!(store.applied(LOW).unwrap(), Some(LogIndex(9)));
    assert_eq!(store.applied(HIGH).unwrap(), Some(LogIndex::ZERO));
    expect_prefix(store, LOW, 9);
}

fn after_a_crash_a_tablet_holds_exactly_a_prefix(subject: &mut Subject<impl Store>) {
    let mut stable = 0;
    for round in 0..4 {
        let store = subject.engine();
        store.create_tablet(LOW).unwrap();
        apply_batches(store, LOW, stable + 1..=stable + 10);
        store.flush().unwrap();
        let flushed = stable + 10;
        apply_batches(store, LOW, flushed + 1..=flushed + 20);
        let store = subject.restart(Stop::Crash);
        stable = store.applied(LOW).unwrap().expect("a flushed tablet is there").0;
        assert!(
            (flushed..=flushed + 20).contains(&stable),
            "round {round}: index {stable} after flush at {flushed}"
        );
        expect_prefix(store, LOW, stable);
    }
}

fn replay_after_a_crash_gives_the_same_content(subject: &mut Subject<impl Store>) {
    let store = subject.engine();
    store.create_tablet(LOW).unwrap();
    apply_batches(store, LOW, 1..=10);
    store.flush().unwrap();
    apply_batches(store, LOW, 11..=30);
    let store = subject.restart(Stop::Crash);
    let from = store.applied(LOW).unwrap().unwrap().0;
    // One batch too many at the start: changes are absolute, so applying twice is applying once.
    apply_batches(store, LOW, from..=30);
    expect_prefix(store, LOW, 30);
}

fn a_clean_stop_keeps_flushed_changes(subject: &mut Subject<impl Store>) {
    let store = subject.engine();
    store.create_tablet(HIGH).unwrap();
    apply_batches(store, HIGH, 1..=3);
    store.flush().unwrap();
    let store = subject.restart(Stop::Clean);
    assert_eq!(store.applied(HIGH).unwrap(), Some(LogIndex(3)));
    expect_prefix(store, HIGH, 3);
    apply_batches(store, HIGH, 4..=5);
    expect_prefix(store, HIGH, 5);
}
