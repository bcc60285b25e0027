//! Laws of replays, over small generated traces.

use super::*;
use crate::generate::{Options, Workload};
use crate::trace::{Event, Kind};
use bearing_placement::Scheme;

fn recorded(workload: &str, operations: u64) -> Recorded {
    let mut recorder = Recorder::default();
    let events = Workload::named(workload).unwrap().generate(Options::new(operations)).unwrap();
    events.for_each(|event| recorder.record(&event));
    recorder.finish()
}

fn job(name: &str, servers: u32, seed: u64) -> Job {
    Job { candidate: name.parse().unwrap(), servers, seed }
}

#[test]
fn every_scheme_can_be_replayed_and_gives_the_same_again() {
    let recorded = recorded("spotify", 4000);
    let below = Below::new(&recorded.namespace);
    for name in Scheme::ALL.map(Scheme::name).into_iter().chain(["anglecut-hashed+in-network"]) {
        let job = job(name, 7, 3);
        let outcome = run(&recorded, &below, &job).unwrap();
        assert_eq!(outcome, run(&recorded, &below, &job).unwrap(), "{name}");
        assert_eq!(outcome.operations, recorded.operations.len() as u64, "{name}");
        assert_eq!(
            (outcome.parts.len(), outcome.nodes),
            (PARTS, recorded.namespace.count() as u64),
            "{name}"
        );
        assert!(outcome.changes_cached <= outcome.changes, "{name}");
        // All work, steps to other servers too, takes longer than if it were spread evenly in each part.
        let (operations, steps) = (outcome.operations as f64, outcome.changes_cached as f64);
        let even = 7.0 * operations / (operations + steps);
        assert!(outcome.speedup < even, "{name}: {} of {even}", outcome.speedup);
        assert!(outcome.routes.queries == outcome.operations && outcome.routes.hops >= 1.0, "{name}");
        assert!((1.0..=7.0).contains(&outcome.parts[3].most), "{name}: {:?}", outcome.parts[3]);
        assert_eq!(row(&job, &outcome).split(',').count(), COLUMNS.split(',').count());
        let parts = parts_lines(&job, &outcome);
        assert!(parts.lines().all(|line| line.split(',').count() == PARTS_COLUMNS.split(',').count()));
        assert_eq!(parts.lines().count(), PARTS);
    }
}

#[test]
fn what_schemes_are_made_for_is_seen() {
    let recorded = recorded("msn", 40_000);
    let below = Below::new(&recorded.namespace);
    let of = |name: &str| run(&recorded, &below, &job(name, 10, 1)).unwrap();
    let (hash, local, dealt) = (of("hash"), of("anglecut-hashed"), of("static-subtree"));
    assert!(local.changes * 3 < hash.changes * 2, "{} of {}", local.changes, hash.changes);
    // Only at the root's own names does the server change.
    assert!(dealt.changes <= dealt.operations && dealt.changes * 4 < hash.changes, "{}", dealt.changes);
    let last = |outcome: &Outcome| outcome.parts.last().unwrap().most;
    assert!(last(&local) < last(&hash) && last(&hash) < last(&dealt));
    let moved = |outcome: &Outcome| outcome.parts.iter().map(|part| part.moved).sum::<u64>();
    assert!(moved(&hash) == 0 && moved(&dealt) == 0 && moved(&local) > 0);
    // Even arcs are all cut anew; half an arc is enough elsewhere.
    assert!(hash.moved_by_join > recorded.namespace.count() as u64 / 4);
    // Who joins has nothing until blocks move to it, which the next rebalance sees to.
    assert!(dealt.moved_by_join == 0 && of("dynamic-subtree").moved_by_join > 0);
    let hops = |name: &str| of(name).routes.hops;
    assert!((hops("central") - 2.0).abs() < 0.01 && hops("chord") > 2.0 && hops("metaflow") == 1.0);
    assert!(hops("dht-mdsc") < hops("chord"));
}

