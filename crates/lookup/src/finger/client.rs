//! The client of a ring: a relay that routes for it, and LC-RIC, the lazy cache of servers it has met
//! (RDHT-MDSC section 3.2).

use super::points::{Peer, Points};
use crate::machine::{Command, Event, Machine, pass};
use crate::query::Query;
use bearing_types::{Mono, Position, ServerId};
use std::collections::BTreeMap;

/// Whether the client remembers servers that answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutingCache {
    /// All queries go to the relay (Chord).
    Off,
    /// LC-RIC: a query goes to the server that would own it among those met so far. Never refreshed: a server
    /// is learnt when it answers, and forgotten when it cannot be reached.
    Lazy,
}

/// Servers that a client remembers at most.
const CACHE_SERVERS_MAX: usize = 65_536;

/// See the module.
#[derive(Debug)]
pub struct FingerClient {
    /// Servers that answered the discovery broadcast, the fastest first: the first is the relay.
    known: Vec<ServerId>,
    cache: Option<BTreeMap<Position, ServerId>>,
    points: Points,
}

impl FingerClient {
    /// Passes: the bits of the ring for the way, and as many again for servers that vanish meanwhile.
    pub const HOPS_MAX: u8 = 128;

    /// A client that has discovered these servers.
    pub fn new(known: &[ServerId], cache: RoutingCache, points: Points) -> FingerClient {
        let cache = match cache {
            RoutingCache::Off => None,
            RoutingCache::Lazy => Some(BTreeMap::new()),
        };
        FingerClient { known: known.to_vec(), cache, points }
    }

    /// How many servers are remembered.
    pub fn cached(&self) -> usize {
        self.cache.as_ref().map_or(0, BTreeMap::len)
    }

    /// Who would own a position if there were only the servers met so far; without any, the relay.
    pub fn locate(&self, position: Position) -> Option<ServerId> {
        let cached = self.cache.as_ref().and_then(|cache| {
            let (_, server) = cache.range(position..).next().or_else(|| cache.first_key_value())?;
            Some(*server)
        });
        cached.or_else(|| self.known.first().copied())
    }

    fn learn(&mut self, server: ServerId) {
        let Peer { at, server } = self.points.peer(server);
        if let Some(cache) = self.cache.as_mut().filter(|cache| cache.len() < CACHE_SERVERS_MAX) {
            cache.insert(at, server);
        }
    }

    fn forget(&mut self, server: ServerId) {
        if let Some(cache) = &mut self.cache {
            cache.retain(|_, cached| *cached != server);
        }
        // To the end, not away: it may come back, and somebody has to be asked.
        if let Some(index) = self.known.iter().position(|known| *known == server) {
            self.known[index..].rotate_left(1);
        }
    }

    fn send(&self, query: Query, out: &mut Vec<Command>) {
        pass(query, self.locate(query.target.position), FingerClient::HOPS_MAX, out);
    }
}

impl Machine for FingerClient {
    fn step(&mut self, _now: Mono, event: Event, out: &mut Vec<Command>) {
        match event {
            Event::Query(query) => self.send(query, out),
            Event::Served(_, server) => self.learn(server),
            Event::Unreachable(server, query) => {
                self.forget(server);
                query.into_iter().for_each(|query| self.send(query, out));
            }
            // The ring mends itself meanwhile: another way in.
            Event::Referred(query, server, _) => {
                self.forget(server);
                self.send(query, out);
            }
            Event::Message(..) | Event::Map(..) | Event::Stored(_) | Event::Removed(_) => {}
            Event::Checked(..) | Event::Join(_) | Event::Leave | Event::Wake => {}
        }
    }

    fn table_bytes(&self) -> usize {
        // Id and address of each server, as the paper keeps them.
        self.cached() * (size_of::<Position>() + size_of::<ServerId>() + 6)
    }
}
