//! What a chunk needs next, and doing it. One piece of work is one job; each begins from the record as it is then.
//!
//! - A chunk that is not sealed when its opener's right to append is long over, when one of its servers is lost, or when its writer has said that it
//!   is done with it and it is of use to look at it, is sealed.
//! - A sealed chunk is *confirmed* when all its servers have said that they hold all of it, sealed. Who missed the seal hears of it as soon as it
//!   answers, whoever else is away meanwhile: until then what it holds is not stable there, and nothing can be copied of it.
//! - What *former* servers may still hold is removed there. Whoever held a replica that does not count any more is a former server until it
//!   has said that the replica is gone, so no replica is forgotten, and none that is out of date can come back.
//! - A chunk that has too few good replicas gets one more: the target is logged first (`coming`), then asked again and again until it has
//!   all of it, then it takes the place of a bad one under the next epoch. Whoever owns the tablet meanwhile goes on with the same target.
//! - A damaged replica that nobody else can take over is dropped once another one was read from end to end and found whole; then its own
//!   server is a possible target like any other.
//! - A chunk that is mostly dead gets an heir (see `compact`). So does one of which no replica is whole and
//!   none can be copied as a whole: its heir takes each frame from whoever has it.

use crate::chunks::Care;
use crate::chunks::holders;
use crate::chunks::{Seals, Tended};
use crate::decide::maintenance::seal::{self, keep};
use crate::decide::maintenance::{compact, usage_scan};
use crate::record::Key;
use crate::record::{ChunkRecord, Record};
use crate::view::DataResult;
use crate::view::{Decide, Stop, View};
use bearing_proto::client::ChunkRef;
use bearing_proto::data::{DataBody, DataCall, DataError};
use bearing_types::{ChunkId, Epoch, ServerId};

/// Does what the chunk needs next.
pub(crate) fn step(view: &mut View, id: ChunkId) -> Decide<Tended> {
    let Some(record) = view.get_as(Key::Chunk(id), Record::into_chunk)? else { return Ok(Tended::Nothing) };
    let around = view.surroundings();
    match around.wanted(id, &record) {
        None => Ok(Tended::Nothing),
        Some(Care::Seal) => seal(view, id, &record),
        Some(Care::Remove) => remove(view, id, record),
        Some(Care::Forget) => forget(view, id, record),
        Some(Care::Copy) => copy(view, id, record),
        Some(Care::Confirm) => confirm(view, id, record),
        Some(Care::Look) => usage_scan::look(view, id, record),
        Some(Care::Make) => compact::make(view, id, record),
        Some(Care::Move) => compact::move_extents(view, id, record),
    }
}

fn seal(view: &mut View, id: ChunkId, record: &ChunkRecord) -> Decide<Tended> {
    match seal::seal(view, ChunkRef { chunk: id, position: record.position }, record.epoch) {
        Ok(_) => Ok(Tended::Did("chunk sealed by its tablet")),
        // Who has something of it is lost. The next round asks again.
        Err(Stop::Refuse(_)) => Ok(Tended::Nothing),
        Err(stop) => Err(stop),
    }
}

/// Has it removed at these servers, as far as they answer. Gives those of which nothing is known.
///
/// The removal names the record's epoch. Every replica that is made later gets a newer one, so a copy of this message that comes late does no harm.
fn remove_at(view: &mut View, id: ChunkId, epoch: Epoch, servers: &[ServerId]) -> Decide<Vec<ServerId>> {
    let health = view.health;
    let (answering, silent): (Vec<ServerId>, Vec<ServerId>) = servers
        .iter()
        .filter(|server| !health.is_unknown(**server))
        .partition(|server| health.answers(**server));
    let results = view.data(id, &answering, &DataCall::Remove { epoch })?;
    let left = answering.iter().zip(results).filter(|(_, result)| *result != Some(Ok(DataBody::Done)));
    Ok(left.map(|(server, _)| *server).chain(silent).collect())
}

fn remove(view: &mut View, id: ChunkId, mut record: ChunkRecord) -> Decide<Tended> {
    let left = remove_at(view, id, record.epoch, &holders(&record))?;
    if left.is_empty() {
        view.delete(Key::Chunk(id));
        return Ok(Tended::Removed);
    }
    if left == holders(&record) {
        return Ok(Tended::Wait);
    }
    (record.servers, record.coming, record.former) = (Vec::new(), None, left);
    keep(view, id, record);
    Ok(Tended::Did("chunk removed from some of its servers"))
}

fn forget(view: &mut View, id: ChunkId, mut record: ChunkRecord) -> Decide<Tended> {
    let left = remove_at(view, id, record.epoch, &record.former)?;
    if left == record.former {
        return Ok(Tended::Wait);
    }
    let gone: Vec<ServerId> = record.former.iter().copied().filter(|server| !left.contains(server)).collect();
    record.former = left;
    keep(view, id, record);
    Ok(Tended::Forgotten(gone))
}

/// All servers say that they hold all of it, sealed; or it turns out which of them do not. While some are away the others are told.
fn confirm(view: &mut View, id: ChunkId, mut record: ChunkRecord) -> Decide<Tended> {
    let Some(length) = record.sealed else { return Ok(Tended::Nothing) };
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
        return Ok(Tended::Sealed(Seals { whole: done, missing, told: false }));
    }
    if done.len() < record.servers.len() {
        let told = done.len() + missing.len() == answering.len() && !all_answer;
        let seals = Seals { whole: done, missing, told };
        return Ok(if told { Tended::Sealed(seals) } else { Tended::Wait });
    }
    record.confirmed = true;
    keep(view, id, record);
    Ok(Tended::Did("replicas confirmed"))
}

