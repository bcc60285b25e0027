//! Flow tables as values: which prefix goes out where, for every switch of a topology.
//!
//! MetaFlow section 5.D: a node of the tree forwards a position to the child that its owner is under; ours
//! forwards all others upwards, so that a client may sit under any switch. All switches of one node hold the
//! same table, because their ports are numbered alike. Invariants: a table never changes; each position
//! matches, and the longest prefix counts. What a change of owners does not concern is shared between the
//! tables before and after it.

use crate::compress::compressed;
use crate::ranges::Ranges;
use bearing_placement::{Arcs, Handover, Hosts};
use bearing_routing::{Peer, Place, Port, SwitchId, SwitchTree, TreeNode};
use bearing_types::{Block, Position, ServerId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc as Shared;

/// Where a packet leaves a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Output {
    /// By this port, to a child or a host.
    Port(Port),
    /// By any of the ports to the parent's switches (in OpenFlow a group of type "select", or the port itself
    /// if there is one only).
    Up,
}

/// One entry. Its priority is the number of its prefix bits: the longest prefix that matches counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowEntry {
    /// The positions that match.
    pub block: Block,
    /// Where they go.
    pub output: Output,
}

/// The entries of one switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowTable {
    /// By block: a block comes after those that cover it.
    entries: Vec<FlowEntry>,
    /// For each entry the number of the next shorter one that covers it.
    covers: Vec<Option<u32>>,
}

impl FlowTable {
    /// A table of these entries, of each block the last one given.
    pub fn new(entries: impl IntoIterator<Item = FlowEntry>) -> FlowTable {
        let mut entries: Vec<FlowEntry> = entries.into_iter().collect();
        // The last one given first, so that it is the one that stays.
        entries.reverse();
        entries.sort_by_key(|entry| entry.block);
        entries.dedup_by_key(|entry| entry.block);
        let (mut covers, mut open) = (Vec::with_capacity(entries.len()), Vec::<u32>::new());
        for (number, entry) in (0..).zip(&entries) {
            while open.last().is_some_and(|last| !entries[*last as usize].block.covers(entry.block)) {
                open.pop();
            }
            covers.push(open.last().copied());
            open.push(number);
        }
        FlowTable { entries, covers }
    }

    /// Where a position goes, or `None` if no entry matches.
    pub fn output(&self, position: Position) -> Option<Output> {
        let after = self.entries.partition_point(|entry| entry.block.start() <= position);
        let mut number = after.checked_sub(1)?;
        while !self.entries[number].block.contains(position) {
            number = self.covers[number]? as usize;
        }
        Some(self.entries[number].output)
    }

    /// All entries, in the order of blocks.
    pub fn entries(&self) -> &[FlowEntry] {
        &self.entries
    }

    /// The output of the entry with exactly this block.
    pub fn entry(&self, block: Block) -> Option<Output> {
        let found = self.entries.binary_search_by_key(&block, |entry| entry.block).ok()?;
        Some(self.entries[found].output)
    }
}

/// What a node does with every position: where runs of one output begin. Neighbours differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    starts: Vec<Position>,
    outputs: Vec<Output>,
}

impl Pieces {
    /// Runs that begin at these positions. `None` if the first is not 0 or one lies before the one given
    /// before it. Of several that begin together the last counts.
    pub fn new(starts: impl IntoIterator<Item = (Position, Output)>) -> Option<Pieces> {
        let mut pieces = Pieces { starts: Vec::new(), outputs: Vec::new() };
        let mut before = Position(0);
        for (start, output) in starts {
            if start < before {
                return None;
            }
            pieces.push(start, output);
            before = start;
        }
        (pieces.starts.first() == Some(&Position(0))).then_some(pieces)
    }

