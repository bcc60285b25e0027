//! Open files by chunk, a bounded number of them.

use bearing_types::ChunkId;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;

/// Files kept open. More chunks than this may exist; unsynced ones stay open beyond it, so that an error of
/// writing back reaches their sync.
const OPEN_MAX: usize = 256;

struct Open {
    file: File,
    used: u64,
    unsynced: bool,
}

/// The open files.
#[derive(Default)]
pub struct Files {
    open: BTreeMap<ChunkId, Open>,
    clock: u64,
}

impl Files {
    /// The file of a chunk, opened by `open` if it is not.
    pub fn get(&mut self, chunk: ChunkId, open: impl FnOnce() -> io::Result<File>) -> io::Result<&File> {
        self.clock += 1;
        if !self.open.contains_key(&chunk) {
            let file = open()?;
            self.make_room();
            self.open.insert(chunk, Open { file, used: self.clock, unsynced: false });
        }
        let entry = self.open.get_mut(&chunk).expect("it was there or was put there");
        entry.used = self.clock;
        Ok(&entry.file)
    }

    /// Notes whether a chunk has bytes that are not synced.
    pub fn set_unsynced(&mut self, chunk: ChunkId, unsynced: bool) {
        if let Some(entry) = self.open.get_mut(&chunk) {
            entry.unsynced = unsynced;
        }
    }

    /// Closes a chunk's file.
    pub fn close(&mut self, chunk: ChunkId) {
        self.open.remove(&chunk);
    }

    fn make_room(&mut self) {
        if self.open.len() < OPEN_MAX {
            return;
        }
        let closable = self.open.iter().filter(|(_, entry)| !entry.unsynced);
        if let Some(oldest) = closable.min_by_key(|(_, entry)| entry.used).map(|(chunk, _)| *chunk) {
            self.open.remove(&oldest);
        }
    }

    /// How many files are open.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.open.len()
    }
}
