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
    /// LC-RIC: a query goes to the server that owns its position, if one met so far is known to; else to the
    /// last one before it, the relay among them, which is nearer than the relay. Never refreshed: a server is
    /// learnt when it answers, and forgotten when it cannot be reached.
    Lazy,
}

/// Servers that a client remembers at most.
const CACHE_SERVERS_MAX: usize = 65_536;

/// A server that has answered.
#[derive(Clone, Copy, Debug)]
struct Met {
    server: ServerId,
    /// The farthest position before the server that it has answered for: what lies between is its own too.
    from: Position,
}

/// See the module.
#[derive(Debug)]
pub struct FingerClient {
    /// Servers that answered the discovery broadcast, the fastest first: the first is the relay.
    known: Vec<ServerId>,
    /// Where they stand.
    cache: Option<BTreeMap<Position, Met>>,
    points: Points,
}

impl FingerClient {
    /// Passes: the bits of the ring for the way, and as many again for servers that vanish meanwhile.
    pub const HOPS_MAX: u8 = 128;

    /// A client that has discovered these servers, the fastest first.
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

    /// Who is asked for a position.
    pub fn locate(&self, position: Position) -> Option<ServerId> {
        let relay = self.known.first().copied();
        let Some(cache) = self.cache.as_ref().filter(|cache| !cache.is_empty()) else { return relay };
        let (at, next) = cache.range(position..).next().or_else(|| cache.first_key_value())?;
        if next.from.clockwise_to(position) <= next.from.clockwise_to(*at) {
            return Some(next.server);
        }
        // One behind the position would send the query around the whole ring.
        let (at, last) = cache.range(..position).next_back().or_else(|| cache.last_key_value())?;
        let before = Peer { at: *at, server: last.server };
        let candidates = relay.map(|relay| self.points.peer(relay)).into_iter().chain([before]);
        candidates.min_by_key(|peer| peer.at.clockwise_to(position)).map(|peer| peer.server)
    }

    fn learn(&mut self, server: ServerId, position: Position) {
        let Peer { at, server } = self.points.peer(server);
        let Some(cache) = &mut self.cache else { return };
        if cache.len() >= CACHE_SERVERS_MAX && !cache.contains_key(&at) {
            return;
        }
        let met = cache.entry(at).or_insert(Met { server, from: position });
        if met.from.clockwise_to(at) < position.clockwise_to(at) {
            met.from = position;
        }
    }

    fn forget(&mut self, server: ServerId) {
        if let Some(cache) = &mut self.cache {
            cache.retain(|_, met| met.server != server);
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
            Event::Served(query, server) => self.learn(server, query.target.position),
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
        // Id and address of each server, as the paper keeps them, and from where on it is the owner.
        self.cached() * (2 * size_of::<Position>() + size_of::<ServerId>() + 6)
    }
}
