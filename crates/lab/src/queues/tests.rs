//! Queues behave as the formulas say, and nothing is lost or counted twice.

use super::run::learn;
use super::*;
use bearing_lookup::world::Order;
use bearing_placement::{Parameters, Scheme};
use std::sync::Arc;
use std::time::Duration;

const WATCH: Watch = Watch { settle: 100, measure: 200 };

fn setup(scheme: Scheme, servers: u32, ratio: f64, division: Division) -> Setup {
    Setup {
        scheme: scheme.parts(),
        parameters: scheme.parameters(),
        servers,
        clients: 40.max(servers),
        division,
        relays: Relays::InTurn,
        copies: Copies::One,
        learnt: 0,
        costs: Costs::of_throughput(ThroughputRatio(ratio), Agent::None).unwrap(),
        order: Order::Arrival,
        one_host: false,
        wires: None,
        seed: 1,
    }
}

/// Pollaczek and Khinchine for services that all take the same: a wait of rho / (2 (1 - rho)) services. Seeds
/// are written down, not drawn: a mean over a sample is off by more than any bound once in so many seeds.
#[test]
fn one_server_alone_waits_as_m_d_1_says() {
    for (load, seed) in [(0.1, 1), (0.3, 2), (0.5, 3), (0.65, 4), (0.8, 5)] {
        let setup = Setup { seed, ..setup(Scheme::Hash, 1, 1.0, Division::EqualArcs) };
        let storage = Costs::STORAGE.as_secs_f64();
        let watch = Watch { settle: 200, measure: 100_000 };
        let seen = latency(&setup, load / storage, watch).unwrap().mean / storage;
        let expected = 1.0 + load / (2.0 * (1.0 - load));
        // On the wire it takes some microseconds more.
        assert!((seen / expected - 1.0).abs() < 0.05, "{seen} instead of {expected} at {load}");
    }
}

/// The order of work changes how long operations wait, not how much there is to do.
#[test]
fn what_is_done_first_does_not_change_the_capacity() {
    for (ratio, seed) in [(0.5, 1), (1.0, 2), (2.0, 3), (4.0, 4)] {
        let base = Setup { seed, ..setup(Scheme::OneHop, 8, ratio, Division::EqualArcs) };
        let long = Watch { settle: 100, measure: 1000 };
        let of = |order| capacity(&Setup { order, ..base.clone() }, long).unwrap().rates.per_second;
        let (arrival, last) = (of(Order::Arrival), of(Order::StoreLast));
        assert!((arrival / last - 1.0).abs() < 0.05, "{arrival} and {last}");
    }
}

#[test]
fn what_was_begun_has_ended_or_is_under_way() {
    for scheme in [Scheme::Hash, Scheme::OneHop, Scheme::Chord, Scheme::Central, Scheme::Metaflow] {
        let mut cluster = Cluster::new(&setup(scheme, 8, 1.0, Division::EqualArcs)).unwrap();
        let now = cluster.world.now();
        (0..500).for_each(|number| {
            cluster.ask_at(now, number % 40);
        });
        cluster.world.run_for(Costs::STORAGE * 10);
        let ended = cluster.world.take_ended().len();
        assert!(ended > 0 && ended + cluster.world.open() == 500, "{scheme}: {ended}");
        assert!(cluster.world.run_until_answered(Costs::STORAGE * 5000), "{scheme}");
        let rest = cluster.world.take_ended();
        assert_eq!((ended + rest.len(), cluster.world.open()), (500, 0), "{scheme}");
        assert!(rest.iter().all(|(_, _, ending)| ending.by.is_ok()), "{scheme}");
        let served: u64 = cluster.servers.iter().map(|server| cluster.world.done(*server).served).sum();
        assert_eq!(served, 500, "{scheme}");
    }
}

