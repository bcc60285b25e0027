//! The chunk logs, one file per chunk.
//!
//! Invariants: a file is two header slots and then the chunk's bytes, so its length tells the chunk's; the
//! header is only ever written to the slot that does not count, then synced; a cut is stable before the
//! header that tells of it. A chunk whose headers are both damaged is left out of the listing and refuses
//! everything but removal: its replicas have the bytes.

mod files;
mod header;

use crate::device;
use crate::directory::{Directory, Format, allocate, failed, is_unreadable, refused, sync_directory};
use bearing_seams::{ChunkEntry, ChunkLog, DiskLabel, End, EngineError, EngineResult};
use bearing_types::{ChunkId, DiskId, Epoch};
pub use files::ChunkReader;
use files::Files;
use header::{DATA_OFFSET, Header, Slots, slot_offset};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Since version 2 a directory has a disk id, and chunks have marks of what is synced. Headers are as they
/// were.
const FORMAT: Format = Format { name: "bearing-chunk-log", version: 2 };
const CHUNKS: &str = "chunks";
/// A chunk's file says anew up to where it is synced after so many bytes.
const MARK_EVERY_BYTES: u64 = 4 << 20;

/// What is known of a chunk without opening its file.
#[derive(Debug)]
struct Chunk {
    header: Header,
    length: u64,
    /// Bytes below this are known to be stable.
    synced: u64,
    /// What its file says of that. It may say less, never more.
    marked: u64,
    /// It was found at opening, and what is not known to be stable may be in the system's memory only.
    suspect: bool,
    /// The name in the directory is stable.
    named: bool,
    /// A sync failed: no more writing.
    broken: bool,
}

/// [`ChunkLog`] in files: all chunks of a directory, or one lane of them.
pub struct FileChunkLog {
    directory: Arc<Directory>,
    chunks: BTreeMap<ChunkId, Chunk>,
    damaged: BTreeMap<ChunkId, PathBuf>,
    files: Arc<Files>,
    /// The names of the directories are stable. They may have been made just before a process was killed.
    shelves_synced: bool,
}

/// In which of so many lanes a chunk is. Chunks of one shelf are in one lane: who makes a shelf syncs its
/// name.
pub fn lane_of(chunk: ChunkId, lanes: usize) -> usize {
    (chunk.0 & 0xff) as usize % lanes
}

impl FileChunkLog {
    /// Opens the logs in a directory, or makes an empty one.
    ///
    /// Bytes that were never synced may be found, whole or not; the next sync or set of their chunk makes
    /// what is left of them stable.
    pub fn open(path: &Path, contents: &[Format]) -> EngineResult<FileChunkLog> {
        let directory = Directory::open(path, FORMAT, contents)?;
        let chunks_path = path.join(CHUNKS);
        if !chunks_path.exists() {
            fs::create_dir(&chunks_path).map_err(|error| failed("make directory", &chunks_path, &error))?;
        }
        let (directory, files) = (Arc::new(directory), Arc::new(Files::new(chunks_path.clone())));
        let mut log = FileChunkLog::empty(directory, files);
        for shelf in list(&chunks_path)? {
            for file in list(&shelf)? {
                log.load(file)?;
            }
        }
        let fenced: Vec<ChunkId> =
            log.chunks.iter().filter(|(_, chunk)| chunk.header.end.is_fenced()).map(|(id, _)| *id).collect();
        for chunk in fenced {
            // A fence is relied on without another sync. If it fails, the chunk takes nothing more, which is
            // what a fence is for.
            let _ = log.sync(chunk);
        }
        Ok(log)
    }

    fn empty(directory: Arc<Directory>, files: Arc<Files>) -> FileChunkLog {
        FileChunkLog {
            directory,
            chunks: BTreeMap::new(),
            damaged: BTreeMap::new(),
            files,
            shelves_synced: false,
        }
    }

    /// Divides the chunks between lanes ([`lane_of`]) that can be written to side by side.
    pub fn split(self, lanes: usize) -> Vec<FileChunkLog> {
        let empty = || FileChunkLog::empty(self.directory.clone(), self.files.clone());
        let mut logs: Vec<FileChunkLog> = (0..lanes).map(|_| empty()).collect();
        for (id, chunk) in self.chunks {
            logs[lane_of(id, lanes)].chunks.insert(id, chunk);
        }
        for (id, path) in self.damaged {
            logs[lane_of(id, lanes)].damaged.insert(id, path);
        }
        logs
    }

