//! What all figures are drawn with.

use crate::figure::{Claim, Figure, Mark, Seen, Series};
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
        let (claim, why) = (claim.to_owned(), why.to_owned());
        self.ours.push(Seen { claim, value: ours, holds, why, must: false });
    }

    /// The last claim stands there in the chart: at a point, or without `x` at a level; with a scheme, in the
    /// look of its line.
    pub(super) fn stands(&mut self, scheme: Option<&str>, x: Option<f64>, y: f64) {
        if let Some(claim) = self.published.last_mut() {
            claim.mark = Some(Mark { scheme: scheme.map(str::to_owned), x, y });
        }
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
        self.ours.push(Seen { claim, value: ours, holds, why: why.to_owned(), must: true });
    }

    /// Something further that was seen.
    pub(super) fn see(&mut self, claim: String, value: f64, why: &str) {
        self.ours.push(Seen { claim, value, holds: true, why: why.to_owned(), must: false });
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
