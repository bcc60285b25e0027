//! `cargo xtask bench-shared`: where clusters really work. Many processes in the same directories through one
//! mount and through several, single calls without delegation, a real source tree, and directories of very
//! many entries; beside libfuse's passthrough and MooseFS, in turns.
//!
//! Latencies are of whole operations as programs see them: to make a file is open, write and close.

mod calls;
mod large;
mod mix;
mod run;
mod tree;

use std::fs;
use std::iter::repeat;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use self::run::{Rows, Subject};
use self::tree::Tree;
use crate::beside::{MooseFs, passthrough};
use crate::cargo::release_build;
use crate::profile::Profiles;
use crate::stage::{Servers, Stage, said};

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct BenchSharedArgs {
    /// The program to measure [default: a release build of this tree]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Only these works [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// How often each case is measured (those of large directories once)
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// For how many seconds a mix runs each time
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Workers of a mix in all, spread over the mounts
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    workers: u32,
    /// Files and directories of the tree, at least
    #[arg(long, default_value_t = 12_000)]
    entries: u64,
    /// Files in the large directory
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(100..))]
    files: u64,
    /// Directories of the large tree
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(100..))]
    directories: u64,
    /// Metadata servers
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8))]
    metadata: u32,
    /// Copies of metadata [default: two if there are two servers]
    #[arg(long)]
    copies: Option<u32>,
    /// Sample the CPUs with perf meanwhile, and write here what the time of each work was spent on
    #[arg(long, value_name = "DIR")]
    profile: Option<PathBuf>,
    /// Where to put the raw results [default: bench/runs/DATE-shared.csv]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Works that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Many processes in the same directories
    Mix,
    /// Single calls, without delegation
    Calls,
    /// A source tree
    Tree,
    /// Very many entries
    Large,
}

/// Runs the measurement.
pub fn run(root: &Path, args: &BenchSharedArgs) -> Result<()> {
    let program = match &args.program {
        Some(program) => program.canonicalize().with_context(|| format!("find {}", program.display()))?,
        None => release_build(root)?,
    };
    let out = match &args.out {
        Some(out) => out.clone(),
        None => root.join("bench/runs").join(format!("{}-shared.csv", said("date", &["-u", "+%F"])?)),
    };
    let stage = Stage::new(root.join("target/bench-shared"), program)?;
    let mut set = Set::start(&stage, args)?;
    let profiles = args.profile.as_deref().map(Profiles::new).transpose()?;
    set.rows.profiles = profiles.map(|profiles| (profiles, stage.directory.clone()));
    let mut measured = Ok(());
    for part in [Part::Mix, Part::Calls, Part::Tree, Part::Large] {
        if measured.is_ok() && (args.only.is_empty() || args.only.contains(&part)) {
            measured = set.measure(part, args);
        }
    }
    // A run that is cut short keeps what it has.
    let table = set.rows.table() + &set.memory;
    fs::write(&out, raw(args, &table, &set.rows)?).with_context(|| format!("write {}", out.display()))?;
    println!("\n{table}\nraw results: {}", out.display());
    if let Some((profiles, _)) = &set.rows.profiles {
        profiles.write()?;
    }
    measured
}

/// All that is mounted.
struct Set<'a> {
    stage: &'a Stage,
    passthrough: Subject,
    moosefs: Option<MooseFs>,
    delegated: Vec<PathBuf>,
    plain: Vec<PathBuf>,
    rows: Rows,
    memory: String,
}

