//! From which replicas a read is answered, by which paths, and how much of it from each.
//!
//! Mayflower section IV.B and IV.C, and the schemes that it is compared with (VI.B). A choice costs the
//! seconds that the read takes and those by which others end later. Two replicas are better than one if
//! `bytes / (b1' + b2)` and both impacts are less than what one costs: the published rule (both costs with
//! all bytes, in sum less than one) can never hold. Invariant: a choice names replicas that can be reached,
//! and its parts have all bytes. This module must not know clocks or messages.

use crate::estimates::{Carrier, Estimates, Price};
use crate::host_loads::HostLoads;
use crate::paths::{Path, Paths, Route, Routes};
use crate::rate::Rate;
use crate::shares::FlowId;
use crate::topology::{Place, Topology};
use bearing_types::Mono;
use std::fmt;
use std::str::FromStr;

/// Who chooses the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplicaBy {
    /// The path that costs least, of all replicas.
    Cost,
    /// The fewest hops; among equals one is drawn.
    Nearest,
    /// Sinbad's rule for reads: the most capacity left upwards, by what hosts have measured.
    HostLoads,
    /// The reader's own host or rack, else one is drawn.
    Rack,
}

/// Who chooses the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathBy {
    /// The one that costs least.
    Cost,
    /// One is drawn, as switches that hash do.
    Hash,
}

/// A scheme by which replicas and paths are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    name: &'static str,
    about: &'static str,
    replica: ReplicaBy,
    path: PathBy,
    parts_max: usize,
}

const fn selection(
    name: &'static str,
    about: &'static str,
    replica: ReplicaBy,
    path: PathBy,
    parts_max: usize,
) -> Selection {
    Selection { name, about, replica, path, parts_max }
}

/// The selection whose estimates are exact.
const EXACT: &str = "mayflower-x";

/// All selections, the default first.
pub const SELECTIONS: &[Selection] = &[
    selection(
        "mayflower-p",
        "replica and path that cost least, two if that pays",
        ReplicaBy::Cost,
        PathBy::Cost,
        2,
    ),
    selection("mayflower-b", "replica and path that cost least", ReplicaBy::Cost, PathBy::Cost, 1),
    selection("mayflower-n", "as many replicas as pay, beyond the paper", ReplicaBy::Cost, PathBy::Cost, 8),
    selection(
        EXACT,
        "as mayflower-n, by exact shares of all flows, beyond the paper",
        ReplicaBy::Cost,
        PathBy::Cost,
        8,
    ),
    selection("nearest-ecmp", "the nearest replica, a path by hash", ReplicaBy::Nearest, PathBy::Hash, 1),
    selection("nearest-mf", "the nearest replica, its cheapest path", ReplicaBy::Nearest, PathBy::Cost, 1),
    selection(
        "sinbad-r-ecmp",
        "the replica whose host loads are least, a path by hash",
        ReplicaBy::HostLoads,
        PathBy::Hash,
        1,
    ),
    selection(
        "sinbad-r-mf",
        "the replica whose host loads are least, its cheapest path",
        ReplicaBy::HostLoads,
        PathBy::Cost,
        1,
    ),
    selection(
        "hdfs-ecmp",
        "a replica of the same rack or any, a path by hash",
        ReplicaBy::Rack,
        PathBy::Hash,
        1,
    ),
    selection(
        "hdfs-mf",
        "a replica of the same rack or any, its cheapest path",
        ReplicaBy::Rack,
        PathBy::Cost,
        1,
    ),
];

impl Selection {
    /// Estimates as it wants them.
    pub fn estimates(&self, topology: &Topology) -> Estimates {
        match self.name {
            EXACT => Estimates::exact(topology),
            _ => Estimates::new(topology),
        }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What it does, in a line.
    pub fn about(&self) -> &'static str {
        self.about
    }
}

/// A name that no selection has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownSelection(String);

impl fmt::Display for UnknownSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = SELECTIONS.iter().map(Selection::name).collect();
        write!(f, "there is no selection {:?}; give one of {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownSelection {}

impl FromStr for Selection {
    type Err = UnknownSelection;
    fn from_str(name: &str) -> Result<Selection, UnknownSelection> {
        let known = SELECTIONS.iter().find(|selection| selection.name == name);
        known.copied().ok_or_else(|| UnknownSelection(name.to_owned()))
    }
}

/// Who reads what from where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Where the reader is.
    pub reader: Place,
    /// Where replicas are.
    pub replicas: Vec<Place>,
    /// How much is read.
    pub bytes: u64,
}

/// A part of a read.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The flow that it is in the estimates.
    pub flow: FlowId,
    /// The index of the replica in the request.
    pub replica: usize,
    /// The way from it to the reader.
    pub path: Path,
    /// The rate that it is believed to have.
    pub rate: Rate,
    /// How much of the read.
    pub bytes: u64,
}

/// What was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// At least one; together all bytes.
    pub parts: Vec<Part>,
    /// The seconds that the read is believed to take.
    pub seconds: f64,
    /// The seconds by which others are believed to end later, in sum.
    pub impact: f64,
}

/// A replica and a path to it that may be chosen.
struct Candidate<'a> {
    replica: usize,
    route: Route<'a>,
    carriers: Vec<Carrier>,
}

/// A part that has been tried.
struct Tried {
    flow: FlowId,
    replica: usize,
    path: Path,
}