    fn push(&mut self, start: Position, output: Output) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.outputs.pop();
        }
        if self.outputs.last() != Some(&output) {
            self.starts.push(start);
            self.outputs.push(output);
        }
    }

    /// The number of the run that holds a position.
    pub(crate) fn number(&self, position: Position) -> usize {
        self.number_from(0, position)
    }

    /// The same, if it is known not to lie before the run with this number.
    pub(crate) fn number_from(&self, number: usize, position: Position) -> usize {
        number + self.starts[number..].partition_point(|start| *start <= position) - 1
    }

    pub(crate) fn last_of(&self, number: usize) -> Position {
        self.starts.get(number + 1).map_or(Position(u64::MAX), |next| Position(next.0 - 1))
    }

    pub(crate) fn output(&self, number: usize) -> Output {
        self.outputs[number]
    }

    /// All runs: first and last position, output.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Position, Position, Output)> + '_ {
        (0..self.starts.len()).map(|number| (self.starts[number], self.last_of(number), self.outputs[number]))
    }

    /// The runs of two side by side: first and last position of each range in which neither changes, and both
    /// outputs.
    pub(crate) fn beside<'a>(
        &'a self,
        other: &'a Pieces,
    ) -> impl Iterator<Item = (Position, Position, Output, Output)> + 'a {
        let (mut here, mut there, mut next) = (0, 0, Some(Position(0)));
        std::iter::from_fn(move || {
            let first = next?;
            let last = self.last_of(here).min(other.last_of(there));
            let range = (first, last, self.output(here), other.output(there));
            here += usize::from(last == self.last_of(here));
            there += usize::from(last == other.last_of(there));
            next = last.0.checked_add(1).map(Position);
            Some(range)
        })
    }

    /// With other outputs in some ranges, which are disjoint and in order.
    fn patched(&self, patches: &[(Position, Position, Output)]) -> Pieces {
        let mut pieces = Pieces { starts: Vec::with_capacity(self.starts.len() + 2), outputs: Vec::new() };
        let mut number = 0;
        for (first, last, output) in patches {
            while number < self.starts.len() && self.starts[number] < *first {
                pieces.push(self.starts[number], self.outputs[number]);
                number += 1;
            }
            pieces.push(*first, *output);
            let Some(after) = last.0.checked_add(1).map(Position) else { return pieces };
            number = self.number_from(number.saturating_sub(1), after);
            pieces.push(after, self.outputs[number]);
            number += 1;
        }
        for number in number..self.starts.len() {
            pieces.push(self.starts[number], self.outputs[number]);
        }
        pieces
    }
}

/// As published: for every child the fewest disjoint blocks of what is under it; and one entry for all that
/// goes up.
pub fn disjoint(pieces: &Pieces) -> Vec<FlowEntry> {
    let mut entries = Vec::new();
    if pieces.outputs.contains(&Output::Up) {
        entries.push(FlowEntry { block: Block::RING, output: Output::Up });
    }
    let mut ahead = vec![(Block::RING, 0)];
    while let Some((block, number)) = ahead.pop() {
        match block.halves() {
            Some((lower, upper)) if pieces.last_of(number) < block.last() => {
                ahead.push((upper, pieces.number_from(number, upper.start())));
                ahead.push((lower, number));
            }
            _ if pieces.output(number) == Output::Up => {}
            _ => entries.push(FlowEntry { block, output: pieces.output(number) }),
        }
    }
    entries
}

/// How tables are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Disjoint blocks for each child, as in MetaFlow section 5.D.
    Published,
    /// Beyond the paper: the fewest entries that forward alike.
    Compressed,
}

/// How many entries a switch can hold for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Budget(pub usize);

impl Budget {
    /// What the switches of MetaFlow's evaluation hold (section 7.D).
    pub const PUBLISHED: Budget = Budget(2048);
}

