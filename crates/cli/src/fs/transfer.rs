//! What moves bytes: put, get, cat, cp; of trees too.

use super::paths::{absolute, into, joined, masked, need_directory};
use super::progress::Progress;
use super::together::{each_together, walk_together};
use super::walk::Event;
use crate::failure::Usage;
use crate::names::{lossy, shown};
use anyhow::{Context, Result, bail};
use bearing_mount::session::{File, LastLink, OpenMode, PathError, Reason, Session};
use bearing_mount::{AttributeChange, SeekTarget, TimeChange};
use bearing_types::{Attributes, Code, FileType, Mode, Wall};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes copied at a time.
const PART_BYTES: usize = 1 << 20;

/// Whether directories are copied with all that is in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// A directory is refused.
    One,
    /// All below it too.
    Tree,
}

/// What was copied.
#[derive(Default)]
struct Copied {
    entries: AtomicU64,
    bytes: AtomicU64,
}

impl Copied {
    /// One more, of so many bytes.
    fn add(&self, bytes: u64) {
        self.entries.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn tell(&self, target: &OsStr, as_json: bool) {
        if as_json {
            let (entries, bytes) = (self.entries.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
            let path = lossy(target.as_bytes());
            println!("{}", json!({ "path": path, "entries": entries, "bytes": bytes }));
        }
    }
}

/// `put`.
pub fn put(session: &Session, source: &Path, target: &OsStr, depth: Depth, as_json: bool) -> Result<()> {
    let copied = Copied::default();
    if source == Path::new("-") {
        let progress = Progress::bytes(&shown(target.as_bytes()), None, as_json);
        put_file(session, &mut io::stdin(), absolute(target)?, masked(0o666), &progress, &copied)?;
    } else {
        let progress = Progress::bytes(&shown(target.as_bytes()), Some(bytes_below(source)), as_json);
        let target = into(session, absolute(target)?, source.file_name().map(OsStr::as_bytes))?;
        put_tree(session, source, &target, depth, &progress, &copied)?;
    }
    session.sync()?;
    copied.tell(target, as_json);
    Ok(())
}

/// The bytes of all files of a tree, as far as they can be seen.
fn bytes_below(source: &Path) -> u64 {
    let entries = walkdir::WalkDir::new(source).follow_root_links(true).into_iter().flatten();
    // As when they are stored: a link that is named is followed, those below are not.
    let metadata = |entry: walkdir::DirEntry| match entry.depth() {
        0 => fs::metadata(entry.path()).ok(),
        _ => entry.metadata().ok(),
    };
    entries.filter_map(metadata).filter(fs::Metadata::is_file).map(|metadata| metadata.len()).sum()
}

fn put_tree(
    session: &Session,
    source: &Path,
    target: &[u8],
    depth: Depth,
    progress: &Progress,
    copied: &Copied,
) -> Result<()> {
    // A link that is named is followed, links in a tree are copied.
    let entries = walkdir::WalkDir::new(source).follow_root_links(true).into_iter();
    let made = entries.map(|entry| {
        let entry = entry.with_context(|| format!("walk {}", source.display()))?;
        let below = entry.path().strip_prefix(source).unwrap_or(entry.path());
        let target = if below.as_os_str().is_empty() {
            target.to_vec()
        } else {
            joined(target, below.as_os_str().as_bytes())
        };
        let metadata = fs::metadata(entry.path()).or_else(|_| fs::symlink_metadata(entry.path()));
        let metadata = metadata.with_context(|| format!("look at {}", entry.path().display()))?;
        progress.say(&shown(&target));
        if entry.file_type().is_symlink() && entry.depth() > 0 {
            let link = fs::read_link(entry.path())?;
            session.make_link(&target, link.as_os_str().as_bytes())?;
        } else if metadata.is_dir() {
            if depth == Depth::One {
                bail!(Usage(format!("{} is a directory; add -r", source.display())));
            }
            make_if_missing(session, &target, masked(metadata.mode()))?;
        } else if metadata.is_file() {
            return Ok(Some((entry.into_path(), target, masked(metadata.mode()))));
        } else {
            eprintln!("bearing: {} is left out: no file, directory or link", entry.path().display());
            return Ok(None);
        }
        copied.add(0);
        Ok(None)
    });
    each_together(made.filter_map(Result::transpose), |(path, target, mode)| {
        let mut input = fs::File::open(&path).with_context(|| format!("open {}", path.display()))?;
        put_file(session, &mut input, &target, mode, progress, copied)
    })
}

fn put_file(
    session: &Session,
    input: &mut dyn Read,
    target: &[u8],
    mode: Mode,
    progress: &Progress,
    copied: &Copied,
) -> Result<()> {
    let file = session.open(target, OpenMode::Replace(mode))?;
    let mut buffer = vec![0; PART_BYTES];
    let mut offset = 0;
    loop {
        let length = input.read(&mut buffer).with_context(|| format!("store {}", shown(target)))?;
        if length == 0 {
            break;
        }
        file.write_at(offset, &buffer[..length])?;
        offset += length as u64;
        progress.add(length as u64);
    }
    file.close()?;
    copied.add(offset);
    Ok(())
}

fn make_if_missing(session: &Session, path: &[u8], mode: Mode) -> Result<()> {
    match session.make_directory(path, mode) {
        Err(PathError { reason: Reason::Refused(Code::Exists), .. })
            if session.find(path, LastLink::Follow)?.attributes.is_directory() =>
        {
            Ok(())
        }
        other => Ok(other.map(drop)?),
    }
}

/// `get`.
pub fn get(session: &Session, source: &OsStr, target: &Path, depth: Depth, as_json: bool) -> Result<()> {
    let start = absolute(source)?;
    let found = session.find(start, LastLink::Follow)?;
    let copied = Copied::default();
    let to = local_target(start, target);
    if found.attributes.is_directory() {
        if depth == Depth::One {
            bail!(Usage(format!("{} is a directory; add -r", shown(start))));
        }
        get_tree(session, start, &to, &Progress::bytes(&shown(source.as_bytes()), None, as_json), &copied)?;
    } else {
        let progress = Progress::bytes(&shown(source.as_bytes()), Some(found.attributes.size), as_json);
        get_file(session, start, &to, found.attributes.mode, &progress, &copied)?;
    }
    copied.tell(to.as_os_str(), as_json);
    Ok(())
}

/// Into a directory that is there, under the name that the source has.
fn local_target(source: &[u8], target: &Path) -> PathBuf {
    let name = source.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty());
    match name {
        Some(name) if target.is_dir() => target.join(OsStr::from_bytes(name)),
        _ => target.to_owned(),
    }
}

fn get_tree(
    session: &Session,
    source: &[u8],
    target: &Path,
    progress: &Progress,
    copied: &Copied,
) -> Result<()> {
    let start = source.len() - source.iter().rev().take_while(|byte| **byte == b'/').count();
    walk_together(session, source, |event| {
        let Event::Enter(entry) = event else { return Ok(()) };
        let below = entry.path[start..].strip_prefix(b"/").unwrap_or(&entry.path[start..]);
        let to = if below.is_empty() { target.to_owned() } else { target.join(OsStr::from_bytes(below)) };
        progress.say(&shown(&entry.path));
        match entry.file_type {
            FileType::Directory => match fs::create_dir(&to) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && to.is_dir() => {}
                other => other.with_context(|| format!("make {}", to.display()))?,
            },
            FileType::Symlink => {
                let link = session.read_link(&entry.path)?;
                std::os::unix::fs::symlink(OsStr::from_bytes(&link), &to)
                    .with_context(|| format!("make the link {}", to.display()))?;
            }
            FileType::Regular => {
                let mode = entry.attributes(session)?.mode;
                return get_file(session, &entry.path, &to, mode, progress, copied);
            }
            _ => {
                eprintln!("bearing: {} is left out: no file, directory or link", shown(&entry.path));
                return Ok(());
            }
        }
        copied.add(0);
        Ok(())
    })
}

