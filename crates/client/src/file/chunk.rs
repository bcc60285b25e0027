//! Chunks this client appends to, and what it knows of others.
//!
//! One open chunk takes the frames of all files, so small files are packed. A chunk that fails is sealed
//! where the furthest surviving frame ends, and appending goes on in a new one, without the servers that
//! failed.
//!
//! Who is done with a chunk says so to its owner, who then can find out at any time how much of it is still in use, and give back the room of the rest. It is
//! done when nobody appends to it, and all that was appended is committed where others see it: until then somebody holds the chunk's view.
//!
//! What was appended to is remembered until it is known to be stable, because a sync has to make it so or tell that it is lost. If nobody ever syncs, that
//! is done for the oldest chunks unasked.

use super::data_request::DataFailure;
use crate::bounded::Bounded;
use crate::config::ClientConfig;
use crate::event::{Command, Note};
use crate::hub::{Hub, State, Work};
use crate::task::Gate;
use bearing_proto::client::{Body, Call, ChunkRef, ChunkView};
use bearing_proto::data::{DataCall, DataError};
use bearing_proto::grant::Capability;
use bearing_types::{ChunkId, Code, Epoch, Mono, Position, ServerId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// What of a sealed chunk was kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SealedEnd {
    length: u64,
    /// Ranges below that are lost.
    holes: Vec<(u64, u64)>,
}

impl SealedEnd {
    /// Whether a frame was kept.
    pub fn keeps(&self, frame: &Range<u64>) -> bool {
        frame.end <= self.length
            && !self.holes.iter().any(|(start, end)| frame.start < *end && *start < frame.end)
    }

    /// Whether it ends before that.
    pub fn ends_before(&self, end: u64) -> bool {
        self.length < end
    }

    /// Whether the frame that begins there was not kept: it lies in a hole, or behind the end.
    pub fn lacks(&self, frame: u64) -> bool {
        self.length <= frame || self.holes.iter().any(|(start, end)| (*start..*end).contains(&frame))
    }
}

/// A chunk that was appended to.
struct Written {
    view: Arc<ChunkView>,
    /// All acknowledged frames lie below.
    acknowledged: u64,
    /// All below is stable.
    synced: u64,
    /// It cannot be appended to any more.
    failed: bool,
    /// How it was sealed. What that keeps is stable: servers sync when they seal.
    sealed: Option<SealedEnd>,
    /// It was removed, because no file refers to it.
    gone: bool,
    /// Bytes of files that were committed in it.
    payload: u64,
    /// It was made stable unasked, or tried to be.
    settled: bool,
}

impl Written {
    /// Somebody appends to it, or may yet, or commits what was appended: who does holds the view.
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.view) > 1
    }

    /// All that was acknowledged is stable.
    fn is_stable(&self) -> bool {
        match &self.sealed {
            Some(end) => end.keeps(&(0..self.acknowledged)),
            None => self.synced >= self.acknowledged,
        }
    }
}

/// See the module.
pub(crate) struct Chunks {
    current: Option<Current>,
    /// One at a time opens or seals.
    gate: Gate,
    written: BTreeMap<ChunkId, Written>,
    /// Those of them with which this client is not done; the owners of the others are told so.
    unfinished: BTreeSet<ChunkId>,
    views: Bounded<ChunkId, ChunkView>,
    avoided: BTreeMap<ServerId, Mono>,
}

struct Current {
    view: Arc<ChunkView>,
    /// Bytes sent, acknowledged or not.
    bytes: u64,
}

/// How often a broken connection is tried again before the chunk counts as failed.
pub(super) const RECONNECTS: u32 = 3;
/// The first pause between two such tries.
pub(super) const RECONNECT_PAUSE: Duration = Duration::from_millis(50);

impl Chunks {
    pub fn new(config: &ClientConfig) -> Chunks {
        Chunks {
            current: None,
            gate: Gate::default(),
            written: BTreeMap::new(),
            unfinished: BTreeSet::new(),
            views: Bounded::new(config.chunks_max),
            avoided: BTreeMap::new(),
        }
    }

    /// The right to a chunk that this client opened: to append, while it lasts, and to read.
    pub fn own_right(&self, chunk: ChunkId) -> Option<Capability> {
        self.views.peek(&chunk)?.capability.clone()
    }

    /// What its owner says of a chunk. The right to it was told only when it was opened.
    fn take_view(&mut self, mut view: ChunkView) {
        let chunk = view.chunk.chunk;
        view.capability = view.capability.or_else(|| self.own_right(chunk));
        self.views.insert(chunk, view);
    }

