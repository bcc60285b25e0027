//! The steps of a tablet's checkpoint that need the log or data servers. The record says where its chunks
//! lie before anything is written to them, and names it as the tablet's only when all of it is stable; so
//! whoever owns the tablet next finds what is left to be removed.

use crate::record::{Checkpoint, CheckpointChunk, CheckpointRecord, Key, Record};
use crate::view::{DataResult, Decide, Stop, View};
use bearing_proto::data::{DataBody, DataCall};
use bearing_proto::frame;
use bearing_types::{ChunkId, Epoch, LogIndex, ServerId, Wall};
use std::sync::Arc;

/// Under this epoch a checkpoint's chunks are written.
const WRITTEN: Epoch = Epoch(1);
/// And under this one sealed, and removed.
const SEALED: Epoch = Epoch(2);
/// A data server with less room gets no checkpoint.
const ROOM_MIN: u64 = 64 << 20;

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CheckpointStep {
    /// A chunk is recorded for a new one, or for the one that is under way.
    Open { anew: bool },
    /// A frame goes to its servers.
    Write { chunk: CheckpointChunk, offset: u64, frame: Arc<Vec<u8>> },
    /// Its servers have all of it, stable.
    Seal { chunk: CheckpointChunk, length: u64 },
    /// It is the tablet's from now on.
    Record { index: LogIndex, at: Wall },
    /// What is left of others goes.
    Remove,
}

/// What it came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CheckpointOutcome {
    /// This chunk takes it.
    Opened(CheckpointChunk),
    /// It is written.
    Written,
    /// It is sealed.
    Sealed,
    /// It is recorded.
    Recorded,
    /// Whether anything is left, and whether that was logged.
    Removed { left: bool, logged: bool },
    /// A data server refused or was silent.
    Failed,
}

pub(super) fn step(view: &mut View, step: &CheckpointStep) -> Decide<CheckpointOutcome> {
    // Nothing is written before the record is committed that says where: it is read first, each time.
    if let CheckpointStep::Write { chunk, .. } | CheckpointStep::Seal { chunk, .. } = step
        && !read(view)?.draft.contains(chunk)
    {
        return Ok(CheckpointOutcome::Failed);
    }
    match step {
        CheckpointStep::Open { anew } => open(view, *anew),
        CheckpointStep::Write { chunk, offset, frame: bytes } => {
            let crc = frame::checksum(bytes);
            let call = DataCall::Replicate { epoch: WRITTEN, offset: *offset, committed: *offset, crc };
            let results = view.data_with(chunk.chunk, &chunk.servers, &call, Some(bytes))?;
            Ok(if all_done(&results) { CheckpointOutcome::Written } else { CheckpointOutcome::Failed })
        }
        CheckpointStep::Seal { chunk, length } => {
            let call = DataCall::Seal { epoch: SEALED, length: *length };
            let results = view.data(chunk.chunk, &chunk.servers, &call)?;
            Ok(if all_done(&results) { CheckpointOutcome::Sealed } else { CheckpointOutcome::Failed })
        }
        CheckpointStep::Record { index, at } => record(view, *index, *at),
        CheckpointStep::Remove => remove(view),
    }
}

fn all_done(results: &[DataResult]) -> bool {
    results.iter().all(|result| matches!(result, Some(Ok(DataBody::Done))))
}

fn read(view: &mut View) -> Decide<CheckpointRecord> {
    Ok(view.get_as(Key::Checkpoint, Record::into_checkpoint)?.unwrap_or_default())
}

fn keep(view: &mut View, record: CheckpointRecord) {
    view.put(Key::Checkpoint, Record::Checkpoint(Box::new(record)));
}

fn open(view: &mut View, anew: bool) -> Decide<CheckpointOutcome> {
    let mut record = read(view)?;
    let copies = usize::from(view.filesystem.data_copies.max(1));
    let health = view.health;
    let has_room = |server: &&ServerId| health.room(**server) >= ROOM_MIN;
    let mut servers: Vec<ServerId> = health.takers.iter().filter(has_room).copied().collect();
    if servers.len() < copies.saturating_sub(1).max(1) {
        return Err(Stop::Later);
    }
    let chunk = ChunkId(view.new_id()?.0);
    let turn = chunk.0 as usize % servers.len();
    servers.rotate_left(turn);
    servers.truncate(copies);
    if anew {
        record.former.append(&mut record.draft);
    }
    let opened = CheckpointChunk { chunk, servers };
    record.draft.push(opened.clone());
    keep(view, record);
    Ok(CheckpointOutcome::Opened(opened))
}

fn record(view: &mut View, index: LogIndex, at: Wall) -> Decide<CheckpointOutcome> {
    let mut record = read(view)?;
    let chunks = std::mem::take(&mut record.draft);
    let before = record.whole.replace(Checkpoint { chunks, index, at });
    record.former.extend(before.into_iter().flat_map(|before| before.chunks));
    keep(view, record);
    Ok(CheckpointOutcome::Recorded)
}

/// Has chunks removed that no checkpoint is in, as far as their servers answer.
fn remove(view: &mut View) -> Decide<CheckpointOutcome> {
    let mut record = read(view)?;
    record.former.append(&mut record.draft);
    let health = view.health;
    let mut missing = false;
    for chunk in &mut record.former {
        chunk.servers.retain(|server| !health.is_unknown(*server));
        let answering: Vec<ServerId> =
            chunk.servers.iter().copied().filter(|server| health.answers(*server)).collect();
        match view.data(chunk.chunk, &answering, &DataCall::Remove { epoch: SEALED }) {
            Ok(results) => {
                let done = answering.iter().zip(results);
                let done = done.filter(|(_, result)| *result == Some(Ok(DataBody::Done)));
                let done: Vec<ServerId> = done.map(|(server, _)| *server).collect();
                chunk.servers.retain(|server| !done.contains(server));
            }
            Err(Stop::Need) => missing = true,
            Err(stop) => return Err(stop),
        }
    }
    if missing {
        return Err(Stop::Need);
    }
    record.former.retain(|chunk| !chunk.servers.is_empty());
    let left = !record.former.is_empty();
    let logged = record != read(view)?;
    if logged {
        keep(view, record);
    }
    Ok(CheckpointOutcome::Removed { left, logged })
}
