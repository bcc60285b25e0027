//! One process of a cluster: which it is.

use crate::guard::{self, Guard};
use crate::mounts;
use crate::process::Process;
use crate::server::{self, DaemonFile};
use crate::up::{Supervise, supervise_daemon};
use anyhow::Result;
use bearing_proto::client::ServerKind;
use bearing_server::{run_coordinator, run_data, run_flow, run_metadata};
use clap::Subcommand;
use std::path::PathBuf;

/// One process of a cluster.
#[derive(Debug, Subcommand)]
pub enum DaemonCommand {
    /// The coordinator.
    Coordinator(DaemonFile),
    /// A metadata server.
    Metadata(DaemonFile),
    /// A data server.
    Data(DaemonFile),
    /// The flow server, which advises readers.
    Flow(DaemonFile),
    /// The supervisor of a cluster that was made before.
    #[command(hide = true)]
    Supervise(Supervise),
    /// Has the kernel give up a mount whose process was killed and cannot end.
    #[command(hide = true)]
    Guard(Guard),
    /// Not a daemon: fails when the mount is dead.
    #[command(hide = true)]
    Probe {
        /// Where it is mounted
        point: PathBuf,
    },
}

/// Runs a daemon until it is told to stop.
pub fn run(command: &DaemonCommand) -> Result<()> {
    match command {
        DaemonCommand::Coordinator(file) => server::run(ServerKind::Coordinator, file, run_coordinator),
        DaemonCommand::Metadata(file) => server::run(ServerKind::Metadata, file, run_metadata),
        DaemonCommand::Data(file) => server::run(ServerKind::Data, file, run_data),
        DaemonCommand::Flow(file) => server::run(ServerKind::Flow, file, run_flow),
        DaemonCommand::Supervise(flags) => supervise_daemon(flags),
        DaemonCommand::Guard(flags) => {
            let process = Process { pid: flags.pid, started_ticks: flags.started };
            guard::run(process, &flags.device, &flags.point)
        }
        DaemonCommand::Probe { point } => mounts::probe(point),
    }
}
