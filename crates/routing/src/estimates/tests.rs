use super::*;
use crate::paths::Paths;
use crate::shares::Shares;
use crate::topology::{Description, Shape};
use proptest::prelude::*;
use std::sync::Arc;

const SECOND: u64 = 1_000_000_000;

fn at(seconds: u64) -> Mono {
    Mono(seconds * SECOND)
}

const MEGABIT: u64 = 1_000_000;

/// The paper's figure 2: two ways of two links between two switches, 10 Mb/s each.
fn figure_2() -> (Paths, Estimates) {
    let link = |one: &str, other: &str, bits| (one.to_owned(), other.to_owned(), Rate::bits(bits * MEGABIT));
    let described = Description {
        switches: ["left", "upper", "lower", "right"].map(str::to_owned).to_vec(),
        hosts: ["source", "reader"].map(str::to_owned).to_vec(),
        links: vec![
            link("source", "left", 1000),
            link("left", "upper", 10),
            link("left", "lower", 10),
            link("upper", "right", 10),
            link("lower", "right", 10),
            link("right", "reader", 1000),
        ],
    };
    let topology = Arc::new(Topology::new(&described).unwrap());
    let mut estimates = Estimates::new(&topology);
    let mut paths = Paths::new(topology);
    let routes = paths.between(Place(0), Place(1));
    let hops: Vec<Vec<Hop>> = routes.iter().map(|route| route.hops().collect()).collect();
    let flows = [(0, 1, 2), (0, 1, 2), (0, 1, 6), (0, 2, 10), (1, 1, 2), (1, 1, 2), (1, 1, 4), (1, 2, 8)];
    for (path, hop, rate) in flows {
        let carrier = Carrier(hops[path][hop].index() as u32);
        let (id, _) = estimates.attempt(Mono::ZERO, vec![carrier], None, Rate::bits(rate * MEGABIT));
        let slot = estimates.by_id[&id];
        // 6 megabits are still to come.
        estimates.flow_mut(slot).remaining = 750_000.0;
    }
    (paths, estimates)
}

#[test]
fn the_papers_example_costs_what_it_says() {
    let (mut paths, mut estimates) = figure_2();
    let routes = paths.between(Place(0), Place(1));
    let costs: Vec<f64> = routes
        .iter()
        .map(|route| {
            let carriers = estimates.carriers(Place(0), route);
            let price = estimates.price(Mono::ZERO, &carriers, &[]);
            assert!((price.rate.bytes() - 375_000.0).abs() < 1e-3, "{price:?}");
            price.rate.seconds_for(1_125_000.0) + price.impact
        })
        .collect();
    // 3 + 1 + 0.257, printed as 4.25; 3 + 0.5 + 0.107, printed as 3.6.
    assert!((costs[0] - 4.257).abs() < 1e-3, "{costs:?}");
    assert!((costs[1] - 3.607).abs() < 1e-3, "{costs:?}");
}

#[test]
fn an_attempt_that_is_undone_leaves_nothing() {
    let (mut paths, mut estimates) = figure_2();
    let before: Vec<_> = estimates.flows().collect();
    let routes = paths.between(Place(0), Place(1));
    let carriers = estimates.carriers(Place(0), routes.iter().next().unwrap());
    let price = estimates.price(Mono::ZERO, &carriers, &[]);
    let (id, undo) = estimates.attempt(Mono::ZERO, carriers, Some(1_125_000), price.rate);
    let during: Vec<f64> = estimates.flows().map(|(_, rate, _)| rate.bytes() * 8.0 / 1e6).collect();
    let expected = [2.0, 2.0, 3.0, 7.0, 2.0, 2.0, 4.0, 8.0, 3.0];
    assert!(during.iter().zip(expected).all(|(rate, expected)| (rate - expected).abs() < 1e-6), "{during:?}");
    assert!(estimates.rate(id).is_some());
    estimates.undo(undo);
    assert_eq!(estimates.flows().collect::<Vec<_>>(), before);
    assert_eq!(estimates.rate(id), None);
}

/// Two flows of hosts under one switch to a third.
fn two_flows() -> (Estimates, [FlowId; 2]) {
    let mut paths = Paths::new(Arc::new(Shape::two_tiers(1, 4).unwrap().topology()));
    let mut estimates = Estimates::new(&paths.topology().clone());
    let ids = [0, 1].map(|source| {
        let routes = paths.between(Place(source), Place(2));
        let carriers = estimates.carriers(Place(source), routes.iter().next().unwrap());
        let price = estimates.price(at(0), &carriers, &[]);
        let (id, _) = estimates.attempt(at(0), carriers, Some(1_000_000_000), price.rate);
        estimates.freeze(at(0), id);
        id
    });
    (estimates, ids)
}

