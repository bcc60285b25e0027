//! Reads: the frame's header first, then the whole blocks that hold the part, all checked before a byte
//! leaves. They are a client's, or those of an append whose bytes are here already (see [`crate::fetch`]).
//!
//! A short part of a short frame comes with the header in one read of the log.

use crate::check;
use crate::event::LogCommand;
use crate::scrub;
use crate::state::{Chunks, Cx, Job, Phase, ReadJob, Reader};
use bearing_proto::Sender;
use bearing_proto::data::{DataBody, DataError, Flow};
use bearing_proto::frame::HEADER_BYTES_MAX;
use bearing_proto::frame::{BLOCK_BYTES, FrameHeader, PAYLOAD_BYTES_MAX};
use bearing_proto::grant::{Capability, FramePart};
use bearing_seams::{EngineError, EngineResult};
use bearing_types::ChunkId;
use std::ops::Range;

/// Takes a read.
pub(crate) fn read(
    chunks: &Chunks,
    cx: &mut Cx<'_>,
    reader: Reader,
    id: ChunkId,
    (capability, part, flow): (&Capability, FramePart, Option<Flow>),
) {
    let from = match reader {
        Reader::Asker(asker) => asker.from,
        // The right of the one who appends was looked at when that came.
        Reader::Fetch(_) => Sender::Server(cx.core.server),
    };
    if let Err(error) = check::read(cx, from, capability, (id, part)) {
        return refuse(cx, reader, error);
    }
    let end = u64::from(part.skip) + u64::from(part.length);
    if end > u64::from(PAYLOAD_BYTES_MAX) {
        return refuse(cx, reader, DataError::BeyondEnd);
    }
    let limit = match within(chunks, id, part.frame, part.frame.saturating_add(1)) {
        Ok(limit) => limit,
        Err(error) => return give(cx, reader, Err(error)),
    };
    let (config, cost) = (&cx.core.config, u64::from(part.length) + 2 * u64::from(BLOCK_BYTES));
    if cx.core.reads >= config.reads_max || cx.core.read_bytes + cost > config.read_bytes_max {
        return drop_read(cx, reader);
    }
    cx.core.reads += 1;
    cx.core.read_bytes += cost;
    cx.core.flows.begin(cx.now.mono);
    let along = if end <= u64::from(BLOCK_BYTES) { end } else { 0 };
    let length = (u64::from(HEADER_BYTES_MAX) + along).min(limit - part.frame) as u32;
    let job = ReadJob { reader, chunk: id, part, flow, cost, header: None };
    cx.log(Job::Head(job), LogCommand::Read { chunk: id, offset: part.frame, length });
}

/// A refusal that the request itself deserves.
fn refuse(cx: &mut Cx<'_>, reader: Reader, error: DataError) {
    match reader {
        Reader::Asker(asker) => cx.refuse(asker, error),
        Reader::Fetch(_) => give(cx, reader, Err(error)),
    }
}

/// There is no room for the read now: a client asks again, an append looks elsewhere.
fn drop_read(cx: &mut Cx<'_>, reader: Reader) {
    match reader {
        Reader::Asker(_) => cx.drop_request(),
        Reader::Fetch(_) => give(cx, reader, Err(DataError::Failed)),
    }
}

fn give(cx: &mut Cx<'_>, reader: Reader, result: Result<Vec<u8>, DataError>) {
    let asker = match reader {
        Reader::Fetch(fetch) => return cx.core.fetches.came(fetch, result),
        Reader::Asker(asker) => asker,
    };
    match result {
        Err(error) => cx.reply(asker, Err(error)),
        Ok(bytes) => {
            let crc = crc32c::crc32c(&bytes);
            cx.reply_with(asker, Ok(DataBody::Bytes { crc }), bytes.into());
        }
    }
}

/// How far the chunk may be read, if `end` is not beyond it. Only what is known to be on all servers is
/// given.
fn within(chunks: &Chunks, id: ChunkId, start: u64, end: u64) -> Result<u64, DataError> {
    let Some(chunk) = chunks.get(&id) else { return Err(DataError::NoChunk) };
    let limit = chunk.readable();
    if end <= limit && start < limit { Ok(limit) } else { Err(chunk.beyond()) }
}