    /// How many chunks are remembered for syncs.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.written.len()
    }

    /// A frame that ends at `end` is acknowledged.
    pub fn acknowledged(&mut self, chunk: ChunkId, end: u64) {
        if let Some(written) = self.written.get_mut(&chunk) {
            written.acknowledged = written.acknowledged.max(end);
        }
    }

    /// How much of a chunk is acknowledged.
    pub fn acknowledged_of(&self, chunk: ChunkId) -> u64 {
        self.written.get(&chunk).map_or(0, |written| written.acknowledged)
    }

    /// All chunks with something that is not stable yet.
    pub fn unsynced(&self) -> Vec<ChunkId> {
        let open = self
            .written
            .iter()
            .filter(|(_, written)| written.sealed.is_none() && !written.gone && !written.is_stable());
        open.map(|(chunk, _)| *chunk).collect()
    }

    /// Nothing of a chunk is to be made stable, or lost.
    pub fn is_settled(&self, chunk: ChunkId) -> bool {
        self.written.get(&chunk).is_none_or(Written::is_stable)
    }

    /// Whether a chunk was sealed without some of what was acknowledged.
    pub fn has_lost(&self, chunk: ChunkId) -> bool {
        let written = self.written.get(&chunk).filter(|written| written.sealed.is_some());
        written.is_some_and(|written| !written.is_stable())
    }

    /// Avoids a server for a while.
    fn avoid(&mut self, servers: &[ServerId], until: Mono) {
        for server in servers {
            self.avoided.insert(*server, until);
        }
    }

    /// Servers to try last.
    pub fn is_avoided(&self, server: ServerId, now: Mono) -> bool {
        self.avoided.get(&server).is_some_and(|until| now < *until)
    }

    /// Lets go of chunks of which all is stable and with which this client is done.
    fn prune(&mut self) {
        let Chunks { written, unfinished, .. } = self;
        written.retain(|chunk, written| unfinished.contains(chunk) || !written.is_stable());
    }

    /// So many bytes of a file are committed in a chunk.
    pub fn committed(&mut self, chunk: ChunkId, bytes: u64) {
        if let Some(written) = self.written.get_mut(&chunk) {
            written.payload += bytes;
        }
    }

    /// Chunks with which this client is done from now on, and what their owners are told.
    fn finish(&mut self) -> Vec<(ChunkRef, Call)> {
        let Chunks { written, unfinished, .. } = self;
        let mut done = Vec::new();
        unfinished.retain(|chunk| {
            let Some(written) = written.get(chunk) else { return false };
            if written.is_in_use() {
                return true;
            }
            let ChunkView { chunk, capability, .. } = &*written.view;
            let call = |opened| Call::FinishChunk { chunk: *chunk, payload: written.payload, opened };
            done.extend(capability.clone().map(|opened| (*chunk, call(opened))));
            false
        });
        done
    }

    /// The first of those chunks that are finished and not known to be stable, if there are more than so many.
    fn take_unsettled(&mut self, beyond: usize) -> Option<ChunkId> {
        let Chunks { written, unfinished, .. } = self;
        let unsettled = |chunk: &ChunkId, written: &Written| {
            !unfinished.contains(chunk) && !written.settled && !written.is_stable()
        };
        let mut chunks = written.iter_mut().filter(|(chunk, written)| unsettled(chunk, written));
        let (first, written) = chunks.next()?;
        (chunks.count() >= beyond).then(|| {
            written.settled = true;
            *first
        })
    }
}

impl State {
    /// The open chunk, if it has room for a frame; counts the frame in.
    fn chunk_with_room(&mut self, frame_bytes: u64) -> Option<Arc<ChunkView>> {
        let (limit, expires) = (
            self.config.chunk_bytes_max,
            self.chunks.current.as_ref()?.view.capability.as_ref()?.body.expires,
        );
        let lives = self.signature_lives(expires);
        let current = self.chunks.current.as_mut()?;
        if !lives || (current.bytes > 0 && current.bytes + frame_bytes > limit) {
            self.chunks.current = None;
            return None;
        }
        current.bytes += frame_bytes;
        Some(Arc::clone(&current.view))
    }

