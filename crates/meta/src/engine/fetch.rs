//! What a job lacks, fetched: records and ranges of the store, parts and answers of other tablets, answers of
//! data servers, free locks.

use crate::decide::JobWork;
use crate::engine::job::Job;
use crate::engine::machine::MetaServer;
use crate::event::{Command, LoadResult, LoadTicket, Note};
use crate::record::{Key, Record, decode_pairs};
use crate::tablet::Held;
use crate::view::{PartVote, QuestionSlot};
use crate::words::{Asking, JobId};
use bearing_proto::data::DataRequest;
use bearing_proto::peer::PeerBody;
use bearing_seams::KeyRange;
use bearing_types::{Code, LogIndex, Mono, Now, TransactionId};
use std::collections::{BTreeMap, BTreeSet};

/// A job asks at most 2^16 questions: more than the ancestors that a rename looks at.
pub(crate) const QUESTION_BITS: u32 = 16;

impl MetaServer {
    /// Asks for what a run of a job stopped at; what it had read depends on the log up to an index.
    pub(crate) fn fetch(
        &mut self,
        now: Now,
        mut job: Job,
        wanted: &[Key],
        read_index: LogIndex,
        out: &mut Vec<Command>,
    ) {
        let id = job.id;
        if job.context.wants_transaction && job.context.transaction.is_none() {
            self.begin_transaction(&mut job);
            self.ready.push_back(id);
        }
        let reload = job.context.range_wanted;
        job.context.ranges.forget_pairs();
        if reload || !wanted.is_empty() {
            self.load(&job, wanted, reload, out);
        }
        self.send_parts(now, &mut job, out);
        self.send_questions(now, &mut job, out);
        self.send_data(now, &mut job, read_index, out);
        self.jobs.insert(job);
    }

    fn load(&mut self, job: &Job, wanted: &[Key], reload: bool, out: &mut Vec<Command>) {
        let Some(tablet) = self.tablets.get(&job.tablet) else { return };
        let ranges = job.context.ranges.iter().filter(|_| reload);
        let ranges = ranges.map(|slot| (key_range(&slot.keys), slot.count_max)).collect();
        self.counters.loads += 1;
        let keys = wanted.iter().map(Key::encode).collect();
        let ticket = LoadTicket(self.next_load);
        out.push(Command::Load { ticket, tablet: tablet.serial, keys, ranges });
        self.next_load += 1;
        self.loads.insert(ticket, (job.id, wanted.to_vec()));
    }

    /// What a job asked of the store is there.
    pub(crate) fn on_job_load(&mut self, ticket: LoadTicket, loaded: LoadResult, out: &mut Vec<Command>) {
        let Some((id, wanted)) = self.loads.remove(&ticket) else { return };
        let Some(job) = self.jobs.get_mut(id) else { return };
        let Some(tablet) = self.tablets.get_mut(&job.tablet) else { return };
        for (key, value) in wanted.into_iter().zip(loaded.values) {
            match value.as_deref().map(|value| Record::decode_at(&key, value)).transpose() {
                Ok(record) => tablet.cache.loaded(key, record),
                Err(error) => return self.damaged(id, format!("{key:?}: {error}"), out),
            }
        }
        let mut decoded = Vec::new();
        for pairs in loaded.ranges {
            match decode_pairs(pairs) {
                Ok(pairs) => decoded.push(pairs),
                Err(what) => return self.damaged(id, what, out),
            }
        }
        for (slot, pairs) in job.context.ranges.iter_mut().zip(decoded) {
            tablet.cache.range_loaded(&slot.keys, slot.count_max, &pairs);
            slot.pairs = Some(pairs);
        }
        self.ready.push_back(id);
    }

    /// The store says that what was asked for is damaged.
    pub(crate) fn on_damaged_load(
        &mut self,
        now: Now,
        ticket: LoadTicket,
        what: String,
        out: &mut Vec<Command>,
    ) {
        if let Some((id, _)) = self.loads.remove(&ticket) {
            return self.on_damaged_records(now, id, what, out);
        }
        out.push(Command::Note(Note::DamagedStore(what)));
        if let Some(start) = self.start_of_load(ticket) {
            if !self.is_damaged(now, start) {
                self.forget_startup_load(start);
            }
        } else if let Some(start) = self.start_of_part(ticket)
            && !self.is_damaged(now, start)
        {
            self.pause_teaching(now, start);
        } else if let Some(start) = self.start_of_checkpoint_load(ticket) {
            // Another member may have it; the checkpoint is begun anew in any case.
            self.is_damaged(now, start);
            self.checkpoint_failed(now.mono, start);
        }
    }

    /// Another member of the tablet has what cannot be read here; if there is none, who asked is told.
    fn on_damaged_records(&mut self, now: Now, id: JobId, what: String, out: &mut Vec<Command>) {
        out.push(Command::Note(Note::DamagedStore(what)));
        let Some(job) = self.jobs.remove(id) else { return };
        match self.is_damaged(now, job.tablet) {
            true => self.postpone(job, out),
            false => self.refuse(job, Code::Io, LogIndex::ZERO, out),
        }
    }

    // Damaged records are never served; the operation that met them says so.
    fn damaged(&mut self, id: JobId, what: String, out: &mut Vec<Command>) {
        out.push(Command::Note(Note::Damaged(what)));
        if let Some(job) = self.jobs.remove(id) {
            self.refuse(job, Code::Io, LogIndex::ZERO, out);
        }
    }

