//! The state of a server on the ring (see `engine/ring.rs`): the machine of `lookup::finger`, and how it is
//! let in and looks around.

use crate::config::Config;
use bearing_lookup::finger::{FingerConfig, FingerServer, Points, Reconstruction, Reliability};
use bearing_lookup::{Command as Said, Event, Machine, Message};
use bearing_proto::ring::RingMessage;
use bearing_types::{Mono, ServerId};

/// Bits of a server's id: so many fingers it has.
const ID_BITS: u8 = 32;
/// Each other server is asked so many times to let this one in; then it begins a ring alone.
const ROUNDS: usize = 2;

/// See the module.
#[derive(Debug)]
pub(crate) struct Ring {
    server: ServerId,
    finger: FingerServer,
    points: Points,
    stage: Stage,
    /// Who was asked last to let this server in, or looked at last: others take turns.
    last: ServerId,
    next_look: Mono,
    /// Since when it has something to serve first.
    serving_first: Option<Mono>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It does not know the servers yet.
    Outside,
    /// It asks to be let in: how often it has, and when it will again.
    Joining { asked: usize, next: Mono },
    /// It is on the ring.
    In,
}

/// What a server knows of the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingView {
    /// Before its predecessor.
    pub front_predecessor: ServerId,
    /// Before it.
    pub predecessor: ServerId,
    /// Behind it.
    pub successor: ServerId,
    /// Behind its successor.
    pub next_successor: ServerId,
    /// The owners of its fingers, the nearest finger first: the server whose id is higher by 2^i, or who
    /// follows it.
    pub fingers: Vec<ServerId>,
    /// How often it has linked the ring anew, because its predecessor failed.
    pub reconstructions: u64,
    /// The last of these that all who have to know have acknowledged.
    pub reconstructed: Option<Reconstruction>,
}

impl Ring {
    pub fn new(server: ServerId, config: &Config) -> Ring {
        let times = (config.ring_ping_interval, config.ring_ping_timeout);
        let finger = FingerConfig::new(Reliability::Rebuilding)
            .with_space_bits(ID_BITS)
            .and_then(|finger| finger.with_pings(times.0, times.1))
            .expect("the configured times fit each other");
        let points = Points::Numbered;
        Ring {
            server,
            finger: FingerServer::new(server, &points, finger),
            points,
            stage: Stage::Outside,
            last: server,
            next_look: Mono::ZERO,
            serving_first: None,
        }
    }

    /// What it knows; nothing before it is let in.
    pub fn view(&self) -> Option<RingView> {
        let neighbours = self.finger.neighbours();
        (self.stage == Stage::In).then(|| RingView {
            front_predecessor: neighbours.fpd.server,
            predecessor: neighbours.pd.server,
            successor: neighbours.sc.server,
            next_successor: neighbours.nsc.server,
            fingers: self.finger.finger_owners(),
            reconstructions: self.finger.reconstructions(),
            reconstructed: self.finger.reconstructed(),
        })
    }

    /// Who follows it, nearest first, as far as it knows.
    pub fn successors(&self) -> Vec<ServerId> {
        self.finger.successors()
    }

    /// The other servers are these now. Nobody takes a message that names one that was removed, so who knows
    /// one would never be told of others again: it asks anew to be let in.
    pub fn servers_are(&mut self, others: &[ServerId], config: &Config) {
        if self.finger.named().any(|server| !others.contains(&server)) {
            *self = Ring { last: self.last, ..Ring::new(self.server, config) };
        }
    }

    /// Whether there is anything to do.
    pub fn is_due(&self, now: Mono) -> bool {
        match self.stage {
            Stage::Outside => true,
            Stage::Joining { next, .. } => now >= next,
            Stage::In => self.finger.next_wake().is_some_and(|due| now >= due),
        }
    }

    /// What time brings, among these others. `serves`: nothing is to be served first. Whether it has linked
    /// the ring anew.
    pub fn pass(
        &mut self,
        now: Mono,
        others: &[ServerId],
        serves: bool,
        config: &Config,
        out: &mut Vec<Said>,
    ) -> bool {
        let before = self.finger.reconstructions();
        match self.stage {
            Stage::Outside | Stage::Joining { .. } => self.join(now, others, config, out),
            Stage::In => self.tend(now, others, serves, config, out),
        }
        self.finger.reconstructions() > before
    }

    /// Asks the next of the others to let this server in. Whoever was not let in by anybody begins alone:
    /// rings find each other by looking around.
    fn join(&mut self, now: Mono, others: &[ServerId], config: &Config, out: &mut Vec<Said>) {
        let asked = if let Stage::Joining { asked, .. } = self.stage { asked } else { 0 };
        let through = self.turn(others).filter(|_| asked < others.len() * ROUNDS);
        self.stage = match through {
            Some(_) => Stage::Joining { asked: asked + 1, next: now.after(config.ring_ping_interval) },
            None => Stage::In,
        };
        self.finger.step(now, Event::Join(through), out);
    }

    fn tend(&mut self, now: Mono, others: &[ServerId], serves: bool, config: &Config, out: &mut Vec<Said>) {
        if now >= self.next_look {
            self.next_look = now.after(config.ring_look_interval);
            let neighbours = self.finger.neighbours();
            let known = [neighbours.pd.server, neighbours.sc.server];
            let strangers: Vec<ServerId> =
                others.iter().copied().filter(|server| !known.contains(server)).collect();
            self.turn(&strangers).into_iter().for_each(|stranger| self.finger.look(stranger));
        }
        self.serving_first = if serves { None } else { self.serving_first.or(Some(now)) };
        // What cannot be served for so long waits for others: the ring does not wait with it.
        match self.serving_first.is_some_and(|since| now.since(since) < config.relink_patience) {
            true => self.finger.ping_only(now, out),
            false => self.finger.step(now, Event::Wake, out),
        }
    }

    /// Who comes after the last one whose turn it was.
    fn turn(&mut self, servers: &[ServerId]) -> Option<ServerId> {
        let after = servers.iter().copied().filter(|server| *server > self.last).min();
        self.last = after.or(servers.iter().copied().min())?;
        Some(self.last)
    }

    /// Takes a message; whether it was let in by it.
    pub fn take(&mut self, now: Mono, from: ServerId, message: &RingMessage, out: &mut Vec<Said>) -> bool {
        if self.stage == Stage::Outside {
            return false;
        }
        let message = message.on(&self.points);
        self.finger.step(now, Event::Message(from, Message::Finger(message)), out);
        let is_let_in = self.stage != Stage::In && !self.finger.is_joining();
        if is_let_in {
            self.stage = Stage::In;
        }
        is_let_in
    }
}
