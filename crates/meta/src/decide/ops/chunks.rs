//! A page of the tablet's chunks for whoever checks the cluster, with what their servers say of them.

use crate::record::{ChunkRecord, Key, Record};
use crate::view::{DataResult, Decide, Stop, View};
use bearing_proto::client::{Body, CheckDepth, ChunkFate, ChunkRef, ChunkReport, ReplicaState};
use bearing_proto::data::{DataBody, DataCall, DataError};
use bearing_types::{ChunkId, Code, Credentials, ServerId, Uid};

/// Chunks in one answer, so that it is not waited for too long and fits a packet.
const CHUNKS_MAX: usize = 32;

pub(super) fn decide(
    view: &mut View,
    who: &Credentials,
    from: ChunkId,
    count_max: u32,
    depth: CheckDepth,
) -> Decide<Body> {
    if who.uid != Uid(0) {
        return Err(Stop::Refuse(Code::NotPermitted));
    }
    let count_max = (count_max as usize).clamp(1, CHUNKS_MAX);
    let keys = Key::Chunk(from)..=Key::Chunk(ChunkId(u64::MAX));
    let page = view.range(keys.clone(), count_max)?;
    let full = view.range_was_full(&keys, count_max);
    let (mut chunks, mut next, mut missing) = (Vec::new(), None, false);
    for (key, record) in &page {
        let (Key::Chunk(id), Record::Chunk(record)) = (key, record) else { continue };
        next = id.0.checked_add(1).map(ChunkId).filter(|_| full);
        // All servers are asked before any answer is waited for.
        match report(view, *id, record, depth) {
            Ok(report) => chunks.push(report),
            Err(Stop::Need) => missing = true,
            Err(stop) => return Err(stop),
        }
    }
    if missing {
        return Err(Stop::Need);
    }
    Ok(Body::Chunks { tablet: view.tablet, chunks, next })
}

fn report(view: &mut View, id: ChunkId, record: &ChunkRecord, depth: CheckDepth) -> Decide<ChunkReport> {
    let fate = match record.sealed {
        _ if record.deleting => ChunkFate::Removed,
        _ if record.is_in_the_making() => ChunkFate::Open,
        Some(length) => ChunkFate::Sealed { length },
        None => ChunkFate::Open,
    };
    let replicas = match fate {
        ChunkFate::Sealed { length } if length > 0 => replicas(view, id, record, length, depth)?,
        _ => record.servers.iter().map(|server| (*server, ReplicaState::Unasked)).collect(),
    };
    let lacking = view.planner().lacks(id, record).min(usize::from(u8::MAX)) as u8;
    let chunk = ChunkRef { chunk: id, position: record.position };
    Ok(ChunkReport { chunk, opened: record.opened, fate, replicas, lacking })
}

fn replicas(
    view: &mut View,
    id: ChunkId,
    record: &ChunkRecord,
    length: u64,
    depth: CheckDepth,
) -> Decide<Vec<(ServerId, ReplicaState)>> {
    let call = match depth {
        // Of what lies behind the end there is nothing to list: the answer says only that all before is
        // there.
        CheckDepth::Held => DataCall::Frames { from: length, end: length, count_max: 1 },
        CheckDepth::Read => DataCall::Verify { length },
    };
    let results = view.data(id, &record.servers, &call)?;
    let known = |server: ServerId| view.health.is_damaged(server, id);
    let states = record.servers.iter().zip(results);
    Ok(states.map(|(server, result)| (*server, state(result, known(*server)))).collect())
}

fn state(result: DataResult, known_damage: bool) -> ReplicaState {
    match result {
        None => ReplicaState::Silent,
        Some(Err(DataError::NoChunk)) => ReplicaState::Missing,
        Some(Err(DataError::BeyondEnd)) => ReplicaState::Short,
        Some(Err(DataError::Corrupt)) => ReplicaState::Damaged,
        Some(Ok(_)) if known_damage => ReplicaState::Damaged,
        Some(Ok(DataBody::Busy { .. })) => ReplicaState::Reading,
        Some(Ok(_)) => ReplicaState::Whole,
        Some(Err(_)) => ReplicaState::Silent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_believed_only_where_no_damage_is_known() {
        let frames = || Some(Ok(DataBody::Frames { frames: Vec::new(), next: None }));
        for (result, damage, expected) in [
            (frames(), false, ReplicaState::Whole),
            (frames(), true, ReplicaState::Damaged),
            (Some(Ok(DataBody::Done)), false, ReplicaState::Whole),
            (Some(Ok(DataBody::Busy { done: 7 })), false, ReplicaState::Reading),
            (Some(Err(DataError::NoChunk)), false, ReplicaState::Missing),
            (Some(Err(DataError::BeyondEnd)), false, ReplicaState::Short),
            (Some(Err(DataError::Corrupt)), false, ReplicaState::Damaged),
            (Some(Err(DataError::Failed)), false, ReplicaState::Silent),
            (None, true, ReplicaState::Silent),
        ] {
            assert_eq!(state(result, damage), expected);
        }
    }
}
