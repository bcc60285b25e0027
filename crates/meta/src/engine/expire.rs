//! What could not be decided for so long is given up.

use crate::decide::JobWork;
use crate::engine::job::Job;
use crate::engine::machine::MetaServer;
use crate::event::Command;
use crate::mutant::Mutant;
use crate::words::JobId;
use bearing_types::Now;

/// Whether a job is given up after `job_timeout`. The others are one at a time, or a limited number: they go
/// on until they are through.
pub(crate) fn expires(work: &JobWork) -> bool {
    match work {
        JobWork::Request(..)
        | JobWork::Prepare { .. }
        | JobWork::Deliver { .. }
        | JobWork::Ask { from: Some(_), .. }
        | JobWork::EndSession(_)
        | JobWork::SweepSession(_)
        | JobWork::ForgetHolder(..)
        | JobWork::EndDelegation(..)
        | JobWork::ReportUsage(_) => true,
        JobWork::Ask { from: None, .. }
        | JobWork::Reap(_)
        | JobWork::Maintain(_)
        | JobWork::SweepChunks(..)
        | JobWork::Collect { .. } => false,
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
        let old = |job: &&Job| now.mono.since(job.context.started.mono) >= life && expires(&job.work);
        let expired: Vec<JobId> = self.jobs.values().filter(old).map(|job| job.id).collect();
        for id in expired {
            if self.waiting_for_recall.contains(&id) {
                continue;
            }
            let Some(job) = self.jobs.remove(id) else { continue };
            if let Some(tablet) = self.tablets.get_mut(&job.tablet) {
                tablet.keys.stop_waiting(id);
            }
            self.postpone(job, out);
        }
    }
}
