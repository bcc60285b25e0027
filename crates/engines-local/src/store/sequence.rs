//! Keeps fjall's sequence numbers from going back.
//!
//! fjall keeps the names of its keyspaces in a tree of its own and numbers each change there with the common
//! sequence. At opening it learns the sequence from the tables of the other keyspaces alone. If those are
//! behind (a tablet was removed, or never flushed), a name would be written under a smaller number than its
//! older version, and the older one, perhaps a removal, would win at the next opening.
//!
//! So one more keyspace holds one row. Invariant: at every change of the names, the sequence is less than
//! [`SKIP`] beyond the number of a row that is in a table; and at opening, [`SKIP`] numbers are skipped. So
//! every number given out after opening exceeds all that names have.

use super::{FLUSH_POLL, options, translate};
use bearing_seams::EngineResult;
use fjall::{Database, Keyspace, PersistMode};

/// The keyspace's name; no tablet is called so.
pub const KEYSPACE: &str = "sequence";
const KEY: &[u8] = b"at";
const SKIP: u64 = 2048;
/// A change of the names and the work in the background use a few numbers; the rest of [`SKIP`] is room for
/// those.
const AHEAD_MAX: u64 = SKIP / 2;

/// The row that keeps the sequence up.
pub struct SequenceGuard {
    keyspace: Keyspace,
    /// The sequence when the row was last in a table.
    stable: u64,
}

impl SequenceGuard {
    /// Skips numbers and makes that stable, before anything else is written.
    pub fn open(database: &Database) -> EngineResult<SequenceGuard> {
        let keyspace =
            database.keyspace(KEYSPACE, options).map_err(|error| translate("open keyspace", error))?;
        let mut guard = SequenceGuard { keyspace, stable: 0 };
        for _ in 0..SKIP {
            guard.write(database)?;
        }
        guard.flush(database)?;
        Ok(guard)
    }

    /// The keyspace, to be flushed with the others.
    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    /// Writes the row under the next number.
    pub fn write(&mut self, database: &Database) -> EngineResult<()> {
        let row = database.seqno().to_le_bytes();
        self.keyspace.insert(KEY, row).map_err(|error| translate("write the sequence", error))
    }

    /// To be called before a keyspace is made or removed.
    pub fn before_change(&mut self, database: &Database) -> EngineResult<()> {
        if database.seqno() < self.stable + AHEAD_MAX {
            return Ok(());
        }
        self.write(database)?;
        self.flush(database)
    }

    fn flush(&mut self, database: &Database) -> EngineResult<()> {
        self.keyspace.rotate_memtable().map_err(|error| translate("flush the sequence", error))?;
        self.wait(database)
    }

    /// Waits until the row is in a table, after its memtable was sealed.
    pub fn wait(&mut self, database: &Database) -> EngineResult<()> {
        let sealed_below = database.seqno();
        while self.keyspace.sealed_memtable_count() > 0 {
            database.persist(PersistMode::Buffer).map_err(|error| translate("flush the sequence", error))?;
            std::thread::sleep(FLUSH_POLL);
        }
        self.stable = sealed_below;
        Ok(())
    }
}
