//! What Linux promises programs of names and attributes, on two mounts of one cluster.
//!
//! These tests need root and /dev/fuse; without them they say so and pass.

mod common;

use bearing_types::{Acl, Gid, Named, Uid};
use common::{TestCluster, bearing, wait_for};
use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, io};

/// Two mounts of one cluster, unmounted at the end.
struct TwoMounts {
    cluster: TestCluster,
    second: PathBuf,
}

impl TwoMounts {
    /// `None`, said aloud, on a machine that cannot mount.
    fn new(name: &str) -> Option<TwoMounts> {
        let device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
        if let Err(error) = device {
            eprintln!("skipped: /dev/fuse cannot be opened ({error})");
            return None;
        }
        let cluster = TestCluster::mounted(name);
        let second = cluster.root().join("second");
        fs::create_dir(&second).unwrap();
        bearing(&["mount", &cluster.dir(), second.to_str().expect("plain names")]).ok();
        Some(TwoMounts { cluster, second })
    }

    /// The same path under both.
    fn both(&self, path: &str) -> [PathBuf; 2] {
        [self.cluster.mnt().join(path), self.second.join(path)]
    }
}

impl Drop for TwoMounts {
    fn drop(&mut self) {
        bearing(&["umount", self.second.to_str().expect("plain names")]);
    }
}

fn text(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no NUL in a path")
}

/// The error number of a call that gave -1, or what it gave.
fn told(result: isize) -> Result<usize, i32> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error().raw_os_error().expect("a call failed"))
}

fn rename(from: &Path, to: &Path, flags: u32) -> Result<usize, i32> {
    let (from, to) = (text(from), text(to));
    // SAFETY: both are texts with a NUL at their end, and live until the call is over.
    let result =
        unsafe { libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) };
    told(result as isize)
}

fn set(path: &Path, name: &str, value: &[u8], flags: i32) -> Result<usize, i32> {
    let (path, name) = (text(path), CString::new(name).unwrap());
    // SAFETY: path and name are texts with a NUL at their end, the value is as long as is said.
    let result =
        unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags) };
    told(result as isize)
}

fn get(path: &Path, name: &str, room: usize) -> Result<Vec<u8>, i32> {
    let (path, name, mut value) = (text(path), CString::new(name).unwrap(), vec![0u8; room]);
    // SAFETY: path and name are texts with a NUL at their end, the room is as large as is said.
    let result =
        unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    let length = told(result)?;
    value.truncate(length);
    Ok(value)
}

fn list(path: &Path) -> Result<String, i32> {
    let (path, mut names) = (text(path), vec![0u8; 70_000]);
    // SAFETY: the path is a text with a NUL at its end, the room is as large as is said.
    let result = unsafe { libc::listxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    names.truncate(told(result)?);
    Ok(String::from_utf8(names).unwrap().replace('\0', " "))
}

fn remove(path: &Path, name: &str) -> Result<usize, i32> {
    let (path, name) = (text(path), CString::new(name).unwrap());
    // SAFETY: both are texts with a NUL at their end.
    told(unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) } as isize)
}

#[test]
fn two_names_change_places_and_both_mounts_see_it() {
    let Some(mounts) = TwoMounts::new("exchange") else { return };
    let ([a, a2], [b, b2]) = (mounts.both("a"), mounts.both("d/b"));
    fs::create_dir_all(b.join("inner")).unwrap();
    fs::write(&a, "file").unwrap();
    assert!(a2.is_file() && b2.join("inner").is_dir());
    rename(&a, &b, libc::RENAME_EXCHANGE).unwrap();
    for (was_file, was_directory) in [(&a, &b), (&a2, &b2)] {
        assert!(was_file.join("inner").is_dir());
        assert_eq!(fs::read(was_directory).unwrap(), b"file");
    }
    rename(&b2, &a2, libc::RENAME_EXCHANGE).unwrap();
    assert!(a.is_file() && b.join("inner").is_dir());
    assert_eq!(rename(&a, &a.with_file_name("none"), libc::RENAME_EXCHANGE), Err(libc::ENOENT));
    assert_eq!(rename(&a, &b, libc::RENAME_NOREPLACE), Err(libc::EEXIST));
    assert_eq!(rename(&a, &a.with_file_name("c"), libc::RENAME_WHITEOUT), Err(libc::EINVAL));
    fs::rename(&a, a.with_file_name("moved")).unwrap();
    assert!(a2.with_file_name("moved").is_file());
    fs::remove_file(a2.with_file_name("moved")).unwrap();
    assert!(!a.with_file_name("moved").exists(), "a kernel does not go by what it knew of the old name");
    let within = b.join("inner");
    assert_eq!(rename(b.parent().unwrap(), &within, libc::RENAME_EXCHANGE), Err(libc::EINVAL));
}

