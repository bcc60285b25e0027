//! Fetching before it is read: the planner of a stream, which asks the flow server from which replicas to
//! read, and the loops that fetch. What they decide by stands in [`crate::state::Ahead`].
//!
//! Nothing here makes a read fail: what cannot be fetched is left to the read itself, which has the patience
//! for servers that are being restarted.

use crate::context::{Context, State};
use crate::event::Note;
use crate::mutant::Mutant;
use crate::operation::OpenFile;
use crate::state::files::{Stored, end_of};
use crate::state::{DataFailure, Fetch, FlowAnswer, Found, LoopId, Plan, Source, StreamId};
use bearing_proto::client::ChunkView;
use bearing_proto::data::{DataBody, DataCall, FlowNumber};
use bearing_proto::flow::{FlowBody, FlowCall, Replicated};
use bearing_types::{Mono, NodeId, ServerId};
use std::ops::Range;
use std::time::Duration;

impl State {
    /// Notes that a file is read, and begins to fetch ahead when it is read in order.
    pub(super) fn reads_on(&mut self, context: &Context, file: OpenFile, node: NodeId, range: Range<u64>) {
        let size = self.files.stored_size(node);
        let (begun, ended) = self.ahead.on_read(self.io.now.mono, (file, node), range, size);
        self.flows_ended(ended);
        if let Some(stream) = begun {
            self.spawn(context.clone().plan_ahead(stream));
        }
    }

    /// Tells the flow server.
    pub(super) fn flows_ended(&mut self, flows: Vec<FlowNumber>) {
        if !flows.is_empty() {
            self.flow.tell(FlowCall::Ended { flows }, &mut self.io);
        }
    }

    /// Nothing is fetched ahead of a file any more.
    pub(super) fn stop_ahead(&mut self, file: OpenFile) {
        let ended = self.ahead.close(file);
        self.flows_ended(ended);
    }
}

impl Context {
    /// Bytes that were fetched before. `None`: they were not, and have to be read.
    pub(super) async fn fetched_ahead(&self, file: OpenFile, stored: &Stored) -> Option<Vec<u8>> {
        loop {
            let found = self.with(|state| {
                let is_careless = state.io.config.planted(Mutant::AheadByOffset);
                state.ahead.find(file, stored, is_careless)
            });
            match found {
                Found::Bytes(bytes) => {
                    self.with(|state| state.io.counters.bytes_read_ahead += bytes.len() as u64);
                    return Some(bytes);
                }
                Found::Wait(awaited) => awaited.await,
                Found::Nothing => return None,
            }
        }
    }

    /// Plans a stream as far as its window goes, run by run.
    async fn plan_ahead(self, stream: StreamId) {
        loop {
            let plan = self.with(|state| {
                let State { ahead, files, .. } = state;
                ahead.plan(stream, |node| files.stored_size(node))
            });
            let (node, range) = match plan {
                Plan::Over => return,
                Plan::Wait(awaited) => {
                    awaited.await;
                    continue;
                }
                Plan::From(node, range) => (node, range),
            };
            let Ok(extents) = self.extents(node, range.clone()).await else {
                return self.with(|state| state.ahead.stop_planning(stream));
            };
            if !self.begin_run(stream, extents, range.end).await {
                return self.with(|state| state.ahead.stop_planning(stream));
            }
        }
    }

    /// Plans what lies next, in one chunk and without holes.
    async fn begin_run(&self, stream: StreamId, extents: Vec<Stored>, until: u64) -> bool {
        let run = first_run(extents);
        let Some(first) = run.first() else {
            self.with(|state| state.ahead.skip(stream, until));
            return true;
        };
        let end = run.last().map_or(until, |last| end_of(&last.extent));
        let Ok(view) = self.chunk_view(first.extent.chunk, false).await else { return false };
        let bytes = end - first.extent.file_offset;
        let (sources, reserve) = self.sources(&view, bytes).await;
        if sources.is_empty() {
            return false;
        }
        let loops = self.with(|state| state.ahead.begin_run(stream, run, &sources, reserve));
        if loops.is_empty() {
            // The stream is gone meanwhile.
            let ended = sources.iter().filter_map(|source| source.flow.map(|flow| flow.number)).collect();
            self.with(|state| state.flows_ended(ended));
            return false;
        }
        for each in loops {
            self.with(|state| state.spawn(self.clone().fetch_ahead(each)));
        }
        true
    }

    /// From which replicas to read so many bytes of a chunk: what the flow server says, or the nearest one.
    /// And the others, in the order in which they take the place of those.
    async fn sources(&self, view: &ChunkView, bytes: u64) -> (Vec<Source>, Vec<Source>) {
        let servers = self.with(|state| state.replicas_in_order(view));
        let asks = self.with(|state| bytes >= state.io.config.ahead.ask_min);
        let planned = if asks { self.ask_for_plan(&servers, bytes).await } else { Vec::new() };
        let unplanned = |server: &ServerId| Source { server: *server, flow: None };
        let is_planned = |server: &&ServerId| planned.iter().any(|source| source.server == **server);
        let rest: Vec<Source> = servers.iter().filter(|server| !is_planned(server)).map(unplanned).collect();
        match planned.is_empty() {
            false => (planned, rest),
            true => {
                let mut rest = rest.into_iter();
                (rest.next().into_iter().collect(), rest.collect())
            }
        }
    }

