//! What a figure is made of.

use crate::queues::Mode;
use serde::{Deserialize, Serialize};

/// A figure of a paper, drawn anew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Its name, such as `mayflower-3`.
    pub figure: String,
    /// What the first coordinate is.
    pub x: String,
    /// What the second one is.
    pub y: String,
    /// The unit of the second one.
    pub unit: String,
    /// A line for each scheme.
    pub series: Vec<Series>,
    /// What the paper says.
    pub published: Vec<Claim>,
    /// What was seen here, in the order of `published`; further lines after those.
    pub ours: Vec<Seen>,
    /// Draws began from here.
    pub seed: u64,
    /// The state of the sources, as far as that is known.
    pub commit: String,
    /// Where the costs of work come from, if work costs anything in it: the same for all of its lines. Not
    /// written: the name of a figure and what it stands on say it.
    #[serde(skip)]
    pub costs: Option<Mode>,
}

impl Figure {
    /// One more line, of clusters whose work costs something. Lines of two modes say different things, so
    /// they never share a figure: that panics.
    pub fn costly(&mut self, mode: Mode, series: Series) {
        let of = *self.costs.get_or_insert(mode);
        assert_eq!(of, mode, "{}: {} has costs of another mode", self.figure, series.scheme);
        self.series.push(series);
    }

    /// What is published and has a place in the chart.
    pub fn marks(&self) -> impl Iterator<Item = &Mark> {
        self.published.iter().filter_map(|claim| claim.mark.as_ref())
    }
}

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Of which scheme.
    pub scheme: String,
    /// Its points.
    pub points: Vec<[f64; 2]>,
    /// By point: half the width of the 95 % confidence interval of y, over seeds. Empty if there is none.
    pub half: Vec<f64>,
}

/// Something that a paper says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// In words.
    pub claim: String,
    /// The number in it.
    pub value: f64,
    /// Where it stands in the chart, if it is about a point or a level of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<Mark>,
}

/// Where something published stands in a chart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Of which scheme, by the name of its line; of none in particular if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    /// The first coordinate. Absent: a level, the same everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<f64>,
    /// The second one.
    pub y: f64,
}

/// What was seen of a claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// In words.
    pub claim: String,
    /// The number here.
    pub value: f64,
    /// Whether the claim holds here. Always true of what neither a paper nor that list speaks of.
    pub holds: bool,
    /// Why not, or what is to be known of it.
    pub why: String,
    /// Whether it is on the list of claims that must hold, though no paper says it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub must: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_without_a_place_is_written_as_before_there_were_any() {
        let claim = |mark| Claim { claim: "twice".to_owned(), value: 2.0, mark };
        let written = |claim: Claim| serde_json::to_string(&claim).unwrap();
        assert_eq!(written(claim(None)), r#"{"claim":"twice","value":2.0}"#);
        let mark = Mark { scheme: Some("chord".to_owned()), x: None, y: 7.0 };
        assert_eq!(
            written(claim(Some(mark))),
            r#"{"claim":"twice","value":2.0,"mark":{"scheme":"chord","y":7.0}}"#
        );
    }

    #[test]
    #[should_panic(expected = "two has costs of another mode")]
    fn lines_of_two_modes_share_no_figure() {
        let line = |scheme: &str| Series { scheme: scheme.to_owned(), points: Vec::new(), half: Vec::new() };
        let empty = r#"{"figure": "f", "x": "", "y": "", "unit": "", "series": [], "published": [],
            "ours": [], "seed": 1, "commit": ""}"#;
        let mut figure: Figure = serde_json::from_str(empty).unwrap();
        figure.costly(Mode::Calibrated, line("one"));
        assert_eq!(figure.series.len(), 1);
        figure.costly(Mode::PaperRatios, line("two"));
    }
}
