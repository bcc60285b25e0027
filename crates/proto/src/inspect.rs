//! What whoever checks a cluster is told of chunks.

use crate::handles::ChunkRef;
use bearing_types::{ServerId, Wall};
use serde::{Deserialize, Serialize};

/// How sure it is to be that a server holds a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckDepth {
    /// The server says that it holds all of it, and knows of no damage.
    Held,
    /// It reads all of it, at the speed of its usual search for damage, and compares the checksums.
    Read,
}

/// What is known of a chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkReport {
    /// The chunk.
    pub chunk: ChunkRef,
    /// When it was opened.
    pub opened: Wall,
    /// What becomes of it.
    pub fate: ChunkFate,
    /// Its servers. Of an open chunk, and of one that is being removed, they are not asked.
    pub replicas: Vec<(ServerId, ReplicaState)>,
    /// Copies that it should have and has not.
    pub lacking: u8,
}

/// What becomes of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChunkFate {
    /// Its writer may still append to it.
    Open,
    /// It ends here.
    Sealed {
        /// Its length.
        length: u64,
    },
    /// Nobody refers to it, and it is being removed.
    Removed,
}

/// What a server holds of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicaState {
    /// It was not asked.
    Unasked,
    /// All.
    Whole,
    /// It is reading it: ask again.
    Reading,
    /// Nothing.
    Missing,
    /// Less than all.
    Short,
    /// Bytes that do not fit their checksums.
    Damaged,
    /// It does not answer.
    Silent,
}
