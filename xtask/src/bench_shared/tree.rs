//! A real source tree: unpacked, walked through and removed by the mount that unpacked it, by another, and by
//! one that is new to it since everything was started again.
//!
//! It is what cargo has unpacked of this project's dependencies: some six files a directory, as source trees
//! have, most of them small.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::run::{Rows, Subject, timed};
use crate::stage::{Stage, ran, said};

/// An archive of a tree.
pub struct Tree {
    archive: PathBuf,
    entries: u64,
}

impl Tree {
    /// Packs crates, in the order of their names, until there are so many files and directories.
    pub fn pack(stage: &Stage, entries_min: u64) -> Result<Tree> {
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
        let sources = home.context("find cargo's home: HOME is not set")?.join("registry/src");
        let mut crates = Vec::new();
        for registry in std::fs::read_dir(&sources).with_context(|| format!("list {}", sources.display()))? {
            let registry = registry.context("list registries")?.path();
            for one in std::fs::read_dir(&registry).with_context(|| format!("list {}", registry.display()))? {
                crates.push(one.context("list crates")?.path());
            }
        }
        crates.sort_by(|one, other| one.file_name().cmp(&other.file_name()));
        let (mut packed, mut entries) = (Vec::new(), 0);
        for one in crates {
            if entries >= entries_min {
                break;
            }
            entries += count(&one)?;
            packed.push(one);
        }
        ensure!(entries >= entries_min, "{} has {entries} files only: cargo fetch", sources.display());
        let archive = stage.directory.join("tree.tar");
        let mut tar = Command::new("tar");
        tar.arg("-cf").arg(&archive);
        for one in &packed {
            let (parent, name) = (one.parent().context("a crate's place")?, one.file_name());
            tar.arg("-C").arg(parent).arg(name.context("a crate's name")?);
        }
        ran(&mut tar)?;
        Ok(Tree { archive, entries })
    }

    /// Measures it all. The last of the subject's mounts is the other one.
    pub fn run(&self, rows: &mut Rows, subject: &Subject, round: u32) -> Result<()> {
        let [Some(first), Some(other)] = [subject.points.first(), subject.points.last()] else {
            bail!("{} has no mounts", subject.name);
        };
        for (number, remover, by) in [(1, first, ""), (2, other, ", other mount")] {
            let name = format!("tree-{round}-{number}");
            let (here, there) = (first.join(&name), other.join(&name));
            std::fs::create_dir(&here).with_context(|| format!("make {}", here.display()))?;
            let mut step = |work: &str, run: &dyn Fn() -> Result<()>| {
                rows.measure((round, work), subject, || timed(self.entries, run))
            };
            step("untar", &|| self.unpack(&here))?;
            if number == 1 {
                step("find", &|| self.walk(&here))?;
                step("find, other mount", &|| self.walk(&there))?;
            }
            step(&format!("rm -r{by}"), &|| ran(Command::new("rm").arg("-r").arg(remover.join(&name))))?;
        }
        Ok(())
    }

    /// What a mount takes that has not seen the tree, and servers that have read nothing since they started.
    pub fn after_restart(
        &self,
        rows: &mut Rows,
        subject: &Subject,
        round: u32,
        restart: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let here = subject.points.first().context("a mount")?.join(format!("tree-restarted-{round}"));
        std::fs::create_dir(&here).with_context(|| format!("make {}", here.display()))?;
        self.unpack(&here)?;
        restart()?;
        let mut step = |work: &str, run: &dyn Fn() -> Result<()>| {
            rows.measure((round, work), subject, || timed(self.entries, run))
        };
        step("find, restarted", &|| self.walk(&here))?;
        step("rm -r, restarted", &|| ran(Command::new("rm").arg("-r").arg(&here)))
    }

    fn unpack(&self, into: &Path) -> Result<()> {
        ran(Command::new("tar").arg("-xf").arg(&self.archive).arg("-C").arg(into))
    }

    fn walk(&self, tree: &Path) -> Result<()> {
        // The size makes it look at every file.
        let found = Command::new("find").arg(tree).args(["-size", "+1000000k"]).stdin(Stdio::null()).output();
        let found = found.context("start find")?;
        ensure!(found.status.success(), "find: {}", String::from_utf8_lossy(&found.stderr));
        Ok(())
    }
}

fn count(tree: &Path) -> Result<u64> {
    let path = tree.to_str().with_context(|| format!("{} is not UTF-8", tree.display()))?;
    Ok(said("find", &[path])?.lines().count() as u64)
}
