//! A store on a thread of its own: the network never waits for a read, an apply, a flush or a compaction.
//!
//! Invariant: work is done in the order given, and its results come back in that order.

use bearing_meta::{LoadResult, LoadTicket};
use bearing_seams::{Change, DiskLabel, EngineError, EngineResult, KeyRange, Store};
use bearing_types::{DiskId, LogIndex, TabletSerial};
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// What the store is to do.
#[derive(Debug)]
pub enum Work {
    /// Read keys and ranges.
    Load(LoadTicket, TabletSerial, Vec<Vec<u8>>, Vec<(KeyRange, usize)>),
    /// Apply committed changes.
    Apply(TabletSerial, LogIndex, Vec<Change>),
    /// Keep a disk id.
    SetDisk(DiskId),
    /// Make a tablet's keyspace.
    Create(TabletSerial),
    /// Drop a tablet's keyspace.
    Remove(TabletSerial),
    /// Make all that was applied stable.
    Flush,
}

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub enum Done {
    /// [`Work::Load`].
    Loaded(LoadTicket, EngineResult<LoadResult>),
    /// [`Work::Apply`].
    Applied(TabletSerial, LogIndex, EngineResult<()>),
    /// [`Work::SetDisk`], [`Work::Create`] or [`Work::Remove`].
    Tablet(EngineResult<()>),
    /// [`Work::Flush`].
    Flushed(EngineResult<()>),
}

/// See the module.
pub struct StoreThread {
    /// `None` once it is told to end.
    work: Option<Sender<Vec<Work>>>,
    done: Receiver<Vec<Done>>,
    thread: Option<JoinHandle<()>>,
    unsent: Vec<Work>,
    arrived: VecDeque<Done>,
    /// Work whose result has not arrived.
    owed: usize,
}

impl StoreThread {
    /// Gives a store a thread; `wake` is called there whenever results are ready.
    pub fn start<S: Store + DiskLabel + Send + 'static>(
        store: S,
        wake: impl Fn() + Send + 'static,
    ) -> io::Result<StoreThread> {
        let (work, given) = channel::<Vec<Work>>();
        let (ready, done) = channel();
        let carry_out = move || {
            let mut store = store;
            for batch in given {
                let results = batch.into_iter().map(|work| carry_out(&mut store, work)).collect();
                if ready.send(results).is_err() {
                    return;
                }
                wake();
            }
        };
        let thread = std::thread::Builder::new().name("store".to_owned()).spawn(carry_out)?;
        let (unsent, arrived) = (Vec::new(), VecDeque::new());
        Ok(StoreThread { work: Some(work), done, thread: Some(thread), unsent, arrived, owed: 0 })
    }

    /// Adds work; [`StoreThread::send`] has it begun.
    pub fn add(&mut self, work: Work) {
        self.unsent.push(work);
        self.owed += 1;
    }

    /// Hands over what was added.
    pub fn send(&mut self) {
        if let (false, Some(sender)) = (self.unsent.is_empty(), &self.work) {
            // If the thread is gone, `next` says so.
            let _ = sender.send(std::mem::take(&mut self.unsent));
        }
    }

    /// The next result, if it is there. An error says that the thread died.
    pub fn next(&mut self) -> EngineResult<Option<Done>> {
        while self.arrived.is_empty() && self.owed > 0 {
            match self.done.try_recv() {
                Ok(results) => self.arrived.extend(results),
                Err(std::sync::mpsc::TryRecvError::Empty) => break,
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return Err(died()),
            }
        }
        let next = self.arrived.pop_front();
        self.owed -= usize::from(next.is_some());
        Ok(next)
    }

    /// Has something done that must not wait for other turns, and waits for it.
    pub fn finish(&mut self, work: Work) -> EngineResult<Done> {
        self.add(work);
        self.send();
        while self.arrived.len() < self.owed {
            self.arrived.extend(self.done.recv().map_err(|_| died())?);
        }
        self.owed -= 1;
        self.arrived.pop_back().ok_or_else(died)
    }
}

impl Drop for StoreThread {
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was told by `next`.
            let _ = thread.join();
        }
    }
}

fn died() -> EngineError {
    EngineError::Failed { doing: "work in the store (its thread died)".to_owned() }
}

fn carry_out(store: &mut (impl Store + DiskLabel), work: Work) -> Done {
    match work {
        Work::Load(ticket, tablet, keys, ranges) => {
            Done::Loaded(ticket, LoadResult::read(store, tablet, &keys, &ranges))
        }
        Work::Apply(tablet, index, changes) => {
            Done::Applied(tablet, index, store.apply(tablet, index, &changes))
        }
        Work::SetDisk(disk) => Done::Tablet(store.set_disk(disk)),
        Work::Create(tablet) => Done::Tablet(store.create_tablet(tablet)),
        Work::Remove(tablet) => Done::Tablet(store.remove_tablet(tablet)),
        Work::Flush => Done::Flushed(store.flush()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_seams::MemStore;

    const RING: TabletSerial = TabletSerial(1);

    fn put(key: u8, value: u8) -> Work {
        let change = Change { key: vec![key], value: Some(vec![value]) };
        Work::Apply(RING, LogIndex(u64::from(value)), vec![change])
    }

    fn read(key: u8) -> Work {
        Work::Load(LoadTicket(u64::from(key)), RING, vec![vec![key]], Vec::new())
    }

    #[test]
    fn work_is_done_in_the_order_given_and_told_in_that_order() {
        let mut thread = StoreThread::start(MemStore::default(), || ()).unwrap();
        assert_eq!(thread.finish(Work::Create(RING)), Ok(Done::Tablet(Ok(()))));
        for value in 1..=100 {
            thread.add(put(1, value));
            thread.add(read(1));
            if value % 7 == 0 {
                thread.send();
            }
        }
        assert_eq!(thread.finish(Work::Flush), Ok(Done::Flushed(Ok(()))));
        for value in 1..=100 {
            assert_eq!(thread.next(), Ok(Some(Done::Applied(RING, LogIndex(u64::from(value)), Ok(())))));
            let found = LoadResult { values: vec![Some(vec![value])], ranges: Vec::new() };
            assert_eq!(thread.next(), Ok(Some(Done::Loaded(LoadTicket(1), Ok(found)))));
        }
        assert_eq!(thread.next(), Ok(None));
    }

    #[test]
    fn results_wake_who_waits_for_them() {
        let (woken, wakes) = channel();
        let mut thread =
            StoreThread::start(MemStore::default(), move || woken.send(()).unwrap_or_default()).unwrap();
        thread.add(Work::Flush);
        assert_eq!(thread.next(), Ok(None), "it was not sent yet");
        thread.send();
        wakes.recv().unwrap();
        assert_eq!(thread.next(), Ok(Some(Done::Flushed(Ok(())))));
    }
}
