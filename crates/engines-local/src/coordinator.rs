//! The coordinator in a redb file.
//!
//! Invariants: every swap is one transaction that is synced when it returns; the counter of versions is in
//! the same file and never goes back. Removed keys are remembered beside the entries, so that who asks what
//! changed learns of them.

use crate::device;
use crate::directory::{failed, parent, sync_directory};
use bearing_seams::{
    Changes, Coordinator, EngineError, EngineResult, Entry, Found, REMOVALS_KEPT, RegisterChange, Swap,
};
use redb::{
    Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, ReadableTableMetadata,
    StorageError, Table, TableDefinition, TableError,
};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Key to (version, value).
const ENTRIES: TableDefinition<&str, (u64, &[u8])> = TableDefinition::new("entries");
/// Removed keys, and the version of the removal. Up to twice those that are kept, so that the oldest are
/// seldom sought.
const REMOVED: TableDefinition<&str, u64> = TableDefinition::new("removed");
/// Facts about the file itself: `format`, `last`, the version of the last change, and `forgotten`: removals
/// up to this version may not be there.
const FACTS: TableDefinition<&str, u64> = TableDefinition::new("facts");
const FORMAT_FACT: &str = "format";
const LAST_FACT: &str = "last";
const FORGOTTEN_FACT: &str = "forgotten";
const FORMAT_VERSION: u32 = 2;
/// The file holds a few thousand small entries: a small cache is plenty.
const CACHE_BYTES: usize = 4 * 1024 * 1024;

/// [`Coordinator`] in one file.
#[derive(Debug)]
pub struct RedbCoordinator {
    /// `None` after an error: redb does nothing any more then, even if it was a disk that was full for a
    /// moment, until the file is opened again.
    database: Option<Database>,
    path: PathBuf,
    removals_kept: usize,
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
        let database = Some(open(path)?);
        let coordinator = RedbCoordinator { database, path: path.to_owned(), removals_kept: REMOVALS_KEPT };
        if coordinator.check_format()? == 1 {
            coordinator.convert().map_err(|error| coordinator.doing("convert").failed(error))?;
        }
        Ok(coordinator)
    }

    fn doing<'a>(&'a self, what: &'a str) -> Doing<'a> {
        Doing(what, &self.path)
    }

    fn database(&self) -> Result<&Database, redb::Error> {
        self.database.as_ref().ok_or(redb::Error::PreviousIo)
    }

    /// Does something, with the file opened again if there was an error before.
    fn attempt<T>(
        &mut self,
        doing: &str,
        work: impl FnOnce(&RedbCoordinator) -> Result<T, redb::Error>,
    ) -> EngineResult<T> {
        if self.database.is_none() {
            self.database = Some(open(&self.path)?);
        }
        work(self).map_err(|error| {
            self.database = None;
            self.doing(doing).failed(error)
        })
    }

    /// The format that the file is in.
    fn check_format(&self) -> EngineResult<u64> {
        let doing = self.doing("read");
        let database = self.database().map_err(|error| doing.failed(error))?;
        let transaction = database.begin_read().map_err(|error| doing.failed(error))?;
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
            Some(found) if found >= 1 => Ok(found),
            other => Err(EngineError::Corrupt { what: format!("{what}: format version {other:?}") }),
        }
    }

    /// From version 1, which remembered no removals.
    fn convert(&self) -> Result<(), redb::Error> {
        let mut transaction = self.database()?.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut facts = transaction.open_table(FACTS)?;
            let last = fact(&facts, LAST_FACT)?;
            facts.insert(FORGOTTEN_FACT, last)?;
            facts.insert(FORMAT_FACT, u64::from(FORMAT_VERSION))?;
            transaction.open_table(REMOVED)?;
        }
        transaction.commit()?;
        Ok(())
    }
}

