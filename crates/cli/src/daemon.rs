//! One daemon in this process: its logging, its run, its exit code.

use crate::args::{DaemonCommand, DaemonFile};
use crate::failure::Hopeless;
use crate::guard;
use crate::mounts;
use crate::process::Process;
use crate::up::supervise_daemon;
use anyhow::Result;
use bearing_meta::RecoverError;
use bearing_proto::client::ServerKind;
use bearing_seams::EngineError;
use bearing_server::config::DaemonConfig;
use bearing_server::{StartError, run_coordinator, run_data, run_metadata};
use tracing::level_filters::LevelFilter;

/// Runs a daemon until it is told to stop.
pub fn run(command: &DaemonCommand) -> Result<()> {
    match command {
        DaemonCommand::Coordinator(file) => run_server(ServerKind::Coordinator, file, run_coordinator),
        DaemonCommand::Metadata(file) => run_server(ServerKind::Metadata, file, run_metadata),
        DaemonCommand::Data(file) => run_server(ServerKind::Data, file, run_data),
        DaemonCommand::Supervise(flags) => supervise_daemon(flags),
        DaemonCommand::Guard(flags) => {
            let process = Process { pid: flags.pid, started_ticks: flags.started };
            guard::run(process, &flags.device, &flags.point)
        }
        DaemonCommand::Probe { point } => mounts::probe(point),
    }
}

fn run_server(
    kind: ServerKind,
    file: &DaemonFile,
    run: impl FnOnce(DaemonConfig) -> Result<(), StartError>,
) -> Result<()> {
    log_to_stderr();
    let result = DaemonConfig::read(kind, &file.config).and_then(run);
    result
        .map_err(|error| if is_hopeless(&error) { Hopeless(error.to_string()).into() } else { error.into() })
}

/// Reports go to standard error, which the supervisor leads into the daemon's log. `BEARING_LOG` chooses the level.
pub fn log_to_stderr() {
    let asked = std::env::var("BEARING_LOG").ok();
    let level = asked.as_deref().and_then(|level| level.parse().ok()).unwrap_or(LevelFilter::INFO);
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        // On a full disk the log loses lines. Saying so there would end the process.
        .log_internal_errors(false)
        .init();
}

/// Whether starting again would meet the same fault: a person has to do something first.
fn is_hopeless(error: &StartError) -> bool {
    match error {
        StartError::Config { .. }
        | StartError::NewerFormat { .. }
        | StartError::NoCluster { .. }
        | StartError::Refused(_)
        | StartError::WrongClusterKey { .. }
        | StartError::OtherRelease { .. } => true,
        StartError::Recover(RecoverError::Record(..)) => true,
        StartError::Engine { error, .. } | StartError::Recover(RecoverError::Engine(error)) => {
            matches!(error, EngineError::Corrupt { .. } | EngineError::NewerVersion { .. })
        }
        StartError::File { .. }
        | StartError::Occupied { .. }
        | StartError::Listen(_)
        | StartError::DiskFailed { .. }
        | StartError::Stopped { .. } => false,
    }
}
