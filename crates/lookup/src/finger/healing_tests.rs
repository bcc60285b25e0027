//! Whatever was lost, late, doubled, forged or restarted: in peace the ring of those that are there is one.

use super::*;
use crate::machine::{Command, Event, Machine};
use crate::message::Message;
use bearing_types::{Mono, Position, ServerId};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

const SERVERS: u32 = 6;
const POINTS: Points = Points::Numbered;
const MILLISECOND: Duration = Duration::from_millis(1);
/// How often a server looks at another one.
const LOOK_EVERY: u64 = 15;

fn config() -> FingerConfig {
    FingerConfig::new(Reliability::Rebuilding).with_space_bits(32).unwrap()
}

/// A server and what a program around it does: it lets it in, and has it look around.
struct Member {
    machine: FingerServer,
    asked: u32,
    turn: u32,
}

struct Net {
    now: Mono,
    members: BTreeMap<u32, Member>,
    on_the_way: Vec<(Mono, u32, u32, FingerMessage)>,
    /// Who hears nothing of whom.
    cut: Vec<(u32, u32)>,
    loss_percent: u64,
    late: bool,
    draws: u64,
    sent: u64,
}

impl Net {
    fn new(draws: u64) -> Net {
        Net {
            now: Mono(1),
            members: BTreeMap::new(),
            on_the_way: Vec::new(),
            cut: Vec::new(),
            loss_percent: 0,
            late: false,
            draws,
            sent: 0,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.draws =
            self.draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.draws >> 33) % below
    }

    fn start(&mut self, id: u32) {
        let machine = FingerServer::new(ServerId(id), &POINTS, config());
        self.members.insert(id, Member { machine, asked: 0, turn: id });
        self.join(id);
    }

    fn next_turn(member: &mut Member, id: u32) -> u32 {
        loop {
            member.turn = member.turn % SERVERS + 1;
            if member.turn != id {
                return member.turn;
            }
        }
    }

    fn join(&mut self, id: u32) {
        let Some(member) = self.members.get_mut(&id) else { return };
        member.asked += 1;
        let through = (member.asked <= SERVERS).then(|| ServerId(Net::next_turn(member, id)));
        self.step(id, Event::Join(through));
    }

    fn step(&mut self, id: u32, event: Event) {
        let Some(member) = self.members.get_mut(&id) else { return };
        let mut out = Vec::new();
        member.machine.step(self.now, event, &mut out);
        for command in out {
            let Command::Send(to, Message::Finger(message)) = command else { panic!("{command:?}") };
            self.send(id, to.0, message);
        }
    }

    fn send(&mut self, from: u32, to: u32, message: FingerMessage) {
        self.sent += 1;
        let lost = self.draw(100) < self.loss_percent || self.cut.contains(&(from, to));
        for _ in 0..if lost { 0 } else { 1 + u64::from(self.late && self.draw(8) == 0) } {
            let late = if self.late && self.draw(4) == 0 { self.draw(60) } else { 0 };
            let due = self.now.after(MILLISECOND * (1 + late as u32));
            self.on_the_way.push((due, from, to, message.clone()));
        }
    }

    fn run_for(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds {
            self.now = self.now.after(MILLISECOND);
            let now = self.now;
            let (due, later) =
                std::mem::take(&mut self.on_the_way).into_iter().partition(|(due, ..)| *due <= now);
            self.on_the_way = later;
            let due: Vec<(Mono, u32, u32, FingerMessage)> = due;
            for (_, from, to, message) in due {
                self.step(to, Event::Message(ServerId(from), Message::Finger(message)));
            }
            for id in 1..=SERVERS {
                self.tend(id);
            }
        }
    }

    fn tend(&mut self, id: u32) {
        let ms = self.now.0 / 1_000_000;
        let Some(member) = self.members.get_mut(&id) else { return };
        if member.machine.is_joining() {
            if ms.is_multiple_of(5) {
                self.join(id);
            }
            return;
        }
        if ms.is_multiple_of(LOOK_EVERY) {
            let looked = Net::next_turn(member, id);
            member.machine.look(ServerId(looked));
        }
        if member.machine.next_wake().is_some_and(|due| due <= self.now) {
            self.step(id, Event::Wake);
        }
    }

    fn forge(&mut self, to: u32, from: u32, what: u16) {
        let peers: Vec<Peer> =
            (0..4).map(|_| POINTS.peer(ServerId(1 + self.draw(u64::from(SERVERS)) as u32))).collect();
        let [a, b, c, d] = peers[..] else { unreachable!() };
        let key = Position(self.draw(1 << 30) << 34);
        let message = match what % 11 {
            0 => FingerMessage::Find { key: a.at, asker: a, what: Find::Place, hops: 0 },
            1 => FingerMessage::Find { key, asker: a, what: Find::Update, hops: 0 },
            2 => FingerMessage::Welcome(Neighbours { fpd: a, pd: b, sc: c, nsc: d }),
            3 => FingerMessage::Found { key, owner: a, next: b },
            4 => FingerMessage::Ping { pd: a, sc: b },
            5 => FingerMessage::Pong { pd: a, sc: b },
            6 => FingerMessage::Follows { gone: Some(a.server), sc: b, nsc: c },
            7 => FingerMessage::Precedes { gone: a.server, pd: b, fpd: c },
            8 => FingerMessage::Joined { new: a, next: b },
            9 => FingerMessage::Gone { gone: a, heir: b, next: c, acknowledge: true },
            _ => FingerMessage::Acknowledged(a.server),
        };
        self.step(to, Event::Message(ServerId(from), Message::Finger(message)));
    }

