//! From one set of tables to another, an entry at a time, so that between any two steps every packet reaches its old or its new owner.
//!
//! **Within a switch** entries are added and modified longest prefix first, then deleted shortest prefix first. When a block is added, all longer new entries
//! are there, so what changes goes where the new table sends it; when one is deleted, all new entries are there and no shorter old one is, so what it uncovers
//! is a new entry. Hence each position is forwarded as before or as after, never by a third way, and no entry is touched that is the same in both.
//!
//! **Between switches** the way from the old owner of a position to the new one is a line of nodes: up from the old edge, over the lowest node above both,
//! down to the new edge. A node on it points to the old owner or to the new one; nodes beside it do not change. A packet loops exactly if a node points to
//! the new owner while the next one on that side still points back. So nodes turn from the new owner's end to the old one's: first those at which positions
//! *arrive* (up becomes down), edge switches first, then aggregation; then the root; then those which positions *leave* (down becomes up), aggregation first,
//! then edge. All switches of a node turn before any of the next.
//!
//! A node at which some positions arrive while others leave is changed in two goes. Usually its steps part cleanly. Where entries interlock (a position can
//! only arrive by a step that also makes another leave) guard entries are added in the first go, one for each block that must arrive, and taken away in the
//! second; [`Change::guards`] counts the steps that this costs. A change with one old and one new owner never needs any: splits, failures and departures.

use crate::table::{FlowEntry, FlowTable, NodeTable, Output, TableError, Tables};
use bearing_placement::{SwitchId, Topology, TreeNode};
use bearing_types::{Block, Position};
use std::collections::BTreeMap;
use std::sync::Arc as Shared;

/// What is done to one entry of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// A block that has no entry gets one.
    Add(FlowEntry),
    /// The entry of this block gets another output.
    Modify(FlowEntry),
    /// The entry of this block goes.
    Delete(Block),
}

/// An edit at a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Where.
    pub switch: SwitchId,
    /// What.
    pub edit: Edit,
}

/// A safe order of steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// To be carried out in this order. One switch's steps may be sent together as long as they keep their order; a step at another switch waits until those
    /// before it are in force (in OpenFlow: a barrier).
    pub steps: Vec<Step>,
    /// How many of the steps are there only because entries interlock.
    pub guards: usize,
}

/// The steps from the tables of all switches before a change to those after it. Both are of one topology. Refused if a switch could not hold what it needs
/// in between: the old entries and the new ones, at most.
///
/// # Panics
/// If the topologies differ, which is a bug of the caller.
pub fn change(before: &Tables, after: &Tables) -> Result<Change, TableError> {
    let topology = before.topology();
    assert!(Shared::ptr_eq(topology, after.topology()) || topology == after.topology(), "one topology");
    let (mut arrivals, mut departures) = (Vec::new(), Vec::new());
    let mut guards = 0;
    for node in topology.nodes() {
        let (old, new) = (before.node(node), after.node(node));
        if Shared::ptr_eq(old, new) || old.table == new.table {
            continue;
        }
        let goes = two_goes(old, new);
        let edits = || goes.arrive.iter().chain(&goes.leave);
        after.affordable(node, most_entries(old.table.entries().len(), edits()))?;
        guards += goes.guards * topology.switches_of(node).len();
        arrivals.push((node, goes.arrive));
        departures.push((node, goes.leave));
    }
    // The root has no depth, so it is the last at which positions arrive and the first which they leave.
    arrivals.sort_by_key(|(node, _)| std::cmp::Reverse(topology.depth(*node)));
    departures.sort_by_key(|(node, _)| topology.depth(*node));
    let in_order = arrivals.iter().chain(&departures);
    let steps = in_order.flat_map(|(node, edits)| steps_at(topology, *node, edits)).collect();
    Ok(Change { steps, guards })
}

fn steps_at<'a>(
    topology: &Topology,
    node: TreeNode,
    edits: &'a [Edit],
) -> impl Iterator<Item = Step> + use<'a> {
    let switches = topology.switches_of(node).map(SwitchId);
    switches.flat_map(move |switch| edits.iter().map(move |edit| Step { switch, edit: *edit }))
}

