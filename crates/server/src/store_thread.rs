//! The store on a thread of its own: the network never waits for a read, an apply, a flush or a compaction.

use crate::digests::Reading;
use crate::engine_thread::EngineThread;
use bearing_meta::{LoadResult, LoadTicket, compared_pairs};
use bearing_seams::{Change, DiskLabel, EngineResult, KeyRange, Store};
use bearing_types::{DiskId, LogIndex, TabletSerial};
use std::io;
use std::sync::mpsc::Sender;

/// What the store is to do.
#[derive(Debug)]
pub enum Work {
    /// Read keys and ranges.
    Load(LoadTicket, TabletSerial, Vec<Vec<u8>>, Vec<(KeyRange, usize)>),
    /// Apply committed changes.
    Apply(TabletSerial, LogIndex, Vec<Change>),
    /// Keep a disk id.
    SetDisk(DiskId),
    /// Make a tablet.
    Create(TabletSerial),
    /// Drop a tablet.
    Remove(TabletSerial),
    /// Give what a tablet has now, up to this record, to who computes digests.
    Read(TabletSerial, LogIndex, Sender<Reading>),
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
    /// [`Work::SetDisk`], [`Work::Create`], [`Work::Remove`] or [`Work::Read`].
    Tablet(EngineResult<()>),
    /// [`Work::Flush`].
    Flushed(EngineResult<()>),
}

/// See the module.
pub type StoreThread = EngineThread<Work, Done>;

impl StoreThread {
    /// Gives a store a thread; `wake` is called there whenever results are ready.
    pub fn start<S: Store + DiskLabel + Send + 'static>(
        store: S,
        wake: impl Fn() + Send + 'static,
    ) -> io::Result<StoreThread> {
        EngineThread::around("store", store, carry_out, wake)
    }
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
        Work::Read(tablet, index, readings) => {
            let pairs = compared_pairs(store, tablet);
            // If nobody computes digests any more, the server stops.
            let _ = readings.send(Reading { tablet, index, pairs });
            Done::Tablet(Ok(()))
        }
        Work::Flush => Done::Flushed(store.flush()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digests::Digests;
    use bearing_proto::tablets::Digest;
    use bearing_seams::MemStore;
    use std::sync::mpsc::channel;

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
    fn a_digest_is_of_what_was_applied_before_it_was_asked_for() {
        let digests = Digests::start(|| ()).unwrap();
        let mut thread = StoreThread::start(MemStore::default(), || ()).unwrap();
        thread.add(Work::Create(RING));
        thread.add(put(1, 1));
        thread.add(Work::Read(RING, LogIndex(1), digests.readings()));
        thread.add(put(1, 2));
        thread.add(Work::Read(TabletSerial(9), LogIndex(1), digests.readings()));
        assert_eq!(thread.finish(Work::Flush), Ok(Done::Flushed(Ok(()))));
        let next = || loop {
            match digests.next() {
                Some(done) => return done,
                None => std::thread::yield_now(),
            }
        };
        let expected = Digest::of([Ok((vec![1], vec![1]))].into_iter());
        assert_eq!(next(), (RING, LogIndex(1), expected));
        assert!(matches!(next(), (TabletSerial(9), LogIndex(1), Err(_))));
        // It ends although somebody could still give it something.
        drop((thread, digests));
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
