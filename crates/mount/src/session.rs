//! A filesystem by paths, for programs that do not mount it: the command line, tests, benchmarks.
//!
//! Every call blocks until it is done. All calls are made for one user; permission is checked by the servers.
//! A session may be shared by threads. Paths are bytes, like names.

mod advice;

use crate::caller::Caller;
pub use crate::path::{LastLink, PathError, Reason};
use crate::path::{Walker, trim_slashes};
pub use advice::{NoAdvice, RankError, ReadAdvice};
use bearing_client::{Found, Listed, OpenFile, Operation, SeekTarget};
use bearing_proto::client::{
    AttributeChange, Detail, Handle, NewNode, QuotaView, RenameMode, StatfsView, XattrChange,
};
use bearing_types::{Amount, Code, Cookie, Credentials, FileType, Mode, Outcome, SetIds, XattrName};
use std::sync::Arc;
use std::vec;

/// Bytes read or written by one operation.
const PART_BYTES: usize = 1 << 20;
/// Entries asked for at a time.
const LIST_COUNT: u32 = 512;

/// A user's view of a filesystem.
#[derive(Clone)]
pub struct Session {
    caller: Arc<dyn Caller>,
    who: Credentials,
    root: Handle,
}

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// For reading; it must be there.
    Read,
    /// For reading and writing; it must be there.
    ReadWrite,
    /// For reading and writing, made if it is not there, with these permission bits.
    Create(Mode),
    /// The same, and cut to length 0 if it is there.
    Replace(Mode),
    /// For reading and writing; it must not be there.
    CreateNew(Mode),
}

/// Says in which call on which path something went wrong.
fn at<T>(action: &'static str, path: &[u8], result: Result<T, impl Into<Reason>>) -> Result<T, PathError> {
    result.map_err(|reason| PathError { action, path: path.to_vec(), reason: reason.into() })
}

impl Session {
    /// The view of one user.
    pub fn new(caller: Arc<dyn Caller>, who: Credentials) -> Result<Session, PathError> {
        let root = at("read the root of", b"/", caller.found(Operation::Root))?.node;
        Ok(Session { caller, who, root })
    }

    /// What runs the operations.
    pub fn caller(&self) -> &Arc<dyn Caller> {
        &self.caller
    }

    /// The quota that counts what is at a path, if one does.
    pub fn quota(&self, path: &[u8]) -> Result<Option<QuotaView>, PathError> {
        let node = self.find(path, LastLink::Follow)?.node;
        at("read the quota of", path, self.caller.quota(node))
    }

    /// Limits what a directory may hold with all below it.
    pub fn set_quota(&self, path: &[u8], limit: Amount) -> Result<(), PathError> {
        let (directory, who) = (self.find(path, LastLink::Follow)?.node, self.who.clone());
        at("set the quota of", path, self.caller.done(Operation::SetQuota { directory, who, limit }))
    }

    /// Whose view it is.
    pub fn who(&self) -> &Credentials {
        &self.who
    }

    /// The root directory.
    pub fn root(&self) -> Handle {
        self.root
    }

