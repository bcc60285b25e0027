use super::*;
use crate::machine::{Event, Machine};
use crate::query::{FileKey, QueryId, Target};
use crate::world::World;
use bearing_placement::Partition;
use bearing_placement::partition::Ring;
use bearing_types::{Position, ServerId};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const LATENCY: Duration = Duration::from_micros(200);

fn target(position: u64) -> Target {
    Target { position: Position(position), file: FileKey(position) }
}

fn servers(count: u32) -> Vec<ServerId> {
    (1..=count).map(ServerId).collect()
}

/// Who owns what among these servers: the oracle, by looking at all.
fn owner_among(points: &Points, members: &[ServerId], position: Position) -> Option<ServerId> {
    let mut ring: Vec<Peer> = members.iter().map(|server| points.peer(*server)).collect();
    ring.sort();
    ring.iter().find(|peer| peer.at >= position).or(ring.first()).map(|peer| peer.server)
}

struct Cluster {
    world: World<FingerServer>,
    points: Points,
    next: u64,
}

impl Cluster {
    fn settled(members: &[ServerId], points: &Points, cache: RoutingCache, config: &FingerConfig) -> Cluster {
        let mut world = World::new(LATENCY, Box::new(|_| None));
        for server in members {
            let machine = FingerServer::settled(*server, members, points, config.clone());
            world.add_server(*server, machine);
        }
        world.add_client(Box::new(FingerClient::new(members, cache, points.clone())));
        let mut cluster = Cluster { world, points: points.clone(), next: 0 };
        cluster.decide();
        cluster
    }

    /// The servers that are there decide what is theirs.
    fn decide(&mut self) {
        let members: Vec<ServerId> = self.world.servers().collect();
        let points = self.points.clone();
        self.world.set_truth(Box::new(move |target| owner_among(&points, &members, target.position)));
    }

    fn ask(&mut self, position: u64) -> QueryId {
        self.next += 1;
        let id = QueryId(self.next);
        self.world.ask(0, id, target(position));
        id
    }

