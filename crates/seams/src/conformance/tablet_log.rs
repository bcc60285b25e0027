//! The promises of [`TabletLog`].

use super::{Stop, Subject};
use crate::{LogMark, LoggedRecord, TabletLog};
use bearing_types::{Epoch, LogIndex, TabletSerial};

/// Holds a tablet log to its promises. `make` gives a fresh, empty one each time.
pub fn tablet_log<L: TabletLog>(mut make: impl FnMut() -> Subject<L>) {
    an_empty_log_reads_as_empty(&mut make());
    records_come_back_in_order_with_growing_marks(&mut make());
    reading_goes_on_from_any_mark(&mut make());
    synced_records_survive_a_crash_and_the_rest_is_a_prefix(&mut make());
    what_a_crash_left_survives_the_next(&mut make());
    what_is_found_after_a_failed_sync_survives_a_power_cut(&mut make());
    a_cut_keeps_everything_from_its_mark_on(&mut make());
    marks_grow_on_over_cuts_and_restarts(&mut make());
}

fn record(number: u64) -> LoggedRecord {
    LoggedRecord {
        serial: TabletSerial(number % 4 * (u64::MAX / 3)),
        epoch: Epoch(number / 3),
        index: LogIndex(number),
        commit: LogIndex(number / 2),
        bytes: (0..number * 7 % 300).map(|n| (n + number) as u8).collect(),
    }
}

fn records(numbers: std::ops::Range<u64>) -> Vec<LoggedRecord> {
    numbers.map(record).collect()
}

fn read_all(log: &mut impl TabletLog) -> Vec<(LogMark, LoggedRecord)> {
    log.read(None, usize::MAX).unwrap()
}

fn bare(read: Vec<(LogMark, LoggedRecord)>) -> Vec<LoggedRecord> {
    read.into_iter().map(|(_, record)| record).collect()
}

fn an_empty_log_reads_as_empty(subject: &mut Subject<impl TabletLog>) {
    assert_eq!(read_all(subject.engine()), vec![]);
    subject.engine().sync().unwrap();
    assert_eq!(read_all(subject.restart(Stop::Crash)), vec![]);
}

fn records_come_back_in_order_with_growing_marks(subject: &mut Subject<impl TabletLog>) {
    let log = subject.engine();
    let first = log.append(&records(0..50)).unwrap();
    let second = log.append(&records(50..51)).unwrap();
    log.append(&[]).unwrap();
    let read = read_all(log);
    assert_eq!(read[0].0, first, "append returns the mark of its first record");
    assert_eq!(read[50].0, second);
    assert!(read.windows(2).all(|pair| pair[0].0 < pair[1].0), "marks grow in file order");
    assert_eq!(bare(read), records(0..51), "unsynced records are read too");
}

fn reading_goes_on_from_any_mark(subject: &mut Subject<impl TabletLog>) {
    let log = subject.engine();
    log.append(&records(0..40)).unwrap();
    let all = read_all(log);
    let mut gathered = log.read(None, 7).unwrap();
    assert_eq!(gathered.len(), 7, "no more than asked for");
    loop {
        let last = gathered.last().unwrap().0;
        let more = log.read(Some(last), 7).unwrap();
        assert_eq!(more[0].0, last, "reading from a mark begins with its record");
        gathered.extend_from_slice(&more[1..]);
        if more.len() < 7 {
            break;
        }
    }
    assert_eq!(gathered, all);
    let after_last = LogMark(all.last().unwrap().0.0 + 1);
    assert_eq!(log.read(Some(after_last), 7).unwrap(), vec![], "after the last record nothing is left");
    let after_tenth = LogMark(all[10].0.0 + 1);
    assert_eq!(
        log.read(Some(after_tenth), 1).unwrap(),
        all[11..12],
        "a mark within a record means the next one"
    );
}

fn synced_records_survive_a_crash_and_the_rest_is_a_prefix(subject: &mut Subject<impl TabletLog>) {
    let mut kept = 0;
    for _ in 0..4 {
        let log = subject.engine();
        log.append(&records(kept..kept + 20)).unwrap();
        log.sync().unwrap();
        let synced = kept + 20;
        log.append(&records(synced..synced + 20)).unwrap();
        let found = bare(read_all(subject.restart(Stop::Crash)));
        kept = found.len() as u64;
        assert!((synced..=synced + 20).contains(&kept), "{synced} records were synced, {kept} are there");
        assert_eq!(found, records(0..kept), "what is left is a prefix");
    }
}

fn what_a_crash_left_survives_the_next(subject: &mut Subject<impl TabletLog>) {
    subject.engine().append(&records(0..20)).unwrap();
    let found = read_all(subject.restart(Stop::Crash));
    assert_eq!(read_all(subject.restart(Stop::Crash)), found, "a reader may already have acted on it");
}

fn what_is_found_after_a_failed_sync_survives_a_power_cut(subject: &mut Subject<impl TabletLog>) {
    let log = subject.engine();
    log.append(&records(0..20)).unwrap();
    log.sync().unwrap();
    log.append(&records(20..40)).unwrap();
    if !subject.fail_next_sync() {
        return;
    }
    assert!(subject.engine().sync().is_err());
    let found = read_all(subject.restart(Stop::Crash));
    assert!(found.len() >= 20);
    assert_eq!(
        read_all(subject.restart(Stop::PowerCut)),
        found,
        "what was read after a failed sync survives a power cut"
    );
}

fn a_cut_keeps_everything_from_its_mark_on(subject: &mut Subject<impl TabletLog>) {
    let log = subject.engine();
    log.append(&records(0..30)).unwrap();
    log.sync().unwrap();
    let all = read_all(log);
    log.cut(all[20].0).unwrap();
    let suffix = read_all(log);
    assert!(
        suffix.len() >= 10 && all.ends_with(&suffix),
        "a cut lets go of whole records from the oldest on"
    );
    assert_eq!(log.read(Some(all[20].0), 100).unwrap(), all[20..], "from the mark on everything is kept");
    assert_eq!(read_all(subject.restart(Stop::Crash)).last(), all.last());
}

fn marks_grow_on_over_cuts_and_restarts(subject: &mut Subject<impl TabletLog>) {
    let mut last = None;
    for round in 0..5 {
        let log = subject.engine();
        let mark = log.append(&records(round * 10..round * 10 + 10)).unwrap();
        assert!(Some(mark) > last, "round {round}: mark {mark:?} after {last:?}");
        log.sync().unwrap();
        last = Some(read_all(log).last().unwrap().0);
        log.cut(LogMark(last.unwrap().0 + 1)).unwrap();
        subject.restart(Stop::Crash);
    }
}