/// Opens the file, for one process. After a failed sync, before this or in another life, nobody knows what of
/// it is on the disk: what that did not write is still read from memory, and is not written again. So all of
/// it is written over itself before it counts.
fn open(path: &Path) -> EngineResult<Database> {
    let opened = Database::builder().set_cache_size(CACHE_BYTES).open(path);
    let database = opened.map_err(|error: DatabaseError| Doing("open", path).failed(error))?;
    let renewed = File::options().read(true).write(true).open(path).and_then(|file| device::renew(&file));
    renewed.map_err(|error| failed("write again", path, &error))?;
    Ok(database)
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
        facts.insert(FORGOTTEN_FACT, 0)?;
        transaction.open_table(ENTRIES)?;
        transaction.open_table(REMOVED)?;
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

fn fact(facts: &impl ReadableTable<&'static str, u64>, name: &str) -> Result<u64, StorageError> {
    Ok(facts.get(name)?.map_or(0, |guard| guard.value()))
}

impl RedbCoordinator {
    fn try_read(&self, key: &str) -> Result<Option<Entry>, redb::Error> {
        let transaction = self.database()?.begin_read()?;
        Ok(entry_of(&transaction.open_table(ENTRIES)?, key)?)
    }

    fn try_changes(&self, prefix: &str, since: u64) -> Result<Changes, redb::Error> {
        let transaction = self.database()?.begin_read()?;
        let facts = transaction.open_table(FACTS)?;
        let version = fact(&facts, LAST_FACT)?;
        let whole = since == 0 || since < fact(&facts, FORGOTTEN_FACT)? || since > version;
        let mut found = Found::default();
        // Most who ask know everything.
        if since == version && !whole {
            return Ok(Changes { version, whole, found });
        }
        for pair in transaction.open_table(ENTRIES)?.range(prefix..)? {
            let (key, value) = pair?;
            if !key.value().starts_with(prefix) {
                break;
            }
            let (changed, value) = value.value();
            if whole || changed > since {
                let key = key.value().to_owned();
                found.present.push(Entry { key, version: changed, value: value.to_vec() });
            }
        }
        if !whole {
            for pair in transaction.open_table(REMOVED)?.range(prefix..)? {
                let (key, removed) = pair?;
                if !key.value().starts_with(prefix) {
                    break;
                }
                if removed.value() > since {
                    found.absent.push(key.value().to_owned());
                }
            }
        }
        Ok(Changes { version, whole, found })
    }

    fn try_swap(&self, changes: &[RegisterChange]) -> Result<Swap, redb::Error> {
        let mut transaction = self.database()?.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        let conflict = conflict_of(&transaction.open_table(ENTRIES)?, changes)?;
        if conflict != Found::default() {
            transaction.abort()?;
            return Ok(Swap::Conflict(conflict));
        }
        let done = {
            let mut facts = transaction.open_table(FACTS)?;
            let mut entries = transaction.open_table(ENTRIES)?;
            let mut removed = transaction.open_table(REMOVED)?;
            let version = fact(&facts, LAST_FACT)? + 1;
            let mut done = version - 1;
            for change in changes {
                match &change.value {
                    Some(value) => {
                        entries.insert(change.key.as_str(), (version, value.as_slice()))?;
                        removed.remove(change.key.as_str())?;
                    }
                    // Removing what is absent changes nothing, so the version stays.
                    None if change.expected.is_none() => continue,
                    None => {
                        entries.remove(change.key.as_str())?;
                        removed.insert(change.key.as_str(), version)?;
                    }
                }
                done = version;
            }
            facts.insert(LAST_FACT, done)?;
            self.forget(&mut removed, &mut facts)?;
            done
        };
        transaction.commit()?;
        Ok(Swap::Done(done))
    }

    /// Forgets the oldest removals if there are too many.
    fn forget(
        &self,
        removed: &mut Table<&'static str, u64>,
        facts: &mut Table<&'static str, u64>,
    ) -> Result<(), StorageError> {
        if removed.len()? <= 2 * self.removals_kept as u64 {
            return Ok(());
        }
        let versions = removed.iter()?.map(|pair| Ok(pair?.1.value()));
        let mut versions = versions.collect::<Result<Vec<u64>, StorageError>>()?;
        versions.sort_unstable();
        let forgotten = versions[versions.len() - self.removals_kept] - 1;
        removed.retain(|_, version| version > forgotten)?;
        facts.insert(FORGOTTEN_FACT, forgotten)?;
        Ok(())
    }
}

/// The keys that have other versions than was expected.
fn conflict_of(
    entries: &impl ReadableTable<&'static str, (u64, &'static [u8])>,
    changes: &[RegisterChange],
) -> Result<Found, StorageError> {
    let mut conflict = Found::default();
    for RegisterChange { key, expected, .. } in changes {
        let present = entry_of(entries, key)?;
        if present.as_ref().map(|entry| entry.version) != *expected {
            match present {
                Some(entry) => conflict.present.push(entry),
                None => conflict.absent.push(key.clone()),
            }
        }
    }
    Ok(conflict)
}

impl Coordinator for RedbCoordinator {
    fn read(&mut self, key: &str) -> EngineResult<Option<Entry>> {
        self.attempt("read", |registers| registers.try_read(key))
    }

    fn changes(&mut self, prefix: &str, since: u64) -> EngineResult<Changes> {
        self.attempt("list", |registers| registers.try_changes(prefix, since))
    }

