//! Requests of clients: admitted at most once, answered once their records are committed.

use crate::decide::JobWork;
use crate::engine::exit::LEAVING_RETRY_US;
use crate::engine::jobs::Party;
use crate::engine::machine::MetaServer;
use crate::event::Command;
use crate::mutant::Mutant;
use crate::tablet::{Held, Phase, Repeat};
use bearing_proto::client::{Answer, Body, Call, ClusterMap, Reply, Request, StatfsView};
use bearing_proto::sessions::{SESSIONS_TOLD_MAX, SessionDescription, SessionsView};
use bearing_types::{Code, LogIndex, MapVersion, Mono, Now, Position, Sequence, SessionId};
use std::collections::BTreeMap;

/// How long a client waits before it asks again when its session has as many operations under way as it may,
/// in microseconds.
const BUSY_RETRY_US: u32 = 50_000;

/// The same while this server's clock is off.
const CLOCK_RETRY_US: u32 = 200_000;

impl MetaServer {
    pub(crate) fn on_request(
        &mut self,
        now: Now,
        session: SessionId,
        request: Request,
        out: &mut Vec<Command>,
    ) {
        self.counters.requests += 1;
        self.take_request(now, now.mono, session, request, out);
    }

    /// Takes a request that came at this time.
    pub(crate) fn take_request(
        &mut self,
        now: Now,
        since: Mono,
        session: SessionId,
        request: Request,
        out: &mut Vec<Command>,
    ) {
        let sequence = request.sequence;
        match request.call {
            Call::Map { have } => return self.answer_map(session, sequence, have, out),
            Call::Statfs => return self.answer_statfs(session, sequence, out),
            Call::Describe(description) => {
                let description = description.clone();
                return self.on_description((session, sequence), request.position, description, out);
            }
            _ => {}
        }
        // A session lives by durations, so it can be kept alive; all else may come to rest on the time of
        // day.
        let timeless = matches!(request.call, Call::OpenSession | Call::RenewSession | Call::CloseSession);
        if self.clock_off && !timeless {
            let answer = Answer::Retry { after_us: CLOCK_RETRY_US };
            return self.answer_at_once(session, sequence, answer, out);
        }
        let unknown = self.filesystem.is_none();
        // Who has its share under way already must be able to say that it lives.
        let copies = self.config.planted(Mutant::EveryCopyAJob);
        let full = match copies {
            true => self.jobs.asked_for() >= self.config.jobs_max,
            false => !self.jobs.admits(Party::Session(session), self.config.jobs_max),
        };
        let busy = !timeless && full;
        let under_way = self.jobs.has_request(session, sequence) && (!copies || request.call.mutates());
        let (kept_max, bytes_max) = (self.config.replies_kept_max, self.config.replies_bytes_max);
        let twice = self.config.planted(Mutant::DoubleExecution);
        let serves_on = self.tablet_holding(request.position).is_some_and(|tablet| self.serves_on(tablet));
        let answers = self.config.planted(Mutant::RelayAnswersItself) && !request.call.mutates();
        let Some(tablet) = self.tablet_at(request.position) else {
            if let Some(located) = self.map.locate(request.position).filter(|_| answers && !timeless) {
                let (tablet, epoch, result) = (located.block, located.epoch, Err(Code::NotFound));
                return self.answer_at_once(
                    session,
                    sequence,
                    Answer::Done { tablet, epoch, result, changed: Vec::new() },
                    out,
                );
            }
            return match self.may_wait(now, since, session, request.position) {
                true => self.wait_for_owner(since, session, request),
                false => self.refer(session, sequence, request.position, out),
            };
        };
        if unknown || (matches!(tablet.phase, Phase::Leaving(_)) && !serves_on) {
            let answer = Answer::Retry { after_us: LEAVING_RETRY_US };
            return self.answer_at_once(session, sequence, answer, out);
        }
        if request.call.mutates() && request.epoch != tablet.epoch() {
            return self.refer(session, sequence, request.position, out);
        }
        let start = tablet.block.start();
        tablet.requests += 1;
        if tablet.sessions.has_ended(session) {
            let (index, reply) = self.session_is_over(start, sequence);
            return self.hold_if_room(start, index, (session, reply), out);
        }
        let finished = tablet.sessions.hear(session, now.mono, request.finished_below);
        tablet.drop_with_next(finished);
        // A stray copy of something under way, or answered as soon as a record is stable: that answer is for
        // it too.
        if under_way || tablet.exit.is_parked(session, sequence) {
            return;
        }
        if request.call.mutates() {
            match tablet.sessions.repeat(session, sequence) {
                Repeat::Finished => return,
                Repeat::Answered if !twice => {
                    out.push(Command::Note(crate::event::Note::Step("duplicate")));
                    return self.reply_if_complete(start, session, sequence, out);
                }
                Repeat::Answered | Repeat::New => {}
            }
        }
        let too_many =
            request.call.mutates() && tablet.sessions.keeps_too_much_for(session, (kept_max, bytes_max));
        if busy || too_many || tablet.exit.parked() >= kept_max {
            let answer = Answer::Retry { after_us: BUSY_RETRY_US };
            self.renew_put_off(now, start, session, &request.call);
            return self.answer_at_once(session, sequence, answer, out);
        }
        self.new_job(start, JobWork::Request(session, Box::new(request)), now);
    }

