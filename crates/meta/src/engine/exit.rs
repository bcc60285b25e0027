//! The one exit: what a tablet says leaves when all that it rests on is committed, and every other member of
//! the tablet leaves it to this server. No other file makes a reply or a message to another server.
//!
//! What rests on no record leaves at once: the map, a referral by the map, "ask again". So do recalls,
//! open-state queries and hints that a lock is free: they take something from a client, and at worst it asks
//! again. What is only repeated until it is answered (questions, parts of transactions, items) is not kept
//! for a tablet that may not speak: it is sent again when it may.

use crate::engine::machine::MetaServer;
use crate::event::{Command, Note};
use crate::mutant::Mutant;
use crate::tablet::{Held, Phase, Tablet};
use bearing_lookup::Located;
use bearing_proto::client::{Answer, Body, Reply};
use bearing_proto::data::DataCall;
use bearing_proto::peer::{PeerBody, PeerMessage, Told, Vote};
use bearing_types::{Code, Epoch, LogIndex, Position, Sequence, SessionId};

impl MetaServer {
    /// Whether a tablet may speak: nobody else can own it.
    pub(crate) fn may_speak(&self, tablet: &Tablet) -> bool {
        if self.config.planted(Mutant::ReplyAfterLeaseEnd) {
            return true;
        }
        let yielded = matches!(&tablet.phase, Phase::Leaving(leaving) if leaving.yielded);
        if self.serves_on(tablet) {
            return true;
        }
        !yielded && tablet.log.members.rely(&self.pairs, self.awake, &self.config)
    }

    /// The planted bug.
    pub(crate) fn serves_on(&self, tablet: &Tablet) -> bool {
        let yielded = matches!(&tablet.phase, Phase::Leaving(leaving) if leaving.yielded);
        yielded && self.config.planted(Mutant::ServeAfterHandover)
    }

    // --- from a tablet ---

    /// Lets something leave once a record of its tablet is committed.
    pub(crate) fn hold(&mut self, start: Position, index: LogIndex, held: Held, out: &mut Vec<Command>) {
        if self.config.planted(Mutant::ReplyBeforeCommit) {
            return self.release(start, held, out);
        }
        let Some(tablet) = self.tablets.get(&start) else { return };
        let peer = matches!(held, Held::Peer(_)) && self.config.planted(Mutant::AnswerToPeerWithoutLease);
        if index <= tablet.log.committed() && (peer || self.may_speak(tablet)) {
            return self.release(start, held, out);
        }
        if let Some(tablet) = self.tablets.get_mut(&start) {
            tablet.exit.hold(index, held);
        }
    }

    pub(crate) fn hold_peer(
        &mut self,
        start: Position,
        index: LogIndex,
        to: Position,
        body: PeerBody,
        out: &mut Vec<Command>,
    ) {
        let message = PeerMessage { from: start, to, epoch: Epoch(0), body };
        self.hold(start, index, Held::Peer(message), out);
    }

    /// Lets everything leave that may now.
    pub(crate) fn let_go(&mut self, start: Position, out: &mut Vec<Command>) {
        let Some(tablet) = self.tablets.get(&start) else { return };
        if tablet.exit.is_empty() || !self.may_speak(tablet) {
            return;
        }
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        for held in tablet.exit.take(tablet.log.committed()) {
            self.release(start, held, out);
        }
    }

    fn release(&mut self, start: Position, held: Held, out: &mut Vec<Command>) {
        match held {
            Held::Reply(session, reply) => out.push(Command::Reply(session, reply)),
            Held::Mutation(session, sequence) => self.reply_if_complete(start, session, sequence, out),
            // The address is looked up when the message leaves, not when it was written.
            Held::Peer(message) => self.route_to(message, out),
            Held::Ids(told) => self.on_ids(told),
            Held::Data(server, request, bytes) => {
                let step = match request.call {
                    DataCall::Fence { .. } => Some("fences sent"),
                    DataCall::Seal { .. } => Some("seals sent"),
                    DataCall::Remove { .. } => Some("removals sent"),
                    _ => None,
                };
                out.push(Command::Data(server, request, bytes));
                out.extend(step.map(|name| Command::Note(Note::Step(name))));
            }
        }
    }