    /// In peace: neighbours are right, and so is what a server says of those that follow it.
    fn check(&mut self) -> Result<(), TestCaseError> {
        (self.cut, self.loss_percent, self.late) = (Vec::new(), 0, false);
        self.run_for(500);
        let there: Vec<ServerId> = self.members.keys().map(|id| ServerId(*id)).collect();
        for (id, member) in &self.members {
            let settled = FingerServer::settled(ServerId(*id), &there, &POINTS, config());
            prop_assert_eq!(member.machine.neighbours(), settled.neighbours(), "server {}", id);
            let others = there.iter().copied().filter(|server| server.0 != *id);
            let mut others: Vec<ServerId> = others.collect();
            others.sort_by_key(|server| (server.0 < *id, *server));
            let known = member.machine.successors();
            prop_assert_eq!(&known[..others.len().min(2)], &others[..others.len().min(2)]);
        }
        // Nothing walks on and on: two neighbours are pinged and answered, and sometimes somebody else.
        let before = self.sent;
        self.run_for(100);
        let pings = 21 * 2 * 2 + 7 * 2 * 2 + 20;
        prop_assert!(self.sent - before <= pings * there.len() as u64, "{} messages", self.sent - before);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn in_peace_the_ring_of_those_that_are_there_is_one(
        seed: u64,
        storm in proptest::collection::vec((0u8..7, 1..=SERVERS, 1..=SERVERS, any::<u16>()), 0..40),
    ) {
        let mut net = Net::new(seed);
        (1..=SERVERS).for_each(|id| net.start(id));
        for (what, one, other, how) in storm {
            match what {
                0 if net.members.len() > 1 => drop(net.members.remove(&one)),
                1 => net.start(one),
                2 => net.loss_percent = u64::from(how % 100),
                3 => net.late = !net.late,
                4 => net.cut.push((one, other)),
                5 => net.cut.clear(),
                _ => net.forge(one, other, how),
            }
            net.run_for(u64::from(how % 64));
        }
        net.check()?;
    }
}

#[test]
fn servers_that_begin_at_the_same_time_are_one_ring_with_the_right_fingers() {
    let mut net = Net::new(0);
    (1..=SERVERS).for_each(|id| net.start(id));
    net.check().unwrap();
    let all: Vec<ServerId> = (1..=SERVERS).map(ServerId).collect();
    for (id, member) in &net.members {
        // Some start right at a server: ids are dense.
        let settled = FingerServer::settled(ServerId(*id), &all, &POINTS, config());
        assert_eq!(member.machine.finger_owners(), settled.finger_owners(), "server {id}");
        assert_eq!(member.machine.finger_nexts(), settled.finger_nexts(), "server {id}");
    }
}

#[test]
fn a_place_that_two_servers_look_for_at_each_other_is_looked_for_no_longer_than_the_bound() {
    let mut net = Net::new(0);
    // Both take 3 for their successor and each other for the next; 3 is not in.
    for (id, other) in [(1, 2), (2, 1)] {
        net.start(id);
        let peer = |id: u32| POINTS.peer(ServerId(id));
        let place = Neighbours { fpd: peer(other), pd: peer(other), sc: peer(3), nsc: peer(other) };
        net.step(id, Event::Message(ServerId(3), Message::Finger(FingerMessage::Welcome(place))));
    }
    let find = FingerMessage::Find {
        key: POINTS.peer(ServerId(3)).at,
        asker: POINTS.peer(ServerId(3)),
        what: Find::Place,
        hops: 0,
    };
    net.on_the_way.clear();
    net.step(1, Event::Message(ServerId(3), Message::Finger(find)));
    let mut passed = 0;
    while let Some((_, from, to, message)) = net.on_the_way.pop() {
        if matches!(message, FingerMessage::Find { what: Find::Place, .. }) {
            passed += 1;
            net.step(to, Event::Message(ServerId(from), Message::Finger(message)));
        }
    }
    assert!(passed <= 128, "passed on {passed} times");
}

#[test]
fn whoever_only_pings_takes_no_silence_for_a_failure() {
    let mut net = Net::new(0);
    (1..=SERVERS).for_each(|id| net.start(id));
    net.check().unwrap();
    net.members.remove(&3);
    let mut heir = net.members.remove(&4).unwrap().machine;
    for _ in 0..20 {
        net.now = net.now.after(config().ping_every());
        let mut out = Vec::new();
        heir.ping_only(net.now, &mut out);
        assert!(!out.is_empty(), "it goes on to ping");
        assert_eq!(heir.neighbours().pd.server, ServerId(3));
    }
    let mut out = Vec::new();
    net.now = net.now.after(config().ping_every());
    heir.step(net.now, Event::Wake, &mut out);
    assert_ne!(heir.neighbours().pd.server, ServerId(3), "then it is linked anew at once");
    assert!(heir.reconstructions() > 0);
}