    fn swap(&mut self, changes: &[RegisterChange]) -> EngineResult<Swap> {
        self.attempt("change", |registers| registers.try_swap(changes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::lying;
    use bearing_seams::conformance::{self, Subject};

    #[test]
    fn the_coordinator_in_a_file_conforms() {
        let open = |path: &Path| RedbCoordinator { removals_kept: 2, ..RedbCoordinator::open(path).unwrap() };
        conformance::coordinator(2, || {
            let temporary = tempfile::tempdir().unwrap();
            let path = temporary.path().join("deep/coordinator.redb");
            Subject::new(open(&path), move |coordinator, _| {
                let _keep = &temporary;
                drop(coordinator);
                open(&path)
            })
        });
    }

    #[test]
    fn a_disk_that_is_full_for_a_while_stops_swaps_no_longer_than_that() {
        let Some(disk) = crate::small_disk::SmallDisk::mount(8 << 20) else { return };
        let path = disk.path().join("registers");
        let mut registers = RedbCoordinator::open(&path).unwrap();
        let put = |number: u32| [RegisterChange::new(format!("key {number:05}"), None, Some(vec![7; 4000]))];
        disk.fill();
        let done = (0..1000).take_while(|number| registers.swap(&put(*number)).is_ok()).count() as u32;
        assert!(done < 1000, "the file grows");
        registers.swap(&put(done)).expect_err("it is full yet");
        disk.make_room();
        let again = registers.swap(&put(done)).unwrap();
        assert!(matches!(again, Swap::Done(_) | Swap::Conflict(_)), "{again:?}");
        assert!(matches!(registers.swap(&put(done + 1)), Ok(Swap::Done(_))));
        let Changes { found, .. } = registers.changes("key", 0).unwrap();
        assert_eq!(found.present.len() as u32, done + 2);
    }

    #[test]
    fn what_is_found_counts_when_it_is_on_the_disk_and_not_only_in_memory() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("registers");
        let put = |name: &str| [RegisterChange::new(name.to_owned(), None, Some(vec![7]))];
        let mut registers = RedbCoordinator::open(&path).unwrap();
        registers.swap(&put("a")).unwrap();
        lying::forget_all();
        lying::fail_next_sync();
        registers.database = None;
        registers.swap(&put("b")).expect_err("what is there cannot be made stable after an error");
        assert!(matches!(registers.swap(&put("b")), Ok(Swap::Done(_))));
        drop(registers);
        lying::fail_next_sync();
        RedbCoordinator::open(&path).expect_err("nor after a start");
        let mut registers = RedbCoordinator::open(&path).unwrap();
        // Whatever redb synced before, or did not.
        lying::cut_power(temporary.path());
        drop(registers);
        registers = RedbCoordinator::open(&path).unwrap();
        assert_eq!(registers.changes("", 0).unwrap().found.present.len(), 2);
    }

    #[test]
    fn a_copy_made_while_it_runs_holds_every_finished_swap() {
        let temporary = tempfile::tempdir().unwrap();
        let (path, copy) = (temporary.path().join("a.redb"), temporary.path().join("b.redb"));
        let mut coordinator = RedbCoordinator::open(&path).unwrap();
        for round in 0u8..5 {
            coordinator
                .swap(&[RegisterChange::new(format!("key {round}"), None, Some(vec![round]))])
                .unwrap();
            // What a killed process leaves behind.
            fs::copy(&path, &copy).unwrap();
            let listed = RedbCoordinator::open(&copy).unwrap().changes("key", 0).unwrap();
            assert_eq!(listed, coordinator.changes("key", 0).unwrap());
        }
    }

    #[test]
    fn a_file_of_version_1_keeps_its_registers_and_tells_everything_to_who_comes_from_before() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("a.redb");
        let mut coordinator = RedbCoordinator::open(&path).unwrap();
        coordinator.swap(&[RegisterChange::new("a", None, Some(vec![1]))]).unwrap();
        coordinator.swap(&[RegisterChange::new("b", None, Some(vec![2]))]).unwrap();
        let entries = coordinator.changes("", 0).unwrap();
        drop(coordinator);
        let database = Database::open(&path).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction.delete_table(REMOVED).unwrap();
        transaction.open_table(FACTS).unwrap().remove(FORGOTTEN_FACT).unwrap();
        transaction.open_table(FACTS).unwrap().insert(FORMAT_FACT, 1).unwrap();
        transaction.commit().unwrap();
        drop(database);
        for _ in 0..2 {
            let mut converted = RedbCoordinator::open(&path).unwrap();
            assert_eq!(converted.changes("", 1).unwrap(), entries);
            assert!(!converted.changes("", 2).unwrap().whole);
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
        assert!(matches!(error, EngineError::NewerVersion { found: 5, known: 2, .. }), "{error}");

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
