//! Clusters whose servers take time: how many operations a second they can do, and how long one takes.
//!
//! Invariants: who is asked, who passes what on and who decides is said by the lookup machines of live
//! clusters; only what their work costs is said here. Costs are of one of two modes, *the paper's ratios* or
//! *calibrated*, and no line of a figure has both. A seed gives the same numbers on every machine, but
//! where turns differ by chance: there the last digits are those of its `exp` and `ln`.

pub mod calibration;
mod cluster;
mod costs;
mod network;
mod run;
mod split;
pub mod study;
#[cfg(test)]
mod tests;

pub use cluster::{Cluster, Copies, Division, Relays, Setup, SetupError};
pub use costs::{Agent, Coefficients, Costs, LatencyRatio, Mode, ThroughputRatio};
pub use network::Wires;
pub use run::{Capacity, Latency, Rates, Watch, capacity, closed_loop, latency};
pub use split::Split;
