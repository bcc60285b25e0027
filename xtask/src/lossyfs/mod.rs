//! `cargo xtask lossyfs`: a filesystem in memory that forgets, tears and reorders what was not synced when
//! its power is cut.
//!
//! Commands are written to the file `.power` in its root: `cut SEED` throws away what that seed says and goes
//! dead (EIO for everything), `on` serves what is left, `slow MS` has every read take so many milliseconds.

mod disk;
mod serve;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use fuser::{BackgroundSession, Config, MountOption};

use serve::{Lossy, POWER};

/// Where to mount it.
#[derive(Args, Clone, Debug)]
pub struct LossyArgs {
    /// An empty directory; ctrl-c or `umount` ends it
    point: PathBuf,
}

fn config() -> Config {
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("lossyfs".to_owned()), MountOption::DefaultPermissions];
    config
}

/// Serves it in the foreground.
pub fn run(args: &LossyArgs) -> Result<()> {
    let power = args.point.join(POWER);
    println!("commands: echo 'cut 7' > {0}; echo on > {0}", power.display());
    fuser::mount(Lossy::new(), &args.point, &config())
        .with_context(|| format!("mount {}", args.point.display()))
}

/// It is mounted as long as this lives.
pub struct Mounted {
    point: PathBuf,
    _session: BackgroundSession,
}

impl Mounted {
    /// Mounts an empty one.
    pub fn new(point: &Path) -> Result<Mounted> {
        let session = fuser::spawn_mount(Lossy::new(), point, &config());
        let session = session.with_context(|| format!("mount {}", point.display()))?;
        Ok(Mounted { point: point.to_owned(), _session: session })
    }

    /// Cuts the power: it is dead from now on, and has lost what the seed says.
    pub fn cut(&self, seed: u64) -> Result<()> {
        self.command(&format!("cut {seed}\n"))
    }

    /// It serves what is left.
    pub fn switch_on(&self) -> Result<()> {
        self.command("on\n")
    }

    fn command(&self, line: &str) -> Result<()> {
        let path = self.point.join(POWER);
        std::fs::write(&path, line).with_context(|| format!("write {line:?} to {}", path.display()))
    }
}
