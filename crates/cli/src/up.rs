//! `up`: makes the cluster the first time, then starts it, here or in the background.

use crate::args::{Supervise, Up};
use crate::failure::Usage;
use crate::mounts::{self, MountState};
use crate::process::{Process, in_own_session, own_program, wait_until};
use crate::report::{Report, supervisor_file, supervisor_log};
use crate::supervise::{self, Plan, Restart, last_line, open_log};
use anyhow::{Context, Result, bail};
use bearing_placement::Scheme;
use bearing_server::cluster::{Cluster, Layout};
use bearing_server::state::{DaemonState, Phase};
use bearing_server::{StartError, init};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a new cluster has when nothing else is said.
const SERVERS: u32 = 3;
const COPIES: u8 = 2;
/// The supervisor has its own, shorter patience and then says what is missing.
const PATIENCE: Duration = Duration::from_secs(180);

/// How long a running cluster of which something is missing is waited for.
const SETTLE_PATIENCE: Duration = Duration::from_secs(10);

/// Runs `up`.
pub fn up(flags: &Up) -> Result<()> {
    let layout =
        Layout::new(std::path::absolute(&flags.directory.dir).context("find the cluster's directory")?);
    let mount = flags.mount.as_deref().map(mounts::absolute).transpose()?;
    if let Some(report) = Report::read(&supervisor_file(&layout)).filter(Report::is_alive) {
        let cluster = Cluster::read(&layout.cluster_file())?;
        check_flags(flags, &cluster)?;
        if settle(&layout, &cluster, &report) {
            return say_running(&layout, &report, mount.as_deref());
        }
    }
    if mount.is_some() {
        bearing_fuse::check_device()?;
    }
    let cluster = make_or_read(flags, &layout)?;
    if let Some(point) = &mount {
        prepare_mount_point(point)?;
    }
    let restart = if flags.no_restart { Restart::Never } else { Restart::Always };
    let plan = Plan { layout, cluster, mount, restart };
    if flags.detach { start_detached(&plan) } else { run_here(&plan) }
}

/// Runs the supervisor of `up --detach`.
pub fn supervise_daemon(flags: &Supervise) -> Result<()> {
    let layout = Layout::new(&flags.dir);
    let cluster = Cluster::read(&layout.cluster_file())?;
    let restart = if flags.no_restart { Restart::Never } else { Restart::Always };
    let plan = Plan { layout, cluster, mount: flags.mount.clone(), restart };
    supervise::supervise(&plan, || println!("everything serves"))
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
            println!("a new cluster is made in {}", layout.root().display());
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
    Ok(init::Plan {
        metadata: flags.metadata.unwrap_or(SERVERS),
        data,
        data_copies,
        scheme: flags.scheme.unwrap_or(Scheme::AnglecutHashed),
        port_base: flags.port_base,
    })
}

