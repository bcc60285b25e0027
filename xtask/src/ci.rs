//! `cargo xtask ci`: the one door. Every part in order, each with its time and its budget.
//!
//! All parts use one profile, one target directory and the whole workspace's features, so nothing is
//! built twice. (Choosing packages one by one would switch features off in shared dependencies and build
//! them again; that is why tests are chosen by the names of their targets.) The first part that fails is
//! the last one run, and the table is printed all the same.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{etcd, sim, soak, tidy};

/// The package whose tests mount a real cluster: they run by themselves, after all else holds.
const MOUNT_TESTS: &str = "cli";

/// Seeds that are run in two processes: what is not deterministic is so in each of them.
const SEEDS_TWICE: u64 = 15;

/// What a part of the door does.
enum Work {
    /// A command that must succeed.
    Run(Vec<String>),
    /// The rules of the house.
    Tidy,
    /// The simulator, some seeds in two processes with the same digest; then every planted bug is found.
    Simulate,
    /// Short sequences of operations, cut at every sync boundary.
    Crashes,
    /// The real programs on a disk that forgets.
    PowerCuts,
    /// etcd for the tests that need it; without Go they are skipped.
    Etcd,
}

struct Part {
    name: &'static str,
    budget: Duration,
    work: Vec<Work>,
}

struct Outcome {
    name: &'static str,
    took: Duration,
    budget: Duration,
    error: Option<anyhow::Error>,
}

/// Runs all parts; fails if one does.
pub fn run(root: &Path) -> Result<()> {
    let parts = parts(root)?;
    let total = parts.len();
    let mut outcomes = Vec::new();
    for part in parts {
        let outcome = run_part(root, part);
        let failed = outcome.error.is_some();
        outcomes.push(outcome);
        if failed {
            break;
        }
    }
    print_table(&outcomes, total);
    let failed = outcomes.iter().filter(|outcome| outcome.error.is_some()).count();
    println!("{} passed, {failed} failed", outcomes.len() - failed);
    if failed > 0 { bail!("ci: {failed} part(s) failed") } else { Ok(()) }
}

/// The parts there are. A part with nothing to run is not shown.
fn parts(root: &Path) -> Result<Vec<Part>> {
    let targets = test_targets(root)?;
    // Of the twelve minutes for building, one is left to `make deps`, which may have to build cargo-deny.
    let mut parts = vec![
        part("build", 600, vec![cargo("build --workspace --all-targets")]),
        part("etcd", 120, vec![Work::Etcd]),
        part("format", 10, vec![cargo("fmt --all -- --check")]),
        part("clippy", 120, vec![cargo("clippy --workspace --all-targets -- -D warnings")]),
        part("tidy", 10, vec![Work::Tidy]),
        part("deny", 20, vec![cargo("deny --workspace check --hide-inclusion-graph bans licenses sources")]),
        part(
            "unit and property tests",
            200,
            vec![
                with_targets("test --workspace --lib --bins", &targets.rest),
                cargo("test --workspace --doc"),
            ],
        ),
    ];
    if sim::exists(root) {
        parts.push(part("simulation", 480, vec![Work::Simulate]));
        parts.push(part("crash cases", 240, vec![Work::Crashes]));
    }
    if !targets.mount.is_empty() {
        parts.push(part("mount tests", 480, vec![with_targets("test --workspace", &targets.mount)]));
        parts.push(part("power cuts", 180, vec![Work::PowerCuts]));
    }
    Ok(parts)
}

fn part(name: &'static str, budget_seconds: u64, work: Vec<Work>) -> Part {
    Part { name, budget: Duration::from_secs(budget_seconds), work }
}

fn cargo(line: &str) -> Work {
    Work::Run(line.split(' ').map(str::to_owned).collect())
}

fn with_targets(line: &str, targets: &BTreeSet<String>) -> Work {
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    for target in targets {
        words.extend(["--test".to_owned(), target.clone()]);
    }
    Work::Run(words)
}