fn mbits(estimates: &Estimates, id: FlowId) -> f64 {
    estimates.rate(id).unwrap().bytes() * 8.0 / 1e6
}

#[test]
fn estimates_are_frozen_for_a_second_but_what_remains_is_not() {
    let (mut estimates, [one, other]) = two_flows();
    assert_eq!((mbits(&estimates, one), mbits(&estimates, other)), (500.0, 500.0));
    let half = Mono(SECOND / 2);
    estimates.report(half, one, 10_000_000);
    assert_eq!(mbits(&estimates, one), 500.0);
    assert_eq!(estimates.remaining(half, one), Some(990_000_000.0));
    // Since the report, 80 MB in a second.
    estimates.report(Mono(SECOND / 2 + SECOND), one, 90_000_000);
    assert_eq!(mbits(&estimates, one), 640.0);
    assert_eq!(estimates.remaining(Mono(SECOND / 2 + SECOND), one), Some(910_000_000.0));
    // Between reports the rate counts.
    assert_eq!(estimates.remaining(Mono(SECOND / 2 + 2 * SECOND), one), Some(830_000_000.0));
    // An old report says nothing, an impossible one ends at nothing.
    estimates.report(at(3), one, 5);
    assert_eq!(mbits(&estimates, one), 640.0);
    estimates.report(at(3), one, u64::MAX);
    assert_eq!(estimates.remaining(at(3), one), Some(0.0));
    assert!(mbits(&estimates, one).is_finite());
}

#[test]
fn who_ends_leaves_its_share_to_those_on_its_path() {
    let (mut estimates, [one, other]) = two_flows();
    assert!(estimates.end(at(1), one));
    assert_eq!(mbits(&estimates, other), 1000.0);
    assert!(!estimates.end(at(1), one));
    assert_eq!(estimates.count(), 1);
}

#[test]
fn reports_about_unknown_flows_are_counted() {
    let (mut estimates, _) = two_flows();
    let before: Vec<_> = estimates.flows().collect();
    estimates.report(at(1), FlowId(99), 7);
    assert_eq!(estimates.unknown_reports(), 1);
    assert_eq!(estimates.flows().collect::<Vec<_>>(), before);
}

#[test]
fn flows_whose_end_was_never_told_expire() {
    let (mut estimates, [one, other]) = two_flows();
    // 1 GB at 500 Mb/s takes 16 seconds; `one` is stuck, `other` moves.
    for second in 1..=15 {
        estimates.report(at(second), one, 1_000_000);
        estimates.report(at(second), other, second * 62_500_000);
    }
    assert_eq!(estimates.expire(at(10)), []);
    assert_eq!(estimates.expire(at(15)), [one]);
    // Nobody reports any more: it should have ended after 16 seconds.
    assert_eq!(estimates.expire(at(20)), []);
    assert_eq!(estimates.expire(at(26)), [other]);
    assert_eq!(estimates.count(), 0);
}

#[test]
fn a_slow_disk_is_what_its_flows_get() {
    let (mut estimates, [one, _]) = two_flows();
    estimates.end(at(0), one);
    let mut paths = Paths::new(Arc::new(Shape::two_tiers(1, 4).unwrap().topology()));
    let routes = paths.between(Place(0), Place(3));
    let carriers = estimates.carriers(Place(0), routes.iter().next().unwrap());
    estimates.set_disk(Place(0), Some(Rate::bits(200_000_000)));
    assert_eq!(estimates.price(at(0), &carriers, &[]).rate, Rate::bits(200_000_000));
    estimates.set_disk(Place(0), None);
    assert_eq!(estimates.price(at(0), &carriers, &[]).rate, Rate::bits(1_000_000_000));
}

