//! What is fetched before it is read: files that are read front to back, in pieces, from several replicas at
//! the same time.
//!
//! A *stream* is one open file that is read in order. It is planned run by run: a *run* is what lies next in
//! one chunk, so it has one set of replicas, and the flow server is asked once for it. A run is fetched by
//! several loops, each from one replica; whoever is free takes the next piece in the order of the file, so
//! the faster replica carries more, and pieces of one that takes too long are fetched from another as well.
//!
//! Invariants: what is held is bounded, by stream and in all; bytes are given only for the place in a chunk
//! that they were read from, whatever became of the file; whoever waits for a piece that nobody fetches any
//! more is told so. Nothing here is needed to read: what is not here is read as if nothing were fetched.

use super::files::{Stored, end_of};
use crate::config::AheadConfig;
use crate::operation::OpenFile;
use crate::run::{Awaited, Promise, promise};
use bearing_proto::data::{Flow, FlowNumber};
use bearing_routing::Pieces;
use bearing_types::{Mono, NodeId, ServerId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Kernels ask for several pieces of a file at the same time, and these come out of order: a read that is
/// not farther off than this goes on with the stream, in bytes.
const SLACK: u64 = 1 << 20;
/// A piece that takes so many times as long as others is fetched from a second replica too.
const LATE_TIMES: u32 = 4;
/// But not before this.
const LATE_MIN: Duration = Duration::from_millis(20);
/// A stream that was not read for so long makes room for others.
const IDLE: Duration = Duration::from_secs(2);
/// Runs of a stream that are planned and not over.
const RUNS_MAX: usize = 4;

/// Identifies a stream: another one of the same file has another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamId {
    pub file: OpenFile,
    number: u64,
}

/// Identifies a loop that fetches from one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoopId {
    pub stream: StreamId,
    run: u64,
    index: usize,
}

/// Where to read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub server: ServerId,
    /// As the flow server planned it.
    pub flow: Option<Flow>,
}

/// What the planner of a stream does next.
pub(crate) enum Plan {
    /// Plan from here on, at most so many bytes.
    From(NodeId, Range<u64>),
    Wait(Awaited<()>),
    Over,
}

/// What a loop does next.
pub(crate) enum Fetch {
    /// Read these parts of extents.
    Piece(Source, Vec<Stored>),
    /// Wait; if a time is given, somebody is late then.
    Wait(Awaited<()>, Option<Mono>),
    /// Nothing is left. These flows have ended.
    Over(Vec<FlowNumber>),
}

/// What is here of an extent.
pub(crate) enum Found {
    Bytes(Vec<u8>),
    Wait(Awaited<()>),
    Nothing,
}

/// Bytes of one extent, or that they are on their way.
struct Part {
    stored: Stored,
    bytes: Option<Arc<Vec<u8>>>,
    waiting: Vec<Promise<()>>,
}

struct Loop {
    source: Source,
    /// What it fetches, in the run, and since when.
    current: Option<(Range<u64>, Mono)>,
    /// Somebody else fetches that too.
    doubled: bool,
    dead: bool,
}

struct Run {
    number: u64,
    range: Range<u64>,
    extents: Vec<Stored>,
    pieces: Pieces,
    loops: Vec<Loop>,
    /// Replicas that take the place of those that fail.
    reserve: Vec<Source>,
    /// How long a piece takes.
    usual: Option<Duration>,
}

struct Stream {
    node: NodeId,
    number: u64,
    /// Where the reader goes on, and how much it has read in order.
    next: u64,
    in_order: u64,
    read_at: Mono,
    /// Up to here it is planned.
    planned: u64,
    is_planning: bool,
    runs: VecDeque<Run>,
    parts: BTreeMap<u64, Part>,
    /// The planner and loops that wait for room or for a late piece.
    waiting: Vec<Promise<()>>,
}

/// See the module.
pub(crate) struct Ahead {
    config: AheadConfig,
    streams: BTreeMap<OpenFile, Stream>,
    /// Bytes that are here or on their way.
    held: u64,
    next: u64,
}

impl Part {
    fn bytes(&self) -> u64 {
        u64::from(self.stored.extent.length)
    }
}

impl Run {
    /// The parts of extents in a range of the run.
    fn parts(&self, range: &Range<u64>) -> Vec<Stored> {
        let range = self.range.start + range.start..self.range.start + range.end;
        self.extents.iter().filter_map(|stored| stored.clipped(range.clone())).collect()
    }

    fn is_over(&self) -> bool {
        self.pieces.is_done() || self.loops.iter().all(|each| each.dead)
    }

