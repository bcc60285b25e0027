//! How servers pass requests on to each other by filters: what is found, what is held, and what becomes of it
//! when messages are lost and servers fail.

use bearing_lookup::{FileKey, Trail};
use bearing_meta::{Asked, HELD_MAX, Hop, Relays, Said};
use bearing_placement::{Assignment, LookupKind};
use bearing_proto::client::{Call, Request};
use bearing_proto::filters::FilterMessage;
use bearing_types::{Block, Epoch, MapVersion, Mono, Position, Sequence, ServerId};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

/// A message takes so long.
const DELAY: Duration = Duration::from_millis(1);
/// The longest time for which a server holds a request: 20 ms for its group, twice 20 ms for all.
const HELD: Duration = Duration::from_millis(60);

enum Sent {
    Message(ServerId, FilterMessage),
    Relay(Hop, u64, Box<Request>),
}

/// Servers with filters, the time, and what is under way between them.
struct World {
    now: Mono,
    servers: BTreeMap<ServerId, Relays<u64>>,
    listed: Vec<ServerId>,
    assignment: Assignment,
    under_way: BTreeMap<(Mono, u64), (ServerId, Sent)>,
    sent: u64,
    /// Every so many-th message is lost; 0: none.
    loses_every: u64,
    lost_requests: u64,
    /// Who decides or refers a request, how often it was passed on, and when.
    decided: BTreeMap<u64, (ServerId, Mono)>,
    hops: BTreeMap<u64, u8>,
}

impl World {
    fn new(servers: u32, tablet_bits: u8) -> World {
        let listed: Vec<ServerId> = (1..=servers).map(ServerId).collect();
        let mut world = World {
            now: Mono(1_000_000_000),
            servers: BTreeMap::new(),
            assignment: Assignment::even(&listed, tablet_bits, 1).unwrap(),
            listed: listed.clone(),
            under_way: BTreeMap::new(),
            sent: 0,
            loses_every: 0,
            lost_requests: 0,
            decided: BTreeMap::new(),
            hops: BTreeMap::new(),
        };
        listed.into_iter().for_each(|server| world.start(server));
        world
    }

    fn start(&mut self, server: ServerId) {
        let mut relays = Relays::new(server, LookupKind::BloomGroups).unwrap();
        let mut said = Vec::new();
        let others = self.listed.clone();
        relays.learn_map(self.now, MapVersion(1), &self.assignment, || Some(others), &mut said);
        self.servers.insert(server, relays);
        self.hear(server, said);
        self.serve(server);
    }

    fn serve(&mut self, server: ServerId) {
        let mine: Vec<Block> = self
            .assignment
            .tablets()
            .filter(|tablet| tablet.owner == server)
            .map(|tablet| tablet.block)
            .collect();
        self.at(server, |relays, now, said| relays.learn_served(now, mine.into_iter(), said));
    }

    fn at(&mut self, server: ServerId, work: impl FnOnce(&mut Relays<u64>, Mono, &mut Vec<Said<u64>>)) {
        let Some(relays) = self.servers.get_mut(&server) else { return };
        let mut said = Vec::new();
        work(relays, self.now, &mut said);
        assert!(relays.held() <= HELD_MAX);
        self.hear(server, said);
    }

    fn hear(&mut self, server: ServerId, said: Vec<Said<u64>>) {
        for said in said {
            let (to, sent) = match said {
                Said::Decide(number, _) => {
                    let before = self.decided.insert(number, (server, self.now));
                    assert_eq!(before, None, "request {number} is decided once");
                    continue;
                }
                Said::Pass(hop, number, request) => (hop.server, Sent::Relay(hop, number, Box::new(request))),
                Said::Send(to, message) => (to, Sent::Message(server, message)),
            };
            self.sent += 1;
            if self.loses_every > 0 && self.sent.is_multiple_of(self.loses_every) {
                self.lost_requests += u64::from(matches!(sent, Sent::Relay(..)));
            } else {
                self.under_way.insert((self.now.after(DELAY), self.sent), (to, sent));
            }
        }
    }

    /// A client asks this server for a position.
    fn ask(&mut self, number: u64, server: ServerId, position: Position) {
        let asked =
            Asked { from: number, request: request(number, position), hops: 1, trail: Trail::default() };
        self.at(server, |relays, now, said| relays.on_request(now, asked, said));
    }

