//! What a chunk needs next, and doing it. One piece of work is one job; each begins from the record as it is
//! then.
//!
//! - A chunk that is not sealed when its opener's right to append is long over, when one of its servers is
//!   lost, or when its writer has said that it is done with it and it is of use to look at it, is sealed.
//! - A sealed chunk is *confirmed* when all its servers have said that they hold all of it, sealed. Who
//!   missed the seal hears of it as soon as it answers, whoever else is away meanwhile: until then what it
//!   holds is not stable there, and nothing can be copied of it.
//! - What *former* servers may still hold is removed there. Whoever held a replica that does not count any
//!   more is a former server until it has said that the replica is gone, so no replica is forgotten, and none
//!   that is out of date can come back.
//! - A chunk that has too few good replicas gets one more: the target is logged first (`coming`), then asked
//!   again and again until it has all of it, then it takes the place of a bad one under the next epoch.
//!   Whoever owns the tablet meanwhile goes on with the same target.
//! - A damaged replica that nobody else can take over is dropped once another one was read from end to end
//!   and found whole; then its own server is a possible target like any other.
//! - A chunk that is mostly dead gets a compaction target (see `compact`). So does one of which no replica is
//!   whole and none can be copied as a whole: its target takes each frame from whoever has it.

use crate::chunks::{Need, Seals, StepOutcome, holders};
use crate::decide::maintenance::seal::{self, keep};
use crate::decide::maintenance::{compact, usage_scan};
use crate::record::{ChunkRecord, Key, Record};
use crate::view::{DataResult, Decide, Stop, View};
use bearing_proto::client::ChunkRef;
use bearing_proto::data::{DataBody, DataCall, DataError};
use bearing_types::{ChunkId, Epoch, ServerId};
use std::collections::BTreeSet;

/// Does what the chunk needs next.
pub(crate) fn step(view: &mut View, id: ChunkId) -> Decide<StepOutcome> {
    let Some(record) = view.get_as(Key::Chunk(id), Record::into_chunk)? else {
        return Ok(StepOutcome::Nothing);
    };
    let mut need = view.planner().wanted(id, &record);
    if need == Some(Need::Forget) {
        if let Some(forgotten) = forget(view, id, &record)? {
            return Ok(forgotten);
        }
        // Nobody says that it is gone there, as without room for a record of that: what else the chunk needs
        // does not wait for them.
        need = view.planner().wanted_besides(id, &record);
        if need.is_none() {
            return Err(Stop::Later);
        }
    }
    match need {
        None | Some(Need::Forget) => Ok(StepOutcome::Nothing),
        Some(Need::Seal) => seal(view, id, &record),
        Some(Need::Remove) => remove(view, id, record),
        Some(Need::Copy) => copy(view, id, record),
        Some(Need::Confirm) => confirm(view, id, record),
        Some(Need::Scan) => usage_scan::scan(view, id, record),
        Some(Need::Make) => compact::make(view, id, record),
        Some(Need::Move) => compact::move_extents(view, id, record),
    }
}

fn seal(view: &mut View, id: ChunkId, record: &ChunkRecord) -> Decide<StepOutcome> {
    match seal::seal(view, ChunkRef { chunk: id, position: record.position }, record.epoch) {
        Ok(_) => Ok(StepOutcome::Did("chunk sealed by its tablet")),
        // Who has something of it is lost. The next round asks again.
        Err(Stop::Refuse(_)) => Ok(StepOutcome::Nothing),
        Err(stop) => Err(stop),
    }
}

/// Has it removed at these servers, as far as they answer. Gives those of which nothing is known.
///
/// The removal names the record's epoch. Every replica that is made later gets a newer one, so a copy of this
/// message that comes late does no harm.
fn remove_at(view: &mut View, id: ChunkId, epoch: Epoch, servers: &[ServerId]) -> Decide<Vec<ServerId>> {
    let health = view.health;
    let (answering, silent): (Vec<ServerId>, Vec<ServerId>) = servers
        .iter()
        .filter(|server| !health.is_unknown(**server))
        .partition(|server| health.answers(**server));
    let results = view.data(id, &answering, &DataCall::Remove { epoch })?;
    let left = answering.iter().zip(results).filter(|(_, result)| *result != Some(Ok(DataBody::Done)));
    let left: BTreeSet<ServerId> = left.map(|(server, _)| *server).chain(silent).collect();
    Ok(servers.iter().copied().filter(|server| left.contains(server)).collect())
}

