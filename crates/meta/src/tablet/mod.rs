//! A tablet as it is served: its log, what is known of its sessions, and the marks that it collects.

mod apply;
mod arriving;
mod log;
mod marks;
mod replies;
mod served;
mod sessions;

pub(crate) use arriving::{Arriving, CopiedPart, part_index};
pub(crate) use log::Held;
pub(crate) use replies::Answered;
pub(crate) use served::{Leaving, Phase, Tablet};
pub(crate) use sessions::Repeat;
