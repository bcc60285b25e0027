//! What an operator asks of a cluster that takes time: what it can do at most, where the rest goes, and how
//! long an operation takes at half and at most of that.

use super::cluster::{Copies, Division, Relays, Setup, SetupError};
use super::costs::Costs;
use super::network::Wires;
use super::run::{Capacity, Latency, Watch, capacity, latency};
use crate::candidate::Candidate;
use bearing_lookup::world::Order;
use bearing_placement::LookupKind;
use std::sync::Arc;

/// See the module.
#[derive(Clone, Debug)]
pub struct Study {
    /// What is studied. Its seating does not matter: names are anywhere on the ring.
    pub candidate: Candidate,
    /// How many servers there are: 1 to 10,000.
    pub servers: u32,
    /// How many clients.
    pub clients: u32,
    /// How the ring is divided.
    pub division: Division,
    /// What work costs.
    pub costs: Costs,
    /// The network, if one is given.
    pub wires: Option<Arc<Wires>>,
    /// Draws begin from here.
    pub seed: u64,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The most that it does.
    pub capacity: Capacity,
    /// How long operations take at each of [`LOADS`].
    pub latencies: [Latency; 2],
}

/// Shares of its capacity that a cluster is loaded with.
pub const LOADS: [f64; 2] = [0.5, 0.8];

/// About so many operations are watched, and never fewer than [`UNITS_LEAST`] of each server.
const OPERATIONS: u32 = 40_000;
/// Clients whose caches are empty first do so many each, as in RDHT-MDSC's figures.
const LEARNT: u32 = 200;
const UNITS_LEAST: u32 = 20;
const UNITS_MOST: u32 = 2_000;

impl Study {
    /// The cluster. On equal arcs every server is a relay equally often: a client then runs as many processes
    /// as that takes.
    pub fn setup(&self) -> Setup {
        let is_ring = self.candidate.parts.lookup.is_ring();
        let (relays, clients) = match (self.division, is_ring) {
            (Division::EqualArcs, true) => {
                (Relays::InTurn, self.clients.next_multiple_of(self.servers.max(1)))
            }
            (Division::EqualArcs, false) | (Division::Published, _) => (Relays::Drawn, self.clients),
        };
        let has_cache =
            matches!(self.candidate.parts.lookup, LookupKind::CachedFingers | LookupKind::RebuildingFingers);
        let learnt = if has_cache { LEARNT } else { 0 };
        Setup {
            scheme: self.candidate.parts,
            parameters: self.candidate.parameters.clone(),
            servers: self.servers,
            clients,
            division: self.division,
            relays,
            copies: Copies::One,
            learnt,
            costs: self.costs,
            order: Order::Arrival,
            one_host: false,
            wires: self.wires.clone(),
            seed: self.seed,
        }
    }

    fn watch(&self) -> Watch {
        let measure = (OPERATIONS / self.servers.max(1)).clamp(UNITS_LEAST, UNITS_MOST);
        Watch { settle: measure / 2, measure }
    }

    /// The most that it does.
    pub fn capacity(&self) -> Result<Capacity, SetupError> {
        capacity(&self.setup(), self.watch())
    }

    /// The same, and how long operations take.
    pub fn run(&self) -> Result<Found, SetupError> {
        let capacity = self.capacity()?;
        let (setup, per_second) = (self.setup(), capacity.rates.per_second);
        let watch = Watch::of_latencies(UNITS_LEAST, self.servers);
        let [half, most] = LOADS.map(|load| latency(&setup, load * per_second, watch));
        Ok(Found { capacity, latencies: [half?, most?] })
    }
}