    fn take_open_chunk(&mut self, view: ChunkView) {
        self.counters.chunks_opened += 1;
        self.chunks.prune();
        self.chunks.views.insert(view.chunk.chunk, view.clone());
        let view = Arc::new(view);
        let written = Written {
            view: Arc::clone(&view),
            acknowledged: 0,
            synced: 0,
            failed: false,
            sealed: None,
            gone: false,
            payload: 0,
            settled: false,
        };
        self.chunks.written.insert(view.chunk.chunk, written);
        self.chunks.unfinished.insert(view.chunk.chunk);
        self.chunks.current = Some(Current { view, bytes: 0 });
    }

    /// Whoever is to make a chunk stable of which nothing is remembered has nothing to do.
    fn forget_if_stable(&mut self, chunk: ChunkId) {
        if self.chunks.written.get(&chunk).is_some_and(|written| written.is_stable() && !written.is_in_use())
        {
            self.chunks.written.remove(&chunk);
            self.files.forget_stable(|stable| stable == chunk);
        }
    }

    /// It was removed. If it is one of our own, nothing of it is a file's any more.
    fn chunk_gone(&mut self, chunk: ChunkId) {
        self.chunk_sealed(chunk, SealedEnd::default());
        if let Some(written) = self.chunks.written.get_mut(&chunk) {
            (written.gone, written.sealed) = (true, None);
        }
        self.chunks.views.remove(&chunk);
    }

    /// If it is one of our own, it takes no more appends.
    fn chunk_sealed(&mut self, chunk: ChunkId, end: SealedEnd) {
        if self.chunks.current.as_ref().is_some_and(|current| current.view.chunk.chunk == chunk) {
            self.chunks.current = None;
        }
        if let Some(written) = self.chunks.written.get_mut(&chunk) {
            written.failed = true;
            written.sealed = Some(end);
        }
    }

    /// A chunk failed. Whether it has to be sealed now.
    ///
    /// Not if nothing in it was ever acknowledged: nothing refers to it then, and where it ends is ours to say. To wait for a seal could take as long
    /// as the servers' disks stay full: a server that could never make the chunk cannot note its fence either.
    fn chunk_fails(&mut self, chunk: ChunkId, avoid: &[ServerId]) -> bool {
        let until = self.now.mono.after(self.config.avoid_time);
        self.chunks.avoid(avoid, until);
        if self.chunks.current.as_ref().is_some_and(|current| current.view.chunk.chunk == chunk) {
            self.chunks.current = None;
        }
        let Some(written) = self.chunks.written.get_mut(&chunk) else { return false };
        let news = !written.failed;
        written.failed = true;
        // One that is finished may be sealed at any time.
        if news && self.chunks.unfinished.contains(&chunk) {
            self.counters.chunks_lost += 1;
            let primary = written.view.servers.first().copied();
            self.out.extend(primary.map(|primary| Command::Note(Note::ChunkLost(primary))));
        }
        if written.acknowledged == 0 {
            written.sealed.get_or_insert_default();
        }
        news && written.sealed.is_none()
    }
}

impl Hub {
    /// A chunk with room for a frame, opened near `home` if there is none.
    pub(super) async fn writable_chunk(
        &self,
        home: Position,
        frame_bytes: u64,
    ) -> Result<Arc<ChunkView>, Code> {
        loop {
            let (chunk, turn) = self.with(|state| match state.chunk_with_room(frame_bytes) {
                Some(chunk) => (Some(chunk), None),
                None => (None, state.chunks.gate.enter()),
            });
            if let Some(chunk) = chunk {
                return Ok(chunk);
            }
            if let Some(turn) = turn {
                turn.await;
            }
            // Somebody else may have opened one while this waited for its turn.
            let wanted = self.with(|state| state.chunks.current.is_none());
            let opened = if wanted { self.open_chunk(home).await } else { Ok(()) };
            self.with(|state| state.chunks.gate.leave());
            opened?;
        }
    }

    async fn open_chunk(&self, home: Position) -> Result<(), Code> {
        let mut avoid = self.with(|state| {
            let now = state.now.mono;
            state.chunks.avoided.retain(|_, until| now < *until);
            state.chunks.avoided.keys().copied().collect::<Vec<_>>()
        });
        loop {
            let call = Call::OpenChunk { avoid: avoid.clone() };
            match self.call(home, call).await {
                Ok(answered) => {
                    return self.with(|state| match answered.body {
                        Body::Chunk(view) if !view.servers.is_empty() && view.capability.is_some() => {
                            state.take_open_chunk(view);
                            Ok(())
                        }
                        _ => {
                            state.counters.unexpected += 1;
                            Err(Code::Io)
                        }
                    });
                }
                // Without the avoided ones there are too few: perhaps they are back.
                Err(Code::NoSpace) if !avoid.is_empty() => {
                    avoid.clear();
                    self.with(|state| state.chunks.avoided.clear());
                }
                Err(code) => return Err(code),
            }
        }
    }

