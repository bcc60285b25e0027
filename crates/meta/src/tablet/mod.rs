//! A tablet as it is served: what is known of its sessions, what waits to leave it, and the marks that it
//! collects.

mod checkpoint;
mod exit;
mod marks;
mod replies;
mod served;
mod sessions;

pub(crate) use checkpoint::{Draft, NextStep, Stage};
pub(crate) use exit::{Held, PEERS_MAX};
pub(crate) use replies::Answered;
pub(crate) use served::{Leaving, Phase, Tablet};
pub(crate) use sessions::Repeat;
