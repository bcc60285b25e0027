//! Whose frames a sealed chunk holds, for the metadata server that wants to know what of it is still in use.
//! Headers are checked, payloads not read. A replica that is damaged, or shorter than the others, lists what
//! it can; the rest is asked of others.

use crate::event::LogCommand;
use crate::state::{Asker, Chunk, Chunks, Cx, Job, Listing, Phase};
use bearing_proto::Sender;
use bearing_proto::data::{CHUNKS_ASKED_MAX, DataBody, DataError};
use bearing_seams::{EngineError, EngineResult};
use bearing_types::ChunkId;

/// Bytes read at a time: many headers when frames are small.
const WINDOW_BYTES: u32 = 64 << 10;
/// Frames in one answer.
const FRAMES_MAX: usize = 4096;

/// Takes a request for a listing.
pub(crate) fn frames(
    chunks: &Chunks,
    cx: &mut Cx<'_>,
    asker: Asker,
    id: ChunkId,
    (from, end, count_max): (u64, u64, u32),
) {
    if !matches!(asker.from, Sender::Server(_)) {
        return cx.refuse(asker, DataError::Capability);
    }
    let Some(chunk) = chunks.get(&id) else { return cx.refuse(asker, DataError::NoChunk) };
    if chunk.is_headless() {
        return cx.refuse(asker, DataError::Corrupt);
    }
    // "Beyond the end" says of bytes that they are not here and will not be.
    if !matches!(chunk.phase, Phase::Sealed(_) | Phase::Fenced { settled: true }) {
        return cx.refuse(asker, DataError::Unsettled);
    }
    // What is here may end earlier, or be fenced only: then this is not all of it.
    let here = chunk.fetchable();
    // Who has nothing of it, such as an older disk, says nothing of what it is.
    if here == 0 {
        return cx.refuse(asker, DataError::NoChunk);
    }
    if from > here || (from == here && from < end) {
        return cx.refuse(asker, DataError::BeyondEnd);
    }
    if cx.core.reads >= cx.core.config.reads_max {
        return cx.drop_request();
    }
    cx.core.reads += 1;
    let count_max = (count_max as usize).clamp(1, FRAMES_MAX);
    let here = here.min(end);
    go_on(cx, Listing { asker, chunk: id, at: from, end, here, count_max, frames: Vec::new() });
}

/// Tells which of these chunks are not here, sealed, up to these lengths.
pub(crate) fn holds(chunks: &Chunks, cx: &mut Cx<'_>, asker: Asker, asked: &[(ChunkId, u64)]) {
    if !matches!(asker.from, Sender::Server(_)) || asked.len() > CHUNKS_ASKED_MAX {
        return cx.refuse(asker, DataError::Capability);
    }
    let held = |id: &ChunkId, length: u64| {
        // The header says where it was sealed. The file may be shorter all the same.
        let here = |chunk: &Chunk| matches!(chunk.phase, Phase::Sealed(end) if length <= end.min(chunk.writer.written));
        chunks.get(id).is_some_and(here)
    };
    let lacks = asked.iter().filter(|(id, length)| !held(id, *length)).map(|(id, _)| *id).collect();
    cx.reply(asker, Ok(DataBody::Lacks { chunks: lacks }));
}

fn go_on(cx: &mut Cx<'_>, listing: Listing) {
    if listing.at >= listing.here || listing.frames.len() >= listing.count_max {
        cx.core.reads -= 1;
        let next = (listing.at < listing.end).then_some(listing.at);
        return cx.reply(listing.asker, Ok(DataBody::Frames { frames: listing.frames, next }));
    }
    let (chunk, offset) = (listing.chunk, listing.at);
    let length = u64::from(WINDOW_BYTES).min(listing.here - offset) as u32;
    cx.log(Job::Frames(listing), LogCommand::Read { chunk, offset, length });
}

/// Bytes of a listing were read.
pub(crate) fn read(chunks: &Chunks, cx: &mut Cx<'_>, mut listing: Listing, result: EngineResult<Vec<u8>>) {
    let damaged = match result {
        Ok(bytes) => !listing.take(&bytes),
        Err(EngineError::Corrupt { .. }) => true,
        Err(_) => return refuse(cx, &listing, DataError::Failed),
    };
    if chunks.get(&listing.chunk).is_none_or(|chunk| chunk.fetchable() < listing.here) {
        return refuse(cx, &listing, DataError::NoChunk);
    }
    if damaged {
        cx.damaged(listing.chunk, listing.at);
        if listing.frames.is_empty() {
            return refuse(cx, &listing, DataError::Corrupt);
        }
        // What follows is another server's to list.
        listing.here = listing.at;
    }
    go_on(cx, listing);
}

fn refuse(cx: &mut Cx<'_>, listing: &Listing, error: DataError) {
    cx.core.reads -= 1;
    cx.reply(listing.asker, Err(error));
}
