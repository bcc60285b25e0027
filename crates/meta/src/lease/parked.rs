//! Requests of one tablet that wait until clients give something back.
//!
//! Invariants: who came first runs first (a place is the number that a request's first job had); they hold
//! nothing; nobody waits beyond the time that was said.

use crate::words::JobId;
use bearing_proto::client::LeaseKey;
use bearing_types::Mono;
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    waiting: BTreeMap<JobId, Waiting>,
    by_key: BTreeMap<LeaseKey, BTreeSet<(JobId, JobId)>>,
    due: BTreeSet<(Mono, JobId)>,
}

#[derive(Debug)]
struct Waiting {
    place: JobId,
    keys: Vec<LeaseKey>,
    /// It goes on when a client has said something, whoever has the keys.
    is_for_word: bool,
    until: Mono,
}

impl Parked {
    /// A request waits for these keys, or until then.
    pub fn park(
        &mut self,
        (place, job): (JobId, JobId),
        keys: Vec<LeaseKey>,
        is_for_word: bool,
        until: Mono,
    ) {
        self.unpark(job);
        for key in &keys {
            self.by_key.entry(*key).or_default().insert((place, job));
        }
        self.due.insert((until, job));
        self.waiting.insert(job, Waiting { place, keys, is_for_word, until });
    }

    /// It waits no more.
    pub fn unpark(&mut self, job: JobId) {
        let Some(Waiting { place, keys, until, .. }) = self.waiting.remove(&job) else { return };
        self.due.remove(&(until, job));
        for key in keys {
            if let Some(jobs) = self.by_key.get_mut(&key) {
                jobs.remove(&(place, job));
                if jobs.is_empty() {
                    self.by_key.remove(&key);
                }
            }
        }
    }

    /// Who waits for one of these, in the order in which they came. They stay until they run.
    pub fn on(&self, keys: &[LeaseKey]) -> Vec<JobId> {
        let jobs: BTreeSet<_> = keys.iter().filter_map(|key| self.by_key.get(key)).flatten().collect();
        jobs.into_iter().map(|(_, job)| *job).collect()
    }

    /// Those of [`Parked::on`] who came before a place and wait for keys alone, with these.
    pub fn before(&self, keys: &[LeaseKey], place: JobId) -> Vec<(JobId, &[LeaseKey])> {
        let of_key = keys.iter().filter_map(|key| self.by_key.get(key));
        let jobs: BTreeSet<_> = of_key.flat_map(|jobs| jobs.range(..(place, JobId(0)))).collect();
        let waiting = jobs.into_iter().filter_map(|(_, job)| Some((*job, self.waiting.get(job)?)));
        let waiting = waiting.filter(|(_, waiting)| !waiting.is_for_word);
        waiting.map(|(job, waiting)| (job, &waiting.keys[..])).collect()
    }

    /// Those who wait for a client to say something, in the same order.
    pub fn on_words(&self) -> Vec<JobId> {
        let waiting = self.waiting.iter().filter(|(_, waiting)| waiting.is_for_word);
        let jobs: BTreeSet<_> = waiting.map(|(job, waiting)| (waiting.place, *job)).collect();
        jobs.into_iter().map(|(_, job)| job).collect()
    }

    /// All who wait, in the same order.
    pub fn all(&self) -> Vec<JobId> {
        let jobs: BTreeSet<_> = self.waiting.iter().map(|(job, waiting)| (waiting.place, *job)).collect();
        jobs.into_iter().map(|(_, job)| job).collect()
    }

    /// Those whose time is over.
    pub fn overdue(&self, now: Mono) -> impl Iterator<Item = JobId> + '_ {
        self.due.iter().take_while(move |(until, _)| *until <= now).map(|(_, job)| *job)
    }

    /// When the next one's time is over.
    pub fn next_due(&self) -> Option<Mono> {
        self.due.first().map(|(until, _)| *until)
    }

    /// Whether somebody waits for a key.
    pub fn has(&self, key: LeaseKey) -> bool {
        self.by_key.contains_key(&key)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::NodeId;

    const NAMES: LeaseKey = LeaseKey::Names(NodeId(1));
    const FILE: LeaseKey = LeaseKey::File(NodeId(2));

    #[test]
    fn who_waits_for_a_key_is_found_in_the_order_of_coming_until_it_runs() {
        let mut parked = Parked::default();
        let first = |number| (JobId(number), JobId(number));
        assert!(parked.before(&[NAMES], JobId(9)).is_empty());
        parked.park(first(3), vec![NAMES], false, Mono(30));
        parked.park(first(1), vec![NAMES, FILE], false, Mono(40));
        parked.park(first(2), vec![FILE], false, Mono(20));
        assert_eq!(parked.on(&[NAMES]), [JobId(1), JobId(3)]);
        assert_eq!(parked.on(&[NAMES, FILE]).len(), 3);
        parked.unpark(JobId(1));
        // Blocked again, it waits for something else as another job, in its old place.
        parked.park((JobId(1), JobId(9)), vec![FILE], false, Mono(50));
        assert_eq!(parked.on(&[FILE]), [JobId(9), JobId(2)]);
        assert_eq!(parked.all(), [JobId(9), JobId(2), JobId(3)]);
        let before = |place| parked.before(&[NAMES, FILE], JobId(place)).into_iter().map(|(job, _)| job);
        assert_eq!(before(3).collect::<Vec<_>>(), [JobId(9), JobId(2)]);
        assert_eq!(before(1).count(), 0);
        parked.unpark(JobId(3));
        assert!(!parked.has(NAMES) && parked.has(FILE));
    }

    #[test]
    fn time_ends_every_wait() {
        let mut parked = Parked::default();
        parked.park((JobId(1), JobId(1)), vec![NAMES], false, Mono(30));
        parked.park((JobId(2), JobId(2)), vec![NAMES], false, Mono(20));
        assert_eq!(parked.next_due(), Some(Mono(20)));
        assert_eq!(parked.overdue(Mono(19)).count(), 0);
        assert_eq!(parked.overdue(Mono(30)).collect::<Vec<_>>(), [JobId(2), JobId(1)]);
        parked.unpark(JobId(2));
        parked.unpark(JobId(1));
        assert_eq!((parked.next_due(), parked.len()), (None, 0));
    }
}
