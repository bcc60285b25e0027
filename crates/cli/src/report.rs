//! The supervisor's and the mount's own reports in the cluster's directory: who runs, and how far it has
//! come.

use crate::process::Process;
use anyhow::Result;
use bearing_server::cluster::Layout;
use bearing_server::state::Phase;
use bearing_server::toml_file;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Who wrote it.
    #[serde(flatten)]
    pub process: Process,
    /// How far it has come.
    pub state: Phase,
    /// Where the cluster is mounted, or shall be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<PathBuf>,
    /// Why it failed, when it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Report {
    /// A report of this process.
    pub fn own(state: Phase, mount: Option<&Path>) -> Report {
        Report { process: Process::own(), state, mount: mount.map(Path::to_owned), reason: None }
    }

    /// Reads a report; `None` when there is none that makes sense.
    pub fn read(path: &Path) -> Option<Report> {
        toml_file::read(path).ok()
    }

    /// Writes it.
    pub fn write(&self, path: &Path) -> Result<()> {
        Ok(toml_file::write(path, "# Written by the process.\n", self)?)
    }

    /// Whether its writer still runs.
    pub fn is_alive(&self) -> bool {
        self.process.is_alive()
    }
}

/// The supervisor's report.
pub fn supervisor_file(layout: &Layout) -> PathBuf {
    layout.root().join("supervisor")
}

/// What the supervisor prints when it is detached.
pub fn supervisor_log(layout: &Layout) -> PathBuf {
    layout.root().join("supervisor.log")
}

/// The report of the mount that `up --mount` made.
pub fn mount_file(layout: &Layout) -> PathBuf {
    layout.root().join("mount")
}

/// What that mount prints.
pub fn mount_log(layout: &Layout) -> PathBuf {
    layout.root().join("mount.log")
}
