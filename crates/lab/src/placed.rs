//! Where every node of a namespace lies under a scheme.
//!
//! Directories are made in the order of their numbers, and a scheme that chooses homes is asked for each
//! ([`Partition::choose`]). Ranks among siblings are those of the whole tree: as published, a tree is placed
//! when it is known.

use crate::namespace::Namespace;
use bearing_placement::{AngleSeat, Arcs, Partition, Rank, Seat, Seating};
use bearing_types::{NameHash, NodeId, Position, ServerId};

/// See the module.
#[derive(Debug)]
pub struct Placed {
    /// By node.
    positions: Vec<Position>,
}

impl Placed {
    /// The nodes of this tree, seated so.
    pub fn new(namespace: &Namespace, seating: Seating, partition: &mut dyn Partition) -> Placed {
        match seating {
            Seating::SiblingRank => Placed::by_rank(namespace),
            _ => Placed::by_seat(namespace, seating, partition),
        }
    }

    fn by_rank(namespace: &Namespace) -> Placed {
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
        Placed { positions: seats.iter().map(AngleSeat::angle).collect() }
    }

    fn by_seat(namespace: &Namespace, seating: Seating, partition: &mut dyn Partition) -> Placed {
        // A file has no seat. What never had a name in it is one.
        let mut seats: Vec<Option<Seat>> = Vec::with_capacity(namespace.count());
        let mut positions = Vec::with_capacity(namespace.count());
        for (number, node) in namespace.iter() {
            let id = NodeId(u64::from(number) + 1);
            let hash = NameHash::from_bits(node.hash);
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
        Placed { positions }
    }

    /// Where a node lies.
    pub fn position(&self, node: u32) -> Position {
        self.positions[node as usize]
    }

    /// Who owns each node.
    pub fn owners(&self, arcs: &Arcs) -> Vec<ServerId> {
        self.positions.iter().map(|position| arcs.owner(*position)).collect()
    }
}
