//! The kernel's table of mounts, as far as Bearing is concerned: what is mounted at a directory, and how it
//! is taken away.

use crate::process::{own_program, wait_until};
use anyhow::{Context, Result, bail};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io};

/// What is mounted at a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountState {
    /// Nothing.
    None,
    /// A Bearing that answers.
    Ours,
    /// A Bearing whose process is gone.
    Dead,
    /// Something else: its type and where it is from.
    Foreign(String),
}

/// How long a mount may take to show that it is dead.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);

/// How a mount is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detach {
    /// Only when nobody uses it.
    WhenIdle,
    /// Now; who uses it keeps a view of what is gone.
    Now,
}

/// The absolute path of a mount point. The point itself is not looked at: asking a dead mount fails, asking
/// one whose servers are gone may take long.
pub fn absolute(point: &Path) -> Result<PathBuf> {
    let named = std::path::absolute(point).with_context(|| format!("find {}", point.display()))?;
    match (named.parent(), named.file_name()) {
        (Some(parent), Some(name)) if parent.exists() => {
            let parent = parent.canonicalize().with_context(|| format!("find {}", parent.display()))?;
            Ok(parent.join(name))
        }
        _ => Ok(named),
    }
}

/// What is mounted at a point given by its absolute path.
pub fn state(point: &Path) -> Result<MountState> {
    Ok(match mounted_at(&table()?, point) {
        None => MountState::None,
        Some(Mounted { is_bearing: false, kind, source, .. }) => {
            MountState::Foreign(format!("{kind} ({source})"))
        }
        Some(_) if is_connected(point)? => MountState::Ours,
        Some(_) => MountState::Dead,
    })
}

/// Whether a process serves the mount. One that waits for its servers does not answer, and so is not dead.
/// Another process asks: who asked cannot end before the answer is there.
fn is_connected(point: &Path) -> Result<bool> {
    let mut probe = Command::new(own_program()?);
    probe
        .args(["daemon", "probe"])
        .arg(point)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = probe.spawn().context("start a probe of the mount")?;
    let mut ended = None;
    wait_until(Instant::now() + ANSWER_PATIENCE, || {
        ended = child.try_wait().ok().flatten();
        ended.is_some()
    });
    if ended.is_none() {
        // Left alone it would use the mount at some later time, when somebody wants to take it away.
        let _ = child.kill();
    }
    Ok(ended.is_none_or(|status| status.success()))
}

/// The probe: fails when nobody serves the mount, which the kernel says at once. Opening a directory reaches
/// the process even when its attributes are cached.
pub fn probe(point: &Path) -> Result<()> {
    match fs::File::open(point) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED)) => {
            Err(error).with_context(|| format!("open {}", point.display()))
        }
        _ => Ok(()),
    }
}

/// Whether a Bearing is mounted at a point, dead or alive: nobody is asked.
pub fn is_ours(point: &Path) -> Result<bool> {
    Ok(mounted_at(&table()?, point).is_some_and(|mounted| mounted.is_bearing))
}

/// The device of the filesystem that is topmost at a point, as `major:minor`. The kernel gives no other
/// filesystem the same one as long as anybody is left in it; numbers of mounts it gives anew at once.
pub fn device(point: &Path) -> Result<Option<String>> {
    Ok(mounted_at(&table()?, point).map(|mounted| mounted.device))
}

/// Has the kernel fail whoever waits for the mount at a point, and whoever asks later.
pub fn give_up(point: &Path) -> Result<()> {
    let path = CString::new(point.as_os_str().as_bytes()).context("a path with a NUL")?;
    // SAFETY: `path` is a NUL-terminated string that outlives the call.
    if unsafe { libc::umount2(path.as_ptr(), libc::MNT_FORCE) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // Those who waited are failed all the same; they still have it as their directory, or files open.
        Some(libc::EBUSY) => Ok(()),
        _ => Err(error).with_context(|| format!("give up the mount at {}", point.display())),
    }
}

fn table() -> Result<String> {
    fs::read_to_string("/proc/self/mountinfo").context("read /proc/self/mountinfo")
}

#[derive(Debug, PartialEq, Eq)]
struct Mounted {
    device: String,
    kind: String,
    source: String,
    is_bearing: bool,
}

/// The topmost mount at a point in a table of lines `.. root point options .. - kind source ..`.
fn mounted_at(table: &str, point: &Path) -> Option<Mounted> {
    table.lines().rev().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        if unescape(before.split(' ').nth(4)?) != point.as_os_str().as_bytes() {
            return None;
        }
        let device = before.split(' ').nth(2)?.to_owned();
        let mut after = after.split(' ');
        let (kind, source) = (after.next()?, after.next()?);
        let is_bearing = kind.starts_with("fuse") && (kind.contains("bearing") || source.contains("bearing"));
        let source = String::from_utf8_lossy(&unescape(source)).into_owned();
        Some(Mounted { device, kind: kind.to_owned(), source, is_bearing })
    })
}

/// The kernel writes blanks, tabs, line feeds and backslashes as three octal digits.
fn unescape(field: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &after[3..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

/// Takes a mount away.
pub fn detach(point: &Path, how: Detach) -> Result<()> {
    let path = CString::new(point.as_os_str().as_bytes()).context("a path with a NUL")?;
    let flags = match how {
        Detach::WhenIdle => 0,
        Detach::Now => libc::MNT_DETACH,
    };
    // SAFETY: `path` is a NUL-terminated string that outlives the call.
    if unsafe { libc::umount2(path.as_ptr(), flags) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EPERM) => detach_as_user(point, how),
        Some(libc::EBUSY) => bail!(
            "{} is in use; leave it with every shell and close its files, then try again",
            point.display()
        ),
        _ => Err(error).with_context(|| format!("unmount {}", point.display())),
    }
}

/// Users who are not root unmount with the helper that mounted for them.
fn detach_as_user(point: &Path, how: Detach) -> Result<()> {
    let flag = match how {
        Detach::WhenIdle => "-u",
        Detach::Now => "-uz",
    };
    let output = Command::new("fusermount3")
        .arg(flag)
        .arg(point)
        .output()
        .context("run fusermount3 (install the package fuse3)")?;
    if !output.status.success() {
        bail!("unmount {}: {}", point.display(), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
        40 22 0:50 / /a\\040b/mnt rw,nosuid - fuse.bearing bearing rw,user_id=0\n\
        41 22 0:51 / /old rw shared:1 - fuse bearing rw\n\
        42 22 0:52 / /old rw - tmpfs none rw\n";

    #[test]
    fn a_mount_is_found_by_its_unescaped_point() {
        let found = mounted_at(TABLE, Path::new("/a b/mnt")).unwrap();
        assert!(found.is_bearing && found.device == "0:50");
        assert_eq!(mounted_at(TABLE, Path::new("/a")), None);
    }

    #[test]
    fn the_topmost_mount_counts() {
        let found = mounted_at(TABLE, Path::new("/old")).unwrap();
        assert_eq!((found.kind.as_str(), found.source.as_str()), ("tmpfs", "none"));
    }
}
