//! The project's own tool: `cargo xtask <command>`.
//!
//! It starts the other programs of the project and imports none of its rooms, so it works while they do
//! not compile.

mod bench_copies;
mod bench_shared;
mod bench_tree;
mod beside;
mod cargo;
mod ci;
mod demo;
mod draw;
mod etcd;
mod lossyfs;
mod profile;
mod sim;
mod soak;
mod stage;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Checks, tests and runs the project")]
struct Args {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Check the rules that the compiler does not know: who imports whom, pure rooms, file length
    Tidy {
        /// Only print how large the circles of files are that import each other
        #[arg(long)]
        circles: bool,
    },
    /// Everything a change must pass: build, checks, tests, simulation
    Ci,
    /// Run simulated clusters, one per seed
    Sim(sim::SimArgs),
    /// Measure files and directories on the local disk, libfuse's passthrough and Bearing, in turns
    BenchTree(bench_tree::BenchTreeArgs),
    /// What copies of metadata cost: creates, stats and renames with one, two and three copies, in turns
    BenchCopies(bench_copies::BenchCopiesArgs),
    /// Many workers in the same directories, through one mount and through several, beside passthrough
    BenchShared(bench_shared::BenchSharedArgs),
    /// Run other people's programs on a mounted cluster for a long time: fsx, git, SQLite, fio, stress-ng,
    /// rsync; cut its power, kill its servers
    Soak(soak::SoakArgs),
    /// Build etcd for the tests that need it
    Etcd,
    /// Mount a filesystem in memory that loses, on command, what was not synced
    Lossyfs(lossyfs::LossyArgs),
    /// Start a cluster on this machine, mount it at ./mnt, fill it, verify it, leave it running
    Demo,
    /// Stop what `demo` started and unmount it
    Down,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let root = project_root()?;
    match &args.command {
        Action::Tidy { circles: true } => tidy::print_circles(&root),
        Action::Tidy { circles: false } => tidy::run(&root),
        Action::Ci => ci::run(&root),
        Action::Sim(sim) => sim::run(&root, sim),
        Action::BenchTree(bench) => bench_tree::run(&root, bench),
        Action::BenchCopies(bench) => bench_copies::run(&root, bench),
        Action::BenchShared(bench) => bench_shared::run(&root, bench),
        Action::Soak(soak) => soak::run(&root, soak),
        Action::Etcd => etcd::build(&root),
        Action::Lossyfs(lossy) => lossyfs::run(lossy),
        Action::Demo => demo::up(&root),
        Action::Down => demo::down(&root),
    }
}

/// The directory of the workspace: where this package was built from, if it is still there.
fn project_root() -> Result<PathBuf> {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let root = package.as_deref().and_then(|path| path.parent()).context("start it as `cargo xtask`")?;
    Ok(root.to_owned())
}