    async fn ask_for_plan(&self, servers: &[ServerId], bytes: u64) -> Vec<Source> {
        // One that failed a moment ago is read from only if there is no other.
        let well = self.with(|state| {
            let now = state.io.now.mono;
            servers
                .iter()
                .copied()
                .filter(|server| !state.chunks.is_avoided(*server, now))
                .collect::<Vec<_>>()
        });
        let listed = if well.is_empty() { servers.to_vec() } else { well };
        let timeout = self.with(|state| state.io.config.ahead.flow_timeout);
        let call = FlowCall::Plan { read: Replicated { servers: listed.clone(), bytes } };
        let Some(Ok(FlowBody::Plan { parts })) = self.ask_flow_server(call, timeout).await else {
            return Vec::new();
        };
        let sources = parts.iter().map(|part| Source { server: part.server, flow: Some(part.flow) });
        sources.filter(|source| listed.contains(&source.server)).collect()
    }

    /// What the flow server says within this time; `None`: nothing, or there is none.
    pub(super) async fn ask_flow_server(&self, call: FlowCall, timeout: Duration) -> FlowAnswer {
        let (number, awaited) = self.with(|state| state.flow.ask(call, &mut state.io))?;
        let context = self.clone();
        self.with(|state| {
            state.spawn(async move {
                context.sleep(timeout).await;
                context.with(|state| state.flow.give_up(number, &mut state.io));
            });
        });
        awaited.await
    }

    /// Fetches pieces of a run from one replica until none is left.
    async fn fetch_ahead(self, id: LoopId) {
        loop {
            let fetch = self.with(|state| {
                let now = state.io.now.mono;
                state.ahead.fetch(id, now)
            });
            match fetch {
                Fetch::Over(flows) => return self.with(|state| state.flows_ended(flows)),
                Fetch::Wait(awaited, due) => {
                    self.wake_at(id.stream, due);
                    awaited.await;
                }
                Fetch::Piece(source, parts) => {
                    let fetched = self.fetch_piece(id, source, parts).await;
                    self.with(|state| match fetched {
                        Ok(()) => {
                            let now = state.io.now.mono;
                            state.ahead.fetched(id, now);
                        }
                        Err(Unfetched) => state.ahead.failed(id),
                    });
                }
            }
        }
    }

    /// Loops of a stream look again at that time.
    fn wake_at(&self, stream: StreamId, due: Option<Mono>) {
        let Some(due) = due else { return };
        let context = self.clone();
        self.with(|state| {
            let asleep = state.io.timers.sleep_until(due);
            state.spawn(async move {
                asleep.await;
                context.with(|state| state.ahead.wake(stream));
            });
        });
    }

    async fn fetch_piece(&self, id: LoopId, source: Source, parts: Vec<Stored>) -> Result<(), Unfetched> {
        for stored in parts {
            let extent = stored.extent;
            let asked = self.with(|state| {
                let capability = state.capability_to_read(&stored)?;
                Some((capability, state.io.config.replica_timeout))
            });
            // The right to read it is over: whoever reads it asks for another one.
            let (capability, timeout) = asked.ok_or(Unfetched)?;
            let call = DataCall::Read {
                capability,
                frame: extent.frame,
                skip: extent.skip,
                length: extent.length,
                flow: source.flow,
            };
            match self.data_call_within(timeout, source.server, extent.chunk.chunk, call, Vec::new()).await {
                Ok((DataBody::Bytes { crc }, bytes))
                    if bytes.len() == extent.length as usize && crc32c::crc32c(&bytes) == crc =>
                {
                    self.with(|state| {
                        if !state.ahead.came(id, &stored, bytes) {
                            state.io.counters.pieces_twice += 1;
                        }
                    });
                }
                other => {
                    self.with(|state| {
                        if let Err(DataFailure::NoAnswer | DataFailure::Disconnected) = other {
                            state.chunks.doubt(&[source.server], &state.io);
                        }
                        state.io.counters.replicas_passed_over += 1;
                        state.io.note(Note::ReplicaPassedOver(source.server));
                    });
                    return Err(Unfetched);
                }
            }
        }
        Ok(())
    }
}

/// A piece could not be had from a replica.
struct Unfetched;

/// The extents that follow each other without a hole in the chunk of the first.
pub(super) fn first_run(extents: Vec<Stored>) -> Vec<Stored> {
    let mut run: Vec<Stored> = Vec::new();
    for stored in extents {
        let follows = run.last().is_none_or(|last| {
            stored.extent.chunk == last.extent.chunk && stored.extent.file_offset == end_of(&last.extent)
        });
        if !follows {
            break;
        }
        run.push(stored);
    }
    run
}