    /// Sends the reply to a mutation if its record is committed and its queued items have arrived.
    pub(crate) fn reply_if_complete(
        &mut self,
        start: Position,
        session: SessionId,
        sequence: Sequence,
        out: &mut Vec<Command>,
    ) {
        let Some(tablet) = self.tablets.get(&start) else { return };
        let Some(answered) = tablet.sessions.answered(session, sequence) else { return };
        let early = self.config.planted(Mutant::ReplyBeforeCommit);
        if (answered.index > tablet.log.committed() || !answered.awaited.is_empty()) && !early {
            return;
        }
        let mut reply = self.done(start, sequence, answered.result.clone());
        if let Answer::Done { changed, .. } = &mut reply.answer {
            changed.clone_from(&answered.changed);
        }
        self.hold(start, answered.index, Held::Reply(session, reply), out);
    }

    /// An answer that was decided here.
    pub(crate) fn done(&self, start: Position, sequence: Sequence, result: Result<Body, Code>) -> Reply {
        let answer = match self.tablets.get(&start) {
            Some(tablet) => {
                let (tablet, epoch) = (tablet.block, tablet.epoch());
                Answer::Done { tablet, epoch, result: result.map(Box::new), changed: Vec::new() }
            }
            None => Answer::Unknown,
        };
        Reply { sequence, answer }
    }

    /// Sends to whoever owns a position what is sent again until it is answered.
    pub(crate) fn send_peer(&mut self, from: Position, to: Position, body: PeerBody, out: &mut Vec<Command>) {
        let speaks = match self.tablet_holding(from) {
            Some(_) if self.config.planted(Mutant::AnswerToPeerWithoutLease) => true,
            Some(tablet) => self.may_speak(tablet) || rests_on_nothing(&body),
            None => rests_on_nothing(&body),
        };
        if speaks {
            self.route_to(PeerMessage { from, to, epoch: Epoch(0), body }, out);
        }
    }

    // What cannot be routed is lost, as in any network: senders repeat.
    fn route_to(&mut self, message: PeerMessage, out: &mut Vec<Command>) {
        let Some(located) = self.map.locate(message.to) else {
            return self.startup.want_map();
        };
        let message = PeerMessage { epoch: located.epoch, ..message };
        self.route(located, message, out);
    }

    pub(crate) fn route(&mut self, located: Located, message: PeerMessage, out: &mut Vec<Command>) {
        if located.owner == self.id {
            self.inward.push_back(message);
        } else {
            out.push(Command::Peer(located.owner, message));
        }
    }

    // --- from no tablet ---

    /// An answer that rests on no record.
    pub(crate) fn answer_at_once(
        &self,
        session: SessionId,
        sequence: Sequence,
        answer: Answer,
        out: &mut Vec<Command>,
    ) {
        out.push(Command::Reply(session, Reply { sequence, answer }));
    }

    /// Says who serves a position, as far as is known.
    pub(crate) fn refer(
        &mut self,
        session: SessionId,
        sequence: Sequence,
        position: Position,
        out: &mut Vec<Command>,
    ) {
        self.counters.referrals += 1;
        let serving = self.tablet_at(position).map(|tablet| (tablet.block, tablet.epoch()));
        let answer = match (serving, self.map.locate(position)) {
            (Some((tablet, epoch)), _) => Answer::Referral { tablet, epoch, owner: self.id },
            // Owned by this server, but not served yet: the client waits a moment.
            (None, Some(located)) if located.owner == self.id => Answer::Retry { after_us: LEAVING_RETRY_US },
            (None, Some(located)) => {
                Answer::Referral { tablet: located.block, epoch: located.epoch, owner: located.owner }
            }
            (None, None) => Answer::Unknown,
        };
        self.answer_at_once(session, sequence, answer, out);
    }
}

/// How long a client waits before it asks a tablet again that is on its way, in microseconds.
pub(crate) const LEAVING_RETRY_US: u32 = 5_000;

/// Whether a message would be as good from anybody: it says where to ask, or to ask again.
fn rests_on_nothing(body: &PeerBody) -> bool {
    match body {
        PeerBody::NotMine { .. } => true,
        PeerBody::Told { told, .. } => matches!(told, Told::Later),
        PeerBody::Prepared { vote, .. } => matches!(vote, Vote::Later),
        _ => false,
    }
}
