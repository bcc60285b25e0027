//! The simulator's program: runs seeds, says what broke and how to run it again.

use bearing_placement::{LookupKind, Scheme};
use bearing_sim::{Case, Counts, Hunt, Options, Planted, Report, Sequence, Tally, Track, run_caught};
use clap::Parser;
use mimalloc::MiMalloc;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Runs are a seventh shorter than with the C library's.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Runs simulated clusters under faults and checks every promise.
#[derive(Parser, Debug)]
#[command(name = "bearing-sim")]
struct Arguments {
    /// How many seeds to run (default 20); with --mutants: how many at most from each start (default 40)
    #[arg(long)]
    seeds: Option<u64>,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Operations in each run
    #[arg(long, default_value_t = 2000)]
    ops: u64,
    /// Plant this bug and expect that a checker catches it
    #[arg(long)]
    mutant: Option<String>,
    /// Plant every bug in turn, from several starts, until a checker catches it; then run the same seeds
    /// without
    #[arg(long, conflicts_with = "mutant")]
    mutants: bool,
    /// From how many starts each planted bug is hunted
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=99))]
    starts: u64,
    /// With --mutants: seeds below this one are known to break nothing without a planted bug
    #[arg(long, default_value_t = 0)]
    clean_below: u64,
    /// Run at least so many crash cases instead: short sequences, cut at every sync boundary
    #[arg(long, conflicts_with = "mutants")]
    crashes: Option<u64>,
    /// Run the crash case of this name
    #[arg(long)]
    case: Option<String>,
    /// How many runs at the same time
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// How children are placed (default: as the seed says)
    #[arg(long)]
    scheme: Option<Scheme>,
    /// Whom clients ask first (default: as the seed says)
    #[arg(long)]
    lookup: Option<LookupKind>,
    /// No faults
    #[arg(long)]
    calm: bool,
    /// Copies of each tablet
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5))]
    copies: u8,
    /// Clients ask for delegated directories
    #[arg(long)]
    delegations: bool,
    /// Servers have the copies of their tablets compared, again and again
    #[arg(long)]
    compares: bool,
    /// The digest covers all that machines command, too: for changes that move code only.
    #[arg(long)]
    commands: bool,
    /// Tell everything that happens (one seed)
    #[arg(long)]
    tell: bool,
    /// Tell at the end all that the history says of a node, by its number
    #[arg(long)]
    about: Option<u64>,
    /// Write what clients did with names into this folder, a file for each seed, for another checker
    #[arg(long, value_name = "FOLDER")]
    names: Option<PathBuf>,
    /// Print what happened how often
    #[arg(long)]
    counts: bool,
}

/// In so many seeds every kind of fault and every crash point has to happen.
const KINDS_FROM: usize = 200;
/// Seeds that are run when nobody says how many.
const SEEDS: u64 = 20;
/// Sequences of two operations that are drawn at a time.
const PAIRS: usize = 8;
/// Cases that broke a promise and are told.
const TOLD_CASES: usize = 20;
/// The same for a planted bug, from each start.
const HUNT_SEEDS: u64 = 40;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let planted = match arguments.mutant.as_deref().map(Planted::named) {
        None => Planted::default(),
        Some(Some(planted)) => planted,
        Some(None) => {
            eprintln!("no such planted bug; there are: {}", Planted::names().join(", "));
            return ExitCode::from(2);
        }
    };
    let options = Options {
        operations: arguments.ops,
        scheme: arguments.scheme,
        lookup: arguments.lookup,
        planted,
        calm: arguments.calm,
        copies: arguments.copies,
        delegations: arguments.delegations || planted.is_of_delegation(),
        compares: arguments.compares,
        commands: arguments.commands,
        told: arguments.tell,
        about: arguments.about,
        names: arguments.names.is_some(),
    };
    if arguments.mutants {
        return hunt(&arguments, &options);
    }
    if let Some(name) = &arguments.case {
        return one_case(name, &options);
    }
    if let Some(cases) = arguments.crashes {
        return crash_cases(&arguments, cases, &options);
    }
    let seeds: Vec<u64> = (arguments.from..).take(arguments.seeds.unwrap_or(SEEDS) as usize).collect();
    let reports = side_by_side(arguments.jobs, &seeds, |seed| {
        let began = Instant::now();
        let report = run_caught(*seed, &options);
        tell(&arguments, &report, began.elapsed().as_secs_f64());
        if let (Some(folder), Some(names)) = (&arguments.names, &report.names) {
            let file = folder.join(format!("{seed}.names"));
            std::fs::write(&file, names).unwrap_or_else(|error| panic!("write {}: {error}", file.display()));
        }
        report
    });
    if arguments.mutant.is_some() { judge_mutant(&arguments, &reports) } else { judge(&arguments, &reports) }
}