/// Why there are no tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableError {
    /// An owner is plugged in nowhere, or at a place that the topology does not have.
    NoHost(ServerId),
    /// A switch would need more entries at one time than it can hold.
    OverBudget {
        /// The name of the switch.
        switch: String,
        /// What it would need.
        entries: usize,
        /// What it can hold.
        budget: Budget,
    },
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TableError::NoHost(server) => {
                write!(f, "server {server} owns positions but has no place in the topology; plug it in")
            }
            TableError::OverBudget { switch, entries, budget } => write!(
                f,
                "switch {switch} would need {entries} flow entries and holds {}; nothing was installed; \
                 allow a wider tolerance for boundaries, or raise the budget if the switch holds more",
                budget.0
            ),
        }
    }
}

impl std::error::Error for TableError {}

/// One node's table and what it means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NodeTable {
    pub(crate) pieces: Pieces,
    pub(crate) table: FlowTable,
}

/// The tables of all switches of a topology.
#[derive(Clone, Debug)]
pub struct Tables {
    topology: Shared<SwitchTree>,
    form: Form,
    budget: Budget,
    nodes: Vec<Shared<NodeTable>>,
}

/// The tables of all switches: [`Tables::new`] with the published budget and the fewest entries.
pub fn tables(topology: &Shared<SwitchTree>, hosts: &Hosts, arcs: &Arcs) -> Result<Tables, TableError> {
    Tables::new(topology, hosts, arcs, Form::Compressed, Budget::PUBLISHED)
}

impl Tables {
    /// Tables that carry every position to its owner. The cost grows with the number of arcs, times the depth
    /// of the tree, times the prefix bits of the boundaries between arcs (64 at most).
    pub fn new(
        topology: &Shared<SwitchTree>,
        hosts: &Hosts,
        arcs: &Arcs,
        form: Form,
        budget: Budget,
    ) -> Result<Tables, TableError> {
        let mut growing: Vec<Growing> = topology.nodes().map(|_| Growing::default()).collect();
        for (first, last, owner) in arcs.iter() {
            let place = place_of(topology, hosts, owner)?;
            for node in topology.above(place) {
                growing[node.0 as usize].add(first, last, output_to(topology, node, place));
            }
        }
        let mut tables = Tables { topology: topology.clone(), form, budget, nodes: Vec::new() };
        for (node, growing) in topology.nodes().zip(growing) {
            let table = tables.written(node, growing.finished())?;
            tables.nodes.push(table);
        }
        Ok(tables)
    }

    /// The tables after these parts of the ring have changed hands, one after the other: where several
    /// concern a position, the last one counts. Only nodes above an old or a new owner are written anew, and
    /// only if what they do changes; all others are shared. Old owners are those of these tables, whatever
    /// the handovers say. A server may not have moved to another place while it owned anything.
    pub fn after(&self, hosts: &Hosts, handovers: &[Handover]) -> Result<Tables, TableError> {
        let mut patches: BTreeMap<TreeNode, Vec<(Position, Position, Output)>> = BTreeMap::new();
        for (first, last, to) in last_handovers(handovers) {
            let place = place_of(&self.topology, hosts, to)?;
            for (first, last, old) in self.destinations(first, last) {
                let nodes: BTreeSet<TreeNode> = self
                    .topology
                    .above(place)
                    .chain(old.into_iter().flat_map(|old| self.topology.above(old)))
                    .collect();
                for node in nodes {
                    let output = output_to(&self.topology, node, place);
                    patches.entry(node).or_default().push((first, last, output));
                }
            }
        }
        let mut tables = self.clone();
        for (node, patches) in patches {
            let before = &self.nodes[node.0 as usize];
            let pieces = before.pieces.patched(&patches);
            if pieces != before.pieces {
                tables.nodes[node.0 as usize] = self.written(node, pieces)?;
            }
        }
        Ok(tables)
    }

    /// The place that a position is carried to.
    pub fn destination(&self, position: Position) -> Option<Place> {
        self.carried(position).0
    }

