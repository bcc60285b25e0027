//! The entry store in fjall, all tablets in one of its keyspaces.
//!
//! Invariants: all that one call changes is one write to one keyspace, so whatever fjall makes stable is the
//! state after some prefix of all calls; fjall's own journal never counts: it is emptied at every opening,
//! and the caller replays the tablet log from the flushed index. (With fjall 3.1 a torn journal refuses to
//! open, and without its file flushed rows are not seen. So it is emptied, never deleted. It is emptied after
//! an orderly end too: `close` has flushed, so nothing in it is needed, and one way to open is easier to
//! trust than two.)
//!
//! A keyspace for each tablet would cost a table and two syncs for each at every flush, and some ten
//! milliseconds to make or to drop: seconds for a server that gets the tablets of a dead one, while who asks
//! for them waits.

mod anew;
mod older;
mod rows;

use crate::directory::{
    Directory, Format, allocate, failed, is_full, is_unreadable, refused, sync_directory,
};
use bearing_seams::{Change, DiskLabel, EngineError, EngineResult, KeyRange, Pair, Pairs, Store};
use bearing_types::{DiskId, LogIndex, TabletSerial};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable};
use rows::{
    FIRST_GENERATION, Held, LEFT_OVER, Lost, TABLETS, generation_of, left_over_row, row_key, tablet_row,
};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Since version 2 a directory has a disk id; since version 3 tablets go by their serials; since version 4
/// they share one keyspace.
const FORMAT: Format = Format { name: "bearing-store", version: 4 };
/// fjall's directory within ours.
const DATABASE: &str = "rows";
/// Its keyspace.
const KEYSPACE: &str = "rows";
/// Blocks of tables in memory. Several stores share one small machine, and the metadata server has a cache of
/// entries of its own.
const CACHE_BYTES: u64 = 32 * 1024 * 1024;
const MEMTABLE_BYTES: u64 = 16 * 1024 * 1024;
/// Rows of so many bytes begin another memtable. At `MEMTABLE_BYTES` each write would ask fjall's worker for
/// one. If it compacts meanwhile, these questions fill its queue, and then it waits for ever to put what
/// follows from the first of them into that same queue (fjall 3.1.13, the queue of `worker_pool.rs`).
const ROTATE_BYTES: u64 = MEMTABLE_BYTES / 4 * 3;
/// What a row takes in a memtable besides its key and value, at most.
const ROW_BYTES: u64 = 128;
/// With so many memtables that are not written yet the next write waits. fjall halts writes at four, and does
/// not look then whether its worker lives.
const SEALED_MAX: usize = 3;
/// After so many bytes of journal a flush has fjall begin another.
const JOURNAL_BYTES: u64 = 64 * 1024 * 1024;
/// With one, a flush may wait behind a compaction; but with more, fjall's first worker spins while the others
/// compact.
const WORKER_THREADS: usize = 1;
/// How often a flush looks whether the worker has finished.
const FLUSH_POLL: Duration = Duration::from_millis(1);
/// With each change so many rows are removed of what is left over of removed tablets.
const SWEPT_AT_ONCE: usize = 64;

/// [`Store`] in a directory.
pub struct FjallStore {
    tablets: BTreeMap<TabletSerial, Held>,
    /// Generations of removed tablets that may have rows yet, each with the row to go on from.
    left_over: BTreeMap<u64, Vec<u8>>,
    /// What goes with the next write.
    unwritten: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    next_generation: u64,
    keyspace: Keyspace,
    database: Database,
    directory: Directory,
    /// So much room is to be taken ahead for the journal.
    journal_bytes: u64,
    /// Something was written since the last flush.
    unflushed: bool,
    memtable: Memtable,
    broken: bool,
}

