//! A cluster of one metadata server for measuring: its coordinator on the client's core, the server alone on
//! its own.

use super::machine::{self, CLIENT_CORE, SERVER_CORE};
use crate::mount_files::open_log;
use crate::process::{own_program, wait_until};
use crate::supervise::last_line;
use anyhow::{Context, Result, bail};
use bearing_env::Secret;
use bearing_placement::{LookupKind, Scheme};
use bearing_proto::client::ServerKind;
use bearing_proto::keys::Key;
use bearing_server::cluster::{DaemonName, Layout};
use bearing_server::init;
use bearing_server::state::{DaemonState, Phase};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SERVER: DaemonName = DaemonName { kind: ServerKind::Metadata, number: 1 };
/// How long a daemon may take to serve, or to stop. A store of millions of entries takes a while to flush.
const PATIENCE: Duration = Duration::from_secs(120);

/// What runs in the place of the metadata server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The metadata server.
    Real,
    /// Canned answers.
    Canned,
}

/// See the module.
pub struct Cluster {
    layout: Layout,
    address: SocketAddr,
    coordinator: Daemon,
    server: Option<Daemon>,
}

/// A child that ends with this value.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        // Already gone is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Cluster {
    /// Makes a cluster in a directory that has none, and starts its coordinator.
    pub fn make(directory: &Path) -> Result<Cluster> {
        let layout = Layout::new(directory);
        let plan = init::Plan {
            metadata: 1,
            data: 1,
            data_copies: 1,
            metadata_copies: 1,
            tablet_bits: init::TABLET_BITS,
            scheme: Scheme::AnglecutHashed,
            lookup: LookupKind::ClientMap,
            prefix: None,
            host: init::LOOPBACK,
            listen: None,
            port_base: None,
            etcd: None,
        };
        let made = init::init(&layout, &plan)?;
        let address = made.address_of(SERVER).context("the cluster lists its server")?;
        let arguments = ["daemon", "coordinator"];
        let coordinator = start(&layout, DaemonName::COORDINATOR, &arguments)?;
        Ok(Cluster { layout, address, coordinator, server: None })
    }

    /// Starts the server on its core and waits until it serves.
    pub fn start(&mut self, kind: Kind) -> Result<()> {
        let arguments = match kind {
            Kind::Real => ["daemon", "metadata"],
            Kind::Canned => ["bench", "canned"],
        };
        machine::pin(SERVER_CORE)?;
        let started = start(&self.layout, SERVER, &arguments);
        machine::pin(CLIENT_CORE)?;
        self.server = Some(started?);
        Ok(())
    }

    /// Stops the server in order; its coordinator goes on.
    pub fn stop(&mut self) -> Result<()> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        // SAFETY: kill takes plain numbers, and the process is a child that was not waited for, so its number
        // is its own.
        unsafe { libc::kill(server.0.id() as libc::pid_t, libc::SIGTERM) };
        let mut ended = false;
        wait_until(Instant::now() + PATIENCE, || {
            ended = matches!(server.0.try_wait(), Ok(Some(_)));
            ended
        });
        if ended { Ok(()) } else { bail!("the server does not stop; see {}", self.log().display()) }
    }

    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server's process.
    pub fn server_pid(&self) -> Result<u32> {
        self.server.as_ref().map(|daemon| daemon.0.id()).context("the server runs")
    }

    /// The server's directory.
    pub fn server_directory(&self) -> std::path::PathBuf {
        self.layout.daemon(SERVER)
    }

    /// What clients prove.
    pub fn enrolment_key(&self) -> Result<Key> {
        Ok(Key::new(*Secret::read(&self.layout.enrolment_key())?.bytes()))
    }

    fn log(&self) -> std::path::PathBuf {
        self.layout.daemon_log(SERVER)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.server = None;
        let _ = self.coordinator.0.kill();
    }
}

fn start(layout: &Layout, name: DaemonName, arguments: &[&str]) -> Result<Daemon> {
    let log_path = layout.daemon_log(name);
    let log = open_log(&log_path)?;
    let mut command = Command::new(own_program()?);
    command.args(arguments).arg("--config").arg(layout.daemon_config(name));
    command.stdin(Stdio::null()).stdout(log.try_clone().context("share a log file")?).stderr(log);
    let mut daemon = Daemon(command.spawn().with_context(|| format!("start {name}"))?);
    let pid = daemon.0.id();
    let directory = layout.daemon(name);
    let mut ended = false;
    let serves = wait_until(Instant::now() + PATIENCE, || {
        ended = matches!(daemon.0.try_wait(), Ok(Some(_)));
        ended
            || DaemonState::read(&directory)
                .is_some_and(|state| state.pid == pid && state.state == Phase::Serving)
    });
    if serves && !ended { Ok(daemon) } else { bail!("{name} does not serve: {}", last_line(&log_path)) }
}