    fn flows(&self) -> BTreeSet<FlowNumber> {
        let all = self.loops.iter().map(|each| &each.source).chain(&self.reserve);
        all.filter_map(|source| source.flow.map(|flow| flow.number)).collect()
    }

    /// When a piece is late.
    fn patience(&self) -> Duration {
        self.usual.map_or(LATE_MIN, |usual| (usual * LATE_TIMES).max(LATE_MIN))
    }

    /// What a loop takes that has nothing of its own to do: the oldest piece of another replica that is
    /// late. `Err`: when one will be.
    fn late(&mut self, thief: usize, now: Mono) -> Result<Range<u64>, Option<Mono>> {
        let (server, patience) = (self.loops[thief].source.server, self.patience());
        let others = self.loops.iter().enumerate().filter(|(_, other)| {
            other.current.is_some() && !other.doubled && !other.dead && other.source.server != server
        });
        let oldest = others.min_by_key(|(_, other)| other.current.as_ref().map(|(_, since)| *since));
        let Some((index, _)) = oldest else { return Err(None) };
        let Some((range, since)) = self.loops[index].current.clone() else { return Err(None) };
        let due = since.after(patience);
        if now < due {
            return Err(Some(due));
        }
        self.loops[index].doubled = true;
        Ok(range)
    }
}

impl Stream {
    fn wake(&mut self) {
        self.waiting.drain(..).for_each(|waiting| waiting.keep(()));
    }

    fn window(&self, config: &AheadConfig) -> u64 {
        (self.in_order * 2).clamp(config.window_min, config.window_max)
    }

    fn wait(&mut self) -> Awaited<()> {
        let (promise, awaited) = promise();
        self.waiting.push(promise);
        awaited
    }

    /// Takes out parts that end by there, or all that are still on their way in a range. How many bytes.
    fn drop_parts(&mut self, mut which: impl FnMut(&Part) -> bool) -> u64 {
        let mut dropped = 0;
        self.parts.retain(|_, part| {
            let drop = which(part);
            if drop {
                dropped += part.bytes();
                part.waiting.drain(..).for_each(|waiting| waiting.keep(()));
            }
            !drop
        });
        dropped
    }

    fn end(mut self) -> (u64, Vec<FlowNumber>) {
        let dropped = self.drop_parts(|_| true);
        self.wake();
        (dropped, self.runs.iter().flat_map(Run::flows).collect())
    }
}

impl Ahead {
    pub fn new(config: AheadConfig) -> Ahead {
        Ahead { config, streams: BTreeMap::new(), held: 0, next: 0 }
    }

    /// A file is read. `Ok`: whether its stream has to be planned, by somebody who begins now; `Err`: flows
    /// that have ended, because the file is read elsewhere than it was.
    pub fn on_read(
        &mut self,
        now: Mono,
        (file, node): (OpenFile, NodeId),
        range: Range<u64>,
        size: u64,
    ) -> (Option<StreamId>, Vec<FlowNumber>) {
        if self.config.window_max == 0 {
            return (None, Vec::new());
        }
        let mut ended = Vec::new();
        let goes_on = self
            .streams
            .get(&file)
            .is_some_and(|stream| range.start.abs_diff(stream.next) <= SLACK.min(self.config.window_max));
        if !goes_on {
            ended = self.close(file);
            self.next += 1;
            let stream = Stream {
                node,
                number: self.next,
                next: range.start,
                in_order: 0,
                read_at: now,
                planned: 0,
                is_planning: false,
                runs: VecDeque::new(),
                parts: BTreeMap::new(),
                waiting: Vec::new(),
            };
            self.streams.insert(file, stream);
        }
        let config = self.config;
        let Some(stream) = self.streams.get_mut(&file) else { return (None, ended) };
        let range = range.start..range.end.min(size).max(range.start);
        stream.in_order += range.end.saturating_sub(stream.next);
        stream.next = stream.next.max(range.end);
        stream.read_at = now;
        let passed = stream.next.saturating_sub(SLACK.min(config.window_min));
        self.held -= stream.drop_parts(|part| end_of(&part.stored.extent) <= passed);
        stream.wake();
        let begins = !stream.is_planning
            && stream.in_order >= config.after
            && size.saturating_sub(stream.next.max(stream.planned)) >= config.after;
        stream.is_planning |= begins;
        let id = StreamId { file, number: stream.number };
        if self.held > self.config.bytes_max / 2 {
            ended.extend(self.drop_idle(now, file));
        }
        (begins.then_some(id), ended)
    }

