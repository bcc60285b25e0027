//! A usage scan at a sealed chunk: which of its bytes does any file still refer to?
//!
//! The chunk itself says whose frames it holds: a data server lists their headers, and each header names a
//! node and its home. The tablets of these homes are asked which extents of these nodes lie in the chunk. If
//! there are none, the chunk is *being deleted*: its replicas are removed, then its record.
//!
//! Why nothing is removed that anybody could still name:
//!
//! - Only the node that a frame's header names has extents of that frame. (Whoever makes other nodes refer to
//!   frames, such as a copy that moves no data, has to write frames of their own, or this does not hold any
//!   more.)
//! - Before it is scanned, the chunk is *closed*: no further tablet joins it (see `join`). Those that have
//!   joined are asked.
//! - A commit that was on its way while the question was answered: with its answer the tablet logs that the
//!   chunk is closed there too, and from then on it takes no extent in it. The answer leaves only when the
//!   mark is stable. A writer that hears "closed" appends its bytes elsewhere and commits them there, so a
//!   late commit loses nothing. The mark goes with the tablet wherever it is served. It is kept for
//!   `closed_mark_ttl`, longer than any network keeps a packet (an old "you have joined"); after that the
//!   tablet would have to join again, which is refused.
//! - A commit before the answer shows in the answer.
//! - A frame whose header is damaged in all replicas names nobody, and somebody may refer to it: such a chunk
//!   is not being deleted.
//! - Frames beyond the sealed length were never stable, and those in its holes are nowhere. A file that
//!   refers to one reads as an error, with the chunk or without it.
//! - Other damaged frames are no holes, and stay where they are: who has a whole one may come back. They only
//!   keep no others from being compacted.
//! - Compaction (`compact.rs`) moves extents to another chunk under a comparison in the node's tablet, before
//!   this one is scanned again.
//! - A reader that has an older list of extents finds the chunk gone, asks for the file's extents anew and
//!   goes on with these. Files that are unlinked and still open keep their nodes and extents.
//! - A writer that knows nothing of all this and appends to the chunk when it is gone is refused by the
//!   graves that data servers keep for longer than the right to append lives. Should clocks be so wrong that
//!   it outlives them, nothing of what it appends gets into a file, because the chunk cannot be joined.
//!
//! Crashes: "being deleted" is logged before any replica goes; replicas are removed at all servers that ever
//! held one, again and again until each said so; the record goes last. A server that is away keeps the record
//! alive until it is back or is taken out of the cluster.