    /// Tells the owners of the chunks with which this client is done.
    pub(super) fn finish_chunks(&self) {
        let done = self.with(|state| state.chunks.finish());
        if !done.is_empty() {
            let hub = self.clone();
            self.with(|state| state.spawn(hub.chunks_finished(done)));
        }
    }

    async fn chunks_finished(self, done: Vec<(ChunkRef, Call)>) {
        let patience = self.with(|state| state.config.request_deadline);
        self.tell_finished(done, patience).await;
        self.settle_oldest().await;
    }

    /// Takes the open chunk for finished too. Who does not answer soon is not waited for.
    pub(crate) async fn finish_all_chunks(&self) {
        let (done, patience) = self.with(|state| {
            state.chunks.current = None;
            (state.chunks.finish(), state.config.finish_patience)
        });
        self.tell_finished(done, patience).await;
    }

    /// Says that nothing more comes in these chunks. If that cannot be said their owners see to them later, when nobody can append to them any more.
    async fn tell_finished(&self, chunks: Vec<(ChunkRef, Call)>, patience: Duration) {
        // What was decided here is committed when its home has heard of it.
        if chunks.is_empty() || self.flush_all_steps().await.is_err() {
            return;
        }
        let mut work: Vec<Work<_>> = Vec::new();
        for (chunk, call) in chunks {
            let hub = self.clone();
            work.push(Box::pin(async move {
                let _seen_to_later = hub.call_within(chunk.position, call, patience).await;
            }));
        }
        let appends_max = self.with(|state| state.config.appends_max);
        self.windowed(appends_max, work).await;
    }

    /// Makes chunks of long ago stable, or finds that they are gone, as a sync of their files would do it, so that not ever more has to be remembered.
    async fn settle_oldest(&self) {
        let next = |state: &mut State| state.chunks.take_unsettled(state.config.unsynced_chunks_max);
        while let Some(chunk) = self.with(next) {
            match self.sync_chunk(chunk).await {
                // All of it is stable; or not, and the next sync of a file in it tells that.
                Ok(_) => self.with(|state| state.forget_if_stable(chunk)),
                Err(Code::Stale) => self.settle_gone(chunk).await,
                Err(_) => {
                    return self.with(|state| {
                        if let Some(written) = state.chunks.written.get_mut(&chunk) {
                            written.settled = false;
                        }
                    });
                }
            }
        }
    }

    /// Files that do not refer to a removed chunk have lost nothing with it. Of the others the next sync tells.
    async fn settle_gone(&self, chunk: ChunkId) {
        for node in self.with(|state| state.files.unsynced_in(chunk)) {
            if let Ok(false) =
                self.refers_to_lost(node, &BTreeMap::from([(chunk, SealedEnd::default())])).await
            {
                self.with(|state| state.files.synced_in(node, chunk));
            }
        }
        self.with(|state| {
            if !state.files.is_unsynced_anywhere(chunk) {
                state.chunks.written.remove(&chunk);
            }
        });
    }

    /// A chunk cannot be appended to any more: has it sealed, once, so that appending goes on elsewhere.
    pub(super) async fn chunk_failed(&self, chunk: ChunkRef, avoid: &[ServerId]) {
        if self.with(|state| state.chunk_fails(chunk.chunk, avoid)) {
            // Whoever needs the length asks again if this fails.
            let _ = self.sealed_end(chunk.chunk).await;
        }
    }

    /// What was kept of a failed chunk: that is stable, and the rest is gone. `None` if it has not failed;
    /// `Stale` if it was removed, and then no file refers to any of it that is not lost.
    pub(super) async fn sealed_end(&self, chunk: ChunkId) -> Result<Option<SealedEnd>, Code> {
        let wanted = self.with(|state| {
            let written = state.chunks.written.get(&chunk).filter(|written| written.failed)?;
            Some((written.view.chunk, written.view.epoch, written.sealed.clone(), written.gone))
        });
        let (chunk, epoch) = match wanted {
            None => return Ok(None),
            Some((_, _, Some(sealed), _)) => return Ok(Some(sealed)),
            Some((_, _, None, true)) => return Err(Code::Stale),
            Some((chunk, epoch, None, false)) => (chunk, epoch),
        };
        match self.seal_chunk(chunk, epoch).await {
            // Whoever may have something of it is lost: what was written goes elsewhere, and a sync tells of the rest.
            Err(Code::Io) => self.with(|state| {
                state.chunk_sealed(chunk.chunk, SealedEnd::default());
                Ok(Some(SealedEnd::default()))
            }),
            sealed => sealed.map(Some),
        }
    }

