//! Reading: own writes over stored content over zeros. Own appended bytes are written out first, so that they
//! are read where they are.

use crate::context::{Context, State, Work};
use crate::event::Note;
use crate::operation::{Answer, OpenFile};
use crate::state::files::{Gathered, Page, SealedEnd, Stored};
use crate::state::{DataFailure, Nearness, nearness};
use bearing_proto::client::{Body, Call, ChunkView, Extent};
use bearing_proto::data::{DataBody, DataCall, DataError};
use bearing_proto::grant::Capability;
use bearing_types::{ChunkId, Code, Mono, NodeId, ServerId};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// Pages of extents asked for within one read before it is given up: the file changes faster than it can be
/// read.
const PAGES_MAX: u32 = 1 << 13;
/// How often a read begins anew because chunks that it was to read from were removed.
pub(super) const REREADS_MAX: u32 = 16;
/// The first pause before silent replicas are asked again.
const REPLICA_PAUSE: Duration = Duration::from_millis(50);
/// The longest.
const REPLICA_PAUSE_MAX: Duration = Duration::from_secs(1);

/// What became of one round over all replicas of a chunk.
enum Round {
    Got(Vec<u8>),
    /// Some may still have it: they did not answer, or our right to read has expired. Whether others refused.
    Perhaps {
        refused: bool,
        /// A server does not take the right any more: its clock is ahead of ours.
        over: bool,
    },
    /// None has it.
    Nowhere,
}

impl Context {
    pub(crate) async fn read(&self, file: OpenFile, offset: u64, length: u32) -> Result<Answer, Code> {
        let node = self.with(|state| state.files.readable(file))?;
        self.validate(node).await?;
        self.note_access(node);
        let to = offset.saturating_add(u64::from(length));
        self.with(|state| state.reads_on(self, file, node, offset..to));
        if self.with(|state| state.files.reaches_appended(node, offset, length)) {
            // If this fails, the file's next flush tells of it.
            self.clone().write_behind(node).await;
        }
        // Own writes are looked at before the extents: what is committed in between is in these then.
        let (range, own) = self.with(|state| state.files.own_bytes(node, offset, length));
        let gaps = gaps_in(&range, &own);
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let mut end = range.end;
        if !gaps.is_empty() {
            self.read_gaps((file, node), &range, &gaps, &mut bytes).await?;
            // The extents may have told that the file is shorter.
            let size = self.with(|state| state.files.size_of(node));
            let own_end = own.last().map_or(0, |(at, bytes)| at + bytes.len() as u64);
            end = end.min(size.max(own_end)).max(range.start);
        }
        for (at, own) in own {
            let at = (at - range.start) as usize;
            bytes[at..at + own.len()].copy_from_slice(&own);
        }
        bytes.truncate((end - range.start) as usize);
        self.with(|state| state.io.counters.bytes_read += bytes.len() as u64);
        Ok(Answer::Bytes(bytes))
    }

    /// Reads stored content. A chunk that is gone was in no use: the file has other extents by now.
    async fn read_gaps(
        &self,
        (file, node): (OpenFile, NodeId),
        range: &Range<u64>,
        gaps: &[Range<u64>],
        bytes: &mut [u8],
    ) -> Result<(), Code> {
        // For all of it: whoever has asked for lost bytes until then does not begin anew because other bytes
        // have moved.
        let deadline = self.with(|state| state.io.now.mono.after(state.io.config.request_timeout));
        let mut before: Option<Vec<Stored>> = None;
        for _ in 0..REREADS_MAX {
            let extents = self.extents(node, range.clone()).await?;
            if before.as_ref() == Some(&extents) {
                break;
            }
            bytes.fill(0);
            match self.read_extents(file, (&extents, gaps), (range.start, deadline), bytes).await {
                Err(Code::Stale) => {}
                other => return other,
            }
            self.with(|state| state.files.forget_extents(node));
            before = Some(extents);
        }
        // It refers to what was lost before it was made stable.
        Err(Code::Io)
    }

    /// Whether a file refers to what was not kept of these chunks, by what its home says now. It will not
    /// again: so it does not matter that the file may be changed while its extents are gone over.
    pub(super) async fn refers_to_lost(
        &self,
        node: NodeId,
        kept: &BTreeMap<ChunkId, SealedEnd>,
    ) -> Result<bool, Code> {
        let lost = |extent: &Extent| kept.get(&extent.chunk.chunk).is_some_and(|end| end.lacks(extent.frame));
        self.refers(node, lost).await
    }

