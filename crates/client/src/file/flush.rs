//! Writing out: frames are appended to chunks, the chunks synced if that is asked for, and only then are the
//! extents committed.
//!
//! Bytes appended to the file are committed without their offsets, which the file's home adds. What was one
//! write(2) of no more than a frame's payload goes with one commit, so it is atomic.
//!
//! What is copied from a file is written out the same way, but data servers take the bytes from where they
//! are (see [`super::copy`]).

use super::chunk::{RECONNECT_PAUSE, RECONNECTS, to_avoid};
use crate::context::{Context, State, Work};
use crate::event::Note;
use crate::mutant::Mutant;
use crate::operation::OpenFile;
use crate::state::DataFailure;
use crate::state::files::{Job, Piece, SealedEnd, Stability, UNKNOWN_END, end_of};
use bearing_proto::client::{Body, Call, ChunkView, CommitMode, Extent, Handle, LeaseKey, LeaseMs, NodeView};
use bearing_proto::data::{DataBody, DataCall, DataError};
use bearing_proto::frame;
use bearing_proto::grant::Capability;
use bearing_types::{ChunkId, Code, Mono, NodeId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// How often frames are appended again because the chunk they lay in was sealed below them.
const LOST_TRIES: u32 = 8;
/// The first pause after a data server refused an append.
const APPEND_PAUSE: Duration = Duration::from_millis(20);
/// The longest.
const APPEND_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Where a piece of a file lies now.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    /// Held until the piece is committed.
    chunk: Arc<ChunkView>,
    frame: u64,
    frame_end: u64,
}

impl Placed {
    fn chunk_id(&self) -> ChunkId {
        self.chunk.chunk.chunk
    }
}

type Places = BTreeMap<u64, (Range<u64>, Placed)>;

impl Context {
    /// Writes an open file out. Tells of all that the file has lost since it was opened, each loss once; a
    /// sync tells of it whatever a flush has told, which may have been another's.
    pub(crate) async fn flush(&self, file: OpenFile, stability: Stability) -> Result<(), Code> {
        let node = self.with(|state| state.files.node_of(file))?;
        let written = self.write_out(node, stability).await;
        written.and(self.with(|state| state.files.tell_losses(file, stability)))
    }

    /// Writes a file out for whoever does not wait for the result: its next flush tells.
    pub(crate) async fn write_behind(self, node: NodeId) {
        let _told_later = self.write_out(node, Stability::Visible).await;
        self.with(|state| state.files.drop_unused(node));
    }

    /// Writes a file out, if there is anything to write, before something else is done to it.
    pub(crate) async fn flush_if_dirty(&self, node: NodeId) -> Result<(), Code> {
        let dirty = self.with(|state| state.files.is_dirty(node));
        if dirty { self.write_out(node, Stability::Visible).await } else { Ok(()) }
    }

    async fn write_out(&self, node: NodeId, stability: Stability) -> Result<(), Code> {
        if !self.enter_gate(node).await {
            return Ok(());
        }
        let mut written = Ok(());
        while let Some(job) = self.with(|state| state.begin_flush(node)) {
            let result = self.store(node, &job, stability).await;
            self.with(|state| state.end_flush(node, result));
            written = written.and(result);
            if !job.is_part {
                break;
            }
        }
        self.leave_gate(node);
        written
    }

    /// Waits until nobody else writes a file out. Whether there is a file.
    pub(super) async fn enter_gate(&self, node: NodeId) -> bool {
        let turn = self.with(|state| state.files.enter_gate(node));
        match turn {
            None => return false,
            Some(Some(turn)) => turn.await,
            Some(None) => {}
        }
        true
    }

    pub(super) fn leave_gate(&self, node: NodeId) {
        self.with(|state| state.files.leave_gate(node));
    }

    /// Appends what a job is of, and commits it.
    pub(super) async fn store(&self, node: NodeId, job: &Job, wanted: Stability) -> Result<(), Code> {
        let stored = self.store_pieces(node, job, wanted).await;
        self.finish_chunks();
        stored
    }