fn get_file(
    session: &Session,
    source: &[u8],
    target: &Path,
    mode: Mode,
    progress: &Progress,
    copied: &Copied,
) -> Result<()> {
    let file = session.open(source, OpenMode::Read)?;
    let mut output = fs::File::create(target).with_context(|| format!("create {}", target.display()))?;
    let Stored { size, .. } = copy_stored(&file, |offset, part| {
        output.seek(SeekFrom::Start(offset))?;
        output.write_all(part)?;
        progress.add(part.len() as u64);
        Ok(())
    })
    .with_context(|| format!("fetch {}", shown(source)))?;
    output.set_len(size).with_context(|| format!("write {}", target.display()))?;
    output.set_permissions(fs::Permissions::from_mode(masked(mode.bits()).bits()))?;
    file.close()?;
    copied.add(size);
    Ok(())
}

/// What was handed on of a file.
struct Stored {
    /// Its size.
    size: u64,
    /// Where the last stored bytes end.
    end: u64,
}

/// Hands on what is stored of a file, by offset; holes are left out.
fn copy_stored(file: &File, mut take: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<Stored> {
    let mut end = 0;
    while let Some(start) = file.seek(end, SeekTarget::Data)? {
        end = file.seek(start, SeekTarget::Hole)?.unwrap_or(start);
        let mut offset = start;
        while offset < end {
            let part = file.read_at(offset, (end - offset).min(PART_BYTES as u64) as u32)?;
            if part.is_empty() {
                // It was cut meanwhile.
                return Ok(Stored { size: offset, end: offset });
            }
            take(offset, &part)?;
            offset += part.len() as u64;
        }
    }
    Ok(Stored { size: file.found().attributes.size.max(end), end })
}

/// `cat`.
pub fn cat(session: &Session, paths: &[OsString]) -> Result<()> {
    let mut output = io::stdout().lock();
    for path in paths {
        let file = session.open(absolute(path)?, OpenMode::Read)?;
        let mut offset = 0;
        loop {
            let part = file
                .read_at(offset, PART_BYTES as u32)
                .with_context(|| format!("print {}", shown(path.as_bytes())))?;
            if part.is_empty() {
                break;
            }
            output.write_all(&part)?;
            offset += part.len() as u64;
        }
        file.close()?;
    }
    Ok(output.flush()?)
}

/// How much of a node a copy keeps besides its content and permission bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    Content,
    /// Owner, group and times too.
    All,
}