    async fn refers(&self, node: NodeId, which: impl Fn(&Extent) -> bool) -> Result<bool, Code> {
        self.with(|state| state.files.forget_extents(node));
        let mut next = 0;
        loop {
            self.ask_extents(node, next).await?;
            let refers = self.with(|state| state.files.refers(node, &mut next, &which));
            if let Some((refers, true)) = refers {
                return Ok(refers);
            }
        }
    }

    /// Makes sure that a file's size is known well enough: under its lease, or asked for a short time ago.
    pub(super) async fn validate(&self, node: NodeId) -> Result<(), Code> {
        let stale = self.with(|state| {
            let now = state.io.now.mono;
            let leased = state.delegations.is_our_node(node) || state.cache.node(node, now).is_some();
            state.files.not_validated(node, now, state.io.config.file_ttl).filter(|_| !leased)
        });
        match stale {
            Some(handle) => self.ask_attributes(handle).await.map(|_| ()),
            None => Ok(()),
        }
    }

    /// The extents in a range of a file, all of one version. Taken as their pages come: what is cached of a
    /// file is bounded.
    pub(super) async fn extents(&self, node: NodeId, range: Range<u64>) -> Result<Vec<Stored>, Code> {
        let mut gathered = Gathered { version: None, next: range.start, extents: Vec::new() };
        for _ in 0..PAGES_MAX {
            if self.with(|state| state.files.gather_extents(node, &range, &mut gathered)) {
                return Ok(gathered.extents);
            }
            self.ask_extents(node, gathered.next).await?;
        }
        Err(Code::Io)
    }

    pub(super) async fn ask_extents(&self, node: NodeId, offset: u64) -> Result<(), Code> {
        let (handle, count_max) = self.with(|state| (state.files.handle(node), state.io.config.extents_page));
        let handle = handle.ok_or(Code::InvalidArgument)?;
        // Of what was decided here its home has to hear before it is asked.
        self.catch_up(node).await;
        // One that was made here, and lost before its home heard of it, is nowhere.
        let by = self.with(|state| state.admission(node)).ok_or(Code::Stale)?;
        let call = Call::Extents { node: handle, by, offset, count_max };
        let answered = self.call(handle.home, call).await?;
        self.with(|state| match answered.body {
            Body::Extents { version, size, extents, complete, reads, token } => {
                token.into_iter().for_each(|token| state.files.on_token(token));
                // An empty page would be asked for again for ever.
                let complete = complete || extents.is_empty();
                let page = Page { version, size, offset, complete, extents: &extents, reads: reads.as_ref() };
                state.files.on_extents(node, page, answered.stamp.sent);
                Ok(())
            }
            _ => Err(state.io.unexpected()),
        })
    }

    async fn read_extents(
        &self,
        file: OpenFile,
        (extents, gaps): (&[Stored], &[Range<u64>]),
        (start, deadline): (u64, Mono),
        bytes: &mut [u8],
    ) -> Result<(), Code> {
        let mut wanted = Vec::new();
        let mut work: Vec<Work<_>> = Vec::new();
        for part in
            extents.iter().flat_map(|stored| gaps.iter().filter_map(|gap| stored.clipped(gap.clone())))
        {
            wanted.push(part.extent.file_offset);
            let context = self.clone();
            work.push(Box::pin(async move {
                match context.fetched_ahead(file, &part).await {
                    Some(bytes) => Ok(bytes),
                    None => context.read_extent(part, deadline).await,
                }
            }));
        }
        let reads_max = self.with(|state| state.io.config.reads_max);
        let read = self.windowed(reads_max, work).await;
        for (at, read) in wanted.into_iter().zip(read) {
            let read = read?;
            let at = (at - start) as usize;
            bytes[at..at + read.len()].copy_from_slice(&read);
        }
        Ok(())
    }

