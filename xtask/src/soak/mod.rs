//! `cargo xtask soak`: programs of other people on a mounted cluster, for as long as is asked for; power cuts
//! and kills under programs that write.
//!
//! Each of the former is a shell script (`xtask/src/soak/*.sh`) that gets its two mounts and its limits in
//! the environment, ends with 0 if all is well, and says what it needs when that is not installed. A cluster
//! is made for each, mounted twice, and checked with `bearing check --read` in the end.

mod cluster;
mod etcd;
mod killing;
mod kills;
mod outages;
mod power_cuts;
mod writers;
mod xfstests;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use self::cluster::Cluster;
use self::outages::Plan;
use crate::stage::{Servers, Stage, ran};

/// Power cuts in `ci`.
const CI_CUTS: u64 = 10;

/// What to run.
#[derive(Args, Clone, Debug)]
pub struct SoakArgs {
    /// What to run [default: all]
    #[arg(value_enum)]
    what: Vec<Soak>,
    /// The program to run it on [default: a build of this tree]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Operations of fsx, on one mount and again alternating between two
    #[arg(long, default_value_t = 1_000_000)]
    operations: u64,
    /// Seconds of stress-ng, over all its stressors; of fio, each way; and of mixed
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Power cuts
    #[arg(long, default_value_t = 200)]
    cuts: u64,
    /// Kills of servers and of the client
    #[arg(long, default_value_t = 50)]
    kills: u64,
    /// Metadata servers under programs of other people
    #[arg(long, default_value_t = 2)]
    metadata: u32,
    /// Who finds the server of a request there, as for `bearing up` [default: the client's map]
    #[arg(long)]
    lookup: Option<String>,
    /// Kill a metadata server every so many seconds under these programs, and start it again [default: never]
    #[arg(long, value_name = "SECONDS")]
    kill_every: Option<u64>,
    /// Kills of metadata servers whose outages are timed
    #[arg(long, default_value_t = 20)]
    outages: u64,
    /// How often servers come and leave
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// Their cluster is coordinated by etcd
    #[arg(long)]
    etcd: bool,
    /// Kills of etcd's members
    #[arg(long, default_value_t = 100)]
    etcd_kills: u64,
    /// Their cluster has two to the power of this many tablets
    #[arg(long, default_value_t = 4)]
    tablet_bits: u8,
    /// Their cluster has so many files before
    #[arg(long, default_value_t = 0)]
    files: u64,
    /// Where xfstests are from, a directory with their source; without it they are left out
    #[arg(long, value_name = "DIR")]
    source: Option<PathBuf>,
    /// Tests of xfstests, such as generic/001,generic/013 [default: the group generic/quick]
    #[arg(long, value_name = "TESTS", value_delimiter = ',')]
    tests: Vec<String>,
    /// Run xfstests on libfuse's passthrough_ll instead, for a comparison: the built example
    #[arg(long, value_name = "FILE")]
    passthrough: Option<PathBuf>,
    /// Where random choices begin
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A program, or a few that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Soak {
    /// fsx: random operations on one file, compared with an array; on one mount, and alternating between two
    Fsx,
    /// git: clone, fsck, repack, looked at from the other mount
    Git,
    /// SQLite: with a rollback journal and with WAL, killed in between
    Sqlite,
    /// fio --verify: random writes, direct and mapped too
    Fio,
    /// stress-ng: its filesystem stressors one after the other
    Stress,
    /// cargo build and test of a small crate, and again after a change
    Cargo,
    /// git clone on one mount and a source tree unpacked on the other, for so many seconds
    Mixed,
    /// rsync -a twice: the second moves nothing
    Rsync,
    /// pjdfstest: as root on the mount and beside it on the local disk; none fails, no more are skipped
    Pjdfstest,
    /// The cluster on a disk that forgets what was not synced: power cuts under programs that write
    PowerCuts,
    /// kill -9 of random or all servers and of the client under programs that write
    Kills,
    /// kill -9 of one metadata server at a time under a client that works: how long that is felt
    Outages,
    /// etcd's members killed, one and two at a time, and slow, under two clients that work
    Etcd,
    /// Servers come and leave under two mounts that work
    Members,
    /// Requests carried by a switch while owners are killed, and beside requests by the client's map
    Network,
    /// Reads between hosts whose links are shaped, one of them full and one with a slow disk: by the flow
    /// server, by the nearest replica, by any
    Reads,
    /// xfstests, with delegated directories and without: what fails is what is known to fail
    Xfstests,
}

impl Soak {
    /// What it runs, if that is a script on two mounts.
    fn script(self) -> Option<&'static str> {
        Some(match self {
            Soak::Fsx => include_str!("fsx.sh"),
            Soak::Git => include_str!("git.sh"),
            Soak::Sqlite => include_str!("sqlite.sh"),
            Soak::Fio => include_str!("fio.sh"),
            Soak::Stress => include_str!("stress.sh"),
            Soak::Cargo => include_str!("cargo.sh"),
            Soak::Mixed => include_str!("mixed.sh"),
            Soak::Rsync => include_str!("rsync.sh"),
            Soak::Pjdfstest => include_str!("pjdfstest.sh"),
            Soak::PowerCuts
            | Soak::Kills
            | Soak::Outages
            | Soak::Etcd
            | Soak::Members
            | Soak::Network
            | Soak::Reads
            | Soak::Xfstests => return None,
        })
    }

