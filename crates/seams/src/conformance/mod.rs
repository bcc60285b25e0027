//! One suite per seam, holding every promise in the trait's text. Each engine runs them in its tests.
//!
//! Invariants: a suite uses only the trait and [`Subject`]; it panics with a readable claim when a promise is broken. It must not know
//! which engine it tests.

mod chunk_log;
mod coordinator;
mod store;
mod tablet_log;

pub use chunk_log::chunk_log;
pub use coordinator::coordinator;
pub use store::store;
pub use tablet_log::tablet_log;

/// How an engine is stopped before it is opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Closed in order: everything that was done is there afterwards, for engines that say so.
    Clean,
    /// Dropped without closing. Only what was made stable must be there afterwards.
    Crash,
}

/// A fresh engine under test, and the way to stop it and open it again on the same storage.
pub struct Subject<E> {
    engine: Option<E>,
    reopen: Box<dyn FnMut(E, Stop) -> E>,
}

impl<E> Subject<E> {
    /// An engine on empty storage. `reopen` stops it as told and opens it again; after [`Stop::Crash`] it may lose what was not stable.
    pub fn new(engine: E, reopen: impl FnMut(E, Stop) -> E + 'static) -> Subject<E> {
        Subject { engine: Some(engine), reopen: Box::new(reopen) }
    }

    fn engine(&mut self) -> &mut E {
        self.engine.as_mut().expect("an engine is there between two stops")
    }

    fn restart(&mut self, stop: Stop) -> &mut E {
        let engine = self.engine.take().expect("an engine is there between two stops");
        self.engine.insert((self.reopen)(engine, stop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CrashFault, MemChunkLog, MemCoordinator, MemStore, MemTabletLog};

    fn fault(stop: Stop, seed: &mut u64) -> CrashFault {
        *seed += 1;
        match stop {
            Stop::Clean => CrashFault::keeping_all(),
            Stop::Crash => CrashFault::new(*seed),
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
            });
        }
    }

    #[test]
    fn the_chunk_logs_in_memory_conform_under_many_crashes() {
        for mut seed in (0..100).map(|n| n * 1000) {
            chunk_log(|| {
                Subject::new(MemChunkLog::new(), move |mut engine, stop| {
                    engine.crash(&mut fault(stop, &mut seed));
                    engine
                })
            });
        }
    }

    #[test]
    fn the_coordinator_in_memory_conforms() {
        coordinator(|| Subject::new(MemCoordinator::new(), |engine, _| engine));
    }
}