    /// Reads from whichever replica has the bytes. Servers that are silent may be restarting: they are asked
    /// again until the deadline. Servers that refuse may hold the bytes without knowing that all others have,
    /// or had, them: sealing the chunk tells them. `Stale`: the right to read them is over, or the chunk is
    /// gone, and the file's extents have to be asked for again.
    pub(super) async fn read_extent(&self, stored: Stored, deadline: Mono) -> Result<Vec<u8>, Code> {
        let (mut round, mut all_told) = (0u32, false);
        let extent = stored.extent;
        loop {
            let view = self.chunk_view(extent.chunk, round > 0).await?;
            if view.sealed.is_some_and(|length| length <= extent.frame) {
                // Lost before it was made stable.
                return Err(Code::Io);
            }
            // The first view may have been old. Later the servers are told ever more seldom.
            let capability = self.with(|state| state.capability_to_read(&stored)).ok_or(Code::Stale)?;
            let mut over = false;
            let tell = match self.ask_replicas(&view, &extent, capability).await? {
                Round::Got(bytes) => return Ok(bytes),
                Round::Nowhere if all_told => return Err(Code::Io),
                Round::Nowhere => {
                    all_told = round > 0;
                    all_told
                }
                Round::Perhaps { refused, over: was_over } => {
                    (all_told, over) = (false, was_over);
                    refused && round.is_power_of_two()
                }
            };
            // If this fails for another reason, the next rounds show it.
            if tell && matches!(self.seal_chunk(view.chunk, view.epoch).await, Err(Code::Io)) {
                // Those that are there have nothing of it, and the others are lost.
                return Err(Code::Io);
            }
            let pause = self.with(|state| {
                let pause = state.io.random.backed_off(REPLICA_PAUSE, REPLICA_PAUSE_MAX, round);
                (state.io.now.mono < deadline).then_some(pause)
            });
            // Nobody has said that the bytes are lost.
            self.sleep(pause.ok_or(Code::Unreachable)?).await;
            if over {
                return Err(Code::Stale);
            }
            round += 1;
        }
    }

    async fn ask_replicas(
        &self,
        view: &ChunkView,
        extent: &Extent,
        capability: Capability,
    ) -> Result<Round, Code> {
        let (mut silent, mut refused, mut over) = (false, false, false);
        let (servers, timeout, last_timeout) = self.with(|state| {
            let config = &state.io.config;
            (state.replicas_in_order(view), config.replica_timeout, config.data_timeout)
        });
        let count = servers.len();
        for (at, server) in servers.into_iter().enumerate() {
            // The last one is waited for longer: there is nobody else.
            let timeout = if at + 1 < count { timeout } else { last_timeout };
            let call = DataCall::Read {
                capability: capability.clone(),
                frame: extent.frame,
                skip: extent.skip,
                length: extent.length,
                flow: None,
            };
            match self.data_call_within(timeout, server, view.chunk.chunk, call, Vec::new()).await {
                Ok((DataBody::Bytes { crc }, bytes))
                    if bytes.len() == extent.length as usize && crc32c::crc32c(&bytes) == crc =>
                {
                    return Ok(Round::Got(bytes));
                }
                Err(DataFailure::Over(code)) => return Err(code),
                Err(DataFailure::NoAnswer | DataFailure::Disconnected) => {
                    silent = true;
                    self.with(|state| state.chunks.doubt(&[server], &state.io));
                }
                Err(DataFailure::Refused(DataError::Capability)) => over = true,
                Ok(_) | Err(DataFailure::Refused(_)) => refused = true,
            }
            self.with(|state| {
                state.io.counters.replicas_passed_over += 1;
                state.io.note(Note::ReplicaPassedOver(server));
            });
        }
        Ok(if silent || over { Round::Perhaps { refused, over } } else { Round::Nowhere })
    }
}

impl State {
    /// The right to read something: that which came with the extent, or that to a chunk of our own.
    pub(super) fn capability_to_read(&self, stored: &Stored) -> Option<Capability> {
        let given = stored.right.filter(|right| self.io.signature_lives(right.expires));
        let given = given.and_then(|_| stored.capability(self.session.id()));
        given.or_else(|| {
            let own = self.chunks.own_right(stored.extent.chunk.chunk)?;
            self.io.signature_lives(own.body.expires).then_some(own)
        })
    }

    /// The servers of a chunk, the nearest first; among equals from one that differs from client to client.
    /// Those that failed lately come last.
    pub(super) fn replicas_in_order(&self, view: &ChunkView) -> Vec<ServerId> {
        let count = view.servers.len().max(1);
        let first = (view.chunk.chunk.0.wrapping_add(self.session.id().0) % count as u64) as usize;
        let mut servers = view.servers.clone();
        servers.rotate_left(first.min(view.servers.len()));
        let near = |server: &ServerId| match self.routes.address_of(*server) {
            Some(address) => nearness(&self.io.config.addresses, address),
            None => Nearness::Far,
        };
        servers.sort_by_key(|server| (self.chunks.is_avoided(*server, self.io.now.mono), near(server)));
        servers
    }
}

/// The parts of a range that are in none of the ordered pieces.
fn gaps_in(range: &Range<u64>, pieces: &[(u64, Vec<u8>)]) -> Vec<Range<u64>> {
    let mut gaps = Vec::new();
    let mut from = range.start;
    for (at, bytes) in pieces {
        if from < *at {
            gaps.push(from..*at);
        }
        from = at + bytes.len() as u64;
    }
    if from < range.end {
        gaps.push(from..range.end);
    }
    gaps
}
