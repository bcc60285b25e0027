//! The tree of MetaFlow: its worked examples, and laws that hold after any sequence of calls.

use super::*;
use bearing_routing::{Place, Shape, SwitchTree, TreeNode};
use bearing_types::Block;
use proptest::prelude::*;

fn servers(count: u32) -> Vec<ServerId> {
    (1..=count).map(ServerId).collect()
}

fn tree(topology: SwitchTree, count: u32, growth: Growth, load: &Load) -> BTree {
    BTree::new(Shared::new(topology), &servers(count), growth, load, &Parameters::default()).unwrap()
}

fn shown(arcs: &Arcs) -> Vec<(String, ServerId)> {
    arcs.blocks().into_iter().map(|(block, owner)| (dotted(block).expect("32 bits"), owner)).collect()
}

fn at(text: &str) -> Position {
    block_of_dotted(&format!("{text}/32")).expect("an address").start()
}

/// MetaFlow figures 10 and 11: 128.0.0.0 between the switches, 96.0.0.0 under the left one; then ServerA
/// splits at 80.0.0.0 and ServerC has 80.0.0.0/4.
#[test]
fn figures_10_and_11_by_splits_of_a_tree() {
    // Two switches with three places each: servers 1 to 3 under the left one.
    let mut tree = tree(
        Shape::two_tiers(2, 3).unwrap().switch_tree().unwrap(),
        6,
        Growth::published(1),
        &Load::default(),
    );
    let halves = Load::new([(at("1.0.0.0"), 1.0), (at("130.0.0.0"), 1.0)]);
    tree.split(ServerId(1), &halves).unwrap();
    assert_eq!(shown(tree.arcs()), [("0.0.0.0/1".into(), ServerId(1)), ("128.0.0.0/1".into(), ServerId(2))]);
    // The right half belongs under the other switch, as in the figure.
    tree.leave(ServerId(3)).unwrap();
    tree.leave(ServerId(2)).unwrap();
    assert_eq!(tree.arcs().owner(at("128.0.0.0")), ServerId(4));
    tree.join_at(ServerId(2), Place(1)).unwrap();
    tree.join_at(ServerId(3), Place(2)).unwrap();

    let left = Load::new([(at("95.255.255.255"), 1.0), (at("96.0.0.0"), 1.0)]);
    tree.split(ServerId(1), &left).unwrap();
    let [server_1, server_2, server_4] = [1, 2, 4].map(ServerId);
    let figure_10 = [
        ("0.0.0.0/2".into(), server_1),
        ("64.0.0.0/3".into(), server_1),
        ("96.0.0.0/3".into(), server_2),
        ("128.0.0.0/1".into(), server_4),
    ];
    assert_eq!(shown(tree.arcs()), figure_10);

    let full = Load::new([(at("1.2.3.4"), 30.0), (at("70.0.0.0"), 20.0), (at("81.0.0.0"), 50.0)]);
    let activated = tree.split(server_1, &full).unwrap().unwrap();
    assert_eq!((activated.share, activated.within), (0.5, true));
    let figure_11 = [
        ("0.0.0.0/2".into(), server_1),
        ("64.0.0.0/4".into(), server_1),
        ("80.0.0.0/4".into(), ServerId(3)),
        ("96.0.0.0/3".into(), server_2),
        ("128.0.0.0/1".into(), server_4),
    ];
    assert_eq!(shown(tree.arcs()), figure_11);
}

#[test]
fn growth_without_load_halves_the_ring_and_keeps_ring_order_on_request() {
    let load = Load::default();
    let published =
        tree(Shape::fat_tree(4).unwrap().switch_tree().unwrap(), 16, Growth::published(16), &load);
    assert!(published.arcs().iter().all(|(first, last, _)| last.0 - first.0 == u64::MAX >> 4));
    let ordered =
        tree(Shape::fat_tree(4).unwrap().switch_tree().unwrap(), 16, Growth::fewest_prefixes(16), &load);
    let owners: Vec<_> = ordered.arcs().iter().map(|(_, _, owner)| owner).collect();
    assert_eq!(owners, servers(16));
    // Half of them: every edge switch has one busy and one idle server.
    let half =
        tree(Shape::fat_tree(4).unwrap().switch_tree().unwrap(), 16, Growth::fewest_prefixes(8), &load);
    let owners: Vec<_> = half.arcs().iter().map(|(_, _, owner)| owner.0).collect();
    assert_eq!(owners, [1, 3, 5, 7, 9, 11, 13, 15]);
}

