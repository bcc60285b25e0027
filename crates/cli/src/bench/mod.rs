//! `bearing bench`: measurements of this program on this machine, with raw results to keep.
//!
//! What is measured is production's code: the metadata server is this binary's own daemon in a process of its own. Figures are
//! taken in pairs, the server and what it is compared with in turn, so that what else the machine does meets both.

mod anywhere;
mod bare;
mod canned;
mod cluster;
mod create;
mod drive;
mod link;
mod machine;
mod metadata;
mod report;
mod schemes;
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
    /// Any directory of any mounted filesystem: mdtest's phases, open and close, untar, rm -r, git clone, a big file
    #[command(after_help = TREE_EXAMPLES)]
    Tree(Tree),
    /// Every scheme's placement and lookup as code alone: time to locate, tables, changes, bytes a server
    Schemes(Schemes),
    /// One process of `bench tree`
    #[command(hide = true)]
    TreeWorker(TreeWorker),
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

const TREE_EXAMPLES: &str = "\
Examples:
  bearing bench tree ./mnt/empty
  bearing bench tree /mnt/a --also /mnt/b --csv here.csv     two mounts of one filesystem: the drain counts
  bearing bench tree /srv/nfs/new --only files,directories --processes 1,2,4

Files are empty, each process has a directory of its own (mdtest -u). With --also,
the time of a phase that changes something ends when all of it is seen through the
second mount. Before stat-uncached entries and nodes are dropped from the kernel's
caches, before read the pages too (/proc/sys/vm/drop_caches; needs root). What a
filesystem's own process caches stays. What is cloned lies in the directory for
temporary files; without git that phase is left out.";

/// `bench tree`.
#[derive(Args, Clone, Debug)]
pub struct Tree {
    /// An empty directory to work in
    pub path: PathBuf,
    /// The same directory through a second mount of the same filesystem
    #[arg(long, value_name = "PATH2")]
    pub also: Option<PathBuf>,
    /// Numbers of processes, one after the other
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1,4", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub processes: Vec<u32>,
    /// Files, and directories, in each phase; divided between the processes
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub files: u32,
    /// Files in the archive that tar unpacks
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub small_files: u32,
    /// Files in the repository that git clones
    #[arg(long, value_name = "N", default_value_t = 1_500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub clone_files: u32,
    /// Bytes in the big file; divided between the processes. K, M, G: times 1000, 1000^2, 1000^3
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = bytes)]
    pub bytes: u64,
    /// Only these groups of phases
    #[arg(long, value_enum, value_name = "GROUP,..", value_delimiter = ',')]
    pub only: Vec<anywhere::Group>,
    /// How often everything is done
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub repetitions: u32,
    /// What the filesystem is called in the results [default: its type]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Where to put the raw results
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Where to put when each phase began and ended, in nanoseconds of the system's CLOCK_BOOTTIME
    #[arg(long, value_name = "FILE", hide = true)]
    pub times: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `bench schemes`.
#[derive(Args, Clone, Debug)]
pub struct Schemes {
    /// Sizes of clusters, one after the other
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "100,1000,10000", value_parser = clap::value_parser!(u32).range(2..=50_000))]
    pub servers: Vec<u32>,
    /// How often everything is timed
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub repetitions: u32,
    /// Where to put the raw results [default: bench/runs/DATE-schemes.csv]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// `bench tree-worker`.
#[derive(Args, Clone, Debug)]
pub struct TreeWorker {
    /// Where to work.
    #[arg(long)]
    pub dir: PathBuf,
    /// The same directory through another mount.
    #[arg(long)]
    pub also: Option<PathBuf>,
    /// Files and directories.
    #[arg(long)]
    pub count: u32,
    /// Bytes of the big file.
    #[arg(long)]
    pub bytes: u64,
    /// Files in the archive.
    #[arg(long)]
    pub small_files: u32,
    /// The archive.
    #[arg(long)]
    pub archive: PathBuf,
    /// Files in the repository.
    #[arg(long)]
    pub clone_files: u32,
    /// The repository, if there is one.
    #[arg(long)]
    pub repository: Option<PathBuf>,
}

/// A number of bytes, with a letter for thousands.
fn bytes(text: &str) -> Result<u64, String> {
    let (digits, times) = match text.to_ascii_uppercase().as_bytes() {
        [.., b'K'] => (&text[..text.len() - 1], 1_000),
        [.., b'M'] => (&text[..text.len() - 1], 1_000_000),
        [.., b'G'] => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(times));
    number
        .filter(|number| *number > 0)
        .ok_or_else(|| "no number of bytes; write it like 1000000, 200M or 1G".to_owned())
}

/// Removed with all that is in it when this value goes.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{} was not removed: {error}", self.0.display());
        }
    }
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
        Bench::Tree(flags) => anywhere::run(flags),
        Bench::Schemes(flags) => schemes::run(flags),
        Bench::TreeWorker(flags) => anywhere::run_worker(flags),
        Bench::Canned(file) => canned::run(file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_numbers_with_or_without_a_letter() {
        assert_eq!(bytes("17"), Ok(17));
        assert_eq!(bytes("200m"), Ok(200_000_000));
        assert_eq!(bytes("1G"), Ok(1_000_000_000));
        for wrong in ["", "G", "0", "-1", "1.5G", "99999999999G"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
