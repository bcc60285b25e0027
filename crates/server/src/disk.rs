//! The disk of a metadata server: its store and its tablet log, and when the log is cut.
//!
//! Both work on threads of their own, in the order given. One batch of appends is under way at a time, and
//! shares one sync; what is appended meanwhile is gathered for the next. The log is cut in three steps: when
//! it has grown by its limit since the last flush, the store is told to flush; the mark of the oldest batch
//! with anything that was not handed to the store by then, or of the batch under way, or else of the next, is
//! the first that is still needed; when the flush is done, the log is cut there.
//!
//! When the disk is full, what was gathered stays gathered, and is tried again: it is neither in the log nor
//! lost. The log is cut as far as it can be meanwhile, because that gives space back. A store that finds no
//! space ends the server: it takes no more changes until it is opened anew. So the machine refuses changes
//! long before (`bearing_meta::Headroom`).

use crate::StartError;
use crate::digests::Digests;
use crate::log_thread::{LogDone, LogThread, LogWork};
use crate::metrics::Histogram;
use crate::store_thread::{Done, StoreThread, Work};
use bearing_env::Clock;
use bearing_meta::{AppendNumber, Event, LoadTicket, LogEntry};
use bearing_seams::{Change, Cut, DiskLabel, KeyRange, LogMark, LoggedRecord, Store, TabletLog, Unapplied};
use bearing_types::{DiskId, LogIndex, Mono, TabletSerial};
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// About what a record takes in the log beside its bytes.
const FRAME_BYTES: u64 = 64;
/// An append that found no space is tried again after so long.
const TRY_AGAIN: Duration = Duration::from_millis(100);
/// With little space the log is cut when it has this part of its limit.
const PRESSED: u64 = 4;

/// See the module.
pub struct Disk {
    store: StoreThread,
    log: LogThread,
    /// After the store in this order: it ends when that has nothing more for it.
    digests: Digests,
    log_bytes_max: u64,
    gathered: Batch,
    /// What the log's thread is writing; it has the records.
    under_way: Option<Batch>,
    /// Bytes of log that came since the last flush, or since the log was opened.
    unflushed_bytes: u64,
    unapplied: Unapplied,
    flush: Flush,
    /// When to try again what found no space.
    stuck: Option<Mono>,
    /// Whether the machine was told that there is no space.
    stuck_told: bool,
    pressure: Pressure,
    /// When the batch under way began, and how long those before took.
    write_began: Mono,
    writes: Histogram,
}

/// Records that are written and synced together.
#[derive(Debug, Default)]
struct Batch {
    records: Vec<LoggedRecord>,
    /// Of the last; `None` when there are none.
    number: Option<AppendNumber>,
    bytes: u64,
}

impl Batch {
    fn push(&mut self, number: AppendNumber, record: LoggedRecord) {
        self.bytes += record.bytes.len() as u64 + FRAME_BYTES;
        self.number = Some(number);
        self.records.push(record);
    }

    /// Adds what was gathered after it.
    fn extend(&mut self, later: Batch) {
        self.bytes += later.bytes;
        self.number = later.number.or(self.number);
        self.records.extend(later.records);
    }
}

/// How much the disk needs what the log takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pressure {
    Usual,
    /// The log is to be cut now.
    New,
    /// There is little space for longer.
    Known,
}

/// How far a flush is. The mark is that of the first record after it, once there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flush {
    Idle,
    UnderWay(Option<LogMark>),
    /// Done before any record came after it.
    Done,
}

impl Disk {
    /// A disk whose log is replayed: all that is in it is in the store, but for what is not known to be
    /// committed, up to these records. `wake` is called on the threads of store and log when there is
    /// something for [`Disk::next_done`].
    pub fn start(
        store: impl Store + DiskLabel + Send + 'static,
        log: impl TabletLog + DiskLabel + Send + 'static,
        log_bytes_max: u64,
        unapplied: BTreeMap<TabletSerial, LogIndex>,
        wake: impl Fn() + Clone + Send + 'static,
    ) -> io::Result<Disk> {
        Ok(Disk {
            unflushed_bytes: log.bytes_used(),
            store: StoreThread::start(store, wake.clone())?,
            log: LogThread::start(log, wake.clone())?,
            digests: Digests::start(wake)?,
            log_bytes_max,
            gathered: Batch::default(),
            under_way: None,
            unapplied: Unapplied::found(unapplied),
            flush: Flush::Idle,
            stuck: None,
            stuck_told: false,
            pressure: Pressure::Usual,
            write_began: Mono::ZERO,
            writes: Histogram::default(),
        })
    }

