//! What becomes of a chunk as the log answers: made, named, written to, or given up.

use crate::event::LogCommand;
use crate::state::{Chunk, Cx, Job, Phase, Role};
use bearing_proto::data::{DataBody, DataError};
use bearing_seams::{EngineError, EngineResult};

impl Chunk {
    pub fn create(&mut self, cx: &mut Cx<'_>) {
        cx.log(Job::Create(self.id), LogCommand::Create { chunk: self.id, epoch: self.epoch });
    }

    /// The engine made the chunk, or could not: then it is forgotten.
    pub fn created(&mut self, cx: &mut Cx<'_>, result: EngineResult<()>) {
        match result {
            Ok(()) => {
                self.answer_copy(cx, Ok(DataBody::Busy { done: 0 }));
                cx.log(Job::Name(self.id), LogCommand::Sync { chunk: self.id });
            }
            Err(error) => {
                let answer = self.engine_refused(cx, &error);
                self.answer_copy(cx, Err(answer));
                self.close(cx, answer);
                // Nothing is here, but without a record of that on the disk what is on its way may yet make
                // the chunk, after a restart too: who fences or removes it comes again.
                self.refuse_cuts(cx, answer);
                self.removers.drain(..).for_each(|(asker, _)| cx.reply(asker, Err(answer)));
                self.gone = true;
            }
        }
    }

    /// The metadata server that asked for a copy hears whether it goes on.
    fn answer_copy(&mut self, cx: &mut Cx<'_>, answer: Result<DataBody, DataError>) {
        if let Role::Copies(copier) = &mut self.role
            && let Some(first) = copier.first.take()
        {
            cx.reply(first, answer);
        }
    }

    /// The chunk's name is stable, or cannot be.
    pub fn named(&mut self, cx: &mut Cx<'_>, result: EngineResult<()>) {
        if self.phase == Phase::Naming {
            // They come again.
            self.removers.clear();
        }
        match result {
            Ok(()) if self.phase == Phase::Naming => {
                self.phase = Phase::Open;
                cx.step("chunk is named");
            }
            Ok(()) => {}
            Err(error) => self.sync_failed(cx, &error),
        }
        // A fence that came meanwhile comes first.
        self.next_cut(cx);
        self.pump(cx);
    }

    /// Goes on with whatever waits for the log.
    pub fn pump(&mut self, cx: &mut Cx<'_>) {
        if !matches!(self.phase, Phase::Open | Phase::Copying) {
            return;
        }
        match self.role {
            Role::Nothing => {}
            Role::Copies(_) => self.pump_copy(cx),
            Role::Leads(_) => self.pump_leader(cx),
            Role::Follows(_) => self.pump_follower(cx),
        }
    }

    pub fn written(&mut self, cx: &mut Cx<'_>, offset: u64, end: u64, result: EngineResult<()>) {
        self.writer.in_flight -= 1;
        match result {
            Ok(()) => {
                assert_eq!(offset, self.writer.written, "the engine appended to {} out of order", self.id);
                self.writer.written = end;
            }
            // After a refusal, all that was issued behind it fails too, for want of what lies before.
            Err(_) if self.writer.stalled => {}
            Err(error) => {
                self.writer.stalled = true;
                let answer = self.engine_refused(cx, &error);
                self.write_refused(cx, answer);
            }
        }
        if self.writer.in_flight == 0 && self.writer.stalled {
            self.writer.issued = self.writer.written;
        }
        match self.role {
            Role::Nothing => {}
            Role::Copies(_) => self.pump_copy(cx),
            Role::Leads(_) => self.primary_wrote(cx),
            Role::Follows(_) => self.backup_wrote(cx),
        }
        self.next_cut(cx);
    }

    fn write_refused(&mut self, cx: &mut Cx<'_>, answer: DataError) {
        if answer != DataError::Full {
            return self.give_up(cx, answer);
        }
        match self.role {
            Role::Nothing => {}
            Role::Copies(_) => self.give_up(cx, answer),
            Role::Leads(_) => self.primary_full(cx),
            Role::Follows(_) => self.backup_full(cx),
        }
    }

    /// What to answer for an engine's refusal of a write; a failed disk takes no more appends.
    pub fn engine_refused(&mut self, cx: &mut Cx<'_>, error: &EngineError) -> DataError {
        match error {
            EngineError::Full { .. } => {
                cx.note(crate::Note::DiskFull { chunk: self.id });
                DataError::Full
            }
            EngineError::Corrupt { .. } => {
                cx.disk_failed(error);
                DataError::Corrupt
            }
            EngineError::NewerVersion { .. }
            | EngineError::Foreign { .. }
            | EngineError::Unavailable { .. }
            | EngineError::Busy { .. }
            | EngineError::Failed { .. } => {
                cx.disk_failed(error);
                DataError::Failed
            }
        }
    }

    /// After a failed sync the system may have dropped what it could not write: nothing here is known to be
    /// stable.
    pub fn sync_failed(&mut self, cx: &mut Cx<'_>, error: &EngineError) {
        cx.disk_failed(error);
        self.stained = true;
        self.scanned = false;
        self.give_up(cx, DataError::Failed);
    }

    /// No more appends under this epoch; all who wait are told why.
    pub fn give_up(&mut self, cx: &mut Cx<'_>, why: DataError) {
        self.close(cx, why);
        if matches!(self.phase, Phase::Naming | Phase::Open | Phase::Copying) {
            self.phase = Phase::Broken(why);
        }
    }

    /// Lays the role down and answers all who wait for it.
    pub fn close(&mut self, cx: &mut Cx<'_>, why: DataError) {
        match std::mem::replace(&mut self.role, Role::Nothing) {
            Role::Nothing => {}
            Role::Copies(copier) => copier.close(cx),
            Role::Leads(primary) => primary.close(cx, why),
            Role::Follows(backup) => backup.close(cx, why),
        }
    }

    pub fn tick(&mut self, cx: &mut Cx<'_>) {
        match self.role {
            Role::Nothing => {}
            Role::Copies(_) => self.tick_copy(cx),
            Role::Leads(_) => self.tick_leader(cx),
            Role::Follows(_) => self.tick_follower(cx),
        }
    }

    /// Writes the next bytes.
    pub fn write(&mut self, cx: &mut Cx<'_>, bytes: crate::Payload) {
        let offset = self.writer.issued;
        let end = offset + bytes.len() as u64;
        self.writer.issued = end;
        self.writer.in_flight += 1;
        cx.log(
            Job::Write { chunk: self.id, offset, end },
            LogCommand::Append { chunk: self.id, offset, bytes },
        );
    }
}
