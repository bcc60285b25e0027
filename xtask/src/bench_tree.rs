//! `cargo xtask bench-tree`: `bearing bench tree` on a local disk, on libfuse's `passthrough_ll` over that
//! disk, and on Bearing over that disk, in turns.
//!
//! A ratio is only worth something if both sides met the same machine at the same time: so each repetition
//! visits all three, and the next begins with another. Passthrough and Bearing, without delegated directories
//! and with them, are mounted twice, and the drain counts. The example is built from Debian's `libfuse3-dev`.
//! Everything lies under `target/bench-tree`; what a run that was cut short left there is cleared away by the
//! next. With `--profile` perf samples the CPUs meanwhile: what a phase's time was spent on is written beside
//! its ratio (see the module profile).

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::beside::passthrough;
use crate::profile::Profiles;
use crate::stage::{Servers, Stage, ran, said};

/// What ratios are made to.
const CEILING: &str = "passthrough";
/// Bearing without delegated directories, and with them: two mounts each of one cluster, each pair in a
/// directory of its own.
const PLAIN: &str = "bearing";
const DELEGATED: &str = "bearing-delegated";

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct BenchTreeArgs {
    /// The program to measure [default: a release build of this tree]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// How often each filesystem is visited
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    repetitions: u32,
    /// Where to put the raw results [default: bench/runs/DATE-tree.csv]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Metadata servers
    #[arg(long, default_value_t = 1)]
    metadata: u32,
    /// Data servers
    #[arg(long, default_value_t = 1)]
    data: u32,
    /// Copies of data
    #[arg(long, default_value_t = 1)]
    data_copies: u32,
    /// A further filesystem, mounted already, perhaps twice:
    /// NAME=EMPTY-DIRECTORY[=THE-SAME-THROUGH-ANOTHER-MOUNT]
    #[arg(long, value_name = "NAME=PATH[=PATH2]", value_parser = beside)]
    beside: Vec<Subject>,
    /// Sample the CPUs with perf meanwhile, and write here what the time of each phase was spent on (needs
    /// root)
    #[arg(long, value_name = "DIR")]
    profile: Option<PathBuf>,
    /// Handed on to `bearing bench tree`, such as: -- --files 1000 --only files
    #[arg(last = true)]
    more: Vec<String>,
}

/// One filesystem to measure on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Subject {
    name: String,
    path: PathBuf,
    also: Option<PathBuf>,
}

/// One line of raw results.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    phase: String,
    processes: u32,
    subject: String,
    seconds: f64,
    /// All fields but the repetition.
    fields: Vec<String>,
}

/// Runs the measurement.
pub fn run(root: &Path, args: &BenchTreeArgs) -> Result<()> {
    let program = match &args.program {
        Some(program) => program.canonicalize().with_context(|| format!("find {}", program.display()))?,
        None => crate::cargo::release_build(root)?,
    };
    let stage = Stage::new(root.join("target/bench-tree"), program)?;
    let mut subjects = set(&stage, args)?;
    subjects.extend(args.beside.iter().cloned());
    let out = match &args.out {
        Some(out) => out.clone(),
        None => root.join("bench/runs").join(format!("{}-tree.csv", said("date", &["-u", "+%F"])?)),
    };
    let mut profiles = args.profile.as_deref().map(Profiles::new).transpose()?;
    let (mut head, mut rows) = (String::new(), Vec::new());
    for repetition in 1..=args.repetitions {
        for turn in 0..subjects.len() {
            let subject = &subjects[(turn + repetition as usize) % subjects.len()];
            println!("bench-tree: repetition {repetition} of {}: {}", args.repetitions, subject.name);
            let text = measure(&stage, root, subject, args, profiles.as_mut())?;
            if head.is_empty() {
                head = heading(&text, args);
            }
            // A run that is cut short keeps what it has.
            profiles.iter().try_for_each(Profiles::write)?;
            rows.extend(parse(&text)?.into_iter().map(|row| (repetition, row)));
        }
    }
    let measured: Vec<Row> = rows.iter().map(|(_, row)| row.clone()).collect();
    let ratios = ratios(&measured);
    std::fs::write(&out, raw(&head, &ratios, &rows)).with_context(|| format!("write {}", out.display()))?;
    println!("\n{ratios}\nraw results: {}", out.display());
    if let Some(directory) = &args.profile {
        println!("profiles: {}", directory.display());
    }
    Ok(())
}

