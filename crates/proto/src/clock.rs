//! Between any two servers: what the other's wall clock says.

use bearing_types::Wall;
use serde::{Deserialize, Serialize};

/// A question about the time, and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClockMessage {
    /// What time is it there?
    Ask {
        /// Chosen by the asker; comes back with the answer.
        id: u64,
    },
    /// The answer.
    Told {
        /// The question's id.
        id: u64,
        /// The wall clock when the question came in.
        wall: Wall,
    },
}