    /// The place that a position is carried to, and the last one from there on that all switches on the way
    /// forward alike.
    fn carried(&self, position: Position) -> (Option<Place>, Position) {
        let (mut node, mut last) = (TreeNode(0), Position(u64::MAX));
        loop {
            let pieces = &self.node(node).pieces;
            let number = pieces.number(position);
            last = last.min(pieces.last_of(number));
            let Output::Port(port) = pieces.output(number) else { return (None, last) };
            match self.topology.peer(SwitchId(self.topology.switches_of(node).start), port) {
                Some(Peer::Switch(switch, _)) => node = self.topology.node_of(switch),
                Some(Peer::Host(place)) => return (Some(place), last),
                None => return (None, last),
            }
        }
    }

    /// The places that the positions between two, both included, are carried to, range by range.
    fn destinations(
        &self,
        first: Position,
        last: Position,
    ) -> impl Iterator<Item = (Position, Position, Option<Place>)> + '_ {
        let mut next = Some(first);
        std::iter::from_fn(move || {
            let first = next?;
            let (place, alike) = self.carried(first);
            let alike = alike.min(last);
            next = alike.0.checked_add(1).map(Position).filter(|after| *after <= last);
            Some((first, alike, place))
        })
    }

    fn written(&self, node: TreeNode, pieces: Pieces) -> Result<Shared<NodeTable>, TableError> {
        let entries = match self.form {
            Form::Published => disjoint(&pieces),
            Form::Compressed => compressed(&pieces),
        };
        self.affordable(node, entries.len())?;
        Ok(Shared::new(NodeTable { pieces, table: FlowTable::new(entries) }))
    }

    /// Refuses more entries than a switch holds.
    pub(crate) fn affordable(&self, node: TreeNode, entries: usize) -> Result<(), TableError> {
        if entries <= self.budget.0 {
            return Ok(());
        }
        let switch = self.topology.name(SwitchId(self.topology.switches_of(node).start)).to_owned();
        Err(TableError::OverBudget { switch, entries, budget: self.budget })
    }

    pub(crate) fn node(&self, node: TreeNode) -> &Shared<NodeTable> {
        &self.nodes[node.0 as usize]
    }

    /// The tree of switches.
    pub fn topology(&self) -> &Shared<SwitchTree> {
        &self.topology
    }

    /// A switch's table.
    ///
    /// # Panics
    /// If the topology has no such switch, which is a bug of the caller.
    pub fn of(&self, switch: SwitchId) -> &FlowTable {
        &self.node(self.topology.node_of(switch)).table
    }
}

/// Where a server is plugged in, as far as this topology has such a place.
fn place_of(topology: &SwitchTree, hosts: &Hosts, server: ServerId) -> Result<Place, TableError> {
    let place = hosts.place(server).filter(|place| place.0 < topology.places());
    place.ok_or(TableError::NoHost(server))
}

/// What handovers leave behind in the end, in ring order: disjoint ranges, each with the server that has it
/// last.
fn last_handovers(handovers: &[Handover]) -> Vec<(Position, Position, ServerId)> {
    let mut open = Ranges::from_iter([(Position(0), Position(u64::MAX))]);
    let mut last = Vec::with_capacity(handovers.len());
    for handover in handovers.iter().rev() {
        let kept = open.within(handover.first, handover.last);
        last.extend(kept.iter().map(|(first, last)| (first, last, handover.to)));
        open.remove(handover.first, handover.last);
    }
    last.sort();
    last
}

fn output_to(topology: &SwitchTree, node: TreeNode, place: Place) -> Output {
    topology.port_down(node, place).map_or(Output::Up, Output::Port)
}

/// A node's runs while arcs are added in ring order. What no arc under the node covers goes up.
#[derive(Default)]
struct Growing {
    starts: Vec<(Position, Output)>,
    /// How many positions are covered.
    covered: u128,
}

impl Growing {
    fn add(&mut self, first: Position, last: Position, output: Output) {
        self.fill(u128::from(first.0));
        self.starts.push((first, output));
        self.covered = u128::from(last.0) + 1;
    }

