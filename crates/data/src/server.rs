//! The machine: hands events to the chunks they concern and keeps timers and limits.

use crate::append::{self, Append};
use crate::backup::{self, Replicate};
use crate::event::{Command, Event, LogCommand, Start, Ticket};
use crate::state::{
    Asked, AskedFor, Asker, Chunk, Chunks, CopyWanted, Core, Cx, FetchWanted, Job, Phase, Reader,
};
use crate::{Config, Counters, copy, frames, scrub, seal, sync};
use crate::{fetch, read};
use bearing_proto::Sender;
use bearing_proto::data::{DataBody, DataCall, DataError, DataReply, DataRequest};
use bearing_proto::grant::FramePart;
use bearing_proto::keys::Key;
use bearing_seams::{ChunkEntry, EngineError, EngineResult};
use bearing_types::{ChunkId, Mono, Now};
use std::collections::BTreeSet;

/// A data server. One instance serves all chunks of one log.
#[derive(Debug)]
pub struct DataServer {
    pub(crate) core: Core,
    pub(crate) chunks: Chunks,
    timers: BTreeSet<(Mono, ChunkId)>,
}

impl DataServer {
    /// A server that starts with what its log lists. Chunks that are not sealed take no more appends: what
    /// was not synced may be gone. `grants` is the key that capabilities are signed with.
    pub fn new(start: Start, config: Config, grants: Key, chunks: Vec<ChunkEntry>) -> DataServer {
        let chunks: Chunks =
            chunks.iter().map(|entry| (entry.chunk, Chunk::found(entry, start.server))).collect();
        let mut core = Core::new(start, config, grants);
        core.damaged.extend(chunks.values().filter(|chunk| chunk.is_cut_short()).map(|chunk| chunk.id));
        DataServer { core, chunks, timers: BTreeSet::new() }
    }

    /// Takes an event and appends commands to `out`.
    pub fn step(&mut self, now: Now, event: Event, out: &mut Vec<Command>) {
        let touched = match event {
            Event::Request { from, request, attachment } => {
                let chunk = request.chunk;
                self.request(now, out, (Asker { from, id: request.id }, request, attachment));
                Some(chunk)
            }
            Event::Reply { from, reply, attachment } => self.reply(now, out, from, (reply, attachment)),
            Event::Done { ticket, result } => self.done(now, out, ticket, result),
            Event::ReadDone { ticket, result } => self.read_done(now, out, ticket, result),
            Event::SpaceDone { ticket, result } => self.space_done(now, out, ticket, result),
            Event::Tick => {
                self.tick(now, out);
                None
            }
            Event::Carried(carried) => {
                self.core.flows.carried = Some(carried);
                None
            }
            Event::ClockOff(off) => {
                self.core.clock_off = off;
                None
            }
        };
        if let Some(chunk) = touched {
            self.settle(chunk);
        }
        self.finish_draws(now, out);
        self.start_scans(now, out);
        self.tend_graves(now, out);
        scrub::go_on(&self.chunks, &mut Cx { now, core: &mut self.core, out });
    }

    /// When it wants a [`Event::Tick`].
    pub fn next_wake(&self) -> Option<Mono> {
        let timers = self.timers.first().map(|(at, _)| *at);
        let grave = self.core.graves.first().map(|(due, _)| *due);
        timers.into_iter().chain(grave).chain(self.core.scrubber.wake()).chain(self.core.fetches.wake()).min()
    }

    /// What was counted since the start.
    pub fn counters(&self) -> Counters {
        self.core.counters
    }

    /// How many chunks there are, without those that were removed.
    pub fn chunk_count(&self) -> usize {
        self.chunks.values().filter(|chunk| chunk.phase != Phase::Sealed(0)).count()
    }

    /// Whether the disk failed, so that no appends are taken any more.
    pub fn has_failed(&self) -> bool {
        self.core.failed
    }

