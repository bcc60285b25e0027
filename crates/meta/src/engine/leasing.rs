//! What the machine does with leases (`lease/leases.rs`) and open files (`lease/opens.rs`): gives them with
//! replies, asks for them back before a change, takes the answers.
//!
//! Invariants: the horizon (`lease/horizon.rs`) covers a lease and is stable before the lease leaves, and
//! names a session before it is given a file; a change that has to wait for others keeps nothing while it
//! waits.

use crate::decide::JobWork;
use crate::decide::rules::namespace::REAPER;
use crate::disk_space::Headroom;
use crate::engine::job::Job;
use crate::engine::machine::MetaServer;
use crate::engine::run::Effects;
use crate::event::{Command, Note};
use crate::lease::{Cover, OpenStateWish, RecallWish, Word};
use crate::mutant::Mutant;
use crate::record::{Key, Record};
use crate::tablet::Phase;
use crate::view::Context;
use crate::words::{JobId, LockedBy};
use bearing_proto::client::{LeaseKey, OpenState, OpenStateQuery, Recall, Recalled};
use bearing_proto::peer::PeerBody;
use bearing_types::{Mono, NodeId, Now, Position, SessionId};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::time::Duration;

/// A request that waits for clients is answered `Retry` after so long: longer than any lease or delegation
/// lasts without its holder.
const PARKED_MAX: Duration = Duration::from_secs(15);
/// Requests of one tablet that may wait like this.
const PARKED_COUNT_MAX: usize = 4096;
/// Nobody looks again sooner unless there is an answer.
const LOOK_AGAIN_MIN: Duration = Duration::from_millis(5);
/// A session that has not said for so long what it has open counts as silent (`lease/opens.rs`).
const WORD_TIMEOUT: Duration = Duration::from_millis(60);

/// For what a request waits, and until when at most.
pub(crate) struct Wait {
    pub keys: Vec<LeaseKey>,
    pub until: Mono,
    pub is_for: WaitFor,
}

/// What ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitFor {
    /// The keys are free.
    Keys,
    /// A client says something else: that keys are free tells nothing.
    Word,
    /// So many others run first, now.
    Turn(usize),
}

impl MetaServer {
    // --- with a decision ---

    /// Whether others may still use what a decision changes, and for what to wait then. They are asked to
    /// stop; leases that nobody is remembered for are waited for.
    pub(crate) fn has_to_wait(
        &mut self,
        now: Now,
        job: &Job,
        (changed, lends): (&[LeaseKey], bool),
        out: &mut Vec<Command>,
    ) -> Option<Wait> {
        let tablet = self.tablets.get_mut(&job.tablet)?;
        let holders = tablet.leases.holders(changed, job.session(), now.mono);
        if !holders.is_empty() && !self.config.planted(Mutant::ForgottenLeaseCheck) {
            let first_end = tablet.leases.first_end(changed, job.session(), now.mono);
            let wishes = tablet.leases.recall(holders, now.mono, &self.config);
            // What is wanted only to lend it is not why the next of them wants it back.
            if !lends {
                tablet.leases.take_turns(&wishes, now.mono);
            }
            out.push(Command::Note(Note::Step("recall")));
            self.send_recalls(job.tablet, wishes, out);
            let until = first_end.unwrap_or(now.mono);
            return Some(Wait { keys: changed.to_vec(), until, is_for: WaitFor::Keys });
        }
        let until = tablet.leases.await_untracked(changed, now.mono, &self.config)?;
        out.push(Command::Note(Note::Step("untracked")));
        Some(Wait { keys: changed.to_vec(), until, is_for: WaitFor::Keys })
    }

