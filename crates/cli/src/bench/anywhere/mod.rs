//! `bench tree`: what mdtest, tar, rm, git and a big file do on any directory of any mounted filesystem.
//!
//! Processes, not threads, each in a directory of its own, as `mdtest -u`. All start a phase together; its
//! time is from the first start to the last end. With `--also`, what was done is then looked at through
//! another mount of the same filesystem, and a phase ends when all of it is seen there: what a filesystem put
//! off is part of its time. Nothing of Bearing is asked here but the kernel's own interface.

mod archive;
mod look;
mod phase;
mod repository;
mod results;
mod team;
mod worker;

pub use phase::Group;
pub use worker::{TreeWorker, run as run_worker};

use self::archive::{Archive, Shape};
use super::machine::{Identity, Removed};
use crate::failure::Usage;
use anyhow::{Context, Result, bail};
use bearing_env::random_u64;
use clap::{Args, ValueEnum};
use phase::Drop;
use results::Results;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use team::{Interrupt, Sizes, Team};

const EXAMPLES: &str = "\
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
#[command(after_help = EXAMPLES)]
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
    /// What the archive that tar unpacks is like
    #[arg(long, value_enum, default_value_t = Shape::Hundred)]
    pub shape: Shape,
    /// Files in it [default: 10000; of photos 250, of imagenet 2600]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub small_files: Option<u32>,
    /// Files in the repository that git clones
    #[arg(long, value_name = "N", default_value_t = 1_500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub clone_files: u32,
    /// Bytes in the big file; divided between the processes. K, M, G: times 1000, 1000^2, 1000^3
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = bytes)]
    pub bytes: u64,
    /// Only these groups of phases
    #[arg(long, value_enum, value_name = "GROUP,..", value_delimiter = ',')]
    pub only: Vec<Group>,
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

/// Where the kernel is told to drop caches.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
/// How long a first file may take to show at the other mount.
const SAME_PATIENCE: Duration = Duration::from_secs(3);

/// Runs the measurement.
pub fn run(flags: &Tree) -> Result<()> {
    let path = directory(&flags.path)?;
    let also = flags.also.as_deref().map(directory).transpose()?;
    need_empty(&path)?;
    let interrupt = Interrupt::watch()?;
    let scratch = std::env::temp_dir().join(format!("bearing-bench-{:016x}", random_u64()));
    fs::create_dir(&scratch).with_context(|| format!("make {}", scratch.display()))?;
    let _scratch_removed = Removed(scratch.clone());
    let archive = scratch.join("small.tar");
    let tree = Archive::new(flags.shape, flags.small_files.unwrap_or(flags.shape.files()));
    tree.write(&archive)?;
    let repository = wanted(flags, Group::Git).then(|| repository_in(&scratch, flags)).transpose()?.flatten();
    let name = format!("bearing-bench-{:016x}", random_u64());
    let own = path.join(&name);
    fs::create_dir(&own).with_context(|| format!("make {}", own.display()))?;
    let _own_removed = Removed(own.clone());
    let also = also.map(|also| also.join(&name));
    if let Some(also) = &also {
        need_same(&own, also)?;
    }
    let mut results = Results::new(Identity::read(), flags.name.clone().unwrap_or_else(|| kind_of(&path)));
    describe(flags, (&path, &tree), repository.is_some(), &mut results);
    let (small_files, small_bytes) = (tree.files(), tree.bytes());
    let place = Place { own, also, archive, small_files, small_bytes, repository };
    for repetition in 1..=flags.repetitions {
        for processes in &flags.processes {
            place.repetition(flags, repetition, *processes, &interrupt, &mut results)?;
        }
    }
    if let Some(file) = &flags.csv {
        results.write(file)?;
    }
    if let Some(file) = &flags.times {
        fs::write(file, results.times()).with_context(|| format!("write {}", file.display()))?;
    }
    if flags.json {
        println!("{}", serde_json::to_string_pretty(&results.json())?);
    } else {
        println!("\n{}", results.table());
        if let Some(file) = &flags.csv {
            println!("\nraw results: {}", file.display());
        }
    }
    Ok(())
}

/// Where a run works.
struct Place {
    own: PathBuf,
    also: Option<PathBuf>,
    archive: PathBuf,
    /// Files in it, and their bytes.
    small_files: u32,
    small_bytes: u64,
    /// What is cloned; none without git.
    repository: Option<PathBuf>,
}

impl Place {
    fn repetition(
        &self,
        flags: &Tree,
        repetition: u32,
        processes: u32,
        interrupt: &Interrupt,
        results: &mut Results,
    ) -> Result<()> {
        for group in Group::ALL.into_iter().filter(|group| wanted(flags, *group)) {
            let alone = matches!(group, Group::Tree | Group::Git);
            if alone && processes > 1 || group == Group::Git && self.repository.is_none() {
                continue;
            }
            let name = format!("{repetition}-{processes}-{group:?}").to_lowercase();
            let directory = self.own.join(&name);
            fs::create_dir(&directory).with_context(|| format!("make {}", directory.display()))?;
            let sizes = Sizes {
                count: (flags.files / processes).max(1),
                bytes: (flags.bytes / u64::from(processes)).max(1),
                small_files: self.small_files,
                small_bytes: self.small_bytes,
                archive: self.archive.clone(),
                clone_files: flags.clone_files,
                repository: self.repository.clone(),
            };
            let also = self.also.as_ref().map(|also| also.join(&name));
            let mut team = Team::start(&directory, also.as_deref(), processes, &sizes, interrupt)?;
            for phase in group.phases() {
                if !dropped(phase.drop()) {
                    continue;
                }
                let took = team.run(*phase)?;
                let amount = match group {
                    Group::Files | Group::Directories => f64::from(sizes.count * processes),
                    Group::Tree => f64::from(sizes.small_files),
                    Group::Git => f64::from(sizes.clone_files),
                    Group::Data => (sizes.bytes * u64::from(processes)) as f64 / 1e6,
                };
                if !flags.json {
                    println!(
                        "{} of {}, {} by {processes}: {:.0} {} per second ({:.3} s, of these {:.3} s drain)",
                        repetition,
                        flags.repetitions,
                        phase.word(),
                        amount / took.seconds,
                        phase.unit(),
                        took.seconds,
                        took.drain
                    );
                }
                results.add(*phase, processes, repetition, amount, took);
            }
            drop(team);
            fs::remove_dir_all(&directory).with_context(|| format!("remove {}", directory.display()))?;
        }
        Ok(())
    }
}

