//! The directory to mount on: is it fit, is something mounted there, and how a dead mount is taken away.
//!
//! Invariant: nothing that another program mounted is ever unmounted.

use crate::options::{Occupied, SOURCE};
use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
/// Dead mounts that may lie above each other.
const DEAD_MAX: usize = 16;

/// Why nothing can be mounted on a directory.
#[derive(Debug, thiserror::Error)]
pub enum PointError {
    /// The kernel's side of FUSE is missing.
    #[error(
        "{DEVICE} is missing: the kernel module is not loaded, or this container has no access to it; run `modprobe fuse` (package \
         `fuse3` on Debian and Ubuntu), or start the container with --device {DEVICE} --cap-add SYS_ADMIN"
    )]
    NoDevice,
    /// It may not be used.
    #[error("{DEVICE} cannot be opened: {0}; run as root, or ask for read and write permission on it")]
    DeviceRefused(io::Error),
    /// Only root can mount without the helper.
    #[error(
        "{HELPER} is missing, and without it only root can mount; install the package `fuse3`, or run as root"
    )]
    NoHelper,
    /// The directory is not there.
    #[error("{} is missing; make it first: mkdir -p {}", .0.display(), .0.display())]
    Missing(PathBuf),
    /// It is no directory.
    #[error("{} is not a directory; a filesystem is mounted on an empty directory", .0.display())]
    NotDirectory(PathBuf),
    /// It has entries.
    #[error(
        "{} is not empty ({} is in it), and mounting would hide that; choose an empty directory, or use -o nonempty",
        point.display(), entry.display()
    )]
    Occupied {
        /// The directory.
        point: PathBuf,
        /// One of its entries.
        entry: PathBuf,
    },
    /// Something is mounted there.
    #[error("{} is already a mount point of {kind} ({mounted}); unmount it first: umount {}", point.display(), point.display())]
    Busy {
        /// The directory.
        point: PathBuf,
        /// The kind of filesystem.
        kind: String,
        /// Its source.
        mounted: String,
    },
    /// The program behind what is mounted there is gone, and it was not ours.
    #[error("the mount of {kind} on {} is dead, and not ours to take away; unmount it: umount -l {}", point.display(), point.display())]
    DeadStranger {
        /// The directory.
        point: PathBuf,
        /// The kind of filesystem.
        kind: String,
    },
    /// A dead mount of ours does not go away.
    #[error("the dead mount on {} cannot be taken away: {source}; try: umount -l {}", point.display(), point.display())]
    Stuck {
        /// The directory.
        point: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The system refuses to look at it.
    #[error("look at {}: {source}", point.display())]
    Unreadable {
        /// The directory.
        point: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// Looks for what mounting needs on this machine: its device, and for others than root the helper.
pub fn check_device() -> Result<(), PointError> {
    match fs::OpenOptions::new().read(true).write(true).open(DEVICE) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(PointError::DeviceRefused(error));
        }
        // Missing, or a device node without its module.
        Err(_) => return Err(PointError::NoDevice),
    }
    // SAFETY: geteuid takes nothing and cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        return Ok(());
    }
    let version = Command::new(HELPER).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if version.is_ok_and(|status| status.success()) { Ok(()) } else { Err(PointError::NoHelper) }
}

/// Makes a directory fit to be mounted on: takes away dead mounts of ours and refuses everything else that is
/// in the way. Returns its absolute path.
pub(crate) fn prepare(point: &Path, occupied: Occupied) -> Result<PathBuf, PointError> {
    let point = absolute(point)?;
    for _ in 0..DEAD_MAX {
        let unreadable = |source| PointError::Unreadable { point: point.clone(), source };
        // Opening asks the program behind a mount; the attributes alone the kernel may still remember.
        let opened = fs::read_dir(&point);
        let table = fs::read_to_string("/proc/self/mountinfo").map_err(unreadable)?;
        let mounted = mounted_at(&table, &point);
        match (opened, mounted) {
            (Err(error), Some(mounted)) if error.raw_os_error() == Some(libc::ENOTCONN) => {
                if !mounted.is_ours() {
                    return Err(PointError::DeadStranger { point, kind: mounted.kind });
                }
                detach(&point).map_err(|source| PointError::Stuck { point: point.clone(), source })?;
            }
            (_, Some(Mounted { kind, source, .. })) => {
                return Err(PointError::Busy { point, kind, mounted: source });
            }
            (Err(error), None) => return Err(cannot_open(point, error)),
            (Ok(entries), None) => return check_empty(point, entries, occupied),
        }
    }
    let source = io::Error::other(format!("{DEAD_MAX} dead mounts lie above each other"));
    Err(PointError::Stuck { point, source })
}

fn cannot_open(point: PathBuf, error: io::Error) -> PointError {
    match error.kind() {
        io::ErrorKind::NotFound => PointError::Missing(point),
        io::ErrorKind::NotADirectory => PointError::NotDirectory(point),
        _ => PointError::Unreadable { point, source: error },
    }
}

fn check_empty(point: PathBuf, mut entries: fs::ReadDir, occupied: Occupied) -> Result<PathBuf, PointError> {
    match (occupied, entries.next()) {
        (Occupied::Refuse, Some(Ok(entry))) => {
            Err(PointError::Occupied { point, entry: entry.file_name().into() })
        }
        (Occupied::Refuse, Some(Err(source))) => Err(PointError::Unreadable { point, source }),
        (Occupied::Hide, _) | (Occupied::Refuse, None) => Ok(point),
    }
}