#[test]
fn extended_attributes_are_those_of_linux_and_both_mounts_see_them() {
    let Some(mounts) = TwoMounts::new("xattrs") else { return };
    for name in ["file", "directory"] {
        let [here, there] = mounts.both(name);
        if name == "file" {
            fs::write(&here, "x").unwrap();
        } else {
            fs::create_dir(&here).unwrap();
        }
        assert_eq!((get(&there, "user.a", 10), list(&there)), (Err(libc::ENODATA), Ok(String::new())));
        let before = fs::metadata(&there).unwrap();
        set(&here, "user.a", b"hello", libc::XATTR_CREATE).unwrap();
        assert_eq!(get(&there, "user.a", 10).unwrap(), b"hello");
        let after = fs::metadata(&there).unwrap();
        assert!((after.ctime(), after.ctime_nsec()) > (before.ctime(), before.ctime_nsec()));
        assert_eq!(get(&there, "user.a", 4), Err(libc::ERANGE));
        assert_eq!(set(&there, "user.a", b"", libc::XATTR_CREATE), Err(libc::EEXIST));
        assert_eq!(set(&there, "user.b", b"", libc::XATTR_REPLACE), Err(libc::ENODATA));
        let long = vec![0xa5; 65_536];
        set(&there, "trusted.long", &long, 0).unwrap();
        assert_eq!(get(&here, "trusted.long", 65_536).unwrap(), long);
        assert_eq!(set(&here, "user.a", &[&long[..], b"x"].concat(), 0), Err(libc::E2BIG));
        assert_eq!(set(&here, "other.a", b"", 0), Err(libc::EOPNOTSUPP));
        assert_eq!(set(&here, &format!("user.{}", "x".repeat(251)), b"", 0), Err(libc::ERANGE));
        set(&here, &format!("user.{}", "x".repeat(250)), b"", 0).unwrap();
        remove(&here, "user.a").unwrap();
        assert_eq!(remove(&there, "user.a"), Err(libc::ENODATA));
        assert_eq!(list(&there).unwrap(), format!("trusted.long user.{} ", "x".repeat(250)));
    }
    let [link, _] = mounts.both("fifo");
    // SAFETY: the path is a text with a NUL at its end.
    told(unsafe { libc::mkfifo(text(&link).as_ptr(), 0o666) } as isize).unwrap();
    assert_eq!(set(&link, "user.a", b"", 0), Err(libc::EPERM));
    set(&link, "trusted.a", b"", 0).unwrap();
}

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// Whether a shell of this user can do it.
fn can(uid: u32, script: &str) -> bool {
    let mut shell = Command::new("bash");
    shell.args(["-euc", script]).uid(uid).gid(uid).output().expect("bash is there").status.success()
}

