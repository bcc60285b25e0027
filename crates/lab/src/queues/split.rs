//! Where a cluster's throughput goes.

use bearing_lookup::world::Done;
use std::time::Duration;

/// A loss as three factors, each 1 where nothing is lost. Their product is the throughput over that of as
/// many servers which do nothing but storage operations, if the busiest server is never idle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// Work on storage over all work.
    pub lookup: f64,
    /// The mean work of servers that own something over the most that one has. Servers beside these (a
    /// coordinator) count as owners.
    pub imbalance: f64,
    /// Servers that own something over all.
    pub idle: f64,
}

impl Split {
    /// Of what servers have done: of owners and of who stands beside them, and of as many as there are in
    /// all. `None` if nothing was done.
    pub fn of(busy: &[Done], servers: usize, ended: u64, storage: Duration) -> Option<Split> {
        let work: Vec<f64> = busy.iter().map(|done| done.busy.as_secs_f64()).collect();
        let (sum, most) = (work.iter().sum::<f64>(), work.iter().copied().fold(0.0, f64::max));
        if sum <= 0.0 || servers == 0 {
            return None;
        }
        Some(Split {
            lookup: ended as f64 * storage.as_secs_f64() / sum,
            imbalance: sum / work.len() as f64 / most,
            idle: work.len() as f64 / servers as f64,
        })
    }

    /// What is left of the throughput.
    pub fn left(&self) -> f64 {
        self.lookup * self.imbalance * self.idle
    }
}
