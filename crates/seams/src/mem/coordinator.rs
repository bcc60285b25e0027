//! The coordinator in memory. It never loses anything: losing is its users' business, by not reaching it.

use crate::{Changes, Coordinator, EngineResult, Entry, Found, REMOVALS_KEPT, RegisterChange, Swap};
use std::collections::BTreeMap;

/// [`Coordinator`] in memory.
#[derive(Clone, Debug)]
pub struct MemCoordinator {
    entries: BTreeMap<String, (u64, Vec<u8>)>,
    last: u64,
    /// Keys that were removed, and when. Up to twice `removals_kept`, so that the oldest are seldom sought.
    removed: BTreeMap<String, u64>,
    /// Removals up to this version may be forgotten.
    forgotten: u64,
    removals_kept: usize,
}

impl Default for MemCoordinator {
    fn default() -> MemCoordinator {
        MemCoordinator::keeping(REMOVALS_KEPT)
    }
}

impl MemCoordinator {
    /// No entries.
    pub fn new() -> MemCoordinator {
        MemCoordinator::default()
    }

    /// The same, which remembers only so many removals: for tests.
    pub fn keeping(removals_kept: usize) -> MemCoordinator {
        let (entries, removed) = (BTreeMap::new(), BTreeMap::new());
        MemCoordinator { entries, last: 0, removed, forgotten: 0, removals_kept }
    }

    fn forget(&mut self) {
        if self.removed.len() > 2 * self.removals_kept {
            let mut versions: Vec<u64> = self.removed.values().copied().collect();
            versions.sort_unstable();
            self.forgotten = versions[versions.len() - self.removals_kept] - 1;
            self.removed.retain(|_, version| *version > self.forgotten);
        }
    }
}

/// The part of a map whose keys start with a prefix.
fn under<'a, T>(map: &'a BTreeMap<String, T>, prefix: &'a str) -> impl Iterator<Item = (&'a String, &'a T)> {
    map.range(prefix.to_owned()..).take_while(move |(key, _)| key.starts_with(prefix))
}

fn entry_of((key, (version, value)): (&String, &(u64, Vec<u8>))) -> Entry {
    Entry { key: key.clone(), version: *version, value: value.clone() }
}

impl Coordinator for MemCoordinator {
    fn read(&mut self, key: &str) -> EngineResult<Option<Entry>> {
        Ok(self.entries.get_key_value(key).map(entry_of))
    }

    fn changes(&mut self, prefix: &str, since: u64) -> EngineResult<Changes> {
        let whole = since == 0 || since < self.forgotten || since > self.last;
        let since = if whole { 0 } else { since };
        let mut found = Found::default();
        // Most who ask know everything.
        if since < self.last {
            let present = under(&self.entries, prefix).filter(|(_, (version, _))| *version > since);
            found.present = present.map(entry_of).collect();
            let absent = under(&self.removed, prefix).filter(|(_, version)| !whole && **version > since);
            found.absent = absent.map(|(key, _)| key.clone()).collect();
        }
        Ok(Changes { version: self.last, whole, found })
    }

    fn swap(&mut self, changes: &[RegisterChange]) -> EngineResult<Swap> {
        let mut conflict = Found::default();
        for RegisterChange { key, expected, .. } in changes {
            let present = self.read(key)?;
            if present.as_ref().map(|entry| entry.version) != *expected {
                match present {
                    Some(entry) => conflict.present.push(entry),
                    None => conflict.absent.push(key.clone()),
                }
            }
        }
        if conflict != Found::default() {
            return Ok(Swap::Conflict(conflict));
        }
        let version = self.last + 1;
        for RegisterChange { key, expected, value } in changes {
            match (expected, value) {
                (None, None) => continue,
                (_, Some(value)) => {
                    self.removed.remove(key);
                    self.entries.insert(key.clone(), (version, value.clone()));
                }
                (Some(_), None) => {
                    self.entries.remove(key);
                    self.removed.insert(key.clone(), version);
                }
            }
            self.last = version;
        }
        self.forget();
        Ok(Swap::Done(self.last))
    }
}