#[test]
fn access_control_lists_decide_in_the_kernel_and_at_the_servers_alike() {
    let Some(mounts) = TwoMounts::new("acls") else { return };
    let [directory, there] = mounts.both("d");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
    let named = Named { users: vec![(Uid(4001), 7)], group: 0, groups: vec![(Gid(4002), 5)] };
    let acl = Acl { owner: 7, other: 0, named, mask: Some(7) };
    let make = |name: &str| format!("umask 077; : > {}/{name}", there.display());
    let read = |name: &str| format!("cat {}/{name}", there.display());
    assert!(!can(4001, &make("early")));
    set(&directory, ACCESS, &acl.encode(), 0).unwrap();
    set(&directory, DEFAULT, &acl.encode(), 0).unwrap();
    assert_eq!(fs::metadata(&there).unwrap().mode() & 0o7777, 0o770);
    assert_eq!(get(&there, ACCESS, 200).unwrap(), acl.encode());
    assert_eq!(get(&there, DEFAULT, 200).unwrap(), acl.encode());
    // One user may write, a group may look, nobody else may do anything.
    assert!(can(4001, &make("made")) && !can(4002, &make("refused")) && !can(4003, &make("refused")));
    assert!(can(4002, &format!("ls {}", there.display())) && !can(4003, &format!("ls {}", there.display())));
    // The default list stands for the umask.
    let made = directory.join("made");
    assert_eq!(fs::metadata(&made).unwrap().mode() & 0o7777, 0o660);
    assert_eq!(get(&made, ACCESS, 200).unwrap(), Acl { owner: 6, mask: Some(6), ..acl.clone() }.encode());
    assert!(can(4002, &read("made")) && !can(4003, &read("made")));
    // The mask is the group's part of the mode, whichever mount says so.
    fs::set_permissions(&made, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(!can(4002, &read("made")) && can(4001, &read("made")), "it is 4001's own");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
    assert!(!can(4001, &make("late")) && !can(4002, &format!("ls {}", there.display())));
    remove(&directory, ACCESS).unwrap();
    remove(&directory, DEFAULT).unwrap();
    assert_eq!(list(&there).unwrap(), "");
    // Elsewhere the umask counts.
    let [plain, _] = mounts.both("plain");
    let script = format!("umask 027; : > {}; mkdir {}.d", plain.display(), plain.display());
    assert!(can(0, &script));
    let modes =
        [plain.clone(), plain.with_extension("d")].map(|path| fs::metadata(path).unwrap().mode() & 0o7777);
    assert_eq!(modes, [0o640, 0o750]);
    assert_eq!(set(&plain, DEFAULT, &acl.encode(), 0), Err(libc::EACCES));
    // A version that nobody knows, and an entry that is cut short.
    assert_eq!(set(&plain, ACCESS, b"nonsense", 0), Err(libc::EOPNOTSUPP));
    assert_eq!(set(&plain, ACCESS, &acl.encode()[..11], 0), Err(libc::EINVAL));
}

/// Runs a program as a user who is nobody else's. What it says on its way, if it fails.
fn as_nobody(program: &Path, words: &[&str]) -> Result<(), String> {
    let mut command = Command::new(program);
    let output = command.args(words).uid(65_534).gid(65_534).current_dir("/").output();
    let output = output.map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(said) }
}

#[test]
fn programs_are_executed_by_their_x_bits_and_read_by_their_r_bits() {
    let Some(mounts) = TwoMounts::new("execute") else { return };
    // Made here, the directory is delegated to the first mount, until the second one asks.
    fs::create_dir(mounts.cluster.mnt().join("d")).unwrap();
    for (mode, reads, executes) in [(0o711, false, true), (0o111, false, true), (0o744, true, false)] {
        let path = format!("d/{mode:o}");
        let [here, there] = mounts.both(&path);
        fs::copy("/bin/true", &here).unwrap();
        fs::set_permissions(&here, fs::Permissions::from_mode(mode)).unwrap();
        for program in [here, there] {
            assert_eq!(as_nobody(&program, &[]).is_ok(), executes, "{}", program.display());
            let read = as_nobody(Path::new("/bin/cat"), &[program.to_str().expect("plain names")]);
            assert_eq!(read.is_ok(), reads, "{}", program.display());
        }
    }
}