/// `cp`.
pub fn copy(
    session: &Session,
    sources: &[OsString],
    target: &OsStr,
    (depth, keep): (Depth, Keep),
    as_json: bool,
) -> Result<()> {
    let progress = Progress::bytes(&shown(target.as_bytes()), None, as_json);
    let copied = Copied::default();
    need_directory(session, sources.len(), absolute(target)?)?;
    for source in sources {
        let from = absolute(source)?;
        let name = from.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty());
        let to = into(session, absolute(target)?, name)?;
        copy_tree(session, from, &to, (depth, keep), &progress, &copied)?;
    }
    session.sync()?;
    copied.tell(target, as_json);
    Ok(())
}

fn copy_tree(
    session: &Session,
    source: &[u8],
    target: &[u8],
    (depth, keep): (Depth, Keep),
    progress: &Progress,
    copied: &Copied,
) -> Result<()> {
    let start = source.len() - source.iter().rev().take_while(|byte| **byte == b'/').count();
    let inside = [&source[..start], b"/"].concat();
    if target == &source[..start] || target.starts_with(&inside) {
        bail!(Usage(format!("{} cannot be copied into itself", shown(source))));
    }
    walk_together(session, source, |event| {
        let (entry, is_left) = match event {
            Event::Enter(entry) => (entry, false),
            Event::Leave(entry) => (entry, true),
        };
        let to = [target, &entry.path[start..]].concat();
        let attributes = entry.attributes(session)?;
        progress.say(&shown(&entry.path));
        if is_left {
            // What was put in changed its times.
            return keep_attributes(session, &to, &attributes, keep);
        }
        match entry.file_type {
            FileType::Directory if depth == Depth::One => {
                bail!(Usage(format!("{} is a directory; add -r", shown(source))))
            }
            FileType::Directory => make_if_missing(session, &to, masked(attributes.mode.bits()))?,
            FileType::Symlink => drop(session.make_link(&to, &session.read_link(&entry.path)?)?),
            FileType::Regular => {
                copied.add(copy_file(session, &entry.path, &to, attributes.mode, progress)?);
                return keep_attributes(session, &to, &attributes, keep);
            }
            _ => {
                eprintln!("bearing: {} is left out: no file, directory or link", shown(&entry.path));
                return Ok(());
            }
        }
        copied.add(0);
        if entry.file_type == FileType::Directory {
            return Ok(());
        }
        keep_attributes(session, &to, &attributes, keep)
    })
}

