//! A daemon's lock and `state` file: who runs here, where, and how far it has come.
//!
//! The lock is held by the open file, so a killed daemon never leaves it behind. The state file may lie after
//! a crash; a reader checks that the process is still the one that wrote it ([`DaemonState::is_alive`]).

use crate::cluster::Daemon;
use crate::{StartError, toml_file};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::fs::{self, File, TryLockError};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// How far a daemon has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It opens its stores.
    Starting,
    /// It answers.
    Serving,
    /// It runs, but its clock is too far from those of others: it serves nobody until that is set right.
    #[serde(rename = "clock-off")]
    ClockOff,
    /// Its disk is full: it refuses what needs space, and serves what is there.
    #[serde(rename = "disk-full")]
    DiskFull,
    /// Its disk failed. A data server goes on serving what can be read, a metadata server ends.
    #[serde(rename = "disk-failed")]
    DiskFailed,
    /// It was told to stop and writes what it has.
    Stopping,
    /// It stopped in order.
    Stopped,
    /// It gave up; its log says why.
    Failed,
}

impl Phase {
    /// Whether it answers requests, be it with refusals of some.
    pub fn is_serving(self) -> bool {
        match self {
            Phase::Serving | Phase::DiskFull => true,
            Phase::Starting
            | Phase::ClockOff
            | Phase::DiskFailed
            | Phase::Stopping
            | Phase::Stopped
            | Phase::Failed => false,
        }
    }
}

/// The content of a state file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonState {
    /// The process.
    pub pid: u32,
    /// When the process started, in the kernel's ticks since boot: tells it from a later process of the same
    /// number.
    pub started_ticks: u64,
    /// What it does.
    pub kind: String,
    /// Its number among its kind.
    pub id: u32,
    /// Where it listens.
    pub address: SocketAddr,
    /// Where it shows metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
    /// How far it has come.
    pub state: Phase,
    /// By how many milliseconds its clock is ahead of the middle one of the servers that it hears.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_ahead_ms: Option<i64>,
    /// Why it failed, when it did, or what is wrong with its clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The state file's place in a daemon's directory.
pub fn state_file(directory: &Path) -> PathBuf {
    directory.join("state")
}

impl DaemonState {
    /// Reads a daemon's state; `None` when it never ran here or the file makes no sense (it is only a
    /// report).
    pub fn read(directory: &Path) -> Option<DaemonState> {
        toml_file::read(&state_file(directory)).ok()
    }

    /// Whether the process that wrote this still runs.
    pub fn is_alive(&self) -> bool {
        self.started_ticks != 0 && process_started(self.pid) == Some(self.started_ticks)
    }
}

/// When a process started, in ticks since boot; `None` when there is no such process (or only its corpse).
pub fn process_started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in brackets and may hold anything.
    let (_, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_ascii_whitespace();
    let is_corpse = matches!(fields.next()?, "Z" | "X");
    if is_corpse { None } else { fields.nth(18)?.parse().ok() }
}

/// A daemon's directory while the daemon runs.
pub struct Occupied {
    directory: PathBuf,
    daemon: Daemon,
    metrics: Cell<Option<SocketAddr>>,
    clock_ahead_ms: Cell<Option<i64>>,
    _lock: File,
}

impl Occupied {
    /// Takes the lock and writes the first state.
    pub fn take(directory: &Path, daemon: Daemon) -> Result<Occupied, StartError> {
        let path = directory.join("lock");
        let lock = File::create(&path).map_err(|error| StartError::file("create", &path, &error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = DaemonState::read(directory)
                    .map_or(String::new(), |state| format!(" (process {})", state.pid));
                let who = format!("{}{holder}", daemon.name);
                return Err(StartError::Occupied { directory: directory.to_owned(), who });
            }
            Err(TryLockError::Error(error)) => return Err(StartError::file("lock", &path, &error)),
        }
        let occupied = Occupied {
            directory: directory.to_owned(),
            daemon,
            metrics: Cell::new(None),
            clock_ahead_ms: Cell::new(None),
            _lock: lock,
        };
        occupied.enter(Phase::Starting, None)?;
        Ok(occupied)
    }

    /// Notes where metrics are shown, for the reports to come.
    pub fn note_metrics(&self, address: SocketAddr) {
        self.metrics.set(Some(address));
    }

    /// Notes how far the clock is ahead, for the reports to come.
    pub fn note_clock(&self, ahead_ms: Option<i64>) {
        self.clock_ahead_ms.set(ahead_ms);
    }

    /// Reports how far the daemon has come.
    pub fn enter(&self, state: Phase, reason: Option<String>) -> Result<(), StartError> {
        let pid = std::process::id();
        let report = DaemonState {
            pid,
            started_ticks: process_started(pid).unwrap_or(0),
            kind: self.daemon.name.kind_word().to_owned(),
            id: self.daemon.name.number,
            address: self.daemon.address,
            metrics: self.metrics.get(),
            state,
            clock_ahead_ms: self.clock_ahead_ms.get(),
            reason,
        };
        toml_file::write_report(&state_file(&self.directory), "# Written by the daemon.\n", &report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::DaemonName;

    fn daemon() -> Daemon {
        Daemon { name: DaemonName::COORDINATOR, address: ([127, 0, 0, 1], 7000).into() }
    }

    #[test]
    fn a_second_daemon_is_told_who_holds_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        let held = Occupied::take(directory.path(), daemon()).unwrap();
        let error = Occupied::take(directory.path(), daemon()).err().unwrap().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        drop(held);
        Occupied::take(directory.path(), daemon()).unwrap();
    }

    #[test]
    fn a_state_is_alive_only_with_its_own_process() {
        let directory = tempfile::tempdir().unwrap();
        let _held = Occupied::take(directory.path(), daemon()).unwrap();
        let mut state = DaemonState::read(directory.path()).unwrap();
        assert!(state.is_alive());
        state.started_ticks += 1;
        assert!(!state.is_alive());
    }
}
