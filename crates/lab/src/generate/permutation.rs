//! Orders of many things without a table: a Feistel network over a power of 4, walked until it meets one of
//! the things (M. Luby, C. Rackoff, 1988; J. Black, P. Rogaway, 2002). Not for secrets.

use bearing_workload::Seeded;

const ROUNDS: usize = 4;

/// One order of 0 to `count` - 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Permutation {
    count: u64,
    half_bits: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// Of `count` (at least 1 and at most 2^62) things, chosen by a seed.
    pub(super) fn new(count: u64, seed: u64) -> Permutation {
        assert!((1..=1 << 62).contains(&count), "an order of {count} things");
        let bits = u64::BITS - (count - 1).leading_zeros();
        let mut rng = Seeded::new(seed);
        Permutation { count, half_bits: bits.div_ceil(2), keys: std::array::from_fn(|_| rng.next()) }
    }

    /// The thing at a place below the count. The power of 4 has less than 4 times as many, so that a walk
    /// takes less than 4 steps in the mean.
    pub(super) fn at(&self, place: u64) -> u64 {
        let mut thing = self.scrambled(place);
        while thing >= self.count {
            thing = self.scrambled(thing);
        }
        thing
    }

    fn scrambled(&self, place: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (place >> self.half_bits, place & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (mixed(right ^ key) & mask));
        }
        left << self.half_bits | right
    }
}

fn mixed(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thing_has_one_place_and_seeds_give_other_orders() {
        for count in [1, 2, 3, 17, 64, 65, 1000] {
            let order = |seed| {
                let order = Permutation::new(count, seed);
                (0..count).map(|place| order.at(place)).collect::<Vec<_>>()
            };
            let mut sorted = order(1);
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..count), "{count}");
            assert!(count < 17 || (order(1) != order(2) && !order(1).into_iter().eq(0..count)), "{count}");
        }
    }
}
