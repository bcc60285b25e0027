//! Chunks: opened for a writer, shown to readers, sealed when they cannot be appended to any more.

use crate::decide::maintenance::{chunk_view, in_use};
use crate::decide::ops::rights;
use crate::record::{ChunkRecord, Finished, Key, Record};
use crate::view::{Decide, Stop, View};
use bearing_placement::position_of_chunk;
use bearing_proto::client::{Body, ChunkRef, ChunkView};
use bearing_proto::grant::{Capability, CapabilityBody, DataRight};
use bearing_types::{ChunkId, Code, ServerId};

/// A data server with less room gets a new chunk only when there are not enough others.
const ROOM_MIN: u64 = 64 << 20;

/// A new chunk. Servers that are doubted or congested are taken where there would be too few copies without
/// them, if they live; those to avoid, and full ones, only when there are not enough others to write at all.
pub(super) fn open(view: &mut View, avoid: &[ServerId], doubted: &[ServerId]) -> Decide<Body> {
    let copies = usize::from(view.filesystem.data_copies.max(1));
    let at_least = copies.saturating_sub(1).max(1);
    let health = view.health;
    let now = view.now.mono;
    let is_shunned = |server: &&ServerId| {
        let dead = doubted.contains(server) && !health.took_lately(now, **server);
        avoid.contains(server) || dead || health.room(**server) < ROOM_MIN
    };
    let (mut shunned, mut servers): (Vec<ServerId>, Vec<ServerId>) =
        health.takers.iter().partition(is_shunned);
    // A server that has only just started has not heard of all yet. One that answers late would be missing in
    // this chunk for as long as it is open.
    if view.health.takers.len() < copies && view.health.awaits_any(view.now.mono) {
        return Err(Stop::Later);
    }
    let id = view.new_id()?;
    // Turned by the id, so that primaries spread.
    let turn = if servers.is_empty() { 0 } else { id.0 as usize % servers.len() };
    servers.rotate_left(turn);
    servers.sort_by_key(|server| (doubted.contains(server), health.is_congested(*server)));
    if servers.len() < at_least {
        // Those that the writer does not avoid first, then in turn: one of them may have room after all.
        let turn = if shunned.is_empty() { 0 } else { id.0 as usize % shunned.len() };
        shunned.rotate_left(turn);
        shunned.sort_by_key(|server| (avoid.contains(server), doubted.contains(server)));
        servers.extend(shunned);
    }
    if servers.len() < at_least {
        return Err(Stop::Later);
    }
    servers.truncate(copies);
    let id = ChunkId(id.0);
    let chunk = ChunkRef { chunk: id, position: position_of_chunk(id, view.tablet) };
    let record = ChunkRecord::new(chunk.position, servers, view.time());
    view.put(Key::Chunk(chunk.chunk), Record::Chunk(Box::new(record.clone())));
    Ok(Body::Chunk(ChunkView {
        capability: Some(append_right(view, chunk, &record)?),
        ..chunk_view(chunk, &record)
    }))
}

pub(super) fn show(view: &mut View, chunk: ChunkRef) -> Decide<Body> {
    let record = in_use(view, chunk)?;
    Ok(Body::Chunk(chunk_view(chunk, &record)))
}

/// Its writer is done with it. Sealed it is when it is of use to anybody (see `decide/maintenance`).
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

fn append_right(view: &View, chunk: ChunkRef, record: &ChunkRecord) -> Decide<Capability> {
    let body = CapabilityBody {
        session: rights::asker(view)?,
        chunk: chunk.chunk,
        right: DataRight::append(record.epoch, &record.servers),
        expires: view.now.wall.after(view.config.capability_ttl),
    };
    Ok(Capability::sign(body, view.keys.grants()))
}
