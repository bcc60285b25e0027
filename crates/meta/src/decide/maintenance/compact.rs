//! Compaction: what is still referred to of a chunk that is mostly dead goes into a new chunk, the
//! *compaction target*, and the old one goes.
//!
//! 1. A usage scan (`usage_scan.rs`) finds that few of the chunk's frames are in use. The record of the
//!    target is logged, and in the same entry the old one's says who its target is. The target's record names
//!    the frames, once and for all, its servers and its length.
//! 2. Each of the target's servers makes it by itself, from any replica of the old chunk; all come to the
//!    same bytes. When all have it, stable and sealed, it is *made*. If one cannot, the target is being
//!    deleted, and the old chunk has none any more.
//! 3. The homes of the nodes are asked to move their extents: one that still says "old chunk, this frame"
//!    says "target, that frame" from then on. What was changed meanwhile stays as it is; the target's copy of
//!    it is dead from birth.
//! 4. When no extent of these frames is left in the old chunk, the target is a chunk as any other, and the
//!    old one is scanned: it is found dead.
//!
//! Why nothing is lost, whoever crashes:
//!
//! - The old chunk is closed before its first usage scan, so its frames in use only become fewer. While it
//!   has a compaction target, it is not scanned, so it is not removed.
//! - A tablet refers to the target only after it has joined it (see `join`), and the answer to that says that
//!   the target is made: it leaves when that is stable. So a compaction target that anybody refers to is
//!   never given up.
//! - While the target's record says whose it is, it is not scanned, so that it is not found dead before
//!   anything was moved.
//! - Every step begins from the records and can be done again: a new owner goes on where the old one was.
//!
//! An extent that moves changes neither what is read nor an attribute. So no lease is recalled, no version
//! grows, and it does not matter whether the node is lent with a delegated directory: where bytes lie is no
//! part of what is lent. Who has an older list of extents reads from the old chunk, and when that is gone
//! asks for the list anew.