    /// A stream that was not read for a while gives way.
    fn drop_idle(&mut self, now: Mono, but: OpenFile) -> Vec<FlowNumber> {
        let idle = self.streams.iter().filter(|(file, stream)| {
            **file != but && !stream.parts.is_empty() && now.since(stream.read_at) > IDLE
        });
        let oldest = idle.min_by_key(|(_, stream)| stream.read_at).map(|(file, _)| *file);
        oldest.map_or_else(Vec::new, |file| self.close(file))
    }

    /// A file is closed, or not read in order any more. Gives the flows that have ended.
    pub fn close(&mut self, file: OpenFile) -> Vec<FlowNumber> {
        let Some(stream) = self.streams.remove(&file) else { return Vec::new() };
        let (dropped, flows) = stream.end();
        self.held -= dropped;
        flows
    }

    fn stream(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.streams.get_mut(&id.file).filter(|stream| stream.number == id.number)
    }

    /// What the planner of a stream does next. `size` is the file's.
    pub fn plan(&mut self, id: StreamId, size: impl FnOnce(NodeId) -> u64) -> Plan {
        let config = self.config;
        let Some(stream) = self.stream(id) else { return Plan::Over };
        let from = stream.planned.max(stream.next);
        let size = size(stream.node);
        if from >= size {
            stream.is_planning = false;
            return Plan::Over;
        }
        if from >= stream.next + stream.window(&config) || stream.runs.len() >= RUNS_MAX {
            return Plan::Wait(stream.wait());
        }
        Plan::From(stream.node, from..size.min(from + config.run_max))
    }

    /// Nothing is fetched up to there.
    pub fn skip(&mut self, id: StreamId, until: u64) {
        if let Some(stream) = self.stream(id) {
            stream.planned = stream.planned.max(until);
        }
    }

    /// Whoever waits looks again.
    pub fn wake(&mut self, id: StreamId) {
        if let Some(stream) = self.stream(id) {
            stream.wake();
        }
    }

    /// The planner gives up.
    pub fn stop_planning(&mut self, id: StreamId) {
        if let Some(stream) = self.stream(id) {
            stream.is_planning = false;
        }
    }

    /// A run is to be fetched from these, the others take their place if they fail. Gives its loops; none if
    /// the stream is gone.
    pub fn begin_run(
        &mut self,
        id: StreamId,
        extents: Vec<Stored>,
        sources: &[Source],
        reserve: Vec<Source>,
    ) -> Vec<LoopId> {
        let (config, number) = (self.config, self.next + 1);
        self.next = number;
        let Some(stream) = self.stream(id) else { return Vec::new() };
        let (Some(first), Some(last)) = (extents.first(), extents.last()) else { return Vec::new() };
        let range = first.extent.file_offset..end_of(&last.extent);
        // So many pieces are under way at the same time.
        let each = (config.pieces_max / sources.len().max(1)).max(1);
        let mut pieces = Pieces::new([range.end - range.start], config.piece, config.piece);
        let mut loops = Vec::new();
        for source in sources {
            for _ in 0..each {
                if !loops.is_empty() {
                    pieces.add_stream();
                }
                loops.push(Loop { source: *source, current: None, doubled: false, dead: false });
            }
        }
        let count = loops.len();
        stream.planned = range.end;
        stream.runs.push_back(Run { number, range, extents, pieces, loops, reserve, usual: None });
        (0..count).map(|index| LoopId { stream: id, run: number, index }).collect()
    }

    /// What a loop does next.
    pub fn fetch(&mut self, id: LoopId, now: Mono) -> Fetch {
        let (config, held) = (self.config, self.held);
        let Some(stream) = self.stream(id.stream) else { return Fetch::Over(Vec::new()) };
        let limit = stream.next + stream.window(&config);
        let Some(place) = stream.runs.iter().position(|run| run.number == id.run) else {
            return Fetch::Over(Vec::new());
        };
        let run = &mut stream.runs[place];
        if run.is_over() {
            let flows = run.flows().into_iter().collect();
            stream.runs.remove(place);
            stream.wake();
            return Fetch::Over(flows);
        }
        if run.loops[id.index].dead {
            return Fetch::Over(Vec::new());
        }
        let next_start = run.pieces.first_left().map(|start| run.range.start + start);
        let has_room = held + config.piece <= config.bytes_max;
        let taken = match next_start {
            Some(start) if start < limit && has_room => run.pieces.next(id.index, |_| 0),
            _ => None,
        };
        let (range, is_new) = match taken {
            Some(range) => (range, true),
            None => match run.late(id.index, now) {
                Ok(range) => (range, false),
                Err(due) => return Fetch::Wait(stream.wait(), due),
            },
        };
        let source = run.loops[id.index].source;
        if is_new {
            run.loops[id.index].current = Some((range.clone(), now));
            run.loops[id.index].doubled = false;
        }
        let parts = run.parts(&range);
        let mut begun = 0;
        for stored in &parts {
            stream.parts.entry(stored.extent.file_offset).or_insert_with(|| {
                begun += u64::from(stored.extent.length);
                Part { stored: *stored, bytes: None, waiting: Vec::new() }
            });
        }
        self.held += begun;
        Fetch::Piece(source, parts)
    }

