//! DROP's histogram-based load balancing (HDLB), as AngleCut names it: each server keeps a histogram of the
//! load over its own arc, whose buckets have equal shares of it; a heavy one hands what is too much to a
//! lighter neighbour; where both neighbours are heavy too, the lightest server of all leaves its place and
//! comes beside it.
//!
//! The text of DROP is not among our sources; what a heavy server does when its neighbours are heavy follows
//! the leave-and-rejoin that such systems share. Boundaries come to lie at edges of buckets.
//!
//! Invariant: a step is taken only if it lowers the sum of squared loads, so a rebalance on a steady load
//! ends.

use super::contract::{Partition, PartitionError, distinct, may_go, may_join};
use crate::arcs::Arcs;
use crate::load::Load;
use crate::parameters::Parameters;
use bearing_types::{Position, ServerId};
use std::collections::BTreeSet;

/// One after the last position.
const RING_END: u128 = 1 << 64;

/// See the module.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// Of each server's histogram.
    buckets: u32,
    threshold: f64,
    /// One server after the other, clockwise from position 0.
    owners: Vec<ServerId>,
    /// Where each but the first begins; growing, equal if one has nothing.
    edges: Vec<u128>,
    arcs: Arcs,
}

/// The load from a position up to another one.
fn between(load: &Load, first: u128, end: u128) -> f64 {
    let before = |at: u128| u64::try_from(at).map_or(load.total(), |at| load.before(Position(at)));
    before(end) - before(first)
}

impl Histogram {
    /// Equal arcs for these servers.
    pub fn new(servers: &[ServerId], parameters: &Parameters) -> Result<Histogram, PartitionError> {
        parameters.check()?;
        let owners: Vec<ServerId> = distinct(servers)?.into_iter().collect();
        let count = owners.len() as u128;
        let edges: Vec<u128> = (1..count).map(|index| index * RING_END / count).collect();
        let arcs = divided(&owners, &edges)?;
        Ok(Histogram { buckets: parameters.buckets, threshold: parameters.threshold, owners, edges, arcs })
    }

    fn extent(&self, index: usize) -> (u128, u128) {
        let first = index.checked_sub(1).map_or(0, |before| self.edges[before]);
        (first, self.edges.get(index).copied().unwrap_or(RING_END))
    }

    fn width(&self, index: usize) -> u128 {
        let (first, end) = self.extent(index);
        end - first
    }

    fn refresh(&mut self) -> Result<(), PartitionError> {
        self.arcs = divided(&self.owners, &self.edges)?;
        Ok(())
    }

    /// Takes a server out of its place: the neighbour named takes its arc.
    fn take_out(&mut self, index: usize, by_next: bool) -> ServerId {
        let by_next = index == 0 || (by_next && index + 1 < self.owners.len());
        self.edges.remove(if by_next { index } else { index - 1 });
        self.owners.remove(index)
    }

    /// Puts a server after another, with what begins at `edge`.
    fn put_after(&mut self, index: usize, server: ServerId, edge: u128) {
        self.owners.insert(index + 1, server);
        self.edges.insert(index, edge);
    }

    /// The edge of a bucket of these servers, from one up to the other, that divides their load best.
    fn best_edge(&self, load: &Load, one: usize, other: usize) -> u128 {
        let (first, end) = (self.extent(one).0, self.extent(other).1);
        let total = between(load, first, end);
        let edges = (one..=other).flat_map(|index| {
            let (first, end) = self.extent(index);
            let (before, own) = (between(load, 0, first), between(load, first, end));
            let edge = move |bucket: u32| {
                let share = own * f64::from(bucket) / f64::from(self.buckets);
                u128::from(load.quantile(before + share).0).clamp(first, end)
            };
            (1..self.buckets).map(edge).chain([first])
        });
        let uneven = |edge: &u128| (total - 2.0 * between(load, first, *edge)).abs();
        edges.min_by(|a, b| uneven(a).total_cmp(&uneven(b))).unwrap_or(first)
    }

