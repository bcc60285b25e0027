//! What all lanes of chunk logs and their readers share: the open files, a bounded number of them, and the
//! chunks' lengths.

use super::header::DATA_OFFSET;
use crate::device;
use crate::directory::{failed, is_unreadable, refused};
use bearing_seams::{EngineError, EngineResult};
use bearing_types::ChunkId;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Files kept open. More chunks than this may exist; unsynced ones stay open beyond it, so that an error of
/// writing back reaches their sync.
const OPEN_MAX: usize = 256;

struct Open {
    file: Arc<File>,
    used: u64,
    unsynced: bool,
}

#[derive(Default)]
struct Shared {
    open: BTreeMap<ChunkId, Open>,
    clock: u64,
    chunks: BTreeMap<ChunkId, Known>,
}

/// A chunk that has a file.
#[derive(Clone, Copy)]
struct Known {
    /// So much of it may be read.
    length: u64,
    /// Tells it from one that had the same id and was removed.
    born: u64,
}

/// See the module.
pub struct Files {
    /// The directory of the shelves.
    shelves: PathBuf,
    shared: Mutex<Shared>,
}

impl Files {
    /// None are open yet.
    pub fn new(shelves: PathBuf) -> Files {
        Files { shelves, shared: Mutex::default() }
    }

    /// The directory of the shelves.
    pub fn shelves(&self) -> &Path {
        &self.shelves
    }

    /// The directory in which a chunk's file is.
    pub fn shelf(&self, chunk: ChunkId) -> PathBuf {
        self.shelves.join(format!("{:02x}", chunk.0 & 0xff))
    }

    /// A chunk's file.
    pub fn path(&self, chunk: ChunkId) -> PathBuf {
        self.shelf(chunk).join(format!("{:016x}", chunk.0))
    }

    /// The file of a chunk, opened if it is not.
    pub fn get(&self, chunk: ChunkId) -> io::Result<Arc<File>> {
        self.open(chunk, false)
    }

    /// As [`Files::get`], to be written to: it stays open until what is written is synced.
    pub fn get_to_write(&self, chunk: ChunkId) -> io::Result<Arc<File>> {
        self.open(chunk, true)
    }

    fn open(&self, chunk: ChunkId, writes: bool) -> io::Result<Arc<File>> {
        let mut shared = self.lock();
        if let Some(file) = shared.opened(chunk, writes) {
            return Ok(file);
        }
        let born = shared.born(chunk);
        // Nobody else waits for the disk meanwhile.
        drop(shared);
        let file = OpenOptions::new().read(true).write(true).open(self.path(chunk))?;
        Ok(self.keep(chunk, born, file, writes))
    }

    /// Keeps a file that was opened, unless another was opened meanwhile, or the chunk was removed: another
    /// may have its id now.
    pub(super) fn keep(&self, chunk: ChunkId, born: Option<u64>, file: File, writes: bool) -> Arc<File> {
        let mut shared = self.lock();
        if let Some(file) = shared.opened(chunk, writes) {
            return file;
        }
        let file = Arc::new(file);
        if shared.born(chunk) == born {
            shared.put(chunk, file.clone(), writes);
        }
        file
    }

    /// The file of a chunk, if it is open.
    fn opened(&self, chunk: ChunkId) -> Option<Arc<File>> {
        self.lock().opened(chunk, false)
    }

    /// Keeps the file of a new chunk open.
    pub fn put_unsynced(&self, chunk: ChunkId, file: File) {
        self.lock().put(chunk, Arc::new(file), true);
    }

    /// Notes that all that was written to a chunk is synced.
    pub fn set_synced(&self, chunk: ChunkId) {
        if let Some(entry) = self.lock().open.get_mut(&chunk) {
            entry.unsynced = false;
        }
    }

    /// Notes how long a chunk is now, a new one too.
    pub fn set_length(&self, chunk: ChunkId, length: u64) {
        let mut shared = self.lock();
        shared.clock += 1;
        let born = shared.clock;
        shared.chunks.entry(chunk).or_insert(Known { length, born }).length = length;
    }

    /// A chunk's file was removed.
    pub fn removed(&self, chunk: ChunkId) {
        let mut shared = self.lock();
        shared.open.remove(&chunk);
        shared.chunks.remove(&chunk);
    }

    /// What tells a chunk from others that have its id at other times.
    #[cfg(test)]
    pub fn born(&self, chunk: ChunkId) -> Option<u64> {
        self.lock().born(chunk)
    }

