//! Where a cluster's throughput goes.

use super::costs::Costs;
use bearing_lookup::world::Done;

/// A loss as factors, each 1 where nothing is lost. Their product is the throughput over that of as many
/// servers which do nothing but storage operations, if the busiest server is never idle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// Work on storage over all work.
    pub lookup: f64,
    /// The mean work of servers that own something over what one has that is never idle. Servers beside these
    /// (a coordinator) count as owners.
    pub imbalance: f64,
    /// Servers that own something over all.
    pub idle: f64,
    /// The work of servers that are never idle over the time that they are busy, beside the same of one that
    /// takes as much as it can at once: what is lost because few requests wait when a turn begins. 1 where
    /// turns cost nothing.
    pub turns: f64,
}

/// A server that is busy for this share of the time that the busiest one is counts as never idle.
const NEVER_IDLE: f64 = 0.95;

impl Split {
    /// Of what servers have done: of owners and of who stands beside them, and of as many as there are in
    /// all. `None` if nothing was done.
    pub fn of(all: &[Done], servers: usize, ended: u64, costs: &Costs) -> Option<Split> {
        let of = |part: fn(&Done) -> std::time::Duration| -> Vec<f64> {
            all.iter().map(|done| part(done).as_secs_f64()).collect()
        };
        let (work, busy) = (of(|done| done.work), of(|done| done.busy));
        let (sum, most) = (work.iter().sum::<f64>(), busy.iter().copied().fold(0.0, f64::max));
        if sum <= 0.0 || most <= 0.0 || servers == 0 {
            return None;
        }
        // Of several servers, because turns differ: the luckiest one would be taken for the one with the most
        // work.
        let busiest = || work.iter().zip(&busy).filter(|(_, busy)| **busy > NEVER_IDLE * most);
        let in_turns =
            busiest().map(|(work, _)| work).sum::<f64>() / busiest().map(|(_, busy)| busy).sum::<f64>();
        let (storage, with_turn) = (costs.own_storage().as_secs_f64(), costs.storage().as_secs_f64());
        Some(Split {
            lookup: ended as f64 * storage / sum,
            imbalance: sum / work.len() as f64 / (most * in_turns),
            idle: work.len() as f64 / servers as f64,
            turns: in_turns * with_turn / storage,
        })
    }

    /// What is left of the throughput.
    pub fn left(&self) -> f64 {
        self.lookup * self.imbalance * self.idle * self.turns
    }
}
