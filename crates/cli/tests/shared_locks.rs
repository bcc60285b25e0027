//! flock(2) and fcntl(2) locks on two mounts of one cluster.
//!
//! These tests need root and /dev/fuse; without them they say so and pass.

mod common;

use common::{TestCluster, bearing, can_mount};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// Times that each of several lockers adds one.
const ADDS: u64 = 40;

struct Mounts {
    cluster: TestCluster,
    second: PathBuf,
}

impl Mounts {
    fn new(name: &str) -> Option<Mounts> {
        if !can_mount() {
            return None;
        }
        let cluster = TestCluster::mounted(name);
        let second = cluster.mount_again();
        Some(Mounts { cluster, second })
    }

    /// A file under both mounts, open for reading and writing.
    fn both(&self, name: &str) -> [File; 2] {
        let first = self.cluster.mnt().join(name);
        if !first.exists() {
            fs::write(&first, 0u64.to_le_bytes()).unwrap();
        }
        [open(&first), open(&self.second.join(name))]
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        bearing(&["umount", self.second.to_str().expect("plain names")]);
    }
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn told(result: i32) -> Result<(), i32> {
    match result {
        -1 => Err(io::Error::last_os_error().raw_os_error().expect("a call failed")),
        _ => Ok(()),
    }
}

fn whole(file: &File, operation: i32) -> Result<(), i32> {
    // SAFETY: the descriptor is open as long as the file lives.
    told(unsafe { libc::flock(file.as_raw_fd(), operation) })
}

fn wish(kind: i32, start: i64, length: i64) -> libc::flock {
    // SAFETY: all bytes zero are a lock.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence) = (kind as i16, libc::SEEK_SET as i16);
    (lock.l_start, lock.l_len) = (start, length);
    lock
}

/// A lock of fcntl(2); a length of 0 is to the end.
fn range(file: &File, command: i32, kind: i32, start: i64, length: i64) -> Result<(), i32> {
    let lock = wish(kind, start, length);
    // SAFETY: the descriptor is open and the lock lives until the call is over.
    told(unsafe { libc::fcntl(file.as_raw_fd(), command, &lock) })
}

fn in_the_way(file: &File, kind: i32, start: i64, length: i64) -> libc::flock {
    let mut lock = wish(kind, start, length);
    // SAFETY: as above.
    told(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &mut lock) }).unwrap();
    lock
}

#[test]
fn a_lock_through_one_mount_stands_in_the_way_of_the_other() {
    let Some(mounts) = Mounts::new("locks") else { return };
    let [a, b] = mounts.both("f");
    whole(&a, libc::LOCK_EX).unwrap();
    for kind in [libc::LOCK_EX, libc::LOCK_SH] {
        assert_eq!(whole(&b, kind | libc::LOCK_NB), Err(libc::EWOULDBLOCK));
    }
    // The two kinds do not see each other, as on Linux's own filesystems.
    range(&b, libc::F_SETLK, libc::F_WRLCK, 0, 0).unwrap();
    range(&b, libc::F_SETLK, libc::F_UNLCK, 0, 0).unwrap();
    whole(&a, libc::LOCK_SH).unwrap();
    whole(&b, libc::LOCK_SH | libc::LOCK_NB).unwrap();
    assert_eq!(whole(&b, libc::LOCK_EX | libc::LOCK_NB), Err(libc::EWOULDBLOCK));
    whole(&a, libc::LOCK_UN).unwrap();
    whole(&b, libc::LOCK_EX | libc::LOCK_NB).unwrap();
    drop(b);
    // close(2) does not wait until the lock is given back.
    whole(&a, libc::LOCK_EX).unwrap();
}

