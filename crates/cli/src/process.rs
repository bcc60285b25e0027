//! Other processes: whether they still are who they were, and how they are told to stop.

use anyhow::{Context, Result, bail};
use bearing_server::state::process_started;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// How often a process is looked at that is waited for.
const LOOK: Duration = Duration::from_millis(10);

/// Open files that are looked for where the kernel cannot close them all at once.
const FILES_MAX: libc::c_long = 1 << 16;

/// A process that is told from a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it started, in the kernel's ticks since boot.
    pub started_ticks: u64,
}

impl Process {
    /// This process.
    pub fn own() -> Process {
        let pid = std::process::id();
        Process { pid, started_ticks: process_started(pid).unwrap_or(0) }
    }

    /// Whether it still runs.
    pub fn is_alive(self) -> bool {
        self.started_ticks != 0 && process_started(self.pid) == Some(self.started_ticks)
    }

    /// Asks it to stop.
    pub fn terminate(self) {
        self.signal(libc::SIGTERM);
    }

    /// Ends it.
    pub fn kill(self) {
        self.signal(libc::SIGKILL);
    }

    fn signal(self, signal: libc::c_int) {
        if self.is_alive() {
            // SAFETY: kill takes plain numbers. A process that ended meanwhile is no failure.
            unsafe { libc::kill(self.pid as libc::pid_t, signal) };
        }
    }

    /// Sleeps for so long, or until it is gone.
    pub fn sleep_until_gone(self, at_most: Duration) {
        // SAFETY: pidfd_open takes plain numbers.
        let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, self.pid as libc::pid_t, 0) };
        if opened < 0 || !self.is_alive() {
            // It is gone, or a kernel before 5.3 does not know how to wait for it.
            std::thread::sleep(if self.is_alive() { at_most } else { Duration::ZERO });
            return;
        }
        // SAFETY: the call gave a new descriptor, which is nobody else's.
        let handle = unsafe { OwnedFd::from_raw_fd(opened as RawFd) };
        let mut waited = libc::pollfd { fd: handle.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which lives until the call is over.
        unsafe { libc::poll(&raw mut waited, 1, at_most.as_millis() as libc::c_int) };
    }

    /// Waits until it is gone; says whether it went before the deadline.
    pub fn wait_gone(self, deadline: Instant) -> bool {
        while self.is_alive() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        true
    }
}

/// Asks processes to stop, waits, and ends those that do not; says how many had to be ended.
pub fn stop_all(processes: &[Process], patience: Duration) -> usize {
    processes.iter().for_each(|process| process.terminate());
    let deadline = Instant::now() + patience;
    let stubborn: Vec<_> = processes.iter().filter(|process| !process.wait_gone(deadline)).collect();
    for process in &stubborn {
        process.kill();
        process.wait_gone(Instant::now() + Duration::from_secs(5));
    }
    stubborn.len()
}

/// Waits until a condition holds; `false` when it did not in time.
pub fn wait_until(deadline: Instant, mut condition: impl FnMut() -> bool) -> bool {
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(LOOK);
    }
}

/// Makes a command's process the leader of a session of its own: it outlives this terminal.
pub fn in_own_session(command: &mut Command) {
    let make_session = || {
        // SAFETY: setsid takes and changes no memory.
        let session = unsafe { libc::setsid() };
        if session < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: the closure runs between fork and exec and does nothing but one system call.
    unsafe { command.pre_exec(make_session) };
}

/// Leaves a command's process no open files but the standard ones. Whoever waits for the end of a pipe that
/// our caller has open would wait for as long as a daemon runs; and the kernel gives a mount up when nobody
/// has its channel any more.
pub fn without_files(command: &mut Command) {
    let close = || {
        // SAFETY: close_range takes plain numbers.
        let closed =
            unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int) };
        if closed != 0 {
            // Kernels before 5.11 do not know it.
            // SAFETY: fcntl and sysconf take plain numbers; what is not open is not changed.
            let files_max = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) }.clamp(3, FILES_MAX);
            for file in 3..files_max as libc::c_int {
                // SAFETY: as above.
                unsafe { libc::fcntl(file, libc::F_SETFD, libc::FD_CLOEXEC) };
            }
        }
        Ok(())
    };
    // SAFETY: the closure runs between fork and exec and does nothing but system calls.
    unsafe { command.pre_exec(close) };
}

/// Makes a command's process receive SIGTERM when this thread's process ends, however it ends; and keeps
/// ctrl-c of the terminal from it.
pub fn bound_to_parent(command: &mut Command) {
    let parent = std::process::id();
    let bind = move || {
        // SAFETY: prctl with PR_SET_PDEATHSIG and getppid take and change no memory.
        let (bound, present) =
            unsafe { (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM), libc::getppid()) };
        if bound < 0 {
            return Err(io::Error::last_os_error());
        }
        // The parent may have ended before the first call.
        if present as u32 == parent { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    command.process_group(0);
    // SAFETY: the closure runs between fork and exec and does nothing but two system calls.
    unsafe { command.pre_exec(bind) };
}

/// The program that runs now, for starting more of it.
pub fn own_program() -> Result<std::path::PathBuf> {
    let path = std::env::current_exe().context("find this program's own file")?;
    if !path.exists() {
        bail!("this program's own file {} is gone (rebuilt meanwhile?); start it again", path.display());
    }
    Ok(path)
}
