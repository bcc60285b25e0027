//! A cluster that is about to be measured: its servers, its clients and the network between them.
//!
//! Invariants: servers of two seeds have different numbers, so their points on a ring differ too; the
//! server that decides is the owner by the same arcs that the servers' tables were made from.

use super::costs::Costs;
use super::network::{Network, Wires};
use bearing_lookup::bloom::Sizes;
use bearing_lookup::finger::Points;
use bearing_lookup::world::{Order, Party, Ways, World};
use bearing_lookup::{COORDINATOR, Event, FileKey, Lookup, Machine, Map, QueryId, Target};
use bearing_placement::partition::build;
use bearing_placement::{
    Arcs, Assignment, Combination, Draws, LookupKind, NoArcs, Parameters, PartitionError,
};
use bearing_types::{MapVersion, Mono, ParameterError, Position, ServerId};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How the ring is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// As the scheme does it.
    Published,
    /// Each server owns the same share, so that what is left is the lookup's own cost.
    EqualArcs,
}

/// Which server of a ring is a client's relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relays {
    /// Each client draws its own.
    Drawn,
    /// One after the other, so that all are relays of equally many.
    InTurn,
}

/// Who stores what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// The owner.
    One,
    /// The owner and the next server on the ring, before the answer (RDHT-MDSC section 3.3).
    OnSuccessor,
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The scheme. Its seating does not matter: names are anywhere on the ring.
    pub scheme: Combination,
    /// The parameters of its partition.
    pub parameters: Parameters,
    /// How many servers there are: 1 to 10,000.
    pub servers: u32,
    /// How many clients: at least 1.
    pub clients: u32,
    /// How the ring is divided.
    pub division: Division,
    /// Which relays clients have.
    pub relays: Relays,
    /// Whether operations are writes that are copied.
    pub copies: Copies,
    /// How many operations each client has done before anything is watched: as long as it takes to learn.
    pub learnt: u32,
    /// What work costs.
    pub costs: Costs,
    /// What servers do first.
    pub order: Order,
    /// Whether all servers are on one host, and so have one processor.
    pub one_host: bool,
    /// The network; if none is given, a fat tree with room for all ([`Wires::fat_tree`]).
    pub wires: Option<Arc<Wires>>,
    /// Draws begin from here.
    pub seed: u64,
}

/// Why a cluster cannot be set up.
#[derive(Clone, Debug, PartialEq)]
pub enum SetupError {
    /// There cannot be as many servers or clients, or a parameter is out of bounds.
    Parameter(ParameterError),
    /// The ring cannot be divided so.
    Partition(PartitionError),
    /// Nobody owns anything.
    NoArcs(NoArcs),
    /// The network has too few hosts.
    Hosts {
        /// How many there are.
        there: u32,
        /// How many servers and clients need at least.
        needed: u32,
    },
    /// No way leads from one host to another through switches alone.
    NoWay([String; 2]),
    /// What is sent takes so much longer than work that a cluster is never busy.
    Far {
        /// A request and its answer on the way.
        way: Duration,
        /// An operation.
        storage: Duration,
    },
    /// A lookup by filters asks for files, not for positions.
    Filters,
    /// A ring's servers have one point each, the partition gives them several arcs.
    SeveralArcs,
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetupError::Parameter(error) => error.fmt(f),
            SetupError::Partition(error) => error.fmt(f),
            SetupError::NoArcs(error) => error.fmt(f),
            SetupError::Hosts { there, needed } => write!(
                f,
                "the topology has {there} hosts, servers and a client need {needed}; describe more hosts, or \
                 ask for fewer servers"
            ),
            SetupError::NoWay([from, to]) => write!(
                f,
                "no way leads from {from} to {to} through switches alone, and hosts pass nothing on; describe a \
                 link between their switches"
            ),
            SetupError::Far { way, storage } => write!(
                f,
                "a request and its answer take {way:?} on the way and {storage:?} of work: for each server to be busy \
                 more would have to be under way than can be looked at ({} for each, {} in all); give lower \
                 latencies",
                super::run::OUTSTANDING_MOST,
                super::run::OUTSTANDING_ALL
            ),
            SetupError::Filters => {
                f.write_str("lookups by filters ask for files, not for positions; give another lookup")
            }
            SetupError::SeveralArcs => f.write_str(
                "fingers know one point of each server, this partition gives them several arcs; set \
                 virtual_nodes to 1, or give equal arcs",
            ),
        }
    }
}

