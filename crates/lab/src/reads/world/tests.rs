use super::*;
use crate::reads::{Others, Room, Writes};
use bearing_flow::Replanning;
use bearing_routing::{Placing, Shape};
use std::sync::Arc;
use std::time::Duration;

fn experiment(selection: &str) -> Experiment {
    let topology = Arc::new(Shape::mayflower(8.0).unwrap().topology());
    Experiment {
        room: Room { topology, rack: 4, pod: 16 },
        selection: selection.parse().unwrap(),
        rate: 0.1,
        locality: [0.5, 0.3, 0.2],
        bytes: 128 << 20,
        reads: 120,
        files: 100,
        sets: 1,
        others: None,
        writes: None,
        slow_disks: None,
        piece: 32 << 20,
        least: 1 << 20,
        query: Duration::from_millis(4),
        replanning: Replanning::Off,
        poll_interval: Duration::from_secs(1),
        seed: 3,
    }
}

#[test]
fn every_byte_is_carried_and_no_read_is_faster_than_its_link() {
    let all = bearing_routing::SELECTIONS.iter().map(|selection| (selection, Replanning::Off));
    let replanned = ["mayflower-b", "mayflower-n"].map(|name| name.parse().unwrap());
    for (selection, replanning) in all.chain(replanned.iter().map(|selection| (selection, Replanning::On))) {
        let experiment = Experiment { replanning, ..experiment(selection.name()) };
        let outcome = run(&experiment);
        assert_eq!(outcome.reads.len(), 120);
        let all = 120.0 * experiment.bytes as f64;
        assert_eq!(outcome.redirected > 0, replanning == Replanning::On, "{}", selection.name());
        assert!((outcome.carried - all).abs() < all * 1e-6, "{}: {}", selection.name(), outcome.carried);
        let least = experiment.bytes as f64 * 8.0 / 1e9;
        assert!(outcome.reads.iter().all(|seconds| *seconds >= least), "{}", selection.name());
    }
}

#[test]
fn a_read_alone_takes_what_the_closed_form_says() {
    let alone = |selection: &str, locality: [f64; 3]| {
        // One read in some hours: nobody meets anybody.
        let experiment = Experiment { rate: 1e-5, reads: 12, locality, ..experiment(selection) };
        run(&experiment).reads
    };
    let bits = (128u64 << 20) as f64 * 8.0;
    let near = |seconds: &f64, expected: f64| (seconds - expected).abs() < 2e-3;
    // In the rack: the host's link. From another pod with one replica: a link to the cores; the question
    // costs 4 ms.
    let rack = alone("mayflower-b", [1.0, 0.0, 0.0]);
    assert!(rack.iter().all(|seconds| near(seconds, bits / 1e9 + 0.004)), "{rack:?}");
    let far = alone("mayflower-b", [0.0, 0.0, 1.0]);
    let expected = [bits / 0.5e9 + 0.004, bits / 1e9 + 0.004];
    assert!(far.iter().all(|seconds| expected.iter().any(|expected| near(seconds, *expected))), "{far:?}");
    assert!(far.iter().any(|seconds| near(seconds, expected[0])), "{far:?}");
    // Two replicas elsewhere: both ways together fill the reader's link.
    let both = alone("mayflower-p", [0.0, 0.0, 1.0]);
    assert!(both.iter().all(|seconds| near(seconds, bits / 1e9 + 0.004)), "{both:?}");
}

#[test]
fn a_seed_gives_the_same_numbers_and_another_one_others() {
    let once = run(&experiment("mayflower-p"));
    assert_eq!(once, run(&experiment("mayflower-p")));
    assert_ne!(once, run(&Experiment { seed: 4, ..experiment("mayflower-p") }));
}

#[test]
fn others_flows_are_there_whether_they_are_reported_or_not() {
    for is_reported in [false, true] {
        let others = Some(Others { rate: 0.08, is_reported });
        let outcome = run(&Experiment { others, ..experiment("mayflower-b") });
        assert!(outcome.others.len() > 50, "{}", outcome.others.len());
        assert!(outcome.others.iter().all(|seconds| *seconds >= 0.25 && seconds.is_finite()));
    }
}

#[test]
fn a_write_takes_what_the_closed_form_says_and_every_copy_gets_all_bytes() {
    for placing in [Placing::Random, Placing::HostLoads, Placing::Cost] {
        // Few in hours: nobody meets anybody.
        let writes = Some(Writes { rate: 1e-4, copies: 3, placing });
        let experiment = Experiment { rate: 1e-5, reads: 4, writes, ..experiment("mayflower-b") };
        let outcome = run(&experiment);
        assert!(outcome.writes.len() > 10, "{}", outcome.writes.len());
        let all = (4 + 3 * outcome.writes.len()) as f64 * experiment.bytes as f64;
        assert!((outcome.carried - all).abs() < all * 1e-6, "{}", outcome.carried);
        // The first host passes it on to two others at once: over its own link of 1 Gb/s, or over one of the
        // links of 500 Mb/s above its rack if both are sent over the same.
        let bits = experiment.bytes as f64 * 8.0;
        let expected = [bits * 2.0 / 1e9 + 0.004, bits * 2.0 / 0.5e9 + 0.004];
        let near = |seconds: &f64| expected.iter().any(|expected| (seconds - expected).abs() < 2e-3);
        assert!(outcome.writes.iter().all(near), "{placing:?}: {:?}", outcome.writes);
        let by_two_ways = outcome.writes.iter().filter(|seconds| **seconds < expected[0] + 2e-3).count();
        assert!(placing != Placing::Cost || by_two_ways == outcome.writes.len(), "{:?}", outcome.writes);
    }
}
