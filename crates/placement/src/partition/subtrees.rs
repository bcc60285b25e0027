//! Subtrees: each lies in a block of its own, and a table says which server has which block. The seat of a
//! directory that is made the root of a subtree (its *anchor*) holds the block ([`crate::Seat::child_in`]);
//! everything below follows it, unless it is made an anchor itself.
//!
//! Static: blocks stay where they were put. Dynamic: blocks move from heavy servers to light ones, the one
//! that helps most first.
//!
//! Invariant: a block moves only if the higher of the two loads falls by it, so a rebalance on a steady load
//! ends.

use super::contract::{Partition, PartitionError, distinct, may_go, may_join};
use crate::arcs::Arcs;
use crate::load::Load;
use crate::parameters::Parameters;
use bearing_types::{Block, NodeId, Position, ServerId};
use std::collections::{BTreeMap, BTreeSet};

/// Length in bits of an anchor's block: 2^24 anchors on the ring.
const ANCHOR_BITS: u8 = 40;

/// See the module.
#[derive(Clone, Debug)]
pub struct Subtrees {
    /// Disjoint blocks that cover the ring.
    table: BTreeMap<Position, (Block, ServerId)>,
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
        let table = arcs.blocks().into_iter().map(|(block, owner)| (block.start(), (block, owner))).collect();
        Ok(Subtrees { table, members, threshold: None, budget: 1.0, arcs })
    }

    /// Subtrees of which hot ones move.
    pub fn moving(servers: &[ServerId], parameters: &Parameters) -> Result<Subtrees, PartitionError> {
        parameters.check()?;
        let fixed = Subtrees::fixed(servers)?;
        Ok(Subtrees { threshold: Some(parameters.threshold), budget: parameters.migration_budget, ..fixed })
    }

    /// The block for a directory that is made an anchor: by its node, so that anchors spread over all
    /// servers.
    pub fn block_of(node: NodeId) -> Block {
        let at = xxhash_rust::xxh3::xxh3_64_with_seed(&node.0.to_le_bytes(), 0x616e_6368);
        Block::of_length_bits(Position(at), ANCHOR_BITS)
    }

    /// Makes a block a unit of its own, so that it can be given to a server without its surroundings.
    pub fn carve(&mut self, block: Block) {
        let surrounding = self.table.range(..=block.start()).next_back();
        let Some((mut around, owner)) = surrounding.map(|(_, unit)| *unit).filter(|(b, _)| b.covers(block))
        else {
            return;
        };
        self.table.remove(&around.start());
        while around != block {
            let Some((low, high)) = around.halves() else { break };
            let (inner, outer) = if low.covers(block) { (low, high) } else { (high, low) };
            self.table.insert(outer.start(), (outer, owner));
            around = inner;
        }
        self.table.insert(around.start(), (around, owner));
    }

    /// Gives a block to a server, by hand.
    pub fn assign(&mut self, block: Block, server: ServerId) -> Result<(), PartitionError> {
        if !self.members.contains(&server) {
            return Err(PartitionError::Unknown(server));
        }
        self.carve(block);
        let inside: Vec<Position> =
            self.table.range(block.start()..=block.last()).map(|(start, _)| *start).collect();
        for start in inside {
            if let Some((_, owner)) = self.table.get_mut(&start) {
                *owner = server;
            }
        }
        self.refresh()
    }

    fn refresh(&mut self) -> Result<(), PartitionError> {
        self.arcs = Arcs::of_blocks(self.table.values().copied()).map_err(|_| PartitionError::NoServers)?;
        Ok(())
    }

    /// What each server has of the load, block by block.
    fn weighed(&self, load: &Load) -> BTreeMap<ServerId, Held> {
        let mut held: BTreeMap<ServerId, Held> =
            self.members.iter().map(|server| (*server, Held::default())).collect();
        for (block, owner) in self.table.values() {
            let weight = load.between(block.start(), block.last());
            let held = held.entry(*owner).or_default();
            held.load += weight;
            if weight > 0.0 {
                held.blocks.push((*block, weight));
            }
        }
        held
    }
}

/// What a server has.
#[derive(Clone, Debug, Default)]
struct Held {
    load: f64,
    /// Blocks that are asked for at all.
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

    /// The new server has nothing until something is given to it, by hand or by a rebalance.
    fn join(&mut self, server: ServerId) -> Result<(), PartitionError> {
        may_join(&self.members, server)?;
        self.members.insert(server);
        Ok(())
    }

    /// Its blocks are dealt out to the others, fewest first.
    fn leave(&mut self, server: ServerId) -> Result<(), PartitionError> {
        may_go(&self.members, server)?;
        self.members.remove(&server);
        let mut counts: BTreeMap<ServerId, usize> = self.members.iter().map(|member| (*member, 0)).collect();
        for (_, owner) in self.table.values() {
            counts.entry(*owner).and_modify(|count| *count += 1);
        }
        for (_, owner) in self.table.values_mut().filter(|(_, owner)| *owner == server) {
            if let Some((taker, count)) = counts.iter_mut().min_by_key(|(_, count)| **count) {
                *owner = *taker;
                *count += 1;
            }
        }
        self.refresh()
    }

    fn rebalance(&mut self, load: &Load) -> bool {
        let Some(threshold) = self.threshold else { return false };
        let mut budget = load.total() * self.budget;
        let before = self.arcs.clone();
        let mut held = self.weighed(load);
        let highest = load.total() / held.len() as f64 * (1.0 + threshold);
        while let Some((block, weight, to)) = step(&mut held, highest, budget) {
            self.table.insert(block.start(), (block, to));
            budget -= weight;
        }
        self.refresh().is_ok() && self.arcs != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn servers(count: u32) -> Vec<ServerId> {
        (1..=count).map(ServerId).collect()
    }

    proptest! {
        #[test]
        fn hot_subtrees_move_until_it_comes_to_rest(count in 2u32..8, weights in proptest::collection::vec(1u32..100, 1..60)) {
            let mut subtrees = Subtrees::moving(&servers(count), &Parameters::default()).unwrap();
            let blocks: Vec<Block> = (0..weights.len()).map(|node| Subtrees::block_of(NodeId(node as u64 + 2))).collect();
            blocks.iter().for_each(|block| subtrees.carve(*block));
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

        #[test]
        fn a_block_that_is_given_away_takes_nothing_with_it(node in 2u64.., position: u64) {
            let mut subtrees = Subtrees::fixed(&servers(3)).unwrap();
            let before = subtrees.arcs().clone();
            let block = Subtrees::block_of(NodeId(node));
            subtrees.assign(block, ServerId(2)).unwrap();
            let position = Position(position);
            let expected = if block.contains(position) { ServerId(2) } else { before.owner(position) };
            prop_assert_eq!(subtrees.arcs().owner(position), expected);
            prop_assert_eq!(subtrees.arcs().owner(block.start()), ServerId(2));
        }
    }

    #[test]
    fn a_static_subtree_stays() {
        let mut subtrees = Subtrees::fixed(&servers(2)).unwrap();
        assert!(!subtrees.rebalance(&Load::new([(Position(1), 9.0)])));
        assert_eq!(subtrees.assign(Block::RING, ServerId(9)), Err(PartitionError::Unknown(ServerId(9))));
    }
}
