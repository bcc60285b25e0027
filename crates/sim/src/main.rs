//! The simulator's program: runs seeds, says what broke and how to run it again.

use bearing_placement::Scheme;
use bearing_sim::{Counts, Options, Planted, Report, run};
use clap::Parser;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Runs simulated clusters under faults and checks every promise.
#[derive(Parser, Debug)]
#[command(name = "bearing-sim")]
struct Arguments {
    /// How many seeds to run
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Operations in each run
    #[arg(long, default_value_t = 2000)]
    ops: u64,
    /// Plant this bug and expect that a checker catches it
    #[arg(long)]
    mutant: Option<String>,
    /// How many runs at the same time
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// How children are placed (default: as the seed says)
    #[arg(long)]
    scheme: Option<Scheme>,
    /// No faults
    #[arg(long)]
    calm: bool,
    /// Tell everything that happens (one seed)
    #[arg(long)]
    tell: bool,
    /// Tell at the end all that the history says of a node, by its number
    #[arg(long)]
    about: Option<u64>,
    /// Print what happened how often
    #[arg(long)]
    counts: bool,
}

/// In so many seeds every kind of fault and every crash point has to happen.
const KINDS_FROM: usize = 200;

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
        planted,
        calm: arguments.calm,
        told: arguments.tell,
        about: arguments.about,
    };
    let reports = run_all(&arguments, &options);
    if arguments.mutant.is_some() { judge_mutant(&arguments, &reports) } else { judge(&arguments, &reports) }
}

/// A seed that panics has found a bug that asserts; it is reported like a broken promise.
fn run_one(seed: u64, options: &Options) -> Report {
    let outcome = catch_unwind(AssertUnwindSafe(|| run(seed, options)));
    outcome.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_default();
        let violations = vec![format!("a machine panicked: {text}")];
        Report { seed, hash: 0, violations, counts: Counts::default(), steps: 0, elapsed: 0 }
    })
}

fn run_all(arguments: &Arguments, options: &Options) -> Vec<Report> {
    let next = AtomicU64::new(arguments.from);
    let end = arguments.from + arguments.seeds;
    let reports = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let began = Instant::now();
                    let report = run_one(seed, options);
                    tell(arguments, &report, began.elapsed().as_secs_f64());
                    reports.lock().expect("no seed panics outside").push(report);
                }
            });
        }
    });
    let mut reports = reports.into_inner().expect("all threads are over");
    reports.sort_by_key(|report| report.seed);
    reports
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
        println!("run it again: cargo xtask sim --seeds 1 --from {} --ops {}", first.seed, arguments.ops);
    }
    let missing: Vec<String> = if reports.len() >= KINDS_FROM { counts.missing() } else { Vec::new() };
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
