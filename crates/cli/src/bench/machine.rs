//! The machine that is measured on: its cores, its load, what processes cost it, and its name in the results.

use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, mem};

/// The core of the server.
pub const SERVER_CORE: usize = 0;
/// The core of the client and of all that is not measured.
pub const CLIENT_CORE: usize = 1;

/// Runs this thread, and the threads and processes that it makes from now on, on one core only.
pub fn pin(core: usize) -> Result<()> {
    // SAFETY: a set of processors is plain bits, for which zeros are valid, and the call reads the set that
    // is passed with its size.
    let result = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, mem::size_of_val(&set), &set)
    };
    if result != 0 {
        bail!(
            "cannot run on core {core}: {}; the measurement needs two cores",
            std::io::Error::last_os_error()
        );
    }
    Ok(())
}

/// The processor time that a process has used, all its threads together.
pub fn processor_time(pid: u32) -> Result<Duration> {
    let tasks = format!("/proc/{pid}/task");
    let mut nanoseconds = 0;
    for task in fs::read_dir(&tasks).with_context(|| format!("read {tasks}"))? {
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
        nanoseconds += text.split(' ').next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// The load of the last minute.
pub fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// What identifies a run.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The day, in UTC.
    pub date: String,
    /// The commit, with a plus sign when files differ from it.
    pub commit: String,
    /// The command line.
    pub command: String,
    /// The number of cores.
    pub cores: usize,
    /// The processor.
    pub processor: String,
    /// The kernel.
    pub kernel: String,
}

impl Identity {
    /// Of this run on this machine.
    pub fn read() -> Identity {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        Identity {
            date: date(SystemTime::now()),
            commit: commit(),
            command: format!("bearing {}", arguments.join(" ")),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            processor: model.trim_start_matches([' ', '\t', ':']).to_owned(),
            kernel: kernel.trim().to_owned(),
        }
    }

    /// The lines that a file of results begins with.
    pub fn comment(&self) -> String {
        let Identity { date, commit, command, cores, processor, kernel } = self;
        format!(
            "# command: {command}\n# date: {date}\n# commit: {commit}\n# machine: {cores} cores, {processor}, Linux {kernel}\n"
        )
    }
}

/// The commit of the sources in this directory, with a plus sign when files differ from it.
pub fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output =
            Command::new("git").args(arguments).output().ok().filter(|output| output.status.success());
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    let changed = git(&["status", "--porcelain", "--untracked-files=no", "--", "crates", "Cargo.lock"]);
    if changed.is_some_and(|changed| !changed.is_empty()) { format!("{commit}+") } else { commit }
}

/// The day in UTC. From days to the civil calendar: Howard Hinnant, `civil_from_days`.
fn date(time: SystemTime) -> String {
    let days = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400) + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Removed with all that is in it when this value goes.
pub struct Removed(pub PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{} was not removed: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_named_as_the_calendar_does() {
        let day = |days: u64| date(UNIX_EPOCH + Duration::from_secs(days * 86_400 + 86_399));
        assert_eq!(day(0), "1970-01-01");
        assert_eq!(day(19_782), "2024-02-29");
        assert_eq!(day(20_454), "2026-01-01");
    }
}
