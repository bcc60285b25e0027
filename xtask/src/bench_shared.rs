//! `cargo xtask bench-shared`: many workers in the same directories, through one mount and through several.
//! Each makes small files, looks at them, reads, renames and removes them, in eight directories that all
//! share; beside libfuse's passthrough, in turns.
//!
//! Latencies are of whole operations as programs see them: to make a file is open, write and close.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;

use crate::bench_copies::median;
use crate::cargo::release_build;
use crate::stage::{Servers, Stage, ran, said};

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct BenchSharedArgs {
    /// The program to measure [default: a release build of this tree]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// libfuse's example `passthrough_ll`, built; without it nothing is measured beside
    #[arg(long, value_name = "FILE")]
    passthrough: Option<PathBuf>,
    /// How often each case is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// For how many seconds each time
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Workers in all, spread over the mounts
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    workers: u32,
    /// Metadata servers, each in two copies if there are two
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8))]
    metadata: u32,
    /// Where to put the raw results [default: bench/runs/DATE-shared.csv]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

const DIRECTORIES: u64 = 8;
/// Of 100 operations: makes, looks, reads, renames; the rest removes.
const MIX: [u64; 4] = [30, 30, 15, 10];
/// Of 100 renames so many go to another directory.
const CROSSING: u64 = 30;
/// With fewer files of its own a worker makes one.
const FILES_MIN: usize = 3;

/// What is measured: a filesystem by a number of mounts.
struct Subject {
    name: String,
    points: Vec<PathBuf>,
}

/// What a case took.
struct Row {
    round: u32,
    subject: String,
    operations: usize,
    seconds: f64,
    /// Sorted, in microseconds.
    latencies: Vec<u64>,
}

impl Row {
    fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds
    }

    fn at(&self, share: f64) -> u64 {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get((last as f64 * share) as usize).copied().unwrap_or(0)
    }
}

/// Runs the measurement.
pub fn run(root: &Path, args: &BenchSharedArgs) -> Result<()> {
    let program = match &args.program {
        Some(program) => program.canonicalize().with_context(|| format!("find {}", program.display()))?,
        None => release_build(root)?,
    };
    let out = match &args.out {
        Some(out) => out.clone(),
        None => root.join("bench/runs").join(format!("{}-shared.csv", said("date", &["-u", "+%F"])?)),
    };
    let stage = Stage::new(root.join("target/bench-shared"), program)?;
    let servers = Servers {
        metadata: args.metadata,
        metadata_copies: Some(args.metadata.min(2)),
        lookup: None,
        data: 1,
        data_copies: 1,
        restarted: false,
    };
    let [first, second] = stage.start(servers, "delegate")?;
    let mounts =
        [first, second, stage.mount("bearing-3", "delegate")?, stage.mount("bearing-4", "delegate")?];
    let plain = [stage.mount("plain-1", "nodelegate")?, stage.mount("plain-2", "nodelegate")?];
    let passed = args.passthrough.as_ref().map(|program| Passthrough::start(&stage, program)).transpose()?;
    let mut subjects = Vec::new();
    if let Some(passed) = &passed {
        subjects.push(Subject { name: PASSTHROUGH.to_owned(), points: vec![passed.point.clone()] });
    }
    for count in [1, 2, 4] {
        subjects.push(Subject { name: format!("bearing, {count}"), points: mounts[..count].to_vec() });
    }
    subjects.push(Subject {
        name: "one of two undelegated".into(),
        points: [&mounts[0], &plain[1]].map(Clone::clone).into(),
    });
    subjects.push(Subject { name: "undelegated, 2".into(), points: plain.to_vec() });
    let mut rows = Vec::new();
    for round in 1..=args.rounds {
        for turn in 0..subjects.len() {
            let subject = &subjects[(turn + round as usize) % subjects.len()];
            let row = measure(args, subject, round)?;
            println!("bench-shared: round {round}, {}: {:.0} op/s", subject.name, row.rate());
            rows.push(row);
        }
    }
    let table = table(&subjects, &rows);
    fs::write(&out, raw(args, &table, &rows)?).with_context(|| format!("write {}", out.display()))?;
    println!("\n{table}\nraw results: {}", out.display());
    Ok(())
}

