//! Laws of cost: what each scheme's placement does by its construction, asked through what the lab asks, so
//! that figures rest on nothing that can rot.

use crate::partition::{Partition, Subtrees, build};
use crate::{Assignment, Draws, Load, Parameters, PartitionKind, Scheme, Seat, Seating};
use bearing_types::{NameHash, NodeId, Position, ServerId};
use std::collections::BTreeMap;

fn servers(count: u32) -> Vec<ServerId> {
    (1..=count).map(ServerId).collect()
}

fn made(scheme: Scheme, count: u32) -> Box<dyn Partition> {
    build(scheme.parts().partition, &servers(count), &scheme.parameters()).unwrap()
}

/// Directories of a tree, each somewhere below those made before, with their seats as this scheme gives them.
fn directories(scheme: Scheme, partition: &mut dyn Partition, count: u64) -> Vec<Seat> {
    let mut draws = Draws(11);
    let mut seats = vec![Seat::root(NodeId::ROOT, scheme.seating())];
    for number in 0..count {
        let parent = seats[draws.below((number + 1).min(40)) as usize];
        let (node, hash) = (NodeId(number + 2), NameHash::from_bits(draws.draw() >> 16));
        let chosen = partition.choose(&parent, node);
        seats.push(chosen.map_or_else(|| parent.child(node, hash), |block| parent.child_in(node, block)));
    }
    seats
}

/// How much of a load changes hands until all rests, and the imbalance before and then.
fn rebalanced(scheme: Scheme) -> (f64, f64, f64) {
    let mut partition = made(scheme, 8);
    let seats = directories(scheme, partition.as_mut(), 300);
    // Some are asked for far more often than others.
    let weight = |index: usize| 1.0 / (1.0 + (index * 7 % 300) as f64);
    let mut draws = Draws(5);
    let load = Load::new(seats.iter().enumerate().flat_map(|(index, seat)| {
        let hashes: Vec<_> = (0..20).map(|_| NameHash::from_bits(draws.draw() >> 16)).collect();
        hashes.into_iter().map(move |hash| (seat.position_of(hash), weight(index)))
    }));
    let before = load.imbalance(partition.arcs());
    let mut moved = 0.0;
    for _ in 0..100 {
        let last = partition.arcs().clone();
        partition.rebalance(&load);
        let handovers = last.handovers(partition.arcs());
        moved += handovers.iter().map(|handover| load.between(handover.first, handover.last)).sum::<f64>();
    }
    (moved / load.total(), before, load.imbalance(partition.arcs()))
}

#[test]
fn schemes_that_follow_the_load_do_and_others_move_nothing() {
    for scheme in Scheme::ALL {
        let (moved, before, after) = rebalanced(scheme);
        let follows = matches!(
            scheme,
            Scheme::AnglecutHashed
                | Scheme::Anglecut
                | Scheme::Drop
                | Scheme::DynamicSubtree
                | Scheme::Metaflow
        );
        if !follows {
            assert_eq!((moved, before), (0.0, after), "{scheme}");
        } else if scheme.seating() != Seating::Hash && scheme.seating() != Seating::SiblingRank {
            // What is spread by hash has little to gain.
            assert!(after - 1.0 < (before - 1.0) * 0.75, "{scheme}: {before} to {after}");
            assert!(moved > 0.0 && moved < 2.0, "{scheme}: {moved}");
        } else {
            assert!(moved > 0.0 && after <= before, "{scheme}: {before} to {after}, {moved} moved");
        }
    }
}

/// One-Hop has several points for each server, and so more even arcs; AngleCut may have.
#[test]
fn each_server_has_as_many_arcs_as_virtual_nodes() {
    for kind in [PartitionKind::Ring, PartitionKind::History] {
        for virtual_nodes in [1, 16] {
            let parameters = Parameters { virtual_nodes, ..Parameters::default() };
            let mut partition = build(kind, &servers(9), &parameters).unwrap();
            partition.join(ServerId(99)).unwrap();
            let mut arcs: BTreeMap<ServerId, u32> = BTreeMap::new();
            partition.arcs().arcs().iter().for_each(|(_, owner)| *arcs.entry(*owner).or_default() += 1);
            // Points of one server that follow each other are one arc.
            let fewest = virtual_nodes - virtual_nodes / 4;
            let all = arcs.values().all(|count| (fewest..=virtual_nodes).contains(count));
            assert!(arcs.len() == 10 && all, "{kind:?}: {arcs:?}");
        }
    }
    assert!(made(Scheme::OneHop, 10).arcs().arcs().len() > 120);
}

/// DROP's key grows with the path: what is below a directory lies where the directory's name does.
#[test]
fn what_is_below_a_directory_lies_where_its_name_does() {
    let mut draws = Draws(3);
    for _ in 0..200 {
        let mut seat = Seat::root(NodeId::ROOT, Scheme::Drop.seating());
        for level in 0..4 {
            let hash = NameHash::from_bits(draws.draw() >> 16);
            let child = seat.child(NodeId(level + 2), hash);
            assert!(child.span.contains(seat.position_of(hash)), "{seat:?} {child:?}");
            seat = child;
        }
    }
}

