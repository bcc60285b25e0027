//! The life of chunks after their writers: a tablet goes over its chunks again and again, and gives each what
//! it needs (see `step`).
//!
//! A page of chunk records is looked through at a time; chunks that need something get onto a list, and from
//! there one job after the other is started for each, a bounded number at the same time. What is under way
//! lives in memory only: all that must survive is in the records.

mod compact;
mod join;
mod seal;
mod step;
mod sweep;
mod usage_scan;

pub(crate) use compact::answer as answer_move;
pub(crate) use join::{answer as answer_join, join};
pub(crate) use seal::{chunk_view, in_use, seal};
pub(crate) use step::step;
pub(crate) use sweep::{Swept, sweep};
pub(crate) use usage_scan::answer as answer_uses;