#[test]
fn a_failed_server_is_replaced_under_the_same_switch_then_from_the_nearest_then_not_at_all() {
    // Places 0 1 | 2 3 (one pod) and 4 5 | 6 7 (the other). Servers 1 to 8; 1, 3, 5 and 7 are busy.
    let mut tree = tree(
        Shape::three_tiers(2, 2, 2).unwrap().switch_tree().unwrap(),
        8,
        Growth::fewest_prefixes(4),
        &Load::default(),
    );
    let before = tree.arcs().clone();
    let replaced = |tree: &BTree| {
        let handovers = before.handovers(tree.arcs());
        handovers.iter().map(|h| (h.from.0, h.to.0)).collect::<Vec<_>>()
    };
    tree.fail(ServerId(1)).unwrap();
    assert_eq!(replaced(&tree), [(1, 2)]);
    tree.fail(ServerId(2)).unwrap();
    assert_eq!(replaced(&tree), [(1, 4)]);
    tree.fail(ServerId(4)).unwrap();
    assert_eq!(replaced(&tree), [(1, 6)]);
    tree.fail(ServerId(6)).unwrap();
    assert_eq!(replaced(&tree), [(1, 8)]);
    let untouched = (tree.arcs().clone(), tree.members());
    assert_eq!(tree.fail(ServerId(8)), Err(PartitionError::NoIdle(ServerId(8))));
    assert_eq!(
        PartitionError::NoIdle(ServerId(8)).to_string(),
        "no idle server can take over from s8; add servers"
    );
    assert_eq!((tree.arcs().clone(), tree.members()), untouched);
    tree.join(ServerId(9)).unwrap();
    assert_eq!(tree.hosts().place(ServerId(9)), Some(Place(0)));
    assert_eq!(tree.arcs(), &untouched.0);
    tree.fail(ServerId(8)).unwrap();
    assert_eq!(replaced(&tree), [(1, 9)]);
}

#[test]
fn what_cannot_be_is_refused_with_the_numbers() {
    let topology = Shared::new(Shape::two_tiers(2, 2).unwrap().switch_tree().unwrap());
    let made = |count: u32, busy: usize| {
        BTree::new(
            topology.clone(),
            &servers(count),
            Growth::published(busy),
            &Load::default(),
            &Parameters::default(),
        )
    };
    assert_eq!(made(5, 1).unwrap_err(), PartitionError::NoPlace(4, 5));
    assert_eq!(
        made(3, 4).unwrap_err().to_string(),
        "servers busy at the start may not be 4; give 1 to the number of servers"
    );
    assert_eq!(made(0, 0).unwrap_err(), PartitionError::NoServers);
    let mut full = made(4, 4).unwrap();
    assert_eq!(full.join(ServerId(5)), Err(PartitionError::NoPlace(4, 5)));
    assert_eq!(full.join(ServerId(4)), Err(PartitionError::Known(ServerId(4))));
    assert_eq!(full.split(ServerId(1), &Load::default()), Err(PartitionError::NoIdle(ServerId(1))));
    assert_eq!(full.leave(ServerId(7)), Err(PartitionError::Unknown(ServerId(7))));
    let mut alone = made(1, 1).unwrap();
    assert_eq!(alone.leave(ServerId(1)), Err(PartitionError::Last(ServerId(1))));
    assert_eq!(alone.fail(ServerId(2)), Err(PartitionError::Unknown(ServerId(2))));
}