    fn request(
        &mut self,
        now: Now,
        out: &mut Vec<Command>,
        (asker, request, bytes): (Asker, DataRequest, Vec<u8>),
    ) {
        let DataServer { core, chunks, .. } = self;
        let (cx, id) = (&mut Cx { now, core, out }, request.chunk);
        match request.call {
            DataCall::Append { capability, servers, known, crc } => {
                let given = Append { capability: &capability, servers: &servers, known, crc, bytes };
                append::append(chunks, cx, asker, id, given);
            }
            DataCall::AppendFrom { capability, servers, known, owner, source } => {
                let wanted = FetchWanted { capability, servers, known, owner, source: *source };
                fetch::append_from(chunks, cx, asker, id, wanted);
            }
            DataCall::Replicate { epoch, offset, committed, crc } => {
                let given = Replicate { epoch, offset, committed, crc, bytes };
                backup::replicate(chunks, cx, asker, id, given);
            }
            DataCall::Sync { capability, servers } => {
                sync::sync(chunks, cx, asker, id, (&capability, &servers));
            }
            DataCall::SyncReplica { epoch, committed } => {
                sync::sync_replica(chunks, cx, asker, id, (epoch, committed));
            }
            DataCall::Read { capability, frame, skip, length, flow } => {
                let part = FramePart { frame, skip, length };
                read::read(chunks, cx, Reader::Asker(asker), id, (&capability, part, flow));
            }
            DataCall::Fence { epoch } => seal::cut(chunks, cx, asker, id, (epoch, None)),
            DataCall::Seal { epoch, length } => seal::cut(chunks, cx, asker, id, (epoch, Some(length))),
            DataCall::Remove { epoch } => seal::remove(chunks, cx, asker, id, epoch),
            DataCall::Frames { from, end, count_max } => {
                frames::frames(chunks, cx, asker, id, (from, end, count_max));
            }
            DataCall::Copy { epoch, sources, length } => {
                copy::copy(chunks, cx, asker, id, CopyWanted { epoch, sources, length, origin: None });
            }
            DataCall::Gather { epoch, from, sources, pieces, length } => {
                let origin = Some((from, pieces));
                copy::copy(chunks, cx, asker, id, CopyWanted { epoch, sources, length, origin });
            }
            DataCall::Fetch { offset, length } => copy::fetch(chunks, cx, asker, id, (offset, length)),
            DataCall::Verify { length } => scrub::verify(chunks, cx, asker, id, length),
            DataCall::Ping => ping(cx, asker),
            DataCall::Counters => counters(cx, asker),
            DataCall::Holds { chunks: asked } => frames::holds(chunks, cx, asker, &asked),
        }
    }

    /// An answer that nobody waits for, or of another server than was asked, is ignored.
    fn reply(
        &mut self,
        now: Now,
        out: &mut Vec<Command>,
        from: Sender,
        (reply, attachment): (DataReply, Vec<u8>),
    ) -> Option<ChunkId> {
        let asked: Asked = *self.core.asked.get(&reply.id)?;
        let Asked { chunk: id, server, what } = asked;
        if from != Sender::Server(server) {
            return None;
        }
        let cx = &mut Cx { now, core: &mut self.core, out };
        if let AskedFor::Fetch(number) = what {
            fetch::answered(cx, (reply.id, number), reply.result, attachment);
            return None;
        }
        let chunk = self.chunks.get_mut(&id)?;
        match (reply.result, what) {
            (result, AskedFor::CopyPart) => chunk.fetched(cx, reply.id, result, &attachment),
            (Ok(DataBody::Done), AskedFor::Frame { end }) => chunk.peer_has(cx, server, end),
            (Ok(DataBody::Done), AskedFor::Sync) => {
                cx.core.asked.remove(&reply.id);
                chunk.peer_synced(cx, server);
            }
            (Ok(_), _) => return None,
            (Err(error), _) => chunk.peer_refused(cx, server, error),
        }
        Some(id)
    }