    /// One step for the heaviest server that can be helped. Whether there was one.
    fn step(&mut self, load: &Load) -> bool {
        let of = |(first, end): (u128, u128)| between(load, first, end);
        let loads: Vec<f64> = (0..self.owners.len()).map(|index| of(self.extent(index))).collect();
        let mean = load.total() / loads.len() as f64;
        let mut heavy: Vec<usize> =
            (0..loads.len()).filter(|index| loads[*index] > mean * (1.0 + self.threshold)).collect();
        heavy.sort_by(|a, b| loads[*b].total_cmp(&loads[*a]));
        heavy.into_iter().any(|index| {
            self.hand_to_neighbour(index, &loads, load) || self.by_rejoining(index, &loads, load, mean)
        })
    }

    /// The lighter neighbour takes what makes the two even.
    fn hand_to_neighbour(&mut self, index: usize, loads: &[f64], load: &Load) -> bool {
        let mut neighbours: Vec<usize> = index.checked_sub(1).into_iter().collect();
        neighbours.extend((index + 1 < loads.len()).then_some(index + 1));
        neighbours.sort_by(|a, b| loads[*a].total_cmp(&loads[*b]));
        neighbours.into_iter().any(|neighbour| {
            let low = index.min(neighbour);
            let edge = self.best_edge(load, low, low + 1);
            let left = between(load, self.extent(low).0, edge);
            let both = loads[index] + loads[neighbour];
            let better = left.max(both - left) < loads[index] * (1.0 - f64::EPSILON * 8.0);
            if better {
                self.edges[low] = edge;
            }
            better
        })
    }

    /// The lightest server elsewhere leaves its arc to its lighter neighbour, and takes half of the heavy
    /// one's.
    fn by_rejoining(&mut self, index: usize, loads: &[f64], load: &Load, mean: f64) -> bool {
        let elsewhere = (0..loads.len()).filter(|other| other.abs_diff(index) > 1);
        let Some(lightest) = elsewhere.min_by(|a, b| loads[*a].total_cmp(&loads[*b])) else { return false };
        let after = loads.get(lightest + 1).copied().unwrap_or(f64::MAX);
        let before = lightest.checked_sub(1).map_or(f64::MAX, |before| loads[before]);
        let edge = self.best_edge(load, index, index);
        let left = between(load, self.extent(index).0, edge);
        let taker = loads[lightest] + after.min(before);
        let right = loads[index] - left;
        let squares = |loads: [f64; 3]| loads.iter().map(|load| load * load).sum::<f64>();
        let now = squares([loads[index], loads[lightest], after.min(before)]);
        let then = squares([left, right, taker]);
        let lower = then < now * (1.0 - f64::EPSILON * 8.0) && left.max(right).max(taker) < loads[index];
        if self.width(index) < 2 || loads[lightest] > mean || !lower {
            return false;
        }
        let server = self.take_out(lightest, after < before);
        let index = if lightest < index { index - 1 } else { index };
        self.put_after(index, server, edge);
        true
    }
}

fn divided(owners: &[ServerId], edges: &[u128]) -> Result<Arcs, PartitionError> {
    let begins = std::iter::once(0).chain(edges.iter().copied());
    let ends = edges.iter().copied().chain([RING_END]);
    let owned = begins.zip(ends).zip(owners).filter(|((first, end), _)| first < end);
    let starts = owned.filter_map(|((first, _), owner)| Some((Position(u64::try_from(first).ok()?), *owner)));
    Arcs::new(starts).map_err(|_| PartitionError::NoServers)
}

impl Partition for Histogram {
    fn arcs(&self) -> &Arcs {
        &self.arcs
    }

    fn members(&self) -> BTreeSet<ServerId> {
        self.owners.iter().copied().collect()
    }

