//! The entry store in fjall, one of its keyspaces per tablet.
//!
//! Invariants: a batch and its applied index share one write to one keyspace, so whatever fjall makes stable
//! is a prefix of the tablet's log; fjall's own journal never counts: it is emptied at every opening, and the
//! caller replays the tablet log from the flushed index. (With fjall 3.1 a torn journal refuses to open, and
//! without its file flushed rows are not seen. So it is emptied, never deleted. It is emptied after an
//! orderly end too: `close` has flushed, so nothing in it is needed, and one way to open is easier to trust
//! than two.)

mod sequence;

use crate::directory::{Directory, Format, allocate, failed, is_full, refused, sync_directory};
use bearing_seams::{Change, DiskLabel, EngineError, EngineResult, KeyRange, Pair, Pairs, Store};
use bearing_types::{Block, DiskId, LogIndex, Position, TabletSerial};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable};
use sequence::SequenceGuard;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Since version 2 a directory has a disk id; since version 3 keyspaces are named by the serials of tablets.
const FORMAT: Format = Format { name: "bearing-store", version: 3 };
/// fjall's directory within ours.
const DATABASE: &str = "fjall";
/// Blocks of tables in memory. Several stores share one small machine, and the metadata server has a cache of
/// entries of its own.
const CACHE_BYTES: u64 = 32 * 1024 * 1024;
const MEMTABLE_BYTES: u64 = 16 * 1024 * 1024;
/// After so many bytes of journal a flush has fjall begin another.
const JOURNAL_BYTES: u64 = 64 * 1024 * 1024;
/// With one, a flush may wait behind a compaction; but with more, fjall's first worker spins while the others
/// compact.
const WORKER_THREADS: usize = 1;
/// How often a flush looks whether the worker has finished.
const FLUSH_POLL: Duration = Duration::from_millis(1);
/// The key of the applied index. Keys of rows begin with [`ROW`].
const APPLIED_KEY: [u8; 1] = [0];
const ROW: u8 = 1;
/// What fjall allows, less our prefix.
const KEY_BYTES_MAX: usize = 65_535 - 1;

/// [`Store`] in a directory.
pub struct FjallStore {
    keyspaces: BTreeMap<TabletSerial, Keyspace>,
    sequence: SequenceGuard,
    database: Database,
    directory: Directory,
    /// So much room is to be taken ahead for the journal.
    journal_bytes: u64,
    /// Something was applied since the last flush.
    unflushed: bool,
    broken: bool,
}

