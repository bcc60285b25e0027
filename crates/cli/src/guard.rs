//! A process beside each mount, for the case that the mount's own is killed.
//!
//! A killed process ends when all its threads have left the kernel. A mount's may wait there: to have the
//! kernel forget a name it needs the lock of a directory, which a program holds that waits for the mount.
//! Then neither ends, and the kernel does not notice that nobody serves the mount any more. Somebody else has
//! to say so.

use crate::mounts;
use crate::process::{Process, in_own_session, own_program, without_files};
use anyhow::{Context, Result};
use bearing_server::state::process_started;
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// `daemon guard`.
#[derive(Args, Debug)]
pub struct Guard {
    /// The mount's process
    #[arg(long)]
    pub pid: u32,
    /// When that started, in ticks since boot
    #[arg(long)]
    pub started: u64,
    /// The device of what is mounted, as in /proc/self/mountinfo
    #[arg(long)]
    pub device: String,
    /// Where it is mounted
    pub point: PathBuf,
}

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

/// Who serves a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// The mount's own process.
    pub mount: Process,
    /// Its guard.
    pub guard: Process,
}

impl Served {
    /// Waits until both have ended; says whether they did in time.
    pub fn wait_gone(self, deadline: Instant) -> bool {
        self.mount.wait_gone(deadline) && self.guard.wait_gone(deadline)
    }
}

/// Who serves what is mounted at a point, if this user may see it: the guard says it in its own command line.
pub fn of(point: &Path) -> Result<Option<Served>> {
    let Some(device) = mounts::device(point)? else { return Ok(None) };
    Ok(all().into_iter().find(|(found, _)| *found == device).map(|(_, served)| served))
}

/// All mounts of this machine that have a guard, with their devices.
pub fn all() -> Vec<(String, Served)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let guarded = |pid: u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let (device, mount) = parse_guard(&line)?;
        let guard = Process { pid, started_ticks: process_started(pid)? };
        Some((device, Served { mount, guard }))
    };
    pids.filter_map(guarded).collect()
}

/// The device and the mount's process from a guard's command line, with a NUL behind each argument.
fn parse_guard(line: &[u8]) -> Option<(String, Process)> {
    let arguments: Vec<&str> =
        line.split(|byte| *byte == 0).map(|argument| std::str::from_utf8(argument).unwrap_or("")).collect();
    let [_, "daemon", "guard", "--device", device, "--pid", pid, "--started", started, ..] = arguments[..]
    else {
        return None;
    };
    let process = Process { pid: pid.parse().ok()?, started_ticks: started.parse().ok()? };
    Some((device.to_owned(), process))
}

/// The guard: ends soon after the mount's process.
pub fn run(process: Process, device: &str, point: &Path) -> Result<()> {
    while process.is_alive() && !is_killed(process) {
        process.sleep_until_gone(LOOK);
    }
    // Another filesystem may be mounted there by now, which must not be touched.
    let is_there = || Ok::<_, anyhow::Error>(mounts::device(point)?.as_deref() == Some(device));
    if !is_there()? {
        return Ok(());
    }
    std::thread::sleep(LOOK);
    if is_there()? && (has_threads(process.pid) || is_killed(process)) {
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

/// The same of what the kernel says of it: masks of signals that wait for the thread, and for any of the
/// process.
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

    #[test]
    fn a_kill_that_waits_is_told_from_other_signals() {
        assert!(awaits_kill("Threads:\t9\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n"));
        assert!(awaits_kill("SigPnd:\t0000000000000000\nShdPnd:\t0000000000004100\nSigBlk:\t0\n"));
        assert!(!awaits_kill(
            "SigPnd:\t0000000000004000\nShdPnd:\t0000000000000000\nSigBlk:\t0000000000000100\n"
        ));
    }

    #[test]
    fn a_guard_tells_what_it_guards() {
        let line = |words: &str| words.replace(' ', "\0").into_bytes();
        let guard = line("/bin/bearing daemon guard --device 0:39 --pid 7 --started 99 /mnt ");
        let process = Process { pid: 7, started_ticks: 99 };
        assert_eq!(parse_guard(&guard), Some(("0:39".to_owned(), process)));
        assert_eq!(parse_guard(&line("/bin/bearing daemon guard ")), None);
        assert_eq!(parse_guard(&line("vi daemon guard --device 0:39 --pid x --started 99 ")), None);
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
