//! What a session may have leased, as its record says (see `lease/horizon.rs`).

use crate::config::Config;
use bearing_proto::client::{LeaseKey, LeaseMs};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What the leases of a session may be on, and how long each lasts at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// One bit for each 64th of all directories and files, by a hash of their ids.
    pub places: u64,
    /// The longest lease, in milliseconds.
    pub longest_ms: u32,
}

impl Reach {
    /// No lease.
    pub const NONE: Reach = Reach { places: 0, longest_ms: 0 };

    /// Leases on anything.
    pub fn of_anything(config: &Config) -> Reach {
        Reach { places: u64::MAX, longest_ms: config.lease_ttl_max.as_millis() as u32 }
    }

    /// One lease. Lengths are rounded up, so that a lease that gets a little longer each time does not have
    /// the record written each time.
    pub(crate) fn of(key: &LeaseKey, length: LeaseMs, config: &Config) -> Reach {
        let (step, max) = (config.lease_ttl_min.as_millis() as u32, config.lease_ttl_max.as_millis() as u32);
        let steps = length.0.div_ceil(step.max(1)).next_power_of_two();
        Reach { places: place_of(key), longest_ms: (steps * step).min(max).max(length.0) }
    }

    pub(crate) fn with(self, other: Reach) -> Reach {
        Reach { places: self.places | other.places, longest_ms: self.longest_ms.max(other.longest_ms) }
    }

    pub(crate) fn covers(self, other: Reach) -> bool {
        self.with(other) == self
    }

    /// Whether one more lease is within it.
    pub fn covers_lease(self, key: &LeaseKey, length: LeaseMs, config: &Config) -> bool {
        self.covers(Reach::of(key, length, config))
    }

    /// Whether a lease on this key may be among them.
    pub fn may_hold(self, key: &LeaseKey) -> bool {
        self.places & place_of(key) != 0
    }

    /// How long the longest lease lasts.
    pub fn longest(self) -> Duration {
        Duration::from_millis(u64::from(self.longest_ms))
    }
}

/// The bit of what a key is about. All keys of one directory have the same.
fn place_of(key: &LeaseKey) -> u64 {
    let (LeaseKey::Access(node)
    | LeaseKey::Name(node, _)
    | LeaseKey::Names(node)
    | LeaseKey::Content(node)
    | LeaseKey::Delegation(node)
    | LeaseKey::File(node)) = key;
    1 << (node.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58)
}