    /// Whether sessions are asked what they have open, and will have answered in a moment.
    pub(crate) fn asks_who_has_open(
        &mut self,
        now: Now,
        start: Position,
        doubtful: &[(SessionId, NodeId)],
        out: &mut Vec<Command>,
    ) -> Option<Wait> {
        let tablet = self.tablets.get_mut(&start).filter(|_| !doubtful.is_empty())?;
        let mut asked = false;
        for (session, node) in doubtful {
            asked |= tablet.opens.ask_now(*session, *node, now.mono, &self.config);
        }
        let open_state_queries = tablet.opens.due(now.mono, &self.config);
        self.send_open_state_queries(start, open_state_queries, out);
        let keys = doubtful.iter().map(|(_, node)| LeaseKey::File(*node)).collect();
        asked.then(|| Wait { keys, until: now.mono.after(WORD_TIMEOUT), is_for: WaitFor::Word })
    }

    /// Whether somebody who came before waits for one of these keys and could go on now: then it goes first.
    pub(crate) fn lets_pass(&mut self, now: Now, job: &Job, changed: &[LeaseKey]) -> Option<Wait> {
        if !matches!(job.work, JobWork::Request(..)) || self.config.planted(Mutant::LatecomerFirst) {
            return None;
        }
        let passed = self.passed_by(now, job, changed);
        if passed.is_empty() {
            return None;
        }
        // In front, in their order, and then this one: who runs out of order would let all others pass
        // again.
        let is_for = WaitFor::Turn(passed.len());
        passed.into_iter().rev().for_each(|job| self.ready.push_front(job));
        Some(Wait { keys: changed.to_vec(), until: now.mono, is_for })
    }

    /// Who would wait longer although he came before this request, if it were carried out: those who wait for
    /// a key that it changes, and for nothing that others have.
    pub(crate) fn passed_by(&self, now: Now, job: &Job, changed: &[LeaseKey]) -> Vec<JobId> {
        let Some(tablet) = self.tablets.get(&job.tablet) else { return Vec::new() };
        let place = job.parked.map_or(job.id, |(_, place)| place);
        let could_go_on = |(other, keys): &(JobId, &[LeaseKey])| {
            let session = self.jobs.get(*other).and_then(Job::session);
            tablet.leases.is_free(keys, session, now.mono)
        };
        let before = tablet.leases.parked.before(changed, place);
        before.into_iter().filter(could_go_on).map(|(other, _)| other).collect()
    }

    // --- requests that wait for clients ---

    /// A request waits without holding anything. It starts anew when a client has given back what it waits
    /// for, and looks again when it is time. One that has waited for long is answered `Retry`.
    pub(crate) fn park(&mut self, now: Now, mut job: Job, wait: Wait, out: &mut Vec<Command>) {
        let (since, place) = *job.parked.get_or_insert((now.mono, job.id));
        let last = since.after(PARKED_MAX);
        let Some(tablet) = self.tablets.get(&job.tablet) else { return };
        let is_request = matches!(job.work, JobWork::Request(..));
        if !is_request || now.mono >= last || tablet.leases.parked.len() >= PARKED_COUNT_MAX {
            return self.postpone(job, out);
        }
        self.abort_parts(&mut job, out);
        if let (Some(transaction), false) = (job.context.transaction, job.context.holds.is_empty()) {
            self.unlock(job.tablet, LockedBy::Transaction(transaction));
        }
        job.context = Context::new(job.context.started);
        // Another job: what is on its way for this one would be taken for what it asks next.
        job.id = JobId(self.next_job);
        self.next_job += 1;
        if let WaitFor::Turn(others) = wait.is_for {
            self.ready.insert(others.min(self.ready.len()), job.id);
        }
        let until = wait.until.min(last).max(now.mono.after(LOOK_AGAIN_MIN));
        self.next_parked = Some(self.next_parked.map_or(until, |next| next.min(until)));
        if let Some(tablet) = self.tablets.get_mut(&job.tablet) {
            let is_for_word = wait.is_for == WaitFor::Word;
            tablet.leases.parked.park((place, job.id), wait.keys, is_for_word, until);
        }
        self.jobs.insert(job);
    }

    /// Those who waited for one of these start anew, in the order in which they came.
    pub(crate) fn wake_parked(&mut self, start: Position, keys: &[LeaseKey]) {
        if let Some(tablet) = self.tablets.get(&start) {
            self.ready.extend(tablet.leases.parked.on(keys));
        }
    }