    fn walker(&self) -> Walker<'_> {
        Walker { caller: &*self.caller, who: &self.who, root: self.root }
    }

    /// The node at a path.
    pub fn find(&self, path: &[u8], last: LastLink) -> Result<Found, PathError> {
        at("look up", path, self.walker().walk(path, last))
    }

    /// The node at a path, with links followed and attributes as they are now: stat(2).
    pub fn stat(&self, path: &[u8]) -> Result<Found, PathError> {
        let found = at("stat", path, self.walker().walk(path, LastLink::Follow))?;
        let Found { node, attributes, .. } = found;
        at("stat", path, self.caller.found(Operation::Attributes { node, file_type: attributes.file_type }))
    }

    /// The entries of a directory, without `.` and `..`, in the order of their cookies. They are fetched as
    /// they are taken.
    pub fn list(&self, path: &[u8]) -> Result<Listing, PathError> {
        let directory = at("list", path, self.walker().walk(path, LastLink::Follow))?;
        if !directory.attributes.is_directory() {
            return at("list", path, Err(Code::NotDirectory));
        }
        Ok(Listing {
            session: self.clone(),
            path: path.to_vec(),
            directory: directory.node,
            after: Cookie::START,
            ahead: Vec::new().into_iter(),
            is_last: false,
        })
    }

    /// The value of an extended attribute.
    pub fn xattr(&self, path: &[u8], name: &[u8]) -> Result<Vec<u8>, PathError> {
        let ask = || {
            let Found { node, attributes, .. } = self.walker().walk(path, LastLink::Follow)?;
            let (who, name, file_type) = (self.who.clone(), XattrName::new(name)?, attributes.file_type);
            Ok::<_, Reason>(self.caller.bytes(Operation::Xattr { node, file_type, who, name })?)
        };
        at("read an extended attribute of", path, ask())
    }

    /// The names of all extended attributes, in the order in which they came to be.
    pub fn xattrs(&self, path: &[u8]) -> Result<Vec<Vec<u8>>, PathError> {
        let ask = || {
            let Found { node, attributes, .. } = self.walker().walk(path, LastLink::Follow)?;
            let (who, file_type) = (self.who.clone(), attributes.file_type);
            let list = self.caller.bytes(Operation::Xattrs { node, file_type, who })?;
            let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
            Ok::<_, Reason>(names.map(<[u8]>::to_vec).collect())
        };
        at("list the extended attributes of", path, ask())
    }

    /// Sets or removes an extended attribute.
    pub fn set_xattr(&self, path: &[u8], name: &[u8], change: XattrChange) -> Result<(), PathError> {
        let set = || {
            let Found { node, attributes, .. } = self.walker().walk(path, LastLink::Follow)?;
            let (who, name, file_type) = (self.who.clone(), XattrName::new(name)?, attributes.file_type);
            Ok::<_, Reason>(self.caller.done(Operation::SetXattr { node, file_type, who, name, change })?)
        };
        at("change an extended attribute of", path, set())
    }

    /// Makes a directory.
    pub fn make_directory(&self, path: &[u8], mode: Mode) -> Result<Found, PathError> {
        let make = || {
            let (directory, name) = self.walker().parent_and_name(path)?;
            let who = self.who.clone();
            Ok::<_, Reason>(self.caller.found(Operation::MakeDirectory { directory, name, who, mode })?)
        };
        at("make directory", path, make())
    }

    /// Makes a directory and those above it that are missing; a directory that is there already will do.
    pub fn make_directories(&self, path: &[u8], mode: Mode) -> Result<(), PathError> {
        let path = trim_slashes(path);
        let is_end = |place: &usize| *place > 0 && (*place == path.len() || path[*place] == b'/');
        for end in (0..=path.len()).filter(is_end) {
            match self.make_directory(&path[..end], mode) {
                Err(PathError { reason: Reason::Refused(Code::Exists) | Reason::NoName, .. }) => {}
                other => drop(other?),
            }
        }
        let found = at("make directory", path, self.walker().walk(path, LastLink::Follow))?;
        match found.attributes.is_directory() {
            true => Ok(()),
            false => at("make directory", path, Err(Code::NotDirectory)),
        }
    }

    /// Removes a name that is no directory.
    pub fn remove(&self, path: &[u8]) -> Result<(), PathError> {
        let remove = || {
            let (directory, name) = self.walker().parent_and_name(path)?;
            Ok::<_, Reason>(self.caller.done(Operation::Unlink { directory, name, who: self.who.clone() })?)
        };
        at("remove", path, remove())
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, path: &[u8]) -> Result<(), PathError> {
        let remove = || {
            let (directory, name) = self.walker().parent_and_name(path)?;
            let who = self.who.clone();
            Ok::<_, Reason>(self.caller.done(Operation::RemoveDirectory { directory, name, who })?)
        };
        at("remove directory", path, remove())
    }

    /// Moves a name.
    pub fn rename(&self, source: &[u8], target: &[u8], mode: RenameMode) -> Result<(), PathError> {
        let (from, source_name) = at("rename", source, self.walker().parent_and_name(source))?;
        let (to, target_name) = at("rename to", target, self.walker().parent_and_name(target))?;
        let who = self.who.clone();
        let rename = Operation::Rename { source: from, source_name, target: to, target_name, who, mode };
        at("rename", source, self.caller.done(rename))
    }

    /// Gives a node a further name.
    pub fn link(&self, path: &[u8], new_path: &[u8]) -> Result<Found, PathError> {
        let node = at("link", path, self.walker().walk(path, LastLink::Keep))?.node;
        let (directory, name) = at("link to", new_path, self.walker().parent_and_name(new_path))?;
        let link = Operation::Link { node, directory, name, who: self.who.clone() };
        at("link to", new_path, self.caller.found(link))
    }

    /// Makes a symbolic link.
    pub fn make_link(&self, path: &[u8], target: &[u8]) -> Result<Found, PathError> {
        let new = NewNode {
            file_type: FileType::Symlink,
            mode: Mode::new(0o777),
            device: 0,
            target: target.to_vec(),
        };
        let make = || {
            let (directory, name) = self.walker().parent_and_name(path)?;
            let who = self.who.clone();
            Ok::<_, Reason>(self.caller.found(Operation::Create {
                directory,
                name,
                who,
                new,
                open: false,
            })?)
        };
        at("make link", path, make())
    }

    /// The target of a symbolic link.
    pub fn read_link(&self, path: &[u8]) -> Result<Vec<u8>, PathError> {
        let found = at("read link", path, self.walker().walk(path, LastLink::Keep))?;
        match found.attributes.file_type {
            FileType::Symlink => {
                at("read link", path, self.caller.bytes(Operation::ReadLink { node: found.node }))
            }
            _ => at("read link", path, Err(Code::InvalidArgument)),
        }
    }

    /// Changes attributes.
    pub fn set_attributes(
        &self,
        path: &[u8],
        last: LastLink,
        change: AttributeChange,
    ) -> Result<Found, PathError> {
        let found = at("change attributes of", path, self.walker().walk(path, last))?;
        let change = Operation::SetAttributes {
            node: found.node,
            file_type: found.attributes.file_type,
            who: self.who.clone(),
            change,
            file: None,
        };
        at("change attributes of", path, self.caller.found(change))
    }

    /// Space and entries.
    pub fn statfs(&self) -> Result<StatfsView, PathError> {
        at("read the space of", b"/", self.caller.statfs())
    }

    /// Makes everything stable that was written through the same connection.
    pub fn sync(&self) -> Result<(), PathError> {
        at("sync", b"/", self.caller.done(Operation::SyncAll))
    }

    /// Opens a file.
    pub fn open(&self, path: &[u8], mode: OpenMode) -> Result<File, PathError> {
        let (file, found) = at("open", path, self.open_file(path, mode))?;
        let (caller, set_ids) = (self.caller.clone(), SetIds::by(&self.who));
        Ok(File { caller, file: Some(file), found, path: path.to_vec(), set_ids })
    }

    fn open_file(&self, path: &[u8], mode: OpenMode) -> Result<(OpenFile, Found), Reason> {
        let (permissions, truncate) = match mode {
            OpenMode::Read => return self.open_existing(path, false, false),
            OpenMode::ReadWrite => return self.open_existing(path, true, false),
            OpenMode::CreateNew(permissions) => return self.create(path, permissions),
            OpenMode::Create(permissions) => (permissions, false),
            OpenMode::Replace(permissions) => (permissions, true),
        };
        match self.open_existing(path, true, truncate) {
            Err(Reason::Refused(Code::NotFound)) => {}
            other => return other,
        }
        match self.create(path, permissions) {
            // Somebody was faster, or the name is a link to nowhere; then this says so.
            Err(Reason::Refused(Code::Exists)) => self.open_existing(path, true, truncate),
            other => other,
        }
    }

    fn open_existing(&self, path: &[u8], write: bool, truncate: bool) -> Result<(OpenFile, Found), Reason> {
        let found = self.walker().walk(path, LastLink::Follow)?;
        if found.attributes.is_directory() {
            return Err(Code::IsDirectory.into());
        }
        let who = self.who.clone();
        let node = found.node;
        Ok(self.caller.opened(Operation::Open { node, who, read: true, write, truncate, execute: false })?)
    }

    fn create(&self, path: &[u8], mode: Mode) -> Result<(OpenFile, Found), Reason> {
        let (directory, name) = self.walker().parent_and_name(path)?;
        let new = NewNode { file_type: FileType::Regular, mode, device: 0, target: Vec::new() };
        Ok(self.caller.opened(Operation::Create {
            directory,
            name,
            who: self.who.clone(),
            new,
            open: true,
        })?)
    }

    /// The whole content of a file.
    pub fn read_file(&self, path: &[u8]) -> Result<Vec<u8>, PathError> {
        let file = self.open(path, OpenMode::Read)?;
        let mut content = Vec::new();
        loop {
            let part = file.read_at(content.len() as u64, PART_BYTES as u32)?;
            if part.is_empty() {
                file.close()?;
                return Ok(content);
            }
            content.extend_from_slice(&part);
        }
    }

    /// Makes a file with this content, or gives it this content instead of its own. Visible to everybody when
    /// it returns, not yet stable.
    pub fn write_file(&self, path: &[u8], mode: Mode, content: &[u8]) -> Result<(), PathError> {
        let file = self.open(path, OpenMode::Replace(mode))?;
        file.write_at(0, content)?;
        file.close()
    }
}

