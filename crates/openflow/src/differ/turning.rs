//! The state of a change that is under way, node by node: which steps are possible now.

use super::Edit;
use crate::ranges::Ranges;
use crate::table::{FlowEntry, FlowTable, NodeTable, Output};
use bearing_routing::{Peer, SwitchId, SwitchTree, TreeNode};
use bearing_types::{Block, Position};
use std::collections::BTreeMap;
use std::ops::Bound;

/// One node on its way from its old table to its new one.
pub(super) struct TurningNode<'a> {
    pub(super) node: TreeNode,
    new: &'a NodeTable,
    now: BTreeMap<Block, Output>,
    /// The positions that are not forwarded as the new table says yet. All others are.
    waiting: Ranges,
    /// What is left to do, in the order that is safe within the node.
    edits: Vec<Edit>,
    /// The most entries that the table has had.
    pub(super) most_entries: usize,
}

impl<'a> TurningNode<'a> {
    pub(super) fn new(node: TreeNode, old: &NodeTable, new: &'a NodeTable) -> TurningNode<'a> {
        let differing = old.pieces.beside(&new.pieces).filter(|(_, _, old, new)| old != new);
        let now: BTreeMap<Block, Output> = old.table.entries().iter().map(|e| (e.block, e.output)).collect();
        TurningNode {
            node,
            waiting: differing.map(|(first, last, _, _)| (first, last)).collect(),
            edits: edits_between(old.table.entries().iter().copied(), &new.table),
            most_entries: now.len(),
            now,
            new,
        }
    }

    fn carry_out(&mut self, edit: Edit) {
        match edit {
            Edit::Add(entry) | Edit::Modify(entry) => self.now.insert(entry.block, entry.output),
            Edit::Delete(block) => self.now.remove(&block),
        };
        self.most_entries = self.most_entries.max(self.now.len());
    }

    /// The output of the next shorter entry around a block.
    fn covering(&self, block: Block) -> Option<Output> {
        let shorter = (0..block.prefix_bits()).rev().map(|bits| Block::around(block.start(), bits));
        shorter.into_iter().find_map(|around| self.now.get(&around)).copied()
    }

    /// The entries strictly inside a block, in order.
    fn inside(&self, block: Block) -> impl Iterator<Item = Block> + '_ {
        let last = Block::around(block.last(), 64);
        // A single position has nothing inside, and the two bounds would be the same.
        let range = (last != block).then(|| self.now.range((Bound::Excluded(block), Bound::Included(last))));
        range.into_iter().flatten().map(|(inside, _)| *inside)
    }

    /// The ranges of a block that no longer entry matches.
    fn exposed(&self, block: Block) -> Vec<(Position, Position)> {
        let (mut ranges, mut next) = (Vec::new(), Some(block.start()));
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

    /// The ranges that an edit would turn and where to, or `None` if it would send any position where the new
    /// table does not.
    fn turned_by(&self, edit: Edit) -> Option<(Vec<(Position, Position)>, Output)> {
        let (block, output) = match edit {
            Edit::Add(entry) | Edit::Modify(entry) => (entry.block, Some(entry.output)),
            Edit::Delete(block) => (block, None),
        };
        let covering = self.covering(block);
        let before = self.now.get(&block).copied().or(covering);
        let exposed = self.exposed(block);
        match output.or(covering) {
            after if after == before || exposed.is_empty() => Some((Vec::new(), Output::Up)),
            Some(after) => {
                let meant = |(first, last): &(Position, Position)| {
                    let number = self.new.pieces.number(*first);
                    self.new.pieces.output(number) == after && self.new.pieces.last_of(number) >= *last
                };
                exposed.iter().all(meant).then_some((exposed, after))
            }
            None => None,
        }
    }

    /// Entries for all of a range, which goes one way in the new table, as long as they must be to count.
    fn guards_for(&self, first: Position, last: Position, output: Output) -> Vec<Edit> {
        let (mut guards, mut ahead) = (Vec::new(), vec![Block::RING]);
        while let Some(block) = ahead.pop() {
            if block.last() < first || block.start() > last {
                continue;
            }
            let whole = first <= block.start() && block.last() <= last && self.inside(block).next().is_none();
            match block.halves().filter(|_| !whole) {
                Some((lower, upper)) => ahead.extend([upper, lower]),
                None => {
                    let entry = FlowEntry { block, output };
                    let is_there = self.now.contains_key(&block);
                    guards.push(if is_there { Edit::Modify(entry) } else { Edit::Add(entry) });
                }
            }
        }
        guards
    }
}

/// The fewest edits from one table's entries, which are in the order of blocks, to another table, in the
/// order that is safe within a switch.
fn edits_between(old: impl Iterator<Item = FlowEntry>, new: &FlowTable) -> Vec<Edit> {
    let (mut edits, mut old) = (Vec::new(), old.peekable());
    for entry in new.entries() {
        while let Some(gone) = old.next_if(|old| old.block < entry.block) {
            edits.push(Edit::Delete(gone.block));
        }
        match old.next_if(|old| old.block == entry.block) {
            None => edits.push(Edit::Add(*entry)),
            Some(same) if same.output != entry.output => edits.push(Edit::Modify(*entry)),
            Some(_) => {}
        }
    }
    edits.extend(old.map(|gone| Edit::Delete(gone.block)));
    edits.sort_by_key(|edit| match edit {
        Edit::Add(entry) | Edit::Modify(entry) => (0, 64 - entry.block.prefix_bits()),
        Edit::Delete(block) => (1, block.prefix_bits()),
    });
    edits
}

/// All nodes that change.
pub(super) struct Turning<'a> {
    topology: &'a SwitchTree,
    nodes: BTreeMap<TreeNode, TurningNode<'a>>,
    /// The nodes from the edges to the root and back.
    round: Vec<TreeNode>,
    /// The number within the round of the one to look at next.
    at: usize,
}

