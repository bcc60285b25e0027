//! The coordinator in memory. It never loses anything: losing is its users' business, by not reaching it.

use crate::{Coordinator, EngineResult, Entry, Swap};
use std::collections::BTreeMap;

/// [`Coordinator`] in memory.
#[derive(Debug, Default)]
pub struct MemCoordinator {
    entries: BTreeMap<String, (u64, Vec<u8>)>,
    last: u64,
}

impl MemCoordinator {
    /// No entries.
    pub fn new() -> MemCoordinator {
        MemCoordinator::default()
    }
}

impl Coordinator for MemCoordinator {
    fn read(&mut self, key: &str) -> EngineResult<Option<Entry>> {
        let found = self.entries.get(key);
        Ok(found.map(|(version, value)| Entry {
            key: key.to_owned(),
            version: *version,
            value: value.clone(),
        }))
    }

    fn list(&mut self, prefix: &str) -> EngineResult<(u64, Vec<Entry>)> {
        let entries = self.entries.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
        let entries = entries
            .map(|(key, (version, value))| Entry {
                key: key.clone(),
                version: *version,
                value: value.clone(),
            })
            .collect();
        Ok((self.last, entries))
    }

    fn swap(&mut self, key: &str, expected: Option<u64>, value: Option<Vec<u8>>) -> EngineResult<Swap> {
        let present = self.read(key)?;
        if present.as_ref().map(|entry| entry.version) != expected {
            return Ok(Swap::Conflict(present));
        }
        match value {
            Some(value) => {
                self.last += 1;
                self.entries.insert(key.to_owned(), (self.last, value));
            }
            None if present.is_some() => {
                self.last += 1;
                self.entries.remove(key);
            }
            // Removing what is absent changes nothing, so the version stays.
            None => {}
        }
        Ok(Swap::Done(self.last))
    }
}
