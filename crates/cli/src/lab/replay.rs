//! `lab replay`: a trace, replayed over schemes, with a report.
//!
//! What each run gave is kept in the directory of the report, so that one that was stopped goes on where it
//! was.

use super::output::put;
use super::trace::{open, warning};
use crate::bench::commit;
use crate::failure::Usage;
use crate::voice::say;
use anyhow::{Context, Result, bail};
use bearing_lab::Candidate;
use bearing_lab::figure::Figure;
use bearing_lab::parallel::each;
use bearing_lab::replay::{
    Below, COLUMNS, Job, Outcome, PARTS_COLUMNS, Recorded, Recorder, conclusions, figures, parts_lines, row,
    run as replay_one,
};
use bearing_lab::report::{Basis, Page, Section, Table, csv_name, csv_of, json_name};
use bearing_placement::Scheme;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  bearing lab replay --trace access.log --schemes anglecut-hashed,hash --out report
  bearing lab trace generate msn | bearing lab replay --trace - --out msn --quick
  bearing lab replay --trace audit.log --schemes hash,anglecut-hashed+in-network --servers 20,30 --out more

The report is DIR/index.html, its numbers DIR/replay.csv and DIR/parts.csv. A replay that was stopped goes on
when it is given again.";

/// `lab replay`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReplayFlags {
    /// The trace (see `bearing lab trace inspect`); - for what is piped in
    #[arg(long)]
    pub trace: PathBuf,
    /// Its format [default: seen from its first lines]
    #[arg(long)]
    pub format: Option<String>,
    /// Schemes, each perhaps with another's lookup behind a + [default: all]
    #[arg(long, value_name = "A,B,..", value_delimiter = ',')]
    pub schemes: Vec<String>,
    /// Numbers of servers
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "5,10,15,20,25,30", value_parser = clap::value_parser!(u32).range(2..=2000))]
    pub servers: Vec<u32>,
    /// How many placements are drawn for each
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub seeds: u64,
    /// Draws begin from here
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Where the report goes
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// The first million operations, the least and the largest number of servers, one seed
    #[arg(long)]
    pub quick: bool,
    /// Print the numbers as JSON
    #[arg(long)]
    pub json: bool,
}

/// Of `--quick`.
const QUICK_OPERATIONS: usize = 1_000_000;

/// What the results in a directory are of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Identity {
    version: u32,
    trace: String,
    digest: String,
    operations: usize,
    /// A digest of the program itself: its source may lie anywhere, or nowhere.
    program: String,
}

/// Runs `lab replay`.
pub fn run(flags: &ReplayFlags) -> Result<()> {
    let candidates = candidates(&flags.schemes)?;
    if flags.seed.checked_add(flags.seeds).is_none() {
        bail!(Usage(format!(
            "--seed {} leaves no room for {} seeds; give a smaller one",
            flags.seed, flags.seeds
        )));
    }
    let recorded = read(flags)?;
    let parts = flags.out.join("runs");
    std::fs::create_dir_all(&parts).with_context(|| format!("create {}", parts.display()))?;
    let identity = Identity {
        version: 1,
        trace: flags.trace.display().to_string(),
        digest: format!("{:016x}", recorded.digest),
        operations: recorded.operations.len(),
        program: program()?,
    };
    agree(&flags.out.join("replay.json"), &identity)?;
    let jobs = jobs(flags, &candidates);
    let outcomes = all(&recorded, &jobs, &parts)?;
    write(flags, &identity, &recorded, &jobs, &outcomes)
}

pub(super) fn candidates(names: &[String]) -> Result<Vec<Candidate>> {
    if names.is_empty() {
        return Ok(Scheme::ALL.into_iter().map(Candidate::of).collect());
    }
    let mut candidates: Vec<Candidate> = Vec::new();
    for name in names {
        let candidate: Candidate = name.parse().map_err(|error| Usage(format!("{error}")))?;
        // One that is given twice is not two.
        if candidates.iter().all(|known| known.name != candidate.name) {
            candidates.push(candidate);
        }
    }
    Ok(candidates)
}

