//! What may be compared: a scheme by its name, perhaps with another's lookup.

use bearing_placement::{Combination, Parameters, Scheme, UnknownScheme};
use std::str::FromStr;

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// As it was named.
    pub name: String,
    /// What it is made of.
    pub parts: Combination,
    /// As published, unless they were changed; draws of a replay begin from its job's seed, whatever
    /// is here.
    pub parameters: Parameters,
}

impl FromStr for Candidate {
    type Err = UnknownScheme;

    /// `SCHEME` or `SCHEME+LOOKUP`.
    fn from_str(name: &str) -> Result<Candidate, UnknownScheme> {
        let parts = name.parse()?;
        let scheme: Scheme = name.split('+').next().unwrap_or(name).parse()?;
        Ok(Candidate { name: name.to_owned(), parts, parameters: scheme.parameters() })
    }
}

impl Candidate {
    /// As published.
    pub fn of(scheme: Scheme) -> Candidate {
        Candidate { name: scheme.name().to_owned(), parts: scheme.parts(), parameters: scheme.parameters() }
    }
}
