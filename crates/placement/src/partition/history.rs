//! AngleCut's allocation (section 4.4): boundaries at equal shares of the measured load, damped by what they
//! were.
//!
//! ```text
//! psi   boundaries at equal shares of the load that was sampled lately (its CDF over the ring), then each
//!       where its two neighbours are most even: a name that is used as much as a server's share of all
//!       makes equal shares impossible
//! phi   = alpha * phi + (1 - alpha) * psi       alpha grows by a step with every rebalance, up to a bound
//! ```
//!
//! Published: moves with every rebalance, by as much as the formula says. Beyond the paper, as options: a
//! boundary stays if what would change hands is no more than `hysteresis` of a server's share, so a load that
//! wavers less moves nothing; and one rebalance moves at most `migration_budget` of the load, or one sampled
//! position if that alone is more.
//!
//! Invariant: arcs change only if a sampled position changes hands, so a rebalance on a steady load ends.

use super::contract::{Partition, PartitionError, distinct, may_go, may_join};
use crate::arcs::Arcs;
use crate::load::Load;
use crate::parameters::Parameters;
use bearing_types::{Position, ServerId};
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// How often the part of the way that boundaries go is halved until what moves is within the budget.
const HALVINGS: i32 = 8;

/// How often boundaries are made more even, one after the other.
const SWEEPS: usize = 16;

/// See the module.
#[derive(Clone, Debug)]
pub struct History {
    parameters: Parameters,
    alpha: f64,
    /// One virtual server after the other, clockwise from position 0.
    owners: Vec<ServerId>,
    /// Where each but the first begins, as it is served.
    boundaries: Vec<Position>,
    /// Where each but the first would begin if arcs followed every step, however small.
    phi: Vec<Position>,
    /// Members, also such as own nothing.
    members: BTreeSet<ServerId>,
    /// The last load that was measured.
    load: Load,
    arcs: Arcs,
}

impl History {
    /// Equal arcs, `virtual_nodes` for each of these servers, dealt out in turns.
    pub fn new(servers: &[ServerId], parameters: &Parameters) -> Result<History, PartitionError> {
        parameters.check()?;
        let members = distinct(servers)?;
        let turns = (0..parameters.virtual_nodes).flat_map(|_| members.iter().copied());
        let owners: Vec<ServerId> = turns.collect();
        let count = owners.len() as u128;
        let boundaries = (1..count).map(|index| Position(((index << 64) / count) as u64)).collect::<Vec<_>>();
        let arcs = divided(&owners, &boundaries, parameters.tolerance)?;
        Ok(History {
            parameters: parameters.clone(),
            alpha: parameters.alpha_start,
            owners,
            phi: boundaries.clone(),
            boundaries,
            members,
            load: Load::default(),
            arcs,
        })
    }

    /// The weight that old boundaries have at the next rebalance.
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    /// The weight between two positions, both included: measured, or by length before anything was.
    fn weight(&self, first: Position, last: Position) -> f64 {
        if self.load.total() > 0.0 { self.load.between(first, last) } else { (last.0 - first.0) as f64 }
    }

    fn extent(&self, index: usize) -> (Position, Position) {
        let first = index.checked_sub(1).map_or(Position(0), |before| self.boundaries[before]);
        let last = self.boundaries.get(index).map_or(Position(u64::MAX), |next| Position(next.0 - 1));
        (first, last)
    }

    /// Where to cut an arc so that both halves have the same weight; never at its first position.
    fn middle(&self, index: usize) -> Option<Position> {
        let (first, last) = self.extent(index);
        if first == last {
            return None;
        }
        let by_length = Position(first.0 + (last.0 - first.0) / 2 + 1);
        if self.load.total() == 0.0 {
            return Some(by_length);
        }
        let half = self.load.before(first) + self.load.between(first, last) / 2.0;
        let by_load = self.load.quantile(half);
        Some(if first < by_load && by_load <= last { by_load } else { by_length })
    }

