//! Tablets by position, for a look in a few memory accesses however many there are and however their sizes
//! differ.
//!
//! Shape: a table of 2^`root_bits` slots for the first bits of a position; a slot holds nothing, a tablet, or
//! a node of sixteen slots for the next four bits. A tablet stands in every slot that its block covers (as in
//! DIR-24-8, Gupta, Lin and McKeown, INFOCOM 1998), so a look compares nothing.
//!
//! Invariants: tablets never overlap; every node leads to a tablet, so nodes are bounded by tablets and the
//! length of their prefixes; `root_bits` is a multiple of four and grows with the number of tablets.

use bearing_types::{Block, Epoch, Position, ServerId};
use std::ops::Range;

/// Bits of one node.
const STRIDE: u8 = 4;
const NODE_SLOTS: usize = 1 << STRIDE;
const ROOT_BITS_MAX: u8 = 24;

/// Where a position is believed to be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    /// The tablet.
    pub block: Block,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its owner.
    pub owner: ServerId,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct TabletIndex {
    root_bits: u8,
    /// The root, then nodes.
    slots: Vec<Slot>,
    free_nodes: Vec<u32>,
    /// Those named in `free_tablets` are void.
    tablets: Vec<Located>,
    free_tablets: Vec<u32>,
}

/// A [`Content`] in four bytes: all ones for nothing, the first bit for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Nothing,
    /// By its place in `tablets`.
    Tablet(u32),
    /// By its number behind the root.
    Node(u32),
}

impl Slot {
    const NOTHING: Slot = Slot(u32::MAX);
    const NODE: u32 = 1 << 31;

    fn content(self) -> Content {
        match self.0 {
            u32::MAX => Content::Nothing,
            node if node & Slot::NODE != 0 => Content::Node(node & !Slot::NODE),
            tablet => Content::Tablet(tablet),
        }
    }
}

impl Default for TabletIndex {
    fn default() -> TabletIndex {
        TabletIndex::for_tablets(0)
    }
}

impl TabletIndex {
    /// An empty index whose root suits so many tablets.
    pub fn for_tablets(count: usize) -> TabletIndex {
        let mut root_bits = STRIDE;
        while is_crowded(root_bits, count) {
            root_bits += STRIDE;
        }
        TabletIndex {
            root_bits,
            slots: vec![Slot::NOTHING; 1 << root_bits],
            free_nodes: Vec::new(),
            tablets: Vec::new(),
            free_tablets: Vec::new(),
        }
    }