use crate::chunks::StepOutcome;
use crate::decide::maintenance::compact;
use crate::decide::maintenance::seal::{Damage, damage_of, keep};
use crate::record::{ChunkRecord, ExtentRecord, Key, Record, UsageScan};
use crate::view::{Decide, Stop, View};
use bearing_proto::client::Handle;
use bearing_proto::data::{DataBody, DataCall, DataError, FrameAt};
use bearing_proto::peer::{ChunkUse, Question, Told};
use bearing_types::{ChunkId, NodeId, Position, ServerId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Frames in one answer of a data server.
const FRAMES_MAX: u32 = 1024;
/// Nodes in one question.
const NODES_MAX: usize = 64;
/// Extents of one node scanned in one question. They are asked for one page after the other, so what a usage
/// scan can go over in its time grows with this.
const EXTENTS_MAX: usize = 8192;
/// Questions that are asked at the same time.
const QUESTIONS_MAX: usize = 32;
/// A usage scan that took longer is begun anew: its answers are too old.
const LOOK_LIFE: Duration = Duration::from_secs(300);

/// Looks at a chunk and notes what was found.
pub(super) fn scan(view: &mut View, id: ChunkId, mut record: ChunkRecord) -> Decide<StepOutcome> {
    still_young(view)?;
    if !record.closed {
        record.closed = true;
        keep(view, id, record);
        return Ok(StepOutcome::Did("chunk closed"));
    }
    // What is dropped from here on may be seen or not: it counts as not seen, so that it is looked for
    // again.
    let dead_before = *view.context.dead_before.get_or_insert(record.dead_bytes);
    // Where nobody has joined, nobody has to be asked whose frames these are.
    let is_torn = view.planner().is_torn(id, &record);
    let damage = match *view.context.torn.get_or_insert(is_torn) {
        true => damage_of(view, id, &record)?,
        false => Damage::default(),
    };
    let frames = match record.users.is_empty() {
        true => Ok(Listed::default()),
        false => all_frames(view, id, &record, &damage.everywhere)?,
    };
    let Listed { frames, unnamed } = match frames {
        Ok(listed) => listed,
        Err(Unlisted::At(servers)) => return Ok(StepOutcome::Missing(servers)),
        Err(Unlisted::Nowhere(lost)) => {
            record.holes.push(lost);
            record.holes.sort();
            keep(view, id, record);
            return Ok(StepOutcome::Did("bytes that nobody has noted"));
        }
        Err(Unlisted::Damaged(_)) => return Err(Stop::Later),
    };
    let mut uses = uses(view, id, &record, &frames)?;
    // What lies behind the end or in a hole is lost: it is no reason to keep the rest.
    uses.retain(|used| record.keeps(used.extent.frame));
    let live: u64 = uses.iter().map(|used| u64::from(used.extent.length)).sum();
    let ranges = compact::live_ranges(&frames, &record, &damage.everywhere, &uses);
    record.dead_bytes = record.dead_bytes.saturating_sub(dead_before);
    record.live_frame_bytes = ranges.iter().map(|range| range.end - range.start).sum();
    record.scanned = Some(UsageScan { live_bytes: live, at: view.now.wall });
    record.deleting = uses.is_empty() && !unnamed;
    // A replica that vanished since is found when all are asked again.
    record.confirmed &= record.deleting;
    if record.deleting && record.pending_replica.is_some() {
        // Its copy is made under the next epoch.
        record.epoch = record.epoch.next();
    }
    let found = if record.deleting { "chunk found dead" } else { "chunk found alive" };
    let compacts = !record.deleting && !ranges.is_empty() && view.planner().compact_due(id, &record);
    if compacts {
        compact::begin(view, id, &mut record, &ranges)?;
    }
    keep(view, id, record);
    let found = if compacts { "compaction begins" } else { found };
    Ok(if damage.servers.is_empty() {
        StepOutcome::Did(found)
    } else {
        StepOutcome::Torn(found, damage.servers)
    })
}

/// A job that took so long is begun anew: what it was told is too old.
pub(super) fn still_young(view: &View) -> Decide<()> {
    let age = view.now.mono.since(view.context.started.mono);
    if age > LOOK_LIFE { Err(Stop::Later) } else { Ok(()) }
}

/// The frames of a chunk.
#[derive(Default)]
struct Listed {
    frames: Vec<FrameAt>,
    /// Of some nobody knows whose they are.
    unnamed: bool,
}

/// Why the frames of a stretch cannot be listed.
pub(super) enum Unlisted {
    /// These servers do not have the chunk, and nobody has that stretch.
    At(Vec<ServerId>),
    /// All servers of the chunk have said that they do not have this stretch, and some have what lies before
    /// it: it went with a disk that is lost for good. What is left is worth as much as if it had never been
    /// there.
    Nowhere((u64, u64)),
    /// No server that answers can list what begins here, and others may.
    Damaged(u64),
}

/// All frames below the sealed length that are not in holes.
fn all_frames(
    view: &mut View,
    id: ChunkId,
    record: &ChunkRecord,
    damaged: &[(u64, u64)],
) -> Decide<Result<Listed, Unlisted>> {
    let mut passed = record.holes.clone();
    loop {
        let stretches = without(record.sealed.unwrap_or(0), &passed);
        let at = match frames(view, id, record, &stretches)? {
            Ok(frames) => {
                return Ok(Ok(Listed { frames, unnamed: passed.len() > record.holes.len() }));
            }
            Err(Unlisted::Damaged(at)) => at,
            Err(unlisted) => return Ok(Err(unlisted)),
        };
        match damaged.iter().find(|(start, end)| (*start..*end).contains(&at)) {
            Some((_, end)) => passed.push((at, *end)),
            None => return Ok(Err(Unlisted::Damaged(at))),
        }
        passed.sort();
    }
}

/// What is left of the first bytes without some ranges, which are in order.
fn without(length: u64, ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let ends = ranges.iter().map(|(_, end)| *end);
    let starts = ranges.iter().map(|(start, _)| *start).chain([length]);
    let stretches = std::iter::once(0).chain(ends).zip(starts);
    stretches.filter(|(start, end)| start < end).collect()
}

/// All frames in some stretches, each of which begins and ends where frames do.
pub(super) fn frames(
    view: &mut View,
    id: ChunkId,
    record: &ChunkRecord,
    stretches: &[(u64, u64)],
) -> Decide<Result<Vec<FrameAt>, Unlisted>> {
    let mut servers = record.servers.clone();
    servers.retain(|server| view.health.answers(*server));
    let known = record.servers.iter().filter(|server| !view.health.is_unknown(**server));
    let all_answer = servers.len() == known.count();
    servers.sort_by_key(|server| view.health.is_damaged(*server, id));
    let mut frames = Vec::new();
    for (mut start, end) in stretches.iter().copied() {
        while start < end {
            match page(view, id, &servers, (start, end))? {
                Ok((page, next)) => {
                    frames.extend(page.into_iter().filter(|frame| frame.frame < end));
                    start = next.unwrap_or(end);
                }
                Err(NotHere { missing, .. }) if !missing.is_empty() => return Ok(Err(Unlisted::At(missing))),
                Err(NotHere { why: Why::Beyond, .. }) if all_answer => {
                    return Ok(Err(Unlisted::Nowhere((start, end))));
                }
                Err(NotHere { why: Why::Beyond | Why::Damaged, .. }) => {
                    return Ok(Err(Unlisted::Damaged(start)));
                }
                Err(_) => return Err(Stop::Later),
            }
        }
    }
    Ok(Ok(frames))
}

/// Frames, and where the next ones begin.
type Page = (Vec<FrameAt>, Option<u64>);

/// What servers said of a page that none of them has.
struct NotHere {
    /// Those that do not have the chunk, which nobody knew.
    missing: Vec<ServerId>,
    why: Why,
}

/// The most that any of them has of it, if all who were asked have said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    Nothing,
    /// What lies before it.
    Beyond,
    Damaged,
    Unclear,
}