/// The header was read, perhaps with the payload.
pub(crate) fn head(chunks: &Chunks, cx: &mut Cx<'_>, mut job: ReadJob, result: EngineResult<Vec<u8>>) {
    let Some(bytes) = engine_result(chunks, cx, &job, result) else { return };
    let Ok(header) = FrameHeader::decode(&bytes) else { return damaged(chunks, cx, &job) };
    let FramePart { frame, skip, length } = job.part;
    let end = frame.saturating_add(header.frame_bytes());
    if let Err(error) = within(chunks, job.chunk, frame, end) {
        return finish(cx, &job, Err(error));
    }
    let Some(blocks) = header.blocks_for(skip, length) else {
        return finish(cx, &job, Err(DataError::BeyondEnd));
    };
    let start = header.header_bytes;
    let here = bytes.get((start + blocks.start) as usize..(start + blocks.end) as usize);
    match here {
        Some(here) => match part_of(&job, &header, here) {
            Some(part) => finish(cx, &job, Ok(here[part].to_vec())),
            None => damaged(chunks, cx, &job),
        },
        None => {
            let (chunk, offset) = (job.chunk, frame + u64::from(start + blocks.start));
            job.header = Some(Box::new(header));
            let length = blocks.end - blocks.start;
            cx.log(Job::Blocks(job), LogCommand::Read { chunk, offset, length });
        }
    }
}

/// The blocks were read.
pub(crate) fn blocks(chunks: &Chunks, cx: &mut Cx<'_>, mut job: ReadJob, result: EngineResult<Vec<u8>>) {
    let Some(mut bytes) = engine_result(chunks, cx, &job, result) else { return };
    match job.header.take().and_then(|header| part_of(&job, &header, &bytes)) {
        Some(part) => {
            // What begins with a block is not copied.
            bytes.truncate(part.end);
            bytes.drain(..part.start);
            finish(cx, &job, Ok(bytes));
        }
        None => damaged(chunks, cx, &job),
    }
}

/// Where in its blocks the part is that was asked for; `None`: they are not what was written.
fn part_of(job: &ReadJob, header: &FrameHeader, blocks: &[u8]) -> Option<Range<usize>> {
    let FramePart { skip, length, .. } = job.part;
    let expected = header.blocks_for(skip, length)?;
    let whole = blocks.len() == (expected.end - expected.start) as usize;
    let start = (skip - expected.start) as usize;
    (whole && header.verify(expected.start, blocks)).then_some(start..start + length as usize)
}

/// The bytes do not fit, unless the chunk was cut or removed while they were read.
fn damaged(chunks: &Chunks, cx: &mut Cx<'_>, job: &ReadJob) {
    let frame = job.part.frame;
    let error = match within(chunks, job.chunk, frame, frame + 1) {
        Err(error) => error,
        Ok(_) => {
            match chunks.get(&job.chunk).map(|chunk| chunk.phase) {
                // The reader may have named a wrong place: all of it is scanned.
                Some(Phase::Sealed(_)) => scrub::look_soon(chunks, cx, job.chunk),
                _ => cx.corrupt(job.chunk, frame),
            }
            DataError::Corrupt
        }
    };
    finish(cx, job, Err(error));
}

fn engine_result(
    chunks: &Chunks,
    cx: &mut Cx<'_>,
    job: &ReadJob,
    result: EngineResult<Vec<u8>>,
) -> Option<Vec<u8>> {
    match result {
        Ok(bytes) => return Some(bytes),
        Err(EngineError::Corrupt { .. }) => damaged(chunks, cx, job),
        Err(_) if !chunks.contains_key(&job.chunk) => finish(cx, job, Err(DataError::NoChunk)),
        Err(_) => finish(cx, job, Err(DataError::Failed)),
    }
    None
}

fn finish(cx: &mut Cx<'_>, job: &ReadJob, result: Result<Vec<u8>, DataError>) {
    cx.core.reads -= 1;
    cx.core.read_bytes -= job.cost;
    let (now, idle) = (cx.now.mono, cx.core.reads == 0);
    let bytes = result.as_ref().map_or(0, |bytes| bytes.len() as u64);
    cx.core.flows.end(now, bytes, idle);
    if let Some(flow) = job.flow {
        cx.core.flows.sent(now, flow, bytes);
    }
    if let Ok(bytes) = &result {
        cx.core.counters.reads += 1;
        cx.core.counters.read_bytes += bytes.len() as u64;
    }
    give(cx, job.reader, result);
}
