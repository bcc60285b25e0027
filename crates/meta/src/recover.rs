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
            let known = applied.get(&tablet).copied();
            if known.is_some_and(|known| index <= known) {
                continue;
            }
            let entry = LogEntry::decode(&record.bytes)
                .map_err(|error| RecoverError::Record(tablet, index, error))?;
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
