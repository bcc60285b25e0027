//! How packets are kept from being taken twice: what a sender knows of the servers that it sends to, and what
//! a receiver remembers.
//!
//! A server takes a packet only if it names the server's present *start* and its counter is new. The sender
//! learns the start from a *welcome*, the answer to a packet that names none or another one. A welcome
//! repeats the counter that it answers, and one that answers nothing later than the last did is not believed:
//! so nobody can bring back an old start, and with it packets of that time. While the start of a server is
//! not known packets to it are held, and a *greeting* (a packet without messages) is sent instead.
//!
//! Why not counters that begin with the time: a client whose clock is wrong would be shut out, and packets
//! from just before a restart taken again.

use crate::envelope::{self, Bulk, Packing, Start, Versions};
use crate::window::{Freshness, ReplayWindow};
use bearing_types::ServerId;
use std::collections::{BTreeMap, VecDeque};

/// So many packets without an answer, and the ticket is shown again: the server may have forgotten the
/// session.
const UNANSWERED_MAX: u32 = 4;
/// Greetings of which it is remembered where they went.
const GREETED_MAX: usize = 256;
/// Servers of which windows are kept; with one more all are forgotten, and a new start is drawn.
const SERVERS_MAX: usize = 1024;
/// Packets to one server that wait for its start; of more the oldest are dropped, and sent again by whoever
/// misses an answer.
const HELD_MAX: usize = 64;
/// Bytes of all packets that wait.
const HELD_BYTES_MAX: usize = 64 << 20;

#[derive(Debug)]
struct Peer {
    start: Start,
    version: u16,
    /// The counter that its last hint answered.
    hinted: u64,
    answered: bool,
    unanswered: u32,
}

/// What the next packet to a server is stamped with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// The counter.
    pub counter: u64,
    /// The server's start.
    pub to: Start,
    /// The version to speak with it.
    pub version: u16,
    /// Whether to show the ticket.
    pub with_ticket: bool,
}

/// What a welcome told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Welcomed<K> {
    /// Nothing: it is old, or the start was known.
    Nothing,
    /// The start of a server that was not known; packets held for it can go.
    Known(K),
    /// Another start than before: what is under way to it is lost.
    Restarted(K),
    /// It speaks none of our versions.
    NoVersion(Versions),
}

/// What a sender knows of the servers that it sends to, by whatever it knows them: a server by their ids, a
/// client by their addresses. There is one counter for all of them, because a client does not know which
/// addresses are one server's.
#[derive(Debug)]
pub struct Sending<K> {
    counter: u64,
    peers: BTreeMap<K, Peer>,
    greeted: BTreeMap<u64, K>,
}

impl<K> Default for Sending<K> {
    fn default() -> Sending<K> {
        Sending { counter: 0, peers: BTreeMap::new(), greeted: BTreeMap::new() }
    }
}

impl<K: Ord + Copy> Sending<K> {
    /// For the next packet to a server; `None` while its start is not known: greet it.
    pub fn next(&mut self, to: K) -> Option<Next> {
        let peer = self.peers.get_mut(&to).filter(|peer| peer.start != Start::NONE)?;
        self.counter += 1;
        peer.unanswered = peer.unanswered.saturating_add(1);
        let with_ticket = !peer.answered || peer.unanswered > UNANSWERED_MAX;
        Some(Next { counter: self.counter, to: peer.start, version: peer.version, with_ticket })
    }

    /// For a greeting: a packet without messages that shows the ticket.
    pub fn greet(&mut self, to: K) -> Next {
        self.counter += 1;
        self.greeted.insert(self.counter, to);
        while self.greeted.len() > GREETED_MAX {
            self.greeted.pop_first();
        }
        let known = self.peers.get(&to);
        let version = known.map_or(Versions::SPOKEN.highest, |peer| peer.version);
        let to = known.map_or(Start::NONE, |peer| peer.start);
        Next { counter: self.counter, to, version, with_ticket: true }
    }

    /// Whether anything was sent to a server: packets, or a greeting that may still be answered.
    pub fn has_sent_to(&self, to: K) -> bool {
        self.peers.contains_key(&to) || self.greeted.values().any(|greeted| *greeted == to)
    }

    /// A packet that was signed and not seen before came from a server.
    pub fn heard(&mut self, from: K) {
        if let Some(peer) = self.peers.get_mut(&from) {
            (peer.answered, peer.unanswered) = (true, 0);
        }
    }

    /// The start of a server, if it is known.
    pub fn start_of(&self, server: K) -> Option<Start> {
        self.peers.get(&server).map(|peer| peer.start)
    }