    fn done(
        &mut self,
        now: Now,
        out: &mut Vec<Command>,
        ticket: Ticket,
        result: EngineResult<()>,
    ) -> Option<ChunkId> {
        let job = self.core.jobs.remove(&ticket)?;
        let cx = &mut Cx { now, core: &mut self.core, out };
        let id = match &job {
            Job::Create(id) | Job::Name(id) | Job::Set(id) | Job::Copied(id) => *id,
            Job::Remove(id, _) | Job::Anew(id, _) | Job::Forget(id) => *id,
            Job::Write { chunk, .. } | Job::Sync { chunk, .. } => *chunk,
            Job::Scan(_)
            | Job::Space(_)
            | Job::Head(_)
            | Job::Blocks(_)
            | Job::Fetch(_)
            | Job::FetchHere { .. }
            | Job::Frames(_)
            | Job::Scrub(_) => {
                panic!("{job:?} asked for an answer of another kind");
            }
        };
        let chunk = self.chunks.get_mut(&id)?;
        match job {
            Job::Create(_) => chunk.created(cx, result),
            Job::Name(_) => chunk.named(cx, result),
            Job::Set(_) => chunk.was_set(cx, result),
            Job::Copied(_) => chunk.copied(cx, result),
            Job::Remove(_, epoch) => chunk.removed(cx, epoch, result),
            Job::Anew(_, epoch) => chunk.emptied(cx, epoch, result),
            Job::Forget(_) => chunk.forgotten(cx, result),
            Job::Write { offset, end, .. } => chunk.written(cx, offset, end, result),
            Job::Sync { covers, .. } => chunk.synced(cx, covers, result),
            Job::Scan(_)
            | Job::Space(_)
            | Job::Head(_)
            | Job::Blocks(_)
            | Job::Fetch(_)
            | Job::FetchHere { .. }
            | Job::Frames(_)
            | Job::Scrub(_) => {}
        }
        Some(id)
    }

    fn read_done(
        &mut self,
        now: Now,
        out: &mut Vec<Command>,
        ticket: Ticket,
        result: EngineResult<Vec<u8>>,
    ) -> Option<ChunkId> {
        let job = self.core.jobs.remove(&ticket)?;
        let cx = &mut Cx { now, core: &mut self.core, out };
        match job {
            Job::Head(job) => read::head(&self.chunks, cx, job, result),
            Job::Blocks(job) => read::blocks(&self.chunks, cx, job, result),
            Job::Scan(id) => {
                cx.core.scans -= 1;
                self.chunks.get_mut(&id)?.scanned(cx, result);
                return Some(id);
            }
            Job::Fetch(asker) => copy::fetch_read(cx, asker, result),
            Job::FetchHere { chunk, ask, from } => {
                copy::fetched_here(&mut self.chunks, cx, chunk, ask, from, result);
                return Some(chunk);
            }
            Job::Frames(listing) => frames::read(&self.chunks, cx, listing, result),
            Job::Scrub(id) => scrub::read(&mut self.chunks, cx, id, result),
            other => panic!("{other:?} did not ask for a read"),
        }
        None
    }

    fn space_done(
        &mut self,
        now: Now,
        out: &mut Vec<Command>,
        ticket: Ticket,
        result: EngineResult<(u64, u64)>,
    ) -> Option<ChunkId> {
        let Some(Job::Space(asker)) = self.core.jobs.remove(&ticket) else { return None };
        let cx = &mut Cx { now, core: &mut self.core, out };
        cx.core.pings -= 1;
        let answer = match result {
            Ok((used, free)) => {
                let core = &cx.core;
                let damaged = core.damaged.iter().take(core.config.damaged_told_max).copied().collect();
                let (filesystem, life) = (core.config.filesystem, core.life);
                let waiting = core.held_bytes + core.read_bytes;
                Ok(DataBody::Space { used, free, filesystem, damaged, life, waiting })
            }
            Err(EngineError::Full { .. }) => Err(DataError::Full),
            Err(_) => Err(DataError::Failed),
        };
        cx.reply(asker, answer);
        None
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Command>) {
        let later = (Mono(now.mono.0.saturating_add(1)), ChunkId(0));
        let due: Vec<ChunkId> = self.timers.range(..later).map(|(_, id)| *id).collect();
        fetch::tick(&self.chunks, &mut Cx { now, core: &mut self.core, out });
        for id in due {
            if let Some(chunk) = self.chunks.get_mut(&id) {
                chunk.tick(&mut Cx { now, core: &mut self.core, out });
            }
            self.settle(id);
        }
    }

