//! A cluster that is killed and started again, mounted at one point: for power cuts and live kills.
//!
//! Its processes are found by the directory that their command lines name, which is this run's own.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::stage::{mounted_below, ran};

/// How long killed processes may take to be gone.
const GONE_PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(10);

/// See the module. Its processes end with it.
pub struct Cluster {
    program: PathBuf,
    /// The cluster's directory.
    pub directory: PathBuf,
    /// Where it is mounted.
    pub point: PathBuf,
    /// Where mounts write their logs.
    logs: PathBuf,
}

/// A process of a cluster.
#[derive(Clone, Debug)]
pub struct Process {
    pid: u32,
    line: String,
}

impl Process {
    /// Whether it serves the cluster: neither a mount nor the supervisor.
    pub fn is_daemon(&self) -> bool {
        !self.is_mount() && !self.line.contains(" up ") && !self.line.contains("supervise")
    }

    /// Whether it is a metadata server.
    pub fn is_metadata(&self) -> bool {
        self.is_daemon() && self.line.contains(" daemon metadata ")
    }

    /// The server's name, by the directory of its configuration.
    pub fn name(&self) -> &str {
        let file = self.line.split_once(" --config ").map_or("", |(_, file)| file.trim());
        Path::new(file).parent().and_then(Path::file_name).and_then(OsStr::to_str).unwrap_or("")
    }

    /// Sends it a signal; if it has ended meanwhile that is as good.
    pub fn signal(&self, signal: i32) {
        // SAFETY: kill takes plain numbers.
        unsafe { libc::kill(self.pid as libc::pid_t, signal) };
    }

    /// Whether it is a mount.
    pub fn is_mount(&self) -> bool {
        self.line.contains(" mount ")
    }

    /// Whether it may have files open, and so hold locks: until its last thread is gone. Its command line is
    /// gone earlier, and so may be its first thread.
    fn holds_files(&self) -> bool {
        let Ok(threads) = fs::read_dir(format!("/proc/{}/task", self.pid)) else { return false };
        threads.flatten().any(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            let state = stat.rsplit_once(')').and_then(|(_, after)| after.split_ascii_whitespace().next());
            !matches!(state, None | Some("Z" | "X"))
        })
    }

    /// Ends processes at once. Not by another program: whoever starts one has files of the mount open, which
    /// are flushed before it runs, and that waits for servers.
    pub fn kill<'a>(processes: impl IntoIterator<Item = &'a Process>) -> Result<()> {
        processes.into_iter().for_each(|process| process.signal(libc::SIGKILL));
        Ok(())
    }
}

