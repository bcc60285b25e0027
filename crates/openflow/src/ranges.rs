//! A set of positions as ranges.

use bearing_types::Position;

/// Disjoint ranges in order, each a first and a last position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<(Position, Position)>);

/// From disjoint ranges in order.
impl FromIterator<(Position, Position)> for Ranges {
    fn from_iter<I: IntoIterator<Item = (Position, Position)>>(ranges: I) -> Ranges {
        Ranges(ranges.into_iter().collect())
    }
}

impl Ranges {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Position, Position)> + '_ {
        self.0.iter().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The numbers of the ranges that share a position with this one.
    fn touched(&self, first: Position, last: Position) -> std::ops::Range<usize> {
        let start = self.0.partition_point(|range| range.1 < first);
        start..start.max(self.0.partition_point(|range| range.0 <= last))
    }

    pub(crate) fn overlaps(&self, first: Position, last: Position) -> bool {
        !self.touched(first, last).is_empty()
    }

    /// What lies between two positions, both included.
    pub(crate) fn within(&self, first: Position, last: Position) -> Ranges {
        let touched = self.0[self.touched(first, last)].iter();
        touched.map(|range| (range.0.max(first), range.1.min(last))).collect()
    }

    /// Takes away what lies between two positions, both included.
    pub(crate) fn remove(&mut self, first: Position, last: Position) {
        let touched = self.touched(first, last);
        let ends = [self.0[touched.clone()].first(), self.0[touched.clone()].last()];
        let before = ends[0].filter(|range| range.0 < first).map(|range| (range.0, Position(first.0 - 1)));
        let after = ends[1].filter(|range| range.1 > last).map(|range| (Position(last.0 + 1), range.1));
        self.0.splice(touched, before.into_iter().chain(after));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// The slow oracle is a set of positions.
        #[test]
        fn ranges_are_sets(removals in proptest::collection::vec((0u64..60, 0u64..9), 0..12), asked in (0u64..60, 0u64..9)) {
            let mut ranges: Ranges = [(5, 20), (21, 30), (33, 33), (40, 55)].map(|(a, b)| (Position(a), Position(b))).into_iter().collect();
            let mut set: BTreeSet<u64> = ranges.iter().flat_map(|(first, last)| first.0..=last.0).collect();
            for (first, more) in removals {
                ranges.remove(Position(first), Position(first + more));
                set.retain(|at| !(first..=first + more).contains(at));
                prop_assert!(ranges.iter().flat_map(|(first, last)| first.0..=last.0).eq(set.iter().copied()));
            }
            let (first, last) = (asked.0, asked.0 + asked.1);
            prop_assert_eq!(ranges.overlaps(Position(first), Position(last)), set.range(first..=last).next().is_some());
            let within = ranges.within(Position(first), Position(last));
            prop_assert!(within.iter().flat_map(|(first, last)| first.0..=last.0).eq(set.range(first..=last).copied()));
        }
    }
}
