//! What could not be decided for so long is given up.

use crate::decide::JobWork;
use crate::engine::job::Job;
use crate::engine::machine::MetaServer;
use crate::event::Command;
use crate::mutant::Mutant;
use crate::words::JobId;
use bearing_types::{Mono, Now};

/// Since when a job has been waiting that is given up after `job_timeout`. The others are one at a time: they
/// go on until they are through.
fn waits_since(job: &Job) -> Option<Mono> {
    match &job.work {
        JobWork::Request(..)
        | JobWork::Prepare { .. }
        | JobWork::Deliver { .. }
        | JobWork::Ask { from: Some(_), .. }
        | JobWork::EndSession(_)
        | JobWork::SweepSession(_)
        | JobWork::ForgetHolder(..)
        | JobWork::EndDelegation(..)
        | JobWork::ReportUsage(_) => Some(job.context.started.mono),
        // Some ask much. It is over when one answer stays away, as of a tablet that nobody serves.
        JobWork::Maintain(_) | JobWork::Checkpoint(_) => Some(job.ran),
        JobWork::Ask { from: None, .. }
        | JobWork::Reap(_)
        | JobWork::SweepChunks(..)
        | JobWork::Collect { .. } => None,
    }
}

impl MetaServer {
    /// Gives up what could not be decided for so long: whoever asked is told to ask again, or repeats by
    /// itself.
    pub(crate) fn expire_jobs(&mut self, now: Now, out: &mut Vec<Command>) {
        if self.config.planted(Mutant::EveryCopyAJob) {
            return;
        }
        let life = self.config.job_timeout;
        let old = |job: &&Job| waits_since(job).is_some_and(|since| now.mono.since(since) >= life);
        let expired: Vec<JobId> = self.jobs.values().filter(old).map(|job| job.id).collect();
        for id in expired {
            if self.waiting_for_recall.contains(&id) {
                continue;
            }
            let Some(job) = self.jobs.remove(id) else { continue };
            if let Some(tablet) = self.tablets.get_mut(&job.tablet) {
                tablet.keys.stop_waiting(id);
                tablet.leases.parked.unpark(id);
            }
            let maintained = match job.work {
                JobWork::Maintain(chunk) => Some((job.tablet, chunk)),
                _ => None,
            };
            self.postpone(job, out);
            // The others have their turn meanwhile.
            if let Some(chunk) = maintained {
                self.put_off_chunk(chunk, now.mono.after(life));
            }
        }
    }
}