    /// Asks for a position and gives how often the query was passed on.
    fn find(&mut self, position: u64) -> u8 {
        let id = self.ask(position);
        assert!(
            self.world.run_until_answered(Duration::from_secs(60)),
            "a query for {position:x} goes on and on"
        );
        // The client hears of it too.
        self.world.run_for(LATENCY);
        let members: Vec<ServerId> = self.world.servers().collect();
        let ending = self.world.ending(id).expect("answered");
        let owner = owner_among(&self.points, &members, Position(position)).expect("somebody is there");
        assert_eq!(ending.by, Ok(owner), "position {position:x} after {} hops", ending.hops);
        ending.hops
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_owner_is_reached_and_each_hop_at_least_halves_the_way(count in 1u32..200, positions in proptest::collection::vec(any::<u64>(), 1..20)) {
        let members = servers(count);
        let mut cluster = Cluster::settled(&members, &Points::Hashed, RoutingCache::Off, &FingerConfig::new(Reliability::Plain));
        for position in positions {
            // One hop to the relay; then at most one for each bit in which server and position may differ.
            prop_assert!(cluster.find(position) <= 65);
        }
    }

    #[test]
    fn servers_that_stand_evenly_are_reached_within_log2_hops(bits in 1u32..10, position: u64) {
        let members = servers(1 << bits);
        let even = members.iter().map(|server| (*server, Position(u64::from(server.0 - 1) << (64 - bits)))).collect();
        let points = Points::Given(Arc::new(even));
        let mut cluster = Cluster::settled(&members, &points, RoutingCache::Off, &FingerConfig::new(Reliability::Plain));
        prop_assert!(u32::from(cluster.find(position)) <= 1 + bits);
    }

    #[test]
    fn whoever_joins_leaves_or_fails_one_after_the_other_the_ring_is_right_again(
        count in 3u32..12,
        changes in proptest::collection::vec((0u8..3, any::<u16>()), 1..8),
        positions in proptest::collection::vec(any::<u64>(), 4),
    ) {
        let config = FingerConfig::new(Reliability::Rebuilding);
        let mut cluster = Cluster::settled(&servers(count), &Points::Hashed, RoutingCache::Lazy, &config);
        for (step, (what, which)) in changes.into_iter().enumerate() {
            let members: Vec<ServerId> = cluster.world.servers().collect();
            // Not the first: a client of which all are gone that it ever knew finds nobody.
            let one = members[1 + usize::from(which) % (members.len() - 1)];
            match what {
                0 => {
                    let new = ServerId(100 + step as u32);
                    cluster.world.add_server(new, FingerServer::new(new, &Points::Hashed, config.clone()));
                    cluster.world.tell(new, Event::Join(Some(one)));
                }
                1 if members.len() > 2 => {
                    cluster.world.tell(one, Event::Leave);
                    cluster.world.run_for(Duration::from_millis(20));
                    cluster.world.vanish(one);
                }
                2 if members.len() > 2 => { cluster.world.vanish(one); }
                _ => {}
            }
            cluster.world.run_for(Duration::from_millis(200));
            cluster.decide();
            let members: Vec<ServerId> = cluster.world.servers().collect();
            check_against_settled(&cluster, &members, &config, step)?;
            for position in &positions {
                cluster.find(*position);
            }
        }
    }

    #[test]
    fn a_query_that_meets_vanished_servers_ends(count in 2u32..40, gone in proptest::collection::btree_set(1u32..40, 1..12), positions in proptest::collection::vec(any::<u64>(), 1..10), rebuilds: bool) {
        let reliability = if rebuilds { Reliability::Rebuilding } else { Reliability::Plain };
        let mut cluster = Cluster::settled(&servers(count), &Points::Hashed, RoutingCache::Lazy, &FingerConfig::new(reliability));
        for server in gone.iter().filter(|server| **server < count) {
            cluster.world.vanish(ServerId(*server));
        }
        cluster.decide();
        let ids: Vec<QueryId> = positions.iter().map(|position| cluster.ask(*position)).collect();
        prop_assert!(cluster.world.run_until_answered(Duration::from_secs(1)), "a query goes on and on");
        for id in ids {
            prop_assert!(cluster.world.ending(id).unwrap().hops <= FingerClient::HOPS_MAX);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_messages_are_lost_every_query_ends_and_is_answered_once_all_is_quiet(
        seed: u64, count in 5u32..16, joins: bool, positions in proptest::collection::vec(any::<u64>(), 8),
    ) {
        let config = FingerConfig::new(Reliability::Rebuilding);
        let mut cluster = Cluster::settled(&servers(count), &Points::Hashed, RoutingCache::Lazy, &config);
        cluster.world.run_for(Duration::from_millis(20));
        cluster.world.lose(100, seed);
        cluster.world.vanish(ServerId(1 + (seed % u64::from(count)) as u32));
        if joins {
            let (new, through) = (ServerId(100), cluster.world.servers().next());
            cluster.world.add_server(new, FingerServer::new(new, &Points::Hashed, config));
            cluster.world.tell(new, Event::Join(through));
        }
        let ids: Vec<QueryId> = positions.iter().map(|position| cluster.ask(*position)).collect();
        prop_assert!(cluster.world.run_until_answered(Duration::from_secs(1)), "a query goes on and on");
        prop_assert!(ids.iter().all(|id| cluster.world.ending(*id).is_some()));
        cluster.world.lose(0, seed);
        cluster.world.run_for(Duration::from_millis(1200));
        cluster.decide();
        let members: Vec<ServerId> = cluster.world.servers().collect();
        check_against_settled(&cluster, &members, &FingerConfig::new(Reliability::Rebuilding), 0)?;
        for position in positions {
            cluster.find(position);
        }
    }
}

#[test]
fn more_servers_fail_at_once_than_a_server_remembers_and_nothing_walks_for_ever() {
    let config = FingerConfig::new(Reliability::Rebuilding);
    let points: BTreeMap<ServerId, Position> =
        (1..=200u32).map(|id| (ServerId(id), Position(u64::from(id) << 56 >> 1))).collect();
    let points = Points::Given(Arc::new(points));
    let mut cluster = Cluster::settled(&servers(200), &points, RoutingCache::Lazy, &config);
    cluster.world.run_for(Duration::from_millis(20));
    (1..=99).for_each(|id| {
        cluster.world.vanish(ServerId(id * 2));
    });
    cluster.decide();
    cluster.world.run_for(Duration::from_millis(200));
    let before = cluster.world.messages();
    cluster.world.run_for(Duration::from_millis(100));
    // Pings and their answers only: two neighbours each, every 5 ms.
    let sent = cluster.world.messages() - before;
    assert!(sent <= 101 * 2 * 2 * 21, "{sent} messages: some walk on and on");
    for position in 0..32u64 {
        cluster.find(position << 59);
    }
}

/// All tables of a ring at rest are those that follow from who is there.
fn check_against_settled(
    cluster: &Cluster,
    members: &[ServerId],
    config: &FingerConfig,
    step: usize,
) -> Result<(), TestCaseError> {
    for server in members {
        let machine = cluster.world.server(*server).expect("there");
        let expected = FingerServer::settled(*server, members, &cluster.points, config.clone());
        let tables = |server: &FingerServer| {
            let Neighbours { fpd, pd, sc, nsc } = server.neighbours();
            let neighbours = [fpd, pd, sc, nsc].map(|peer| peer.server);
            (neighbours, server.finger_owners(), server.finger_nexts())
        };
        prop_assert_eq!(tables(machine), tables(&expected), "server {} after step {}", server, step);
    }
    Ok(())
}

#[test]
fn the_papers_ring_of_1024_has_the_neighbours_of_server_5() {
    let ids = [5u32, 135, 273, 400, 520, 640, 761, 898];
    let points = ids.iter().map(|id| (ServerId(*id), Position(u64::from(*id) << 54))).collect();
    let points = Points::Given(Arc::new(points));
    let members: Vec<ServerId> = ids.iter().map(|id| ServerId(*id)).collect();
    let config = FingerConfig::new(Reliability::Rebuilding).with_space_bits(10).unwrap();
    let server = FingerServer::settled(ServerId(5), &members, &points, config);
    let Neighbours { fpd, pd, sc, nsc } = server.neighbours();
    assert_eq!([fpd, pd, sc, nsc].map(|peer| peer.server.0), [761, 898, 135, 273]);
    // Keys between 899 and 5 are this server's, as the paper says.
    for key in [899u64, 1023, 0, 5] {
        assert!(server.owns(Position(key << 54)), "{key}");
    }
    assert!(!server.owns(Position(6 << 54)) && !server.owns(Position(898 << 54)));
    // 5 + 2^i: 6, 7, 9, 13, 21, 37, 69, 133 | 261 | 517
    let owners: Vec<u32> = server.finger_owners().iter().map(|server| server.0).collect();
    assert_eq!(owners, [135, 135, 135, 135, 135, 135, 135, 135, 273, 520]);
}

#[test]
fn of_nine_servers_four_that_are_not_adjacent_fail_at_once_and_the_ring_survives() {
    let points: BTreeMap<ServerId, Position> =
        (1..=9u32).map(|id| (ServerId(id), Position(u64::from(id) * (u64::MAX / 10)))).collect();
    let points = Points::Given(Arc::new(points));
    let config = FingerConfig::new(Reliability::Rebuilding);
    let mut cluster = Cluster::settled(&servers(9), &points, RoutingCache::Lazy, &config);
    cluster.world.run_for(Duration::from_millis(20));
    for gone in [2, 4, 6, 8] {
        cluster.world.vanish(ServerId(gone));
    }
    cluster.decide();
    cluster.world.run_for(Duration::from_millis(100));
    let members: Vec<ServerId> = [1, 3, 5, 7, 9].map(ServerId).to_vec();
    check_against_settled(&cluster, &members, &config, 0).unwrap();
    for position in 0..64u64 {
        cluster.find(position << 58);
    }
    // What each of them had lies where its copies were: at its successor.
    let ring =
        Ring::with_points(&[1, 3, 5, 7, 9].map(|id| (points.peer(ServerId(id)).at, ServerId(id)))).unwrap();
    for (gone, heir) in [(2, 3), (4, 5), (6, 7), (8, 9)] {
        assert_eq!(ring.arcs().owner(points.peer(ServerId(gone)).at), ServerId(heir));
    }
}

#[test]
fn a_ring_of_five_is_rebuilt_well_within_the_papers_18_ms_after_the_missed_ping() {
    let config = FingerConfig::new(Reliability::Rebuilding);
    let mut cluster = Cluster::settled(&servers(5), &Points::Hashed, RoutingCache::Lazy, &config);
    cluster.world.run_for(Duration::from_millis(50));
    cluster.world.vanish(ServerId(3));
    let vanished = cluster.world.now();
    cluster.decide();
    let heir = owner_among(&Points::Hashed, &[1, 2, 4, 5].map(ServerId), Points::Hashed.peer(ServerId(3)).at)
        .unwrap();
    let rebuilt = |world: &World<FingerServer>| {
        world.server(heir).is_some_and(|server| server.reconstructions() == 1 && !server.is_reconstructing())
    };
    while !rebuilt(&cluster.world) {
        cluster.world.run_for(Duration::from_micros(100));
        assert!(cluster.world.now().since(vanished) < Duration::from_secs(1), "never rebuilt");
    }
    // From the vanishing, so with the wait for the ping; the paper counts from the missed ping on.
    assert!(cluster.world.now().since(vanished) < config.ping_every() + Duration::from_millis(3));
}

#[test]
fn a_lazy_cache_learns_from_answers_and_forgets_who_cannot_be_reached() {
    let members = servers(20);
    let mut cluster = Cluster::settled(
        &members,
        &Points::Hashed,
        RoutingCache::Lazy,
        &FingerConfig::new(Reliability::Rebuilding),
    );
    let position = 0x1234_5678_9abc_def0;
    cluster.find(position);
    assert_eq!(cluster.find(position), 1, "who was met is asked directly");
    let owner = owner_among(&Points::Hashed, &members, Position(position)).unwrap();
    cluster.world.vanish(owner);
    cluster.decide();
    cluster.world.run_for(Duration::from_millis(50));
    cluster.find(position);
    assert_eq!(cluster.find(position), 1, "its heir was learnt");
}

#[test]
fn servers_that_stand_by_hash_are_reached_within_log2_hops_and_half_as_many_on_average() {
    for bits in [4u32, 6, 8] {
        let members = servers(1 << bits);
        let config = FingerConfig::new(Reliability::Plain);
        let mut cluster = Cluster::settled(&members, &Points::Hashed, RoutingCache::Off, &config);
        // Without the hop to the relay.
        let hops = |n: u64| u32::from(cluster.find(n.wrapping_mul(0x9e37_79b9_7f4a_7c15))) - 1;
        let hops: Vec<u32> = (0..400).map(hops).collect();
        let mean = f64::from(hops.iter().sum::<u32>()) / 400.0;
        assert!(hops.iter().all(|hops| *hops <= bits), "{hops:?}");
        assert!((mean - f64::from(bits) / 2.0).abs() < 0.5, "{mean} with {} servers", 1 << bits);
    }
}

#[test]
fn impossible_rings_are_refused_with_the_bound() {
    let config = || FingerConfig::new(Reliability::Plain);
    let said = config().with_space_bits(65).unwrap_err().to_string();
    assert_eq!(said, "space_bits may not be 65; give 1 to 64");
    assert!(config().with_space_bits(0).is_err());
    let five = Duration::from_millis(5);
    let said = config().with_pings(five, five).unwrap_err().to_string();
    assert_eq!(said, "ping_timeout may not be 5ms; give more than ping_every");
}

/// A place and a server are 12 bytes: four neighbours, one finger of all, and who follows it where that is
/// kept.
#[test]
fn two_servers_keep_four_neighbours_and_one_finger() {
    let bytes = |reliability| {
        let config = FingerConfig::new(reliability);
        FingerServer::settled(ServerId(1), &servers(2), &Points::Hashed, config).table_bytes()
    };
    assert_eq!([Reliability::Plain, Reliability::Rebuilding].map(bytes), [5 * 12, 6 * 12]);
}
