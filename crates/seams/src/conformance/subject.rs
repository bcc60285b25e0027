//! An engine under test, and how it is stopped and opened again.

/// How an engine is stopped before it is opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Closed in order: everything that was done is there afterwards, for engines that say so.
    Clean,
    /// Dropped without closing. Only what was made stable must be there afterwards.
    Crash,
    /// The same, and the machine loses its power: what the system showed and the disk does not have is gone.
    PowerCut,
}

/// A fresh engine under test, and the way to stop it and open it again on the same storage.
pub struct Subject<E> {
    engine: Option<E>,
    reopen: Box<dyn FnMut(E, Stop) -> E>,
    fail_next_sync: Option<fn(&mut E)>,
}

impl<E> Subject<E> {
    /// An engine on empty storage. `reopen` stops it as told and opens it again; after [`Stop::Crash`] it may
    /// lose what was not stable.
    pub fn new(engine: E, reopen: impl FnMut(E, Stop) -> E + 'static) -> Subject<E> {
        Subject { engine: Some(engine), reopen: Box::new(reopen), fail_next_sync: None }
    }

    /// The same, whose next sync can be made to fail. What was to be synced may then be shown by the system
    /// although the disk does not have it; [`Stop::PowerCut`] ends that.
    pub fn with_failing_syncs(self, fail_next_sync: fn(&mut E)) -> Subject<E> {
        Subject { fail_next_sync: Some(fail_next_sync), ..self }
    }

    /// Has the next sync fail, if that can be done.
    pub(super) fn fail_next_sync(&mut self) -> bool {
        let Some(fail) = self.fail_next_sync else { return false };
        fail(self.engine());
        true
    }

    pub(super) fn engine(&mut self) -> &mut E {
        self.engine.as_mut().expect("an engine is there between two stops")
    }

    pub(super) fn restart(&mut self, stop: Stop) -> &mut E {
        let engine = self.engine.take().expect("an engine is there between two stops");
        self.engine.insert((self.reopen)(engine, stop))
    }
}