#[test]
fn the_three_factors_are_the_whole_loss() {
    for division in [Division::EqualArcs, Division::Published] {
        for scheme in [Scheme::Hash, Scheme::OneHop, Scheme::Chord, Scheme::Metaflow, Scheme::Central] {
            let rates = capacity(&setup(scheme, 24, 1.0, division), WATCH).unwrap().rates;
            let (split, whole) = (rates.split.unwrap(), rates.per_second / rates.ideal);
            assert!((split.left() - whole).abs() < 0.02, "{scheme}, {division:?}: {split:?} is not {whole}");
            assert!(
                split.lookup <= 1.01 && split.imbalance < 1.0 + 1e-9,
                "{scheme}, {division:?}: {split:?}"
            );
        }
    }
}

#[test]
fn idle_servers_are_a_loss_of_their_own() {
    let rates = capacity(&setup(Scheme::Metaflow, 16, 1.0, Division::Published), WATCH).unwrap().rates;
    assert_eq!(rates.split.unwrap().idle, 14.0 / 16.0);
}

/// A server that all know does one lookup for each operation that is not its own.
#[test]
fn lookups_cost_what_their_construction_says() {
    let lookup = |scheme, ratio| {
        let rates = capacity(&setup(scheme, 16, ratio, Division::EqualArcs), WATCH).unwrap().rates;
        rates.split.unwrap().lookup
    };
    let close = |seen: f64, expected: f64| assert!((seen - expected).abs() < 0.01, "{seen}, not {expected}");
    close(lookup(Scheme::OneHop, 1.0), 1.0 / (1.0 + 15.0 / 16.0));
    close(lookup(Scheme::OneHop, 2.0), 1.0 / (1.0 + 15.0 / 32.0));
    close(lookup(Scheme::Hash, 1.0), 1.0);
    close(lookup(Scheme::Metaflow, 1.0), 1.0);
    let agents = Costs::of_throughput(ThroughputRatio(1.0), Agent::Published).unwrap();
    let metaflow = Setup { costs: agents, ..setup(Scheme::Metaflow, 16, 1.0, Division::EqualArcs) };
    close(capacity(&metaflow, WATCH).unwrap().rates.split.unwrap().lookup, 0.85);
}

/// A copy is work of the successor, and the answer waits for it.
#[test]
fn a_copy_costs_the_successor_an_operation() {
    let write = Setup {
        parameters: Parameters { even_points: true, ..Parameters::default() },
        copies: Copies::OnSuccessor,
        ..setup(Scheme::RdhtMdsc, 5, 1e3, Division::Published)
    };
    let read = Setup { copies: Copies::One, ..write.clone() };
    let of = |setup: &Setup| latency(setup, 1.0, Watch { settle: 0, measure: 100_000 }).unwrap().mean;
    let (write, read) = (of(&write), of(&read));
    let storage = Costs::STORAGE.as_secs_f64();
    assert!((write - read - storage).abs() < 0.05 * storage, "{write} and {read}");
}

#[test]
fn the_same_seed_gives_the_same_numbers() {
    let of = |seed| {
        let setup = Setup { seed, ..setup(Scheme::Chord, 8, 1.0, Division::Published) };
        let rates = capacity(&setup, WATCH).unwrap().rates;
        (rates.took, latency(&setup, 100.0, WATCH).unwrap())
    };
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let ring = |scheme| setup(scheme, 8, 1.0, Division::Published);
    let error = Cluster::new(&ring(Scheme::GHba)).err().map(|error| error.to_string());
    assert!(error.is_some_and(|error| error.contains("filters")));
    let mixed = Setup { scheme: "one-hop+fingers".parse().unwrap(), ..ring(Scheme::OneHop) };
    assert_eq!(Cluster::new(&mixed).err(), Some(SetupError::SeveralArcs));
    let none = Setup { servers: 0, ..ring(Scheme::Hash) };
    let error = Cluster::new(&none).err().map(|error| error.to_string());
    assert_eq!(error.as_deref(), Some("servers may not be 0; give 1 to 10000"));
    assert_eq!(Costs::of_throughput(ThroughputRatio(0.0), Agent::None), None);
}