/// Whether a group of phases was asked for.
fn wanted(flags: &Tree, group: Group) -> bool {
    flags.only.is_empty() || flags.only.contains(&group)
}

/// Makes what is cloned, if git is there.
fn repository_in(scratch: &Path, flags: &Tree) -> Result<Option<PathBuf>> {
    if !repository::git_is_there() {
        eprintln!("git is not installed; git-clone is left out");
        return Ok(None);
    }
    let path = scratch.join("repository");
    repository::make(&path, flags.clone_files)?;
    Ok(Some(path))
}

/// An existing directory by its whole path.
fn directory(path: &Path) -> Result<PathBuf> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            path.canonicalize().with_context(|| format!("find {}", path.display()))
        }
        Ok(_) => bail!(Usage(format!("{} is no directory; give an empty one to work in", path.display()))),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!(Usage(format!("{} does not exist; make an empty directory to work in", path.display())))
        }
        Err(error) => Err(error).with_context(|| format!("look at {}", path.display())),
    }
}

fn need_empty(path: &Path) -> Result<()> {
    let mut entries = fs::read_dir(path).with_context(|| format!("list {}", path.display()))?;
    match entries.next() {
        None => Ok(()),
        Some(entry) => {
            let name = entry.with_context(|| format!("list {}", path.display()))?.file_name();
            bail!(Usage(format!(
                "{} is not empty: there is {}; give an empty directory, such as a new one there",
                path.display(),
                name.display()
            )))
        }
    }
}

/// Refuses a second path that does not show what is made under the first.
fn need_same(own: &Path, also: &Path) -> Result<()> {
    let deadline = Instant::now() + SAME_PATIENCE;
    while !also.exists() {
        if Instant::now() > deadline {
            bail!(Usage(format!(
                "{} was made and does not show as {}; --also takes the same directory as another mount shows it",
                own.display(),
                also.display()
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Drops caches; whether it could.
fn dropped(what: Drop) -> bool {
    let level = match what {
        Drop::Nothing => return true,
        Drop::Nodes => "2",
        Drop::NodesAndPages => "3",
    };
    // What is dirty cannot be dropped.
    // SAFETY: sync takes nothing and changes no memory.
    unsafe { libc::sync() };
    // Without it pages are dropped by the reader, file by file; nodes cannot be dropped otherwise.
    fs::write(DROP_CACHES, level).is_ok() || what == Drop::NodesAndPages
}

/// The type of the filesystem that a directory lies in.
fn kind_of(path: &Path) -> String {
    let output = Command::new("stat").args(["-f", "-c", "%T"]).arg(path).stderr(Stdio::null()).output();
    let by_stat = output.ok().filter(|output| output.status.success());
    let by_stat = by_stat.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    by_table(path).or(by_stat).unwrap_or_else(|| "unknown".to_owned())
}

/// By the kernel's table of mounts: the one with the device of the directory.
fn by_table(path: &Path) -> Option<String> {
    let device = fs::metadata(path).ok()?.dev();
    let wanted = format!("{}:{}", libc::major(device), libc::minor(device));
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = table.lines().find(|line| line.split(' ').nth(2) == Some(wanted.as_str()))?;
    line.split_once(" - ")?.1.split(' ').next().map(str::to_owned)
}

fn describe(flags: &Tree, (path, tree): (&Path, &Archive), has_git: bool, results: &mut Results) {
    results.note("path", path.display().to_string());
    let drain = match &flags.also {
        Some(also) => format!(
            "after a phase that changes something, its end is when all of it is seen through {}: names by listing, trees and sizes by attributes",
            also.display()
        ),
        None => "not counted: no second mount was given".to_owned(),
    };
    results.note("drain", drain);
    let root = fs::metadata(DROP_CACHES).is_ok() && is_root();
    let dropped = if root {
        "sync and drop_caches 2 before stat-uncached (entries and nodes of all filesystems), 3 before read (and pages)"
    } else {
        "not root: no stat-uncached; before read only the pages of the file (posix_fadvise)"
    };
    results.note("caches dropped", dropped.to_owned());
    let cloned = if has_git {
        format!("a clone of {} files, {} bytes", flags.clone_files, repository::bytes_of(flags.clone_files))
    } else {
        "no clone".to_owned()
    };
    results.note(
        "sizes",
        format!(
            "{} files and directories, divided between the processes; {} small files in {} directories ({}), {} bytes; {}; {} bytes in the big file, divided, synced at the end of the write",
            flags.files,
            tree.files(),
            tree.directories(),
            flags.shape.to_possible_value().expect("no shape is hidden").get_name(),
            tree.bytes(),
            cloned,
            flags.bytes
        ),
    );
}

fn is_root() -> bool {
    // SAFETY: geteuid takes nothing and changes no memory.
    unsafe { libc::geteuid() == 0 }
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
