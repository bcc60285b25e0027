//! The forgetful disk under the kernel. While its power is off everything answers EIO, except for the file
//! `.power` in its root.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use super::disk::{Disk, Ino, Kind, ROOT};

/// The name of the file that takes commands.
pub const POWER: &str = ".power";
const POWER_INO: Ino = u64::MAX >> 1;
/// The kernel keeps nothing: after a cut all may be different.
const KEPT: Duration = Duration::ZERO;
/// What the disk says it holds, in blocks of 4 KiB: 16 GiB.
const BLOCKS: u64 = 4 << 20;

struct State {
    disk: Disk,
    is_on: bool,
    /// Each read takes so long.
    reads_take: Duration,
    listings: BTreeMap<u64, Vec<(Ino, Kind, Vec<u8>)>>,
    next_listing: u64,
}

/// See the module.
pub struct Lossy(Mutex<State>);

type Answer<T> = Result<T, Errno>;

impl Lossy {
    /// An empty disk with its power on.
    pub fn new() -> Lossy {
        let state = State {
            disk: Disk::new(),
            is_on: true,
            reads_take: Duration::ZERO,
            listings: BTreeMap::new(),
            next_listing: 1,
        };
        Lossy(Mutex::new(state))
    }

    fn powered(&self) -> Answer<MutexGuard<'_, State>> {
        let state = self.0.lock().expect("no request panics");
        if state.is_on { Ok(state) } else { Err(Errno::EIO) }
    }

    /// A line of the file `.power`.
    fn command(&self, line: &str) -> Answer<()> {
        let mut state = self.0.lock().expect("no request panics");
        match line.trim().split_once(' ').unwrap_or((line.trim(), "")) {
            ("cut", seed) => {
                let seed = seed.parse().map_err(|_| Errno::EINVAL)?;
                state.disk.cut_power(seed);
                state.listings.clear();
                state.is_on = false;
                Ok(())
            }
            ("on", "") => {
                state.is_on = true;
                Ok(())
            }
            ("slow", ms) => {
                state.reads_take = Duration::from_millis(ms.parse().map_err(|_| Errno::EINVAL)?);
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        }
    }

    fn entry(&self, parent: INodeNo, name: &OsStr) -> Answer<FileAttr> {
        if parent.0 == ROOT && name == POWER {
            return Ok(attributes_of_power());
        }
        let state = self.powered()?;
        let ino = state.disk.find(parent.0, name.as_bytes()).ok_or(Errno::ENOENT)?;
        state.attributes(ino)
    }

    fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        kind: Kind,
        mode: u32,
    ) -> Answer<FileAttr> {
        let mut state = self.powered()?;
        state.disk.node(parent.0).ok_or(Errno::ENOENT)?;
        let owner = (request.uid(), request.gid());
        let made = state.disk.make(parent.0, name.as_bytes(), kind, mode & 0o7777, owner);
        let ino = made.ok_or(Errno::EEXIST)?;
        state.attributes(ino)
    }

    fn remove(&self, parent: INodeNo, name: &OsStr, directory: bool) -> Answer<()> {
        let mut state = self.powered()?;
        let ino = state.disk.find(parent.0, name.as_bytes()).ok_or(Errno::ENOENT)?;
        let node = state.disk.node(ino).ok_or(Errno::EIO)?;
        match (directory, node.kind == Kind::Directory) {
            (false, true) => return Err(Errno::EISDIR),
            (true, false) => return Err(Errno::ENOTDIR),
            (true, true) if !node.names().is_empty() => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        state.disk.change_names(vec![(parent.0, name.as_bytes().to_vec(), None)]);
        Ok(())
    }

    fn move_name(&self, from: (INodeNo, &OsStr), to: (INodeNo, &OsStr), flags: RenameFlags) -> Answer<()> {
        let mut state = self.powered()?;
        let ((source, name), (target, new)) = (from, to);
        let ino = state.disk.find(source.0, name.as_bytes()).ok_or(Errno::ENOENT)?;
        if !flags.is_empty() {
            return Err(Errno::EINVAL);
        }
        if let Some(replaced) = state.disk.find(target.0, new.as_bytes())
            && state.disk.node(replaced).is_some_and(|node| !node.names().is_empty())
        {
            return Err(Errno::ENOTEMPTY);
        }
        state.disk.change_names(vec![
            (source.0, name.as_bytes().to_vec(), None),
            (target.0, new.as_bytes().to_vec(), Some(ino)),
        ]);
        Ok(())
    }

    fn change(
        &self,
        ino: INodeNo,
        mode: Option<u32>,
        (uid, gid): (Option<u32>, Option<u32>),
        size: Option<u64>,
    ) -> Answer<FileAttr> {
        if ino.0 == POWER_INO {
            return Ok(attributes_of_power());
        }
        let mut state = self.powered()?;
        let node = state.disk.node_mut(ino.0).ok_or(Errno::ENOENT)?;
        node.mode = mode.map_or(node.mode, |mode| mode & 0o7777);
        node.uid = uid.unwrap_or(node.uid);
        node.gid = gid.unwrap_or(node.gid);
        if let Some(size) = size {
            state.disk.cut_file(ino.0, size).ok_or(Errno::ENOENT)?;
        }
        state.attributes(ino.0)
    }

    fn list(&self, ino: INodeNo) -> Answer<u64> {
        let mut state = self.powered()?;
        let node = state.disk.node(ino.0).ok_or(Errno::ENOENT)?;
        let mut all = vec![(ino.0, Kind::Directory, b".".to_vec()), (ROOT, Kind::Directory, b"..".to_vec())];
        for (name, ino) in node.names() {
            all.extend(state.disk.node(*ino).map(|node| (*ino, node.kind, name.clone())));
        }
        let number = state.next_listing;
        state.next_listing += 1;
        state.listings.insert(number, all);
        Ok(number)
    }
}

