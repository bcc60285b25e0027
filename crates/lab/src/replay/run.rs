//! One scheme, one number of servers, one seed: a recorded trace, replayed.

use super::recorded::{Part, Recorded};
use super::routes::{self, Routes};
use crate::candidate::Candidate;
use crate::namespace::NodeNumber;
use crate::placed::Placed;
use crate::scores;
use bearing_placement::partition::build;
use bearing_placement::{Arcs, Load, Partition, Seating, Tree, random_walk};
use bearing_types::{Position, ServerId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Samples of a part's accesses that a rebalance sees at most, as a server's counters would give them.
const SAMPLES_MAX: u64 = 1 << 16;

/// What is replayed.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Over what.
    pub candidate: Candidate,
    /// How many servers.
    pub servers: u32,
    /// Placements, filters and walks are drawn from it.
    pub seed: u64,
}

/// What came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Operations.
    pub operations: u64,
    /// How often the server changes on the way from the root, over all operations: 1 / Loc.
    pub changes: u64,
    /// The same with client caches, which walk only what they do not know.
    pub changes_cached: u64,
    /// How much faster than a single server they are together, if the most loaded one of each part of the
    /// trace decides, with client caches: an operation costs its server one unit, and so does each change of
    /// the server on the way.
    pub speedup: f64,
    /// What happened in each part of the trace.
    pub parts: Vec<PartOutcome>,
    /// Nodes of the tree.
    pub nodes: u64,
    /// Nodes that have another owner after one more server joined at the end.
    pub moved_by_join: u64,
    /// Renames whose old and new name are known, and how many of them lie on two servers at the end: such a
    /// rename is a transaction.
    pub renames: u64,
    /// See there.
    pub renames_across: u64,
    /// Entries that those took from one server to another: one each, because a directory keeps its seat;
    /// where names are placed by their whole path, also all names below that were known.
    pub moved_by_renames: u64,
    /// How requests find servers at the end.
    pub routes: Routes,
}

/// What happened in a part of the trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartOutcome {
    /// When it begins, in microseconds since the trace began.
    pub begins_us: u64,
    /// AngleCut's balance over loads whose mean is 1: (M - 1) / sum((L_i - 1)^2).
    pub balance: f64,
    /// The load of the most loaded server, beside the mean.
    pub most: f64,
    /// Which one that is: its number among the servers, from 1.
    pub most_loaded: u32,
    /// Servers that were asked nothing.
    pub idle: u32,
    /// Nodes that changed hands when arcs were moved at its end.
    pub moved: u64,
}

/// Replays it, then asks for its nodes by the scheme's lookup. `Err`: the scheme cannot be built for so many
/// servers.
pub fn run(recorded: &Recorded, below: &Below, job: &Job) -> Result<Outcome, String> {
    replay(recorded, below, job, true)
}

/// The same without asking: what is said of routes is nothing.
pub fn place(recorded: &Recorded, below: &Below, job: &Job) -> Result<Outcome, String> {
    replay(recorded, below, job, false)
}

fn replay(recorded: &Recorded, below: &Below, job: &Job, asks: bool) -> Result<Outcome, String> {
    let Job { candidate, servers: count, seed } = job;
    let first = (seed % 1000) as u32 * 100_000 + 1;
    let servers: Vec<ServerId> = (first..first + count).map(ServerId).collect();
    let parameters = bearing_placement::Parameters { seed: *seed, ..candidate.parameters.clone() };
    let mut partition =
        build(candidate.parts.partition, &servers, &parameters).map_err(|error| error.to_string())?;
    let placed = Placed::new(&recorded.namespace, candidate.parts.seating, partition.as_mut(), *seed);
    let mut replay = Replay {
        recorded,
        placed: &placed,
        below,
        servers: &servers,
        owners: Vec::new(),
        changes: Vec::new(),
        uses: Vec::new(),
    };
    let mut outcome = Outcome {
        operations: 0,
        changes: 0,
        changes_cached: 0,
        speedup: 0.0,
        parts: Vec::new(),
        nodes: recorded.namespace.count() as u64,
        moved_by_join: 0,
        renames: recorded.renames.len() as u64,
        renames_across: 0,
        moved_by_renames: 0,
        routes: Routes::default(),
    };
    replay.own(partition.arcs());
    let mut load = Load::default();
    for (index, part) in recorded.parts.iter().enumerate() {
        replay.part(part, &mut outcome);
        load = match candidate.parts.seating {
            Seating::SiblingRank => replay.walked(part, seed.wrapping_add(index as u64)),
            _ => replay.sampled(part),
        };
        if partition.rebalance(&load) {
            let before = std::mem::take(&mut replay.owners);
            replay.own(partition.arcs());
            let moved = scores::moved(&before, &replay.owners);
            if let Some(part) = outcome.parts.last_mut() {
                part.moved = moved;
            }
        }
    }
    replay.renamed(candidate.parts.seating, &mut outcome);
    outcome.speedup = outcome.operations as f64 / outcome.speedup.max(1.0);
    if asks {
        outcome.routes = routes::routes(recorded, &placed, candidate, &servers, partition.as_ref(), *seed)?;
    }
    outcome.moved_by_join = replay.joined(partition.as_mut(), &load, ServerId(first + count));
    Ok(outcome)
}

/// For each node what is below it, in one list: made once for a tree.
#[derive(Debug)]
pub struct Below {
    starts: Vec<u32>,
    children: Vec<usize>,
}

