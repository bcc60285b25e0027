//! Whom to ask: the map of tablets and servers, and when a newer one is fetched.

use crate::run::Random;
use bearing_lookup::{ClientMap, Located};
use bearing_proto::client::{ClusterMap, ServerEntry, ServerKind};
use bearing_types::{MapVersion, Position, ServerId};

/// See the module.
pub(crate) struct Routes {
    map: ClientMap,
    metadata_servers: Vec<ServerId>,
    fetching: bool,
    wanted: bool,
    /// Some position is known to nobody here: the whole map is asked for, whatever version we have.
    whole: bool,
}

impl Routes {
    pub fn new() -> Routes {
        Routes {
            map: ClientMap::new(),
            metadata_servers: Vec::new(),
            fetching: false,
            wanted: false,
            whole: false,
        }
    }

    pub fn locate(&self, position: Position) -> Option<Located> {
        self.map.locate(position)
    }

    /// Takes what a server says of a tablet; whether that is news.
    pub fn learn(&mut self, located: Located) -> bool {
        self.map.learn(located)
    }

    /// So many metadata servers that follow another one on the ring, after those that come first: they may
    /// have taken over what that one owned.
    pub fn successors(&self, of: ServerId, after: usize, count: usize) -> Vec<ServerId> {
        let servers = &self.metadata_servers;
        let Some(place) = servers.iter().position(|server| *server == of) else { return Vec::new() };
        let others = servers.len() - 1;
        let places = (after..after + count.min(others)).map(|behind| 1 + behind % others);
        places.map(|behind| servers[(place + behind) % servers.len()]).collect()
    }

    pub fn some_metadata_server(&self, random: &mut Random) -> Option<ServerId> {
        (!self.metadata_servers.is_empty())
            .then(|| self.metadata_servers[random.below(self.metadata_servers.len())])
    }

    /// Has a newer map fetched, soon and not too often. `whole`: although the version may be the same.
    pub fn want_map(&mut self, whole: bool) {
        self.wanted = true;
        self.whole |= whole;
    }

    /// Whether somebody has to start fetching now.
    pub fn begin_fetching(&mut self) -> bool {
        let starts = self.wanted && !self.fetching;
        self.fetching |= starts;
        starts
    }

    /// A map is asked for: the version that is here, unless all of it is wanted.
    pub fn ask(&mut self) -> Option<MapVersion> {
        self.wanted = false;
        let whole = std::mem::take(&mut self.whole);
        self.map.version().filter(|_| !whole)
    }

    /// No map came. It is wanted still if there is none.
    pub fn on_failure(&mut self) {
        self.wanted |= self.map.version().is_none();
    }

    /// A pause after a map is over. Whether another one is fetched.
    pub fn goes_on(&mut self, over: bool) -> bool {
        self.fetching = self.wanted && !over;
        self.fetching
    }

    /// A map came. Gives its servers if it is a newer one.
    pub fn on_map(&mut self, map: ClusterMap) -> Option<Vec<ServerEntry>> {
        let newer = self.map.version().is_none_or(|known| known < map.version);
        self.map.replace(map.version, &map.assignment);
        if newer {
            let metadata = map.servers.iter().filter(|entry| entry.kind == ServerKind::Metadata);
            self.metadata_servers = metadata.map(|entry| entry.server).collect();
            self.metadata_servers.sort_unstable();
        }
        newer.then_some(map.servers)
    }
}
