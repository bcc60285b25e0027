//! Chunks are given what they need: jobs are started for what is due, and what they came to is noted (see
//! `decide/maintenance`).

use crate::chunks::{AGAIN_AFTER, ASK_AFTER, Maintenance, Seals, StepOutcome};
use crate::decide::JobWork;
use crate::decide::maintenance::Swept;
use crate::engine::machine::MetaServer;
use crate::event::{Command, Note};
use bearing_proto::client::ServerKind;
use bearing_proto::holders::{Held, HolderView, HoldersView};
use bearing_proto::tablets::ChunkTally;
use bearing_types::{ChunkId, Mono, Now, Position};

impl MetaServer {
    /// The state of the chunks in this server's tablets, as it was seen last.
    pub fn chunk_tally(&self) -> ChunkTally {
        let copied_bytes = self.counters.copied_bytes;
        let mut tally = ChunkTally { copied_bytes, ..ChunkTally::default() };
        for tablet in self.tablets.values() {
            tally.add(&tablet.maintenance.counted);
            let done: u64 = tablet.maintenance.copying.values().sum();
            tally.lacking_bytes = tally.lacking_bytes.saturating_sub(done);
        }
        tally
    }

    /// What the chunks of this server's tablets have on each data server, for an operator.
    pub fn holders(&self) -> HoldersView {
        let counted = || self.tablets.values().filter_map(|tablet| tablet.maintenance.held.as_ref());
        let data = self.servers.values().filter(|entry| entry.kind == ServerKind::Data);
        let holders = data.map(|entry| {
            let (server, mut sum) = (entry.server, Held::default());
            counted().filter_map(|held| held.get(&server)).for_each(|held| sum.add(*held));
            let (used, free) = self.health.space_of(server);
            HolderView { server, held: sum, answers: self.health.answers(server), used, free }
        });
        HoldersView {
            tablets: self.tablets.len() as u64,
            counted: counted().count() as u64,
            leaving: self.startup.draining.iter().copied().collect(),
            holders: holders.collect(),
        }
    }

    /// Starts what is due in a tablet.
    pub(crate) fn maintain_chunks(&mut self, now: Now, start: Position) {
        let writing = |state: &Maintenance| state.copying.len() + state.making.len();
        let copying: usize = self.tablets.values().map(|tablet| writing(&tablet.maintenance)).sum();
        self.health.copies_full = copying >= self.config.copies_max;
        let mut busy: Vec<ChunkId> = Vec::new();
        let (mut maintenance, mut sweeping) = (0, false);
        for job in self.jobs.values() {
            match job.work {
                JobWork::Maintain(chunk) => {
                    maintenance += 1;
                    busy.extend((job.tablet == start).then_some(chunk));
                }
                JobWork::SweepChunks(..) => sweeping |= job.tablet == start,
                _ => {}
            }
        }
        let (jobs_max, every) = (self.config.maintenance_jobs_max, self.config.sweep_interval);
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let state = &mut tablet.maintenance;
        let listed = state.listed.iter().map(|(chunk, at)| (*at, *chunk));
        let mut due: Vec<(Mono, ChunkId)> =
            listed.filter(|(at, chunk)| *at <= now.mono && !busy.contains(chunk)).collect();
        // Who has been due for longest is first: else many that wait, and are due again soon, keep the others
        // from their turn.
        due.sort_unstable();
        due.truncate(jobs_max.saturating_sub(maintenance));
        state.listed.extend(due.iter().map(|(_, chunk)| (*chunk, now.mono.after(AGAIN_AFTER))));
        let sweep = (now.mono >= state.due && !sweeping && !state.is_crowded()).then_some(state.from);
        if sweep.is_some() {
            state.due = now.mono.after(every);
        }
        if sweep == Some(ChunkId(0)) {
            state.begin_round(&self.health);
        }
        let servers = state.inventory.asked();
        for (_, chunk) in due {
            self.new_job(start, JobWork::Maintain(chunk), now);
        }
        if let Some(from) = sweep {
            self.new_job(start, JobWork::SweepChunks(from, servers), now);
        }
    }

    /// What a chunk needs could not be done.
    pub(crate) fn put_off_chunk(&mut self, (start, chunk): (Position, ChunkId), again: Mono) {
        if let Some(tablet) = self.tablets.get_mut(&start) {
            tablet.maintenance.wait(chunk, again);
        }
    }

