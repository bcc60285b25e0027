//! The chunk logs in memory.

use super::{CrashFault, Switches, refused};
use crate::{ChunkEntry, ChunkLog, DiskLabel, End, EngineError, EngineResult};
use bearing_types::{ChunkId, DiskId, Epoch};
use std::collections::BTreeMap;

/// The unit in which a disk writes or loses unsynced bytes.
const BLOCK_BYTES: usize = 512;
/// What the device is said to hold.
const CAPACITY_BYTES: u64 = 1 << 40;

#[derive(Clone, Debug)]
struct Chunk {
    epoch: Epoch,
    bytes: Vec<u8>,
    synced_bytes: usize,
    end: End,
    /// Whether the name is stable.
    named: bool,
    /// A sync failed: no more appends.
    broken: bool,
    /// This byte cannot be read, nor what is read with it.
    unreadable: Option<u64>,
}

impl Chunk {
    fn crash(&mut self, fault: &mut CrashFault) {
        let unsynced = self.bytes.len() - self.synced_bytes;
        let reached = self.synced_bytes + fault.survivors(unsynced);
        self.bytes.truncate(reached);
        if fault.damages() {
            // Blocks are written in any order: the length may be there before the bytes are.
            let whole = self.synced_bytes + fault.survivors(reached - self.synced_bytes);
            for block in self.bytes[whole..].chunks_mut(BLOCK_BYTES) {
                if fault.damages() {
                    fault.damage(block);
                }
            }
        }
        self.synced_bytes = self.bytes.len();
        self.broken = false;
    }
}

/// [`ChunkLog`] in memory.
#[derive(Clone, Debug, Default)]
pub struct MemChunkLog {
    chunks: BTreeMap<ChunkId, Chunk>,
    switches: Switches,
    /// It has room for bytes, and takes no further chunks.
    inodes_used_up: bool,
    disk: Option<DiskId>,
}

impl DiskLabel for MemChunkLog {
    fn disk(&mut self) -> EngineResult<Option<DiskId>> {
        Ok(self.disk)
    }

    fn set_disk(&mut self, disk: DiskId) -> EngineResult<()> {
        self.disk = Some(disk);
        Ok(())
    }
}

impl MemChunkLog {
    /// No chunks.
    pub fn new() -> MemChunkLog {
        MemChunkLog::default()
    }

    /// Stops without closing and opens again. Synced bytes stay. Of the unsynced ones any prefix may stay,
    /// and after it blocks of zeros or garbage; a chunk that was never synced may be gone.
    pub fn crash(&mut self, fault: &mut CrashFault) {
        self.switches = Switches { full: self.switches.full, ..Switches::default() };
        self.chunks.retain(|_, chunk| {
            chunk.crash(fault);
            chunk.named = chunk.named || fault.survives();
            chunk.named
        });
    }

    /// The next sync (or set) of any chunk fails, and that chunk takes no more appends until a crash.
    pub fn fail_next_sync(&mut self) {
        self.switches.fail_next_sync = true;
    }

    /// While full, creating and appending are refused.
    pub fn set_full(&mut self, full: bool) {
        self.switches.full = full;
    }

    /// While its inodes are used up, creating is refused, whatever it says of its room.
    pub fn set_inodes_used_up(&mut self, used_up: bool) {
        self.inodes_used_up = used_up;
    }

    /// A bit of a byte flips, as it does on disks.
    pub fn flip_bit(&mut self, chunk: ChunkId, at: usize) {
        if let Some(byte) = self.chunks.get_mut(&chunk).and_then(|chunk| chunk.bytes.get_mut(at)) {
            *byte ^= 1 << (at % 8);
        }
    }

    /// A byte of a chunk cannot be read any more, as where a sector of a disk has failed.
    pub fn make_unreadable(&mut self, chunk: ChunkId, at: u64) {
        if let Some(chunk) = self.chunks.get_mut(&chunk) {
            chunk.unreadable = Some(at);
        }
    }

    fn chunk(&mut self, id: ChunkId, doing: &str) -> EngineResult<&mut Chunk> {
        match self.chunks.get_mut(&id) {
            Some(chunk) => Ok(chunk),
            None => refused(format!("{doing} chunk {id}, which does not exist")),
        }
    }

