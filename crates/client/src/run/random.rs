//! A small seeded generator (SplitMix64) for jitter and choices that only spread load.

use std::time::Duration;

/// See the module.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `count`, which is not 0.
    pub fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    /// A pause between three quarters and five quarters of the given one, so that clients do not come back in
    /// step.
    pub fn jittered(&mut self, pause: Duration) -> Duration {
        pause * 3 / 4 + pause / 2 * (self.next() % 1024) as u32 / 1024
    }

    /// The pause after `tries` tries: doubled each time up to a limit, then jittered.
    pub fn backed_off(&mut self, first: Duration, limit: Duration, tries: u32) -> Duration {
        let grown = first.saturating_mul(1 << tries.min(16));
        self.jittered(grown.min(limit))
    }
}