    /// A step over chunk records is through.
    pub(crate) fn on_swept(&mut self, now: Now, start: Position, swept: Swept) {
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let state = &mut tablet.maintenance;
        state.counting.add(&swept.tally);
        for (server, held) in &swept.held {
            state.holding.entry(*server).or_default().add(*held);
        }
        for (server, chunk) in &swept.asked.lacks {
            self.health.set_missing(*server, *chunk);
        }
        let lacking = swept.asked.lacks.into_iter().map(|(_, chunk)| chunk);
        for chunk in swept.wanting.into_iter().chain(lacking) {
            state.listed.entry(chunk).or_insert(now.mono);
        }
        swept.asked.silent.into_iter().for_each(|server| state.inventory.is_silent(server));
        match swept.next {
            Some(next) => (state.from, state.due) = (next, now.mono),
            None => state.end_round(&self.health),
        }
    }

    /// A job is through.
    pub(crate) fn on_maintained(
        &mut self,
        now: Now,
        (start, chunk): (Position, ChunkId),
        outcome: StepOutcome,
        out: &mut Vec<Command>,
    ) {
        let step = |name| Some(Command::Note(Note::Step(name)));
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let state = &mut tablet.maintenance;
        if !matches!(outcome, StepOutcome::Copying(_) | StepOutcome::Making | StepOutcome::Wait) {
            state.copying.remove(&chunk);
            state.making.remove(&chunk);
        }
        let again = match outcome {
            StepOutcome::Nothing => None,
            StepOutcome::Did(name) => {
                out.extend(step(name));
                Some(now.mono)
            }
            StepOutcome::Wait => return state.wait(chunk, now.mono.after(ASK_AFTER)),
            StepOutcome::Refused => {
                out.extend(step("copy refused"));
                Some(now.mono.after(ASK_AFTER))
            }
            StepOutcome::Copying(done) => {
                if state.copying.insert(chunk, done).is_none() {
                    out.extend(step("copy asked for"));
                }
                Some(now.mono.after(ASK_AFTER))
            }
            StepOutcome::Making => {
                state.making.insert(chunk);
                Some(now.mono.after(ASK_AFTER))
            }
            StepOutcome::Copied(bytes) => {
                out.extend(step("copy recorded"));
                self.counters.copied_bytes += bytes;
                Some(now.mono)
            }
            StepOutcome::CalledOff(old) => {
                self.health.set_called_off(now.mono, old);
                out.extend(step("compaction called off"));
                Some(now.mono)
            }
            StepOutcome::Hopeless => {
                self.health.set_refused(now.mono, chunk);
                out.extend(step("copy refused"));
                Some(now.mono)
            }
            StepOutcome::Torn(name, servers) => {
                servers.iter().for_each(|server| self.health.set_missing(*server, chunk));
                out.extend(step(name));
                Some(now.mono)
            }
            StepOutcome::Missing(servers) => {
                servers.iter().for_each(|server| self.health.set_missing(*server, chunk));
                out.extend(step("replica found missing"));
                Some(now.mono)
            }
            StepOutcome::Whole(server) => {
                self.health.set_fresh(server, chunk);
                Some(now.mono.after(ASK_AFTER))
            }
            StepOutcome::Sealed(Seals { whole, missing, told }) => {
                // Who holds all of it may have been found without it before it knew of the seal.
                whole.iter().for_each(|server| self.health.set_there(*server, chunk));
                // Who lacks something of it need not be asked again before it is made anew.
                let asked = whole.iter().chain(&missing);
                asked.for_each(|server| self.health.set_told(*server, chunk));
                if told {
                    out.extend(step("seal told again"));
                } else {
                    missing.iter().for_each(|server| self.health.set_missing(*server, chunk));
                    out.extend(step("replica found missing"));
                }
                Some(now.mono)
            }
            StepOutcome::Forgotten(servers) => {
                servers.iter().for_each(|server| self.health.set_fresh(*server, chunk));
                out.extend(step("replica removed"));
                Some(now.mono)
            }
            StepOutcome::Removed => {
                self.counters.chunks_removed += 1;
                out.extend(step("chunk removed"));
                None
            }
        };
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        match again {
            Some(at) => drop(tablet.maintenance.listed.insert(chunk, at)),
            None => drop(tablet.maintenance.listed.remove(&chunk)),
        }
    }
}
