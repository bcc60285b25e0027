//! What a benchmark's time was spent on: samples of `perf`, summed up by phase, process, thread and symbol,
//! as short text to keep.
//!
//! `perf` samples all of the machine around one whole run of `bearing bench tree`, by the clock of the
//! benchmark, which says afterwards when each phase began and ended: nothing is started or waited for between
//! phases. Shares are of the time of all cores, idle time too; what waits for a disk or for another process
//! shows only as idle. What programs used that have nothing to do with it is told, and left out of the whole:
//! a busy machine changes how long things take more than who did how much of the work.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::stage::{ran, said};

/// Samples per second and core: no multiple of what a kernel does regularly.
const SAMPLES_PER_S: &str = "199";
/// How much of a thread's symbols, and of a process's calls, is told.
const SYMBOLS: usize = 8;
const CALLS: usize = 6;
/// Percent below which a process or a thread, and a symbol, is not told.
const PERCENT_MIN: f64 = 2.0;
const SYMBOL_PERCENT_MIN: f64 = 1.0;
/// How long a symbol is told; Rust's may name all their types.
const SYMBOL_CHARS: usize = 52;
const IDLE: &str = "idle";
/// What neither the benchmark nor what it measures started.
const OTHERS: &str = "other programs";

/// Profiles of all phases, as they come in.
#[derive(Debug)]
pub struct Profiles {
    directory: PathBuf,
    /// By phase, number of processes (0: of another kind of work) and what was measured.
    phases: BTreeMap<String, BTreeMap<(u32, String), Shares>>,
}

/// One phase's samples.
#[derive(Default, Debug)]
struct Shares {
    seconds: f64,
    samples: u32,
    processes: BTreeMap<String, Process>,
}

#[derive(Default, Debug)]
struct Process {
    samples: u32,
    calls: BTreeMap<String, u32>,
    threads: BTreeMap<String, Thread>,
}

#[derive(Default, Debug)]
struct Thread {
    samples: u32,
    symbols: BTreeMap<String, u32>,
}

/// When a phase was, in seconds of the clock.
#[derive(Debug, PartialEq)]
struct Span {
    phase: String,
    processes: u32,
    began: f64,
    ended: f64,
}

#[derive(Debug, PartialEq)]
struct Sample {
    thread: String,
    /// Less than nothing for what is just ending.
    pid: i32,
    tid: i32,
    at: f64,
    /// Whether the kernel was at work.
    is_kernel: bool,
    symbol: String,
    /// The system call it was in.
    call: Option<String>,
}

impl Profiles {
    /// No profiles yet; the directory is made.
    pub fn new(directory: &Path) -> Result<Profiles> {
        let perf = said("perf", &["--version"]);
        perf.context("perf is needed for profiles; install it: apt-get install linux-perf")?;
        std::fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
        Ok(Profiles { directory: directory.to_owned(), phases: BTreeMap::new() })
    }

    /// Runs a benchmark with samples being taken; `stage` is where all that is measured lies.
    pub fn run(&mut self, stage: &Path, subject: &str, bench: &mut Command) -> Result<()> {
        let (data, times) = (stage.join("perf.data"), stage.join("times"));
        bench.arg("--times").arg(&times);
        let mut perf = recorder(&data);
        perf.arg("--").arg(bench.get_program()).args(bench.get_args());
        perf.current_dir(bench.get_current_dir().unwrap_or(Path::new(".")));
        ran(&mut perf)?;
        let samples = samples_in(&data)?;
        let names = names(&samples, stage);
        let spans = std::fs::read_to_string(&times).with_context(|| format!("read {}", times.display()))?;
        self.add(subject, &spans_of(&spans)?, &samples, &names);
        Ok(())
    }

    /// Does a piece of work of this process with samples being taken, and counts all of them.
    pub fn around<T>(
        &mut self,
        stage: &Path,
        (work, subject): (&str, &str),
        run: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let data = stage.join("perf.data");
        let mut perf = recorder(&data).spawn().context("start perf")?;
        let begun = Instant::now();
        let done = run();
        let seconds = begun.elapsed().as_secs_f64();
        // It writes what it has and ends by the same signal.
        ran(Command::new("kill").args(["-INT", &perf.id().to_string()]))?;
        perf.wait().context("wait for perf")?;
        let done = done?;
        let samples = samples_in(&data)?;
        let names = names(&samples, stage);
        let shares = self.phases.entry(work.to_owned()).or_default();
        let shares = shares.entry((0, subject.to_owned())).or_default();
        shares.seconds += seconds;
        samples.iter().for_each(|sample| shares.add(sample, &names[&sample.pid]));
        Ok(done)
    }

