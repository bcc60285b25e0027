//! The coordinator in a redb file.
//!
//! Invariants: every swap is one transaction that is synced when it returns; the counter of versions is in
//! the same file and never goes back.

use crate::directory::{failed, parent, sync_directory};
use bearing_seams::{Coordinator, EngineError, EngineResult, Entry, Swap};
use redb::{
    Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, StorageError, Table,
    TableDefinition, TableError,
};
use std::fs;
use std::path::{Path, PathBuf};

/// Key to (version, value).
const ENTRIES: TableDefinition<&str, (u64, &[u8])> = TableDefinition::new("entries");
/// Facts about the file itself: `format`, and `last`, the version of the last change.
const FACTS: TableDefinition<&str, u64> = TableDefinition::new("facts");
const FORMAT_FACT: &str = "format";
const LAST_FACT: &str = "last";
const FORMAT_VERSION: u32 = 1;
/// The file holds a few thousand small entries: a small cache is plenty.
const CACHE_BYTES: usize = 4 * 1024 * 1024;

/// [`Coordinator`] in one file.
#[derive(Debug)]
pub struct RedbCoordinator {
    database: Database,
    path: PathBuf,
}

/// Translates the many errors of redb, with what was being done.
struct Doing<'a>(&'a str, &'a Path);

impl Doing<'_> {
    fn failed(&self, error: impl Into<redb::Error>) -> EngineError {
        match error.into() {
            redb::Error::DatabaseAlreadyOpen => EngineError::Busy { what: self.1.display().to_string() },
            redb::Error::Corrupted(what) => {
                EngineError::Corrupt { what: format!("{}: {what}", self.1.display()) }
            }
            redb::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                EngineError::Corrupt { what: format!("{}: {error}", self.1.display()) }
            }
            redb::Error::Io(error) => failed(self.0, self.1, &error),
            other => EngineError::Failed { doing: format!("{} {} ({other})", self.0, self.1.display()) },
        }
    }
}

impl RedbCoordinator {
    /// Opens the file, or makes it.
    pub fn open(path: &Path) -> EngineResult<RedbCoordinator> {
        if !path.exists() {
            create(path)?;
        }
        let doing = Doing("open", path);
        let database = Database::builder()
            .set_cache_size(CACHE_BYTES)
            .open(path)
            .map_err(|error: DatabaseError| doing.failed(error))?;
        let coordinator = RedbCoordinator { database, path: path.to_owned() };
        coordinator.check_format()?;
        Ok(coordinator)
    }

    fn doing<'a>(&'a self, what: &'a str) -> Doing<'a> {
        Doing(what, &self.path)
    }

    fn check_format(&self) -> EngineResult<()> {
        let doing = self.doing("read");
        let transaction = self.database.begin_read().map_err(|error| doing.failed(error))?;
        let what = self.path.display().to_string();
        let facts = match transaction.open_table(FACTS) {
            Ok(facts) => facts,
            Err(TableError::Storage(error)) => return Err(doing.failed(error)),
            Err(_) => {
                return Err(EngineError::Corrupt { what: format!("{what} is not a coordinator's file") });
            }
        };
        let format = facts.get(FORMAT_FACT).map_err(|error| doing.failed(error))?.map(|guard| guard.value());
        match format {
            Some(found) if found > u64::from(FORMAT_VERSION) => {
                let found = u32::try_from(found).unwrap_or(u32::MAX);
                Err(EngineError::NewerVersion { what, found, known: FORMAT_VERSION })
            }
            Some(found) if found >= 1 => Ok(()),
            other => Err(EngineError::Corrupt { what: format!("{what}: format version {other:?}") }),
        }
    }
}

/// Makes the file aside and then gives it its name, so that an interrupted creation leaves nothing half made.
fn create(path: &Path) -> EngineResult<()> {
    let directory = parent(path);
    fs::create_dir_all(directory).map_err(|error| failed("make directory", directory, &error))?;
    let unfinished = path.with_extension("new");
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(failed("remove", &unfinished, &error));
        }
        _ => {}
    }
    begin(&unfinished).map_err(|error| Doing("create", path).failed(error))?;
    fs::rename(&unfinished, path).map_err(|error| failed("name", path, &error))?;
    sync_directory(directory)
}

fn begin(path: &Path) -> Result<(), redb::Error> {
    let database = Database::create(path)?;
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    {
        let mut facts = transaction.open_table(FACTS)?;
        facts.insert(FORMAT_FACT, u64::from(FORMAT_VERSION))?;
        facts.insert(LAST_FACT, 0)?;
        transaction.open_table(ENTRIES)?;
    }
    transaction.commit()?;
    Ok(())
}

fn entry_of(
    table: &impl ReadableTable<&'static str, (u64, &'static [u8])>,
    key: &str,
) -> Result<Option<Entry>, StorageError> {
    Ok(table.get(key)?.map(|guard| {
        let (version, value) = guard.value();
        Entry { key: key.to_owned(), version, value: value.to_vec() }
    }))
}

fn last_of(facts: &impl ReadableTable<&'static str, u64>) -> Result<u64, StorageError> {
    Ok(facts.get(LAST_FACT)?.map_or(0, |guard| guard.value()))
}

