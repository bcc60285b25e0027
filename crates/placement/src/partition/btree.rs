//! MetaFlow sections 5 and 6: servers are the leaves of a tree of switches, idle or busy; a full one splits
//! and activates an idle one.
//!
//! Invariants: a busy server owns one run of positions, an idle one none; at least one is busy; the busy ones
//! own the ring. A server that goes is replaced by an idle one, under the same switch if there is one, or
//! else the nearest; nobody else's share changes. What a join does is to add an idle server.
//!
//! The paper begins with an empty store and splits as it fills; a ring that is owned from the start needs
//! another beginning: one server owns all, and the heaviest is split until as many are busy as were asked
//! for. At that time nothing is stored, so nothing need move: which server stands where on the ring is free,
//! and [`Activation::InRingOrder`] uses that to keep neighbours on the ring under one switch, and idle
//! servers under every switch.

mod dotted;
mod split;
#[cfg(test)]
mod tests;

use super::contract::{Partition, PartitionError, distinct};
use super::hosts::Hosts;
use crate::arcs::{Arcs, Handover};
use crate::load::Load;
use crate::parameters::Parameters;
use bearing_routing::{Place, SwitchTree};
use bearing_types::{Position, ServerId, within};
use split::{Measure, split_fewest};
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::Bound;
use std::sync::Arc as Shared;

pub use dotted::{block_of_dotted, dotted};
pub use split::{Halves, split_blocks};

/// Which point within the window a split takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitPoints {
    /// The published walk (section 6.B).
    Published,
    /// Beyond the paper: the point with the shortest prefix, which costs the fewest blocks.
    FewestPrefixes,
}

/// Which idle servers become busy while the tree is grown for the first time. Later it is always the nearest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// The one nearest to the server that splits, under the same switch first: as if data were there already.
    Nearest,
    /// Beyond the paper: the ring in the order of places, idle servers spread evenly among the busy ones.
    InRingOrder,
}

/// How a tree begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// Servers that are busy at the start: 1 to all.
    pub busy: usize,
    /// Which point a split takes, also later.
    pub points: SplitPoints,
    /// Which idle servers are taken.
    pub activation: Activation,
}

impl Growth {
    /// As in the paper.
    pub fn published(busy: usize) -> Growth {
        Growth { busy, points: SplitPoints::Published, activation: Activation::Nearest }
    }

    /// With what was added to it for small flow tables.
    pub fn fewest_prefixes(busy: usize) -> Growth {
        Growth { busy, points: SplitPoints::FewestPrefixes, activation: Activation::InRingOrder }
    }
}

/// What a split did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Activated {
    /// The part of the ring that changed hands, from the full server to the activated one.
    pub handover: Handover,
    /// The share of its load that stayed with the full server; of its length, if it had no load.
    pub share: f64,
    /// Whether that share is within the window. One hot position cannot be halved, so a split beside it may
    /// not be.
    pub within: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct BTree {
    topology: Shared<SwitchTree>,
    hosts: Hosts,
    idle: BTreeSet<Place>,
    /// Where each busy server's run begins.
    runs: BTreeMap<Position, ServerId>,
    starts: BTreeMap<ServerId, Position>,
    growth: Growth,
    window: (f64, f64),
    threshold: f64,
    arcs: Arcs,
}

/// A run of positions on the heap of those to split: the heaviest first, then the one that begins first.
#[derive(Clone, Copy, Debug)]
struct Run {
    weight: f64,
    first: Position,
    last: Position,
}

impl Run {
    fn of(measure: Measure<'_>, (first, last): (Position, Position)) -> Run {
        Run { weight: measure.between(first, last), first, last }
    }

    fn rank(&self) -> (Reverse<Position>, Position) {
        (Reverse(self.first), self.last)
    }
}

impl Ord for Run {
    fn cmp(&self, other: &Run) -> Ordering {
        self.weight.total_cmp(&other.weight).then_with(|| self.rank().cmp(&other.rank()))
    }
}

