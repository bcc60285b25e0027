//! From paths to handles: components one by one, symbolic links followed up to a bound.
//!
//! Paths are absolute in the filesystem, with or without a leading `/`. `.` is nothing, `..` is the parent of
//! where the path has come to (so behind a link, the parent of its target), and the parent of the root is the
//! root.

use crate::caller::Caller;
use crate::quoted::quoted;
use bearing_client::{Found, Operation};
use bearing_proto::client::Handle;
use bearing_types::{Code, Credentials, FileType, Name};
use std::collections::VecDeque;
use std::fmt;

/// Symbolic links followed on one path, at most (as in Linux).
pub const LINKS_MAX: usize = 40;
/// Components of one path, at most, with those of its links.
pub const COMPONENTS_MAX: usize = 4096;

/// Why something could not be done with a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{action} {}: {reason}", quoted(path))]
pub struct PathError {
    /// What was being done.
    pub action: &'static str,
    /// The path.
    pub path: Vec<u8>,
    /// What is wrong.
    pub reason: Reason,
}

/// See [`PathError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The filesystem refuses.
    Refused(Code),
    /// Too many symbolic links, probably a loop.
    Links,
    /// Too many components.
    Components,
    /// The path ends in no name (the root, `.` or `..`), and one is needed.
    NoName,
}

impl From<Code> for Reason {
    fn from(code: Code) -> Reason {
        Reason::Refused(code)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Refused(code) => code.fmt(f),
            Reason::Links => {
                write!(f, "more than {LINKS_MAX} symbolic links; probably they lead in a circle")
            }
            Reason::Components => write!(f, "more than {COMPONENTS_MAX} components"),
            Reason::NoName => write!(f, "the path must end in a name"),
        }
    }
}

/// What to do with a symbolic link at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastLink {
    /// Go on to its target.
    Follow,
    /// It is what is meant.
    Keep,
}

/// Walks paths for somebody.
pub(crate) struct Walker<'a> {
    pub caller: &'a dyn Caller,
    pub who: &'a Credentials,
    pub root: Handle,
}

struct Walk {
    here: Found,
    /// The directory that `here` was found in.
    rest: VecDeque<Vec<u8>>,
    links: usize,
    components: usize,
}

impl Walk {
    fn push_front(&mut self, path: &[u8]) -> Result<(), Reason> {
        for component in path.split(|byte| *byte == b'/').rev().filter(|component| !component.is_empty()) {
            self.components += 1;
            if self.components > COMPONENTS_MAX {
                return Err(Reason::Components);
            }
            self.rest.push_front(component.to_vec());
        }
        Ok(())
    }
}

impl Walker<'_> {
    /// The node that a path leads to.
    pub fn walk(&self, path: &[u8], last: LastLink) -> Result<Found, Reason> {
        let here = self.directory(self.root)?;
        let mut walk = Walk { here, rest: VecDeque::new(), links: 0, components: 0 };
        walk.push_front(path)?;
        // A path that ends in a slash means a directory, so a link before it is followed.
        let last = if path.ends_with(b"/") { LastLink::Follow } else { last };
        while let Some(component) = walk.rest.pop_front() {
            self.enter(&mut walk, &component, last)?;
        }
        if path.ends_with(b"/") && !walk.here.attributes.is_directory() {
            return Err(Code::NotDirectory.into());
        }
        Ok(walk.here)
    }

    fn enter(&self, walk: &mut Walk, component: &[u8], last: LastLink) -> Result<(), Reason> {
        if !walk.here.attributes.is_directory() {
            return Err(Code::NotDirectory.into());
        }
        let directory = walk.here.node;
        match component {
            b"." => return Ok(()),
            b".." => {
                walk.here = self.caller.found(Operation::Parent { directory })?;
                return Ok(());
            }
            _ => {}
        }
        let name = Name::new(component)?;
        let found = self.caller.found(Operation::Lookup { directory, name, who: self.who.clone() })?;
        let is_followed = !walk.rest.is_empty() || last == LastLink::Follow;
        if found.attributes.file_type == FileType::Symlink && is_followed {
            return self.follow(walk, &found);
        }
        walk.here = found;
        Ok(())
    }

    /// Goes on with the target of a link instead of the link, from the directory it is in or from the root.
    fn follow(&self, walk: &mut Walk, link: &Found) -> Result<(), Reason> {
        walk.links += 1;
        if walk.links > LINKS_MAX {
            return Err(Reason::Links);
        }
        let target = self.caller.bytes(Operation::ReadLink { node: link.node })?;
        if target.is_empty() {
            return Err(Code::NotFound.into());
        }
        if target.starts_with(b"/") {
            walk.here = self.directory(self.root)?;
        }
        walk.push_front(&target)
    }

    fn directory(&self, node: Handle) -> Result<Found, Reason> {
        Ok(self.caller.found(Operation::Attributes { node, file_type: FileType::Directory })?)
    }

    /// The directory in which the last name of a path stands, and that name.
    pub fn parent_and_name(&self, path: &[u8]) -> Result<(Handle, Name), Reason> {
        let trimmed = trim_slashes(path);
        let cut = trimmed.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let (parent, name) = trimmed.split_at(cut);
        if name.is_empty() || name == b"." || name == b".." {
            return Err(Reason::NoName);
        }
        let directory = self.walk(parent, LastLink::Follow)?;
        if !directory.attributes.is_directory() {
            return Err(Code::NotDirectory.into());
        }
        Ok((directory.node, Name::new(name)?))
    }
}

/// A path without the slashes at its end.
pub(crate) fn trim_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    &path[..end]
}
