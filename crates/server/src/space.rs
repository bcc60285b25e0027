//! The space of a metadata server's disk: how much there is, and some that is held in a file of its own.
//!
//! The machine refuses changes while less than the reserve is free, but other programs may write to the same
//! disk. So a quarter of the reserve is kept in a file, and given up piece by piece when the disk has nothing
//! else left: for a start on a full disk, for the log and the store, and for removals. It is taken back when
//! there is space again. What is held counts as free: it is, for this server.

use crate::StartError;
use bearing_meta::{DiskSpace, reserve_bytes};
use bearing_types::Mono;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// How often the disk is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The file in a server's directory.
const FILE: &str = "reserve";
/// Of the reserve this part is held.
const HELD: u64 = 4;
/// A file's blocks are counted in these.
const BLOCK_BYTES: u64 = 512;

/// See the module.
pub struct HeldSpace {
    file: File,
    asked: u64,
    held: u64,
    looked: Mono,
    told: Option<DiskSpace>,
    /// The disk cannot hold room for later.
    unsupported: bool,
}

impl HeldSpace {
    /// Takes what a server's directory holds, and gives up of it what a start needs.
    pub fn open(directory: &Path, asked: u64) -> Result<HeldSpace, StartError> {
        let path = directory.join(FILE);
        let open = || {
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
            let held = file.metadata()?.blocks() * BLOCK_BYTES;
            Ok((file, held))
        };
        let (file, held) = open().map_err(|error: io::Error| StartError::file("open", &path, &error))?;
        let mut space = HeldSpace { file, asked, held, looked: Mono::ZERO, told: None, unsupported: false };
        space.adjust();
        Ok(space)
    }

    /// What the disk has, if that is to be told: it was not looked at for a moment, and it changed.
    pub fn look(&mut self, now: Mono) -> Option<DiskSpace> {
        if self.told.is_some() && now.since(self.looked) < LOOK_EVERY {
            return None;
        }
        self.looked = now;
        let disk = self.adjust();
        let news = self.told != Some(disk);
        self.told = Some(disk);
        news.then_some(disk)
    }

    /// When it is to be looked at again.
    pub fn next_look(&self) -> Mono {
        self.looked.after(LOOK_EVERY)
    }

    /// The log or the store found no space: they need what is held, whatever the disk says.
    pub fn give_up_some(&mut self) {
        let reserve = reserve_bytes(self.asked, self.measure());
        self.shrink(reserve / HELD / 2);
    }

    /// How large the disk is.
    pub fn disk_bytes(&self) -> u64 {
        self.measure().total
    }

    fn adjust(&mut self) -> DiskSpace {
        let disk = self.measure();
        let reserve = reserve_bytes(self.asked, disk);
        let (wanted, working) = (reserve / HELD, reserve / HELD / 2);
        if self.held > wanted {
            // Less is asked for than before, or the directory was moved to a smaller disk.
            self.shrink(self.held - wanted);
        }
        let unheld = disk.free.saturating_sub(self.held);
        if unheld < working && self.held > 0 {
            self.shrink(working);
        } else if unheld >= reserve + wanted && self.held < wanted {
            self.hold(wanted);
        }
        self.measure()
    }

    fn shrink(&mut self, bytes: u64) {
        let kept = self.held.saturating_sub(bytes);
        match self.file.set_len(kept) {
            Ok(()) => self.held = kept,
            Err(error) => tracing::warn!("what is held of the disk cannot be given up: {error}"),
        }
    }

    fn hold(&mut self, bytes: u64) {
        if self.unsupported {
            return;
        }
        let length = libc::off_t::try_from(bytes).unwrap_or(libc::off_t::MAX);
        // SAFETY: the descriptor is open for writing (borrowed here); the call takes no pointers.
        if unsafe { libc::fallocate(self.file.as_raw_fd(), 0, 0, length) } == 0 {
            self.held = bytes;
            return;
        }
        let error = io::Error::last_os_error();
        self.unsupported = matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS));
        tracing::debug!("no space is held on the disk: {error}");
    }

    fn measure(&self) -> DiskSpace {
        // SAFETY: all zeros are a value of this struct of numbers.
        let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
        // SAFETY: the descriptor is open (borrowed here), and the pointer is of a struct that lives until the
        // call is over.
        if unsafe { libc::fstatvfs(self.file.as_raw_fd(), &raw mut found) } != 0 {
            return DiskSpace::default();
        }
        let block = found.f_frsize;
        DiskSpace { free: found.f_bavail * block + self.held, total: found.f_blocks * block }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_reserve_is_held_counts_as_free_and_is_given_up_in_pieces() {
        let directory = tempfile::tempdir().unwrap();
        let mut space = HeldSpace::open(directory.path(), 8 << 20).unwrap();
        if space.unsupported || space.measure().free < 64 << 20 {
            eprintln!("skipped: this disk holds nothing, or has no room for a test");
            return;
        }
        assert_eq!(space.held, 2 << 20);
        assert!(space.look(Mono(1)).is_some(), "what was never told");
        assert_eq!(space.look(Mono(2)), None, "not so often");
        space.give_up_some();
        assert_eq!(space.held, 1 << 20);
        drop(space);
        let space = HeldSpace::open(directory.path(), 8 << 20).unwrap();
        assert_eq!(space.held, 2 << 20, "there is room, so it is taken back");
    }
}
