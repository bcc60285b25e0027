//! Fences, seals and removals, from metadata servers.
//!
//! A *fence* stops appends at once; when the log is at rest, it is scanned in depth if a restart or a failed
//! sync may have torn it, cut behind the furthest whole frame and kept stable under the new epoch; then it is
//! told where that frame ends, and what before it is damaged. A *seal* does the same and says that the chunk
//! ends at the length given. Both are taken one at a time for a chunk, and judged again after each piece of
//! work, so that a repeat finds the work done.
//!
//! A fence of a sealed chunk stops nothing: it is read from end to end and told what of it is whole, for the
//! metadata server that looks for what can be saved of a chunk that nobody has whole.
//!
//! A replica that is damaged is never cut at the damage: what follows may be nowhere else. It is sealed with
//! the others, says "corrupt" to whoever wants it sealed, and is made anew from them. Its other frames are
//! read, and copied from it, as long as it is there.
//!
//! Neither cuts what is whole here: tries to seal a chunk may follow each other, their messages be late, and
//! hear different servers, and the one that found the shorter length may be the one that is not recorded.
//! Bytes beyond the recorded length stay; nobody refers to them, and capabilities end there. For the same
//! reason a restart forgets nothing of what was told: what a fence kept stable counts as before, and what was
//! fenced or sealed after a restart says so as long as it lies here.
//!
//! A *removal* leaves a grave: the chunk sealed at length 0, under the epoch of the removal. What comes late
//! (an append of a writer that missed all that, a copy that was called off) must not bring the chunk back to
//! life: its bytes would lie where readers look for others. Graves are kept for `grave_ttl`, longer than any
//! right to append lives and any network keeps a packet.
//!
//! A fence of an unknown chunk makes an empty one under the new epoch, because a late first append must not
//! bring the chunk to life. It is answered "no such chunk", and so is every fence of a chunk of which nothing
//! is here: the disk may have been emptied, or be an older one, so that says nothing of the length.

use crate::event::{LogCommand, Note};
use crate::scan::{DeepScan, DeepScanStep};
use crate::state::{Asker, Chunk, Chunks, Cut, Cx, Job, Phase, Role, Stage, Writer};
use bearing_proto::Sender;
use bearing_proto::data::{DataBody, DataError};
use bearing_seams::{End, EngineError, EngineResult};
use bearing_types::{ChunkId, Epoch};
use std::ops::Range;
use std::time::Duration;

/// A sealed chunk that is fenced is read anew after so long.
const DEEP_SCAN_INTERVAL: Duration = Duration::from_secs(10);

/// What a cut needs next.
enum Verdict {
    Answer(Result<DataBody, DataError>),
    Wait,
    Scan,
    Fence,
    Seal { length: u64 },
}

/// Takes a fence (`seal` is none) or a seal.
pub(crate) fn cut(
    chunks: &mut Chunks,
    cx: &mut Cx<'_>,
    asker: Asker,
    id: ChunkId,
    (epoch, seal): (Epoch, Option<u64>),
) {
    if !matches!(asker.from, Sender::Server(_)) {
        return cx.refuse(asker, DataError::Capability);
    }
    if !chunks.contains_key(&id) && seal.is_some() {
        return cx.refuse(asker, DataError::NoChunk);
    }
    if chunks.get(&id).is_some_and(Chunk::is_headless) {
        return cx.refuse(asker, DataError::Corrupt);
    }
    let chunk = chunks.entry(id).or_insert_with(|| {
        let mut chunk = Chunk::new(id, epoch, Role::Nothing);
        chunk.create(cx);
        chunk
    });
    if chunk.cuts.iter().any(|cut| cut.asker == asker) {
        return;
    }
    if chunk.cuts.len() >= cx.core.config.cuts_waiting_max {
        return cx.drop_request();
    }
    // Whoever fences what is sealed wants to know what of it is whole now. He asks again until he hears of
    // it.
    let now = cx.mono();
    let is_old = chunk.deep_scanned.is_none_or(|at| now.since(at) >= DEEP_SCAN_INTERVAL);
    if seal.is_none() && is_old && matches!(chunk.phase, Phase::Sealed(1..)) {
        chunk.scanned = false;
    }
    chunk.cuts.push_back(Cut { asker, epoch, seal, stage: Stage::Waiting });
    chunk.next_cut(cx);
}