/// Does the work on so many threads. The results are in the order of the work.
fn side_by_side<T: Sync, R: Send>(jobs: usize, work: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let at = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(piece) = work.get(at)
                {
                    let result = run(piece);
                    results.lock().expect("no run panics outside").push((at, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("all threads are over");
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Every planted bug from every start, then the same seeds without any.
fn hunt(arguments: &Arguments, options: &Options) -> ExitCode {
    let seeds_max = arguments.seeds.unwrap_or(HUNT_SEEDS);
    let starts: Vec<u64> = (0..arguments.starts).map(|start| arguments.from + start * seeds_max).collect();
    let names = Planted::names();
    let work: Vec<(&str, u64)> =
        names.iter().flat_map(|name| starts.iter().map(|start| (*name, *start))).collect();
    let with = |planted: Planted| {
        let delegations = options.delegations || planted.is_of_delegation();
        let copies = if planted.is_of_copies() { 3 } else { 1 };
        Options { planted, delegations, copies, ..options.clone() }
    };
    let named = |name: &str| Planted::named(name).expect("the names are those of planted bugs");
    let tracks = side_by_side(arguments.jobs, &work, |(name, start)| {
        Track::follow(*start, seeds_max, &with(named(name)))
    });
    let hunts: Vec<Hunt> =
        names.iter().zip(tracks.chunks(starts.len())).map(|(name, tracks)| Hunt::new(name, tracks)).collect();
    println!("{}", Hunt::HEAD);
    hunts.iter().for_each(|hunt| println!("{hunt}"));
    let run_with = |name: &str| {
        let Options { delegations, copies, .. } = with(named(name));
        (delegations, copies)
    };
    let used: BTreeSet<(u64, (bool, u8))> = work
        .iter()
        .zip(&tracks)
        .flat_map(|((name, _), track)| track.seeds().map(|seed| (seed, run_with(name))))
        .collect();
    let unknown = used.into_iter().filter(|(seed, _)| *seed >= arguments.clean_below);
    let used: Vec<(u64, (bool, u8))> = unknown.collect();
    let clean = side_by_side(arguments.jobs, &used, |(seed, (delegations, copies))| {
        run_caught(*seed, &Options { delegations: *delegations, copies: *copies, ..options.clone() })
    });
    let broken: Vec<&Report> = clean.iter().filter(|report| !report.violations.is_empty()).collect();
    let (broke, of, from) = (broken.len(), used.len(), arguments.clean_below);
    println!("without planted bugs {broke} of {of} of these seeds, those from {from}, broke a promise");
    broken.iter().for_each(|report| tell(arguments, report, 0.0));
    let missed: Vec<&str> = hunts.iter().filter(|hunt| hunt.median().is_none()).map(Hunt::name).collect();
    if !missed.is_empty() {
        println!("not found from most starts: {}", missed.join(", "));
    }
    if broken.is_empty() && missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// All sequences of one operation, then drawn ones of two until there are enough cases.
fn crash_cases(arguments: &Arguments, cases: u64, options: &Options) -> ExitCode {
    let (mut tally, mut done) = (Tally::default(), 0);
    for pairs in (0..).step_by(PAIRS) {
        let sequences = Sequence::all(pairs, arguments.from);
        let tallies =
            side_by_side(arguments.jobs, &sequences[done..], |sequence| Tally::of(sequence, options));
        tallies.into_iter().for_each(|one| tally.absorb(one));
        done = sequences.len();
        if tally.cases() >= cases {
            break;
        }
    }
    println!("{tally}");
    for broken in tally.broken().iter().take(TOLD_CASES) {
        println!("{}", broken.case);
        broken.complaints.iter().take(3).for_each(|what| println!("  {what}"));
    }
    if let Some(first) = tally.broken().first() {
        println!("commit {}", commit());
        println!("run it again: cargo xtask sim --case {}", first.case);
    }
    let missing = tally.missing();
    missing.iter().for_each(|what| println!("never happened: {what}"));
    println!("digest {:016x}", tally.digest());
    if tally.broken().is_empty() && missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one_case(name: &str, options: &Options) -> ExitCode {
    let Some(case) = Case::named(name) else {
        eprintln!("no such crash case: {name}; they look like create+write-sync/inside/57/server@3");
        return ExitCode::from(2);
    };
    let outcome = case.run_caught(options);
    outcome.report.violations.iter().for_each(|what| println!("{what}"));
    let (boundaries, broken) = (outcome.boundaries, outcome.report.violations.len());
    println!("{case}: {boundaries} sync boundaries, {broken} complaints");
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tell(arguments: &Arguments, report: &Report, seconds: f64) {
    let broken = report.violations.len();
    if broken == 0 {
        let (steps, elapsed) = (report.steps, report.elapsed as f64 / 1e9);
        eprintln!(
            "seed {} ok: {steps} happenings in {elapsed:.1} s of its time, {seconds:.2} s of ours",
            report.seed
        );
        return;
    }
    if arguments.mutant.is_some() {
        eprintln!("seed {} catches it: {}", report.seed, report.violations[0]);
        return;
    }
    eprintln!("seed {} BROKEN, {broken} complaints ({seconds:.2} s):", report.seed);
    for what in report.violations.iter().take(5) {
        eprintln!("  {what}");
    }
}

fn judge(arguments: &Arguments, reports: &[Report]) -> ExitCode {
    let mut counts = Counts::default();
    reports.iter().for_each(|report| counts.absorb(&report.counts));
    if arguments.counts {
        print!("{counts}");
    }
    let broken: Vec<&Report> = reports.iter().filter(|report| !report.violations.is_empty()).collect();
    if let Some(first) = broken.first() {
        println!("{} of {} seeds broke a promise; the first is {}:", broken.len(), reports.len(), first.seed);
        first.violations.iter().for_each(|what| println!("  {what}"));
        println!("commit {}", commit());
        let delegations = if arguments.delegations { " --delegations" } else { "" };
        let compares = if arguments.compares { " --compares" } else { "" };
        println!(
            "run it again: cargo xtask sim --seeds 1 --from {} --ops {} --copies {}{delegations}{compares}",
            first.seed, arguments.ops, arguments.copies
        );
    }
    let missing: Vec<String> =
        if reports.len() >= KINDS_FROM { counts.missing(arguments.copies) } else { Vec::new() };
    missing.iter().for_each(|name| println!("never happened in {} seeds: {name}", reports.len()));
    let hashes: Vec<u8> = reports.iter().flat_map(|report| report.hash.to_le_bytes()).collect();
    println!("digest {:016x}", xxhash_rust::xxh3::xxh3_64(&hashes));
    if broken.is_empty() && missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn judge_mutant(arguments: &Arguments, reports: &[Report]) -> ExitCode {
    let name = arguments.mutant.as_deref().unwrap_or_default();
    let mut gaps = Vec::new();
    let mut since = 0u64;
    for report in reports {
        since += 1;
        if !report.violations.is_empty() {
            gaps.push(since);
            since = 0;
        }
    }
    gaps.sort_unstable();
    let Some(median) = gaps.get(gaps.len() / 2) else {
        println!("{name}: {} seeds did not catch it", reports.len());
        return ExitCode::FAILURE;
    };
    println!(
        "{name}: caught by {} of {} seeds; median number of seeds to find it: {median}",
        gaps.len(),
        reports.len()
    );
    ExitCode::SUCCESS
}

fn commit() -> String {
    let output = Command::new("git").args(["rev-parse", "HEAD"]).output();
    let text = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    text.map_or("unknown".into(), |text| String::from_utf8_lossy(&text).trim().to_owned())
}