    /// Bytes have come. Whether they are the first of that place.
    pub fn came(&mut self, id: LoopId, stored: &Stored, bytes: Vec<u8>) -> bool {
        let Some(stream) = self.stream(id.stream) else { return false };
        let part = stream.parts.get_mut(&stored.extent.file_offset);
        let Some(part) = part.filter(|part| part.stored == *stored && part.bytes.is_none()) else {
            return false;
        };
        part.bytes = Some(Arc::new(bytes));
        part.waiting.drain(..).for_each(|waiting| waiting.keep(()));
        true
    }

    /// A loop has all of its piece.
    pub fn fetched(&mut self, id: LoopId, now: Mono) {
        let Some(stream) = self.stream(id.stream) else { return };
        let Some(run) = stream.runs.iter_mut().find(|run| run.number == id.run) else { return };
        if let Some((_, since)) = run.loops[id.index].current.take() {
            let took = now.since(since);
            run.usual = Some(run.usual.map_or(took, |usual| (usual * 3 + took) / 4));
            run.pieces.finish(id.index);
        }
        // It may be the last one: all hear of that.
        stream.wake();
    }

    /// A loop's replica has failed. Another one takes its place if there is one, and its piece is fetched
    /// again, now or when there is room: so whoever waits for it is told, and reads it himself.
    pub fn failed(&mut self, id: LoopId) {
        let Some(stream) = self.stream(id.stream) else { return };
        let Some(run) = stream.runs.iter_mut().find(|run| run.number == id.run) else { return };
        run.pieces.fail(id.index, 0);
        let each = &mut run.loops[id.index];
        let (failed, current) = (each.source.server, each.current.take());
        match run.reserve.iter().position(|source| source.server != failed) {
            Some(next) => {
                let next = run.reserve.remove(next);
                for each in run.loops.iter_mut().filter(|each| each.source.server == failed) {
                    each.source = next;
                }
            }
            None => run.loops[id.index].dead = true,
        }
        let is_left = run.loops.iter().any(|each| !each.dead);
        let start = run.range.start;
        let told = match current {
            _ if !is_left => run.range.clone(),
            Some((range, _)) => start + range.start..start + range.end,
            None => start..start,
        };
        let dropped =
            stream.drop_parts(|part| part.bytes.is_none() && told.contains(&part.stored.extent.file_offset));
        stream.wake();
        self.held -= dropped;
    }

    /// What is here of an extent, or on its way. `is_careless` is a planted bug.
    pub fn find(&mut self, file: OpenFile, wanted: &Stored, is_careless: bool) -> Found {
        let Some(stream) = self.streams.get_mut(&file) else { return Found::Nothing };
        let (start, end) = (wanted.extent.file_offset, end_of(&wanted.extent));
        let mut bytes = Vec::with_capacity((end - start) as usize);
        let first = stream.parts.range(..=start).next_back().map_or(start, |(at, _)| *at);
        for (at, part) in stream.parts.range_mut(first..end) {
            let reached = start + bytes.len() as u64;
            let part_end = end_of(&part.stored.extent);
            if *at > reached || part_end <= reached || !(is_careless || is_same_place(&part.stored, wanted)) {
                return Found::Nothing;
            }
            let Some(here) = &part.bytes else {
                let (promise, awaited) = promise();
                part.waiting.push(promise);
                return Found::Wait(awaited);
            };
            let (from, to) = (reached - at, part_end.min(end) - at);
            bytes.extend_from_slice(&here[from as usize..to as usize]);
        }
        if bytes.len() as u64 == end - start { Found::Bytes(bytes) } else { Found::Nothing }
    }
}

/// Whether bytes of two extents at the same offset of a file are the same bytes of the same chunk.
fn is_same_place(one: &Stored, other: &Stored) -> bool {
    let origin = |stored: &Stored| i128::from(stored.extent.file_offset) - i128::from(stored.extent.skip);
    (one.extent.chunk, one.extent.frame) == (other.extent.chunk, other.extent.frame)
        && origin(one) == origin(other)
}

#[cfg(test)]
mod tests;
