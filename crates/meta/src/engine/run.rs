//! Running jobs: decide, fetch what is missing, decide again; then write, lock, recall and reply.

use crate::chunks::AGAIN_AFTER;
use crate::decide::{self, Decided, JobWork, SessionEnd};
use crate::disk_space::Headroom;
use crate::engine::job::Job;
use crate::engine::leasing::{Wait, WaitFor};
use crate::engine::machine::MetaServer;
use crate::engine::space::Lack;
use crate::engine::upkeep;
use crate::event::{Command, Note};
use crate::lease::Offer;
use crate::memory::quota_table;
use crate::mutant::Mutant;
use crate::record::{Key, OutboxRecord, PrepareRecord, Record, ReplyRecord};
use crate::tablet::{Answered, Held, Phase, Repeat, Tablet};
use crate::view::{Context, Draft, Memory, Stop, View};
use crate::words::{JobId, LockedBy};
use bearing_proto::client::{Answer, Call, ChangedDirectory, LeaseKey};
use bearing_proto::peer::{ItemId, PeerBody, PeerMessage, Promise, Told, Vote};
use bearing_types::{Code, LogIndex, NodeId, Now, Position, SessionId, TransactionId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A job that runs so often loads in circles; it is told to retry.
const RUNS_MAX: u32 = 10_000;

/// A request that waits for a delegated directory looks so often whether its holder is still heard of.
const CALLED_BACK_AGAIN: Duration = Duration::from_millis(100);

/// What a decision leaves behind besides its result.
pub(crate) struct Effects {
    wanted: Vec<Key>,
    pub batch: BTreeMap<Key, Option<Record>>,
    locks: BTreeSet<Key>,
    drafts: Vec<Draft>,
    changed: Vec<LeaseKey>,
    shown: Vec<ChangedDirectory>,
    reserved: Vec<LeaseKey>,
    lends: bool,
    doubtful: Vec<(SessionId, NodeId)>,
    pub given: Vec<(LeaseKey, Offer)>,
    pub handed: Vec<NodeId>,
    pub read_index: LogIndex,
    pub nothing: bool,
}

impl Effects {
    /// Whether something goes into the outbox.
    pub fn queues(&self) -> bool {
        !self.drafts.is_empty()
    }
}

impl MetaServer {
    pub(crate) fn new_job(&mut self, tablet: Position, work: JobWork, now: Now) -> JobId {
        let id = JobId(self.next_job);
        self.next_job += 1;
        let mut context = Context::new(now);
        if let JobWork::Prepare { transaction, .. } = &work {
            context.transaction = Some(*transaction);
        }
        self.jobs.insert(Job { id, tablet, work, context, runs: 0, ran: now.mono, parked: None });
        self.ready.push_back(id);
        id
    }

    /// Runs a job once.
    pub(crate) fn run(&mut self, now: Now, id: JobId, out: &mut Vec<Command>) {
        let (Some(mut job), Some(filesystem)) = (self.jobs.remove(id), self.filesystem) else {
            // It was given up while it waited.
            return self.tablets.values_mut().for_each(|tablet| tablet.leases.parked.unpark(id));
        };
        let Some(tablet) = self.tablets.get_mut(&job.tablet) else { return };
        tablet.leases.parked.unpark(id);
        if matches!(tablet.phase, Phase::Leaving(_)) {
            // What is being copied must not change any more.
            return self.postpone(job, out);
        }
        if let JobWork::Request(session, request) = &job.work
            && tablet.sessions.has_ended(*session)
        {
            // It came before that was known. What it would be given nobody would ask back.
            let (session, sequence) = (*session, request.sequence);
            // It may have been woken by something else than the lock that it waits for.
            tablet.keys.stop_waiting(id);
            self.abort_parts(&mut job, out);
            let (index, reply) = self.session_is_over(job.tablet, sequence);
            self.hold(job.tablet, index, Held::Reply(session, reply), out);
            return self.drop_job(job);
        }
        if let JobWork::Request(session, request) = &job.work
            && request.call.mutates()
            && tablet.sessions.repeat(*session, request.sequence) == Repeat::Finished
        {
            // Its client gave it up while it waited, and may have gone on to the opposite.
            tablet.keys.stop_waiting(id);
            self.abort_parts(&mut job, out);
            return self.drop_job(job);
        }
        if matches!(job.work, JobWork::Request(..))
            && now.mono.since(job.context.started.mono) >= self.config.job_timeout
        {
            return self.postpone(job, out);
        }
        // What is not committed for long keeps others from reading it.
        if tablet.log.members.lack_some() && job.work.surely_logs() {
            if let JobWork::Request(session, request) = &job.work {
                self.renew_put_off(now, job.tablet, *session, &request.call);
                // Who asks has its home decide, and does not wait for what may be long in coming.
                if matches!(request.call, Call::Delegate { .. }) {
                    return self.refuse(job, Code::Unsupported, LogIndex::ZERO, out);
                }
            }
            return self.postpone(job, out);
        }
        self.counters.runs += 1;
        job.runs += 1;
        job.ran = now.mono;
        job.context.range_wanted = false;
        let known = job.session().is_none_or(|session| tablet.knows(session));
        let given_up = job.session().and_then(|session| tablet.sessions.given_up(session));
        // What is leased has to be logged first.
        let full = self.space.headroom() == Headroom::None || tablet.log.members.lack_some();
        let leases_within = job.session().filter(|_| full);
        let leases_within =
            leases_within.map(|session| tablet.horizon.stable(session, tablet.log.committed()));
        let mut view = View::new(
            now,
            &self.config,
            &self.keys,
            memory_of(tablet),
            job.session(),
            (&self.health, &self.map),
            &filesystem,
            &mut self.ids,
            &mut job.context,
        );
        if let JobWork::Request(_, request) = &job.work {
            view.by_client = true;
            view.finished_below = request.finished_below;
            view.sequence = request.sequence;
        }
        view.known = known;
        view.given_up = given_up;
        view.leases_within = leases_within;
        let decided = decide::decide(&mut view, &job.work);
        let met = view.known && !known;
        let effects = Effects {
            wanted: view.wanted,
            batch: view.batch,
            locks: view.locks,
            drafts: view.drafts,
            changed: view.changed,
            shown: view.shown,
            reserved: view.reserved,
            lends: view.lends,
            doubtful: view.doubtful,
            given: view.given,
            handed: view.handed,
            read_index: view.read_index,
            nothing: view.nothing,
        };
        if let (true, Some(session)) = (met, job.session()) {
            tablet.sessions.meet(session);
        }
        match decided {
            Ok(decided) => match self.lacks_headroom(&job, &effects) {
                None => self.conclude(now, job, decided, effects, out),
                Some(Lack::Refused(code)) => {
                    out.push(Command::Note(Note::Step("refused for space")));
                    // It is so whatever becomes of the records that were read.
                    self.refuse(job, code, LogIndex::ZERO, out)
                }
                Some(Lack::Later) => self.postpone(job, out),
            },
            Err(Stop::Need) if job.runs < RUNS_MAX => {
                self.fetch(now, job, &effects.wanted, effects.read_index, out)
            }
            Err(Stop::Need) | Err(Stop::Later) => self.postpone(job, out),
            Err(Stop::NoIds) if matches!(job.work, JobWork::Request(..)) => {
                self.waiting_for_ids.push(job.id);
                self.jobs.insert(job);
                self.draw_ids(now);
            }
            Err(Stop::NoIds) => self.postpone(job, out),
            Err(Stop::Locked(key)) => self.wait_for_lock(job, key, out),
            Err(Stop::Refuse(code)) => self.refuse(job, code, effects.read_index, out),
            Err(Stop::Elsewhere(position)) => self.elsewhere(job, position, out),
            Err(Stop::Delegated(directory)) => {
                self.call_back(now, job.tablet, directory, out);
                let until = now.mono.after(CALLED_BACK_AGAIN);
                self.park(
                    now,
                    job,
                    Wait { keys: vec![LeaseKey::Delegation(directory)], until, is_for: WaitFor::Word },
                    out,
                )
            }
        }
    }

    // --- the decision ---

    fn conclude(
        &mut self,
        now: Now,
        mut job: Job,
        decided: Decided,
        effects: Effects,
        out: &mut Vec<Command>,
    ) {
        let Some(tablet) = self.tablets.get_mut(&job.tablet) else { return };
        if let JobWork::Prepare { transaction, .. } = &job.work
            && tablet.participant.is_over(*transaction)
        {
            return self.drop_job(job);
        }
        if effects.nothing {
            self.abort_parts(&mut job, out);
            return self.answer(now, job, decided, effects, false, out);
        }
        if job.context.parts.iter().any(|slot| !slot.used) {
            return self.postpone(job, out);
        }
        let reserved = effects.reserved.iter().chain(&effects.changed).copied().collect::<Vec<_>>();
        if let Some(wait) = self.has_to_wait(now, &job, (&reserved, effects.lends), out) {
            if self.config.planted(Mutant::RecallWhileHolding) {
                return self.wait_for_recall(job, effects.batch.into_keys());
            }
            return self.park(now, job, wait, out);
        }
        if let Some(wait) = self.asks_who_has_open(now, job.tablet, &effects.doubtful, out) {
            return self.park(now, job, wait, out);
        }
        if let Some(wait) = self.lets_pass(now, &job, &reserved) {
            return self.park(now, job, wait, out);
        }
        self.answer(now, job, decided, effects, true, out);
    }

    fn answer(
        &mut self,
        now: Now,
        job: Job,
        decided: Decided,
        mut effects: Effects,
        commit: bool,
        out: &mut Vec<Command>,
    ) {
        let start = job.tablet;
        // Simulations look whether first come is first served, by whatever way a decision gets here.
        if cfg!(debug_assertions)
            && commit
            && matches!(job.work, JobWork::Request(..))
            && !self.passed_by(now, &job, &effects.changed).is_empty()
        {
            out.push(Command::Note(Note::Overtaken));
        }
        if let (true, Some(tablet)) = (commit, self.tablets.get_mut(&start)) {
            let may_be_called_off = matches!(job.work, JobWork::Prepare { .. });
            tablet.leases.changed(&effects.changed, job.session(), may_be_called_off);
            if effects.lends {
                tablet.leases.lent(&effects.reserved);
            }
        }
        if commit {
            self.add_protocol_records(&job, &decided, &mut effects);
        }
        // After the old leases are gone: a change may come with a lease on its own result. What says who has
        // it is no part of what is prepared.
        let covered = self.give_leases(now, &job, &mut effects);
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let usage = quota_table::usage_records(&tablet.quotas, &mut tablet.cache, &effects.batch);
        effects.batch.extend(usage);
        let first_item = ItemId { tablet: tablet.serial, index: tablet.log.next(), place: 0 };
        for node in upkeep::nodes_to_reap(&effects.batch) {
            self.begin_reaping(now, start, node);
        }
        self.note_orphans(now, start, &effects.batch, out);
        self.note_delegations(now, start, &effects.batch, out);
        self.note_locks(now, start, &effects.batch, out);
        self.note_usage(start, effects.batch.iter());
        if commit {
            add_outbox_records(&job, first_item, &mut effects);
        }
        let index = if effects.batch.is_empty() {
            effects.read_index
        } else {
            let number = self.next_append_number();
            let tablet = self.tablets.get_mut(&start).expect("seen just now");
            let index = tablet.write(std::mem::take(&mut effects.batch), number, out);
            if let Some(session) = covered {
                tablet.horizon.logged_at(session, index);
            }
            index.max(effects.read_index)
        };
        let awaited = self.start_items(&job, first_item, &effects.drafts);
        self.close_transaction(&job, index, commit, out);
        self.finish(now, job, decided, index, awaited, effects, out);
    }

    fn add_protocol_records(&mut self, job: &Job, decided: &Decided, effects: &mut Effects) {
        match (&job.work, decided) {
            (JobWork::Request(session, request), Decided::Body(body)) if request.call.mutates() => {
                let reply = ReplyRecord { position: request.position, body: body.clone() };
                effects
                    .batch
                    .insert(Key::Reply(*session, request.sequence), Some(Record::Reply(Box::new(reply))));
            }
            (JobWork::Prepare { to, transaction, part_number, .. }, Decided::Promise(promise)) => {
                let changes = std::mem::take(&mut effects.batch);
                let cache = self.tablets.get_mut(&job.tablet).map(|tablet| &mut tablet.cache);
                let usage = cache.map(|cache| quota_table::noted(cache, &changes)).unwrap_or_default();
                let record = PrepareRecord {
                    promise: promise.clone(),
                    locks: effects.locks.iter().map(Key::encode).collect(),
                    changes: changes
                        .iter()
                        .map(|(key, record)| crate::record::LoggedChange::new(key, record.as_ref()))
                        .collect(),
                    usage,
                    position: Some(*to),
                };
                // What the part changes counts only with the decision; its leases are free by now, and locked
                // keys give no new ones.
                effects.batch.insert(
                    Key::Prepare(*transaction, *part_number),
                    Some(Record::Prepare(Box::new(record))),
                );
            }
            (JobWork::Deliver { item, done_below, .. }, Decided::Delivered) => {
                if let Some(tablet) = self.tablets.get_mut(&job.tablet) {
                    let inbox = tablet.queue.execute(*item, *done_below);
                    effects.batch.insert(Key::Inbox(item.tablet), Some(Record::Inbox(Box::new(inbox))));
                }
            }
            _ => {}
        }
        let participants: BTreeSet<Position> = job.context.parts.iter().map(|slot| slot.position).collect();
        if let (Some(transaction), false) = (job.context.transaction, participants.is_empty()) {
            effects.batch.insert(
                Key::Decision(transaction),
                Some(Record::Decision(participants.into_iter().collect())),
            );
        }
    }

    /// The items of a decision go into the outbox; they leave when the record is committed. Returns those
    /// that the reply waits for.
    fn start_items(&mut self, job: &Job, first: ItemId, drafts: &[Draft]) -> BTreeSet<ItemId> {
        let mut awaited = BTreeSet::new();
        let Some(tablet) = self.tablets.get_mut(&job.tablet) else { return awaited };
        for (place, draft) in drafts.iter().enumerate() {
            let item = ItemId { place: place as u8, ..first };
            for key in &draft.locks {
                tablet.keys.lock(*key, LockedBy::Item(item));
            }
            if draft.awaited {
                awaited.insert(item);
            }
            tablet.queue.push(item, outbox_record(draft, job));
        }
        awaited
    }

    fn close_transaction(&mut self, job: &Job, index: LogIndex, commit: bool, out: &mut Vec<Command>) {
        if matches!(job.work, JobWork::Prepare { .. }) {
            return;
        }
        let Some(transaction) = job.context.transaction else { return };
        let Some(tablet) = self.tablets.get_mut(&job.tablet) else { return };
        tablet.coordinated.close(transaction.number);
        self.transactions.remove(&transaction);
        let participants: BTreeSet<Position> = job.context.parts.iter().map(|slot| slot.position).collect();
        if commit && !participants.is_empty() {
            out.push(Command::Note(Note::Step("decided")));
            let asked = Some(job.context.started.mono);
            tablet.coordinated.decide(transaction, participants.clone(), index, asked);
            for position in participants {
                let body = PeerBody::Decided { transaction, commit: true };
                let message =
                    PeerMessage { from: job.tablet, to: position, epoch: bearing_types::Epoch(0), body };
                self.hold(job.tablet, index, Held::Peer(message), out);
            }
        }
        self.unlock(job.tablet, LockedBy::Transaction(transaction));
    }

    #[allow(clippy::too_many_arguments)]
    fn finish(
        &mut self,
        now: Now,
        job: Job,
        decided: Decided,
        index: LogIndex,
        awaited: BTreeSet<ItemId>,
        effects: Effects,
        out: &mut Vec<Command>,
    ) {
        let start = job.tablet;
        match (job.work, decided) {
            (JobWork::Request(session, request), Decided::Body(body)) => {
                self.note_session_calls(now, start, session, (request.sequence, &request.call), out);
                self.renew_delegations(now, start, session, &request.call);
                out.extend(step_of(&request.call).map(|name| Command::Note(Note::Step(name))));
                // The end of a session takes its replies with it: this one is held by itself.
                if request.call.mutates() && !matches!(request.call, Call::CloseSession) {
                    let Some(tablet) = self.tablets.get_mut(&start) else { return };
                    let answered = Answered { result: Ok(body), changed: effects.shown, index, awaited };
                    tablet.sessions.keep_answer(session, request.sequence, answered);
                    return self.hold(start, index, Held::Mutation(session, request.sequence), out);
                }
                let reply = self.done(start, request.sequence, Ok(body));
                self.hold(start, index, Held::Reply(session, reply), out);
            }
            (JobWork::Prepare { from, transaction, part_number, .. }, Decided::Promise(promise)) => {
                self.note_prepared(now, start, transaction, part_number, &promise, index, &effects.locks);
                out.push(Command::Note(Note::Step("prepared")));
                let body = PeerBody::Prepared { transaction, part_number, vote: Vote::Yes(promise) };
                self.hold_peer(start, index, from, body, out);
            }
            (JobWork::Deliver { from, item, .. }, Decided::Delivered) => {
                out.push(Command::Note(Note::Step("delivered")));
                self.hold_peer(start, index, from, PeerBody::Delivered { item }, out);
            }
            (JobWork::Ask { from: Some(from), id, .. }, Decided::Told(told)) => {
                self.hold_peer(start, index, from, PeerBody::Told { id, told }, out);
            }
            (JobWork::Ask { from: None, .. }, Decided::Told(told)) => {
                self.hold(start, index, Held::Ids(told), out)
            }
            (JobWork::Reap(node), Decided::Reaped(gone)) => {
                if let Some(tablet) = self.tablets.get_mut(&start) {
                    tablet.reaping.remove(&node);
                }
                if !gone {
                    self.begin_reaping(now, start, node);
                }
            }
            (JobWork::ForgetHolder(node, session), Decided::HolderForgotten) => {
                if let Some(tablet) = self.tablets.get_mut(&start)
                    && tablet.opens.said_closed(session, node)
                {
                    tablet.opens.released(session, node);
                }
            }
            (JobWork::EndDelegation(..), Decided::SessionOver) => {
                out.push(Command::Note(Note::Step("delegation ended")));
            }
            // The mark stands: now everything that the session has here goes too.
            (JobWork::EndSession(session), Decided::SessionOver) => {
                out.push(Command::Note(Note::Step("silent session ended")));
                if let Some(tablet) = self.tablets.get_mut(&start) {
                    tablet.sessions.end_registered(session);
                }
                self.tell_session_over(start, session, out);
            }
            (JobWork::SweepSession(session), Decided::SessionSwept(SessionEnd::Over)) => {
                out.push(Command::Note(Note::Step("session swept")));
                self.forget_session(now, start, session);
            }
            (JobWork::SweepSession(session), Decided::SessionSwept(SessionEnd::RunsOut)) => {
                let Some(tablet) = self.tablets.get_mut(&start) else { return };
                if tablet.sessions.run_out(session) {
                    out.push(Command::Note(Note::Step("session runs out")));
                }
            }
            (JobWork::Collect { .. }, Decided::Collected(collected)) => {
                self.on_collected(now, start, collected, out)
            }
            (JobWork::Maintain(chunk), Decided::Maintained(outcome)) => {
                self.on_maintained(now, (start, chunk), outcome, out);
            }
            (JobWork::SweepChunks(..), Decided::Swept(swept)) => self.on_swept(now, start, swept),
            (JobWork::Checkpoint(step), Decided::Checkpointed(outcome)) => {
                self.on_checkpoint(now, start, (step, outcome), out);
            }
            (_, Decided::Body(_) | Decided::Promise(_) | Decided::Delivered) => {}
            (
                _,
                Decided::Told(_)
                | Decided::Reaped(_)
                | Decided::HolderForgotten
                | Decided::SessionOver
                | Decided::SessionSwept(_)
                | Decided::Reported
                | Decided::Collected(_)
                | Decided::Maintained(_)
                | Decided::Swept(_)
                | Decided::Checkpointed(_),
            ) => {}
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn note_prepared(
        &mut self,
        now: Now,
        start: Position,
        transaction: TransactionId,
        part_number: u8,
        promise: &Promise,
        index: LogIndex,
        locks: &BTreeSet<Key>,
    ) {
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        for key in locks {
            tablet.keys.lock(*key, LockedBy::Transaction(transaction));
        }
        let key = Key::Prepare(transaction, part_number);
        let Some(Some(Record::Prepare(record))) = tablet.cache.get(&key).map(|slot| slot.record) else {
            unreachable!("the prepare record was written just now")
        };
        debug_assert_eq!(record.promise, *promise);
        tablet.participant.prepare((transaction, part_number), *record, index, Some(now.mono));
    }

    // --- no decision ---

    /// The operation is dropped without a trace, and whoever asked is told to ask again.
    pub(crate) fn postpone(&mut self, mut job: Job, out: &mut Vec<Command>) {
        self.abort_parts(&mut job, out);
        match &job.work {
            JobWork::Request(session, request) => {
                let answer = Answer::Retry { after_us: 500 };
                self.answer_at_once(*session, request.sequence, answer, out);
            }
            JobWork::Prepare { from, transaction, part_number, .. } => {
                let body = PeerBody::Prepared {
                    transaction: *transaction,
                    part_number: *part_number,
                    vote: Vote::Later,
                };
                self.send_peer(job.tablet, *from, body, out);
            }
            JobWork::Ask { from: Some(from), id, .. } => {
                self.send_peer(job.tablet, *from, PeerBody::Told { id: *id, told: Told::Later }, out);
            }
            JobWork::Ask { from: None, .. } => self.ids_asked = false,
            // The sender repeats.
            JobWork::Deliver { from, item, .. } => {
                if let Some(tablet) = self.tablets.get_mut(&job.tablet) {
                    tablet.queue.put_off(*from, *item);
                }
            }
            // The next upkeep starts it again.
            JobWork::Reap(_)
            | JobWork::ForgetHolder(..)
            | JobWork::EndSession(_)
            | JobWork::SweepSession(_)
            | JobWork::EndDelegation(..)
            | JobWork::SweepChunks(..)
            | JobWork::Collect { .. } => {}
            JobWork::Maintain(chunk) => {
                self.put_off_chunk((job.tablet, *chunk), job.ran.after(AGAIN_AFTER));
            }
            JobWork::Checkpoint(_) => self.checkpoint_failed(job.ran, job.tablet),
            JobWork::ReportUsage(quota) => self.report_again(job.tablet, *quota),
        }
        self.drop_job(job);
    }

    pub(crate) fn refuse(&mut self, mut job: Job, code: Code, read_index: LogIndex, out: &mut Vec<Command>) {
        self.abort_parts(&mut job, out);
        let start = job.tablet;
        match &job.work {
            JobWork::Request(session, request) => {
                let (session, sequence) = (*session, request.sequence);
                // Retrying with a fresh grant is the same mutation, so this refusal must not be remembered as
                // its answer.
                let kept = request.call.mutates() && code != Code::Unauthenticated;
                let Some(tablet) = self.tablets.get_mut(&start) else { return };
                // Nor is anything remembered for a session that may never have been.
                if kept && tablet.knows(session) {
                    let refused = Answered {
                        result: Err(code),
                        changed: Vec::new(),
                        index: read_index,
                        awaited: BTreeSet::new(),
                    };
                    tablet.sessions.keep_answer(session, sequence, refused);
                }
                let reply = self.done(start, sequence, Err(code));
                self.hold(start, read_index, Held::Reply(session, reply), out);
            }
            JobWork::Prepare { from, transaction, part_number, .. } => {
                let body = PeerBody::Prepared {
                    transaction: *transaction,
                    part_number: *part_number,
                    vote: Vote::No(code),
                };
                self.hold_peer(start, read_index, *from, body, out);
            }
            JobWork::Ask { from: Some(from), id, .. } => {
                let body = PeerBody::Told { id: *id, told: Told::Refused(code) };
                self.hold_peer(start, read_index, *from, body, out);
            }
            JobWork::Deliver { item, .. } => {
                out.push(Command::Note(Note::Damaged(format!("queued item {item:?} was refused: {code}"))));
            }
            JobWork::Ask { from: None, .. } => self.ids_asked = false,
            JobWork::Reap(_)
            | JobWork::ForgetHolder(..)
            | JobWork::EndSession(_)
            | JobWork::SweepSession(_)
            | JobWork::EndDelegation(..)
            | JobWork::Maintain(_)
            | JobWork::SweepChunks(..)
            | JobWork::Collect { .. } => {}
            JobWork::Checkpoint(_) => self.checkpoint_failed(job.ran, job.tablet),
            JobWork::ReportUsage(quota) => self.report_again(job.tablet, *quota),
        }
        self.drop_job(job);
    }

    fn elsewhere(&mut self, job: Job, position: Position, out: &mut Vec<Command>) {
        match &job.work {
            JobWork::Request(session, request) => self.refer(*session, request.sequence, position, out),
            JobWork::Prepare { from, .. } | JobWork::Ask { from: Some(from), .. } => {
                let tablet =
                    self.map.locate(position).map(|located| (located.block, located.epoch, located.owner));
                self.send_peer(job.tablet, *from, PeerBody::NotMine { tablet }, out);
            }
            _ => {}
        }
        self.drop_job(job);
    }

    /// Tells everybody who may have prepared something that it is off.
    pub(crate) fn abort_parts(&mut self, job: &mut Job, out: &mut Vec<Command>) {
        if matches!(job.work, JobWork::Prepare { .. }) {
            return;
        }
        let Some(transaction) = job.context.transaction else { return };
        let positions: BTreeSet<Position> = job.context.parts.iter().map(|slot| slot.position).collect();
        self.counters.aborts += 1;
        for position in positions {
            self.send_peer(job.tablet, position, PeerBody::Decided { transaction, commit: false }, out);
        }
        job.context.parts.clear();
        if let Some(tablet) = self.tablets.get_mut(&job.tablet) {
            tablet.coordinated.close(transaction.number);
        }
        self.transactions.remove(&transaction);
    }

    pub(crate) fn drop_job(&mut self, job: Job) {
        if let (Some(transaction), false) = (job.context.transaction, job.context.holds.is_empty()) {
            self.unlock(job.tablet, LockedBy::Transaction(transaction));
        }
    }

    /// Frees locks and lets those who waited run.
    pub(crate) fn unlock(&mut self, start: Position, by: LockedBy) {
        if let Some(tablet) = self.tablets.get_mut(&start) {
            let jobs = tablet.keys.unlock(by);
            self.ready.extend(jobs);
        }
    }

    /// The planted bug: the operation keeps what it touches while it waits for clients.
    fn wait_for_recall(&mut self, mut job: Job, keys: impl Iterator<Item = Key>) {
        if job.context.transaction.is_none() {
            self.begin_transaction(&mut job);
        }
        if let (Some(transaction), Some(tablet)) =
            (job.context.transaction, self.tablets.get_mut(&job.tablet))
        {
            keys.for_each(|key| tablet.keys.lock(key, LockedBy::Transaction(transaction)));
        }
        self.waiting_for_recall.push(job.id);
        self.jobs.insert(job);
    }
}

fn memory_of(tablet: &mut Tablet) -> Memory<'_> {
    Memory {
        block: tablet.block,
        cache: &mut tablet.cache,
        locked: &mut tablet.keys,
        leases: &tablet.leases,
        opens: &tablet.opens,
        horizon: &tablet.horizon,
        delegations: &tablet.delegations,
        waits: &mut tablet.locks,
        quotas: &mut tablet.quotas,
    }
}

/// Changes that are no transactions but have parties of their own.
fn step_of(call: &Call) -> Option<&'static str> {
    match call {
        Call::OpenChunk { .. } => Some("chunk opened"),
        Call::SealChunk { .. } => Some("seal recorded"),
        Call::FinishChunk { .. } => Some("chunk finished"),
        Call::CloseSession => Some("session closed"),
        Call::Commit { .. } => Some("extents committed"),
        Call::Delegated { .. } => Some("steps done"),
        _ => None,
    }
}

fn add_outbox_records(job: &Job, first: ItemId, effects: &mut Effects) {
    for (place, draft) in effects.drafts.iter().enumerate() {
        let item = ItemId { place: place as u8, ..first };
        let record = outbox_record(draft, job);
        effects.batch.insert(Key::Outbox(item), Some(Record::Outbox(Box::new(record))));
    }
}

fn outbox_record(draft: &Draft, job: &Job) -> OutboxRecord {
    // An item that a reply waits for stays with the reply; where others are, nobody minds.
    let (waiter, position) = match &job.work {
        JobWork::Request(session, request) => {
            let mutation = request.call.mutates() && draft.awaited;
            (mutation.then_some((*session, request.sequence)), request.position)
        }
        _ => (None, job.tablet),
    };
    OutboxRecord {
        to: draft.to,
        work: draft.work.clone(),
        waiter,
        locks: draft.locks.iter().map(Key::encode).collect(),
        position: Some(position),
    }
}
