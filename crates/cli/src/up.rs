//! `up`: makes the cluster the first time, then starts it, here or in the background.

use crate::failure::Usage;
use crate::mount::{self, Mount};
use crate::mount_files::open_log;
use crate::mounts;
use crate::process::{Process, in_own_session, own_program, wait_until, without_files};
use crate::report::{Report, mount_file, supervisor_file, supervisor_log};
use crate::supervise::{self, Plan, Restart, last_line};
use crate::target::Directory;
use crate::voice::{complain, counted, say};
use anyhow::{Context, Result, bail};
use bearing_placement::{LookupKind, Scheme};
use bearing_server::cluster::{Cluster, Layout, live_lookup};
use bearing_server::config::EtcdFile;
use bearing_server::state::{DaemonState, Phase};
use bearing_server::{StartError, init};
use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  bearing up                                     in the foreground; ctrl-c stops it
  bearing up --mount ./mnt --detach              in the background, mounted
  bearing up --dir /srv/b --metadata 5 --data 4 --data-copies 3

The first `up` makes the cluster, later ones start it again. Flags that
contradict its cluster.toml are refused.";

/// `up`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Up {
    /// Where the cluster lies.
    #[command(flatten)]
    pub directory: Directory,
    /// Metadata servers [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub metadata: Option<u32>,
    /// Data servers [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub data: Option<u32>,
    /// On how many data servers each byte is kept [default: 2, or 1 with one data server]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u8).range(1..=9))]
    pub data_copies: Option<u8>,
    /// On how many metadata servers each part of the tree is kept, 1 to 5 [default: 3, or as many as there
    /// are]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u8).range(1..=5))]
    pub metadata_copies: Option<u8>,
    /// How entries are placed: anglecut-hashed or hash [default: anglecut-hashed]
    #[arg(long, value_name = "S", value_parser = Scheme::live_from_name)]
    pub scheme: Option<Scheme>,
    /// Whom clients ask first: client-map (who their map names), all-know-all (any server, which passes the
    /// request on) or bloom-groups (any server, which finds the owner by Bloom filters) [default: client-map]
    #[arg(long, value_name = "L", value_parser = live_lookup)]
    pub lookup: Option<LookupKind>,
    /// Mount it at this directory
    #[arg(long, value_name = "PATH")]
    pub mount: Option<PathBuf>,
    /// Return once everything answers, and leave it running
    #[arg(long)]
    pub detach: bool,
    /// Use this port and the following ones instead of any that are free (a new cluster only)
    #[arg(long, value_name = "P")]
    pub port_base: Option<u16>,
    /// Etcd instead of a coordinator (a new cluster only)
    #[command(flatten)]
    pub etcd: EtcdFlags,
    /// Serve what is left when all copies of a part of the tree are lost or away
    #[arg(long)]
    pub partial: bool,
    /// Leave daemons dead that die (for tests)
    #[arg(long, hide = true)]
    pub no_restart: bool,
    /// Cut the ring into two to the power of this many tablets (for tests)
    #[arg(long, hide = true, default_value_t = init::TABLET_BITS, value_parser = clap::value_parser!(u8).range(0..=12))]
    pub tablet_bits: u8,
}

/// The etcd that coordinates a new cluster.
#[derive(Args, Clone, Debug, Default)]
pub struct EtcdFlags {
    /// Have etcd coordinate the cluster: the client URLs of its members, such as https://10.0.0.1:2379 (with
    /// https give --etcd-authority)
    #[arg(long = "etcd", value_name = "URL", value_delimiter = ',')]
    pub endpoints: Vec<String>,
    /// The certificate of the authority that signed those of etcd's members
    #[arg(long = "etcd-authority", value_name = "FILE", requires = "endpoints")]
    pub authority: Option<PathBuf>,
    /// The certificate by which etcd knows this cluster
    #[arg(long = "etcd-certificate", value_name = "FILE", requires_all = ["authority", "key"])]
    pub certificate: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long = "etcd-key", value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
}

impl EtcdFlags {
    /// As configurations say it, if etcd is wanted.
    pub fn file(&self) -> Option<EtcdFile> {
        let EtcdFlags { endpoints, authority, certificate, key } = self.clone();
        (!endpoints.is_empty()).then_some(EtcdFile { endpoints, authority, certificate, key })
    }
}

/// `daemon supervise`.
#[derive(Args, Clone, Debug)]
pub struct Supervise {
    /// Where the cluster lies.
    #[arg(long)]
    pub dir: PathBuf,
    /// Where to mount it.
    #[arg(long)]
    pub mount: Option<PathBuf>,
    /// Leave daemons dead that die.
    #[arg(long)]
    pub no_restart: bool,
    /// Serve what is left.
    #[arg(long)]
    pub partial: bool,
}

