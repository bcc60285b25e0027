//! Messages between tablets: parts of transactions, queued items, questions.

use crate::decide::JobWork;
use crate::engine::fetch::QUESTION_BITS;
use crate::engine::jobs::Party;
use crate::engine::machine::MetaServer;
use crate::event::{Command, Note};
use crate::memory::quota_table;
use crate::record::{Key, Record};
use crate::tablet::{Held, Phase};
use crate::txn::Delivery;
use crate::view::PartVote;
use crate::words::{Asking, JobId, LockedBy};
use bearing_lookup::Located;
use bearing_proto::data::DataReply;
use bearing_proto::peer::{Deferred, ItemId, Part, PeerBody, PeerMessage, Question, Told, Vote};
use bearing_types::{Epoch, Now, Position, ServerId, SessionId, TransactionId};
use std::collections::BTreeMap;

/// A transaction part on its way in.
struct Asked {
    from: Position,
    to: Position,
    epoch: Epoch,
}

impl MetaServer {
    pub(crate) fn on_peer(&mut self, now: Now, message: PeerMessage, out: &mut Vec<Command>) {
        let PeerMessage { from, to, epoch, body } = message;
        if let PeerBody::NotMine { tablet } = body {
            return self.on_not_mine(tablet);
        }
        let Some(tablet) = self.tablet_at(to) else {
            return self.say_not_mine(from, to, out);
        };
        if matches!(tablet.phase, Phase::Leaving(_)) {
            return;
        }
        let start = tablet.block.start();
        match body {
            PeerBody::Prepare { transaction, part_number, session, over_below, part } => {
                let asked = Asked { from, to, epoch };
                self.on_prepare(
                    now,
                    start,
                    asked,
                    (transaction, part_number),
                    session,
                    over_below,
                    part,
                    out,
                );
            }
            PeerBody::Prepared { transaction, part_number, vote } => {
                self.on_vote(start, from, transaction, part_number, vote, out)
            }
            PeerBody::Decided { transaction, commit } => {
                self.on_decided(start, (from, to), transaction, commit, out)
            }
            PeerBody::Settled { transaction } => self.on_settled(start, from, transaction, out),
            PeerBody::Inquire { transaction } => self.on_inquiry(start, from, transaction, out),
            PeerBody::Deliver { item, done_below, work } => {
                self.on_delivery(now, start, from, item, done_below, work, out)
            }
            PeerBody::Delivered { item } => self.on_delivered(start, item, out),
            PeerBody::Again { item } => self.send_item(now, start, item, out),
            PeerBody::SessionOver { session } => self.doubt_everywhere(session),
            PeerBody::Ask { id, question } => self.on_question(now, start, from, id, question),
            PeerBody::Told { id, told } => self.on_answer(id, told),
            PeerBody::NotMine { .. } => unreachable!("taken above"),
        }
    }

    fn say_not_mine(&mut self, from: Position, to: Position, out: &mut Vec<Command>) {
        let known = self.map.locate(to).filter(|located| located.owner != self.id);
        let tablet = known.map(|located| (located.block, located.epoch, located.owner));
        self.send_peer(to, from, PeerBody::NotMine { tablet }, out);
    }

    fn on_not_mine(&mut self, tablet: Option<(bearing_types::Block, Epoch, ServerId)>) {
        match tablet {
            Some((block, epoch, owner)) => {
                self.map.learn(Located { block, epoch, owner });
            }
            None => self.startup.want_map(),
        }
    }

    // --- the participant ---

    #[allow(clippy::too_many_arguments)]
    fn on_prepare(
        &mut self,
        now: Now,
        start: Position,
        asked: Asked,
        (transaction, part_number): (TransactionId, u8),
        session: SessionId,
        over_below: u64,
        part: Box<Part>,
        out: &mut Vec<Command>,
    ) {
        let me = self.id;
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        if asked.epoch != tablet.epoch() {
            let here = (tablet.block, tablet.epoch(), me);
            return self.send_peer(asked.to, asked.from, PeerBody::NotMine { tablet: Some(here) }, out);
        }
        tablet.participant.set_over_below(transaction, over_below);
        if tablet.participant.is_over(transaction) {
            return;
        }
        if let Some((index, promise)) = tablet.participant.vote(transaction, part_number) {
            let body = PeerBody::Prepared { transaction, part_number, vote: Vote::Yes(promise) };
            return self.hold_peer(start, index, asked.from, body, out);
        }
        let same = |work: &JobWork| matches!(work, JobWork::Prepare { transaction: other, part_number: number, .. } if *other == transaction && *number == part_number);
        if self.jobs.values().any(|job| same(&job.work)) || !self.admits(asked.from) {
            return;
        }
        self.new_job(
            start,
            JobWork::Prepare { from: asked.from, to: asked.to, session, transaction, part_number, part },
            now,
        );
    }

