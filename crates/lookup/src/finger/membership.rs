//! How servers of a ring come, go and fail, and how the others hear of it.

use super::message::{Find, FingerMessage, Neighbours};
use super::points::{Peer, within};
use super::server::{ACKNOWLEDGE_WAIT, FIND_HOPS_MAX, Finger, FingerServer, GONE_MAX, Rebuilding};
use crate::machine::Command;
use bearing_types::{Mono, Position, ServerId};
use std::collections::{BTreeSet, VecDeque};

impl FingerServer {
    // --- coming ---

    /// The owner of the place where somebody joins lets it in right before itself.
    fn admit(&mut self, new: Peer, out: &mut Vec<Command>) {
        if self.me.server == new.server {
            return;
        }
        self.is_there(new.server);
        let before = self.neighbours;
        if before.pd.server == new.server {
            // It is in; what said so was lost.
            let Neighbours { fpd, sc, .. } = before;
            let welcome = Neighbours { fpd, pd: fpd, sc: self.me, nsc: sc };
            self.tell(new.server, FingerMessage::Welcome(welcome), out);
            return;
        }
        let alone = before.pd.server == self.me.server;
        let welcome = Neighbours {
            fpd: if alone { self.me } else { before.fpd },
            pd: before.pd,
            sc: self.me,
            nsc: if alone { new } else { before.sc },
        };
        self.neighbours.pd = new;
        self.neighbours.fpd = before.pd;
        if alone {
            self.neighbours = Neighbours { fpd: self.me, pd: new, sc: new, nsc: self.me };
            self.set_near_fingers();
        }
        self.tell(new.server, FingerMessage::Welcome(welcome), out);
        self.tell(before.pd.server, FingerMessage::Follows { gone: None, sc: new, nsc: self.me }, out);
    }

    pub(super) fn settle_in(&mut self, neighbours: Neighbours, now: Mono, out: &mut Vec<Command>) {
        if self.joining.take().is_none() {
            return;
        }
        self.neighbours = neighbours;
        let sc = Finger { owner: neighbours.sc, next: neighbours.nsc };
        self.fingers.fill(sc);
        self.set_near_fingers();
        self.ask_for_fingers(out);
        // The predecessors of N - 2^i may have a finger that should be this server (section 3.1, step 3).
        // Many of these are its own predecessor.
        remember(&mut self.joined, self.me.server);
        let joined = FingerMessage::Joined { new: self.me, next: neighbours.sc };
        self.tell(neighbours.pd.server, joined, out);
        for index in 0..self.fingers.len() {
            let distance = 1u64 << (64 - self.fingers.len() + index);
            let key = Position(self.me.at.0.wrapping_sub(distance).wrapping_add(1));
            if !self.owns(key) {
                self.forward(
                    FingerMessage::Find { key, asker: self.me, what: Find::Update, hops: 0 },
                    key,
                    out,
                );
            }
        }
        self.ping(now, out);
    }

    /// Fingers within reach of the successor are known; the first beyond is asked for, and the rest follow
    /// from the answers.
    pub(super) fn ask_for_fingers(&mut self, out: &mut Vec<Command>) {
        self.set_near_fingers();
        self.ask_for_finger_after(self.neighbours.sc.at, out);
    }

    fn ask_for_finger_after(&self, known: Position, out: &mut Vec<Command>) {
        let open = (0..self.fingers.len())
            .map(|index| self.start(index))
            .find(|start| !within(*start, self.me.at, known));
        if let Some(key) = open {
            self.forward(FingerMessage::Find { key, asker: self.me, what: Find::Finger, hops: 0 }, key, out);
        }
    }

