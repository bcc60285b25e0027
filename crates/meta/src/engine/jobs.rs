//! Jobs under way, counted by whom they are for: a session, another tablet, or this server itself.
//!
//! Invariants: nobody has more than one and a share of what is free, so whoever needs a server that is down,
//! or simply asks for very much, holds up nobody else; a request of a client is under way at most once; jobs
//! that others can ask for end after `job_timeout` at the latest, whether they are run or not.

use crate::decide::JobWork;
use crate::engine::job::Job;
use crate::words::JobId;
use bearing_types::{Position, Sequence, SessionId};
use std::collections::BTreeMap;

/// Who has a job already gets another while it has less than this part of what is free. One who takes all it
/// can get leaves four fifths of all to others.
const SHARE: usize = 4;

/// Whom a job is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Party {
    /// A client.
    Session(SessionId),
    /// Another tablet.
    Tablet(Position),
    /// This server, about sessions that are silent: bounded by how many are started.
    Silence,
    /// This server: bounded by what there is to do.
    Own,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    jobs: BTreeMap<JobId, Job>,
    shares: BTreeMap<Party, usize>,
    requests: BTreeMap<(SessionId, Sequence), JobId>,
}

fn party_of(work: &JobWork) -> Party {
    match work {
        JobWork::Request(session, _) => Party::Session(*session),
        JobWork::Prepare { from, .. }
        | JobWork::Deliver { from, .. }
        | JobWork::Ask { from: Some(from), .. } => Party::Tablet(*from),
        JobWork::EndSession(_) | JobWork::SweepSession(_) => Party::Silence,
        JobWork::Ask { from: None, .. }
        | JobWork::Reap(_)
        | JobWork::ForgetHolder(..)
        | JobWork::EndDelegation(..)
        | JobWork::Maintain(_)
        | JobWork::SweepChunks(..)
        | JobWork::ReportUsage(_)
        | JobWork::Collect { .. }
        | JobWork::Checkpoint(_) => Party::Own,
    }
}

impl Jobs {
    pub fn insert(&mut self, job: Job) {
        *self.shares.entry(party_of(&job.work)).or_default() += 1;
        if let JobWork::Request(session, request) = &job.work {
            self.requests.insert((*session, request.sequence), job.id);
        }
        self.jobs.insert(job.id, job);
    }

    pub fn remove(&mut self, id: JobId) -> Option<Job> {
        let job = self.jobs.remove(&id)?;
        let party = party_of(&job.work);
        if let Some(share) = self.shares.get_mut(&party) {
            *share -= 1;
            if *share == 0 {
                self.shares.remove(&party);
            }
        }
        if let JobWork::Request(session, request) = &job.work {
            self.requests.remove(&(*session, request.sequence));
        }
        Some(job)
    }

    pub fn contains(&self, id: JobId) -> bool {
        self.jobs.contains_key(&id)
    }

    pub fn get(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id)
    }

    /// The same to be changed.
    pub fn get_mut(&mut self, id: JobId) -> Option<&mut Job> {
        self.jobs.get_mut(&id)
    }

    pub fn values(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values()
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Job> {
        self.jobs.values_mut()
    }

    pub fn ids(&self) -> Vec<JobId> {
        self.jobs.keys().copied().collect()
    }

    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    pub fn clear(&mut self) {
        *self = Jobs::default();
    }

    /// The jobs of a tablet.
    pub fn of_tablet(&self, start: Position) -> Vec<JobId> {
        self.jobs.values().filter(|job| job.tablet == start).map(|job| job.id).collect()
    }

    /// Whether a request is under way.
    pub fn has_request(&self, session: SessionId, sequence: Sequence) -> bool {
        self.requests.contains_key(&(session, sequence))
    }

    /// How many are for somebody.
    pub fn share(&self, party: Party) -> usize {
        self.shares.get(&party).copied().unwrap_or(0)
    }

    /// Jobs that others asked for.
    pub fn asked_for(&self) -> usize {
        self.jobs.len() - self.share(Party::Silence) - self.share(Party::Own)
    }

    /// Those who have any.
    pub fn parties(&self) -> usize {
        self.shares.len()
    }

    /// Whether somebody may have one more. Whoever has none may, however many others there are.
    pub fn admits(&self, party: Party, jobs_max: usize) -> bool {
        let free = jobs_max.saturating_sub(self.asked_for());
        let share = self.share(party);
        share == 0 || share < free / SHARE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Context;
    use bearing_proto::client::{Call, Request};
    use bearing_types::{Epoch, Mono, Now, Wall};

    fn job(number: u64, session: u64) -> Job {
        let (sequence, position, epoch) = (Sequence(number), Position(0), Epoch(1));
        let request = Request { sequence, finished_below: sequence, position, epoch, call: Call::Statfs };
        let context = Context::new(Now { mono: Mono(1), wall: Wall(1) });
        let work = JobWork::Request(SessionId(session), Box::new(request));
        Job { id: JobId(number), tablet: Position(0), work, context, runs: 0, ran: Mono(0), parked: None }
    }

    /// Adds jobs of a session until it gets no more.
    fn fill(jobs: &mut Jobs, next: &mut u64, session: u64) -> usize {
        while jobs.admits(Party::Session(SessionId(session)), 8192) {
            *next += 1;
            jobs.insert(job(*next, session));
        }
        jobs.share(Party::Session(SessionId(session)))
    }

    #[test]
    fn who_takes_all_it_can_get_leaves_most_to_others() {
        let (mut jobs, mut next) = (Jobs::default(), 0);
        assert!((1500..1700).contains(&fill(&mut jobs, &mut next, 1)));
        for session in 2..1000 {
            fill(&mut jobs, &mut next, session);
        }
        assert!(jobs.asked_for() <= 8192 + 1000);
        assert!(jobs.admits(Party::Session(SessionId(5000)), 8192), "whoever has none gets one");
    }

    #[test]
    fn what_is_removed_counts_no_more() {
        let (mut jobs, mut next) = (Jobs::default(), 0);
        fill(&mut jobs, &mut next, 1);
        assert!(jobs.has_request(SessionId(1), Sequence(1)));
        for id in jobs.ids() {
            jobs.remove(id);
        }
        assert_eq!((jobs.asked_for(), jobs.shares.len(), jobs.requests.len()), (0, 0, 0));
    }
}
