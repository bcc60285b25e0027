//! Reads over a simulated network, flow by flow: who reads what when, and how long it takes under a
//! selection.

mod bound;
mod jobs;
mod optimum;
mod world;

pub use bound::lower_bound;
pub use jobs::{Job, Kind, jobs};
pub use optimum::fractional_optimum;
pub use world::{Outcome, run};

use bearing_flow::Replanning;
use bearing_routing::{Placing, Rate, Selection, Topology};
use std::sync::Arc;
use std::time::Duration;

/// A network whose hosts stand in racks and pods, in the order of their numbers.
#[derive(Clone, Debug)]
pub struct Room {
    /// Its topology.
    pub topology: Arc<Topology>,
    /// Hosts of a rack.
    pub rack: u32,
    /// Hosts of a pod.
    pub pod: u32,
}

/// The traffic of others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Others {
    /// Flows a second that begin, for each host.
    pub rate: f64,
    /// Whether the flow server is told of them.
    pub is_reported: bool,
}

/// Chunks that are written beside the reads, as large as these.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Writes {
    /// Writes a second that begin, for each host.
    pub rate: f64,
    /// Copies of each.
    pub copies: usize,
    /// How their hosts are chosen.
    pub placing: Placing,
}

/// Hosts whose disks are slower than their links: every so many-th one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowDisks {
    /// The distance between two of them. At least 1.
    pub every: u32,
    /// What such a disk gives in all.
    pub rate: Rate,
    /// Whether the flow server is told of them.
    pub is_reported: bool,
}

/// An experiment (Mayflower section VI.A).
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Where.
    pub room: Room,
    /// How replicas and paths are chosen.
    pub selection: Selection,
    /// Reads a second that begin, for each host (lambda).
    pub rate: f64,
    /// The reader is in the primary's rack, elsewhere in its pod, or in another pod: shares of 1.
    pub locality: [f64; 3],
    /// Of each read.
    pub bytes: u64,
    /// How many reads there are in all.
    pub reads: usize,
    /// How many files there are in a set. Not published.
    pub files: u64,
    /// How many sets there are: each read draws one of them evenly, and within it a file by Zipf. One as
    /// published; in a larger network more, or three servers would be asked for a share of all reads.
    pub sets: u64,
    /// Flows of others, if any.
    pub others: Option<Others>,
    /// Writes, if any.
    pub writes: Option<Writes>,
    /// Slow disks, if any.
    pub slow_disks: Option<SlowDisks>,
    /// A stream's next request (published: 32 MB).
    pub piece: u64,
    /// Of a piece under way, half is taken by who is free when this is left twice.
    pub least: u64,
    /// How long a question to the flow server takes (published: 4 ms).
    pub query: Duration,
    /// Whether what was chosen may be changed.
    pub replanning: Replanning,
    /// How often hosts are asked for their counters.
    pub poll_interval: Duration,
    /// Draws begin from here.
    pub seed: u64,
}