    /// How the mounts are made. SQLite wants locks; on one mount local ones will do.
    fn options(self) -> &'static str {
        match self {
            Soak::Sqlite | Soak::Stress | Soak::Cargo => "locks=local",
            _ => "",
        }
    }
}

/// Runs what is asked for, and fails if any of it does.
pub fn run(root: &Path, args: &SoakArgs) -> Result<()> {
    let program = match &args.program {
        Some(program) => program.canonicalize().with_context(|| format!("find {}", program.display()))?,
        None => build(root)?,
    };
    let all = Soak::value_variants();
    let chosen = if args.what.is_empty() { all } else { &args.what };
    let mut failed = Vec::new();
    for soak in chosen {
        let name = soak.to_possible_value().expect("none is hidden").get_name().to_owned();
        println!("soak: {name} ...");
        let began = Instant::now();
        match run_one(root, &program, *soak, args) {
            Ok(()) => println!("soak: {name}: fine, {} s", began.elapsed().as_secs()),
            Err(error) => {
                println!("soak: {name}: FAILED after {} s: {error:#}", began.elapsed().as_secs());
                failed.push(name);
            }
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

fn build(root: &Path) -> Result<PathBuf> {
    ran(Command::new(crate::cargo::cargo())
        .args(["build", "--quiet", "-p", "bearing-cli"])
        .current_dir(root))?;
    let ours = std::env::current_exe().context("find this program's own path")?;
    Ok(ours.with_file_name("bearing"))
}

/// The power cuts of `ci`, which has built the program. Where nothing can be mounted this says so.
pub fn power_cuts_of_ci(root: &Path) -> Result<()> {
    if let Err(error) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        println!("skipped: /dev/fuse cannot be opened ({error})");
        return Ok(());
    }
    let ours = std::env::current_exe().context("find this program's own path")?;
    power_cuts::run(root, &ours.with_file_name("bearing"), CI_CUTS, 1)
}

fn run_one(root: &Path, program: &Path, soak: Soak, args: &SoakArgs) -> Result<()> {
    let Some(script_text) = soak.script() else {
        return match soak {
            Soak::Kills => kills::run(root, program, args.kills, args.seed),
            Soak::Outages => {
                let SoakArgs { outages: kills, tablet_bits, files, seed, etcd, .. } = *args;
                outages::run(root, program, Plan { kills, tablet_bits, files, seed, etcd })
            }
            Soak::Etcd => etcd::run(root, program, args.etcd_kills, args.seed),
            Soak::Xfstests => run_xfstests(root, program, args),
            Soak::Members => cli_test(root, &["members", "--", "--nocapture"], args.rounds),
            Soak::Network => {
                cli_test(root, &["network", "--", "--nocapture", "--ignored", "--test-threads=1"], 1)
            }
            Soak::Reads => reads(root),
            _ => power_cuts::run(root, program, args.cuts, args.seed),
        };
    };
    let stage = Stage::new(root.join("target/soak"), program.to_owned())?;
    let restarted = args.kill_every.is_none();
    let lookup = args.lookup.clone();
    let servers = Servers {
        metadata: args.metadata,
        metadata_copies: None,
        lookup,
        data: 2,
        data_copies: 2,
        restarted,
    };
    let points = stage.start(servers, soak.options())?;
    let work = stage.make("work")?;
    let mut script = Command::new("bash");
    script.args(["-euo", "pipefail", "-c", script_text]).current_dir(&work).stdin(Stdio::null());
    script.env("ROOT", root).env("M1", &points[0]).env("M2", &points[1]);
    script.env("OPERATIONS", args.operations.to_string()).env("SEED", args.seed.to_string());
    script.env("SECONDS_MAX", args.seconds.to_string());
    let directory = stage.directory.join("cluster");
    // Only looked at: its mounts and processes are the stage's.
    let cluster = Cluster::new(program, directory.clone(), stage.directory.join("mnt"), &stage.directory);
    let cluster = std::mem::ManuallyDrop::new(cluster);
    let done = match args.kill_every {
        None => ran(&mut script).map(|()| Vec::new()),
        Some(seconds) => killing::while_running(&mut script, &cluster, seconds, args.seed),
    };
    let check = || ran(Command::new(program).args(["check", "--read", "--dir"]).arg(&directory));
    let unharmed = || match &cluster.failures()?[..] {
        [] => Ok(()),
        failures => bail!("what should never be in a log:\n{}", failures.join("\n")),
    };
    let judged =
        done.and_then(|restored| check().and_then(|()| unharmed()).and_then(|()| killing::judge(restored)));
    if let Err(error) = judged {
        cluster.keep(&root.join("target/soak-kept"))?;
        return Err(error);
    }
    let takeovers = cluster.takeovers()?;
    println!("  {} takeovers", takeovers.len());
    if args.kill_every.is_none() && !takeovers.is_empty() {
        bail!("nobody was killed, but servers were taken for dead:\n{}", takeovers.join("\n"));
    }
    Ok(())
}

/// The long reads of the command line's tests. One of the data servers has a disk that can be made slow.
fn reads(root: &Path) -> Result<()> {
    let disk = root.join("target/soak-slow-disk");
    std::fs::create_dir_all(&disk).with_context(|| format!("make {}", disk.display()))?;
    let mounted = crate::lossyfs::Mounted::new(&disk)?;
    let mut run = Command::new(crate::cargo::cargo());
    run.args(["test", "--quiet", "-p", "bearing-cli", "--test", "reads", "--", "--nocapture", "--ignored"]);
    let ran = ran(run.current_dir(root).env("BEARING_SLOW_DISK", &disk));
    drop(mounted);
    ran
}

/// A test of the command line, more often or with its long parts.
fn cli_test(root: &Path, test: &[&str], rounds: u64) -> Result<()> {
    let mut run = Command::new(crate::cargo::cargo());
    run.args(["test", "--quiet", "-p", "bearing-cli", "--test"]).args(test);
    ran(run.current_dir(root).env("BEARING_ROUNDS", rounds.to_string()))
}

fn run_xfstests(root: &Path, program: &Path, args: &SoakArgs) -> Result<()> {
    let Some(source) = &args.source else {
        println!("  left out: say with --source where they are");
        return Ok(());
    };
    let choice = xfstests::Choice { source, tests: &args.tests, passthrough: args.passthrough.as_deref() };
    xfstests::run(root, program, &choice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_is_one_that_bash_can_read() {
        for script in Soak::value_variants().iter().filter_map(|soak| soak.script()) {
            let read = Command::new("bash").args(["-n", "-c", script]).status();
            assert!(read.expect("bash is there").success(), "{script}");
        }
    }
}