impl PartialOrd for Run {
    fn partial_cmp(&self, other: &Run) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Run {
    fn eq(&self, other: &Run) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Run {}

impl BTree {
    /// These servers at the first places of the topology, grown by splits from one busy server, the heaviest
    /// first, until `growth.busy` are busy. Without load, lengths are halved. Reads `split_low`, `split_high`
    /// and `threshold` of the parameters.
    pub fn new(
        topology: Shared<SwitchTree>,
        servers: &[ServerId],
        growth: Growth,
        load: &Load,
        parameters: &Parameters,
    ) -> Result<BTree, PartitionError> {
        parameters.check()?;
        distinct(servers)?;
        let hosts = Hosts::in_order(&topology, servers)?;
        let busy = (1..=servers.len()).contains(&growth.busy);
        within("servers busy at the start", growth.busy, busy, "1 to the number of servers")?;
        let arcs = Arcs::new([(Position(0), servers[0])]).map_err(|_| PartitionError::NoServers)?;
        let mut tree = BTree {
            topology,
            idle: hosts.iter().map(|(place, _)| place).collect(),
            hosts,
            runs: BTreeMap::new(),
            starts: BTreeMap::new(),
            growth,
            window: (parameters.split_low, parameters.split_high),
            threshold: parameters.threshold,
            arcs,
        };
        tree.grow(load);
        Ok(tree)
    }

    /// The tree of switches.
    pub fn topology(&self) -> &Shared<SwitchTree> {
        &self.topology
    }

    /// Where the members are.
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// How many members own nothing.
    pub fn idle(&self) -> usize {
        self.idle.len()
    }

    /// Whether a server owns anything.
    pub fn is_busy(&self, server: ServerId) -> bool {
        self.starts.contains_key(&server)
    }

    /// A server joins at a place of its own choice; it is idle.
    pub fn join_at(&mut self, server: ServerId, place: Place) -> Result<(), PartitionError> {
        self.hosts.plug(&self.topology, server, place)?;
        self.idle.insert(place);
        Ok(())
    }

    /// Splits a busy server and activates the nearest idle one for the right part (section 6.B). `None` if
    /// there is nothing to part: the server is idle or has a single position. A run without load of its own
    /// is halved by length.
    pub fn split(&mut self, server: ServerId, load: &Load) -> Result<Option<Activated>, PartitionError> {
        let place = self.hosts.place(server).ok_or(PartitionError::Unknown(server))?;
        let Some(run) = self.run_of(server) else { return Ok(None) };
        let idle = self.nearest_idle(place).ok_or(PartitionError::NoIdle(server))?;
        let Some(halves) = self.parted(run, Measure::of(load, run)) else { return Ok(None) };
        let first = halves.right[0].start();
        let to = self.activate(idle, first);
        self.divide();
        let within = halves.share > self.window.0 && halves.share < self.window.1;
        let handover = Handover { first, last: run.1, from: server, to };
        Ok(Some(Activated { handover, share: halves.share, within }))
    }

    fn grow(&mut self, load: &Load) {
        let runs = self.grown_runs(load);
        match self.growth.activation {
            // In the order in which the splits made them; each beside the one it was split from.
            Activation::Nearest => {
                for (first, from) in &runs {
                    let beside =
                        from.and_then(|from| self.runs.get(&from)).and_then(|old| self.hosts.place(*old));
                    let idle = self.nearest_idle(beside.unwrap_or(Place(0)));
                    self.activate(idle.expect("no more runs than servers"), *first);
                }
            }
            Activation::InRingOrder => {
                let mut firsts: Vec<Position> = runs.iter().map(|(first, _)| *first).collect();
                firsts.sort();
                let places: Vec<Place> = self.idle.iter().copied().collect();
                for (index, first) in firsts.iter().enumerate() {
                    self.activate(places[index * places.len() / firsts.len()], *first);
                }
            }
        }
        self.divide();
    }

    /// Where runs begin, in the order in which splits make them, each with the run that it was split from.
    fn grown_runs(&self, load: &Load) -> Vec<(Position, Option<Position>)> {
        let ring = (Position(0), Position(u64::MAX));
        let measure = Measure::of(load, ring);
        let mut runs = vec![(Position(0), None)];
        let mut heap = BinaryHeap::from([Run::of(measure, ring)]);
        while runs.len() < self.growth.busy {
            let run = heap.pop().expect("the ring has more positions than servers");
            let whole = (run.first, run.last);
            // What has no load, or all of it in one position, is halved by length.
            let parted = self.parted(whole, measure).filter(|halves| is_useful(halves.share));
            let Some(halves) = parted.or_else(|| self.parted(whole, Measure::Length)) else { continue };
            let at = halves.right[0].start();
            runs.push((at, Some(run.first)));
            heap.push(Run::of(measure, (run.first, Position(at.0 - 1))));
            heap.push(Run::of(measure, (at, run.last)));
        }
        runs
    }

    fn parted(&self, (first, last): (Position, Position), measure: Measure<'_>) -> Option<Halves> {
        let (low, high) = self.window;
        match self.growth.points {
            SplitPoints::Published => {
                let blocks = crate::arcs::blocks_between(first, last);
                split_blocks(&blocks, |first, last| measure.between(first, last), low, high)
            }
            SplitPoints::FewestPrefixes => split_fewest(first, last, measure, low, high),
        }
    }

    /// A busy server's first and last position.
    fn run_of(&self, server: ServerId) -> Option<(Position, Position)> {
        let first = *self.starts.get(&server)?;
        let after = self.runs.range((Bound::Excluded(first), Bound::Unbounded)).next();
        Some((first, after.map_or(Position(u64::MAX), |(next, _)| Position(next.0 - 1))))
    }

    /// The idle place nearest to a place: under the same switch, or else under the same switch of the next
    /// tier; of equals the next one in order.
    fn nearest_idle(&self, place: Place) -> Option<Place> {
        self.topology.above(place).find_map(|node| {
            let under = self.topology.places_under(node);
            let after = self.idle.range(place..under.end).next();
            after.or_else(|| self.idle.range(under.start..place).next_back()).copied()
        })
    }

    /// The idle server at this place owns what begins here. Arcs are left as they were.
    fn activate(&mut self, place: Place, first: Position) -> ServerId {
        self.idle.remove(&place);
        let server = self.hosts.server(place).expect("idle places hold servers");
        self.runs.insert(first, server);
        self.starts.insert(server, first);
        server
    }

    fn divide(&mut self) {
        self.arcs =
            Arcs::new(self.runs.iter().map(|(first, server)| (*first, *server))).expect("one is busy");
    }
}

/// Whether a split leaves something on both sides.
fn is_useful(share: f64) -> bool {
    share > 0.0 && share < 1.0
}

impl Partition for BTree {
    fn arcs(&self) -> &Arcs {
        &self.arcs
    }

    fn members(&self) -> BTreeSet<ServerId> {
        self.hosts.iter().map(|(_, server)| server).collect()
    }

    /// The server is idle, at the first free place (section 6.A).
    fn join(&mut self, server: ServerId) -> Result<(), PartitionError> {
        if self.hosts.place(server).is_some() {
            return Err(PartitionError::Known(server));
        }
        let (places, count) = (self.topology.places() as usize, self.hosts.count());
        let free = self.hosts.free(&self.topology).ok_or(PartitionError::NoPlace(places, count + 1))?;
        self.join_at(server, free)
    }

    /// An idle server takes its place on the ring: one under the same switch (section 6.A), or else the
    /// nearest. None at all is refused.
    fn leave(&mut self, server: ServerId) -> Result<(), PartitionError> {
        let place = self.hosts.place(server).ok_or(PartitionError::Unknown(server))?;
        if self.hosts.count() == 1 {
            return Err(PartitionError::Last(server));
        }
        if let Some(first) = self.starts.get(&server).copied() {
            let heir = self.nearest_idle(place).ok_or(PartitionError::NoIdle(server))?;
            self.starts.remove(&server);
            self.activate(heir, first);
            self.divide();
        }
        self.hosts.unplug(server);
        self.idle.remove(&place);
        Ok(())
    }

    /// Splits the heaviest while they are full and idle servers are left. Full is more than 1 + `threshold`
    /// times the mean load of those that are busy when the call begins. What cannot be parted (one hot
    /// position) stays as it is. Idle servers only become fewer, so on a steady load this comes to rest.
    fn rebalance(&mut self, load: &Load) -> bool {
        if load.total() <= 0.0 {
            return false;
        }
        let capacity = load.total() / self.runs.len() as f64 * (1.0 + self.threshold);
        let measure = Measure::Load(load);
        let runs = self.starts.keys().filter_map(|server| self.run_of(*server));
        let mut heap: BinaryHeap<Run> = runs.map(|run| Run::of(measure, run)).collect();
        let busy_before = self.runs.len();
        while let Some(run) = heap.pop().filter(|run| run.weight > capacity && !self.idle.is_empty()) {
            let whole = (run.first, run.last);
            let Some(halves) = self.parted(whole, measure).filter(|halves| is_useful(halves.share)) else {
                continue;
            };
            let at = halves.right[0].start();
            let place = self.hosts.place(self.runs[&run.first]).expect("owners are members");
            let idle = self.nearest_idle(place).expect("one is idle");
            self.activate(idle, at);
            heap.push(Run::of(measure, (run.first, Position(at.0 - 1))));
            heap.push(Run::of(measure, (at, run.last)));
        }
        let changed = self.runs.len() > busy_before;
        if changed {
            self.divide();
        }
        changed
    }
}