/// Five blocks of 40, 30, 20, 10 and 8 on one server, five of nearly nothing on the other: 40 and 10 make
/// them even.
#[test]
fn the_subtree_moves_that_helps_most() {
    let mut subtrees = Subtrees::moving(&servers(2), &Parameters::default()).unwrap();
    let root = Seat::root(NodeId::ROOT, Seating::Chosen);
    let blocks: Vec<_> = (2..12).map(|node| subtrees.choose(&root, NodeId(node)).unwrap()).collect();
    let (mut heavy, mut light) = ([40.0, 30.0, 20.0, 10.0, 8.0].into_iter(), [1.0; 5].into_iter());
    let load = Load::new(blocks.iter().map(|block| {
        let owner = subtrees.arcs().owner(block.start());
        let weight = if owner == ServerId(1) { heavy.next() } else { light.next() };
        (block.start(), weight.expect("five each"))
    }));
    let before = subtrees.arcs().clone();
    while subtrees.rebalance(&load) {}
    let handovers = before.handovers(subtrees.arcs());
    let moved: f64 = handovers.iter().map(|handover| load.between(handover.first, handover.last)).sum();
    assert_eq!((handovers.len(), moved), (2, 50.0));
}

#[test]
fn homes_that_are_chosen_are_anybodys() {
    for scheme in [Scheme::Hba, Scheme::GHba, Scheme::Bfa8, Scheme::Bfa16] {
        let mut partition = made(scheme, 10);
        let seats = directories(scheme, partition.as_mut(), 10_000);
        let mut homes: BTreeMap<ServerId, u32> = BTreeMap::new();
        seats.iter().for_each(|seat| *homes.entry(partition.arcs().owner(seat.home)).or_default() += 1);
        assert!(homes.len() == 10 && homes.values().all(|count| (850..1150).contains(count)), "{homes:?}");
    }
}

#[test]
fn subtrees_lie_on_all_servers_and_with_what_is_above_them() {
    for scheme in [Scheme::StaticSubtree, Scheme::DynamicSubtree] {
        let mut partition = made(scheme, 10);
        let root = Seat::root(NodeId::ROOT, scheme.seating());
        let mut owners: BTreeMap<ServerId, u32> = BTreeMap::new();
        for number in 0..50 {
            let mut seat = root;
            let mut homes = Vec::new();
            for level in 0..6 {
                let node = NodeId(2 + number * 6 + level);
                let block = partition.choose(&seat, node);
                let hash = NameHash::from_bits(node.0 << 30);
                seat = block.map_or_else(|| seat.child(node, hash), |block| seat.child_in(node, block));
                homes.push(partition.arcs().owner(seat.home));
                *owners.entry(homes[level as usize]).or_default() += 1;
            }
            // From the second level down.
            assert!(homes[1..].iter().all(|home| *home == homes[1]), "{scheme}: {homes:?}");
        }
        assert!(owners.len() == 10 && owners.values().all(|count| *count >= 15), "{scheme}: {owners:?}");
    }
}

/// RDHT-MDSC section 3.3: who has the arcs of a failed server has had the copies.
#[test]
fn who_has_the_arcs_of_a_failed_server_had_the_copies() {
    for scheme in Scheme::ALL {
        let copies = if scheme == Scheme::RdhtMdsc { 2 } else { 1 };
        assert_eq!(scheme.copies(), copies, "{scheme}");
    }
    let scheme = Scheme::RdhtMdsc;
    let partition = made(scheme, 9);
    let before = Assignment::of(partition.arcs(), scheme.copies()).unwrap();
    for failed in servers(9) {
        let mut partition = made(scheme, 9);
        partition.fail(failed).unwrap();
        for handover in before.arcs().handovers(partition.arcs()) {
            let members = &before.tablet_at(handover.first).members;
            assert!(members.contains(&failed) && members.contains(&handover.to), "{failed}: {members:?}");
        }
    }
}

/// RDHT-MDSC's set-up: equal ranges, so that five servers can have five times the throughput of one.
#[test]
fn servers_at_equal_distances_have_equal_ranges() {
    let parameters = Parameters { even_points: true, ..Scheme::RdhtMdsc.parameters() };
    let longest = |parameters: &Parameters| {
        let ring = build(PartitionKind::Ring, &servers(5), parameters).unwrap();
        let lengths = servers(5).into_iter().map(|server| ring.arcs().length_of(server) as f64);
        lengths.fold(0.0, f64::max) / 2f64.powi(64) * 5.0
    };
    assert!((longest(&parameters) - 1.0).abs() < 1e-9);
    assert!(longest(&Parameters { even_points: false, ..parameters.clone() }) > 1.5);
    let mut ring = build(PartitionKind::Ring, &servers(4), &parameters).unwrap();
    ring.join(ServerId(9)).unwrap();
    assert_eq!(ring.arcs().length_of(ServerId(9)), 1 << 61);
    assert_eq!(ring.arcs().owner(Position(1)), ServerId(9));
}