    pub(super) fn take_found(&mut self, key: Position, owner: Peer, next: Peer, out: &mut Vec<Command>) {
        for index in 0..self.fingers.len() {
            let start = self.start(index);
            let covered = start == key || within(start, Position(key.0.wrapping_sub(1)), owner.at);
            if covered {
                self.fingers[index] = Finger { owner, next };
            }
        }
        // Around the whole ring once: what lies between the owner and this server itself is open yet. An
        // owner that is nearer than its key, or this server, lies around it.
        if self.me.at.clockwise_to(owner.at) >= self.me.at.clockwise_to(key) {
            self.ask_for_finger_after(owner.at, out);
        }
    }

    /// Passes a message that looks for an owner on its way, or takes it if the position is this server's.
    fn forward(&self, message: FingerMessage, key: Position, out: &mut Vec<Command>) {
        if let Some(next) = self.preceding(key) {
            self.tell(next, message, out);
        }
    }

    pub(super) fn find(&mut self, key: Position, asker: Peer, what: Find, hops: u8, out: &mut Vec<Command>) {
        let Neighbours { pd, sc, nsc, .. } = self.neighbours;
        if what == Find::Place && asker.server == pd.server {
            return self.admit(asker, out);
        }
        if what == Find::Place && asker.server == sc.server {
            // What lets it in was lost: it does not know its place, its successor does. On a ring that is not
            // right, that one may think the same of this server.
            if hops < FIND_HOPS_MAX {
                let find = FingerMessage::Find { key, asker, what, hops: hops + 1 };
                self.tell(nsc.server, find, out);
            }
            return;
        }
        if !self.owns(key) {
            if hops < FIND_HOPS_MAX {
                self.forward(FingerMessage::Find { key, asker, what, hops: hops + 1 }, key, out);
            }
            return;
        }
        match what {
            Find::Place => self.admit(asker, out),
            Find::Finger => {
                let next = self.neighbours.sc;
                self.tell(asker.server, FingerMessage::Found { key, owner: self.me, next }, out);
            }
            Find::Update => {
                self.take_joined(asker, asker, out);
                let joined = FingerMessage::Joined { new: asker, next: asker };
                self.tell(self.neighbours.pd.server, joined, out);
            }
        }
    }

    pub(super) fn take_joined(&mut self, new: Peer, next: Peer, out: &mut Vec<Command>) {
        if new.server == self.me.server || self.joined.contains(&new.server) {
            return;
        }
        remember(&mut self.joined, new.server);
        self.is_there(new.server);
        for index in 0..self.fingers.len() {
            let start = Position(self.start(index).0.wrapping_sub(1));
            let finger = &mut self.fingers[index];
            if new.at != finger.owner.at && within(new.at, start, finger.owner.at) {
                *finger = Finger { owner: new, next: finger.owner };
            } else if new.at != finger.next.at && within(new.at, finger.owner.at, finger.next.at) {
                finger.next = new;
            }
        }
        self.tell(self.neighbours.pd.server, FingerMessage::Joined { new, next }, out);
    }

    // --- going ---

    pub(super) fn leave(&mut self, out: &mut Vec<Command>) {
        let Neighbours { fpd, pd, sc, nsc } = self.neighbours;
        self.left = true;
        self.next_ping = None;
        self.tell(pd.server, FingerMessage::Follows { gone: Some(self.me.server), sc, nsc }, out);
        self.tell(sc.server, FingerMessage::Precedes { gone: self.me.server, pd, fpd }, out);
        let notice = FingerMessage::Gone { gone: self.me, heir: sc, next: nsc, acknowledge: false };
        for finger in self.distinct_fingers() {
            self.tell(finger, notice.clone(), out);
        }
        out.extend(std::mem::take(&mut self.held).into_iter().map(|query| Command::Refer(query, None)));
    }

    /// What was lost on the way is sent again; who says nothing for long is waited for no more.
    pub(super) fn remind(&mut self, now: Mono, out: &mut Vec<Command>) {
        let Some(Rebuilding { gone, heir, next, since }) =
            self.rebuilding.filter(|_| !self.awaited.is_empty())
        else {
            return;
        };
        if now.since(since) > self.config.ping_timeout * ACKNOWLEDGE_WAIT {
            self.awaited.clear();
            self.release(out);
        }
        for server in &self.awaited {
            self.tell(*server, FingerMessage::Gone { gone, heir, next, acknowledge: true }, out);
        }
    }

