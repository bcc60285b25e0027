//! What every partition is, why it does not change as asked, and what all of them check first.

use crate::arcs::Arcs;
use crate::load::Load;
use crate::seat::Seat;
use bearing_routing::Place;
use bearing_types::{Block, NodeId, ParameterError, ServerId};
use std::collections::BTreeSet;
use std::fmt;

/// A way of dividing the ring.
pub trait Partition: fmt::Debug + Send {
    /// Who owns what.
    fn arcs(&self) -> &Arcs;

    /// All members, also those that own nothing yet.
    fn members(&self) -> BTreeSet<ServerId>;

    /// A server comes. Whether it owns anything at once depends on the scheme.
    fn join(&mut self, server: ServerId) -> Result<(), PartitionError>;

    /// A server goes, in order: others take what it has.
    fn leave(&mut self, server: ServerId) -> Result<(), PartitionError>;

    /// A server has failed: others own from now on what it had, with what copies they hold.
    fn fail(&mut self, server: ServerId) -> Result<(), PartitionError> {
        self.leave(server)
    }

    /// A block for a directory that is being made, where the scheme chooses one then: its seat is
    /// [`Seat::child_in`] that block. None: its parent's seat says where it lies ([`Seat::child`]).
    fn choose(&mut self, parent: &Seat, node: NodeId) -> Option<Block> {
        let _ = (parent, node);
        None
    }

    /// Arcs follow the load, where the scheme does that. Tells whether anything changed.
    fn rebalance(&mut self, load: &Load) -> bool {
        let _ = load;
        false
    }
}

/// Why a partition does not change as asked.
#[derive(Clone, Debug, PartialEq)]
pub enum PartitionError {
    /// There is no server to own anything.
    NoServers,
    /// It is a member already.
    Known(ServerId),
    /// It is no member.
    Unknown(ServerId),
    /// Nobody would be left.
    Last(ServerId),
    /// Two servers have the same point on the ring.
    SamePoint(ServerId, ServerId),
    /// The topology has fewer places than there are servers; with how many places and servers.
    NoPlace(usize, usize),
    /// The topology has no place with this number; with how many places it has.
    UnknownPlace(Place, u32),
    /// Another server is plugged in there.
    TakenPlace(Place, ServerId),
    /// Every block that a server could have for itself was given out, also to servers that are gone; with how
    /// many there are.
    NoBlock(usize),
    /// No idle server is left under the same switch, nor anywhere else, to take over.
    NoIdle(ServerId),
    /// A parameter is out of its bounds.
    Parameter(ParameterError),
}

impl fmt::Display for PartitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PartitionError::NoServers => f.write_str("there is no server to own anything; give at least one"),
            PartitionError::Known(server) => write!(f, "server {server} is a member already"),
            PartitionError::Unknown(server) => write!(f, "server {server} is no member"),
            PartitionError::Last(server) => {
                write!(f, "server {server} is the last one; let another join before it goes")
            }
            PartitionError::SamePoint(a, b) => {
                write!(f, "servers {a} and {b} have the same point on the ring; give one of them another id")
            }
            PartitionError::NoPlace(places, servers) => {
                write!(f, "the topology has places for {places} servers, not for {servers}; use a larger one")
            }
            PartitionError::UnknownPlace(place, places) => {
                write!(f, "the topology has no place {}; give 0 to {}", place.0, places.saturating_sub(1))
            }
            PartitionError::TakenPlace(place, server) => {
                write!(f, "place {} is taken by server {server}; give a free one", place.0)
            }
            PartitionError::NoBlock(blocks) => {
                write!(f, "all {blocks} blocks for servers were given out; begin a new cluster")
            }
            PartitionError::NoIdle(server) => {
                write!(f, "no idle server can take over from {server}; add servers")
            }
            PartitionError::Parameter(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PartitionError {}

impl From<ParameterError> for PartitionError {
    fn from(error: ParameterError) -> PartitionError {
        PartitionError::Parameter(error)
    }
}

/// The servers given, each once.
pub(crate) fn distinct(servers: &[ServerId]) -> Result<BTreeSet<ServerId>, PartitionError> {
    let mut members = BTreeSet::new();
    match servers.iter().find(|server| !members.insert(**server)) {
        Some(twice) => Err(PartitionError::Known(*twice)),
        None if members.is_empty() => Err(PartitionError::NoServers),
        None => Ok(members),
    }
}

/// Whether a server may join these members.
pub(crate) fn may_join(members: &BTreeSet<ServerId>, server: ServerId) -> Result<(), PartitionError> {
    if members.contains(&server) { Err(PartitionError::Known(server)) } else { Ok(()) }
}

/// Whether a server may go from these members.
pub(crate) fn may_go(members: &BTreeSet<ServerId>, server: ServerId) -> Result<(), PartitionError> {
    if !members.contains(&server) {
        return Err(PartitionError::Unknown(server));
    }
    if members.len() == 1 { Err(PartitionError::Last(server)) } else { Ok(()) }
}