impl Below {
    /// Of this tree.
    pub fn new(namespace: &crate::namespace::Namespace) -> Below {
        let mut starts = vec![0u32; namespace.count() + 1];
        for (number, node) in namespace.iter() {
            starts[number as usize + 1] = starts[number as usize] + node.children;
        }
        let mut next = starts.clone();
        let mut children = vec![0; namespace.count() - 1];
        for (number, node) in namespace.iter().skip(1) {
            let at = &mut next[node.parent as usize];
            children[*at as usize] = number as usize;
            *at += 1;
        }
        Below { starts, children }
    }

    fn of(&self, node: usize) -> &[usize] {
        &self.children[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    /// How many names with lower numbers than that are a node or below it: at least 1.
    fn names(&self, node: NodeNumber, known: NodeNumber) -> u64 {
        let (mut count, mut open) = (0, vec![node as usize]);
        while let Some(node) = open.pop() {
            count += 1;
            // What is in a directory has rising numbers.
            open.extend(self.of(node).iter().take_while(|child| **child < known as usize));
        }
        count
    }
}

struct Replay<'a> {
    recorded: &'a Recorded,
    placed: &'a Placed,
    below: &'a Below,
    servers: &'a [ServerId],
    owners: Vec<ServerId>,
    changes: Vec<u32>,
    /// By node, in the part that is sampled.
    uses: Vec<u32>,
}

impl Replay<'_> {
    fn own(&mut self, arcs: &Arcs) {
        self.placed.owners(arcs, &mut self.owners);
        scores::changes(&self.recorded.namespace, &self.owners, &mut self.changes);
    }

    /// A part of the trace is served by whoever owns what at its beginning.
    fn part(&self, part: &Part, outcome: &mut Outcome) {
        let mut loads: BTreeMap<ServerId, f64> = self.servers.iter().map(|server| (*server, 0.0)).collect();
        let mut work = loads.clone();
        for used in &part.used {
            let at = used.node as usize;
            *loads.entry(self.owners[at]).or_default() += f64::from(used.uses);
            outcome.changes += u64::from(self.changes[at]) * u64::from(used.walks);
            let parent = self.recorded.namespace.get(used.node).parent as usize;
            let stepped = if self.owners[at] != self.owners[parent] { used.steps } else { 0 };
            outcome.changes_cached += u64::from(stepped);
            // Its own server is asked at the end of the way; for each change before, the one above was too.
            *work.entry(self.owners[at]).or_default() += f64::from(used.uses);
            *work.entry(self.owners[parent]).or_default() += f64::from(stepped);
        }
        outcome.operations += part.operations;
        // Until the whole trace is over: how long all parts take, in units.
        outcome.speedup += work.values().copied().fold(0.0, f64::max);
        let mean = loads.values().sum::<f64>() / loads.len() as f64;
        loads.values_mut().for_each(|load| *load /= mean);
        let (mut most_loaded, mut most) = (0, 0.0);
        for (number, load) in (1..).zip(loads.values()) {
            if *load > most {
                (most_loaded, most) = (number, *load);
            }
        }
        outcome.parts.push(PartOutcome {
            begins_us: part.begins_us,
            balance: scores::balance(&loads),
            most,
            most_loaded,
            idle: loads.values().filter(|load| **load == 0.0).count() as u32,
            moved: 0,
        });
    }

    /// What counters on servers have seen of a part: every so manieth operation.
    fn sampled(&self, part: &Part) -> Load {
        let every = part.operations.div_ceil(SAMPLES_MAX).max(1);
        let mut seen = 0;
        let mut samples = Vec::new();
        for used in &part.used {
            let before = seen / every;
            seen += u64::from(used.uses);
            let sampled = seen / every - before;
            if sampled > 0 {
                samples.push((self.placed.position(used.node), sampled as f64));
            }
        }
        Load::new(samples)
    }

    /// AngleCut section 4.4: walks over the tree.
    fn walked(&mut self, part: &Part, seed: u64) -> Load {
        self.uses.clear();
        self.uses.resize(self.recorded.namespace.count(), 0);
        part.used.iter().for_each(|used| self.uses[used.node as usize] = used.uses);
        random_walk(self, part.operations.min(SAMPLES_MAX) as usize, seed)
    }

    fn renamed(&self, seating: Seating, outcome: &mut Outcome) {
        for rename in &self.recorded.renames {
            if self.owners[rename.from as usize] == self.owners[rename.to as usize] {
                continue;
            }
            outcome.renames_across += 1;
            outcome.moved_by_renames += match seating {
                Seating::SiblingRank | Seating::PathKey => self.below.names(rename.from, rename.known),
                Seating::AnglecutHashed | Seating::Hash | Seating::Chosen => 1,
            };
        }
    }

    /// How many nodes change hands because another server joins, the next rebalance included.
    fn joined(&mut self, partition: &mut dyn Partition, load: &Load, server: ServerId) -> u64 {
        // What has no room for it moves nothing.
        if partition.join(server).is_err() {
            return 0;
        }
        partition.rebalance(load);
        let before = std::mem::take(&mut self.owners);
        self.placed.owners(partition.arcs(), &mut self.owners);
        scores::moved(&before, &self.owners)
    }
}

impl Tree for Replay<'_> {
    fn count(&self) -> usize {
        self.uses.len()
    }

    fn children(&self, node: usize) -> &[usize] {
        self.below.of(node)
    }

    fn position(&self, node: usize) -> Position {
        self.placed.position(node as NodeNumber)
    }

    fn frequency(&self, node: usize) -> f64 {
        f64::from(self.uses[node])
    }
}