/// An event loop takes all that waits: half of what is under way, while the client asks again with the other
/// half.
#[test]
fn a_turn_costs_once_what_is_taken_together() {
    let costs = |turn, wake| {
        let [turn, wake, storage] = [turn, wake, 20].map(Duration::from_micros);
        let (lookup, client) = (storage, Duration::ZERO);
        Costs::calibrated(Coefficients { wake, turn, lookup, storage, client, spread: 0.0 })
    };
    let of = |turn, wake, each| {
        let setup = Setup { clients: 1, ..setup(Scheme::Hash, 1, 1.0, Division::EqualArcs) };
        let setup = Setup { costs: costs(turn, wake), ..setup };
        closed_loop(&setup, each, Watch { settle: 100, measure: 1000 }).unwrap()
    };
    let close =
        |seen: f64, micros: f64| assert!((seen * micros / 1e6 - 1.0).abs() < 0.03, "{seen}, {micros} us");
    // Two microseconds are those of the way through a switch, to the server and back.
    close(of(50, 30, 1).per_second, 30.0 + 50.0 + 20.0 + 2.0);
    close(of(50, 0, 16).per_second, 20.0 + 50.0 / 8.0);
    // A server that had to wake up finds all of them: then they are answered together, and come together
    // again.
    close(of(50, 30, 16).per_second, 20.0 + (30.0 + 50.0 + 2.0) / 16.0);
    close(of(0, 0, 16).per_second, 20.0);
    // No more than 64 are taken at once.
    close(of(50, 0, 1024).per_second, 20.0 + 50.0 / 64.0);
}

/// Servers that are not busy take little in a turn: that is no lookup of theirs, nor are they busier for it.
#[test]
fn turns_are_a_loss_of_their_own() {
    let [turn, storage, lookup, client] = [50, 20, 12, 15].map(Duration::from_micros);
    let costs =
        Costs::calibrated(Coefficients { wake: Duration::ZERO, turn, lookup, storage, client, spread: 0.3 });
    for division in [Division::EqualArcs, Division::Published] {
        let by_ratio = setup(Scheme::Metaflow, 24, 1.0, division);
        let measured = Setup { costs, ..by_ratio.clone() };
        let rates = |setup: &Setup| capacity(setup, WATCH).unwrap().rates;
        let (by_ratio, measured) = (rates(&by_ratio), rates(&measured));
        let (one, other) = (by_ratio.split.unwrap(), measured.split.unwrap());
        assert!((one.lookup - 1.0).abs() < 0.01 && (other.lookup - 1.0).abs() < 0.03, "{one:?}, {other:?}");
        assert!((one.imbalance - other.imbalance).abs() < 0.03, "{one:?}, {other:?}");
        assert!((0.9..1.03).contains(&other.turns), "{other:?}");
        let whole = measured.per_second / measured.ideal;
        assert!((other.left() - whole).abs() < 0.02, "{other:?} is not {whole}");
    }
    // With few under way turns are short.
    let few = Setup { costs, ..setup(Scheme::Hash, 24, 1.0, Division::EqualArcs) };
    let split = closed_loop(&few, 1, WATCH).unwrap().split.unwrap();
    assert!(split.lookup > 0.99 && split.turns < 0.7, "{split:?}");
}

#[test]
fn however_long_ways_are_servers_become_busy_or_it_is_said() {
    let mut wires = Wires::fat_tree(20).unwrap();
    let of = |wires: &Wires| {
        let [turn, storage, lookup, client] = [50, 20, 12, 15].map(Duration::from_micros);
        let wake = Duration::ZERO;
        let costs = Costs::calibrated(Coefficients { wake, turn, lookup, storage, client, spread: 0.0 });
        let hash = setup(Scheme::Hash, 3, 1.0, Division::EqualArcs);
        capacity(&Setup { costs, wires: Some(Arc::new(wires.clone())), ..hash }, WATCH)
    };
    wires.latencies.fill(Duration::from_millis(5));
    let rates = of(&wires).unwrap().rates;
    assert!(rates.per_second / rates.ideal > 0.9, "{}", rates.per_second / rates.ideal);
    wires.latencies.fill(Duration::from_secs(10));
    let refused = of(&wires).unwrap_err().to_string();
    assert!(refused.contains("on the way") && refused.contains("lower latencies"), "{refused}");
}

