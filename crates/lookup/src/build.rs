//! One function that makes the machines of any lookup: for the lab, benchmarks and the suite.

use crate::bloom;
use crate::bloom::{BloomClient, BloomOptions, BloomServer, Choice, Founding, Sizes};
use crate::computed::ComputedClient;
use crate::conformance::Decides;
use crate::finger::{FingerClient, FingerConfig, FingerServer, Points, Reliability, RoutingCache};
use crate::machine::Machine;
use crate::query::FileKey;
use crate::table::{AskFirst, NetworkClient, TableClient, TableServer};
use bearing_placement::LookupKind;
use bearing_types::{Mono, ParameterError, ServerId};
use std::collections::BTreeMap;
use std::time::Duration;

/// The coordinator's number among servers. It owns nothing.
pub const COORDINATOR: ServerId = ServerId(0);

/// How often servers at rest ask for each other.
const SELDOM: Duration = Duration::from_secs(3600);

/// Makes the machines of one lookup, as published.
#[derive(Clone, Debug)]
pub struct Lookup {
    kind: LookupKind,
    points: Points,
    ring: FingerConfig,
    filters: Option<BloomOptions>,
}

impl Lookup {
    /// A lookup of this kind in a cluster of this size; sizes matter to filters only. Refused with the bound:
    /// sizes that filters cannot be made for.
    pub fn new(kind: LookupKind, sizes: Sizes) -> Result<Lookup, ParameterError> {
        let filters = match kind {
            LookupKind::BloomLevels
            | LookupKind::BloomGroups
            | LookupKind::BloomArray8
            | LookupKind::BloomArray16 => Some(BloomOptions::of(kind, sizes)?),
            LookupKind::ClientMap
            | LookupKind::Computed
            | LookupKind::Coordinator
            | LookupKind::OneHop
            | LookupKind::Fingers
            | LookupKind::CachedFingers
            | LookupKind::RebuildingFingers
            | LookupKind::InNetwork
            | LookupKind::SubtreeTable => None,
        };
        let rebuilds = kind == LookupKind::RebuildingFingers;
        let ring = FingerConfig::new(if rebuilds { Reliability::Rebuilding } else { Reliability::Plain });
        Ok(Lookup { kind, points: Points::Hashed, ring, filters })
    }

    /// The same where servers of a ring do not stand where they are hashed to.
    pub fn with_points(self, points: Points) -> Lookup {
        Lookup { points, ..self }
    }

    /// The same where servers of a ring ping each other so often, see [`FingerConfig::with_pings`].
    pub fn with_pings(self, every: Duration, timeout: Duration) -> Result<Lookup, ParameterError> {
        Ok(Lookup { ring: self.ring.with_pings(every, timeout)?, ..self })
    }

    /// The same where no server comes or goes: hardly any asks whether the others are still there.
    pub fn at_rest(self) -> Lookup {
        let filters = self.filters.map(|filters| BloomOptions { beat: SELDOM, ..filters });
        let ring = self.ring.with_pings(SELDOM, 3 * SELDOM).expect("these times are in bounds");
        Lookup { filters, ring, ..self }
    }

    /// A client that knows these servers; the how-manieth it is says which of them is the nearest to it.
    pub fn client(&self, servers: &[ServerId], number: u64) -> Box<dyn Machine> {
        let drawn = xxhash_rust::xxh3::xxh3_64_with_seed(&number.to_le_bytes(), 0x6e65_6172);
        self.client_near(servers, drawn as usize % servers.len().max(1))
    }

    /// A client that knows these servers, and is nearest to the one at this place of the list, which is in
    /// it.
    pub fn client_near(&self, servers: &[ServerId], nearest: usize) -> Box<dyn Machine> {
        let fingers = |cache| {
            let mut known = servers.to_vec();
            known.rotate_left(nearest.min(servers.len()));
            Box::new(FingerClient::new(&known, cache, self.points.clone()))
        };
        match self.kind {
            LookupKind::ClientMap | LookupKind::SubtreeTable => Box::new(TableClient::new(AskFirst::Owner)),
            LookupKind::Computed => Box::new(ComputedClient::new()),
            LookupKind::Coordinator => Box::new(TableClient::new(AskFirst::Server(COORDINATOR))),
            LookupKind::OneHop => Box::new(TableClient::new(AskFirst::Any(servers.into()))),
            LookupKind::Fingers => fingers(RoutingCache::Off),
            LookupKind::CachedFingers | LookupKind::RebuildingFingers => fingers(RoutingCache::Lazy),
            LookupKind::InNetwork => Box::new(NetworkClient::new()),
            LookupKind::BloomLevels
            | LookupKind::BloomGroups
            | LookupKind::BloomArray8
            | LookupKind::BloomArray16 => {
                Box::new(BloomClient::new(Choice::RoundRobin, servers.iter().copied()))
            }
        }
    }

