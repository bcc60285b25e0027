//! Refusing what is out of its bounds.

use std::fmt;

/// A parameter out of its bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterError {
    /// Its name.
    pub name: &'static str,
    /// What was given.
    pub value: String,
    /// What may be given.
    pub bound: &'static str,
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} may not be {}; give {}", self.name, self.value, self.bound)
    }
}

impl std::error::Error for ParameterError {}

/// Refuses a value that does not hold what is asked of it.
pub fn within(
    name: &'static str,
    value: impl fmt::Display,
    holds: bool,
    bound: &'static str,
) -> Result<(), ParameterError> {
    if holds { Ok(()) } else { Err(ParameterError { name, value: value.to_string(), bound }) }
}