/// One page, from the first server that has it.
fn page(
    view: &mut View,
    id: ChunkId,
    servers: &[ServerId],
    (from, end): (u64, u64),
) -> Decide<Result<Page, NotHere>> {
    let call = DataCall::Frames { from, end, count_max: FRAMES_MAX };
    let (mut missing, mut why) = (Vec::new(), Why::Nothing);
    for server in servers {
        match view.data(id, &[*server], &call)?.remove(0) {
            Some(Ok(DataBody::Frames { frames, next })) => {
                return Ok(Ok((frames, next.filter(|next| *next > from))));
            }
            Some(Err(DataError::NoChunk)) if !view.health.is_damaged(*server, id) => missing.push(*server),
            Some(Err(DataError::NoChunk)) => {}
            Some(Err(DataError::BeyondEnd)) => why = why.max(Why::Beyond),
            Some(Err(DataError::Corrupt)) => why = why.max(Why::Damaged),
            // Its disk failed: it may have it, and does not count.
            _ if view.health.is_lost(*server) => why = why.max(Why::Damaged),
            _ => why = Why::Unclear,
        }
    }
    Ok(Err(NotHere { missing, why }))
}

/// Asks the homes of all nodes that frames name which extents they have in the chunk. From then on they take
/// no new ones.
pub(super) fn uses(
    view: &mut View,
    chunk: ChunkId,
    record: &ChunkRecord,
    frames: &[FrameAt],
) -> Decide<Vec<ChunkUse>> {
    let nodes: BTreeSet<(Position, NodeId)> = frames.iter().map(|frame| (frame.home, frame.node)).collect();
    let mut by_tablet: BTreeMap<Position, Vec<Handle>> = BTreeMap::new();
    for (home, node) in nodes {
        let tablet = view.map.locate(home).ok_or(Stop::Later)?.block.start();
        by_tablet.entry(tablet).or_default().push(Handle { node, home });
    }
    let (mut uses, mut missing) = (Vec::new(), 0);
    // Whoever has joined is asked also if no frame names a node there.
    let mut questions: Vec<(Position, Vec<Handle>, u64)> =
        record.users.iter().map(|user| (*user, Vec::new(), 0)).collect();
    for nodes in by_tablet.into_values() {
        questions.extend(nodes.chunks(NODES_MAX).map(|nodes| (nodes[0].home, nodes.to_vec(), 0)));
    }
    while missing < QUESTIONS_MAX
        && let Some((position, nodes, from)) = questions.pop()
    {
        match view.ask_apart(position, Question::Uses { chunk, nodes, from }) {
            Ok(Told::Uses { uses: found, unfinished }) => {
                uses.extend(found);
                questions.extend(unfinished.into_iter().map(|(node, from)| (node.home, vec![node], from)));
            }
            Ok(_) => return Err(Stop::Later),
            Err(Stop::Need) => missing += 1,
            Err(stop) => return Err(stop),
        }
    }
    if missing > 0 { Err(Stop::Need) } else { Ok(uses) }
}

