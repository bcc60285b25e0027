//! `down`: stops a cluster whoever started it, in whatever state it is.

use crate::mounts::{self, Detach, MountState};
use crate::process::{Process, stop_all};
use crate::report::{Report, mount_file, supervisor_file};
use crate::target::Directory;
use crate::up::running_supervisor;
use crate::{guard, mount_files};
use anyhow::Result;
use bearing_server::cluster::{Cluster, Layout};
use bearing_server::state::DaemonState;
use clap::Args;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  bearing down                                   the cluster in .bearing
  bearing down --dir /srv/b

Mounts that were made from the cluster's directory are unmounted first.";

/// `down`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Down {
    /// Where the cluster lies.
    #[command(flatten)]
    pub directory: Directory,
}

/// The supervisor stops its children one kind after the other, each with a patience of its own.
const SUPERVISOR_PATIENCE: Duration = Duration::from_secs(70);
/// For daemons that have no supervisor any more.
const PATIENCE: Duration = Duration::from_secs(20);
/// A guard ends when it sees that its mount is gone.
const GUARD_PATIENCE: Duration = Duration::from_secs(5);

/// Runs `down`.
pub fn down(flags: &Down) -> Result<()> {
    let layout = flags.directory.layout()?;
    let cluster = Cluster::read(&layout.cluster_file())?;
    let mut stopped = 0;
    let mut killed = 0;
    let mounts = mount_processes(&layout);
    let guards: Vec<_> = guard::all().into_iter().map(|(_, served)| served).collect();
    // First the mounts that the supervisor knows nothing of: what was written gets through only while servers
    // run.
    let further: Vec<Process> = further_mounts(&layout);
    stopped += further.len();
    killed += stop_all(&further, PATIENCE);
    if let Some(supervisor) = running_supervisor(&layout) {
        stopped += 1;
        killed += stop_all(&[supervisor], SUPERVISOR_PATIENCE);
    }
    // The mount before the servers, so that what was written gets through.
    for group in [mount_process(&layout), daemon_processes(&layout, &cluster)] {
        stopped += group.len();
        killed += stop_all(&group, PATIENCE);
    }
    clear_mount(&layout)?;
    for served in guards.iter().filter(|served| mounts.contains(&served.mount)) {
        served.guard.wait_gone(Instant::now() + GUARD_PATIENCE);
    }
    match (stopped, killed) {
        (0, _) => println!("nothing is running in {}", flags.directory.dir.display()),
        (_, 0) => println!("stopped; {} keeps the data", flags.directory.dir.display()),
        _ => println!(
            "stopped, {killed} processes had to be killed; {} keeps the data",
            flags.directory.dir.display()
        ),
    }
    Ok(())
}

fn mount_process(layout: &Layout) -> Vec<Process> {
    Report::read(&mount_file(layout))
        .filter(Report::is_alive)
        .map(|report| report.process)
        .into_iter()
        .collect()
}

fn further_mounts(layout: &Layout) -> Vec<Process> {
    let reports = mount_files::reports(layout).into_iter().filter_map(|file| Report::read(&file));
    reports.filter(Report::is_alive).map(|report| report.process).collect()
}

fn mount_processes(layout: &Layout) -> Vec<Process> {
    [mount_process(layout), further_mounts(layout)].concat()
}

fn daemon_processes(layout: &Layout, cluster: &Cluster) -> Vec<Process> {
    let states =
        cluster.daemons().into_iter().filter_map(|daemon| DaemonState::read(&layout.daemon(daemon.name)));
    let alive = states.filter(DaemonState::is_alive);
    alive.map(|state| Process { pid: state.pid, started_ticks: state.started_ticks }).collect()
}

/// Takes away what killed processes left mounted.
fn clear_mount(layout: &Layout) -> Result<()> {
    let mut reports = vec![mount_file(layout), supervisor_file(layout)];
    reports.append(&mut mount_files::reports(layout));
    let points: Vec<PathBuf> = reports.iter().filter_map(|file| Report::read(file)?.mount).collect();
    for point in points {
        if mounts::state(&point)? == MountState::Dead {
            mounts::detach(&point, Detach::Now)?;
            println!("a dead mount at {} was detached", point.display());
        }
    }
    Ok(())
}
