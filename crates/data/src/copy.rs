//! Making a replica of a sealed chunk: its bytes are fetched from other replicas window by window, every
//! frame is checked, and only what is whole is written. When all of it is here it is sealed as the others
//! are; until then it is read by nobody.
//!
//! The metadata server asks again and again until it hears "done", so nothing of a copy has to survive a
//! restart: one that was cut short is cut to nothing and begun anew. A window that is damaged at one source
//! is taken from another; only what is damaged everywhere ends the copy. All copies of a server together
//! fetch no faster than `copy_bytes_per_second`.
//!
//! Chunks are compacted the same way: a chunk is made of some whole frames of another, sealed one. Each of
//! its servers does so by itself, and because which frames these are is given once and for all, they come to
//! the same bytes.

use crate::event::LogCommand;
use crate::scan::Found;
use crate::state::{Asked, AskedFor, Asker, Chunk, Chunks, Copier, CopyWanted, Cx, Job, Phase, Role};
use bearing_proto::Sender;
use bearing_proto::data::{DataBody, DataCall, DataError, DataRequest};
use bearing_seams::{End, EngineResult};
use bearing_types::ChunkId;
use std::time::Duration;

/// Takes a request for a copy.
pub(crate) fn copy(chunks: &mut Chunks, cx: &mut Cx<'_>, asker: Asker, id: ChunkId, wanted: CopyWanted) {
    let myself = wanted.origin.is_none() && wanted.sources.contains(&cx.core.server);
    if !matches!(asker.from, Sender::Server(_)) || wanted.sources.is_empty() || myself {
        return cx.refuse(asker, DataError::Capability);
    }
    match chunks.get_mut(&id) {
        Some(chunk) => chunk.copy_again(cx, asker, wanted),
        None if cx.core.failed => cx.refuse(asker, DataError::Failed),
        None => {
            let epoch = wanted.epoch;
            let copier = Copier { first: Some(asker), ..Copier::new(cx, wanted) };
            let mut chunk = Chunk::new(id, epoch, Role::Copies(Box::new(copier)));
            chunk.phase = Phase::Copying;
            chunk.create(cx);
            chunks.insert(id, chunk);
            cx.step("copy begins");
        }
    }
}

/// Gives another server raw bytes of a sealed chunk, or of a fenced replica that was too short to be sealed;
/// it checks the frames itself.
pub(crate) fn fetch(
    chunks: &Chunks,
    cx: &mut Cx<'_>,
    asker: Asker,
    id: ChunkId,
    (offset, length): (u64, u32),
) {
    let Some(chunk) = chunks.get(&id) else { return cx.refuse(asker, DataError::NoChunk) };
    // Of a window that reaches beyond what is here the first part is given: its frames may be damaged
    // elsewhere.
    let here = chunk.fetchable().saturating_sub(offset);
    let length_here = u64::from(length).min(here) as u32;
    if !matches!(asker.from, Sender::Server(_)) {
        return cx.refuse(asker, DataError::Capability);
    }
    if length_here == 0 || length > cx.core.config.scan_bytes {
        return cx.refuse(asker, DataError::BeyondEnd);
    }
    if cx.core.reads >= cx.core.config.reads_max {
        return cx.drop_request();
    }
    cx.core.reads += 1;
    cx.log(Job::Fetch(asker), LogCommand::Read { chunk: id, offset, length: length_here });
}

/// Bytes of another chunk here were read.
pub(crate) fn fetched_here(
    chunks: &mut Chunks,
    cx: &mut Cx<'_>,
    id: ChunkId,
    ask: u64,
    from: ChunkId,
    result: EngineResult<Vec<u8>>,
) {
    let here = chunks.get(&from).is_some_and(|chunk| chunk.fetchable() > 0);
    let (result, bytes) = match result {
        _ if !here => (Err(DataError::NoChunk), Vec::new()),
        Ok(bytes) => (Ok(DataBody::Bytes { crc: crc32c::crc32c(&bytes) }), bytes),
        Err(_) => (Err(DataError::Corrupt), Vec::new()),
    };
    if let Some(chunk) = chunks.get_mut(&id) {
        chunk.fetched(cx, ask, result, &bytes);
    }
}

