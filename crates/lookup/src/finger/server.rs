//! A server of a ring: its neighbours and fingers, and what keeps them right when others come, go and fail.

use super::client::FingerClient;
use super::message::{Find, FingerMessage, Neighbours};
use super::points::{Peer, Points, within};
use crate::machine::{Command, Event, Machine, pass};
use crate::message::Message;
use crate::query::Query;
use bearing_types::{Mono, ParameterError, Position, ServerId, within as in_bounds};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// How much servers of a ring know of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reliability {
    /// Chord and DHT-MDSC: who follows a failed server is found by pings, and fingers are asked for anew from
    /// time to time; what it had is lost with it.
    Plain,
    /// RDHT-MDSC: successors of fingers are kept too, and a failed neighbour is replaced.
    Rebuilding,
}

/// What can be set about a ring.
#[derive(Clone, Debug)]
pub struct FingerConfig {
    space_bits: u8,
    reliability: Reliability,
    pub(super) ping_every: Duration,
    pub(super) ping_timeout: Duration,
}

impl FingerConfig {
    /// The ring of 2^64 positions, with neighbours that ping each other every 5 ms and have failed after 15
    /// ms of silence. The paper gives no times; these are ours.
    pub fn new(reliability: Reliability) -> FingerConfig {
        let (ping_every, ping_timeout) = (Duration::from_millis(5), Duration::from_millis(15));
        FingerConfig { space_bits: 64, reliability, ping_every, ping_timeout }
    }

    /// The same with fingers over a space of 2^`bits`, 1 to 64: 10 for the paper's space of 1,024.
    pub fn with_space_bits(self, bits: u8) -> Result<FingerConfig, ParameterError> {
        in_bounds("space_bits", bits, (1..=64).contains(&bits), "1 to 64")?;
        Ok(FingerConfig { space_bits: bits, ..self })
    }

    /// The same with other times: a ping every `every`, above 0; a neighbour has failed after `timeout` of
    /// silence, more than `every`.
    pub fn with_pings(self, every: Duration, timeout: Duration) -> Result<FingerConfig, ParameterError> {
        in_bounds("ping_every", format!("{every:?}"), !every.is_zero(), "a time above 0")?;
        in_bounds("ping_timeout", format!("{timeout:?}"), timeout > every, "more than ping_every")?;
        Ok(FingerConfig { ping_every: every, ping_timeout: timeout, ..self })
    }

    /// How often neighbours are pinged.
    pub fn ping_every(&self) -> Duration {
        self.ping_every
    }

    pub(super) fn rebuilds(&self) -> bool {
        self.reliability == Reliability::Rebuilding
    }
}

/// The successor of a finger's start, and who comes after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Finger {
    pub(super) owner: Peer,
    pub(super) next: Peer,
}

/// A reconstruction that is under way: what is told to those whose acknowledgement is awaited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rebuilding {
    pub(super) gone: Peer,
    pub(super) heir: Peer,
    pub(super) next: Peer,
    pub(super) since: Mono,
}

/// A reconstruction that has ended: all have acknowledged it, or were waited for long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reconstruction {
    /// Who had failed.
    pub gone: ServerId,
    /// When its silence was taken for a failure.
    pub begun: Mono,
    /// When the last acknowledgement came.
    pub ended: Mono,
}

/// Acknowledgements are waited for as long as so many pings in a row may go unanswered.
pub(super) const ACKNOWLEDGE_WAIT: u32 = 4;
/// Fingers are asked for anew with every so many pings (Chord's fix_fingers): whatever message about
/// somebody's coming or going was lost, they are right again after that.
const REFRESH_EVERY: u32 = 100;
/// And so many pings after a nearer neighbour was heard of: two rings are becoming one.
const REFRESH_SOON: u32 = 10;
/// Queries that wait for a reconstruction, at most; more are sent back.
const HELD_MAX: usize = 256;
/// Servers whose end is remembered, so that a message that walks is known again.
pub(super) const GONE_MAX: usize = 64;
/// A message that looks for an owner is dropped after so many hops: the asker asks again.
pub(super) const FIND_HOPS_MAX: u8 = 128;

