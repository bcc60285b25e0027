//! A small seeded generator: xoshiro256** (Blackman, Vigna, 2018), its state filled by SplitMix64.

/// Draws numbers from a seed. Not for secrets.
#[derive(Clone, Debug)]
pub struct Seeded {
    state: [u64; 4],
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Seeded {
    /// A generator for a seed.
    pub fn new(seed: u64) -> Seeded {
        let mut state = seed;
        Seeded { state: std::array::from_fn(|_| splitmix(&mut state)) }
    }

    /// A generator of its own for one purpose, so that drawing more here does not shift what is drawn there.
    pub fn fork(&mut self, purpose: u64) -> Seeded {
        Seeded::new(self.next() ^ purpose.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    /// The next 64 bits.
    #[expect(
        clippy::should_implement_trait,
        reason = "it never ends, and an Option would be noise at every use"
    )]
    pub fn next(&mut self) -> u64 {
        let result = self.state[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = self.state[1] << 17;
        self.state[2] ^= self.state[0];
        self.state[3] ^= self.state[1];
        self.state[1] ^= self.state[2];
        self.state[0] ^= self.state[3];
        self.state[2] ^= shifted;
        self.state[3] = self.state[3].rotate_left(45);
        result
    }

    /// A number below `bound` (at least 1): multiply and shift, whose bias is below 2^-32 for bounds below
    /// 2^32.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing lies below 0");
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `low` up to and including `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True `numerator` times out of `denominator`.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// A number in [0, 1) with 53 random bits.
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// One of some things, `None` when there are none.
    pub fn pick<'a, T>(&mut self, things: &'a [T]) -> Option<&'a T> {
        if things.is_empty() { None } else { things.get(self.below(things.len() as u64) as usize) }
    }

    /// An index, each as likely as its weight says. At least one weight is above 0.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let total: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        let mut drawn = self.below(total);
        for (index, weight) in weights.iter().enumerate() {
            match drawn.checked_sub(u64::from(*weight)) {
                Some(left) => drawn = left,
                None => return index,
            }
        }
        unreachable!("the drawn number is below the sum of the weights")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_seed_others() {
        let draw = |seed| {
            let mut rng = Seeded::new(seed);
            (0..8).map(|_| rng.next()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn weights_are_followed_and_zero_is_never_drawn() {
        let mut rng = Seeded::new(3);
        let mut counts = [0u32; 3];
        for _ in 0..10_000 {
            counts[rng.weighted(&[1, 0, 3])] += 1;
        }
        assert_eq!(counts[1], 0);
        assert!((2200..2800).contains(&counts[0]), "{counts:?}");
    }
}
