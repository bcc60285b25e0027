//! `cargo xtask sim`: runs simulated clusters by starting the simulator's program.
//!
//! The simulator is the package `bearing-sim`. Once it has a `src/main.rs`, this command and the
//! simulation part of `cargo xtask ci` use it; what they expect of it:
//!
//! - it takes `[--seeds N] --from S --ops K --jobs J [--copies R] [--delegations] [--compares]
//!   [--mutant NAME | --mutants [--clean-below N] | --crashes N]`, all integers decimal;
//! - it ends with 0 if every seed kept every promise (with `--mutant`: if the planted bug was caught; with
//!   `--mutants`: if every planted bug was caught, and the same seeds without any bug kept every promise);
//! - with `--crashes` it runs at least so many short sequences of operations, each cut at one of its sync
//!   boundaries, and ends with 0 if all promises were kept;
//! - a failure prints the seed, the step and the command that runs that seed again;
//! - it prints one line `digest <hex>` over all that happened in all seeds, equal in every process.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

/// The simulator's program.
const PROGRAM: &str = "bearing-sim";
/// Seeds that `ci` runs with three copies of each tablet, once more with delegations, and both with one copy.
pub const CI_SEEDS: u64 = 60;
/// From how many starts `ci` hunts each planted bug; by hand it is five.
pub const CI_STARTS: u64 = 1;
/// How many seeds it tries at most: the rarest finds are one in 30 to 40 seeds.
pub const CI_HUNT_SEEDS: u64 = 240;
/// Crash cases that `ci` runs.
pub const CI_CRASHES: u64 = 12_000;

/// What to simulate.
#[derive(Args, Clone, Debug)]
pub struct SimArgs {
    /// How many seeds to run (default 20); with --mutants: how many at most from each start (default 40)
    #[arg(long)]
    pub seeds: Option<u64>,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    pub from: u64,
    /// Operations in each run
    #[arg(long, default_value_t = 2000)]
    pub ops: u64,
    /// Plant this bug and expect that a checker catches it
    #[arg(long)]
    pub mutant: Option<String>,
    /// Plant every bug in turn until a checker catches it, print how many seeds that took, then run the same
    /// seeds without
    #[arg(long, conflicts_with = "mutant")]
    pub mutants: bool,
    /// From how many starts each planted bug is hunted
    #[arg(long, default_value_t = 5)]
    pub starts: u64,
    /// With --mutants: seeds below this one are known to break nothing without a planted bug
    #[arg(long, default_value_t = 0)]
    pub clean_below: u64,
    /// Run at least so many crash cases instead: one or two operations, cut at every sync boundary that they
    /// meet
    #[arg(long, conflicts_with = "mutants")]
    pub crashes: Option<u64>,
    /// Run one crash case again, by its name
    #[arg(long)]
    pub case: Option<String>,
    /// Copies of each tablet
    #[arg(long, default_value_t = 1)]
    pub copies: u8,
    /// Clients ask for delegated directories
    #[arg(long)]
    pub delegations: bool,
    /// Servers have the copies of their tablets compared, again and again
    #[arg(long)]
    pub compares: bool,
    /// How many runs at the same time (0: one per core)
    #[arg(long, default_value_t = 0)]
    pub jobs: usize,
}

/// Whether there is a simulator to run.
pub fn exists(root: &Path) -> bool {
    root.join("crates/sim/src/main.rs").exists()
}

/// Builds the simulator, with the features that the whole workspace has, so that nothing is built twice.
pub fn build(root: &Path) -> Result<()> {
    let status = Command::new(crate::cargo::cargo())
        .args(["build", "--quiet", "--workspace", "--bin", PROGRAM])
        .current_dir(root)
        .status()
        .context("start cargo")?;
    if !status.success() {
        bail!("the simulator does not build");
    }
    Ok(())
}

/// The command that runs the simulator, which `build` left beside this program.
pub fn command(root: &Path, args: &SimArgs) -> Result<Command> {
    let ours = std::env::current_exe().context("find this program's own path")?;
    let mut command = Command::new(ours.with_file_name(PROGRAM));
    command.current_dir(root).args(flags(args));
    Ok(command)
}

/// Runs the simulator and fails if it does.
pub fn run(root: &Path, args: &SimArgs) -> Result<()> {
    if !exists(root) {
        bail!("there is no simulator to run: crates/sim has no src/main.rs");
    }
    build(root)?;
    let status = command(root, args)?.status().context("start the simulator")?;
    if !status.success() {
        bail!("the simulator ended with {status}");
    }
    Ok(())
}

fn flags(args: &SimArgs) -> Vec<String> {
    let jobs = match args.jobs {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get()),
        jobs => jobs,
    };
    let mut flags = Vec::new();
    let numbers = [("--from", args.from), ("--ops", args.ops), ("--jobs", jobs as u64)];
    for (name, value) in args.seeds.map(|seeds| ("--seeds", seeds)).into_iter().chain(numbers) {
        flags.extend([name.to_owned(), value.to_string()]);
    }
    if args.copies != 1 {
        flags.extend(["--copies".to_owned(), args.copies.to_string()]);
    }
    if args.delegations {
        flags.push("--delegations".to_owned());
    }
    if args.compares {
        flags.push("--compares".to_owned());
    }
    if args.mutants {
        flags.extend(["--mutants".to_owned(), "--starts".to_owned(), args.starts.to_string()]);
    }
    if args.clean_below > 0 {
        flags.extend(["--clean-below".to_owned(), args.clean_below.to_string()]);
    }
    if let Some(crashes) = args.crashes {
        flags.extend(["--crashes".to_owned(), crashes.to_string()]);
    }
    if let Some(case) = &args.case {
        flags.extend(["--case".to_owned(), case.clone()]);
    }
    if let Some(mutant) = &args.mutant {
        flags.extend(["--mutant".to_owned(), mutant.clone()]);
    }
    flags
}

/// The digest a run printed.
pub fn digest(output: &str) -> Option<&str> {
    output.lines().rev().find_map(|line| line.strip_prefix("digest ")).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_digest_counts() {
        assert_eq!(digest("digest aa\nseed 3 ok\ndigest bb\n"), Some("bb"));
        assert_eq!(digest("no digests here"), None);
    }

    #[test]
    fn what_is_planted_is_passed_on() {
        let one = SimArgs {
            seeds: Some(3),
            from: 7,
            ops: 10,
            mutant: Some("late-reply".to_owned()),
            mutants: false,
            starts: 5,
            clean_below: 0,
            crashes: None,
            case: None,
            copies: 1,
            delegations: false,
            compares: false,
            jobs: 2,
        };
        assert_eq!(flags(&one).join(" "), "--seeds 3 --from 7 --ops 10 --jobs 2 --mutant late-reply");
        let all = SimArgs { seeds: None, mutant: None, mutants: true, ..one.clone() };
        assert_eq!(flags(&all).join(" "), "--from 7 --ops 10 --jobs 2 --mutants --starts 5");
        let copies = SimArgs { mutants: false, copies: 3, ..all.clone() };
        assert_eq!(flags(&copies).join(" "), "--from 7 --ops 10 --jobs 2 --copies 3");
        let crashes = SimArgs { mutants: false, crashes: Some(50), ..all };
        assert_eq!(flags(&crashes).join(" "), "--from 7 --ops 10 --jobs 2 --crashes 50");
    }
}
