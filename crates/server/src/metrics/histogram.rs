//! Durations in buckets: fixed, so that recording is one addition, and those of all servers can be summed.

use std::time::Duration;

/// The first bucket takes what lasts no longer than this; each other one twice as long as the one before.
const FIRST_NS: u64 = 50_000;
/// So many have a bound: the last one is 3.2768 s. One more takes the rest.
const BOUNDED: usize = 17;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    buckets: [u64; BOUNDED + 1],
    sum_ns: u64,
}

impl Histogram {
    /// Counts one more.
    pub fn record(&mut self, took: Duration) {
        let ns = took.as_nanos() as u64;
        let doublings = u64::BITS - (ns.saturating_sub(1) / FIRST_NS).leading_zeros();
        self.buckets[(doublings as usize).min(BOUNDED)] += 1;
        self.sum_ns += ns;
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// All durations together, in seconds.
    pub fn sum(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// Upper bounds in seconds, each with how many lie between it and the one before.
    pub fn buckets(&self) -> Vec<(f64, u64)> {
        let bound = |index| match index {
            BOUNDED => f64::INFINITY,
            _ => (FIRST_NS << index) as f64 / 1e9,
        };
        self.buckets.iter().enumerate().map(|(index, count)| (bound(index), *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_duration_is_counted_in_the_first_bucket_whose_bound_it_does_not_exceed(ns in 0u64..10_000_000_000) {
            let mut histogram = Histogram::default();
            histogram.record(Duration::from_nanos(ns));
            let buckets = histogram.buckets();
            let expected = buckets.iter().position(|(bound, _)| ns as f64 / 1e9 <= *bound).unwrap();
            prop_assert_eq!(buckets.iter().position(|(_, count)| *count == 1), Some(expected));
            prop_assert_eq!((histogram.count(), histogram.sum()), (1, ns as f64 / 1e9));
        }
    }
}