/// Takes a removal. One that comes late must not take away what was copied here since.
pub(crate) fn remove(chunks: &mut Chunks, cx: &mut Cx<'_>, asker: Asker, id: ChunkId, epoch: Epoch) {
    if !matches!(asker.from, Sender::Server(_)) {
        return cx.refuse(asker, DataError::Capability);
    }
    if cx.core.failed && !chunks.contains_key(&id) {
        return cx.refuse(asker, DataError::Failed);
    }
    let chunk = chunks.entry(id).or_insert_with(|| {
        // Also what was never here gets a grave: a first append may still be on its way.
        let mut chunk = Chunk::new(id, epoch, Role::Nothing);
        chunk.create(cx);
        chunk
    });
    match chunk.epoch > epoch || (chunk.phase == Phase::Sealed(0) && chunk.epoch == epoch) {
        true => cx.reply(asker, Ok(DataBody::Done)),
        false => chunk.remove(cx, asker, epoch),
    }
}

/// Graves that are old enough are forgotten, and the others counted from now on if that was not known.
pub(crate) fn clear_graves(chunks: &mut Chunks, cx: &mut Cx<'_>) {
    let now = cx.mono();
    while let Some((due, id)) = cx.core.graves.first().copied()
        && due <= now
    {
        cx.core.graves.pop_first();
        if let Some(chunk) = chunks.get_mut(&id)
            && chunk.phase == Phase::Sealed(0)
        {
            chunk.begin_forgetting(cx);
        }
    }
}

impl Chunk {
    /// Goes on with the cuts that wait.
    pub fn next_cut(&mut self, cx: &mut Cx<'_>) {
        while let Some(Cut { epoch, seal, stage: Stage::Waiting, .. }) = self.cuts.front() {
            let (epoch, seal) = (*epoch, *seal);
            if epoch >= self.epoch && matches!(self.phase, Phase::Open | Phase::Broken(_)) {
                self.close(cx, DataError::Sealed);
                self.phase = Phase::Fenced { settled: false };
                cx.step("appends stopped");
            }
            let stage = match self.judge(epoch, seal) {
                Verdict::Wait => return,
                Verdict::Answer(result) => {
                    self.answer_cut(cx, result);
                    continue;
                }
                Verdict::Scan => {
                    cx.step("scan after a restart begins");
                    cx.core.scans_waiting.push_back(self.id);
                    Stage::Scanning(Box::new(DeepScan::new(self.writer.written, cx.core.config.scan_bytes)))
                }
                Verdict::Fence => {
                    self.set(cx, epoch, self.writer.written, End::Fenced { restarted: self.stained })
                }
                Verdict::Seal { length } => {
                    self.set(cx, epoch, length, End::Sealed { restarted: self.stained })
                }
            };
            if let Some(cut) = self.cuts.front_mut() {
                cut.stage = stage;
            }
        }
    }

    fn set(&self, cx: &mut Cx<'_>, epoch: Epoch, length: u64, end: End) -> Stage {
        let chunk = self.id;
        cx.log(Job::Set(chunk), LogCommand::Set { chunk, epoch, length, end });
        Stage::Setting { length, end }
    }

    fn judge(&self, epoch: Epoch, seal: Option<u64>) -> Verdict {
        match self.phase {
            Phase::Naming => Verdict::Wait,
            Phase::Copying | Phase::Removing => Verdict::Answer(Err(DataError::NoChunk)),
            Phase::Sealed(length) => self.judge_sealed(epoch, seal, length),
            Phase::Open | Phase::Broken(_) | Phase::Fenced { .. } => self.judge_unsealed(epoch, seal),
        }
    }