/// What a new cluster has when nothing else is said.
const SERVERS: u32 = 3;
const COPIES: u8 = 2;
/// Copies of metadata of a new cluster, if it has so many servers.
const METADATA_COPIES: u8 = 3;
/// The supervisor has its own, shorter patience and then says what is missing.
const PATIENCE: Duration = Duration::from_secs(180);

/// How long a running cluster of which something is missing is waited for.
const SETTLE_PATIENCE: Duration = Duration::from_secs(10);

/// Runs `up`.
pub fn up(flags: &Up) -> Result<()> {
    let layout = flags.directory.layout()?;
    let mount = flags.mount.as_deref().map(mounts::absolute).transpose()?;
    if let Some(report) = Report::read(&supervisor_file(&layout)).filter(Report::is_alive) {
        let cluster = Cluster::read(&layout.cluster_file())?;
        check_flags(flags, &cluster)?;
        if settle(&layout, &cluster, &report) {
            return mount_running(flags, &layout, &report, mount.as_deref());
        }
    }
    if mount.is_some() {
        bearing_fuse::check_device()?;
    }
    // Before anything is made: a mistake here leaves nothing behind.
    if let Some(point) = &mount {
        if let Some(told) = mount::make_free(point)? {
            say!("{told}")?;
        }
        std::fs::create_dir_all(point)
            .with_context(|| format!("make the mount point {}", point.display()))?;
    }
    let cluster = make_or_read(flags, &layout)?;
    let restart = if flags.no_restart { Restart::Never } else { Restart::Always };
    let plan = Plan { layout, cluster, mount, restart, partial: flags.partial };
    if flags.detach { start_detached(&plan) } else { run_here(&plan) }
}

/// Runs the supervisor of `up --detach`.
pub fn supervise_daemon(flags: &Supervise) -> Result<()> {
    let layout = Layout::new(&flags.dir);
    let cluster = Cluster::read(&layout.cluster_file())?;
    let restart = if flags.no_restart { Restart::Never } else { Restart::Always };
    let mount = flags.mount.clone();
    let plan = Plan { layout, cluster, mount, restart, partial: flags.partial };
    supervise::supervise(&plan, |missing| {
        if missing.is_empty() {
            return Ok(say!("everything serves")?);
        }
        missing.iter().for_each(|missing| complain!("{missing}"));
        Ok(())
    })
}

fn make_or_read(flags: &Up, layout: &Layout) -> Result<Cluster> {
    match Cluster::read(&layout.cluster_file()) {
        Ok(cluster) => {
            check_flags(flags, &cluster)?;
            Ok(cluster)
        }
        Err(StartError::NoCluster { .. }) => {
            let plan = plan_new(flags)?;
            let cluster = init::init(layout, &plan)?;
            say!("a new cluster is made in {}", layout.root().display())?;
            Ok(cluster)
        }
        Err(error) => Err(error.into()),
    }
}

fn plan_new(flags: &Up) -> Result<init::Plan> {
    let data = flags.data.unwrap_or(SERVERS);
    let default_copies = if data == 1 { 1 } else { COPIES };
    let data_copies = flags.data_copies.unwrap_or(default_copies);
    if u32::from(data_copies) > data {
        bail!(Usage(format!(
            "--data-copies {data_copies} needs at least {data_copies} data servers, there are {data}; raise --data or lower --data-copies"
        )));
    }
    let metadata = flags.metadata.unwrap_or(SERVERS);
    let default_copies = u32::from(METADATA_COPIES).min(metadata) as u8;
    let metadata_copies = flags.metadata_copies.unwrap_or(default_copies);
    if u32::from(metadata_copies) > metadata {
        bail!(Usage(format!(
            "--metadata-copies {metadata_copies} needs at least {metadata_copies} metadata servers, there are {metadata}; raise --metadata or lower --metadata-copies"
        )));
    }
    Ok(init::Plan {
        metadata,
        data,
        data_copies,
        metadata_copies,
        scheme: flags.scheme.unwrap_or(Scheme::AnglecutHashed),
        lookup: flags.lookup.unwrap_or(LookupKind::ClientMap),
        prefix: None,
        tablet_bits: flags.tablet_bits,
        host: init::LOOPBACK,
        listen: None,
        port_base: flags.port_base,
        etcd: flags.etcd.file(),
    })
}