#[test]
fn ranges_are_locked_told_of_and_given_back_with_the_first_close() {
    let Some(mounts) = Mounts::new("ranges") else { return };
    let [a, b] = mounts.both("f");
    range(&a, libc::F_SETLK, libc::F_WRLCK, 10, 10).unwrap();
    range(&b, libc::F_SETLK, libc::F_WRLCK, 20, 5).unwrap();
    assert_eq!(range(&b, libc::F_SETLK, libc::F_RDLCK, 0, 11), Err(libc::EAGAIN));
    range(&b, libc::F_SETLK, libc::F_RDLCK, 0, 10).unwrap();
    let found = in_the_way(&b, libc::F_RDLCK, 0, 0);
    assert_eq!((i32::from(found.l_type), found.l_start, found.l_len), (libc::F_WRLCK, 10, 10));
    assert_eq!(found.l_pid, 0, "numbers of processes of other mounts say nothing");
    assert_eq!(i32::from(in_the_way(&b, libc::F_WRLCK, 30, 0).l_type), libc::F_UNLCK);
    // The middle of a lock is given back.
    range(&a, libc::F_SETLK, libc::F_UNLCK, 12, 3).unwrap();
    range(&b, libc::F_SETLK, libc::F_WRLCK, 12, 3).unwrap();
    assert_eq!(range(&b, libc::F_SETLK, libc::F_WRLCK, 15, 1), Err(libc::EAGAIN));
    // As POSIX has it: closing any descriptor of the file gives everything back.
    drop(open(&mounts.cluster.mnt().join("f")));
    range(&b, libc::F_SETLK, libc::F_WRLCK, 15, 1).unwrap();
}

#[test]
fn what_was_opened_for_reading_before_there_were_locks_gives_them_back_with_the_first_close_too() {
    let Some(mounts) = Mounts::new("early") else { return };
    let [_, b] = mounts.both("f");
    let reader = File::open(mounts.cluster.mnt().join("f")).unwrap();
    let again = reader.try_clone().unwrap();
    range(&reader, libc::F_SETLK, libc::F_RDLCK, 0, 10).unwrap();
    assert_eq!(range(&b, libc::F_SETLK, libc::F_WRLCK, 0, 10), Err(libc::EAGAIN));
    drop(again);
    range(&b, libc::F_SETLK, libc::F_WRLCK, 0, 10).unwrap();
}

fn add(file: &File) {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, 0).unwrap();
    file.write_all_at(&(u64::from_le_bytes(bytes) + 1).to_le_bytes(), 0).unwrap();
}

#[test]
fn what_is_written_under_a_lock_is_read_under_the_next_one() {
    let Some(mounts) = Mounts::new("counter") else { return };
    // Two through each mount with flock, then one through each with fcntl, which knows only one owner in a
    // process.
    let files = [mounts.both("f"), mounts.both("f")].concat_files();
    std::thread::scope(|scope| {
        for file in &files {
            scope.spawn(move || {
                for _ in 0..ADDS {
                    whole(file, libc::LOCK_EX).unwrap();
                    add(file);
                    whole(file, libc::LOCK_UN).unwrap();
                }
            });
        }
    });
    drop(files);
    let files = mounts.both("f");
    std::thread::scope(|scope| {
        for file in &files {
            scope.spawn(move || {
                for _ in 0..ADDS {
                    range(file, libc::F_SETLKW, libc::F_WRLCK, 0, 8).unwrap();
                    add(file);
                    range(file, libc::F_SETLKW, libc::F_UNLCK, 0, 8).unwrap();
                }
            });
        }
    });
    let counted = fs::read(mounts.second.join("f")).unwrap();
    assert_eq!(counted, (6 * ADDS).to_le_bytes());
}

trait Concat {
    fn concat_files(self) -> Vec<File>;
}

impl Concat for [[File; 2]; 2] {
    fn concat_files(self) -> Vec<File> {
        self.into_iter().flatten().collect()
    }
}

extern "C" fn nothing(_signal: i32) {}

/// In a child: waits for a lock with an alarm set, and ends with the error number that the wait came to.
fn wait_with_alarm(file: &File, command: Option<i32>) -> i32 {
    let (descriptor, lock) = (file.as_raw_fd(), wish(libc::F_WRLCK, 0, 0));
    // SAFETY: between fork and _exit the child calls only what may be called there; all structures live on
    // its stack.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
            libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut());
            let mut timer: libc::itimerval = std::mem::zeroed();
            timer.it_value.tv_usec = 200_000;
            // A child that gets no processor for so long would begin to wait after the only signal.
            timer.it_interval.tv_usec = 50_000;
            libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut());
            let result = match command {
                Some(command) => libc::fcntl(descriptor, command, &lock),
                None => libc::flock(descriptor, libc::LOCK_EX),
            };
            libc::_exit(if result == 0 { 0 } else { *libc::__errno_location() });
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        libc::WEXITSTATUS(status)
    }
}