    /// The coordinator has decided: all parts here are applied or dropped in one record.
    fn on_decided(
        &mut self,
        start: Position,
        (from, to): (Position, Position),
        transaction: TransactionId,
        commit: bool,
        out: &mut Vec<Command>,
    ) {
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let mut batch: BTreeMap<Key, Option<Record>> = BTreeMap::new();
        let mut usage = Vec::new();
        for (part, prepared) in tablet.participant.decided(transaction) {
            usage.extend(prepared.usage.iter().filter(|_| commit).copied());
            batch.insert(Key::Prepare(transaction, part), None);
            for change in prepared.changes.iter().filter(|_| commit) {
                match change.decode() {
                    Ok((key, record)) => batch.insert(key, record),
                    Err(error) => {
                        out.push(Command::Note(Note::Damaged(format!("prepared change: {error}"))));
                        continue;
                    }
                };
            }
        }
        if !batch.is_empty() {
            let number = self.next_append_number();
            let tablet = self.tablets.get_mut(&start).expect("seen just now");
            batch.extend(quota_table::prepared_records(&tablet.quotas, &usage));
            self.note_usage(start, batch.iter());
            let tablet = self.tablets.get_mut(&start).expect("seen just now");
            tablet.write(batch, number, out);
            out.push(Command::Note(Note::Step(if commit { "part committed" } else { "part aborted" })));
        }
        self.unlock(start, LockedBy::Transaction(transaction));
        let Some(tablet) = self.tablets.get(&start) else { return };
        let message =
            PeerMessage { from: to, to: from, epoch: Epoch(0), body: PeerBody::Settled { transaction } };
        let index = tablet.log.last();
        self.hold(start, index, Held::Peer(message), out);
    }

    // --- the coordinator ---

    fn on_vote(
        &mut self,
        start: Position,
        from: Position,
        transaction: TransactionId,
        part_number: u8,
        vote: Vote,
        out: &mut Vec<Command>,
    ) {
        let job = self.transactions.get(&transaction).copied();
        let Some(job) = job.and_then(|id| self.jobs.get_mut(id)) else {
            // Over, one way or the other: let the participant know, in case it does not.
            return self.on_inquiry(start, from, transaction, out);
        };
        let Some(slot) = job.context.parts.get_mut(usize::from(part_number)) else { return };
        if matches!(slot.vote, PartVote::Sent | PartVote::Wanted) {
            slot.vote = match vote {
                Vote::Yes(promise) => PartVote::Yes(promise),
                Vote::No(code) => PartVote::No(code),
                Vote::Later => PartVote::Later,
            };
            self.ready.push_back(job.id);
        }
    }

    fn on_inquiry(
        &mut self,
        start: Position,
        from: Position,
        transaction: TransactionId,
        out: &mut Vec<Command>,
    ) {
        let Some(tablet) = self.tablets.get(&start) else { return };
        if let Some(index) = tablet.coordinated.decision(transaction) {
            return self.hold_peer(start, index, from, PeerBody::Decided { transaction, commit: true }, out);
        }
        let undecided =
            transaction.epoch == tablet.born && tablet.coordinated.is_undecided(transaction.number);
        if !undecided {
            // No decision and no live transaction: it aborted, or everybody has settled long ago.
            out.push(Command::Note(Note::Step("presumed abort")));
            self.send_peer(start, from, PeerBody::Decided { transaction, commit: false }, out);
        }
    }

    fn on_settled(
        &mut self,
        start: Position,
        from: Position,
        transaction: TransactionId,
        out: &mut Vec<Command>,
    ) {
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        if !tablet.coordinated.settled(transaction, from) {
            return;
        }
        let number = self.next_append_number();
        let tablet = self.tablets.get_mut(&start).expect("seen just now");
        tablet.write(BTreeMap::from([(Key::Decision(transaction), None)]), number, out);
    }

    // --- the queue ---