impl Cluster {
    /// Of this program, in this directory, mounted here.
    pub fn new(program: &Path, directory: PathBuf, point: PathBuf, logs: &Path) -> Cluster {
        Cluster { program: program.to_owned(), directory, point, logs: logs.to_owned() }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).env("XDG_STATE_HOME", &self.logs).stdout(Stdio::null());
        command
    }

    /// Makes it, or starts it again.
    pub fn up(&self) -> Result<()> {
        self.up_with(&["--metadata", "2", "--data", "2", "--data-copies", "2"])
    }

    /// The same with other flags.
    pub fn up_with(&self, flags: &[&str]) -> Result<()> {
        let mut up = self.command(&["up", "--detach"]);
        ran(up.args(flags).arg("--dir").arg(&self.directory)).context("start the cluster")
    }

    /// Starts a server again that was killed. It ends with the cluster.
    pub fn start_again(&self, process: &Process) -> Result<Child> {
        let words: Vec<&str> = process.line.split_ascii_whitespace().skip(1).collect();
        let log = self.directory.join(process.name()).join("log");
        let log = fs::OpenOptions::new().append(true).open(&log).context("open its log")?;
        let mut command = Command::new(&self.program);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).current_dir("/");
        command.spawn().with_context(|| format!("start {} again", process.name()))
    }

    /// What `bearing status --json` says.
    pub fn status(&self) -> Result<serde_json::Value> {
        let mut status = self.command(&["status", "--json", "--dir"]);
        let output = status.arg(&self.directory).stdout(Stdio::piped()).stderr(Stdio::null()).output();
        let output = output.context("start bearing status")?;
        serde_json::from_slice(&output.stdout).context("read what bearing status says")
    }

    /// Whether every tablet has as many members as a new cluster gives it, with three metadata servers or
    /// more.
    pub fn has_all_copies(&self) -> Result<bool> {
        const COPIES: usize = 3;
        let status = self.status()?;
        let tablets = tablets(&status);
        let copies = |tablet: &serde_json::Value| tablet["members"].as_array().map_or(0, Vec::len);
        Ok(!tablets.is_empty() && tablets.iter().all(|tablet| copies(tablet) >= COPIES))
    }

    /// Whether a metadata server owns, or is a member of, any tablet.
    pub fn needs(&self, server: &str) -> Result<bool> {
        let number = server.rsplit_once('-').and_then(|(_, number)| number.parse::<u64>().ok());
        let number = number.with_context(|| format!("the number of {server}"))?;
        let status = self.status()?;
        let tablets = tablets(&status);
        let has = |tablet: &serde_json::Value| {
            let members = tablet["members"].as_array().map_or(&[][..], Vec::as_slice);
            members.iter().any(|member| member.as_u64() == Some(number))
        };
        Ok(tablets.iter().any(has))
    }

    /// What metadata servers took over of others that they took for dead, by their logs.
    pub fn takeovers(&self) -> Result<Vec<String>> {
        self.logged(|line| line.contains(" is silent; claimed of it"))
    }

    /// What should be in no log, whichever servers are killed: a server that stops by itself, a mount that
    /// loses what it had said was done.
    pub fn failures(&self) -> Result<Vec<String>> {
        let lost = ["is lost", "are lost", "refused changes", "ended this mount's session"];
        self.logged(|line| {
            let warned = line.contains(" WARN ");
            line.contains(" ERROR ") || warned && lost.iter().any(|lost| line.contains(lost))
        })
    }

    /// Lines of the logs of servers and mounts.
    fn logged(&self, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<String>> {
        let files = |folder: &Path| -> Result<Vec<PathBuf>> {
            let entries = fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
            Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
        };
        let mut logs: Vec<PathBuf> =
            files(&self.directory)?.iter().map(|folder| folder.join("log")).collect();
        // Of the mount that `bearing up` makes, and of the others.
        logs.push(self.directory.join("mount.log"));
        let mounts = self.directory.join("mounts");
        if mounts.exists() {
            logs.extend(
                files(&mounts)?.into_iter().filter(|file| file.extension().is_some_and(|e| e == "log")),
            );
        }
        let mut found = Vec::new();
        for log in logs.iter().filter(|log| log.is_file()) {
            let text = fs::read_to_string(log).with_context(|| format!("read {}", log.display()))?;
            let lines = text.lines().filter(|line| is_wanted(line));
            found.extend(lines.map(|line| format!("{}: {line}", log.display())));
        }
        Ok(found)
    }

    /// Mounts it.
    pub fn mount(&self, options: &str) -> Result<()> {
        let mut mount = self.command(&["mount"]);
        mount.arg(&self.directory).arg(&self.point).args(["--options", options]);
        ran(&mut mount).context("mount the cluster")
    }

    /// Forgets the mount, whether or not anybody serves it.
    pub fn unmount(&self) -> Result<()> {
        for point in mounted_below(&self.point)? {
            ran(Command::new("umount").arg("-l").arg(&point))?;
        }
        Ok(())
    }

    /// Has everything looked at.
    pub fn check(&self) -> Result<()> {
        let output = self.command(&["check", "--dir"]).arg(&self.directory).stdout(Stdio::piped()).output();
        let output = output.context("start bearing check")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            bail!("bearing check ended with {}: {said}", output.status);
        }
        Ok(())
    }

    /// What its programs wrote last, for whoever reads of a failure.
    pub fn show_logs(&self) {
        for place in [&self.directory, &self.logs] {
            let script = "find \"$0\" -maxdepth 2 -name '*log' -type f -exec tail -v -n 15 {} +";
            let _shown = Command::new("sh").args(["-c", script]).arg(place).status();
        }
    }

    /// Ends it, and keeps its directory for whoever looks for the cause of a failure.
    pub fn keep(&self, place: &Path) -> Result<()> {
        self.kill_all()?;
        if place.exists() {
            fs::remove_dir_all(place).with_context(|| format!("remove {}", place.display()))?;
        }
        ran(Command::new("cp").arg("-a").arg(&self.directory).arg(place)).context("keep the cluster")?;
        println!("the cluster's directory is kept as {}", place.display());
        Ok(())
    }

    /// All of its processes.
    pub fn processes(&self) -> Result<Vec<Process>> {
        let ours = self.directory.display().to_string();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").context("list /proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // Processes may end while this looks.
            let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { continue };
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let is_program = line.starts_with(&self.program.display().to_string());
            if is_program && line.contains(&ours) && pid != std::process::id() {
                found.push(Process { pid, line });
            }
        }
        Ok(found)
    }

    /// Ends all of its processes, and waits until they are gone.
    pub fn kill_all(&self) -> Result<()> {
        let deadline = Instant::now() + GONE_PATIENCE;
        let mut dying: Vec<Process> = Vec::new();
        loop {
            // What a supervisor started meanwhile goes too.
            let left = self.processes()?;
            Process::kill(&left)?;
            dying.extend(left);
            dying.retain(Process::holds_files);
            if dying.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("killed, but not gone: {dying:?}");
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// The tablets of a status.
pub fn tablets(status: &serde_json::Value) -> &[serde_json::Value] {
    status["tablets"].as_array().map_or(&[], Vec::as_slice)
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let ended = self.unmount().and_then(|()| self.kill_all());
        if let Err(error) = ended {
            eprintln!("{error:#}");
        }
    }
}