#[test]
fn a_signal_ends_a_wait_and_the_wait_leaves_nothing_behind() {
    let Some(mounts) = Mounts::new("signals") else { return };
    let [a, b] = mounts.both("f");
    range(&a, libc::F_SETLK, libc::F_WRLCK, 0, 0).unwrap();
    assert_eq!(wait_with_alarm(&b, Some(libc::F_SETLKW)), libc::EINTR);
    range(&a, libc::F_SETLK, libc::F_UNLCK, 0, 0).unwrap();
    range(&a, libc::F_SETLK, libc::F_WRLCK, 0, 0).unwrap();
    whole(&a, libc::LOCK_EX).unwrap();
    assert_eq!(wait_with_alarm(&b, None), libc::EINTR);
    whole(&a, libc::LOCK_UN).unwrap();
    whole(&b, libc::LOCK_EX | libc::LOCK_NB).unwrap();
    assert_eq!(wait_with_alarm(&a, None), libc::EINTR);
}

#[test]
fn a_lock_got_after_another_close_of_its_process_goes_with_the_next_one() {
    let Some(mounts) = Mounts::new("waited") else { return };
    let [a, b] = mounts.both("f");
    range(&a, libc::F_SETLK, libc::F_WRLCK, 0, 0).unwrap();
    let (begin, begun) = mpsc::channel();
    let waits = std::thread::spawn(move || {
        // SAFETY: it has no preconditions.
        begin.send(unsafe { libc::gettid() }).unwrap();
        range(&b, libc::F_SETLKW, libc::F_WRLCK, 0, 0).unwrap();
        b
    });
    let state = format!("/proc/self/task/{}/syscall", begun.recv().unwrap());
    while !fs::read_to_string(&state).unwrap().starts_with(&format!("{} ", libc::SYS_fcntl)) {
        std::thread::yield_now();
    }
    // The mount asks for the lock before it lets anybody wait: until then a close may come too early.
    for _ in 0..20 {
        drop(open(&mounts.second.join("f")));
    }
    range(&a, libc::F_SETLK, libc::F_UNLCK, 0, 0).unwrap();
    drop(waits.join().unwrap());
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(range(&a, libc::F_SETLKW, libc::F_WRLCK, 0, 0)));
    assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok(Ok(())), "nobody gave it back");
}

#[test]
fn two_that_wait_for_each_other_are_told_so() {
    let Some(mounts) = Mounts::new("deadlock") else { return };
    let [a, b] = mounts.both("f");
    range(&a, libc::F_SETLK, libc::F_WRLCK, 0, 1).unwrap();
    range(&b, libc::F_SETLK, libc::F_WRLCK, 1, 1).unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let result = range(&a, libc::F_SETLKW, libc::F_WRLCK, 1, 1);
            // Whoever is told lets the other go on.
            range(&a, libc::F_SETLK, libc::F_UNLCK, 0, 1).unwrap();
            result
        });
        let second = range(&b, libc::F_SETLKW, libc::F_WRLCK, 0, 1);
        range(&b, libc::F_SETLK, libc::F_UNLCK, 1, 1).unwrap();
        let both = [first.join().unwrap(), second];
        assert!(both.contains(&Ok(())) && both.contains(&Err(libc::EDEADLK)), "{both:?}");
    });
}

#[test]
fn a_lock_outlives_the_metadata_servers() {
    let Some(mounts) = Mounts::new("restart") else { return };
    let [a, b] = mounts.both("f");
    whole(&a, libc::LOCK_EX).unwrap();
    common::kill(mounts.cluster.daemons());
    common::wait_for("the daemons are back", std::time::Duration::from_secs(30), || mounts.cluster.serves());
    assert_eq!(whole(&b, libc::LOCK_EX | libc::LOCK_NB), Err(libc::EWOULDBLOCK));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| whole(&b, libc::LOCK_EX));
        whole(&a, libc::LOCK_UN).unwrap();
        waiting.join().unwrap().unwrap();
    });
}