impl std::error::Error for SetupError {}

impl From<ParameterError> for SetupError {
    fn from(error: ParameterError) -> SetupError {
        SetupError::Parameter(error)
    }
}

impl From<PartitionError> for SetupError {
    fn from(error: PartitionError) -> SetupError {
        SetupError::Partition(error)
    }
}

impl From<NoArcs> for SetupError {
    fn from(error: NoArcs) -> SetupError {
        SetupError::NoArcs(error)
    }
}

/// Neighbours of a ring at rest ping each other once in so many operations: seldom, because nothing happens
/// to them, and often enough that what it costs is in the figures.
const PING: u32 = 500;
/// Boundaries of tables are rounded within this share of an arc, so that tables stay small.
const ROUNDING: f64 = 0.005;
/// Servers of a seed have numbers from here on.
const SEED_SERVERS: u32 = 20_000;

/// See the module.
pub struct Cluster {
    /// Its servers and clients, who know all that they know at rest.
    pub world: World<Box<dyn Machine>>,
    /// Its servers, the first one first.
    pub servers: Vec<ServerId>,
    /// How many processors they have.
    pub processors: usize,
    /// Those that own something, and a coordinator beside them.
    pub owners: Vec<ServerId>,
    /// How many clients there are.
    pub clients: u32,
    costs: Costs,
    draws: Draws,
    asked: u64,
}

impl Cluster {
    /// A cluster at rest.
    pub fn new(setup: &Setup) -> Result<Cluster, SetupError> {
        let (count, clients) = (setup.servers, setup.clients);
        bearing_types::within("servers", count, (1..=10_000).contains(&count), "1 to 10000")?;
        bearing_types::within("clients", clients, (1..=100_000).contains(&clients), "1 to 100000")?;
        let kind = setup.scheme.lookup;
        let first = 1 + SEED_SERVERS * (setup.seed % 100_000) as u32;
        let servers: Vec<ServerId> = (first..first + count).map(ServerId).collect();
        let arcs = match setup.division {
            Division::EqualArcs => Arcs::even(&servers)?,
            Division::Published => build(setup.scheme.partition, &servers, &setup.parameters)?.arcs().clone(),
        };
        let (lookup, arcs) = lookup(kind, count, arcs, &setup.costs)?;
        let mut owners = arcs.servers();
        let mut world = World::new(Duration::ZERO, Box::new(|_| None));
        let decides = arcs.clone();
        world.set_truth(Box::new(move |target| Some(decides.owner(target.position))));
        if setup.copies == Copies::OnSuccessor {
            let copies = arcs.clone();
            world.set_copies(Box::new(move |query| {
                copies.successors(query.target.position, 2).get(1).copied()
            }));
        }
        let carries = arcs.clone();
        world.set_network(Box::new(move |position| Some(carries.owner(position))));
        world.set_ways(ways(setup, first)?);
        world.set_work(setup.costs.work(kind == LookupKind::InNetwork), setup.order);
        world.set_spread(setup.costs.spread(), setup.seed);
        for (server, machine) in lookup.servers(&servers) {
            if setup.one_host {
                world.share_host(server, servers[0]);
            }
            world.add_server(server, machine);
        }
        if world.server(COORDINATOR).is_some() {
            owners.insert(COORDINATOR);
        }
        for client in 0..clients {
            world.add_client(match setup.relays {
                Relays::Drawn => lookup.client(&servers, (setup.seed << 32) + u64::from(client)),
                Relays::InTurn => lookup.client_near(&servers, (client % count) as usize),
            });
        }
        if !kind.is_ring() {
            tell_map(&mut world, kind, &arcs);
        }
        let processors = if setup.one_host { 1 } else { servers.len() };
        if setup.one_host {
            // What one's processor has done is what all have done.
            owners = BTreeSet::from([servers[0]]);
        }
        let owners = owners.into_iter().collect();
        let draws = Draws(setup.seed ^ 0x7175_6575_6573);
        Ok(Cluster { world, servers, processors, owners, clients, costs: setup.costs, draws, asked: 0 })
    }

