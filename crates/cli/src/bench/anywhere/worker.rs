//! One process of `bench tree`: it works in a directory of its own, phase by phase as it is told, and says
//! when it began, when it was done and when all of it was seen through the other mount.
//!
//! It is told a phase's name by a line of standard input, and answers with a line: `ok BEGAN DONE SEEN` in
//! nanoseconds of the system's monotonic clock, or `failed TEXT`. It ends with its input.

use super::look::{Expected, walk};
use super::phase::Phase;
use super::repository;
use anyhow::{Context, Result, bail};
use bearing_env::Clock;
use clap::Args;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
    /// Their bytes.
    #[arg(long)]
    pub small_bytes: u64,
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

/// Bytes in one call of read or write.
const PART_BYTES: usize = 1 << 20;
/// The file of the write and read phases.
const DATA_NAME: &str = "data";
/// The tree that tar unpacks.
const TREE_NAME: &str = "tree";

/// The clone.
const CLONE_NAME: &str = "clone";

/// Runs a worker.
pub fn run(flags: &TreeWorker) -> Result<()> {
    // Names are relative, as mdtest's with -u: what is measured is one component, not the path to it.
    std::env::set_current_dir(&flags.dir).with_context(|| format!("go to {}", flags.dir.display()))?;
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line?;
        match measure(flags, &line) {
            Ok([began, done, seen]) => writeln!(out, "ok {began} {done} {seen}")?,
            Err(error) => writeln!(out, "failed {line}: {error:#}")?,
        }
        out.flush()?;
    }
    Ok(())
}

fn measure(flags: &TreeWorker, word: &str) -> Result<[u64; 3]> {
    let Some(phase) = Phase::from_word(word) else { bail!("there is no such phase") };
    let mut program = program(flags, phase);
    let began = Clock.mono().0;
    match &mut program {
        Some(program) => run_program(program)?,
        None => carry_out(flags, phase)?,
    }
    let done = Clock.mono().0;
    let seen = match &flags.also {
        Some(other) if phase.changes() => {
            expected(flags, phase)?.wait_until_seen(other)?;
            Clock.mono().0
        }
        _ => done,
    };
    Ok([began, done, seen])
}

/// The program that a phase is, if it is one.
fn program(flags: &TreeWorker, phase: Phase) -> Option<Command> {
    let mut command = match phase {
        Phase::Untar => {
            let mut command = Command::new("tar");
            command.arg("-xf").arg(&flags.archive);
            command
        }
        Phase::RmR => {
            let mut command = Command::new("rm");
            command.args(["-r", TREE_NAME]);
            command
        }
        Phase::GitClone => repository::clone(flags.repository.as_deref()?, CLONE_NAME),
        _ => return None,
    };
    command.stdin(Stdio::null()).stdout(Stdio::null());
    Some(command)
}

fn run_program(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("start {}", command.get_program().display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{} ended with {}: {}", command.get_program().display(), output.status, said.trim());
    }
    Ok(())
}

fn carry_out(flags: &TreeWorker, phase: Phase) -> Result<()> {
    let count = flags.count;
    let each = |name: &str, run: &dyn Fn(&str) -> io::Result<()>| -> Result<()> {
        for number in 0..count {
            let name = format!("{name}.{number}");
            run(&name).with_context(|| name)?;
        }
        Ok(())
    };
    match phase {
        Phase::Create => {
            each("file", &|name| OpenOptions::new().write(true).create_new(true).open(name).map(drop))
        }
        Phase::Stat | Phase::StatUncached => each("file", &|name| fs::symlink_metadata(name).map(drop)),
        Phase::OpenClose => each("file", &|name| File::open(name).map(drop)),
        Phase::Rename => each("file", &|name| fs::rename(name, renamed(name))),
        Phase::Remove => each("file", &|name| fs::remove_file(renamed(name))),
        Phase::Mkdir => each("dir", &|name| fs::create_dir(name)),
        Phase::StatDir => each("dir", &|name| fs::symlink_metadata(name).map(drop)),
        Phase::RenameDir => each("dir", &|name| fs::rename(name, renamed(name))),
        Phase::Rmdir => each("dir", &|name| fs::remove_dir(renamed(name))),
        Phase::Write => write(flags.bytes),
        Phase::Read => read(flags.bytes),
        Phase::Untar | Phase::RmR => unreachable!("run as programs"),
        Phase::GitClone => bail!("there is no repository"),
    }
}

fn renamed(name: &str) -> String {
    format!("renamed-{name}")
}

fn write(bytes: u64) -> Result<()> {
    let mut file = File::create(DATA_NAME).context("create the file")?;
    let part: Vec<u8> = (0..PART_BYTES).map(|at| (at % 251) as u8).collect();
    let mut left = bytes;
    while left > 0 {
        let now = left.min(PART_BYTES as u64) as usize;
        file.write_all(&part[..now]).context("write")?;
        left -= now as u64;
    }
    file.sync_all().context("sync")
}

fn read(bytes: u64) -> Result<()> {
    let mut file = File::open(DATA_NAME).context("open the file")?;
    // Also for those who may not drop all of the kernel's pages: this file's are dropped.
    // SAFETY: the call takes plain numbers, and the descriptor is open.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    let mut part = vec![0; PART_BYTES];
    let mut got = 0;
    loop {
        match file.read(&mut part).context("read")? {
            0 => break,
            count => got += count as u64,
        }
    }
    if got != bytes {
        bail!("read {got} of {bytes} bytes");
    }
    Ok(())
}

/// What another mount must see after a phase.
fn expected(flags: &TreeWorker, phase: Phase) -> Result<Expected> {
    let names = |prefix: &'static str, count| Expected::Names { prefix, count };
    Ok(match phase {
        Phase::Create => names("file.", flags.count),
        Phase::Rename => names("renamed-file.", flags.count),
        Phase::Mkdir => names("dir.", flags.count),
        Phase::RenameDir => names("renamed-dir.", flags.count),
        Phase::Remove | Phase::Rmdir | Phase::RmR => names("", 0),
        Phase::Untar => Expected::Tree { files: u64::from(flags.small_files), bytes: flags.small_bytes },
        Phase::GitClone => {
            // What git keeps for itself depends on its version: it is counted here, where it is a handful of
            // files.
            let (files, bytes) = walk(&Path::new(CLONE_NAME).join(".git")).context("look at the clone")?;
            Expected::Tree {
                files: files + u64::from(flags.clone_files),
                bytes: bytes + repository::bytes_of(flags.clone_files),
            }
        }
        Phase::Write => Expected::File { name: Path::new(DATA_NAME), bytes: flags.bytes },
        Phase::Stat | Phase::StatUncached | Phase::OpenClose | Phase::StatDir | Phase::Read => {
            unreachable!("changes nothing")
        }
    })
}