    fn heaviest(&self) -> Option<(usize, Position)> {
        let arcs = (0..self.owners.len()).map(|index| (index, self.extent(index)));
        let weighed = arcs
            .filter(|(_, (first, last))| first < last)
            .map(|(index, (first, last))| (index, self.weight(first, last)));
        // Of equal ones the first.
        let (index, _) = weighed.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))?;
        Some((index, self.middle(index)?))
    }

    fn remove(&mut self, server: ServerId, taker: impl Fn(&History, usize) -> bool, wraps: Wraps) {
        while let Some(index) = self.owners.iter().position(|owner| *owner == server) {
            let others = self.owners.iter().find(|owner| **owner != server).copied();
            if let (Wraps::Over, Some(first), true) = (wraps, others, index + 1 == self.owners.len()) {
                self.owners[index] = first;
                continue;
            }
            // Whose boundary moves over it: the one after takes it by beginning where it began.
            let after = index + 1 < self.owners.len() && (index == 0 || taker(self, index));
            self.owners.remove(index);
            self.boundaries.remove(if after { index } else { index - 1 });
        }
    }

    fn refresh(&mut self) -> Result<(), PartitionError> {
        self.phi.clone_from(&self.boundaries);
        self.arcs = divided(&self.owners, &self.boundaries, self.parameters.tolerance)?;
        Ok(())
    }

    /// The boundaries at equal shares of a load, strictly growing.
    fn equal_shares(&self, load: &Load) -> Vec<Position> {
        let count = self.owners.len();
        let share = |index: usize| load.total() * index as f64 / count as f64;
        evened(load, apart((1..count).map(|index| load.quantile(share(index))).collect()))
    }

    /// A boundary is worth being moved if that is more than a part of what a server has.
    fn where_worth(&self, load: &Load, wanted: &[Position]) -> Vec<Position> {
        let least = self.parameters.hysteresis * load.total() / self.owners.len() as f64;
        let stays = |from: Position, to: Position| (load.before(to) - load.before(from)).abs() <= least;
        let pairs = self.boundaries.iter().zip(wanted);
        apart(pairs.map(|(from, to)| if least > 0.0 && stays(*from, *to) { *from } else { *to }).collect())
    }

    /// What is served next: these boundaries; or, if more than the budget changed hands so, boundaries on the
    /// way to them: all of them a part of it, as large as the budget allows, or else one by one sample.
    /// Nothing, if no sampled position changes hands.
    fn next(&self, load: &Load, wanted: &[Position]) -> Option<(Vec<Position>, Arcs)> {
        let budget = load.total() * self.parameters.migration_budget;
        let fits = |next: Vec<Position>| {
            let arcs = divided(&self.owners, &next, self.parameters.tolerance).ok()?;
            let (samples, weight) = moved(load, &self.arcs, &arcs);
            (samples > 0 && (weight <= budget || samples == 1)).then_some((next, arcs))
        };
        let all = divided(&self.owners, wanted, self.parameters.tolerance).ok()?;
        match moved(load, &self.arcs, &all) {
            (0, _) => return None,
            (_, weight) if weight <= budget => return Some((wanted.to_vec(), all)),
            _ => {}
        }
        let way = |from: Position, to: Position| (load.before(to) - load.before(from)).abs();
        let ways: Vec<f64> = self.boundaries.iter().zip(wanted).map(|(from, to)| way(*from, *to)).collect();
        let largest = (budget / ways.iter().sum::<f64>()).min(1.0);
        let part_of_the_way = |part: f64| {
            let step = |(from, to): (&Position, &Position)| {
                let (low, high) = (load.before(*from), load.before(*to));
                let goal = low + (high - low) * part;
                match to.cmp(from) {
                    // Nothing lies between: whatever its neighbours do, it is not in their way.
                    _ if low == high => *to,
                    // Rounded to where it comes from, whichever way it goes.
                    Ordering::Less => load.quantile(goal).clamp(*to, *from),
                    _ => load.floor(goal).clamp(*from, *to),
                }
            };
            apart(self.boundaries.iter().zip(wanted).map(step).collect())
        };
        let parts = (0..HALVINGS).map(|times| part_of_the_way(largest / 2f64.powi(times)));
        // The farthest may be held by its neighbour, which has to go first.
        let mut farthest: Vec<usize> = (0..ways.len()).collect();
        farthest.sort_by(|a, b| ways[*b].total_cmp(&ways[*a]));
        let by_one = farthest.into_iter().map(|index| {
            let mut by_one = part_of_the_way(0.0);
            by_one[index] = load.one_sample_towards(self.boundaries[index], wanted[index]);
            apart(by_one)
        });
        parts.chain(by_one).find_map(fits)
    }
}