/// Gives how many bytes there are.
fn copy_file(
    session: &Session,
    source: &[u8],
    target: &[u8],
    mode: Mode,
    progress: &Progress,
) -> Result<u64> {
    let from = session.open(source, OpenMode::Read)?;
    let mode = masked(mode.bits());
    // In a new tree nothing is there yet, and does not have to be looked for first.
    let file = match session.open(target, OpenMode::CreateNew(mode)) {
        Err(PathError { reason: Reason::Refused(Code::Exists), .. }) => {
            session.open(target, OpenMode::Replace(mode))?
        }
        other => other?,
    };
    let Stored { size, end } = copy_stored(&from, |offset, part| {
        progress.add(part.len() as u64);
        Ok(file.write_at(offset, part)?)
    })?;
    // What ends in a hole is not longer by what was written.
    if size > end {
        file.make_longer(size)?;
    }
    file.close()?;
    from.close()?;
    Ok(size)
}

fn keep_attributes(session: &Session, path: &[u8], attributes: &Attributes, keep: Keep) -> Result<()> {
    if keep == Keep::Content {
        return Ok(());
    }
    let is_link = attributes.file_type == FileType::Symlink;
    let to = |time: Wall| Some(TimeChange::To(time));
    let owner = AttributeChange {
        uid: Some(attributes.uid),
        gid: Some(attributes.gid),
        accessed: to(attributes.accessed),
        modified: to(attributes.modified),
        ..AttributeChange::default()
    };
    let mode = (!is_link).then_some(attributes.mode);
    let takes_rights = attributes.mode.has(Mode::SETUID) || attributes.mode.has(Mode::SETGID);
    if !takes_rights {
        session.set_attributes(path, LastLink::Keep, AttributeChange { mode, ..owner })?;
        return Ok(());
    }
    // A change of owner takes set-user-id away: the mode comes after it.
    session.set_attributes(path, LastLink::Keep, owner)?;
    session.set_attributes(path, LastLink::Keep, AttributeChange { mode, ..AttributeChange::default() })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_tree_are_known_before_it_is_stored() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("a")).unwrap();
        fs::write(place.path().join("one"), [0; 10]).unwrap();
        fs::write(place.path().join("a/two"), [0; 32]).unwrap();
        std::os::unix::fs::symlink("one", place.path().join("link")).unwrap();
        assert_eq!(bytes_below(place.path()), 42);
        assert_eq!(bytes_below(&place.path().join("link")), 10, "what is named is followed");
        assert_eq!(bytes_below(&place.path().join("none")), 0);
    }
}