fn remove(view: &mut View, id: ChunkId, mut record: ChunkRecord) -> Decide<StepOutcome> {
    let left = remove_at(view, id, record.epoch, &holders(&record))?;
    if left.is_empty() {
        view.delete(Key::Chunk(id));
        return Ok(StepOutcome::Removed);
    }
    if left == holders(&record) {
        return Ok(StepOutcome::Wait);
    }
    (record.servers, record.pending_replica, record.former) = (Vec::new(), None, left);
    keep(view, id, record);
    Ok(StepOutcome::Did("chunk removed from some of its servers"))
}

/// Has it removed at former servers. `None` when it is gone nowhere.
fn forget(view: &mut View, id: ChunkId, record: &ChunkRecord) -> Decide<Option<StepOutcome>> {
    let left = remove_at(view, id, record.epoch, &record.former)?;
    if left == record.former {
        return Ok(None);
    }
    let gone: Vec<ServerId> = record.former.iter().copied().filter(|server| !left.contains(server)).collect();
    keep(view, id, ChunkRecord { former: left, ..record.clone() });
    Ok(Some(StepOutcome::Forgotten(gone)))
}

/// All servers say that they hold all of it, sealed; or it turns out which of them do not. While some are
/// away the others are told.
fn confirm(view: &mut View, id: ChunkId, mut record: ChunkRecord) -> Decide<StepOutcome> {
    let Some(length) = record.sealed else { return Ok(StepOutcome::Nothing) };
    let health = view.health;
    let answering: Vec<ServerId> =
        record.servers.iter().copied().filter(|server| health.answers(*server)).collect();
    let results = view.data(id, &answering, &DataCall::Seal { epoch: record.epoch, length })?;
    let is_done = |result: &DataResult| {
        matches!(result, Some(Ok(DataBody::Done)))
            || (length == 0 && *result == Some(Err(DataError::NoChunk)))
    };
    let is_missing = |result: &DataResult| {
        length > 0 && matches!(result, Some(Err(DataError::Corrupt | DataError::NoChunk)))
    };
    let those = |which: &dyn Fn(&DataResult) -> bool| -> Vec<ServerId> {
        answering
            .iter()
            .zip(&results)
            .filter(|(_, result)| which(result))
            .map(|(server, _)| *server)
            .collect()
    };
    let (done, missing) = (those(&is_done), those(&is_missing));
    let all_answer = answering.len() == record.servers.len();
    // Who lacks something of it can be helped only when somebody has it.
    if !missing.is_empty() && (all_answer || !done.is_empty()) {
        return Ok(StepOutcome::Sealed(Seals { whole: done, missing, told: false }));
    }
    if done.len() < record.servers.len() {
        let told = done.len() + missing.len() == answering.len() && !all_answer;
        let seals = Seals { whole: done, missing, told };
        return Ok(if told { StepOutcome::Sealed(seals) } else { StepOutcome::Wait });
    }
    record.confirmed = true;
    keep(view, id, record);
    Ok(StepOutcome::Did("replicas confirmed"))
}

fn copy(view: &mut View, id: ChunkId, mut record: ChunkRecord) -> Decide<StepOutcome> {
    let planner = view.planner();
    let Some(length) = record.sealed else { return Ok(StepOutcome::Nothing) };
    let lost = |server: &ServerId| planner.health.is_lost(*server) || planner.health.leaves(*server);
    if planner.lacks(id, &record) == 0 || record.pending_replica.as_ref().is_some_and(lost) {
        // Whoever was lost is back, or stays after all; or the target is lost too, or leaves.
        call_off(&mut record);
        keep(view, id, record);
        return Ok(StepOutcome::Did("copy called off"));
    }
    let Some(target) = record.pending_replica else {
        return match planner.spare(&record) {
            Some(spare) => {
                record.pending_replica = Some(spare);
                keep(view, id, record);
                Ok(StepOutcome::Copying(0))
            }
            None => drop_damaged(view, id, record),
        };
    };
    let sources = match sealed_sources(view, id, &record, length)? {
        Ok(sources) => sources,
        Err(missing) => return Ok(StepOutcome::Missing(missing)),
    };
    let call = DataCall::Copy { epoch: record.epoch.next(), sources, length };
    match view.data(id, &[target], &call)?.remove(0) {
        Some(Ok(DataBody::Done)) => {
            on_copy(view, id, &mut record, target);
            keep(view, id, record);
            Ok(StepOutcome::Copied(length))
        }
        Some(Ok(DataBody::Busy { done })) => Ok(StepOutcome::Copying(done)),
        Some(Ok(_)) | None => Ok(StepOutcome::Wait),
        Some(Err(why)) => {
            // Not there, then: what it may hold of it is removed, and another one is tried.
            call_off(&mut record);
            keep(view, id, record);
            Ok(match why {
                DataError::Corrupt => StepOutcome::Hopeless,
                // It may be asked again, if it says that it has room.
                DataError::Full => StepOutcome::Refused,
                _ => StepOutcome::Did("copy refused"),
            })
        }
    }
}