/// A cluster is what it was made as; flags that ask for another are refused.
fn check_flags(flags: &Up, cluster: &Cluster) -> Result<()> {
    let first = cluster.coordinator.or_else(|| cluster.metadata_addresses().first().copied());
    let base = first.map_or(0, |address| address.port());
    if flags.etcd.file().is_some() && cluster.coordinator.is_some() {
        bail!(Usage(format!(
            "the cluster in {} was made with a coordinator of its own, not with etcd; leave --etcd out, or make another cluster with --dir",
            flags.directory.dir.display()
        )));
    }
    let asked = [
        ("--metadata", flags.metadata.map(|n| n.to_string()), cluster.metadata.len().to_string()),
        ("--data", flags.data.map(|n| n.to_string()), cluster.data.len().to_string()),
        ("--data-copies", flags.data_copies.map(|n| n.to_string()), cluster.data_copies.to_string()),
        (
            "--metadata-copies",
            flags.metadata_copies.map(|n| n.to_string()),
            cluster.metadata_copies.to_string(),
        ),
        ("--lookup", flags.lookup.map(|lookup| lookup.to_string()), cluster.lookup.to_string()),
        ("--scheme", flags.scheme.map(|scheme| scheme.to_string()), cluster.scheme.to_string()),
        ("--port-base", flags.port_base.map(|port| port.to_string()), base.to_string()),
    ];
    for (flag, wanted, stored) in asked {
        if let Some(wanted) = wanted.filter(|wanted| *wanted != stored) {
            let dir = flags.directory.dir.display();
            bail!(Usage(format!(
                "the cluster in {dir} was made with {flag} {stored}, not {wanted}; leave the flag out, or make another cluster with --dir"
            )));
        }
    }
    Ok(())
}

/// Waits until a cluster that runs either serves or is seen to be dying (a process that was just killed is
/// there for a moment). Says whether it runs.
fn settle(layout: &Layout, cluster: &Cluster, report: &Report) -> bool {
    let serves = || {
        let states =
            cluster.daemons().into_iter().map(|daemon| DaemonState::read(&layout.daemon(daemon.name)));
        let daemons = states
            .into_iter()
            .all(|state| state.is_some_and(|state| state.is_alive() && state.state.is_serving()));
        // Who unmounted it does not want to wait for it.
        let unmounted = Report::read(&mount_file(layout)).is_some_and(|mount| mount.state == Phase::Stopped);
        let is_mounted = |point| unmounted || mounts::is_ours(point).unwrap_or(false);
        daemons && report.mount.as_deref().is_none_or(is_mounted)
    };
    wait_until(Instant::now() + SETTLE_PATIENCE, || !report.is_alive() || serves());
    report.is_alive()
}

/// What there is to do for a cluster that runs already: mount it, if that is wanted and it is not.
fn mount_running(flags: &Up, layout: &Layout, report: &Report, wanted: Option<&Path>) -> Result<()> {
    let root = layout.root();
    say!("the cluster in {} is already running (process {})", root.display(), report.process.pid)?;
    let Some(point) = wanted else { return Ok(()) };
    if report.mount.as_deref() == Some(point) && mounts::is_ours(point)? {
        say!("mounted at {}", shown(point))?;
        return Ok(());
    }
    let mount = Mount {
        cluster: root.as_os_str().to_owned(),
        path: flags.mount.clone().unwrap_or_default(),
        secret: None,
        options: String::new(),
        foreground: false,
        state: None,
    };
    bearing_fuse::check_device()?;
    let log = mount::in_background(&mount, point)?;
    say!("mounted at {} now; its log is {}", shown(point), log.display())?;
    Ok(())
}

fn run_here(plan: &Plan) -> Result<()> {
    supervise::supervise(plan, |missing| {
        say_where(plan)?;
        missing.iter().for_each(|missing| complain!("{missing}"));
        Ok(say!("ctrl-c stops it")?)
    })?;
    Ok(say!("stopped")?)
}

fn start_detached(plan: &Plan) -> Result<()> {
    let log_path = supervisor_log(&plan.layout);
    let log = open_log(&log_path)?;
    let mut command = Command::new(own_program()?);
    command.args(["daemon", "supervise", "--dir"]).arg(plan.layout.root());
    if let Some(point) = &plan.mount {
        command.arg("--mount").arg(point);
    }
    if plan.restart == Restart::Never {
        command.arg("--no-restart");
    }
    if plan.partial {
        command.arg("--partial");
    }
    command.stdin(Stdio::null()).stdout(log.try_clone().context("share a log file")?).stderr(log);
    in_own_session(&mut command);
    without_files(&mut command);
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("wait for signals")?;
    let mut child = command.spawn().context("start the supervisor")?;
    let missing = wait_for_service(plan, &mut child, &log_path, signals)?;
    say_where(plan)?;
    missing.iter().for_each(|missing| complain!("{missing}"));
    Ok(say!("stop it with: bearing down --dir {}", shown(plan.layout.root()))?)
}

