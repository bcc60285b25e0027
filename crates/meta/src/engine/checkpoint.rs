//! Checkpoints of tablets: what a tablet has goes to data servers every few minutes, so that a cluster that
//! has lost all its metadata servers' disks is recovered from data servers alone.

use crate::decide::{CheckpointOutcome, CheckpointStep, JobWork};
use crate::engine::machine::MetaServer;
use crate::event::{Command, LoadResult, LoadTicket, Note};
use crate::mutant::Mutant;
use crate::record::{CheckpointHeader, KEYS_END};
use crate::replication::part_of;
use crate::tablet::{Draft, NextStep, Phase, Stage, Tablet};
use bearing_proto::tablets::CheckpointView;
use bearing_seams::KeyRange;
use bearing_types::{Mono, Now, Position};
use std::time::Duration;

/// Tablets of one server whose checkpoints are written at the same time.
const WRITING_MAX: usize = 2;
/// Of the interval, this part passes before one that failed is tried again.
const AGAIN_PART: u32 = 10;
/// And so long passes where there was none to write to.
const UNBEGUN_PAUSE: Duration = Duration::from_secs(1);
/// A step that a data server refuses, or does not answer, is repeated so often.
const TRIES_MAX: u32 = 4;

impl MetaServer {
    /// An operator wants all of them now.
    pub(crate) fn ask_checkpoints(&mut self, now: Now) {
        for tablet in self.tablets.values_mut() {
            (tablet.checkpoint.asked, tablet.checkpoint.due) = (true, now.mono);
        }
    }

    /// Begins what is due in a tablet.
    pub(crate) fn tend_checkpoint(&mut self, now: Now, start: Position) {
        let writing = self.tablets.values().filter(|tablet| tablet.checkpoint.draft.is_some());
        let is_crowded = writing.count() >= WRITING_MAX;
        let Some(tablet) = self.tablets.get(&start) else { return };
        let state = &tablet.checkpoint;
        if state.stage != Stage::Idle || !matches!(tablet.phase, Phase::Serving) {
            return;
        }
        let is_bad = |server, chunk| {
            self.health.is_lost(server) || self.health.leaves(server) || self.health.is_damaged(server, chunk)
        };
        let mut held =
            state.chunks.iter().flat_map(|held| held.servers.iter().map(|server| (*server, held.chunk)));
        let changed = || !state.has_all_but_own(tablet.log.last());
        // The records of this epoch come first: a checkpoint has nothing that is not committed. And with too
        // few members nothing is.
        let commits = !tablet.log.members.lack_some() && self.may_speak(tablet);
        let ready = !is_crowded && commits && tablet.log.committed() >= tablet.log.begun();
        let is_due = state.asked || changed() || held.any(|(server, chunk)| is_bad(server, chunk));
        let step = match now.mono >= state.due {
            true if is_due && ready => CheckpointStep::Open { anew: true },
            true if state.has_former => CheckpointStep::Remove,
            _ => return,
        };
        self.checkpoint_job(now, start, step);
    }

    fn checkpoint_job(&mut self, now: Now, start: Position, step: CheckpointStep) {
        if let Some(tablet) = self.tablets.get_mut(&start) {
            tablet.checkpoint.stage = Stage::Working;
            self.new_job(start, JobWork::Checkpoint(step), now);
        }
    }

    /// A step could not be done.
    pub(crate) fn checkpoint_failed(&mut self, now: Mono, start: Position) {
        let pause = self.config.checkpoint_interval / AGAIN_PART;
        if let Some(tablet) = self.tablets.get_mut(&start) {
            // Nothing was begun: after a start data servers have not been heard yet.
            let pause = if tablet.checkpoint.draft.is_some() { pause } else { pause.min(UNBEGUN_PAUSE) };
            tablet.log.tail = None;
            tablet.exit.drop_bytes();
            self.counters.checkpoint_failures += u64::from(tablet.checkpoint.draft.is_some());
            tablet.checkpoint.give_up(now, pause);
        }
    }

