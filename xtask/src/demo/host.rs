//! What this machine can do, and what is mounted on it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// What is mounted at a directory.
#[derive(Debug, PartialEq, Eq)]
pub enum MountState {
    /// Nothing.
    None,
    /// A FUSE filesystem that answers and is Bearing by its name.
    Ours,
    /// A FUSE filesystem whose program is gone.
    Dead,
    /// Something else, of this type.
    Foreign {
        /// The filesystem's type, as the kernel names it.
        kind: String,
    },
}

/// Refuses a machine that cannot mount, and says what to install.
pub fn check_fuse() -> Result<()> {
    if !Path::new("/dev/fuse").exists() {
        bail!(
            "/dev/fuse is missing, so nothing can be mounted. On a machine: `modprobe fuse`. \
             In a container: start it with `--device /dev/fuse --cap-add SYS_ADMIN`"
        );
    }
    let helper = Command::new("fusermount3").arg("--version").output();
    if !helper.is_ok_and(|output| output.status.success()) {
        bail!("fusermount3 is missing; install the package fuse3 (`make deps` does it)");
    }
    Ok(())
}

/// What is mounted at `directory`.
pub fn mount_state(directory: &Path) -> Result<MountState> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").context("read /proc/self/mountinfo")?;
    // The directory itself may be a dead mount: only its parent can be resolved without asking it.
    let Some((parent, name)) = directory.parent().zip(directory.file_name()) else {
        return Ok(MountState::None);
    };
    let Ok(parent) = parent.canonicalize() else { return Ok(MountState::None) };
    let point = parent.join(name);
    let Some(mounted) = mounted_at(&table, &point.to_string_lossy()) else { return Ok(MountState::None) };
    if !mounted.kind.starts_with("fuse") || !mounted.is_bearing {
        return Ok(MountState::Foreign { kind: mounted.kind });
    }
    // Opening it asks the program; its attributes alone the kernel may still remember.
    match std::fs::read_dir(&point) {
        Ok(_) => Ok(MountState::Ours),
        Err(_) => Ok(MountState::Dead),
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Mounted {
    kind: String,
    is_bearing: bool,
}

/// The last (topmost) mount at `point` in a mountinfo table: `.. root point options .. - kind source ..`.
fn mounted_at(table: &str, point: &str) -> Option<Mounted> {
    table.lines().rev().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        if unescape(before.split(' ').nth(4)?) != point {
            return None;
        }
        let mut after = after.split(' ');
        let (kind, source) = (after.next()?, after.next()?);
        let is_bearing = kind.contains("bearing") || source.contains("bearing");
        Some(Mounted { kind: kind.to_owned(), is_bearing })
    })
}

/// The kernel writes blanks, tabs, line feeds and backslashes in octal.
fn unescape(field: &str) -> String {
    field.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

/// Unmounts `directory`, as root or not.
pub fn unmount(directory: &Path) -> Result<()> {
    let mut said = String::new();
    for program in [["fusermount3", "-u"].as_slice(), &["umount"]] {
        let output = Command::new(program[0]).args(&program[1..]).arg(directory).output();
        match output {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => said = String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => said = format!("{}: {error}", program[0]),
        }
    }
    bail!(
        "./mnt cannot be unmounted ({said}); leave it with every shell and close its files, then try again"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
        40 22 0:50 / /a\\040b/mnt rw,nosuid - fuse.bearing bearing rw,user_id=0\n\
        41 22 0:51 / /old rw shared:1 - fuse bearing rw\n\
        42 22 0:52 / /old rw - tmpfs none rw\n\
        43 22 0:53 / /other rw - fuse.sshfs host: rw\n";

    #[test]
    fn a_mount_is_found_by_its_point() {
        let found = mounted_at(TABLE, "/a b/mnt");
        assert_eq!(found, Some(Mounted { kind: "fuse.bearing".to_owned(), is_bearing: true }));
        assert_eq!(mounted_at(TABLE, "/a"), None);
    }

    #[test]
    fn the_topmost_mount_counts() {
        assert_eq!(mounted_at(TABLE, "/old").map(|m| m.kind), Some("tmpfs".to_owned()));
    }

    #[test]
    fn another_fuse_filesystem_is_not_ours() {
        assert_eq!(mounted_at(TABLE, "/other").map(|m| m.is_bearing), Some(false));
    }

    #[test]
    fn an_ordinary_directory_is_no_mount() {
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(mount_state(directory.path()).expect("reads"), MountState::None);
        assert_eq!(mount_state(&directory.path().join("absent/mnt")).expect("reads"), MountState::None);
    }
}
