//! The kernel's requests, one method each: unpack, run, pack the reply. Nothing else happens here.
//!
//! Not answered, so that the kernel does it itself or says "not supported" from then on: poll, ioctl.
//! Interrupts are not seen, the library drops them; for what may wait for long, locks, see [`crate::locks`].

use crate::attributes::{Kept, file_attr, time_change, unknown_directory};
use crate::bridge::{Bridge, Told};
use crate::directories::FullPart;
use crate::errno::errno;
use crate::files::{WriteWish, writes};
use crate::gate::{Gate, Trust};
use crate::groups::Groups;
use crate::locks::{Asked, Signals, kind};
use crate::options::Locks;
use crate::xattrs::{Fitted, fit};
use bearing_mount::{AttributeChange, Found};
use bearing_types::{Code, Gid, Mode, Outcome, SetIds, Uid};
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, SystemTime};

/// Node ids are never reused, so every number has one generation only.
const GENERATION: Generation = Generation(0);
/// The largest write that the kernel sends at once: the most that its default limit of 256 pages allows.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// Readahead and other background requests at the same time.
const BACKGROUND_MAX: u16 = 64;
/// The unit of `statfs`.
const BLOCK_BYTES: u32 = 4096;
const NAME_BYTES_MAX: u32 = 255;

/// What the kernel may do, beyond what the library asks for by itself (asynchronous reads, large writes). Not
/// asked for: the writeback cache, because bytes would wait in the kernel where no recall finds them.
const CAPABILITIES: [InitFlags; 8] = [
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DO_READDIRPLUS.union(InitFlags::FUSE_READDIRPLUS_AUTO),
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    // Access control lists are asked for and judged, and the umask is left to us: where a default list is, it
    // does not count.
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_DONT_MASK,
    // Whoever writes to a file, cuts it or has space allocated takes its set-user-id and set-group-id bits
    // away: the file's home does. Otherwise the kernel asks for a chmod in the writer's name, which only the
    // owner may.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
];
/// With these the kernel sends us locks instead of keeping them to itself.
const LOCK_CAPABILITIES: [InitFlags; 2] = [InitFlags::FUSE_POSIX_LOCKS, InitFlags::FUSE_FLOCK_LOCKS];

/// A mounted filesystem.
pub(crate) struct Requests {
    bridge: Arc<Bridge>,
    gate: Arc<Gate>,
    groups: Groups,
    locks: Locks,
}

impl Requests {
    /// Serves requests by a bridge. What is told passes the gate.
    pub fn new(bridge: Bridge, gate: Arc<Gate>, locks: Locks) -> Requests {
        let bridge = Arc::new(bridge);
        Requests { bridge, gate, groups: Groups::default(), locks }
    }

    /// Whether a close(2) has to be told. It frees the locks of its process, so it is even where nothing can
    /// have been written, unless the kernel keeps the locks or there are none.
    fn close_flags(&self, flags: OpenFlags) -> FopenFlags {
        match self.locks {
            Locks::Local | Locks::Refused if !writes(flags) => FopenFlags::FOPEN_NOFLUSH,
            Locks::Local | Locks::Refused | Locks::Shared => FopenFlags::empty(),
        }
    }

    /// Runs something that finds a node, and tells the kernel of it.
    fn tell_entry(&self, run: impl FnOnce(&Bridge) -> Outcome<Told>, reply: ReplyEntry) {
        let turn = self.gate.enter();
        match run(&self.bridge) {
            Ok(told) => turn.tell(|trust| {
                let (kept, attr) = (told.kept(trust), file_attr(told.number, &told.found.attributes));
                reply.entry_with_ttls(&kept.attributes, &kept.name, &attr, GENERATION);
            }),
            Err(code) => reply.error(errno(code)),
        }
    }

    /// Runs something that finds attributes, and tells the kernel of them.
    fn tell_attributes(
        &self,
        number: INodeNo,
        run: impl FnOnce(&Bridge) -> Outcome<Found>,
        reply: ReplyAttr,
    ) {
        let turn = self.gate.enter();
        match run(&self.bridge) {
            Ok(found) => turn.tell(|trust| {
                let kept = Kept::of(&found, trust);
                reply.attr(&kept.attributes, &file_attr(number, &found.attributes));
            }),
            Err(code) => reply.error(errno(code)),
        }
    }