    /// Gathers a record for the next batch.
    pub fn append(&mut self, number: AppendNumber, record: LoggedRecord) {
        self.unapplied.append(&record, LogEntry::voids_later);
        self.gathered.push(number, record);
    }

    /// How long batches took to be appended and synced.
    pub fn syncs(&self) -> &Histogram {
        &self.writes
    }

    /// When to come back although nothing happened.
    pub fn next_try(&self) -> Option<Mono> {
        self.stuck.filter(|_| self.under_way.is_none())
    }

    /// Whether there is little space on the disk.
    pub fn set_pressed(&mut self, pressed: bool) {
        self.pressure = match (pressed, self.pressure) {
            (false, _) => Pressure::Usual,
            (true, Pressure::Usual) => Pressure::New,
            (true, known) => known,
        };
    }

    /// Lets store and log begin what they were given: of the log, unless a batch is under way, or waits for
    /// space, all that was gathered.
    pub fn begin(&mut self, now: Mono) {
        self.store.send();
        let waits = self.under_way.is_some() || self.stuck.is_some_and(|again| now < again);
        if !waits && self.gathered.number.is_some() {
            let mut batch = std::mem::take(&mut self.gathered);
            self.log.add(LogWork::Write(std::mem::take(&mut batch.records)));
            self.under_way = Some(batch);
            self.write_began = Clock.mono();
            self.unapplied.begin();
        }
        self.log.send();
    }

    /// Takes back what found no space; the machine is told once.
    fn no_space(&mut self, now: Mono, batch: Batch, doing: &str) -> Option<Event> {
        let later = std::mem::replace(&mut self.gathered, batch);
        self.gathered.extend(later);
        self.stuck = Some(now.after(TRY_AGAIN));
        self.pressure = if self.pressure == Pressure::Usual { Pressure::New } else { self.pressure };
        self.cut_all_if_stuck();
        if std::mem::replace(&mut self.stuck_told, true) {
            return None;
        }
        tracing::error!("{doing}: the disk is full; it is tried again until there is space");
        Some(Event::LogStuck(true))
    }

    fn written(&mut self, batch: Batch, mark: LogMark) {
        self.stuck = None;
        self.unflushed_bytes += batch.bytes;
        self.unapplied.written(mark);
        match self.flush {
            Flush::UnderWay(None) => self.flush = Flush::UnderWay(Some(mark)),
            Flush::Done => self.cut(mark),
            Flush::Idle | Flush::UnderWay(Some(_)) => {}
        }
    }

    fn cut(&mut self, before: LogMark) {
        self.flush = Flush::Idle;
        self.log.add(LogWork::Cut(before));
    }

    /// Nothing comes after what was flushed as long as there is no space, but what is being tried again.
    fn cut_all_if_stuck(&mut self) {
        if self.flush == Flush::Done && self.stuck.is_some() && self.under_way.is_none() {
            self.cut(LogMark(u64::MAX));
        }
    }

    /// Whether the log has grown by its limit since the last flush.
    pub fn is_flush_due(&self) -> bool {
        let limit = match self.pressure {
            Pressure::Usual => self.log_bytes_max,
            Pressure::New => 1,
            Pressure::Known => self.log_bytes_max / PRESSED,
        };
        self.unflushed_bytes >= limit && self.flush == Flush::Idle
    }

