//! A trace, replayed over schemes: how local each is, how evenly it loads servers, what it moves, and how its
//! requests find their way.
//!
//! Invariants: a trace is read once ([`Recorded`]); a run depends on it and on a [`Job`] alone, so runs may
//! go side by side, and the same job gives the same numbers everywhere. What a part of the trace is served by
//! was decided from the parts before it, never from itself.

mod conclusions;
mod leases;
mod recorded;
mod routes;
mod run;
mod table;
#[cfg(test)]
mod tests;

pub use conclusions::{conclusions, figures};
pub use recorded::{Operation, PARTS, Part, Recorded, Recorder, Used};
pub use routes::Routes;
pub use run::{Below, Job, Outcome, PartOutcome, place, run};
pub use table::{COLUMNS, PARTS_COLUMNS, parts_lines, row};
