//! Paths in the cluster and what a command makes of them.

use crate::failure::Usage;
use crate::names::shown;
use anyhow::{Result, bail};
use bearing_mount::session::{LastLink, PathError, Reason, Session};
use bearing_types::{Code, Mode};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

/// Paths in the cluster begin at its root: there is no working directory to begin at.
pub fn absolute(path: &OsStr) -> Result<&[u8]> {
    let bytes = path.as_bytes();
    if bytes.starts_with(b"/") {
        return Ok(bytes);
    }
    let absolute = shown(&[b"/", bytes].concat());
    bail!(Usage(format!("{}: a path in the cluster begins with /, like {absolute}", shown(bytes))))
}

pub fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    [directory, b"/", name].concat()
}

/// Into a directory that is there, under a name of its own; else the path is the name.
pub fn into(session: &Session, target: &[u8], name: Option<&[u8]>) -> Result<Vec<u8>> {
    match (is_directory(session, target)?, name) {
        (true, Some(name)) => Ok(joined(target, name)),
        _ => Ok(target.to_vec()),
    }
}

fn is_directory(session: &Session, path: &[u8]) -> Result<bool> {
    match session.find(path, LastLink::Follow) {
        Ok(found) => Ok(found.attributes.is_directory()),
        Err(PathError { reason: Reason::Refused(Code::NotFound), .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Several things only go into a directory.
pub fn need_directory(session: &Session, count: usize, target: &[u8]) -> Result<()> {
    if count > 1 && !is_directory(session, target)? {
        bail!(Usage(format!("{} is no directory, and {count} things cannot have one name", shown(target))));
    }
    Ok(())
}

/// Permission bits less this process's umask.
pub fn masked(bits: u32) -> Mode {
    static MASK: OnceLock<u32> = OnceLock::new();
    // SAFETY: umask only swaps a number; it is put back at once, and `run` sees to it that no other thread
    // makes files yet.
    let mask = MASK.get_or_init(|| unsafe {
        let mask = libc::umask(0o077);
        libc::umask(mask);
        mask
    });
    Mode::new(bits & 0o7777 & !mask)
}