impl FjallStore {
    /// Opens the store in a directory, or makes an empty one, for values of these formats. It holds what was
    /// flushed, and perhaps a prefix of what came after.
    pub fn open(path: &Path, contents: &[Format]) -> EngineResult<FjallStore> {
        let directory = Directory::open(path, FORMAT, contents)?;
        let database_path = path.join(DATABASE);
        if !database_path.exists() {
            create_database(path, &database_path)?;
        }
        empty_journals(&database_path)?;
        let database = open_database(&database_path)?;
        let sequence = SequenceGuard::open(&database)?;
        let mut keyspaces = BTreeMap::new();
        for name in database.list_keyspace_names() {
            if &*name != sequence::KEYSPACE {
                let tablet = tablet_of(&name).ok_or_else(|| {
                    let what =
                        format!("{}: keyspace {:?} is not of a tablet", database_path.display(), &*name);
                    EngineError::Corrupt { what }
                })?;
                let keyspace =
                    database.keyspace(&name, options).map_err(|error| translate("open keyspace", error))?;
                if keyspaces.insert(tablet, keyspace).is_some() {
                    let what = format!("{}: two keyspaces of tablet {tablet}", database_path.display());
                    return Err(EngineError::Corrupt { what });
                }
            }
        }
        let (journal_bytes, unflushed, broken) = (0, false, false);
        Ok(FjallStore { keyspaces, sequence, database, directory, journal_bytes, unflushed, broken })
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

    fn keyspace(&self, tablet: TabletSerial, doing: &str) -> EngineResult<&Keyspace> {
        match self.keyspaces.get(&tablet) {
            Some(keyspace) => Ok(keyspace),
            None => refused(format!("{doing} tablet {tablet}, which has no keyspace")),
        }
    }

    fn check(&self, doing: &str) -> EngineResult<()> {
        if self.broken { refused(format!("{doing}: an earlier write")) } else { Ok(()) }
    }

    /// Waits until the worker has written all sealed memtables to tables. If the worker gave up, the database
    /// says that it is poisoned.
    fn wait_for_worker(&self) -> EngineResult<()> {
        while self.keyspaces.values().any(|keyspace| keyspace.sealed_memtable_count() > 0) {
            self.database
                .persist(PersistMode::Buffer)
                .map_err(|error| translate("flush the store", error))?;
            std::thread::sleep(FLUSH_POLL);
        }
        Ok(())
    }

    fn flush_all(&mut self) -> EngineResult<()> {
        self.sequence.write(&self.database)?;
        let all = self.keyspaces.values().chain([self.sequence.keyspace()]);
        for keyspace in all {
            // Under the journal's lock, so no batch is cut in two.
            keyspace.rotate_memtable().map_err(|error| translate("flush the store", error))?;
        }
        self.wait_for_worker()?;
        self.sequence.wait(&self.database)
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

fn open_database(path: &Path) -> EngineResult<Database> {
    Database::builder(path)
        .cache_size(CACHE_BYTES)
        .worker_threads(WORKER_THREADS)
        .manual_journal_persist(true)
        .open()
        .map_err(|error| translate(&format!("open {}", path.display()), error))
}

/// Makes an empty database aside and then gives it its name, so that an interrupted creation leaves nothing
/// half made.
fn create_database(directory: &Path, path: &Path) -> EngineResult<()> {
    let unfinished = path.with_extension("new");
    match fs::remove_dir_all(&unfinished) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(failed("remove", &unfinished, &error));
        }
        _ => {}
    }
    drop(open_database(&unfinished)?);
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

/// Of a table whose bytes make no sense, or whose lengths lead beyond its end.
fn is_damage(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof)
}

fn tablet_of(name: &str) -> Option<TabletSerial> {
    let Some(number) = name.strip_prefix('t') else { return tablet_of_block(name) };
    let tablet = TabletSerial(number.parse().ok()?);
    (tablet.to_string() == name).then_some(tablet)
}

/// Keyspaces that were made before version 3 are named by blocks, and keep their names.
fn tablet_of_block(name: &str) -> Option<TabletSerial> {
    let (start, prefix_bits) = name.split_once('-')?;
    let (start, prefix_bits) = (u64::from_str_radix(start, 16).ok()?, prefix_bits.parse::<u8>().ok()?);
    let block = (prefix_bits <= 64).then(|| Block::around(Position(start), prefix_bits))?;
    let is_it = name == format!("{:016x}-{prefix_bits}", block.start().0);
    TabletSerial::of_first(block).filter(|_| is_it)
}

fn row_key(key: &[u8]) -> EngineResult<Vec<u8>> {
    if key.len() > KEY_BYTES_MAX {
        return refused(format!("use a key of {} bytes (at most {KEY_BYTES_MAX})", key.len()));
    }
    let mut row = Vec::with_capacity(key.len() + 1);
    row.push(ROW);
    row.extend_from_slice(key);
    Ok(row)
}

/// Where the rows of a range are; `None` for an empty one.
fn rows(range: &KeyRange) -> EngineResult<Option<std::ops::Range<Vec<u8>>>> {
    let start = row_key(&range.start)?;
    let end = range.end.as_ref().map_or(Ok(vec![ROW + 1]), |end| row_key(end))?;
    Ok((start < end).then_some(start..end))
}

fn pair(row: fjall::Guard) -> EngineResult<Pair> {
    let (key, value) = row.into_inner().map_err(|error| translate("read a range", error))?;
    Ok((key[1..].to_vec(), value.to_vec()))
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
        Ok(self.keyspaces.keys().copied().collect())
    }

