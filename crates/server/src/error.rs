//! Why a daemon does not start, or stops, in words for the person who runs it.

use bearing_meta::RecoverError;
use bearing_seams::EngineError;
use bearing_types::ServerId;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// What happened, the value seen, and what to try.
#[derive(Debug, Error)]
pub enum StartError {
    /// A file cannot be read or written.
    #[error("cannot {doing} {file}: {reason}", file = file.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// The file.
        file: PathBuf,
        /// The system's reason.
        reason: String,
    },
    /// A configuration file says something that is not understood.
    #[error("{file}:{line}: {complaint}", file = file.display())]
    Config {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        complaint: String,
    },
    /// A file was written by a newer program.
    #[error(
        "{file} is of format version {found}, this program knows up to version {known}; use a newer `bearing`",
        file = file.display()
    )]
    NewerFormat {
        /// The file.
        file: PathBuf,
        /// The version found.
        found: u32,
        /// The newest version known.
        known: u32,
    },
    /// There is no cluster in the directory.
    #[error(
        "{directory} holds no cluster (cluster.toml is missing); make one with `bearing up --dir {directory}`, or name another directory with --dir",
        directory = directory.display()
    )]
    NoCluster {
        /// The directory.
        directory: PathBuf,
    },
    /// A cluster cannot be made as asked.
    #[error("{0}")]
    Refused(String),
    /// Another process runs in the daemon's directory.
    #[error(
        "{directory} is in use by a running {who}; stop it first, for instance with `bearing down`",
        directory = directory.display()
    )]
    Occupied {
        /// The daemon's directory.
        directory: PathBuf,
        /// Which daemon, and its process.
        who: String,
    },
    /// The address cannot be listened on; the reason names it and what to try.
    #[error("{0}")]
    Listen(String),
    /// A store refused.
    #[error("{doing}: {error}")]
    Engine {
        /// What was being done.
        doing: &'static str,
        /// The engine's complaint.
        error: EngineError,
    },
    /// The tablet log cannot be replayed.
    #[error("{0}")]
    Recover(#[from] RecoverError),
    /// Another server of the cluster refuses this server's signatures.
    #[error(
        "{who} at {address} refuses this server's signature: {secret} is not the cluster key of that cluster; \
         copy secrets/cluster.key from a server that works",
        secret = secret.display()
    )]
    WrongClusterKey {
        /// Who refused.
        who: String,
        /// Its address.
        address: SocketAddr,
        /// The file with this server's key.
        secret: PathBuf,
    },
    /// Another server runs another release.
    #[error(
        "{who} at {address} speaks protocol version {speaks}, this server {ours}; run the same release on both"
    )]
    OtherRelease {
        /// Who refused.
        who: String,
        /// Its address.
        address: SocketAddr,
        /// Its version.
        speaks: u16,
        /// This program's version.
        ours: u16,
    },
    /// A write or sync of the metadata server failed: nothing is known of what is stable until it is read
    /// again.
    #[error("the disk of {server} failed: {reason}")]
    DiskFailed {
        /// The server.
        server: ServerId,
        /// What failed.
        reason: String,
    },
    /// The shell could not go on.
    #[error("{server}: {reason}")]
    Stopped {
        /// The server.
        server: ServerId,
        /// Why.
        reason: String,
    },
}

impl StartError {
    /// Whether the disk is to blame.
    pub fn is_of_disk(&self) -> bool {
        match self {
            StartError::DiskFailed { .. } => true,
            StartError::Engine { error, .. } | StartError::Recover(RecoverError::Engine(error)) => {
                matches!(error, EngineError::Failed { .. } | EngineError::Full { .. })
            }
            _ => false,
        }
    }

    /// A file's fault.
    pub fn file(doing: &'static str, file: &Path, reason: &dyn Display) -> StartError {
        StartError::File { doing, file: file.to_owned(), reason: reason.to_string() }
    }

    /// For `map_err` on a store's call.
    pub fn engine(doing: &'static str) -> impl Fn(EngineError) -> StartError {
        move |error| StartError::Engine { doing, error }
    }
}
