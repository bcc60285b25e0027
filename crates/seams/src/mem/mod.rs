//! Engines in memory, for the simulator and for tests of machines.
//!
//! Invariants: deterministic; each engine knows which part of what it holds is stable, and `crash` keeps that
//! part and a choice of the rest that a real disk could have kept. The same object goes on after a crash as
//! if it had been opened again. Nothing here may promise more than the traits do.

mod chunk_log;
mod coordinator;
mod fault;
mod store;
mod tablet_log;

pub use chunk_log::MemChunkLog;
pub use coordinator::MemCoordinator;
pub use fault::CrashFault;
pub use store::MemStore;
pub use tablet_log::MemTabletLog;

use crate::{EngineError, EngineResult};

/// The fault switches that all engines with a sync share.
#[derive(Clone, Debug, Default)]
struct Switches {
    fail_next_sync: bool,
    full: bool,
    broken: bool,
}

impl Switches {
    /// Whether a write may go on.
    fn check_write(&self, doing: &str) -> EngineResult<()> {
        if self.broken {
            return Err(EngineError::Failed { doing: format!("{doing}: an earlier sync") });
        }
        if self.full {
            return Err(EngineError::Full { doing: doing.to_owned() });
        }
        Ok(())
    }

    /// Whether a sync succeeds; after a failed one nothing is written any more.
    fn check_sync(&mut self, doing: &str) -> EngineResult<()> {
        if self.fail_next_sync {
            self.fail_next_sync = false;
            self.broken = true;
        }
        if self.broken {
            return Err(EngineError::Failed { doing: doing.to_owned() });
        }
        Ok(())
    }
}

/// The error of a call that makes no sense in the engine's present state. It changes nothing.
fn refused<T>(doing: String) -> EngineResult<T> {
    Err(EngineError::Failed { doing })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, ChunkLog, LoggedRecord, Store, TabletLog};
    use bearing_types::{ChunkId, Epoch, LogIndex, TabletSerial};

    const CHUNK: ChunkId = ChunkId(1);
    const TABLET: TabletSerial = TabletSerial(1);

    fn record(index: u64) -> LoggedRecord {
        LoggedRecord {
            serial: TABLET,
            epoch: Epoch(1),
            index: LogIndex(index),
            commit: LogIndex::ZERO,
            bytes: vec![7; 100],
        }
    }

    #[test]
    fn after_a_failed_sync_nothing_is_written_until_a_crash() {
        let mut log = MemTabletLog::new();
        log.append(&[record(1)]).unwrap();
        log.fail_next_sync();
        assert!(log.sync().is_err() && log.sync().is_err() && log.append(&[record(2)]).is_err());
        log.crash(&mut CrashFault::losing_all());
        assert_eq!(log.read(None, 9).unwrap(), vec![]);
        log.append(&[record(1)]).unwrap();
        log.sync().unwrap();

        let mut store = MemStore::new();
        store.create_tablet(TABLET).unwrap();
        store.fail_next_sync();
        let change = [Change { key: vec![1], value: None }];
        assert!(store.flush().is_err() && store.apply(TABLET, LogIndex(1), &change).is_err());
    }

    #[test]
    fn a_tablet_that_was_being_removed_may_be_back_after_a_crash_and_never_after_a_flush() {
        let mut back = 0;
        for seed in 0..100 {
            let mut store = MemStore::new();
            store.create_tablet(TABLET).unwrap();
            store.apply(TABLET, LogIndex(7), &[]).unwrap();
            store.flush().unwrap();
            store.remove_tablet(TABLET).unwrap();
            store.create_tablet(TABLET).unwrap();
            assert_eq!(store.applied(TABLET).unwrap(), Some(LogIndex::ZERO));
            if seed % 2 == 0 {
                store.flush().unwrap();
            }
            store.crash(&mut CrashFault::new(seed));
            let is_back = store.applied(TABLET).unwrap() == Some(LogIndex(7));
            assert!(seed % 2 == 1 || !is_back, "it was flushed");
            back += usize::from(is_back);
        }
        assert!((5..45).contains(&back), "{back}");
    }

    #[test]
    fn a_full_device_refuses_writes_and_loses_nothing() {
        let mut log = MemChunkLog::new();
        log.create(CHUNK, Epoch(1)).unwrap();
        log.append(CHUNK, 0, b"abc").unwrap();
        log.set_full(true);
        assert!(matches!(log.append(CHUNK, 3, b"d"), Err(EngineError::Full { .. })));
        log.sync(CHUNK).unwrap();
        log.set_full(false);
        log.append(CHUNK, 3, b"d").unwrap();
        assert_eq!(log.read(CHUNK, 0, 9).unwrap(), b"abcd");
    }

    #[test]
    fn crashes_lose_tear_and_spoil_unsynced_chunk_bytes() {
        let (mut lost, mut whole, mut spoilt, mut vanished) = (0, 0, 0, 0);
        for seed in 0..200 {
            let mut log = MemChunkLog::new();
            log.create(CHUNK, Epoch(1)).unwrap();
            log.append(CHUNK, 0, &[9; 4000]).unwrap();
            log.crash(&mut CrashFault::new(seed));
            match log.read(CHUNK, 0, 4000) {
                Err(_) => vanished += 1,
                Ok(bytes) if bytes.iter().any(|byte| *byte != 9) => spoilt += 1,
                Ok(bytes) if bytes.len() == 4000 => whole += 1,
                Ok(_) => lost += 1,
            }
        }
        assert!(lost > 5 && whole > 5 && spoilt > 5 && vanished > 5, "{lost} {whole} {spoilt} {vanished}");
    }

    #[test]
    fn the_same_seed_gives_the_same_crash() {
        let run = |seed| {
            let mut log = MemTabletLog::new();
            log.append(&(0..50).map(record).collect::<Vec<_>>()).unwrap();
            log.crash(&mut CrashFault::new(seed));
            log.read(None, 99).unwrap().len()
        };
        assert!((0..20).all(|seed| run(seed) == run(seed)));
        assert!((0..20).map(run).collect::<std::collections::BTreeSet<_>>().len() > 3);
    }
}