    /// The tablet that holds a position.
    pub fn at(&self, position: Position) -> Option<&Located> {
        let mut rest = position.0;
        let mut table = 0;
        let mut bits = self.root_bits;
        loop {
            let index = (rest >> (64 - bits)) as usize;
            match self.slots[table + index].content() {
                Content::Nothing => return None,
                Content::Tablet(tablet) => return Some(&self.tablets[tablet as usize]),
                Content::Node(node) => table = self.first_slot(node),
            }
            rest <<= bits;
            bits = STRIDE;
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.tablets.len() - self.free_tablets.len()
    }

    /// What it takes in memory.
    pub fn bytes(&self) -> usize {
        self.slots.len() * size_of::<Slot>() + self.tablets.len() * size_of::<Located>()
    }

    /// All tablets, in the order of the ring.
    pub fn in_order(&self) -> Vec<Located> {
        let mut found = Vec::with_capacity(self.len());
        self.collect(0..1 << self.root_bits, &mut found);
        found
    }

    /// The tablets that share a position with a block, in order.
    pub fn overlapping(&self, block: Block) -> Vec<Located> {
        let mut found = Vec::new();
        match self.descend(block) {
            Way::Covered(tablet) => found.push(self.tablets[tablet as usize]),
            Way::Ends { .. } => {}
            Way::Slots(range) => self.collect(range, &mut found),
        }
        found
    }

    /// Puts a tablet in, instead of all that it overlaps.
    pub fn put(&mut self, located: Located) {
        if is_crowded(self.root_bits, self.len() + 1) {
            let tablets = self.in_order();
            *self = TabletIndex::for_tablets(tablets.len() + 1);
            tablets.into_iter().for_each(|tablet| self.put(tablet));
        }
        let range = loop {
            match self.descend(located.block) {
                Way::Slots(range) => break range,
                Way::Covered(larger) => self.take_out(larger),
                Way::Ends { slot } => {
                    let node = self.new_node();
                    self.slots[slot] = Slot(Slot::NODE | node);
                }
            }
        };
        self.clear(range.clone());
        let tablet = self.free_tablets.pop().unwrap_or_else(|| {
            self.tablets.push(located);
            self.tablets.len() as u32 - 1
        });
        self.tablets[tablet as usize] = located;
        self.slots[range].fill(Slot(tablet));
    }

    /// Takes a tablet out that covers more than the block that will stand there.
    fn take_out(&mut self, tablet: u32) {
        if let Way::Slots(range) = self.descend(self.tablets[tablet as usize].block) {
            self.clear(range);
        }
    }

    /// Follows the prefix of a block.
    fn descend(&self, block: Block) -> Way {
        let mut rest = block.start().0;
        let mut table = 0;
        let mut bits = self.root_bits;
        let mut below = block.prefix_bits();
        loop {
            let slot = table + (rest >> (64 - bits)) as usize;
            let content = self.slots[slot].content();
            if let Content::Tablet(tablet) = content
                && self.prefix_bits(tablet) < block.prefix_bits()
            {
                return Way::Covered(tablet);
            }
            if below <= bits {
                return Way::Slots(slot..slot + (1 << (bits - below)));
            }
            match content {
                Content::Node(node) => table = self.first_slot(node),
                Content::Nothing | Content::Tablet(_) => return Way::Ends { slot },
            }
            rest <<= bits;
            below -= bits;
            bits = STRIDE;
        }
    }

    fn prefix_bits(&self, tablet: u32) -> u8 {
        self.tablets[tablet as usize].block.prefix_bits()
    }

    fn first_slot(&self, node: u32) -> usize {
        (1 << self.root_bits) + node as usize * NODE_SLOTS
    }

    fn new_node(&mut self) -> u32 {
        self.free_nodes.pop().unwrap_or_else(|| {
            let node = (self.slots.len() - (1 << self.root_bits)) / NODE_SLOTS;
            self.slots.resize(self.slots.len() + NODE_SLOTS, Slot::NOTHING);
            node as u32
        })
    }

    fn collect(&self, range: Range<usize>, found: &mut Vec<Located>) {
        let mut before = Content::Nothing;
        for slot in range {
            let content = self.slots[slot].content();
            match content {
                Content::Nothing => {}
                Content::Tablet(tablet) if content != before => found.push(self.tablets[tablet as usize]),
                Content::Tablet(_) => {}
                Content::Node(node) => {
                    let first = self.first_slot(node);
                    self.collect(first..first + NODE_SLOTS, found);
                }
            }
            before = content;
        }
    }

    /// Empties slots, and frees what stood in them and below.
    fn clear(&mut self, range: Range<usize>) {
        let mut before = Content::Nothing;
        for slot in range {
            let content = self.slots[slot].content();
            self.slots[slot] = Slot::NOTHING;
            match content {
                Content::Nothing => {}
                Content::Tablet(tablet) if content != before => self.free_tablets.push(tablet),
                Content::Tablet(_) => {}
                Content::Node(node) => {
                    let first = self.first_slot(node);
                    self.clear(first..first + NODE_SLOTS);
                    self.free_nodes.push(node);
                }
            }
            before = content;
        }
    }
}

/// Where the prefix of a block leads.
enum Way {
    /// To these slots, which are all of the block.
    Slots(Range<usize>),
    /// To a tablet that covers it and more.
    Covered(u32),
    /// To an empty slot above it.
    Ends { slot: usize },
}

/// Whether so many tablets deserve a larger root: above two of them a slot.
fn is_crowded(root_bits: u8, tablets: usize) -> bool {
    root_bits < ROOT_BITS_MAX && tablets > 2 << root_bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::{Epoch, ServerId};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// What the index has to be equal to: blocks by their start.
    #[derive(Default)]
    struct Slow(BTreeMap<Position, Located>);

    impl Slow {
        fn at(&self, position: Position) -> Option<&Located> {
            let (_, located) = self.0.range(..=position).next_back()?;
            located.block.contains(position).then_some(located)
        }

        fn overlapping(&self, block: Block) -> Vec<Located> {
            self.0.values().filter(|located| located.block.overlaps(block)).copied().collect()
        }

        fn put(&mut self, located: Located) {
            self.0.retain(|_, known| !known.block.overlaps(located.block));
            self.0.insert(located.block.start(), located);
        }
    }

    /// Blocks of all sizes, many of them near each other, so that they nest often.
    fn block() -> impl Strategy<Value = Block> {
        let base = prop_oneof![Just(0u64), Just(u64::MAX), Just(0x8000_0000_0000_0000), any::<u64>()];
        (base, 0..16u64, 0..=64u32, 0..=64u8).prop_map(|(base, low, place, prefix_bits)| {
            Block::around(Position(base ^ low.checked_shl(place).unwrap_or(0)), prefix_bits)
        })
    }

    fn assert_whole(index: &TabletIndex) -> Result<(), TestCaseError> {
        // Every node leads to a tablet, and none is lost.
        let nodes = (index.slots.len() - (1 << index.root_bits)) / NODE_SLOTS;
        let used = index.slots.iter().filter(|slot| matches!(slot.content(), Content::Node(_))).count();
        prop_assert_eq!(used + index.free_nodes.len(), nodes);
        for slot in &index.slots {
            if let Content::Node(node) = slot.content() {
                let first = index.first_slot(node);
                let slots = &index.slots[first..first + NODE_SLOTS];
                prop_assert!(slots.iter().any(|slot| *slot != Slot::NOTHING), "an empty node");
            }
        }
        prop_assert_eq!(index.len(), index.in_order().len());
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn it_finds_what_a_plain_list_finds(blocks in proptest::collection::vec(block(), 1..120)) {
            let (mut index, mut slow) = (TabletIndex::default(), Slow::default());
            for (number, block) in blocks.iter().enumerate() {
                let located = Located { block: *block, epoch: Epoch(number as u64), owner: ServerId(number as u32) };
                prop_assert_eq!(index.overlapping(*block), slow.overlapping(*block));
                index.put(located);
                slow.put(located);
                assert_whole(&index)?;
            }
            prop_assert_eq!(index.in_order(), slow.0.values().copied().collect::<Vec<_>>());
            for block in &blocks {
                let (start, last) = (block.start().0, block.last().0);
                for position in [start, last, start.wrapping_sub(1), last.wrapping_add(1), start / 2 + last / 2] {
                    prop_assert_eq!(index.at(Position(position)), slow.at(Position(position)));
                }
            }
        }
    }

    #[test]
    fn a_larger_root_changes_nothing_that_is_found() {
        let mut index = TabletIndex::default();
        let block = |number: u64| Block::RING.sub_block(12, number);
        for number in 0..4096u64 {
            index.put(Located { block: block(number), epoch: Epoch(1), owner: ServerId(number as u32) });
        }
        assert_eq!((index.len(), index.root_bits), (4096, 12));
        for number in 0..4096u64 {
            assert_eq!(index.at(block(number).last()).unwrap().owner, ServerId(number as u32));
        }
    }

    #[test]
    fn what_is_replaced_is_used_again() {
        let mut index = TabletIndex::default();
        let located = |block| Located { block, epoch: Epoch(1), owner: ServerId(1) };
        for _ in 0..1000 {
            for part in 0..8 {
                index.put(located(Block::around(Position(0x1234 << 40), 40).sub_block(3, part)));
            }
            index.put(located(Block::around(Position(0x1234 << 40), 40)));
        }
        assert_eq!(index.len(), 1);
        assert!(index.bytes() < 4096, "{} bytes", index.bytes());
    }
}
