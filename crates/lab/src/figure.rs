//! What a figure is made of.

use serde::Serialize;

/// A figure of a paper, drawn anew.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
}

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Of which scheme.
    pub scheme: String,
    /// Its points.
    pub points: Vec<[f64; 2]>,
    /// By point: half the width of the 95 % confidence interval of y, over seeds. Empty if there is none.
    pub half: Vec<f64>,
}

/// Something that a paper says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// In words.
    pub claim: String,
    /// The number in it.
    pub value: f64,
}

/// What was seen of a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Seen {
    /// In words.
    pub claim: String,
    /// The number here.
    pub value: f64,
    /// Whether the claim holds here. Of what the paper does not speak of: always true.
    pub holds: bool,
    /// Why not, or what is to be known of it.
    pub why: String,
}
