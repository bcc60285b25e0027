//! What a tablet knows about the age of its marks (see `engine/collect.rs`).

use crate::config::Config;
use crate::record::Key;
use crate::words::Ripe;
use bearing_types::{Mono, Now, Wall};
use std::time::Duration;

/// What a tablet knows about the age of its marks, and how far it has come with them.
#[derive(Debug)]
pub(crate) struct Collector {
    pub taken: Mono,
    /// The least by which the wall clock was ahead of the monotonic one, in nanoseconds, since the tablet was
    /// taken. A mark says the wall clock's time at which it was made; this makes it the latest monotonic time
    /// at which that can have been, however the wall clock was set meanwhile.
    pub ahead_min: i64,
    /// Where the next step begins.
    pub from: Key,
    pub due: Mono,
}

impl Collector {
    /// Of a tablet that is taken now.
    pub fn new(now: Now) -> Collector {
        Collector { taken: now.mono, ahead_min: ahead(now), from: Key::FIRST_MARK, due: now.mono }
    }

    /// Notes how far apart the clocks are.
    pub fn note(&mut self, now: Now) {
        self.ahead_min = self.ahead_min.min(ahead(now));
    }

    pub fn ripe(&self, now: Now, config: &Config) -> Ripe {
        let before = |kept: Duration| {
            let latest = now.mono.0.checked_sub(kept.as_nanos() as u64)?;
            let reigned = now.mono.since(self.taken) >= kept;
            reigned.then(|| Wall(self.ahead_min.saturating_add_unsigned(latest)))
        };
        Ripe {
            dead: before(config.dead_mark_ttl),
            ended: before(config.ended_mark_ttl),
            closed: before(config.closed_mark_ttl),
        }
    }
}

pub(crate) fn ahead(now: Now) -> i64 {
    now.wall.0.saturating_sub_unsigned(now.mono.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: Duration = Duration::from_secs(100);

    fn config() -> Config {
        Config { dead_mark_ttl: KEPT, ended_mark_ttl: KEPT * 2, ..Config::standard() }
    }

    fn at(mono_s: u64, wall_s: i64) -> Now {
        Now { mono: Mono(mono_s * 1_000_000_000), wall: Wall(wall_s * 1_000_000_000) }
    }

    fn dead_before(collector: &Collector, now: Now) -> Option<i64> {
        collector.ripe(now, &config()).dead.map(|wall| wall.0 / 1_000_000_000)
    }

    #[test]
    fn nothing_goes_before_the_tablet_was_had_for_as_long_as_a_mark_is_kept() {
        let collector = Collector::new(at(1_000, 50_000));
        assert_eq!(dead_before(&collector, at(1_099, 50_099)), None);
        assert_eq!(dead_before(&collector, at(1_100, 50_100)), Some(50_000));
        assert_eq!(collector.ripe(at(1_100, 50_100), &config()).ended, None);
    }

    #[test]
    fn a_wall_clock_that_jumps_forward_makes_no_mark_older() {
        let mut collector = Collector::new(at(1_000, 50_000));
        // A mark made now says 50,150, whatever the clock says later.
        collector.note(at(1_150, 50_150));
        collector.note(at(1_151, 90_000));
        assert_eq!(dead_before(&collector, at(1_200, 90_049)), Some(50_100));
        assert_eq!(dead_before(&collector, at(1_251, 90_100)), Some(50_151));
    }

    #[test]
    fn a_wall_clock_that_is_set_back_makes_marks_be_kept_for_longer_never_shorter() {
        let mut collector = Collector::new(at(1_000, 50_000));
        // A mark made before the clock was set back says 50,150, one made after it 40,151.
        collector.note(at(1_151, 40_151));
        assert_eq!(dead_before(&collector, at(1_250, 40_250)), Some(40_150));
        assert_eq!(dead_before(&collector, at(1_252, 40_252)), Some(40_152));
    }
}
