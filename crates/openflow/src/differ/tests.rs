//! Between any two steps of any change every packet reaches its old or its new owner, asked of the soft
//! switches.

use super::*;
use crate::soft_switch::{Fate, SoftNetwork};
use crate::table::{Budget, Form, Output};
use crate::testing::{arcs, topologies};
use bearing_placement::{Arcs, BTree, Growth, Hosts, Load, Parameters, Partition, block_of_dotted};
use bearing_routing::{Port, Shape};
use bearing_types::{Position, ServerId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn servers(count: u32) -> Vec<ServerId> {
    (1..=count).map(ServerId).collect()
}

/// The number of entries that differ, counted switch by switch.
fn differing(before: &Tables, after: &Tables) -> usize {
    let entries = |tables: &Tables, switch| -> BTreeMap<Block, Output> {
        tables.of(switch).entries().iter().map(|entry| (entry.block, entry.output)).collect()
    };
    let differing = before.topology().switches().map(|switch| {
        let (old, new) = (entries(before, switch), entries(after, switch));
        let blocks: BTreeSet<Block> = old.keys().chain(new.keys()).copied().collect();
        blocks.into_iter().filter(|block| old.get(block) != new.get(block)).count()
    });
    differing.sum()
}

/// One position of every range that no block of any entry, old, new or in between, parts. What holds for them
/// holds for all.
fn positions(before: &Tables, after: &Tables, change: &Change) -> BTreeSet<Position> {
    let entries = [before, after].into_iter().flat_map(|tables| {
        tables
            .topology()
            .switches()
            .flat_map(|switch| tables.of(switch).entries().iter().map(|entry| entry.block))
    });
    let blocks = entries.chain(change.steps.iter().map(|step| block_of(step.edit)));
    blocks.flat_map(|block| [block.start(), Position(block.last().0.wrapping_add(1))]).collect()
}

fn block_of(edit: Edit) -> Block {
    match edit {
        Edit::Add(entry) | Edit::Modify(entry) => entry.block,
        Edit::Delete(block) => block,
    }
}

/// Carries out a change step by step and asks for the fate of packets from every switch by every way: after
/// each step those that its block holds, for no others can have changed; at the end all.
fn is_safe(before: &Tables, after: &Tables, change: &Change) -> Result<(), TestCaseError> {
    let mut network = SoftNetwork::new(before);
    let positions = positions(before, after, change);
    let ask = |network: &SoftNetwork, position: Position, allowed: BTreeSet<Fate>| {
        for switch in before.topology().switches() {
            let fates = network.every_fate(switch, position);
            prop_assert!(fates.is_subset(&allowed), "{position} from {switch:?}: {fates:?}, not {allowed:?}");
        }
        Ok(())
    };
    let fate = |tables: &Tables, position| Fate::Delivered(tables.destination(position).expect("owned"));
    for step in &change.steps {
        network.apply(step);
        let block = block_of(step.edit);
        for position in positions.range(block.start()..=block.last()).copied() {
            ask(&network, position, BTreeSet::from([fate(before, position), fate(after, position)]))?;
        }
    }
    for position in positions.iter().copied() {
        ask(&network, position, BTreeSet::from([fate(after, position)]))?;
    }
    for switch in before.topology().switches() {
        prop_assert_eq!(network.table(switch), after.of(switch));
    }
    Ok(())
}

proptest! {
    #[test]
    fn between_any_two_steps_of_any_change_packets_reach_the_old_or_the_new_owner(which in 0usize..5, from in arcs(8), to in arcs(8), compress: bool) {
        let topology = Shared::new(topologies().swap_remove(which));
        let hosts = Hosts::in_order(&topology, &servers(8)).unwrap();
        let form = if compress { Form::Compressed } else { Form::Published };
        let built = |arcs: &Arcs| Tables::new(&topology, &hosts, arcs, form, Budget(100_000)).unwrap();
        let (before, after) = (built(&from), built(&to));
        let change = change(&before, &after).unwrap();
        is_safe(&before, &after, &change)?;
        prop_assert_eq!(change.steps.len(), differing(&before, &after) + change.guards);
        // Disjoint blocks never interlock.
        prop_assert!(compress || change.guards == 0, "{} guards", change.guards);
    }

    #[test]
    fn splits_failures_and_rebalances_of_a_tree_are_safe_and_touch_no_entry_in_vain(
        which in 0usize..5, busy in 1usize..8, published: bool, samples in proptest::collection::vec((crate::testing::position(), 1u32..9), 1..20), calls in proptest::collection::vec((0u32..3, 1u32..=8), 1..8),
    ) {
        let topology = Shared::new(topologies().swap_remove(which));
        let load = Load::new(samples.into_iter().map(|(at, weight)| (at, f64::from(weight))));
        let (growth, form) = if published { (Growth::published(busy), Form::Published) } else { (Growth::fewest_prefixes(busy), Form::Compressed) };
        let mut tree = BTree::new(topology.clone(), &servers(8), growth, &load, &Parameters::default()).unwrap();
        let mut tables = Tables::new(&topology, tree.hosts(), tree.arcs(), form, Budget::PUBLISHED).unwrap();
        for (call, server) in calls {
            let arcs = tree.arcs().clone();
            // A refusal changes nothing, which is a change without steps.
            match call {
                0 => { let _refused = tree.split(ServerId(server), &load); }
                1 => { let _refused = tree.fail(ServerId(server)); }
                _ => { tree.rebalance(&load); }
            }
            let handovers = arcs.handovers(tree.arcs());
            let after = tables.after(tree.hosts(), &handovers).unwrap();
            let change = change(&tables, &after).unwrap();
            is_safe(&tables, &after, &change)?;
            prop_assert_eq!(change.steps.len(), differing(&tables, &after) + change.guards);
            prop_assert!(call == 2 || change.guards == 0);
            prop_assert_eq!(change.steps.is_empty(), handovers.is_empty());
            tables = after;
        }
    }
}

/// MetaFlow section 6.B, figure 11: one entry is added and another one modified. An entry is keyed by its
/// block, so the second is a deletion and an addition. With a longer prefix as a hole in a shorter one, the
/// split is one step.
#[test]
fn figure_11_touches_three_blocks_of_one_switch_as_published_and_one_with_holes() {
    let topology = Shared::new(Shape::two_tiers(2, 3).unwrap().switch_tree().unwrap());
    let hosts = Hosts::in_order(&topology, &servers(4)).unwrap();
    let block = |text: &str| block_of_dotted(text).unwrap();
    let built = |starts: &[(&str, u32)], form, budget| {
        let starts = starts.iter().map(|(text, owner)| (block(text).start(), ServerId(*owner)));
        Tables::new(&topology, &hosts, &Arcs::new(starts).unwrap(), form, Budget(budget)).unwrap()
    };
    let changed = |form, budget| {
        let before = built(&[("0.0.0.0/1", 1), ("96.0.0.0/3", 2), ("128.0.0.0/1", 4)], form, budget);
        let starts = [("0.0.0.0/1", 1), ("80.0.0.0/4", 3), ("96.0.0.0/3", 2), ("128.0.0.0/1", 4)];
        change(&before, &built(&starts, form, budget))
    };
    let (edge, port) = (SwitchId(1), |port| Output::Port(Port(port)));
    let add = |text: &str, out| Edit::Add(FlowEntry { block: block(text), output: port(out) });
    let edits = |change: Change| -> Vec<Edit> {
        assert!(change.steps.iter().all(|step| step.switch == edge));
        change.steps.into_iter().map(|step| step.edit).collect()
    };
    let published = [add("64.0.0.0/4", 1), add("80.0.0.0/4", 3), Edit::Delete(block("64.0.0.0/3"))];
    assert_eq!(edits(changed(Form::Published, 6).unwrap()), published);
    assert_eq!(edits(changed(Form::Compressed, 6).unwrap()), [add("80.0.0.0/4", 3)]);
    // Four entries before and five after, but six in between.
    let refused = changed(Form::Published, 5).unwrap_err();
    assert_eq!(refused, TableError::OverBudget { switch: "edge-0".into(), entries: 6, budget: Budget(5) });
}

#[test]
fn the_new_side_turns_before_the_old_side() {
    // Places 0..2 and 2..4 under edges 0 and 1 of pod 0; 4..8 in pod 1. Server 1 (edge 0) hands all over to
    // server 5 (edge 2).
    let topology = Shared::new(Shape::three_tiers(2, 2, 2).unwrap().switch_tree().unwrap());
    let hosts = Hosts::in_order(&topology, &servers(8)).unwrap();
    let built = |owner| {
        let arcs = Arcs::even(&[ServerId(owner), ServerId(8)]).unwrap();
        Tables::new(&topology, &hosts, &arcs, Form::Compressed, Budget::PUBLISHED).unwrap()
    };
    let steps = change(&built(1), &built(5)).unwrap().steps;
    let mut names: Vec<_> = steps.iter().map(|step| topology.name(step.switch)).collect();
    names.dedup();
    assert_eq!(names, ["edge-2", "aggregation-1-0", "core-0", "aggregation-0-0", "edge-0"]);
}

/// The slow oracle: whether these steps can be ordered so that packets only ever reach their old or their new
/// owner, by trying all orders.
fn can_be_ordered(before: &Tables, after: &Tables, steps: &[Step]) -> bool {
    let whole = Change { steps: steps.to_vec(), guards: 0 };
    let positions = positions(before, after, &whole);
    let fate = |tables: &Tables, position| Fate::Delivered(tables.destination(position).expect("owned"));
    let is_safe = |network: &SoftNetwork| {
        positions.iter().all(|position| {
            let allowed = [fate(before, *position), fate(after, *position)];
            let fates = before.topology().switches().map(|switch| network.inject(switch, *position));
            fates.into_iter().all(|fate| allowed.contains(&fate))
        })
    };
    let mut seen = BTreeSet::from([0u32]);
    let mut ahead = vec![(0u32, SoftNetwork::new(before))];
    while let Some((done, network)) = ahead.pop() {
        if done.count_ones() as usize == steps.len() {
            return true;
        }
        for (index, step) in steps.iter().enumerate().filter(|(index, _)| done & 1 << index == 0) {
            let mut next = network.clone();
            next.apply(step);
            if seen.insert(done | 1 << index) && is_safe(&next) {
                ahead.push((done | 1 << index, next));
            }
        }
    }
    false
}

/// The steps for what differs, without an order.
fn plain_steps(before: &Tables, after: &Tables) -> Vec<Step> {
    let mut steps = Vec::new();
    for switch in before.topology().switches() {
        let (old, new) = (before.of(switch), after.of(switch));
        let gone = old.entries().iter().filter(|entry| new.entry(entry.block).is_none());
        steps.extend(gone.map(|entry| Step { switch, edit: Edit::Delete(entry.block) }));
        for entry in new.entries() {
            match old.entry(entry.block) {
                None => steps.push(Step { switch, edit: Edit::Add(*entry) }),
                Some(output) if output != entry.output => {
                    steps.push(Step { switch, edit: Edit::Modify(*entry) })
                }
                Some(_) => {}
            }
        }
    }
    steps
}

/// A few servers swap eighths of the ring, in a tree with one switch at each node: the smallest changes in
/// which entries can interlock.
#[test]
fn guards_are_needed_only_where_no_order_of_the_steps_alone_is_safe() {
    let mut draws = (1u64..)
        .map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .map(|n| (n ^ n >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32);
    let mut draw = |below: u64| draws.next().expect("endless") % below;
    let mut guarded = 0;
    for _ in 0..5000 {
        let topology = Shared::new(Shape::three_tiers(2, 2, 2).unwrap().switch_tree().unwrap());
        let hosts = Hosts::in_order(&topology, &servers(8)).unwrap();
        let mut tables = || {
            let few: Vec<_> = (0..2 + draw(3)).map(|_| ServerId(draw(8) as u32 + 1)).collect();
            let arcs = (0..8).map(|eighth| (Position(eighth << 61), few[draw(few.len() as u64) as usize]));
            let arcs = Arcs::new(arcs.collect::<Vec<_>>()).unwrap();
            Tables::new(&topology, &hosts, &arcs, Form::Compressed, Budget::PUBLISHED).unwrap()
        };
        let (before, after) = (tables(), tables());
        let change = change(&before, &after).unwrap();
        if change.guards > 0 && change.steps.len() - change.guards <= 31 {
            guarded += 1;
            let steps = plain_steps(&before, &after);
            assert!(!can_be_ordered(&before, &after, &steps), "{} guards for {steps:?}", change.guards);
        }
    }
    assert!(guarded >= 10, "only {guarded} draws interlocked");
}
