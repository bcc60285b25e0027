//! Whom to ask: the map of tablets and servers, and when a newer one is fetched.

use crate::event::{Command, Note};
use crate::hub::{Hub, State};
use crate::random::Random;
use crate::session::Phase;
use bearing_lookup::{ClientMap, Located};
use bearing_proto::client::{Body, Call, ClusterMap, ServerKind};
use bearing_types::{Position, ServerId};

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

    pub fn learn(&mut self, located: Located) {
        self.map.learn(located);
    }

    /// Whether a map was ever taken.
    pub fn is_known(&self) -> bool {
        self.map.version().is_some()
    }

    pub fn some_metadata_server(&self, random: &mut Random) -> Option<ServerId> {
        (!self.metadata_servers.is_empty())
            .then(|| self.metadata_servers[random.below(self.metadata_servers.len())])
    }
}

impl State {
    /// Has a newer map fetched, soon and not too often. `whole`: although the version may be the same.
    pub fn want_map(&mut self, whole: bool) {
        self.routes.wanted = true;
        self.routes.whole |= whole;
    }

    /// Whether somebody has to start fetching now.
    pub fn begin_fetching_map(&mut self) -> bool {
        let starts =
            self.routes.wanted && !self.routes.fetching && !matches!(self.session.phase(), Phase::Over(_));
        self.routes.fetching |= starts;
        starts
    }

    fn take_map(&mut self, map: ClusterMap) {
        self.counters.maps += 1;
        let newer = self.routes.map.version().is_none_or(|known| known < map.version);
        self.routes.map.replace(map.version, &map.assignment);
        if newer {
            let is_metadata = |entry: &&_| entry_kind(entry) == ServerKind::Metadata;
            self.routes.metadata_servers =
                map.servers.iter().filter(is_metadata).map(|entry| entry.server).collect();
            self.out.push(Command::Servers(map.servers));
            self.out.push(Command::Note(Note::MapTaken(map.version)));
        }
        self.map_came();
    }
}

fn entry_kind(entry: &bearing_proto::client::ServerEntry) -> ServerKind {
    entry.kind
}

impl Hub {
    /// Fetches maps as long as they are wanted, with a pause between two.
    pub async fn fetch_maps(self) {
        loop {
            let have = self.with(|state| {
                state.routes.wanted = false;
                let whole = std::mem::take(&mut state.routes.whole);
                state.routes.map.version().filter(|_| !whole)
            });
            let answered = self.call_anybody(Call::Map { have }).await;
            self.with(|state| match answered {
                Ok(answered) => match answered.body {
                    Body::Map(Some(map)) => state.take_map(*map),
                    Body::Map(None) => {}
                    _ => state.counters.unexpected += 1,
                },
                Err(_) => state.routes.wanted |= !state.routes.is_known(),
            });
            let pause = self.with(|state| state.config.map_pause);
            self.sleep(pause).await;
            let goes_on = self.with(|state| {
                let over = matches!(state.session.phase(), Phase::Over(_));
                state.routes.fetching = state.routes.wanted && !over;
                state.routes.fetching
            });
            if !goes_on {
                return;
            }
        }
    }
}
