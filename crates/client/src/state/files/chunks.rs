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
use bearing_types::{ChunkId, Epoch, Mono, NodeId, ServerId};
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

/// Chunks that large frames are spread over. Files that are written at the same time then neither lie mixed
/// on a disk, nor wait for each other's syncs.
const OPEN_MAX: usize = 4;

/// See the module.
pub(crate) struct Chunks {
    /// Those that are appended to, in the order in which they were opened.
    open: Vec<Open>,
    /// One at a time opens or seals.
    gate: Gate,
    written: BTreeMap<ChunkId, Written>,
    /// Those of them with which this client is not done; the owners of the others are told so.
    unfinished: BTreeSet<ChunkId>,
    views: Bounded<ChunkId, ChunkView>,
    /// Servers that failed lately, until when that counts, and whether they did again since.
    avoided: BTreeMap<ServerId, (Mono, bool)>,
}

struct Open {
    view: Arc<ChunkView>,
    /// Bytes sent, acknowledged or not.
    bytes: u64,
    /// The file whose large frames it took last.
    of: Option<NodeId>,
}

impl Open {
    /// Nobody appends to it, nor commits what was appended: only this, and what is remembered of it, hold the
    /// view.
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.view) <= 2
    }
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
            open: Vec::new(),
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

    /// An open chunk that has room for a frame of a file; counts the frame in. What is small goes to the
    /// first, what is large to one of its own as far as there are.
    pub fn with_room(&mut self, file: NodeId, frame_bytes: u64, io: &Io) -> Option<Arc<ChunkView>> {
        let limit = io.config.chunk_bytes_max;
        self.open.retain(|open| {
            let right = open.view.capability.as_ref();
            right.is_some_and(|right| io.signature_lives(right.body.expires))
        });
        let is_large = frame_bytes >= io.config.large_frame_bytes;
        let own = || self.open.iter().position(|open| open.of == Some(file));
        let idle = || self.open.iter().position(Open::is_idle);
        let emptiest = || (0..self.open.len()).min_by_key(|index| self.open[*index].bytes);
        let chosen = match is_large {
            false => (!self.open.is_empty()).then_some(0),
            true => own().or_else(idle).or_else(|| emptiest().filter(|_| self.open.len() >= OPEN_MAX)),
        }?;
        let open = &mut self.open[chosen];
        if open.bytes > 0 && open.bytes + frame_bytes > limit {
            self.open.remove(chosen);
            return None;
        }
        open.bytes += frame_bytes;
        if is_large {
            open.of = Some(file);
        }
        Some(Arc::clone(&open.view))
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
        self.open.push(Open { view, bytes: 0, of: None });
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
        self.close_one(chunk);
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
        self.close_one(chunk);
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

    /// Nothing more is appended to open chunks.
    pub fn close(&mut self) {
        self.open.clear();
    }

    fn close_one(&mut self, chunk: ChunkId) {
        self.open.retain(|open| open.view.chunk.chunk != chunk);
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