    /// Has the store flushed, unless nothing more could be cut then than before. What was not handed to it
    /// yet stays in the log, with all that came since. A batch that is under way does not count: the log is
    /// only cut before it.
    pub fn flush(&mut self) {
        let cut = self.unapplied.cut();
        // With little space, what has to stay now is cut as soon as it can be.
        let wants_more = self.pressure == Pressure::New && cut != Some(Cut::All);
        if !wants_more {
            self.unflushed_bytes = 0;
            self.pressure = if self.pressure == Pressure::New { Pressure::Known } else { self.pressure };
        }
        if let Some(cut) = cut {
            self.store.add(Work::Flush);
            self.flush = Flush::UnderWay(match cut {
                Cut::All => None,
                Cut::Before(mark) => Some(mark),
            });
        }
    }

    fn flushed(&mut self) {
        match self.flush {
            Flush::UnderWay(Some(mark)) => self.cut(mark),
            Flush::UnderWay(None) | Flush::Done => self.flush = Flush::Done,
            Flush::Idle => {}
        }
        self.cut_all_if_stuck();
    }

    /// Has keys and ranges read.
    pub fn load(
        &mut self,
        ticket: LoadTicket,
        tablet: TabletSerial,
        keys: Vec<Vec<u8>>,
        ranges: Vec<(KeyRange, usize)>,
    ) {
        self.store.add(Work::Load(ticket, tablet, keys, ranges));
    }

    /// Has committed changes applied.
    pub fn apply(&mut self, tablet: TabletSerial, index: LogIndex, changes: Vec<Change>) {
        self.store.add(Work::Apply(tablet, index, changes));
        self.unapplied.applied(tablet, index);
    }

    /// Has the digest computed of what a tablet has at this point, up to an entry.
    pub fn digest(&mut self, tablet: TabletSerial, index: LogIndex) {
        self.store.add(Work::Read(tablet, index, self.digests.readings()));
    }

    /// The next thing that log or store have done, as far as the machine wants to know of it.
    pub fn next_done(&mut self, now: Mono) -> Result<Option<Event>, StartError> {
        if let Some((tablet, index, digest)) = self.digests.next() {
            return Ok(Some(Event::Digested(tablet, index, digest)));
        }
        match self.log_done(now)? {
            Some(event) => Ok(Some(event)),
            None => self.store_done(),
        }
    }

    fn log_done(&mut self, now: Mono) -> Result<Option<Event>, StartError> {
        while let Some(done) = self.log.next().map_err(StartError::engine("work in the tablet log"))? {
            match done {
                LogDone::Written(result) => {
                    let batch = self.taken_back();
                    let number = batch.number;
                    self.writes.record(Clock.mono().since(self.write_began));
                    let result = result.map(|mark| self.written(batch, mark));
                    return Ok(number.map(|number| Event::Synced(number, result)));
                }
                LogDone::NoSpace(records, doing) => {
                    let batch = Batch { records, ..self.taken_back() };
                    if let Some(event) = self.no_space(now, batch, &doing) {
                        return Ok(Some(event));
                    }
                }
                LogDone::Cut(result) => result.map_err(StartError::engine("cut the tablet log"))?,
                LogDone::Labelled(_) => {}
            }
        }
        let has_all = self.stuck.is_none() && self.under_way.is_none() && self.gathered.number.is_none();
        Ok((has_all && std::mem::take(&mut self.stuck_told)).then_some(Event::LogStuck(false)))
    }

    fn taken_back(&mut self) -> Batch {
        self.under_way.take().expect("only a batch that is under way is written")
    }

    fn store_done(&mut self) -> Result<Option<Event>, StartError> {
        while let Some(done) = self.store.next().map_err(StartError::engine("work in the store"))? {
            match done {
                Done::Loaded(ticket, result) => return Ok(Some(Event::Loaded(ticket, result))),
                Done::Applied(tablet, index, result) => {
                    return Ok(Some(Event::Applied(tablet, index, result)));
                }
                Done::Flushed(result) => {
                    result.map_err(StartError::engine("flush the store"))?;
                    self.flushed();
                }
                Done::Tablet(result) => {
                    result.map_err(StartError::engine("make or drop a tablet in the store"))?
                }
            }
        }
        Ok(None)
    }

