//! What whoever decides sees and leaves behind: a view over one tablet, with what was fetched for it so far.

mod context;
mod ids;
mod tablet_view;

pub(crate) use context::{Context, DataResult, DataSlot, PartVote, QuestionSlot};
pub(crate) use ids::Ids;
pub(crate) use tablet_view::{Decide, Draft, Memory, Stop, View};
