//! The disk of a metadata server: its store and its tablet log, and when the log is cut.
//!
//! Store commands are carried out by the store's thread in the order given; appends of a turn are gathered
//! and synced together here. The log is cut in three steps: when it has grown by its limit since the last
//! flush, and every record in it was handed to the store, the store is told to flush; the next append's mark
//! is then the first that is still needed; when the flush is done, the log is cut there.
//!
//! When the disk is full, what was gathered stays gathered, and is tried again: it is neither in the log nor
//! lost. The log is cut as far as it can be meanwhile, because that gives space back. A store that finds no
//! space ends the server: it takes no more changes until it is opened anew. So the machine refuses changes
//! long before (`bearing_meta::Headroom`).

use crate::StartError;
use crate::store_thread::{Done, StoreThread, Work};
use bearing_meta::{AppendNumber, Event, LoadTicket};
use bearing_seams::{
    Change, DiskLabel, EngineError, EngineResult, KeyRange, LogMark, LoggedRecord, TabletLog,
};
use bearing_types::{DiskId, LogIndex, Mono, TabletSerial};
use std::collections::BTreeMap;
use std::time::Duration;

/// About what a record takes in the log beside its bytes.
const FRAME_BYTES: u64 = 64;
/// An append that found no space is tried again after so long.
const TRY_AGAIN: Duration = Duration::from_millis(100);
/// With little space the log is cut when it has this part of its limit.
const PRESSED: u64 = 4;

/// See the module.
pub struct Disk<L> {
    store: StoreThread,
    log: L,
    log_bytes_max: u64,
    gathered: Vec<LoggedRecord>,
    gathered_last: Option<AppendNumber>,
    /// Bytes of log that no flush covers: what a crash now would have to replay, if the flush under way
    /// succeeds.
    unflushed_bytes: u64,
    /// The last record of each tablet that is in the log but was not yet handed to the store.
    unapplied: BTreeMap<TabletSerial, LogIndex>,
    flush: Flush,
    /// When to try again what found no space.
    stuck: Option<Mono>,
    /// Whether the machine was told that there is no space.
    stuck_told: bool,
    pressure: Pressure,
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

impl<L: TabletLog + DiskLabel> Disk<L> {
    /// A disk whose log is replayed: all that is in it is in the store, but for what is not known to be
    /// committed, up to these records.
    pub fn new(
        store: StoreThread,
        log: L,
        log_bytes_max: u64,
        unapplied: BTreeMap<TabletSerial, LogIndex>,
    ) -> Disk<L> {
        Disk {
            unflushed_bytes: log.bytes_used(),
            store,
            log,
            log_bytes_max,
            gathered: Vec::new(),
            gathered_last: None,
            unapplied,
            flush: Flush::Idle,
            stuck: None,
            stuck_told: false,
            pressure: Pressure::Usual,
        }
    }

    /// Gathers a record for the next [`Disk::sync`].
    pub fn append(&mut self, number: AppendNumber, record: LoggedRecord) {
        self.unflushed_bytes += record.bytes.len() as u64 + FRAME_BYTES;
        self.gathered.push(record);
        self.gathered_last = Some(number);
    }

    /// Whether [`Disk::sync`] has something to do now.
    pub fn wants_sync(&self, now: Mono) -> bool {
        match self.stuck {
            Some(again) => now >= again,
            None => self.gathered_last.is_some() || self.stuck_told,
        }
    }

    /// When to come back although nothing happened.
    pub fn next_try(&self) -> Option<Mono> {
        self.stuck
    }

    /// Whether there is little space on the disk.
    pub fn set_pressed(&mut self, pressed: bool) {
        self.pressure = match (pressed, self.pressure) {
            (false, _) => Pressure::Usual,
            (true, Pressure::Usual) => Pressure::New,
            (true, known) => known,
        };
    }

    /// Writes and syncs what was gathered, or says whether there is space; `None` when there is nothing to do
    /// or to say.
    pub fn sync(&mut self, now: Mono) -> Option<Event> {
        if self.stuck.is_some_and(|again| now < again) {
            return None;
        }
        if self.gathered_last.is_none() {
            return std::mem::take(&mut self.stuck_told).then_some(Event::LogStuck(false));
        }
        let written = self.log.append(&self.gathered);
        if let Err(EngineError::Full { doing }) = &written {
            self.stuck = Some(now.after(TRY_AGAIN));
            self.pressure = if self.pressure == Pressure::Usual { Pressure::New } else { self.pressure };
            if !std::mem::replace(&mut self.stuck_told, true) {
                tracing::error!("{doing}: the disk is full; it is tried again until there is space");
                return Some(Event::LogStuck(true));
            }
            return None;
        }
        self.stuck = None;
        let last = self.gathered_last.take()?;
        let result = written.and_then(|mark| self.written(mark));
        self.gathered.clear();
        Some(Event::Synced(last, result))
    }

