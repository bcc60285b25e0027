//! How far a tablet's checkpoint is: the store is read part by part while the tablet is served, and what is
//! read goes to data servers, with the entries that were committed meanwhile.

use crate::config::Config;
use crate::event::LoadTicket;
use crate::record::{
    Checkpoint, CheckpointChunk, CheckpointHeader, CheckpointRecord, frame_owner, push_end, push_entry,
};
use bearing_proto::frame;
use bearing_proto::tablets::CheckpointView;
use bearing_types::{ChunkId, LogIndex, Mono, Now, Position, TabletSerial, Wall};
use std::sync::Arc;
use std::time::Duration;

/// Payload of one frame.
const FRAME_BYTES: usize = 1 << 20;
/// A chunk with more takes no further frame.
const CHUNK_BYTES_MAX: u64 = 64 << 20;

/// See the module.
#[derive(Debug)]
pub(crate) struct Checkpointing {
    pub stage: Stage,
    /// Before this none is begun.
    pub due: Mono,
    /// Then one is, whether anything has changed or not.
    pub asked: bool,
    /// The newest one that is whole.
    pub whole: Option<CheckpointView>,
    /// Where that lies.
    pub chunks: Vec<CheckpointChunk>,
    /// With this entry its last chunk was opened.
    pub opened: LogIndex,
    /// So many entries behind that one's are of the checkpoint itself, as far as this server has logged them:
    /// they are nothing new.
    pub own: u64,
    /// How often the present step was repeated.
    pub tries: u32,
    /// Chunks are left to be removed.
    pub has_former: bool,
    pub draft: Option<Draft>,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The next time.
    Idle,
    /// A part of the store.
    Reading(LoadTicket),
    /// A job.
    Working,
}

/// A checkpoint that is being written.
#[derive(Debug)]
pub(crate) struct Draft {
    pub at: Wall,
    /// Its chunks so far; the last one is being written.
    pub chunks: Vec<CheckpointChunk>,
    /// Bytes in that one.
    pub offset: u64,
    /// Of the stream: bytes that are in chunks.
    written: u64,
    /// And those that follow.
    stream: Vec<u8>,
    entries: u64,
    /// The last key that was read.
    pub after: Option<Vec<u8>>,
    /// What was read last is as of this entry, which was committed by then.
    pub as_of: (LogIndex, Wall),
    /// With this entry it ends: everything was read.
    pub end: Option<LogIndex>,
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// The next part of the store is to be read.
    Read,
    /// A frame is to be written, to the last chunk.
    Write(Arc<Vec<u8>>),
    /// The last chunk is full, or the last one: it is to be sealed.
    Seal,
}

impl Checkpointing {
    /// Of a tablet that is taken. Tablets have theirs in turn.
    pub fn new(now: Now, serial: TabletSerial, config: &Config) -> Checkpointing {
        const TURNS: u32 = 64;
        let turn = (serial.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as u32;
        Checkpointing {
            stage: Stage::Idle,
            due: now.mono.after(config.checkpoint_interval * (turn + 1) / TURNS),
            asked: false,
            whole: None,
            chunks: Vec::new(),
            opened: LogIndex::ZERO,
            own: 0,
            tries: 0,
            has_former: false,
            draft: None,
        }
    }

    /// Whether the newest checkpoint has all entries up to the last one, but for its own.
    pub fn has_all_but_own(&self, last: LogIndex) -> bool {
        self.whole.is_some_and(|whole| last.0 <= whole.index.0 + self.own)
    }

    /// What the log says when the tablet is taken.
    pub fn remember(&mut self, record: CheckpointRecord) {
        self.has_former = !(record.former.is_empty() && record.draft.is_empty());
        if let Some(Checkpoint { chunks, index, at }) = record.whole {
            (self.whole, self.chunks) = (Some(CheckpointView { index, at }), chunks);
        }
    }

    /// It came to nothing: what is of it is removed, and another one is begun later.
    pub fn give_up(&mut self, now: Mono, pause: Duration) {
        self.has_former = true;
        (self.stage, self.draft, self.tries) = (Stage::Idle, None, 0);
        self.due = now.after(pause);
    }
}

impl Draft {
    pub fn begin(header: &CheckpointHeader, first: CheckpointChunk) -> Draft {
        Draft {
            at: header.at,
            chunks: vec![first],
            offset: 0,
            written: 0,
            stream: header.encode(),
            entries: 0,
            after: None,
            as_of: (LogIndex::ZERO, header.at),
            end: None,
        }
    }

    /// Its first chunk stands for it.
    pub fn first(&self) -> ChunkId {
        self.chunks[0].chunk
    }

    pub fn push(&mut self, entry: &[u8]) {
        push_entry(&mut self.stream, entry);
        self.entries += 1;
    }

    /// The last part is there: it is as of the entry that all others have, too.
    pub fn finish(&mut self) {
        let (index, when) = self.as_of;
        push_end(&mut self.stream, self.entries, index, when);
        self.end = Some(index);
    }

    /// Another chunk goes on.
    pub fn goes_on_in(&mut self, chunk: CheckpointChunk) {
        self.chunks.push(chunk);
        self.offset = 0;
    }

    /// Whether all of it is in chunks.
    pub fn is_written(&self) -> bool {
        self.end.is_some() && self.stream.is_empty()
    }

    pub fn next(&self, tablet: (TabletSerial, Position)) -> NextStep {
        if self.is_written() || self.offset >= CHUNK_BYTES_MAX {
            return NextStep::Seal;
        }
        if self.stream.len() < FRAME_BYTES && self.end.is_none() {
            return NextStep::Read;
        }
        let payload = &self.stream[..self.stream.len().min(FRAME_BYTES)];
        let mut frame = Vec::with_capacity(payload.len() + 1024);
        frame::encode(&frame_owner(tablet, self.first(), self.written, self.at), payload, &mut frame);
        NextStep::Write(frame.into())
    }

    /// The frame that was next is in the chunk.
    pub fn wrote(&mut self, frame_bytes: u64) {
        let payload = self.stream.len().min(FRAME_BYTES);
        self.stream.drain(..payload);
        self.written += payload as u64;
        self.offset += frame_bytes;
    }
}