    /// Fails when the switch says so, and breaks only the chunk that is synced.
    fn stable_chunk(&mut self, id: ChunkId, doing: &str) -> EngineResult<&mut Chunk> {
        let fails = std::mem::take(&mut self.switches.fail_next_sync);
        let chunk = self.chunk(id, doing)?;
        chunk.broken |= fails;
        if chunk.broken {
            return Err(EngineError::Failed { doing: format!("{doing} chunk {id}") });
        }
        Ok(chunk)
    }
}

impl ChunkLog for MemChunkLog {
    fn chunks(&mut self) -> EngineResult<Vec<ChunkEntry>> {
        let entries = self.chunks.iter().map(|(id, chunk)| ChunkEntry {
            chunk: *id,
            epoch: chunk.epoch,
            length: chunk.bytes.len() as u64,
            sealed: chunk.end.is_sealed().then_some(chunk.bytes.len() as u64),
            fenced: chunk.end.is_fenced(),
            restarted: chunk.end.restarted(),
        });
        Ok(entries.collect())
    }

    fn create(&mut self, chunk: ChunkId, epoch: Epoch) -> EngineResult<()> {
        self.switches.check_write("create a chunk")?;
        if self.inodes_used_up {
            return Err(EngineError::Full { doing: "create a chunk".to_owned() });
        }
        if self.chunks.contains_key(&chunk) {
            return refused(format!("create chunk {chunk}, which exists"));
        }
        let empty = Chunk {
            epoch,
            bytes: Vec::new(),
            synced_bytes: 0,
            end: End::Open,
            named: false,
            broken: false,
            unreadable: None,
        };
        self.chunks.insert(chunk, empty);
        Ok(())
    }

    fn append(&mut self, chunk: ChunkId, offset: u64, bytes: &[u8]) -> EngineResult<()> {
        self.switches.check_write("append to a chunk")?;
        let entry = self.chunk(chunk, "append to")?;
        if entry.broken || entry.end != End::Open {
            let why = if entry.broken { "a sync of it failed" } else { "it is fenced or sealed" };
            return refused(format!("append to chunk {chunk} ({why})"));
        }
        let length = entry.bytes.len() as u64;
        if offset != length {
            return refused(format!(
                "append to chunk {chunk} at offset {offset}, but its length is {length}"
            ));
        }
        entry.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self, chunk: ChunkId) -> EngineResult<()> {
        let entry = self.stable_chunk(chunk, "sync")?;
        entry.synced_bytes = entry.bytes.len();
        entry.named = true;
        Ok(())
    }

    fn read(&mut self, chunk: ChunkId, offset: u64, length: u32) -> EngineResult<Vec<u8>> {
        let Chunk { bytes, unreadable, .. } = self.chunk(chunk, "read")?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let end = start.saturating_add(length as usize).min(bytes.len());
        match unreadable.filter(|at| (start as u64..end as u64).contains(at)) {
            Some(at) => {
                Err(EngineError::Corrupt { what: format!("chunk {chunk}: byte {at} cannot be read") })
            }
            None => Ok(bytes[start..end].to_vec()),
        }
    }

    fn set(&mut self, chunk: ChunkId, epoch: Epoch, length: u64, end: End) -> EngineResult<()> {
        let present = self.chunk(chunk, "set")?.bytes.len() as u64;
        if length > present {
            return refused(format!("cut chunk {chunk} at {length}, beyond its length of {present}"));
        }
        let entry = self.stable_chunk(chunk, "set")?;
        entry.bytes.truncate(length as usize);
        entry.unreadable = entry.unreadable.filter(|at| *at < length);
        entry.synced_bytes = entry.bytes.len();
        entry.epoch = epoch;
        entry.end = end;
        entry.named = true;
        Ok(())
    }

    fn remove(&mut self, chunk: ChunkId) -> EngineResult<()> {
        match self.chunks.remove(&chunk) {
            Some(_) => Ok(()),
            None => refused(format!("remove chunk {chunk}, which does not exist")),
        }
    }

    fn space(&mut self) -> EngineResult<(u64, u64)> {
        let used = self.chunks.values().map(|chunk| chunk.bytes.len() as u64).sum::<u64>();
        let free = if self.switches.full { 0 } else { CAPACITY_BYTES.saturating_sub(used) };
        Ok((used, free))
    }
}
