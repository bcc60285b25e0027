//! The side of a server that follows a chunk's primary: frames are applied in order of their offsets.
//!
//! Frames that came early wait for the gap to fill. Those not known to be acknowledged by all are remembered
//! by their checksum, so that a repeat is told from other bytes for the same place, which only a primary that
//! lost its log would send: that is refused.

use crate::check;
use crate::event::Payload;
use crate::state::{Asker, Backup, Chunk, Chunks, Cx, Phase, Recent, Role, Waiting};
use bearing_proto::Sender;
use bearing_proto::data::{DataBody, DataError};
use bearing_types::{ChunkId, Epoch, ServerId};

/// A replicated frame as it came.
pub(crate) struct Replicate {
    pub epoch: Epoch,
    pub offset: u64,
    pub committed: u64,
    pub crc: u32,
    pub bytes: Vec<u8>,
}

/// Takes a frame from the primary. The first one makes the chunk.
pub(crate) fn replicate(
    chunks: &mut Chunks,
    cx: &mut Cx<'_>,
    asker: Asker,
    id: ChunkId,
    replicate: Replicate,
) {
    let Sender::Server(primary) = asker.from else { return cx.refuse(asker, DataError::Capability) };
    if replicate.bytes.is_empty() {
        return announced(chunks, cx, (asker, primary), id, &replicate);
    }
    if cx.core.failed {
        return cx.refuse(asker, DataError::Failed);
    }
    if let Err(error) = check::frame(&replicate.bytes, replicate.crc, false) {
        return cx.refuse(asker, error);
    }
    if cx.core.held_bytes + replicate.bytes.len() as u64 > cx.core.config.held_bytes_max {
        return cx.drop_request();
    }
    // This server is said to have acknowledged frames of a chunk that it does not know.
    if !chunks.contains_key(&id) && replicate.committed > 0 {
        return cx.refuse(asker, DataError::NoChunk);
    }
    let chunk = chunks.entry(id).or_insert_with(|| {
        let mut chunk = Chunk::new(id, replicate.epoch, Role::Follows(Box::new(Backup::new(primary))));
        chunk.create(cx);
        chunk
    });
    match chunk.follows(primary, replicate.epoch, replicate.committed) {
        Ok(()) => chunk.replicate(cx, asker, replicate),
        Err(error) => cx.refuse(asker, error),
    }
}

/// The primary tells what all servers have, without a frame.
fn announced(
    chunks: &mut Chunks,
    cx: &mut Cx<'_>,
    (asker, primary): (Asker, ServerId),
    id: ChunkId,
    replicate: &Replicate,
) {
    let Some(chunk) = chunks.get_mut(&id) else { return cx.refuse(asker, DataError::NoChunk) };
    match chunk.follows(primary, replicate.epoch, replicate.committed) {
        Ok(()) => cx.reply(asker, Ok(DataBody::Done)),
        Err(error) => cx.refuse(asker, error),
    }
}

impl Chunk {
    /// Checks that a message is of the chunk's primary in this epoch, and learns what is acknowledged by all.
    pub fn follows(&mut self, primary: ServerId, epoch: Epoch, committed: u64) -> Result<(), DataError> {
        self.takes_appends(epoch)?;
        let Role::Follows(backup) = &mut self.role else { return Err(DataError::Capability) };
        if backup.primary != primary {
            return Err(DataError::Capability);
        }
        if committed > self.writer.written {
            return Err(DataError::BeyondEnd);
        }
        self.committed = self.committed.max(committed);
        while backup.recent.front().is_some_and(|recent| recent.end <= self.committed) {
            backup.recent.pop_front();
        }
        Ok(())
    }

