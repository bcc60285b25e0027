//! Zipf's distribution without a table, so that a million entries cost nothing to prepare.
//!
//! Rejection-inversion (W. Hörmann, G. Derflinger, 1996): the probability of rank k is proportional to k^-s.

use crate::Seeded;

/// Draws ranks 0 to `count` - 1; rank 0 is the most likely.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    count: u64,
    exponent: f64,
    area_first: f64,
    area_last: f64,
    shortcut: f64,
}

impl Zipf {
    /// Over `count` (at least 1) ranks with an exponent above 0.
    ///
    /// # Panics
    /// If the count is 0 or the exponent is not above 0, which are bugs of the caller.
    pub fn new(count: u64, exponent: f64) -> Zipf {
        assert!(count > 0 && exponent > 0.0, "Zipf needs ranks and a positive exponent");
        let mut zipf = Zipf { count, exponent, area_first: 0.0, area_last: 0.0, shortcut: 0.0 };
        zipf.area_first = zipf.area(1.5) - 1.0;
        zipf.area_last = zipf.area(count as f64 + 0.5);
        zipf.shortcut = 2.0 - zipf.area_inverse(zipf.area(2.5) - zipf.density(2.0));
        zipf
    }

    /// The integral of x^-s, up to a constant.
    fn area(&self, x: f64) -> f64 {
        let log = x.ln();
        growth_ratio((1.0 - self.exponent) * log) * log
    }

    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    fn area_inverse(&self, area: f64) -> f64 {
        let t = (area * (1.0 - self.exponent)).max(-1.0);
        (log_ratio(t) * area).exp()
    }

    /// The next rank.
    pub fn rank(&self, rng: &mut Seeded) -> u64 {
        loop {
            let area = self.area_last + rng.fraction() * (self.area_first - self.area_last);
            let x = self.area_inverse(area);
            let rank = x.round().clamp(1.0, self.count as f64);
            if rank - x <= self.shortcut || area >= self.area(rank + 0.5) - self.density(rank) {
                return rank as u64 - 1;
            }
        }
    }
}

/// (e^x - 1) / x, also near 0.
fn growth_ratio(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x / 2.0 * (1.0 + x / 3.0) }
}

/// ln(1 + x) / x, also near 0.
fn log_ratio(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x / 2.0 * (1.0 - x * 2.0 / 3.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(count: u64, exponent: f64, draws: u32) -> Vec<u32> {
        let zipf = Zipf::new(count, exponent);
        let mut rng = Seeded::new(11);
        let mut counts = vec![0; count as usize];
        for _ in 0..draws {
            counts[zipf.rank(&mut rng) as usize] += 1;
        }
        counts
    }

    #[test]
    fn frequencies_fall_with_the_rank_as_the_exponent_says() {
        for exponent in [0.99, 1.0, 1.2] {
            let counts = counts(50, exponent, 400_000);
            let total: f64 = (1..=50).map(|k| f64::from(k).powf(-exponent)).sum();
            for (rank, count) in counts.iter().enumerate() {
                let expected = 400_000.0 * (rank as f64 + 1.0).powf(-exponent) / total;
                let error = (f64::from(*count) - expected).abs();
                assert!(error < 6.0 * expected.sqrt(), "rank {rank}: {count} instead of {expected}");
            }
        }
    }

    #[test]
    fn a_million_ranks_reach_both_ends() {
        let counts = counts(1_000_000, 0.99, 300_000);
        assert!(counts[0] > 10_000);
        assert!(counts[500_000..].iter().any(|count| *count > 0));
    }

    #[test]
    fn one_rank_is_always_drawn() {
        assert_eq!(counts(1, 1.1, 10), [10]);
    }
}
