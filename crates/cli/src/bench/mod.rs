//! `bearing bench`: measurements of this program on this machine, with raw results to keep.
//!
//! What is measured is production's code: the metadata server is this binary's own daemon in a process of its own. Figures are
//! taken in pairs, the server and what it is compared with in turn, so that what else the machine does meets both.

mod bare;
mod canned;
mod cluster;
mod create;
mod drive;
mod link;
mod machine;
mod metadata;
mod report;
mod stat;
mod tree;

use crate::args::DaemonFile;
use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// What can be measured.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// One metadata server on one core: stat beside the same loop without its machine, durable create beside the bare store
    Metadata(Metadata),
    /// The server whose answers are canned (started by `bench metadata`)
    #[command(hide = true)]
    Canned(DaemonFile),
}

/// `bench metadata`.
#[derive(Args, Clone, Debug)]
pub struct Metadata {
    /// Distinct entries, created before anything is measured
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=16_000_000))]
    pub entries: u32,
    /// Seconds per measurement
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=20))]
    pub seconds: u64,
    /// Operations under way at the same time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=512))]
    pub in_flight: u32,
    /// Operations per datagram when packed
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=32))]
    pub packed: u32,
    /// How entries are drawn
    #[arg(long, value_enum, default_value_t = Distribution::Both)]
    pub distribution: Distribution,
    /// What to measure
    #[arg(long, value_enum, default_value_t = Measure::All)]
    pub measure: Measure,
    /// Pairs per line of the result
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub repetitions: u32,
    /// Where draws begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Where to put the servers' stores, removed afterwards [default: a new directory in the system's temporary one]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Where to put the raw results [default: bench/runs/DATE-metadata.csv]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// How entries are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Distribution {
    /// By Zipf's law with exponent 0.99.
    Zipf,
    /// All alike.
    Uniform,
    /// One after the other.
    Both,
}

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Measure {
    /// Everything.
    All,
    /// Reads only.
    Stat,
    /// Durable creation only.
    Create,
}

/// Runs a measurement.
pub fn run(command: &Bench) -> Result<()> {
    match command {
        Bench::Metadata(flags) => metadata::run(flags),
        Bench::Canned(file) => canned::run(file),
    }
}