    fn add(&mut self, subject: &str, spans: &[Span], samples: &[Sample], names: &BTreeMap<i32, String>) {
        for span in spans {
            let phase = self.phases.entry(span.phase.clone()).or_default();
            let shares = phase.entry((span.processes, subject.to_owned())).or_default();
            shares.seconds += span.ended - span.began;
            let within = samples.iter().filter(|sample| (span.began..span.ended).contains(&sample.at));
            within.for_each(|sample| shares.add(sample, &names[&sample.pid]));
        }
    }

    /// Writes a file for each phase.
    pub fn write(&self) -> Result<()> {
        for (phase, subjects) in &self.phases {
            let mut text = format!(
                "{phase}: percent of the time of all cores that other programs left, by process, thread and symbol; [k]: the kernel's\n"
            );
            for ((processes, subject), shares) in subjects {
                text += &shares.text(subject, *processes);
            }
            let path = self.directory.join(format!("{}.txt", phase.replace([' ', ',', '/'], "-")));
            std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        }
        Ok(())
    }
}

impl Shares {
    fn add(&mut self, sample: &Sample, name: &str) {
        self.samples += 1;
        let process = self.processes.entry(name.to_owned()).or_default();
        process.samples += 1;
        if let Some(call) = &sample.call {
            *process.calls.entry(call.clone()).or_default() += 1;
        }
        let thread = process.threads.entry(sample.thread.clone()).or_default();
        thread.samples += 1;
        let mut symbol: String = sample.symbol.chars().take(SYMBOL_CHARS).collect();
        if sample.is_kernel {
            symbol = format!("[k] {symbol}");
        }
        *thread.symbols.entry(symbol).or_default() += 1;
    }

    fn text(&self, subject: &str, processes: u32) -> String {
        let others = self.processes.get(OTHERS).map_or(0, |others| others.samples);
        let ours = self.samples - others;
        let share = |samples: u32| 100.0 * f64::from(samples) / f64::from(ours.max(1));
        let most = |counts: &BTreeMap<String, u32>, most: usize| {
            let largest = by_size(counts.iter().map(|(name, count)| (name, *count))).into_iter().take(most);
            let largest = largest.filter(|(_, count)| share(*count) >= SYMBOL_PERCENT_MIN);
            let words = largest.map(|(name, count)| format!("{name} {:.1}", share(count)));
            words.collect::<Vec<String>>().join(", ")
        };
        let seconds = self.seconds;
        let by = if processes > 0 { format!(", x{processes}") } else { String::new() };
        let mut text =
            format!("\n{subject}{by}: {seconds:.3} s, {ours} samples, besides {others} of {OTHERS}\n");
        let mut line = |line: String| writeln!(text, "{line}").expect("a string takes everything");
        for (name, samples) in by_size(self.processes.iter().map(|(name, process)| (name, process.samples))) {
            let process = &self.processes[name];
            if name == OTHERS || share(samples) < PERCENT_MIN {
                continue;
            }
            line(format!("  {:5.1}  {name}", share(samples)));
            if name == IDLE {
                continue;
            }
            let calls = most(&process.calls, CALLS);
            if !calls.is_empty() {
                line(format!("         calls: {calls}"));
            }
            let threads = process.threads.iter().map(|(name, thread)| (name, thread.samples));
            for (name, samples) in by_size(threads) {
                if share(samples) >= PERCENT_MIN {
                    let symbols = most(&process.threads[name].symbols, SYMBOLS);
                    line(format!("    {:5.1}  {name}: {symbols}", share(samples)));
                }
            }
        }
        text
    }
}

/// `perf`, about to sample the whole machine. The clock is that of `bearing bench tree`; no hardware's
/// counter, which stands still while a core is idle.
fn recorder(data: &Path) -> Command {
    let mut perf = Command::new("perf");
    perf.args([
        "record",
        "-q",
        "-a",
        "-g",
        "-N",
        "-e",
        "cpu-clock",
        "-F",
        SAMPLES_PER_S,
        "-k",
        "boottime",
        "-o",
    ]);
    perf.arg(data);
    perf
}