/// See the module.
#[derive(Debug)]
pub struct FingerServer {
    pub(super) me: Peer,
    pub(super) points: Points,
    pub(super) config: FingerConfig,
    pub(super) neighbours: Neighbours,
    /// By the bit of their distance, the lowest first.
    pub(super) fingers: Vec<Finger>,
    /// Where this server joins through; nothing once it is in.
    pub(super) joining: Option<ServerId>,
    pub(super) left: bool,
    /// Servers that could not be reached, until somebody says that they are gone or they are heard of.
    pub(super) suspects: BTreeSet<ServerId>,
    /// Who is gone, and who has what they had; the newest last.
    pub(super) gone: VecDeque<(Peer, Peer, Peer)>,
    /// Who came, as far as it was walked past here.
    pub(super) joined: VecDeque<ServerId>,
    /// Who has to acknowledge the reconstruction that is under way.
    pub(super) awaited: BTreeSet<ServerId>,
    pub(super) rebuilding: Option<Rebuilding>,
    pub(super) held: VecDeque<Query>,
    /// When a neighbour was last heard of.
    pub(super) heard: BTreeMap<ServerId, Mono>,
    /// Somebody else who is pinged until it answers: see [`FingerServer::look`].
    pub(super) looked: Option<ServerId>,
    pub(super) next_ping: Option<Mono>,
    /// Pings until fingers are asked for anew.
    refresh_in: u32,
    pub(super) reconstructions: u64,
    reconstructed: Option<Reconstruction>,
}

impl FingerServer {
    /// A server that is alone.
    pub fn new(server: ServerId, points: &Points, config: FingerConfig) -> FingerServer {
        let me = points.peer(server);
        let alone = Finger { owner: me, next: me };
        FingerServer {
            me,
            points: points.clone(),
            neighbours: Neighbours { fpd: me, pd: me, sc: me, nsc: me },
            fingers: vec![alone; usize::from(config.space_bits)],
            config,
            joining: None,
            left: false,
            suspects: BTreeSet::new(),
            gone: VecDeque::new(),
            joined: VecDeque::new(),
            awaited: BTreeSet::new(),
            rebuilding: None,
            held: VecDeque::new(),
            heard: BTreeMap::new(),
            looked: None,
            next_ping: Some(Mono::ZERO),
            refresh_in: REFRESH_EVERY,
            reconstructions: 0,
            reconstructed: None,
        }
    }

    /// A server of a ring that is at rest: all tables as the rules say, computed from who is there.
    pub fn settled(
        server: ServerId,
        members: &[ServerId],
        points: &Points,
        config: FingerConfig,
    ) -> FingerServer {
        FingerServer::settled_in(&points.ring(members), server, points, config)
    }

    /// The same for one of many, of which the ring is known already: every server, in the order of places.
    pub fn settled_in(
        ring: &[Peer],
        server: ServerId,
        points: &Points,
        config: FingerConfig,
    ) -> FingerServer {
        let mut this = FingerServer::new(server, points, config);
        let at = |index: usize| ring[index % ring.len()];
        let own = ring.partition_point(|peer| peer.at < this.me.at);
        let before = |steps: usize| at(own + ring.len() * 2 - steps);
        this.neighbours = Neighbours { fpd: before(2), pd: before(1), sc: at(own + 1), nsc: at(own + 2) };
        for index in 0..this.fingers.len() {
            let start = this.start(index);
            let owner = ring.partition_point(|peer| peer.at < start);
            this.fingers[index] = Finger { owner: at(owner), next: at(owner + 1) };
        }
        this
    }

    /// Its neighbours.
    pub fn neighbours(&self) -> Neighbours {
        self.neighbours
    }

    /// Where it stands.
    pub fn at(&self) -> Position {
        self.me.at
    }

    /// The successor of each finger's start, nearest first.
    pub fn finger_owners(&self) -> Vec<ServerId> {
        self.fingers.iter().map(|finger| finger.owner.server).collect()
    }

    /// Who follows the successor of each finger's start, nearest first.
    pub fn finger_nexts(&self) -> Vec<ServerId> {
        self.fingers.iter().map(|finger| finger.next.server).collect()
    }

    /// How often it has rebuilt the ring after its predecessor failed.
    pub fn reconstructions(&self) -> u64 {
        self.reconstructions
    }

    /// The reconstruction of its own that ended last.
    pub fn reconstructed(&self) -> Option<Reconstruction> {
        self.reconstructed
    }

    /// Whether it waits to be let in.
    pub fn is_joining(&self) -> bool {
        self.joining.is_some()
    }

    /// Whether it waits for acknowledgements of a reconstruction.
    pub fn is_reconstructing(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// Who follows it, nearest first: all that its tables name, but those that it takes for gone.
    pub fn successors(&self) -> Vec<ServerId> {
        let Neighbours { fpd, pd, sc, nsc } = self.neighbours;
        let known = self.fingers.iter().flat_map(|finger| [finger.owner, finger.next]);
        let there = |peer: &Peer| peer.server != self.me.server && !self.is_dead(peer.server);
        let mut there: Vec<Peer> = known.chain([sc, nsc, pd, fpd]).filter(there).collect();
        there.sort_unstable_by_key(|peer| (self.me.at.clockwise_to(peer.at), peer.server));
        there.dedup();
        there.into_iter().map(|peer| peer.server).collect()
    }

    /// All that its messages may name, itself left out: those that it takes for gone too, until all who have
    /// to know have acknowledged that.
    pub fn named(&self) -> impl Iterator<Item = ServerId> + '_ {
        let Neighbours { fpd, pd, sc, nsc } = self.neighbours;
        let known = self.fingers.iter().flat_map(|finger| [finger.owner, finger.next]);
        let gone = self.gone.iter().map(|(gone, ..)| *gone);
        let all = known.chain([sc, nsc, pd, fpd]).chain(gone);
        all.map(|peer| peer.server).filter(|server| *server != self.me.server)
    }