#[test]
fn who_has_learnt_has_nothing_under_way() {
    let mut setup = setup(Scheme::RdhtMdsc, 20, 1.0, Division::Published);
    setup.learnt = 7;
    setup.wires = Some(Arc::new(Wires::fat_tree(100).unwrap()));
    let mut cluster = Cluster::new(&setup).unwrap();
    learn(&mut cluster, setup.learnt);
    let asked = cluster.asked();
    cluster.world.run_for(Costs::STORAGE * 1000);
    assert!(asked >= 7 * u64::from(setup.clients), "{asked}");
    assert_eq!((cluster.world.take_ended().len(), cluster.world.open()), (0, 0));
}

/// Those that have just begun are not yet waiting as long as they will.
#[test]
fn latencies_are_of_queues_that_have_settled() {
    let watch = Watch::of_latencies(20, 300);
    let mean_of = |seed| {
        let hash = Setup { seed, ..setup(Scheme::Hash, 300, 1.0, Division::EqualArcs) };
        latency(&hash, 0.8 * 300.0 / Costs::STORAGE.as_secs_f64(), watch).unwrap().mean
    };
    let seen = (1..5).map(mean_of).sum::<f64>() / 4.0;
    // M/D/1: 1 + 0.8 / (2 * 0.2) operations.
    let expected = 3.0 * Costs::STORAGE.as_secs_f64();
    assert!((seen / expected - 1.0).abs() < 0.04, "{seen} is not {expected}");
}

#[test]
fn servers_of_one_host_share_its_processor() {
    let apart = setup(Scheme::OneHop, 3, 1.0, Division::EqualArcs);
    let together = Setup { one_host: true, ..apart.clone() };
    let rate = |setup: &Setup| closed_loop(setup, 16, Watch { settle: 100, measure: 5000 }).unwrap();
    let (apart, together) = (rate(&apart), rate(&together));
    let one = 1.0 / Costs::STORAGE.as_secs_f64();
    assert!((together.per_second * together.hops / one - 1.0).abs() < 0.02, "{}", together.per_second);
    assert!(apart.per_second > 2.7 * together.per_second, "{}", apart.per_second);
    let split = together.split.unwrap();
    assert_eq!((split.imbalance, split.idle), (1.0, 1.0));
}

/// Two links to the server and two back, each a millisecond longer.
#[test]
fn ways_there_and_back_are_in_what_operations_take() {
    let of = |link: Duration| {
        let mut wires = Wires::fat_tree(20).unwrap();
        wires.latencies.fill(link);
        let hash = setup(Scheme::Hash, 1, 1.0, Division::EqualArcs);
        let setup = Setup { clients: 1, wires: Some(Arc::new(wires)), ..hash };
        let watch = Watch { settle: 10, measure: 2000 };
        let closed = closed_loop(&setup, 1, watch).unwrap();
        let took = closed.took.iter().sum::<f64>() / closed.took.len() as f64;
        (latency(&setup, 1.0, watch).unwrap().median, took, 1.0 / closed.per_second)
    };
    let (short, long) = (of(Duration::ZERO), of(Duration::from_millis(1)));
    for more in [long.0 - short.0, long.1 - short.1, long.2 - short.2] {
        assert!((more / 4e-3 - 1.0).abs() < 0.02, "{more}");
    }
}

/// A copy is sent, and acknowledged.
#[test]
fn a_copy_is_two_messages() {
    let write = Setup { copies: Copies::OnSuccessor, ..setup(Scheme::Hash, 5, 1e3, Division::EqualArcs) };
    let rates = closed_loop(&write, 1, WATCH).unwrap();
    let each = rates.messages as f64 / rates.ended as f64;
    assert!((each - 2.0).abs() < 0.05, "{each}");
}

#[test]
fn all_that_is_done_costs_what_the_ratio_says() {
    use bearing_lookup::world::Work;
    let costs = Costs::of_throughput(ThroughputRatio(2.0), Agent::None).unwrap();
    let (storage, lookup) = (Costs::STORAGE, Costs::STORAGE / 2);
    let expected = Work { relay: lookup, serve: storage, check: storage, message: lookup, ..Work::NONE };
    assert_eq!(costs.work(true), expected);
}
