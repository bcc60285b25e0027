//! The session: agreed on and opened before anything else, renewed, ended.
//!
//! Servers may end it: a client that they did not hear of for long, or whose ticket expired. Then the machine begins anew with another one
//! (`again.rs`). Only what the client itself ends, or what it is refused for its secret or its release, is over for good.

use crate::event::{Command, Note};
use crate::hub::{Hub, State};
use crate::task::{Promise, promise};
use crate::timer::Timer;
use bearing_placement::position_of_session;
use bearing_proto::client::{Body, Call};
use bearing_proto::envelope::Refusal;
use bearing_types::{Code, Mono, Position, SessionId};
use std::collections::BTreeMap;
use std::time::Duration;

/// How far the session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The servers have agreed on none yet; operations wait.
    Enrolling,
    /// Not yet open; operations wait.
    Opening,
    /// Open.
    Open,
    /// The servers have ended it: another one is to be had.
    Lost,
    /// It will never be open again; operations end with this code.
    Over(Code),
}

/// See the module.
pub(crate) struct Session {
    phase: Phase,
    id: SessionId,
    /// The client is ending it itself.
    closing: bool,
    /// This session, or one before it, was open once: the secret and the release are good ones, whatever unsigned words say.
    was_open: bool,
    agreed: Option<Promise<Result<(), Code>>>,
    /// Tries to get one, and when the next is due.
    tries: u32,
    try_due: Mono,
    waiting: BTreeMap<u64, (Mono, Promise<Result<(), Code>>)>,
    next: u64,
}

impl Session {
    pub fn new() -> Session {
        let (id, agreed, tries, try_due) = (SessionId(0), None, 0, Mono::ZERO);
        Session {
            phase: Phase::Enrolling,
            id,
            closing: false,
            was_open: false,
            agreed,
            tries,
            try_due,
            waiting: BTreeMap::new(),
            next: 0,
        }
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether nothing can be done in it any more.
    fn is_gone(&self) -> bool {
        matches!(self.phase, Phase::Over(_) | Phase::Lost)
    }

    /// The session; nobody's while there is none yet.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Its end was asked for.
    pub fn begin_end(&mut self) {
        self.closing = true;
    }

    /// It comes after another one.
    pub fn follow(&mut self, before: &Session) {
        self.was_open = before.was_open;
    }

    pub fn is_ending(&self) -> bool {
        self.closing
    }
}

impl State {
    fn open_session(&mut self, renew_within: Duration) {
        self.session.phase = Phase::Open;
        self.session.was_open = true;
        self.out.push(Command::Note(Note::SessionOpen(renew_within)));
        self.step("session open");
        self.release_waiting(Ok(()));
    }

    /// The servers say that the session is over.
    pub fn session_ended(&mut self) {
        match self.session.phase {
            _ if self.session.closing => self.end_session(Code::SessionEnded),
            Phase::Over(_) => {}
            Phase::Enrolling | Phase::Opening | Phase::Open | Phase::Lost => self.session.phase = Phase::Lost,
        }
    }

    /// Ends everything: what is under way, and what begins later. The first reason stays.
    pub fn end_session(&mut self, code: Code) {
        if matches!(self.session.phase, Phase::Over(_)) {
            return;
        }
        self.session.phase = Phase::Over(code);
        self.stop_enrolling(Err(code));
        self.out.push(Command::Note(Note::SessionOver(code)));
        self.cache.clear();
        self.fail_requests(code);
        self.fail_data_requests(code);
        self.release_waiting(Err(code));
    }

    /// One more try to get a session, and another one later if nothing comes of it.
    pub fn ask_to_enrol(&mut self) {
        let session = &mut self.session;
        let pause = self.config.resend_pause * (1 << session.tries.min(8));
        session.tries += 1;
        session.try_due = self.now.mono.after(pause.min(self.config.resend_pause_max));
        self.timers.set(session.try_due, Timer::Enrol);
        self.out.push(Command::Enrol);
    }

    fn stop_enrolling(&mut self, result: Result<(), Code>) {
        if let Some(agreed) = self.session.agreed.take() {
            self.timers.cancel(self.session.try_due, Timer::Enrol);
            agreed.keep(result);
        }
    }

    fn release_waiting(&mut self, result: Result<(), Code>) {
        while let Some((number, (due, promise))) = self.session.waiting.pop_first() {
            self.timers.cancel(due, Timer::Session(number));
            promise.keep(result);
        }
    }

    /// An operation has waited long enough for the session.
    pub fn session_wait_due(&mut self, number: u64) {
        if let Some((_, promise)) = self.session.waiting.remove(&number) {
            self.counters.deadlines += 1;
            promise.keep(Err(Code::Unreachable));
        }
    }

    /// The servers have agreed on a session.
    pub fn enrolled(&mut self, session: SessionId) {
        if self.session.phase == Phase::Enrolling {
            self.session.phase = Phase::Opening;
            self.session.id = session;
            self.delegations.set_session(session);
            self.stop_enrolling(Ok(()));
        }
    }