    /// Those who have waited long enough look again.
    pub(crate) fn wake_overdue(&mut self, now: Now) {
        if self.next_parked.is_none_or(|next| now.mono < next) {
            return;
        }
        for tablet in self.tablets.values() {
            self.ready.extend(tablet.leases.parked.overdue(now.mono));
        }
        // What is woken stays where it is until it runs.
        let next = self.tablets.values().filter_map(|tablet| tablet.leases.parked.next_due());
        self.next_parked = next.map(|next| next.max(now.mono.after(LOOK_AGAIN_MIN))).min();
    }

    /// Notes what goes out with the reply. Gives the session if the horizon grows with the record that the
    /// reply writes.
    pub(crate) fn give_leases(&mut self, now: Now, job: &Job, effects: &mut Effects) -> Option<SessionId> {
        let (Some(session), Some(tablet)) = (job.session(), self.tablets.get_mut(&job.tablet)) else {
            return None;
        };
        if effects.given.is_empty() && effects.handed.is_empty() {
            return None;
        }
        let mut lease_ends: SmallVec<[(NodeId, Mono); 4]> = SmallVec::new();
        for (key, offer) in &effects.given {
            let until = tablet.leases.give(*key, session, *offer, now.mono);
            if let LeaseKey::File(node) = key {
                lease_ends.push((*node, until));
            }
        }
        lease_ends.sort_unstable();
        for node in &effects.handed {
            // The last of them, if there are several.
            let place = lease_ends.partition_point(|(of, _)| of <= node);
            let end = lease_ends[..place].last().filter(|(of, _)| of == node);
            let lease_end = end.map_or(now.mono, |(_, end)| *end);
            let JobWork::Request(_, request) = &job.work else { continue };
            tablet.opens.give(session, *node, request.sequence, lease_end, &self.config);
        }
        // Stable before any lease leaves, so that a later owner knows whom to wait for. Another request of
        // the session may have logged it a moment ago.
        match tablet.horizon.cover(session, &effects.given, &self.config) {
            Cover::Logged(index) => {
                effects.read_index = effects.read_index.max(index);
                None
            }
            Cover::Wanted(reach) => {
                effects.batch.insert(Key::Holder(session), Some(Record::Holder(reach)));
                Some(session)
            }
        }
    }

    /// What a decision says of unlinked nodes that sessions keep.
    pub(crate) fn note_orphans(
        &mut self,
        now: Now,
        start: Position,
        batch: &BTreeMap<Key, Option<Record>>,
        out: &mut Vec<Command>,
    ) {
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        for (key, record) in batch {
            match (key, record) {
                (Key::Orphan(_, REAPER), _) => {}
                (Key::Orphan(node, session), Some(_)) => {
                    if !tablet.opens.said_open(*session, *node) {
                        out.push(Command::Note(Note::Step("kept unasked")));
                    }
                    tablet.opens.orphaned(*session, *node, now.mono);
                }
                (Key::Orphan(node, session), None) => tablet.opens.released(*session, *node),
                (Key::Node(node), None) => tablet.opens.gone(*node),
                _ => {}
            }
        }
    }

    /// Logs the lease horizon again where it says more than can be leased.
    pub(crate) fn shrink_horizon(&mut self, now: Now, start: Position, out: &mut Vec<Command>) {
        if self.space.headroom() == Headroom::None {
            return;
        }
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        // What is left out could not be leased again before there are enough members.
        if !matches!(tablet.phase, Phase::Serving) || tablet.log.members.lack_some() {
            return;
        }
        let shrunk = tablet.horizon.shrunk(now.mono, &self.config);
        if shrunk.is_empty() {
            return;
        }
        let record = |(session, reach)| (Key::Holder(session), Some(Record::Holder(reach)));
        let batch: BTreeMap<_, _> = shrunk.into_iter().map(record).collect();
        let number = self.next_append_number();
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        // No lease waits for this record: the one before, which says more, covers it as well.
        tablet.write(batch, number, out);
    }

