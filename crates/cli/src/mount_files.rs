//! Where a mount in the background reports its state, and where its log is.
//!
//! Both lie in the cluster's directory if it is mounted from there and this user may write to it; else in a
//! directory of this user's own, never where others may make files: what they put there under a name that
//! they guessed would be written to.

use anyhow::{Context, Result, bail};
use bearing_server::cluster::Layout;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of a file's name that tell the mount point.
const NAME_BYTES_MAX: usize = 200;

/// The files of one mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountFiles {
    /// Its report.
    pub state: PathBuf,
    /// What it prints.
    pub log: PathBuf,
}

impl MountFiles {
    /// The files of a mount at a point, of a cluster whose directory is known or not. The directory for them
    /// is there afterwards.
    pub fn of(cluster: Option<&Layout>, point: &Path) -> Result<MountFiles> {
        let beside = cluster.map(directory).filter(|directory| make(directory).is_ok());
        let directory = match beside {
            Some(directory) => directory,
            None => {
                let own = own_directory()?;
                make(&own).with_context(|| format!("make {} for the logs of mounts", own.display()))?;
                own
            }
        };
        let name = file_name(point);
        Ok(MountFiles {
            state: directory.join(format!("{name}.state")),
            log: directory.join(format!("{name}.log")),
        })
    }
}

/// Where mounts that are made from a cluster's directory have their files.
fn directory(cluster: &Layout) -> PathBuf {
    cluster.root().join("mounts")
}

/// The reports of all mounts that were made from a cluster's directory.
pub fn reports(cluster: &Layout) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory(cluster)) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut reports: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "state")).collect();
    reports.sort();
    reports
}

/// For mounts by address.
fn own_directory() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // SAFETY: geteuid takes nothing and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    match (set("XDG_STATE_HOME"), is_root, set("HOME")) {
        (Some(state), ..) => Ok(state.join("bearing")),
        (None, true, _) => Ok(PathBuf::from("/var/log/bearing")),
        (None, false, Some(home)) => Ok(home.join(".local/state/bearing")),
        (None, false, None) => {
            bail!("there is no place for the mount's log: neither XDG_STATE_HOME nor HOME is set; set one")
        }
    }
}

/// Makes a directory that is this user's alone, or sees that it is.
fn make(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let found = fs::symlink_metadata(directory)?;
    // SAFETY: geteuid takes nothing and cannot fail.
    let own = unsafe { libc::geteuid() };
    if !found.is_dir() || found.uid() != own || found.mode() & 0o022 != 0 {
        let complaint =
            format!("{} belongs to somebody else, or others may write to it", directory.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, complaint));
    }
    Ok(())
}

/// A mount point's path as one name, as systemd has it: slashes are dashes, and dashes are escaped.
fn file_name(point: &Path) -> String {
    let mut name = String::new();
    for byte in point.as_os_str().as_bytes().iter().skip_while(|byte| **byte == b'/') {
        match byte {
            b'/' => name.push('-'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' => name.push(char::from(*byte)),
            _ => name.push_str(&format!("%{byte:02x}")),
        }
    }
    if name.is_empty() {
        return "-".to_owned();
    }
    if name.len() > NAME_BYTES_MAX {
        let hash = blake3::hash(point.as_os_str().as_bytes()).to_hex();
        name = format!("{}-{}", &name[..NAME_BYTES_MAX - 33], &hash[..32]);
    }
    name
}

/// Opens a log to append to. It is this user's own file, whoever else may make names in its directory.
pub fn open_log(path: &Path) -> Result<File> {
    let open = || {
        let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
        let file = OpenOptions::new().create(true).append(true).mode(0o600).custom_flags(flags).open(path)?;
        let found = file.metadata()?;
        // SAFETY: geteuid takes nothing and cannot fail.
        let own = unsafe { libc::geteuid() };
        if !found.is_file() || found.uid() != own || found.nlink() != 1 {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is not this user's own file"));
        }
        Ok(file)
    };
    open().with_context(|| format!("open the log {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn different_points_have_different_names() {
        for (point, expected) in
            [("/", "-"), ("/mnt", "mnt"), ("/srv/a-b", "srv-a%2db"), ("/srv/a/b", "srv-a-b")]
        {
            assert_eq!(file_name(Path::new(point)), expected);
        }
        let long = |last: &str| file_name(Path::new(&format!("/{}/{last}", "x".repeat(300))));
        assert!(long("a").len() <= NAME_BYTES_MAX && long("a") != long("b"));
    }

    #[test]
    fn a_log_is_written_to_its_own_file_only() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        assert_eq!(open_log(&path("new")).unwrap().metadata().unwrap().mode() & 0o777, 0o600);
        assert!(open_log(&path("new")).is_ok(), "again");
        symlink(path("target"), path("link")).unwrap();
        assert!(open_log(&path("link")).is_err() && !path("target").exists());
        fs::hard_link(path("new"), path("second")).unwrap();
        assert!(open_log(&path("second")).is_err());
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_not_used() {
        let place = tempfile::tempdir().unwrap();
        let open = place.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(make(&open).is_err());
        assert!(make(&place.path().join("a/b")).is_ok());
        symlink(place.path().join("a"), place.path().join("link")).unwrap();
        assert!(make(&place.path().join("link")).is_err());
    }
}