impl Selection {
    /// Chooses, and adds the flows to the estimates. `None` if no replica can be reached. `draw` decides
    /// among equals.
    pub fn choose(
        &self,
        now: Mono,
        read: &Read,
        paths: &mut Paths,
        estimates: &mut Estimates,
        loads: &HostLoads,
        draw: u64,
    ) -> Option<Choice> {
        let routes: Vec<Routes> =
            read.replicas.iter().map(|replica| paths.between(*replica, read.reader)).collect();
        let allowed = self.replicas(read, &routes, paths, loads, draw);
        let mut candidates: Vec<Candidate> = Vec::new();
        for replica in allowed {
            let routes = &routes[replica];
            // Another part of the draw than the one that chose the replica.
            let hashed = (draw >> 32) % (routes.count() as u64).max(1);
            for (index, route) in (0..).zip(routes.iter()) {
                if self.path == PathBy::Cost || index == hashed {
                    let carriers = estimates.carriers(read.replicas[replica], route);
                    candidates.push(Candidate { replica, route, carriers });
                }
            }
        }
        let bytes = read.bytes as f64;
        let mut tried: Vec<Tried> = Vec::new();
        let (mut seconds, mut impact) = (f64::INFINITY, 0.0);
        let mut undo = Vec::new();
        while tried.len() < self.parts_max {
            let own: Vec<FlowId> = tried.iter().map(|tried| tried.flow).collect();
            let of_own: Rate = own.iter().filter_map(|flow| estimates.rate(*flow)).sum();
            let mut best: Option<(f64, f64, &Candidate, Price)> = None;
            for candidate in &candidates {
                if tried.iter().any(|tried| tried.replica == candidate.replica) {
                    continue;
                }
                let price = estimates.price(now, &candidate.carriers, &own);
                let takes = (of_own - price.own_loss + price.rate).seconds_for(bytes);
                let cost = takes + impact + price.impact;
                if best.as_ref().is_none_or(|best| cost < best.0) {
                    best = Some((cost, takes, candidate, price));
                }
            }
            let Some((_, takes, candidate, price)) = best.filter(|best| best.0 < seconds + impact) else {
                break;
            };
            let size = Some(read.bytes);
            let (flow, undone) = estimates.attempt(now, candidate.carriers.clone(), size, price.rate);
            tried.push(Tried { flow, replica: candidate.replica, path: candidate.route.path() });
            undo.push(undone);
            (seconds, impact) = (takes, impact + price.impact);
        }
        (!tried.is_empty()).then(|| divided(now, read.bytes, tried, estimates, seconds, impact))
    }

    /// The replicas that may be chosen: all, or the one that the scheme names. Those that cannot be reached
    /// are left out.
    fn replicas(
        &self,
        read: &Read,
        routes: &[Routes],
        paths: &mut Paths,
        loads: &HostLoads,
        draw: u64,
    ) -> Vec<usize> {
        let length = |replica: usize| routes[replica].length();
        let mut reached: Vec<usize> =
            (0..routes.len()).filter(|replica| length(*replica).is_some()).collect();
        let keep_drawn = |replicas: &mut Vec<usize>| {
            if !replicas.is_empty() {
                *replicas = vec![replicas[(draw % replicas.len() as u64) as usize]];
            }
        };
        match self.replica {
            ReplicaBy::Cost => {}
            ReplicaBy::Nearest => {
                let nearest = reached.iter().filter_map(|replica| length(*replica)).min();
                reached.retain(|replica| length(*replica) == nearest);
                keep_drawn(&mut reached);
            }
            ReplicaBy::HostLoads => {
                let left: Vec<Rate> = reached
                    .iter()
                    .map(|replica| loads.left(paths, read.replicas[*replica], read.reader))
                    .collect();
                let most = left.iter().copied().fold(Rate::ZERO, Rate::max);
                let mut best: Vec<usize> = (0..reached.len())
                    .filter(|index| left[*index] >= most)
                    .map(|index| reached[index])
                    .collect();
                keep_drawn(&mut best);
                reached = best;
            }
            ReplicaBy::Rack => {
                // Two hops: up to the rack's switch and down again.
                let near: Vec<usize> =
                    reached.iter().copied().filter(|replica| length(*replica) <= Some(2)).collect();
                let nearest = near.iter().filter_map(|replica| length(*replica)).min();
                if !near.is_empty() {
                    reached = near.into_iter().filter(|replica| length(*replica) == nearest).collect();
                }
                keep_drawn(&mut reached);
            }
        }
        reached
    }
}

/// Divides the bytes by the rates, so that all parts end together.
fn divided(
    now: Mono,
    bytes: u64,
    tried: Vec<Tried>,
    estimates: &mut Estimates,
    seconds: f64,
    impact: f64,
) -> Choice {
    let rates: Vec<Rate> =
        tried.iter().map(|tried| estimates.rate(tried.flow).unwrap_or(Rate::ZERO)).collect();
    let all: f64 = rates.iter().map(|rate| rate.bytes()).sum();
    let mut left = bytes;
    let last = tried.len() - 1;
    let mut parts = Vec::with_capacity(tried.len());
    for (index, (tried, rate)) in tried.into_iter().zip(rates).enumerate() {
        let share = (bytes as f64 * rate.bytes() / all) as u64;
        let bytes = if index == last { left } else { share.min(left) };
        left -= bytes;
        estimates.resize(now, tried.flow, bytes);
        estimates.freeze(now, tried.flow);
        parts.push(Part { flow: tried.flow, replica: tried.replica, path: tried.path, rate, bytes });
    }
    Choice { parts, seconds, impact }
}

#[cfg(test)]
mod tests;
