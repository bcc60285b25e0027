//! Whom a server passes requests on to that it does not own: what the cluster's lookup says, by the machine
//! that the lab judges too.
//!
//! Invariants: a lookup only says whom to ask first. What it takes for this server's goes to
//! [`crate::MetaServer`], which decides, and refers what is not its own. Nothing of a request is changed.

use bearing_lookup::{Command, Event, FileKey, Lookup, Machine, Query, QueryId, Target, Trail};
use bearing_placement::{Assignment, LookupKind};
use bearing_proto::client::{Call, Request};
use bearing_types::{MapVersion, Mono, ServerId};
use std::sync::Arc;

/// Where a request goes on to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// To whom.
    pub server: ServerId,
    /// How often it was passed on then.
    pub hops: u8,
    /// What the machines of the lookup noted.
    pub trail: Trail,
}

/// See the module.
#[derive(Debug)]
pub struct Relays {
    machine: Box<dyn Machine>,
    version: Option<MapVersion>,
    asked: u64,
    out: Vec<Command>,
}

impl Relays {
    /// Of a server in a cluster with this lookup; `None` if clients ask owners themselves.
    pub fn new(me: ServerId, lookup: LookupKind) -> Option<Relays> {
        let machine = Lookup::relay(lookup, me)?;
        Some(Relays { machine, version: None, asked: 0, out: Vec::new() })
    }

    /// Takes the newest assignment.
    pub fn learn(&mut self, now: Mono, version: MapVersion, assignment: &Assignment) {
        if self.version != Some(version) {
            self.version = Some(version);
            self.machine.step(now, Event::Map(version, Arc::new(assignment.clone())), &mut self.out);
            self.out.clear();
        }
    }

    /// Where a request goes on to that came so far. `None`: it is decided, or referred, here.
    pub fn next_hop(&mut self, now: Mono, request: &Request, hops: u8, trail: Trail) -> Option<Hop> {
        // Others are answered by any server.
        if matches!(request.call, Call::Map { .. } | Call::Statfs | Call::Describe(_)) {
            return None;
        }
        self.asked += 1;
        let target = Target { position: request.position, file: FileKey(0) };
        let query = Query { hops, trail, ..Query::new(QueryId(self.asked), target) };
        self.machine.step(now, Event::Query(query), &mut self.out);
        self.out.drain(..).find_map(|command| match command {
            Command::Pass(server, Query { hops, trail, .. }) => Some(Hop { server, hops, trail }),
            Command::Serve(_)
            | Command::Refer(..)
            | Command::Fail(..)
            | Command::Carry(_)
            | Command::Send(..)
            | Command::Check(_) => None,
        })
    }
}