#[test]
fn whoever_writes_to_a_file_takes_its_set_id_bits_away_and_all_mounts_see_it() {
    let Some(mounts) = TwoMounts::new("set-ids") else { return };
    fs::create_dir(mounts.cluster.mnt().join("d")).unwrap();
    let changes = [
        "echo x >> $0",
        "echo x 1<> $0",
        "truncate -s 1 $0",
        "fallocate -l 10000 $0",
        "fallocate -p -l 1 $0",
        "exec 3>> $0; echo x >&3; stat -c %a $0 | grep -qx 777",
        ": > $0",
    ];
    for (number, change) in changes.iter().enumerate() {
        for made_at in [0, 1] {
            let files = mounts.both(&format!("d/{number}-{made_at}"));
            fs::write(&files[made_at], "content").unwrap();
            fs::set_permissions(&files[made_at], fs::Permissions::from_mode(0o6777)).unwrap();
            let file = files[0].to_str().expect("plain names");
            as_nobody(Path::new("/bin/sh"), &["-ec", change, file]).unwrap();
            let modes = || files.each_ref().map(|file| fs::metadata(file).unwrap().mode() & 0o7777);
            let what = format!("after `{change}`, made at {made_at}: {:?}", modes());
            wait_for(&what, Duration::from_secs(1), || modes() == [0o777; 2]);
        }
    }
}

#[test]
fn a_removed_directory_that_is_open_is_empty_and_has_no_links() {
    let Some(mounts) = TwoMounts::new("removed") else { return };
    for (number, removed_at) in [(0, 0), (1, 1)] {
        let directories = mounts.both(&format!("d{number}"));
        fs::create_dir(&directories[0]).unwrap();
        let open = fs::File::open(&directories[0]).unwrap();
        let through = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
        assert!(directories[1].is_dir());
        fs::remove_dir(&directories[removed_at]).unwrap();
        assert_eq!(open.metadata().unwrap().nlink(), 0, "removed at {removed_at}");
        let names = fs::read_dir(&through).map(|entries| entries.flatten().count());
        assert!(matches!(&names, Ok(0)) || names.is_err_and(|error| error.kind() == io::ErrorKind::NotFound));
        let made = fs::write(through.join("x"), "").unwrap_err();
        assert_eq!(made.kind(), io::ErrorKind::NotFound, "removed at {removed_at}");
    }
}

#[test]
fn more_space_than_the_disks_have_is_not_allocated() {
    let Some(mounts) = TwoMounts::new("allocate") else { return };
    let file = fs::File::create(mounts.cluster.mnt().join("f")).unwrap();
    let allocate = |mode, length: i64| {
        // SAFETY: fallocate takes plain numbers, of an open file.
        told(unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, length) } as isize)
    };
    for mode in [0, libc::FALLOC_FL_KEEP_SIZE] {
        assert_eq!(allocate(mode, 1 << 50), Err(libc::ENOSPC));
    }
    assert_eq!(file.metadata().unwrap().len(), 0);
    allocate(0, 10_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 10_000);
}

#[test]
fn a_read_is_seen_in_the_time_of_access_unless_that_is_turned_off() {
    let Some(mounts) = TwoMounts::new("accessed") else { return };
    let files = mounts.both("f");
    fs::write(&files[0], "content").unwrap();
    let born = fs::metadata(&files[1]).unwrap();
    assert_eq!(fs::read(&files[1]).unwrap(), b"content");
    let accessed = |path: &Path| {
        let seen = fs::metadata(path).unwrap();
        (seen.atime(), seen.atime_nsec()) > (born.atime(), born.atime_nsec())
    };
    let patience = Duration::from_secs(20);
    wait_for("the mount that read shows it", patience, || accessed(&files[1]));
    wait_for("the other one shows it too", patience, || accessed(&files[0]));
    let after = fs::metadata(&files[0]).unwrap();
    assert_eq!((after.ctime(), after.ctime_nsec()), (born.ctime(), born.ctime_nsec()));
}