impl State {
    fn attributes(&self, ino: Ino) -> Answer<FileAttr> {
        let node = self.disk.node(ino).ok_or(Errno::ENOENT)?;
        let links = if node.kind == Kind::Directory { 2 } else { self.disk.links(ino) };
        Ok(FileAttr {
            size: node.length(),
            blocks: node.stored() / 512,
            kind: type_of(node.kind),
            perm: node.mode as u16,
            nlink: links,
            uid: node.uid,
            gid: node.gid,
            ..plain(ino)
        })
    }
}

fn plain(ino: Ino) -> FileAttr {
    let time = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(ino),
        size: 0,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: FileType::RegularFile,
        perm: 0o600,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn attributes_of_power() -> FileAttr {
    plain(POWER_INO)
}

fn type_of(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Link => FileType::Symlink,
        Kind::Socket => FileType::Socket,
    }
}

fn entry(reply: ReplyEntry, answer: Answer<FileAttr>) {
    match answer {
        Ok(attributes) => reply.entry(&KEPT, &attributes, Generation(0)),
        Err(error) => reply.error(error),
    }
}

fn attributes(reply: ReplyAttr, answer: Answer<FileAttr>) {
    match answer {
        Ok(attributes) => reply.attr(&KEPT, &attributes),
        Err(error) => reply.error(error),
    }
}

fn done(reply: ReplyEmpty, answer: Answer<()>) {
    match answer {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

fn data(reply: ReplyData, answer: Answer<Vec<u8>>) {
    match answer {
        Ok(bytes) => reply.data(&bytes),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for Lossy {
    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(reply, self.entry(parent, name));
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let answer = match ino.0 {
            POWER_INO => Ok(attributes_of_power()),
            // Else nobody could find `.power`.
            ROOT => self.0.lock().expect("no request panics").attributes(ROOT),
            ino => self.powered().and_then(|state| state.attributes(ino)),
        };
        attributes(reply, answer);
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        attributes(reply, self.change(ino, mode, (uid, gid), size));
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        let answer = self.powered();
        data(reply, answer.and_then(|state| state.disk.read(ino.0, 0, 4096).ok_or(Errno::ENOENT)));
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        // Of the file types only these two are made by programs that keep their data here.
        let is_socket = mode & 0o170_000 == 0o140_000;
        let kind = if is_socket { Kind::Socket } else { Kind::File };
        entry(reply, self.make(req, parent, name, kind, mode));
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        entry(reply, self.make(req, parent, name, Kind::Directory, mode));
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.remove(parent, name, false));
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.remove(parent, name, true));
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let made = self.make(req, parent, name, Kind::Link, 0o777).and_then(|made| {
            let mut state = self.powered()?;
            state.disk.write(made.ino.0, 0, target.as_os_str().as_bytes()).ok_or(Errno::EIO)?;
            // A link is written with its name.
            state.disk.sync_file(made.ino.0).ok_or(Errno::EIO)?;
            state.attributes(made.ino.0)
        });
        entry(reply, made);
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        done(reply, self.move_name((parent, name), (newparent, newname), flags));
    }

    fn link(&self, _req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let linked = self.powered().and_then(|mut state| {
            if state.disk.find(newparent.0, newname.as_bytes()).is_some() {
                return Err(Errno::EEXIST);
            }
            state.disk.change_names(vec![(newparent.0, newname.as_bytes().to_vec(), Some(ino.0))]);
            state.attributes(ino.0)
        });
        entry(reply, linked);
    }

    fn open(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if ino.0 != POWER_INO
            && let Err(error) = self.powered()
        {
            return reply.error(error);
        }
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        match self.make(req, parent, name, Kind::File, mode) {
            Ok(made) => {
                reply.created(&KEPT, &made, Generation(0), FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
            }
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let answer = self.powered();
        // As one disk: what is asked for meanwhile waits.
        let bytes = answer.and_then(|state| {
            std::thread::sleep(state.reads_take);
            state.disk.read(ino.0, offset, size.into()).ok_or(Errno::EIO)
        });
        data(reply, bytes);
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        bytes: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = match ino.0 {
            POWER_INO => self.command(&String::from_utf8_lossy(bytes)),
            ino => {
                self.powered().and_then(|mut state| state.disk.write(ino, offset, bytes).ok_or(Errno::EIO))
            }
        };
        match written {
            Ok(()) => reply.written(bytes.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let synced = self.powered().and_then(|mut state| state.disk.sync_file(ino.0).ok_or(Errno::EIO));
        done(reply, synced);
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.list(ino) {
            Ok(listing) => reply.opened(FileHandle(listing), FopenFlags::empty()),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let state = match self.powered() {
            Ok(state) => state,
            Err(error) => return reply.error(error),
        };
        let Some(listing) = state.listings.get(&fh.0) else { return reply.error(Errno::EIO) };
        for (at, (ino, kind, name)) in listing.iter().enumerate().skip(offset as usize) {
            if reply.add(INodeNo(*ino), at as u64 + 1, type_of(*kind), OsStr::from_bytes(name)) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.0.lock().expect("no request panics").listings.remove(&fh.0);
        reply.ok();
    }

    fn fsyncdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        done(reply, self.powered().map(|mut state| state.disk.sync_names(ino.0)));
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        reply.statfs(BLOCKS, BLOCKS, BLOCKS, 1 << 20, 1 << 20, 4096, 255, 4096);
    }
}
