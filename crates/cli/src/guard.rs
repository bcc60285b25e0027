//! A process beside each mount, for the case that the mount's own is killed.
//!
//! A killed process ends when all its threads have left the kernel. A mount's may wait there: to have the kernel forget a name it needs the lock of a directory, which
//! a program holds that waits for the mount. Then neither ends, and the kernel does not notice that nobody serves the mount any more. Somebody else has to say so.

use crate::mounts;
use crate::process::{Process, in_own_session, own_program, without_files};
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How often the mount's process is looked at, and how long it may take to end.
const LOOK: Duration = Duration::from_secs(1);

/// Starts the guard of what this process has just mounted.
pub fn start(point: &Path) -> Result<()> {
    let Some(device) = mounts::device(point)? else { return Ok(()) };
    let own = Process::own();
    let mut command = Command::new(own_program()?);
    command.args(["daemon", "guard", "--device", &device, "--pid", &own.pid.to_string()]);
    command.args(["--started", &own.started_ticks.to_string()]).arg(point);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit()).current_dir("/");
    in_own_session(&mut command);
    without_files(&mut command);
    command.spawn().context("start the guard of the mount")?;
    Ok(())
}

/// The guard: ends soon after the mount's process.
pub fn run(process: Process, device: &str, point: &Path) -> Result<()> {
    while process.is_alive() && !is_killed(process) {
        std::thread::sleep(LOOK);
    }
    std::thread::sleep(LOOK);
    // Another filesystem may be mounted there by now, which must not be touched.
    let is_there = mounts::device(point)?.as_deref() == Some(device);
    if is_there && (has_threads(process.pid) || is_killed(process)) {
        mounts::give_up(point)?;
        eprintln!("{}: its process was killed and could not end; the mount was given up", point.display());
    }
    Ok(())
}

/// Whether a process was sent SIGKILL and its first thread has not come to it yet.
fn is_killed(process: Process) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid));
    // A corpse that nobody has taken away yet keeps the signal that it died of.
    status.is_ok_and(|status| awaits_kill(&status)) && process.is_alive()
}

/// The same of what the kernel says of it: masks of signals that wait for the thread, and for any of the process.
fn awaits_kill(status: &str) -> bool {
    let masks =
        status.lines().filter_map(|line| line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:")));
    let mut masks = masks.filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    masks.any(|mask| mask & (1 << (libc::SIGKILL - 1)) != 0)
}

/// Whether a process that was killed has threads that are still to end.
fn has_threads(pid: u32) -> bool {
    let own = pid.to_string();
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    threads.is_ok_and(|threads| threads.flatten().any(|thread| thread.file_name() != *own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::wait_until;
    use std::time::Instant;

    #[test]
    fn a_kill_that_waits_is_told_from_other_signals() {
        assert!(awaits_kill("Threads:\t9\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n"));
        assert!(awaits_kill("SigPnd:\t0000000000000000\nShdPnd:\t0000000000004100\nSigBlk:\t0\n"));
        assert!(!awaits_kill(
            "SigPnd:\t0000000000004000\nShdPnd:\t0000000000000000\nSigBlk:\t0000000000000100\n"
        ));
    }

    #[test]
    fn a_corpse_is_neither_killed_nor_has_it_threads() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep is there");
        let started_ticks = bearing_server::state::process_started(child.id()).expect("it runs");
        let process = Process { pid: child.id(), started_ticks };
        assert!(!is_killed(process));
        child.kill().expect("it is a child");
        assert!(wait_until(Instant::now() + Duration::from_secs(20), || !process.is_alive()));
        assert!(!is_killed(process) && !has_threads(process.pid));
        child.wait().expect("it is a child");
    }

    #[test]
    fn a_process_whose_first_thread_ended_is_dead_and_still_has_threads_until_those_end() {
        let script = "import ctypes, sys, threading; threading.Thread(target=sys.stdin.read).start(); ctypes.CDLL(None).pthread_exit(None)";
        let started = Command::new("python3").args(["-c", script]).stdin(Stdio::piped()).spawn();
        let Ok(mut child) = started else {
            eprintln!("left out: python3 is not installed");
            return;
        };
        let started_ticks = bearing_server::state::process_started(child.id()).expect("it runs");
        let process = Process { pid: child.id(), started_ticks };
        let patience = Instant::now() + Duration::from_secs(20);
        assert!(wait_until(patience, || !process.is_alive()), "its first thread ends");
        assert!(has_threads(process.pid));
        drop(child.stdin.take());
        assert!(wait_until(patience, || !has_threads(process.pid)), "the other ends at the end of its input");
        child.wait().expect("it is a child");
    }
}
