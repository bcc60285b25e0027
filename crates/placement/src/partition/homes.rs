//! Homes that are chosen freely (the Bloom schemes): each server has one block of the ring for itself, and a
//! directory lies in the block that was chosen when it was made ([`crate::Seat::child_in`]). No such
//! directory moves when a server joins: only new ones go to it. (Nothing else should lie on the ring: what is
//! placed by hash may change hands.)

use super::contract::{Partition, PartitionError, distinct, may_go, may_join};
use crate::arcs::Arcs;
use crate::seat::Seat;
use bearing_types::{Block, NodeId, Position, ServerId};
use std::collections::{BTreeMap, BTreeSet};

/// The ring is cut into 2^16 blocks, one for each server that ever was.
const CUT_BITS: u8 = 16;

/// See the module.
#[derive(Clone, Debug)]
pub struct Homes {
    /// Where each member's block begins.
    blocks: BTreeMap<ServerId, Block>,
    /// Who has what lies in blocks of servers that are gone, and in those.
    owners: BTreeMap<Position, ServerId>,
    next: u64,
    /// The members' blocks in the order of their ids, for choosing one.
    order: Vec<Block>,
    arcs: Arcs,
}

impl Homes {
    /// A block for each of these servers.
    pub fn new(servers: &[ServerId]) -> Result<Homes, PartitionError> {
        let members = distinct(servers)?;
        let first = *members.first().ok_or(PartitionError::NoServers)?;
        let arcs = Arcs::even(&[first]).map_err(|_| PartitionError::NoServers)?;
        let mut homes =
            Homes { blocks: BTreeMap::new(), owners: BTreeMap::new(), next: 0, order: Vec::new(), arcs };
        for server in members {
            homes.give_block(server)?;
        }
        homes.refresh()?;
        Ok(homes)
    }

    fn give_block(&mut self, server: ServerId) -> Result<(), PartitionError> {
        if self.next >> CUT_BITS != 0 {
            return Err(PartitionError::NoBlock(1 << CUT_BITS));
        }
        // In reversed order of bits, so that the first few lie far apart.
        let block = Block::RING.sub_block(CUT_BITS, self.next.reverse_bits() >> (64 - CUT_BITS));
        self.next += 1;
        self.blocks.insert(server, block);
        // What lies before the next server's block is nobody's choice yet, so that it may change hands.
        self.owners.insert(block.start(), server);
        Ok(())
    }

    fn refresh(&mut self) -> Result<(), PartitionError> {
        let starts = self.owners.iter().map(|(start, owner)| (*start, *owner));
        self.arcs = Arcs::new(starts).map_err(|_| PartitionError::NoServers)?;
        self.order = self.blocks.values().copied().collect();
        Ok(())
    }

    /// The block in which directories of a server lie.
    pub fn block_of(&self, server: ServerId) -> Option<Block> {
        self.blocks.get(&server).copied()
    }
}

impl Partition for Homes {
    fn arcs(&self) -> &Arcs {
        &self.arcs
    }

    fn members(&self) -> BTreeSet<ServerId> {
        self.blocks.keys().copied().collect()
    }

    fn join(&mut self, server: ServerId) -> Result<(), PartitionError> {
        may_join(&self.members(), server)?;
        self.give_block(server)?;
        self.refresh()
    }

    /// What it has goes to the member with the block before, as it stands; its block is not given out again.
    fn leave(&mut self, server: ServerId) -> Result<(), PartitionError> {
        may_go(&self.members(), server)?;
        self.blocks.remove(&server);
        let others: Vec<(Position, ServerId)> = self
            .owners
            .iter()
            .filter(|(_, owner)| **owner != server)
            .map(|(at, owner)| (*at, *owner))
            .collect();
        for (start, owner) in &mut self.owners {
            if *owner == server {
                let before = others.iter().rfind(|(at, _)| at < start).or_else(|| others.last());
                *owner = before.map_or(server, |(_, taker)| *taker);
            }
        }
        self.refresh()
    }

    /// Any member's, by the directory's node.
    fn choose(&mut self, _parent: &Seat, node: NodeId) -> Option<Block> {
        let drawn = xxhash_rust::xxh3::xxh3_64_with_seed(&node.0.to_le_bytes(), 0x686f_6d65);
        let index = (u128::from(drawn) * self.order.len() as u128) >> 64;
        self.order.get(index as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::Seating;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_join_moves_no_directory(count in 1u32..40, nodes in proptest::collection::vec(2u64.., 1..30)) {
            let servers: Vec<_> = (1..=count).map(ServerId).collect();
            let mut homes = Homes::new(&servers).unwrap();
            let root = Seat::root(NodeId::ROOT, Seating::Chosen);
            let chosen: Vec<(Block, ServerId)> = nodes.iter().map(|node| {
                let block = homes.choose(&root, NodeId(*node)).unwrap();
                (block, homes.arcs().owner(block.start()))
            }).collect();
            homes.join(ServerId(99)).unwrap();
            for (block, owner) in chosen {
                prop_assert_eq!(homes.arcs().owner(block.start()), owner);
                prop_assert_eq!(homes.arcs().owner(block.last()), owner);
            }
        }
    }

    #[test]
    fn what_a_failed_server_had_goes_to_one_other() {
        let mut homes = Homes::new(&[ServerId(1), ServerId(2), ServerId(3)]).unwrap();
        let block = homes.block_of(ServerId(2)).unwrap();
        homes.fail(ServerId(2)).unwrap();
        assert_eq!(homes.arcs().owner(block.start()), homes.arcs().owner(block.last()));
        assert_eq!(homes.block_of(ServerId(2)), None);
        assert_eq!(homes.fail(ServerId(2)), Err(PartitionError::Unknown(ServerId(2))));
    }
}
