//! The processes that work at the same time, and the end of them all when the user interrupts.

use super::phase::Phase;
use crate::process::{bound_to_parent, own_program};
use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What all processes of a run are told at their start.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// Files, and directories, of each process.
    pub count: u32,
    /// Bytes of each process's big file.
    pub bytes: u64,
    /// Files in the archive.
    pub small_files: u32,
    pub small_bytes: u64,
    /// The archive.
    pub archive: PathBuf,
    /// Files in the repository that is cloned.
    pub clone_files: u32,
    /// The repository, if there is one.
    pub repository: Option<PathBuf>,
}

/// How long a phase took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Took {
    /// From the first process's start to the last one's end, with the look through the other mount.
    pub seconds: f64,
    /// Of this, what passed after the last process was done with its own work: the drain.
    pub drain: f64,
    /// When the first process started, in nanoseconds of the system's clock.
    pub began: u64,
    /// When all was seen.
    pub seen: u64,
}

/// Ends the processes that are known to it when the user interrupts.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    interrupted: bool,
    pids: Vec<u32>,
}

/// See the module.
pub struct Team {
    workers: Vec<Worker>,
    interrupt: Interrupt,
}

struct Worker {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Interrupt {
    /// From now on signals end processes, and this one only when it is done with clearing away.
    pub fn watch() -> Result<Interrupt> {
        let interrupt = Interrupt::default();
        let known = Arc::clone(&interrupt.0);
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("watch for signals")?;
        std::thread::spawn(move || {
            for _ in signals.forever() {
                let mut known = known.lock().expect("nobody panics with it");
                known.interrupted = true;
                for pid in known.pids.drain(..) {
                    // It leads a group of its own, with the program that it may have started. SAFETY: kill
                    // takes plain numbers; the process is our child and is waited for only after this list
                    // forgot it.
                    unsafe { libc::kill(-(pid as libc::pid_t), libc::SIGKILL) };
                }
            }
        });
        // What is printed into a closed pipe must not end this process before it has cleared away.
        // SAFETY: the action needs no handler.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        Ok(interrupt)
    }

    /// Fails once there was an interrupt.
    pub fn check(&self) -> Result<()> {
        if self.0.lock().expect("nobody panics with it").interrupted {
            bail!("interrupted; what was made is cleared away");
        }
        Ok(())
    }

    fn know(&self, pid: u32) {
        self.0.lock().expect("nobody panics with it").pids.push(pid);
    }

    fn forget(&self, pid: u32) {
        self.0.lock().expect("nobody panics with it").pids.retain(|known| *known != pid);
    }
}

impl Team {
    /// Starts processes, each in a directory of its own that it also sees through the other mount.
    pub fn start(
        directory: &Path,
        also: Option<&Path>,
        processes: u32,
        sizes: &Sizes,
        interrupt: &Interrupt,
    ) -> Result<Team> {
        let mut team = Team { workers: Vec::new(), interrupt: interrupt.clone() };
        for number in 0..processes {
            let name = format!("process.{number}");
            let own = directory.join(&name);
            std::fs::create_dir(&own).with_context(|| format!("make {}", own.display()))?;
            interrupt.check()?;
            let mut command = Command::new(own_program()?);
            command.args(["bench", "tree-worker", "--dir"]).arg(&own);
            if let Some(also) = also {
                command.arg("--also").arg(also.join(&name));
            }
            command.args(["--count", &sizes.count.to_string(), "--bytes", &sizes.bytes.to_string()]);
            command.args(["--small-files", &sizes.small_files.to_string()]);
            command.args(["--small-bytes", &sizes.small_bytes.to_string()]);
            command.arg("--archive").arg(&sizes.archive);
            command.args(["--clone-files", &sizes.clone_files.to_string()]);
            if let Some(repository) = &sizes.repository {
                command.arg("--repository").arg(repository);
            }
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            bound_to_parent(&mut command);
            let mut child = command.spawn().context("start a process of the benchmark")?;
            interrupt.know(child.id());
            let orders = child.stdin.take();
            let answers = BufReader::new(child.stdout.take().expect("asked for"));
            team.workers.push(Worker { child, orders, answers });
        }
        Ok(team)
    }

    /// Has all processes run a phase at the same time.
    pub fn run(&mut self, phase: Phase) -> Result<Took> {
        self.interrupt.check()?;
        for worker in &mut self.workers {
            let orders = worker.orders.as_mut().expect("open until the end");
            writeln!(orders, "{}", phase.word()).context("tell a process what to do")?;
        }
        let (mut began, mut done, mut seen) = (u64::MAX, 0, 0);
        for worker in &mut self.workers {
            let mut line = String::new();
            worker.answers.read_line(&mut line).context("hear from a process")?;
            self.interrupt.check()?;
            let times = parse(&line)?;
            (began, done, seen) = (began.min(times[0]), done.max(times[1]), seen.max(times[2]));
        }
        let seconds = |from: u64, to: u64| Duration::from_nanos(to.saturating_sub(from)).as_secs_f64();
        Ok(Took { seconds: seconds(began, seen), drain: seconds(done, seen), began, seen })
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            // At the end of its input it ends.
            worker.orders = None;
            if std::thread::panicking() {
                // It may be in the middle of a long phase; already gone is as good.
                let _ = worker.child.kill();
            }
            self.interrupt.forget(worker.child.id());
            let _ = worker.child.wait();
        }
    }
}

fn parse(line: &str) -> Result<[u64; 3]> {
    let line = line.trim();
    if let Some(text) = line.strip_prefix("failed ") {
        bail!("{text}");
    }
    let numbers = line.strip_prefix("ok ").map(|rest| rest.split(' ').map(str::parse).collect());
    match numbers {
        Some(Ok::<Vec<u64>, _>(numbers)) if numbers.len() == 3 => Ok([numbers[0], numbers[1], numbers[2]]),
        _ => bail!("a process of the benchmark ended early (it said `{line}`)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_says_is_understood_or_told() {
        assert_eq!(parse("ok 1 2 3\n").unwrap(), [1, 2, 3]);
        assert_eq!(parse("failed create: no\n").unwrap_err().to_string(), "create: no");
        assert!(parse("").unwrap_err().to_string().contains("ended early"));
        assert!(parse("ok 1 2").is_err() && parse("ok 1 2 x").is_err());
    }
}