    /// Closes a chunk's file.
    #[cfg(test)]
    pub fn close(&self, chunk: ChunkId) {
        self.lock().open.remove(&chunk);
    }

    /// How many files are open.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.lock().open.len()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // What is kept here is whole between any two statements.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn born(&self, chunk: ChunkId) -> Option<u64> {
        self.chunks.get(&chunk).map(|known| known.born)
    }

    fn opened(&mut self, chunk: ChunkId, writes: bool) -> Option<Arc<File>> {
        self.clock += 1;
        let entry = self.open.get_mut(&chunk)?;
        entry.used = self.clock;
        entry.unsynced |= writes;
        Some(entry.file.clone())
    }

    fn put(&mut self, chunk: ChunkId, file: Arc<File>, unsynced: bool) {
        if self.open.len() >= OPEN_MAX {
            let closable = self.open.iter().filter(|(_, entry)| !entry.unsynced);
            if let Some(oldest) = closable.min_by_key(|(_, entry)| entry.used).map(|(chunk, _)| *chunk) {
                self.open.remove(&oldest);
            }
        }
        self.clock += 1;
        self.open.insert(chunk, Open { file, used: self.clock, unsynced });
    }
}

/// Reads chunks from any thread, while others write to them.
#[derive(Clone)]
pub struct ChunkReader(pub(super) Arc<Files>);

impl ChunkReader {
    /// [`ChunkLog::read`](bearing_seams::ChunkLog::read).
    pub fn read(&self, chunk: ChunkId, offset: u64, length: u32) -> EngineResult<Vec<u8>> {
        let mut bytes = vec![0; self.readable(chunk, offset, length)?];
        if bytes.is_empty() {
            return Ok(bytes);
        }
        let path = self.0.path(chunk);
        let file = match self.0.get(chunk) {
            // The system has stopped writing to a disk that fails. What is there can be read all the same.
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                File::open(&path).map(Arc::new)
            }
            found => found,
        };
        let read = file.and_then(|file| file.read_exact_at(&mut bytes, DATA_OFFSET + offset));
        read.map(|()| bytes).map_err(|error| unreadable(&path, &error))
    }

    /// As [`ChunkReader::read`], if it takes no waiting for the disk: the system has all of it in memory.
    pub fn read_at_once(&self, chunk: ChunkId, offset: u64, length: u32) -> Option<Vec<u8>> {
        let mut bytes = vec![0; self.readable(chunk, offset, length).ok()?];
        // A file that is not open is found on the disk.
        let file = self.0.opened(chunk)?;
        let read = device::read_cached(&file, &mut bytes, DATA_OFFSET + offset).ok()?;
        (read == bytes.len()).then_some(bytes)
    }

    /// How much there is to read.
    fn readable(&self, chunk: ChunkId, offset: u64, length: u32) -> EngineResult<usize> {
        let Some(end) = self.0.lock().chunks.get(&chunk).map(|known| known.length) else {
            return refused(format!("read chunk {chunk}, which does not exist"));
        };
        Ok(end.saturating_sub(offset).min(u64::from(length)) as usize)
    }

    /// Bytes used and bytes free on the device, in that order.
    pub fn space(&self) -> EngineResult<(u64, u64)> {
        let path = self.0.shelves();
        let free = free_bytes(path).map_err(|error| failed("ask for the free space of", path, &error))?;
        let used = self.0.lock().chunks.values().map(|known| DATA_OFFSET + known.length).sum();
        Ok((used, free))
    }
}

/// Why bytes of a chunk cannot be read. Where the disk does not give them, or they are not in the file any
/// more, this replica has lost them, as if they were damaged. Anything else says nothing of the bytes.
pub(super) fn unreadable(path: &Path, error: &io::Error) -> EngineError {
    let is_gone = matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound)
        || is_unreadable(error);
    match is_gone {
        true => EngineError::Corrupt { what: format!("{}: cannot be read ({error})", path.display()) },
        false => failed("read", path, error),
    }
}

/// Bytes that may still be written to the device of a path.
fn free_bytes(path: &Path) -> io::Result<u64> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut facts = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `path` ends in NUL and outlives the call; `facts` has room for the result.
    let result = unsafe { libc::statvfs(path.as_ptr(), facts.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it has filled `facts`.
    let facts = unsafe { facts.assume_init() };
    Ok(facts.f_bavail.saturating_mul(facts.f_frsize))
}
