//! Maps of tablets and servers: fetched when one is wanted, with a pause between two.

use crate::context::{Context, State};
use crate::event::{Command, Note};
use bearing_proto::client::{Body, Call, ClusterMap};

impl State {
    /// Whether somebody has to start fetching a map now.
    pub fn begin_fetching_map(&mut self) -> bool {
        self.session.over().is_none() && self.routes.begin_fetching()
    }

    fn on_map(&mut self, map: ClusterMap) {
        self.io.counters.maps += 1;
        let (version, prefix) = (map.version, map.prefix);
        if let Some(servers) = self.routes.on_map(self.io.now.mono, map) {
            self.flow.on_servers(&servers, &mut self.io);
            self.io.out.push(Command::Servers(servers, prefix));
            self.io.note(Note::MapTaken(version));
        }
        self.requests.on_map(&self.routes);
    }
}

impl Context {
    /// Fetches maps as long as they are wanted.
    pub async fn fetch_maps(self) {
        loop {
            let have = self.with(|state| state.routes.ask());
            let answered = self.call_anybody(Call::Map { have }).await;
            self.with(|state| match answered.map(|answered| answered.body) {
                Ok(Body::Map(Some(map))) => state.on_map(*map),
                Ok(Body::Map(None)) => {}
                Ok(_) => drop(state.io.unexpected()),
                Err(_) => state.routes.on_failure(),
            });
            let pause = self.with(|state| state.io.config.map_interval);
            self.sleep(pause).await;
            if !self.with(|state| state.routes.goes_on(state.session.over().is_some())) {
                return;
            }
        }
    }
}
