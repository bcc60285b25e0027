//! Open directories: listings, plain and with attributes.
//!
//! Invariants: every entry that existed throughout a listing is in it; one that is removed meanwhile may be
//! in it or not. Permission is that of whoever opened the directory. A listing with attributes gives leased
//! ones, so every entry is looked up, many at a time.
//!
//! A directory that is open and was removed, here or elsewhere, has no links, no entries and no names, as on
//! Linux's own filesystems.

use crate::attributes::kind;
use crate::bridge::Bridge;
use crate::listing::{AFTER_PARENT, AFTER_SELF, LOOKED_UP_COUNT, Next, Stream};
use bearing_mount::{Answer, Found, Handle, Listed, Operation, Remaining, into_found};
use bearing_types::{Attributes, Code, Cookie, Credentials, FileType, Name, NodeId, Outcome};
use fuser::INodeNo;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Entries of one plain reply, at most: more than a kernel with 4 KiB for them takes, and about what one with
/// 32 KiB takes.
const PLAIN_COUNT: usize = 512;
/// The inode number of `..` in a listing. The kernel and programs do not use it, and finding it out would be
/// a request for each listing; libfuse gives the same number.
const UNKNOWN: INodeNo = INodeNo(0xffff_ffff);

/// One entry of a plain listing, or a dot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlainEntry {
    /// Its inode number.
    pub number: INodeNo,
    /// Where to go on after it.
    pub offset: u64,
    /// Its kind.
    pub kind: fuser::FileType,
    /// Its name; none for a dot.
    name: Option<Name>,
}

impl PlainEntry {
    /// Its name.
    pub fn name(&self) -> &OsStr {
        match (&self.name, self.offset) {
            (Some(name), _) => os(name),
            (None, AFTER_SELF) => OsStr::new("."),
            (None, _) => OsStr::new(".."),
        }
    }
}

/// One entry of a listing with attributes. Not yet counted as told.
#[derive(Clone, Debug)]
pub(crate) struct FullEntry {
    /// The node.
    pub found: Found,
    /// Where to go on after it.
    pub offset: u64,
    name: Name,
}

impl FullEntry {
    /// Its name.
    pub fn name(&self) -> &OsStr {
        os(&self.name)
    }
}

/// What a reply with attributes may hold: dots, of which the kernel takes no attributes, then entries.
#[derive(Clone, Debug)]
pub(crate) struct FullPart {
    /// The dots, if they are next.
    pub dots: Vec<PlainEntry>,
    /// The entries after them.
    pub entries: Vec<FullEntry>,
}

/// The open directories of a mount.
#[derive(Debug, Default)]
pub(crate) struct Directories {
    open: Mutex<HashMap<u64, Arc<OpenDirectory>>>,
    next: AtomicU64,
}

/// An open directory.
#[derive(Debug)]
struct OpenDirectory {
    stream: Mutex<Stream>,
    /// As it was when it was opened.
    found: Found,
}

impl Directories {
    fn get(&self, handle: u64) -> Outcome<Arc<OpenDirectory>> {
        self.lock().get(&handle).cloned().ok_or(Code::Stale)
    }

    /// A directory as it was when it was opened, if it is open.
    fn opened(&self, node: NodeId) -> Option<Found> {
        self.lock().values().map(|open| open.found).find(|found| found.node.node == node)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<OpenDirectory>>> {
        self.open.lock().expect("no thread panics while it holds the open directories")
    }
}

impl OpenDirectory {
    fn stream(&self) -> MutexGuard<'_, Stream> {
        self.stream.lock().expect("no thread panics while it reads a directory")
    }
}

fn os(name: &Name) -> &OsStr {
    OsStr::from_bytes(name.as_bytes())
}

impl Bridge {
    /// Opens a directory. The kernel has checked permission by its attributes; the servers check at the first
    /// entries.
    pub fn open_directory(&self, number: INodeNo, who: Credentials) -> Outcome<u64> {
        let found = self.attributes(number)?;
        let open = OpenDirectory { stream: Mutex::new(Stream::new(found.node, who)), found };
        let handle = self.directories.next.fetch_add(1, Ordering::Relaxed);
        self.directories.lock().insert(handle, Arc::new(open));
        Ok(handle)
    }

    /// Closes a directory.
    pub fn release_directory(&self, handle: u64) {
        self.directories.lock().remove(&handle);
    }

    /// What is left of a directory that is open and was removed, if its home says so: its attributes without
    /// a link.
    pub fn removed(&self, node: Handle) -> Option<Found> {
        let opened = self.directories.opened(node.node)?;
        let asked = Operation::Attributes { node, file_type: FileType::Directory };
        matches!(self.caller.found(asked), Err(Code::Stale)).then(|| {
            let nothing = Remaining(Duration::ZERO);
            let attributes = Attributes { links: 0, size: 0, ..opened.attributes };
            Found { node, attributes, name_remaining: nothing, attributes_remaining: nothing }
        })
    }

