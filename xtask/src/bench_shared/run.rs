//! One piece of work on one filesystem: what it took, and how results are written.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::bench_copies::median;
use crate::profile::Profiles;

/// Ticks of a process's time in a second (`getconf CLK_TCK`).
const TICKS: f64 = 100.0;

/// What is measured: a filesystem by a number of mounts.
#[derive(Clone, Debug)]
pub struct Subject {
    pub name: String,
    pub points: Vec<PathBuf>,
    /// Its processes are those whose command line has this.
    pub marker: String,
}

/// What a piece of work took.
#[derive(Debug)]
pub struct Work {
    operations: u64,
    seconds: f64,
    /// Sorted, in microseconds; none if operations were not timed one by one.
    latencies: Vec<u64>,
}

impl Work {
    /// So many operations, not timed one by one.
    pub fn new(took: Duration, operations: u64) -> Work {
        Work { operations, seconds: took.as_secs_f64(), latencies: Vec::new() }
    }

    /// Operations that were timed.
    pub fn of_latencies(took: Duration, mut latencies: Vec<u64>) -> Work {
        latencies.sort_unstable();
        Work { operations: latencies.len() as u64, seconds: took.as_secs_f64(), latencies }
    }

    fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds
    }

    fn at(&self, share: f64) -> u64 {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get((last as f64 * share) as usize).copied().unwrap_or(0)
    }
}

/// A line of results.
#[derive(Debug)]
pub struct Row {
    work: String,
    subject: String,
    round: u32,
    did: Work,
    /// Processor time of the filesystem's processes for each operation, in microseconds.
    cpu_us: f64,
}

/// All lines.
#[derive(Debug, Default)]
pub struct Rows {
    rows: Vec<Row>,
    /// Samples are taken of everything that is measured, and where that lies.
    pub profiles: Option<(Profiles, PathBuf)>,
}

impl Rows {
    /// Does a piece of work, says how fast it went, and keeps that.
    pub fn measure(
        &mut self,
        (round, work): (u32, &str),
        subject: &Subject,
        run: impl FnOnce() -> Result<Work>,
    ) -> Result<()> {
        // What kernels know of earlier work: passthrough holds it open.
        std::fs::write("/proc/sys/vm/drop_caches", "2")
            .context("have the kernel forget files (root is needed)")?;
        let before = processor_seconds(&subject.marker)?;
        let did = match &mut self.profiles {
            Some((profiles, stage)) => profiles.around(stage, (work, &subject.name), run),
            None => run(),
        };
        let did = did.with_context(|| format!("{work} on {}", subject.name))?;
        let used = processor_seconds(&subject.marker)? - before;
        let cpu_us = used * 1e6 / did.operations.max(1) as f64;
        println!(
            "bench-shared: round {round}, {work}, {}: {:.0} op/s, {:.2} s, {cpu_us:.0} us of processors each",
            subject.name,
            did.rate(),
            did.seconds
        );
        self.rows.push(Row { work: work.to_owned(), subject: subject.name.clone(), round, did, cpu_us });
        Ok(())
    }

    /// Medians over the rounds; the largest latency of all.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{:<28} {:<22} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7} {:>7}\n",
            "work", "on", "op/s", "seconds", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "CPU us"
        );
        let mut seen: Vec<(&str, &str)> = Vec::new();
        for Row { work, subject, .. } in &self.rows {
            let key = (work.as_str(), subject.as_str());
            if seen.contains(&key) {
                continue;
            }
            seen.push(key);
            let of = || self.rows.iter().filter(|row| (row.work.as_str(), row.subject.as_str()) == key);
            let middle = |value: &dyn Fn(&Row) -> f64| median(of().map(value).collect());
            let at = |share: f64| match middle(&|row| row.did.at(share) as f64 / 1e3) {
                0.0 => String::new(),
                value => format!("{value:.2}"),
            };
            let most = of().map(|row| row.did.at(1.0)).max().filter(|most| *most > 0);
            let most = most.map(|most| format!("{:.0}", most as f64 / 1e3)).unwrap_or_default();
            writeln!(
                text,
                "{work:<28} {subject:<22} {:>8.0} {:>8.2} {:>8} {:>8} {:>8} {most:>7} {:>7.0}",
                middle(&|row| row.did.rate()),
                middle(&|row| row.did.seconds),
                at(0.5),
                at(0.99),
                at(0.999),
                middle(&|row| row.cpu_us),
            )
            .expect("a string takes everything");
        }
        text
    }

    /// Every line, for programs.
    pub fn csv(&self) -> String {
        let mut text = "work,round,on,operations,seconds,p50_us,p99_us,p999_us,max_us,cpu_us\n".to_owned();
        for Row { work, subject, round, did, cpu_us } in &self.rows {
            writeln!(
                text,
                "\"{work}\",{round},\"{subject}\",{},{:.3},{},{},{},{},{cpu_us:.1}",
                did.operations,
                did.seconds,
                did.at(0.5),
                did.at(0.99),
                did.at(0.999),
                did.at(1.0)
            )
            .expect("a string takes everything");
        }
        text
    }
}