    /// Gives the store and the log a disk id, and waits until they have it: this happens once in a life of a
    /// disk, and what the log says next relies on it.
    pub fn set_disk(&mut self, disk: DiskId) -> Result<(), StartError> {
        let doing = "give the disk an id";
        match self.log.finish(LogWork::SetDisk(disk)).map_err(StartError::engine(doing))? {
            LogDone::Labelled(result) => result.map_err(StartError::engine(doing))?,
            other => unreachable!("the log was asked to {doing} and answered {other:?}"),
        }
        match self.store.finish(Work::SetDisk(disk)).map_err(StartError::engine(doing))? {
            Done::Tablet(result) => result.map_err(StartError::engine(doing)),
            other => unreachable!("the store was asked to {doing} and answered {other:?}"),
        }
    }

    /// Makes a tablet in the store. A replay of the log makes it too, so nothing waits for it.
    pub fn create_tablet(&mut self, tablet: TabletSerial) {
        self.store.add(Work::Create(tablet));
    }

    /// Drops a tablet in the store: its records in the log are needed no more. If that is not done when the
    /// server dies, whatever the log says of the tablet next says too that nothing before counts.
    pub fn remove_tablet(&mut self, tablet: TabletSerial) {
        self.unapplied.forget(tablet);
        self.store.add(Work::Remove(tablet));
    }

    /// Waits for the log, and makes all that was applied stable, so that the next start has little to replay.
    pub fn stop(&mut self) -> Result<(), StartError> {
        let doing = "end the work in the tablet log";
        self.log.settle().map_err(StartError::engine(doing))?;
        while let Some(done) = self.log.next().map_err(StartError::engine(doing))? {
            match done {
                LogDone::Written(result) => result.map(drop),
                LogDone::Cut(result) => result,
                LogDone::NoSpace(..) | LogDone::Labelled(_) => Ok(()),
            }
            .map_err(StartError::engine(doing))?;
        }
        match self.store.finish(Work::Flush).map_err(StartError::engine("flush the store"))? {
            Done::Flushed(result) => result.map_err(StartError::engine("flush the store")),
            other => unreachable!("the store was asked to flush and answered {other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_seams::{EngineResult, MemStore, MemTabletLog};
    use bearing_types::Epoch;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex, MutexGuard};

    const RING: TabletSerial = TabletSerial(1);

    const OTHER: TabletSerial = TabletSerial(2);

    fn record(index: u64) -> LoggedRecord {
        record_of(RING, index)
    }

    fn record_of(serial: TabletSerial, index: u64) -> LoggedRecord {
        LoggedRecord {
            serial,
            epoch: Epoch(1),
            index: LogIndex(index),
            commit: LogIndex(index - 1),
            bytes: vec![index as u8; 100],
        }
    }

    /// A log that a test looks into; while the test has it, the log's thread waits.
    #[derive(Clone, Default)]
    struct SharedLog(Arc<Mutex<MemTabletLog>>, Arc<AtomicUsize>);

    impl SharedLog {
        fn hold(&self) -> MutexGuard<'_, MemTabletLog> {
            self.0.lock().unwrap()
        }

        fn syncs(&self) -> usize {
            self.1.load(Ordering::Relaxed)
        }
    }

    impl DiskLabel for SharedLog {
        fn disk(&mut self) -> EngineResult<Option<DiskId>> {
            self.hold().disk()
        }

        fn set_disk(&mut self, disk: DiskId) -> EngineResult<()> {
            self.hold().set_disk(disk)
        }
    }

    impl TabletLog for SharedLog {
        fn append(&mut self, records: &[LoggedRecord]) -> EngineResult<LogMark> {
            self.hold().append(records)
        }

        fn sync(&mut self) -> EngineResult<()> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.hold().sync()
        }

        fn read(
            &mut self,
            from: Option<LogMark>,
            count_max: usize,
        ) -> EngineResult<Vec<(LogMark, LoggedRecord)>> {
            self.hold().read(from, count_max)
        }

        fn cut(&mut self, before: LogMark) -> EngineResult<()> {
            self.hold().cut(before)
        }

        fn bytes_used(&self) -> u64 {
            self.hold().bytes_used()
        }
    }

