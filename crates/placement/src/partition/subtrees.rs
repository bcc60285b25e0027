//! Subtrees: each lies in a block of its own, and a table says which server has which block. Directories near
//! the root are made roots of subtrees (*anchors*): each gets a block that no other has, which is dealt to
//! the server with the fewest of its level. What is made below lies in it.
//!
//! Static: directories of the first level are anchors, as if each were a filesystem of its own; blocks stay
//! where they were dealt. Dynamic (as CephFS does it: Weil and others, SC 2004): those of the first two
//! levels are, and blocks move from heavy servers to light ones, the one that helps most first; a block
//! that is too hot for any server is halved. For that a directory below an anchor lies in a sixteenth of
//! its parent's block, so that what is halved are subtrees, and in the end the names of one directory
//! (CephFS's fragments).
//!
//! Invariant: a block moves only if the higher of the two loads falls by it, so a rebalance on a steady load
//! ends.

use super::contract::{Partition, PartitionError, distinct, may_go, may_join};
use crate::arcs::Arcs;
use crate::load::Load;
use crate::parameters::Parameters;
use crate::seat::{NAME_BLOCK_BITS, Seat};
use bearing_types::{Block, NodeId, Position, ServerId};
use std::collections::{BTreeMap, BTreeSet};

/// Lengths in bits of the blocks of anchors, by their level.
const ANCHOR_BITS: [u8; 2] = [48, 44];
/// No more directories are made anchors when there are so many a server.
const ANCHORS_EACH: usize = 16;
/// A directory below gets a part of its parent's block that is so many bits shorter.
const CUT_BITS: u8 = 4;
/// A block that no other overlaps is looked for so often.
const DRAWS_MAX: u64 = 64;
/// So many blocks are halved in one rebalance at most.
const SPLITS_MAX: usize = 256;

/// See the module.
#[derive(Clone, Debug)]
pub struct Subtrees {
    /// Blocks of anchors, or halves of them, each with its owner. They are disjoint.
    table: BTreeMap<Position, (Block, ServerId)>,
    /// Blocks of anchors.
    anchors: BTreeMap<Position, Block>,
    /// Who has what lies in no anchor: where each share begins.
    ground: Vec<(Position, ServerId)>,
    members: BTreeSet<ServerId>,
    /// Hot subtrees move if a server is above the mean by this share; none: static.
    threshold: Option<f64>,
    /// At most this share of the load moves at once.
    budget: f64,
    arcs: Arcs,
}

impl Subtrees {
    /// Subtrees that stay where they are put.
    pub fn fixed(servers: &[ServerId]) -> Result<Subtrees, PartitionError> {
        let members = distinct(servers)?;
        let order: Vec<ServerId> = members.iter().copied().collect();
        let arcs = Arcs::even(&order).map_err(|_| PartitionError::NoServers)?;
        let ground = arcs.iter().map(|(first, _, owner)| (first, owner)).collect();
        let (table, anchors) = (BTreeMap::new(), BTreeMap::new());
        Ok(Subtrees { table, anchors, ground, members, threshold: None, budget: 1.0, arcs })
    }

    /// Subtrees of which hot ones move.
    pub fn moving(servers: &[ServerId], parameters: &Parameters) -> Result<Subtrees, PartitionError> {
        parameters.check()?;
        let fixed = Subtrees::fixed(servers)?;
        Ok(Subtrees { threshold: Some(parameters.threshold), budget: parameters.migration_budget, ..fixed })
    }

