//! Figures 6 to 13 and table 5 of G-HBA.
//!
//! Measured: which level answers a query, whom it misled, messages, replicas that move, bytes of filters, all
//! of the machines of `bearing_lookup::bloom`. Assumed: times ([`Times`]) and popularity ([`Workload`]),
//! which the paper does not print. Scaled: a server has as many files as a run has queries, not 1.6 million.

mod cluster;
mod files;
mod latency;
mod memory;
mod moves;
mod sizes;
mod where_found;

pub use latency::{figure_8, figure_9, figure_10};
pub use memory::table_5;
pub use moves::{figure_11, figure_12};
pub use sizes::{figure_6, figure_7};
pub use where_found::figure_13;

use super::Effort;
use crate::figure::{Figure, Series};
use bearing_types::ParameterError;

/// Where what is drawn was not printed by the paper.
const ASSUMED: &str = "popularity (Zipf) and times are assumed, levels and messages are the machines'";

/// Files of the scaled HP trace (table 4): all, and those that are used.
const FILES: f64 = 160e6;
const ACTIVE: f64 = 38.76e6;

/// How files are asked for. The paper prints how many requests its traces have, not how they are spread:
/// everything here is assumed.
#[derive(Clone, Copy, Debug)]
struct Workload {
    name: &'static str,
    /// The exponent of Zipf's distribution over the files in use.
    exponent: f64,
    /// Of 1,000 operations so many create a file first.
    created_per_mille: u64,
    /// Of 1,000 lookups so many are of files created lately, which replicas may not know of yet.
    young_per_mille: u64,
}

const HP: Workload = Workload { name: "HP", exponent: 1.0, created_per_mille: 10, young_per_mille: 10 };
/// Nine of ten requests are `stat`, of the same files again and again.
const RES: Workload = Workload { name: "RES", exponent: 1.1, created_per_mille: 5, young_per_mille: 5 };
const INS: Workload = Workload { name: "INS", exponent: 1.05, created_per_mille: 10, young_per_mille: 10 };

/// Times in milliseconds. Assumed.
struct Times;

impl Times {
    /// One way between two servers of a data centre.
    const ONE_WAY: f64 = 0.1;
    /// To take a message in and look at it.
    const MESSAGE: f64 = 0.01;
    /// To look into one filter in memory.
    const PROBE: f64 = 0.0005;
    /// To read a page of a filter that is not in memory.
    const DISK: f64 = 5.0;
    /// To serve an operation at its home: 5,000 a second.
    const SERVE: f64 = 0.2;
    /// A bit on a link of 1 Gb/s.
    const BIT: f64 = 1e-6;

    /// One server asks so many and hears all.
    fn multicast(asked: f64) -> f64 {
        2.0 * Times::ONE_WAY + asked * Times::MESSAGE
    }
}

/// Servers on the first axis of most figures.
const SERVERS: [u32; 6] = [10, 20, 40, 60, 80, 100];

fn xs(of: &[u32]) -> Vec<f64> {
    of.iter().map(|x| f64::from(*x)).collect()
}

fn figure(name: &str, effort: Effort, axes: [&str; 3], series: Vec<Series>) -> Figure {
    let [x, y, unit] = axes.map(str::to_owned);
    let figure = name.to_owned();
    let (published, ours, commit) = (Vec::new(), Vec::new(), String::new());
    Figure { figure, x, y, unit, series, published, ours, seed: effort.seed, commit }
}

/// Sizes of the figures are within the bounds of filters.
fn in_bounds<T>(made: Result<T, ParameterError>) -> T {
    made.unwrap_or_else(|error| panic!("a size of a figure is out of bounds: {error}"))
}
