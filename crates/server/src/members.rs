//! The servers of a cluster, as their registers have them: those that are there, those that leave, and the
//! numbers of those that were removed.

use crate::cluster::DaemonName;
use bearing_proto::client::{ServerEntry, ServerKind};
use bearing_proto::coordinator::{
    DRAIN_PREFIX, DrainRecord, Register, RegisterError, SERVER_PREFIX, decode_register,
};
use bearing_types::ServerId;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Those that are there.
    pub servers: Vec<ServerEntry>,
    /// Those that leave, or were removed.
    pub drains: Vec<DrainRecord>,
}

impl Members {
    /// From the registers under `SERVERS_PREFIX`.
    pub fn read(registers: &[Register]) -> Result<Members, RegisterError> {
        let mut members = Members::default();
        for register in registers {
            if register.key.starts_with(SERVER_PREFIX) {
                members.servers.push(decode_register(&register.value)?);
            } else if register.key.starts_with(DRAIN_PREFIX) {
                members.drains.push(decode_register(&register.value)?);
            }
        }
        Ok(members)
    }

    /// Those of a kind.
    pub fn of(&self, kind: ServerKind) -> impl Iterator<Item = &ServerEntry> {
        self.servers.iter().filter(move |entry| entry.kind == kind)
    }

    /// What is said of a server that leaves, or was removed.
    pub fn drain(&self, server: ServerId) -> Option<&DrainRecord> {
        self.drains.iter().find(|record| record.server == server)
    }

    /// The number of the next new server of a kind: no number comes back.
    pub fn next_number(&self, kind: ServerKind) -> u32 {
        let known = self.servers.iter().map(|entry| entry.server);
        let all = known.chain(self.drains.iter().map(|record| record.server)).map(DaemonName::of);
        let numbers = all.filter(|name| name.kind == kind).map(|name| name.number);
        numbers.max().map_or(1, |last| last + 1)
    }
}