    /// Appends whose bytes came go on as all others do.
    fn finish_draws(&mut self, now: Now, out: &mut Vec<Command>) {
        while let Some((number, result)) = self.core.fetches.next_come() {
            let cx = &mut Cx { now, core: &mut self.core, out };
            if let Some(chunk) = fetch::came(&mut self.chunks, cx, number, result) {
                self.settle(chunk);
            }
        }
    }

    /// Notes what has changed of a chunk that is the server's to keep: its timer, its memory, its end.
    fn settle(&mut self, id: ChunkId) {
        let Some(chunk) = self.chunks.get_mut(&id) else { return };
        let (wake, held) = match chunk.gone {
            true => (None, 0),
            false => (chunk.wake(&self.core.config), chunk.held()),
        };
        self.core.held_bytes = self.core.held_bytes - chunk.held_noted + held;
        chunk.held_noted = held;
        if wake != chunk.wake_noted {
            if let Some(at) = chunk.wake_noted {
                self.timers.remove(&(at, id));
            }
            self.timers.extend(wake.map(|at| (at, id)));
            chunk.wake_noted = wake;
        }
        if chunk.gone {
            self.core.damaged.remove(&id);
            self.chunks.remove(&id);
        }
    }

    /// Counts the graves that were here at the start from now on, and forgets those that are old.
    fn tend_graves(&mut self, now: Now, out: &mut Vec<Command>) {
        let DataServer { core, chunks, .. } = self;
        if !core.graves_known {
            core.graves_known = true;
            let due = now.mono.after(core.config.grave_ttl);
            let found = chunks.values().filter(|chunk| chunk.phase == Phase::Sealed(0));
            core.graves.extend(found.map(|chunk| (due, chunk.id)));
        }
        seal::clear_graves(chunks, &mut Cx { now, core, out });
    }

    fn start_scans(&mut self, now: Now, out: &mut Vec<Command>) {
        while self.core.scans < self.core.config.scans_max
            && let Some(id) = self.core.scans_waiting.pop_front()
        {
            if let Some(chunk) = self.chunks.get_mut(&id) {
                chunk.scan(&mut Cx { now, core: &mut self.core, out });
            }
        }
    }
}

fn counters(cx: &mut Cx<'_>, asker: Asker) {
    if !matches!(asker.from, Sender::Server(_)) {
        return cx.refuse(asker, DataError::Capability);
    }
    let (now, queued) = (cx.now.mono, cx.core.read_bytes);
    let told = cx.core.flows.told(now, queued);
    cx.reply(asker, Ok(told));
}

fn ping(cx: &mut Cx<'_>, asker: Asker) {
    if !matches!(asker.from, Sender::Server(_)) {
        return cx.refuse(asker, DataError::Capability);
    }
    // Who looks for servers for a new chunk asks this.
    if cx.core.failed {
        return cx.refuse(asker, DataError::Failed);
    }
    if cx.core.clock_off {
        return cx.refuse(asker, DataError::Clock);
    }
    if cx.core.pings >= cx.core.config.pings_max {
        return cx.drop_request();
    }
    cx.core.pings += 1;
    cx.log(Job::Space(asker), LogCommand::Space);
}
