//! Chunks this client appends to, and what it knows of others.
//!
//! What was appended to is remembered until it is known to be stable, because a sync has to make it so or
//! tell that it is lost. If nobody ever syncs, that is done for the oldest chunks unasked.

use crate::config::ClientConfig;
use crate::event::Note;
use crate::run::{Awaited, Gate, Io};
use crate::tables::Bounded;
use bearing_proto::client::{Call, ChunkRef, ChunkView};
use bearing_proto::grant::Capability;
use bearing_types::{ChunkId, Epoch, Mono, ServerId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// What of a sealed chunk was kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SealedEnd {
    pub length: u64,
    /// Ranges below that are lost.
    pub holes: Vec<(u64, u64)>,
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
    /// Servers that failed lately, until when that counts, and whether they did again since.
    avoided: BTreeMap<ServerId, (Mono, bool)>,
}

struct Current {
    view: Arc<ChunkView>,
    /// Bytes sent, acknowledged or not.
    bytes: u64,
}

/// How a failed chunk ended.
pub(crate) enum End {
    Sealed(SealedEnd),
    /// It was removed, and then no file refers to any of it that is not lost.
    Gone,
}

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
    pub fn on_view(&mut self, mut view: ChunkView) {
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

    /// Servers to try last.
    pub fn is_avoided(&self, server: ServerId, now: Mono) -> bool {
        self.avoided.get(&server).is_some_and(|(until, _)| now < *until)
    }

    /// Drops chunks of which all is stable and with which this client is done.
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
    pub fn finish(&mut self) -> Vec<(ChunkRef, Call)> {
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

    /// The first of those chunks that are finished and not known to be stable, if there are more than so
    /// many.
    pub fn take_unsettled(&mut self, beyond: usize) -> Option<ChunkId> {
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

    /// The open chunk, if it has room for a frame; counts the frame in.
    pub fn with_room(&mut self, frame_bytes: u64, io: &Io) -> Option<Arc<ChunkView>> {
        let limit = io.config.chunk_bytes_max;
        let current = self.current.as_mut()?;
        let lives = io.signature_lives(current.view.capability.as_ref()?.body.expires);
        if !lives || (current.bytes > 0 && current.bytes + frame_bytes > limit) {
            self.current = None;
            return None;
        }
        current.bytes += frame_bytes;
        Some(Arc::clone(&current.view))
    }

    /// A chunk was opened, to be appended to.
    pub fn opened(&mut self, view: ChunkView) {
        self.prune();
        self.views.insert(view.chunk.chunk, view.clone());
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
        self.written.insert(view.chunk.chunk, written);
        self.unfinished.insert(view.chunk.chunk);
        self.current = Some(Current { view, bytes: 0 });
    }

    /// Whoever is to make a chunk stable of which nothing is remembered has nothing to do. Whether it is
    /// forgotten.
    pub fn forget_if_stable(&mut self, chunk: ChunkId) -> bool {
        let done = |written: &Written| written.is_stable() && !written.is_in_use();
        self.written.get(&chunk).is_some_and(done) && self.written.remove(&chunk).is_some()
    }

    /// It is removed, and no file has anything in it.
    pub fn forget(&mut self, chunk: ChunkId) {
        self.written.remove(&chunk);
    }

    /// It was removed. If it is one of our own, nothing of it is a file's any more.
    pub fn on_gone(&mut self, chunk: ChunkId) {
        self.on_sealed(chunk, SealedEnd::default());
        if let Some(written) = self.written.get_mut(&chunk) {
            (written.gone, written.sealed) = (true, None);
        }
        self.views.remove(&chunk);
    }

    /// If it is one of our own, it takes no more appends.
    pub fn on_sealed(&mut self, chunk: ChunkId, end: SealedEnd) {
        if self.current.as_ref().is_some_and(|current| current.view.chunk.chunk == chunk) {
            self.current = None;
        }
        if let Some(written) = self.written.get_mut(&chunk) {
            written.failed = true;
            written.sealed = Some(end);
        }
    }

    /// These are tried last for a while, and new chunks do without them if enough others are there.
    pub fn doubt(&mut self, servers: &[ServerId], io: &Io) {
        let until = io.now.mono.after(io.config.avoid_ttl);
        for server in servers {
            self.avoided.entry(*server).or_insert((until, false)).0 = until;
        }
    }

    /// A chunk failed for these: whoever was doubted already is avoided by new chunks.
    fn avoid(&mut self, servers: &[ServerId], io: &Io) {
        let again: Vec<bool> = servers.iter().map(|server| self.is_avoided(*server, io.now.mono)).collect();
        self.doubt(servers, io);
        for (server, again) in servers.iter().zip(again) {
            self.avoided.entry(*server).and_modify(|(_, fails)| *fails = again);
        }
    }

    /// A chunk failed. Whether it has to be sealed now.
    ///
    /// Not if nothing in it was ever acknowledged: nothing refers to it then, and where it ends is ours to
    /// say. To wait for a seal could take as long as the servers' disks stay full: a server that could never
    /// make the chunk cannot note its fence either.
    pub fn on_failure(&mut self, chunk: ChunkId, avoid: &[ServerId], io: &mut Io) -> bool {
        let known = self.written.get(&chunk).is_some_and(|written| written.failed);
        // All appends that were under way tell of the same failure.
        if known {
            self.doubt(avoid, io)
        } else {
            self.avoid(avoid, io)
        }
        if self.current.as_ref().is_some_and(|current| current.view.chunk.chunk == chunk) {
            self.current = None;
        }
        let Some(written) = self.written.get_mut(&chunk) else { return false };
        let news = !written.failed;
        written.failed = true;
        // One that is finished may be sealed at any time.
        if news && self.unfinished.contains(&chunk) {
            io.counters.chunks_lost += 1;
            let primary = written.view.servers.first().copied();
            primary.into_iter().for_each(|primary| io.note(Note::ChunkLost(primary)));
        }
        if written.acknowledged == 0 {
            written.sealed.get_or_insert_default();
        }
        news && written.sealed.is_none()
    }

    /// Opens and seals one at a time. See [`Gate::enter`].
    pub fn enter_gate(&mut self) -> Option<Awaited<()>> {
        self.gate.enter()
    }

    pub fn leave_gate(&mut self) {
        self.gate.leave();
    }

    /// Whether a chunk is open.
    pub fn is_any_open(&self) -> bool {
        self.current.is_some()
    }

    /// Nothing more is appended to the open chunk.
    pub fn close(&mut self) {
        self.current = None;
    }

    /// The servers that a new chunk is to do without, and those that it is to do without if it can.
    pub fn avoided(&mut self, now: Mono) -> (Vec<ServerId>, Vec<ServerId>) {
        self.avoided.retain(|_, (until, _)| now < *until);
        let those = |fails: bool| {
            let them = self.avoided.iter().filter(move |(_, (_, again))| *again == fails);
            them.map(|(server, _)| *server).collect()
        };
        (those(true), those(false))
    }

    /// There are too few without them.
    pub fn avoid_nobody(&mut self) {
        self.avoided.clear();
    }

    /// It could not be made stable unasked, and is tried again.
    pub fn unsettle(&mut self, chunk: ChunkId) {
        if let Some(written) = self.written.get_mut(&chunk) {
            written.settled = false;
        }
    }

    /// What is known of a failed chunk: `Err` with what to ask its owner for, if that is nothing yet. `None`:
    /// it has not failed.
    pub fn failed(&self, chunk: ChunkId) -> Option<Result<End, (ChunkRef, Epoch)>> {
        let written = self.written.get(&chunk).filter(|written| written.failed)?;
        Some(match &written.sealed {
            Some(sealed) => Ok(End::Sealed(sealed.clone())),
            None if written.gone => Ok(End::Gone),
            None => Err((written.view.chunk, written.view.epoch)),
        })
    }

    /// What is to be made stable of a chunk that has not failed: all that is acknowledged.
    pub fn pending(&self, chunk: ChunkId) -> Option<(Arc<ChunkView>, u64)> {
        let written = self.written.get(&chunk)?;
        let pending = !written.failed && written.synced < written.acknowledged;
        pending.then(|| (Arc::clone(&written.view), written.acknowledged))
    }

    /// A chunk is stable so far.
    pub fn synced(&mut self, chunk: ChunkId, end: u64) {
        if let Some(written) = self.written.get_mut(&chunk) {
            written.synced = written.synced.max(end);
        }
    }

    /// Who holds a chunk, as last told.
    pub fn view(&mut self, chunk: ChunkId) -> Option<&ChunkView> {
        self.views.get(&chunk).map(|view| &*view)
    }
}