    pub(super) fn distinct_fingers(&self) -> BTreeSet<ServerId> {
        let mut distinct: BTreeSet<ServerId> =
            self.fingers.iter().map(|finger| finger.owner.server).collect();
        distinct.extend([self.neighbours.sc.server, self.neighbours.pd.server]);
        distinct.remove(&self.me.server);
        distinct
    }

    /// The predecessor has failed: this server has what it had (section 3.3).
    fn replace_predecessor(&mut self, now: Mono, out: &mut Vec<Command>) {
        let gone = self.neighbours.pd;
        let before = self.nearest_before(gone);
        let alone = before.server == self.me.server;
        self.neighbours.pd = before;
        self.neighbours.fpd = before;
        if self.neighbours.sc.server == gone.server {
            // It was the only other one.
            (self.neighbours.sc, self.neighbours.nsc) = (self.neighbours.pd, self.neighbours.pd);
        }
        if alone {
            self.neighbours = Neighbours { fpd: self.me, pd: self.me, sc: self.me, nsc: self.me };
        }
        let (heir, next) = (self.me, self.neighbours.sc);
        self.tell(
            self.neighbours.pd.server,
            FingerMessage::Follows { gone: Some(gone.server), sc: heir, nsc: next },
            out,
        );
        let mut told = self.distinct_fingers();
        told.remove(&gone.server);
        self.forget(gone, heir, next);
        for server in &told {
            let notice = FingerMessage::Gone { gone, heir, next, acknowledge: true };
            self.tell(*server, notice, out);
        }
        self.awaited.extend(told);
        self.rebuilding = Some(Rebuilding { gone, heir, next, since: now });
        self.reconstructions += 1;
        self.ping(now, out);
        self.release(out);
    }

    /// The successor has failed: the next one known takes its place (Chord, section 4.4), and hears of it by
    /// a ping. Fingers that name the failed one are right again when they are asked for anew.
    fn replace_successor(&mut self, out: &mut Vec<Command>) {
        let next = self.successors().first().map(|server| self.points.peer(*server));
        self.neighbours.sc = next.unwrap_or(self.me);
        self.neighbours.nsc = self.neighbours.sc;
        self.set_near_fingers();
        self.refresh_soon();
        let Neighbours { pd, sc, .. } = self.neighbours;
        self.tell(sc.server, FingerMessage::Ping { pd, sc }, out);
    }

    /// Who precedes a server that is gone: the front predecessor, as the paper says. If that one is gone too,
    /// the nearest of all that are known: pings find the right one from there.
    fn nearest_before(&self, gone: Peer) -> Peer {
        let Neighbours { fpd, sc, nsc, .. } = self.neighbours;
        let alive = |peer: &Peer| peer.server != gone.server && !self.is_dead(peer.server);
        if alive(&fpd) {
            return fpd;
        }
        let known = self.fingers.iter().flat_map(|finger| [finger.owner, finger.next]).chain([sc, nsc]);
        let others = known.filter(|peer| alive(peer) && peer.server != self.me.server);
        others.min_by_key(|peer| peer.at.clockwise_to(self.me.at)).unwrap_or(self.me)
    }

    fn living(&self, peer: Peer) -> Peer {
        let mut living = peer;
        for _ in 0..self.gone.len() {
            match self.gone.iter().find(|(gone, ..)| gone.server == living.server) {
                Some((_, heir, _)) => living = *heir,
                None => break,
            }
        }
        living
    }

