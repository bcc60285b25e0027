//! Measured load: how often positions were asked for.

use crate::arcs::Arcs;
use bearing_types::{Position, ServerId};
use std::collections::BTreeMap;

/// Accesses by position, as far as they were sampled. Weights are counts in no particular unit; only their
/// shares matter.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// In the order of positions, each once, weights above zero.
    samples: Vec<(Position, f64)>,
    /// `sums[i]` is the weight of all samples before `i`.
    sums: Vec<f64>,
}

impl Default for Load {
    /// Nothing was asked for.
    fn default() -> Load {
        Load::new([])
    }
}

impl Load {
    /// From samples in any order. A weight that is not above zero counts as none.
    pub fn new(samples: impl IntoIterator<Item = (Position, f64)>) -> Load {
        let is_weight = |weight: f64| weight > 0.0 && weight.is_finite();
        let mut samples: Vec<_> = samples.into_iter().filter(|(_, weight)| is_weight(*weight)).collect();
        // Stable, so that weights of one position add up in the order given.
        samples.sort_by_key(|(position, _)| *position);
        samples.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            kept.1 += if is_same { next.1 } else { 0.0 };
            is_same
        });
        let mut sum = 0.0;
        let mut sums = vec![0.0];
        sums.extend(samples.iter().map(|(_, weight)| {
            sum += weight;
            sum
        }));
        Load { samples, sums }
    }

    /// The samples in ring order.
    pub fn samples(&self) -> &[(Position, f64)] {
        &self.samples
    }

    /// The sum of all weights.
    pub fn total(&self) -> f64 {
        self.sums.last().copied().unwrap_or(0.0)
    }

    /// The weight of all samples before a position.
    pub fn before(&self, position: Position) -> f64 {
        self.sums.get(self.rank(position)).copied().unwrap_or(0.0)
    }

    /// The weight between two positions, both included.
    pub fn between(&self, first: Position, last: Position) -> f64 {
        let after = self.samples.partition_point(|(position, _)| *position <= last);
        self.sums.get(after).copied().unwrap_or(0.0) - self.before(first)
    }

    /// How many samples lie before a position.
    pub fn rank(&self, position: Position) -> usize {
        self.samples.partition_point(|(sampled, _)| *sampled < position)
    }

    /// The first sampled position before which at least `weight` lies, or the end of the ring.
    pub fn quantile(&self, weight: f64) -> Position {
        let index = self.sums.partition_point(|sum| *sum < weight);
        self.samples.get(index).map_or(Position(u64::MAX), |(position, _)| *position)
    }

    /// The last position before which at most `weight` lies.
    pub fn floor(&self, weight: f64) -> Position {
        // Every sample before this one may lie before the position, so the position may be this sample's.
        let within = self.sums.partition_point(|sum| *sum <= weight);
        let last = within.checked_sub(1).and_then(|index| self.samples.get(index));
        last.map_or(Position(u64::MAX), |(position, _)| *position)
    }

    /// A position such that, of all samples between two positions, the first on the way changes sides; the
    /// other position, if there is none.
    pub fn one_sample_towards(&self, from: Position, to: Position) -> Position {
        let rank = self.rank(from);
        if to > from {
            let after = self.samples.get(rank).and_then(|(position, _)| position.0.checked_add(1));
            after.map_or(to, |after| Position(after).min(to))
        } else {
            let before = rank.checked_sub(1).map(|before| self.samples[before].0);
            before.map_or(to, |before| before.max(to))
        }
    }

    /// The load of every server that owns an arc.
    pub fn by_server(&self, arcs: &Arcs) -> BTreeMap<ServerId, f64> {
        let mut loads: BTreeMap<ServerId, f64> =
            arcs.servers().into_iter().map(|server| (server, 0.0)).collect();
        for (first, last, owner) in arcs.iter() {
            *loads.entry(owner).or_default() += self.between(first, last);
        }
        loads
    }

    /// The highest load of a server over the mean of all that own something: 1 is perfect balance. Members
    /// that stand idle do not count.
    pub fn imbalance(&self, arcs: &Arcs) -> f64 {
        let loads = self.by_server(arcs);
        let highest = loads.values().copied().fold(0.0, f64::max);
        let mean = self.total() / loads.len() as f64;
        if mean > 0.0 { highest / mean } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_agree_with_adding_up(samples in proptest::collection::vec((0u64..100, 1u32..9), 0..40), a in 0u64..100, b in 0u64..100) {
            let load = Load::new(samples.iter().map(|(at, weight)| (Position(*at), f64::from(*weight))));
            let (first, last) = (a.min(b), a.max(b));
            let added: u32 = samples.iter().filter(|(at, _)| (first..=last).contains(at)).map(|(_, weight)| weight).sum();
            prop_assert_eq!(load.between(Position(first), Position(last)), f64::from(added));
            let at = load.quantile(load.total() / 2.0);
            prop_assert!(load.before(at) >= load.total() / 2.0 || at == Position(u64::MAX) || load.samples().is_empty());
        }
    }

    #[test]
    fn what_is_no_weight_counts_as_none() {
        let load = Load::new([(Position(1), f64::NAN), (Position(2), -1.0), (Position(3), 2.0)]);
        assert_eq!((load.total(), load.samples().len()), (2.0, 1));
    }
}