/// Builds and mounts what is measured on.
fn set(stage: &Stage, args: &BenchTreeArgs) -> Result<Vec<Subject>> {
    let local = stage.make("local")?;
    let points = passthrough(stage)?;
    let (metadata, data, data_copies) = (args.metadata, args.data, args.data_copies);
    let servers =
        Servers { metadata, metadata_copies: None, lookup: None, data, data_copies, restarted: true };
    let plain = stage.start(servers, "nodelegate")?;
    let delegated = [stage.mount("delegated-1", "delegate")?, stage.mount("delegated-2", "delegate")?];
    for name in [PLAIN, DELEGATED] {
        std::fs::create_dir(plain[0].join(name)).with_context(|| format!("make {name} in the cluster"))?;
    }
    let in_own = |points: [PathBuf; 2], name: &str| points.map(|point| point.join(name));
    let twice =
        |name: &str, [path, also]: [PathBuf; 2]| Subject { name: name.to_owned(), path, also: Some(also) };
    Ok(vec![
        Subject { name: "local".to_owned(), path: local, also: None },
        twice(CEILING, points),
        twice(PLAIN, in_own(plain, PLAIN)),
        twice(DELEGATED, in_own(delegated, DELEGATED)),
    ])
}

fn measure(
    stage: &Stage,
    root: &Path,
    subject: &Subject,
    args: &BenchTreeArgs,
    profiles: Option<&mut Profiles>,
) -> Result<String> {
    let csv = stage.directory.join("one.csv");
    let mut bench = Command::new(&stage.program);
    bench.args(["bench", "tree"]).arg(&subject.path).current_dir(root);
    if let Some(also) = &subject.also {
        bench.arg("--also").arg(also);
    }
    bench.args(["--repetitions", "1", "--name", &subject.name]).arg("--csv").arg(&csv).args(&args.more);
    match profiles {
        Some(profiles) => profiles.run(&stage.directory, &subject.name, &mut bench)?,
        None => ran(&mut bench)?,
    }
    std::fs::read_to_string(&csv).with_context(|| format!("read {}", csv.display()))
}

/// What `--beside` says.
fn beside(text: &str) -> std::result::Result<Subject, String> {
    let fields: Vec<&str> = text.split('=').collect();
    let subject = |name: &str, path: &str, also: Option<&str>| Subject {
        name: name.to_owned(),
        path: PathBuf::from(path),
        also: also.map(PathBuf::from),
    };
    match fields[..] {
        [name, path] if !name.contains(',') => Ok(subject(name, path, None)),
        [name, path, also] if !name.contains(',') => Ok(subject(name, path, Some(also))),
        _ => Err("write it like moosefs=/mnt/a/empty=/mnt/b/empty".to_owned()),
    }
}

/// The comments that hold for all of the run, from those of its first part.
fn heading(text: &str, args: &BenchTreeArgs) -> String {
    let mut head = format!(
        "# command: cargo xtask bench-tree --repetitions {} --metadata {} --data {} --data-copies {}{}{} --{}\n",
        args.repetitions,
        args.metadata,
        args.data,
        args.data_copies,
        args.beside.iter().map(|subject| format!(" --beside {}=..", subject.name)).collect::<String>(),
        if args.profile.is_some() { " --profile .." } else { "" },
        args.more.iter().map(|word| format!(" {word}")).collect::<String>()
    );
    let kept = ["# date", "# commit", "# machine", "# caches", "# sizes"];
    for line in text.lines().filter(|line| kept.iter().any(|kept| line.starts_with(kept))) {
        writeln!(head, "{line}").expect("a string takes everything");
    }
    head += "# subjects: local: the disk itself (no second mount, so no drain); passthrough: libfuse's passthrough_ll, timeout=1, over that disk; \
             bearing: all daemons and the mounts on this machine, over that disk, without delegation; bearing-delegated: the same cluster, mounted with -o delegate; \
             each repetition begins with another\n\
             # drain: passthrough and bearing are mounted twice; a phase that changes something ends when all of it is seen through the second mount\n";
    head
}

