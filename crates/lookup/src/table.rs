//! Lookups by a table: the client's map of tablets or subtrees, corrected by referrals (`client-map`,
//! `subtree-table`); the client's own computation from the list of servers (`computed`); a coordinator that
//! is asked first (`coordinator`); any server, because all know all (`all-know-all`).
//!
//! Invariants: a server serves what the newest assignment that it heard of gives it, and refers all else.
//! Referrals are learnt under their epochs, so an old one never undoes a newer.

use crate::client_map::ClientMap;
use crate::machine::{Command, Event, Machine, pass};
use crate::map::Map;
use crate::query::Query;
use crate::tablet_index::Located;
use bearing_types::{Mono, ServerId};
use std::sync::Arc;

/// Where a client asks first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskFirst {
    /// Whoever its own map names.
    Owner,
    /// This server, which passes the query on: a coordinator.
    Server(ServerId),
    /// Any of these, in turns: all of them know all.
    Any(Arc<[ServerId]>),
}

/// A client with a map of tablets.
#[derive(Debug)]
pub struct TableClient {
    first: AskFirst,
    map: Option<Arc<Map>>,
    /// What referrals taught since: counts where its epoch is higher than the map's.
    learnt: ClientMap,
    /// Servers that could not be reached since the last whole map, newest last; at most [`GONE_MAX`].
    gone: Vec<ServerId>,
}

/// So many servers are remembered as unreachable.
const GONE_MAX: usize = 16;

impl TableClient {
    /// Passes: to who is asked first, on from there, and twice more when that one referred or could not be
    /// reached.
    pub const HOPS_MAX: u8 = 6;

    /// A client that knows nothing yet.
    pub fn new(first: AskFirst) -> TableClient {
        TableClient { first, map: None, learnt: ClientMap::new(), gone: Vec::new() }
    }

    /// Who is believed to own a position: no message, no copy.
    pub fn locate(&self, query: &Query) -> Option<ServerId> {
        let position = query.target.position;
        let by_map = self.map.as_ref().map(|map| map.at(position));
        let learnt = self
            .learnt
            .locate(position)
            .filter(|learnt| by_map.is_none_or(|known| known.epoch < learnt.epoch));
        learnt.or(by_map).map(|located| located.owner)
    }

    /// Whom to try: the owner as believed; if that one is gone, the replicas, which know or have become the
    /// owner. Not who has just referred the query.
    fn candidate(&self, query: &Query, refused: Option<ServerId>) -> Option<ServerId> {
        let there = |server: &ServerId| !self.gone.contains(server) && Some(*server) != refused;
        let owner = self.locate(query).filter(there);
        owner.or_else(|| {
            let tablet = self.map.as_ref()?.assignment().tablet_at(query.target.position);
            let replica = tablet.members.iter().find(|member| there(member));
            // Nobody has a copy: any server that is there may know of a newer map.
            let anybody = || {
                let owners = self.map.as_ref()?.assignment().tablets().map(|tablet| tablet.owner);
                let others: Vec<ServerId> = owners.filter(there).collect();
                others.get(query.hops as usize % others.len().max(1)).copied()
            };
            replica.copied().or_else(anybody)
        })
    }

    fn begin(&self, query: &Query) -> Option<ServerId> {
        let first = match &self.first {
            AskFirst::Owner => None,
            AskFirst::Server(server) => Some(*server),
            AskFirst::Any(servers) => servers.get(query.id.0 as usize % servers.len().max(1)).copied(),
        };
        first.filter(|first| !self.gone.contains(first)).or_else(|| self.candidate(query, None))
    }

    fn is_there(&mut self, server: ServerId) {
        self.gone.retain(|gone| *gone != server);
    }
}

impl Machine for TableClient {
    fn step(&mut self, _now: Mono, event: Event, out: &mut Vec<Command>) {
        match event {
            Event::Query(query) => pass(query, self.begin(&query), TableClient::HOPS_MAX, out),
            Event::Referred(query, by, hint) => {
                self.is_there(by);
                if let Some(located) = hint {
                    // Who is named may be back.
                    self.is_there(located.owner);
                    self.learnt.learn(located);
                }
                pass(query, self.candidate(&query, Some(by)), TableClient::HOPS_MAX, out);
            }
            Event::Unreachable(server, query) => {
                if !self.gone.contains(&server) {
                    if self.gone.len() == GONE_MAX {
                        self.gone.remove(0);
                    }
                    self.gone.push(server);
                }
                if let Some(query) = query {
                    pass(query, self.candidate(&query, None), TableClient::HOPS_MAX, out);
                }
            }
            Event::Map(map) => {
                if self.map.as_ref().is_none_or(|known| known.version() < map.version()) {
                    self.gone.clear();
                    self.learnt.retain(|learnt| map.at(learnt.block.start()).epoch < learnt.epoch);
                    self.map = Some(map);
                }
            }
            Event::Served(_, server) => self.is_there(server),
            Event::Message(..) | Event::Stored(_) | Event::Removed(_) => {}
            Event::Checked(..) | Event::Join(_) | Event::Leave | Event::Wake => {}
        }
    }

