//! Where a cluster's throughput goes.

use super::costs::Costs;
use bearing_lookup::world::Done;
use std::time::Duration;

/// A loss as factors, each 1 where nothing is lost. Their product is the throughput over that of as many
/// servers which do nothing but storage operations, if the busiest server is never idle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// Work on storage over all work.
    pub lookup: f64,
    /// The mean work of servers that own something over the most that one has. Servers beside these (a
    /// coordinator) count as owners.
    pub imbalance: f64,
    /// Servers that own something over all.
    pub idle: f64,
    /// The work of the server that has the most over the time that it is busy, beside the same of one that
    /// takes as much as it can at once: what is lost because few requests wait when a turn begins. 1 where
    /// turns cost nothing.
    pub turns: f64,
}

impl Split {
    /// Of what servers have done: of owners and of who stands beside them, and of as many as there are in
    /// all. `None` if nothing was done.
    pub fn of(all: &[Done], servers: usize, ended: u64, costs: &Costs) -> Option<Split> {
        let of = |part: fn(&Done) -> Duration| all.iter().map(move |done| part(done).as_secs_f64());
        let most = |part| of(part).fold(0.0, f64::max);
        let (sum, work, busy) =
            (of(|done| done.work).sum::<f64>(), most(|done| done.work), most(|done| done.busy));
        if sum <= 0.0 || busy <= 0.0 || servers == 0 {
            return None;
        }
        let owners = all.len() as f64;
        let (storage, with_turn) = (costs.own_storage().as_secs_f64(), costs.storage().as_secs_f64());
        Some(Split {
            lookup: ended as f64 * storage / sum,
            imbalance: sum / owners / work,
            idle: owners / servers as f64,
            turns: work / busy * with_turn / storage,
        })
    }

    /// What is left of the throughput.
    pub fn left(&self) -> f64 {
        self.lookup * self.imbalance * self.idle * self.turns
    }
}