    fn disk(log_bytes_max: u64) -> (Disk, SharedLog) {
        let log = SharedLog::default();
        let (store, unapplied) = (MemStore::default(), BTreeMap::new());
        let mut disk = Disk::start(store, log.clone(), log_bytes_max, unapplied, || ()).unwrap();
        disk.create_tablet(RING);
        (disk, log)
    }

    fn synced(number: u64) -> Event {
        Event::Synced(AppendNumber(number), Ok(()))
    }

    impl Disk {
        fn append_begun(&mut self, index: u64) {
            self.append(AppendNumber(index), record(index));
            self.begin(Mono::ZERO);
        }

        fn append_synced(&mut self, index: u64) {
            self.append(AppendNumber(index), record(index));
            assert_eq!(self.sync(Mono::ZERO), [synced(index)]);
        }

        /// Lets the log begin what it can now, and waits for what comes of it.
        fn sync(&mut self, now: Mono) -> Vec<Event> {
            self.begin(now);
            self.log.settle().unwrap();
            std::iter::from_fn(|| self.log_done(now).unwrap()).collect()
        }

        /// Until the store has done all that it was given.
        fn settle(&mut self) {
            self.store.settle().unwrap();
            while self.store_done().unwrap().is_some() {}
        }

        fn kept(&mut self, log: &SharedLog) -> Vec<u64> {
            self.log.settle().unwrap();
            log.hold().read(None, 99).unwrap().into_iter().map(|(_, record)| record.index.0).collect()
        }
    }

    #[test]
    fn appends_of_a_turn_share_one_sync_that_confirms_the_last() {
        let (mut disk, log) = disk(1 << 20);
        assert_eq!(disk.sync(Mono::ZERO), []);
        disk.append(AppendNumber(4), record(1));
        disk.append(AppendNumber(5), record(2));
        assert_eq!(disk.sync(Mono::ZERO), [synced(5)]);
        assert_eq!((disk.kept(&log), log.syncs()), (vec![1, 2], 1));
    }

    #[test]
    fn what_is_appended_while_a_batch_is_under_way_shares_the_next_sync() {
        let (mut disk, log) = disk(1 << 20);
        let held = log.hold();
        for index in 1..=3 {
            disk.append_begun(index);
        }
        assert_eq!(disk.next_done(Mono::ZERO).unwrap(), None, "nobody waits for the disk");
        drop(held);
        disk.log.settle().unwrap();
        assert_eq!(disk.kept(&log), [1]);
        assert_eq!(disk.next_done(Mono::ZERO).unwrap(), Some(synced(1)));
        assert_eq!(disk.sync(Mono::ZERO), [synced(3)]);
        assert_eq!((disk.kept(&log), log.syncs()), (vec![1, 2, 3], 2));
    }

    #[test]
    fn a_disk_that_stops_waits_for_the_batch_under_way() {
        let (mut disk, log) = disk(1 << 20);
        disk.append_begun(1);
        disk.stop().unwrap();
        assert_eq!((disk.kept(&log), log.syncs()), (vec![1], 1));
        let (mut disk, log) = self::disk(1 << 20);
        log.hold().fail_next_sync();
        disk.append_begun(1);
        assert!(disk.stop().is_err_and(|error| error.is_of_disk()), "and tells when it failed");
    }

    #[test]
    fn a_batch_under_way_when_a_flush_begins_is_kept_and_delays_no_flush() {
        let (mut disk, log) = disk(1);
        disk.append_synced(1);
        disk.apply(RING, LogIndex(1), Vec::new());
        let held = log.hold();
        disk.append_begun(2);
        disk.flush();
        disk.settle();
        drop(held);
        assert_eq!(disk.sync(Mono::ZERO), [synced(2)]);
        assert_eq!(disk.kept(&log), [2]);
        disk.flush();
        disk.settle();
        assert_eq!(disk.kept(&log), [2], "record 2 is not applied");
    }

