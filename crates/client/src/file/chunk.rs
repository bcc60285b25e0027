//! Opening, sealing, syncing and finishing chunks.
//!
//! One open chunk takes the small frames of all files, so small files are packed; large frames of files that
//! are written at the same time go to chunks of their own. A chunk that fails is sealed where the furthest
//! surviving frame ends, and appending goes on in a new one, without the servers that failed.
//!
//! Who is done with a chunk says so to its owner, who then can find out at any time how much of it is still
//! in use, and give back the room of the rest. It is done when nobody appends to it, and all that was
//! appended is committed where others see it: until then somebody holds the chunk's view.

use crate::context::{Context, State, Work};
use crate::state::DataFailure;
use crate::state::files::{End, SealedEnd};
use bearing_proto::client::{Body, Call, ChunkRef, ChunkView};
use bearing_proto::data::{DataCall, DataError};
use bearing_types::{ChunkId, Code, Epoch, NodeId, Position, ServerId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How often a broken connection is tried again before the chunk counts as failed.
pub(super) const RECONNECTS: u32 = 3;
/// The first pause between two such tries.
pub(super) const RECONNECT_PAUSE: Duration = Duration::from_millis(50);

impl Context {
    /// A chunk with room for a frame of a file, opened near its home if there is none.
    pub(super) async fn writable_chunk(
        &self,
        node: NodeId,
        home: Position,
        frame_bytes: u64,
    ) -> Result<Arc<ChunkView>, Code> {
        let find = || self.with(|state| state.chunks.with_room(node, frame_bytes, &state.io));
        loop {
            if let Some(chunk) = find() {
                return Ok(chunk);
            }
            if let Some(turn) = self.with(|state| state.chunks.enter_gate()) {
                turn.await;
            }
            // Somebody else may have opened one while this waited for its turn.
            let found = find();
            let opened = if found.is_some() { Ok(()) } else { self.open_chunk(home).await };
            self.with(|state| state.chunks.leave_gate());
            opened?;
            if let Some(chunk) = found {
                return Ok(chunk);
            }
        }
    }

    async fn open_chunk(&self, home: Position) -> Result<(), Code> {
        let (mut avoid, mut doubted) = self.with(|state| state.chunks.avoided(state.io.now.mono));
        loop {
            let call = Call::OpenChunk { avoid: avoid.clone(), doubted: doubted.clone() };
            match self.call(home, call).await {
                Ok(answered) => {
                    return self.with(|state| match answered.body {
                        Body::Chunk(view) if !view.servers.is_empty() && view.capability.is_some() => {
                            state.io.counters.chunks_opened += 1;
                            state.chunks.opened(view);
                            Ok(())
                        }
                        _ => Err(state.io.unexpected()),
                    });
                }
                // Without the avoided ones there are too few: perhaps they are back.
                Err(Code::NoSpace) if !(avoid.is_empty() && doubted.is_empty()) => {
                    avoid.clear();
                    doubted.clear();
                    self.with(|state| state.chunks.avoid_nobody());
                }
                Err(code) => return Err(code),
            }
        }
    }

    /// Tells the owners of the chunks with which this client is done.
    pub(super) fn finish_chunks(&self) {
        let done = self.with(|state| state.chunks.finish());
        if !done.is_empty() {
            let context = self.clone();
            self.with(|state| state.spawn(context.chunks_finished(done)));
        }
    }

    async fn chunks_finished(self, done: Vec<(ChunkRef, Call)>) {
        let patience = self.with(|state| state.io.config.request_timeout);
        self.tell_finished(done, patience).await;
        self.settle_oldest().await;
    }

    /// Takes open chunks for finished too. Who does not answer soon is not waited for.
    pub(crate) async fn finish_all_chunks(&self) {
        let (done, patience) = self.with(|state| {
            state.chunks.close();
            (state.chunks.finish(), state.io.config.finish_timeout)
        });
        self.tell_finished(done, patience).await;
    }

    /// Says that nothing more comes in these chunks. If that cannot be said their owners see to them later,
    /// when nobody can append to them any more.
    async fn tell_finished(&self, chunks: Vec<(ChunkRef, Call)>, patience: Duration) {
        // What was decided here is committed when its home has heard of it.
        if chunks.is_empty() || self.flush_all_steps().await.is_err() {
            return;
        }
        let mut work: Vec<Work<_>> = Vec::new();
        for (chunk, call) in chunks {
            let context = self.clone();
            work.push(Box::pin(async move {
                let _seen_to_later = context.call_within(chunk.position, call, patience).await;
            }));
        }
        let appends_max = self.with(|state| state.io.config.appends_max);
        self.windowed(appends_max, work).await;
    }

    /// Makes chunks of long ago stable, or finds that they are gone, as a sync of their files would do it, so
    /// that not ever more has to be remembered.
    async fn settle_oldest(&self) {
        let next = |state: &mut State| state.chunks.take_unsettled(state.io.config.unsynced_chunks_max);
        while let Some(chunk) = self.with(next) {
            match self.sync_chunk(chunk).await {
                // All of it is stable; or not, and the next sync of a file in it tells that.
                Ok(_) => self.with(|state| {
                    if state.chunks.forget_if_stable(chunk) {
                        state.files.forget_stable(|stable| stable == chunk);
                    }
                }),
                Err(Code::Stale) => self.settle_gone(chunk).await,
                Err(_) => {
                    return self.with(|state| state.chunks.unsettle(chunk));
                }
            }
        }
    }

    /// Files that do not refer to a removed chunk have lost nothing with it. Of the others the next sync
    /// tells.
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
                state.chunks.forget(chunk);
            }
        });
    }

    /// A chunk cannot be appended to any more: has it sealed, once, so that appending goes on elsewhere.
    pub(super) async fn chunk_failed(&self, chunk: ChunkRef, avoid: &[ServerId]) {
        if self.with(|state| state.chunks.on_failure(chunk.chunk, avoid, &mut state.io)) {
            // Whoever needs the length asks again if this fails.
            let _ = self.sealed_end(chunk.chunk).await;
        }
    }

    /// What was kept of a failed chunk: that is stable, and the rest is gone. `None` if it has not failed;
    /// `Stale` if it was removed, and then no file refers to any of it that is not lost.
    pub(super) async fn sealed_end(&self, chunk: ChunkId) -> Result<Option<SealedEnd>, Code> {
        let (chunk, epoch) = match self.with(|state| state.chunks.failed(chunk)) {
            None => return Ok(None),
            Some(Ok(End::Sealed(sealed))) => return Ok(Some(sealed)),
            Some(Ok(End::Gone)) => return Err(Code::Stale),
            Some(Err(wanted)) => wanted,
        };
        match self.seal_chunk(chunk, epoch).await {
            // Whoever may have something of it is lost: what was written goes elsewhere, and a sync tells of
            // the rest.
            Err(Code::Io) => self.with(|state| {
                state.chunks.on_sealed(chunk.chunk, SealedEnd::default());
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
                state.chunks.on_sealed(chunk.chunk, end.clone());
                state.chunks.on_view(view);
                Ok(end)
            }
            _ => Err(state.io.unexpected()),
        })
    }

    /// Notes that a chunk was removed, if that is what its tablet says.
    fn gone_if_stale<T>(&self, chunk: ChunkRef, answered: Result<T, Code>) -> Result<T, Code> {
        if matches!(answered, Err(Code::Stale)) {
            self.with(|state| state.chunks.on_gone(chunk.chunk));
        }
        answered
    }

    /// Makes what was acknowledged of a chunk stable. If that cannot be done, the chunk is sealed, and what
    /// was kept is told.
    pub(super) async fn sync_chunk(&self, chunk: ChunkId) -> Result<Option<SealedEnd>, Code> {
        let mut tries = 0;
        loop {
            let pending = self.with(|state| state.chunks.pending(chunk));
            let Some((view, acknowledged)) = pending else { return self.sealed_end(chunk).await };
            let capability = view.capability.clone().ok_or(Code::Io)?;
            let call = DataCall::Sync { capability, servers: view.servers.clone() };
            match self.data_call(view.servers[0], chunk, call, Vec::new()).await {
                Ok(_) => {
                    self.with(|state| state.chunks.synced(chunk, acknowledged));
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
        let cached = self.with(|state| state.chunks.view(chunk.chunk).filter(|_| !fresh).cloned());
        if let Some(view) = cached {
            return Ok(view);
        }
        let answered = self.call(chunk.position, Call::Chunk { chunk }).await;
        let answered = self.gone_if_stale(chunk, answered)?;
        self.with(|state| match answered.body {
            Body::Chunk(view) => {
                state.chunks.on_view(view.clone());
                Ok(view)
            }
            _ => Err(state.io.unexpected()),
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
