//! A cluster for measuring: its coordinator on the client's core, its metadata servers, one or several, alone
//! on theirs.

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

/// How long a daemon may take to serve, or to stop. A store of millions of entries takes a while to flush.
const PATIENCE: Duration = Duration::from_secs(120);

/// Which metadata servers there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Servers {
    /// How many.
    pub count: u32,
    /// How requests find their owners.
    pub lookup: LookupKind,
}

impl Servers {
    /// One that owns everything.
    pub const ONE: Servers = Servers { count: 1, lookup: LookupKind::ClientMap };

    fn names(self) -> impl Iterator<Item = DaemonName> {
        (1..=self.count).map(|number| DaemonName { kind: ServerKind::Metadata, number })
    }
}

/// What runs in the place of metadata servers.
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
    names: Vec<DaemonName>,
    addresses: Vec<SocketAddr>,
    coordinator: Daemon,
    servers: Vec<Daemon>,
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
    pub fn make(directory: &Path, servers: Servers) -> Result<Cluster> {
        let layout = Layout::new(directory);
        let plan = init::Plan {
            metadata: servers.count,
            data: 1,
            data_copies: 1,
            metadata_copies: 1,
            tablet_bits: init::TABLET_BITS,
            scheme: Scheme::AnglecutHashed,
            lookup: servers.lookup,
            prefix: None,
            host: init::LOOPBACK,
            listen: None,
            port_base: None,
            etcd: None,
        };
        let made = init::init(&layout, &plan)?;
        let names: Vec<DaemonName> = servers.names().collect();
        let addresses: Option<Vec<SocketAddr>> = names.iter().map(|name| made.address_of(*name)).collect();
        let addresses = addresses.context("the cluster lists its servers")?;
        let arguments = ["daemon", "coordinator"];
        let coordinator = start(&layout, DaemonName::COORDINATOR, &arguments)?;
        Ok(Cluster { layout, names, addresses, coordinator, servers: Vec::new() })
    }

    /// Starts the servers on their core and waits until they serve.
    pub fn start(&mut self, kind: Kind) -> Result<()> {
        let arguments = match kind {
            Kind::Real => ["daemon", "metadata"],
            Kind::Canned => ["bench", "canned"],
        };
        machine::pin(SERVER_CORE)?;
        let started: Result<Vec<Daemon>> =
            self.names.iter().map(|name| start(&self.layout, *name, &arguments)).collect();
        machine::pin(CLIENT_CORE)?;
        self.servers = started?;
        Ok(())
    }

    /// Stops the servers in order; their coordinator goes on.
    pub fn stop(&mut self) -> Result<()> {
        for (name, mut server) in self.names.iter().zip(std::mem::take(&mut self.servers)) {
            // SAFETY: kill takes plain numbers, and the process is a child that was not waited for, so its
            // number is its own.
            unsafe { libc::kill(server.0.id() as libc::pid_t, libc::SIGTERM) };
            let mut ended = false;
            wait_until(Instant::now() + PATIENCE, || {
                ended = matches!(server.0.try_wait(), Ok(Some(_)));
                ended
            });
            if !ended {
                bail!("{name} does not stop; see {}", self.layout.daemon_log(*name).display());
            }
        }
        Ok(())
    }

    /// Where the servers listen.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The processor time that the servers have used.
    pub fn processor_time(&self) -> Result<Duration> {
        self.servers.iter().map(|daemon| machine::processor_time(daemon.0.id())).sum()
    }

    /// The first server's directory.
    pub fn server_directory(&self) -> std::path::PathBuf {
        self.layout.daemon(self.names[0])
    }

    /// What clients prove.
    pub fn enrolment_key(&self) -> Result<Key> {
        Ok(Key::new(*Secret::read(&self.layout.enrolment_key())?.bytes()))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.servers.clear();
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