    /// The new server takes half of the widest arc.
    fn join(&mut self, server: ServerId) -> Result<(), PartitionError> {
        may_join(&self.members(), server)?;
        let widest = (0..self.owners.len()).max_by_key(|index| self.width(*index)).unwrap_or(0);
        let middle = self.extent(widest).0 + self.width(widest) / 2;
        self.put_after(widest, server, middle);
        self.refresh()
    }

    /// The next one clockwise takes its arc; that of the last one goes to the one before, as arcs do not
    /// wrap.
    fn leave(&mut self, server: ServerId) -> Result<(), PartitionError> {
        may_go(&self.members(), server)?;
        if let Some(index) = self.owners.iter().position(|owner| *owner == server) {
            self.take_out(index, true);
        }
        self.refresh()
    }

    fn rebalance(&mut self, load: &Load) -> bool {
        let before = self.arcs.clone();
        // One step for each server a round, as heavy ones act side by side.
        for _ in 0..self.owners.len() {
            if !self.step(load) {
                break;
            }
        }
        self.refresh().is_ok() && self.arcs != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn load(weights: &[u32]) -> Load {
        let count = weights.len() as u128;
        let at = |index: usize| Position((((index as u128) << 64) / count) as u64);
        Load::new(weights.iter().enumerate().map(|(index, weight)| (at(index), f64::from(*weight))))
    }

    proptest! {
        #[test]
        fn on_a_steady_load_it_comes_to_rest_and_is_no_worse(count in 2u32..10, weights in proptest::collection::vec(0u32..50, 64)) {
            let servers: Vec<_> = (1..=count).map(ServerId).collect();
            let parameters = Parameters { buckets: 16, ..Parameters::default() };
            let mut histogram = Histogram::new(&servers, &parameters).unwrap();
            let load = load(&weights);
            let before = load.imbalance(histogram.arcs());
            let rounds = (0..1000).find(|_| !histogram.rebalance(&load));
            prop_assert!(rounds.is_some(), "it goes on and on");
            let loads: Vec<f64> = (0..histogram.owners.len()).map(|index| {
                let (first, end) = histogram.extent(index);
                between(&load, first, end)
            }).collect();
            let mean = load.total() / f64::from(count);
            let highest = loads.iter().copied().fold(0.0, f64::max);
            prop_assert!(highest <= before * mean * 1.0001 || load.total() == 0.0);
        }
    }

    #[test]
    fn a_heavy_server_hands_half_to_a_light_neighbour() {
        let parameters = Parameters { buckets: 8, ..Parameters::default() };
        let mut histogram = Histogram::new(&[ServerId(1), ServerId(2)], &parameters).unwrap();
        assert!(histogram.rebalance(&load(&[1, 1, 1, 1, 0, 0, 0, 0])));
        assert_eq!(histogram.edges, [RING_END / 4]);
    }

    #[test]
    fn a_light_server_far_away_comes_beside_one_whose_neighbours_are_heavy_too() {
        let servers: Vec<_> = (1..=4).map(ServerId).collect();
        let parameters = Parameters { buckets: 16, ..Parameters::default() };
        let mut histogram = Histogram::new(&servers, &parameters).unwrap();
        let load = load(&[9, 9, 9, 9, 9, 9, 9, 9, 1, 1, 1, 1, 0, 0, 0, 0]);
        while histogram.rebalance(&load) {}
        assert!(load.imbalance(histogram.arcs()) < 1.3, "{:?}", histogram);
    }

    /// Equal buckets over the whole ring would not see into it.
    #[test]
    fn a_hot_arc_that_is_small_is_divided_too() {
        let servers: Vec<_> = (1..=4).map(ServerId).collect();
        let mut histogram = Histogram::new(&servers, &Parameters::default()).unwrap();
        let load = Load::new((0..1000).map(|index| (Position((77 << 40) + (index << 20)), 1.0)));
        while histogram.rebalance(&load) {}
        assert!(load.imbalance(histogram.arcs()) < 1.2, "{}", load.imbalance(histogram.arcs()));
    }
}