/// A cluster is what it was made as; flags that ask for another are refused.
fn check_flags(flags: &Up, cluster: &Cluster) -> Result<()> {
    let base = cluster.coordinator.port();
    let asked = [
        ("--metadata", flags.metadata.map(|n| n.to_string()), cluster.metadata.len().to_string()),
        ("--data", flags.data.map(|n| n.to_string()), cluster.data.len().to_string()),
        ("--data-copies", flags.data_copies.map(|n| n.to_string()), cluster.data_copies.to_string()),
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

/// What can be seen before anything is started; the mount itself checks again.
fn prepare_mount_point(point: &Path) -> Result<()> {
    match mounts::state(point)? {
        MountState::Ours => bail!(Usage(format!(
            "{point} is busy: a Bearing is mounted there already; unmount it with `bearing umount {point}`, or choose another directory",
            point = point.display()
        ))),
        MountState::Foreign(kind) => bail!(Usage(format!(
            "{} is busy: a filesystem of type {kind} is mounted there; choose another directory",
            point.display()
        ))),
        MountState::Dead => {
            mounts::detach(point, mounts::Detach::Now)?;
            println!("a dead mount that a crash had left at {} was detached", point.display());
        }
        MountState::None => {}
    }
    std::fs::create_dir_all(point).with_context(|| format!("make the mount point {}", point.display()))
}

/// Waits until a cluster that runs either serves or is seen to be dying (a process that was just killed is there for a moment). Says
/// whether it runs.
fn settle(layout: &Layout, cluster: &Cluster, report: &Report) -> bool {
    let serves = || {
        let states =
            cluster.daemons().into_iter().map(|daemon| DaemonState::read(&layout.daemon(daemon.name)));
        let daemons = states
            .into_iter()
            .all(|state| state.is_some_and(|state| state.is_alive() && state.state.is_serving()));
        daemons && report.mount.as_deref().is_none_or(|point| mounts::is_ours(point).unwrap_or(false))
    };
    wait_until(Instant::now() + SETTLE_PATIENCE, || !report.is_alive() || serves());
    report.is_alive()
}

fn say_running(layout: &Layout, report: &Report, wanted: Option<&Path>) -> Result<()> {
    let (root, pid) = (layout.root().display(), report.process.pid);
    match wanted {
        Some(point) if report.mount.as_deref() != Some(point) => bail!(
            "the cluster in {root} is already running (process {pid}) and not mounted at {point}; mount it with \
             `bearing mount {root} {point}`",
            point = point.display()
        ),
        _ => {
            println!("the cluster in {root} is already running (process {pid})");
            Ok(())
        }
    }
}

fn run_here(plan: &Plan) -> Result<()> {
    supervise::supervise(plan, || {
        say_where(plan);
        println!("ctrl-c stops it");
    })?;
    println!("stopped");
    Ok(())
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
    command.stdin(Stdio::null()).stdout(log.try_clone().context("share a log file")?).stderr(log);
    in_own_session(&mut command);
    let mut child = command.spawn().context("start the supervisor")?;
    wait_for_service(plan, &mut child, &log_path)?;
    say_where(plan);
    println!("stop it with: bearing down --dir {}", shown(plan.layout.root()));
    Ok(())
}

fn wait_for_service(plan: &Plan, child: &mut Child, log: &Path) -> Result<()> {
    let own_report =
        |pid: u32| Report::read(&supervisor_file(&plan.layout)).filter(|report| report.process.pid == pid);
    let pid = child.id();
    let mut ended = None;
    let answered = wait_until(Instant::now() + PATIENCE, || {
        ended = child.try_wait().ok().flatten();
        ended.is_some() || own_report(pid).is_some_and(|report| report.state == Phase::Serving)
    });
    match (ended, answered) {
        (None, true) => Ok(()),
        (Some(_), _) => {
            let reported = own_report(pid).and_then(|report| report.reason);
            bail!("{}", reported.unwrap_or_else(|| last_line(log)))
        }
        (None, false) => bail!("the cluster does not come up; see {}", log.display()),
    }
}

fn say_where(plan: &Plan) {
    let cluster = &plan.cluster;
    println!(
        "cluster in {}: {}, {}, {} of data, scheme {}",
        shown(plan.layout.root()),
        counted(cluster.metadata.len(), "metadata server", "metadata servers"),
        counted(cluster.data.len(), "data server", "data servers"),
        counted(usize::from(cluster.data_copies), "copy", "copies"),
        cluster.scheme
    );
    let addresses: Vec<String> = cluster.metadata_addresses().iter().map(ToString::to_string).collect();
    println!("metadata at {}; coordinator at {}", addresses.join(" "), cluster.coordinator);
    if let Some(point) = &plan.mount {
        println!("mounted at {}", shown(point));
    }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
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
    use crate::args::Directory;

    fn flags() -> Up {
        Up {
            directory: Directory { dir: ".bearing".into() },
            metadata: None,
            data: None,
            data_copies: None,
            scheme: None,
            mount: None,
            detach: false,
            port_base: None,
            no_restart: false,
        }
    }

    #[test]
    fn one_data_server_means_one_copy_unless_said_otherwise() {
        assert_eq!(plan_new(&Up { data: Some(1), ..flags() }).unwrap().data_copies, 1);
        assert_eq!(plan_new(&flags()).unwrap().data_copies, 2);
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
