//! The session: agreed on and opened before anything else, renewed, ended.
//!
//! Servers may end it: a client that they did not hear of for long, or whose ticket expired. Then the machine
//! begins anew with another one (`again.rs`). Only what the client itself ends, or what it is refused for its
//! secret or its release, is over for good.

use crate::context::{Context, State};
use crate::event::Note;
use crate::state::Phase;
use bearing_placement::position_of_session;
use bearing_proto::client::{Body, Call};
use bearing_proto::envelope::Refusal;
use bearing_types::{Code, Position, ServerId, SessionId};
use std::time::Duration;

/// A kernel that has not forgotten for so long what it knew is not waited for when the session ends.
const FORGET_TIMEOUT: Duration = Duration::from_secs(1);

impl State {
    fn open_session(&mut self, renew_within: Duration) {
        self.session.opened();
        self.io.note(Note::SessionOpen(renew_within));
        self.io.step("session open");
        self.session.release(Ok(()), &mut self.io);
    }

    /// The servers say that the session is over.
    pub fn on_session_ended(&mut self) {
        if self.session.is_ending() {
            self.end_session(Code::SessionEnded);
        } else {
            self.session.lost();
        }
    }

    /// Ends everything: what is under way, and what begins later. The first reason stays.
    pub fn end_session(&mut self, code: Code) {
        if !self.session.end(code, &mut self.io) {
            return;
        }
        self.io.note(Note::SessionOver(code));
        self.cache.clear();
        self.requests.fail(code, &mut self.io);
        self.data.fail(code, &mut self.io);
        self.session.release(Err(code), &mut self.io);
    }

    /// Has all metadata servers hear of the session: whoever takes a tablet over has to ask this client for
    /// what it was leased.
    fn greet_all(&mut self) {
        self.greeted_again.clear();
        self.requests.greet(self.routes.metadata_servers(), self.routes.version(), &mut self.io);
    }

    /// A server was not reached, or was started again and took nothing. If it is there it hears of the
    /// session now: once, until all are greeted the next time.
    pub fn greet_again(&mut self, server: ServerId) {
        let is_there = self.routes.metadata_servers().contains(&server);
        if is_there && self.session.phase() == Phase::Open && self.greeted_again.insert(server) {
            self.requests.greet(&[server], self.routes.version(), &mut self.io);
        }
    }

    /// The servers have agreed on a session.
    pub fn on_enrolled(&mut self, session: SessionId) {
        if self.session.agreed(session, &mut self.io) {
            self.delegations.set_session(session);
        } else if session != self.session.id() && self.session.over().is_none() {
            // Two tries came to an end, and packets go in the name of the second one from now on.
            self.on_session_ended();
        }
    }

    /// A packet was not taken. What is unsigned may be forged: it is believed only by a client that never had
    /// a session, so that whoever mounts with a wrong secret or release is told. One that had goes on trying.
    pub fn on_refusal(&mut self, refusal: Refusal) {
        self.io.counters.refused += 1;
        match refusal {
            Refusal::Revoked => self.end_session(Code::Unauthenticated),
            // What expired is the session before: none is agreed on yet.
            Refusal::Expired if self.session.phase() == Phase::Enrolling => {}
            Refusal::Expired => self.on_session_ended(),
            Refusal::Unauthenticated | Refusal::Version { .. } if self.session.was_open() => {}
            Refusal::Unauthenticated => self.end_session(Code::Unauthenticated),
            Refusal::Version { .. } => self.end_session(Code::Unsupported),
            Refusal::NeedTicket => {}
        }
    }
}

impl Context {
    /// Has a session agreed on. Gives whether there is one: else all is over.
    async fn enrol(&self) -> bool {
        self.with(|state| state.session.enrol(&mut state.io)).await.is_ok()
    }

    /// Agrees on a session and opens it, then keeps it alive until it is over.
    pub async fn live(self) {
        if !self.enrol().await {
            return;
        }
        let position = self.with(|state| position_of_session(state.session.id()));
        let Some(mut renew_within) = self.open().await else { return };
        loop {
            let pause = renew_within / 3;
            self.describe(position, pause);
            self.with(State::greet_all);
            self.sleep(pause).await;
            // Whatever else waits for that server: a session that is not renewed is over.
            match self.call_past_fence(position, Call::RenewSession).await {
                Ok(answered) => {
                    if let Body::Session { renew_within_ms } = answered.body {
                        renew_within = Duration::from_millis(u64::from(renew_within_ms));
                    }
                }
                Err(_) if self.with(|state| state.session.is_gone()) => return,
                // Only the owner of the session's record says that it is over: a client that could not reach
                // it goes on trying.
                Err(_) => {}
            }
        }
    }

    /// Says who uses the session. That is for people: whether it arrives does not matter, and a home that
    /// forgot it hears it again. No renewal waits for it: the session would be over at its home meanwhile.
    fn describe(&self, position: Position, patience: Duration) {
        let context = self.clone();
        self.with(|state| {
            let Some(description) = state.io.config.description.clone() else { return };
            state.spawn(async move {
                let _ = context.call_within(position, Call::Describe(description), patience).await;
            });
        });
    }

    async fn open(&self) -> Option<Duration> {
        let position = self.with(|state| position_of_session(state.session.id()));
        self.with(|state| state.routes.want_map(false));
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
                        state.io.unexpected();
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
            let pause = self.with(|state| state.io.config.resend_interval_max);
            self.sleep(pause).await;
        }
    }

    /// Tells the server that the session is over, and ends it here. Programs may go on meanwhile, after a
    /// lazy unmount: nothing is used under a lease once the server may know, as others wait for none of them
    /// then.
    /// A server that does not answer is not waited for long: the session is not renewed any more, so it ends
    /// there too.
    pub async fn close_session(&self) -> Result<(), Code> {
        let (position, patience) =
            self.with(|state| (position_of_session(state.session.id()), state.io.config.close_timeout));
        let forgotten = self.with(|state| {
            state.session.begin_end();
            state.io.step("all flushed, session not closed");
            let kernel = state.stop_leasing();
            state.invalidate_and_tell(kernel)
        });
        self.sleep_unless(FORGET_TIMEOUT, forgotten).await;
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
