//! The clocks of hosts: each runs a little fast or slow, and its wall clock is off by some amount that a
//! fault may change.

use bearing_types::{Mono, Now, Wall};

/// True time in nanoseconds since the run began. Only the simulator knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Instantly(pub u64);

/// Nanoseconds in a millisecond.
pub const MILLISECOND: u64 = 1_000_000;
/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000 * MILLISECOND;

/// 2026-11-21: where wall clocks begin.
const WALL_START: i64 = 1_795_219_200 * 1_000_000_000;
const MILLION: i128 = 1_000_000;

/// A host's two clocks.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// What the monotonic clock shows when the run begins.
    pub mono_start: u64,
    /// How many millionths both clocks run fast (or slow, below 0).
    pub drift_ppm: i64,
    /// How far the wall clock is off, in nanoseconds.
    pub wall_offset: i64,
}

impl Clock {
    /// What both clocks show.
    pub fn now(&self, at: Instantly) -> Now {
        let elapsed = i128::from(at.0) * (MILLION + i128::from(self.drift_ppm)) / MILLION;
        let mono = Mono(self.mono_start + elapsed as u64);
        Now { mono, wall: Wall(WALL_START + elapsed as i64 + self.wall_offset) }
    }

    /// When the monotonic clock will surely show at least this.
    pub fn when(&self, mono: Mono) -> Instantly {
        let elapsed = i128::from(mono.0.saturating_sub(self.mono_start));
        let at = elapsed * MILLION / (MILLION + i128::from(self.drift_ppm)) + 2;
        Instantly(at.min(i128::from(u64::MAX / 2)) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_looked_ahead_has_come_when_it_is_reached() {
        for drift_ppm in [-200, 0, 150] {
            let clock = Clock { mono_start: 77, drift_ppm, wall_offset: -5 };
            for mono in [78, 1_000, 123_456_789_123] {
                let at = clock.when(Mono(mono));
                assert!(clock.now(at).mono >= Mono(mono) && at.0 <= mono + mono / 1000 + 9);
            }
        }
    }
}
