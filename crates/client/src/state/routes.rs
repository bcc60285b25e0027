//! Whom to ask: the map of tablets and servers, and when a newer one is fetched.

use crate::event::Target;
use crate::run::Random;
use bearing_lookup::{self as lookup, ClientMap, FileKey, Located, Lookup, Query, QueryId};
use bearing_placement::{Assignment, LookupKind};
use bearing_proto::client::{ClusterMap, ServerEntry, ServerKind};
use bearing_types::{MapVersion, Mono, Position, Sequence, ServerId};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Servers behind a silent one on the ring that are asked at a time: as many as have its copies.
const SUCCESSORS: usize = 2;

/// So many requests in a row that the cluster's lookup brought to nobody, and owners are asked themselves for
/// a while.
const ASTRAY_MAX: u32 = 3;
/// For so long at first, and twice as long each time until somebody answered what it brought.
const ASTRAY_FOR: Duration = Duration::from_secs(1);
/// But no longer than this.
const ASTRAY_FOR_MAX: Duration = Duration::from_secs(60);

/// See the module.
pub(crate) struct Routes {
    /// Who owns what, under which epoch: each request names that of its owner, however it is brought there.
    map: ClientMap,
    /// How requests are brought to owners, if clients do not ask these themselves.
    lookup: Option<Box<dyn lookup::Machine>>,
    kind: LookupKind,
    out: Vec<lookup::Command>,
    /// Requests in a row that it brought to nobody, and until when it is not tried again.
    astray: u32,
    astray_until: Mono,
    astray_for: Duration,
    /// As it came with the newest map.
    assignment: Option<Assignment>,
    metadata_servers: Vec<ServerId>,
    addresses: BTreeMap<ServerId, IpAddr>,
    fetching: bool,
    wanted: bool,
    /// Some position is known to nobody here: the whole map is asked for, whatever version we have.
    whole: bool,
}

impl Routes {
    pub fn new() -> Routes {
        Routes {
            map: ClientMap::new(),
            lookup: None,
            kind: LookupKind::ClientMap,
            out: Vec::new(),
            astray: 0,
            astray_until: Mono::ZERO,
            astray_for: ASTRAY_FOR,
            assignment: None,
            metadata_servers: Vec::new(),
            addresses: BTreeMap::new(),
            fetching: false,
            wanted: false,
            whole: false,
        }
    }

    pub fn locate(&self, position: Position) -> Option<Located> {
        self.map.locate(position)
    }

    /// Whom the cluster's lookup asks first for what an owner decides. `None`: the owner itself.
    pub fn asks_first(
        &mut self,
        now: Mono,
        sequence: Sequence,
        position: Position,
        owner: ServerId,
    ) -> Option<Target> {
        let machine = self.lookup.as_mut().filter(|_| now >= self.astray_until)?;
        let query = Query::new(QueryId(sequence.0), lookup::Target { position, file: FileKey(0) });
        machine.step(now, lookup::Event::Query(query), &mut self.out);
        self.out.drain(..).find_map(|command| match command {
            lookup::Command::Pass(server, _) => Some(Target::Server(server)),
            lookup::Command::Carry(_) => Some(Target::Carried(position, owner)),
            _ => None,
        })
    }

    /// Whether the lookup brought a request to somebody who answered.
    pub fn was_brought(&mut self, now: Mono, answered: bool) {
        self.astray = if answered { 0 } else { self.astray + 1 };
        if answered {
            self.astray_for = ASTRAY_FOR;
        } else if self.astray == ASTRAY_MAX {
            (self.astray, self.astray_until) = (0, now.after(self.astray_for));
            self.astray_for = (self.astray_for * 2).min(ASTRAY_FOR_MAX);
        }
    }

    /// Takes what a server says of a tablet; whether that is news.
    pub fn learn(&mut self, located: Located) -> bool {
        self.map.learn(located)
    }

    /// Who may have taken a position over from a silent owner: who had a copy when the map came, and some
    /// that follow the owner on the ring, each time the next ones; copies are made again there.
    pub fn successors(&self, position: Position, owner: ServerId, times: usize) -> Vec<ServerId> {
        let members = self.assignment.as_ref().map(|assignment| &assignment.tablet_at(position).members);
        let mut found: Vec<ServerId> = members.into_iter().flatten().copied().collect();
        let servers = &self.metadata_servers;
        if let Some(place) = servers.iter().position(|server| *server == owner) {
            let others = servers.len() - 1;
            let behind = (0..others.min(SUCCESSORS)).map(|next| 1 + (times * SUCCESSORS + next) % others);
            found.extend(behind.map(|behind| servers[(place + behind) % servers.len()]));
        }
        found.retain(|server| *server != owner);
        found.sort_unstable();
        found.dedup();
        found
    }

    pub fn metadata_servers(&self) -> &[ServerId] {
        &self.metadata_servers
    }

    /// Where a server is.
    pub fn address_of(&self, server: ServerId) -> Option<IpAddr> {
        self.addresses.get(&server).copied()
    }

    pub fn version(&self) -> Option<MapVersion> {
        self.map.version()
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
    pub fn on_map(&mut self, now: Mono, map: ClusterMap) -> Option<Vec<ServerEntry>> {
        let newer = self.map.version().is_none_or(|known| known < map.version);
        self.map.replace(map.version, &map.assignment);
        if newer {
            let all = map.servers.iter();
            self.addresses = all.map(|entry| (entry.server, entry.address.ip())).collect();
            let metadata = map.servers.iter().filter(|entry| entry.kind == ServerKind::Metadata);
            let before =
                std::mem::replace(&mut self.metadata_servers, metadata.map(|entry| entry.server).collect());
            self.metadata_servers.sort_unstable();
            if self.kind != map.lookup || before != self.metadata_servers {
                self.kind = map.lookup;
                self.lookup = Lookup::client_of(map.lookup, &self.metadata_servers);
            }
            if let Some(machine) = &mut self.lookup {
                let whole = lookup::Map::new(map.version, map.assignment.clone());
                machine.step(now, lookup::Event::Map(whole), &mut self.out);
                self.out.clear();
            }
            self.assignment = Some(map.assignment);
        }
        newer.then_some(map.servers)
    }
}
