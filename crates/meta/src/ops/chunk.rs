//! Chunks: opened for a writer, shown to readers, sealed when they cannot be appended to any more.

use crate::context::DataResult;
use crate::key::Key;
use crate::ops::rights;
use crate::record::{ChunkRecord, Finished, Record};
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Body, ChunkRef, ChunkView};
use bearing_proto::data::{DataBody, DataCall, DataError};
use bearing_proto::grant::{Capability, CapabilityBody, DataRight};
use bearing_types::{ChunkId, Code, Epoch, Position, ServerId};

/// What fencing a chunk's servers found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FenceOutcome {
    /// Seal at this length.
    Length(u64),
    /// No server that has the chunk answers.
    Nobody,
}

/// A new chunk. Servers to avoid are taken only when there are not enough others.
pub(super) fn open(view: &mut View, avoid: &[ServerId]) -> Decide<Body> {
    let copies = usize::from(view.filesystem.data_copies.max(1));
    let at_least = copies.saturating_sub(1).max(1);
    let (shunned, mut servers): (Vec<ServerId>, Vec<ServerId>) =
        view.health.takers.iter().partition(|server| avoid.contains(server));
    // A server that has only just started has not heard of all yet. One that answers late would be missing in this chunk for as long as it is open.
    if view.health.takers.len() < copies && view.health.awaits_any(view.now.mono) {
        return Err(Stop::Later);
    }
    let id = view.new_id()?;
    // Turned by the id, so that primaries spread.
    let turn = if servers.is_empty() { 0 } else { id.0 as usize % servers.len() };
    servers.rotate_left(turn);
    if servers.len() < at_least {
        servers.extend(shunned);
    }
    if servers.len() < at_least {
        return Err(Stop::Later);
    }
    servers.truncate(copies);
    let chunk = ChunkRef { chunk: ChunkId(id.0), position: position_here(view) };
    let record = ChunkRecord::new(chunk.position, servers, view.time());
    view.put(Key::Chunk(chunk.chunk), Record::Chunk(Box::new(record.clone())));
    Ok(Body::Chunk(ChunkView {
        capability: Some(append_right(view, chunk, &record)?),
        ..chunk_view(chunk, &record)
    }))
}

// Any position of this tablet serves: the chunk's record is found by the position that its reference names.
fn position_here(view: &View) -> Position {
    view.tablet.start()
}

pub(super) fn show(view: &mut View, chunk: ChunkRef) -> Decide<Body> {
    let record = in_use(view, chunk)?;
    Ok(Body::Chunk(chunk_view(chunk, &record)))
}

/// The record of a chunk that somebody may refer to. One that is being removed is as good as gone.
fn in_use(view: &mut View, chunk: ChunkRef) -> Decide<ChunkRecord> {
    let record = view.chunk(chunk)?;
    if record.doomed { Err(Stop::Refuse(Code::Stale)) } else { Ok(record) }
}

/// Fences all servers that answer, takes the shortest length that survived, logs it, and tells them. Whoever asks for a chunk that is sealed has met
/// a server that missed it: all are told again.
///
/// A server that holds less than the length stays in the record: what it holds is good, and for the rest readers go to the others.
pub(crate) fn seal(view: &mut View, chunk: ChunkRef, epoch: Epoch) -> Decide<Body> {
    let mut record = in_use(view, chunk)?;
    if let Some(length) = record.sealed {
        view.data(chunk.chunk, &record.servers, &DataCall::Seal { epoch: record.epoch, length })?;
    } else if record.epoch == epoch {
        let fenced = view.data(chunk.chunk, &record.servers, &DataCall::Fence { epoch: epoch.next() })?;
        let FenceOutcome::Length(length) = sealed_length(&fenced) else {
            return Err(Stop::Later);
        };
        // Told before it is logged: a server that misses it, or a crash in between, leaves bytes beyond the length, which nobody refers to.
        view.data(chunk.chunk, &record.servers, &DataCall::Seal { epoch: epoch.next(), length })?;
        record.epoch = epoch.next();
        record.sealed = Some(length);
        view.put(Key::Chunk(chunk.chunk), Record::Chunk(Box::new(record.clone())));
    }
    Ok(Body::Chunk(chunk_view(chunk, &record)))
}