impl RedbCoordinator {
    fn try_read(&self, key: &str) -> Result<Option<Entry>, redb::Error> {
        let transaction = self.database.begin_read()?;
        Ok(entry_of(&transaction.open_table(ENTRIES)?, key)?)
    }

    fn try_list(&self, prefix: &str) -> Result<(u64, Vec<Entry>), redb::Error> {
        let transaction = self.database.begin_read()?;
        let mut entries = Vec::new();
        for pair in transaction.open_table(ENTRIES)?.range(prefix..)? {
            let (key, value) = pair?;
            if !key.value().starts_with(prefix) {
                break;
            }
            let (version, value) = value.value();
            entries.push(Entry { key: key.value().to_owned(), version, value: value.to_vec() });
        }
        Ok((last_of(&transaction.open_table(FACTS)?)?, entries))
    }

    fn try_swap(&self, key: &str, expected: Option<u64>, value: Option<&[u8]>) -> Result<Swap, redb::Error> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        let swap = {
            let mut entries = transaction.open_table(ENTRIES)?;
            let mut facts = transaction.open_table(FACTS)?;
            let present = entry_of(&entries, key)?;
            if present.as_ref().map(|entry| entry.version) != expected {
                Swap::Conflict(present)
            } else if present.is_none() && value.is_none() {
                // Removing what is absent changes nothing, so the version stays.
                Swap::Done(last_of(&facts)?)
            } else {
                change(&mut entries, &mut facts, key, value)?
            }
        };
        match swap {
            Swap::Done(_) => transaction.commit()?,
            Swap::Conflict(_) => transaction.abort()?,
        }
        Ok(swap)
    }
}

fn change(
    entries: &mut Table<&'static str, (u64, &'static [u8])>,
    facts: &mut Table<&'static str, u64>,
    key: &str,
    value: Option<&[u8]>,
) -> Result<Swap, StorageError> {
    let version = last_of(facts)? + 1;
    facts.insert(LAST_FACT, version)?;
    match value {
        Some(value) => entries.insert(key, (version, value))?,
        None => entries.remove(key)?,
    };
    Ok(Swap::Done(version))
}

impl Coordinator for RedbCoordinator {
    fn read(&mut self, key: &str) -> EngineResult<Option<Entry>> {
        self.try_read(key).map_err(|error| self.doing("read").failed(error))
    }

    fn list(&mut self, prefix: &str) -> EngineResult<(u64, Vec<Entry>)> {
        self.try_list(prefix).map_err(|error| self.doing("list").failed(error))
    }

    fn swap(&mut self, key: &str, expected: Option<u64>, value: Option<Vec<u8>>) -> EngineResult<Swap> {
        self.try_swap(key, expected, value.as_deref()).map_err(|error| self.doing("change").failed(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_seams::conformance::{self, Subject};

    #[test]
    fn the_coordinator_in_a_file_conforms() {
        conformance::coordinator(|| {
            let temporary = tempfile::tempdir().unwrap();
            let path = temporary.path().join("deep/coordinator.redb");
            Subject::new(RedbCoordinator::open(&path).unwrap(), move |coordinator, _| {
                let _keep = &temporary;
                drop(coordinator);
                RedbCoordinator::open(&path).unwrap()
            })
        });
    }

    #[test]
    fn a_copy_made_while_it_runs_holds_every_finished_swap() {
        let temporary = tempfile::tempdir().unwrap();
        let (path, copy) = (temporary.path().join("a.redb"), temporary.path().join("b.redb"));
        let mut coordinator = RedbCoordinator::open(&path).unwrap();
        for round in 0u8..5 {
            coordinator.swap(&format!("key {round}"), None, Some(vec![round])).unwrap();
            // What a killed process leaves behind.
            fs::copy(&path, &copy).unwrap();
            let listed = RedbCoordinator::open(&copy).unwrap().list("key").unwrap();
            assert_eq!(listed, coordinator.list("key").unwrap());
        }
    }

    #[test]
    fn a_second_process_is_told_that_the_file_is_in_use() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("a.redb");
        let _first = RedbCoordinator::open(&path).unwrap();
        let error = RedbCoordinator::open(&path).unwrap_err();
        assert!(matches!(error, EngineError::Busy { .. }), "{error}");
    }

    #[test]
    fn newer_foreign_and_garbage_files_are_refused() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("a.redb");
        drop(RedbCoordinator::open(&path).unwrap());
        let database = Database::open(&path).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction.open_table(FACTS).unwrap().insert(FORMAT_FACT, 5).unwrap();
        transaction.commit().unwrap();
        drop(database);
        let error = RedbCoordinator::open(&path).unwrap_err();
        assert!(matches!(error, EngineError::NewerVersion { found: 5, known: 1, .. }), "{error}");

        let foreign = temporary.path().join("foreign.redb");
        drop(Database::create(&foreign).unwrap());
        let error = RedbCoordinator::open(&foreign).unwrap_err();
        assert!(matches!(error, EngineError::Corrupt { .. }), "{error}");

        let garbage = temporary.path().join("garbage.redb");
        fs::write(&garbage, "not a database".repeat(1000)).unwrap();
        let error = RedbCoordinator::open(&garbage).unwrap_err();
        assert!(matches!(error, EngineError::Corrupt { .. }), "{error}");
    }
}
