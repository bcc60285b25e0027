//! Laws of cost: what each lookup costs by its construction, so that figures rest on nothing that can rot.

use crate::bloom::Sizes;
use crate::build::{COORDINATOR, Lookup};
use crate::machine::{Event, Machine};
use crate::map::Map;
use crate::query::{FileKey, QueryId, Target};
use crate::world::{Ending, World};
use bearing_placement::partition::build;
use bearing_placement::{Assignment, LookupKind, PartitionKind, Scheme};
use bearing_types::{MapVersion, Position, ServerId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const LATENCY: Duration = Duration::from_micros(100);
const SIZES: Sizes = Sizes { servers: 100, keys_each: 100 };

/// Servers that have long been there, and clients that know nothing but them.
struct Settled {
    world: World<Box<dyn Machine>>,
    servers: Vec<ServerId>,
    asked: u64,
    /// What is asked for next.
    next: u64,
}

impl Settled {
    fn new(scheme: Scheme, servers: u32, clients: u64) -> Settled {
        let lookup = Lookup::new(scheme.parts().lookup, Sizes { servers, ..SIZES }).unwrap();
        let servers: Vec<ServerId> = (1..=servers).map(ServerId).collect();
        let partition = build(scheme.parts().partition, &servers, &scheme.parameters()).unwrap();
        let arcs = partition.arcs().clone();
        // Rings decide by points; tables are of tablets.
        let rounded =
            if scheme.parts().partition == PartitionKind::Ring { arcs.clone() } else { arcs.rounded(0.02) };
        let map = Map::new(MapVersion(1), Assignment::of(&rounded, 1).unwrap());
        let truth = Arc::clone(&map);
        let owner = move |target: &Target| Some(truth.at(target.position).owner);
        let mut world = World::new(LATENCY, Box::new(owner.clone()));
        world.set_network(Box::new(move |position| owner(&Target { position, file: FileKey(0) })));
        for (server, machine) in lookup.servers(&servers) {
            world.add_server(server, machine);
            world.tell(server, Event::Map(Arc::clone(&map)));
        }
        for client in 0..clients {
            world.add_client(lookup.client(&servers, client));
        }
        world.tell_clients(&Event::Map(map));
        Settled { world, servers, asked: 0, next: 0 }
    }

    /// Each client in its turn asks for another position.
    fn ask(&mut self, clients: u64, queries: u64) -> Vec<Ending> {
        let first = self.asked;
        self.asked += queries;
        for number in first..self.asked {
            let position = Position(self.next.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            self.next += 1;
            let target = Target { position, file: FileKey::of_part(position) };
            self.world.ask((number % clients) as usize, QueryId(number), target);
            // One after the other: what one taught, the next may use.
            assert!(self.world.run_until_answered(Duration::from_secs(1)), "query {number} has no end");
            self.world.run_for(LATENCY);
        }
        (first..self.asked).map(|number| self.world.ending(QueryId(number)).expect("it has ended")).collect()
    }
}

fn mean_hops(endings: &[Ending]) -> f64 {
    endings.iter().map(|ending| f64::from(ending.hops)).sum::<f64>() / endings.len() as f64
}

/// RDHT-MDSC section 3.2: what a client has met only brings it nearer.
#[test]
fn a_cache_of_servers_met_makes_no_ring_slower_while_it_is_cold() {
    const CLIENTS: u64 = 100;
    let hops = |scheme| mean_hops(&Settled::new(scheme, 500, CLIENTS).ask(CLIENTS, 10 * CLIENTS));
    let (plain, cached) = (hops(Scheme::Chord), hops(Scheme::DhtMdsc));
    assert!(cached < plain, "{cached} hops with the cache, {plain} without");
}

/// Each takes the nearest for its relay, not all the same.
#[test]
fn relays_of_many_clients_are_many() {
    const CLIENTS: u64 = 200;
    for scheme in [Scheme::Chord, Scheme::DhtMdsc, Scheme::RdhtMdsc] {
        let mut settled = Settled::new(scheme, 50, CLIENTS);
        settled.ask(CLIENTS, CLIENTS);
        let first: BTreeMap<ServerId, u64> = settled.world.first_asked().clone();
        assert!(first.len() > 40, "{scheme}: {} servers are asked first", first.len());
    }
}

/// How often a query is passed on, at rest.
#[test]
fn a_lookup_takes_as_many_hops_as_its_construction_says() {
    const SERVERS: u32 = 64;
    for scheme in Scheme::ALL {
        let expected = match scheme.parts().lookup {
            LookupKind::ClientMap | LookupKind::Computed | LookupKind::SubtreeTable => 1.0..=1.0,
            LookupKind::InNetwork => 1.0..=1.0,
            LookupKind::Coordinator => 2.0..=2.0,
            // Who is asked first has it now and then.
            LookupKind::OneHop => 1.95..=1.999,
            // To the relay, then half of log2 n.
            LookupKind::Fingers => 3.5..=4.5,
            // Fewer the more servers a client has met.
            LookupKind::CachedFingers | LookupKind::RebuildingFingers => 1.8..=3.0,
            // These are asked for files.
            _ => continue,
        };
        let hops = mean_hops(&Settled::new(scheme, SERVERS, 20).ask(20, 1000));
        assert!(expected.contains(&hops), "{scheme}: {hops}");
    }
}

/// Who was met for a position is asked for it at once.
#[test]
fn a_cache_that_has_met_the_owner_takes_one_hop() {
    for scheme in [Scheme::DhtMdsc, Scheme::RdhtMdsc] {
        let mut settled = Settled::new(scheme, 64, 1);
        settled.ask(1, 2000);
        settled.next = 0;
        assert_eq!(mean_hops(&settled.ask(1, 2000)), 1.0, "{scheme}");
    }
}

/// MetaFlow's baseline: the coordinator passes queries on itself, so none goes back to the client.
#[test]
fn a_coordinator_answers_nothing_but_passes_all_on() {
    let mut settled = Settled::new(Scheme::Central, 10, 3);
    let endings = settled.ask(3, 300);
    assert!(endings.iter().all(|ending| ending.took == 2 * LATENCY), "{endings:?}");
    assert_eq!(settled.world.first_asked(), &BTreeMap::from([(COORDINATOR, 300)]));
}

#[test]
fn who_is_asked_first_where_all_know_all_is_everybody_alike() {
    let mut settled = Settled::new(Scheme::OneHop, 10, 3);
    settled.ask(3, 1000);
    let asked = settled.world.first_asked();
    assert!(asked.len() == 10 && asked.values().all(|count| (80..=120).contains(count)), "{asked:?}");
}

/// RDHT-MDSC section 3.3: all whose fingers name the failed server are told, and nobody runs into it later.
/// Chord has to find out for itself, and pays with queries that miss.
#[test]
fn a_failure_is_made_known_at_the_cost_of_messages() {
    for scheme in [Scheme::RdhtMdsc, Scheme::Chord] {
        let mut settled = Settled::new(scheme, 64, 1);
        settled.world.run_for(Duration::from_millis(50));
        let failed = ServerId(17);
        settled.world.vanish(failed);
        let points = settled.servers.iter().filter(|server| **server != failed).copied().collect::<Vec<_>>();
        let arcs = build(scheme.parts().partition, &points, &scheme.parameters()).unwrap().arcs().clone();
        settled.world.set_truth(Box::new(move |target| Some(arcs.owner(target.position))));
        settled.world.run_for(Duration::from_millis(40));
        let before = settled.world.missed();
        let endings = settled.ask(1, 500);
        assert!(endings.iter().all(|ending| ending.by.is_ok()), "{scheme}");
        let missed = settled.world.missed() - before;
        assert_eq!(missed > 0, scheme == Scheme::Chord, "{scheme}: {missed} queries met the failed server");
    }
}
