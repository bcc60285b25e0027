//! A small disk for tests of what engines do when it is full.

use std::fs;
use std::path::Path;

/// A small disk, mounted for a test; root only.
pub struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Mounts one of so many bytes; `None`, and a word on standard error, if that is not allowed here.
    pub fn mount(bytes: u64) -> Option<SmallDisk> {
        let directory = tempfile::tempdir().unwrap();
        let target = std::ffi::CString::new(directory.path().to_str().unwrap()).unwrap();
        let options = std::ffi::CString::new(format!("size={bytes}")).unwrap();
        let (source, kind) = (c"bearing-test", c"tmpfs");
        // SAFETY: all pointers are of strings that live until the call is over.
        let result = unsafe {
            libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), 0, options.as_ptr().cast())
        };
        match result {
            0 => Some(SmallDisk(directory)),
            _ => {
                eprintln!("skipped: a tmpfs cannot be mounted ({})", std::io::Error::last_os_error());
                None
            }
        }
    }

    /// A directory of it takes no more writes, as all of a disk that fails. (The whole cannot be made so
    /// while a file is open for writing.)
    pub fn make_read_only(&self, directory: &Path) {
        let target = std::ffi::CString::new(directory.to_str().unwrap()).unwrap();
        for flags in [libc::MS_BIND, libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY] {
            let (kind, options) = (std::ptr::null(), std::ptr::null());
            // SAFETY: the pointers are null or of strings that live until the call is over.
            let result = unsafe { libc::mount(target.as_ptr(), target.as_ptr(), kind, flags, options) };
            assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        }
    }

    /// Takes all its space.
    pub fn fill(&self) {
        let mut ballast = fs::File::create(self.0.path().join("ballast")).unwrap();
        let full = std::io::copy(&mut std::io::repeat(7), &mut ballast).unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    }

    /// Gives that back.
    pub fn make_room(&self) {
        fs::remove_file(self.0.path().join("ballast")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let target = std::ffi::CString::new(self.0.path().to_str().unwrap()).unwrap();
        // SAFETY: the pointer is of a string that lives until the call is over.
        unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
    }
}
