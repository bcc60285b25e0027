//! Which hosts there are, and what the coordinator's registers hold at the beginning.

use crate::flow_host::address_of;
use crate::network::HostId;
use bearing_placement::{Assignment, Scheme};
use bearing_proto::client::{FilesystemRecord, ServerEntry, ServerKind};
use bearing_proto::coordinator::{FILESYSTEM_KEY, encode_register, server_key, tablet_key};
use bearing_seams::{Coordinator, MemCoordinator, RegisterChange};
use bearing_types::{FilesystemId, NameKey, NodeId, ServerId};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// The coordinator's id.
pub const COORDINATOR: ServerId = ServerId(1_000_000);
/// The flow server's id.
pub const FLOW: ServerId = ServerId(1_000_001);
/// The coordinator's host.
pub const COORDINATOR_HOST: HostId = HostId(0);
/// Metadata servers.
pub const METADATA: u8 = 5;
/// Data servers; the last one comes later, if at all.
pub const DATA: u8 = 4;
/// Copies of written data.
pub const COPIES: u8 = 2;

const DATA_BASE: u32 = 1_000;

/// What a host does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The coordinator.
    Coordinator,
    /// A metadata server.
    Metadata(ServerId),
    /// A data server.
    Data(ServerId),
    /// A client, by its number.
    Client(u32),
    /// The flow server.
    Flow,
}

/// The hosts of a run.
#[derive(Clone, Copy, Debug)]
pub struct Hosts {
    /// How many clients.
    pub clients: u8,
}

impl Hosts {
    /// How many hosts.
    pub fn count(self) -> usize {
        usize::from(1 + METADATA + DATA + self.clients + 1)
    }

    /// All of them.
    pub fn all(self) -> impl Iterator<Item = HostId> {
        (0..self.count() as u8).map(HostId)
    }

    /// What a host does.
    pub fn role(self, host: HostId) -> Role {
        match host.0 {
            0 => Role::Coordinator,
            number if number <= METADATA => Role::Metadata(ServerId(u32::from(number))),
            number if number <= METADATA + DATA => {
                Role::Data(ServerId(DATA_BASE + u32::from(number - METADATA)))
            }
            number if number <= METADATA + DATA + self.clients => {
                Role::Client(u32::from(number - METADATA - DATA - 1))
            }
            _ => Role::Flow,
        }
    }

    /// Where a server runs.
    pub fn host_of(self, server: ServerId) -> Option<HostId> {
        self.all().find(|host| match self.role(*host) {
            Role::Coordinator => server == COORDINATOR,
            Role::Metadata(id) | Role::Data(id) => id == server,
            Role::Flow => server == FLOW,
            Role::Client(_) => false,
        })
    }

    /// The hosts of metadata servers.
    pub fn metadata(self) -> impl Iterator<Item = HostId> {
        (1..=METADATA).map(HostId)
    }

    /// The hosts of data servers.
    pub fn data(self) -> impl Iterator<Item = HostId> {
        (METADATA + 1..=METADATA + DATA).map(HostId)
    }

    /// The hosts of clients.
    pub fn clients(self) -> impl Iterator<Item = HostId> {
        (METADATA + DATA + 1..1 + METADATA + DATA + self.clients).map(HostId)
    }

    /// The host of the flow server.
    pub fn flow(self) -> HostId {
        HostId(1 + METADATA + DATA + self.clients)
    }

    /// How a server is registered.
    pub fn entry(self, host: HostId) -> Option<ServerEntry> {
        let (server, kind) = match self.role(host) {
            Role::Metadata(server) => (server, ServerKind::Metadata),
            Role::Data(server) => (server, ServerKind::Data),
            Role::Flow => (FLOW, ServerKind::Flow),
            Role::Coordinator | Role::Client(_) => return None,
        };
        let address = SocketAddr::from((address_of(host), 9000));
        Some(ServerEntry { server, kind, address })
    }

    /// A new cluster's registers, without servers that are to come later.
    pub fn registers(
        self,
        scheme: Scheme,
        (tablet_bits, copies): (u8, u8),
        name_key: NameKey,
        absent: &BTreeSet<HostId>,
    ) -> MemCoordinator {
        let mut coordinator = MemCoordinator::new();
        let mut put = |key: &str, value: Vec<u8>| {
            let change = RegisterChange::new(key, None, Some(value));
            coordinator.swap(&[change]).expect("registers in memory do not fail");
        };
        let mut owners = Vec::new();
        for host in
            self.metadata().chain(self.data()).chain([self.flow()]).filter(|host| !absent.contains(host))
        {
            let Some(entry) = self.entry(host) else { continue };
            if entry.kind == ServerKind::Metadata {
                owners.push(entry.server);
            }
            put(&server_key(entry.server), encode_register(&entry));
        }
        let assignment =
            Assignment::even(&owners, tablet_bits, usize::from(copies)).expect("a few servers and tablets");
        for tablet in assignment.tablets() {
            put(&tablet_key(tablet.block), encode_register(tablet));
        }
        let filesystem = FilesystemRecord {
            filesystem: FilesystemId(1),
            name_key,
            scheme,
            root: NodeId::ROOT,
            data_copies: COPIES,
            metadata_copies: copies,
        };
        put(FILESYSTEM_KEY, encode_register(&filesystem));
        coordinator
    }
}
