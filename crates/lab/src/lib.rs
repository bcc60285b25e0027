//! The lab: published figures, drawn anew with the code that production runs.
//!
//! Invariants: the machines that decide here are those of live clusters, in virtual time; a seed gives the
//! same numbers on every machine. Charts and reports are values too: this crate must not know who asks for
//! them or where they are kept.

mod candidate;
pub mod chart;
pub mod figure;
mod figures;
pub mod generate;
pub mod namespace;
pub mod parallel;
pub mod picture;
pub mod placed;
pub mod queues;
pub mod reads;
pub mod replay;
pub mod report;
pub mod scores;
mod statistics;
pub mod trace;

pub use candidate::Candidate;
pub use figures::{CALIBRATED, FIGURES, Known, WAITING, Waiting, calibrated, calibrated_basis};
pub use statistics::{Interval, mean, percentile};
