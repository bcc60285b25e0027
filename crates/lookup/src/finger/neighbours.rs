//! Pings, and what servers of a ring learn from each other by them.
//!
//! Whatever was lost, late or wrong, two rules make neighbours right again: who is heard of and stands
//! between this server and its neighbour is the neighbour, and who is silent is not. So a ring that the
//! network split, or that several servers began at the same time, is one ring again when each server has
//! heard of each other one; for this a server is told to look at others, too.

use super::message::{FingerMessage, Neighbours};
use super::points::{Peer, within};
use super::server::{Finger, FingerServer};
use crate::machine::Command;
use crate::message::Message;
use bearing_types::{Mono, ServerId};
use std::collections::BTreeSet;

impl FingerServer {
    pub(super) fn tell(&self, to: ServerId, message: FingerMessage, out: &mut Vec<Command>) {
        if to != self.me.server {
            out.push(Command::Send(to, Message::Finger(message)));
        }
    }

    /// Pings this server too, from the next ping on, until it answers or has failed.
    pub fn look(&mut self, server: ServerId) {
        self.looked = Some(server);
    }

    /// Pings as at a wake-up, and takes nobody's silence for a failure yet: for while something goes on that
    /// is more urgent than to link the ring anew.
    pub fn ping_only(&mut self, now: Mono, out: &mut Vec<Command>) {
        if !self.left && self.joining.is_none() {
            self.notice_stop(now);
            self.ping(now, out);
        }
    }

    pub(super) fn ping(&mut self, now: Mono, out: &mut Vec<Command>) {
        let Neighbours { pd, sc, nsc, .. } = self.neighbours;
        let mut watched = BTreeSet::from([pd.server, sc.server]);
        watched.extend(self.looked);
        for server in &watched {
            self.tell(*server, FingerMessage::Ping { pd, sc }, out);
        }
        // Whoever has what the successor had may take this server for gone too: it hears of nobody else who
        // it follows.
        if self.config.rebuilds() && self.is_dead(sc.server) && !self.is_dead(nsc.server) {
            self.tell(nsc.server, FingerMessage::Ping { pd, sc: nsc }, out);
            watched.insert(nsc.server);
        }
        watched.remove(&self.me.server);
        for server in &watched {
            self.heard.entry(*server).or_insert(now);
        }
        self.heard.retain(|server, _| watched.contains(server));
        self.next_ping = Some(now.after(self.config.ping_every));
    }

    /// A server that pings late by a ping was stopped, or has too much to do: it did not listen, so nobody
    /// was silent.
    pub(super) fn notice_stop(&mut self, now: Mono) {
        if self.next_ping.is_some_and(|due| now.since(due) >= self.config.ping_every) {
            self.heard.values_mut().for_each(|heard| *heard = now);
        }
    }

    /// It is there, whatever was said of it.
    pub(super) fn is_there(&mut self, server: ServerId) {
        self.suspects.remove(&server);
        self.gone.retain(|(gone, ..)| gone.server != server);
    }

    /// What a server says of its own neighbours.
    pub(super) fn hear(&mut self, from: Peer, pd: Peer, sc: Peer, now: Mono, out: &mut Vec<Command>) {
        self.is_there(from.server);
        self.looked = self.looked.filter(|looked| *looked != from.server);
        if let Some(heard) = self.heard.get_mut(&from.server) {
            *heard = now;
        }
        if from.server == self.me.server {
            return;
        }
        if from.server == self.neighbours.sc.server {
            self.hear_successor(pd, sc);
        } else if pd.server == self.me.server && self.is_dead(self.neighbours.sc.server) {
            // It has taken over from the successor; its word for that was lost.
            self.follow(None, from, sc, out);
        } else if self.is_nearer(from) || self.has_no_successor() {
            self.neighbours.nsc = if self.is_nearer(from) { self.neighbours.sc } else { sc };
            self.neighbours.sc = from;
            self.set_near_fingers();
            self.refresh_soon();
        }
        let before = self.neighbours.pd;
        // Where nobody takes over, who has this server for its successor steps in for one that is gone.
        let steps_in = sc.server == self.me.server && !self.config.rebuilds() && self.is_dead(before.server);
        if from.server == before.server {
            self.neighbours.fpd = pd;
        } else if steps_in {
            (self.neighbours.pd, self.neighbours.fpd) = (from, pd);
        } else if within(from.at, before.at, self.me.at) {
            (self.neighbours.pd, self.neighbours.fpd) = (from, before);
            self.refresh_soon();
        }
    }

    fn hear_successor(&mut self, pd: Peer, sc: Peer) {
        if self.is_nearer(pd) && !self.is_dead(pd.server) {
            // Somebody joined in between (Chord's stabilisation).
            (self.neighbours.sc, self.neighbours.nsc) = (pd, self.neighbours.sc);
            self.set_near_fingers();
            self.refresh_soon();
        } else {
            self.neighbours.nsc = sc;
        }
    }

    /// Whether a server stands between this one and its successor.
    fn is_nearer(&self, peer: Peer) -> bool {
        let sc = self.neighbours.sc.at;
        peer.at != self.me.at && peer.at != sc && within(peer.at, self.me.at, sc)
    }

    /// Whether successor and next one are gone: then anybody who is heard of is a better one.
    fn has_no_successor(&self) -> bool {
        let Neighbours { sc, nsc, .. } = self.neighbours;
        let gone = |peer: Peer| peer.server == self.me.server || self.is_dead(peer.server);
        self.is_dead(sc.server) && gone(nsc)
    }

    /// All that it knew are gone: it is the whole ring, until somebody is heard of.
    pub(super) fn close_if_alone(&mut self) {
        let pd = self.neighbours.pd.server;
        if self.has_no_successor() && (pd == self.me.server || self.is_dead(pd)) {
            let me = self.me;
            self.neighbours = Neighbours { fpd: me, pd: me, sc: me, nsc: me };
            self.set_near_fingers();
        }
    }

    pub(super) fn set_near_fingers(&mut self) {
        let sc = self.neighbours.sc;
        for index in 0..self.fingers.len() {
            let start = self.start(index);
            if within(start, self.me.at, sc.at) {
                self.fingers[index] = Finger { owner: sc, next: self.neighbours.nsc };
            } else if self.owns(start) {
                self.fingers[index] = Finger { owner: self.me, next: sc };
            }
        }
    }
}