impl FjallStore {
    /// Opens the store in a directory, or makes an empty one, for values of these formats. It holds what was
    /// flushed, and perhaps a prefix of what came after.
    pub fn open(path: &Path, contents: &[Format]) -> EngineResult<FjallStore> {
        let directory = Directory::open(path, FORMAT, contents)?;
        let database_path = path.join(DATABASE);
        anew::write_if_damaged(path)?;
        if !database_path.exists() {
            create_database(path, &database_path)?;
        }
        older::remove(path)?;
        empty_journals(&database_path)?;
        let (database, keyspace) = open_database(&database_path)?;
        let read = |prefix| keyspace.prefix(u64::to_be_bytes(prefix)).map(whole_row);
        let tablets = read(TABLETS).map(|row| Held::read(&row?)).collect::<EngineResult<BTreeMap<_, _>>>()?;
        let left_over = read(LEFT_OVER).map(|row| {
            let generation = generation_of(&row?.0)?;
            Ok((generation, generation.to_be_bytes().to_vec()))
        });
        let left_over = left_over.collect::<EngineResult<BTreeMap<_, _>>>()?;
        let generations = tablets.values().map(|held| held.generation).chain(left_over.keys().copied());
        let next_generation = generations.max().map_or(FIRST_GENERATION, |newest| newest + 1);
        Ok(FjallStore {
            tablets,
            left_over,
            unwritten: BTreeMap::new(),
            next_generation,
            keyspace,
            database,
            directory,
            journal_bytes: 0,
            unflushed: false,
            memtable: Memtable::default(),
            broken: false,
        })
    }

    /// Flushes and closes. Dropping a store without this loses nothing that was flushed.
    pub fn close(mut self) -> EngineResult<()> {
        self.flush()
    }

    /// Takes room ahead for what is applied, so many bytes at a time as far as the disk has them. fjall makes
    /// its journal long, but without room in it, and a write there that finds none ends all writing.
    pub fn take_room(&mut self, bytes: u64) {
        self.journal_bytes = bytes.min(JOURNAL_BYTES);
        self.allocate_journal();
    }

    fn allocate_journal(&self) {
        let Ok(entries) = fs::read_dir(self.directory.path().join(DATABASE)) else { return };
        let paths = entries.flatten().map(|entry| entry.path());
        let journals = paths.filter(|path| path.extension().is_some_and(|extension| extension == "jnl"));
        let number = |path: &PathBuf| path.file_stem()?.to_str()?.parse::<u64>().ok();
        let Some(path) = journals.max_by_key(number).filter(|_| self.journal_bytes > 0) else { return };
        let Ok(journal) = OpenOptions::new().write(true).open(path) else { return };
        // Where there is little, others need it more.
        if free_bytes(&journal) < self.journal_bytes * 4 {
            return;
        }
        // Without room it is as it would be without this.
        let _ = allocate(&journal, 0, self.journal_bytes);
    }