    /// The start of a server is known from elsewhere than a welcome, with the version to speak with it.
    pub fn learn(&mut self, server: K, start: Start, version: u16) {
        let hinted = self.counter;
        self.peers.insert(server, Peer { start, version, hinted, answered: false, unanswered: 0 });
    }

    /// Who was greeted with a counter. `None`: nobody, or it is long ago.
    pub fn greeted(&self, counter: u64) -> Option<K> {
        self.greeted.get(&counter).copied()
    }

    /// Whether a hint from a server answers something that was sent later than what its last one answered.
    pub fn is_new_hint(&self, from: K, answers: u64) -> bool {
        let of = self.greeted.get(&answers).unwrap_or(&from);
        answers <= self.counter && self.peers.get(of).is_none_or(|peer| answers > peer.hinted)
    }

    /// A signed welcome came.
    pub fn welcomed(&mut self, from: K, answers: u64, start: Start, versions: Versions) -> Welcomed<K> {
        if !self.is_new_hint(from, answers) || start == Start::NONE {
            return Welcomed::Nothing;
        }
        let Some(version) = Versions::SPOKEN.common(versions) else { return Welcomed::NoVersion(versions) };
        let server = self.greeted.get(&answers).copied().unwrap_or(from);
        let new = || Peer { start: Start::NONE, version, hinted: 0, answered: false, unanswered: 0 };
        let peer = self.peers.entry(server).or_insert_with(new);
        let was = std::mem::replace(&mut peer.start, start);
        (peer.hinted, peer.version) = (answers, version);
        if was == start {
            return Welcomed::Nothing;
        }
        (peer.answered, peer.unanswered) = (false, 0);
        if was == Start::NONE { Welcomed::Known(server) } else { Welcomed::Restarted(server) }
    }
}

/// What a client remembers of what servers sent it: one window for the life of each server that it knows.
#[derive(Debug, Default)]
pub struct FromServers {
    windows: BTreeMap<ServerId, (Start, ReplayWindow)>,
}

impl FromServers {
    /// A server's present start.
    pub fn learn(&mut self, server: ServerId, start: Start) {
        if self.windows.get(&server).is_none_or(|(known, _)| *known != start) {
            self.windows.insert(server, (start, ReplayWindow::default()));
        }
    }

    /// Takes the counter of a signed packet. From another life of the server than the present one it is
    /// replayed.
    pub fn take(&mut self, server: ServerId, start: Start, counter: u64) -> Freshness {
        match self.windows.get_mut(&server) {
            Some((known, window)) if *known == start => window.take(counter),
            _ => Freshness::Replayed,
        }
    }
}

/// What a server remembers of what other servers sent it. Of a server that was started again packets may
/// still be under way, so each of its lives has a window.
#[derive(Debug, Default)]
pub struct BetweenServers {
    windows: BTreeMap<(ServerId, Start), ReplayWindow>,
}

impl BetweenServers {
    /// Takes the counter of a signed packet that names our start. `None`: there are too many windows, all
    /// were forgotten, and a new start of ours is to be drawn.
    pub fn take(&mut self, server: ServerId, start: Start, counter: u64) -> Option<Freshness> {
        if !self.windows.contains_key(&(server, start)) && self.windows.len() >= SERVERS_MAX {
            self.windows.clear();
            return None;
        }
        Some(self.windows.entry((server, start)).or_default().take(counter))
    }
}

/// A packet that waits for the start of the server that it goes to.
#[derive(Clone, Debug)]
pub struct Held<W> {
    /// Its messages.
    pub packing: Packing,
    /// Bulk bytes.
    pub bulk: Option<Bulk>,
    /// How it goes.
    pub way: W,
}

/// All packets that wait.
#[derive(Debug)]
pub struct HeldPackets<K, W> {
    waiting: BTreeMap<K, VecDeque<Held<W>>>,
    bytes: usize,
}

impl<K, W> Default for HeldPackets<K, W> {
    fn default() -> HeldPackets<K, W> {
        HeldPackets { waiting: BTreeMap::new(), bytes: 0 }
    }
}

impl<K: Ord + Copy, W> HeldPackets<K, W> {
    /// One more packet waits.
    pub fn push(&mut self, to: K, held: Held<W>) {
        self.bytes += held.bytes();
        let waiting = self.waiting.entry(to).or_default();
        waiting.push_back(held);
        while waiting.len() > HELD_MAX || self.bytes > HELD_BYTES_MAX && waiting.len() > 1 {
            self.bytes -= waiting.pop_front().map_or(0, |held| held.bytes());
        }
        if self.bytes > HELD_BYTES_MAX {
            self.waiting.retain(|server, _| *server == to);
            self.bytes = self.waiting.values().flatten().map(Held::bytes).sum();
        }
    }

