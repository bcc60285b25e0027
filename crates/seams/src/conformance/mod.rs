//! One suite per seam, holding every promise in the trait's text. Each engine runs them in its tests.
//!
//! Invariants: a suite uses only the trait and [`Subject`]; it panics with a readable claim when a promise is
//! broken. It must not know which engine it tests.

mod chunk_log;
mod coordinator;
mod disk_label;
mod store;
mod subject;
mod tablet_log;

pub use chunk_log::chunk_log;
pub use coordinator::coordinator;
pub use disk_label::disk_label;
pub use store::store;
pub use subject::{Stop, Subject};
pub use tablet_log::tablet_log;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CrashFault, MemChunkLog, MemCoordinator, MemStore, MemTabletLog};

    fn fault(stop: Stop, seed: &mut u64) -> CrashFault {
        *seed += 1;
        match stop {
            Stop::Clean => CrashFault::keeping_all(),
            Stop::Crash => CrashFault::new(*seed),
            Stop::PowerCut => CrashFault::losing_all(),
        }
    }

    #[test]
    fn the_store_in_memory_conforms_under_many_crashes() {
        for mut seed in (0..100).map(|n| n * 1000) {
            store(|| {
                Subject::new(MemStore::new(), move |mut engine, stop| {
                    engine.crash(&mut fault(stop, &mut seed));
                    engine
                })
            });
        }
    }

    #[test]
    fn the_tablet_log_in_memory_conforms_under_many_crashes() {
        for mut seed in (0..100).map(|n| n * 1000) {
            tablet_log(|| {
                Subject::new(MemTabletLog::new(), move |mut engine, stop| {
                    engine.crash(&mut fault(stop, &mut seed));
                    engine
                })
                .with_failing_syncs(MemTabletLog::fail_next_sync)
            });
        }
    }

    #[test]
    #[should_panic(expected = "what was read after a failed sync survives a power cut")]
    fn a_log_that_believes_the_page_cache_after_a_failed_sync_does_not_conform() {
        tablet_log(|| {
            Subject::new(MemTabletLog::believing_the_page_cache(), move |mut engine, stop| {
                let mut fault = match stop {
                    Stop::Clean | Stop::Crash => CrashFault::keeping_all(),
                    Stop::PowerCut => CrashFault::losing_all(),
                };
                engine.crash(&mut fault);
                engine
            })
            .with_failing_syncs(MemTabletLog::fail_next_sync)
        });
    }

    #[test]
    fn the_chunk_logs_in_memory_conform_under_many_crashes() {
        for mut seed in (0..100).map(|n| n * 1000) {
            chunk_log(|| {
                Subject::new(MemChunkLog::new(), move |mut engine, stop| {
                    engine.crash(&mut fault(stop, &mut seed));
                    engine
                })
                .with_failing_syncs(MemChunkLog::fail_next_sync)
            });
        }
    }

    #[test]
    fn disk_ids_in_memory_conform() {
        disk_label(|| {
            Subject::new(MemStore::new(), |mut engine, _| {
                engine.crash(&mut CrashFault::losing_all());
                engine
            })
        });
        disk_label(|| {
            Subject::new(MemTabletLog::new(), |mut engine, _| {
                engine.crash(&mut CrashFault::losing_all());
                engine
            })
        });
        disk_label(|| {
            Subject::new(MemChunkLog::new(), |mut engine, _| {
                engine.crash(&mut CrashFault::losing_all());
                engine
            })
        });
    }

    #[test]
    fn the_coordinator_in_memory_conforms() {
        coordinator(2, || Subject::new(MemCoordinator::keeping(2), |engine, _| engine));
    }
}