    /// Makes a directory an anchor. If no place is left for one, it shares the block of another.
    fn anchor(&mut self, node: NodeId, length_bits: u8) -> Option<Block> {
        let drawn = |draw: u64| {
            let bytes = [node.0.to_le_bytes(), draw.to_le_bytes()].concat();
            let at = xxhash_rust::xxh3::xxh3_64_with_seed(&bytes, 0x616e_6368);
            Block::of_length_bits(Position(at), length_bits)
        };
        let is_free = |block: &Block| {
            let before = self.anchors.range(..=block.last()).next_back();
            before.is_none_or(|(_, anchor)| !anchor.overlaps(*block))
        };
        let has_room = self.anchors.len() < ANCHORS_EACH * self.members.len();
        let free = (0..DRAWS_MAX).filter(|_| has_room).map(drawn).find(is_free);
        let Some(block) = free else {
            let alike = self.anchors.values().filter(|anchor| anchor.length_bits() == length_bits);
            return alike.min_by_key(|anchor| anchor.start().0 ^ drawn(0).start().0).copied();
        };
        let of_its_level = self.anchors.values().filter(|anchor| anchor.length_bits() == length_bits);
        let to = fewest(&self.members, of_its_level.map(|anchor| self.arcs.owner(anchor.start())))?;
        self.anchors.insert(block.start(), block);
        self.table.insert(block.start(), (block, to));
        self.refresh();
        Some(block)
    }

    /// A unit of the table and the other half beside it, if one server has both: their whole, and where the
    /// other half begins. Not beyond the anchor's block.
    fn whole(&self, start: Position) -> Option<(Block, ServerId, Position)> {
        let (block, owner) = *self.table.get(&start)?;
        let whole = Block::around(start, block.prefix_bits().checked_sub(1)?);
        let (lower, upper) = whole.halves()?;
        let (_, anchor) = self.anchors.range(..=start).next_back()?;
        let alike = lower == block && self.table.get(&upper.start()) == Some(&(upper, owner));
        (alike && anchor.covers(whole)).then_some((whole, owner, upper.start()))
    }

    /// Halves that one server has again are one block again.
    fn merge(&mut self) {
        let starts: Vec<Position> = self.table.keys().copied().collect();
        // From the end on, so that a pair that became one meets its own other half.
        for start in starts.into_iter().rev() {
            while let Some((whole, owner, upper)) = self.whole(start) {
                self.table.remove(&upper);
                self.table.insert(start, (whole, owner));
            }
        }
    }

    /// Halves the hottest block of the heaviest server. Whether there was one: a single position stays.
    fn split(&mut self, held: &mut BTreeMap<ServerId, Held>, load: &Load) -> bool {
        let heaviest = held.values_mut().max_by(|a, b| a.load.total_cmp(&b.load));
        let Some(Held { blocks, .. }) = heaviest else { return false };
        let hottest =
            blocks.iter().enumerate().max_by(|a, b| a.1.1.total_cmp(&b.1.1)).map(|(index, _)| index);
        let Some((block, _)) = hottest.map(|index| blocks.swap_remove(index)) else { return false };
        let Some((lower, upper)) = block.halves() else { return false };
        let Some((_, owner)) = self.table.remove(&block.start()) else { return false };
        for half in [lower, upper] {
            self.table.insert(half.start(), (half, owner));
            let weight = load.between(half.start(), half.last());
            blocks.extend((weight > 0.0).then_some((half, weight)));
        }
        true
    }

    fn refresh(&mut self) {
        let ground = |position: Position| {
            let after = self.ground.partition_point(|(start, _)| *start <= position);
            self.ground.get(after.wrapping_sub(1)).or(self.ground.last()).map(|(_, owner)| *owner)
        };
        // Of those that begin at the same position the last counts.
        let behind = self.table.values().filter_map(|(block, _)| {
            let next = Position(block.last().0.checked_add(1)?);
            Some((next, ground(next)?))
        });
        let uncovered = self.ground.iter().copied().filter(|(start, _)| {
            let before = self.table.range(..=*start).next_back();
            before.is_none_or(|(_, (block, _))| !block.contains(*start))
        });
        let units = self.table.values().map(|(block, owner)| (block.start(), *owner));
        if let Ok(arcs) = Arcs::new(uncovered.chain(behind).chain(units)) {
            self.arcs = arcs;
        }
    }

    /// What each server has of the load: all, and by blocks that can move.
    fn weighed(&self, load: &Load) -> BTreeMap<ServerId, Held> {
        let all = load.by_server(&self.arcs);
        let held =
            |server: &ServerId| Held { load: all.get(server).copied().unwrap_or(0.0), blocks: Vec::new() };
        let mut held: BTreeMap<ServerId, Held> =
            self.members.iter().map(|server| (*server, held(server))).collect();
        for (block, owner) in self.table.values() {
            let weight = load.between(block.start(), block.last());
            if let Some(held) = held.get_mut(owner).filter(|_| weight > 0.0) {
                held.blocks.push((*block, weight));
            }
        }
        held
    }
}