    fn fill(&self, part: FullPart, trust: Trust, mut reply: ReplyDirectoryPlus) {
        for dot in &part.dots {
            let attr = unknown_directory(dot.number);
            if reply.add(dot.number, dot.offset, dot.name(), &Duration::ZERO, &attr, GENERATION) {
                return reply.ok();
            }
        }
        for entry in &part.entries {
            let told = self.bridge.tell(entry.found);
            let (ttl, attr) = (told.kept(trust).both(), file_attr(told.number, &told.found.attributes));
            if reply.add(told.number, entry.offset, entry.name(), &ttl, &attr, GENERATION) {
                self.bridge.inodes.forget(told.number, 1);
                break;
            }
        }
        reply.ok();
    }
}

/// What a change of content by whoever sends a request does, where the kernel does not say it.
fn set_ids(request: &Request) -> SetIds {
    if request.uid() == 0 { SetIds::Keep } else { SetIds::Clear(Gid(request.gid())) }
}

fn reply_empty(result: Outcome<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(code) => reply.error(errno(code)),
    }
}

fn reply_data(result: Outcome<Vec<u8>>, reply: ReplyData) {
    match result {
        Ok(bytes) => reply.data(&bytes),
        Err(code) => reply.error(errno(code)),
    }
}

fn reply_xattr(result: Outcome<Vec<u8>>, size: u32, reply: ReplyXattr) {
    match result.map(|bytes| fit(bytes, size)) {
        Ok(Fitted::Size(length)) => reply.size(length),
        Ok(Fitted::Bytes(bytes)) => reply.data(&bytes),
        Ok(Fitted::TooSmall) => reply.error(Errno::ERANGE),
        Err(code) => reply.error(errno(code)),
    }
}

impl Filesystem for Requests {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let locks: &[InitFlags] = if self.locks == Locks::Local { &[] } else { &LOCK_CAPABILITIES };
        for capability in CAPABILITIES.iter().chain(locks) {
            if let Err(missing) = config.add_capabilities(*capability) {
                tracing::debug!(?missing, "the kernel lacks a capability of FUSE; mounting without it");
            }
        }
        // A limit that is too large is answered with the nearest possible one.
        let _ = config.set_max_write(WRITE_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let who = self.groups.credentials(request);
        self.tell_entry(|bridge| bridge.lookup(parent, name, who), reply);
    }

    fn forget(&self, _request: &Request, number: INodeNo, times: u64) {
        self.bridge.inodes.forget(number, times);
    }

