//! How much space the disk of log and store has left.

use bearing_types::Mono;

/// Of the reserve so much has to be free that removals go on.
pub(crate) const KEPT_FOR_SERVING: u64 = 8;

/// Space has returned when there is so much more than the reserve, in parts of it: else a disk at its limit
/// would be full and not full in turn.
pub(crate) const RETURNED: u64 = 16;

/// What a disk has, in bytes. A total of 0 says that nobody knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSpace {
    /// What can still be written there.
    pub free: u64,
    /// How large it is.
    pub total: u64,
}

/// How much room there is for changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Headroom {
    /// The log can take nothing at all.
    None,
    /// Most of the reserve is used: only what serving itself needs goes on.
    Short,
    /// The reserve is touched: nothing grows any more.
    Low,
    /// As it should be.
    #[default]
    Enough,
}

/// What is known of the disk.
#[derive(Debug, Default)]
pub(crate) struct Space {
    pub disk: DiskSpace,
    /// The log waits for space.
    pub stuck: bool,
    pub headroom: Headroom,
    /// When delegated directories are asked for again.
    pub ask_back: Option<Mono>,
}

/// What is kept free of a disk for removals and for the server's own work: as much as was asked for, but not
/// more than an eighth of a small disk.
pub fn reserve_bytes(asked: u64, disk: DiskSpace) -> u64 {
    asked.min(disk.total / 8)
}

impl Space {
    pub fn headroom(&self) -> Headroom {
        self.headroom
    }

    pub fn judge(&mut self, reserve_asked: u64) {
        let reserve = reserve_bytes(reserve_asked, self.disk);
        let DiskSpace { free, total } = self.disk;
        let was_low = self.headroom != Headroom::Enough;
        let enough = if was_low { reserve + reserve / RETURNED } else { reserve };
        self.headroom = match total {
            _ if self.stuck => Headroom::None,
            0 => Headroom::Enough,
            _ if free < reserve / KEPT_FOR_SERVING => Headroom::Short,
            _ if free < enough => Headroom::Low,
            _ => Headroom::Enough,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESERVE: u64 = 800;

    fn judged(space: &mut Space, free: u64) -> Headroom {
        space.disk = DiskSpace { free, total: 1 << 20 };
        space.judge(RESERVE);
        space.headroom
    }

    #[test]
    fn a_disk_is_full_at_its_reserve_and_has_room_again_a_little_above_it() {
        let mut space = Space::default();
        assert_eq!(judged(&mut space, 800), Headroom::Enough);
        assert_eq!(judged(&mut space, 799), Headroom::Low);
        assert_eq!(judged(&mut space, 849), Headroom::Low, "not at once");
        assert_eq!(judged(&mut space, 850), Headroom::Enough);
        assert_eq!(judged(&mut space, 820), Headroom::Enough);
        assert_eq!(judged(&mut space, 99), Headroom::Short);
        assert_eq!(judged(&mut space, 100), Headroom::Low);
        space.stuck = true;
        assert_eq!(judged(&mut space, 1 << 20), Headroom::None, "the log knows better");
    }

    #[test]
    fn a_small_disk_has_a_small_reserve_and_one_of_unknown_size_none() {
        assert_eq!(reserve_bytes(256, DiskSpace { free: 0, total: 10_000 }), 256);
        assert_eq!(reserve_bytes(256, DiskSpace { free: 0, total: 800 }), 100);
        let mut space = Space::default();
        space.judge(RESERVE);
        assert_eq!(space.headroom, Headroom::Enough);
    }
}
