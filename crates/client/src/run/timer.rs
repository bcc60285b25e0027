//! When the machine wants to be stepped again, and why.

use crate::run::task::{Awaited, Promise, promise};
use bearing_proto::client::WaitId;
use bearing_types::{Mono, NodeId, Sequence};
use std::collections::{BTreeMap, BTreeSet};

/// What a time was set for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A request to a metadata server.
    Request(Sequence),
    /// A request to a data server.
    Data(u64),
    /// A task that sleeps.
    Sleeper(u64),
    /// The next try to get a session.
    Enrol,
    /// An operation that waits for the session to open.
    Session(u64),
    /// The lease of an open file.
    Renewal(NodeId),
    /// A wait for a lock.
    Lock(WaitId),
}

/// All times set.
#[derive(Default)]
pub(crate) struct Timers {
    queue: BTreeSet<(Mono, Timer)>,
    sleepers: BTreeMap<u64, Promise<()>>,
    next: u64,
}

impl Timers {
    pub fn set(&mut self, due: Mono, timer: Timer) {
        self.queue.insert((due, timer));
    }

    pub fn cancel(&mut self, due: Mono, timer: Timer) {
        self.queue.remove(&(due, timer));
    }

    /// The earliest time set.
    pub fn next_due(&self) -> Option<Mono> {
        self.queue.first().map(|(due, _)| *due)
    }

    /// Takes out the earliest timer whose time has come.
    pub fn take_due(&mut self, now: Mono) -> Option<Timer> {
        let (due, timer) = *self.queue.first()?;
        if due > now {
            return None;
        }
        self.queue.pop_first();
        Some(timer)
    }

    /// Something to wait for until `due`.
    pub fn sleep_until(&mut self, due: Mono) -> Awaited<()> {
        let (promise, awaited) = promise();
        self.next += 1;
        self.sleepers.insert(self.next, promise);
        self.set(due, Timer::Sleeper(self.next));
        awaited
    }

    /// Wakes a sleeper.
    pub fn wake(&mut self, sleeper: u64) {
        if let Some(promise) = self.sleepers.remove(&sleeper) {
            promise.keep(());
        }
    }
}