/// The entries of a directory; see [`Session::list`]. After an error it ends.
pub struct Listing {
    session: Session,
    path: Vec<u8>,
    directory: Handle,
    after: Cookie,
    ahead: vec::IntoIter<Listed>,
    is_last: bool,
}

impl Listing {
    fn fetch(&mut self) -> Outcome<()> {
        let entries = self.session.caller.listed(Operation::List {
            directory: self.directory,
            who: self.session.who.clone(),
            after: self.after,
            count_max: LIST_COUNT,
            detail: Detail::Attributes,
        })?;
        self.is_last = entries.len() < LIST_COUNT as usize;
        self.after = entries.last().map_or(self.after, |entry| entry.cookie);
        self.ahead = entries.into_iter();
        Ok(())
    }
}

impl Iterator for Listing {
    type Item = Result<Listed, PathError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ahead.len() == 0 && !self.is_last {
            let fetched = self.fetch();
            if let Err(error) = at("list", &self.path, fetched) {
                self.is_last = true;
                return Some(Err(error));
            }
        }
        self.ahead.next().map(Ok)
    }
}

/// An open file. Close it to learn whether its bytes arrived: dropping it closes it too, but tells nobody.
pub struct File {
    caller: Arc<dyn Caller>,
    file: Option<OpenFile>,
    found: Found,
    path: Vec<u8>,
    set_ids: SetIds,
}

