//! The fewest entries that forward alike: optimal routing table construction (Draves, King, Venkatachary,
//! Zill: Constructing optimal IP routing tables, INFOCOM 1999), by longest prefix match, where a longer
//! prefix may cut a hole into a shorter one.
//!
//! Three passes over the binary tree of blocks: leaves are the blocks within which all positions go one way;
//! upwards, each node keeps the outputs that its two halves have in common, or all of both if none;
//! downwards, a node takes an entry only if what it inherits is not among those that it kept. Cost: a node
//! for every block that a boundary goes through, at most 64 for each boundary, and two for their halves.
//! Recursion is as deep as a prefix has bits, 64.

use crate::table::{FlowEntry, Output, Pieces};
use bearing_types::Block;

/// A node of the tree, by its number in the arena: what could stand here for the fewest entries below.
struct Node {
    outputs: Vec<Output>,
    halves: Option<(usize, usize)>,
}

struct Tree<'a> {
    pieces: &'a Pieces,
    nodes: Vec<Node>,
}

/// The fewest entries with this forwarding function, in the order of blocks. The first is the whole ring:
/// every position matches.
pub fn compressed(pieces: &Pieces) -> Vec<FlowEntry> {
    let mut tree = Tree { pieces, nodes: Vec::new() };
    let root = tree.add(Block::RING, 0);
    let mut entries = Vec::new();
    tree.choose(root, Block::RING, None, &mut entries);
    entries
}

impl Tree<'_> {
    /// Adds the nodes of a block whose first position lies in the piece with this number.
    fn add(&mut self, block: Block, piece: usize) -> usize {
        let halves = match block.halves() {
            Some((lower, upper)) if self.pieces.last_of(piece) < block.last() => {
                let middle = self.pieces.number_from(piece, upper.start());
                Some((self.add(lower, piece), self.add(upper, middle)))
            }
            _ => None,
        };
        let outputs = match halves {
            None => vec![self.pieces.output(piece)],
            Some((lower, upper)) => merged(&self.nodes[lower].outputs, &self.nodes[upper].outputs),
        };
        self.nodes.push(Node { outputs, halves });
        self.nodes.len() - 1
    }

    fn choose(&self, node: usize, block: Block, inherited: Option<Output>, entries: &mut Vec<FlowEntry>) {
        let here = &self.nodes[node];
        let kept = inherited.filter(|output| here.outputs.binary_search(output).is_ok());
        let output = kept.unwrap_or(here.outputs[0]);
        if kept.is_none() {
            entries.push(FlowEntry { block, output });
        }
        if let (Some((lower, upper)), Some((lower_block, upper_block))) = (here.halves, block.halves()) {
            self.choose(lower, lower_block, Some(output), entries);
            self.choose(upper, upper_block, Some(output), entries);
        }
    }
}

/// What two sorted sets have in common, or their union if that is nothing.
fn merged(a: &[Output], b: &[Output]) -> Vec<Output> {
    let common: Vec<Output> = a.iter().copied().filter(|output| b.binary_search(output).is_ok()).collect();
    if !common.is_empty() {
        return common;
    }
    let mut union = [a, b].concat();
    union.sort();
    union
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::FlowTable;
    use crate::testing::pieces;
    use bearing_types::Position;
    use proptest::prelude::*;

    /// The slow oracle: the fewest entries below a block when this is inherited, by trying every entry at
    /// every block.
    fn fewest(pieces: &Pieces, block: Block, inherited: Option<Output>, outputs: &[Output]) -> usize {
        let below = |given: Option<Output>| match block.halves() {
            _ if pieces.last_of(pieces.number(block.start())) >= block.last() => {
                if given == Some(pieces.output(pieces.number(block.start()))) { Some(0) } else { None }
            }
            Some((lower, upper)) => {
                Some(fewest(pieces, lower, given, outputs) + fewest(pieces, upper, given, outputs))
            }
            None => None,
        };
        let without = below(inherited);
        let with = outputs.iter().filter_map(|output| below(Some(*output)).map(|entries| entries + 1));
        with.chain(without).min().expect("an entry for each leaf will do")
    }

    proptest! {
        #[test]
        fn compressed_tables_forward_as_before_and_have_no_smaller_rival(eighths in proptest::collection::vec(0u16..4, 16)) {
            let outputs: Vec<Output> = (0..4).map(crate::testing::output).collect();
            let starts = eighths.iter().enumerate().map(|(index, out)| (Position((index as u64) << 60), outputs[usize::from(*out)]));
            let pieces = Pieces::new(starts).unwrap();
            let entries = compressed(&pieces);
            prop_assert_eq!(entries.len(), fewest(&pieces, Block::RING, None, &outputs));
        }

        #[test]
        fn compressed_tables_forward_as_the_pieces_say(pieces in pieces(), position: u64) {
            let table = FlowTable::new(compressed(&pieces));
            let mut positions = vec![Position(position)];
            for (first, last, _) in pieces.iter() {
                positions.extend([first, last]);
            }
            for position in positions {
                prop_assert_eq!(table.output(position), Some(pieces.output(pieces.number(position))));
            }
        }

        #[test]
        fn compressed_tables_are_never_larger_than_disjoint_ones(pieces in pieces()) {
            prop_assert!(compressed(&pieces).len() <= crate::table::disjoint(&pieces).len());
        }
    }

    #[test]
    fn a_hole_costs_one_entry() {
        let [a, b] = [1, 2].map(crate::testing::output);
        let pieces = Pieces::new([(Position(0), a), (Position(5 << 60), b), (Position(6 << 60), a)]).unwrap();
        assert_eq!(compressed(&pieces).len(), 2);
        assert_eq!(crate::table::disjoint(&pieces).len(), 5);
    }
}