    /// Where a finger's range begins.
    pub(super) fn start(&self, index: usize) -> Position {
        let distance = 1u64 << (64 - self.fingers.len() + index);
        Position(self.me.at.0.wrapping_add(distance))
    }

    /// Whether a position is this server's.
    pub fn owns(&self, position: Position) -> bool {
        within(position, self.neighbours.pd.at, self.me.at)
    }

    /// Whether a server is known to be gone, or could not be reached lately.
    pub(super) fn is_dead(&self, server: ServerId) -> bool {
        self.suspects.contains(&server) || self.gone.iter().any(|(gone, ..)| gone.server == server)
    }

    /// Who is next on the way to a position that is not this server's. Never one that is farther from it,
    /// clockwise.
    pub(super) fn next_hop(&self, position: Position) -> Option<ServerId> {
        let reachable = |peer: &Peer| peer.server != self.me.server && !self.is_dead(peer.server);
        let Neighbours { sc, nsc, .. } = self.neighbours;
        if within(position, self.me.at, sc.at) && reachable(&sc) {
            return Some(sc.server);
        }
        // The finger in whose range it lies: its owner, or the last server known before it.
        let distance = self.me.at.clockwise_to(position).max(1);
        let bit = (63 - distance.leading_zeros()) as usize;
        if bit + self.fingers.len() < 64 {
            // Nearer than any finger reaches.
            return [sc, nsc].iter().find(|peer| reachable(peer)).map(|peer| peer.server);
        }
        let index = bit + self.fingers.len() - 64;
        let finger = self.fingers[index];
        // If it is gone, its successor has what it had.
        let around = self.config.rebuilds() && self.is_dead(finger.owner.server);
        let direct = [Some(finger.owner), around.then_some(finger.next)];
        let nearer = self.fingers[..index].iter().rev().map(|finger| Some(finger.owner));
        let last = [Some(sc), Some(nsc)];
        let on_the_way = |peer: &Peer| {
            within(peer.at, self.me.at, position) || peer.at == finger.owner.at || peer.at == finger.next.at
        };
        let mut candidates =
            direct.into_iter().chain(nearer.filter(|peer| peer.as_ref().is_some_and(on_the_way))).chain(last);
        candidates.find_map(|peer| peer.filter(|peer| reachable(peer))).map(|peer| peer.server)
    }

    /// The last server known before a position that is not this server's, or the successor if that owns it
    /// (Chord, section 4.3): it trusts no finger to be an owner, so it arrives wherever successors are right.
    pub(super) fn preceding(&self, position: Position) -> Option<ServerId> {
        let Neighbours { sc, nsc, .. } = self.neighbours;
        let known = self.fingers.iter().flat_map(|finger| [finger.owner, finger.next]).chain([sc, nsc]);
        let last = Position(position.0.wrapping_sub(1));
        let on_the_way = |peer: &Peer| {
            peer.server != self.me.server && !self.is_dead(peer.server) && within(peer.at, self.me.at, last)
        };
        let owned = within(position, self.me.at, sc.at) && !self.is_dead(sc.server);
        let before = known.filter(on_the_way).max_by_key(|peer| self.me.at.clockwise_to(peer.at));
        let next = if owned { sc } else { before.unwrap_or(sc) };
        Some(next.server).filter(|next| *next != self.me.server && !self.is_dead(*next))
    }

    pub(super) fn refresh_soon(&mut self) {
        self.refresh_in = self.refresh_in.min(REFRESH_SOON);
    }

    // --- queries ---

    fn take(&mut self, query: Query, out: &mut Vec<Command>) {
        if self.left || self.joining.is_some() {
            out.push(Command::Refer(query, None));
        } else if !self.owns(query.target.position) {
            // A finger of somebody may not know yet that another joined right before this server.
            let Neighbours { fpd, pd, .. } = self.neighbours;
            let before = fpd.at != pd.at && within(query.target.position, fpd.at, pd.at);
            let next = if before && pd.server != self.me.server && !self.is_dead(pd.server) {
                Some(pd.server)
            } else {
                self.next_hop(query.target.position)
            };
            match next {
                Some(next) => pass(query, Some(next), FingerClient::HOPS_MAX, out),
                None => out.push(Command::Refer(query, None)),
            }
        } else if !self.is_reconstructing() {
            out.push(Command::Serve(query));
        } else if self.held.len() < HELD_MAX {
            self.held.push_back(query);
        } else {
            out.push(Command::Refer(query, None));
        }
    }