#[derive(Clone, Debug)]
enum Change {
    Begin(u32, u32, usize),
    End(usize),
    Report,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        3 => (0u32..64, 0u32..64, 0usize..8).prop_map(|(one, other, path)| Change::Begin(one, other, path)),
        2 => (0usize..40).prop_map(Change::End),
        1 => Just(Change::Report),
    ];
    proptest::collection::vec(change, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The true rates are the exact shares. Whatever comes and goes, once every flow was measured outside its
    /// freeze, estimates are the truth again; and they are never above what a path can carry.
    #[test]
    fn errors_do_not_add_up(changes in changes()) {
        let mut paths = Paths::new(Arc::new(Shape::mayflower(8.0).unwrap().topology()));
        let topology = paths.topology().clone();
        let mut estimates = Estimates::new(&topology);
        let mut truth = Shares::new((0..topology.hops() as u32).map(|hop| topology.capacity(LinkId(hop / 2))));
        let (mut now, mut live) = (0u64, Vec::<(FlowId, f64)>::new());
        let measure = |now: &mut u64, live: &mut Vec<(FlowId, f64)>, estimates: &mut Estimates, truth: &Shares| {
            *now += 1;
            for (id, carried) in live.iter_mut() {
                *carried += truth.rate(*id).bytes();
                estimates.report(at(*now), *id, *carried as u64);
            }
        };
        for change in changes {
            match change {
                Change::Begin(source, target, path) if source != target => {
                    let routes = paths.between(Place(source), Place(target));
                    let route = routes.iter().nth(path % routes.count()).unwrap();
                    let carriers = estimates.carriers(Place(source), route);
                    let price = estimates.price(at(now), &carriers, &[]);
                    prop_assert!(price.impact >= -1e-9 && price.impact.is_finite(), "{:?}", price);
                    let (id, _) = estimates.attempt(at(now), carriers, None, price.rate);
                    estimates.freeze(at(now), id);
                    truth.add(id, route.hops().collect(), Rate::UNBOUNDED);
                    live.push((id, 0.0));
                }
                Change::End(index) if index < live.len() => {
                    let (id, _) = live.swap_remove(index);
                    estimates.end(at(now), id);
                    truth.remove(id);
                }
                Change::Report => measure(&mut now, &mut live, &mut estimates, &truth),
                Change::Begin(..) | Change::End(_) => {}
            }
            truth.settle();
            for (_, rate, hops) in estimates.flows() {
                let narrowest = hops.iter().map(|hop| topology.capacity(hop.link())).fold(Rate::UNBOUNDED, Rate::min);
                prop_assert!(rate.bytes() <= narrowest.bytes() * (1.0 + 1e-6), "{rate} of {narrowest}");
            }
        }
        measure(&mut now, &mut live, &mut estimates, &truth);
        measure(&mut now, &mut live, &mut estimates, &truth);
        for (id, _) in &live {
            let (believed, true_rate) = (estimates.rate(*id).unwrap().bytes(), truth.rate(*id).bytes());
            prop_assert!((believed - true_rate).abs() <= 2.0, "{believed} for {true_rate}");
        }
    }

    /// Exact estimates are the truth at every moment, what was tried and undone or lifted and put back has
    /// left nothing, and a price is what happens then.
    #[test]
    fn exact_estimates_are_the_shares(changes in changes()) {
        let mut paths = Paths::new(Arc::new(Shape::mayflower(8.0).unwrap().topology()));
        let topology = paths.topology().clone();
        let mut estimates = Estimates::exact(&topology);
        let mut truth = Shares::new((0..topology.hops() as u32).map(|hop| topology.capacity(LinkId(hop / 2))));
        let mut live: Vec<FlowId> = Vec::new();
        for change in changes {
            match change {
                Change::Begin(source, target, path) if source != target => {
                    let routes = paths.between(Place(source), Place(target));
                    let route = routes.iter().nth(path % routes.count()).unwrap();
                    let carriers = estimates.carriers(Place(source), route);
                    let (_, undo) = estimates.attempt(at(0), carriers.clone(), None, Rate::ZERO);
                    estimates.undo(undo);
                    if let Some(id) = live.first() {
                        let lifted = estimates.lift(*id);
                        estimates.price(at(0), &carriers, &[]);
                        estimates.put_back(lifted);
                    }
                    let price = estimates.price(at(0), &carriers, &[]);
                    let before: BTreeMap<FlowId, Rate> =
                        estimates.flows().map(|(id, rate, _)| (id, rate)).collect();
                    let (id, _) = estimates.attempt(at(0), carriers, None, price.rate);
                    let impact: f64 = before
                        .iter()
                        .map(|(id, before)| {
                            let remaining = estimates.remaining(at(0), *id).unwrap();
                            estimates.rate(*id).unwrap().seconds_for(remaining) - before.seconds_for(remaining)
                        })
                        .sum();
                    prop_assert!((price.impact - impact).abs() < 1e-6 * impact.abs().max(1.0), "{price:?} {impact}");
                    prop_assert_eq!(estimates.rate(id), Some(price.rate));
                    truth.add(id, route.hops().collect(), Rate::UNBOUNDED);
                    live.push(id);
                }
                Change::End(index) if index < live.len() => {
                    let id = live.swap_remove(index);
                    estimates.end(at(0), id);
                    truth.remove(id);
                }
                Change::Begin(..) | Change::End(_) | Change::Report => {}
            }
            truth.settle();
            for id in &live {
                let (believed, rate) = (estimates.rate(*id).unwrap().bytes(), truth.rate(*id).bytes());
                prop_assert!((believed - rate).abs() <= 1e-6 * rate, "{believed} for {rate}");
            }
        }
    }
}