use crate::chunks::StepOutcome;
use crate::decide::maintenance::seal::keep;
use crate::decide::maintenance::{join, usage_scan};
use crate::record::{ChunkRecord, ExtentRecord, Finished, Gather, Key, Record};
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{ChunkRef, Extent};
use bearing_proto::data::{DataBody, DataCall, DataError, FrameAt, Pieces};
use bearing_proto::peer::{ChunkUse, ExtentMove, Question, Told};
use bearing_types::{ChunkId, Position, ServerId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Runs of frames that one target takes: what its record and a request hold. A chunk with more gets another
/// target when it is scanned again.
const PIECES_MAX: usize = 4096;
/// Extents in one question.
const MOVES_MAX: usize = 256;
/// Questions of one job.
const QUESTIONS_MAX: usize = 8;
/// Parts of one extent that are scanned in one question; what is left is found by the next.
const PARTS_MAX: usize = 64;

/// The frames that files refer to and that are not lost, those that lie one behind the other as one range.
pub(super) fn live_ranges(
    frames: &[FrameAt],
    record: &ChunkRecord,
    lost: &[(u64, u64)],
    uses: &[ChunkUse],
) -> Vec<Range<u64>> {
    let is_lost = |frame: u64| lost.iter().any(|(start, end)| (*start..*end).contains(&frame));
    let used: BTreeSet<u64> =
        uses.iter().map(|used| used.extent.frame).filter(|frame| !is_lost(*frame)).collect();
    let nexts = frames.iter().skip(1).map(|frame| frame.frame).chain(record.sealed);
    let gap = |frame: u64| {
        let starts = record.holes.iter().chain(lost).map(|(start, _)| *start);
        starts.filter(|start| *start > frame).min()
    };
    let ends =
        frames.iter().zip(nexts).map(|(frame, next)| gap(frame.frame).map_or(next, |gap| gap.min(next)));
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for (frame, end) in frames.iter().zip(ends).filter(|(frame, _)| used.contains(&frame.frame)) {
        match ranges.last_mut() {
            Some(last) if last.end == frame.frame => last.end = end,
            _ => ranges.push(frame.frame..end),
        }
    }
    ranges
}

/// Logs a compaction target for a chunk of which these ranges are in use.
pub(super) fn begin(
    view: &mut View,
    id: ChunkId,
    record: &mut ChunkRecord,
    live: &[Range<u64>],
) -> Decide<()> {
    let payload = record.scanned.map_or(0, |scan| scan.live_bytes);
    let pieces = Pieces::of(&live[..live.len().min(PIECES_MAX)]);
    let target = ChunkId(view.new_id()?.0);
    let planner = view.planner();
    let length = pieces.bytes();
    let target_record = ChunkRecord {
        sealed: Some(length),
        gather: Some(Gather { from: id, pieces, made: false }),
        finished: Some(Finished { at: view.time(), payload }),
        ..ChunkRecord::new(record.position, planner.makers(target, length), view.time())
    };
    keep(view, target, target_record);
    record.compaction_target = Some(target);
    Ok(())
}

/// Has a compaction target made by its servers.
pub(super) fn make(view: &mut View, id: ChunkId, mut record: ChunkRecord) -> Decide<StepOutcome> {
    let (Some(gather), Some(length)) = (record.gather.clone(), record.sealed) else {
        return Ok(StepOutcome::Nothing);
    };
    let Some(source) = source(view, gather.from)? else { return call_off(view, id, record) };
    let bad = |server: &ServerId| view.health.is_lost(*server) || view.health.is_damaged(*server, id);
    if record.servers.iter().any(bad) {
        return call_off(view, id, record);
    }
    let sources = sealed_at(view, gather.from, &source)?;
    if sources.is_empty() {
        return Ok(StepOutcome::Wait);
    }
    let Gather { from, pieces, .. } = gather.clone();
    let call = DataCall::Gather { epoch: record.epoch, from, sources, pieces, length };
    let results = view.data(id, &record.servers, &call)?;
    if results.iter().any(|result| matches!(result, Some(Err(_)))) {
        return call_off(view, id, record);
    }
    if !results.iter().all(|result| matches!(result, Some(Ok(DataBody::Done)))) {
        return Ok(StepOutcome::Making);
    }
    record.gather = Some(Gather { made: true, ..gather });
    record.confirmed = true;
    keep(view, id, record);
    Ok(StepOutcome::Did("heir made"))
}

/// The record of the chunk that is compacted.
fn source(view: &mut View, from: ChunkId) -> Decide<Option<ChunkRecord>> {
    view.get_as(Key::Chunk(from), Record::into_chunk)
}

/// The servers that can be asked for frames of a sealed chunk, those that have all of it first. Of one that
/// is damaged, or too short to be sealed, those frames are taken that it has; nothing is taken of an open
/// one.
fn sealed_at(view: &mut View, id: ChunkId, record: &ChunkRecord) -> Decide<Vec<ServerId>> {
    let Some(length) = record.sealed else { return Ok(Vec::new()) };
    let servers = view.planner().sources(id, record);
    let results = view.data(id, &servers, &DataCall::Seal { epoch: record.epoch, length })?;
    let mut sealed: Vec<(ServerId, bool)> = servers
        .into_iter()
        .zip(results)
        .filter_map(|(server, result)| match result {
            Some(Ok(DataBody::Done)) => Some((server, false)),
            Some(Err(DataError::Corrupt)) => Some((server, true)),
            _ => None,
        })
        .collect();
    sealed.sort_by_key(|(_, damaged)| *damaged);
    Ok(sealed.into_iter().map(|(server, _)| server).collect())
}

/// There is no target after all. Nobody refers to it, because it never was made.
fn call_off(view: &mut View, id: ChunkId, mut record: ChunkRecord) -> Decide<StepOutcome> {
    let Some(gather) = record.gather.take() else { return Ok(StepOutcome::Nothing) };
    if let Some(mut source) = source(view, gather.from)?
        && source.compaction_target == Some(id)
    {
        source.compaction_target = None;
        keep(view, gather.from, source);
    }
    record.deleting = true;
    keep(view, id, record);
    Ok(StepOutcome::CalledOff(gather.from))
}

/// Has extents moved to a compaction target that is made, or finds that none is left to be moved.
pub(super) fn move_extents(view: &mut View, id: ChunkId, mut record: ChunkRecord) -> Decide<StepOutcome> {
    usage_scan::still_young(view)?;
    let Some(Gather { from, pieces, .. }) = record.gather.clone() else { return Ok(StepOutcome::Nothing) };
    let Some(mut source) = source(view, from)? else { return Ok(StepOutcome::Nothing) };
    // The target has the same frames as the old chunk, of which nothing may be left by now.
    let own = [(0, record.sealed.unwrap_or(0))];
    let Ok(frames) = usage_scan::frames(view, id, &record, &own)? else { return Ok(StepOutcome::Wait) };
    let uses = usage_scan::uses(view, from, &source, &frames)?;
    let places: BTreeMap<u64, (u64, u64)> =
        pieces.places().map(|(old, new, length)| (old, (new, length))).collect();
    let place = |frame: u64| {
        let (old, (new, length)) = places.range(..=frame).next_back()?;
        (frame - old < *length).then_some(new + (frame - old))
    };
    let mut by_tablet: BTreeMap<Position, Vec<ExtentMove>> = BTreeMap::new();
    for ChunkUse { node, extent: Extent { file_offset, length, frame, .. } } in uses {
        let Some(place) = place(frame) else { continue };
        let tablet = view.map.locate(node.home).ok_or(Stop::Later)?.block.start();
        let moves = by_tablet.entry(tablet).or_default();
        moves.push(ExtentMove { node, file_offset, length, frame, place });
    }
    if by_tablet.is_empty() {
        record.gather = None;
        (source.compaction_target, source.scanned) = (None, None);
        source.moved = Some(view.time());
        keep(view, id, record);
        keep(view, from, source);
        return Ok(StepOutcome::Did("chunk compacted"));
    }
    let to = ChunkRef { chunk: id, position: record.position };
    let mut missing = false;
    let questions = by_tablet.values().flat_map(|moves| moves.chunks(MOVES_MAX)).take(QUESTIONS_MAX);
    for moves in questions.map(<[ExtentMove]>::to_vec).collect::<Vec<_>>() {
        match view.ask(moves[0].node.home, Question::Move { from, to, moves: moves.clone() }, |view| {
            answer(view, from, to, &moves)
        }) {
            Ok(Told::Moved) => {}
            Ok(_) => return Err(Stop::Later),
            Err(Stop::Need) => missing = true,
            Err(stop) => return Err(stop),
        }
    }
    if missing { Err(Stop::Need) } else { Ok(StepOutcome::Did("extents moved")) }
}

/// The answer: of these extents, those that still lie where they were seen lie in the new chunk from now on.
pub(crate) fn answer(view: &mut View, from: ChunkId, to: ChunkRef, moves: &[ExtentMove]) -> Decide<Told> {
    for asked in moves {
        view.require(asked.node.home)?;
    }
    join::join_all(view, BTreeSet::from([to]))?;
    let mut missing = false;
    for asked in moves {
        let (node, first) = (asked.node.node, asked.file_offset);
        // Parts of what was seen begin where it began, or within it.
        let last = first + u64::from(asked.length).saturating_sub(1);
        let pairs = match view.range(Key::Extent(node, first)..=Key::Extent(node, last), PARTS_MAX) {
            Ok(pairs) => pairs,
            Err(Stop::Need) => {
                missing = true;
                continue;
            }
            Err(stop) => return Err(stop),
        };
        for (key, record) in pairs {
            let Record::Extent(extent) = record else { continue };
            if extent.chunk.chunk == from && extent.frame == asked.frame {
                view.put(key, Record::Extent(ExtentRecord { chunk: to, frame: asked.place, ..extent }));
            }
        }
    }
    if missing { Err(Stop::Need) } else { Ok(Told::Moved) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_proto::client::Handle;
    use bearing_types::NodeId;

    #[test]
    fn frames_in_use_that_lie_side_by_side_are_one_range() {
        let home = Position(0);
        let frame = |frame| FrameAt { frame, payload: 1, node: NodeId(1), home };
        let frames = [frame(0), frame(80), frame(160), frame(320), frame(400)];
        let chunk = ChunkRef { chunk: ChunkId(1), position: home };
        let used = |frame| ChunkUse {
            node: Handle { node: NodeId(1), home },
            extent: Extent { file_offset: 0, length: 1, chunk, frame, skip: 0 },
        };
        // Of one frame two parts are in use, and one that is named lies beyond the end.
        let uses = [used(400), used(80), used(160), used(80), used(4_000)];
        let mut record = ChunkRecord::new(home, Vec::new(), bearing_types::Wall(0));
        record.sealed = Some(480);
        assert_eq!(live_ranges(&frames, &record, &[], &uses), [80..320, 400..480]);
        assert_eq!(live_ranges(&frames, &record, &[], &[]), []);
        assert_eq!(live_ranges(&frames, &record, &[(80, 160)], &uses), [160..320, 400..480]);
        assert_eq!(live_ranges(&frames, &record, &[(160, 320)], &uses), [80..160, 400..480]);
        record.holes = vec![(240, 320), (440, 480)];
        assert_eq!(
            live_ranges(&frames, &record, &[], &uses),
            [80..240, 400..440],
            "no frame reaches into a hole"
        );
    }
}