impl<'a> Set<'a> {
    fn start(stage: &'a Stage, args: &BenchSharedArgs) -> Result<Set<'a>> {
        let servers = Servers {
            metadata: args.metadata,
            metadata_copies: Some(args.copies.unwrap_or(args.metadata.min(2))),
            lookup: None,
            data: 1,
            data_copies: 1,
            restarted: false,
        };
        let mut delegated = stage.start(servers, "delegate")?.to_vec();
        for number in [3, 4] {
            delegated.push(stage.mount(&format!("bearing-{number}"), "delegate")?);
        }
        let plain = vec![stage.mount("plain-1", "nodelegate")?, stage.mount("plain-2", "nodelegate")?];
        let passed = passthrough(stage)?.to_vec();
        let moosefs = MooseFs::is_installed().then(|| MooseFs::start(stage)).transpose()?;
        if moosefs.is_none() {
            println!(
                "bench-shared: MooseFS is not installed, so it is not measured: apt-get install moosefs-master moosefs-chunkserver moosefs-client"
            );
        }
        let marker = stage.directory.join("passthrough").display().to_string();
        let passthrough = Subject { name: "passthrough".into(), points: passed, marker };
        let (rows, memory) = (Rows::default(), String::new());
        Ok(Set { stage, passthrough, moosefs, delegated, plain, rows, memory })
    }

    fn bearing(&self, name: &str, points: &[PathBuf]) -> Subject {
        let marker = self.stage.directory.join("cluster").display().to_string();
        Subject { name: name.to_owned(), points: points.to_vec(), marker }
    }

    /// MooseFS by so many mounts, if it is there.
    fn moosefs(&self, mounts: usize) -> Option<Subject> {
        let marker = self.stage.directory.join("moosefs").display().to_string();
        let points = self.moosefs.as_ref()?.points[..mounts].to_vec();
        Some(Subject { name: named("MooseFS", mounts), points, marker })
    }

    fn measure(&mut self, part: Part, args: &BenchSharedArgs) -> Result<()> {
        match part {
            Part::Mix => self.mix(args),
            Part::Calls => {
                let plain = self.bearing("Bearing nodelegate", &self.plain[..1]);
                let subjects = [Some(self.passthrough.clone()), self.moosefs(1), Some(plain)];
                let subjects: Vec<Subject> = subjects.into_iter().flatten().collect();
                self.in_turns(args, &subjects, calls::run)
            }
            Part::Tree => {
                let tree = Tree::pack(self.stage, args.entries)?;
                let two = self.bearing("Bearing", &self.delegated[..2]);
                let subjects = [Some(self.passthrough.clone()), self.moosefs(2), Some(two)];
                let subjects: Vec<Subject> = subjects.into_iter().flatten().collect();
                self.in_turns(args, &subjects, |rows, subject, round| tree.run(rows, subject, round))?;
                self.restarted(&tree, args.rounds)
            }
            Part::Large => {
                let two = self.bearing("Bearing", &self.delegated[..2]);
                for subject in [self.moosefs(2), Some(two)].into_iter().flatten() {
                    self.memory += &large::files(&mut self.rows, &subject, args.files)?;
                    self.memory += &large::directories(&mut self.rows, &subject, args.directories)?;
                }
                Ok(())
            }
        }
    }

    /// Passthrough begins with nothing in the kernel's memory, as after a restart.
    fn restarted(&mut self, tree: &Tree, rounds: u32) -> Result<()> {
        let (passthrough, one) = (self.passthrough.clone(), self.bearing("Bearing", &self.delegated[..1]));
        let forget =
            || fs::write("/proc/sys/vm/drop_caches", "3").context("have the kernel forget everything");
        let (delegated, plain) =
            (self.delegated.iter().zip(repeat("delegate")), self.plain.iter().zip(repeat("nodelegate")));
        let mounts: Vec<(&Path, &str)> =
            delegated.chain(plain).map(|(point, options)| (&**point, options)).collect();
        for round in 1..=rounds {
            tree.after_restart(&mut self.rows, &passthrough, round, &forget)?;
            tree.after_restart(&mut self.rows, &one, round, &|| {
                self.stage.restart(&mounts)?;
                forget()
            })?;
        }
        Ok(())
    }

    fn mix(&mut self, args: &BenchSharedArgs) -> Result<()> {
        let mut subjects = vec![(
            Subject { points: self.passthrough.points[..1].to_vec(), ..self.passthrough.clone() },
            false,
        )];
        for mounts in [1, 2, 4] {
            subjects.extend(self.moosefs(mounts).map(|subject| (subject, false)));
            subjects.push((self.bearing(&named("Bearing", mounts), &self.delegated[..mounts]), false));
        }
        subjects.push((self.bearing("Bearing, 2 apart", &self.delegated[..2]), true));
        let one_of_two = [self.delegated[0].clone(), self.plain[1].clone()];
        subjects.push((self.bearing("one nodelegate of 2", &one_of_two), false));
        subjects.push((self.bearing("Bearing nodelegate, 2", &self.plain), false));
        let (workers, length) = (args.workers, Duration::from_secs(args.seconds));
        let apart: Vec<String> =
            subjects.iter().filter(|(_, apart)| *apart).map(|(subject, _)| subject.name.clone()).collect();
        let subjects: Vec<Subject> = subjects.into_iter().map(|(subject, _)| subject).collect();
        self.in_turns(args, &subjects, |rows, subject, round| {
            let place = PathBuf::from(format!("mix-{}-{round}", subject.name.replace([',', ' '], "-")));
            let apart = apart.contains(&subject.name);
            rows.measure((round, "mix"), subject, || mix::run(subject, &place, workers, length, apart))
        })
    }

    /// Each round begins with another: nobody is always the one who meets a machine that is warm.
    fn in_turns(
        &mut self,
        args: &BenchSharedArgs,
        subjects: &[Subject],
        run: impl Fn(&mut Rows, &Subject, u32) -> Result<()>,
    ) -> Result<()> {
        for round in 1..=args.rounds {
            for turn in 0..subjects.len() {
                run(&mut self.rows, &subjects[(turn + round as usize) % subjects.len()], round)?;
            }
        }
        Ok(())
    }
}

fn named(name: &str, mounts: usize) -> String {
    format!("{name}, {mounts}")
}

fn raw(args: &BenchSharedArgs, table: &str, rows: &Rows) -> Result<String> {
    let head = format!(
        "# command: cargo xtask bench-shared --rounds {} --seconds {} --workers {} --metadata {}{}\n# date: {}\n\
         # commit: {}\n# machine: {} cores, Linux {}; all daemons, mounts and the benchmark share them\n\
         # one data server, one copy of data; MooseFS with one chunk server\n\
         # mix: {} directories; of 100 operations {:?} make, look, read, rename ({} % across), the rest remove\n",
        args.rounds,
        args.seconds,
        args.workers,
        args.metadata,
        args.copies.map(|copies| format!(" --copies {copies}")).unwrap_or_default(),
        said("date", &["-u", "+%F"])?,
        said("git", &["rev-parse", "--short", "HEAD"])?,
        said("nproc", &[])?,
        said("uname", &["-r"])?,
        mix::DIRECTORIES,
        mix::MIX,
        mix::CROSSING
    );
    let table: String = table.lines().map(|line| format!("#   {line}\n")).collect();
    Ok(head + &table + &rows.csv())
}