fn jobs(flags: &ReplayFlags, candidates: &[Candidate]) -> Vec<Job> {
    let mut sizes = flags.servers.clone();
    sizes.sort_unstable();
    sizes.dedup();
    let mut seeds = flags.seeds;
    if flags.quick {
        sizes = [sizes.first(), sizes.last()].into_iter().flatten().copied().collect();
        sizes.dedup();
        seeds = 1;
    }
    let mut jobs = Vec::new();
    for candidate in candidates {
        for servers in &sizes {
            for seed in flags.seed..flags.seed + seeds {
                jobs.push(Job { candidate: candidate.clone(), servers: *servers, seed });
            }
        }
    }
    jobs
}

fn read(flags: &ReplayFlags) -> Result<Recorded> {
    let mut reader = open(&flags.trace, flags.format.as_deref())?;
    let mut recorder = Recorder::default();
    let bar = ProgressBar::new_spinner();
    while let Some(event) =
        reader.next_event().with_context(|| format!("read the trace {}", flags.trace.display()))?
    {
        recorder.record(&event);
        if recorder.count().is_multiple_of(100_000) {
            bar.set_message(format!("{} operations read", recorder.count()));
            bar.tick();
        }
        if flags.quick && recorder.count() >= QUICK_OPERATIONS {
            break;
        }
    }
    bar.finish_and_clear();
    if recorder.count() == 0 {
        bail!(
            "no operation was found in {}: nothing can be replayed; `bearing lab trace inspect` says what is in it",
            flags.trace.display()
        );
    }
    let tally = reader.tally();
    let left_out: u64 = tally.others.values().sum();
    if tally.malformed > 0 || left_out > 0 {
        eprintln!(
            "{} lines were not understood, {left_out} left out: see `bearing lab trace inspect`",
            tally.malformed
        );
    }
    if let Some(warning) = warning(tally) {
        eprintln!("{warning}");
    }
    Ok(recorder.finish())
}

/// A directory has results of one trace and one version of the program.
fn agree(path: &Path, identity: &Identity) -> Result<()> {
    if let Ok(text) = std::fs::read_to_string(path) {
        let known: Identity = serde_json::from_str(&text)
            .with_context(|| format!("{} is not of a replay; give another directory", path.display()))?;
        if (&known.digest, &known.program, known.version)
            != (&identity.digest, &identity.program, identity.version)
        {
            bail!(
                "{} has results of {} ({} operations, program {}), this is {} ({} operations, program {}); give \
                 another --out, or remove that directory",
                path.parent().unwrap_or(path).display(),
                known.trace,
                known.operations,
                known.program,
                identity.trace,
                identity.operations,
                identity.program
            );
        }
        return Ok(());
    }
    put(path, &serde_json::to_string_pretty(identity)?)
}

/// Which program this is: results of another one are not taken for its own.
pub(super) fn program() -> Result<String> {
    let path = std::env::current_exe().context("find the program")?;
    let bytes = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
    Ok(blake3::hash(&bytes).to_hex()[..16].to_owned())
}

/// Runs what was not run before, on all cores.
fn all(recorded: &Recorded, jobs: &[Job], directory: &Path) -> Result<Vec<Result<Outcome, String>>> {
    let below = Below::new(&recorded.namespace);
    let bar = ProgressBar::new(jobs.len() as u64);
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} runs, {eta} left  {msg}")?);
    bar.tick();
    let outcomes = each(jobs, |job| {
        let outcome = one(recorded, &below, job, directory);
        bar.set_message(job.candidate.name.clone());
        bar.inc(1);
        outcome
    });
    bar.finish_and_clear();
    outcomes.into_iter().collect()
}