    async fn store_pieces(&self, node: NodeId, job: &Job, wanted: Stability) -> Result<(), Code> {
        let stability = match self.with(|state| state.io.config.planted(Mutant::SyncWithoutData)) {
            true => Stability::Visible,
            false => wanted,
        };
        let mut places = Places::new();
        let mut tries = 0;
        let deadline = self.with(|state| state.io.now.mono.after(state.io.config.write_timeout));
        loop {
            let lost = match self.append_all(node, job, &mut places, stability).await {
                // Servers are away. The bytes are kept here until they are back.
                Err(Code::Unreachable) if self.with(|state| state.waits_for_servers(deadline)) => {
                    self.sleep(APPEND_PAUSE_MAX).await;
                    continue;
                }
                appended => appended?,
            };
            if lost.is_empty() {
                match self.commit(node, job, &places).await {
                    // It took so long that a chunk was found to be in no use: the bytes go elsewhere.
                    Err(Code::NotFound) => {
                        for (_, placed) in std::mem::take(&mut places).into_values() {
                            self.chunk_failed(placed.chunk.chunk, &[]).await;
                        }
                    }
                    committed => break committed?,
                }
            }
            if tries == LOST_TRIES {
                return Err(Code::Io);
            }
            tries += 1;
            for start in lost {
                places.remove(&start);
            }
        }
        self.with(|state| state.io.step("flush committed"));
        if stability == Stability::Visible {
            self.with(|state| state.note_unsynced(node, &places));
        }
        Ok(())
    }

    /// Appends what is not yet, and syncs it if that is wanted. Gives what is lost again already.
    async fn append_all(
        &self,
        node: NodeId,
        job: &Job,
        places: &mut Places,
        stability: Stability,
    ) -> Result<Vec<u64>, Code> {
        self.append_missing(node, job, places).await?;
        let lost = self.lost(places, stability).await?;
        if lost.is_empty() {
            self.with(|state| state.io.step("flush appended, not committed"));
            if stability == Stability::Stable {
                self.sync_earlier(node).await?;
                self.with(|state| state.io.step("sync done, not committed"));
            }
        }
        Ok(lost)
    }

