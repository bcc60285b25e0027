//! Writing and syncing files of logs.
//!
//! After a sync that failed, Linux counts the pages as written: they read as before, another sync succeeds,
//! and only a power cut shows that the disk never had them. So what a log finds behind the last byte that it
//! knows to be synced it writes again, over itself, before it relies on it. Tests have such a disk: all
//! writes and syncs of logs go through here.

use crate::directory::is_unreadable;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// So much is written again at a time.
const WINDOW_BYTES: u64 = 1 << 20;
/// And so much where some of that cannot be read.
const BLOCK_BYTES: u64 = 4096;

/// Reads bytes at an offset: as many as there are, at least one before the end.
pub fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    #[cfg(test)]
    lying::read(offset, bytes.len())?;
    file.read_at(bytes, offset)
}

/// As [`read_at`], but only what the system has in memory: fewer bytes, or an error, where it would wait for
/// the disk.
pub fn read_cached(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
    let part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: the descriptor is open, and `part` is all of `bytes`, which nobody else uses meanwhile.
    let read = unsafe { libc::preadv2(file.as_raw_fd(), &raw const part, 1, offset, libc::RWF_NOWAIT) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// Writes bytes at an offset.
pub fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(bytes, offset)?;
    #[cfg(test)]
    lying::written(file, offset, bytes.len());
    Ok(())
}

/// Makes a file's bytes stable.
pub fn sync_data(file: &File) -> io::Result<()> {
    #[cfg(test)]
    lying::sync(file)?;
    file.sync_data()
}

/// Makes a file's bytes and its length stable.
pub fn sync_all(file: &File) -> io::Result<()> {
    #[cfg(test)]
    lying::sync(file)?;
    file.sync_all()
}

/// Writes a range of a file over itself, so that the next sync has to bring it to the disk. What cannot be
/// read stays as it is: nobody relies on it.
pub fn write_again(file: &File, start: u64, end: u64) -> io::Result<()> {
    let mut window = vec![0; WINDOW_BYTES.min(end.saturating_sub(start)) as usize];
    let (mut offset, mut in_blocks) = (start, start);
    while offset < end {
        let most = if offset < in_blocks { BLOCK_BYTES - offset % BLOCK_BYTES } else { WINDOW_BYTES };
        let count = most.min(end - offset) as usize;
        // The file may end before: zeros that fill up the last record may be missing.
        match read_at(file, &mut window[..count], offset) {
            Ok(0) => break,
            Ok(count) => {
                write_at(file, &window[..count], offset)?;
                offset += count as u64;
            }
            Err(error) if is_unreadable(&error) && offset >= in_blocks => in_blocks = offset + count as u64,
            Err(error) if is_unreadable(&error) => offset += count as u64,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes all of a file over itself, but where it has holes, and syncs it: those take no room then.
pub fn renew(file: &File) -> io::Result<()> {
    let length = file.metadata()?.len();
    let mut start = 0;
    while let Some(data) = seek(file, start, libc::SEEK_DATA)?.filter(|data| *data < length) {
        let end = seek(file, data, libc::SEEK_HOLE)?.unwrap_or(length);
        write_again(file, data, end)?;
        start = end;
    }
    sync_all(file)
}

/// Where the next data or hole begins; `None` if there is none.
fn seek(file: &File, from: u64, to: libc::c_int) -> io::Result<Option<u64>> {
    let from = libc::off_t::try_from(from).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open (borrowed here). Nobody uses the place in the file that this moves.
    let found = unsafe { libc::lseek(file.as_raw_fd(), from, to) };
    match u64::try_from(found) {
        Ok(found) => Ok(Some(found)),
        Err(_) => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            error => Err(error),
        },
    }
}

/// A disk whose failed syncs leave pages that look written, until the power is cut.
#[cfg(test)]
pub mod lying {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeMap;
    use std::fs::{File, Metadata};
    use std::io;
    use std::ops::Range;
    use std::os::unix::fs::{FileExt, MetadataExt};
    use std::path::Path;
    use std::time::SystemTime;

    /// What the disk has of a file, and which of its pages would be written by a sync.
    #[derive(Default)]
    struct Held {
        stable: Vec<u8>,
        dirty: Vec<Range<u64>>,
    }

    /// Which file: numbers of nodes are used again.
    type Identity = (u64, u64, Option<SystemTime>);

    fn identity(about: &Metadata) -> Identity {
        (about.dev(), about.ino(), about.created().ok())
    }

    thread_local! {
        static FILES: RefCell<BTreeMap<Identity, Held>> = const { RefCell::new(BTreeMap::new()) };
        static FAILS: Cell<bool> = const { Cell::new(false) };
        static UNREADABLE: RefCell<Range<u64>> = const { RefCell::new(0..0) };
    }

    /// What lies here in files cannot be read.
    pub fn make_unreadable(range: Range<u64>) {
        UNREADABLE.set(range);
    }

    pub(super) fn read(offset: u64, count: usize) -> io::Result<()> {
        let hit = UNREADABLE.with_borrow(|range| offset < range.end && range.start < offset + count as u64);
        if hit { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
    }

    /// The next sync of any file in this thread fails.
    pub fn fail_next_sync() {
        FAILS.set(true);
    }

    /// Begins with an empty disk.
    pub fn forget_all() {
        FILES.with_borrow_mut(BTreeMap::clear);
        FAILS.set(false);
        make_unreadable(0..0);
    }

    fn with<T>(file: &File, act: impl FnOnce(&mut Held) -> T) -> io::Result<T> {
        let about = file.metadata()?;
        Ok(FILES.with_borrow_mut(|files| act(files.entry(identity(&about)).or_default())))
    }

    pub(super) fn written(file: &File, offset: u64, count: usize) {
        with(file, |held| held.dirty.push(offset..offset + count as u64)).expect("an open file");
    }

    pub(super) fn sync(file: &File) -> io::Result<()> {
        let length = file.metadata()?.len();
        let fails = FAILS.take();
        let dirty = with(file, |held| std::mem::take(&mut held.dirty))?;
        if fails {
            return Err(io::Error::other("a sync that was to fail"));
        }
        let mut bytes = Vec::new();
        for range in dirty {
            let end = range.end.min(length);
            if end <= range.start {
                continue;
            }
            let mut piece = vec![0; (end - range.start) as usize];
            file.read_exact_at(&mut piece, range.start)?;
            bytes.push((range.start as usize, piece));
        }
        with(file, |held| {
            held.stable.resize(length as usize, 0);
            for (start, piece) in bytes {
                held.stable[start..start + piece.len()].copy_from_slice(&piece);
            }
        })
    }

    /// The power is cut: every file below a directory that was written through this module holds what the
    /// disk has of it.
    pub fn cut_power(directory: &Path) {
        for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
            if entry.path().is_dir() {
                cut_power(&entry.path());
                continue;
            }
            let about = entry.metadata().unwrap();
            let stable =
                FILES.with_borrow(|files| files.get(&identity(&about)).map(|held| held.stable.clone()));
            if let Some(stable) = stable {
                std::fs::write(entry.path(), stable).unwrap();
            }
        }
    }
}