    #[test]
    fn records_of_a_removed_tablet_are_kept_for_nobody() {
        let (mut disk, log) = disk(1);
        disk.append_synced(1);
        let held = log.hold();
        disk.append_begun(2);
        disk.append(AppendNumber(3), record(3));
        disk.remove_tablet(RING);
        drop(held);
        disk.log.settle().unwrap();
        assert_eq!(disk.log_done(Mono::ZERO).unwrap(), Some(synced(2)));
        assert_eq!(disk.sync(Mono::ZERO), [synced(3)]);
        assert!(disk.is_flush_due());
        disk.flush();
        disk.settle();
        disk.append_synced(4);
        assert_eq!(disk.kept(&log), [4]);
    }

    #[test]
    fn the_log_is_cut_up_to_a_record_that_is_never_applied_and_not_beyond() {
        let (mut disk, log) = disk(1);
        disk.create_tablet(OTHER);
        disk.append_synced(1);
        disk.append(AppendNumber(2), record_of(OTHER, 2));
        disk.append_synced(3);
        for index in 4..8 {
            disk.append_synced(index);
            disk.apply(RING, LogIndex(index), Vec::new());
            assert!(disk.is_flush_due());
            disk.flush();
            disk.settle();
            assert_eq!(disk.kept(&log), (2..=index).collect::<Vec<_>>(), "2 and 3 are of one batch");
        }
        disk.remove_tablet(OTHER);
        disk.append_synced(8);
        disk.flush();
        disk.settle();
        assert_eq!(disk.kept(&log), [8]);
    }

    #[test]
    fn a_busy_tablet_of_which_something_is_always_on_its_way_lets_the_log_be_cut() {
        let (mut disk, log) = disk(1000);
        for index in 1..100 {
            disk.append_synced(index);
            disk.apply(RING, LogIndex(index - 1), Vec::new());
            if disk.is_flush_due() {
                disk.flush();
                disk.settle();
            }
            let kept = disk.kept(&log);
            assert!(kept.len() < 10 && kept.contains(&index), "at {index}: {kept:?}");
        }
    }

    #[test]
    fn what_was_found_in_the_log_when_it_was_opened_is_kept_until_it_is_applied() {
        let log = SharedLog::default();
        log.hold().append(&[record(1), record(2)]).unwrap();
        log.hold().sync().unwrap();
        let unapplied = BTreeMap::from([(RING, LogIndex(2))]);
        let mut disk = Disk::start(MemStore::default(), log.clone(), 1, unapplied, || ()).unwrap();
        disk.create_tablet(RING);
        for (applied, kept) in [(1, &[1, 2, 3][..]), (2, &[3])] {
            disk.apply(RING, LogIndex(applied), Vec::new());
            if applied == 1 {
                disk.append_synced(3);
            }
            disk.flush();
            disk.settle();
            assert_eq!(disk.kept(&log), kept);
        }
    }

    #[test]
    fn the_log_is_cut_only_behind_what_is_applied_and_flushed() {
        let (mut disk, log) = disk(1);
        disk.append_synced(1);
        disk.flush();
        disk.settle();
        disk.append_synced(2);
        assert_eq!(disk.kept(&log), [1, 2], "record 1 is not applied yet");
        disk.apply(RING, LogIndex(2), Vec::new());
        assert!(disk.is_flush_due());
        disk.flush();
        disk.append_synced(3);
        assert_eq!(disk.kept(&log), [1, 2, 3], "the flush is not known to be done");
        disk.append_synced(4);
        disk.settle();
        assert_eq!(disk.kept(&log), [3, 4]);
    }

    #[test]
    fn a_flush_that_nothing_follows_has_the_log_cut_by_the_next_append() {
        let (mut disk, log) = disk(1);
        disk.append_synced(1);
        disk.apply(RING, LogIndex(1), Vec::new());
        disk.flush();
        assert!(!disk.is_flush_due(), "one is under way");
        disk.settle();
        assert_eq!(disk.kept(&log), [1]);
        disk.append_synced(2);
        assert_eq!(disk.kept(&log), [2]);
        assert!(disk.is_flush_due());
    }