#[test]
fn a_split_beside_one_hot_position_says_that_it_is_outside_the_window() {
    let load = Load::new([(Position(3), 1.0), (Position(1 << 40), 98.0), (Position(1 << 60), 1.0)]);
    for growth in [Growth::published(1), Growth::fewest_prefixes(1)] {
        let mut tree = tree(Shape::two_tiers(2, 4).unwrap().switch_tree().unwrap(), 8, growth, &load);
        let activated = tree.split(ServerId(1), &load).unwrap().unwrap();
        assert!(!activated.within, "{activated:?}");
        // A hot position in the end stands alone, and idle servers are left for others.
        tree.rebalance(&load);
        assert!(!tree.rebalance(&load));
        assert!(tree.idle() > 0, "{:?}", tree.arcs());
    }
}

/// What the load says about others does not make a run without any impossible to part, nor part it askew.
#[test]
fn a_run_without_load_of_its_own_is_halved_by_length() {
    let elsewhere = Load::new([(Position(3), 1.0), (Position(9), 1.0)]);
    for growth in [Growth::published(2), Growth::fewest_prefixes(2)] {
        let mut tree =
            tree(Shape::two_tiers(2, 4).unwrap().switch_tree().unwrap(), 8, growth, &Load::default());
        let upper = tree.arcs().owner(Position(u64::MAX));
        let activated = tree.split(upper, &elsewhere).unwrap().expect("there is a length to part");
        assert_eq!((activated.share, activated.within), (0.5, true), "{growth:?}");
        assert_eq!(activated.handover.first, Position(3 << 62), "{growth:?}");
    }
}

#[test]
fn the_last_position_of_the_ring_can_be_a_run_of_its_own() {
    let load = Load::new([(Position(u64::MAX - 1), 1.0), (Position(u64::MAX), 1.0)]);
    for growth in [Growth::published(1), Growth::fewest_prefixes(1)] {
        let mut tree = tree(Shape::two_tiers(2, 4).unwrap().switch_tree().unwrap(), 8, growth, &load);
        assert_eq!(tree.split(ServerId(1), &load).unwrap().unwrap().share, 0.5);
        assert_eq!(tree.split(ServerId(2), &load), Ok(None));
        assert_eq!(tree.arcs().length_of(ServerId(2)), 1);
        tree.fail(ServerId(2)).unwrap();
        assert_eq!(tree.arcs().length_of(ServerId(3)), 1);
    }
}

/// The nearest idle server by looking at all: fewest tiers up, then the next place.
fn nearest_by_scan(tree: &BTree, place: Place) -> Option<Place> {
    let tiers_up = |other: Place| {
        let shared = |node: &TreeNode| tree.topology().places_under(*node).contains(&other);
        tree.topology().above(place).position(|node| shared(&node)).expect("the root")
    };
    let order = |other: Place| (other < place, other.0.abs_diff(place.0));
    let idle = tree.hosts().iter().filter(|(_, server)| !tree.is_busy(*server)).map(|(place, _)| place);
    idle.min_by_key(|other| (tiers_up(*other), order(*other)))
}

#[derive(Clone, Debug)]
enum Call {
    Join(u32),
    Leave(u32),
    Fail(u32),
    Split(u32),
    Rebalance,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let call = prop_oneof![
        (1u32..20).prop_map(Call::Join),
        (1u32..20).prop_map(Call::Leave),
        (1u32..20).prop_map(Call::Fail),
        (1u32..20).prop_map(Call::Split),
        Just(Call::Rebalance),
    ];
    proptest::collection::vec(call, 1..40)
}

fn loads() -> impl Strategy<Value = Load> {
    let position = prop_oneof![any::<u64>(), 0u64..9, (0u32..64).prop_map(|bit| 1 << bit)];
    proptest::collection::vec((position, 1u32..50), 0..40).prop_map(|samples| {
        Load::new(samples.into_iter().map(|(at, weight)| (Position(at), f64::from(weight))))
    })
}

fn growths() -> impl Strategy<Value = Growth> {
    let points = prop_oneof![Just(SplitPoints::Published), Just(SplitPoints::FewestPrefixes)];
    let activation = prop_oneof![Just(Activation::Nearest), Just(Activation::InRingOrder)];
    (1usize..12, points, activation).prop_map(|(busy, points, activation)| Growth {
        busy,
        points,
        activation,
    })
}