    /// What is said to a session that is over, and the record that this rests on.
    pub(crate) fn session_is_over(&self, start: Position, sequence: Sequence) -> (LogIndex, Reply) {
        let index = self.tablets.get(&start).map_or(LogIndex::ZERO, |tablet| tablet.log.last());
        (index, self.done(start, sequence, Err(Code::SessionEnded)))
    }

    fn answer_map(
        &self,
        session: SessionId,
        sequence: Sequence,
        have: Option<MapVersion>,
        out: &mut Vec<Command>,
    ) {
        let (Some(version), Some(assignment)) = (self.map.version(), &self.assignment) else {
            return self.answer_at_once(session, sequence, Answer::Unknown, out);
        };
        let map = (have != Some(version)).then(|| {
            let assignment = assignment.clone();
            let (lookup, prefix) = (self.config.lookup, self.config.prefix);
            Box::new(ClusterMap { version, assignment, servers: self.servers(), lookup, prefix })
        });
        self.answer_at_once(session, sequence, unplaced(Ok(Body::Map(map))), out);
    }

    fn answer_statfs(&self, session: SessionId, sequence: Sequence, out: &mut Vec<Command>) {
        let copies =
            self.filesystem.as_ref().map_or(1, |filesystem| u64::from(filesystem.data_copies.max(1)));
        let (used, free) = self.health.space();
        let view = StatfsView { bytes_total: (used + free) / copies, bytes_free: free / copies };
        self.answer_at_once(session, sequence, unplaced(Ok(Body::Statfs(view))), out);
    }

    /// Keeps what a client says of itself, at the home of its session.
    fn on_description(
        &mut self,
        (session, sequence): (SessionId, Sequence),
        position: Position,
        description: SessionDescription,
        out: &mut Vec<Command>,
    ) {
        let Some(tablet) = self.tablet_at(position) else {
            return self.refer(session, sequence, position, out);
        };
        let start = tablet.block.start();
        if !tablet.sessions.is_registered(session) {
            let (index, reply) = self.session_is_over(start, sequence);
            return self.hold_if_room(start, index, (session, reply), out);
        }
        let result = if description.is_short() {
            tablet.sessions.describe(session, description);
            Ok(Body::Done)
        } else {
            Err(Code::InvalidArgument)
        };
        let reply = Reply { sequence, answer: unplaced(result) };
        self.hold_if_room(start, LogIndex::ZERO, (session, reply), out);
    }

    /// An answer for which no operation is begun. Copies of its request come for as long as it may not leave;
    /// whoever gets none asks again.
    fn hold_if_room(
        &mut self,
        start: Position,
        index: LogIndex,
        (session, reply): (SessionId, Reply),
        out: &mut Vec<Command>,
    ) {
        let Some(tablet) = self.tablets.get(&start) else { return };
        let exit = &tablet.exit;
        if exit.parked() < self.config.replies_kept_max && !exit.is_parked(session, reply.sequence) {
            self.hold(start, index, Held::Reply(session, reply), out);
        }
    }

    /// The sessions that this server knows of, for an operator.
    pub fn sessions(&self) -> SessionsView {
        let mut view = SessionsView::default();
        let mut delegations: BTreeMap<SessionId, u32> = BTreeMap::new();
        for tablet in self.tablets.values() {
            for (session, description) in tablet.sessions.registered() {
                if view.sessions.len() == SESSIONS_TOLD_MAX {
                    view.left_out += 1;
                    continue;
                }
                view.sessions.push((session, description.cloned()));
            }
            for (holder, count) in tablet.delegations.counts() {
                *delegations.entry(holder.session).or_default() += count as u32;
            }
        }
        view.sessions.sort_by_key(|(session, _)| *session);
        view.delegations = delegations.into_iter().take(SESSIONS_TOLD_MAX).collect();
        view
    }

    /// What calls on a session do to the tablet's memory of it.
    pub(crate) fn note_session_calls(
        &mut self,
        now: Now,
        start: Position,
        session: SessionId,
        (sequence, call): (Sequence, &Call),
        out: &mut Vec<Command>,
    ) {
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        match call {
            Call::OpenSession | Call::RenewSession => {
                tablet.sessions.register(session, now.mono);
            }
            Call::Release { node } => tablet.opens.closed(session, node.node, sequence, now.mono),
            Call::StopWaiting { node, .. } => self.tell_waiters(now, start, vec![node.node], out),
            Call::CloseSession => {
                tablet.sessions.end_registered(session);
                self.tell_session_over(start, session, out);
            }
            _ => {}
        }
    }
}

/// An answer that no tablet stands behind.
fn unplaced(result: Result<Body, Code>) -> Answer {
    Answer::Done {
        tablet: bearing_types::Block::RING,
        epoch: bearing_types::Epoch(0),
        result: result.map(Box::new),
        changed: Vec::new(),
    }
}
