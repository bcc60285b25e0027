//! Where every node of a namespace lies under a scheme.
//!
//! Directories are made in the order of their numbers, and a scheme that chooses homes is asked for each
//! ([`Partition::choose`]). Ranks among siblings are those of the whole tree: as published, a tree is placed
//! when it is known. A seed draws node numbers and the hashes of names anew: the same tree, placed once more.

use crate::namespace::{Namespace, NodeNumber};
use bearing_placement::{AngleSeat, Arcs, Partition, Rank, Seat, Seating};
use bearing_types::{NameHash, NodeId, Position, ServerId};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// See the module.
#[derive(Debug)]
pub struct Placed {
    /// By node.
    positions: Vec<Position>,
    /// Nodes in the order of the ring.
    order: Vec<NodeNumber>,
}

impl Placed {
    /// The nodes of this tree, seated so.
    pub fn new(namespace: &Namespace, seating: Seating, partition: &mut dyn Partition, seed: u64) -> Placed {
        let positions = match seating {
            Seating::SiblingRank => by_rank(namespace),
            _ => by_seat(namespace, seating, partition, seed),
        };
        let mut order: Vec<NodeNumber> = (0..).take(positions.len()).collect();
        order.sort_unstable_by_key(|node| (positions[*node as usize], *node));
        Placed { positions, order }
    }

    /// Where a node lies.
    pub fn position(&self, node: NodeNumber) -> Position {
        self.positions[node as usize]
    }

    /// Where each node lies.
    pub fn positions(&self) -> &[Position] {
        &self.positions
    }

    /// Writes into `owners` who owns each node.
    pub fn owners(&self, arcs: &Arcs, owners: &mut Vec<ServerId>) {
        owners.resize(self.positions.len(), ServerId(0));
        let mut arcs = arcs.iter();
        let mut at = arcs.next();
        for node in &self.order {
            let position = self.positions[*node as usize];
            while at.is_some_and(|(_, last, _)| last < position) {
                at = arcs.next();
            }
            if let Some((_, _, owner)) = at {
                owners[*node as usize] = owner;
            }
        }
    }
}

fn by_rank(namespace: &Namespace) -> Vec<Position> {
    let mut seats: Vec<AngleSeat> = Vec::with_capacity(namespace.count());
    for (number, node) in namespace.iter() {
        seats.push(match number {
            Namespace::ROOT => AngleSeat::root(),
            _ => {
                let siblings = namespace.get(node.parent).children;
                seats[node.parent as usize].child(Rank { left: node.rank, siblings })
            }
        });
    }
    seats.iter().map(AngleSeat::angle).collect()
}

fn by_seat(
    namespace: &Namespace,
    seating: Seating,
    partition: &mut dyn Partition,
    seed: u64,
) -> Vec<Position> {
    // A file has no seat. What never had a name in it is one.
    let mut seats: Vec<Option<Seat>> = Vec::with_capacity(namespace.count());
    let mut positions = Vec::with_capacity(namespace.count());
    for (number, node) in namespace.iter() {
        let id = NodeId((seed << 32) + u64::from(number) + 1);
        let hash = NameHash::from_bits(xxh3_64_with_seed(&node.hash.to_le_bytes(), seed));
        let above = if number == Namespace::ROOT { None } else { seats[node.parent as usize] };
        let Some(parent) = above else {
            let root = Seat::root(id, seating);
            positions.push(root.home);
            seats.push(Some(root));
            continue;
        };
        let seat = (node.children > 0).then(|| match partition.choose(&parent, id) {
            Some(block) => parent.child_in(id, block),
            None => parent.child(id, hash),
        });
        positions.push(seat.map_or_else(|| parent.position_of(hash), |seat| seat.home));
        seats.push(seat);
    }
    positions
}
