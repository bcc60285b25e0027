//! What quotas count.

use serde::{Deserialize, Serialize};

/// Space and entries: a limit, what is used of it, or what a server may use of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Bytes of files, each counted once however many copies there are.
    pub space: u64,
    /// Names.
    pub entries: u64,
}

impl Amount {
    /// Nothing.
    pub const ZERO: Amount = Amount { space: 0, entries: 0 };
    /// No limit.
    pub const UNLIMITED: Amount = Amount { space: u64::MAX, entries: u64::MAX };

    /// Both amounts together.
    pub fn plus(self, other: Amount) -> Amount {
        self.both(other, u64::saturating_add)
    }

    /// What is left of this one without another.
    pub fn minus(self, other: Amount) -> Amount {
        self.both(other, u64::saturating_sub)
    }

    /// The smaller of each.
    pub fn least(self, other: Amount) -> Amount {
        self.both(other, u64::min)
    }

    /// The larger of each.
    pub fn most(self, other: Amount) -> Amount {
        self.both(other, u64::max)
    }

    /// Whether another one is no larger in either.
    pub fn covers(self, other: Amount) -> bool {
        self.most(other) == self
    }

    fn both(self, other: Amount, combine: impl Fn(u64, u64) -> u64) -> Amount {
        Amount { space: combine(self.space, other.space), entries: combine(self.entries, other.entries) }
    }
}