/// Takes the samples out of a file, which goes.
fn samples_in(data: &Path) -> Result<Vec<Sample>> {
    let mut script = Command::new("perf");
    script.args(["script", "--ns", "--no-inline", "-F", "comm,pid,tid,time,ip,sym", "-i"]).arg(data);
    let output = script.output().context("start perf script")?;
    if !output.status.success() {
        bail!("perf script ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    std::fs::remove_file(data).with_context(|| format!("remove {}", data.display()))?;
    parse(&String::from_utf8_lossy(&output.stdout))
}

/// The largest first.
fn by_size<'a>(counts: impl Iterator<Item = (&'a String, u32)>) -> Vec<(&'a String, u32)> {
    let mut counts: Vec<(&String, u32)> = counts.collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}

/// When phases were: lines of a phase's name, a number of processes, and nanoseconds of begin and end.
fn spans_of(text: &str) -> Result<Vec<Span>> {
    let span = |line: &str| -> Option<Span> {
        let mut words = line.split(' ');
        let (phase, processes) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
        let mut seconds = || words.next()?.parse::<u64>().ok().map(|nanoseconds| nanoseconds as f64 / 1e9);
        Some(Span { phase, processes, began: seconds()?, ended: seconds()? })
    };
    text.lines().map(|line| span(line).with_context(|| format!("`{line}` is no time of a phase"))).collect()
}

/// What `perf script` prints: for each sample a line with who and when, then its frames, the innermost first,
/// and an empty line.
fn parse(text: &str) -> Result<Vec<Sample>> {
    let samples = text.split("\n\n").filter(|part| !part.trim().is_empty());
    samples.map(|part| sample(part).with_context(|| format!("`{part}` is no sample"))).collect()
}

fn sample(text: &str) -> Option<Sample> {
    let mut lines = text.trim_start_matches('\n').lines();
    let head = lines.next()?.trim_end();
    // A thread's name may have spaces.
    let (who, at) = head.strip_suffix(':')?.rsplit_once(' ')?;
    let (thread, ids) = who.trim_end().rsplit_once(' ')?;
    let (pid, tid) = ids.split_once('/')?;
    let frames: Vec<(&str, &str)> =
        lines.map(|line| line.trim().split_once(' ').unwrap_or((line.trim(), "[unknown]"))).collect();
    let (address, symbol) = frames.first().copied().unwrap_or(("0", "[unknown]"));
    let entry = frames.iter().position(|(_, symbol)| *symbol == "do_syscall_64");
    let call = entry.and_then(|at| at.checked_sub(1)).map(|at| frames[at].1);
    // Threads that do the same have numbers.
    let thread = thread.trim().trim_end_matches(|c: char| c.is_ascii_digit());
    Some(Sample {
        thread: thread.to_owned(),
        pid: pid.parse().ok()?,
        tid: tid.parse().ok()?,
        at: at.parse().ok()?,
        is_kernel: address.len() == 16 && address.starts_with("ffff"),
        symbol: symbol.to_owned(),
        call: call.map(|call| call.trim_start_matches("__x64_sys_").to_owned()),
    })
}

/// What processes are called.
fn names(samples: &[Sample], stage: &Path) -> BTreeMap<i32, String> {
    let pids: BTreeSet<i32> = samples.iter().map(|sample| sample.pid).collect();
    let name = |pid: i32| {
        // The last: before, it was what started it.
        let last =
            |is: &dyn Fn(&&Sample) -> bool| samples.iter().rfind(is).map(|sample| sample.thread.clone());
        let main = last(&|sample| sample.pid == pid && sample.tid == pid);
        let main = main.or_else(|| last(&|sample| sample.pid == pid)).unwrap_or_default();
        // Of what has ended there is none.
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok();
        called(pid, &main, line.as_deref(), stage)
    };
    pids.into_iter().map(|pid| (pid, name(pid))).collect()
}

