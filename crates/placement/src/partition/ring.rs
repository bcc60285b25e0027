//! Consistent hashing: each server at its points of the ring, owning what lies between the point before and
//! its own (Chord: a key is at its successor). One point each is Chord's ring and RDHT-MDSC's; more are
//! virtual nodes (One-Hop).

use super::contract::{Partition, PartitionError, distinct, may_go, may_join};
use crate::arcs::Arcs;
use crate::parameters::Parameters;
use bearing_types::{Position, ServerId};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Clone, Debug)]
pub struct Ring {
    points: BTreeMap<Position, ServerId>,
    members: BTreeSet<ServerId>,
    virtual_nodes: u32,
    even: bool,
    arcs: Arcs,
}

/// Where a server's n-th point lies. RDHT-MDSC hashes address and port; a server's id stands for them here.
pub fn point_of(server: ServerId, index: u32) -> Position {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&server.0.to_le_bytes());
    bytes[4..].copy_from_slice(&index.to_le_bytes());
    Position(xxhash_rust::xxh3::xxh3_64_with_seed(&bytes, 0x7269_6e67))
}

impl Ring {
    /// A ring of these servers with `virtual_nodes` points each.
    pub fn new(servers: &[ServerId], parameters: &Parameters) -> Result<Ring, PartitionError> {
        parameters.check()?;
        let virtual_nodes = parameters.virtual_nodes;
        let members = distinct(servers)?;
        let turns = (0..virtual_nodes).flat_map(|turn| members.iter().map(move |server| (turn, *server)));
        let count = u128::from(virtual_nodes) * members.len() as u128;
        let place = |(index, (turn, server)): (u128, (u32, ServerId))| match parameters.even_points {
            true => (Position(((index << 64) / count) as u64), server),
            false => (point_of(server, turn), server),
        };
        Ok(Ring { even: parameters.even_points, ..Ring::at((0..).zip(turns).map(place), virtual_nodes)? })
    }

    /// A ring with one point for each server, at positions of one's own choice: for the papers' worked rings.
    pub fn with_points(points: &[(Position, ServerId)]) -> Result<Ring, PartitionError> {
        distinct(&points.iter().map(|(_, server)| *server).collect::<Vec<_>>())?;
        Ring::at(points.iter().copied(), 1)
    }

    fn at(
        given: impl IntoIterator<Item = (Position, ServerId)>,
        virtual_nodes: u32,
    ) -> Result<Ring, PartitionError> {
        let mut points = BTreeMap::new();
        for (point, server) in given {
            if let Some(other) = points.insert(point, server).filter(|other| *other != server) {
                return Err(PartitionError::SamePoint(other, server));
            }
        }
        let members = points.values().copied().collect();
        Ok(Ring { arcs: owned(&points)?, points, members, virtual_nodes, even: false })
    }

    /// Where a server that joins gets its points.
    fn fresh(&self, server: ServerId) -> Vec<Position> {
        if !self.even {
            return (0..self.virtual_nodes).map(|index| point_of(server, index)).collect();
        }
        let mut points: Vec<Position> = self.points.keys().copied().collect();
        let mut fresh = Vec::new();
        for _ in 0..self.virtual_nodes {
            let length = |index: usize| {
                let whole = points[index].clockwise_to(points[(index + 1) % points.len()]);
                // One point alone has the whole ring.
                if whole == 0 { u64::MAX } else { whole }
            };
            // Of equal ones the first.
            let longest = (0..points.len()).max_by_key(|index| (length(*index), std::cmp::Reverse(*index)));
            let Some(index) = longest else { break };
            let middle = Position(points[index].0.wrapping_add(length(index) / 2));
            points.insert(index + 1, middle);
            fresh.push(middle);
        }
        fresh
    }

    /// The points in ring order.
    pub fn points(&self) -> impl Iterator<Item = (Position, ServerId)> + '_ {
        self.points.iter().map(|(point, server)| (*point, *server))
    }
}

/// A point owns what lies after the point before it, and itself.
fn owned(points: &BTreeMap<Position, ServerId>) -> Result<Arcs, PartitionError> {
    let successors = points.values().skip(1).chain(points.values().take(1));
    let starts =
        points.keys().zip(successors).map(|(point, next)| (Position(point.0.wrapping_add(1)), *next));
    Arcs::new(starts).map_err(|_| PartitionError::NoServers)
}

impl Partition for Ring {
    fn arcs(&self) -> &Arcs {
        &self.arcs
    }

    fn members(&self) -> BTreeSet<ServerId> {
        self.members.clone()
    }

    fn join(&mut self, server: ServerId) -> Result<(), PartitionError> {
        may_join(&self.members, server)?;
        let fresh = self.fresh(server);
        if let Some(other) = fresh.iter().find_map(|point| self.points.get(point)) {
            return Err(PartitionError::SamePoint(*other, server));
        }
        self.points.extend(fresh.into_iter().map(|point| (point, server)));
        self.members.insert(server);
        self.arcs = owned(&self.points)?;
        Ok(())
    }

    fn leave(&mut self, server: ServerId) -> Result<(), PartitionError> {
        may_go(&self.members, server)?;
        self.points.retain(|_, other| *other != server);
        self.members.remove(&server);
        self.arcs = owned(&self.points)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_position_is_owned_by_the_first_point_at_or_after_it(servers in 1u32..20, nodes in 1u32..8, position: u64) {
            let servers: Vec<_> = (1..=servers).map(ServerId).collect();
            let parameters = Parameters { virtual_nodes: nodes, ..Parameters::default() };
            let ring = Ring::new(&servers, &parameters).unwrap();
            let by_scan = ring.points().find(|(point, _)| point.0 >= position).or_else(|| ring.points().next());
            prop_assert_eq!(ring.arcs().owner(Position(position)), by_scan.unwrap().1);
        }

        #[test]
        fn a_join_only_takes_and_a_departure_only_gives(servers in 2u32..20, nodes in 1u32..8) {
            let servers: Vec<_> = (1..=servers).map(ServerId).collect();
            let parameters = Parameters { virtual_nodes: nodes, ..Parameters::default() };
            let mut ring = Ring::new(&servers, &parameters).unwrap();
            let before = ring.arcs().clone();
            ring.join(ServerId(99)).unwrap();
            prop_assert!(before.handovers(ring.arcs()).iter().all(|handover| handover.to == ServerId(99)));
            let among: Vec<_> = servers.iter().copied().chain([ServerId(99)]).collect();
            let made = Ring::new(&among, &parameters).unwrap();
            prop_assert_eq!(ring.arcs(), made.arcs());
            ring.leave(ServerId(99)).unwrap();
            prop_assert_eq!(ring.arcs(), &before);
        }
    }

    #[test]
    fn two_servers_at_one_point_are_refused() {
        let same = [(Position(7), ServerId(1)), (Position(7), ServerId(2))];
        let error = Ring::with_points(&same).unwrap_err();
        assert_eq!(error, PartitionError::SamePoint(ServerId(1), ServerId(2)));
    }
}