    pub(super) fn release(&mut self, out: &mut Vec<Command>) {
        if !self.is_reconstructing() {
            for query in std::mem::take(&mut self.held) {
                self.take(query, out);
            }
        }
    }

    fn take_message(&mut self, from: ServerId, message: FingerMessage, now: Mono, out: &mut Vec<Command>) {
        // Who is not in yet knows nothing that others could use.
        let welcome = matches!(message, FingerMessage::Welcome(_));
        if self.left || (self.joining.is_some() && !welcome) {
            return;
        }
        match message {
            FingerMessage::Find { key, asker, what, hops } => self.find(key, asker, what, hops, out),
            FingerMessage::Welcome(neighbours) => self.settle_in(neighbours, now, out),
            FingerMessage::Found { key, owner, next } => self.take_found(key, owner, next, out),
            FingerMessage::Ping { pd, sc } => {
                self.hear(self.points.peer(from), pd, sc, now, out);
                let Neighbours { pd, sc, .. } = self.neighbours;
                self.tell(from, FingerMessage::Pong { pd, sc }, out);
            }
            FingerMessage::Pong { pd, sc } => self.hear(self.points.peer(from), pd, sc, now, out),
            FingerMessage::Follows { gone, sc, nsc } => self.follow(gone, sc, nsc, out),
            FingerMessage::Precedes { gone, pd, fpd } => {
                if self.neighbours.pd.server == gone {
                    (self.neighbours.pd, self.neighbours.fpd) = (pd, fpd);
                }
            }
            FingerMessage::Joined { new, next } => self.take_joined(new, next, out),
            FingerMessage::Gone { gone, heir, next, acknowledge } => {
                self.take_gone(from, gone, heir, next, out);
                if acknowledge {
                    self.tell(heir.server, FingerMessage::Acknowledged(gone.server), out);
                }
            }
            FingerMessage::Acknowledged(_) => {
                self.awaited.remove(&from);
                self.release(out);
            }
        }
    }

    fn wake(&mut self, now: Mono, out: &mut Vec<Command>) {
        if self.left {
            return;
        }
        if let Some(through) = self.joining {
            let place = FingerMessage::Find { key: self.me.at, asker: self.me, what: Find::Place, hops: 0 };
            self.tell(through, place, out);
            self.next_ping = Some(now.after(self.config.ping_timeout));
            return;
        }
        self.notice_stop(now);
        self.remind(now, out);
        let silent = |heard: &Mono| now.since(*heard) >= self.config.ping_timeout;
        let failed: Vec<ServerId> =
            self.heard.iter().filter(|(_, heard)| silent(heard)).map(|(server, _)| *server).collect();
        for server in failed {
            self.heard.remove(&server);
            self.suspect(server, now, out);
        }
        self.close_if_alone();
        self.ping(now, out);
        self.refresh_in -= 1;
        if self.refresh_in == 0 {
            self.refresh_in = REFRESH_EVERY;
            self.ask_for_fingers(out);
        }
    }
}

impl Machine for FingerServer {
    fn step(&mut self, now: Mono, event: Event, out: &mut Vec<Command>) {
        match event {
            Event::Query(query) => self.take(query, out),
            Event::Unreachable(server, query) => {
                self.suspect(server, now, out);
                query.into_iter().for_each(|query| self.take(query, out));
            }
            Event::Message(from, Message::Finger(message)) => {
                self.take_message(from, message, now, out);
            }
            Event::Join(through) => {
                self.joining = through;
                self.wake(now, out);
            }
            Event::Leave => self.leave(out),
            Event::Wake => self.wake(now, out),
            Event::Message(_, Message::Bloom(_)) | Event::Map(..) | Event::Served(..) => {}
            Event::Referred(..) | Event::Stored(_) | Event::Removed(_) | Event::Checked(..) => {}
        }
        if self.awaited.is_empty()
            && let Some(Rebuilding { gone, since, .. }) = self.rebuilding.take()
        {
            self.reconstructed = Some(Reconstruction { gone: gone.server, begun: since, ended: now });
        }
    }

    fn next_wake(&self) -> Option<Mono> {
        self.next_ping
    }

    fn table_bytes(&self) -> usize {
        // A range and its successor for each distinct finger, its successor too if kept; the four neighbours.
        let distinct = self.distinct_fingers().len();
        let peer = size_of::<Position>() + size_of::<ServerId>();
        distinct * peer * (1 + usize::from(self.config.rebuilds())) + 4 * peer
    }
}