fn one(recorded: &Recorded, below: &Below, job: &Job, directory: &Path) -> Result<Result<Outcome, String>> {
    let name = format!("{}-{}-{}.json", job.candidate.name, job.servers, job.seed);
    let path = directory.join(name);
    // One that cannot be read was not finished.
    if let Some(known) =
        std::fs::read_to_string(&path).ok().and_then(|text| serde_json::from_str::<Outcome>(&text).ok())
    {
        return Ok(Ok(known));
    }
    let outcome = replay_one(recorded, below, job);
    if let Ok(outcome) = &outcome {
        put(&path, &serde_json::to_string(outcome)?)?;
    }
    Ok(outcome)
}

fn write(
    flags: &ReplayFlags,
    identity: &Identity,
    recorded: &Recorded,
    jobs: &[Job],
    outcomes: &[Result<Outcome, String>],
) -> Result<()> {
    let runs: Vec<(&Job, &Outcome)> =
        jobs.iter().zip(outcomes).filter_map(|(job, outcome)| Some((job, outcome.as_ref().ok()?))).collect();
    let failed: Vec<String> = jobs
        .iter()
        .zip(outcomes)
        .filter_map(|(job, outcome)| {
            let error = outcome.as_ref().err()?;
            Some(format!("{} could not run with {} servers: {error}", job.candidate.name, job.servers))
        })
        .collect();
    let lines: Vec<String> = runs.iter().map(|(job, outcome)| row(job, outcome)).collect();
    put(&flags.out.join("replay.csv"), &format!("{COLUMNS}\n{}\n", lines.join("\n")))?;
    let parts: String = runs.iter().map(|(job, outcome)| parts_lines(job, outcome)).collect();
    put(&flags.out.join("parts.csv"), &format!("{PARTS_COLUMNS}\n{parts}"))?;
    let mut sentences = conclusions(&runs);
    sentences.extend(failed.iter().cloned());
    let mut figures = figures(&runs);
    figures.iter_mut().for_each(|figure| figure.commit = commit());
    for figure in &figures {
        put(&flags.out.join(csv_name(figure)), &csv_of(figure))?;
        put(&flags.out.join(json_name(figure)), &serde_json::to_string_pretty(figure)?)?;
    }
    put(&flags.out.join("index.html"), &page(identity, recorded, &sentences, figures).html())?;
    if flags.json {
        let runs: Vec<_> = runs
            .iter()
            .map(|(job, outcome)| {
                serde_json::json!({"scheme": job.candidate.name, "servers": job.servers, "seed": job.seed, "outcome": outcome})
            })
            .collect();
        let json = serde_json::json!({"replay": identity, "conclusions": sentences, "runs": runs});
        say!("{}", serde_json::to_string_pretty(&json)?)?;
        return Ok(());
    }
    for sentence in &sentences {
        say!("{sentence}")?;
    }
    say!("\n{}", flags.out.join("index.html").display())?;
    Ok(())
}

