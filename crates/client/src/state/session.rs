//! How far the session is, and who waits for it. [`crate::calls::session`] tells how it is got, kept and
//! ended.

use crate::run::{Awaited, Io, Promise, Timer, promise};
use bearing_types::{Code, Mono, SessionId};
use std::collections::BTreeMap;

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
    /// This session, or one before it, was open once: the secret and the release are good ones, whatever
    /// unsigned words say.
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
        Session {
            phase: Phase::Enrolling,
            id: SessionId(0),
            closing: false,
            was_open: false,
            agreed: None,
            tries: 0,
            try_due: Mono::ZERO,
            waiting: BTreeMap::new(),
            next: 0,
        }
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Why nothing will ever be done in it any more.
    pub fn over(&self) -> Option<Code> {
        if let Phase::Over(code) = self.phase { Some(code) } else { None }
    }

    /// Whether nothing can be done in it any more.
    pub fn is_gone(&self) -> bool {
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

    pub fn is_ending(&self) -> bool {
        self.closing
    }

    /// It comes after another one.
    pub fn follow(&mut self, before: &Session) {
        self.was_open = before.was_open;
    }

    /// Whether one was open once, be it this one.
    pub fn was_open(&self) -> bool {
        self.was_open
    }

    /// Has one agreed on, and says whether there is one.
    pub fn enrol(&mut self, io: &mut Io) -> Awaited<Result<(), Code>> {
        let (promise, agreed) = promise();
        self.agreed = Some(promise);
        self.ask_to_enrol(io);
        agreed
    }

    /// One more try to get a session, and another one later if nothing comes of it.
    pub fn ask_to_enrol(&mut self, io: &mut Io) {
        let pause = io.config.resend_interval * (1 << self.tries.min(8));
        self.tries += 1;
        self.try_due = io.now.mono.after(pause.min(io.config.resend_interval_max));
        io.timers.set(self.try_due, Timer::Enrol);
        io.out.push(crate::event::Command::Enrol);
    }

    /// The servers have agreed on one. Whether that was waited for.
    pub fn agreed(&mut self, id: SessionId, io: &mut Io) -> bool {
        let news = self.phase == Phase::Enrolling;
        if news {
            (self.phase, self.id) = (Phase::Opening, id);
            self.stop_enrolling(Ok(()), io);
        }
        news
    }

    fn stop_enrolling(&mut self, result: Result<(), Code>, io: &mut Io) {
        if let Some(agreed) = self.agreed.take() {
            io.timers.cancel(self.try_due, Timer::Enrol);
            agreed.keep(result);
        }
    }

    /// It is open from now on. [`Session::release`] is still to be called.
    pub fn opened(&mut self) {
        (self.phase, self.was_open) = (Phase::Open, true);
    }

    /// The servers have ended it, and nobody here did.
    pub fn lost(&mut self) {
        if self.over().is_none() {
            self.phase = Phase::Lost;
        }
    }

    /// It is over for good. Whether that is news: the first reason stays. [`Session::release`] is still to be
    /// called.
    pub fn end(&mut self, code: Code, io: &mut Io) -> bool {
        let news = self.over().is_none();
        if news {
            self.phase = Phase::Over(code);
            self.stop_enrolling(Err(code), io);
        }
        news
    }

    /// Says when it is open, or that it will not be.
    pub fn wait(&mut self, io: &mut Io) -> Awaited<Result<(), Code>> {
        let (promise, awaited) = promise();
        match self.phase {
            Phase::Open => promise.keep(Ok(())),
            Phase::Over(code) => promise.keep(Err(code)),
            Phase::Enrolling | Phase::Opening | Phase::Lost => {
                let number = self.next;
                self.next += 1;
                let due = io.now.mono.after(io.config.request_timeout);
                self.waiting.insert(number, (due, promise));
                io.timers.set(due, Timer::Session(number));
            }
        }
        awaited
    }

    /// Answers all who wait.
    pub fn release(&mut self, result: Result<(), Code>, io: &mut Io) {
        while let Some((number, (due, promise))) = self.waiting.pop_first() {
            io.timers.cancel(due, Timer::Session(number));
            promise.keep(result);
        }
    }

    /// Somebody has waited long enough.
    pub fn on_wait_due(&mut self, number: u64, io: &mut Io) {
        if let Some((_, promise)) = self.waiting.remove(&number) {
            io.counters.deadlines += 1;
            promise.keep(Err(Code::Unreachable));
        }
    }
}
