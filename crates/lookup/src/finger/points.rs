//! Where servers stand on the ring.

use bearing_placement::Arcs;
use bearing_placement::partition::point_of;
use bearing_types::{Position, ServerId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A server and its place on the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    /// Its place.
    pub at: Position,
    /// The server.
    pub server: ServerId,
}

/// Where servers stand on the ring.
#[derive(Clone, Debug)]
pub enum Points {
    /// By the hash of their ids.
    Hashed,
    /// By their ids, which are dense: neighbours on the ring are neighbours by id, and with fingers over 32
    /// bits the finger 2^i is the server whose id is higher by that.
    Numbered,
    /// Where they were put: for the papers' worked rings.
    Given(Arc<BTreeMap<ServerId, Position>>),
}

impl Points {
    /// Where servers stand that have one arc each: at its end.
    pub fn of(arcs: &Arcs) -> Points {
        let ends = arcs.arcs().into_iter().map(|(arc, owner)| (owner, Position(arc.end.0.wrapping_sub(1))));
        Points::Given(Arc::new(ends.collect()))
    }

    /// A server with its place.
    pub fn peer(&self, server: ServerId) -> Peer {
        let at = match self {
            Points::Hashed => point_of(server, 0),
            Points::Numbered => Position(u64::from(server.0) << 32),
            Points::Given(points) => points.get(&server).copied().unwrap_or_else(|| point_of(server, 0)),
        };
        Peer { at, server }
    }

    /// These servers in the order of their places.
    pub fn ring(&self, servers: &[ServerId]) -> Vec<Peer> {
        let mut ring: Vec<Peer> = servers.iter().map(|server| self.peer(*server)).collect();
        ring.sort();
        ring
    }
}

/// Whether a position lies clockwise after `low`, up to and with `high`. Equal ends: the whole ring.
pub(super) fn within(position: Position, low: Position, high: Position) -> bool {
    low == high || (low.clockwise_to(position) != 0 && low.clockwise_to(position) <= low.clockwise_to(high))
}
