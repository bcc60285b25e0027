//! Which cluster a command is for.

use anyhow::{Context, Result};
use bearing_server::cluster::Layout;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// Where a cluster on this machine lies.
#[derive(Args, Clone, Debug)]
pub struct Directory {
    /// The cluster's directory
    #[arg(long, value_name = "DIR", default_value = ".bearing")]
    pub dir: PathBuf,
}

impl Directory {
    /// Its files, by their whole paths.
    pub fn layout(&self) -> Result<Layout> {
        Ok(Layout::new(std::path::absolute(&self.dir).context("find the cluster's directory")?))
    }
}

/// The cluster to talk to as a client.
#[derive(Args, Clone, Debug)]
pub struct Target {
    /// A cluster's directory, or addresses of metadata servers (HOST:PORT[,HOST:PORT])
    #[arg(long, visible_alias = "dir", value_name = "CLUSTER", default_value = ".bearing", global = true, value_hint = clap::ValueHint::DirPath)]
    pub cluster: OsString,
    /// The enrolment secret, when the cluster is not given as a directory
    #[arg(long, value_name = "FILE", global = true)]
    pub secret: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
}
