//! One server in this process: its configuration, its run, whether starting it again would help.

use crate::failure::Hopeless;
use crate::voice::log_to_stderr;
use anyhow::Result;
use bearing_meta::RecoverError;
use bearing_proto::client::ServerKind;
use bearing_seams::EngineError;
use bearing_server::StartError;
use bearing_server::config::DaemonConfig;
use clap::Args;
use std::path::PathBuf;

/// A daemon's configuration.
#[derive(Args, Debug)]
pub struct DaemonFile {
    /// Its configuration
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

/// Runs a server until it is told to stop.
pub fn run(
    kind: ServerKind,
    file: &DaemonFile,
    run: impl FnOnce(DaemonConfig) -> Result<(), StartError>,
) -> Result<()> {
    log_to_stderr();
    let result = DaemonConfig::read(kind, &file.config).and_then(run);
    result
        .map_err(|error| if is_hopeless(&error) { Hopeless(error.to_string()).into() } else { error.into() })
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
