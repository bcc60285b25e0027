//! A tablet as it is served: its log, and what is known of sessions, transactions and queued items.

mod apply;
mod arriving;
mod marks;
mod replies;
mod served;

pub(crate) use arriving::{Arriving, CopiedPart, part_index};
pub(crate) use marks::{FIRST, Ripe};
pub(crate) use replies::Answered;
pub(crate) use served::{DecisionState, Held, Leaving, OutboxState, Phase, PreparedState, Tablet};