/// The most entries that a table has while edits are carried out.
fn most_entries<'a>(before: usize, edits: impl Iterator<Item = &'a Edit>) -> usize {
    let (mut entries, mut most) = (before, before);
    for edit in edits {
        match edit {
            Edit::Add(_) => entries += 1,
            Edit::Modify(_) => {}
            Edit::Delete(_) => entries -= 1,
        }
        most = most.max(entries);
    }
    most
}

/// A node's edits: those by which positions arrive, then those by which they leave. What turns from one child to another may be in either.
struct Goes {
    arrive: Vec<Edit>,
    leave: Vec<Edit>,
    guards: usize,
}

fn two_goes(old: &NodeTable, new: &NodeTable) -> Goes {
    let edits = edits_between(old.table.entries(), &new.table);
    let arrives = |old: Output, new: Output| old == Output::Up && new != Output::Up;
    let is_any = |holds: &dyn Fn(Output, Output) -> bool| {
        old.pieces.beside(&new.pieces).any(|(_, _, old, new)| holds(old, new))
    };
    if !is_any(&|old, new| arrives(new, old)) {
        return Goes { arrive: edits, leave: Vec::new(), guards: 0 };
    }
    if !is_any(&arrives) {
        return Goes { arrive: Vec::new(), leave: edits, guards: 0 };
    }
    let least = edits.len();
    let mut halfway =
        Halfway { old, new, now: old.table.entries().iter().map(|e| (e.block, e.output)).collect() };
    let mut arrive = halfway.arrivals(edits);
    arrive.extend(halfway.guards());
    let between: Vec<FlowEntry> =
        halfway.now.iter().map(|(block, output)| FlowEntry { block: *block, output: *output }).collect();
    let leave = edits_between(&between, &new.table);
    let guards = arrive.len() + leave.len() - least;
    Goes { arrive, leave, guards }
}

/// The fewest edits from one table to another, in the order that is safe within a switch.
fn edits_between(old: &[FlowEntry], new: &FlowTable) -> Vec<Edit> {
    let old_outputs: BTreeMap<Block, Output> = old.iter().map(|entry| (entry.block, entry.output)).collect();
    let mut edits: Vec<Edit> = Vec::new();
    for entry in new.entries() {
        match old_outputs.get(&entry.block) {
            None => edits.push(Edit::Add(*entry)),
            Some(output) if *output != entry.output => edits.push(Edit::Modify(*entry)),
            Some(_) => {}
        }
    }
    let gone = old.iter().filter(|entry| new.entry(entry.block).is_none());
    edits.extend(gone.map(|entry| Edit::Delete(entry.block)));
    edits.sort_by_key(|edit| match edit {
        Edit::Add(entry) | Edit::Modify(entry) => (0, 64 - entry.block.prefix_bits()),
        Edit::Delete(block) => (1, block.prefix_bits()),
    });
    edits
}

/// A table between the two goes: nothing has left yet.
struct Halfway<'a> {
    old: &'a NodeTable,
    new: &'a NodeTable,
    now: BTreeMap<Block, Output>,
}