    fn table_bytes(&self) -> usize {
        self.map.as_ref().map_or(0, |map| map.bytes()) + self.learnt.bytes()
    }
}

/// A server (or a coordinator) that knows the assignment.
#[derive(Debug)]
pub struct TableServer {
    id: ServerId,
    /// Whether it passes on what is not its own, or refers the client.
    passes: bool,
    newest: Option<Arc<Map>>,
}

impl TableServer {
    /// A server that refers clients to the owner.
    pub fn referring(id: ServerId) -> TableServer {
        TableServer { id, passes: false, newest: None }
    }

    /// One that passes queries on to the owner: a coordinator, or a server that knows all.
    pub fn passing(id: ServerId) -> TableServer {
        TableServer { id, passes: true, newest: None }
    }

    fn located(&self, query: &Query) -> Option<Located> {
        self.newest.as_ref().map(|map| map.at(query.target.position))
    }
}

impl Machine for TableServer {
    fn step(&mut self, _now: Mono, event: Event, out: &mut Vec<Command>) {
        match event {
            Event::Query(query) => match self.located(&query) {
                Some(located) if located.owner == self.id => out.push(Command::Serve(query)),
                Some(located) if self.passes => {
                    pass(query, Some(located.owner), TableClient::HOPS_MAX, out);
                }
                hint => out.push(Command::Refer(query, hint)),
            },
            // Passed on to one that is gone: the client tries others.
            Event::Unreachable(_, Some(query)) => out.push(Command::Refer(query, None)),
            Event::Map(map) => {
                if self.newest.as_ref().is_none_or(|known| known.version() < map.version()) {
                    self.newest = Some(map);
                }
            }
            Event::Unreachable(_, None) | Event::Served(..) | Event::Referred(..) | Event::Message(..) => {}
            Event::Stored(_) | Event::Removed(_) | Event::Checked(..) => {}
            Event::Join(_) | Event::Leave | Event::Wake => {}
        }
    }

    fn table_bytes(&self) -> usize {
        self.newest.as_ref().map_or(0, |map| map.bytes())
    }
}

/// A client whose network knows the way (`in-network`): it keeps no table at all.
#[derive(Debug, Default)]
pub struct NetworkClient {
    /// What referrals taught, for positions whose way in the network is not right yet.
    map: ClientMap,
}

impl NetworkClient {
    /// Passes: into the network, and three more when that led astray.
    pub const HOPS_MAX: u8 = 4;

    /// A client.
    pub fn new() -> NetworkClient {
        NetworkClient::default()
    }
}

impl Machine for NetworkClient {
    fn step(&mut self, _now: Mono, event: Event, out: &mut Vec<Command>) {
        match event {
            Event::Query(query) => out.push(Command::Carry(query.passed())),
            Event::Referred(query, _, Some(located)) => {
                self.map.learn(located);
                let owner = self.map.locate(query.target.position).map(|located| located.owner);
                pass(query, owner, NetworkClient::HOPS_MAX, out);
            }
            // The network is told of failures by others: the query goes the same way again.
            Event::Referred(query, _, None) | Event::Unreachable(_, Some(query)) => {
                out.push(if query.hops >= NetworkClient::HOPS_MAX {
                    Command::Fail(query, crate::LookupError::TooManyHops(query.hops))
                } else {
                    Command::Carry(query.passed())
                });
            }
            Event::Unreachable(_, None) | Event::Served(..) | Event::Message(..) | Event::Map(..) => {}
            Event::Stored(_) | Event::Removed(_) | Event::Checked(..) => {}
            Event::Join(_) | Event::Leave | Event::Wake => {}
        }
    }

    fn table_bytes(&self) -> usize {
        self.map.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::{FileKey, QueryId, Target};
    use bearing_types::{Block, Epoch, Position};

    #[test]
    fn what_referrals_taught_is_counted() {
        let mut client = TableClient::new(AskFirst::Owner);
        let query = Query::new(QueryId(1), Target { position: Position(0), file: FileKey(0) });
        for number in 0..256 {
            let block = Block::RING.sub_block(8, number);
            let hint = Located { block, epoch: Epoch(1), owner: ServerId(2) };
            client.step(Mono::ZERO, Event::Referred(query, ServerId(1), Some(hint)), &mut Vec::new());
        }
        assert!(client.table_bytes() >= 256 * size_of::<Located>(), "{}", client.table_bytes());
    }
}
