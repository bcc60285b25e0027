//! Marks that have done their work are collected (`decide/collect.rs`): when a step is due, and what it came
//! to.

use crate::decide::JobWork;
use crate::decide::collect::Collected;
use crate::engine::machine::MetaServer;
use crate::event::{Command, Note};
use crate::record::Key;
use bearing_types::{Now, Position};

impl MetaServer {
    /// Starts the next step in a tablet if it is time.
    pub(crate) fn collect(&mut self, now: Now, start: Position) {
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        tablet.collector.note(now);
        let ripe = tablet.collector.ripe(now, &self.config);
        let from = tablet.collector.from;
        let any = ripe.dead.or(ripe.ended).or(ripe.closed).is_some();
        if now.mono < tablet.collector.due || !any {
            return;
        }
        // So that a step that comes to nothing is not tried again at once.
        tablet.collector.due = now.mono.after(self.config.collect_interval);
        let running = |work: &JobWork| matches!(work, JobWork::Collect { .. });
        if !self.jobs.values().any(|job| job.tablet == start && running(&job.work)) {
            self.new_job(start, JobWork::Collect { from, ripe }, now);
        }
    }

    /// A step is logged.
    pub(crate) fn on_collected(
        &mut self,
        now: Now,
        start: Position,
        collected: Collected,
        out: &mut Vec<Command>,
    ) {
        if collected.removed {
            out.push(Command::Note(Note::Step("marks collected")));
        }
        for directory in collected.delegated {
            self.call_back(now, start, directory, out);
        }
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        for session in collected.ended {
            tablet.sessions.forget_mark(session);
        }
        match collected.next {
            Some(next) => {
                tablet.collector.from = next;
                tablet.collector.due = now.mono;
            }
            None => {
                tablet.collector.from = Key::FIRST_MARK;
                tablet.collector.due = now.mono.after(self.config.collect_interval);
            }
        }
    }
}
