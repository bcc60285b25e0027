//! Open files: what the kernel does through a file handle.
//!
//! Invariants: the kernel's file handle is the number of the machine's open file. A file that was written to
//! since its last flush is flushed before it is closed, because pages of a shared mapping come after the last
//! close(2). An appended byte goes where the owner says, never where this kernel thinks the end is; so files
//! opened with O_APPEND bypass the kernel's pages.

use crate::bridge::{Bridge, Told, entry_name};
use crate::inodes::Pages;
use bearing_mount::{Found, NewNode, OpenFile, Operation, SeekTarget};
use bearing_types::{Code, Credentials, FileType, Gid, Mode, Outcome, SetIds};
use fuser::{FopenFlags, INodeNo, OpenAccMode, OpenFlags, WriteFlags};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// How often `create` looks up and opens a name that appears and vanishes at the same time, before it gives
/// up.
const CREATE_TRIES: u32 = 8;

/// The kernel's flag of a file that it opens to execute it (`__FMODE_EXEC`).
const OPENED_TO_EXECUTE: i32 = 0x20;

/// An open file.
#[derive(Debug)]
pub(crate) struct File {
    file: OpenFile,
    number: INodeNo,
    flags: OpenFlags,
    /// Writes done, and how many of them a flush or a sync that went well came after. A flush that finds
    /// another one under way must not take it for done.
    written: AtomicU64,
    settled: AtomicU64,
}

/// The open files of a mount.
#[derive(Debug, Default)]
pub(crate) struct Files {
    open: Mutex<HashMap<u64, Arc<File>>>,
}

/// What the kernel is told of a file that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    /// The file handle.
    pub file: u64,
    /// How the kernel treats its pages.
    pub flags: FopenFlags,
}

/// What a write shall do, from the kernel's flags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteWish {
    /// Where this kernel would put the bytes.
    pub offset: u64,
    /// Whether the bytes come from a mapping or the program.
    pub kind: WriteFlags,
    /// The flags of the open file as they are now (fcntl(2) may have changed them).
    pub flags: OpenFlags,
    /// The group of whoever writes.
    pub group: Gid,
}

pub(crate) fn writes(flags: OpenFlags) -> bool {
    flags.acc_mode() != OpenAccMode::O_RDONLY
}

fn has(flags: OpenFlags, bits: i32) -> bool {
    flags.0 & bits == bits
}

impl Files {
    /// The machine's file behind a handle, if it is open for writing.
    pub fn writable(&self, handle: u64) -> Option<OpenFile> {
        self.get(handle).ok().filter(|file| writes(file.flags)).map(|file| file.file)
    }

    fn get(&self, handle: u64) -> Outcome<Arc<File>> {
        self.lock().get(&handle).cloned().ok_or(Code::Stale)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<File>>> {
        self.open.lock().expect("no thread panics while it holds the open files")
    }
}

impl Bridge {
    /// Opens a file.
    pub fn open(&self, number: INodeNo, flags: OpenFlags, who: Credentials) -> Outcome<Opened> {
        let (file, found) = self.caller.opened(Operation::Open {
            node: self.handle(number)?,
            who,
            read: flags.acc_mode() != OpenAccMode::O_WRONLY,
            write: writes(flags),
            truncate: has(flags, libc::O_TRUNC),
            execute: has(flags, OPENED_TO_EXECUTE),
        })?;
        Ok(self.keep_open(file, number, flags, &found))
    }

    fn keep_open(&self, file: OpenFile, number: INodeNo, flags: OpenFlags, found: &Found) -> Opened {
        let mut answer = FopenFlags::empty();
        if self.inodes.opened(number, found.attributes.version) == Pages::Keep {
            answer |= FopenFlags::FOPEN_KEEP_CACHE;
        }
        if has(flags, libc::O_APPEND) || self.linearizable {
            answer |= FopenFlags::FOPEN_DIRECT_IO;
        }
        let open = File { file, number, flags, written: AtomicU64::new(0), settled: AtomicU64::new(0) };
        self.files.lock().insert(file.0, Arc::new(open));
        Opened { file: file.0, flags: answer }
    }