    fn replicate(&mut self, cx: &mut Cx<'_>, asker: Asker, frame: Replicate) {
        let written = self.writer.written;
        let Role::Follows(backup) = &mut self.role else { return };
        if frame.offset < self.committed {
            // A late repeat, which nobody waits for, or a primary that begins anew and must not get on.
            return cx.refuse(asker, DataError::Sealed);
        }
        if self.writer.stalled {
            return cx.reply(asker, Err(DataError::Full));
        }
        if frame.offset < self.writer.issued {
            let known = backup.recent.iter_mut().find(|recent| recent.offset == frame.offset);
            match known.filter(|recent| recent.crc == frame.crc) {
                None => cx.refuse(asker, DataError::Sealed),
                Some(recent) if recent.end <= written => cx.reply(asker, Ok(DataBody::Done)),
                Some(recent) => recent.asker = Some(asker),
            }
            return;
        }
        let (config, bytes) = (&cx.core.config, frame.bytes.len() as u64);
        let known = backup.waiting.get(&frame.offset).map(|waiting| waiting.bytes.len() as u64);
        let room = backup.waiting.len() < config.gap_frames_max || known.is_some();
        if !room || backup.waiting_bytes + bytes > config.pipeline_bytes_max {
            return cx.drop_request();
        }
        let waiting = Waiting { asker, crc: frame.crc, bytes: frame.bytes.into() };
        backup.waiting.insert(frame.offset, waiting);
        backup.waiting_bytes = backup.waiting_bytes + bytes - known.unwrap_or(0);
        self.pump(cx);
    }

    /// Gives to the log what follows it without a gap.
    pub fn pump_follower(&mut self, cx: &mut Cx<'_>) {
        let mut moved = false;
        while let Some(bytes) = self.next_waiting(cx) {
            moved = true;
            self.write(cx, bytes);
        }
        let Role::Follows(backup) = &mut self.role else { return };
        backup.gap_since = match backup.gap_since {
            _ if backup.waiting.is_empty() => None,
            Some(since) if !moved => Some(since),
            _ => Some(cx.mono()),
        };
    }

    fn next_waiting(&mut self, cx: &Cx<'_>) -> Option<Payload> {
        let Role::Follows(backup) = &mut self.role else { return None };
        let under_way = self.writer.issued - self.writer.written;
        let busy = backup.recent.len() >= cx.core.config.recent_frames_max
            || under_way >= cx.core.config.pipeline_bytes_max;
        if self.writer.stalled || busy {
            return None;
        }
        let offset = self.writer.issued;
        let waiting = backup.waiting.remove(&offset)?;
        let bytes = waiting.bytes.len() as u64;
        backup.waiting_bytes -= bytes;
        let recent = Recent { offset, end: offset + bytes, crc: waiting.crc, asker: Some(waiting.asker) };
        backup.recent.push_back(recent);
        Some(waiting.bytes)
    }

    pub fn backup_wrote(&mut self, cx: &mut Cx<'_>) {
        if self.writer.in_flight == 0 {
            self.writer.stalled = false;
        }
        let written = self.writer.written;
        let Role::Follows(backup) = &mut self.role else { return };
        for recent in backup.recent.iter_mut().take_while(|recent| recent.end <= written) {
            if let Some(asker) = recent.asker.take() {
                cx.step("copy is here, not answered");
                cx.core.counters.replicated += 1;
                cx.reply(asker, Ok(DataBody::Done));
            }
        }
        self.pump(cx);
    }

    /// The disk here is full: the primary sends again what was not written.
    pub fn backup_full(&mut self, cx: &mut Cx<'_>) {
        let written = self.writer.written;
        let Role::Follows(backup) = &mut self.role else { return };
        let kept = backup.recent.partition_point(|recent| recent.end <= written);
        let unwritten: Vec<Recent> = backup.recent.drain(kept..).collect();
        for asker in unwritten.iter().filter_map(|recent| recent.asker) {
            cx.core.counters.full += 1;
            cx.reply(asker, Err(DataError::Full));
        }
        backup.refuse_waiting(cx, DataError::Full);
    }

    /// A gap that does not fill is the primary's to know.
    pub fn tick_follower(&mut self, cx: &mut Cx<'_>) {
        let now = cx.mono();
        let wake = self.wake(&cx.core.config);
        let Role::Follows(backup) = &mut self.role else { return };
        if self.phase == Phase::Open && wake.is_some_and(|at| at <= now) {
            backup.refuse_waiting(cx, DataError::BeyondEnd);
        }
    }
}