/// The server that is named least often, the first of these.
fn fewest(members: &BTreeSet<ServerId>, named: impl Iterator<Item = ServerId>) -> Option<ServerId> {
    let mut counts: BTreeMap<ServerId, usize> = members.iter().map(|server| (*server, 0)).collect();
    named.for_each(|server| {
        counts.entry(server).and_modify(|count| *count += 1);
    });
    counts.into_iter().min_by_key(|(server, count)| (*count, *server)).map(|(server, _)| server)
}

/// What a server has.
#[derive(Clone, Debug, Default)]
struct Held {
    load: f64,
    /// Blocks that can move and are asked for at all.
    blocks: Vec<(Block, f64)>,
}

/// Moves one block from the heaviest server to the lightest: the one that comes closest to making the two
/// even. Gives it and whose it becomes.
fn step(held: &mut BTreeMap<ServerId, Held>, highest: f64, budget: f64) -> Option<(Block, f64, ServerId)> {
    let by_load = |a: &(&ServerId, &Held), b: &(&ServerId, &Held)| a.1.load.total_cmp(&b.1.load);
    let (heavy, most) = held.iter().max_by(by_load).map(|(server, held)| (*server, held.load))?;
    let (light, least) = held.iter().min_by(by_load).map(|(server, held)| (*server, held.load))?;
    if most <= highest {
        return None;
    }
    let even = (most - least) / 2.0;
    let from = held.get_mut(&heavy)?;
    let helps = |(_, (_, weight)): &(usize, &(Block, f64))| least + weight < most && *weight <= budget;
    let closest = |a: &(usize, &(Block, f64)), b: &(usize, &(Block, f64))| {
        (a.1.1 - even).abs().total_cmp(&(b.1.1 - even).abs())
    };
    let (index, _) = from.blocks.iter().enumerate().filter(helps).min_by(closest)?;
    let (block, weight) = from.blocks.remove(index);
    from.load -= weight;
    let to = held.get_mut(&light)?;
    to.load += weight;
    to.blocks.push((block, weight));
    Some((block, weight, light))
}

impl Partition for Subtrees {
    fn arcs(&self) -> &Arcs {
        &self.arcs
    }

    fn members(&self) -> BTreeSet<ServerId> {
        self.members.clone()
    }

    /// The new server has nothing until an anchor is dealt to it, or a rebalance gives it something.
    fn join(&mut self, server: ServerId) -> Result<(), PartitionError> {
        may_join(&self.members, server)?;
        self.members.insert(server);
        Ok(())
    }

    /// Its blocks are dealt out to the others, fewest first.
    fn leave(&mut self, server: ServerId) -> Result<(), PartitionError> {
        may_go(&self.members, server)?;
        self.members.remove(&server);
        let grounds = self.ground.iter_mut().map(|(_, owner)| owner);
        let mut owners: Vec<&mut ServerId> =
            self.table.values_mut().map(|(_, owner)| owner).chain(grounds).collect();
        let mut counts: BTreeMap<ServerId, usize> = self.members.iter().map(|member| (*member, 0)).collect();
        for owner in &owners {
            counts.entry(**owner).and_modify(|count| *count += 1);
        }
        for owner in owners.iter_mut().filter(|owner| ***owner == server) {
            if let Some((taker, count)) = counts.iter_mut().min_by_key(|(_, count)| **count) {
                **owner = *taker;
                *count += 1;
            }
        }
        self.refresh();
        Ok(())
    }