    // --- asking ---

    pub(crate) fn send_recalls(&mut self, tablet: Position, wishes: Vec<RecallWish>, out: &mut Vec<Command>) {
        let Some(state) = self.tablets.get(&tablet) else { return };
        for wish in wishes {
            self.counters.recalls += 1;
            let recall =
                Recall { tablet: state.block, epoch: state.epoch(), number: wish.number, keys: wish.keys };
            out.push(Command::Recall(wish.session, recall));
        }
    }

    pub(crate) fn send_open_state_queries(
        &mut self,
        tablet: Position,
        wishes: Vec<OpenStateWish>,
        out: &mut Vec<Command>,
    ) {
        let Some(state) = self.tablets.get(&tablet) else { return };
        for wish in wishes {
            self.counters.open_state_queries += 1;
            let open_state_query = OpenStateQuery {
                tablet: state.block,
                epoch: state.epoch(),
                number: wish.number,
                nodes: wish.nodes,
            };
            out.push(Command::OpenStateQuery(wish.session, open_state_query));
        }
    }

    // --- answers ---

    pub(crate) fn on_recalled(
        &mut self,
        now: Now,
        session: SessionId,
        recalled: Recalled,
        out: &mut Vec<Command>,
    ) {
        let config = &self.config;
        let start = recalled.tablet.start();
        let Some(tablet) =
            self.tablets.get_mut(&start).filter(|tablet| tablet.has_served_under(recalled.epoch))
        else {
            return;
        };
        let Some(keys) = tablet.leases.recalled(session, recalled.number, now.mono, config) else { return };
        for key in &keys {
            if let LeaseKey::Delegation(directory) = key {
                tablet.delegations.is_not_used(*directory, session);
            }
        }
        let word = Word { session, finished_below: recalled.finished_below, open: &recalled.open };
        let forget_holders = if keys.is_empty() {
            tablet.opens.hear_of_everything(word, now.mono, config);
            Vec::new()
        } else {
            tablet.opens.recalled(word, &files_in(&keys), now.mono, config)
        };
        let again = tablet.queue.take_put_off();
        for (from, item) in again {
            self.send_peer(start, from, PeerBody::Again { item }, out);
        }
        self.forget_holders(now, start, session, forget_holders);
        self.ready.extend(std::mem::take(&mut self.waiting_for_recall));
        if let Some(tablet) = self.tablets.get(&start).filter(|_| keys.is_empty()) {
            self.ready.extend(tablet.leases.parked.all());
        }
        self.wake_parked(start, &keys);
    }

    pub(crate) fn on_open_state(
        &mut self,
        now: Now,
        session: SessionId,
        open_state: OpenState,
        out: &mut Vec<Command>,
    ) {
        let start = open_state.tablet.start();
        let Some(tablet) =
            self.tablets.get_mut(&start).filter(|tablet| tablet.has_served_under(open_state.epoch))
        else {
            return;
        };
        let word = Word { session, finished_below: open_state.finished_below, open: &open_state.open };
        let number = open_state.number;
        let Some(forget_holders) = tablet.opens.open_state(word, number, now.mono, &self.config) else {
            return;
        };
        // Somebody may wait for the answer about more files than fit into one.
        let next = tablet.opens.due(now.mono, &self.config);
        self.send_open_state_queries(start, next, out);
        self.forget_holders(now, start, session, forget_holders);
        if let Some(tablet) = self.tablets.get(&start) {
            self.ready.extend(tablet.leases.parked.on_words());
        }
    }

    fn forget_holders(&mut self, now: Now, start: Position, session: SessionId, nodes: Vec<NodeId>) {
        for node in nodes {
            self.new_job(start, JobWork::ForgetHolder(node, session), now);
        }
    }
}

fn files_in(keys: &[LeaseKey]) -> Vec<NodeId> {
    let file = |key: &LeaseKey| if let LeaseKey::File(node) = key { Some(*node) } else { None };
    keys.iter().filter_map(file).collect()
}