fn parse(text: &str) -> Result<Vec<Row>> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let columns: Vec<&str> = lines.next().context("there are no results")?.split(',').collect();
    let at = |name: &str| {
        columns
            .iter()
            .position(|column| *column == name)
            .with_context(|| format!("there is no column {name}"))
    };
    let (phase, processes, subject, seconds) =
        (at("phase")?, at("processes")?, at("subject")?, at("seconds")?);
    let row = |line: &str| -> Result<Row> {
        let fields: Vec<String> = line.split(',').map(str::to_owned).collect();
        if fields.len() != columns.len() {
            bail!("`{line}` has not the columns of the head");
        }
        Ok(Row {
            phase: fields[phase].clone(),
            processes: fields[processes].parse().context("a number of processes")?,
            subject: fields[subject].clone(),
            seconds: fields[seconds].parse().context("seconds")?,
            fields,
        })
    };
    lines.map(row).collect()
}

/// For each phase the median times, and the speed as a ratio to passthrough (time of passthrough over time of
/// the subject).
fn ratios(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut keys: Vec<(&str, u32)> = Vec::new();
    for row in rows {
        let key = (row.phase.as_str(), row.processes);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let mut subjects: Vec<&str> = rows.iter().map(|row| row.subject.as_str()).collect();
    subjects.sort_unstable();
    subjects.dedup();
    subjects.retain(|subject| *subject != CEILING);
    for (phase, processes) in keys {
        let median = |subject: &str| {
            let mut seconds: Vec<f64> = rows
                .iter()
                .filter(|row| {
                    (row.phase.as_str(), row.processes, row.subject.as_str()) == (phase, processes, subject)
                })
                .map(|row| row.seconds)
                .collect();
            seconds.sort_by(f64::total_cmp);
            seconds.get(seconds.len().checked_sub(1)? / 2).copied()
        };
        let Some(ceiling) = median(CEILING) else { continue };
        write!(text, "{phase:<14} x{processes}: {CEILING} {ceiling:.3} s")
            .expect("a string takes everything");
        for subject in &subjects {
            if let Some(seconds) = median(subject) {
                write!(text, ", {subject} {seconds:.3} s = {:.2}", ceiling / seconds)
                    .expect("a string takes everything");
            }
        }
        text.push('\n');
    }
    text
}

fn raw(head: &str, ratios: &str, rows: &[(u32, Row)]) -> String {
    let mut text = head.to_owned();
    text += "# medians, and speed as a ratio to passthrough:\n";
    for line in ratios.lines() {
        writeln!(text, "#   {line}").expect("a string takes everything");
    }
    text += "phase,processes,repetition,subject,operations,unit,seconds,drain_seconds,per_s,load\n";
    for (repetition, row) in rows {
        let mut fields = row.fields.clone();
        fields[2] = repetition.to_string();
        writeln!(text, "{}", fields.join(",")).expect("a string takes everything");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# date: 2026-01-01\n\
        phase,processes,repetition,subject,operations,unit,seconds,drain_seconds,per_s,load\n\
        create,1,1,passthrough,100,operations,1.0000,0.1000,100.0,1.0\n";

    #[test]
    fn raw_results_are_read_and_a_line_that_is_not_whole_is_refused() {
        let rows = parse(TEXT).unwrap();
        assert_eq!((rows.len(), rows[0].phase.as_str(), rows[0].processes), (1, "create", 1));
        assert!(parse(&format!("{TEXT}create,1\n")).is_err());
        assert!(parse("# nothing\n").is_err());
    }

    #[test]
    fn ratios_are_of_medians_and_more_is_faster() {
        let mut rows = parse(TEXT).unwrap();
        for (subject, seconds) in [("bearing", 9.0), ("bearing", 2.0), ("bearing", 1.5)] {
            rows.push(Row { subject: subject.to_owned(), seconds, ..rows[0].clone() });
        }
        let text = ratios(&rows);
        assert!(text.contains("bearing 2.000 s = 0.50"), "{text}");
    }

    #[test]
    fn a_further_filesystem_has_a_name_a_path_and_perhaps_another() {
        let also = |text| beside(text).map(|subject| (subject.name, subject.also.is_some()));
        assert_eq!(also("a=/b"), Ok(("a".to_owned(), false)));
        assert_eq!(also("a=/b=/c"), Ok(("a".to_owned(), true)));
        assert!(also("a").is_err() && also("a=b=c=d").is_err() && also("a,b=/c").is_err());
    }

    #[test]
    fn rows_keep_their_repetition() {
        let rows = parse(TEXT).unwrap();
        let text = raw("", "", &[(3, rows[0].clone())]);
        assert!(text.contains("create,1,3,passthrough,"), "{text}");
    }
}
