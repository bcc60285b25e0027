//! The chunk logs of a data server: append-only byte logs, one per chunk.

use crate::EngineResult;
use bearing_types::{ChunkId, Epoch};

/// What the engine knows of one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkEntry {
    /// The chunk.
    pub chunk: ChunkId,
    /// The epoch kept with it. [`ChunkEntry::HEADLESS`]: what the engine kept with it is damaged, and nothing can be done with the chunk but to remove it.
    pub epoch: Epoch,
    /// Bytes in the log, whole frames or not.
    pub length: u64,
    /// The length at which it was sealed, once it is.
    pub sealed: Option<u64>,
}

impl ChunkEntry {
    /// The epoch of a chunk of which no epoch can be read: no chunk has it.
    pub const HEADLESS: Epoch = Epoch(0);
}

/// Append-only logs by chunk. Offsets are physical: byte 0 is the first byte after the engine's own file header. The engine does not look
/// into frames; checksums of frames are the data machine's, so that a reader far away can verify them too.
pub trait ChunkLog {
    /// All chunks, in order of id.
    fn chunks(&mut self) -> EngineResult<Vec<ChunkEntry>>;

    /// Makes an empty chunk under an epoch; stable (with its name) after the next sync of it. Making one that exists is an error.
    fn create(&mut self, chunk: ChunkId, epoch: Epoch) -> EngineResult<()>;

    /// Writes bytes at `offset`, which must be the present length. Not yet stable.
    fn append(&mut self, chunk: ChunkId, offset: u64, bytes: &[u8]) -> EngineResult<()>;

    /// Makes all that was appended to a chunk stable. After an error the chunk takes no more appends.
    fn sync(&mut self, chunk: ChunkId) -> EngineResult<()>;

    /// Reads `length` bytes from `offset`; fewer only at the end of the log.
    fn read(&mut self, chunk: ChunkId, offset: u64, length: u32) -> EngineResult<Vec<u8>>;

    /// Cuts the log at `length`, keeps the new epoch, and marks it sealed if asked. Stable when it returns.
    fn set(&mut self, chunk: ChunkId, epoch: Epoch, length: u64, sealed: bool) -> EngineResult<()>;

    /// Removes a chunk.
    fn remove(&mut self, chunk: ChunkId) -> EngineResult<()>;

    /// Bytes used and bytes free on the device, in that order.
    fn space(&mut self) -> EngineResult<(u64, u64)>;
}