/// The absolute path without links. The last component is not asked: it may be a dead mount.
fn absolute(point: &Path) -> Result<PathBuf, PointError> {
    let unreadable = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => PointError::Missing(point.to_owned()),
        _ => PointError::Unreadable { point: point.to_owned(), source },
    };
    let whole = std::path::absolute(point).map_err(unreadable)?;
    if fs::symlink_metadata(&whole).is_ok_and(|metadata| metadata.is_symlink()) {
        return whole.canonicalize().map_err(unreadable);
    }
    match (whole.parent(), whole.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize().map_err(unreadable)?.join(name)),
        _ => whole.canonicalize().map_err(unreadable),
    }
}

/// Which filesystem is mounted on a directory: the kernel's number of its device.
pub(crate) fn device_at(point: &Path) -> io::Result<Option<String>> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(mounted_at(&table, point).map(|mounted| mounted.device))
}

/// Takes a mount out of the tree. If it is in use it goes all the same, and open files in it go on until they
/// are closed.
pub(crate) fn unmount(point: &Path) -> io::Result<()> {
    let path = CString::new(point.as_os_str().as_bytes())?;
    // SAFETY: `path` is a string with its zero byte and outlives the call.
    if unsafe { libc::umount2(path.as_ptr(), 0) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EBUSY | libc::EPERM) => detach(point),
        _ => Err(error),
    }
}

fn detach(point: &Path) -> io::Result<()> {
    let path = CString::new(point.as_os_str().as_bytes())?;
    // SAFETY: `path` is a string with its zero byte and outlives the call.
    if unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() != Some(libc::EPERM) {
        return Err(error);
    }
    // Without being root, only the helper may.
    let output = Command::new(HELPER).args(["-u", "-z", "--"]).arg(point).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// A line of the table of mounts.
#[derive(Debug, PartialEq, Eq)]
struct Mounted {
    device: String,
    kind: String,
    source: String,
}

impl Mounted {
    fn is_ours(&self) -> bool {
        self.kind == format!("fuse.{SOURCE}") || (self.kind == "fuse" && self.source == SOURCE)
    }
}

/// The topmost mount on a directory: the last in the table, whose lines are
/// `id parent device root point options .. - kind source ..`.
fn mounted_at(table: &str, point: &Path) -> Option<Mounted> {
    table.lines().rev().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(2);
        let (device, _root, found) = (before.next()?, before.next()?, unescape(before.next()?));
        let mut after = after.split(' ');
        let (kind, source) = (after.next()?, after.next()?);
        (Path::new(&found) == point).then(|| Mounted {
            device: device.to_owned(),
            kind: kind.to_owned(),
            source: source.to_owned(),
        })
    })
}

/// The kernel writes blanks, tabs, line feeds and backslashes as three octal digits.
fn unescape(field: &str) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let [first, tail @ ..] = rest {
        let octal = (*first == b'\\').then(|| tail.get(..3)).flatten();
        let code = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &tail[3..] } else { tail };
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
        40 22 0:50 / /a\\040b\\134c rw,nosuid shared:3 - fuse.bearing bearing rw,user_id=0\n\
        41 22 0:51 / /old rw shared:1 - fuse bearing rw\n\
        42 22 0:52 / /old rw - tmpfs none rw\n\
        43 22 0:53 / /other rw - fuse.sshfs host: rw\n";

    #[test]
    fn a_mount_is_found_by_its_point_and_the_topmost_counts() {
        let ours = mounted_at(TABLE, Path::new("/a b\\c")).unwrap();
        assert!(ours.is_ours() && ours.device == "0:50", "{ours:?}");
        assert_eq!(mounted_at(TABLE, Path::new("/old")).unwrap().kind, "tmpfs");
        assert!(!mounted_at(TABLE, Path::new("/other")).unwrap().is_ours());
        assert_eq!(mounted_at(TABLE, Path::new("/a")), None);
    }

    #[test]
    fn an_empty_directory_is_fit() {
        let directory = tempfile::tempdir().unwrap();
        let expected = directory.path().canonicalize().unwrap();
        assert_eq!(prepare(directory.path(), Occupied::Refuse).unwrap(), expected);
    }

    #[test]
    fn what_is_in_the_way_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let (file, missing) = (directory.path().join("file"), directory.path().join("missing"));
        fs::write(&file, b"x").unwrap();
        let occupied = prepare(directory.path(), Occupied::Refuse).unwrap_err().to_string();
        assert!(occupied.contains("not empty (file is in it)"), "{occupied}");
        assert!(prepare(directory.path(), Occupied::Hide).is_ok());
        assert!(matches!(prepare(&file, Occupied::Refuse), Err(PointError::NotDirectory(_))));
        assert!(matches!(prepare(&missing, Occupied::Refuse), Err(PointError::Missing(_))));
    }

    #[test]
    fn a_mount_point_of_another_filesystem_is_busy() {
        let busy = prepare(Path::new("/proc"), Occupied::Refuse).unwrap_err();
        assert!(matches!(&busy, PointError::Busy { kind, .. } if kind == "proc"), "{busy}");
    }

    #[test]
    fn a_link_to_a_directory_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (real, link) = (directory.path().join("real"), directory.path().join("link"));
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert_eq!(prepare(&link, Occupied::Refuse).unwrap(), real.canonicalize().unwrap());
    }
}