/// Names of integration tests.
#[derive(Debug, Default)]
struct Targets {
    mount: BTreeSet<String>,
    rest: BTreeSet<String>,
}

/// Finds `crates/*/tests/<name>.rs` and `crates/*/tests/<name>/main.rs`, as cargo does.
fn test_targets(root: &Path) -> Result<Targets> {
    let mut targets = Targets::default();
    for room in std::fs::read_dir(root.join("crates")).context("list crates/")? {
        let room = room.context("list crates/")?;
        let Ok(tests) = std::fs::read_dir(room.path().join("tests")) else { continue };
        let ours = if room.file_name() == MOUNT_TESTS { &mut targets.mount } else { &mut targets.rest };
        for test in tests {
            ours.extend(target_name(&test.context("list tests")?.path()));
        }
    }
    if let Some(both) = targets.mount.intersection(&targets.rest).next() {
        bail!(
            "crates/{MOUNT_TESTS} and another crate both have tests/{both}.rs: rename one, tests are chosen by name"
        );
    }
    Ok(targets)
}

fn target_name(path: &Path) -> Option<String> {
    let is_target = path.extension().is_some_and(|e| e == "rs") || path.join("main.rs").exists();
    is_target.then(|| path.file_stem()).flatten().map(|stem| stem.to_string_lossy().into_owned())
}

fn run_part(root: &Path, part: Part) -> Outcome {
    println!("==> {}", part.name);
    let start = Instant::now();
    let error = part.work.iter().try_for_each(|work| run_work(root, work)).err();
    let took = start.elapsed();
    match &error {
        None => println!("<== {}: {:.1} s", part.name, took.as_secs_f64()),
        Some(error) => println!("<== {}: failed after {:.1} s: {error:#}", part.name, took.as_secs_f64()),
    }
    Outcome { name: part.name, took, budget: part.budget, error }
}

fn run_work(root: &Path, work: &Work) -> Result<()> {
    match work {
        Work::Run(words) => run_cargo(root, words),
        Work::Tidy => tidy::run(root),
        Work::Simulate => simulate(root),
        Work::Etcd => etcd::build(root),
        Work::PowerCuts => soak::power_cuts_of_ci(root),
        Work::Crashes => {
            let crashes = Some(sim::CI_CRASHES);
            let args = sim::SimArgs { seeds: None, crashes, copies: 1, ..sim_args() };
            simulate_once(root, &args).map(drop)
        }
    }
}

fn run_cargo(root: &Path, words: &[String]) -> Result<()> {
    let line = words.join(" ");
    println!("cargo {line}");
    let status = Command::new(crate::cargo::cargo())
        .args(words)
        .current_dir(root)
        .status()
        .with_context(|| format!("start `cargo {line}`"))?;
    if !status.success() {
        bail!("`cargo {line}` ended with {status}");
    }
    Ok(())
}

fn sim_args() -> sim::SimArgs {
    sim::SimArgs {
        seeds: Some(sim::CI_SEEDS),
        from: 0,
        ops: 2000,
        mutant: None,
        mutants: false,
        starts: sim::CI_STARTS,
        clean_below: 0,
        crashes: None,
        case: None,
        copies: 3,
        delegations: false,
        compares: false,
        jobs: 0,
    }
}

fn simulate(root: &Path) -> Result<()> {
    let args = sim_args();
    sim::build(root)?;
    simulate_once(root, &args)?;
    let delegated = sim::SimArgs { delegations: true, compares: true, ..args.clone() };
    same_twice(root, &sim::SimArgs { seeds: Some(SEEDS_TWICE), ..delegated.clone() })?;
    let rest = Some(sim::CI_SEEDS - SEEDS_TWICE);
    simulate_once(root, &sim::SimArgs { seeds: rest, from: SEEDS_TWICE, ..delegated })?;
    // One copy is what three copies are without the copying: fewer seeds find what is wrong there alone.
    let half = Some(sim::CI_SEEDS / 2);
    simulate_once(root, &sim::SimArgs { seeds: half, copies: 1, ..args.clone() })?;
    simulate_once(root, &sim::SimArgs { seeds: half, copies: 1, delegations: true, ..args.clone() })?;
    // The seeds that all the runs above have in common need not be run without a planted bug again.
    let (seeds, clean_below) = (Some(sim::CI_HUNT_SEEDS), SEEDS_TWICE);
    simulate_once(root, &sim::SimArgs { seeds, mutants: true, clean_below, ..args }).map(drop)
}