/// The bytes that another server wants were read.
pub(crate) fn fetch_read(cx: &mut Cx<'_>, asker: Asker, result: EngineResult<Vec<u8>>) {
    cx.core.reads -= 1;
    match result {
        Ok(bytes) => {
            let crc = crc32c::crc32c(&bytes);
            cx.reply_with(asker, Ok(DataBody::Bytes { crc }), bytes.into());
        }
        Err(_) => cx.reply(asker, Err(DataError::Corrupt)),
    }
}

impl Chunk {
    /// Whether it is to become a copy, and the engine has not made it yet.
    pub fn is_unmade(&self) -> bool {
        matches!(&self.role, Role::Copies(copier) if copier.first.is_some())
    }

    /// A chunk that is here is asked to become a copy: it is one already, or on its way, or what an earlier
    /// life left.
    fn copy_again(&mut self, cx: &mut Cx<'_>, asker: Asker, wanted: CopyWanted) {
        let (epoch, headless, unmade) = (wanted.epoch, self.is_headless(), self.is_unmade());
        match (self.phase, &mut self.role) {
            // What is asked for late was given up since.
            (Phase::Sealed(0), _) if self.epoch >= epoch => cx.refuse(asker, DataError::NoChunk),
            (Phase::Sealed(length), _) if length >= wanted.length => cx.reply(asker, Ok(DataBody::Done)),
            (Phase::Copying, Role::Copies(_)) if unmade => cx.drop_request(),
            (Phase::Copying, Role::Copies(copier)) if copier.length == wanted.length => {
                copier.sources = wanted.sources;
                cx.reply(asker, Ok(DataBody::Busy { done: self.writer.written }));
            }
            (Phase::Removing | Phase::Naming, _) => cx.drop_request(),
            (_, _) if headless => self.begin_forgetting(cx),
            (_, _) if self.epoch > epoch => cx.refuse(asker, DataError::NoChunk),
            (Phase::Fenced { settled: true }, _) if self.epoch == epoch && self.writer.written == 0 => {
                self.role = Role::Copies(Box::new(Copier::new(cx, wanted)));
                self.phase = Phase::Copying;
                cx.step("copy begins");
                cx.reply(asker, Ok(DataBody::Busy { done: 0 }));
                self.pump_copy(cx);
            }
            (Phase::Broken(why @ (DataError::Full | DataError::Failed | DataError::Corrupt)), _) => {
                cx.reply(asker, Err(why));
                self.begin_anew(cx, epoch);
            }
            _ => {
                cx.reply(asker, Ok(DataBody::Busy { done: 0 }));
                self.begin_anew(cx, epoch);
            }
        }
    }

    /// Asks for the next window, or seals what is complete.
    pub fn pump_copy(&mut self, cx: &mut Cx<'_>) {
        let (id, now) = (self.id, cx.mono());
        let Role::Copies(copier) = &mut self.role else { return };
        if copier.sealing || copier.asked.is_some() || self.writer.in_flight > 0 {
            return;
        }
        if copier.scan.verified() >= copier.length {
            copier.sealing = true;
            let (epoch, length, end) = (copier.epoch, copier.length, End::Sealed { restarted: false });
            return cx.log(Job::Copied(id), LogCommand::Set { chunk: id, epoch, length, end });
        }
        let (offset, from, at, length) = copier.want(id);
        copier.next_at = copier.next_at.max(cx.core.copy_free_at);
        if copier.next_at > now {
            return;
        }
        let takes = u64::from(length) * 1_000_000_000 / cx.core.config.copy_bytes_per_second.max(1);
        cx.core.copy_free_at = now.after(Duration::from_nanos(takes));
        let server = copier.sources[copier.source % copier.sources.len()];
        let ask = cx.ask_id(Asked { chunk: id, server, what: AskedFor::CopyPart });
        copier.asked = Some((ask, now, offset));
        if server == cx.core.server {
            let job = Job::FetchHere { chunk: id, ask, from };
            return cx.log(job, LogCommand::Read { chunk: from, offset: at, length });
        }
        let call = DataCall::Fetch { offset: at, length };
        cx.send(server, DataRequest { id: ask, chunk: from, call }, crate::Payload::default());
    }