fn copy(view: &mut View, id: ChunkId, mut record: ChunkRecord) -> Decide<Tended> {
    let around = view.surroundings();
    let Some(length) = record.sealed else { return Ok(Tended::Nothing) };
    let lost = |server: &ServerId| around.health.is_lost(*server);
    if around.lacks(id, &record) == 0 || record.coming.as_ref().is_some_and(lost) {
        // Whoever was lost is back, or the target is lost too.
        call_off(&mut record);
        keep(view, id, record);
        return Ok(Tended::Did("copy called off"));
    }
    let Some(target) = record.coming else {
        return match around.spare(&record) {
            Some(spare) => {
                record.coming = Some(spare);
                keep(view, id, record);
                Ok(Tended::Copying(0))
            }
            None => drop_damaged(view, id, record),
        };
    };
    let sources = match sealed_sources(view, id, &record, length)? {
        Ok(sources) => sources,
        Err(missing) => return Ok(Tended::Missing(missing)),
    };
    let call = DataCall::Copy { epoch: record.epoch.next(), sources, length };
    match view.data(id, &[target], &call)?.remove(0) {
        Some(Ok(DataBody::Done)) => {
            take_copy(view, id, &mut record, target);
            keep(view, id, record);
            Ok(Tended::Copied(length))
        }
        Some(Ok(DataBody::Busy { done })) => Ok(Tended::Copying(done)),
        Some(Ok(_)) | None => Ok(Tended::Wait),
        Some(Err(why)) => {
            // Not there, then: what it may hold of it is removed, and another one is tried.
            call_off(&mut record);
            keep(view, id, record);
            Ok(if why == DataError::Corrupt { Tended::Hopeless } else { Tended::Did("copy refused") })
        }
    }
}

/// The servers that can be copied from. A server that missed the seal, or lost it with a restart, takes it now: nothing is copied of an open chunk. Those
/// that have nothing to seal are given if that was not known yet.
fn sealed_sources(
    view: &mut View,
    id: ChunkId,
    record: &ChunkRecord,
    length: u64,
) -> Decide<Result<Vec<ServerId>, Vec<ServerId>>> {
    let sources = view.surroundings().sources(id, record);
    let results = view.data(id, &sources, &DataCall::Seal { epoch: record.epoch, length })?;
    let lacks = |(server, result): &(&ServerId, &DataResult)| {
        matches!(result, Some(Err(DataError::NoChunk | DataError::Corrupt)))
            && !view.health.is_damaged(**server, id)
    };
    let missing: Vec<ServerId> =
        sources.iter().zip(&results).filter(lacks).map(|(server, _)| *server).collect();
    Ok(if missing.is_empty() { Ok(sources) } else { Err(missing) })
}

/// The target gets no copy. What it may hold of one was made under the next epoch, which is given to no other.
fn call_off(record: &mut ChunkRecord) {
    record.former.extend(record.coming.take());
    record.epoch = record.epoch.next();
    record.confirmed = false;
}

/// The target is a server of the chunk; a bad one goes if there are enough without it.
fn take_copy(view: &View, id: ChunkId, record: &mut ChunkRecord, target: ServerId) {
    let around = view.surroundings();
    record.coming = None;
    record.servers.push(target);
    record.epoch = record.epoch.next();
    record.confirmed = false;
    while record.servers.len() > around.copies
        && let Some(bad) =
            record.servers.iter().position(|server| *server != target && around.is_bad(*server, id))
    {
        record.former.push(record.servers.remove(bad));
    }
}

/// No other server can take a copy: a damaged replica goes, once it has said so itself and another one is known to be
/// whole, so that its server can be given a new one. Not where there is no room for that.
fn drop_damaged(view: &mut View, id: ChunkId, mut record: ChunkRecord) -> Decide<Tended> {
    let (around, length) = (view.surroundings(), record.sealed.unwrap_or(0));
    // Without room for a copy there would be one replica less for good.
    let damaged = |server: &&ServerId| {
        around.health.is_damaged(**server, id)
            && around.health.answers(**server)
            && around.has_room(**server, &record)
    };
    let damaged = record.servers.iter().find(damaged).copied();
    let good = around.good(id, &record).into_iter().find(|server| around.health.answers(*server));
    let (Some(damaged), Some(good)) = (damaged, good) else { return Ok(Tended::Nothing) };
    // What is known of it may be older than the replica.
    match view.data(id, &[damaged], &DataCall::Verify { length })?.remove(0) {
        Some(Ok(DataBody::Done)) => return Ok(Tended::Whole(damaged)),
        Some(Err(DataError::Corrupt | DataError::NoChunk | DataError::BeyondEnd)) => {}
        Some(_) => return Ok(Tended::Wait),
        None => return Err(Stop::Later),
    }
    match view.data(id, &[good], &DataCall::Verify { length })?.remove(0) {
        Some(Ok(DataBody::Done)) => {
            record.servers.retain(|server| *server != damaged);
            record.former.push(damaged);
            record.epoch = record.epoch.next();
            record.confirmed = false;
            keep(view, id, record);
            Ok(Tended::Did("damaged replica dropped"))
        }
        Some(Err(DataError::Corrupt | DataError::NoChunk | DataError::BeyondEnd)) => {
            Ok(Tended::Missing(vec![good]))
        }
        Some(_) => Ok(Tended::Wait),
        None => Err(Stop::Later),
    }
}