/// The same seeds in two processes have the same digest.
fn same_twice(root: &Path, args: &sim::SimArgs) -> Result<()> {
    let digest = |text: &str| sim::digest(text).map(str::to_owned).context("find a line `digest <hex>`");
    let first = digest(&simulate_once(root, args)?)?;
    let second = digest(&simulate_once(root, args)?)?;
    if first != second {
        bail!(
            "the same {SEEDS_TWICE} seeds gave two digests, {first} and {second}: something is not deterministic"
        );
    }
    println!("{SEEDS_TWICE} seeds twice, both times digest {first}");
    Ok(())
}

/// Gives what the simulator printed.
fn simulate_once(root: &Path, args: &sim::SimArgs) -> Result<String> {
    let mut command = sim::command(root, args)?;
    let output = command.stderr(std::process::Stdio::inherit()).output().context("start the simulator")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    print!("{text}");
    if !output.status.success() {
        bail!("the simulator ended with {}", output.status);
    }
    Ok(text)
}

fn print_table(outcomes: &[Outcome], total: usize) {
    println!();
    println!("{:<26} {:>9} {:>8}  ok", "part", "seconds", "budget");
    for outcome in outcomes {
        let over = outcome.took > outcome.budget;
        let verdict = match (&outcome.error, over) {
            (Some(_), _) => "no",
            (None, true) => "yes, over budget",
            (None, false) => "yes",
        };
        let (took, budget) = (outcome.took.as_secs_f64(), outcome.budget.as_secs());
        println!("{:<26} {took:>9.1} {budget:>8}  {verdict}", outcome.name);
    }
    if outcomes.len() < total {
        println!("{} part(s) not run", total - outcomes.len());
    }
    println!();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(root: &Path, path: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().expect("has a parent")).expect("make a directory");
        std::fs::write(path, "").expect("write a file");
    }

    #[test]
    fn mount_tests_are_kept_apart_and_helpers_are_no_targets() {
        let root = tempfile::tempdir().expect("a directory");
        for path in [
            "crates/cli/tests/mount.rs",
            "crates/cli/tests/many/main.rs",
            "crates/cli/tests/common/mod.rs",
            "crates/meta/tests/laws.rs",
            "crates/meta/src/lib.rs",
        ] {
            touch(root.path(), path);
        }
        let targets = test_targets(root.path()).expect("finds them");
        assert_eq!(targets.mount.into_iter().collect::<Vec<_>>(), ["many", "mount"]);
        assert_eq!(targets.rest.into_iter().collect::<Vec<_>>(), ["laws"]);
    }

    #[test]
    fn a_name_on_both_sides_is_refused() {
        let root = tempfile::tempdir().expect("a directory");
        touch(root.path(), "crates/cli/tests/laws.rs");
        touch(root.path(), "crates/meta/tests/laws.rs");
        assert!(test_targets(root.path()).is_err());
    }

    #[test]
    fn parts_with_nothing_to_run_are_not_shown() {
        let root = tempfile::tempdir().expect("a directory");
        touch(root.path(), "crates/meta/src/lib.rs");
        let names: Vec<_> = parts(root.path()).expect("finds them").iter().map(|p| p.name).collect();
        assert!(!names.contains(&"simulation") && !names.contains(&"mount tests"));
        touch(root.path(), "crates/sim/src/main.rs");
        touch(root.path(), "crates/cli/tests/mount.rs");
        let names: Vec<_> = parts(root.path()).expect("finds them").iter().map(|p| p.name).collect();
        assert_eq!(names[names.len() - 4..], ["simulation", "crash cases", "mount tests", "power cuts"]);
    }
}
