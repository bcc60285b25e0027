//! What all of G-HBA's figures assume, and share.

use crate::figure::{Figure, Series};
use crate::figures::effort::Effort;
use bearing_types::ParameterError;

/// Where what is drawn was not printed by the paper.
pub(super) const ASSUMED: &str =
    "popularity (Zipf) and times are assumed, levels and messages are the machines'";

/// Files of the scaled HP trace (table 4): all, and those that are used.
pub(super) const FILES: f64 = 160e6;
pub(super) const ACTIVE: f64 = 38.76e6;

/// How files are asked for. The paper prints how many requests its traces have, not how they are spread:
/// everything here is assumed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    pub(super) name: &'static str,
    /// The exponent of Zipf's distribution over the files in use.
    pub(super) exponent: f64,
    /// Of 1,000 operations so many create a file first.
    pub(super) created_per_mille: u64,
    /// Of 1,000 lookups so many are of files created lately, which replicas may not know of yet.
    pub(super) young_per_mille: u64,
}

pub(super) const HP: Workload =
    Workload { name: "HP", exponent: 1.0, created_per_mille: 10, young_per_mille: 10 };
/// Nine of ten requests are `stat`, of the same files again and again.
pub(super) const RES: Workload =
    Workload { name: "RES", exponent: 1.1, created_per_mille: 5, young_per_mille: 5 };
pub(super) const INS: Workload =
    Workload { name: "INS", exponent: 1.05, created_per_mille: 10, young_per_mille: 10 };

/// Times in milliseconds. Assumed.
pub(super) struct Times;

impl Times {
    /// One way between two servers of a data centre.
    pub(super) const ONE_WAY: f64 = 0.1;
    /// To take a message in and look at it.
    pub(super) const MESSAGE: f64 = 0.01;
    /// To look into one filter in memory.
    pub(super) const PROBE: f64 = 0.0005;
    /// To read a page of a filter that is not in memory.
    pub(super) const DISK: f64 = 5.0;
    /// To serve an operation at its home: 5,000 a second.
    pub(super) const SERVE: f64 = 0.2;
    /// A bit on a link of 1 Gb/s.
    pub(super) const BIT: f64 = 1e-6;

    /// One server asks so many and hears all.
    pub(super) fn multicast(asked: f64) -> f64 {
        2.0 * Times::ONE_WAY + asked * Times::MESSAGE
    }
}

/// Servers on the first axis of most figures.
pub(super) const SERVERS: [u32; 6] = [10, 20, 40, 60, 80, 100];

pub(super) fn xs(of: &[u32]) -> Vec<f64> {
    of.iter().map(|x| f64::from(*x)).collect()
}

pub(super) fn figure(name: &str, effort: Effort, axes: [&str; 3], series: Vec<Series>) -> Figure {
    let [x, y, unit] = axes.map(str::to_owned);
    let figure = name.to_owned();
    let (published, ours, commit) = (Vec::new(), Vec::new(), String::new());
    Figure { figure, x, y, unit, series, published, ours, seed: effort.seed, commit, costs: None }
}

/// Sizes of the figures are within the bounds of filters.
pub(super) fn in_bounds<T>(made: Result<T, ParameterError>) -> T {
    made.unwrap_or_else(|error| panic!("a size of a figure is out of bounds: {error}"))
}
