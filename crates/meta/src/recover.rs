//! Recovery: the log is replayed into the store from what the store has flushed. Afterwards the store holds all that was ever committed, and tablets
//! start from it alone.

use crate::record::{LogEntry, RecordError};
use bearing_seams::{Change, EngineError, Store, TabletLog};
use bearing_types::{Block, LogIndex};
use std::collections::BTreeMap;
use std::fmt;

/// Records read from the log at a time.
const READ_RECORDS: usize = 1024;

/// Why a server cannot start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoverError {
    /// The store or the log.
    Engine(EngineError),
    /// A log record of this tablet and index.
    Record(Block, LogIndex, RecordError),
}

impl fmt::Display for RecoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecoverError::Engine(error) => write!(f, "replay the tablet log: {error}"),
            RecoverError::Record(tablet, index, error) => {
                write!(f, "replay record {index} of tablet {tablet}: {error}")
            }
        }
    }
}

impl std::error::Error for RecoverError {}

impl From<EngineError> for RecoverError {
    fn from(error: EngineError) -> RecoverError {
        RecoverError::Engine(error)
    }
}

/// Replays the log. Returns each tablet with the index of its last record.
pub fn recover(
    store: &mut dyn Store,
    log: &mut dyn TabletLog,
) -> Result<Vec<(Block, LogIndex)>, RecoverError> {
    let mut applied: BTreeMap<Block, LogIndex> = BTreeMap::new();
    for tablet in store.tablets()? {
        applied.insert(tablet, store.applied(tablet)?.unwrap_or(LogIndex::ZERO));
    }
    let mut from = None;
    loop {
        let records = log.read(from, READ_RECORDS)?;
        // A read from a mark gives that record again.
        let skip = usize::from(from.is_some());
        let Some((last, _)) = records.last() else { break };
        let (last, count) = (*last, records.len());
        for (_, record) in records.into_iter().skip(skip) {
            let (tablet, index) = (record.tablet, record.index);
            let entry = LogEntry::decode(&record.bytes)
                .map_err(|error| RecoverError::Record(tablet, index, error))?;
            let known = applied.get(&tablet).copied();
            // The order of the log counts, not the indices: a hand-over that was begun anew repeats indices of the one that was not finished.
            // Whatever follows such a record is in the log too, since only what is oldest is cut.
            if !entry.reset && known.is_some_and(|known| index <= known) {
                continue;
            }
            if entry.reset {
                store.remove_tablet(tablet)?;
            }
            if entry.reset || known.is_none() {
                store.create_tablet(tablet)?;
            }
            let changes =
                entry.changes.into_iter().map(|change| Change { key: change.key, value: change.value });
            store.apply(tablet, index, &changes.collect::<Vec<_>>())?;
            applied.insert(tablet, index);
        }
        if count < READ_RECORDS {
            break;
        }
        from = Some(last);
    }
    Ok(applied.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::LoggedChange;
    use bearing_seams::{LoggedRecord, MemStore, MemTabletLog};
    use bearing_types::Epoch;

    fn part(index: u64, reset: bool, key: u8, value: u8) -> LoggedRecord {
        let change = LoggedChange { key: vec![key], value: Some(vec![value]) };
        let bytes = LogEntry { reset, changes: vec![change] }.encode();
        LoggedRecord { tablet: Block::RING, epoch: Epoch(1), index: LogIndex(index), bytes }
    }

    #[test]
    fn a_hand_over_that_was_begun_anew_counts_whatever_the_one_before_it_left() {
        let mut log = MemTabletLog::default();
        let unfinished = [part(10, true, 1, 1), part(11, false, 2, 1), part(12, false, 3, 1)];
        let whole = [part(11, true, 1, 2), part(12, false, 2, 2), part(13, false, 4, 2)];
        log.append(&[unfinished, whole].concat()).unwrap();
        log.sync().unwrap();
        let mut store = MemStore::default();
        // Once from nothing, and once more when the store has it all.
        for _ in 0..2 {
            assert_eq!(recover(&mut store, &mut log), Ok(vec![(Block::RING, LogIndex(13))]));
            let range = bearing_seams::KeyRange { start: Vec::new(), end: None };
            let pairs = store.range(Block::RING, &range, 9).unwrap();
            assert_eq!(pairs, [(vec![1], vec![2]), (vec![2], vec![2]), (vec![4], vec![2])]);
        }
    }
}