    /// Those that wait for a server, in their order. None waits then.
    pub fn take(&mut self, to: K) -> VecDeque<Held<W>> {
        let taken = self.waiting.remove(&to).unwrap_or_default();
        self.bytes -= taken.iter().map(Held::bytes).sum::<usize>();
        taken
    }
}

impl<W> Held<W> {
    fn bytes(&self) -> usize {
        self.packing.bytes() + envelope::length(self.bulk.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> u16 {
        port
    }

    const SPOKEN: Versions = Versions::SPOKEN;

    #[test]
    fn a_server_is_greeted_until_its_start_is_known_and_shown_the_ticket_until_it_answered() {
        let mut sending = Sending::default();
        assert_eq!(sending.next(at(1)), None);
        let greeting = sending.greet(at(1));
        assert_eq!((greeting.to, greeting.with_ticket), (Start::NONE, true));
        let welcomed = sending.welcomed(at(9), greeting.counter, Start(5), SPOKEN);
        assert_eq!(welcomed, Welcomed::Known(at(1)), "where the greeting went, whatever address answers");
        assert!(sending.next(at(1)).unwrap().with_ticket);
        sending.heard(at(1));
        for n in 1..=6 {
            let next = sending.next(at(1)).unwrap();
            assert_eq!((next.to, next.with_ticket), (Start(5), n > UNANSWERED_MAX));
        }
    }

    #[test]
    fn an_overheard_welcome_brings_no_old_start_back() {
        let mut sending = Sending::default();
        let first = sending.greet(at(1)).counter;
        assert_eq!(sending.welcomed(at(1), first, Start(5), SPOKEN), Welcomed::Known(at(1)));
        let later = sending.next(at(1)).unwrap().counter;
        assert_eq!(sending.welcomed(at(1), later, Start(6), SPOKEN), Welcomed::Restarted(at(1)));
        assert_eq!(sending.welcomed(at(1), first, Start(5), SPOKEN), Welcomed::Nothing);
        assert_eq!(sending.welcomed(at(1), later + 9, Start(5), SPOKEN), Welcomed::Nothing, "never sent");
        assert_eq!(sending.next(at(1)).unwrap().to, Start(6));
        let later_only = Versions { lowest: SPOKEN.highest + 1, highest: SPOKEN.highest + 1 };
        let greeting = sending.greet(at(2)).counter;
        assert_eq!(sending.welcomed(at(2), greeting, Start(1), later_only), Welcomed::NoVersion(later_only));
    }

    #[test]
    fn packets_of_a_servers_earlier_life_are_not_taken_again() {
        let mut from = FromServers::default();
        let server = ServerId(3);
        assert_eq!(from.take(server, Start(1), 1), Freshness::Replayed, "not known yet");
        from.learn(server, Start(1));
        assert_eq!(from.take(server, Start(1), 1), Freshness::Newest);
        from.learn(server, Start(2));
        assert_eq!(from.take(server, Start(1), 2), Freshness::Replayed);
        assert_eq!(from.take(server, Start(2), 1), Freshness::Newest);
    }

    #[test]
    fn a_server_that_forgets_windows_needs_a_new_start() {
        let mut between = BetweenServers::default();
        for life in 1..=SERVERS_MAX as u64 {
            assert_eq!(between.take(ServerId(1), Start(life), 1), Some(Freshness::Newest));
        }
        assert_eq!(between.take(ServerId(1), Start(7), 1), Some(Freshness::Replayed));
        assert_eq!(between.take(ServerId(2), Start(1), 1), None);
        assert_eq!(between.take(ServerId(2), Start(1), 1), Some(Freshness::Newest));
    }

    #[test]
    fn held_packets_are_bounded_and_keep_their_order() {
        let mut held = HeldPackets::default();
        let packet =
            |n: usize| Held::<()> { packing: Packing::new(), bulk: Some(vec![0; n].into()), way: () };
        (0..HELD_MAX + 5).for_each(|n| held.push(at(1), packet(n)));
        let lengths: Vec<usize> = held.take(at(1)).iter().map(|held| held.bytes()).collect();
        assert_eq!(lengths, (5..HELD_MAX + 5).collect::<Vec<_>>());
        (0..20).for_each(|n| held.push(at(n), packet(8 << 20)));
        assert!(held.bytes <= HELD_BYTES_MAX);
        let total: usize = (0..20).map(|n| held.take(at(n)).len()).sum();
        assert!(total >= 1 && held.bytes == 0);
    }
}