    /// Where it keeps its files.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    fn held(&self, tablet: TabletSerial, doing: &str) -> EngineResult<Held> {
        match self.tablets.get(&tablet) {
            Some(held) => Ok(held.clone()),
            None => refused(format!("{doing} tablet {tablet}, which the store does not have")),
        }
    }

    /// The generation of a tablet's rows.
    fn generation(&self, tablet: TabletSerial) -> EngineResult<u64> {
        Ok(self.held(tablet, "read")?.generation)
    }

    /// What was found, unless more may have been there that is lost.
    fn whole<T>(&self, tablet: TabletSerial, found: T, lacks: impl Fn(&Lost) -> bool) -> EngineResult<T> {
        match self.tablets.get(&tablet).and_then(|held| held.lost.as_ref()).filter(|lost| lacks(lost)) {
            Some(_) => {
                Err(EngineError::Corrupt { what: format!("rows of tablet {tablet}, lost with damage") })
            }
            None => Ok(found),
        }
    }

    /// What came of reading: after damage the database is written anew at the next opening.
    fn seen<T>(&self, read: EngineResult<T>) -> EngineResult<T> {
        if matches!(read, Err(EngineError::Corrupt { .. })) {
            anew::mark(self.path());
        }
        read
    }

    /// What came of writing.
    fn written(&mut self, result: EngineResult<()>) -> EngineResult<()> {
        self.broken |= result.is_err();
        // The worker gives up when it meets damage, and does not say so.
        if result.as_ref().is_err_and(|error| !matches!(error, EngineError::Full { .. })) {
            anew::mark(self.path());
        }
        result
    }

    fn check(&self, doing: &str) -> EngineResult<()> {
        if self.broken { refused(format!("{doing}: an earlier write")) } else { Ok(()) }
    }

    /// Writes these rows, and all that waits to be written.
    fn write(&mut self, rows: Vec<(Vec<u8>, Option<&[u8]>)>, doing: &str) -> EngineResult<()> {
        self.sweep();
        let mut batch = self.database.batch();
        let waiting = std::mem::take(&mut self.unwritten);
        let waiting = waiting.iter().map(|(key, value)| (key.clone(), value.as_deref()));
        for (key, value) in rows.into_iter().chain(waiting) {
            self.memtable.add(&key, value.unwrap_or_default());
            match value {
                Some(value) => batch.insert(&self.keyspace, key, value),
                None => batch.remove(&self.keyspace, key),
            }
        }
        self.unflushed = true;
        let committed = batch.commit().map_err(|error| translate(doing, error));
        self.written(committed)?;
        let rotated = self.memtable.rotate_if_full(&self.database, &self.keyspace);
        self.written(rotated)
    }

    /// Removes some of what is left over of a removed tablet with the next write.
    fn sweep(&mut self) {
        let Some(mut first) = self.left_over.first_entry() else { return };
        let (generation, from) = (*first.key(), first.get().clone());
        let rest = from..(generation + 1).to_be_bytes().to_vec();
        let found: Result<Vec<_>, _> =
            self.keyspace.range(rest).take(SWEPT_AT_ONCE).map(fjall::Guard::key).collect();
        // What cannot be read stays until the next opening at least.
        let Ok(found) = found else { return drop(first.remove()) };
        match found.last().filter(|_| found.len() == SWEPT_AT_ONCE) {
            Some(last) => *first.get_mut() = last.to_vec(),
            None => {
                first.remove();
                self.unwritten.insert(left_over_row(generation), None);
            }
        }
        self.unwritten.extend(found.into_iter().map(|key| (key.to_vec(), None)));
    }

    fn flush_all(&mut self) -> EngineResult<()> {
        if !self.unwritten.is_empty() {
            self.write(Vec::new(), "flush the store")?;
        }
        self.memtable = Memtable::default();
        flush(&self.database, &self.keyspace)
    }
}

/// Makes all that was written stable.
fn flush(database: &Database, keyspace: &Keyspace) -> EngineResult<()> {
    rotate(database, keyspace, 1)
}

/// Has what is in memory written, and waits until fewer memtables than these are not written yet. If the
/// worker gave up, the database says that it is poisoned.
fn rotate(database: &Database, keyspace: &Keyspace, fewer_than: usize) -> EngineResult<()> {
    let failed = |error| translate("flush the store", error);
    // Under the journal's lock, so no batch is cut in two.
    keyspace.rotate_memtable().map_err(failed)?;
    while keyspace.sealed_memtable_count() >= fewer_than {
        database.persist(PersistMode::Buffer).map_err(failed)?;
        std::thread::sleep(FLUSH_POLL);
    }
    Ok(())
}

/// What the rows take that were written since fjall's memtable was begun.
#[derive(Debug, Default)]
struct Memtable(u64);

impl Memtable {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.0 += ROW_BYTES + (key.len() + value.len()) as u64;
    }

    /// To be called after each write, so that fjall never asks its worker by itself: see [`ROTATE_BYTES`].
    fn rotate_if_full(&mut self, database: &Database, keyspace: &Keyspace) -> EngineResult<()> {
        if self.0 < ROTATE_BYTES {
            return Ok(());
        }
        self.0 = 0;
        rotate(database, keyspace, SEALED_MAX)
    }
}

/// What others than root may still write to a file's disk.
fn free_bytes(file: &File) -> u64 {
    // SAFETY: all zeros are a value of this struct of numbers.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open (borrowed here), and the pointer is of a struct that lives until the
    // call is over.
    let result = unsafe { libc::fstatvfs(file.as_raw_fd(), &raw mut found) };
    if result == 0 { found.f_bavail * found.f_frsize } else { 0 }
}

fn options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES).manual_journal_persist(true)
}

fn open_database(path: &Path) -> EngineResult<(Database, Keyspace)> {
    let database = open_any_database(path)?;
    let keyspace = database.keyspace(KEYSPACE, options).map_err(|error| translate("open keyspace", error))?;
    Ok((database, keyspace))
}