/// What a process is called, by the name of its first thread and the command that started it.
fn called(pid: i32, main: &str, line: Option<&[u8]>, stage: &Path) -> String {
    let words: Vec<String> = line.map_or_else(Vec::new, |line| {
        line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    });
    let stage = stage.to_string_lossy();
    let is_ours = words.iter().any(|word| word.contains(&*stage));
    let last = words.iter().rev().find(|word| !word.is_empty()).map_or("", |word| word.as_str());
    let point =
        Path::new(last).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match words.get(1).map(String::as_str) {
        _ if pid == 0 => IDLE.to_owned(),
        Some("daemon") if is_ours => format!("{} server", words[2]),
        Some("mount") if is_ours => format!("mount {point}"),
        _ if is_ours && words[0].contains("passthrough") => format!("passthrough {point}"),
        _ if line.is_some_and(<[u8]>::is_empty) => "kernel's threads".to_owned(),
        _ if ["bearing", "xtask"].contains(&main) => "the benchmark".to_owned(),
        _ if main.starts_with("mfs") => main.to_owned(),
        _ if ["tar", "rm", "find", "perf"].contains(&main) || main.starts_with("git") => main.to_owned(),
        _ => OTHERS.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "fuser-6  3910/3923  12078.626058870: \n\
        \tffffffff822010c9 _raw_spin_unlock_irqrestore\n\tffffffff816b81fa do_writev\n\tffffffff821ed511 do_syscall_64\n\
        \t           fde9d __GI___writev\n\n\
        opt 67vcpk  9999/10203 12078.7: \n\t  881898a llvm::Manager<llvm::Function>::getResultImpl\n\n\
        swapper     0/0     12079.5: \n\tffffffff822010c9 pv_native_safe_halt\n\n";

    #[test]
    fn samples_are_read_with_the_system_call_they_were_in() {
        let samples = parse(SCRIPT).unwrap();
        let told: Vec<_> = samples.iter().map(|s| (s.thread.as_str(), s.pid, s.tid, s.is_kernel)).collect();
        assert_eq!(
            told,
            [("fuser-", 3910, 3923, true), ("opt 67vcpk", 9999, 10203, false), ("swapper", 0, 0, true)]
        );
        assert_eq!(samples[0].call.as_deref(), Some("do_writev"));
        assert_eq!(
            (samples[1].call.as_deref(), samples[1].symbol.as_str()),
            (None, "llvm::Manager<llvm::Function>::getResultImpl")
        );
        let ending = parse(":-1 23985/-1    13158.617045538: \n\tffffffff8135dd26 do_exit\n").unwrap();
        assert_eq!((ending[0].pid, ending[0].tid), (23985, -1));
        assert!(parse("nonsense").is_err());
    }

    #[test]
    fn shares_are_of_the_samples_within_a_phase_and_idle_counts() {
        let samples = parse(SCRIPT).unwrap();
        let names = [(3910, "mount a"), (9999, OTHERS), (0, IDLE)].map(|(pid, name)| (pid, name.to_owned()));
        let mut profiles = Profiles { directory: PathBuf::new(), phases: BTreeMap::new() };
        let spans =
            spans_of("create 1 12078000000000 12078650000000\nstat 1 12078650000000 12080000000000\n")
                .unwrap();
        profiles.add("bearing", &spans, &samples, &names.into());
        let text = |phase: &str| profiles.phases[phase][&(1, "bearing".to_owned())].text("bearing", 1);
        let create = text("create");
        assert!(create.contains("100.0  mount a\n         calls: do_writev 100.0\n"), "{create}");
        assert!(create.contains("100.0  fuser-: [k] _raw_spin_unlock_irqrestore 100.0"), "{create}");
        let stat = text("stat");
        assert!(
            stat.contains("1.350 s, 1 samples, besides 1 of other programs") && stat.contains("100.0  idle"),
            "{stat}"
        );
        assert!(spans_of("create 1 2").is_err());
    }

    #[test]
    fn processes_are_called_by_what_they_do() {
        let name = |main, line: Option<&str>| called(7, main, line.map(str::as_bytes), Path::new("/x/stage"));
        assert_eq!(
            name("bearing", Some("/b\0daemon\0metadata\0--config\0/x/stage/c.toml\0")),
            "metadata server"
        );
        assert_eq!(
            name("fuser-", Some("/b\0mount\0--foreground\0/x/stage/cluster\0/x/stage/bearing-1\0")),
            "mount bearing-1"
        );
        assert_eq!(
            name("passthrough_ll", Some("/x/stage/passthrough_ll\0-o\0source=/x\0/x/stage/passthrough-2\0")),
            "passthrough passthrough-2"
        );
        assert_eq!(name("bearing", None), "the benchmark");
        assert_eq!(name("kworker/", Some("")), "kernel's threads");
        assert_eq!(name("rustc", Some("rustc\0x.rs\0")), OTHERS);
    }
}
