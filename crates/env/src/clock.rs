//! The real clocks.

use bearing_types::{Mono, Now, Wall};
use std::time::Duration;

/// Reads CLOCK_BOOTTIME (durations; it also counts while the machine is suspended) and CLOCK_REALTIME (file
/// times).
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Clock {
    /// Both clocks, now.
    pub fn now(self) -> Now {
        Now { mono: self.mono(), wall: Wall(nanoseconds(libc::CLOCK_REALTIME)) }
    }

    /// The monotonic clock, now.
    pub fn mono(self) -> Mono {
        Mono(nanoseconds(libc::CLOCK_BOOTTIME).max(0) as u64)
    }

    /// For how long this thread had a processor so far.
    pub fn worked(self) -> Duration {
        Duration::from_nanos(nanoseconds(libc::CLOCK_THREAD_CPUTIME_ID).max(0) as u64)
    }
}

fn nanoseconds(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec that outlives the call.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(result, 0, "Linux has the clocks CLOCK_BOOTTIME and CLOCK_REALTIME");
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monotonic_clock_never_goes_back() {
        let mut last = Clock.now().mono;
        for _ in 0..1000 {
            let next = Clock.mono();
            assert!(next >= last);
            last = next;
        }
    }

    #[test]
    fn the_wall_clock_is_past_the_year_2020() {
        assert!(Clock.now().wall > Wall(1_577_836_800_000_000_000));
    }
}