    fn rebalance(&mut self, load: &Load) -> bool {
        let Some(threshold) = self.threshold else { return false };
        let before = self.arcs.clone();
        self.merge();
        let mut budget = load.total() * self.budget;
        let mut held = self.weighed(load);
        let highest = load.total() / held.len() as f64 * (1.0 + threshold);
        let is_heavy = |held: &BTreeMap<ServerId, Held>| held.values().any(|held| held.load > highest);
        let mut splits = 0;
        while is_heavy(&held) && budget > 0.0 {
            if let Some((block, weight, to)) = step(&mut held, highest, budget) {
                self.table.insert(block.start(), (block, to));
                budget -= weight;
            } else if splits < SPLITS_MAX && self.split(&mut held, load) {
                splits += 1;
            } else {
                break;
            }
        }
        self.refresh();
        self.arcs != before
    }

    fn choose(&mut self, parent: &Seat, node: NodeId) -> Option<Block> {
        let length_bits = parent.span.length_bits();
        let level = match length_bits {
            64 => 0,
            bits if bits == ANCHOR_BITS[0] => 1,
            _ => ANCHOR_BITS.len(),
        };
        let levels = if self.threshold.is_some() { ANCHOR_BITS.len() } else { 1 };
        match ANCHOR_BITS[..levels].get(level) {
            Some(bits) => self.anchor(node, *bits),
            None if self.threshold.is_some() && length_bits >= NAME_BLOCK_BITS + CUT_BITS => {
                let drawn = xxhash_rust::xxh3::xxh3_64_with_seed(&node.0.to_le_bytes(), 0x7375_6274);
                Some(parent.span.sub_block(CUT_BITS, drawn))
            }
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::Seating;
    use proptest::prelude::*;

    fn servers(count: u32) -> Vec<ServerId> {
        (1..=count).map(ServerId).collect()
    }

    fn root() -> Seat {
        Seat::root(NodeId::ROOT, Seating::Chosen)
    }

    /// So many anchors, each with its block.
    fn anchors(subtrees: &mut Subtrees, count: usize) -> Vec<Block> {
        (0..count).map(|node| subtrees.choose(&root(), NodeId(node as u64 + 2)).unwrap()).collect()
    }

    proptest! {
        #[test]
        fn hot_subtrees_move_until_it_comes_to_rest(count in 2u32..8, weights in proptest::collection::vec(1u32..100, 1..30)) {
            let mut subtrees = Subtrees::moving(&servers(count), &Parameters::default()).unwrap();
            let blocks = anchors(&mut subtrees, weights.len());
            let load = Load::new(blocks.iter().zip(&weights).map(|(block, weight)| (block.start(), f64::from(*weight))));
            let highest = |subtrees: &Subtrees| subtrees.weighed(&load).into_values().map(|held| held.load).fold(0.0, f64::max);
            let before = highest(&subtrees);
            let rounds = (0..100).find(|_| !subtrees.rebalance(&load));
            prop_assert!(rounds.is_some());
            let after = highest(&subtrees);
            prop_assert!(after <= before);
            let mean = load.total() / f64::from(count);
            let heaviest = f64::from(*weights.iter().max().unwrap());
            prop_assert!(after <= mean * 1.1 + heaviest, "{after} of {mean}");
        }

        /// The slow oracle: the anchor's owner within its block, even arcs elsewhere.
        #[test]
        fn an_anchor_takes_nothing_with_it(count in 1u32..9, made in 1usize..40, positions in proptest::collection::vec(any::<u64>(), 20)) {
            let mut subtrees = Subtrees::fixed(&servers(count)).unwrap();
            let ground = subtrees.arcs().clone();
            anchors(&mut subtrees, made);
            let inside = subtrees.anchors.values().map(|block| block.last().0 - 5);
            for position in positions.into_iter().chain(inside).map(Position) {
                let unit = subtrees.table.values().find(|(block, _)| block.contains(position));
                let expected = unit.map_or_else(|| ground.owner(position), |(_, owner)| *owner);
                prop_assert_eq!(subtrees.arcs().owner(position), expected);
            }
        }
    }

    #[test]
    fn subtrees_are_dealt_evenly_and_what_is_made_below_follows() {
        let kinds = [
            Subtrees::fixed(&servers(5)).unwrap(),
            Subtrees::moving(&servers(5), &Parameters::default()).unwrap(),
        ];
        for (mut subtrees, levels) in kinds.into_iter().zip([1, 2]) {
            for home in 2..32 {
                let block = subtrees.choose(&root(), NodeId(home)).unwrap();
                let seat = root().child_in(NodeId(home), block);
                let user = NodeId(home + 1000);
                let second = subtrees.choose(&seat, user);
                assert_eq!(second.is_some(), levels == 2);
                if let Some(third) = second.map(|block| seat.child_in(user, block)) {
                    let below = subtrees.choose(&third, NodeId(home + 2000));
                    assert!(
                        below.is_some_and(|part| third.span.covers(part)),
                        "it lies in the second level's block"
                    );
                }
            }
            let owned = subtrees.anchors.keys().map(|start| subtrees.arcs().owner(*start));
            let counts =
                (1..=5).map(|server| owned.clone().filter(|owner| *owner == ServerId(server)).count());
            assert_eq!(counts.collect::<Vec<_>>(), [6 * levels; 5]);
        }
    }

    #[test]
    fn when_there_are_enough_anchors_more_directories_share_them() {
        let mut subtrees = Subtrees::fixed(&servers(2)).unwrap();
        let blocks: BTreeSet<Block> = anchors(&mut subtrees, 1000).into_iter().collect();
        assert_eq!((blocks.len(), subtrees.anchors.len()), (32, 32));
    }

    /// Twenty subtrees alike, all at one server: two of them are a tenth of the load.
    #[test]
    fn no_rebalance_moves_more_than_its_budget() {
        let parameters = Parameters { migration_budget: 0.1, ..Parameters::default() };
        let mut subtrees = Subtrees::moving(&servers(2), &parameters).unwrap();
        let blocks = anchors(&mut subtrees, 20);
        subtrees.leave(ServerId(2)).unwrap();
        subtrees.join(ServerId(2)).unwrap();
        let load = Load::new(blocks.iter().map(|block| (block.start(), 1.0)));
        let before = subtrees.arcs().clone();
        assert!(subtrees.rebalance(&load));
        let moved = before.handovers(subtrees.arcs());
        let moved: f64 = moved.iter().map(|handover| load.between(handover.first, handover.last)).sum();
        assert_eq!(moved, 2.0);
    }

    #[test]
    fn a_static_subtree_stays() {
        let mut subtrees = Subtrees::fixed(&servers(2)).unwrap();
        let block = anchors(&mut subtrees, 1)[0];
        assert!(!subtrees.rebalance(&Load::new([(block.start(), 9.0)])));
    }

    /// All load lies below one anchor, in a hundred directories: no block as a whole helps any server.
    #[test]
    fn a_subtree_that_is_too_hot_for_any_server_is_split_by_its_subtrees_and_one_again_when_it_has_cooled() {
        let mut subtrees = Subtrees::moving(&servers(4), &Parameters::default()).unwrap();
        let block = anchors(&mut subtrees, 1)[0];
        let hot = root().child_in(NodeId(2), block);
        let hot = hot.child_in(NodeId(3), subtrees.choose(&hot, NodeId(3)).unwrap());
        let below: Vec<Seat> = (0..100)
            .map(|number| {
                hot.child_in(NodeId(10 + number), subtrees.choose(&hot, NodeId(10 + number)).unwrap())
            })
            .collect();
        let load = Load::new(below.iter().map(|seat| (seat.home, 1.0)));
        while subtrees.rebalance(&load) {}
        assert!(load.imbalance(subtrees.arcs()) < 1.6, "{:?}", load.by_server(subtrees.arcs()));
        // The names of a directory stay together.
        for seat in &below {
            let ends = [seat.name_block.start(), seat.name_block.last()];
            assert_eq!(subtrees.arcs().owner(ends[0]), subtrees.arcs().owner(ends[1]));
        }
        assert!(subtrees.table.len() > 5);
        // All of it goes to the one server that is left.
        for gone in 1..4 {
            subtrees.leave(ServerId(gone)).unwrap();
        }
        subtrees.rebalance(&load);
        assert_eq!(subtrees.table.len(), subtrees.anchors.len());
    }
}
