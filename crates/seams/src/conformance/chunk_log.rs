//! The promises of [`ChunkLog`].

use super::{Stop, Subject};
use crate::{ChunkEntry, ChunkLog, End};
use bearing_types::{ChunkId, Epoch};

const CHUNK: ChunkId = ChunkId(0x1234);
const SEALED: End = End::Sealed { restarted: false };
const OTHER: ChunkId = ChunkId(7);

/// Holds chunk logs to their promises. `make` gives fresh, empty ones each time.
pub fn chunk_log<L: ChunkLog>(mut make: impl FnMut() -> Subject<L>) {
    chunks_are_listed_in_order(&mut make());
    creating_twice_or_using_a_missing_chunk_is_an_error(&mut make());
    appends_must_come_at_the_length(&mut make());
    reads_end_at_the_length(&mut make());
    synced_bytes_survive_a_crash(&mut make());
    what_is_synced_again_after_a_failed_sync_survives_a_power_cut(&mut make());
    a_seal_that_failed_is_not_found_by_a_restart_and_lost_by_a_power_cut(&mut make());
    a_cut_is_stable_and_appending_goes_on(&mut make());
    a_sealed_chunk_takes_no_appends_over_restarts(&mut make());
    what_an_end_is_and_what_it_may_lack_is_kept_over_restarts(&mut make());
    cutting_beyond_the_length_is_refused(&mut make());
    settings_alternate_for_long(&mut make());
    a_removed_chunk_is_gone(&mut make());
    space_is_counted(&mut make());
}

fn bytes(count: usize, salt: u8) -> Vec<u8> {
    (0..count).map(|n| (n % 251) as u8 ^ salt).collect()
}

fn entry(log: &mut impl ChunkLog, chunk: ChunkId) -> ChunkEntry {
    let entries = log.chunks().unwrap();
    entries.into_iter().find(|entry| entry.chunk == chunk).expect("the chunk is listed")
}

/// A chunk with synced content.
fn filled(subject: &mut Subject<impl ChunkLog>, content: &[u8]) {
    let log = subject.engine();
    log.create(CHUNK, Epoch(3)).unwrap();
    log.append(CHUNK, 0, content).unwrap();
    log.sync(CHUNK).unwrap();
}

fn chunks_are_listed_in_order(subject: &mut Subject<impl ChunkLog>) {
    let log = subject.engine();
    assert_eq!(log.chunks().unwrap(), vec![]);
    for (chunk, epoch) in [(CHUNK, 5), (OTHER, 6), (ChunkId(u64::MAX), 7)] {
        log.create(chunk, Epoch(epoch)).unwrap();
        log.sync(chunk).unwrap();
    }
    let expected: Vec<_> = [(OTHER, 6), (CHUNK, 5), (ChunkId(u64::MAX), 7)]
        .into_iter()
        .map(|(chunk, epoch)| ChunkEntry {
            chunk,
            epoch: Epoch(epoch),
            length: 0,
            sealed: None,
            fenced: false,
            restarted: false,
        })
        .collect();
    assert_eq!(log.chunks().unwrap(), expected);
    assert_eq!(
        subject.restart(Stop::Crash).chunks().unwrap(),
        expected,
        "a synced chunk keeps its name and epoch"
    );
}

fn creating_twice_or_using_a_missing_chunk_is_an_error(subject: &mut Subject<impl ChunkLog>) {
    let log = subject.engine();
    assert!(log.append(CHUNK, 0, b"x").is_err());
    assert!(log.sync(CHUNK).is_err());
    assert!(log.read(CHUNK, 0, 1).is_err());
    assert!(log.set(CHUNK, Epoch(1), 0, End::Open).is_err());
    assert!(log.remove(CHUNK).is_err());
    log.create(CHUNK, Epoch(1)).unwrap();
    log.append(CHUNK, 0, b"kept").unwrap();
    assert!(log.create(CHUNK, Epoch(2)).is_err());
    assert_eq!(log.read(CHUNK, 0, 10).unwrap(), b"kept", "a refused create changes nothing");
    assert_eq!(entry(log, CHUNK).epoch, Epoch(1));
}

