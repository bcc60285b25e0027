//! A cluster on this machine with several mounts, for programs that are run on it: made under one directory,
//! and cleared away whatever happens.
//!
//! What a run that was killed left there is cleared away by the next one.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The servers of a cluster.
#[derive(Clone, Debug)]
pub struct Servers {
    /// Metadata servers.
    pub metadata: u32,
    /// Copies of metadata; `None`: as many as `up` makes by itself.
    pub metadata_copies: Option<u32>,
    /// Who finds a request's server; `None`: the client's map.
    pub lookup: Option<String>,
    /// Data servers.
    pub data: u32,
    /// Copies of data.
    pub data_copies: u32,
    /// Whether daemons that die are started again.
    pub restarted: bool,
}

/// See the module. Taken down with the value.
pub struct Stage {
    /// Where everything lies.
    pub directory: PathBuf,
    /// The program `bearing`.
    pub program: PathBuf,
}

impl Stage {
    /// An empty place; what was there is cleared away.
    pub fn new(directory: PathBuf, program: PathBuf) -> Result<Stage> {
        let stage = Stage { directory, program };
        stage.clear()?;
        std::fs::create_dir_all(&stage.directory)
            .with_context(|| format!("make {}", stage.directory.display()))?;
        Ok(stage)
    }

    /// A new directory in it.
    pub fn make(&self, name: &str) -> Result<PathBuf> {
        let directory = self.directory.join(name);
        std::fs::create_dir(&directory).with_context(|| format!("make {}", directory.display()))?;
        Ok(directory)
    }

    /// Starts a cluster and mounts it at two points.
    pub fn start(&self, servers: Servers, options: &str) -> Result<[PathBuf; 2]> {
        let cluster = self.directory.join("cluster");
        let count = |flag: &str, number: u32| [flag.to_owned(), number.to_string()];
        let mut up = Command::new(&self.program);
        up.args(["up", "--detach", "--dir"]).arg(&cluster);
        up.args(count("--metadata", servers.metadata)).args(count("--data", servers.data));
        up.args(count("--data-copies", servers.data_copies));
        if let Some(copies) = servers.metadata_copies {
            up.args(count("--metadata-copies", copies));
        }
        if let Some(lookup) = &servers.lookup {
            up.args(["--lookup", lookup]);
        }
        if !servers.restarted {
            up.arg("--no-restart");
        }
        ran(&mut up)?;
        Ok([self.mount("bearing-1", options)?, self.mount("bearing-2", options)?])
    }

    /// Stops the cluster, starts it again, and mounts it where it was, by points and options.
    pub fn restart(&self, mounts: &[(&Path, &str)]) -> Result<()> {
        let cluster = self.directory.join("cluster");
        ran(Command::new(&self.program).args(["down", "--dir"]).arg(&cluster))?;
        ran(Command::new(&self.program).args(["up", "--detach", "--no-restart", "--dir"]).arg(&cluster))?;
        mounts.iter().try_for_each(|(point, options)| self.mount_at(point, options))
    }

    /// Mounts the cluster once more.
    pub fn mount(&self, name: &str, options: &str) -> Result<PathBuf> {
        let point = self.make(name)?;
        self.mount_at(&point, options)?;
        Ok(point)
    }

    fn mount_at(&self, point: &Path, options: &str) -> Result<()> {
        let mut mount = Command::new(&self.program);
        // Where mounts have their logs that cannot have them in the cluster's directory.
        mount
            .env("XDG_STATE_HOME", &self.directory)
            .arg("mount")
            .arg(self.directory.join("cluster"))
            .arg(point);
        ran(mount.args(["--options", options]))
    }

    fn clear(&self) -> Result<()> {
        for point in mounted_below(&self.directory)? {
            // A mount that is dead, or in use by what was killed, goes too.
            ran(Command::new("umount").arg("-l").arg(&point))?;
        }
        let cluster = self.directory.join("cluster");
        if cluster.exists() {
            ran(Command::new(&self.program).args(["down", "--dir"]).arg(&cluster))?;
        }
        if self.directory.exists() {
            std::fs::remove_dir_all(&self.directory)
                .with_context(|| format!("remove {}", self.directory.display()))?;
        }
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Err(error) = self.clear() {
            eprintln!("{error:#}; the next run tries again to clear {} away", self.directory.display());
        }
    }
}

/// Points below a directory at which something is mounted.
pub fn mounted_below(directory: &Path) -> Result<Vec<PathBuf>> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").context("read /proc/self/mountinfo")?;
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    Ok(points.filter(|point| point.starts_with(directory)).collect())
}

/// Runs a program to its end; fails if it does.
pub fn ran(command: &mut Command) -> Result<()> {
    let name = command.get_program().display().to_string();
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("start {name}"))?;
    if !status.success() {
        bail!("{name} ended with {status}");
    }
    Ok(())
}

/// What a program prints.
pub fn said(program: &str, arguments: &[&str]) -> Result<String> {
    let output =
        Command::new(program).args(arguments).output().with_context(|| format!("start {program}"))?;
    if !output.status.success() {
        bail!("{program} ended with {}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
