//! The chunk logs of a data server: append-only byte logs, one per chunk.

use crate::EngineResult;
use bearing_types::{ChunkId, Epoch};

/// What the engine knows of one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkEntry {
    /// The chunk.
    pub chunk: ChunkId,
    /// The epoch kept with it. [`ChunkEntry::HEADLESS`]: what the engine kept with it is damaged, and nothing
    /// can be done with the chunk but to remove it.
    pub epoch: Epoch,
    /// Bytes in the log, whole frames or not.
    pub length: u64,
    /// The length at which it was sealed, once it is.
    pub sealed: Option<u64>,
    /// It is fenced: takes no appends, and is not sealed.
    pub fenced: bool,
    /// When it was fenced or sealed, bytes that it once had may have been gone.
    pub restarted: bool,
}

/// What is kept of a chunk's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It takes appends.
    Open,
    /// It takes none, and its length was told.
    Fenced {
        /// See [`ChunkEntry::restarted`].
        restarted: bool,
    },
    /// It takes none for good.
    Sealed {
        /// See [`ChunkEntry::restarted`].
        restarted: bool,
    },
}

impl End {
    /// Whether it takes no appends for good.
    pub fn is_sealed(self) -> bool {
        matches!(self, End::Sealed { .. })
    }

    /// Whether it takes no appends, but not for good.
    pub fn is_fenced(self) -> bool {
        matches!(self, End::Fenced { .. })
    }

    /// See [`ChunkEntry::restarted`].
    pub fn restarted(self) -> bool {
        matches!(self, End::Fenced { restarted: true } | End::Sealed { restarted: true })
    }
}

impl ChunkEntry {
    /// The epoch of a chunk of which no epoch can be read: no chunk has it.
    pub const HEADLESS: Epoch = Epoch(0);
}

/// Append-only logs by chunk. Offsets are physical: byte 0 is the first byte after the engine's own file
/// header. The engine does not look into frames; checksums of frames are the data machine's, so that a reader
/// far away can verify them too.
pub trait ChunkLog {
    /// All chunks, in order of id.
    fn chunks(&mut self) -> EngineResult<Vec<ChunkEntry>>;

    /// Makes an empty chunk under an epoch; stable (with its name) after the next sync of it. Making one that
    /// exists is an error.
    fn create(&mut self, chunk: ChunkId, epoch: Epoch) -> EngineResult<()>;

    /// Writes bytes at `offset`, which must be the present length. Not yet stable.
    fn append(&mut self, chunk: ChunkId, offset: u64, bytes: &[u8]) -> EngineResult<()>;

    /// Makes all that was appended to a chunk stable. After an error the chunk takes no more appends.
    fn sync(&mut self, chunk: ChunkId) -> EngineResult<()>;

    /// Reads `length` bytes from `offset`; fewer only at the end of the log.
    fn read(&mut self, chunk: ChunkId, offset: u64, length: u32) -> EngineResult<Vec<u8>>;

    /// Cuts the log at `length`, and keeps the new epoch and what its end is there. Stable when it returns.
    fn set(&mut self, chunk: ChunkId, epoch: Epoch, length: u64, end: End) -> EngineResult<()>;

    /// Removes a chunk.
    fn remove(&mut self, chunk: ChunkId) -> EngineResult<()>;

    /// Bytes used and bytes free on the device, in that order.
    fn space(&mut self) -> EngineResult<(u64, u64)>;
}