    /// Makes and opens a file, or opens what has the name unless O_EXCL forbids it.
    pub fn create_open(
        &self,
        parent: INodeNo,
        name: &OsStr,
        mode: Mode,
        flags: OpenFlags,
        who: Credentials,
    ) -> Outcome<(Told, Opened)> {
        let directory = self.handle(parent)?;
        let entry = entry_name(name)?;
        for _ in 0..CREATE_TRIES {
            let new = NewNode { file_type: FileType::Regular, mode, device: 0, target: Vec::new() };
            let create =
                Operation::Create { directory, name: entry.clone(), who: who.clone(), new, open: true };
            match self.named_in(directory, self.caller.opened(create)) {
                Err(Code::Exists) if !has(flags, libc::O_EXCL) => {}
                Err(code) => return Err(code),
                Ok((file, found)) => {
                    let told = self.tell(found);
                    return Ok((told, self.keep_open(file, told.number, flags, &found)));
                }
            }
            // Somebody else made it after this kernel had been told that it was not there.
            match self.open_existing(parent, name, flags, &who) {
                Err(Code::NotFound) => {}
                other => return other,
            }
        }
        Err(Code::Stale)
    }

    fn open_existing(
        &self,
        parent: INodeNo,
        name: &OsStr,
        flags: OpenFlags,
        who: &Credentials,
    ) -> Outcome<(Told, Opened)> {
        let told = self.lookup(parent, name, who.clone())?;
        let opened = match told.found.attributes.file_type {
            FileType::Regular => self.open(told.number, flags, who.clone()),
            // The kernel takes ESTALE as a wish to walk the path again, and then follows links and refuses
            // directories itself.
            _ => Err(Code::Stale),
        };
        opened.map(|opened| (told, opened)).inspect_err(|_| self.inodes.forget(told.number, 1))
    }

    /// Reads bytes.
    pub fn read(&self, handle: u64, offset: u64, length: u32) -> Outcome<Vec<u8>> {
        let file = self.files.get(handle)?;
        self.caller.bytes(Operation::Read { file: file.file, offset, length })
    }

    /// Writes bytes; with O_SYNC or O_DSYNC until they are stable.
    pub fn write(&self, handle: u64, wish: WriteWish, bytes: &[u8]) -> Outcome<u32> {
        let file = self.files.get(handle)?;
        // Pages of a mapping come through any writable file handle and know their place.
        let appends = has(wish.flags, libc::O_APPEND) && !wish.kind.contains(WriteFlags::FUSE_WRITE_CACHE);
        let offset = (!appends).then_some(wish.offset);
        // The kernel says who may set these bits.
        let clears = wish.kind.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let set_ids = if clears { SetIds::Clear(wish.group) } else { SetIds::Keep };
        let write = Operation::Write { file: file.file, offset, bytes: bytes.to_vec(), set_ids };
        let written = self.caller.written(write);
        file.written.fetch_add(1, Ordering::AcqRel);
        let count = written?;
        if has(wish.flags, libc::O_DSYNC) {
            self.sync(handle)?;
        }
        Ok(count)
    }

    /// What fallocate(2) needs. Nothing is reserved: a later write may still find the disks full.
    pub fn allocate(&self, handle: u64, offset: u64, length: u64, mode: i32, set_ids: SetIds) -> Outcome<()> {
        let file = self.files.get(handle)?.file;
        let end = offset.checked_add(length).ok_or(Code::TooLarge)?;
        let grows = mode & libc::FALLOC_FL_KEEP_SIZE == 0;
        let size_min = if grows { end } else { 0 };
        let operation = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => Operation::Allocate { file, start: offset, end, grows, set_ids },
            libc::FALLOC_FL_PUNCH_HOLE if !grows => {
                Operation::MakeHole { file, start: offset, end, size_min, set_ids }
            }
            // A hole reads as zeros.
            libc::FALLOC_FL_ZERO_RANGE => Operation::MakeHole { file, start: offset, end, size_min, set_ids },
            _ => return Err(Code::Unsupported),
        };
        self.caller.done(operation)
    }