    fn judge_sealed(&self, epoch: Epoch, seal: Option<u64>, length: u64) -> Verdict {
        if !self.scanned && length > 0 {
            return Verdict::Scan;
        }
        match seal {
            Some(at) if at == length && epoch <= self.epoch => Verdict::Answer(self.sealed_at(at)),
            _ if epoch < self.epoch => Verdict::Answer(Err(DataError::Sealed)),
            // It was removed here.
            Some(at) if at > length && length == 0 => Verdict::Answer(Err(DataError::NoChunk)),
            // The file may have lost its end.
            Some(at) if at > length.min(self.writer.written) => Verdict::Answer(Err(DataError::Corrupt)),
            Some(at) if epoch > self.epoch => Verdict::Seal { length: at },
            Some(at) => Verdict::Answer(self.sealed_at(at)),
            // Nothing is appended to it under any epoch: nothing has to be kept stable for this.
            None => Verdict::Answer(self.fenced()),
        }
    }

    /// It is sealed, and all below is here.
    fn sealed_at(&self, length: u64) -> Result<DataBody, DataError> {
        let damaged = self.damaged.iter().any(|range| range.start < length);
        if damaged { Err(DataError::Corrupt) } else { Ok(DataBody::Done) }
    }

    /// What is here of a chunk that takes no appends any more.
    fn fenced(&self) -> Result<DataBody, DataError> {
        if self.writer.written == 0 {
            return Err(DataError::NoChunk);
        }
        let damaged = self.damaged.iter().map(|range| (range.start, range.end)).collect();
        Ok(DataBody::Fenced { length: self.writer.written, restarted: self.stained, damaged })
    }

    fn judge_unsealed(&self, epoch: Epoch, seal: Option<u64>) -> Verdict {
        let length = self.writer.written;
        if epoch < self.epoch {
            return Verdict::Answer(Err(DataError::Sealed));
        }
        if self.writer.in_flight > 0 {
            return Verdict::Wait;
        }
        if !self.scanned {
            return Verdict::Scan;
        }
        let settled = self.phase == Phase::Fenced { settled: true } && epoch == self.epoch;
        match seal {
            Some(at) if at <= length => Verdict::Seal { length },
            Some(_) if settled => Verdict::Answer(Err(DataError::Corrupt)),
            None if settled => Verdict::Answer(self.fenced()),
            Some(_) | None => Verdict::Fence,
        }
    }

    fn answer_cut(&mut self, cx: &mut Cx<'_>, result: Result<DataBody, DataError>) {
        let Some(cut) = self.cuts.pop_front() else { return };
        match (&result, cut.seal) {
            (Ok(_), Some(_)) => cx.core.counters.seals += 1,
            (Ok(_), None) => cx.core.counters.fences += 1,
            (Err(DataError::Corrupt), Some(sealed)) if sealed > self.writer.written => {
                cx.core.counters.corrupt += 1;
                cx.core.damaged.insert(self.id);
                cx.note(Note::Short { chunk: self.id, held: self.writer.written, sealed });
            }
            (Err(DataError::Corrupt), Some(_)) => {
                cx.damaged(self.id, self.damaged.first().map_or(0, |range| range.start));
            }
            // It keeps the fence.
            (Err(DataError::NoChunk), None) => {
                cx.core.counters.fences += 1;
                cx.step("fenced, nothing of it is here");
            }
            (Err(_), _) => {}
        }
        cx.reply(cut.asker, result);
    }

