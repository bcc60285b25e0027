//! Time as the machines see it: handed in, never read.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Nanoseconds of a monotonic clock that also counts suspended time (CLOCK_BOOTTIME). Only differences on one
/// machine mean anything; leases between two parties are durations on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Mono(pub u64);

impl Mono {
    /// The start of the clock.
    pub const ZERO: Mono = Mono(0);

    /// This time plus a duration, stopping at the end of the clock.
    pub fn after(self, duration: Duration) -> Mono {
        Mono(self.0.saturating_add(duration.as_nanos().min(u128::from(u64::MAX)) as u64))
    }

    /// How long ago `earlier` was; zero if it lies ahead.
    pub fn since(self, earlier: Mono) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Nanoseconds since the Unix epoch by a machine's wall clock: file times, and the expiry of grants and
/// sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Wall(pub i64);

impl Wall {
    /// This time plus a duration.
    pub fn after(self, duration: Duration) -> Wall {
        Wall(self.0.saturating_add(duration.as_nanos().min(i64::MAX as u128) as i64))
    }

    /// How long ago `earlier` was; zero if it lies ahead.
    pub fn since(self, earlier: Wall) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0).max(0) as u64)
    }
}

/// Both clocks, read once per batch by the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Now {
    /// For durations.
    pub mono: Mono,
    /// For file times and absolute expiries.
    pub wall: Wall,
}