    /// Has a chunk sealed, so that what its surviving servers hold can be read, and gives what was kept. If
    /// it was sealed before, servers that missed it are told again.
    pub(super) async fn seal_chunk(&self, chunk: ChunkRef, epoch: Epoch) -> Result<SealedEnd, Code> {
        let answered = self.call(chunk.position, Call::SealChunk { chunk, epoch }).await;
        let answered = self.gone_if_stale(chunk, answered)?;
        self.with(|state| match answered.body {
            Body::Chunk(view @ ChunkView { sealed: Some(length), .. }) => {
                let end = SealedEnd { length, holes: view.holes.clone() };
                state.chunk_sealed(chunk.chunk, end.clone());
                state.chunks.take_view(view);
                Ok(end)
            }
            _ => {
                state.counters.unexpected += 1;
                Err(Code::Io)
            }
        })
    }

    /// Notes that a chunk was removed, if that is what its tablet says.
    fn gone_if_stale<T>(&self, chunk: ChunkRef, answered: Result<T, Code>) -> Result<T, Code> {
        if matches!(answered, Err(Code::Stale)) {
            self.with(|state| state.chunk_gone(chunk.chunk));
        }
        answered
    }

    /// Makes what was acknowledged of a chunk stable. If that cannot be done, the chunk is sealed, and what
    /// was kept is told.
    pub(super) async fn sync_chunk(&self, chunk: ChunkId) -> Result<Option<SealedEnd>, Code> {
        let mut tries = 0;
        loop {
            let wanted = self.with(|state| {
                let written = state.chunks.written.get(&chunk)?;
                let pending = !written.failed && written.synced < written.acknowledged;
                pending.then(|| (Arc::clone(&written.view), written.acknowledged))
            });
            let Some((view, acknowledged)) = wanted else { return self.sealed_end(chunk).await };
            let capability = view.capability.clone().ok_or(Code::Io)?;
            let call = DataCall::Sync { capability, servers: view.servers.clone() };
            match self.data_call(view.servers[0], chunk, call, Vec::new()).await {
                Ok(_) => {
                    self.with(|state| {
                        if let Some(written) = state.chunks.written.get_mut(&chunk) {
                            written.synced = written.synced.max(acknowledged);
                        }
                    });
                    return Ok(None);
                }
                Err(DataFailure::Over(code)) => return Err(code),
                Err(DataFailure::Disconnected) if tries < RECONNECTS => {
                    self.sleep(RECONNECT_PAUSE * (1 << tries)).await;
                    tries += 1;
                }
                Err(failure) => self.chunk_failed(view.chunk, &to_avoid(&view, failure)).await,
            }
        }
    }

    /// Who holds a chunk.
    pub(super) async fn chunk_view(&self, chunk: ChunkRef, fresh: bool) -> Result<ChunkView, Code> {
        let cached = self.with(|state| state.chunks.views.get(&chunk.chunk).filter(|_| !fresh).cloned());
        if let Some(view) = cached {
            return Ok(view);
        }
        let answered = self.call(chunk.position, Call::Chunk { chunk }).await;
        let answered = self.gone_if_stale(chunk, answered)?;
        self.with(|state| match answered.body {
            Body::Chunk(view) => {
                state.chunks.take_view(view.clone());
                Ok(view)
            }
            _ => {
                state.counters.unexpected += 1;
                Err(Code::Io)
            }
        })
    }
}

/// Which servers a new chunk should do without.
pub(super) fn to_avoid(view: &ChunkView, failure: DataFailure) -> Vec<ServerId> {
    match failure {
        DataFailure::Refused(DataError::ReplicaLost(server)) => vec![server],
        DataFailure::NoAnswer
        | DataFailure::Disconnected
        | DataFailure::Refused(DataError::Failed | DataError::Full | DataError::Clock) => {
            vec![view.servers[0]]
        }
        DataFailure::Refused(
            DataError::Sealed
            | DataError::NoChunk
            | DataError::Corrupt
            | DataError::BeyondEnd
            | DataError::Capability
            | DataError::Damaged
            | DataError::Source
            | DataError::Unsettled,
        )
        | DataFailure::Over(_) => Vec::new(),
    }
}
