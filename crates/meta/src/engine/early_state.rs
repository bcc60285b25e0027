//! The requests that wait until it is known who serves their tablets (`engine/early.rs`).

use bearing_proto::client::Request;
use bearing_types::{Mono, Sequence, SessionId};
use std::collections::BTreeMap;

/// Requests that wait here at most; more are told at once who owned the tablet last.
pub(crate) const EARLY_MAX: usize = 4096;
/// Of these, those of one session.
const OF_SESSION_MAX: usize = 256;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Early {
    pub waiting: BTreeMap<(SessionId, Sequence), (Mono, Request)>,
    /// More may be known of who serves what.
    pub news: bool,
}

impl Early {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// A tablet is served, or registers changed.
    pub fn on_news(&mut self) {
        self.news = true;
    }

    /// Whether a request of a session finds room.
    pub fn has_room(&self, session: SessionId) -> bool {
        let all = (session, Sequence(0))..=(session, Sequence(u64::MAX));
        self.waiting.len() < EARLY_MAX && self.waiting.range(all).count() < OF_SESSION_MAX
    }
}