const PASSTHROUGH: &str = "passthrough";

/// libfuse's example over a directory beside the cluster.
struct Passthrough {
    point: PathBuf,
    process: Child,
}

impl Passthrough {
    fn start(stage: &Stage, program: &Path) -> Result<Passthrough> {
        let (source, point) = (stage.make("source")?, stage.make("passed")?);
        let options = format!("source={},timeout=1", source.display());
        // It keeps a descriptor for every file that the kernel knows.
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n $(ulimit -Hn); exec \"$0\" \"$@\""]);
        command.arg(program).args(["-f", "-o", &options]).arg(&point);
        let process = command.spawn().with_context(|| format!("start {}", program.display()))?;
        let passed = Passthrough { point, process };
        let is_mounted = || {
            fs::read_to_string("/proc/self/mountinfo").is_ok_and(|table| {
                table
                    .lines()
                    .filter_map(|line| line.split(' ').nth(4))
                    .any(|point| Path::new(point) == passed.point)
            })
        };
        let begun = Instant::now();
        while !is_mounted() {
            anyhow::ensure!(
                begun.elapsed() < Duration::from_secs(10),
                "{} mounts nothing",
                program.display()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(passed)
    }
}

impl Drop for Passthrough {
    fn drop(&mut self) {
        let _ = ran(Command::new("umount").arg("-l").arg(&self.point));
        let _ = (self.process.kill(), self.process.wait());
    }
}