    /// These servers, as they are when all have long been there, and whoever is beside them. Each numbers
    /// itself among all.
    pub fn servers(&self, members: &[ServerId]) -> Vec<(ServerId, Box<dyn Machine>)> {
        self.servers_holding(members, &BTreeMap::new())
    }

    /// The same with these files in their stores. Filters that name files have been exchanged.
    pub fn servers_holding(
        &self,
        members: &[ServerId],
        files: &BTreeMap<ServerId, Vec<FileKey>>,
    ) -> Vec<(ServerId, Box<dyn Machine>)> {
        if let Some(filters) = &self.filters {
            return with_filters(*filters, members, files);
        }
        let ring = self.points.ring(members);
        let machine = |server: ServerId| -> Box<dyn Machine> {
            match self.kind {
                LookupKind::Fingers | LookupKind::CachedFingers | LookupKind::RebuildingFingers => {
                    Box::new(FingerServer::settled_in(&ring, server, &self.points, self.ring.clone()))
                }
                _ => self.newcomer(server),
            }
        };
        let mut all: Vec<_> = members.iter().map(|server| (*server, machine(*server))).collect();
        if self.kind == LookupKind::Coordinator {
            all.push((COORDINATOR, Box::new(TableServer::passing(COORDINATOR))));
        }
        all
    }

    /// A server that is about to join.
    pub fn newcomer(&self, server: ServerId) -> Box<dyn Machine> {
        match (self.kind, self.filters) {
            (LookupKind::OneHop, _) => Box::new(TableServer::passing(server)),
            (LookupKind::Fingers | LookupKind::CachedFingers | LookupKind::RebuildingFingers, _) => {
                Box::new(FingerServer::new(server, &self.points, self.ring.clone()))
            }
            (_, Some(filters)) => {
                Box::new(BloomServer::new(server, filters).expect("checked when they were made"))
            }
            (_, None) => Box::new(TableServer::referring(server)),
        }
    }

    /// A client in a cluster that runs. `None`: it asks owners by its map.
    pub fn client_of(kind: LookupKind, servers: &[ServerId]) -> Option<Box<dyn Machine>> {
        match kind {
            LookupKind::OneHop => Some(Box::new(TableClient::new(AskFirst::Any(servers.into())))),
            LookupKind::InNetwork => Some(Box::new(NetworkClient::new())),
            LookupKind::BloomGroups => {
                Some(Box::new(BloomClient::new(Choice::RoundRobin, servers.iter().copied())))
            }
            _ => None,
        }
    }

    /// A query is passed on no more often than this.
    pub fn hops_max(&self) -> u8 {
        match self.kind {
            LookupKind::ClientMap
            | LookupKind::SubtreeTable
            | LookupKind::Computed
            | LookupKind::Coordinator
            | LookupKind::OneHop => TableClient::HOPS_MAX,
            LookupKind::Fingers | LookupKind::CachedFingers | LookupKind::RebuildingFingers => {
                FingerClient::HOPS_MAX
            }
            LookupKind::InNetwork => NetworkClient::HOPS_MAX,
            LookupKind::BloomLevels
            | LookupKind::BloomGroups
            | LookupKind::BloomArray8
            | LookupKind::BloomArray16 => bloom::HOPS_MAX,
        }
    }

    /// Who decides what is looked for.
    pub fn decides(&self) -> Decides {
        if self.filters.is_some() { Decides::Holder } else { Decides::Owner }
    }

    /// Servers that find out for themselves who came and who is gone have done so after this.
    pub fn settles(&self) -> Duration {
        match (self.kind, &self.filters) {
            // A silent server is given up, and who joins is made known, with heart-beats.
            (_, Some(filters)) => filters.beat * (filters.silent_beats + 5),
            (LookupKind::Fingers | LookupKind::CachedFingers | LookupKind::RebuildingFingers, None) => {
                self.ring.ping_every() * 100
            }
            (_, None) => Duration::ZERO,
        }
    }
}