    /// What reads the chunks of all lanes.
    pub fn reader(&self) -> ChunkReader {
        ChunkReader(self.files.clone())
    }

    fn load(&mut self, path: PathBuf) -> EngineResult<()> {
        let Some(chunk) = chunk_of(&path) else {
            return Err(EngineError::Corrupt { what: format!("{}: not a chunk's file", path.display()) });
        };
        let (bytes, file_bytes, unread) = match read_header(&path) {
            // Of this chunk nothing can be read. The others are whole.
            Err(error) if is_unreadable(&error) => {
                self.damaged.insert(chunk, path);
                return Ok(());
            }
            read => read.map_err(|error| failed("read", &path, &error))?,
        };
        match header::decode(&bytes) {
            Slots::Valid(header) if header.chunk == chunk => {
                let length = file_bytes.saturating_sub(DATA_OFFSET);
                let synced = header::decode_mark(&bytes, header.generation).max(header.length).min(length);
                let (marked, suspect) = (synced, !header.end.is_sealed());
                let found = Chunk { header, length, synced, marked, suspect, named: false, broken: false };
                self.files.set_length(chunk, length);
                self.chunks.insert(chunk, found);
            }
            Slots::Blank if unread => drop(self.damaged.insert(chunk, path)),
            // Its creation was never synced, so nobody was promised any of it.
            Slots::Blank => fs::remove_file(&path).map_err(|error| failed("remove", &path, &error))?,
            Slots::Newer(found) => {
                let what = path.display().to_string();
                return Err(EngineError::NewerVersion { what, found, known: header::VERSION });
            }
            Slots::Valid(_) | Slots::Damaged => {
                self.damaged.insert(chunk, path);
            }
        }
        Ok(())
    }

    fn chunk(&mut self, id: ChunkId, doing: &str) -> EngineResult<&mut Chunk> {
        if let Some(path) = self.damaged.get(&id) {
            return Err(EngineError::Corrupt { what: format!("{}: both headers", path.display()) });
        }
        match self.chunks.get_mut(&id) {
            Some(chunk) => Ok(chunk),
            None => refused(format!("{doing} chunk {id}, which does not exist")),
        }
    }

    /// A chunk that may be written to.
    fn writable(&mut self, id: ChunkId, doing: &str) -> EngineResult<&mut Chunk> {
        let chunk = self.chunk(id, doing)?;
        if chunk.broken {
            return refused(format!("{doing} chunk {id} (a sync of it failed)"));
        }
        Ok(chunk)
    }

    /// Writes to a chunk's file, or syncs it.
    fn with_file<T>(
        &mut self,
        chunk: ChunkId,
        doing: &str,
        act: impl FnOnce(&File) -> io::Result<T>,
    ) -> EngineResult<T> {
        let path = self.files.path(chunk);
        let done = self.files.get_to_write(chunk).and_then(|file| act(&file));
        done.map_err(|error| failed(doing, &path, &error))
    }

    /// As [`FileChunkLog::with_file`], for what must not fail: afterwards nobody knows what is stable.
    fn with_file_stably<T>(
        &mut self,
        id: ChunkId,
        doing: &str,
        act: impl FnOnce(&File) -> io::Result<T>,
    ) -> EngineResult<T> {
        let result = self.with_file(id, doing, act);
        if result.is_err()
            && let Some(chunk) = self.chunks.get_mut(&id)
        {
            chunk.broken = true;
        }
        result
    }

    /// Writes again what was found at opening and is not known to be stable, header and bytes, so that the
    /// next sync brings it to the disk.
    fn write_again(&mut self, id: ChunkId) -> EngineResult<()> {
        let chunk = self.chunk(id, "sync")?;
        if !std::mem::take(&mut chunk.suspect) {
            return Ok(());
        }
        let (slot, start, end) = (slot_offset(chunk.header.generation), chunk.synced, chunk.length);
        self.with_file_stably(id, "write again", |file| {
            device::write_again(file, slot, slot + header::HEADER_BYTES as u64)?;
            device::write_again(file, DATA_OFFSET + start, DATA_OFFSET + end)
        })
    }

