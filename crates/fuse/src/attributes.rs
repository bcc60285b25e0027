//! Attributes, kinds and times between our types and the kernel's.
//!
//! Invariant: an attribute of a directory is kept by the kernel for at most [`DIRECTORY_KEPT_MAX`], because
//! the times and counts of a directory that several clients change are not leased.

use crate::gate::Trust;
use bearing_mount::{Found, Remaining, TimeChange};
use bearing_types::{Attributes, FileType, Wall};
use fuser::{FileAttr, INodeNo, TimeOrNow};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest time for which the kernel keeps the attributes of a directory.
pub(crate) const DIRECTORY_KEPT_MAX: Duration = Duration::from_secs(1);
/// The block size that `stat` names as good for reading and writing.
const IO_BYTES: u32 = 128 << 10;
/// The unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;
const NANOSECONDS: i64 = 1_000_000_000;

/// What stands for a directory of which only the kind is known.
pub(crate) fn unknown_directory(ino: INodeNo) -> FileAttr {
    FileAttr {
        ino,
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: fuser::FileType::Directory,
        perm: 0,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: IO_BYTES,
        flags: 0,
    }
}

/// How long the kernel may keep what it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The name.
    pub name: Duration,
    /// The attributes.
    pub attributes: Duration,
}

impl Kept {
    /// What remains of the leases behind an answer; nothing when it may have been recalled since.
    pub fn of(found: &Found, trust: Trust) -> Kept {
        let Trust::Whole(age) = trust else {
            return Kept { name: Duration::ZERO, attributes: Duration::ZERO };
        };
        let left = |Remaining(said): Remaining| said.saturating_sub(age);
        let (name, attributes) = (left(found.name_remaining), left(found.attributes_remaining));
        let longest = if found.attributes.is_directory() { DIRECTORY_KEPT_MAX } else { Duration::MAX };
        Kept { name, attributes: attributes.min(longest) }
    }

    /// Where the reply has room for one time only.
    pub fn both(self) -> Duration {
        self.name.min(self.attributes)
    }
}

/// The attributes as the kernel takes them.
pub(crate) fn file_attr(ino: INodeNo, attributes: &Attributes) -> FileAttr {
    FileAttr {
        ino,
        size: attributes.size,
        blocks: attributes.space.div_ceil(BLOCK_BYTES),
        atime: system_time(attributes.accessed),
        mtime: system_time(attributes.modified),
        ctime: system_time(attributes.changed),
        crtime: system_time(attributes.born),
        kind: kind(attributes.file_type),
        perm: attributes.mode.bits() as u16,
        nlink: attributes.links,
        uid: attributes.uid.0,
        gid: attributes.gid.0,
        rdev: attributes.device,
        blksize: IO_BYTES,
        flags: 0,
    }
}

/// The kernel's kind of node.
pub(crate) fn kind(file_type: FileType) -> fuser::FileType {
    match file_type {
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
        FileType::CharDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
    }
}

/// The kind that mknod(2) asks for; none for what it cannot make.
pub(crate) fn kind_of_mode(mode: u32) -> Option<FileType> {
    match mode & libc::S_IFMT {
        0 | libc::S_IFREG => Some(FileType::Regular),
        libc::S_IFIFO => Some(FileType::Fifo),
        libc::S_IFSOCK => Some(FileType::Socket),
        libc::S_IFCHR => Some(FileType::CharDevice),
        libc::S_IFBLK => Some(FileType::BlockDevice),
        _ => None,
    }
}

fn system_time(Wall(nanoseconds): Wall) -> SystemTime {
    let distance = Duration::from_nanos(nanoseconds.unsigned_abs());
    if nanoseconds >= 0 { UNIX_EPOCH + distance } else { UNIX_EPOCH - distance }
}

/// A time that the kernel sent. fuser 0.18 adds the nanoseconds of a time before 1970 with the wrong sign (it
/// makes -2 s + 0.8 s into -2.8 s); this undoes it.
fn wall(time: SystemTime) -> Wall {
    let signed = |seconds: Duration, sign: i64| {
        let whole = i64::try_from(seconds.as_secs()).unwrap_or(i64::MAX).saturating_mul(sign * NANOSECONDS);
        Wall(whole.saturating_add(i64::from(seconds.subsec_nanos())))
    };
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => signed(after, 1),
        Err(before) => signed(before.duration(), -1),
    }
}

/// A wish to set a time.
pub(crate) fn time_change(wish: TimeOrNow) -> TimeChange {
    match wish {
        TimeOrNow::Now => TimeChange::Now,
        TimeOrNow::SpecificTime(time) => TimeChange::To(wall(time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::found;
    use proptest::prelude::*;

    #[test]
    fn attributes_of_a_directory_are_kept_for_a_second_at_most() {
        let mut node = found(7, FileType::Directory);
        node.name_remaining = Remaining(Duration::from_secs(30));
        node.attributes_remaining = Remaining(Duration::from_secs(30));
        let now = Trust::Whole(Duration::ZERO);
        let kept = Kept::of(&node, now);
        assert_eq!((kept.name, kept.attributes), (Duration::from_secs(30), DIRECTORY_KEPT_MAX));
        assert_eq!(kept.both(), DIRECTORY_KEPT_MAX);
        node.attributes.file_type = FileType::Regular;
        assert_eq!(Kept::of(&node, now).attributes, Duration::from_secs(30));
        assert_eq!(Kept::of(&node, Trust::Gone).both(), Duration::ZERO);
    }

    #[test]
    fn what_was_said_before_a_request_waited_for_others_is_kept_for_less_by_that() {
        let mut node = found(7, FileType::Regular);
        node.name_remaining = Remaining(Duration::from_secs(2));
        node.attributes_remaining = Remaining(Duration::from_secs(3));
        let kept = Kept::of(&node, Trust::Whole(Duration::from_millis(2_500)));
        assert_eq!((kept.name, kept.attributes), (Duration::ZERO, Duration::from_millis(500)));
    }

    #[test]
    fn a_time_before_1970_survives_the_library() {
        // What the library makes of -2 s and 800 ms, which is 1.2 s before 1970.
        let mangled = UNIX_EPOCH - Duration::new(2, 800_000_000);
        assert_eq!(wall(mangled), Wall(-1_200_000_000));
        assert_eq!(wall(UNIX_EPOCH + Duration::from_nanos(5)), Wall(5));
    }

    proptest! {
        #[test]
        fn times_after_1970_survive_both_ways(nanoseconds in 0..i64::MAX) {
            prop_assert_eq!(wall(system_time(Wall(nanoseconds))), Wall(nanoseconds));
        }

        #[test]
        fn no_time_panics(nanoseconds in any::<i64>()) {
            let _ = wall(system_time(Wall(nanoseconds)));
        }
    }
}