    fn fill(&mut self, until: u128) {
        if self.covered < until {
            self.starts.push((Position(self.covered as u64), Output::Up));
        }
    }

    fn finished(mut self) -> Pieces {
        self.fill(1 << 64);
        Pieces::new(self.starts).expect("covered from position 0 on")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{arcs, output, pieces, topologies};
    use bearing_placement::{block_of_dotted, dotted};
    use bearing_routing::Shape;
    use proptest::prelude::*;

    fn lines(entries: &[FlowEntry]) -> Vec<(String, Output)> {
        entries.iter().map(|entry| (dotted(entry.block).expect("32 bits"), entry.output)).collect()
    }

    fn at(text: &str) -> Position {
        block_of_dotted(text).expect("a block").start()
    }

    fn port(port: u16) -> Output {
        Output::Port(Port(port))
    }

    /// MetaFlow figures 10 and 11: SwitchC has SwitchA (servers A, B and the idle C) and SwitchB under it.
    /// Beyond the figures' entries each switch sends up what is not below it.
    #[test]
    fn figures_10_and_11_as_flow_tables() {
        let topology = Shared::new(Shape::two_tiers(2, 3).unwrap().switch_tree().unwrap());
        let [a, b, c, d] = [1, 2, 3, 4].map(ServerId);
        let hosts = Hosts::in_order(&topology, &[a, b, c, d]).unwrap();
        let owners = |starts: &[(&str, ServerId)]| {
            Arcs::new(starts.iter().map(|(text, owner)| (at(text), *owner))).unwrap()
        };
        let before = owners(&[("0.0.0.0/1", a), ("96.0.0.0/3", b), ("128.0.0.0/1", d)]);
        let after = owners(&[("0.0.0.0/1", a), ("80.0.0.0/4", c), ("96.0.0.0/3", b), ("128.0.0.0/1", d)]);
        let tables = Tables::new(&topology, &hosts, &before, Form::Published, Budget::PUBLISHED).unwrap();
        let [switch_c, switch_a] = [0, 1].map(SwitchId);
        let root = [("0.0.0.0/1".into(), port(1)), ("128.0.0.0/1".into(), port(2))];
        assert_eq!(lines(tables.of(switch_c).entries()), root);
        let figure_10 = [
            ("0.0.0.0/0".into(), Output::Up),
            ("0.0.0.0/2".into(), port(1)),
            ("64.0.0.0/3".into(), port(1)),
            ("96.0.0.0/3".into(), port(2)),
        ];
        assert_eq!(lines(tables.of(switch_a).entries()), figure_10);
        let split = tables.after(&hosts, &before.handovers(&after)).unwrap();
        let figure_11 = [
            ("0.0.0.0/0".into(), Output::Up),
            ("0.0.0.0/2".into(), port(1)),
            ("64.0.0.0/4".into(), port(1)),
            ("80.0.0.0/4".into(), port(3)),
            ("96.0.0.0/3".into(), port(2)),
        ];
        assert_eq!(lines(split.of(switch_a).entries()), figure_11);
        assert!(Shared::ptr_eq(split.node(TreeNode(0)), tables.node(TreeNode(0))));
        let compressed = self::tables(&topology, &hosts, &after).unwrap();
        assert_eq!(compressed.of(switch_a).entries().len(), 4);
    }

    #[test]
    fn of_each_block_the_entry_given_last_counts() {
        let entry =
            |bits, number| FlowEntry { block: Block::around(Position(0), bits), output: port(number) };
        let given = [entry(3, 1), entry(0, 2), entry(3, 3), entry(1, 4), entry(3, 5), entry(0, 6)];
        assert_eq!(FlowTable::new(given).entries(), [entry(0, 6), entry(1, 4), entry(3, 5)]);
    }

    #[test]
    fn runs_out_of_order_or_without_a_beginning_are_no_pieces() {
        let made = |starts: &[u64]| {
            Pieces::new(starts.iter().zip(1..).map(|(start, number)| (Position(*start), port(number))))
        };
        for wrong in [&[][..], &[1], &[0, 10, 5], &[10, 0], &[0, 10, 0]] {
            assert_eq!(made(wrong), None, "{wrong:?}");
        }
        let several = made(&[0, 0, 7, 7, 7]).expect("in order");
        let runs: Vec<_> = several.iter().collect();
        assert_eq!(runs, [(Position(0), Position(6), port(2)), (Position(7), Position(u64::MAX), port(5))]);
    }

    #[test]
    fn a_table_over_the_budget_is_refused_with_the_switch_the_entries_and_the_budget() {
        let topology = Shared::new(Shape::two_tiers(2, 8).unwrap().switch_tree().unwrap());
        let servers: Vec<_> = (1..=16).map(ServerId).collect();
        let hosts = Hosts::in_order(&topology, &servers).unwrap();
        let arcs = Arcs::even(&servers).unwrap();
        let built = |budget| Tables::new(&topology, &hosts, &arcs, Form::Compressed, Budget(budget));
        assert!(built(9).is_ok());
        let error = built(8).unwrap_err().to_string();
        assert!(error.contains("edge-0") && error.contains("need 9") && error.contains("holds 8"), "{error}");
        let stranger = Arcs::even(&[ServerId(77)]).unwrap();
        let refused = tables(&topology, &hosts, &stranger).unwrap_err();
        assert_eq!(refused, TableError::NoHost(ServerId(77)));
    }

    proptest! {
        /// The slow oracle looks at every entry.
        #[test]
        fn the_longest_prefix_that_matches_counts(entries in proptest::collection::vec((any::<u64>(), 0u8..=64, 0u16..5), 0..40), near in 0usize..40, low: u64, shift in 0u32..=64) {
            let entries: Vec<FlowEntry> = entries.into_iter()
                .map(|(at, bits, out)| FlowEntry { block: Block::around(Position(at & 0xf000_0000_0000_00f0), bits), output: output(out) }).collect();
            let table = FlowTable::new(entries.iter().copied());
            let position = Position(entries.get(near).map_or(low, |entry| entry.block.start().0 | low.checked_shr(shift).unwrap_or(0)));
            let matching = table.entries().iter().filter(|entry| entry.block.contains(position));
            let longest = matching.max_by_key(|entry| entry.block.prefix_bits());
            prop_assert_eq!(table.output(position), longest.map(|entry| entry.output));
        }

        #[test]
        fn disjoint_tables_forward_as_the_pieces_say(pieces in pieces()) {
            let table = FlowTable::new(disjoint(&pieces));
            for (first, last, output) in pieces.iter() {
                prop_assert_eq!(table.output(first), Some(output));
                prop_assert_eq!(table.output(last), Some(output));
            }
        }

        #[test]
        fn tables_after_a_change_are_those_built_anew(which in 0usize..5, before in arcs(8), after in arcs(8), compress: bool) {
            let topology = Shared::new(topologies().swap_remove(which));
            let hosts = Hosts::in_order(&topology, &(1..=8).map(ServerId).collect::<Vec<_>>()).unwrap();
            let form = if compress { Form::Compressed } else { Form::Published };
            let built = |arcs: &Arcs| Tables::new(&topology, &hosts, arcs, form, Budget(100_000)).unwrap();
            let changed = built(&before).after(&hosts, &before.handovers(&after)).unwrap();
            let anew = built(&after);
            for node in topology.nodes() {
                prop_assert_eq!(changed.node(node), anew.node(node));
            }
            for (first, last, owner) in after.iter() {
                prop_assert_eq!(changed.destination(first), hosts.place(owner));
                prop_assert_eq!(changed.destination(last), hosts.place(owner));
            }
        }
    }
}
