//! Walking a tree without following symbolic links: depth first, a directory before what is in it and once
//! again after.
//!
//! Only one page of entries per level is held, unless names are wanted in order. Entries may be removed while
//! their directory is being walked.

use super::paths::joined;
use anyhow::Result;
use bearing_mount::session::{LastLink, Session};
use bearing_mount::{Found, Listed};
use bearing_types::{Attributes, FileType};
use std::iter::Peekable;

/// In which order the entries of a directory come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As the servers list them: any, and the same every time.
    AsListed,
    /// By name; all entries of a directory are held at the same time.
    ByName,
}

/// Something on the way.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its whole path.
    pub path: Vec<u8>,
    /// 0 for where the walk began.
    pub depth: usize,
    /// Its kind.
    pub file_type: FileType,
    /// Whether it is the last of its directory.
    pub is_last: bool,
    attributes: Option<Attributes>,
}

/// What a walk comes by.
pub enum Event<'a> {
    /// An entry; if it is a directory, what is in it follows.
    Enter(&'a Entry),
    /// A directory of which all was seen.
    Leave(&'a Entry),
}

impl Entry {
    /// The last component of the path.
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|byte| *byte == b'/').next().unwrap_or(&self.path)
    }

    /// What a listing of it names.
    pub fn child(&self, listed: &Listed) -> Entry {
        Entry {
            path: joined(&self.path, listed.name.as_bytes()),
            depth: self.depth + 1,
            file_type: listed.file_type,
            is_last: false,
            attributes: listed.attributes,
        }
    }

    /// Its attributes: those that came with the listing, or asked for now.
    pub fn attributes(&self, session: &Session) -> Result<Attributes> {
        match self.attributes {
            Some(attributes) => Ok(attributes),
            None => Ok(session.find(&self.path, LastLink::Keep)?.attributes),
        }
    }
}

pub type Listing = Box<dyn Iterator<Item = Result<Listed>>>;

struct Level {
    directory: Entry,
    entries: Peekable<Listing>,
}

/// Walks from a path on, at most so many levels below it.
pub fn walk(
    session: &Session,
    path: &[u8],
    order: Order,
    depth_max: Option<u32>,
    mut visit: impl FnMut(Event) -> Result<()>,
) -> Result<()> {
    let start = start_of(session, path)?;
    let depth_max = depth_max.map_or(usize::MAX, |depth| depth as usize);
    let mut levels: Vec<Level> = Vec::new();
    let mut next = Some(start);
    loop {
        if let Some(entry) = next.take() {
            visit(Event::Enter(&entry))?;
            if entry.file_type == FileType::Directory {
                let entries = listing(session, &entry, order, entry.depth < depth_max)?;
                levels.push(Level { directory: entry, entries: entries.peekable() });
            }
        }
        let Some(level) = levels.last_mut() else { return Ok(()) };
        match level.entries.next().transpose()? {
            Some(listed) => {
                let is_last = level.entries.peek().is_none();
                next = Some(Entry { is_last, ..level.directory.child(&listed) });
            }
            None => {
                visit(Event::Leave(&level.directory))?;
                levels.pop();
            }
        }
    }
}

/// Where a walk begins.
pub fn start_of(session: &Session, path: &[u8]) -> Result<Entry> {
    let Found { attributes, .. } = session.find(path, LastLink::Keep)?;
    let (path, file_type) = (trimmed(path).to_vec(), attributes.file_type);
    Ok(Entry { path, depth: 0, file_type, is_last: true, attributes: Some(attributes) })
}

/// The entries of a directory; none if they are not wanted.
pub fn listing(session: &Session, entry: &Entry, order: Order, is_wanted: bool) -> Result<Listing> {
    if !is_wanted {
        return Ok(Box::new(std::iter::empty()));
    }
    let path = if entry.path.is_empty() { b"/" } else { &entry.path[..] };
    let listed = session.list(path)?.map(|listed| listed.map_err(anyhow::Error::from));
    match order {
        Order::AsListed => Ok(Box::new(listed)),
        Order::ByName => {
            let mut all = listed.collect::<Result<Vec<_>>>()?;
            all.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(Box::new(all.into_iter().map(Ok)))
        }
    }
}

/// Without slashes at its end: the root is the empty path, to which a slash and a name are added.
fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    &path[..end]
}