/// The servers that can be copied from. A server that missed the seal, or lost it with a restart, takes it
/// now: nothing is copied of an open chunk. Those that have nothing to seal are given if that was not known
/// yet.
fn sealed_sources(
    view: &mut View,
    id: ChunkId,
    record: &ChunkRecord,
    length: u64,
) -> Decide<Result<Vec<ServerId>, Vec<ServerId>>> {
    let sources = view.planner().sources(id, record);
    let results = view.data(id, &sources, &DataCall::Seal { epoch: record.epoch, length })?;
    let lacks = |(server, result): &(&ServerId, &DataResult)| {
        matches!(result, Some(Err(DataError::NoChunk | DataError::Corrupt)))
            && !view.health.is_damaged(**server, id)
    };
    let missing: Vec<ServerId> =
        sources.iter().zip(&results).filter(lacks).map(|(server, _)| *server).collect();
    Ok(if missing.is_empty() { Ok(sources) } else { Err(missing) })
}

/// The target gets no copy. What it may hold of one was made under the next epoch, which is given to no
/// other.
fn call_off(record: &mut ChunkRecord) {
    record.former.extend(record.pending_replica.take());
    record.epoch = record.epoch.next();
    record.confirmed = false;
}

/// The target is a server of the chunk; a bad one, or one that leaves, goes if there are enough without it.
fn on_copy(view: &View, id: ChunkId, record: &mut ChunkRecord, target: ServerId) {
    let planner = view.planner();
    record.pending_replica = None;
    record.servers.push(target);
    record.epoch = record.epoch.next();
    record.confirmed = false;
    while record.servers.len() > planner.copies
        && let Some(replaced) = planner.replaced(record, id, target)
    {
        record.former.push(record.servers.remove(replaced));
    }
}

/// No other server can take a copy: a damaged replica goes, once it has said so itself and another one is
/// known to be whole, so that its server can be given a new one. Not where there is no room for that.
fn drop_damaged(view: &mut View, id: ChunkId, mut record: ChunkRecord) -> Decide<StepOutcome> {
    let (planner, length) = (view.planner(), record.sealed.unwrap_or(0));
    // Without room for a copy there would be one replica less for good.
    let damaged = |server: &&ServerId| {
        planner.health.is_damaged(**server, id)
            && planner.health.answers(**server)
            && planner.has_room(**server, &record)
    };
    let damaged = record.servers.iter().find(damaged).copied();
    let good = planner.good(id, &record).into_iter().find(|server| planner.health.answers(*server));
    let (Some(damaged), Some(good)) = (damaged, good) else { return Ok(StepOutcome::Nothing) };
    // What is known of it may be older than the replica.
    match view.data(id, &[damaged], &DataCall::Verify { length })?.remove(0) {
        Some(Ok(DataBody::Done)) => return Ok(StepOutcome::Whole(damaged)),
        Some(Err(DataError::Corrupt | DataError::NoChunk | DataError::BeyondEnd)) => {}
        Some(_) => return Ok(StepOutcome::Wait),
        None => return Err(Stop::Later),
    }
    match view.data(id, &[good], &DataCall::Verify { length })?.remove(0) {
        Some(Ok(DataBody::Done)) => {
            record.servers.retain(|server| *server != damaged);
            record.former.push(damaged);
            record.epoch = record.epoch.next();
            record.confirmed = false;
            keep(view, id, record);
            Ok(StepOutcome::Did("damaged replica dropped"))
        }
        Some(Err(DataError::Corrupt | DataError::NoChunk | DataError::BeyondEnd)) => {
            Ok(StepOutcome::Missing(vec![good]))
        }
        Some(_) => Ok(StepOutcome::Wait),
        None => Err(Stop::Later),
    }
}