    /// What comes of an operation on names in a directory: there are none in one that was removed.
    pub fn named_in<T>(&self, directory: Handle, outcome: Outcome<T>) -> Outcome<T> {
        match outcome {
            Err(Code::Stale) if self.removed(directory).is_some() => Err(Code::NotFound),
            other => other,
        }
    }

    /// The entries from an offset on, as many as a reply may hold; none only at the end.
    pub fn list(&self, handle: u64, offset: u64) -> Outcome<Vec<PlainEntry>> {
        let open = self.directories.get(handle)?;
        let mut stream = open.stream();
        let (mut part, after) = self.dots(&mut stream, Next::of(offset));
        let entries = match stream.after(&*self.caller, after, PLAIN_COUNT, false) {
            Err(Code::Stale) if self.removed(stream.directory()).is_some() => return Ok(Vec::new()),
            entries => entries?,
        };
        part.extend(entries.into_iter().map(|entry| PlainEntry {
            number: self.inodes.number(entry.node.node),
            offset: entry.cookie.to_bits(),
            kind: kind(entry.file_type),
            name: Some(entry.name),
        }));
        Ok(part)
    }

    /// The same with attributes. The answer is empty only at the end, although entries that were removed
    /// meanwhile are left out.
    pub fn list_full(&self, handle: u64, offset: u64) -> Outcome<FullPart> {
        let open = self.directories.get(handle)?;
        let mut stream = open.stream();
        let (dots, mut after) = self.dots(&mut stream, Next::of(offset));
        loop {
            let listed = match stream.after(&*self.caller, after, LOOKED_UP_COUNT, true) {
                Err(Code::Stale) if self.removed(stream.directory()).is_some() => {
                    return Ok(FullPart { dots: Vec::new(), entries: Vec::new() });
                }
                listed => listed?,
            };
            let Some(last) = listed.last() else { return Ok(FullPart { dots, entries: Vec::new() }) };
            after = last.cookie;
            let found = self.look_up_all(&stream, &listed);
            let entries = present(listed, found)?;
            if !entries.is_empty() {
                return Ok(FullPart { dots, entries });
            }
        }
    }

    /// The dots that are next, and the entry after which to go on.
    fn dots(&self, stream: &mut Stream, next: Next) -> (Vec<PlainEntry>, Cookie) {
        let number = self.inodes.number(stream.directory().node);
        let dot =
            |number, offset| PlainEntry { number, offset, kind: fuser::FileType::Directory, name: None };
        let (itself, parent) = (dot(number, AFTER_SELF), dot(UNKNOWN, AFTER_PARENT));
        match next {
            Next::Itself => {
                stream.rewind();
                (vec![itself, parent], Cookie::START)
            }
            Next::Parent => (vec![parent], Cookie::START),
            Next::After(after) => (Vec::new(), after),
        }
    }

    /// Looks entries up at the same time. Whoever may list a directory but not search it gets attributes
    /// without a lease on the name.
    fn look_up_all(&self, stream: &Stream, entries: &[Listed]) -> Vec<Outcome<Found>> {
        let lookup = |entry: &Listed| Operation::Lookup {
            directory: stream.directory(),
            name: entry.name.clone(),
            who: stream.who().clone(),
        };
        let answers = self.caller.call_all(entries.iter().map(lookup).collect());
        if answers.iter().all(|answer| *answer != Err(Code::Access)) {
            return answers.into_iter().map(|answer| answer.map(into_found)).collect();
        }
        let attributes =
            |entry: &Listed| Operation::Attributes { node: entry.node, file_type: entry.file_type };
        let answers = self.caller.call_all(entries.iter().map(attributes).collect());
        let unnamed =
            |answer: Answer| Found { name_remaining: Remaining(Duration::ZERO), ..into_found(answer) };
        answers.into_iter().map(|answer| answer.map(unnamed)).collect()
    }
}

