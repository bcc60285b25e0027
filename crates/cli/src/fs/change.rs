//! What changes names and attributes: mkdir, mv, rm, ln, chmod, chown.

use super::access::{ModeChange, parse_owner};
use super::paths::{absolute, into, masked, need_directory};
use super::progress::Progress;
use super::together::walk_together;
use super::walk::Event;
use crate::failure::Usage;
use crate::names::shown;
use anyhow::{Result, bail};
use bearing_mount::session::{LastLink, PathError, Reason, Session};
use bearing_mount::{AttributeChange, RenameMode};
use bearing_types::{Code, FileType};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Whether what is below a directory is meant too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Only what is named.
    Named,
    /// And all below.
    Below,
}

fn tell(as_json: bool, count: u64) {
    if as_json {
        println!("{}", json!({ "changed": count }));
    }
}

/// `mkdir`.
pub fn make_directories(session: &Session, paths: &[OsString], parents: bool, as_json: bool) -> Result<()> {
    let mode = masked(0o777);
    each(paths, |path| {
        if parents {
            session.make_directories(absolute(path)?, mode)?;
        } else {
            session.make_directory(absolute(path)?, mode)?;
        }
        Ok(())
    })?;
    tell(as_json, paths.len() as u64);
    Ok(())
}

/// `mv`.
pub fn rename(
    session: &Session,
    sources: &[OsString],
    target: &OsStr,
    keep: bool,
    as_json: bool,
) -> Result<()> {
    need_directory(session, sources.len(), absolute(target)?)?;
    let mode = if keep { RenameMode::NoReplace } else { RenameMode::Replace };
    each(sources, |source| {
        let from = absolute(source)?;
        let name = from.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty());
        Ok(session.rename(from, &into(session, absolute(target)?, name)?, mode)?)
    })?;
    tell(as_json, sources.len() as u64);
    Ok(())
}

/// `rm`. `force`: what is not there is removed already.
pub fn remove(session: &Session, paths: &[OsString], reach: Reach, force: bool, as_json: bool) -> Result<()> {
    let progress = Progress::entries("removed", as_json);
    let count = AtomicU64::new(0);
    let missing = |error: &anyhow::Error| {
        let reason = error.downcast_ref::<PathError>().map(|error| error.reason);
        reason == Some(Reason::Refused(Code::NotFound))
    };
    each(paths, |path| {
        let path = absolute(path)?;
        if path.iter().all(|byte| *byte == b'/') {
            bail!(Usage("/ cannot be removed; name what is in it".to_owned()));
        }
        let removed = walk_together(session, path, |event| {
            match event {
                Event::Enter(entry) if entry.file_type == FileType::Directory => {
                    if reach == Reach::Named {
                        bail!(Usage(format!("{} is a directory; add -r", shown(path))));
                    }
                    return Ok(());
                }
                Event::Enter(entry) => session.remove(&entry.path)?,
                Event::Leave(entry) => session.remove_directory(&entry.path)?,
            }
            count.fetch_add(1, Ordering::Relaxed);
            progress.add(1);
            Ok(())
        });
        match removed {
            Err(error) if force && missing(&error) => Ok(()),
            other => other,
        }
    })?;
    tell(as_json, count.into_inner());
    Ok(())
}

/// `ln`.
pub fn link(session: &Session, target: &OsStr, name: &OsStr, symbolic: bool, as_json: bool) -> Result<()> {
    let last = target.as_bytes().rsplit(|byte| *byte == b'/').find(|name| !name.is_empty());
    let path = into(session, absolute(name)?, last)?;
    if symbolic {
        session.make_link(&path, target.as_bytes())?;
    } else {
        session.link(absolute(target)?, &path)?;
    }
    tell(as_json, 1);
    Ok(())
}

/// `chmod`.
pub fn change_mode(
    session: &Session,
    mode: &str,
    paths: &[OsString],
    reach: Reach,
    as_json: bool,
) -> Result<()> {
    let change = ModeChange::parse(mode)?;
    let count = change_all(session, paths, reach, as_json, |path, is_named| {
        let last = if is_named { LastLink::Follow } else { LastLink::Keep };
        let attributes = session.find(path, last)?.attributes;
        // A link has no mode that matters, and what it leads to is not in the tree.
        if attributes.file_type == FileType::Symlink {
            return Ok(false);
        }
        let mode = change.apply(attributes.mode, attributes.is_directory());
        let change = AttributeChange { mode: Some(mode), ..AttributeChange::default() };
        session.set_attributes(path, last, change)?;
        Ok(true)
    })?;
    tell(as_json, count);
    Ok(())
}

/// `chown`.
pub fn change_owner(
    session: &Session,
    owner: &str,
    paths: &[OsString],
    reach: Reach,
    as_json: bool,
) -> Result<()> {
    let (uid, gid) = parse_owner(owner)?;
    let count = change_all(session, paths, reach, as_json, |path, is_named| {
        let last = if is_named { LastLink::Follow } else { LastLink::Keep };
        let change = AttributeChange { uid, gid, ..AttributeChange::default() };
        session.set_attributes(path, last, change)?;
        Ok(true)
    })?;
    tell(as_json, count);
    Ok(())
}

/// Changes what is named, and perhaps all below; says how many were changed. A directory comes after what is
/// in it: once it is changed, its entries may be out of reach.
fn change_all(
    session: &Session,
    paths: &[OsString],
    reach: Reach,
    as_json: bool,
    change: impl Fn(&[u8], bool) -> Result<bool> + Sync,
) -> Result<u64> {
    let progress = Progress::entries("changed", as_json);
    let count = AtomicU64::new(0);
    let note = |changed: bool| {
        count.fetch_add(u64::from(changed), Ordering::Relaxed);
    };
    each(paths, |path| {
        let path = absolute(path)?;
        if reach == Reach::Named {
            note(change(path, true)?);
            return Ok(());
        }
        walk_together(session, path, |event| {
            let entry = match event {
                Event::Enter(entry) if entry.file_type == FileType::Directory => return Ok(()),
                Event::Enter(entry) | Event::Leave(entry) => entry,
            };
            let path = if entry.path.is_empty() { b"/" } else { &entry.path[..] };
            note(change(path, entry.depth == 0)?);
            progress.add(1);
            Ok(())
        })
    })?;
    Ok(count.into_inner())
}

/// Does something for each, also after one that went wrong. The first error is the answer, the others are
/// printed.
fn each(paths: &[OsString], mut run: impl FnMut(&OsStr) -> Result<()>) -> Result<()> {
    let mut first = Ok(());
    for path in paths {
        match run(path) {
            Err(error) if first.is_err() => eprintln!("bearing: {error:#}"),
            Err(error) => first = Err(error),
            Ok(()) => {}
        }
    }
    first
}