    fn run(&mut self, time: Duration) {
        let end = self.now.after(time);
        loop {
            let arrival = self.under_way.first_key_value().map(|((at, _), _)| *at);
            let wakes =
                self.servers.iter().filter_map(|(server, relays)| Some((relays.next_wake()?, *server)));
            let wake = wakes.min();
            let next = arrival.into_iter().chain(wake.map(|(at, _)| at)).min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            if arrival == Some(next) {
                let ((_, _), (to, sent)) = self.under_way.pop_first().unwrap();
                self.arrive(to, sent);
            } else if let Some((_, server)) = wake {
                self.at(server, |relays, now, said| relays.wake(now, said));
            }
        }
        self.now = end;
    }

    fn arrive(&mut self, to: ServerId, sent: Sent) {
        match sent {
            Sent::Relay(_, _, _) if !self.servers.contains_key(&to) => self.lost_requests += 1,
            Sent::Relay(Hop { hops, trail, .. }, number, request) => {
                self.hops.insert(number, hops);
                let asked = Asked { from: number, request: *request, hops, trail };
                self.at(to, |relays, now, said| relays.on_request(now, asked, said));
            }
            Sent::Message(from, message) => {
                self.at(to, |relays, now, said| relays.on_message(now, from, &message, said));
            }
        }
    }

    fn owner(&self, position: Position) -> ServerId {
        self.assignment.tablet_at(position).owner
    }

    /// Asks for positions spread over the ring, at all servers in turn; how many came to their owners.
    fn ask_for_all(&mut self, from: u64, count: u64) -> u64 {
        let positions = |number: u64| Position((number - from).wrapping_mul(u64::MAX / count) + 12_345);
        for number in from..from + count {
            let server = self.listed[number as usize % self.listed.len()];
            self.ask(number, server, positions(number));
            self.run(HELD * 8);
        }
        let at_owner = |number: &u64| {
            self.decided.get(number).is_some_and(|(at, _)| *at == self.owner(positions(*number)))
        };
        (from..from + count).filter(at_owner).count() as u64
    }

    fn members(&self, server: ServerId) -> Vec<ServerId> {
        let view = self.servers[&server].filters();
        view.map_or(Vec::new(), |view| view.members.into_iter().collect())
    }
}

fn request(number: u64, position: Position) -> Request {
    Request {
        sequence: Sequence(number),
        finished_below: Sequence(0),
        position,
        epoch: Epoch(1),
        call: Call::RenewSession,
    }
}

#[test]
fn servers_that_start_together_are_one_cluster_and_every_request_finds_its_owner() {
    for servers in [1, 2, 3, 5, 9] {
        let mut world = World::new(servers, 4);
        world.run(Duration::from_secs(12));
        for server in world.listed.clone() {
            assert_eq!(world.members(server), world.listed, "as {server} sees it");
        }
        assert_eq!(world.ask_for_all(0, 64), 64, "{servers} servers");
        assert!(world.servers.values().all(|relays| relays.held() == 0));
    }
}

#[test]
fn what_was_found_once_is_passed_on_at_once() {
    let mut world = World::new(5, 4);
    world.run(Duration::from_secs(12));
    let position = Position(7 << 60);
    let (owner, other) = (world.owner(position), ServerId(1));
    assert_ne!(owner, other);
    world.ask(1, other, position);
    world.run(HELD);
    world.ask(2, other, position);
    assert_eq!(world.servers[&other].held(), 0, "it is among the recent ones");
    world.run(DELAY);
    assert_eq!(world.decided[&2].0, owner);
    assert_eq!(world.hops[&2], 2);
}

#[test]
fn a_tablet_that_is_served_elsewhere_is_found_there() {
    let mut world = World::new(5, 4);
    world.run(Duration::from_secs(12));
    assert_eq!(world.ask_for_all(0, 32), 32);
    // All tablets go one server on.
    let tablets = world.assignment.tablets().cloned().map(|mut tablet| {
        tablet.owner = ServerId(tablet.owner.0 % 5 + 1);
        tablet.members = vec![tablet.owner];
        tablet
    });
    world.assignment = Assignment::new(tablets.collect::<Vec<_>>()).unwrap();
    world.listed.clone().into_iter().for_each(|server| world.serve(server));
    world.run(Duration::from_secs(2));
    assert_eq!(world.ask_for_all(100, 64), 64);
}