/// One case in directories of its own.
fn measure(args: &BenchSharedArgs, subject: &Subject, round: u32) -> Result<Row> {
    let place = format!("{}-{round}", subject.name.replace([',', ' '], "-"));
    for directory in 0..DIRECTORIES {
        let path = subject.points[0].join(&place).join(directory.to_string());
        fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
    }
    // What the kernel knows of files of earlier rounds, passthrough holds open.
    fs::write("/proc/sys/vm/drop_caches", "2").context("have the kernel forget files (root is needed)")?;
    let (begun, length) = (Instant::now(), Duration::from_secs(args.seconds));
    let worked = std::thread::scope(|scope| {
        let works: Vec<_> = (0..args.workers)
            .map(|number| {
                let point = subject.points[number as usize % subject.points.len()].join(&place);
                scope.spawn(move || Worker::new(point, number).work(begun + length))
            })
            .collect();
        let joined = works.into_iter().map(|work| work.join().expect("a worker that panics says so"));
        joined.collect::<Result<Vec<_>>>()
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let mut latencies = worked.concat();
    latencies.sort_unstable();
    Ok(Row { round, subject: subject.name.clone(), operations: latencies.len(), seconds, latencies })
}

struct Worker {
    point: PathBuf,
    number: u32,
    made: u64,
    files: Vec<PathBuf>,
    state: u64,
}

impl Worker {
    fn new(point: PathBuf, number: u32) -> Worker {
        Worker { point, number, made: 0, files: Vec::new(), state: u64::from(number) + 1 }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % below
    }

    fn new_name(&mut self, directory: u64) -> PathBuf {
        self.made += 1;
        self.point.join(directory.to_string()).join(format!("w{}-{}", self.number, self.made))
    }

    /// Works until then. Microseconds of each operation.
    fn work(mut self, end: Instant) -> Result<Vec<u64>> {
        let mut latencies = Vec::new();
        while Instant::now() < end {
            let drawn = self.draw(100);
            let begun = Instant::now();
            self.operate(drawn)
                .with_context(|| format!("worker {} in {}", self.number, self.point.display()))?;
            latencies.push(begun.elapsed().as_micros() as u64);
        }
        Ok(latencies)
    }

    fn operate(&mut self, drawn: u64) -> io::Result<()> {
        let [make, look, read, rename] = MIX;
        if drawn < make || self.files.len() < FILES_MIN {
            let directory = self.draw(DIRECTORIES);
            let path = self.new_name(directory);
            fs::File::create_new(&path)?.write_all(&[b'x'; 100])?;
            self.files.push(path);
            return Ok(());
        }
        let index = self.draw(self.files.len() as u64) as usize;
        let path = self.files[index].clone();
        if drawn < make + look {
            fs::symlink_metadata(path).map(drop)
        } else if drawn < make + look + read {
            fs::read(path).map(drop)
        } else if drawn < make + look + read + rename {
            let crosses = self.draw(100) < CROSSING;
            let elsewhere = self.draw(DIRECTORIES);
            let here = path.parent().and_then(Path::file_name).and_then(|name| name.to_str()?.parse().ok());
            let target = self.new_name(here.filter(|_| !crosses).unwrap_or(elsewhere));
            fs::rename(&path, &target)?;
            self.files[index] = target;
            Ok(())
        } else {
            fs::remove_file(path)?;
            self.files.swap_remove(index);
            Ok(())
        }
    }
}

/// Medians over the rounds; the largest latency of all.
fn table(subjects: &[Subject], rows: &[Row]) -> String {
    let mut text = format!(
        "{:<24} {:>8} {:>8} {:>9} {:>9} {:>9}\n",
        "mounts", "op/s", "p50 ms", "p99 ms", "p99.9 ms", "max ms"
    );
    for subject in subjects {
        let of = || rows.iter().filter(|row| row.subject == subject.name);
        let middle = |value: &dyn Fn(&Row) -> f64| median(of().map(value).collect());
        let at = |share: f64| middle(&|row| row.at(share) as f64 / 1e3);
        let most = of().map(|row| row.at(1.0)).max().unwrap_or(0) as f64 / 1e3;
        writeln!(
            text,
            "{:<24} {:>8.0} {:>8.2} {:>9.1} {:>9.1} {most:>9.0}",
            subject.name,
            middle(&Row::rate),
            at(0.5),
            at(0.99),
            at(0.999),
        )
        .expect("a string takes everything");
    }
    text
}

fn raw(args: &BenchSharedArgs, table: &str, rows: &[Row]) -> Result<String> {
    let mut text = format!(
        "# command: cargo xtask bench-shared --rounds {} --seconds {} --workers {} --metadata {}\n# date: {}\n\
         # commit: {}\n# machine: {} cores, Linux {}; all daemons, mounts and the benchmark share them\n\
         # {DIRECTORIES} directories; of 100 operations {MIX:?} make, look, read, rename ({CROSSING} % across), the rest remove\n",
        args.rounds,
        args.seconds,
        args.workers,
        args.metadata,
        said("date", &["-u", "+%F"])?,
        said("git", &["rev-parse", "--short", "HEAD"])?,
        said("nproc", &[])?,
        said("uname", &["-r"])?,
    );
    for line in table.lines() {
        writeln!(text, "#   {line}").expect("a string takes everything");
    }
    text += "round,mounts,operations,seconds,p50_us,p99_us,p999_us,max_us\n";
    for row in rows {
        writeln!(
            text,
            "{},\"{}\",{},{:.3},{},{},{},{}",
            row.round,
            row.subject,
            row.operations,
            row.seconds,
            row.at(0.5),
            row.at(0.99),
            row.at(0.999),
            row.at(1.0)
        )
        .expect("a string takes everything");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_leave_what_they_say_and_every_operation_is_counted() {
        let place = tempfile::tempdir().unwrap();
        for directory in 0..DIRECTORIES {
            fs::create_dir(place.path().join(directory.to_string())).unwrap();
        }
        let mut worker = Worker::new(place.path().to_owned(), 3);
        for _ in 0..2000 {
            let drawn = worker.draw(100);
            worker.operate(drawn).unwrap();
        }
        let here = |directory: u64| fs::read_dir(place.path().join(directory.to_string())).unwrap().count();
        assert_eq!((0..DIRECTORIES).map(here).sum::<usize>(), worker.files.len());
        assert!(worker.files.iter().all(|path| path.exists()) && worker.files.len() >= FILES_MIN);
    }

    #[test]
    fn percentiles_are_of_all_operations() {
        let latencies: Vec<u64> = (1..=1000).collect();
        let row = Row { round: 1, subject: "a".into(), operations: 1000, seconds: 2.0, latencies };
        assert_eq!((row.rate(), row.at(0.5), row.at(0.999), row.at(1.0)), (500.0, 500, 999, 1000));
    }
}