    fn getattr(&self, _request: &Request, number: INodeNo, _file: Option<FileHandle>, reply: ReplyAttr) {
        self.tell_attributes(number, |bridge| bridge.attributes(number), reply);
    }

    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        file: Option<FileHandle>,
        _created: Option<SystemTime>,
        _change_time: Option<SystemTime>,
        _backup_time: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = AttributeChange {
            mode: mode.map(Mode::new),
            uid: uid.map(Uid),
            gid: gid.map(Gid),
            size,
            accessed: accessed.map(time_change),
            modified: modified.map(time_change),
        };
        let who = self.groups.credentials(request);
        let file = file.map(|file| file.0);
        self.tell_attributes(number, |bridge| bridge.set_attributes(number, change, file, who), reply);
    }

    fn readlink(&self, _request: &Request, number: INodeNo, reply: ReplyData) {
        reply_data(self.bridge.read_link(number), reply);
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let who = self.groups.credentials(request);
        let make = |bridge: &Bridge| {
            let mode = bridge.masked(parent, mode, umask, &who)?;
            bridge.make_node(parent, name, mode, device, who)
        };
        self.tell_entry(make, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let who = self.groups.credentials(request);
        let make = |bridge: &Bridge| {
            let mode = Mode::new(bridge.masked(parent, mode, umask, &who)?);
            bridge.make_directory(parent, name, mode, who)
        };
        self.tell_entry(make, reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(self.bridge.unlink(parent, name, self.groups.credentials(request)), reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(self.bridge.remove_directory(parent, name, self.groups.credentials(request)), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let who = self.groups.credentials(request);
        self.tell_entry(|bridge| bridge.make_link(parent, name, target.as_os_str(), who), reply);
    }

    fn rename(
        &self,
        request: &Request,
        source: INodeNo,
        source_name: &OsStr,
        target: INodeNo,
        target_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let who = self.groups.credentials(request);
        let result = self.bridge.rename((source, source_name), (target, target_name), flags, who);
        reply_empty(result, reply);
    }

    fn link(&self, request: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let who = self.groups.credentials(request);
        self.tell_entry(|bridge| bridge.link(number, parent, name, who), reply);
    }

    fn open(&self, request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.bridge.open(number, flags, self.groups.credentials(request)) {
            Ok(opened) => reply.opened(FileHandle(opened.file), opened.flags | self.close_flags(flags)),
            Err(code) => reply.error(errno(code)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let who = self.groups.credentials(request);
        let turn = self.gate.enter();
        let mode = self.bridge.masked(parent, mode, umask, &who).map(Mode::new);
        let open = |mode| self.bridge.create_open(parent, name, mode, OpenFlags(flags), who);
        match mode.and_then(open) {
            Ok((told, opened)) => turn.tell(|trust| {
                let (ttl, attr) = (told.kept(trust).both(), file_attr(told.number, &told.found.attributes));
                let flags = opened.flags | self.close_flags(OpenFlags(flags));
                reply.created(&ttl, &attr, GENERATION, FileHandle(opened.file), flags);
            }),
            Err(code) => reply.error(errno(code)),
        }
    }

    fn read(
        &self,
        _request: &Request,
        _number: INodeNo,
        file: FileHandle,
        offset: u64,
        length: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        reply_data(self.bridge.read(file.0, offset, length), reply);
    }

    fn write(
        &self,
        request: &Request,
        _number: INodeNo,
        file: FileHandle,
        offset: u64,
        bytes: &[u8],
        kind: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let group = Gid(request.gid());
        match self.bridge.write(file.0, WriteWish { offset, kind, flags, group }, bytes) {
            Ok(count) => reply.written(count),
            Err(code) => reply.error(errno(code)),
        }
    }

    fn flush(
        &self,
        _request: &Request,
        number: INodeNo,
        file: FileHandle,
        owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let flushed = self.bridge.flush(file.0);
        // Whoever gets the lock next sees what was flushed.
        let unlocked = self.bridge.closed_by(number, bearing_types::LockOwner(owner.0));
        reply_empty(flushed.and(unlocked), reply);
    }

    fn release(
        &self,
        _request: &Request,
        number: INodeNo,
        file: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let result = self.bridge.release(file.0);
        if let Err(code) = result {
            // Nobody is left whom close(2) could tell.
            tracing::warn!(node = number.0, %code, "bytes written through a mapping were lost at release");
        }
        reply_empty(result, reply);
    }

    fn fsync(
        &self,
        _request: &Request,
        _number: INodeNo,
        file: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        reply_empty(self.bridge.sync(file.0), reply);
    }

    fn fallocate(
        &self,
        request: &Request,
        _number: INodeNo,
        file: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        reply_empty(self.bridge.allocate(file.0, offset, length, mode, set_ids(request)), reply);
    }

    fn lseek(
        &self,
        _request: &Request,
        _number: INodeNo,
        file: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        match self.bridge.seek(file.0, offset, whence) {
            Ok(Some(place)) => reply.offset(place.min(i64::MAX as u64) as i64),
            Ok(None) => reply.error(Errno::ENXIO),
            Err(code) => reply.error(errno(code)),
        }
    }

    fn copy_file_range(
        &self,
        request: &Request,
        _source: INodeNo,
        source_file: FileHandle,
        source_offset: u64,
        _target: INodeNo,
        target_file: FileHandle,
        target_offset: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let (source, target) = ((source_file.0, source_offset), (target_file.0, target_offset));
        match self.bridge.copy(source, target, length, set_ids(request)) {
            Ok(count) => reply.written(count),
            Err(code) => reply.error(errno(code)),
        }
    }

    fn opendir(&self, request: &Request, number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.bridge.open_directory(number, self.groups.credentials(request)) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(code) => reply.error(errno(code)),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        _number: INodeNo,
        file: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let part = match self.bridge.list(file.0, offset) {
            Err(code) => return reply.error(errno(code)),
            Ok(part) => part,
        };
        for entry in &part {
            if reply.add(entry.number, entry.offset, entry.kind, entry.name()) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        _request: &Request,
        _number: INodeNo,
        file: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let turn = self.gate.enter();
        match self.bridge.list_full(file.0, offset) {
            Err(code) => reply.error(errno(code)),
            Ok(part) => turn.tell(|trust| self.fill(part, trust, reply)),
        }
    }

    fn releasedir(
        &self,
        _request: &Request,
        _number: INodeNo,
        file: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.bridge.release_directory(file.0);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        number: INodeNo,
        _file: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        // Changes of a directory are stable but for those that were decided here because it is delegated.
        // Linux passes syncfs on to no FUSE server of our kind, so the root, which has nothing else to be
        // synced, stands for all that was written through this mount.
        match number {
            INodeNo::ROOT => reply_empty(self.bridge.sync_all(), reply),
            _ => reply_empty(self.bridge.sync_names(), reply),
        }
    }

    fn statfs(&self, _request: &Request, number: INodeNo, reply: ReplyStatfs) {
        match self.bridge.space(number) {
            Ok(space) => {
                let unit = u64::from(BLOCK_BYTES);
                let (total, free) = (space.total / unit, space.free / unit);
                let (nodes, nodes_free) = (space.nodes, space.nodes_free);
                reply.statfs(total, free, free, nodes, nodes_free, BLOCK_BYTES, NAME_BYTES_MAX, BLOCK_BYTES);
            }
            Err(code) => reply.error(errno(code)),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let who = self.groups.credentials(request);
        reply_empty(self.bridge.set_xattr(number, name, value, flags, who), reply);
    }

    fn getxattr(&self, request: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        reply_xattr(self.bridge.xattr(number, name, self.groups.credentials(request)), size, reply);
    }

    fn listxattr(&self, request: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        reply_xattr(self.bridge.xattrs(number, self.groups.credentials(request)), size, reply);
    }

    fn removexattr(&self, request: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(self.bridge.remove_xattr(number, name, self.groups.credentials(request)), reply);
    }

    fn getlk(
        &self,
        request: &Request,
        number: INodeNo,
        file: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind_asked: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        if self.locks == Locks::Refused {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let asked = asked(request, number, (file, owner), (start, end), kind_asked, pid);
        match self.bridge.test_lock(&asked) {
            Ok(Some(lock)) => reply.locked(lock.range.start, lock.range.last, kind(&lock), lock.pid),
            Ok(None) => reply.locked(start, end, libc::F_UNLCK, 0),
            Err(code) => reply.error(errno(code)),
        }
    }

    fn setlk(
        &self,
        request: &Request,
        number: INodeNo,
        file: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        if self.locks == Locks::Refused {
            // Nobody holds a lock, so giving one up succeeds.
            return if kind == libc::F_UNLCK { reply.ok() } else { reply.error(Errno::EOPNOTSUPP) };
        }
        let asked = asked(request, number, (file, owner), (start, end), kind, pid);
        match self.bridge.set_lock(&asked) {
            Err(Code::Locked) if sleep => self.wait_for_lock(asked, reply),
            result => reply_empty(result, reply),
        }
    }
}

impl Requests {
    /// Answers when the lock is free, or a signal came for the one who waits; see [`crate::locks`].
    fn wait_for_lock(&self, asked: Asked, reply: ReplyEmpty) {
        if let Err(code) = self.bridge.lockers.begin_waiting() {
            return reply.error(errno(code));
        }
        let bridge = self.bridge.clone();
        let mut signals = Signals::of(asked.thread);
        // If there can be no thread, the reply is dropped, and the library answers with EIO.
        let spawned = Builder::new().name("bearing-lock".to_owned()).spawn(move || {
            let result = bridge.wait_for_lock(&asked, || signals.leave_it_waiting());
            bridge.lockers.end_waiting();
            reply_empty(result, reply);
        });
        if let Err(error) = spawned {
            self.bridge.lockers.end_waiting();
            tracing::warn!(%error, "no thread to wait for a lock; check the limit of processes (`ulimit -u`)");
        }
    }
}

fn asked(
    request: &Request,
    number: INodeNo,
    (file, owner): (FileHandle, LockOwner),
    (start, last): (u64, u64),
    kind: i32,
    pid: u32,
) -> Asked {
    let owner = bearing_types::LockOwner(owner.0);
    Asked { number, file: file.0, owner, start, last, kind, pid, thread: request.pid() }
}
