use super::*;
use proptest::prelude::*;

fn servers(count: u32) -> Vec<ServerId> {
    (1..=count).map(ServerId).collect()
}

/// Loads with hot spots: most weight lies in a few narrow places.
fn loads() -> impl Strategy<Value = Load> {
    let spot = (any::<u64>(), 0u64..1 << 50, 1u32..100);
    proptest::collection::vec(spot, 30..200).prop_map(|spots| {
        Load::new(
            spots.into_iter().map(|(at, off, weight)| (Position((at >> 50 << 50) + off), f64::from(weight))),
        )
    })
}

fn settled(history: &mut History, load: &Load) -> usize {
    (1..1000).find(|_| !history.rebalance(load)).expect("a steady load comes to rest")
}

proptest! {
    #[test]
    fn on_a_steady_load_it_comes_to_rest_at_equal_shares(count in 2u32..12, nodes in 1u32..4, load in loads()) {
        let parameters = Parameters { virtual_nodes: nodes, ..Parameters::default() };
        let mut history = History::new(&servers(count), &parameters).unwrap();
        // The arcs may rest for a while before a boundary meets the next sample.
        for _ in 0..400 { history.rebalance(&load); }
        settled(&mut history, &load);
        let best = divided(&history.owners, &history.equal_shares(&load), 0.0).unwrap();
        // Where no load is, a boundary may rest anywhere.
        for (position, _) in load.samples() {
            prop_assert_eq!(history.arcs().owner(*position), best.owner(*position));
        }
        // No arc holds more than its share and the heaviest position in it.
        let heaviest = load.samples().iter().map(|(_, weight)| *weight).fold(0.0, f64::max);
        let mean = load.total() / f64::from(count);
        prop_assert!(load.imbalance(&best) <= 1.0 + heaviest * f64::from(nodes) / mean + 1e-9);
    }

    #[test]
    fn within_the_hysteresis_nothing_moves(count in 2u32..9, weights in proptest::collection::vec(1u32..10, 200..400), seed: u64) {
        let parameters = Parameters { alpha_max: 0.0, hysteresis: 0.5, ..Parameters::default() };
        let mut history = History::new(&servers(count), &parameters).unwrap();
        let at = |index: usize| Position((index as u64 + 1) << 50);
        let load = Load::new(weights.iter().enumerate().map(|(index, weight)| (at(index), f64::from(*weight))));
        settled(&mut history, &load);
        let resting = history.arcs().clone();
        // The load wavers by up to a tenth, up and down.
        for round in 0..20u64 {
            let waver = |index: usize| 0.9 + 0.2 * (((seed ^ round).wrapping_mul(index as u64 + 1) >> 7) % 100) as f64 / 100.0;
            let wavering = Load::new(load.samples().iter().enumerate().map(|(index, (at, weight))| (*at, weight * waver(index))));
            prop_assert!(!history.rebalance(&wavering));
        }
        prop_assert_eq!(history.arcs(), &resting);
    }

    #[test]
    fn no_rebalance_moves_more_than_its_budget_and_in_the_end_it_is_where_it_would_be_without(count in 2u32..9, load in loads(), budget in 0.02f64..0.5) {
        let parameters = Parameters { alpha_max: 0.0, migration_budget: budget, ..Parameters::default() };
        let mut history = History::new(&servers(count), &parameters).unwrap();
        let heaviest = load.samples().iter().map(|(_, weight)| *weight).fold(0.0, f64::max);
        let mut owners: Vec<BTreeSet<ServerId>> = load.samples().iter().map(|_| BTreeSet::new()).collect();
        for _ in 0..1000 {
            let before = history.arcs().clone();
            for ((position, _), seen) in load.samples().iter().zip(&mut owners) {
                let owner = before.owner(*position);
                // Once it left a server it does not come back.
                prop_assert!(seen.last() == Some(&owner) || seen.first() == Some(&owner) || seen.insert(owner));
            }
            if !history.rebalance(&load) { break; }
            let moved: f64 = before.handovers(history.arcs()).iter().map(|h| load.between(h.first, h.last)).sum();
            prop_assert!(moved <= (budget * load.total()).max(heaviest) + 1e-6, "{moved} of {}", load.total());
        }
        let best = divided(&history.owners, &history.equal_shares(&load), 0.0).unwrap();
        for (position, _) in load.samples() {
            prop_assert_eq!(history.arcs().owner(*position), best.owner(*position));
        }
    }

    #[test]
    fn whoever_fails_the_next_one_clockwise_has_it_all(count in 2u32..8, nodes in 1u32..4, load in loads(), which: u32, rounds in 0usize..4) {
        let parameters = Parameters { virtual_nodes: nodes, ..Parameters::default() };
        let mut history = History::new(&servers(count), &parameters).unwrap();
        (0..rounds).for_each(|_| { history.rebalance(&load); });
        let before = history.arcs().clone();
        let failed = ServerId(1 + which % count);
        history.fail(failed).unwrap();
        for handover in before.handovers(history.arcs()) {
            prop_assert_eq!(handover.from, failed);
            prop_assert_eq!(handover.to, before.successors(handover.first, 2)[1], "{:?}", handover);
        }
    }

    #[test]
    fn a_join_only_takes(count in 1u32..8, nodes in 1u32..4, load in loads(), rounds in 0usize..4) {
        let parameters = Parameters { virtual_nodes: nodes, ..Parameters::default() };
        let mut history = History::new(&servers(count), &parameters).unwrap();
        (0..rounds).for_each(|_| { history.rebalance(&load); });
        let before = history.arcs().clone();
        history.join(ServerId(99)).unwrap();
        prop_assert!(before.handovers(history.arcs()).iter().all(|handover| handover.to == ServerId(99)));
    }

    #[test]
    fn boundaries_are_made_strictly_growing(raw in proptest::collection::vec(prop_oneof![any::<u64>(), 0u64..5, Just(u64::MAX)], 1..30)) {
        let made = apart(raw.into_iter().map(Position).collect());
        prop_assert!(made.is_sorted_by(|a, b| a < b) && made[0].0 >= 1);
    }
}

