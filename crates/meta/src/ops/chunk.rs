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
#[derive(Clone, Debug, PartialEq, Eq)]
enum FenceOutcome {
    /// Seal at this length. Of these ranges below it nobody has a whole frame.
    End { length: u64, holes: Vec<(u64, u64)> },
    /// Others may have more.
    Wait,
    /// Those that are there have nothing, and the others are lost: only when one of them is back, or is taken
    /// out of the cluster, can it be said where the chunk ends.
    Nowhere,
}

/// What a server has of a fenced chunk.
struct Held {
    length: u64,
    damaged: Vec<(u64, u64)>,
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

/// Fences its servers, logs where the furthest whole frame of any ends, and tells them. Whoever asks for a
/// chunk that is sealed has met a server that missed it: all are told again.
///
/// A server that holds less stays in the record: what it holds is good, and for the rest readers go to the
/// others.
pub(crate) fn seal(view: &mut View, chunk: ChunkRef, epoch: Epoch) -> Decide<Body> {
    let mut record = in_use(view, chunk)?;
    if let Some(length) = record.sealed {
        view.data(chunk.chunk, &record.servers, &DataCall::Seal { epoch: record.epoch, length })?;
    } else if record.epoch == epoch {
        let fenced = view.data(chunk.chunk, &record.servers, &DataCall::Fence { epoch: epoch.next() })?;
        let health = view.health;
        let answers: Vec<Fence> = record
            .servers
            .iter()
            .zip(fenced)
            .map(|(server, result)| fence_of(result, health.is_unknown(*server), health.is_lost(*server)))
            .collect();
        let outcome = end_of(&answers);
        #[cfg(feature = "mutants")]
        let outcome = planted_end(view.config.mutant, &answers).unwrap_or(outcome);
        let (length, holes) = match outcome {
            FenceOutcome::End { length, holes } => (length, holes),
            FenceOutcome::Wait => return Err(Stop::Later),
            FenceOutcome::Nowhere => return Err(Stop::Refuse(Code::Io)),
        };
        // Told before it is logged: a server that misses it, or a crash in between, leaves bytes beyond the length, which nobody refers to.
        view.data(chunk.chunk, &record.servers, &DataCall::Seal { epoch: epoch.next(), length })?;
        record.epoch = epoch.next();
        record.sealed = Some(length);
        record.holes = holes;
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

/// What servers have said of a chunk that nobody has whole.
#[derive(Default)]
pub(crate) struct Damage {
    /// What none of them has whole. Each range begins and ends where frames do.
    pub everywhere: Vec<(u64, u64)>,
    /// Those that lack something.
    pub servers: Vec<ServerId>,
}

/// Has the servers of a sealed chunk that answer read it anew.
pub(crate) fn damage_of(view: &mut View, id: ChunkId, record: &ChunkRecord) -> Decide<Damage> {
    let sealed = record.sealed.unwrap_or(0);
    let health = view.health;
    // One that counts as lost for its failed disk may be the only one that has something.
    let answering = record.servers.iter().filter(|server| health.answers(**server));
    let asked: Vec<ServerId> = answering.copied().collect();
    let results = view.data(id, &asked, &DataCall::Fence { epoch: record.epoch })?;
    let (mut held, mut servers) = (Vec::new(), Vec::new());
    for (server, result) in asked.into_iter().zip(results) {
        match fence_of(result, false, health.is_lost(server)) {
            Fence::Held { held: found, .. } => {
                if found.length < sealed || !found.damaged.is_empty() {
                    servers.push(server);
                }
                held.push(found);
            }
            Fence::Nothing => servers.push(server),
            Fence::Lost => {}
            Fence::Silent => return Err(Stop::Later),
        }
    }
    let held: Vec<&Held> = held.iter().collect();
    // Where nobody has anything nothing is known of what there was.
    let everywhere = if held.is_empty() { Vec::new() } else { holes_of(&held, sealed) };
    Ok(Damage { everywhere, servers })
}

/// One server's part in a seal.
enum Fence {
    Held {
        held: Held,
        restarted: bool,
    },
    /// It keeps the fence and has nothing that is whole. That says nothing of the length: its disk may have
    /// been emptied, or be an older one.
    Nothing,
    /// It does not say, and has been silent for so long that it is not waited for.
    Lost,
    /// It does not say yet.
    Silent,
}

fn fence_of(result: DataResult, unknown: bool, lost: bool) -> Fence {
    match result {
        Some(Ok(DataBody::Fenced { length, restarted, damaged })) => {
            Fence::Held { held: Held { length, damaged }, restarted }
        }
        // Of a chunk whose header is damaged nothing can be read.
        Some(Err(DataError::NoChunk | DataError::Corrupt)) => Fence::Nothing,
        // Taken out of the cluster, with all that it had.
        _ if unknown => Fence::Nothing,
        _ if lost => Fence::Lost,
        Some(_) | None => Fence::Silent,
    }
}

/// Where the furthest whole frame ends. A server that did not restart has all that was ever acknowledged, so
/// it decides without the others; without such a one all that are not lost have to say what they have. That
/// nothing is there is believed only if all say so.
fn end_of(answers: &[Fence]) -> FenceOutcome {
    let any = |which: fn(&Fence) -> bool| answers.iter().any(which);
    let steady = any(|answer| match answer {
        Fence::Held { held, restarted } => !restarted && held.damaged.is_empty(),
        Fence::Nothing | Fence::Lost | Fence::Silent => false,
    });
    if any(|answer| matches!(answer, Fence::Silent)) && !steady {
        return FenceOutcome::Wait;
    }
    let held: Vec<&Held> = answers
        .iter()
        .filter_map(|answer| match answer {
            Fence::Held { held, .. } => Some(held),
            Fence::Nothing | Fence::Lost | Fence::Silent => None,
        })
        .collect();
    let length = held.iter().map(|held| held.length).max();
    match length {
        None if any(|answer| matches!(answer, Fence::Lost)) => FenceOutcome::Nowhere,
        None => FenceOutcome::End { length: 0, holes: Vec::new() },
        Some(length) => FenceOutcome::End { length, holes: holes_of(&held, length) },
    }
}

#[cfg(feature = "mutants")]
fn planted_end(mutant: Option<crate::mutant::Mutant>, answers: &[Fence]) -> Option<FenceOutcome> {
    let lengths = answers.iter().filter_map(|answer| match answer {
        Fence::Held { held, restarted } => {
            Some((*restarted, held.damaged.first().map_or(held.length, |(start, _)| *start)))
        }
        Fence::Nothing | Fence::Lost | Fence::Silent => None,
    });
    let nothing = answers.iter().any(|answer| matches!(answer, Fence::Nothing));
    let length = match mutant? {
        // Those that did not restart first.
        crate::mutant::Mutant::SealAtShortest => lengths.min()?.1,
        crate::mutant::Mutant::UnknownIsEmpty if nothing => 0,
        _ => return None,
    };
    Some(FenceOutcome::End { length, holes: Vec::new() })
}

/// What nobody has of the first bytes. Each range begins and ends where frames do.
fn holes_of(held: &[&Held], length: u64) -> Vec<(u64, u64)> {
    let lacks = |held: &Held| {
        let mut lacks = held.damaged.clone();
        lacks.push((held.length, u64::MAX));
        lacks
    };
    let common = held.iter().fold(vec![(0, length)], |common, held| common_ranges(&common, &lacks(held)));
    common.into_iter().filter(|(start, end)| start < end).collect()
}

/// What lies in ranges of both lists, which are in order.
fn common_ranges(one: &[(u64, u64)], other: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let pairs = one.iter().flat_map(|one| other.iter().map(move |other| (one, other)));
    let common = pairs.map(|((start, end), (from, to))| (*start.max(from), *end.min(to)));
    common.filter(|(start, end)| start < end).collect()
}

fn append_right(view: &View, chunk: ChunkRef, record: &ChunkRecord) -> Decide<Capability> {
    let body = CapabilityBody {
        session: rights::asker(view)?,
        chunk: chunk.chunk,
        right: DataRight::append(record.epoch, &record.servers),
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
        holes: record.holes.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(length: u64, restarted: bool, damaged: &[(u64, u64)]) -> Fence {
        let fenced = DataBody::Fenced { length, restarted, damaged: damaged.to_vec() };
        fence_of(Some(Ok(fenced)), false, false)
    }

    fn fenced(length: u64, restarted: bool) -> Fence {
        held(length, restarted, &[])
    }

    fn nothing() -> Fence {
        fence_of(Some(Err(DataError::NoChunk)), false, false)
    }

    fn silent() -> Fence {
        fence_of(None, false, false)
    }

    fn lost() -> Fence {
        fence_of(None, false, true)
    }

    fn end(length: u64) -> FenceOutcome {
        FenceOutcome::End { length, holes: Vec::new() }
    }

    #[test]
    fn the_furthest_frame_of_any_server_counts() {
        assert_eq!(end_of(&[fenced(100, false), fenced(40, true)]), end(100));
        assert_eq!(end_of(&[fenced(40, true), fenced(100, true)]), end(100));
        assert_eq!(end_of(&[fenced(90, false), fenced(100, false)]), end(100));
        assert_eq!(end_of(&[fenced(90, false), fenced(100, true)]), end(100));
    }

    #[test]
    fn who_restarted_does_not_decide_before_the_others_are_heard_or_lost() {
        assert_eq!(end_of(&[fenced(40, true), silent()]), FenceOutcome::Wait);
        assert_eq!(
            end_of(&[fenced(40, true), fence_of(Some(Err(DataError::Failed)), false, false)]),
            FenceOutcome::Wait
        );
        assert_eq!(end_of(&[fenced(40, true), lost()]), end(40));
        assert_eq!(end_of(&[fenced(40, true), nothing()]), end(40));
        assert_eq!(end_of(&[fenced(90, false), silent()]), end(90), "it has all that was acknowledged");
        let rotten = || held(90, false, &[(40, 48)]);
        assert_eq!(end_of(&[rotten(), silent()]), FenceOutcome::Wait, "not all of it any more");
        assert_eq!(end_of(&[rotten(), fenced(80, true)]), end(90));
    }

    #[test]
    fn that_nothing_is_there_is_believed_only_if_all_say_so() {
        assert_eq!(end_of(&[nothing(), nothing()]), end(0));
        assert_eq!(end_of(&[nothing(), fence_of(None, true, true)]), end(0), "it is out of the cluster");
        assert_eq!(end_of(&[nothing(), silent()]), FenceOutcome::Wait);
        assert_eq!(end_of(&[nothing(), lost()]), FenceOutcome::Nowhere);
        assert_eq!(end_of(&[lost(), lost()]), FenceOutcome::Nowhere);
        assert_eq!(
            end_of(&[silent(), fence_of(Some(Err(DataError::Full)), false, false)]),
            FenceOutcome::Wait
        );
    }

    #[test]
    fn a_hole_is_what_is_damaged_or_missing_everywhere() {
        let outcome = |answers: &[Fence]| match end_of(answers) {
            FenceOutcome::End { length, holes } => (length, holes),
            FenceOutcome::Wait | FenceOutcome::Nowhere => panic!("nobody is silent"),
        };
        let (one, other) = ([(16, 48), (80, 96)], [(40, 88), (120, 128)]);
        assert_eq!(outcome(&[held(200, true, &one), held(160, true, &[])]), (200, vec![]));
        assert_eq!(outcome(&[held(200, true, &one), nothing()]), (200, one.to_vec()));
        let common = vec![(40, 48), (80, 88)];
        assert_eq!(outcome(&[held(200, true, &one), held(160, true, &other)]), (200, common));
        let behind = [(120, 128), (168, 176)];
        assert_eq!(outcome(&[held(200, true, &behind), held(160, true, &[])]), (200, vec![(168, 176)]));
    }
}