impl File {
    /// The node, as it was when it was opened.
    pub fn found(&self) -> &Found {
        &self.found
    }

    fn open(&self) -> OpenFile {
        self.file.expect("only close and drop take the file")
    }

    /// Reads bytes; fewer than asked only at the end of the file.
    pub fn read_at(&self, offset: u64, length: u32) -> Result<Vec<u8>, PathError> {
        at("read", &self.path, self.caller.bytes(Operation::Read { file: self.open(), offset, length }))
    }

    /// Writes all bytes.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), PathError> {
        let mut place = 0;
        while place < bytes.len() {
            let part = &bytes[place..bytes.len().min(place + PART_BYTES)];
            let written = self.write(Some(offset + place as u64), part)?;
            if written == 0 {
                return at("write", &self.path, Err(Code::Io));
            }
            place += written as usize;
        }
        Ok(())
    }

    /// Writes bytes at the end of the file, wherever that is by then, in one piece. Returns how many were
    /// written.
    pub fn append(&self, bytes: &[u8]) -> Result<u32, PathError> {
        self.write(None, bytes)
    }

    fn write(&self, offset: Option<u64>, bytes: &[u8]) -> Result<u32, PathError> {
        let write =
            Operation::Write { file: self.open(), offset, bytes: bytes.to_vec(), set_ids: self.set_ids };
        at("write", &self.path, self.caller.written(write))
    }

    /// Where stored bytes or a hole begin, at an offset or after it; `None`: not before the end.
    pub fn seek(&self, offset: u64, target: SeekTarget) -> Result<Option<u64>, PathError> {
        let seek = Operation::Seek { file: self.open(), offset, target };
        at("look for bytes in", &self.path, self.caller.place(seek))
    }

    /// Makes the file at least so long; what is added is a hole.
    pub fn make_longer(&self, size_min: u64) -> Result<(), PathError> {
        let (file, set_ids) = (self.open(), self.set_ids);
        let longer = Operation::MakeHole { file, start: 0, end: 0, size_min, set_ids };
        at("lengthen", &self.path, self.caller.done(longer))
    }

    /// Makes what was written visible to later opens.
    pub fn flush(&self) -> Result<(), PathError> {
        at("flush", &self.path, self.caller.done(Operation::Flush { file: self.open() }))
    }

    /// Makes what was written stable.
    pub fn sync(&self) -> Result<(), PathError> {
        at("sync", &self.path, self.caller.done(Operation::Sync { file: self.open() }))
    }

    /// Flushes and closes.
    pub fn close(mut self) -> Result<(), PathError> {
        let flushed = self.flush();
        let file = self.file.take().expect("a file is closed once");
        let closed = at("close", &self.path, self.caller.done(Operation::Close { file }));
        flushed.and(closed)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            // Nobody is left to be told; see the type.
            let _ = self.caller.done(Operation::Flush { file });
            let _ = self.caller.done(Operation::Close { file });
        }
    }
}

#[cfg(test)]
mod tests;