/// The entries that are still there, up to the first that cannot be told; an error if that is the very first.
fn present(listed: Vec<Listed>, found: Vec<Outcome<Found>>) -> Outcome<Vec<FullEntry>> {
    let mut entries = Vec::with_capacity(listed.len());
    for (entry, found) in listed.into_iter().zip(found) {
        match found {
            Ok(found) => {
                entries.push(FullEntry { found, offset: entry.cookie.to_bits(), name: entry.name });
            }
            // Removed since it was listed.
            Err(Code::NotFound | Code::Stale) => {}
            Err(code) if entries.is_empty() => return Err(code),
            Err(_) => break,
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeCaller, handle};
    use proptest::prelude::*;

    fn bridge(caller: FakeCaller) -> (Arc<FakeCaller>, Bridge) {
        let caller = Arc::new(caller);
        (caller.clone(), Bridge::new(caller, handle(1)))
    }

    fn open(bridge: &Bridge) -> u64 {
        bridge.open_directory(INodeNo::ROOT, Credentials::ROOT).unwrap()
    }

    fn name(entry: &PlainEntry) -> String {
        entry.name().to_string_lossy().into_owned()
    }

    /// Lists like a kernel whose replies hold so many entries.
    fn read_all(bridge: &Bridge, room: usize) -> Vec<PlainEntry> {
        let open = open(bridge);
        let mut all: Vec<PlainEntry> = Vec::new();
        loop {
            let offset = all.last().map_or(0, |entry| entry.offset);
            let part = bridge.list(open, offset).unwrap();
            if part.is_empty() {
                return all;
            }
            all.extend(part.into_iter().take(room));
        }
    }

    proptest! {
        #[test]
        fn a_listing_has_the_dots_first_and_every_entry_once(count in 0usize..1300, room in 1usize..200) {
            let (caller, bridge) = bridge(FakeCaller::with_entries(count));
            let names: Vec<String> = read_all(&bridge, room).iter().map(name).collect();
            let entries = caller.entries();
            let expected = [".".to_owned(), "..".to_owned()].into_iter();
            let expected: Vec<String> =
                expected.chain(entries.iter().map(|entry| entry.name.to_string())).collect();
            prop_assert_eq!(names, expected);
        }
    }

    #[test]
    fn a_listing_goes_on_at_any_offset_in_another_open_directory() {
        let (_, bridge) = bridge(FakeCaller::with_entries(10));
        let all = read_all(&bridge, 100);
        for (at, entry) in all.iter().enumerate() {
            assert_eq!(bridge.list(open(&bridge), entry.offset).unwrap(), all[at + 1..]);
        }
    }

    #[test]
    fn an_entry_removed_since_it_was_listed_is_left_out_of_a_full_listing() {
        let (caller, bridge) = bridge(FakeCaller::with_entries(5));
        caller.lose(2, Code::NotFound);
        let part = bridge.list_full(open(&bridge), 0).unwrap();
        assert_eq!((part.dots.len(), part.entries.len()), (2, 4));
        assert!(bridge.inodes.get(INodeNo(10)).is_none(), "the kernel was not told yet");
    }

    #[test]
    fn a_full_listing_of_removed_entries_goes_on_to_those_that_are_left() {
        let (caller, bridge) = bridge(FakeCaller::with_entries(LOOKED_UP_COUNT + 3));
        (0..LOOKED_UP_COUNT).for_each(|at| caller.lose(at, Code::NotFound));
        let part = bridge.list_full(open(&bridge), AFTER_PARENT).unwrap();
        assert_eq!(part.entries.len(), 3);
    }

    #[test]
    fn an_error_is_never_an_empty_listing() {
        let (caller, bridge) = bridge(FakeCaller::with_entries(5));
        caller.lose(0, Code::NotFound);
        caller.lose(1, Code::Unreachable);
        let open = open(&bridge);
        assert_eq!(bridge.list_full(open, AFTER_PARENT).unwrap_err(), Code::Unreachable);
        caller.lose(1, Code::NotFound);
        caller.lose(3, Code::Unreachable);
        let part = bridge.list_full(open, AFTER_PARENT).unwrap();
        assert_eq!(part.entries.len(), 1, "up to the error");
        let after = part.entries[0].offset;
        assert_eq!(bridge.list_full(open, after).unwrap_err(), Code::Unreachable);
    }

    #[test]
    fn a_directory_that_may_be_listed_but_not_searched_is_listed() {
        let (caller, bridge) = bridge(FakeCaller::with_entries(2));
        caller.lose(0, Code::Access);
        caller.lose(1, Code::Access);
        let part = bridge.list_full(open(&bridge), AFTER_PARENT).unwrap();
        let remaining: Vec<_> = part.entries.iter().map(|entry| entry.found.name_remaining).collect();
        assert_eq!(remaining, [Remaining(Duration::ZERO); 2]);
    }

    #[test]
    fn a_directory_that_is_open_and_removed_has_no_links_no_entries_and_no_names() {
        let (caller, bridge) = bridge(FakeCaller::with_entries(2));
        let open = open(&bridge);
        caller.fail_all(Code::Stale);
        let removed = bridge.attributes(INodeNo::ROOT).unwrap().attributes;
        assert_eq!(
            (removed.links, removed.mode),
            (0, crate::fake::found(1, FileType::Directory).attributes.mode)
        );
        assert_eq!(bridge.list(open, 0), Ok(Vec::new()));
        let full = bridge.list_full(open, 0).unwrap();
        assert!(full.dots.is_empty() && full.entries.is_empty());
        let name = OsStr::new("a");
        let who = Credentials::ROOT;
        assert_eq!(bridge.lookup(INodeNo::ROOT, name, who.clone()).unwrap_err(), Code::NotFound);
        assert_eq!(bridge.unlink(INodeNo::ROOT, name, who.clone()), Err(Code::NotFound));
        bridge.release_directory(open);
        assert_eq!(bridge.attributes(INodeNo::ROOT), Err(Code::Stale), "paths to it are walked again");
        assert_eq!(bridge.open_directory(INodeNo::ROOT, who), Err(Code::Stale));
    }

    #[test]
    fn a_released_directory_is_gone() {
        let (_, bridge) = bridge(FakeCaller::with_entries(0));
        let open = open(&bridge);
        bridge.release_directory(open);
        assert_eq!(bridge.list(open, 0), Err(Code::Stale));
    }
}
