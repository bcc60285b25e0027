//! The session: opened before anything else, renewed, ended.

use crate::event::{Command, Note};
use crate::hub::{Hub, State};
use crate::task::{Promise, promise};
use crate::timer::Timer;
use bearing_placement::position_of_session;
use bearing_proto::client::{Body, Call};
use bearing_proto::envelope::Refusal;
use bearing_types::{Code, Mono, Position};
use std::collections::BTreeMap;
use std::time::Duration;

/// How far the session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not yet open; operations wait.
    Opening,
    /// Open.
    Open,
    /// It will never be open again; operations end with this code.
    Over(Code),
}

/// See the module.
pub(crate) struct Session {
    phase: Phase,
    waiting: BTreeMap<u64, (Mono, Promise<Result<(), Code>>)>,
    next: u64,
}

impl Session {
    pub fn new() -> Session {
        Session { phase: Phase::Opening, waiting: BTreeMap::new(), next: 0 }
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }
}

impl State {
    fn open_session(&mut self, renew_within: Duration) {
        self.session.phase = Phase::Open;
        self.out.push(Command::Note(Note::SessionOpen(renew_within)));
        self.step("session open");
        self.release_waiting(Ok(()));
    }

    /// Ends everything: what is under way, and what begins later. The first reason stays.
    pub fn end_session(&mut self, code: Code) {
        if matches!(self.session.phase, Phase::Over(_)) {
            return;
        }
        self.session.phase = Phase::Over(code);
        self.out.push(Command::Note(Note::SessionOver(code)));
        self.cache.clear();
        self.fail_requests(code);
        self.fail_data_requests(code);
        self.release_waiting(Err(code));
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

    /// An unsigned word that a packet was not taken. Once the session is open it can only be forged, or concern one stray packet.
    pub fn take_refusal(&mut self, refusal: Refusal) {
        self.counters.refused += 1;
        if self.session.phase == Phase::Opening {
            match refusal {
                Refusal::Unauthenticated => self.end_session(Code::Unauthenticated),
                Refusal::Version { .. } => self.end_session(Code::Unsupported),
            }
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
            Phase::Opening => {
                let number = state.session.next;
                state.session.next += 1;
                let due = state.now.mono.after(state.config.request_deadline);
                state.session.waiting.insert(number, (due, promise));
                state.timers.set(due, Timer::Session(number));
            }
        });
        awaited.await
    }

    /// Opens the session, then keeps it alive until it is over.
    pub async fn live(self) {
        let position = self.with(|state| position_of_session(state.config.session));
        let Some(mut renew_within) = self.open().await else { return };
        loop {
            self.describe(position).await;
            self.sleep(renew_within / 3).await;
            match self.call(position, Call::RenewSession).await {
                Ok(answered) => {
                    if let Body::Session { renew_within_ms } = answered.body {
                        renew_within = Duration::from_millis(u64::from(renew_within_ms));
                    }
                }
                Err(_) if self.with(|state| matches!(state.session.phase, Phase::Over(_))) => return,
                // Only the owner of the session's record says that it is over: a client that could not reach it goes on trying.
                Err(_) => {}
            }
        }
    }

    /// Says who uses the session. That is for people: whether it arrives does not matter, and a home that forgot it hears it again.
    async fn describe(&self, position: Position) {
        if let Some(description) = self.with(|state| state.config.description.clone()) {
            let _ = self.call(position, Call::Describe(description)).await;
        }
    }

    async fn open(&self) -> Option<Duration> {
        let position = self.with(|state| position_of_session(state.config.session));
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
            if opened.is_some() || self.with(|state| matches!(state.session.phase, Phase::Over(_))) {
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
            self.with(|state| (position_of_session(state.config.session), state.config.close_patience));
        self.with(|state| state.step("all flushed, session not closed"));
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