    /// Fingers that were the one who is gone are its heir from now on.
    fn forget(&mut self, gone: Peer, heir: Peer, next: Peer) {
        // What walks around a ring of which several failed may name one that is gone by now.
        let (heir, next) = (self.living(heir), self.living(next));
        for finger in &mut self.fingers {
            if finger.owner.server == gone.server {
                *finger = Finger { owner: heir, next };
            } else if finger.next.server == gone.server {
                finger.next = heir;
            }
        }
        self.joined.retain(|server| *server != gone.server);
        self.suspects.remove(&gone.server);
        self.awaited.remove(&gone.server);
        if self.gone.len() == GONE_MAX {
            self.gone.pop_front();
        }
        self.gone.retain(|(known, ..)| known.server != gone.server);
        self.gone.push_back((gone, heir, next));
    }

    pub(super) fn take_gone(
        &mut self,
        from: ServerId,
        gone: Peer,
        heir: Peer,
        next: Peer,
        out: &mut Vec<Command>,
    ) {
        if gone.server == self.me.server {
            return;
        }
        let known = self.gone.iter().any(|(known, ..)| known.server == gone.server);
        if !known {
            self.forget(gone, heir, next);
            if self.neighbours.nsc.server == gone.server {
                self.neighbours.nsc = heir;
            }
        }
        // Around the ring it ends with the heir, however many are under way; unless the heir has it from who
        // goes in order, and is the first to pass it on.
        let passes_on = if heir.server == self.me.server { from == gone.server } else { !known };
        if passes_on {
            self.walk_on(gone, heir, next, out);
        }
        self.release(out);
    }

    /// To the successor, or to the next one if that is gone too.
    fn walk_on(&self, gone: Peer, heir: Peer, next: Peer, out: &mut Vec<Command>) {
        let Neighbours { sc, nsc, .. } = self.neighbours;
        let to = if self.is_dead(sc.server) { nsc } else { sc };
        self.tell(to.server, FingerMessage::Gone { gone, heir, next, acknowledge: false }, out);
    }

    /// Whoever follows now may not have heard of these.
    fn walk_all_on(&self, out: &mut Vec<Command>) {
        for (gone, heir, next) in self.gone.iter().copied() {
            self.walk_on(gone, heir, next, out);
        }
    }

    pub(super) fn follow(&mut self, gone: Option<ServerId>, sc: Peer, nsc: Peer, out: &mut Vec<Command>) {
        let before = self.neighbours.sc;
        let joined = gone.is_none() && sc.server != before.server && within(sc.at, self.me.at, before.at);
        let replaced = gone == Some(before.server) || self.is_dead(before.server);
        if !joined && !replaced {
            return;
        }
        let nsc = if sc.server == self.me.server { self.me } else { nsc };
        (self.neighbours.sc, self.neighbours.nsc) = (sc, nsc);
        self.set_near_fingers();
        self.walk_all_on(out);
        // The predecessor's next successor has changed with it, and the successor wants to know who precedes.
        let Neighbours { pd, sc, .. } = self.neighbours;
        for neighbour in BTreeSet::from([pd.server, sc.server]) {
            self.tell(neighbour, FingerMessage::Pong { pd, sc }, out);
        }
    }

    pub(super) fn suspect(&mut self, server: ServerId, now: Mono, out: &mut Vec<Command>) {
        // It acknowledges nothing any more.
        if self.awaited.remove(&server) {
            self.release(out);
        }
        if server == self.me.server {
            return;
        }
        let is_news = self.suspects.insert(server);
        if self.neighbours.sc.server == server && !self.config.rebuilds() {
            self.replace_successor(out);
        } else if is_news && self.neighbours.sc.server == server {
            self.walk_all_on(out);
        }
        // One that was suspected before may have become the predecessor since, by an old word of somebody's.
        if self.neighbours.pd.server == server && self.config.rebuilds() {
            self.replace_predecessor(now, out);
        }
    }
}

fn remember(list: &mut VecDeque<ServerId>, server: ServerId) {
    if list.len() == GONE_MAX {
        list.pop_front();
    }
    list.push_back(server);
}
