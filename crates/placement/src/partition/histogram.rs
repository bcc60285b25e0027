//! DROP's histogram-based load balancing (HDLB), as AngleCut names it: each server knows the load in buckets
//! of the ring; a heavy one hands what is too much to a lighter neighbour; where both neighbours are heavy
//! too, the lightest server of all leaves its place and comes beside it.
//!
//! The text of DROP is not among our sources; what a heavy server does when its neighbours are heavy follows
//! the leave-and-rejoin that such systems share. Boundaries lie at edges of buckets, so balance is as fine as
//! these are.
//!
//! Invariant: a step is taken only if it lowers the sum of squared loads, so a rebalance on a steady load
//! ends.

use super::contract::{Partition, PartitionError, distinct, may_go, may_join};
use crate::arcs::Arcs;
use crate::load::Load;
use crate::parameters::Parameters;
use bearing_types::{Position, ServerId};
use std::collections::BTreeSet;

/// See the module.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: u32,
    threshold: f64,
    /// One server after the other, clockwise from bucket 0.
    owners: Vec<ServerId>,
    /// The first bucket of each but the first; growing, equal if one has nothing.
    edges: Vec<u32>,
    arcs: Arcs,
}

impl Histogram {
    /// Equal arcs for these servers.
    pub fn new(servers: &[ServerId], parameters: &Parameters) -> Result<Histogram, PartitionError> {
        parameters.check()?;
        let owners: Vec<ServerId> = distinct(servers)?.into_iter().collect();
        let buckets = parameters.buckets;
        if owners.len() > buckets as usize {
            return Err(PartitionError::NoBucket(buckets as usize, owners.len()));
        }
        let count = owners.len() as u64;
        let edges: Vec<u32> = (1..count).map(|index| (index * u64::from(buckets) / count) as u32).collect();
        let arcs = divided(buckets, &owners, &edges)?;
        Ok(Histogram { buckets, threshold: parameters.threshold, owners, edges, arcs })
    }

    fn extent(&self, index: usize) -> (u32, u32) {
        let first = index.checked_sub(1).map_or(0, |before| self.edges[before]);
        (first, self.edges.get(index).copied().unwrap_or(self.buckets))
    }

    fn width(&self, index: usize) -> u32 {
        let (first, end) = self.extent(index);
        end - first
    }

    fn counts(&self, load: &Load) -> Vec<f64> {
        let mut counts = vec![0.0; self.buckets as usize];
        for (position, weight) in load.samples() {
            let bucket = (u128::from(position.0) * u128::from(self.buckets)) >> 64;
            counts[bucket as usize] += weight;
        }
        counts
    }

    fn refresh(&mut self) -> Result<(), PartitionError> {
        self.arcs = divided(self.buckets, &self.owners, &self.edges)?;
        Ok(())
    }

    /// Takes a server out of its place: the neighbour named takes its buckets.
    fn take_out(&mut self, index: usize, by_next: bool) -> ServerId {
        let by_next = index == 0 || (by_next && index + 1 < self.owners.len());
        self.edges.remove(if by_next { index } else { index - 1 });
        self.owners.remove(index)
    }

    /// Puts a server after another, with the buckets from `edge` on.
    fn put_after(&mut self, index: usize, server: ServerId, edge: u32) {
        self.owners.insert(index + 1, server);
        self.edges.insert(index, edge);
    }

    /// The edge that divides the load of these buckets best, the whole count included.
    fn best_edge(counts: &[f64], first: u32, end: u32) -> u32 {
        let total: f64 = counts[first as usize..end as usize].iter().sum();
        let mut sum = 0.0;
        let mut best = (f64::MAX, first);
        for edge in first..=end {
            let uneven = (total - 2.0 * sum).abs();
            if uneven < best.0 {
                best = (uneven, edge);
            }
            sum += counts.get(edge as usize).copied().unwrap_or(0.0);
        }
        best.1
    }

    /// One step for the heaviest server that can be helped. Whether there was one.
    fn step(&mut self, counts: &[f64]) -> bool {
        let sum = |(first, end): (u32, u32)| counts[first as usize..end as usize].iter().sum::<f64>();
        let loads: Vec<f64> = (0..self.owners.len()).map(|index| sum(self.extent(index))).collect();
        let mean = counts.iter().sum::<f64>() / loads.len() as f64;
        let mut heavy: Vec<usize> =
            (0..loads.len()).filter(|index| loads[*index] > mean * (1.0 + self.threshold)).collect();
        heavy.sort_by(|a, b| loads[*b].total_cmp(&loads[*a]));
        heavy.into_iter().any(|index| {
            self.hand_to_neighbour(index, &loads, counts) || self.by_rejoining(index, &loads, counts, mean)
        })
    }