fn appends_must_come_at_the_length(subject: &mut Subject<impl ChunkLog>) {
    let log = subject.engine();
    log.create(CHUNK, Epoch(1)).unwrap();
    log.append(CHUNK, 0, b"abc").unwrap();
    assert!(log.append(CHUNK, 2, b"x").is_err(), "no overwriting");
    assert!(log.append(CHUNK, 4, b"x").is_err(), "no holes");
    log.append(CHUNK, 3, b"").unwrap();
    log.append(CHUNK, 3, b"def").unwrap();
    assert_eq!(log.read(CHUNK, 0, 100).unwrap(), b"abcdef");
}

fn reads_end_at_the_length(subject: &mut Subject<impl ChunkLog>) {
    let content = bytes(10_000, 0);
    filled(subject, &content);
    let log = subject.engine();
    assert_eq!(log.read(CHUNK, 4000, 500).unwrap(), content[4000..4500]);
    assert_eq!(log.read(CHUNK, 9990, 500).unwrap(), content[9990..]);
    assert_eq!(log.read(CHUNK, 10_000, 1).unwrap(), b"");
    assert_eq!(log.read(CHUNK, u64::MAX, u32::MAX).unwrap(), b"");
}

fn synced_bytes_survive_a_crash(subject: &mut Subject<impl ChunkLog>) {
    let content = bytes(9_000, 1);
    filled(subject, &content);
    subject.engine().append(CHUNK, 9_000, &bytes(5_000, 2)).unwrap();
    let log = subject.restart(Stop::Crash);
    assert_eq!(log.read(CHUNK, 0, 9_000).unwrap(), content);
    let found = entry(log, CHUNK);
    assert!((9_000..=14_000).contains(&found.length), "{found:?}");
    assert_eq!((found.epoch, found.sealed), (Epoch(3), None));
    // What came after the last sync may be anything: the data machine cuts it and goes on.
    log.set(CHUNK, Epoch(4), 9_000, End::Open).unwrap();
    log.append(CHUNK, 9_000, b"next").unwrap();
    log.sync(CHUNK).unwrap();
    assert_eq!(
        subject.restart(Stop::Crash).read(CHUNK, 8_999, 10).unwrap(),
        [&content[8_999..], b"next"].concat()
    );
}

fn what_is_synced_again_after_a_failed_sync_survives_a_power_cut(subject: &mut Subject<impl ChunkLog>) {
    for ends_with_a_set in [false, true] {
        if !ends_with_a_set {
            filled(subject, &bytes(9_000, 1));
        }
        let from = entry(subject.engine(), CHUNK).length;
        subject.engine().append(CHUNK, from, &bytes(5_000, 2)).unwrap();
        if !subject.fail_next_sync() {
            return;
        }
        assert!(subject.engine().sync(CHUNK).is_err());
        let log = subject.restart(Stop::Crash);
        let found = entry(log, CHUNK);
        let content = log.read(CHUNK, 0, u32::MAX).unwrap();
        match ends_with_a_set {
            false => log.sync(CHUNK).unwrap(),
            true => log.set(CHUNK, Epoch(9), found.length, SEALED).unwrap(),
        }
        let log = subject.restart(Stop::PowerCut);
        assert_eq!(entry(log, CHUNK).length, found.length, "a set: {ends_with_a_set}");
        assert!(log.read(CHUNK, 0, u32::MAX).unwrap() == content, "a set: {ends_with_a_set}");
    }
}

fn a_seal_that_failed_is_not_found_by_a_restart_and_lost_by_a_power_cut(
    subject: &mut Subject<impl ChunkLog>,
) {
    filled(subject, &bytes(9_000, 1));
    if !subject.fail_next_sync() {
        return;
    }
    assert!(subject.engine().set(CHUNK, Epoch(9), 9_000, SEALED).is_err());
    let found = entry(subject.restart(Stop::Crash), CHUNK);
    let left = entry(subject.restart(Stop::PowerCut), CHUNK);
    assert!(found.sealed.is_none() || left.sealed.is_some(), "{found:?}, then {left:?}");
}