/// Its writer is done with it. Sealed it is when it is of use to anybody (see `tend`).
pub(super) fn finish(view: &mut View, chunk: ChunkRef, payload: u64, opened: &Capability) -> Decide<Body> {
    if !rights::fills(view, rights::asker(view)?, chunk.chunk, std::slice::from_ref(opened)) {
        return Err(Stop::Refuse(Code::Access));
    }
    let mut record = in_use(view, chunk)?;
    if record.finished.is_none() {
        record.finished = Some(Finished { at: view.time(), payload });
        view.put(Key::Chunk(chunk.chunk), Record::Chunk(Box::new(record)));
    }
    Ok(Body::Done)
}

/// The shortest length among servers that did not restart; only when none of these is left, the shortest of those that did: what they lost was never
/// synced by all. A server where the chunk is being removed counts only when there is no other.
fn sealed_length(fenced: &[DataResult]) -> FenceOutcome {
    let mut steady: Option<u64> = None;
    let mut restarted_length: Option<u64> = None;
    let mut gone: Option<u64> = None;
    for result in fenced {
        match result {
            Some(Ok(DataBody::Fenced { length, restarted: false })) => {
                steady = Some(steady.map_or(*length, |shortest| shortest.min(*length)));
            }
            Some(Ok(DataBody::Fenced { length, restarted: true })) => {
                restarted_length = Some(restarted_length.map_or(*length, |shortest| shortest.min(*length)));
            }
            Some(Err(DataError::NoChunk)) => gone = Some(0),
            Some(Ok(_)) | Some(Err(_)) | None => {}
        }
    }
    match steady.or(restarted_length).or(gone) {
        Some(length) => FenceOutcome::Length(length),
        None => FenceOutcome::Nobody,
    }
}

fn append_right(view: &View, chunk: ChunkRef, record: &ChunkRecord) -> Decide<Capability> {
    let body = CapabilityBody {
        session: rights::asker(view)?,
        chunk: chunk.chunk,
        right: DataRight::Append(record.epoch),
        expires: view.now.wall.after(view.config.capability_life),
    };
    Ok(Capability::sign(body, view.keys.grants()))
}

/// What anybody may know of a chunk: who holds it.
fn chunk_view(chunk: ChunkRef, record: &ChunkRecord) -> ChunkView {
    ChunkView {
        chunk,
        epoch: record.epoch,
        servers: record.servers.clone(),
        sealed: record.sealed,
        capability: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fenced(length: u64, restarted: bool) -> DataResult {
        Some(Ok(DataBody::Fenced { length, restarted }))
    }

    #[test]
    fn a_restarted_server_counts_only_when_no_other_is_left() {
        assert_eq!(sealed_length(&[fenced(100, false), fenced(40, true)]), FenceOutcome::Length(100));
        assert_eq!(sealed_length(&[fenced(100, false), fenced(90, false), None]), FenceOutcome::Length(90));
        assert_eq!(sealed_length(&[None, fenced(40, true)]), FenceOutcome::Length(40));
        assert_eq!(sealed_length(&[Some(Err(DataError::NoChunk)), None]), FenceOutcome::Length(0));
        assert_eq!(sealed_length(&[None, Some(Err(DataError::Failed))]), FenceOutcome::Nobody);
        let gone = || Some(Err(DataError::NoChunk));
        assert_eq!(sealed_length(&[gone(), fenced(40, true)]), FenceOutcome::Length(40));
        assert_eq!(sealed_length(&[fenced(40, true), gone()]), FenceOutcome::Length(40));
    }
}