    /// The engine has cut the log and kept the epoch, or could not.
    pub fn was_set(&mut self, cx: &mut Cx<'_>, result: EngineResult<()>) {
        let Some(cut) = self.cuts.front_mut() else { return };
        let Stage::Setting { length, end } = std::mem::replace(&mut cut.stage, Stage::Waiting) else {
            return;
        };
        let (epoch, sealed) = (cut.epoch, end.is_sealed());
        match result {
            Ok(()) => {
                cx.step(if sealed { "seal kept, not answered" } else { "fence kept, not answered" });
                self.epoch = self.epoch.max(epoch);
                self.writer.written = length;
                self.writer.issued = length;
                self.committed = if sealed { length } else { self.committed.min(length) };
                self.phase = if sealed { Phase::Sealed(length) } else { Phase::Fenced { settled: true } };
            }
            Err(error) => {
                let answer = self.engine_refused(cx, &error);
                self.answer_cut(cx, Err(answer));
            }
        }
        self.next_cut(cx);
    }

    /// Reads the next piece of a scan, if one is wanted.
    pub fn scan(&mut self, cx: &mut Cx<'_>) {
        let Some(Cut { stage: Stage::Scanning(scan), .. }) = self.cuts.front() else { return };
        let (chunk, (offset, length)) = (self.id, scan.want());
        cx.core.scans += 1;
        cx.log(Job::Scan(chunk), LogCommand::Read { chunk, offset, length });
    }

    /// A piece of a scan was read.
    pub fn scanned(&mut self, cx: &mut Cx<'_>, result: EngineResult<Vec<u8>>) {
        let Some(Cut { stage: Stage::Scanning(deep_scan), .. }) = self.cuts.front_mut() else { return };
        let found = match result {
            Ok(bytes) => deep_scan.take(&bytes),
            Err(EngineError::Corrupt { .. }) => deep_scan.pass_over(),
            // It says nothing of the bytes.
            Err(_) => return self.scan_failed(cx, DataError::Failed),
        };
        match found {
            DeepScanStep::More => self.scan(cx),
            DeepScanStep::Newer => self.scan_failed(cx, DataError::Failed),
            DeepScanStep::End(length, damaged) => self.deep_scanned(cx, length, damaged),
        }
    }

    /// It is known which frames are whole.
    fn deep_scanned(&mut self, cx: &mut Cx<'_>, length: u64, damaged: Vec<Range<u64>>) {
        let before = self.writer.written;
        self.deep_scanned = Some(cx.mono());
        self.damaged = damaged;
        // What was whole when it was fenced is not all here any more.
        self.stained |= length < before || !self.damaged.is_empty();
        if !self.damaged.is_empty() {
            cx.step("damage within an unsealed chunk, nobody told");
        }
        match self.phase {
            Phase::Sealed(sealed) => {
                if length < sealed {
                    self.damaged.push(length..sealed);
                }
                if let Some(first) = self.damaged.first() {
                    cx.damaged(self.id, first.start);
                }
            }
            _ => {
                if length < before {
                    cx.note(Note::Cut { chunk: self.id, before, after: length });
                }
                self.writer.written = length;
                self.writer.issued = length;
            }
        }
        self.scanned = true;
        cx.step("scanned after a restart");
        self.wait_again();
        self.next_cut(cx);
    }

    fn scan_failed(&mut self, cx: &mut Cx<'_>, error: DataError) {
        cx.corrupt(self.id, 0);
        self.answer_cut(cx, Err(error));
        self.next_cut(cx);
    }

    fn wait_again(&mut self) {
        if let Some(cut) = self.cuts.front_mut() {
            cut.stage = Stage::Waiting;
        }
    }

    /// Answers all fences and seals that wait.
    pub fn refuse_cuts(&mut self, cx: &mut Cx<'_>, why: DataError) {
        for cut in std::mem::take(&mut self.cuts) {
            cx.reply(cut.asker, Err(why));
        }
    }