    #[allow(clippy::too_many_arguments)]
    fn on_delivery(
        &mut self,
        now: Now,
        start: Position,
        from: Position,
        item: ItemId,
        done_below: ItemId,
        work: Deferred,
        out: &mut Vec<Command>,
    ) {
        let Some(tablet) = self.tablets.get(&start) else { return };
        if tablet.queue.executed(item) {
            let index = tablet.log.last();
            return self.hold_peer(start, index, from, PeerBody::Delivered { item }, out);
        }
        let same = |other: &JobWork| matches!(other, JobWork::Deliver { item: known, .. } if *known == item);
        let under_way = self.jobs.values().any(|job| job.tablet == start && same(&job.work));
        if !under_way && self.admits(from) {
            self.new_job(start, JobWork::Deliver { from, item, done_below, work }, now);
        }
    }

    fn on_delivered(&mut self, start: Position, item: ItemId, out: &mut Vec<Command>) {
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let Some(queued) = tablet.queue.delivered(item) else { return };
        let number = self.next_append_number();
        let tablet = self.tablets.get_mut(&start).expect("seen just now");
        tablet.write(BTreeMap::from([(Key::Outbox(item), None)]), number, out);
        self.unlock(start, LockedBy::Item(item));
        let Some((session, sequence)) = queued.waiter else { return };
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        tablet.sessions.item_arrived(session, sequence, item);
        self.reply_if_complete(start, session, sequence, out);
    }

    /// Sends what has become committed in a tablet's outbox.
    pub(crate) fn mark_outbox_committed(&mut self, now: Now, start: Position, out: &mut Vec<Command>) {
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        for item in tablet.queue.newly_committed(tablet.log.committed()) {
            self.send_item(now, start, item, out);
        }
    }

    pub(crate) fn send_item(&mut self, now: Now, start: Position, item: ItemId, out: &mut Vec<Command>) {
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let Some(Delivery { to, work, done_below }) = tablet.queue.send(item, now.mono) else { return };
        self.send_peer(start, to, PeerBody::Deliver { item, done_below, work }, out);
    }

    // --- questions ---

    fn on_question(&mut self, now: Now, start: Position, from: Position, id: u64, question: Question) {
        let same = |work: &JobWork| matches!(work, JobWork::Ask { from: Some(source), id: known, .. } if *source == from && *known == id);
        if !self.jobs.values().any(|job| same(&job.work)) && self.admits(from) {
            self.new_job(start, JobWork::Ask { from: Some(from), id, question }, now);
        }
    }

    /// Whether another tablet may have one more job here. If not, its message is as good as lost: it repeats
    /// it.
    fn admits(&self, from: Position) -> bool {
        self.jobs.admits(Party::Tablet(from), self.config.jobs_max)
    }

    fn on_answer(&mut self, id: u64, told: Told) {
        let (job, slot) = (JobId(id >> QUESTION_BITS), (id & ((1 << QUESTION_BITS) - 1)) as usize);
        let Some(job) = self.jobs.get_mut(job) else { return };
        let Some(slot) = job.context.questions.get_mut(slot) else { return };
        if slot.told.is_some() {
            return;
        }
        let answered = (slot.position, slot.question.clone(), slot.asked);
        slot.told = Some(told.clone());
        if job.has_answers() {
            self.ready.push_back(job.id);
        }
        if let (position, question, Some(asked)) = answered
            && self.asks_for_others
            && !matches!(question, Question::Ids { .. })
        {
            self.answer_others(position, &question, asked, &told);
        }
    }

    /// Others who asked the same before this was asked first are answered by it too: it was decided after
    /// they asked.
    fn answer_others(&mut self, position: Position, question: &Question, asked: Asking, told: &Told) {
        for job in self.jobs.values_mut() {
            let mut answered = false;
            for slot in job.context.questions.iter_mut().filter(|slot| slot.told.is_none()) {
                let before = slot.asked.is_some_and(|other| other.first <= asked.first);
                if before && slot.position == position && slot.question == *question {
                    slot.told = Some(told.clone());
                    answered = true;
                }
            }
            if answered && job.has_answers() {
                self.ready.push_back(job.id);
            }
        }
    }

    // --- data servers ---

    pub(crate) fn on_data(&mut self, now: Now, server: ServerId, reply: DataReply) {
        self.health.heard(now.mono, server);
        let Some((job, slot, _)) = self.data_requests.get(&reply.id).copied() else {
            return self.on_pong(now, server, &reply);
        };
        let slot = self.jobs.get_mut(job).and_then(|job| job.context.data.get_mut(slot));
        // Only whoever was asked answers.
        if slot.as_ref().is_some_and(|slot| slot.server != server) {
            return;
        }
        self.data_requests.remove(&reply.id);
        if let Some(slot) = slot {
            slot.result = Some(Some(reply.result));
            self.ready.push_back(job);
        }
    }
}