/// Waits until the cluster serves. Gives what is wrong with servers that it does without.
fn wait_for_service(
    plan: &Plan,
    child: &mut Child,
    log: &Path,
    mut signals: Signals,
) -> Result<Option<String>> {
    let own_report =
        |pid: u32| Report::read(&supervisor_file(&plan.layout)).filter(|report| report.process.pid == pid);
    let pid = child.id();
    let mut ended = None;
    let mut interrupted = None;
    let answered = wait_until(Instant::now() + PATIENCE, || {
        ended = child.try_wait().ok().flatten();
        interrupted = signals.pending().next();
        ended.is_some()
            || interrupted.is_some()
            || own_report(pid).is_some_and(|report| report.state == Phase::Serving)
    });
    if let Some(signal) = interrupted {
        stop_again(child, signals);
        std::process::exit(128 + signal);
    }
    match (ended, answered) {
        (None, true) => Ok(own_report(pid).and_then(|report| report.reason)),
        (Some(_), _) => {
            let reported = own_report(pid).and_then(|report| report.reason);
            bail!("{}", reported.unwrap_or_else(|| last_line(log)))
        }
        (None, false) => bail!("the cluster does not come up; see {}", log.display()),
    }
}

/// Who interrupts a start wants no cluster. Who does it again does not want to wait for its end either.
fn stop_again(child: &mut Child, mut signals: Signals) {
    complain!("interrupted: the cluster is stopped; ctrl-c again leaves it to end by itself");
    // SAFETY: kill takes plain numbers; the child was not waited for, so the number is still its own.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
    let mut left = false;
    let ended = wait_until(Instant::now() + PATIENCE, || {
        left = signals.pending().next().is_some();
        left || child.try_wait().is_ok_and(|status| status.is_some())
    });
    complain!("{}", if ended && !left { "stopped" } else { "it is still stopping; see `bearing status`" });
}

fn say_where(plan: &Plan) -> Result<()> {
    let cluster = &plan.cluster;
    say!(
        "cluster in {}: {}, {}, {} of data, {} of metadata, scheme {}",
        shown(plan.layout.root()),
        counted(cluster.metadata.len() as u64, "metadata server", "metadata servers"),
        counted(cluster.data.len() as u64, "data server", "data servers"),
        counted(u64::from(cluster.data_copies), "copy", "copies"),
        cluster.metadata_copies,
        cluster.scheme
    )?;
    let addresses: Vec<String> = cluster.metadata_addresses().iter().map(ToString::to_string).collect();
    let coordinator =
        cluster.coordinator.map_or_else(|| "in etcd".to_owned(), |address| format!("at {address}"));
    say!("metadata at {}; coordinator {coordinator}", addresses.join(" "))?;
    if let Some(point) = &plan.mount {
        say!("mounted at {}", shown(point))?;
    }
    Ok(())
}

/// A path as short as it can be said from here.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    path.strip_prefix(&here).unwrap_or(path).display().to_string()
}

/// The supervisor of a cluster, if it runs.
pub fn running_supervisor(layout: &Layout) -> Option<Process> {
    Report::read(&supervisor_file(layout)).filter(Report::is_alive).map(|report| report.process)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags() -> Up {
        Up {
            directory: Directory { dir: ".bearing".into() },
            metadata: None,
            data: None,
            data_copies: None,
            metadata_copies: None,
            scheme: None,
            lookup: None,
            mount: None,
            detach: false,
            port_base: None,
            etcd: EtcdFlags::default(),
            partial: false,
            no_restart: false,
            tablet_bits: init::TABLET_BITS,
        }
    }

    #[test]
    fn there_are_as_many_copies_as_servers_unless_said_otherwise() {
        assert_eq!(plan_new(&Up { data: Some(1), ..flags() }).unwrap().data_copies, 1);
        assert_eq!(plan_new(&flags()).unwrap().data_copies, 2);
        assert_eq!(plan_new(&Up { metadata: Some(2), ..flags() }).unwrap().metadata_copies, 2);
        assert_eq!(plan_new(&Up { metadata: Some(5), ..flags() }).unwrap().metadata_copies, 3);
        let error = plan_new(&Up { metadata_copies: Some(4), ..flags() }).unwrap_err();
        assert!(error.to_string().contains("needs at least 4 metadata servers, there are 3"), "{error}");
        let error = plan_new(&Up { data: Some(1), data_copies: Some(2), ..flags() }).unwrap_err();
        assert!(error.to_string().contains("--data-copies 2"), "{error}");
    }

    #[test]
    fn flags_that_differ_from_the_cluster_are_refused_with_both_values() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path());
        let cluster = init::init(&layout, &plan_new(&flags()).unwrap()).unwrap();
        assert!(check_flags(&Up { metadata: Some(3), ..flags() }, &cluster).is_ok());
        let error = check_flags(&Up { metadata: Some(5), ..flags() }, &cluster).unwrap_err();
        assert!(error.to_string().contains("--metadata 3, not 5"), "{error}");
    }
}
