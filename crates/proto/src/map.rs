//! The map: who is there, and who owns what.

use crate::prefix::Prefix;
use bearing_placement::{Assignment, LookupKind};
use bearing_types::{MapVersion, ServerId};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// One server in the map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerEntry {
    /// The server.
    pub server: ServerId,
    /// What it does.
    pub kind: ServerKind,
    /// Where it listens, by datagram and by stream.
    pub address: SocketAddr,
}

/// What a server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ServerKind {
    /// Metadata.
    Metadata,
    /// Data.
    Data,
    /// The coordinator.
    Coordinator,
    /// Flows: advises who reads.
    Flow,
}

/// The map of tablets and servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterMap {
    /// Its version.
    pub version: MapVersion,
    /// Who owns what.
    pub assignment: Assignment,
    /// Where everybody is.
    pub servers: Vec<ServerEntry>,
    /// Whom clients ask first.
    pub lookup: LookupKind,
    /// Where the network carries requests to, if it does.
    pub prefix: Option<Prefix>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_placement::Tablet;
    use bearing_types::{Block, Epoch, LogIndex, Position, TabletSerial};
    use std::collections::BTreeMap;

    fn tablet(block: Block, owner: u32, replica: u32) -> (Position, Tablet) {
        let (owner, members) = (ServerId(owner), vec![ServerId(replica)]);
        let serial = TabletSerial::of_first(block).unwrap();
        (
            block.start(),
            Tablet {
                block,
                serial,
                epoch: Epoch(1),
                owner,
                members,
                learner: None,
                committed: LogIndex::ZERO,
            },
        )
    }

    fn decode(tablets: Vec<(Position, Tablet)>) -> Result<Assignment, postcard::Error> {
        let listed: BTreeMap<Position, Tablet> = tablets.into_iter().collect();
        postcard::from_bytes(&postcard::to_stdvec(&listed).unwrap())
    }

    #[test]
    fn an_assignment_that_does_not_cover_the_ring_once_is_not_decoded() {
        let (low, high) = Block::RING.halves().unwrap();
        let whole = decode(vec![tablet(low, 1, 1), tablet(high, 2, 2)]).unwrap();
        assert_eq!(whole, Assignment::even(&[ServerId(1), ServerId(2)], 1, 1).unwrap());
        assert!(decode(vec![]).is_err());
        assert!(decode(vec![tablet(low, 1, 1)]).is_err(), "a gap");
        assert!(decode(vec![tablet(Block::RING, 1, 1), tablet(high, 2, 2)]).is_err(), "an overlap");
        assert!(decode(vec![tablet(Block::RING, 1, 2)]).is_err(), "an owner without the log");
        let (_, misplaced) = tablet(Block::RING, 1, 1);
        assert!(decode(vec![(high.start(), misplaced)]).is_err(), "under another position");
    }
}