    fn create_tablet(&mut self, tablet: TabletSerial) -> EngineResult<()> {
        if self.keyspaces.contains_key(&tablet) {
            return Ok(());
        }
        self.check("create keyspace")?;
        self.sequence.before_change(&self.database)?;
        let keyspace = self.database.keyspace(&tablet.to_string(), options);
        let keyspace = keyspace.map_err(|error| translate("create keyspace", error))?;
        self.keyspaces.insert(tablet, keyspace);
        Ok(())
    }

    fn remove_tablet(&mut self, tablet: TabletSerial) -> EngineResult<()> {
        self.check("remove keyspace")?;
        if !self.keyspaces.contains_key(&tablet) {
            return Ok(());
        }
        self.sequence.before_change(&self.database)?;
        if let Some(keyspace) = self.keyspaces.remove(&tablet) {
            let removed = self.database.delete_keyspace(keyspace);
            self.broken |= removed.is_err();
            removed.map_err(|error| translate("remove keyspace", error))?;
        }
        Ok(())
    }

    fn applied(&mut self, tablet: TabletSerial) -> EngineResult<Option<LogIndex>> {
        let Some(keyspace) = self.keyspaces.get(&tablet) else { return Ok(None) };
        let stored = keyspace.get(APPLIED_KEY).map_err(|error| translate("read the applied index", error))?;
        match stored.as_deref().map(<[u8; 8]>::try_from) {
            None => Ok(Some(LogIndex::ZERO)),
            Some(Ok(index)) => Ok(Some(LogIndex(u64::from_le_bytes(index)))),
            Some(Err(_)) => Err(EngineError::Corrupt { what: format!("applied index of tablet {tablet}") }),
        }
    }

    fn get(&mut self, tablet: TabletSerial, key: &[u8]) -> EngineResult<Option<Vec<u8>>> {
        let keyspace = self.keyspace(tablet, "read")?;
        let value = keyspace.get(row_key(key)?).map_err(|error| translate("read a key", error))?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn range(&mut self, tablet: TabletSerial, range: &KeyRange, count_max: usize) -> EngineResult<Vec<Pair>> {
        let keyspace = self.keyspace(tablet, "read")?;
        match rows(range)? {
            Some(rows) => keyspace.range(rows).take(count_max).map(pair).collect(),
            None => Ok(Vec::new()),
        }
    }

    fn snapshot(&mut self, tablet: TabletSerial, range: &KeyRange) -> EngineResult<Pairs> {
        let keyspace = self.keyspace(tablet, "read")?;
        match rows(range)? {
            Some(rows) => Ok(Box::new(self.database.snapshot().range(keyspace, rows).map(pair))),
            None => Ok(Box::new(std::iter::empty())),
        }
    }

    fn apply(&mut self, tablet: TabletSerial, applied: LogIndex, changes: &[Change]) -> EngineResult<()> {
        self.check("apply changes")?;
        let keyspace = self.keyspace(tablet, "apply changes to")?;
        let mut batch = self.database.batch();
        for (key, value) in last_changes(changes) {
            match value {
                Some(value) => batch.insert(keyspace, row_key(key)?, value),
                None => batch.remove(keyspace, row_key(key)?),
            }
        }
        batch.insert(keyspace, APPLIED_KEY, applied.0.to_le_bytes());
        self.unflushed = true;
        let committed = batch.commit();
        self.broken |= committed.is_err();
        committed.map_err(|error| translate("apply changes", error))
    }

    fn flush(&mut self) -> EngineResult<()> {
        self.check("flush the store")?;
        if !self.unflushed {
            return Ok(());
        }
        let flushed = self.flush_all();
        self.broken |= flushed.is_err();
        self.unflushed = flushed.is_err();
        // It may have begun another.
        self.allocate_journal();
        flushed
    }
}

#[cfg(test)]
mod tests;
