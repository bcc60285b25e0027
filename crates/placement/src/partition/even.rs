//! Equal arcs in the order of ids, recomputed whenever a server comes or goes (`hash`, `central`): perfect
//! shares, and most of the ring moves.

use super::contract::{Partition, PartitionError, distinct, may_go, may_join};
use crate::arcs::Arcs;
use bearing_types::ServerId;
use std::collections::BTreeSet;

/// See the module.
#[derive(Clone, Debug)]
pub struct Even {
    members: BTreeSet<ServerId>,
    arcs: Arcs,
}

impl Even {
    /// Equal arcs for these servers.
    pub fn new(servers: &[ServerId]) -> Result<Even, PartitionError> {
        let members = distinct(servers)?;
        Ok(Even { arcs: divided(&members)?, members })
    }
}

fn divided(members: &BTreeSet<ServerId>) -> Result<Arcs, PartitionError> {
    let servers: Vec<ServerId> = members.iter().copied().collect();
    Arcs::even(&servers).map_err(|_| PartitionError::NoServers)
}

impl Partition for Even {
    fn arcs(&self) -> &Arcs {
        &self.arcs
    }

    fn members(&self) -> BTreeSet<ServerId> {
        self.members.clone()
    }

    fn join(&mut self, server: ServerId) -> Result<(), PartitionError> {
        may_join(&self.members, server)?;
        self.members.insert(server);
        self.arcs = divided(&self.members)?;
        Ok(())
    }

    fn leave(&mut self, server: ServerId) -> Result<(), PartitionError> {
        may_go(&self.members, server)?;
        self.members.remove(&server);
        self.arcs = divided(&self.members)?;
        Ok(())
    }
}