    async fn append_missing(&self, node: NodeId, job: &Job, places: &mut Places) -> Result<(), Code> {
        let mut work: Vec<Work<_>> = Vec::new();
        for piece in &job.pieces {
            if places.contains_key(&piece.range.start) {
                continue;
            }
            let (context, home, piece) = (self.clone(), job.handle, piece.clone());
            work.push(Box::pin(async move {
                let placed = context.append(node, home, &piece).await;
                (piece.range, placed)
            }));
        }
        let appends_max = self.with(|state| state.io.config.appends_max);
        let mut failed = None;
        for (piece, placed) in self.windowed(appends_max, work).await {
            match placed {
                Ok(placed) => drop(places.insert(piece.start, (piece, placed))),
                Err(code) => failed = failed.or(Some(code)),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Appends one piece, to another chunk if one fails, until it is stored or the time or the servers' space
    /// is used up.
    async fn append(&self, node: NodeId, handle: Handle, piece: &Piece) -> Result<Placed, Code> {
        let (deadline, tries_max) = self.with(|state| {
            (state.io.now.mono.after(state.io.config.request_timeout), state.io.config.append_tries_max)
        });
        let (mut full, mut disconnects, mut pauses) = (0, 0, 0);
        // What no server could take from where it is goes through here.
        let mut bytes: Option<Vec<u8>> = None;
        loop {
            let stored = piece.stored.filter(|_| bytes.is_none());
            let (chunk, placed) = match stored {
                Some(stored) => self.append_stored(node, handle, piece, stored).await?,
                None => {
                    let frame = self.with(|state| state.encode_frame(node, piece, bytes.as_deref()));
                    let chunk = self.writable_chunk(node, handle.home, frame.len() as u64).await?;
                    let placed = self.append_frame(&chunk, frame).await;
                    (chunk, placed)
                }
            };
            let failure = match placed {
                Ok(placed) => return Ok(placed),
                Err(DataFailure::Over(code)) => return Err(code),
                Err(failure) => failure,
            };
            if let (Some(stored), DataFailure::Refused(DataError::Source)) = (stored, failure) {
                let deadline = self.with(|state| state.io.now.mono.after(state.io.config.request_timeout));
                bytes = Some(self.read_extent(stored, deadline).await?);
                continue;
            }
            if failure == DataFailure::Refused(DataError::Full) {
                full += 1;
                if full >= tries_max {
                    return Err(Code::NoSpace);
                }
            }
            let transient = match failure {
                DataFailure::Disconnected => disconnects < RECONNECTS,
                DataFailure::Refused(error) => error == DataError::Damaged,
                DataFailure::NoAnswer | DataFailure::Over(_) => false,
            };
            if transient {
                disconnects += 1;
            } else {
                disconnects = 0;
                self.chunk_failed(chunk.chunk, &to_avoid(&chunk, failure)).await;
            }
            self.pause_append(deadline, pauses).await?;
            pauses += 1;
        }
    }

    async fn pause_append(&self, deadline: Mono, pauses: u32) -> Result<(), Code> {
        let pause = self.with(|state| {
            let pause = state.io.random.backed_off(APPEND_PAUSE, APPEND_PAUSE_MAX, pauses);
            (state.io.now.mono < deadline).then_some(pause.max(RECONNECT_PAUSE))
        });
        match pause {
            Some(pause) => {
                self.sleep(pause).await;
                Ok(())
            }
            None => Err(Code::Unreachable),
        }
    }

    async fn append_frame(&self, chunk: &Arc<ChunkView>, frame: Vec<u8>) -> Result<Placed, DataFailure> {
        let known = self.with(|state| state.chunks.acknowledged_of(chunk.chunk.chunk));
        let call = DataCall::Append {
            capability: append_right(chunk)?,
            servers: chunk.servers.clone(),
            known,
            crc: crc32c::crc32c(&frame),
        };
        let frame_bytes = frame.len() as u64;
        self.ask_append(chunk, call, frame, frame_bytes).await
    }

    pub(super) async fn ask_append(
        &self,
        chunk: &Arc<ChunkView>,
        call: DataCall,
        attachment: Vec<u8>,
        frame_bytes: u64,
    ) -> Result<Placed, DataFailure> {
        let (body, _) = self.data_call(chunk.servers[0], chunk.chunk.chunk, call, attachment).await?;
        let DataBody::Appended { frame } = body else {
            return Err(DataFailure::Refused(DataError::Damaged));
        };
        let frame_end = frame.saturating_add(frame_bytes);
        self.with(|state| {
            state.io.counters.frames += 1;
            state.chunks.acknowledged(chunk.chunk.chunk, frame_end);
        });
        Ok(Placed { chunk: Arc::clone(chunk), frame, frame_end })
    }

    /// The pieces whose frames are gone, because their chunk was sealed below them. With
    /// [`Stability::Stable`] the chunks of all others are synced.
    async fn lost(&self, places: &Places, stability: Stability) -> Result<Vec<u64>, Code> {
        let chunks: BTreeSet<ChunkId> = places.values().map(|(_, placed)| placed.chunk_id()).collect();
        let mut lost = Vec::new();
        for chunk in chunks {
            let sealed = match stability {
                Stability::Visible => self.sealed_end(chunk).await,
                Stability::Stable => self.sync_chunk(chunk).await,
            };
            let sealed = match sealed {
                // Removed before anything of these frames was a file's.
                Err(Code::Stale) => Some(SealedEnd::default()),
                other => other?,
            };
            let Some(end) = sealed else { continue };
            let gone =
                |placed: &Placed| placed.chunk_id() == chunk && !end.keeps(&(placed.frame..placed.frame_end));
            lost.extend(places.iter().filter(|(_, (_, placed))| gone(placed)).map(|(start, _)| *start));
        }
        Ok(lost)
    }

    /// Syncs the chunks in which frames of this file lie that were committed before without being synced.
    async fn sync_earlier(&self, node: NodeId) -> Result<(), Code> {
        let (earlier, is_open) =
            self.with(|state| (state.files.unsynced_of(node), state.files.is_open(node)));
        let mut lost = false;
        // What is known to be kept of those that do not keep all: of those that were removed, nothing.
        let mut kept: BTreeMap<ChunkId, SealedEnd> = BTreeMap::new();
        for (chunk, end) in &earlier {
            match self.sync_chunk(*chunk).await {
                Err(Code::Stale) => drop(kept.insert(*chunk, SealedEnd::default())),
                sealed => match sealed?.filter(|sealed| !sealed.keeps(&(0..*end))) {
                    Some(sealed) if is_open && *end != UNKNOWN_END && sealed.ends_before(*end) => lost = true,
                    Some(sealed) => drop(kept.insert(*chunk, sealed)),
                    None => {}
                },
            }
        }
        // What nothing refers to any more was replaced since.
        lost |= !kept.is_empty() && self.refers_to_lost(node, &kept).await?;
        self.with(|state| state.files.earlier_synced(node, &earlier, lost));
        if lost { Err(Code::Io) } else { Ok(()) }
    }

    /// Makes a chunk stable, unless it was removed: then there is nothing to make stable.
    async fn sync_unless_gone(&self, chunk: ChunkId) -> Result<(), Code> {
        match self.sync_chunk(chunk).await {
            Ok(_) | Err(Code::Stale) => Ok(()),
            Err(code) => Err(code),
        }
    }

    async fn commit(&self, node: NodeId, job: &Job, places: &Places) -> Result<(), Code> {
        let extents: Vec<Extent> = places.values().map(|(piece, placed)| extent_of(piece, placed)).collect();
        let extents_max = self.with(|state| state.io.config.commit_extents_max);
        let mut parts: VecDeque<Vec<Extent>> = extents.chunks(extents_max).map(<[Extent]>::to_vec).collect();
        while let Some(part) = parts.pop_front() {
            let opened = opened_for(places, &part);
            let commit_ours = || self.with(|state| state.commit_ours(node, job, &part, opened.clone()));
            let mut ours = commit_ours();
            if !ours {
                // Its home hears of what was decided before first.
                self.catch_up(node).await;
                ours = commit_ours();
            }
            if ours {
                self.count_committed(&part);
                continue;
            }
            // What is dirty is open for writing; without a token it was made here, and lost before its home
            // heard of it. Asked for only now: the home may have heard of it while the frames were appended.
            let token = self.with(|state| state.files.write_token(node)).ok_or(Code::Io)?;
            let (extents, size_min) = relative(job, &part);
            let call = Call::Commit {
                node: job.handle,
                token,
                extents: extents.clone(),
                size_min,
                modified: job.modified,
                mode: job.mode,
                opened,
                set_ids: job.set_ids,
            };
            let key = vec![LeaseKey::File(node)];
            let committed = self.change(key, job.handle.home, call, |state, answered| {
                match answered.body {
                    Body::Node(view) => {
                        state.on_commit(job.mode, extents, size_min, &view);
                        state.take_node(&view, &answered.stamp);
                    }
                    // Whatever else it says, the extents are the file's now: the rest is asked for when it is
                    // needed.
                    _ => state.files.unknown_again(node, job.mode, size_min),
                }
            });
            match committed.await {
                // It covers more extents of before than are replaced at once. What is appended covers none.
                Err(Code::TooLarge) if job.mode == CommitMode::Put && is_divisible(&part) => {
                    let (first, second) = halves(part);
                    parts.push_front(second);
                    parts.push_front(first);
                }
                committed => {
                    committed?;
                    self.count_committed(&part);
                }
            }
        }
        Ok(())
    }

    fn count_committed(&self, extents: &[Extent]) {
        self.with(|state| {
            for extent in extents {
                state.chunks.committed(extent.chunk.chunk, u64::from(extent.length));
            }
        });
    }

    /// Makes every write of this client stable.
    pub(crate) async fn sync_all(&self) -> Result<(), Code> {
        let sync = self.sync_begins();
        let nodes = self.with(|state| state.files.known());
        let mut work: Vec<Work<_>> = Vec::new();
        for node in nodes {
            let context = self.clone();
            work.push(Box::pin(async move { context.write_out(node, Stability::Stable).await }));
        }
        let appends_max = self.with(|state| state.io.config.appends_max);
        let mut failed = None;
        for result in self.windowed(appends_max, work).await {
            failed = failed.or(result.err());
        }
        let left = self.with(|state| state.chunks.unsynced());
        for chunk in left {
            self.sync_unless_gone(chunk).await?;
        }
        failed = failed.or(self.sync_closed().await.err());
        let done = self.flush_all_steps().await;
        let lost = self.with(|state| {
            let State { files, chunks, .. } = state;
            files.tell_lost(|chunk| chunks.has_lost(chunk))
        });
        failed.map_or(done.and(lost).and(self.sync_ends(sync)), Err)
    }

    /// Finds what closed files have lost, once the chunks are stable or sealed. Who opens one of them next is
    /// told too.
    async fn sync_closed(&self) -> Result<(), Code> {
        let nodes = self.with(|state| {
            let State { files, chunks, .. } = state;
            files.forget_stable(|chunk| chunks.is_settled(chunk));
            files.left_unsynced()
        });
        let mut failed = Ok(());
        for node in nodes {
            if !self.with(|state| state.files.revive(node)) {
                continue;
            }
            let admitted = self.with(|state| state.admission(node)).is_some();
            let synced = self.write_out(node, Stability::Stable).await;
            failed = failed.and(self.with(|state| {
                let result = state.files.closed_synced(node, admitted, synced);
                state.files.drop_unused(node);
                result
            }));
        }
        failed
    }
}

fn is_divisible(extents: &[Extent]) -> bool {
    extents.len() > 1 || extents.iter().any(|extent| extent.length > 1)
}

/// The same bytes in two parts.
fn halves(mut extents: Vec<Extent>) -> (Vec<Extent>, Vec<Extent>) {
    if let [extent] = extents[..] {
        let length = extent.length / 2;
        let rest = Extent {
            file_offset: extent.file_offset + u64::from(length),
            length: extent.length - length,
            skip: extent.skip + length,
            ..extent
        };
        return (vec![Extent { length, ..extent }], vec![rest]);
    }
    let second = extents.split_off(extents.len() / 2);
    (extents, second)
}

impl State {
    /// Takes what is dirty out of the way of new writes. Nobody else writes the file out meanwhile.
    fn begin_flush(&mut self, node: NodeId) -> Option<Job> {
        let job = self.files.begin_flush(node, self.io.config.commit_extents_max)?;
        if !job.pieces.is_empty() {
            self.io.note(Note::WriteOut(node));
        }
        Some(job)
    }

    fn waits_for_servers(&self, deadline: Mono) -> bool {
        self.io.now.mono < deadline && !self.session.is_ending()
    }

    /// What was being written out is stored, or lost.
    fn end_flush(&mut self, node: NodeId, result: Result<(), Code>) {
        if let Some(code) = self.files.end_flush(node, result) {
            self.io.note(Note::WritesLost(node, code));
        }
    }

    /// A frame of given bytes, or of what is being written out.
    fn encode_frame(&self, node: NodeId, piece: &Piece, stored: Option<&[u8]>) -> Vec<u8> {
        let (last_name, now) = (self.cache.last_name(node), self.io.now.wall);
        let owner = self.files.frame_owner(node, piece, last_name, now);
        let Some(owner) = owner else { return Vec::new() };
        let mut frame = Vec::new();
        match stored {
            Some(payload) => frame::encode(&owner, payload, &mut frame),
            None => frame::encode_parts(&owner, self.files.flushing(node, piece), &mut frame),
        }
        frame
    }

    /// The same for a file that was made under a delegation: decided here.
    fn commit_ours(&mut self, node: NodeId, job: &Job, part: &[Extent], opened: Vec<Capability>) -> bool {
        let (extents, size_min) = relative(job, part);
        let Some(attributes) = self.commit_here(node, (&extents, opened), size_min, job.mode, job.set_ids)
        else {
            return false;
        };
        let view =
            NodeView { node: job.handle, attributes, lease: LeaseMs(0), may_open: false, extended: false };
        self.on_commit(job.mode, extents, size_min, &view);
        self.files.observe(node, &attributes, self.io.now.mono);
        true
    }

    /// Extents of ours are the file's now. Only this commit changed it, so its length tells where appended
    /// ones went.
    fn on_commit(&mut self, mode: CommitMode, mut extents: Vec<Extent>, size_min: u64, view: &NodeView) {
        if mode == CommitMode::Append {
            let base = view.attributes.size.saturating_sub(size_min);
            for extent in &mut extents {
                extent.file_offset += base;
            }
            self.files.count_appended(view.node.node, size_min);
        }
        self.files.committed(view.node.node, &extents, &view.attributes);
        self.locks.committed(view.node.node, view.attributes.version);
    }

    fn note_unsynced(&mut self, node: NodeId, places: &Places) {
        for (_, placed) in places.values() {
            self.files.note_unsynced(node, placed.chunk_id(), placed.frame_end);
        }
    }
}

/// A part of what is committed, and the length that the file has at least with it: counted from the file's
/// end if it is appended.
fn relative(job: &Job, part: &[Extent]) -> (Vec<Extent>, u64) {
    let first = match job.mode {
        CommitMode::Put => 0,
        CommitMode::Append => part.first().map_or(0, |extent| extent.file_offset),
    };
    let size_min = job.size_min.min(part.last().map_or(0, end_of)) - first;
    let moved = |extent: &Extent| Extent { file_offset: extent.file_offset - first, ..*extent };
    (part.iter().map(moved).collect(), size_min)
}

/// The right to append to a chunk of ours.
pub(super) fn append_right(chunk: &ChunkView) -> Result<Capability, DataFailure> {
    chunk.capability.clone().ok_or(DataFailure::Refused(DataError::Capability))
}

/// What shows that we filled the chunks of these extents.
fn opened_for(places: &Places, part: &[Extent]) -> Vec<Capability> {
    let chunks: BTreeSet<ChunkId> = part.iter().map(|extent| extent.chunk.chunk).collect();
    let views: BTreeMap<ChunkId, &ChunkView> =
        places.values().map(|(_, placed)| (placed.chunk_id(), &*placed.chunk)).collect();
    chunks.iter().filter_map(|chunk| views.get(chunk)?.capability.clone()).collect()
}

fn extent_of(piece: &Range<u64>, placed: &Placed) -> Extent {
    Extent {
        file_offset: piece.start,
        length: (piece.end - piece.start) as u32,
        chunk: placed.chunk.chunk,
        frame: placed.frame,
        skip: 0,
    }
}
