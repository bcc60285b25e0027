//! Copies of tablets on several servers: leases between servers, what the owner knows of a tablet's members,
//! and tablets that are held for another owner. Why it is done like this:
//! `docs/design/2026-11-23-copies-of-tablets.md`.

mod applies;
mod arrival;
mod copy;
mod learner;
mod log;
mod members;
mod pairs;

pub(crate) use arrival::Part;
pub(crate) use copy::{Answer, Copy, turn};
pub(crate) use learner::{Learner, part_of};
pub(crate) use log::Log;
pub(crate) use members::Members;
pub(crate) use pairs::Pairs;