fn page(identity: &Identity, recorded: &Recorded, sentences: &[String], figures: Vec<Figure>) -> Page {
    let seconds = recorded.parts.last().map_or(0.0, |part| part.begins_us as f64 / 1e6);
    let mut conclusions = sentences.to_vec();
    if recorded.is_of_data {
        conclusions.insert(
            0,
            "The trace has no metadata operations, only reads and writes: what is said here rests on how often \
             each file was used, and nothing is known of lookups, creations or updates."
                .to_owned(),
        );
    }
    let sections = figures.into_iter().map(|figure| Section {
        heading: figure.y.clone(),
        basis: Basis {
            measured:
                "where every name lies and which server it is asked of, by the placements and lookups that \
                       production runs; what rebalances move"
                    .into(),
            simulated: "clients' caches, with leases of 3 seconds; messages take the same time each".into(),
            assumed:
                "servers are alike; an operation costs its server as much as any other; arcs are moved after \
                      each twentieth of the trace"
                    .into(),
        },
        figure: Some(figure),
        tables: Vec::new(),
    });
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let about = Section {
        heading: "The trace".into(),
        basis: Basis::default(),
        figure: None,
        tables: vec![Table {
            caption: String::new(),
            header: vec!["".into(), "".into()],
            rows: vec![
                row("trace", identity.trace.clone()),
                row("operations", recorded.operations.len().to_string()),
                row("names", recorded.namespace.count().to_string()),
                row("its last twentieth begins after", format!("{seconds:.0} s")),
                row("digest", identity.digest.clone()),
                row("program", identity.program.clone()),
            ],
        }],
    };
    Page {
        title: format!("Schemes on {}", identity.trace),
        conclusions,
        sections: sections.chain([about]).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(directory: &Path, trace: &str) -> ReplayFlags {
        ReplayFlags {
            trace: directory.join(trace),
            format: None,
            schemes: vec!["hash".into(), "anglecut-hashed+in-network".into()],
            servers: vec![5, 3, 3],
            seeds: 2,
            seed: 1,
            out: directory.join("out"),
            quick: false,
            json: false,
        }
    }

    fn write_trace(path: &Path, count: usize) {
        let lines: String = (0..count).map(|at| format!("{at},1,lookup,/d{}/f{at}\n", at % 7)).collect();
        std::fs::write(path, format!("{}\n{lines}", bearing_lab::trace::HEADER)).unwrap();
    }

    fn files(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let entries = walkdir::WalkDir::new(directory).sort_by_file_name().into_iter().map(Result::unwrap);
        let files = entries.filter(|entry| entry.file_type().is_file());
        files.map(|file| (file.path().to_owned(), std::fs::read(file.path()).unwrap())).collect()
    }

    #[test]
    fn a_replay_that_was_stopped_goes_on_and_gives_the_same_bytes() {
        let directory = tempfile::tempdir().unwrap();
        write_trace(&directory.path().join("trace"), 500);
        let flags = flags(directory.path(), "trace");
        run(&flags).unwrap();
        let whole = files(&flags.out);
        let runs = whole.iter().filter(|(path, _)| path.parent().unwrap().ends_with("runs")).count();
        assert_eq!(runs, 2 * 2 * 2);
        // One run is missing, another was cut off while it was written.
        std::fs::remove_file(flags.out.join("runs/hash-3-1.json")).unwrap();
        std::fs::write(flags.out.join("runs/hash-5-2.json"), "{\"operations\":").unwrap();
        std::fs::remove_file(flags.out.join("index.html")).unwrap();
        run(&flags).unwrap();
        assert!(files(&flags.out) == whole, "other bytes the second time");
    }

    #[test]
    fn a_directory_with_results_of_another_trace_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        write_trace(&directory.path().join("one"), 100);
        write_trace(&directory.path().join("other"), 101);
        run(&flags(directory.path(), "one")).unwrap();
        let error = run(&flags(directory.path(), "other")).unwrap_err().to_string();
        assert!(error.contains("(100 operations") && error.contains("give another --out"), "{error}");
    }

    #[test]
    fn a_trace_without_operations_is_said_to_be_one() {
        let directory = tempfile::tempdir().unwrap();
        write_trace(&directory.path().join("empty"), 0);
        let error = run(&flags(directory.path(), "empty")).unwrap_err().to_string();
        assert!(error.contains("nothing can be replayed"), "{error}");
    }

    #[test]
    fn quick_takes_one_seed_and_the_ends_of_the_sizes() {
        let quick = ReplayFlags { quick: true, servers: vec![20, 5, 10], ..flags(Path::new("/"), "trace") };
        let jobs = jobs(&quick, &candidates(&quick.schemes).unwrap());
        let sizes: Vec<u32> = jobs.iter().map(|job| job.servers).collect();
        assert_eq!(sizes, [5, 20, 5, 20]);
    }
}
