//! From one set of tables to another, an entry at a time, so that between any two steps every packet reaches
//! its old or its new owner.
//!
//! **Within a switch** entries are added and modified longest prefix first, then deleted shortest prefix
//! first. When a block is added, all longer new entries are there, so what changes goes where the new table
//! sends it; when one is deleted, all new entries are there and no shorter old one is, so what it uncovers is
//! a new entry. Hence each position is forwarded as before or as after, never by a third way, and no entry is
//! touched that is the same in both.
//!
//! **Between switches** the way from the old owner of a position to the new one is a line of nodes: up from
//! the old edge, over the lowest node above both, down to the new edge. A node on it points to the old owner
//! or to the new one; nodes beside it do not change. A packet loops exactly if a node points to the new owner
//! while the next one on that side still points back. So a node may *turn* for a position only after the next
//! one towards the new owner has: first the nodes at which positions arrive (up becomes down), edge switches
//! first, then the root, then those which positions leave, edge switches last. All switches of a node turn
//! before the next node does.
//!
//! The steps are taken as they become possible, from the edges to the root and back, until all are done.
//! Rarely entries *interlock*: one position leaves an edge switch by a step that must come before the one by
//! which another arrives there, and at the other's edge it is the other way round. Then no order of these
//! steps alone is safe. A guard, a longer prefix for the one that waits, cuts the knot, and is taken away
//! when it is no longer needed; [`Change::guards`] counts the steps that this costs. A change with one old
//! and one new owner (a split, a failure) needs none.

mod turning;

use crate::table::{FlowEntry, TableError, Tables};
use bearing_routing::{SwitchId, SwitchTree, TreeNode};
use bearing_types::Block;
use std::sync::Arc as Shared;
use turning::{Turning, TurningNode};

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
    /// To be carried out in this order. One switch's steps may be sent together as long as they keep their
    /// order; a step at another switch waits until those before it are in force (in OpenFlow: a barrier).
    pub steps: Vec<Step>,
    /// How many of the steps are there only because entries interlock.
    pub guards: usize,
}

/// The steps from the tables of all switches before a change to those after it. Both are of one topology.
/// Refused if a switch could not hold what it needs in between: the old entries, the new ones and guards, at
/// most. The budget is that of the tables after the change.
///
/// # Panics
/// If the topologies differ, which is a bug of the caller.
pub fn change(before: &Tables, after: &Tables) -> Result<Change, TableError> {
    let topology = before.topology();
    assert!(Shared::ptr_eq(topology, after.topology()) || topology == after.topology(), "one topology");
    let differing = topology.nodes().filter(|node| !Shared::ptr_eq(before.node(*node), after.node(*node)));
    let nodes = differing.map(|node| TurningNode::new(node, before.node(node), after.node(node)));
    let mut turning = Turning::new(topology, nodes);
    let least = turning.waiting_steps();
    let mut steps = Vec::new();
    while let Some((node, edits)) = turning.next() {
        steps.extend(steps_at(topology, node, &edits));
    }
    assert_eq!(turning.waiting_steps(), 0, "a node can always turn, by a guard at worst");
    for node in turning.nodes() {
        after.affordable(node.node, node.most_entries)?;
    }
    Ok(Change { guards: steps.len() - least, steps })
}

fn steps_at<'a>(
    topology: &SwitchTree,
    node: TreeNode,
    edits: &'a [Edit],
) -> impl Iterator<Item = Step> + use<'a> {
    let switches = topology.switches_of(node).map(SwitchId);
    switches.flat_map(move |switch| edits.iter().map(move |edit| Step { switch, edit: *edit }))
}

#[cfg(test)]
mod tests;
