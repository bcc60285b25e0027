//! Where a chunk ends: its servers are fenced, say what they have whole, and are told. And what of a sealed
//! chunk nobody has whole.

use crate::config::Config;
use crate::mutant::Mutant;
use crate::record::{ChunkRecord, Key, Record};
use crate::view::{DataResult, Decide, Stop, View};
use bearing_proto::client::{Body, ChunkRef, ChunkView};
use bearing_proto::data::{DataBody, DataCall, DataError};
use bearing_types::{ChunkId, Code, Epoch, ServerId};

/// What fencing a chunk's servers found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FenceOutcome {
    /// Seal at this length. Of these ranges below it nobody has a whole frame.
    End { length: u64, holes: Vec<(u64, u64)> },
    /// Others may have more.
    Wait,
    /// Those that are there lack something, and others are lost who may have it: only when these are back, or
    /// are taken out of the cluster, can it be said what the chunk has.
    Nowhere,
}

/// What a server has of a fenced chunk.
pub(crate) struct Held {
    length: u64,
    damaged: Vec<(u64, u64)>,
}

/// The record of a chunk that somebody may refer to. One that is being removed is as good as gone.
pub(crate) fn in_use(view: &mut View, chunk: ChunkRef) -> Decide<ChunkRecord> {
    let record = view.chunk(chunk)?;
    if record.deleting { Err(Stop::Refuse(Code::Stale)) } else { Ok(record) }
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
        let outcome = planted_end(view.config, &answers).unwrap_or(outcome);
        let (length, holes) = match outcome {
            FenceOutcome::End { length, holes } => (length, holes),
            FenceOutcome::Wait => return Err(Stop::Later),
            FenceOutcome::Nowhere => return Err(Stop::Refuse(Code::Io)),
        };
        // Told before it is logged: a server that misses it, or a crash in between, leaves bytes beyond the
        // length, which nobody refers to.
        view.data(chunk.chunk, &record.servers, &DataCall::Seal { epoch: epoch.next(), length })?;
        record.epoch = epoch.next();
        record.sealed = Some(length);
        record.holes = holes;
        view.put(Key::Chunk(chunk.chunk), Record::Chunk(Box::new(record.clone())));
    }
    Ok(Body::Chunk(chunk_view(chunk, &record)))
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
pub(crate) enum Fence {
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

pub(crate) fn fence_of(result: DataResult, unknown: bool, lost: bool) -> Fence {
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
/// nothing is there, or that something in the middle is nowhere whole, is believed only if all say so: it is
/// final.
pub(crate) fn end_of(answers: &[Fence]) -> FenceOutcome {
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
    let holes = length.map(|length| holes_of(&held, length));
    let is_sure = holes.as_ref().is_some_and(Vec::is_empty);
    if !is_sure && any(|answer| matches!(answer, Fence::Lost)) {
        return FenceOutcome::Nowhere;
    }
    FenceOutcome::End { length: length.unwrap_or(0), holes: holes.unwrap_or_default() }
}

/// Where a planted bug seals instead.
fn planted_end(config: &Config, answers: &[Fence]) -> Option<FenceOutcome> {
    let lengths = answers.iter().filter_map(|answer| match answer {
        Fence::Held { held, restarted } => {
            Some((*restarted, held.damaged.first().map_or(held.length, |(start, _)| *start)))
        }
        Fence::Nothing | Fence::Lost | Fence::Silent => None,
    });
    let nothing = answers.iter().any(|answer| matches!(answer, Fence::Nothing));
    let length = if config.planted(Mutant::SealAtShortest) {
        // Those that did not restart first.
        lengths.min()?.1
    } else if nothing && config.planted(Mutant::UnknownIsEmpty) {
        0
    } else {
        return None;
    };
    Some(FenceOutcome::End { length, holes: Vec::new() })
}

/// What nobody has of the first bytes. Each range begins and ends where frames do.
pub(crate) fn holes_of(held: &[&Held], length: u64) -> Vec<(u64, u64)> {
    let lacks = |held: &Held| {
        let mut lacks = held.damaged.clone();
        lacks.push((held.length, u64::MAX));
        lacks
    };
    let common = held.iter().fold(vec![(0, length)], |common, held| common_ranges(&common, &lacks(held)));
    common.into_iter().filter(|(start, end)| start < end).collect()
}

/// What lies in ranges of both lists, which are in order.
pub(crate) fn common_ranges(one: &[(u64, u64)], other: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let pairs = one.iter().flat_map(|one| other.iter().map(move |other| (one, other)));
    let common = pairs.map(|((start, end), (from, to))| (*start.max(from), *end.min(to)));
    common.filter(|(start, end)| start < end).collect()
}

/// What anybody may know of a chunk: who holds it.
pub(crate) fn chunk_view(chunk: ChunkRef, record: &ChunkRecord) -> ChunkView {
    ChunkView {
        chunk,
        epoch: record.epoch,
        servers: record.servers.clone(),
        sealed: record.sealed,
        capability: None,
        holes: record.holes.clone(),
    }
}

pub(crate) fn keep(view: &mut View, id: ChunkId, record: ChunkRecord) {
    view.put(Key::Chunk(id), Record::Chunk(Box::new(record)));
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
    fn what_is_damaged_is_no_hole_while_one_is_lost_who_may_have_it_whole() {
        let rotten = || held(200, true, &[(16, 48)]);
        assert_eq!(end_of(&[rotten(), lost()]), FenceOutcome::Nowhere);
        assert_eq!(end_of(&[rotten(), held(160, true, &[(40, 88)]), lost()]), FenceOutcome::Nowhere);
        assert_eq!(end_of(&[rotten(), fenced(160, true), lost()]), end(200), "it is whole somewhere");
        let out = fence_of(None, true, true);
        let holes = vec![(16, 48)];
        assert_eq!(end_of(&[rotten(), out]), FenceOutcome::End { length: 200, holes });
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