/// Processes whose command line has a text, but for this one.
fn processes(marker: &str) -> Result<Vec<PathBuf>> {
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").context("list /proc")? {
        let process = process.context("list /proc")?;
        let name = process.file_name();
        let is_process = name.to_str().is_some_and(|name| name != own && name.parse::<u32>().is_ok());
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        if is_process && String::from_utf8_lossy(&line).contains(marker) {
            found.push(process.path());
        }
    }
    Ok(found)
}

/// What processes have used of the processors.
fn processor_seconds(marker: &str) -> Result<f64> {
    let of = |process: &PathBuf| {
        let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
        // The name, in brackets, may have blanks.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
        (ticks(11) + ticks(12)) / TICKS
    };
    Ok(processes(marker)?.iter().map(of).sum())
}

/// Resident memory of processes, by what they run as: the first words of their command lines.
pub fn resident_bytes(marker: &str) -> Result<Vec<(String, u64)>> {
    let of = |process: &PathBuf| {
        let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
        let words = line.split(|byte| *byte == 0).take(3).map(|word| {
            let word = String::from_utf8_lossy(word);
            Path::new(word.as_ref()).file_name().map(|name| name.to_string_lossy().into_owned())
        });
        let status = std::fs::read_to_string(process.join("status")).unwrap_or_default();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = resident.and_then(|text| text.trim().split(' ').next()?.parse::<u64>().ok());
        (words.flatten().collect::<Vec<_>>().join(" "), kib.unwrap_or(0) << 10)
    };
    Ok(processes(marker)?.iter().map(of).collect())
}

/// Times something that is one piece of work of so many operations.
pub fn timed(operations: u64, run: impl FnOnce() -> Result<()>) -> Result<Work> {
    let begun = Instant::now();
    run()?;
    Ok(Work::new(begun.elapsed(), operations))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_all_operations() {
        let work = Work::of_latencies(Duration::from_secs(2), (1..=1000).rev().collect());
        assert_eq!((work.rate(), work.at(0.5), work.at(0.999), work.at(1.0)), (500.0, 500, 999, 1000));
    }

    #[test]
    fn a_table_has_a_line_for_each_work_and_subject_with_medians() {
        let row = |round, seconds: u64| Row {
            work: "mix".into(),
            subject: "bearing".into(),
            round,
            did: Work::new(Duration::from_secs(seconds), 100),
            cpu_us: 7.0,
        };
        let rows = Rows { rows: vec![row(1, 1), row(2, 4), row(3, 2)], profiles: None };
        let table = rows.table();
        assert_eq!(table.lines().count(), 2);
        let fields: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(fields, ["mix", "bearing", "50", "2.00", "7"]);
        assert_eq!(rows.csv().lines().count(), 4);
    }

    #[test]
    fn a_process_is_found_by_its_command_line() {
        use std::io::Read as _;
        use std::process::{Command, Stdio};
        let mut child = Command::new("sh")
            .args(["-c", "echo; read _", "a-process-to-be-found"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // It runs what it was told once it says something.
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let found = resident_bytes("a-process-to-be-found").unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(&found[..], [(name, bytes)] if name.starts_with("sh ") && *bytes > 0), "{found:?}");
    }
}
