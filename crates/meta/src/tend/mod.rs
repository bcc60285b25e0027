//! The life of chunks after their writers: a tablet goes over its chunks again and again, and gives each what it needs (see `care`).
//!
//! A page of chunk records is looked through at a time; chunks that need something get onto a list, and from there one job after the other is started
//! for each, a bounded number at the same time. What is under way lives in memory only: all that must survive is in the records.

mod care;
mod compact;
mod health;
mod inventory;
mod join;
mod look;
mod plan;
mod seal;
mod state;
mod sweep;

pub(crate) use care::tend;
pub(crate) use compact::answer as answer_move;
pub(crate) use health::Health;
pub(crate) use join::{answer as answer_join, join};
pub(crate) use look::answer as answer_uses;
pub(crate) use plan::Surroundings;
pub(crate) use seal::{chunk_view, in_use, seal};
pub use state::ChunkTally;
pub(crate) use state::{AGAIN_AFTER, ASK_AFTER, LISTED_MAX, Seals, Tended, Tending};
pub(crate) use sweep::{Swept, sweep};