fn with_filters(
    options: BloomOptions,
    members: &[ServerId],
    files: &BTreeMap<ServerId, Vec<FileKey>>,
) -> Vec<(ServerId, Box<dyn Machine>)> {
    const CHECKED: &str = "checked when they were made";
    let founding = Founding::of(members.iter().copied(), options.group_most).expect(CHECKED);
    let found = |server: &ServerId| {
        if files.is_empty() {
            return BloomServer::founded(*server, options, &founding, Mono::ZERO).expect(CHECKED);
        }
        let held = files.get(server).into_iter().flatten().copied();
        BloomServer::founded_with(*server, options, &founding, Mono::ZERO, held).expect(CHECKED)
    };
    let mut machines: Vec<BloomServer> = members.iter().map(found).collect();
    if !files.is_empty() {
        bloom::exchange(&mut machines);
    }
    members.iter().copied().zip(machines).map(|(server, machine)| (server, Box::new(machine) as _)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{self, Kit};
    use crate::query::{QueryId, Target};
    use bearing_placement::partition::build;
    use bearing_placement::{Combination, Parameters, PartitionKind, Scheme};
    use bearing_types::Position;

    const SEEDS: u64 = 25;
    const SIZES: Sizes = Sizes { servers: 13, keys_each: 100 };

    /// So that replays need not wait for filters to go round.
    #[test]
    fn filters_that_were_exchanged_lead_to_files_at_once() {
        use crate::world::World;
        let members: Vec<ServerId> = (1..=13).map(ServerId).collect();
        let home_of = |file: u64| ServerId(1 + (file * 5 % 13) as u32);
        let mut files: BTreeMap<ServerId, Vec<FileKey>> = BTreeMap::new();
        (0..1000).for_each(|file| files.entry(home_of(file)).or_default().push(FileKey(file)));
        for kind in [LookupKind::BloomLevels, LookupKind::BloomGroups, LookupKind::BloomArray16] {
            let made = Lookup::new(kind, SIZES).unwrap().at_rest();
            let home = move |target: &Target| Some(home_of(target.file.0));
            let mut world: World = World::new(Duration::from_micros(100), Box::new(home));
            for (server, machine) in made.servers_holding(&members, &files) {
                world.add_server(server, machine);
                files[&server].iter().for_each(|file| world.keep(server, *file));
            }
            world.add_client(made.client(&members, 0));
            for file in 0..500 {
                let target = Target { position: Position(0), file: FileKey(file) };
                world.ask(0, QueryId(file), target);
                assert!(world.run_until_answered(Duration::from_secs(60)));
            }
            let each = world.messages() as f64 / 500.0;
            assert!(each < 5.0, "{kind}: {each} messages a file");
        }
    }

    fn conforms(parts: Combination, parameters: &Parameters, seeds: u64) {
        let made = Lookup::new(parts.lookup, SIZES).expect("within bounds");
        let kit = Kit {
            client: &|servers| made.client(servers, 0),
            servers: &|members| made.servers(members),
            newcomer: &|server| made.newcomer(server),
            partition: &|servers| build(parts.partition, servers, parameters).expect("within bounds"),
            hops_max: made.hops_max(),
            decides: made.decides(),
            settles: made.settles(),
        };
        (0..seeds).for_each(|seed| conformance::lookup(seed, &kit));
    }

    #[test]
    fn every_scheme_conforms() {
        Scheme::ALL.into_iter().for_each(|scheme| conforms(scheme.parts(), &scheme.parameters(), SEEDS));
    }

    #[test]
    fn a_lookup_conforms_over_the_partitions_of_other_schemes() {
        let lookups =
            [LookupKind::ClientMap, LookupKind::InNetwork, LookupKind::OneHop, LookupKind::Coordinator];
        for (lookup, scheme) in
            lookups.into_iter().flat_map(|lookup| Scheme::ALL.map(|scheme| (lookup, scheme)))
        {
            // Who decides differs where homes are chosen, whatever is asked first.
            if scheme.parts().partition != PartitionKind::Homes {
                conforms(Combination { lookup, ..scheme.parts() }, &scheme.parameters(), 3);
            }
        }
    }
}