    fn written(&mut self, mark: LogMark) -> EngineResult<()> {
        for record in &self.gathered {
            // An intent has no index, but must reach the store like the rest.
            let last = self.unapplied.entry(record.serial).or_insert(record.index);
            *last = record.index.max(*last);
        }
        self.log.sync()?;
        match self.flush {
            Flush::UnderWay(None) => self.flush = Flush::UnderWay(Some(mark)),
            Flush::Done => {
                self.flush = Flush::Idle;
                self.log.cut(mark)?;
            }
            Flush::Idle | Flush::UnderWay(Some(_)) => {}
        }
        Ok(())
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

    /// Has the store flushed, unless something in the log was not yet handed to it.
    pub fn flush(&mut self) {
        if self.unapplied.is_empty() {
            self.store.add(Work::Flush);
            self.flush = Flush::UnderWay(None);
            self.unflushed_bytes = 0;
            self.pressure = if self.pressure == Pressure::New { Pressure::Known } else { self.pressure };
        }
    }

    fn flushed(&mut self, result: EngineResult<()>) -> EngineResult<()> {
        result?;
        match std::mem::replace(&mut self.flush, Flush::Idle) {
            Flush::UnderWay(Some(mark)) => self.log.cut(mark),
            // Nothing can come after it, and it was all flushed.
            Flush::UnderWay(None) if self.stuck.is_some() => self.log.cut(LogMark(u64::MAX)),
            Flush::UnderWay(None) | Flush::Done => {
                self.flush = Flush::Done;
                Ok(())
            }
            Flush::Idle => Ok(()),
        }
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
        if self.unapplied.get(&tablet).is_some_and(|last| *last <= index) {
            self.unapplied.remove(&tablet);
        }
    }

    /// Lets the store begin what it was given.
    pub fn begin(&mut self) {
        self.store.send();
    }

    /// The next thing that the store has done, as far as the machine wants to know of it.
    pub fn next_done(&mut self) -> Result<Option<Event>, StartError> {
        loop {
            match self.store.next().map_err(StartError::engine("work in the store"))? {
                None => return Ok(None),
                Some(Done::Loaded(ticket, result)) => return Ok(Some(Event::Loaded(ticket, result))),
                Some(Done::Applied(tablet, index, result)) => {
                    return Ok(Some(Event::Applied(tablet, index, result)));
                }
                Some(Done::Flushed(result)) => {
                    self.flushed(result).map_err(StartError::engine("flush the store"))?;
                }
                Some(Done::Tablet(_)) => {}
            }
        }
    }

    /// Gives the store and the log a disk id.
    pub fn set_disk(&mut self, disk: DiskId) -> Result<(), StartError> {
        let doing = "give the disk an id";
        self.log.set_disk(disk).map_err(StartError::engine(doing))?;
        self.change_tablets(Work::SetDisk(disk), doing)
    }

    /// Makes a tablet's keyspace.
    pub fn create_tablet(&mut self, tablet: TabletSerial) -> Result<(), StartError> {
        self.change_tablets(Work::Create(tablet), "make a tablet's keyspace")
    }

    /// Drops a tablet's keyspace: its records in the log are needed no more.
    pub fn remove_tablet(&mut self, tablet: TabletSerial) -> Result<(), StartError> {
        self.unapplied.remove(&tablet);
        self.change_tablets(Work::Remove(tablet), "remove a tablet's keyspace")
    }

    /// Waits until it is stable: what the log says next relies on it.
    fn change_tablets(&mut self, work: Work, doing: &'static str) -> Result<(), StartError> {
        match self.store.finish(work).map_err(StartError::engine(doing))? {
            Done::Tablet(result) => result.map_err(StartError::engine(doing)),
            other => unreachable!("the store was asked to {doing} and answered {other:?}"),
        }
    }

    /// Makes all that was applied stable, so that the next start has little to replay.
    pub fn stop(&mut self) -> Result<(), StartError> {
        match self.store.finish(Work::Flush).map_err(StartError::engine("flush the store"))? {
            Done::Flushed(result) => result.map_err(StartError::engine("flush the store")),
            other => unreachable!("the store was asked to flush and answered {other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_seams::{MemStore, MemTabletLog};
    use bearing_types::Epoch;

    const RING: TabletSerial = TabletSerial(1);

    fn record(index: u64) -> LoggedRecord {
        LoggedRecord {
            serial: RING,
            epoch: Epoch(1),
            index: LogIndex(index),
            commit: LogIndex(index - 1),
            bytes: vec![index as u8; 100],
        }
    }

    fn disk(log_bytes_max: u64) -> Disk<MemTabletLog> {
        let store = StoreThread::start(MemStore::default(), || ()).unwrap();
        let mut disk = Disk::new(store, MemTabletLog::default(), log_bytes_max, BTreeMap::new());
        disk.create_tablet(RING).unwrap();
        disk
    }

    impl Disk<MemTabletLog> {
        fn append_synced(&mut self, index: u64) {
            self.append(AppendNumber(index), record(index));
            self.sync(Mono::ZERO);
        }

        /// Until the store has done all that it was given.
        fn settle(&mut self) {
            // Making a keyspace that is there changes nothing, and comes last.
            self.create_tablet(RING).unwrap();
            while self.next_done().unwrap().is_some() {}
        }

        fn kept(&mut self) -> Vec<u64> {
            self.log.read(None, 99).unwrap().into_iter().map(|(_, record)| record.index.0).collect()
        }
    }

    #[test]
    fn appends_of_a_turn_share_one_sync_that_confirms_the_last() {
        let mut disk = disk(1 << 20);
        assert_eq!(disk.sync(Mono::ZERO), None);
        disk.append(AppendNumber(4), record(1));
        disk.append(AppendNumber(5), record(2));
        assert_eq!(disk.sync(Mono::ZERO), Some(Event::Synced(AppendNumber(5), Ok(()))));
        assert_eq!(disk.log.read(None, 9).unwrap().len(), 2);
    }

    #[test]
    fn the_log_is_cut_only_behind_what_is_applied_and_flushed() {
        let mut disk = disk(1);
        disk.append_synced(1);
        disk.flush();
        disk.settle();
        disk.append_synced(2);
        assert_eq!(disk.kept(), [1, 2], "record 1 is not applied yet");
        disk.apply(RING, LogIndex(2), Vec::new());
        assert!(disk.is_flush_due());
        disk.flush();
        disk.append_synced(3);
        assert_eq!(disk.kept(), [1, 2, 3], "the flush is not known to be done");
        disk.append_synced(4);
        disk.settle();
        assert_eq!(disk.kept(), [3, 4]);
    }

    #[test]
    fn a_flush_that_nothing_follows_has_the_log_cut_by_the_next_append() {
        let mut disk = disk(1);
        disk.append_synced(1);
        disk.apply(RING, LogIndex(1), Vec::new());
        disk.flush();
        assert!(!disk.is_flush_due(), "one is under way");
        disk.settle();
        assert_eq!(disk.kept(), [1]);
        disk.append_synced(2);
        assert_eq!(disk.kept(), [2]);
        assert!(disk.is_flush_due());
    }

    #[test]
    fn what_finds_no_space_waits_for_some_and_the_log_is_cut_meanwhile() {
        let mut disk = disk(1 << 20);
        disk.append_synced(1);
        disk.apply(RING, LogIndex(1), Vec::new());
        disk.log.set_full(true);
        disk.append(AppendNumber(2), record(2));
        assert!(disk.wants_sync(Mono::ZERO));
        assert_eq!(disk.sync(Mono::ZERO), Some(Event::LogStuck(true)));
        assert_eq!(disk.sync(Mono::ZERO), None);
        assert!(!disk.wants_sync(Mono::ZERO), "not at once");
        assert!(disk.is_flush_due(), "although the log is short");
        disk.flush();
        disk.settle();
        assert_eq!(disk.kept(), [0; 0]);
        let again = disk.next_try().unwrap();
        assert_eq!(disk.sync(again), None, "still full");
        disk.log.set_full(false);
        disk.append(AppendNumber(3), record(3));
        let again = disk.next_try().unwrap();
        assert!(disk.wants_sync(again));
        assert_eq!(disk.sync(again), Some(Event::Synced(AppendNumber(3), Ok(()))));
        assert!(disk.wants_sync(again), "that there is space is told");
        assert_eq!(disk.sync(again), Some(Event::LogStuck(false)));
        assert_eq!(disk.sync(again), None);
        assert_eq!(disk.kept(), [2, 3]);
    }

    #[test]
    fn with_little_space_the_log_is_cut_at_once_and_then_sooner_than_usual() {
        let mut disk = disk(400);
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