    /// A packet was not taken. What is unsigned may be forged: it is believed only by a client that never had a session, so that whoever mounts with
    /// a wrong secret or release is told. One that had goes on trying.
    pub fn take_refusal(&mut self, refusal: Refusal) {
        self.counters.refused += 1;
        match refusal {
            Refusal::Revoked => self.end_session(Code::Unauthenticated),
            // What expired is the session before: none is agreed on yet.
            Refusal::Expired if self.session.phase == Phase::Enrolling => {}
            Refusal::Expired => self.session_ended(),
            Refusal::Unauthenticated | Refusal::Version { .. } if self.session.was_open => {}
            Refusal::Unauthenticated => self.end_session(Code::Unauthenticated),
            Refusal::Version { .. } => self.end_session(Code::Unsupported),
            Refusal::NeedTicket => {}
        }
    }
}

impl Hub {
    /// Waits until the session is open.
    pub async fn session_open(&self) -> Result<(), Code> {
        let (promise, awaited) = promise();
        self.with(|state| match state.session.phase {
            Phase::Open => promise.keep(Ok(())),
            Phase::Over(code) => promise.keep(Err(code)),
            Phase::Enrolling | Phase::Opening | Phase::Lost => {
                let number = state.session.next;
                state.session.next += 1;
                let due = state.now.mono.after(state.config.request_deadline);
                state.session.waiting.insert(number, (due, promise));
                state.timers.set(due, Timer::Session(number));
            }
        });
        awaited.await
    }

    /// Has a session agreed on. Gives whether there is one: else all is over.
    async fn enrol(&self) -> bool {
        let (promise, agreed) = promise();
        self.with(|state| {
            state.session.agreed = Some(promise);
            state.ask_to_enrol();
        });
        agreed.await.is_ok()
    }

    /// Agrees on a session and opens it, then keeps it alive until it is over.
    pub async fn live(self) {
        if !self.enrol().await {
            return;
        }
        let position = self.with(|state| position_of_session(state.session.id));
        let Some(mut renew_within) = self.open().await else { return };
        loop {
            let pause = renew_within / 3;
            self.describe(position, pause);
            self.sleep(pause).await;
            // Whatever else waits for that server: a session that is not renewed is over.
            match self.call_past_fence(position, Call::RenewSession).await {
                Ok(answered) => {
                    if let Body::Session { renew_within_ms } = answered.body {
                        renew_within = Duration::from_millis(u64::from(renew_within_ms));
                    }
                }
                Err(_) if self.with(|state| state.session.is_gone()) => return,
                // Only the owner of the session's record says that it is over: a client that could not reach it goes on trying.
                Err(_) => {}
            }
        }
    }

    /// Says who uses the session. That is for people: whether it arrives does not matter, and a home that forgot it
    /// hears it again. No renewal waits for it: the session would be over at its home meanwhile.
    fn describe(&self, position: Position, patience: Duration) {
        let hub = self.clone();
        self.with(|state| {
            let Some(description) = state.config.description.clone() else { return };
            state.spawn(async move {
                let _ = hub.call_within(position, Call::Describe(description), patience).await;
            });
        });
    }

    async fn open(&self) -> Option<Duration> {
        let position = self.with(|state| position_of_session(state.session.id));
        self.with(|state| state.want_map(false));
        loop {
            let answered = self.call(position, Call::OpenSession).await;
            let opened = self.with(|state| match answered {
                Ok(answered) => match answered.body {
                    Body::Session { renew_within_ms } => {
                        let renew_within = Duration::from_millis(u64::from(renew_within_ms));
                        state.open_session(renew_within);
                        Some(renew_within)
                    }
                    _ => {
                        state.counters.unexpected += 1;
                        None
                    }
                },
                Err(Code::Unauthenticated) => {
                    state.end_session(Code::Unauthenticated);
                    None
                }
                Err(_) => None,
            });
            if opened.is_some() || self.with(|state| state.session.is_gone()) {
                return opened;
            }
            let pause = self.with(|state| state.config.resend_pause_max);
            self.sleep(pause).await;
        }
    }

    /// Tells the server that the session is over, and ends it here. A server that does not answer is not waited for long: the session is not renewed
    /// any more, so it ends there too.
    pub async fn close_session(&self) -> Result<(), Code> {
        let (position, patience) =
            self.with(|state| (position_of_session(state.session.id), state.config.close_patience));
        self.with(|state| {
            state.session.closing = true;
            state.step("all flushed, session not closed");
        });
        self.past_fence(position).await;
        let closed = match self.call_within(position, Call::CloseSession, patience).await {
            // Over is what was asked for: an answer to an earlier copy of the request was lost.
            Ok(_) | Err(Code::SessionEnded | Code::Unreachable) => Ok(()),
            Err(code) => Err(code),
        };
        self.with(|state| state.end_session(Code::SessionEnded));
        closed
    }
}