/// Each boundary where the arcs beside it are most even, as far as samples can be divided.
fn evened(load: &Load, mut boundaries: Vec<Position>) -> Vec<Position> {
    for _ in 0..SWEEPS {
        let mut changed = false;
        for index in 0..boundaries.len() {
            let from = index.checked_sub(1).map_or(Position(0), |before| boundaries[before]);
            let to = boundaries.get(index + 1).copied();
            let end = to.map_or(load.total(), |to| load.before(to));
            let half = (load.before(from) + end) / 2.0;
            let off = |position: Position| (load.before(position) - half).abs();
            let present = boundaries[index];
            let best = [load.quantile(half), load.floor(half)].into_iter().fold(present, |best, cut| {
                let is_between = from < cut && to.is_none_or(|to| cut < to);
                if is_between && off(cut) < off(best) * (1.0 - 1e-9) { cut } else { best }
            });
            changed |= best != present;
            boundaries[index] = best;
        }
        if !changed {
            break;
        }
    }
    boundaries
}

/// What becomes of the last arc on the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wraps {
    /// It goes to the arc before.
    Not,
    /// The next one clockwise is the first on the ring.
    Over,
}

fn divided(owners: &[ServerId], boundaries: &[Position], tolerance: f64) -> Result<Arcs, PartitionError> {
    let starts = std::iter::once(&Position(0)).chain(boundaries).copied().zip(owners.iter().copied());
    let arcs = Arcs::new(starts).map_err(|_| PartitionError::NoServers)?;
    Ok(if tolerance > 0.0 { arcs.rounded(tolerance) } else { arcs })
}

/// How many sampled positions change hands between two divisions, and their weight.
fn moved(load: &Load, before: &Arcs, after: &Arcs) -> (usize, f64) {
    let moved =
        load.samples().iter().filter(|(position, _)| before.owner(*position) != after.owner(*position));
    moved.fold((0, 0.0), |(count, sum), (_, weight)| (count + 1, sum + weight))
}

/// Makes boundaries strictly growing from 1 on, moving each as little as needed.
fn apart(mut boundaries: Vec<Position>) -> Vec<Position> {
    let mut least = 1u64;
    for boundary in &mut boundaries {
        boundary.0 = boundary.0.max(least);
        least = boundary.0.saturating_add(1);
    }
    let mut most = u64::MAX;
    for boundary in boundaries.iter_mut().rev() {
        boundary.0 = boundary.0.min(most);
        most = boundary.0 - 1;
    }
    boundaries
}

/// Between two positions by weight of the first, rounded towards the second: so the second is reached, not
/// only approached.
fn between(weight: f64, from: Position, to: Position) -> Position {
    let left = (from.0.abs_diff(to.0) as f64 * weight) as u64;
    if weight >= 1.0 {
        return from;
    }
    Position(if from <= to { to.0 - left } else { to.0 + left })
}

impl Partition for History {
    fn arcs(&self) -> &Arcs {
        &self.arcs
    }

    fn members(&self) -> BTreeSet<ServerId> {
        self.members.clone()
    }

    /// The new server takes half of the heaviest arcs, one after the other.
    fn join(&mut self, server: ServerId) -> Result<(), PartitionError> {
        may_join(&self.members, server)?;
        for _ in 0..self.parameters.virtual_nodes {
            let Some((index, middle)) = self.heaviest() else { break };
            self.owners.insert(index + 1, server);
            self.boundaries.insert(index, middle);
        }
        self.members.insert(server);
        self.refresh()
    }

    /// Each of its arcs goes to the lighter neighbour.
    fn leave(&mut self, server: ServerId) -> Result<(), PartitionError> {
        may_go(&self.members, server)?;
        self.remove(
            server,
            |history, index| {
                let weight = |index: usize| {
                    let (first, last) = history.extent(index);
                    history.weight(first, last)
                };
                weight(index + 1) < weight(index - 1)
            },
            Wraps::Not,
        );
        self.members.remove(&server);
        self.refresh()
    }

    /// Each of its arcs goes to the next one clockwise, which has the copies.
    fn fail(&mut self, server: ServerId) -> Result<(), PartitionError> {
        may_go(&self.members, server)?;
        self.remove(server, |_, _| true, Wraps::Over);
        self.members.remove(&server);
        self.refresh()
    }

    fn rebalance(&mut self, load: &Load) -> bool {
        if load.total() == 0.0 {
            return false;
        }
        self.load = load.clone();
        let alpha = self.alpha;
        self.alpha = (self.alpha + self.parameters.alpha_step).min(self.parameters.alpha_max);
        let psi = self.equal_shares(load);
        let phi = self.phi.iter().zip(&psi).map(|(old, new)| between(alpha, *old, *new)).collect();
        self.phi = apart(phi);
        let wanted = self.where_worth(load, &self.phi);
        let Some((boundaries, arcs)) = self.next(load, &wanted) else { return false };
        (self.boundaries, self.arcs) = (boundaries, arcs);
        true
    }
}

#[cfg(test)]
mod tests;