#[test]
fn a_silent_server_holds_up_no_request_for_longer_than_is_said_and_comes_back() {
    let mut world = World::new(5, 4);
    world.run(Duration::from_secs(12));
    let gone = ServerId(2);
    world.servers.remove(&gone);
    for number in 0..40 {
        world.ask(number, ServerId(1), Position(number << 59));
    }
    world.run(HELD * 3);
    assert!(world.servers.values().all(|relays| relays.held() == 0), "nothing waits for it");
    assert_eq!(world.decided.len() as u64 + world.lost_requests, 40);
    world.run(Duration::from_secs(8));
    assert_eq!(world.members(ServerId(1)), [1, 3, 4, 5].map(ServerId));
    world.start(gone);
    world.run(Duration::from_secs(8));
    for server in world.listed.clone() {
        assert_eq!(world.members(server), world.listed, "as {server} sees it");
    }
    assert_eq!(world.ask_for_all(100, 64), 64);
}

#[test]
fn more_requests_than_may_be_held_are_decided_here() {
    let mut world = World::new(5, 4);
    world.run(Duration::from_secs(12));
    // One that has not all filters itself. Its group says nothing: what is not known here is held.
    let replicas = |server: &ServerId| world.servers[server].filters().map_or(0, |view| view.replicas.len());
    let me = world.listed.iter().copied().find(|server| replicas(server) < 4).unwrap();
    let peers = world.listed.clone().into_iter().filter(|server| *server != me);
    peers.for_each(|server| _ = world.servers.remove(&server));
    let count = 8 * HELD_MAX as u64;
    for number in 0..count {
        world.ask(number, me, Position(number << 51));
    }
    assert_eq!(world.servers[&me].held(), HELD_MAX);
    assert!(world.decided.len() >= HELD_MAX);
    world.run(HELD);
    assert_eq!(world.servers[&me].held(), 0);
}

#[test]
fn a_server_that_knows_no_others_decides_all() {
    let mut relays: Relays<u64> = Relays::new(ServerId(1), LookupKind::BloomGroups).unwrap();
    let assignment = Assignment::even(&[ServerId(1)], 0, 1).unwrap();
    let mut said = Vec::new();
    relays.learn_map(Mono(1), MapVersion(1), &assignment, || None, &mut said);
    let request = request(1, Position(5));
    let asked = Asked { from: 1, request: request.clone(), hops: 1, trail: Trail::default() };
    relays.on_request(Mono(1), asked, &mut said);
    assert_eq!(said, [Said::Decide(1, request)]);
    assert_eq!(relays.next_wake(), None);
}

#[test]
fn parts_of_the_ring_are_those_that_tablets_touch() {
    let all = |block: Block| FileKey::of_parts(block).count() as u64;
    assert_eq!(all(Block::RING), FileKey::RING_PARTS);
    assert_eq!(all(Block::around(Position(u64::MAX), 4)), 256);
    assert_eq!(all(Block::around(Position(77 << 40), 20)), 1);
    assert_eq!(*FileKey::of_parts(Block::around(Position(u64::MAX), 12)).end(), FileKey::RING_PARTS - 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever is lost, whoever restarts or is gone for a while, whichever tablets move: no request is
    /// decided twice or held for longer than is said, and one that is not decided was lost with its packet.
    #[test]
    fn every_request_ends_once(
        servers in 2u32..7,
        loses_every in prop_oneof![Just(0u64), 3u64..40],
        steps in proptest::collection::vec((0u8..4, any::<u64>(), 1u64..400), 1..60),
    ) {
        let mut world = World::new(servers, 4);
        world.loses_every = loses_every;
        let (mut asked, mut dropped) = (0, 0);
        for (what, number, ms) in steps {
            let server = world.listed[number as usize % world.listed.len()];
            match what {
                0 => {
                    // What it held is gone with it.
                    dropped += world.servers.remove(&server).map_or(0, |relays| relays.held() as u64);
                    if number % 2 == 0 {
                        world.start(server);
                    }
                }
                1 => if !world.servers.contains_key(&server) { world.start(server) },
                _ => for place in 0..number % 30 {
                    if world.servers.contains_key(&server) {
                        world.ask(asked, server, Position(number.wrapping_mul(place + 1)));
                        asked += 1;
                    }
                },
            }
            world.run(Duration::from_millis(ms));
        }
        world.run(HELD * 8);
        prop_assert!(world.servers.values().all(|relays| relays.held() == 0));
        prop_assert_eq!(world.decided.len() as u64 + world.lost_requests + dropped, asked);
    }
}
