//! Looking for rot: sealed chunks are read slowly, one after the other, and every frame is checked. What does
//! not fit its checksums is noted; metadata servers hear of it with the next ping and have the replica made
//! anew from another one.
//!
//! The first round over all chunks begins `scrub_delay` after there is a sealed chunk, each other one
//! `scrub_interval` after the one before began. It reads no faster than `scrub_bytes_per_second`. Chunks that
//! a metadata server wants to have checked at once come first.

use crate::event::LogCommand;
use crate::scan::{Found, Scan};
use crate::state::{Asker, Chunks, Cx, Job, Phase, Scrubber};
use bearing_proto::Sender;
use bearing_proto::data::{DataBody, DataError};
use bearing_seams::{EngineError, EngineResult};
use bearing_types::ChunkId;
use std::time::Duration;

/// Goes on, if it is time.
pub(crate) fn go_on(chunks: &Chunks, cx: &mut Cx<'_>) {
    let now = cx.mono();
    let (every, scan_bytes) = (cx.core.config.scrub_interval, cx.core.config.scan_bytes);
    let scrubber = &mut cx.core.scrubber;
    if scrubber.due.is_none() && !chunks.values().any(|chunk| matches!(chunk.phase, Phase::Sealed(1..))) {
        return;
    }
    let due = *scrubber.due.get_or_insert(now.after(cx.core.config.scrub_delay));
    if scrubber.reading || now < due {
        return;
    }
    if scrubber.current.is_none() {
        let due = scrubber.round_began.is_none_or(|began| now >= began.after(every));
        if scrubber.next.is_none() && due {
            (scrubber.next, scrubber.round_began) = (Some(ChunkId(0)), Some(now));
        }
        scrubber.current = next_chunk(chunks, scrubber).map(|(id, end)| (id, Scan::new(end, scan_bytes)));
    }
    let Some((chunk, scan)) = &scrubber.current else {
        let next_round = scrubber.round_began.unwrap_or(now).after(every);
        scrubber.due = Some(next_round.max(now.after(Duration::from_millis(1))));
        return;
    };
    let (chunk, (offset, length)) = (*chunk, scan.want());
    scrubber.reading = true;
    cx.log(Job::Scrub(chunk), LogCommand::Read { chunk, offset, length });
}

fn next_chunk(chunks: &Chunks, scrubber: &mut Scrubber) -> Option<(ChunkId, u64)> {
    let sealed = |id: &ChunkId| match chunks.get(id)?.phase {
        Phase::Sealed(end @ 1..) => Some((*id, end)),
        _ => None,
    };
    while let Some(id) = scrubber.urgent.pop_first() {
        if let Some(found) = sealed(&id) {
            return Some(found);
        }
    }
    let from = scrubber.next?;
    let found = chunks.range(from..).find_map(|(id, _)| sealed(id));
    scrubber.next = found.map(|(id, _)| ChunkId(id.0 + 1));
    found
}

/// A piece was read.
pub(crate) fn read(chunks: &mut Chunks, cx: &mut Cx<'_>, id: ChunkId, result: EngineResult<Vec<u8>>) {
    let now = cx.mono();
    let scrubber = &mut cx.core.scrubber;
    scrubber.reading = false;
    let Some((_, mut scan)) = scrubber.current.take().filter(|(current, _)| *current == id) else { return };
    let bytes = result.as_ref().map_or(0, Vec::len) as u64;
    let takes = bytes * 1_000_000_000 / cx.core.config.scrub_bytes_per_second.max(1);
    scrubber.due = Some(now.after(Duration::from_nanos(takes)));
    // Removed meanwhile.
    let Some(chunk) = chunks.get_mut(&id).filter(|chunk| matches!(chunk.phase, Phase::Sealed(_))) else {
        return;
    };
    cx.core.counters.scrubbed_bytes += bytes;
    match result.map(|bytes| scan.take(&bytes)) {
        Ok(Found::More) => cx.core.scrubber.current = Some((id, scan)),
        Ok(Found::End(end)) if end == scan.end() => {
            chunk.checked = Some(now);
            cx.core.counters.scrubbed += 1;
        }
        Ok(Found::End(at)) => cx.damaged(id, at),
        Err(EngineError::Corrupt { .. }) => cx.damaged(id, scan.verified()),
        // Not ours to judge, or another time.
        Ok(Found::Newer) | Err(_) => {}
    }
}

/// Something in a sealed chunk seems to be damaged: it is scanned next, unless that was done a moment ago.
pub(crate) fn look_soon(chunks: &Chunks, cx: &mut Cx<'_>, id: ChunkId) {
    let (now, young) = (cx.mono(), cx.core.config.verified_ttl);
    let checked = chunks.get(&id).and_then(|chunk| chunk.checked);
    let scrubber = &mut cx.core.scrubber;
    let current = scrubber.current.as_ref().is_some_and(|(current, _)| *current == id);
    if !current && checked.is_none_or(|at| now.since(at) > young) && scrubber.urgent.insert(id) {
        scrubber.due = Some(now);
    }
}

/// A metadata server wants to know that a replica is whole.
pub(crate) fn verify(chunks: &Chunks, cx: &mut Cx<'_>, asker: Asker, id: ChunkId, length: u64) {
    if !matches!(asker.from, Sender::Server(_)) {
        return cx.refuse(asker, DataError::Capability);
    }
    let (now, young) = (cx.mono(), cx.core.config.verified_ttl);
    match chunks.get(&id) {
        None => cx.refuse(asker, DataError::NoChunk),
        Some(_) if cx.core.damaged.contains(&id) => cx.reply(asker, Err(DataError::Corrupt)),
        Some(chunk) if !matches!(chunk.phase, Phase::Sealed(end) if length <= end) => {
            cx.refuse(asker, DataError::BeyondEnd);
        }
        Some(chunk) if chunk.checked.is_some_and(|at| now.since(at) <= young) => {
            cx.reply(asker, Ok(DataBody::Done));
        }
        Some(_) => {
            let scrubber = &mut cx.core.scrubber;
            let current = scrubber.current.as_ref().filter(|(current, _)| *current == id);
            let done = current.map_or(0, |(_, scan)| scan.verified());
            if current.is_none() {
                scrubber.urgent.insert(id);
                scrubber.due = Some(now);
            }
            cx.reply(asker, Ok(DataBody::Busy { done }));
        }
    }
}
