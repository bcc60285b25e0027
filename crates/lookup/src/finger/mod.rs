//! A ring of servers with finger tables: Chord as RDHT-MDSC describes it (sections 3.1 to 3.3).
//!
//! ```text
//! F-PD  PD  server  SC  N-SC      front predecessor, predecessor, successor, next successor
//! finger i: the successor of server + 2^i (SC-F), and its successor
//! ```
//!
//! A server owns what lies after its predecessor, up to itself. A query goes to the finger of the range it lies in; that is its owner, or is at most
//! half as far from it. So on a ring at rest it ends within as many hops as the ring has bits; while tables are wrong it may go astray, and ends by its bound.
//!
//! What RDHT adds: the successor of each finger, so that a query goes around one that is gone; and reconstruction, begun by the successor of the server
//! that failed. The paper lets that server take over on a missed ping alone, which is not safe when the network splits: here the ring only says whom
//! to ask; who may serve is said by tablets and their epochs.

mod client;
mod membership;
mod server;

use bearing_placement::partition::point_of;
use bearing_types::{Position, ServerId};
use std::collections::BTreeMap;
use std::sync::Arc;

pub use client::{FingerClient, RoutingCache};
pub use server::{FingerConfig, FingerServer, Neighbours, Reliability};

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
    /// Where they were put: for the papers' worked rings.
    Given(Arc<BTreeMap<ServerId, Position>>),
}

impl Points {
    /// A server with its place.
    pub fn peer(&self, server: ServerId) -> Peer {
        let at = match self {
            Points::Hashed => point_of(server, 0),
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

/// Between the servers of a ring.
#[derive(Clone, Debug, PartialEq)]
pub enum FingerMessage {
    /// Goes from finger to finger to the owner of a position.
    Find {
        /// The position.
        key: Position,
        /// Who asks.
        asker: Peer,
        /// What for.
        what: Find,
        /// How often it was passed on.
        hops: u8,
    },
    /// To a server that joins: its place. Its neighbours know it already.
    Welcome(Neighbours),
    /// To who asked for a finger: the successor of that position, and the next.
    Found {
        /// The position.
        key: Position,
        /// Its owner.
        owner: Peer,
        /// The owner's successor.
        next: Peer,
    },
    /// Are you there? With the neighbours of who asks, from which the other learns who is next to its own.
    Ping {
        /// The predecessor of who asks.
        pd: Peer,
        /// Its successor.
        sc: Peer,
    },
    /// The answer, with the same about who answers.
    Pong {
        /// The predecessor of who answers.
        pd: Peer,
        /// Its successor.
        sc: Peer,
    },
    /// To a server whose successor is gone, or which has got one: who follows now.
    Follows {
        /// Who is gone; nobody: `sc` has joined.
        gone: Option<ServerId>,
        /// The new successor.
        sc: Peer,
        /// The one after.
        nsc: Peer,
    },
    /// To the successor of a server that goes in order: who precedes now.
    Precedes {
        /// Who goes.
        gone: ServerId,
        /// The new predecessor.
        pd: Peer,
        /// The one before.
        fpd: Peer,
    },
    /// Walks counter-clockwise until met twice: a server has come.
    Joined {
        /// The new server.
        new: Peer,
        /// Its successor.
        next: Peer,
    },
    /// Walks clockwise until met twice: a server is gone.
    Gone {
        /// Who is gone.
        gone: Peer,
        /// Its successor, which has its entries.
        heir: Peer,
        /// The heir's successor.
        next: Peer,
        /// Whether the heir waits for an acknowledgement of this one.
        acknowledge: bool,
    },
    /// To the heir.
    Acknowledged(ServerId),
}

/// What the owner of a position is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    /// Who asks joins right before it.
    Place,
    /// For a finger of who asks.
    Finger,
    /// Its predecessor may have to change fingers, because who asks has joined.
    Update,
}

/// Whether a position lies clockwise after `low`, up to and with `high`. Equal ends: the whole ring.
fn within(position: Position, low: Position, high: Position) -> bool {
    low == high || (low.clockwise_to(position) != 0 && low.clockwise_to(position) <= low.clockwise_to(high))
}

#[cfg(test)]
mod tests;
