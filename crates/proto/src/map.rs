//! The map: who is there, and who owns what.

use bearing_placement::Assignment;
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
}
