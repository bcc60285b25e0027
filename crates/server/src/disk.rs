//! The disk of a metadata server: its store and its tablet log, and when the log is cut.
//!
//! Store commands are carried out at once, in the order given; appends of a turn are gathered and synced together. The log is cut in
//! two steps: when it has grown by its limit since the last flush and every record in it is applied, the store is flushed; the next append's
//! mark is then the first that is still needed.

use crate::StartError;
use bearing_meta::{AppendNumber, Event, LoadResult, LoadTicket};
use bearing_seams::{Change, EngineResult, KeyRange, LogMark, LoggedRecord, Store, TabletLog};
use bearing_types::{Block, LogIndex};
use std::collections::BTreeMap;

/// About what a record takes in the log beside its bytes.
const FRAME_BYTES: u64 = 64;

/// See the module.
pub struct Disk<S, L> {
    store: S,
    log: L,
    log_bytes_max: u64,
    gathered: Vec<LoggedRecord>,
    gathered_last: Option<AppendNumber>,
    /// Bytes of log that are not yet flushed into the store: what a crash now would have to replay.
    unflushed_bytes: u64,
    /// The last record of each tablet that is in the log but not yet in the store.
    unapplied: BTreeMap<Block, LogIndex>,
    flushed: bool,
}

impl<S: Store, L: TabletLog> Disk<S, L> {
    /// A disk whose log is replayed: all that is in it is in the store.
    pub fn new(store: S, log: L, log_bytes_max: u64) -> Disk<S, L> {
        Disk {
            unflushed_bytes: log.bytes_used(),
            store,
            log,
            log_bytes_max,
            gathered: Vec::new(),
            gathered_last: None,
            unapplied: BTreeMap::new(),
            flushed: false,
        }
    }

    /// Gathers a record for the next [`Disk::sync`].
    pub fn append(&mut self, number: AppendNumber, record: LoggedRecord) {
        self.unapplied.insert(record.tablet, record.index);
        self.unflushed_bytes += record.bytes.len() as u64 + FRAME_BYTES;
        self.gathered.push(record);
        self.gathered_last = Some(number);
    }

    /// Whether something is gathered.
    pub fn has_gathered(&self) -> bool {
        self.gathered_last.is_some()
    }

    /// Writes and syncs what was gathered; `None` when that is nothing.
    pub fn sync(&mut self) -> Option<Event> {
        let last = self.gathered_last.take()?;
        let result = self.write_gathered();
        self.gathered.clear();
        Some(Event::Synced(last, result))
    }

    fn write_gathered(&mut self) -> EngineResult<()> {
        let mark = self.log.append(&self.gathered)?;
        self.log.sync()?;
        self.cut(mark)
    }

    /// Lets go of what lies before the first record after a flush.
    fn cut(&mut self, mark: LogMark) -> EngineResult<()> {
        if std::mem::take(&mut self.flushed) { self.log.cut(mark) } else { Ok(()) }
    }

    /// Whether the log has grown by its limit since the last flush.
    pub fn is_flush_due(&self) -> bool {
        self.unflushed_bytes >= self.log_bytes_max
    }

    /// Flushes the store, unless something in the log is still to be applied. To be called when no command is left over.
    pub fn flush(&mut self) -> EngineResult<()> {
        if !self.unapplied.is_empty() {
            return Ok(());
        }
        self.store.flush()?;
        self.unflushed_bytes = 0;
        self.flushed = true;
        Ok(())
    }

    /// Reads keys and ranges.
    pub fn load(
        &mut self,
        ticket: LoadTicket,
        tablet: Block,
        keys: &[Vec<u8>],
        ranges: &[(KeyRange, usize)],
    ) -> Event {
        Event::Loaded(ticket, self.read(tablet, keys, ranges))
    }

    fn read(
        &mut self,
        tablet: Block,
        keys: &[Vec<u8>],
        ranges: &[(KeyRange, usize)],
    ) -> EngineResult<LoadResult> {
        let values = keys.iter().map(|key| self.store.get(tablet, key)).collect::<EngineResult<_>>()?;
        let ranges = ranges
            .iter()
            .map(|(range, count_max)| self.store.range(tablet, range, *count_max))
            .collect::<EngineResult<_>>()?;
        Ok(LoadResult { values, ranges })
    }

    /// Applies committed changes.
    pub fn apply(&mut self, tablet: Block, index: LogIndex, changes: &[Change]) -> Event {
        let result = self.store.apply(tablet, index, changes);
        if self.unapplied.get(&tablet).is_some_and(|last| *last <= index) {
            self.unapplied.remove(&tablet);
        }
        Event::Applied(tablet, index, result)
    }

    /// Makes a tablet's keyspace.
    pub fn create_tablet(&mut self, tablet: Block) -> Result<(), StartError> {
        self.store.create_tablet(tablet).map_err(StartError::engine("make a tablet's keyspace"))
    }

    /// Drops a tablet's keyspace: its records in the log are needed no more.
    pub fn remove_tablet(&mut self, tablet: Block) -> Result<(), StartError> {
        self.unapplied.remove(&tablet);
        self.store.remove_tablet(tablet).map_err(StartError::engine("remove a tablet's keyspace"))
    }

    /// Makes all that was applied stable, so that the next start has little to replay.
    pub fn stop(&mut self) -> Result<(), StartError> {
        self.store.flush().map_err(StartError::engine("flush the store"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_seams::{MemStore, MemTabletLog};
    use bearing_types::Epoch;

    fn record(index: u64) -> LoggedRecord {
        LoggedRecord {
            tablet: Block::RING,
            epoch: Epoch(1),
            index: LogIndex(index),
            bytes: vec![index as u8; 100],
        }
    }

    fn disk(log_bytes_max: u64) -> Disk<MemStore, MemTabletLog> {
        let mut disk = Disk::new(MemStore::default(), MemTabletLog::default(), log_bytes_max);
        disk.create_tablet(Block::RING).unwrap();
        disk
    }

    #[test]
    fn appends_of_a_turn_share_one_sync_that_confirms_the_last() {
        let mut disk = disk(1 << 20);
        assert_eq!(disk.sync(), None);
        disk.append(AppendNumber(4), record(1));
        disk.append(AppendNumber(5), record(2));
        assert_eq!(disk.sync(), Some(Event::Synced(AppendNumber(5), Ok(()))));
        assert_eq!(disk.log.read(None, 9).unwrap().len(), 2);
    }

    #[test]
    fn the_log_is_cut_only_behind_what_is_applied_and_flushed() {
        let mut disk = disk(1);
        disk.append(AppendNumber(1), record(1));
        disk.sync();
        disk.flush().unwrap();
        disk.append(AppendNumber(2), record(2));
        disk.sync();
        assert_eq!(disk.log.read(None, 9).unwrap().len(), 2, "record 1 is not applied yet");
        disk.apply(Block::RING, LogIndex(2), &[]);
        disk.flush().unwrap();
        disk.append(AppendNumber(3), record(3));
        disk.sync();
        let kept: Vec<_> =
            disk.log.read(None, 9).unwrap().into_iter().map(|(_, record)| record.index).collect();
        assert_eq!(kept, [LogIndex(3)]);
    }
}