/// The answer: extents of these nodes from a file offset on that lie in the chunk. The chunk is closed here.
pub(crate) fn answer(view: &mut View, chunk: ChunkId, nodes: &[Handle], from: u64) -> Decide<Told> {
    for node in nodes {
        view.require(node.home)?;
    }
    let young = view.config.closed_mark_ttl / 2;
    view.prefetch(&[Key::Closed(chunk), Key::Joined(chunk)])?;
    let time = view.time();
    match view.get(Key::Closed(chunk))? {
        Some(Record::Mark(made)) if made.after(young) > time => {}
        _ => view.put(Key::Closed(chunk), Record::Mark(time)),
    }
    if view.get(Key::Joined(chunk))?.is_some() {
        view.delete(Key::Joined(chunk));
    }
    let (mut uses, mut unfinished, mut missing) = (Vec::new(), Vec::new(), false);
    for node in nodes {
        let keys = Key::Extent(node.node, from)..=Key::Extent(node.node, u64::MAX);
        // All are read together.
        let pairs = match view.range(keys.clone(), EXTENTS_MAX) {
            Ok(pairs) => pairs,
            Err(Stop::Need) => {
                missing = true;
                continue;
            }
            Err(stop) => return Err(stop),
        };
        if view.range_was_full(&keys, EXTENTS_MAX)
            && let Some((Key::Extent(_, last), _)) = pairs.last()
        {
            unfinished.push((*node, last + 1));
        }
        uses.extend(pairs.into_iter().filter_map(|pair| use_of(*node, chunk, pair)));
    }
    if missing { Err(Stop::Need) } else { Ok(Told::Uses { uses, unfinished }) }
}

fn use_of(node: Handle, chunk: ChunkId, pair: (Key, Record)) -> Option<ChunkUse> {
    let (Key::Extent(_, offset), Record::Extent(extent)) = pair else { return None };
    let mine = |extent: &ExtentRecord| extent.chunk.chunk == chunk;
    mine(&extent).then(|| ChunkUse { node, extent: crate::decide::rules::extents::shown(offset, &extent) })
}
