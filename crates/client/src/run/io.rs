//! What every part of the machine may use, and the only way by which it does anything outside: the time,
//! times set, chance, limits, sums, and the commands of this step.

use super::random::Random;
use super::timer::Timers;
use crate::config::ClientConfig;
use crate::counters::Counters;
use crate::event::{Command, Note, Target, Transport};
use bearing_proto::Message;
use bearing_proto::client::LeaseMs;
use bearing_types::{Code, Mono, Now, Wall};
use std::time::Duration;

/// See the module.
pub(crate) struct Io {
    pub config: ClientConfig,
    pub random: Random,
    pub now: Now,
    pub timers: Timers,
    pub counters: Counters,
    /// What the shell is to do, in this order.
    pub out: Vec<Command>,
}

impl Io {
    /// At the beginning of time. `seed` gives the jitter of pauses.
    pub fn new(config: ClientConfig, seed: u64) -> Io {
        Io {
            config,
            random: Random::new(seed),
            now: Now { mono: Mono::ZERO, wall: Wall(0) },
            timers: Timers::default(),
            counters: Counters::default(),
            out: Vec::new(),
        }
    }

    /// Sends a message without bulk bytes.
    pub fn send(&mut self, to: Target, transport: Transport, message: Message) {
        self.out.push(Command::Send { to, transport, message, attachment: Vec::new() });
    }

    /// Tells people.
    pub fn note(&mut self, note: Note) {
        self.out.push(Command::Note(note));
    }

    /// See [`crate::Note::Step`].
    pub fn step(&mut self, name: &'static str) {
        self.note(Note::Step(name));
    }

    /// An answer of a kind that does not answer what was asked.
    pub fn unexpected(&mut self) -> Code {
        self.counters.unexpected += 1;
        Code::Io
    }

    /// Until when a lease may be used, counted from when it was asked for and shortened by the margin.
    pub fn lease_end(&self, sent: Mono, lease: LeaseMs) -> Option<Mono> {
        let end = sent.after(self.usable(lease));
        (end > self.now.mono).then_some(end)
    }

    /// How much of a lease may be used, whatever our clock and its clock say.
    pub fn usable(&self, lease: LeaseMs) -> Duration {
        let length = Duration::from_millis(u64::from(lease.0));
        length.saturating_sub(length / 100 + self.config.lease_margin)
    }

    /// Whether something that a server signed is good for a while yet, whatever our clock and its clock say.
    pub fn signature_lives(&self, expires: Wall) -> bool {
        expires > self.now.wall.after(self.config.skew_max)
    }
}
