//! The list of schemes that place live entries.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How the children of a directory are placed. Stored in seats, so the order of variants is part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Scheme {
    /// A child directory's span lies in its parent's; names lie together at the start of the span (AngleCut section 3, with hashed
    /// sub-arcs instead of sibling ranks, so that adding a sibling moves nobody).
    AnglecutHashed,
    /// Names anywhere on the ring by hash (the hash-based mapping that MetaFlow and AngleCut measure against).
    Hash,
}

impl Scheme {
    /// All schemes, in the order of their names in help texts.
    pub const ALL: [Scheme; 2] = [Scheme::AnglecutHashed, Scheme::Hash];

    /// The name that people use.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::AnglecutHashed => "anglecut-hashed",
            Scheme::Hash => "hash",
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A scheme's name that nobody knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownScheme(pub String);

impl fmt::Display for UnknownScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<_> = Scheme::ALL.iter().map(|scheme| scheme.name()).collect();
        write!(f, "unknown scheme {:?}; the known ones are {}", self.0, known.join(", "))
    }
}

impl std::error::Error for UnknownScheme {}

impl FromStr for Scheme {
    type Err = UnknownScheme;

    fn from_str(name: &str) -> Result<Scheme, UnknownScheme> {
        Scheme::ALL.into_iter().find(|scheme| scheme.name() == name).ok_or_else(|| UnknownScheme(name.into()))
    }
}