    /// What copy_file_range(2) needs, from and to places in open files: how many bytes were copied, which may
    /// be fewer than asked for. They need no flush; with O_SYNC or O_DSYNC they are stable.
    pub fn copy(&self, source: (u64, u64), target: (u64, u64), length: u64, set_ids: SetIds) -> Outcome<u32> {
        let (from, to) = (self.files.get(source.0)?, self.files.get(target.0)?);
        let count = self.caller.written(Operation::Copy {
            source: from.file,
            source_offset: source.1,
            target: to.file,
            target_offset: target.1,
            length,
            set_ids,
        })?;
        if has(to.flags, libc::O_DSYNC) {
            self.sync(target.0)?;
        }
        Ok(count)
    }

    /// What lseek(2) with SEEK_DATA and SEEK_HOLE needs; `None`: there is no such place.
    pub fn seek(&self, handle: u64, offset: u64, whence: i32) -> Outcome<Option<u64>> {
        let file = self.files.get(handle)?;
        let target = match whence {
            libc::SEEK_DATA => SeekTarget::Data,
            libc::SEEK_HOLE => SeekTarget::Hole,
            _ => return Err(Code::InvalidArgument),
        };
        self.caller.place(Operation::Seek { file: file.file, offset, target })
    }

    /// What close(2) needs: later opens anywhere see what was written.
    pub fn flush(&self, handle: u64) -> Outcome<()> {
        let file = self.files.get(handle)?;
        if file.settled.load(Ordering::Acquire) == file.written.load(Ordering::Acquire) {
            return Ok(());
        }
        self.settle(&file, Operation::Flush { file: file.file })
    }

    /// What fsync(2) needs. A clean file is synced too: it may have been flushed without being stable.
    pub fn sync(&self, handle: u64) -> Outcome<()> {
        let file = self.files.get(handle)?;
        self.settle(&file, Operation::Sync { file: file.file })
    }

    /// Makes all names and attributes that this mount decided by itself stable.
    pub fn sync_names(&self) -> Outcome<()> {
        self.caller.done(Operation::SyncNames)
    }

    /// Makes all that was written through this mount stable.
    pub fn sync_all(&self) -> Outcome<()> {
        self.caller.done(Operation::SyncAll)
    }

    fn settle(&self, file: &File, operation: Operation) -> Outcome<()> {
        let written = file.written.load(Ordering::Acquire);
        // The kernel's pages show bytes that may be lost.
        self.caller.done(operation).inspect_err(|_| self.inodes.distrust(file.number))?;
        file.settled.fetch_max(written, Ordering::AcqRel);
        Ok(())
    }