impl Halfway<'_> {
    /// Carries out those edits by which nothing leaves, as often as others become possible by them.
    fn arrivals(&mut self, mut edits: Vec<Edit>) -> Vec<Edit> {
        let mut done = Vec::new();
        loop {
            let before = done.len();
            edits.retain(|edit| {
                let possible = self.is_possible(*edit);
                if possible {
                    self.carry_out(*edit);
                    done.push(*edit);
                }
                !possible
            });
            if done.len() == before {
                return done;
            }
        }
    }

    fn carry_out(&mut self, edit: Edit) {
        match edit {
            Edit::Add(entry) | Edit::Modify(entry) => self.now.insert(entry.block, entry.output),
            Edit::Delete(block) => self.now.remove(&block),
        };
    }

    /// Whether all that an edit changes goes from its old to its new output, and not up.
    fn is_possible(&self, edit: Edit) -> bool {
        let (block, output) = match edit {
            Edit::Add(entry) | Edit::Modify(entry) => (entry.block, Some(entry.output)),
            Edit::Delete(block) => (block, None),
        };
        let covering = self.covering(block);
        let before = self.now.get(&block).copied().or(covering);
        let after = output.or(covering);
        before == after
            || self.exposed(block).into_iter().all(|(first, last)| {
                self.ranges(first, last)
                    .into_iter()
                    .all(|(_, _, old, new)| Some(old) == before && Some(new) == after && new != Output::Up)
            })
    }

    /// The output of the next shorter entry around a block.
    fn covering(&self, block: Block) -> Option<Output> {
        let shorter = (0..block.prefix_bits()).rev().map(|bits| Block::around(block.start(), bits));
        shorter.into_iter().find_map(|around| self.now.get(&around)).copied()
    }

    /// The entries strictly inside a block, in order.
    fn inside(&self, block: Block) -> impl Iterator<Item = Block> + '_ {
        let end = Block::around(block.last(), 64);
        let from = (std::ops::Bound::Excluded(block), std::ops::Bound::Included(end));
        let entries = if block.prefix_bits() == 64 { None } else { Some(self.now.range(from)) };
        entries.into_iter().flatten().map(|(inside, _)| *inside)
    }

    /// The ranges of a block that no longer entry matches.
    fn exposed(&self, block: Block) -> Vec<(Position, Position)> {
        let mut ranges = Vec::new();
        let mut next = Some(block.start());
        for inside in self.inside(block) {
            let Some(first) = next else { break };
            if inside.start() > first {
                ranges.push((first, Position(inside.start().0 - 1)));
            }
            if inside.last() >= first {
                next = inside.last().0.checked_add(1).map(Position);
            }
        }
        ranges.extend(next.filter(|first| *first <= block.last()).map(|first| (first, block.last())));
        ranges
    }

    /// What the old and the new table do between two positions, both included.
    fn ranges(&self, first: Position, last: Position) -> Vec<(Position, Position, Output, Output)> {
        let (old, new) = (&self.old.pieces, &self.new.pieces);
        let (mut here, mut there) = (old.number(first), new.number(first));
        let mut ranges = Vec::new();
        let mut first = first;
        loop {
            let until = old.last_of(here).min(new.last_of(there)).min(last);
            ranges.push((first, until, old.output(here), new.output(there)));
            if until == last {
                return ranges;
            }
            here += usize::from(until == old.last_of(here));
            there += usize::from(until == new.last_of(there));
            first = Position(until.0 + 1);
        }
    }

    /// Entries for all that has not arrived though it should, and for nothing else.
    fn guards(&mut self) -> Vec<Edit> {
        let now = FlowTable::new(
            self.now.iter().map(|(block, output)| FlowEntry { block: *block, output: *output }),
        );
        let mut edits = Vec::new();
        let mut ahead = vec![Block::RING];
        while let Some(block) = ahead.pop() {
            let waits = |(_, _, old, new): &(Position, Position, Output, Output)| {
                *old == Output::Up && *new != Output::Up
            };
            let ranges = self.ranges(block.start(), block.last());
            if !ranges.iter().any(waits) {
                continue;
            }
            let is_one = ranges.len() == 1 && self.inside(block).next().is_none();
            match block.halves().filter(|_| !is_one) {
                Some((lower, upper)) => ahead.extend([upper, lower]),
                None if now.output(block.start()) == Some(ranges[0].3) => {}
                None => {
                    let entry = FlowEntry { block, output: ranges[0].3 };
                    let is_there = self.now.contains_key(&block);
                    edits.push(if is_there { Edit::Modify(entry) } else { Edit::Add(entry) });
                }
            }
        }
        // Each guard lies in what no longer entry matches, so their order does not matter.
        edits.iter().for_each(|edit| self.carry_out(*edit));
        edits
    }
}

#[cfg(test)]
mod tests;