fn open_any_database(path: &Path) -> EngineResult<Database> {
    Database::builder(path)
        .cache_size(CACHE_BYTES)
        .worker_threads(WORKER_THREADS)
        .manual_journal_persist(true)
        .open()
        .map_err(|error| translate(&format!("open {}", path.display()), error))
}

/// Makes a database aside, with all that an older one has, and then gives it its name, so that an interrupted
/// creation leaves nothing half made.
fn create_database(directory: &Path, path: &Path) -> EngineResult<()> {
    let unfinished = path.with_extension("new");
    match fs::remove_dir_all(&unfinished) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(failed("remove", &unfinished, &error));
        }
        _ => {}
    }
    let (database, keyspace) = open_database(&unfinished)?;
    older::take_over(directory, &database, &keyspace)?;
    drop((keyspace, database));
    fs::rename(&unfinished, path).map_err(|error| failed("name", path, &error))?;
    sync_directory(directory)
}

/// Cuts all journal files to nothing.
fn empty_journals(database: &Path) -> EngineResult<()> {
    let entries = fs::read_dir(database).and_then(|entries| entries.collect::<std::io::Result<Vec<_>>>());
    let entries = entries.map_err(|error| failed("list", database, &error))?;
    for path in entries.into_iter().map(|entry| entry.path()) {
        if path.extension().is_some_and(|extension| extension == "jnl") {
            let empty = || OpenOptions::new().write(true).truncate(true).open(&path)?.sync_all();
            empty().map_err(|error| failed("empty", &path, &error))?;
        }
    }
    Ok(())
}

/// fjall's errors in the terms of the seam. After one of them, fjall takes no more writes, so even a full
/// disk ends writing.
fn translate(doing: &str, error: fjall::Error) -> EngineError {
    use fjall::Error;
    match error {
        Error::Locked => EngineError::Busy { what: doing.to_owned() },
        Error::InvalidVersion(found) => {
            EngineError::Corrupt { what: format!("{doing}: fjall's version file ({found:?})") }
        }
        Error::Unrecoverable | Error::JournalRecovery(_) => {
            EngineError::Corrupt { what: format!("{doing} ({error})") }
        }
        Error::Io(error) if is_full(&error) => EngineError::Full { doing: doing.to_owned() },
        Error::Storage(inner) => translate_tree(doing, inner),
        other => EngineError::Failed { doing: format!("{doing} ({other})") },
    }
}

fn translate_tree(doing: &str, error: fjall::LsmError) -> EngineError {
    use fjall::LsmError;
    match error {
        LsmError::Io(error) if is_full(&error) => EngineError::Full { doing: doing.to_owned() },
        LsmError::Io(error) if !is_damage(&error) => {
            EngineError::Failed { doing: format!("{doing} ({error})") }
        }
        damaged => EngineError::Corrupt { what: format!("{doing} ({damaged})") },
    }
}

/// Of a table whose bytes make no sense, or end too early, or are not given by the disk.
fn is_damage(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) || is_unreadable(error)
}

fn whole_row(row: fjall::Guard) -> EngineResult<Pair> {
    let (key, value) = row.into_inner().map_err(|error| translate("read a range", error))?;
    Ok((key.to_vec(), value.to_vec()))
}

fn pair(row: fjall::Guard) -> EngineResult<Pair> {
    let (key, value) = row.into_inner().map_err(|error| translate("read a range", error))?;
    Ok((rows::key_of(&key).to_vec(), value.to_vec()))
}

/// The last change of each key: fjall gives one sequence number to a whole batch, so it could not tell which
/// of two is later.
fn last_changes(changes: &[Change]) -> BTreeMap<&[u8], Option<&[u8]>> {
    changes.iter().map(|change| (change.key.as_slice(), change.value.as_deref())).collect()
}

impl DiskLabel for FjallStore {
    fn disk(&mut self) -> EngineResult<Option<DiskId>> {
        self.directory.disk()
    }

    fn set_disk(&mut self, disk: DiskId) -> EngineResult<()> {
        self.directory.set_disk(disk)
    }
}