    /// The last user of a file handle is gone.
    pub fn release(&self, handle: u64) -> Outcome<()> {
        let leaving = self.lockers.leave(handle);
        let flushed = self.flush(handle);
        let unlocked = self.unlock_released(handle);
        drop(leaving);
        let file = self.files.lock().remove(&handle).ok_or(Code::Stale)?;
        self.inodes.closed(file.number);
        let closed = self.caller.done(Operation::Close { file: file.file });
        flushed.and(closed).and(unlocked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeCaller, found, handle};
    use bearing_mount::Answer;

    const ROOT: Credentials = Credentials::ROOT;

    fn bridge(answers: Vec<Outcome<Answer>>) -> (Arc<FakeCaller>, Bridge) {
        let caller = Arc::new(FakeCaller::answering(answers));
        let bridge = Bridge::new(caller.clone(), handle(1));
        bridge.tell(found(5, FileType::Regular));
        (caller, bridge)
    }

    fn opened(file: u64) -> Outcome<Answer> {
        Ok(Answer::Opened(OpenFile(file), found(5, FileType::Regular)))
    }

    fn wish(offset: u64, kind: WriteFlags, flags: i32) -> WriteWish {
        WriteWish { offset, kind, flags: OpenFlags(flags), group: Gid(8) }
    }

    #[test]
    fn appended_bytes_go_to_the_end_that_the_owner_knows() {
        let (caller, bridge) = bridge(vec![opened(9), Ok(Answer::Written(2)), Ok(Answer::Written(2))]);
        let flags = libc::O_WRONLY | libc::O_APPEND;
        let open = bridge.open(INodeNo(5), OpenFlags(flags), ROOT).unwrap();
        assert!(open.flags.contains(FopenFlags::FOPEN_DIRECT_IO));
        bridge.write(open.file, wish(70, WriteFlags::empty(), flags), b"ab").unwrap();
        bridge.write(open.file, wish(70, WriteFlags::FUSE_WRITE_CACHE, flags), b"ab").unwrap();
        let offsets: Vec<_> = caller.asked()[1..]
            .iter()
            .map(|operation| match operation {
                Operation::Write { offset, .. } => *offset,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(offsets, [None, Some(70)], "pages of a mapping keep their place");
    }

    #[test]
    fn a_file_is_flushed_once_for_what_was_written_and_closed_clean() {
        let (caller, bridge) = bridge(vec![
            opened(9),
            Ok(Answer::Written(1)),
            Ok(Answer::Done),
            Ok(Answer::Written(1)),
            Ok(Answer::Done),
            Ok(Answer::Done),
        ]);
        let open = bridge.open(INodeNo(5), OpenFlags(libc::O_RDWR), ROOT).unwrap();
        let wish = wish(0, WriteFlags::empty(), libc::O_RDWR);
        bridge.write(open.file, wish, b"x").unwrap();
        bridge.flush(open.file).unwrap();
        bridge.flush(open.file).unwrap();
        bridge.write(open.file, wish, b"y").unwrap();
        bridge.release(open.file).unwrap();
        let asked = caller.asked();
        assert!(matches!(
            asked[1..],
            [
                Operation::Write { .. },
                Operation::Flush { .. },
                Operation::Write { .. },
                Operation::Flush { .. },
                Operation::Close { .. }
            ]
        ));
        assert_eq!(bridge.read(open.file, 0, 1), Err(Code::Stale), "the handle is gone");
    }

    #[test]
    fn a_failed_flush_is_tried_again_and_its_pages_are_not_kept() {
        let (_, bridge) = bridge(vec![
            opened(8),
            opened(9),
            Ok(Answer::Written(1)),
            Err(Code::Io),
            Ok(Answer::Done),
            opened(10),
        ]);
        bridge.open(INodeNo(5), OpenFlags(libc::O_RDONLY), ROOT).unwrap();
        let open = bridge.open(INodeNo(5), OpenFlags(libc::O_WRONLY), ROOT).unwrap();
        bridge.write(open.file, wish(0, WriteFlags::empty(), libc::O_WRONLY), b"x").unwrap();
        assert_eq!(bridge.flush(open.file), Err(Code::Io));
        bridge.flush(open.file).unwrap();
        let again = bridge.open(INodeNo(5), OpenFlags(libc::O_RDONLY), ROOT).unwrap();
        assert!(!again.flags.contains(FopenFlags::FOPEN_KEEP_CACHE));
    }

    #[test]
    fn a_synchronous_write_is_synced_before_it_is_answered() {
        let (caller, bridge) = bridge(vec![opened(9), Ok(Answer::Written(1)), Ok(Answer::Done)]);
        let flags = libc::O_WRONLY | libc::O_SYNC;
        let open = bridge.open(INodeNo(5), OpenFlags(flags), ROOT).unwrap();
        bridge.write(open.file, wish(0, WriteFlags::empty(), flags), b"x").unwrap();
        assert!(matches!(caller.asked()[..], [_, Operation::Write { .. }, Operation::Sync { .. }]));
    }

    #[test]
    fn a_copy_needs_no_flush_and_is_synced_for_a_target_that_is_written_synchronously() {
        let count = || Ok(Answer::Written(3));
        let (caller, bridge) =
            bridge(vec![opened(8), opened(9), opened(10), count(), count(), Ok(Answer::Done)]);
        let open = |flags| bridge.open(INodeNo(5), OpenFlags(flags), ROOT).unwrap().file;
        let (source, plain, synced) =
            (open(libc::O_RDONLY), open(libc::O_WRONLY), open(libc::O_WRONLY | libc::O_DSYNC));
        assert_eq!(bridge.copy((source, 10), (plain, 20), 1 << 40, SetIds::Keep), Ok(3));
        bridge.flush(plain).unwrap();
        assert_eq!(bridge.copy((source, 10), (synced, 20), 3, SetIds::Keep), Ok(3));
        let [.., copy, _, Operation::Sync { file: OpenFile(10) }] = &caller.asked()[..] else {
            panic!("not synced")
        };
        let (source, target) = (OpenFile(8), OpenFile(9));
        let expected = Operation::Copy {
            source,
            source_offset: 10,
            target,
            target_offset: 20,
            length: 1 << 40,
            set_ids: SetIds::Keep,
        };
        assert_eq!(*copy, expected);
        assert_eq!(bridge.copy((99, 0), (plain, 0), 1, SetIds::Keep), Err(Code::Stale));
    }

    #[test]
    fn space_is_made_a_hole_or_the_file_longer_and_what_is_neither_is_refused() {
        let (caller, bridge) = bridge([vec![opened(9)], vec![Ok(Answer::Done); 5]].concat());
        let file = bridge.open(INodeNo(5), OpenFlags(libc::O_RDWR), ROOT).unwrap().file;
        let (keep, punch, zero) =
            (libc::FALLOC_FL_KEEP_SIZE, libc::FALLOC_FL_PUNCH_HOLE, libc::FALLOC_FL_ZERO_RANGE);
        for mode in [0, keep, keep | punch, zero, zero | keep] {
            bridge.allocate(file, 10, 5, mode, SetIds::Clear(Gid(8))).unwrap();
        }
        for mode in [punch, libc::FALLOC_FL_COLLAPSE_RANGE, libc::FALLOC_FL_INSERT_RANGE] {
            assert_eq!(bridge.allocate(file, 10, 5, mode, SetIds::Clear(Gid(8))), Err(Code::Unsupported));
        }
        let asked: Vec<_> = caller.asked()[1..]
            .iter()
            .map(|operation| match operation {
                Operation::MakeHole { start, end, size_min, set_ids: SetIds::Clear(Gid(8)), .. } => {
                    ("hole", *start, *end, *size_min)
                }
                Operation::Allocate { start, end, grows, set_ids: SetIds::Clear(Gid(8)), .. } => {
                    ("space", *start, *end, u64::from(*grows))
                }
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [
            ("space", 10, 15, 1),
            ("space", 10, 15, 0),
            ("hole", 10, 15, 0),
            ("hole", 10, 15, 15),
            ("hole", 10, 15, 0),
        ];
        assert_eq!(asked, expected);
    }

    #[test]
    fn creating_a_name_that_appeared_meanwhile_opens_it_unless_excluded() {
        let (_, bridge) = bridge(vec![
            Err(Code::Exists),
            Ok(Answer::Found(found(6, FileType::Regular))),
            opened(9),
            Err(Code::Exists),
        ]);
        let name = OsStr::new("a");
        let flags = OpenFlags(libc::O_RDWR | libc::O_CREAT);
        let (told, open) = bridge.create_open(INodeNo::ROOT, name, Mode::new(0o644), flags, ROOT).unwrap();
        assert_eq!((told.number, open.file), (INodeNo(6), 9));
        let exclusive = OpenFlags(flags.0 | libc::O_EXCL);
        let refused = bridge.create_open(INodeNo::ROOT, name, Mode::new(0o644), exclusive, ROOT);
        assert_eq!(refused.unwrap_err(), Code::Exists);
    }

    #[test]
    fn creating_over_a_link_that_appeared_meanwhile_sends_the_kernel_round_again() {
        let (_, bridge) = bridge(vec![Err(Code::Exists), Ok(Answer::Found(found(6, FileType::Symlink)))]);
        let flags = OpenFlags(libc::O_RDWR | libc::O_CREAT);
        let refused = bridge.create_open(INodeNo::ROOT, OsStr::new("a"), Mode::new(0o644), flags, ROOT);
        assert_eq!(refused.unwrap_err(), Code::Stale);
        assert_eq!(bridge.handle(INodeNo(6)), Err(Code::Stale), "the kernel was never told of it");
    }
}
