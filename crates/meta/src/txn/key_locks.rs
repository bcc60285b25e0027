//! Locked keys of a tablet, and the jobs that wait for them. In memory only: who takes the tablet over locks
//! again what records say.

use crate::record::Key;
use crate::words::{JobId, LockedBy};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct KeyLocks {
    locked: BTreeMap<Key, LockedBy>,
    waiting: BTreeMap<Key, Vec<JobId>>,
}

impl KeyLocks {
    pub fn lock(&mut self, key: Key, by: LockedBy) {
        self.locked.insert(key, by);
    }

    /// Locks what a record names.
    pub fn lock_encoded(&mut self, keys: &[Vec<u8>], by: LockedBy) {
        let keys = keys.iter().filter_map(|key| Key::decode(key));
        self.locked.extend(keys.map(|key| (key, by)));
    }

    /// Whether somebody else than `own` has locked a key.
    pub fn is_locked(&self, key: &Key, own: Option<LockedBy>) -> bool {
        self.locked.get(key).is_some_and(|by| Some(*by) != own)
    }

    /// The first key of a range that somebody else than `own` has locked.
    pub fn first_locked(&self, keys: RangeInclusive<Key>, own: Option<LockedBy>) -> Option<Key> {
        self.locked.range(keys).find(|(_, by)| Some(**by) != own).map(|(key, _)| *key)
    }

    pub fn wait(&mut self, key: Key, job: JobId) {
        self.waiting.entry(key).or_default().push(job);
    }

    /// A job does not wait for a lock any more.
    pub fn stop_waiting(&mut self, job: JobId) {
        self.waiting.retain(|_, jobs| {
            jobs.retain(|waiting| *waiting != job);
            !jobs.is_empty()
        });
    }

    /// Nobody waits any more.
    pub fn forget_waiting(&mut self) {
        self.waiting.clear();
    }

    /// How many jobs wait.
    pub fn waiting(&self) -> usize {
        self.waiting.values().map(Vec::len).sum()
    }

    /// Unlocks what a holder has locked. Returns the jobs that waited for it.
    pub fn unlock(&mut self, by: LockedBy) -> Vec<JobId> {
        let keys: Vec<Key> =
            self.locked.iter().filter(|(_, holder)| **holder == by).map(|(key, _)| *key).collect();
        let mut jobs = Vec::new();
        for key in keys {
            self.locked.remove(&key);
            jobs.extend(self.waiting.remove(&key).unwrap_or_default());
        }
        jobs
    }
}