impl Store for FjallStore {
    fn tablets(&mut self) -> EngineResult<Vec<TabletSerial>> {
        Ok(self.tablets.keys().copied().collect())
    }

    fn create_tablet(&mut self, tablet: TabletSerial) -> EngineResult<()> {
        if self.tablets.contains_key(&tablet) {
            return Ok(());
        }
        self.check("make a tablet")?;
        let held = Held { generation: self.next_generation, applied: LogIndex::ZERO, lost: None };
        self.next_generation += 1;
        self.unwritten.insert(tablet_row(tablet), Some(held.value()));
        self.tablets.insert(tablet, held);
        Ok(())
    }

    fn remove_tablet(&mut self, tablet: TabletSerial) -> EngineResult<()> {
        self.check("remove a tablet")?;
        let Some(Held { generation, .. }) = self.tablets.remove(&tablet) else { return Ok(()) };
        self.unwritten.insert(tablet_row(tablet), None);
        self.unwritten.insert(left_over_row(generation), Some(Vec::new()));
        self.left_over.insert(generation, generation.to_be_bytes().to_vec());
        Ok(())
    }

    fn applied(&mut self, tablet: TabletSerial) -> EngineResult<Option<LogIndex>> {
        Ok(self.tablets.get(&tablet).map(|held| held.applied))
    }

    fn lacks_some(&mut self, tablet: TabletSerial) -> EngineResult<bool> {
        Ok(self.tablets.get(&tablet).is_some_and(|held| held.lost.is_some()))
    }

    fn get(&mut self, tablet: TabletSerial, key: &[u8]) -> EngineResult<Option<Vec<u8>>> {
        let row = row_key(self.generation(tablet)?, key)?;
        let value = self.seen(self.keyspace.get(row).map_err(|error| translate("read a key", error)))?;
        match value {
            Some(value) => Ok(Some(value.to_vec())),
            None => self.whole(tablet, None, |lost| lost.has(key)),
        }
    }

    fn range(&mut self, tablet: TabletSerial, range: &KeyRange, count_max: usize) -> EngineResult<Vec<Pair>> {
        match rows::within(self.generation(tablet)?, range)? {
            Some(rows) => {
                let found = self.keyspace.range(rows).take(count_max).map(pair);
                let found: Vec<Pair> = self.seen(found.collect())?;
                let last = found.last().filter(|_| found.len() == count_max).map(|(key, _)| key.clone());
                self.whole(tablet, found, |lost| lost.is_in(range, last.as_deref()))
            }
            None => Ok(Vec::new()),
        }
    }

    fn snapshot(&mut self, tablet: TabletSerial, range: &KeyRange) -> EngineResult<Pairs> {
        match rows::within(self.generation(tablet)?, range)? {
            Some(rows) => {
                let whole = self.whole(tablet, (), |lost| lost.is_in(range, None));
                let rows = self.database.snapshot().range(&self.keyspace, rows).map(pair);
                Ok(Box::new(whole.err().map(Err).into_iter().chain(rows)))
            }
            None => Ok(Box::new(std::iter::empty())),
        }
    }

    fn apply(&mut self, tablet: TabletSerial, applied: LogIndex, changes: &[Change]) -> EngineResult<()> {
        self.check("apply changes")?;
        let Held { generation, lost, .. } = self.held(tablet, "apply changes to")?;
        let rows =
            last_changes(changes).into_iter().map(|(key, value)| Ok((row_key(generation, key)?, value)));
        let rows = rows.collect::<EngineResult<Vec<_>>>()?;
        let held = Held { generation, applied, lost };
        self.unwritten.insert(tablet_row(tablet), Some(held.value()));
        self.tablets.insert(tablet, held);
        self.write(rows, "apply changes")
    }

    fn flush(&mut self) -> EngineResult<()> {
        self.check("flush the store")?;
        if !self.unflushed && self.unwritten.is_empty() {
            return Ok(());
        }
        let flushed = self.flush_all();
        let flushed = self.written(flushed);
        self.unflushed = flushed.is_err();
        // It may have begun another.
        self.allocate_journal();
        flushed
    }
}

#[cfg(test)]
mod tests;
