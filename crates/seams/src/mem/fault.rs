//! The choices that a crash makes, drawn from a seed so that a run can be repeated.

/// How the choices fall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Seeded,
    KeepAll,
    LoseAll,
}

/// Decides which unsynced parts survive a crash. The same seed and the same calls give the same choices.
#[derive(Clone, Debug)]
pub struct CrashFault {
    state: u64,
    mood: Mood,
}

impl CrashFault {
    /// Choices drawn from a seed.
    pub fn new(seed: u64) -> CrashFault {
        CrashFault { state: seed, mood: Mood::Seeded }
    }

    /// Everything unsynced happens to survive, whole: a killed process on a machine that runs on.
    pub fn keeping_all() -> CrashFault {
        CrashFault { state: 0, mood: Mood::KeepAll }
    }

    /// Everything unsynced is lost: the strictest power cut.
    pub fn losing_all() -> CrashFault {
        CrashFault { state: 0, mood: Mood::LoseAll }
    }

    /// Whether nothing that the system holds is lost: the machine runs on.
    pub fn keeps_all(&self) -> bool {
        self.mood == Mood::KeepAll
    }

    /// SplitMix64 (Steele, Lea, Flood, 2014): small, and good enough to pick faults.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// How many of `count` unsynced things survive, in order from the first: 0 to `count`.
    pub fn survivors(&mut self, count: usize) -> usize {
        match self.mood {
            Mood::KeepAll => count,
            Mood::LoseAll => 0,
            // The ends are drawn as often as the middle: they are where mistakes live.
            Mood::Seeded => match self.next() % 4 {
                0 => 0,
                1 => count,
                _ => (self.next() % (count as u64 + 1)) as usize,
            },
        }
    }

    /// Whether an unsynced thing that the disk may keep or lose as a whole survives.
    pub fn survives(&mut self) -> bool {
        self.survivors(1) == 1
    }

    /// Whether the crash also leaves damaged bytes (zeros or garbage) in the unsynced region. Never in the
    /// two fixed moods.
    pub fn damages(&mut self) -> bool {
        self.mood == Mood::Seeded && self.next().is_multiple_of(2)
    }

    /// Overwrites what a block that was not written whole would hold: all zeros, or bytes of something else.
    pub fn damage(&mut self, bytes: &mut [u8]) {
        if self.next().is_multiple_of(2) {
            bytes.fill(0);
            return;
        }
        for chunk in bytes.chunks_mut(8) {
            let garbage = self.next().to_le_bytes();
            chunk.copy_from_slice(&garbage[..chunk.len()]);
        }
    }
}