fn a_cut_is_stable_and_appending_goes_on(subject: &mut Subject<impl ChunkLog>) {
    let content = bytes(6_000, 3);
    filled(subject, &content);
    subject.engine().append(CHUNK, 6_000, b"not synced").unwrap();
    subject.engine().set(CHUNK, Epoch(9), 6_003, End::Open).unwrap();
    let log = subject.restart(Stop::Crash);
    let expected = ChunkEntry {
        chunk: CHUNK,
        epoch: Epoch(9),
        length: 6_003,
        sealed: None,
        fenced: false,
        restarted: false,
    };
    assert_eq!(entry(log, CHUNK), expected, "stable when it returns, with the bytes below the cut");
    assert_eq!(log.read(CHUNK, 6_000, 100).unwrap(), b"not");
    log.set(CHUNK, Epoch(9), 100, End::Open).unwrap();
    log.append(CHUNK, 100, b"other").unwrap();
    assert_eq!(log.read(CHUNK, 99, 100).unwrap(), [&content[99..100], b"other"].concat());
}

fn a_sealed_chunk_takes_no_appends_over_restarts(subject: &mut Subject<impl ChunkLog>) {
    let content = bytes(5_000, 4);
    filled(subject, &content);
    subject.engine().set(CHUNK, Epoch(4), 4_500, SEALED).unwrap();
    let expected = ChunkEntry {
        chunk: CHUNK,
        epoch: Epoch(4),
        length: 4_500,
        sealed: Some(4_500),
        fenced: false,
        restarted: false,
    };
    for stop in [Stop::Clean, Stop::Crash] {
        assert_eq!(entry(subject.engine(), CHUNK), expected);
        assert!(subject.engine().append(CHUNK, 4_500, b"x").is_err());
        subject.restart(stop);
    }
    assert_eq!(subject.engine().read(CHUNK, 0, 10_000).unwrap(), content[..4_500]);
}

fn what_an_end_is_and_what_it_may_lack_is_kept_over_restarts(subject: &mut Subject<impl ChunkLog>) {
    filled(subject, &bytes(5_000, 4));
    for restarted in [false, true] {
        for end in [End::Fenced { restarted }, End::Sealed { restarted }] {
            subject.engine().set(CHUNK, Epoch(4), 4_500, end).unwrap();
            for stop in [Stop::Clean, Stop::Crash] {
                let found = entry(subject.engine(), CHUNK);
                assert_eq!((found.sealed.is_some(), found.fenced), (end.is_sealed(), end.is_fenced()));
                assert_eq!(found.restarted, restarted);
                assert!(subject.engine().append(CHUNK, 4_500, b"x").is_err());
                subject.restart(stop);
            }
        }
    }
    let log = subject.engine();
    log.set(CHUNK, Epoch(5), 0, End::Open).unwrap();
    log.append(CHUNK, 0, b"anew").expect("whoever is to have a copy begins at nothing");
    assert_eq!((entry(log, CHUNK).fenced, entry(log, CHUNK).restarted), (false, false));
}

fn cutting_beyond_the_length_is_refused(subject: &mut Subject<impl ChunkLog>) {
    filled(subject, b"abc");
    assert!(subject.engine().set(CHUNK, Epoch(4), 4, SEALED).is_err(), "a seal never makes bytes up");
    let expected = ChunkEntry {
        chunk: CHUNK,
        epoch: Epoch(3),
        length: 3,
        sealed: None,
        fenced: false,
        restarted: false,
    };
    assert_eq!(entry(subject.engine(), CHUNK), expected);
    subject.engine().append(CHUNK, 3, b"def").expect("a refused set breaks nothing");
}

fn settings_alternate_for_long(subject: &mut Subject<impl ChunkLog>) {
    filled(subject, &bytes(100, 5));
    for epoch in 4..12 {
        subject.engine().set(CHUNK, Epoch(epoch), 100 - epoch, End::Open).unwrap();
        let found = entry(subject.restart(Stop::Crash), CHUNK);
        assert_eq!((found.epoch, found.length), (Epoch(epoch), 100 - epoch));
    }
}

fn a_removed_chunk_is_gone(subject: &mut Subject<impl ChunkLog>) {
    filled(subject, b"abc");
    let log = subject.engine();
    log.remove(CHUNK).unwrap();
    assert_eq!(log.chunks().unwrap(), vec![]);
    assert!(log.read(CHUNK, 0, 1).is_err());
    log.create(CHUNK, Epoch(8)).unwrap();
    assert_eq!(log.read(CHUNK, 0, 10).unwrap(), b"", "a new chunk of that id begins empty");
}

fn space_is_counted(subject: &mut Subject<impl ChunkLog>) {
    filled(subject, &bytes(100_000, 6));
    let (used, free) = subject.engine().space().unwrap();
    assert!(used >= 100_000 && free > 0, "used {used}, free {free}");
}