    /// A step is through.
    pub(crate) fn on_checkpoint(
        &mut self,
        now: Now,
        start: Position,
        (step, outcome): (CheckpointStep, CheckpointOutcome),
        out: &mut Vec<Command>,
    ) {
        let interval = self.config.checkpoint_interval;
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let state = &mut tablet.checkpoint;
        if outcome != CheckpointOutcome::Failed {
            state.tries = 0;
        }
        match outcome {
            CheckpointOutcome::Opened(chunk) => match &mut state.draft {
                Some(draft) => {
                    draft.goes_on_in(chunk);
                    (state.opened, state.own) = (tablet.log.last(), state.own + 1);
                }
                None => {
                    let (serial, block, epoch) = (tablet.serial, tablet.block, tablet.log.epoch());
                    let header = CheckpointHeader { serial, block, epoch, at: now.wall };
                    (state.draft, state.asked) = (Some(Draft::begin(&header, chunk)), false);
                    state.opened = tablet.log.last();
                    tablet.log.begin_tail(out);
                    out.push(Command::Note(Note::Step("checkpoint begun")));
                }
            },
            CheckpointOutcome::Written => {
                if let (Some(draft), CheckpointStep::Write { frame, .. }) = (&mut state.draft, step) {
                    draft.wrote(frame.len() as u64);
                }
            }
            CheckpointOutcome::Sealed => {
                let Some(draft) = &state.draft else { return };
                let step = match draft.end.filter(|_| draft.is_written()) {
                    Some(index) => CheckpointStep::Record { index, at: draft.at },
                    None => CheckpointStep::Open { anew: false },
                };
                return self.checkpoint_job(now, start, step);
            }
            CheckpointOutcome::Recorded => {
                if let Some(draft) = state.draft.take()
                    && let Some(index) = draft.end
                {
                    state.whole = Some(CheckpointView { index, at: draft.at });
                    state.chunks = draft.chunks;
                }
                state.due = now.mono.after(interval);
                state.own += 1;
                self.counters.checkpoints += 1;
                out.push(Command::Note(Note::Step("checkpoint stored")));
                return self.checkpoint_job(now, start, CheckpointStep::Remove);
            }
            CheckpointOutcome::Removed { left, logged } => {
                state.own += u64::from(logged);
                (state.stage, state.has_former) = (Stage::Idle, left);
                return;
            }
            // A step may be repeated: its answer may have been lost, or a disk slow.
            CheckpointOutcome::Failed if state.tries < TRIES_MAX && state.draft.is_some() => {
                state.tries += 1;
                return self.checkpoint_job(now, start, step);
            }
            CheckpointOutcome::Failed => {
                out.push(Command::Note(Note::Step("checkpoint failed")));
                return self.checkpoint_failed(now.mono, start);
            }
        }
        self.go_on_with_checkpoint(now, start, out);
    }

    /// What follows what is written.
    fn go_on_with_checkpoint(&mut self, now: Now, start: Position, out: &mut Vec<Command>) {
        let ticket = LoadTicket(self.next_load);
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let Some(draft) = &tablet.checkpoint.draft else { return };
        let Some(chunk) = draft.chunks.last().cloned() else { return };
        let step = match draft.next((tablet.serial, tablet.block.start())) {
            NextStep::Write(frame) => CheckpointStep::Write { chunk, offset: draft.offset, frame },
            NextStep::Seal => CheckpointStep::Seal { chunk, length: draft.offset },
            NextStep::Read => {
                self.next_load += 1;
                // The store gets all that is committed by now, and the part has it: nothing older may follow
                // that, so entries up to there go first.
                let planted = self.config.planted(Mutant::CheckpointWithoutTail);
                let (as_of, tail) = tablet.log.applied_tail(out);
                let Some(draft) = &mut tablet.checkpoint.draft else { return };
                tail.into_iter().filter(|_| !planted).for_each(|entry| draft.push(&entry));
                draft.as_of = (as_of, now.wall);
                let mut from = draft.after.clone().unwrap_or_default();
                if draft.after.is_some() {
                    from.push(0);
                }
                let range =
                    (KeyRange { start: from, end: Some(KEYS_END.to_vec()) }, self.config.copy_pairs_max);
                tablet.checkpoint.stage = Stage::Reading(ticket);
                let tablet = tablet.serial;
                return out.push(Command::Load { ticket, tablet, keys: Vec::new(), ranges: vec![range] });
            }
        };
        self.checkpoint_job(now, start, step);
    }

    /// The tablet whose checkpoint waits for a load.
    pub(crate) fn start_of_checkpoint_load(&self, ticket: LoadTicket) -> Option<Position> {
        let reads = |tablet: &Tablet| tablet.checkpoint.stage == Stage::Reading(ticket);
        self.tablets.iter().find(|(_, tablet)| reads(tablet)).map(|(start, _)| *start)
    }

    /// A part of a tablet was read.
    pub(crate) fn on_checkpoint_load(
        &mut self,
        now: Now,
        start: Position,
        loaded: &mut LoadResult,
        out: &mut Vec<Command>,
    ) {
        let count_max = self.config.copy_pairs_max;
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let Some(draft) = &mut tablet.checkpoint.draft else { return };
        let pairs = loaded.ranges.pop().unwrap_or_default();
        let part = part_of(pairs, count_max, draft.after.is_none());
        draft.push(&part.entry);
        if part.last {
            draft.finish();
            tablet.log.tail = None;
            // It may have been read before the entry was stable with which it was opened.
            let opened = tablet.checkpoint.opened > draft.as_of.0;
            tablet.checkpoint.own = u64::from(opened);
        }
        draft.after = part.last_key.or(draft.after.take());
        self.go_on_with_checkpoint(now, start, out);
    }
}
