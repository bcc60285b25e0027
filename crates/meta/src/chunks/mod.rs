//! What is known of data servers and chunks, and what a chunk needs by that. Nothing is decided or asked
//! here: `decide/maintenance` does.

mod health;
mod inventory;
mod planner;
mod state;

pub(crate) use health::Health;
pub(crate) use planner::{Need, Planner, holders};
pub(crate) use state::{AGAIN_AFTER, ASK_AFTER, Maintenance, Seals, StepOutcome};