    /// The lighter neighbour takes what makes the two even.
    fn hand_to_neighbour(&mut self, index: usize, loads: &[f64], counts: &[f64]) -> bool {
        let mut neighbours: Vec<usize> = index.checked_sub(1).into_iter().collect();
        neighbours.extend((index + 1 < loads.len()).then_some(index + 1));
        neighbours.sort_by(|a, b| loads[*a].total_cmp(&loads[*b]));
        neighbours.into_iter().any(|neighbour| {
            let low = index.min(neighbour);
            let (first, end) = (self.extent(low).0, self.extent(low + 1).1);
            let edge = Histogram::best_edge(counts, first, end);
            let left: f64 = counts[first as usize..edge as usize].iter().sum();
            let both = loads[index] + loads[neighbour];
            let better = left.max(both - left) < loads[index] * (1.0 - f64::EPSILON * 8.0);
            if better {
                self.edges[low] = edge;
            }
            better
        })
    }

    /// The lightest server elsewhere leaves its buckets to its lighter neighbour, and takes half of the heavy
    /// one's.
    fn by_rejoining(&mut self, index: usize, loads: &[f64], counts: &[f64], mean: f64) -> bool {
        let elsewhere = (0..loads.len()).filter(|other| other.abs_diff(index) > 1);
        let Some(lightest) = elsewhere.min_by(|a, b| loads[*a].total_cmp(&loads[*b])) else { return false };
        let after = loads.get(lightest + 1).copied().unwrap_or(f64::MAX);
        let before = lightest.checked_sub(1).map_or(f64::MAX, |before| loads[before]);
        let (first, end) = self.extent(index);
        let edge = Histogram::best_edge(counts, first, end);
        let left: f64 = counts[first as usize..edge as usize].iter().sum();
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

fn divided(buckets: u32, owners: &[ServerId], edges: &[u32]) -> Result<Arcs, PartitionError> {
    let edge = |bucket: u32| {
        (bucket < buckets).then(|| Position((u128::from(bucket) << 64).div_ceil(u128::from(buckets)) as u64))
    };
    let begins = std::iter::once(0).chain(edges.iter().copied());
    let ends = edges.iter().copied().chain([buckets]);
    let owned = begins.zip(ends).zip(owners).filter(|((first, end), _)| first < end);
    let starts = owned.filter_map(|((first, _), owner)| Some((edge(first)?, *owner)));
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
        let (first, end) = self.extent(widest);
        if end - first < 2 {
            return Err(PartitionError::NoBucket(self.buckets as usize, self.owners.len() + 1));
        }
        self.put_after(widest, server, first + (end - first) / 2);
        self.refresh()
    }

    /// The next one clockwise takes its buckets; those of the last one go to the one before, as buckets do
    /// not wrap.
    fn leave(&mut self, server: ServerId) -> Result<(), PartitionError> {
        may_go(&self.members(), server)?;
        if let Some(index) = self.owners.iter().position(|owner| *owner == server) {
            self.take_out(index, true);
        }
        self.refresh()
    }

    fn rebalance(&mut self, load: &Load) -> bool {
        let counts = self.counts(load);
        let before = self.arcs.clone();
        // One step for each server a round, as heavy ones act side by side.
        for _ in 0..self.owners.len() {
            if !self.step(&counts) {
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
            let parameters = Parameters { buckets: 64, ..Parameters::default() };
            let mut histogram = Histogram::new(&servers, &parameters).unwrap();
            let load = load(&weights);
            let before = load.imbalance(histogram.arcs());
            let rounds = (0..1000).find(|_| !histogram.rebalance(&load));
            prop_assert!(rounds.is_some(), "it goes on and on");
            let loads: Vec<f64> = (0..histogram.owners.len()).map(|index| {
                let (first, end) = histogram.extent(index);
                weights[first as usize..end as usize].iter().map(|weight| f64::from(*weight)).sum()
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
        assert_eq!(histogram.edges, [2]);
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

    #[test]
    fn more_servers_than_buckets_are_refused() {
        let servers: Vec<_> = (1..=3).map(ServerId).collect();
        let parameters = Parameters { buckets: 2, ..Parameters::default() };
        assert_eq!(Histogram::new(&servers, &parameters).unwrap_err(), PartitionError::NoBucket(2, 3));
    }
}