#[test]
fn alpha_grows_to_its_bound_and_boundaries_go_part_of_the_way() {
    let parameters = Parameters { alpha_start: 0.5, alpha_max: 0.7, ..Parameters::default() };
    let mut history = History::new(&servers(2), &parameters).unwrap();
    let load = Load::new((0..1000u64).map(|at| (Position(at << 53), 1.0)));
    let psi = history.equal_shares(&load)[0];
    let middle = Position(1 << 63);
    assert!(history.rebalance(&load));
    let half_way = middle.0 / 2 + psi.0 / 2;
    assert!(history.boundaries[0].0.abs_diff(half_way) < 1 << 12, "{:?} {half_way:x}", history.boundaries);
    for expected in [0.6, 0.7, 0.7] {
        assert!((history.alpha() - expected).abs() < 1e-9);
        history.rebalance(&load);
    }
}

#[test]
fn who_joins_takes_half_of_the_heaviest_and_who_fails_leaves_it_to_the_next() {
    let mut history = History::new(&servers(2), &Parameters::default()).unwrap();
    history.join(ServerId(3)).unwrap();
    assert_eq!(history.owners, [ServerId(1), ServerId(3), ServerId(2)]);
    history.fail(ServerId(3)).unwrap();
    assert_eq!(history.arcs().owner(Position(1 << 62)), ServerId(2));
    assert_eq!(history.join(ServerId(1)), Err(PartitionError::Known(ServerId(1))));
    history.leave(ServerId(1)).unwrap();
    assert_eq!(history.leave(ServerId(2)), Err(PartitionError::Last(ServerId(2))));
}

/// 4, 3 and 3 among two: half of all lies within the second, which goes where the shares are more even.
#[test]
fn a_position_that_no_boundary_can_divide_goes_where_shares_are_more_even() {
    let load = Load::new([(1, 4.0), (2, 3.0), (3, 3.0)].map(|(at, weight)| (Position(at << 60), weight)));
    let mut history = History::new(&servers(2), &Parameters::default()).unwrap();
    settled(&mut history, &load);
    let loads = load.by_server(history.arcs());
    assert_eq!(loads.into_values().collect::<Vec<_>>(), [4.0, 6.0]);
}
