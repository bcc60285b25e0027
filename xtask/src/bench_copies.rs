//! `cargo xtask bench-copies`: what copies of metadata cost. The same creates, stats and renames on clusters
//! with one, two and three copies, without delegated directories and with them, in turns.
//!
//! Counted is the processors' time of all metadata servers, so that what a copy costs wherever it lies is in
//! it. A phase ends when an fsync of its directories has said that all of it is stable; what the servers do
//! in the second after that counts as its work too. What they do all the time, with nobody asking (beacons,
//! leases, timers), is measured before each visit, told as a phase of its own, and taken off the others: it
//! does not grow with the number of operations.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::cargo::release_build;
use crate::stage::{Servers, Stage, said};

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct BenchCopiesArgs {
    /// The program to measure [default: a release build of this tree]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// How often each cluster is visited
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    repetitions: u32,
    /// Files of each thread in each phase
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    files: u32,
    /// Threads that work at the same time, each in a directory of its own
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// Where to put the raw results [default: bench/runs/DATE-copies.csv]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

const COPIES: [u32; 3] = [1, 2, 3];
const METADATA: u32 = 3;
const PLAIN: &str = "plain";
const DELEGATED: &str = "delegated";
/// Nobody asks: an operation of this phase is a second.
const IDLE: &str = "idle";
const IDLE_SECONDS: u64 = 3;
/// Until servers have done what a phase leaves them to do.
const AFTERWARDS: Duration = Duration::from_secs(1);

/// A cluster and its mounts.
struct Subject {
    copies: u32,
    /// Keeps the cluster.
    _stage: Stage,
    servers: Vec<u32>,
    plain: PathBuf,
    delegated: PathBuf,
    /// Who looks at what the others made, for the first time.
    other: PathBuf,
}

/// What a phase took.
struct Row {
    repetition: u32,
    copies: u32,
    mount: &'static str,
    phase: &'static str,
    operations: u64,
    seconds: f64,
    servers_us: f64,
    p50_us: u64,
    p99_us: u64,
}

/// Runs the measurement.
pub fn run(root: &Path, args: &BenchCopiesArgs) -> Result<()> {
    let program = match &args.program {
        Some(program) => program.canonicalize().with_context(|| format!("find {}", program.display()))?,
        None => release_build(root)?,
    };
    let out = match &args.out {
        Some(out) => out.clone(),
        None => root.join("bench/runs").join(format!("{}-copies.csv", said("date", &["-u", "+%F"])?)),
    };
    let subjects: Vec<Subject> =
        COPIES.into_iter().map(|copies| set(root, &program, copies)).collect::<Result<_>>()?;
    let mut rows = Vec::new();
    for repetition in 1..=args.repetitions {
        for turn in 0..subjects.len() {
            let subject = &subjects[(turn + repetition as usize) % subjects.len()];
            println!(
                "bench-copies: repetition {repetition} of {}, {} copies",
                args.repetitions, subject.copies
            );
            for (mount, point) in [(PLAIN, &subject.plain), (DELEGATED, &subject.delegated)] {
                visit(args, subject, (mount, point), repetition, &mut rows)?;
            }
        }
    }
    let table = table(&rows);
    std::fs::write(&out, raw(args, &table, &rows)?).with_context(|| format!("write {}", out.display()))?;
    println!("\n{table}\nraw results: {}", out.display());
    Ok(())
}

fn set(root: &Path, program: &Path, copies: u32) -> Result<Subject> {
    let directory = root.join("target/bench-copies").join(copies.to_string());
    let stage = Stage::new(directory, program.to_owned())?;
    let servers = Servers {
        metadata: METADATA,
        metadata_copies: Some(copies),
        lookup: None,
        data: 1,
        data_copies: 1,
        restarted: false,
    };
    let [plain, other] = stage.start(servers, "nodelegate")?;
    let delegated = stage.mount("delegated", "delegate")?;
    let server = |number: u32| {
        let path = stage.directory.join(format!("cluster/metadata-{number}/state"));
        let state = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let pid = state.lines().find_map(|line| line.strip_prefix("pid = "));
        pid.and_then(|pid| pid.parse().ok()).with_context(|| format!("{} has no pid", path.display()))
    };
    let servers = (1..=METADATA).map(server).collect::<Result<_>>()?;
    Ok(Subject { copies, servers, plain, delegated, other, _stage: stage })
}

/// Files are made, looked at through another mount, and renamed.
fn visit(
    args: &BenchCopiesArgs,
    subject: &Subject,
    (mount, point): (&'static str, &Path),
    repetition: u32,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let name = format!("{mount}-{repetition}");
    let place = |point: &Path, thread: u32| point.join(&name).join(thread.to_string());
    for thread in 0..args.threads {
        let directory = place(point, thread);
        std::fs::create_dir_all(&directory).with_context(|| format!("make {}", directory.display()))?;
    }
    settle(args, &|thread| place(point, thread))?;
    std::thread::sleep(AFTERWARDS);
    let (before, began) = (processors(&subject.servers)?, Instant::now());
    std::thread::sleep(Duration::from_secs(IDLE_SECONDS));
    let idle =
        processors(&subject.servers)?.saturating_sub(before).as_secs_f64() / began.elapsed().as_secs_f64();
    rows.push(Row {
        repetition,
        copies: subject.copies,
        mount,
        phase: IDLE,
        operations: IDLE_SECONDS,
        seconds: IDLE_SECONDS as f64,
        servers_us: idle * 1e6,
        p50_us: 0,
        p99_us: 0,
    });
    type Step = fn(&Path, u32) -> std::io::Result<()>;
    let phases: [(&'static str, &Path, Step); 3] = [
        ("create", point, |directory, number| {
            std::fs::File::create_new(directory.join(format!("made-{number:06}"))).map(drop)
        }),
        ("stat", &subject.other, |directory, number| {
            std::fs::symlink_metadata(directory.join(format!("made-{number:06}"))).map(drop)
        }),
        ("rename", point, |directory, number| {
            let name = |word: &str| directory.join(format!("{word}-{number:06}"));
            std::fs::rename(name("made"), name("renamed"))
        }),
    ];
    for (phase, point, step) in phases {
        let (before, began) = (processors(&subject.servers)?, Instant::now());
        let mut latencies = std::thread::scope(|scope| {
            let work = |thread: u32| {
                let directory = place(point, thread);
                move || -> Result<Vec<u64>> {
                    let timed = |number| {
                        let began = Instant::now();
                        step(&directory, number)
                            .with_context(|| format!("{phase} in {}", directory.display()))?;
                        Ok(began.elapsed().as_micros() as u64)
                    };
                    (0..args.files).map(timed).collect()
                }
            };
            let threads: Vec<_> = (0..args.threads).map(|thread| scope.spawn(work(thread))).collect();
            let ended =
                threads.into_iter().map(|thread| thread.join().expect("a thread that panics says so"));
            ended.collect::<Result<Vec<_>>>()
        })?
        .concat();
        settle(args, &|thread| place(point, thread))?;
        let seconds = began.elapsed().as_secs_f64();
        std::thread::sleep(AFTERWARDS);
        let servers = processors(&subject.servers)?.saturating_sub(before).as_secs_f64();
        let servers = (servers - idle * began.elapsed().as_secs_f64()).max(0.0);
        latencies.sort_unstable();
        let operations = latencies.len() as u64;
        let at = |percent: usize| latencies[(latencies.len() - 1) * percent / 100];
        rows.push(Row {
            repetition,
            copies: subject.copies,
            mount,
            phase,
            operations,
            seconds,
            servers_us: servers * 1e6 / operations as f64,
            p50_us: at(50),
            p99_us: at(99),
        });
    }
    Ok(())
}

/// All that was done in the directories is stable.
fn settle(args: &BenchCopiesArgs, place: &dyn Fn(u32) -> PathBuf) -> Result<()> {
    for thread in 0..args.threads {
        let directory = place(thread);
        std::fs::File::open(&directory)
            .and_then(|open| open.sync_all())
            .with_context(|| format!("sync {}", directory.display()))?;
    }
    Ok(())
}

/// For how long the processes had a processor so far.
fn processors(pids: &[u32]) -> Result<Duration> {
    let mut nanoseconds = 0;
    for pid in pids {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
            .with_context(|| format!("metadata server {pid} runs no more"))?;
        for task in tasks {
            let path = task?.path().join("schedstat");
            let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            let Some(worked) = text.split(' ').next().and_then(|field| field.parse::<u64>().ok()) else {
                bail!("{} says `{text}`", path.display());
            };
            nanoseconds += worked;
        }
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// Medians, and processor time as a ratio to one copy: the median of the ratios of each repetition.
fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<7} {:<10} {:>6} {:>10} {:>14} {:>7} {:>8} {:>8}\n",
        "phase", "mount", "copies", "op/s", "servers us/op", "ratio", "p50 us", "p99 us"
    );
    for phase in ["create", "stat", "rename", IDLE] {
        for mount in [PLAIN, DELEGATED] {
            for copies in COPIES {
                let of = |copies: u32| {
                    let is_it =
                        move |row: &&Row| (row.phase, row.mount, row.copies) == (phase, mount, copies);
                    rows.iter().filter(is_it)
                };
                let single = |repetition| of(1).find(|row| row.repetition == repetition);
                let ratio = |row: &Row| {
                    single(row.repetition).map_or(f64::NAN, |one| row.servers_us / one.servers_us)
                };
                let middle = |value: &dyn Fn(&Row) -> f64| median(of(copies).map(value).collect());
                writeln!(
                    text,
                    "{phase:<7} {mount:<10} {copies:>6} {:>10.0} {:>14.1} {:>7.2} {:>8.0} {:>8.0}",
                    middle(&|row| row.operations as f64 / row.seconds),
                    middle(&|row| row.servers_us),
                    middle(&ratio),
                    middle(&|row| row.p50_us as f64),
                    middle(&|row| row.p99_us as f64),
                )
                .expect("a string takes everything");
            }
        }
    }
    text
}

/// Of an even number the lower one.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.len().checked_sub(1).map_or(f64::NAN, |last| values[last / 2])
}

fn raw(args: &BenchCopiesArgs, table: &str, rows: &[Row]) -> Result<String> {
    let mut text = format!(
        "# command: cargo xtask bench-copies --repetitions {} --files {} --threads {}\n# date: {}\n# commit: {}\n\
         # machine: {} cores, Linux {}; all daemons, mounts and the benchmark share them\n\
         # {METADATA} metadata servers; servers_us: processor time of all of them, per operation,\n\
         # without what they use when nobody asks (phase idle: microseconds each second)\n\
         # plain: mounted with -o nodelegate; stat: through another mount, for the first time\n",
        args.repetitions,
        args.files,
        args.threads,
        said("date", &["-u", "+%F"])?,
        said("git", &["rev-parse", "--short", "HEAD"])?,
        said("nproc", &[])?,
        said("uname", &["-r"])?,
    );
    for line in table.lines() {
        writeln!(text, "#   {line}").expect("a string takes everything");
    }
    text += "repetition,copies,mount,phase,operations,seconds,servers_us,p50_us,p99_us\n";
    for Row { repetition, copies, mount, phase, operations, seconds, servers_us, p50_us, p99_us } in rows {
        writeln!(
            text,
            "{repetition},{copies},{mount},{phase},{operations},{seconds:.3},{servers_us:.2},{p50_us},{p99_us}"
        )
        .expect("a string takes everything");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_made_within_a_repetition() {
        let row = |repetition, copies, servers_us| Row {
            repetition,
            copies,
            mount: PLAIN,
            phase: "create",
            operations: 100,
            seconds: 1.0,
            servers_us,
            p50_us: 1,
            p99_us: 2,
        };
        let rows = [
            row(1, 1, 10.0),
            row(1, 3, 20.0),
            row(2, 1, 100.0),
            row(2, 3, 300.0),
            row(3, 1, 1.0),
            row(3, 3, 9.0),
        ];
        let table = table(&rows);
        let line = table.lines().find(|line| line.starts_with("create  plain           3")).unwrap();
        assert!(line.contains("   3.00 "), "the median of 2, 3 and 9: {line}");
    }
}