impl<'a> Turning<'a> {
    pub(super) fn new(topology: &'a SwitchTree, nodes: impl Iterator<Item = TurningNode<'a>>) -> Turning<'a> {
        let nodes: BTreeMap<TreeNode, TurningNode> = nodes.map(|node| (node.node, node)).collect();
        let downwards = nodes.keys().copied();
        let round: Vec<TreeNode> = downwards.clone().rev().chain(downwards).collect();
        Turning { topology, nodes, round, at: 0 }
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &TurningNode<'a>> {
        self.nodes.values()
    }

    /// How many steps at switches are left.
    pub(super) fn waiting_steps(&self) -> usize {
        self.nodes().map(|node| node.edits.len() * self.topology.switches_of(node.node).len()).sum()
    }

    /// The next edits of one node, or `None` if all are done. They have been carried out here.
    pub(super) fn next(&mut self) -> Option<(TreeNode, Vec<Edit>)> {
        for _ in 0..self.round.len() {
            let node = self.round[self.at];
            self.at = (self.at + 1) % self.round.len();
            let edits = self.possible_edits(node);
            if !edits.is_empty() {
                return Some((node, edits));
            }
        }
        // Nothing is possible any more: all is done, or entries interlock.
        self.guard()
    }

    /// Carries out all edits of a node that are possible now, also those that others make possible.
    fn possible_edits(&mut self, number: TreeNode) -> Vec<Edit> {
        let mut done = Vec::new();
        let mut left = std::mem::take(&mut self.nodes.get_mut(&number).expect("a node that changes").edits);
        loop {
            let before = done.len();
            left.retain(|edit| {
                let node = &self.nodes[&number];
                let turned = node.turned_by(*edit).filter(|(ranges, to)| self.may_turn(number, ranges, *to));
                let Some((ranges, _)) = turned else { return true };
                let node = self.nodes.get_mut(&number).expect("a node that changes");
                node.carry_out(*edit);
                ranges.iter().for_each(|(first, last)| node.waiting.remove(*first, *last));
                done.push(*edit);
                false
            });
            if done.len() == before {
                self.nodes.get_mut(&number).expect("a node that changes").edits = left;
                return done;
            }
        }
    }

    /// Whether the next node that way has turned for all of these ranges.
    fn may_turn(&self, node: TreeNode, ranges: &[(Position, Position)], to: Output) -> bool {
        match self.neighbour(node, to) {
            Some(next) => ranges.iter().all(|(first, last)| !next.waiting.overlaps(*first, *last)),
            None => true,
        }
    }

    /// The node that an output leads to, if it changes.
    fn neighbour(&self, node: TreeNode, to: Output) -> Option<&TurningNode<'a>> {
        let next = match to {
            Output::Up => self.topology.parent(node)?,
            Output::Port(port) => {
                let any = SwitchId(self.topology.switches_of(node).start);
                match self.topology.peer(any, port)? {
                    Peer::Host(_) => return None,
                    Peer::Switch(switch, _) => self.topology.node_of(switch),
                }
            }
        };
        self.nodes.get(&next)
    }

    /// Guards for a range that waits at a node only because of the node's own entries: the cheapest such
    /// range of the first such node.
    fn guard(&mut self) -> Option<(TreeNode, Vec<Edit>)> {
        let stuck = self.round.iter().find_map(|number| {
            let node = &self.nodes[number];
            let choices = self
                .free_ranges(node)
                .into_iter()
                .map(|(first, last, output)| (node.guards_for(first, last, output), (first, last)));
            choices.min_by_key(|(guards, _)| guards.len()).map(|choice| (*number, choice))
        });
        let (number, (guards, (first, last))) = stuck?;
        let node = self.nodes.get_mut(&number)?;
        guards.iter().for_each(|guard| node.carry_out(*guard));
        node.waiting.remove(first, last);
        let now = node.now.iter().map(|(block, output)| FlowEntry { block: *block, output: *output });
        node.edits = edits_between(now, &node.new.table);
        Some((number, guards))
    }

    /// The ranges that wait at a node though the next node has turned.
    fn free_ranges(&self, node: &TurningNode<'a>) -> Vec<(Position, Position, Output)> {
        let mut free = Vec::new();
        // Mostly nothing waits any more, and tables are large.
        if node.waiting.is_empty() {
            return free;
        }
        for (first, last, output) in node.new.pieces.iter() {
            let mut ranges = node.waiting.within(first, last);
            if let Some(next) = self.neighbour(node.node, output) {
                next.waiting.within(first, last).iter().for_each(|(first, last)| ranges.remove(first, last));
            }
            free.extend(ranges.iter().map(|(first, last)| (first, last, output)));
        }
        free
    }
}