    pub(crate) fn begin_transaction(&mut self, job: &mut Job) {
        let Some(tablet) = self.tablets.get_mut(&job.tablet) else { return };
        let number = tablet.coordinated.begin();
        self.counters.transactions += 1;
        let coordinator = tablet.block.start();
        let transaction = TransactionId { coordinator, epoch: tablet.born, number };
        job.context.transaction = Some(transaction);
        self.transactions.insert(transaction, job.id);
    }

    pub(crate) fn send_parts(&mut self, now: Now, job: &mut Job, out: &mut Vec<Command>) {
        let wanted = |vote: &PartVote| matches!(vote, PartVote::Wanted);
        if !job.context.parts.iter().any(|slot| wanted(&slot.vote)) {
            return;
        }
        if job.context.transaction.is_none() {
            self.begin_transaction(job);
        }
        let (Some(transaction), Some(session)) = (job.context.transaction, job.session()) else { return };
        let over_below =
            self.tablets.get(&job.tablet).map_or(0, |tablet| tablet.coordinated.over_below(tablet.born));
        for (number, slot) in job.context.parts.iter_mut().enumerate().filter(|(_, slot)| wanted(&slot.vote))
        {
            slot.vote = PartVote::Sent;
            Asking::again(&mut slot.asked, now.mono);
            let part = Box::new(slot.part.clone());
            let part_number = number as u8;
            let body = PeerBody::Prepare { transaction, part_number, session, over_below, part };
            self.send_peer(job.tablet, slot.position, body, out);
        }
    }

    fn send_questions(&mut self, now: Now, job: &mut Job, out: &mut Vec<Command>) {
        let unsent = |slot: &&mut QuestionSlot| slot.asked.is_none();
        let numbered = job.context.questions.iter_mut().enumerate();
        for (number, slot) in numbered.filter(|(_, slot)| unsent(slot)) {
            slot.asked = Some(Asking::new(now.mono));
            let body = PeerBody::Ask { id: question_id(job.id, number), question: slot.question.clone() };
            self.send_peer(job.tablet, slot.position, body, out);
        }
    }

    /// Asks again what was not answered. Of jobs that ask the same, the one that asked last does it for all:
    /// its answer is good for them too.
    pub(crate) fn send_questions_again(&mut self, now: Now, out: &mut Vec<Command>) {
        let pause = (self.config.resend_interval, self.resend_pause_max(now));
        let mut open: BTreeMap<Vec<u8>, (Mono, JobId, usize)> = BTreeMap::new();
        let (mut due, mut shared) = (Vec::new(), false);
        for job in self.jobs.values() {
            let open_slots = job.context.questions.iter().enumerate().filter(|(_, slot)| slot.told.is_none());
            for (number, slot) in open_slots {
                let Some(asked) = slot.asked else { continue };
                if asked.is_due(now.mono, pause.0, pause.1) {
                    due.push((job.id, number));
                }
                let last = (asked.first, job.id, number);
                let known = open.entry(same_question(slot)).or_insert(last);
                shared |= *known != last;
                *known = (*known).max(last);
            }
        }
        self.asks_for_others = shared;
        let asks: BTreeSet<(JobId, usize)> = open.into_values().map(|(_, id, number)| (id, number)).collect();
        for (id, number) in due {
            let Some(job) = self.jobs.get_mut(id) else { continue };
            let tablet = job.tablet;
            let Some(slot) = job.context.questions.get_mut(number) else { continue };
            Asking::again(&mut slot.asked, now.mono);
            if asks.contains(&(id, number)) {
                let (position, question) = (slot.position, slot.question.clone());
                let body = PeerBody::Ask { id: question_id(id, number), question };
                self.send_peer(tablet, position, body, out);
            }
        }
    }

    /// Requests to data servers leave when what the job has read is committed: no crash may forget why a
    /// replica was removed or made.
    fn send_data(&mut self, now: Now, job: &mut Job, read_index: LogIndex, out: &mut Vec<Command>) {
        for (number, slot) in job.context.data.iter_mut().enumerate().filter(|(_, slot)| slot.sent.is_none())
        {
            let id = self.next_data;
            self.next_data += 1;
            slot.sent = Some((id, read_index));
            self.data_requests.insert(id, (job.id, number, now.mono));
            let request = DataRequest { id, chunk: slot.chunk, call: slot.call.clone() };
            let held = Held::Data(slot.server, request, slot.bytes.clone());
            self.hold(job.tablet, read_index, held, out);
        }
    }

    pub(crate) fn wait_for_lock(&mut self, mut job: Job, key: Key, out: &mut Vec<Command>) {
        // A transaction never waits for a lock while it holds others: that is how deadlocks are made.
        if job.context.has_parts()
            || !job.context.holds.is_empty()
            || matches!(job.work, JobWork::Prepare { .. })
        {
            return self.postpone(job, out);
        }
        // Until the lock is free, what was read from the store gets old: changes that were in the overlay
        // then are in the store by now.
        job.context.ranges.forget_pairs();
        let id = job.id;
        let Some(tablet) = self.tablets.get_mut(&job.tablet) else { return };
        tablet.keys.wait(key, id);
        self.jobs.insert(job);
    }
}

fn question_id(job: JobId, number: usize) -> u64 {
    job.0 << QUESTION_BITS | number as u64
}

/// The same for questions that are the same.
fn same_question(slot: &QuestionSlot) -> Vec<u8> {
    postcard::to_extend(&(slot.position, &slot.question), Vec::new()).expect("plain values always encode")
}

fn key_range(keys: &std::ops::RangeInclusive<Key>) -> KeyRange {
    let mut end = keys.end().encode();
    end.push(0);
    KeyRange { start: keys.start().encode(), end: Some(end) }
}