    fn remove(&mut self, cx: &mut Cx<'_>, asker: Asker, epoch: Epoch) {
        match self.phase {
            Phase::Broken(_) if self.is_headless() => self.begin_forgetting(cx),
            // What the engine may yet refuse to make is not removed: a removal could meet what is made
            // anew. The asker comes again.
            Phase::Copying if self.is_unmade() => cx.drop_request(),
            // In the first case the engine may yet refuse to make it, too.
            Phase::Naming | Phase::Removing => {
                if self.removers.len() >= cx.core.config.removers_max {
                    cx.drop_request();
                } else if !self.removers.contains(&(asker, epoch)) {
                    self.removers.push((asker, epoch));
                }
            }
            Phase::Open | Phase::Broken(_) | Phase::Fenced { .. } | Phase::Copying | Phase::Sealed(_) => {
                self.removers.push((asker, epoch));
                self.leave(cx);
                let end = End::Sealed { restarted: false };
                cx.log(Job::Remove(self.id, epoch), self.cut_to_nothing(epoch, end));
            }
        }
    }

    /// All that waits for the chunk is told that it is gone.
    fn leave(&mut self, cx: &mut Cx<'_>) {
        self.close(cx, DataError::NoChunk);
        self.refuse_cuts(cx, DataError::NoChunk);
        self.phase = Phase::Removing;
    }

    fn cut_to_nothing(&self, epoch: Epoch, end: End) -> LogCommand {
        LogCommand::Set { chunk: self.id, epoch, length: 0, end }
    }

    /// What is here is of no use, and a copy takes its place; nothing else can meanwhile.
    pub fn begin_anew(&mut self, cx: &mut Cx<'_>, epoch: Epoch) {
        self.leave(cx);
        cx.log(Job::Anew(self.id, epoch), self.cut_to_nothing(epoch, End::Open));
    }

    pub fn begin_forgetting(&mut self, cx: &mut Cx<'_>) {
        self.leave(cx);
        cx.log(Job::Forget(self.id), LogCommand::Remove { chunk: self.id });
    }

    /// The engine has cut the chunk to nothing, or could not: then it stays until asked again.
    pub fn removed(&mut self, cx: &mut Cx<'_>, epoch: Epoch, result: EngineResult<()>) {
        let answer = match result {
            Ok(()) => {
                self.is_nothing(epoch);
                self.phase = Phase::Sealed(0);
                cx.core.damaged.remove(&self.id);
                cx.core.graves.insert((cx.now.mono.after(cx.core.config.grave_ttl), self.id));
                cx.core.counters.removed += 1;
                cx.step("removed, not answered");
                Ok(DataBody::Done)
            }
            Err(error) => Err(self.not_removed(cx, &error)),
        };
        // Who removes it under a newer epoch comes again: the grave must be of that epoch.
        for (asker, _) in
            std::mem::take(&mut self.removers).into_iter().filter(|(_, wanted)| *wanted <= epoch)
        {
            cx.reply(asker, answer.clone());
        }
    }

    /// There is room for a copy, or not; whoever wants it asks again.
    pub fn emptied(&mut self, cx: &mut Cx<'_>, epoch: Epoch, result: EngineResult<()>) {
        match result {
            Ok(()) => {
                self.is_nothing(epoch);
                cx.core.damaged.remove(&self.id);
                self.phase = Phase::Fenced { settled: true };
            }
            Err(error) => drop(self.not_removed(cx, &error)),
        }
        // Who wanted it removed meanwhile asks again.
        self.removers.clear();
    }

    /// A grave is gone.
    pub fn forgotten(&mut self, cx: &mut Cx<'_>, result: EngineResult<()>) {
        match result {
            Ok(()) => self.gone = true,
            Err(error) => drop(self.not_removed(cx, &error)),
        }
        self.removers.clear();
    }

    fn is_nothing(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        self.writer = Writer::default();
        self.committed = 0;
        (self.stained, self.scanned, self.checked) = (false, true, None);
        self.damaged.clear();
    }

    fn not_removed(&mut self, cx: &mut Cx<'_>, error: &EngineError) -> DataError {
        let answer = self.engine_refused(cx, error);
        self.phase = Phase::Broken(answer);
        self.stained = true;
        self.scanned = false;
        answer
    }
}