proptest! {
    /// The oracle keeps one owner for each position it watches, and changes it as the paper says.
    #[test]
    fn every_position_has_one_owner_after_any_sequence_of_calls(growth in growths(), calls in calls(), load in loads(), at: u64) {
        let mut tree = tree(Shape::three_tiers(2, 2, 4).unwrap().switch_tree().unwrap(), 12, growth, &load);
        prop_assert_eq!(tree.idle(), 12 - growth.busy);
        for call in calls {
            let before = (tree.arcs().clone(), tree.members(), tree.idle());
            let place = |server: u32| tree.hosts().place(ServerId(server));
            let done = match call {
                Call::Join(server) => {
                    let done = tree.join(ServerId(server));
                    prop_assert_eq!(tree.arcs(), &before.0);
                    done
                }
                Call::Leave(server) | Call::Fail(server) => {
                    let server = ServerId(server);
                    let heir = place(server.0).filter(|_| tree.is_busy(server)).map(|place| nearest_by_scan(&tree, place));
                    let heir = heir.flatten().and_then(|place| tree.hosts().server(place));
                    let done = if matches!(call, Call::Leave(_)) { tree.leave(server) } else { tree.fail(server) };
                    let expected = |owner: ServerId| if owner == server { heir.expect("an heir") } else { owner };
                    if done.is_ok() {
                        prop_assert!(!tree.members().contains(&server));
                        let expected = before.0.iter().map(|(first, _, owner)| (first, expected(owner)));
                        prop_assert_eq!(tree.arcs(), &Arcs::new(expected).unwrap());
                    }
                    done
                }
                Call::Split(server) => match tree.split(ServerId(server), &load) {
                    Ok(Some(activated)) => {
                        prop_assert_eq!(before.0.handovers(tree.arcs()), vec![activated.handover]);
                        prop_assert_eq!(tree.idle(), before.2 - 1);
                        Ok(())
                    }
                    Ok(None) => { prop_assert_eq!(tree.arcs(), &before.0); Ok(()) }
                    Err(refused) => Err(refused),
                },
                Call::Rebalance => {
                    prop_assert_eq!(tree.rebalance(&load), tree.arcs() != &before.0);
                    prop_assert!(load.total() == 0.0 || load.imbalance(tree.arcs()) * load.total() / tree.arcs().servers().len() as f64
                        <= load.imbalance(&before.0) * load.total() / before.0.servers().len() as f64 + 1e-9);
                    Ok(())
                }
            };
            if done.is_err() {
                prop_assert_eq!((tree.arcs().clone(), tree.members(), tree.idle()), before);
            }
            let owners = tree.arcs().servers();
            prop_assert!(owners.is_subset(&tree.members()));
            prop_assert_eq!(owners.len() + tree.idle(), tree.members().len());
            prop_assert!(owners.iter().all(|owner| tree.is_busy(*owner)));
            let holding = tree.arcs().blocks().into_iter().filter(|(block, _): &(Block, _)| block.contains(Position(at)));
            prop_assert_eq!(holding.map(|(_, owner)| owner).collect::<Vec<_>>(), vec![tree.arcs().owner(Position(at))]);
        }
    }

    #[test]
    fn rebalances_on_a_steady_load_come_to_rest_with_nobody_full_or_nobody_idle(growth in growths(), load in loads()) {
        let mut tree = tree(Shape::three_tiers(2, 2, 4).unwrap().switch_tree().unwrap(), 16, growth, &load);
        let mut rounds = 0;
        while tree.rebalance(&load) {
            rounds += 1;
            prop_assert!(rounds <= 16);
        }
        let loads = load.by_server(tree.arcs());
        let capacity = load.total() / loads.len() as f64 * 1.1;
        for (server, weight) in loads {
            let (first, last) = tree.run_of(server).unwrap();
            let one_position = load.rank(last) + usize::from(load.between(last, last) > 0.0) - load.rank(first) <= 1;
            prop_assert!(weight <= capacity + 1e-9 || tree.idle() == 0 || one_position);
        }
    }
}
