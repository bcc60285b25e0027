//! `fs`: files of a cluster without mounting it.

mod access;
mod change;
mod progress;
pub mod quota;
mod show;
mod together;
mod transfer;
mod trash;
mod walk;
mod xattr;

use crate::args::{Fs, FsCommand};
use crate::connect;
use crate::failure::Usage;
use crate::names::shown;
use anyhow::{Result, bail};
use bearing_mount::session::{LastLink, PathError, Reason, Session};
use bearing_types::{Code, Mode};
use change::Reach;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use transfer::{Depth, Keep};

/// Runs `fs`.
pub fn run(flags: &Fs) -> Result<()> {
    masked(0);
    let mount = connect::connect(&flags.target.cluster, flags.target.secret.as_deref())?;
    connect::end_on_signal(&mount)?;
    let session = connect::session(&mount)?;
    let done = carry_out(&session, &flags.command, flags.target.json);
    let ended = connect::end(&mount);
    done.and(ended)
}

fn carry_out(session: &Session, command: &FsCommand, as_json: bool) -> Result<()> {
    let depth = |recursive: &bool| if *recursive { Depth::Tree } else { Depth::One };
    let reach = |recursive: &bool| if *recursive { Reach::Below } else { Reach::Named };
    match command {
        FsCommand::Ls { path, long } => show::list(session, path, *long, as_json),
        FsCommand::Stat { path } => show::stat(session, path, as_json),
        FsCommand::Tree { path, depth } => show::tree(session, path, *depth, as_json),
        FsCommand::Find(flags) => show::find(session, flags, as_json),
        FsCommand::Du { path, summary } => show::usage(session, path, *summary, as_json),
        FsCommand::Mkdir { paths, parents } => change::make_directories(session, paths, *parents, as_json),
        FsCommand::Mv { sources, target, no_replace } => {
            change::rename(session, sources, target, *no_replace, as_json)
        }
        FsCommand::Rm { paths, recursive, force } => {
            change::remove(session, paths, reach(recursive), *force, as_json)
        }
        FsCommand::Ln { target, name, symbolic } => change::link(session, target, name, *symbolic, as_json),
        FsCommand::Chmod { mode, paths, recursive } => {
            change::change_mode(session, mode, paths, reach(recursive), as_json)
        }
        FsCommand::Chown { owner, paths, recursive } => {
            change::change_owner(session, owner, paths, reach(recursive), as_json)
        }
        FsCommand::Xattr { path, name, value, remove } => {
            xattr::run(session, path, (name.as_deref(), value.as_deref()), *remove, as_json)
        }
        FsCommand::Cp { sources, target, recursive, preserve } => {
            let keep = if *preserve { Keep::All } else { Keep::Content };
            transfer::copy(session, sources, target, (depth(recursive), keep), as_json)
        }
        FsCommand::Put { source, target, recursive } => {
            transfer::put(session, source, target, depth(recursive), as_json)
        }
        FsCommand::Get { source, target, recursive } => {
            transfer::get(session, source, target, depth(recursive), as_json)
        }
        FsCommand::Quota { command } => quota::run(session, command, as_json),
        FsCommand::Trash { command } => trash::run(session, command, as_json),
        FsCommand::Cat { paths } => transfer::cat(session, paths),
    }
}

/// Paths in the cluster begin at its root: there is no working directory to begin at.
fn absolute(path: &OsStr) -> Result<&[u8]> {
    let bytes = path.as_bytes();
    if bytes.starts_with(b"/") {
        return Ok(bytes);
    }
    let absolute = shown(&[b"/", bytes].concat());
    bail!(Usage(format!("{}: a path in the cluster begins with /, like {absolute}", shown(bytes))))
}

fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    [directory, b"/", name].concat()
}

/// Into a directory that is there, under a name of its own; else the path is the name.
fn into(session: &Session, target: &[u8], name: Option<&[u8]>) -> Result<Vec<u8>> {
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
fn need_directory(session: &Session, count: usize, target: &[u8]) -> Result<()> {
    if count > 1 && !is_directory(session, target)? {
        bail!(Usage(format!("{} is no directory, and {count} things cannot have one name", shown(target))));
    }
    Ok(())
}

/// Permission bits less this process's umask.
fn masked(bits: u32) -> Mode {
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