    /// A source that is silent is passed over for another one.
    pub fn tick_copy(&mut self, cx: &mut Cx<'_>) {
        let now = cx.mono();
        let Role::Copies(copier) = &mut self.role else { return };
        if let Some((id, sent, _)) = copier.asked
            && sent.after(cx.core.config.copy_timeout) <= now
        {
            cx.core.asked.remove(&id);
            copier.asked = None;
            copier.source += 1;
        }
        self.pump_copy(cx);
    }

    /// A window came, or was refused.
    pub fn fetched(&mut self, cx: &mut Cx<'_>, id: u64, result: Result<DataBody, DataError>, bytes: &[u8]) {
        let now = cx.mono();
        let Role::Copies(copier) = &mut self.role else { return };
        let Some((_, _, offset)) = copier.asked.take_if(|(asked, _, _)| *asked == id) else { return };
        cx.core.asked.remove(&id);
        let whole = matches!(result, Ok(DataBody::Bytes { crc }) if crc32c::crc32c(bytes) == crc);
        if !whole {
            let damaged =
                matches!(result, Err(DataError::Corrupt | DataError::NoChunk | DataError::BeyondEnd));
            copier.turn_to_next_source(now, &cx.core.config);
            return self.found_damaged(cx, damaged);
        }
        let before = copier.scan.clone();
        let found = copier.scan.take(bytes);
        let good = match found {
            Found::More => true,
            Found::End(end) => end == copier.length,
            Found::Newer => false,
        };
        if !good {
            copier.scan = before;
        }
        if let Found::End(end) = found {
            copier.scan.whole_up_to(end);
        }
        let verified = copier.scan.verified();
        let from = (self.writer.issued - offset) as usize;
        // A frame ends with zeros that no checksum covers and that a window may leave out.
        let mut fresh = bytes.get(from..).unwrap_or_default().to_vec();
        fresh.resize((verified - self.writer.issued) as usize, 0);
        if !fresh.is_empty() {
            copier.damaged = 0;
            cx.core.counters.copied_bytes += fresh.len() as u64;
            self.write(cx, fresh.into());
        }
        if good {
            return self.pump_copy(cx);
        }
        if let Role::Copies(copier) = &mut self.role {
            copier.turn_to_next_source(now, &cx.core.config);
        }
        self.found_damaged(cx, true);
    }

    /// What is damaged or missing at every source cannot be copied.
    fn found_damaged(&mut self, cx: &mut Cx<'_>, damaged: bool) {
        let Role::Copies(copier) = &mut self.role else { return };
        copier.damaged += usize::from(damaged);
        if copier.damaged >= copier.sources.len().max(2) * 2 {
            self.give_up(cx, DataError::Corrupt);
        }
    }

    /// The copy is sealed, or could not be.
    pub fn copied(&mut self, cx: &mut Cx<'_>, result: EngineResult<()>) {
        let Role::Copies(copier) = &self.role else { return };
        let (epoch, length) = (copier.epoch, copier.length);
        match result {
            Ok(()) => {
                self.role = Role::Nothing;
                self.epoch = epoch;
                self.committed = length;
                self.phase = Phase::Sealed(length);
                cx.core.counters.copies += 1;
                cx.step("copy kept, not told");
            }
            Err(error) => {
                let answer = self.engine_refused(cx, &error);
                self.give_up(cx, answer);
            }
        }
    }
}