/// A directory keeps its seat; where names are placed by their path, all that is in it goes along.
#[test]
fn renames_across_servers_are_counted_with_what_they_move() {
    let mut recorder = Recorder::default();
    let mut event = |kind, path: &str, to: Option<&str>| {
        let to = to.map(str::to_owned);
        recorder.record(&Event { at_us: 0, client: 1, kind, path: path.into(), to });
    };
    for directory in 0..200 {
        for file in 0..4 {
            event(Kind::Create, &format!("/d{directory}/f{file}"), None);
        }
        event(Kind::Rename, &format!("/d{directory}"), Some(&format!("/z/e{directory}")));
        // Not there yet when it was renamed; and a name that is not known.
        event(Kind::Create, &format!("/d{directory}/late"), None);
        event(Kind::Rename, &format!("/z/e{directory}"), None);
    }
    let recorded = recorder.finish();
    let below = Below::new(&recorded.namespace);
    let of = |name: &str| place(&recorded, &below, &job(name, 10, 1)).unwrap();
    let hash = of("hash");
    assert_eq!(hash.renames, 200);
    assert!((150..200).contains(&hash.renames_across), "{}", hash.renames_across);
    assert_eq!(hash.moved_by_renames, hash.renames_across);
    for by_path in [of("anglecut"), of("drop")] {
        assert!(by_path.renames_across > 20);
        assert_eq!(by_path.moved_by_renames, 5 * by_path.renames_across);
    }
}

/// What a part was served by was decided before it: the first by nothing at all.
#[test]
fn no_part_is_served_by_what_is_learnt_in_it() {
    let recorded = recorded("livemaps", 20_000);
    let below = Below::new(&recorded.namespace);
    let first = |name: &str| place(&recorded, &below, &job(name, 10, 1)).unwrap().parts[0].clone();
    let unmoved = place(&recorded, &below, &{
        let mut still = job("anglecut-hashed", 10, 1);
        still.candidate.parameters.hysteresis = 1e9;
        still
    });
    let unmoved = unmoved.unwrap();
    assert!(unmoved.parts.iter().all(|part| part.moved == 0));
    assert_eq!(first("anglecut-hashed").most, unmoved.parts[0].most);
}

#[test]
fn another_seed_places_the_same_tree_anew() {
    let recorded = recorded("devtools", 5000);
    let below = Below::new(&recorded.namespace);
    let changes = |seed| place(&recorded, &below, &job("anglecut-hashed", 10, seed)).unwrap().changes;
    assert_ne!(changes(1), changes(2));
    // By rank there is one placement only, but the samples that boundaries follow are drawn.
    assert_eq!(changes(1), changes(1));
}

#[test]
fn a_trace_of_one_operation_is_replayed() {
    let recorded = recorded("msn", 1);
    let below = Below::new(&recorded.namespace);
    for scheme in Scheme::ALL {
        let outcome = run(&recorded, &below, &job(scheme.name(), 3, 1)).unwrap();
        assert_eq!((outcome.operations, outcome.parts.len()), (1, 1), "{scheme}");
        let PartOutcome { idle, most, .. } = outcome.parts[0];
        assert_eq!((idle, most), (2, 3.0), "{scheme}");
    }
}

/// What is open is asked for by its handle: its path is not walked.
#[test]
fn operations_on_what_is_open_change_no_server() {
    let changes = |closes: u64| {
        let mut recorder = Recorder::default();
        let mut event = |kind, path: String| {
            recorder.record(&Event { at_us: 0, client: 1, kind, path, to: None });
        };
        for directory in 0..50 {
            event(Kind::Create, format!("/d{directory}/f"));
            (0..closes).for_each(|_| event(Kind::Close, format!("/d{directory}/f")));
        }
        let recorded = recorder.finish();
        place(&recorded, &Below::new(&recorded.namespace), &job("hash", 10, 1)).unwrap().changes
    };
    assert!(changes(0) > 50);
    assert_eq!(changes(3), changes(0));
}

#[test]
fn tables_are_those_of_all_clients_and_of_the_largest_server() {
    let recorded = recorded("spotify", 4000);
    let below = Below::new(&recorded.namespace);
    let of = |name: &str| run(&recorded, &below, &job(name, 7, 3)).unwrap().routes;
    // A client with filters knows seven servers, of four bytes each.
    assert_eq!(of("hba").client_bytes, 28.0);
    let servers: Vec<_> = (300_001..300_008).map(bearing_types::ServerId).collect();
    let sizes = bearing_lookup::bloom::Sizes { servers: 7, keys_each: 64 };
    let lookup =
        bearing_lookup::Lookup::new(bearing_placement::LookupKind::Fingers, sizes).unwrap().at_rest();
    let bytes: Vec<usize> =
        lookup.servers(&servers).iter().map(|(_, machine)| machine.table_bytes()).collect();
    let (least, most) = (*bytes.iter().min().unwrap() as u64, *bytes.iter().max().unwrap() as u64);
    assert!(least < most && of("chord").server_bytes == most, "{bytes:?}");
}