    /// What work costs in it.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// How many operations were begun, or are about to begin.
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// A draw between 0 and 1, both excluded.
    pub(super) fn share(&mut self) -> f64 {
        ((self.draws.draw() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// A client, drawn.
    pub(super) fn client(&mut self) -> usize {
        self.draws.below(u64::from(self.clients)) as usize
    }

    /// A client will begin an operation on a name that lies anywhere.
    pub fn ask_at(&mut self, at: Mono, client: usize) -> QueryId {
        let position = Position(self.draws.draw());
        let id = QueryId(self.asked);
        self.asked += 1;
        let target = Target { position, file: FileKey::of_part(position) };
        self.world.ask_at(at, client, id, target);
        id
    }
}

/// The lookup, and the arcs that its tables can say.
fn lookup(kind: LookupKind, servers: u32, arcs: Arcs, costs: &Costs) -> Result<(Lookup, Arcs), SetupError> {
    let lookup = Lookup::new(kind, Sizes { servers: servers.max(2), keys_each: 1 })?;
    match kind {
        LookupKind::Fingers | LookupKind::CachedFingers | LookupKind::RebuildingFingers => {
            if arcs.arcs().len() != servers as usize {
                return Err(SetupError::SeveralArcs);
            }
            let points = Points::of(&arcs);
            let every = costs.longest() * PING;
            Ok((lookup.with_points(points).with_pings(every, 3 * every)?, arcs))
        }
        // Clients compute exact arcs; servers must say the same.
        LookupKind::Computed => Ok((lookup, arcs)),
        LookupKind::ClientMap
        | LookupKind::SubtreeTable
        | LookupKind::Coordinator
        | LookupKind::OneHop
        | LookupKind::InNetwork => Ok((lookup, arcs.rounded(ROUNDING))),
        LookupKind::BloomLevels
        | LookupKind::BloomGroups
        | LookupKind::BloomArray8
        | LookupKind::BloomArray16 => Err(SetupError::Filters),
    }
}

/// Everybody knows who owns what.
fn tell_map(world: &mut World<Box<dyn Machine>>, kind: LookupKind, arcs: &Arcs) {
    let map = |arcs: &Arcs| {
        let assignment = Assignment::of(arcs, 1).expect("arcs cover the ring");
        Map::new(MapVersion(1), assignment)
    };
    let servers: BTreeSet<ServerId> = world.servers().collect();
    let exact = map(arcs);
    servers.into_iter().for_each(|server| world.tell(server, Event::Map(Arc::clone(&exact))));
    // Clients that compute read the list of servers from it, and nothing else.
    let to_clients = if kind == LookupKind::Computed { map(&arcs.rounded(ROUNDING)) } else { exact };
    world.tell_clients(&Event::Map(to_clients));
}

/// Clients are on so many hosts at most.
const CLIENT_HOSTS: u32 = 500;

/// Servers stand at the first places of the network, clients behind them. To and from clients it takes what
/// they themselves take besides.
fn ways(setup: &Setup, first: u32) -> Result<Ways, SetupError> {
    let servers = if setup.one_host { 1 } else { setup.servers };
    let coordinator = u32::from(setup.scheme.lookup == LookupKind::Coordinator);
    let wanted = servers + setup.clients.min(CLIENT_HOSTS) + coordinator;
    let wires = match &setup.wires {
        Some(wires) => Arc::clone(wires),
        None => Arc::new(Wires::fat_tree(wanted)?),
    };
    let (there, needed) = (wires.topology.places(), servers + 1 + coordinator);
    if there < needed {
        return Err(SetupError::Hosts { there, needed });
    }
    let hosts = wanted.min(there);
    let clients = hosts - servers - coordinator;
    let network = Network::new(&wires, hosts)
        .map_err(|ends| SetupError::NoWay(ends.map(|host| wires.topology.host_name(host).to_owned())))?;
    let count = setup.servers;
    let host = move |party: Party| match party {
        // The coordinator stands behind all others.
        Party::Server(server) => match server.0.checked_sub(first) {
            Some(index) if index < count => index.min(servers - 1),
            _ => hosts - 1,
        },
        Party::Client(client) => servers + client as u32 % clients,
    };
    let ends = setup.costs.client() / 2;
    Ok(Box::new(move |from, to| {
        let is_client = |party| matches!(party, Party::Client(_));
        let ends = if is_client(from) || is_client(to) { ends } else { Duration::ZERO };
        ends + network.way(host(from), host(to))
    }))
}