    /// All bytes of a chunk are stable now. Its file says so now and then, so that little has to be written
    /// again after a restart; that goes to the disk with the next sync.
    fn note_synced(&mut self, id: ChunkId) -> EngineResult<()> {
        let chunk = self.chunk(id, "sync")?;
        chunk.synced = chunk.length;
        if chunk.synced - chunk.marked.min(chunk.synced) < MARK_EVERY_BYTES {
            return Ok(());
        }
        chunk.marked = chunk.synced;
        let (generation, mark) =
            (chunk.header.generation, header::encode_mark(chunk.header.generation, chunk.synced));
        self.with_file_stably(id, "mark", |file| {
            device::write_at(file, &mark, header::mark_offset(generation))
        })
    }

    fn resize(&mut self, id: ChunkId, length: u64) -> EngineResult<()> {
        self.chunk(id, "resize")?.length = length;
        self.files.set_length(id, length);
        Ok(())
    }

    /// Makes a chunk's name stable, once.
    fn name(&mut self, id: ChunkId) -> EngineResult<()> {
        if self.chunk(id, "sync")?.named {
            return Ok(());
        }
        let synced = sync_directory(&self.files.shelf(id));
        let chunk = self.chunk(id, "sync")?;
        chunk.broken |= synced.is_err();
        chunk.named = synced.is_ok();
        synced
    }
}

fn list(path: &Path) -> EngineResult<Vec<PathBuf>> {
    let entries = fs::read_dir(path).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
    let entries = entries.map_err(|error| failed("list", path, &error))?;
    Ok(entries.into_iter().map(|entry| entry.path()).collect())
}

fn chunk_of(path: &Path) -> Option<ChunkId> {
    let name = path.file_name()?.to_str()?;
    let number = (name.len() == 16).then(|| u64::from_str_radix(name, 16).ok())?;
    number.map(ChunkId)
}

