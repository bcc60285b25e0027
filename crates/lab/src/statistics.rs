//! Means, percentiles, and how far to trust them.

/// A mean with the half width of its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// Half the width; infinite for a single sample.
    pub half: f64,
}

/// Two-sided 95 % quantiles of Student's t, by degrees of freedom from 1 on; beyond them the normal one.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// The mean of samples; zero of none.
pub fn mean(samples: &[f64]) -> f64 {
    if samples.is_empty() { 0.0 } else { samples.iter().sum::<f64>() / samples.len() as f64 }
}

/// The sample below which a share of all lies (nearest rank). Zero of none.
pub fn percentile(samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1).min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

impl Interval {
    /// Of independent samples, such as the means of runs with different seeds.
    pub fn of(samples: &[f64]) -> Interval {
        let (mean, count) = (mean(samples), samples.len());
        if count < 2 {
            return Interval { mean, half: f64::INFINITY };
        }
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        let error = (squares / (count - 1) as f64 / count as f64).sqrt();
        Interval { mean, half: T_95.get(count - 2).copied().unwrap_or(1.96) * error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_from_a_textbook() {
        // n = 4, mean 2.5, s = 1.290994, t = 3.182: 2.054.
        let interval = Interval::of(&[1.0, 2.0, 3.0, 4.0]);
        assert!((interval.mean - 2.5).abs() < 1e-12 && (interval.half - 2.054).abs() < 1e-3, "{interval:?}");
        assert_eq!(Interval::of(&[7.0]).half, f64::INFINITY);
        assert_eq!((mean(&[]), percentile(&[], 0.5)), (0.0, 0.0));
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let samples = [5.0, 1.0, 4.0, 2.0, 3.0];
        assert_eq!(
            [0.0, 0.2, 0.5, 0.95, 1.0].map(|share| percentile(&samples, share)),
            [1.0, 1.0, 3.0, 5.0, 5.0]
        );
    }
}