    #[test]
    fn what_finds_no_space_waits_for_some_and_the_log_is_cut_meanwhile() {
        let (mut disk, log) = disk(1 << 20);
        disk.append_synced(1);
        disk.apply(RING, LogIndex(1), Vec::new());
        log.hold().set_full(true);
        disk.append(AppendNumber(2), record(2));
        assert_eq!(disk.sync(Mono::ZERO), [Event::LogStuck(true)]);
        assert_eq!(disk.sync(Mono::ZERO), [], "not at once");
        assert!(disk.is_flush_due(), "although the log is short");
        disk.flush();
        disk.settle();
        assert_eq!(disk.kept(&log), [0; 0]);
        let again = disk.next_try().unwrap();
        assert_eq!(disk.sync(again), [], "still full");
        log.hold().set_full(false);
        disk.append(AppendNumber(3), record(3));
        let again = disk.next_try().unwrap();
        assert_eq!(disk.sync(again), [synced(3), Event::LogStuck(false)], "that there is space is told");
        assert_eq!(disk.sync(again), []);
        assert_eq!(disk.kept(&log), [2, 3]);
    }

    #[test]
    fn what_is_being_tried_again_is_not_cut_with_the_rest() {
        let (mut disk, log) = disk(1 << 20);
        disk.append_synced(1);
        disk.apply(RING, LogIndex(1), Vec::new());
        log.hold().set_full(true);
        disk.append(AppendNumber(2), record(2));
        assert_eq!(disk.sync(Mono::ZERO), [Event::LogStuck(true)]);
        disk.flush();
        let mut held = log.hold();
        let again = disk.next_try().unwrap();
        disk.begin(again);
        assert_eq!(disk.next_try(), None, "it is under way");
        disk.settle();
        held.set_full(false);
        drop(held);
        assert_eq!(disk.sync(again), [synced(2), Event::LogStuck(false)]);
        assert_eq!(disk.kept(&log), [2]);
    }

    #[test]
    fn what_was_flushed_before_the_disk_was_full_is_cut_when_it_is() {
        let (mut disk, log) = disk(1);
        disk.append_synced(1);
        disk.apply(RING, LogIndex(1), Vec::new());
        disk.flush();
        disk.settle();
        log.hold().set_full(true);
        disk.append(AppendNumber(2), record(2));
        assert_eq!(disk.sync(Mono::ZERO), [Event::LogStuck(true)]);
        disk.begin(Mono::ZERO);
        assert_eq!(disk.kept(&log), [0; 0]);
    }

    #[test]
    fn with_little_space_the_log_is_cut_again_when_more_of_it_is_applied() {
        let (mut disk, log) = disk(1 << 20);
        for index in 1..=3 {
            disk.append_synced(index);
        }
        disk.apply(RING, LogIndex(1), Vec::new());
        disk.set_pressed(true);
        for (kept, applied) in [(&[2, 3][..], 1), (&[3], 2), (&[3], 3)] {
            disk.apply(RING, LogIndex(applied), Vec::new());
            assert!(disk.is_flush_due());
            disk.flush();
            disk.settle();
            assert_eq!(disk.kept(&log), kept);
        }
        assert!(!disk.is_flush_due(), "all that was written is cut with the next append");
        disk.append_synced(4);
        assert_eq!(disk.kept(&log), [4]);
    }

    #[test]
    fn with_little_space_the_log_is_cut_at_once_and_then_sooner_than_usual() {
        let (mut disk, _) = disk(400);
        disk.append_synced(1);
        disk.apply(RING, LogIndex(1), Vec::new());
        assert!(!disk.is_flush_due());
        disk.set_pressed(true);
        assert!(disk.is_flush_due());
        disk.flush();
        disk.settle();
        disk.set_pressed(true);
        assert!(!disk.is_flush_due(), "nothing came since");
        disk.append_synced(2);
        assert!(disk.is_flush_due());
        disk.set_pressed(false);
        assert!(!disk.is_flush_due());
    }
}
