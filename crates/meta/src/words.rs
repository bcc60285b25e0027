//! Small words that several folders share.

use bearing_proto::peer::ItemId;
use bearing_types::{Mono, TransactionId, Wall};
use std::time::Duration;

/// Identifies a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct JobId(pub u64);

/// When something was asked of another server, and how often since: it is asked again after pauses that
/// double.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    /// When it was asked first.
    pub first: Mono,
    pub last: Mono,
    pub times: u32,
}

impl Asking {
    /// Asked now.
    pub fn new(now: Mono) -> Asking {
        Asking { first: now, last: now, times: 1 }
    }

    /// Asked now too.
    pub fn again(asked: &mut Option<Asking>, now: Mono) {
        match asked {
            Some(asked) => (asked.last, asked.times) = (now, asked.times.saturating_add(1)),
            None => *asked = Some(Asking::new(now)),
        }
    }

    /// Whether it is time to ask: at once if nobody was asked, else as [`Asking::is_due`] says.
    pub fn due(asked: Option<Asking>, now: Mono, pause: Duration, pause_max: Duration) -> bool {
        asked.is_none_or(|asked| asked.is_due(now, pause, pause_max))
    }

    /// Whether it is time to ask again, after a first pause of this length and later ones twice as long each.
    pub fn is_due(&self, now: Mono, pause: Duration, pause_max: Duration) -> bool {
        let doubled = pause * (1 << (self.times.min(16) - 1));
        now.since(self.last) >= doubled.min(pause_max.max(pause))
    }
}

/// Who holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockedBy {
    /// A transaction: until it is decided.
    Transaction(TransactionId),
    /// A queued item: until it is delivered.
    Item(ItemId),
}

/// Marks made before these times may go; `None`: none of the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ripe {
    pub dead: Option<Wall>,
    pub ended: Option<Wall>,
    pub closed: Option<Wall>,
}
