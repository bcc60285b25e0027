//! What all figures are drawn with.

use crate::figure::{Claim, Figure, Seen, Series};
use crate::statistics::Interval;

/// A line through the means at these places.
pub(super) fn line(scheme: &str, xs: &[f64], intervals: &[Interval]) -> Series {
    Series {
        scheme: scheme.to_owned(),
        points: xs.iter().zip(intervals).map(|(x, interval)| [*x, interval.mean]).collect(),
        half: intervals.iter().map(|interval| interval.half).collect(),
    }
}

impl Figure {
    /// A claim of the paper, and what was seen: it holds within these bounds.
    pub(super) fn claim(
        &mut self,
        claim: &str,
        published: f64,
        ours: f64,
        within: std::ops::RangeInclusive<f64>,
        why: &str,
    ) {
        self.published.push(Claim { claim: claim.to_owned(), value: published, mark: None });
        let holds = within.contains(&ours);
        self.ours.push(Seen { claim: claim.to_owned(), value: ours, holds, why: why.to_owned() });
    }

    /// What the design's claims say: it holds within these bounds.
    pub(super) fn must(
        &mut self,
        claim: String,
        ours: f64,
        within: std::ops::RangeInclusive<f64>,
        why: &str,
    ) {
        let holds = within.contains(&ours);
        self.ours.push(Seen { claim, value: ours, holds, why: why.to_owned() });
    }

    /// Something further that was seen.
    pub(super) fn see(&mut self, claim: String, value: f64, why: &str) {
        self.ours.push(Seen { claim, value, holds: true, why: why.to_owned() });
    }

    /// The line of a scheme.
    pub(super) fn of(&self, scheme: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.scheme == scheme)
    }

    /// The second coordinate of one of its points.
    pub(super) fn y(&self, scheme: &str, index: usize) -> f64 {
        self.of(scheme).and_then(|series| series.points.get(index)).map_or(f64::NAN, |point| point[1])
    }
}