/// The header slots, as far as the file reaches, and the length of the file.
/// The beginning of a file, its length, and whether some of the beginning cannot be read: that is zeros.
fn read_header(path: &Path) -> io::Result<(Vec<u8>, u64, bool)> {
    let file = File::open(path)?;
    let file_bytes = file.metadata()?.len();
    let mut bytes = vec![0; DATA_OFFSET.min(file_bytes) as usize];
    let mut unread = false;
    for (number, slot) in bytes.chunks_mut(header::SLOT_BYTES).enumerate() {
        let (start, mut read) = (number * header::SLOT_BYTES, 0);
        while read < slot.len() {
            match device::read_at(&file, &mut slot[read..], (start + read) as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => read += count,
                Err(error) if is_unreadable(&error) => {
                    slot.fill(0);
                    (read, unread) = (slot.len(), true);
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok((bytes, file_bytes, unread))
}

impl DiskLabel for FileChunkLog {
    fn disk(&mut self) -> EngineResult<Option<DiskId>> {
        self.directory.disk()
    }

    fn set_disk(&mut self, disk: DiskId) -> EngineResult<()> {
        self.directory.set_disk(disk)
    }
}

impl ChunkLog for FileChunkLog {
    fn chunks(&mut self) -> EngineResult<Vec<ChunkEntry>> {
        let entries = self.chunks.iter().map(|(id, chunk)| ChunkEntry {
            chunk: *id,
            epoch: chunk.header.epoch,
            length: chunk.length,
            sealed: chunk.header.end.is_sealed().then_some(chunk.header.length),
            // One that lost bytes since is none any more.
            fenced: chunk.header.end.is_fenced() && chunk.length >= chunk.header.length,
            restarted: chunk.header.end.restarted(),
        });
        let headless = |chunk: &ChunkId| ChunkEntry {
            chunk: *chunk,
            epoch: ChunkEntry::HEADLESS,
            length: 0,
            sealed: None,
            fenced: false,
            restarted: false,
        };
        let mut entries: Vec<ChunkEntry> = entries.chain(self.damaged.keys().map(headless)).collect();
        entries.sort_by_key(|entry| entry.chunk);
        Ok(entries)
    }

    fn create(&mut self, chunk: ChunkId, epoch: Epoch) -> EngineResult<()> {
        if self.chunks.contains_key(&chunk) || self.damaged.contains_key(&chunk) {
            return refused(format!("create chunk {chunk}, which exists"));
        }
        let (shelf, path) = (self.files.shelf(chunk), self.files.path(chunk));
        if !shelf.exists() {
            self.shelves_synced = false;
            fs::create_dir(&shelf).map_err(|error| failed("make directory", &shelf, &error))?;
        }
        if !self.shelves_synced {
            sync_directory(self.files.shelves())?;
            sync_directory(self.directory.path())?;
            self.shelves_synced = true;
        }
        let header = Header { chunk, generation: 1, epoch, end: End::Open, length: 0 };
        let make = || {
            let file = OpenOptions::new().create_new(true).read(true).write(true).open(&path)?;
            device::write_at(&file, &header::encode(header), slot_offset(header.generation))?;
            file.set_len(DATA_OFFSET)?;
            // Both slots: a chunk must be fenced and sealed on a full disk, too.
            allocate(&file, 0, DATA_OFFSET)?;
            Ok(file)
        };
        match make() {
            Ok(file) => self.files.put_unsynced(chunk, file),
            Err(error) => {
                // A file without its header would stand in the way of the next try.
                let _ = fs::remove_file(&path);
                return Err(failed("create", &path, &error));
            }
        }
        self.files.set_length(chunk, 0);
        let (length, synced, marked, suspect) = (0, 0, 0, false);
        self.chunks
            .insert(chunk, Chunk { header, length, synced, marked, suspect, named: false, broken: false });
        Ok(())
    }

    fn append(&mut self, chunk: ChunkId, offset: u64, bytes: &[u8]) -> EngineResult<()> {
        let entry = self.writable(chunk, "append to")?;
        let length = entry.length;
        if entry.header.end != End::Open {
            return refused(format!("append to chunk {chunk} (it is fenced or sealed at {length})"));
        }
        if offset != length {
            return refused(format!(
                "append to chunk {chunk} at offset {offset}, but its length is {length}"
            ));
        }
        let end = DATA_OFFSET + length;
        let written = self.with_file(chunk, "append to", |file| {
            // A part may have been written before the disk was full.
            device::write_at(file, bytes, end).or_else(|error| file.set_len(end).and(Err(error)))
        });
        written?;
        self.resize(chunk, length + bytes.len() as u64)
    }

    fn sync(&mut self, chunk: ChunkId) -> EngineResult<()> {
        self.writable(chunk, "sync")?;
        self.write_again(chunk)?;
        self.with_file_stably(chunk, "sync", device::sync_data)?;
        self.name(chunk)?;
        self.note_synced(chunk)?;
        self.files.set_synced(chunk);
        Ok(())
    }

    fn read(&mut self, chunk: ChunkId, offset: u64, length: u32) -> EngineResult<Vec<u8>> {
        self.chunk(chunk, "read")?;
        self.reader().read(chunk, offset, length)
    }

    fn set(&mut self, chunk: ChunkId, epoch: Epoch, length: u64, end: End) -> EngineResult<()> {
        let entry = self.writable(chunk, "set")?;
        let present = entry.length;
        if length > present {
            return refused(format!("cut chunk {chunk} at {length}, beyond its length of {present}"));
        }
        self.write_again(chunk)?;
        let entry = self.writable(chunk, "set")?;
        let generation = entry.header.generation + 1;
        let told = if end == End::Open { 0 } else { length };
        let header = Header { chunk, generation, epoch, end, length: told };
        // Before anything is changed: chunks of older versions have no room for it.
        let slot = slot_offset(generation);
        self.with_file(chunk, "set", |file| allocate(file, slot, header::SLOT_BYTES as u64))?;
        self.with_file_stably(chunk, "set", |file| {
            file.set_len(DATA_OFFSET + length)?;
            device::sync_all(file)?;
            device::write_at(file, &header::encode(header), slot)?;
            device::sync_data(file).or_else(|error| {
                // A restart must not find a header that the disk does not have. If this reaches the disk, the
                // one before counts, as if nothing had been set.
                device::write_at(file, &[0; header::HEADER_BYTES], slot).and(Err(error))
            })
        })?;
        self.name(chunk)?;
        self.files.set_synced(chunk);
        let entry = self.chunk(chunk, "set")?;
        entry.header = header;
        (entry.synced, entry.marked) = (length, told);
        self.resize(chunk, length)
    }

    fn remove(&mut self, chunk: ChunkId) -> EngineResult<()> {
        if !self.chunks.contains_key(&chunk) && !self.damaged.contains_key(&chunk) {
            return refused(format!("remove chunk {chunk}, which does not exist"));
        }
        let path = self.files.path(chunk);
        fs::remove_file(&path).map_err(|error| failed("remove", &path, &error))?;
        self.files.removed(chunk);
        self.chunks.remove(&chunk);
        self.damaged.remove(&chunk);
        sync_directory(&self.files.shelf(chunk))
    }

    fn space(&mut self) -> EngineResult<(u64, u64)> {
        self.reader().space()
    }
}

#[cfg(test)]
mod tests;
