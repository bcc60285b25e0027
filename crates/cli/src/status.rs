//! `status`: who runs, how far each has come, who owns what, how its copies are, where it is mounted.

mod copies;

use crate::ask;
use crate::failure::Unreachable;
use crate::mounts::{self, MountState};
use crate::names::time_text;
use crate::report::{Report, mount_file, supervisor_file};
use crate::sessions::{self, SessionView};
use crate::tablets::{RestoringState, TabletState, Tablets};
use crate::target::Directory;
use anyhow::{Result, bail};
use bearing_env::Clock;
use bearing_proto::tablets::{CheckpointView, ChunkTally, TabletRole};
use bearing_server::cluster::{Cluster, Daemon, DaemonName, Layout};
use bearing_server::state::{DaemonState, Phase};
use bearing_types::Wall;
use clap::Args;
use comfy_table::{Table, presets};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  bearing status
  bearing status --tablets                       a line for every tablet
  bearing status --json | jq .sessions           who uses it, from where
  bearing status --json | jq .restoring          copies of metadata that are being made again

Daemons on other hosts answer a greeting or are silent.

Of tablets: LAG is in entries of the log that a member has not confirmed, LEASE whether every member
leaves the tablet to its owner now (only then it answers), LEARNER the server that becomes a member, and
what it was sent. Members marked ? are silent.";

/// `status`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Status {
    /// Where the cluster lies.
    #[command(flatten)]
    pub directory: Directory,
    /// Show every tablet, not only groups of those that are well
    #[arg(long)]
    pub tablets: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How long the coordinator may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// All that is known.
#[derive(Debug, Serialize)]
struct View {
    daemons: Vec<DaemonView>,
    supervisor: Option<ProcessView>,
    mount: Option<MountView>,
    /// Of all clients, wherever they are. `None`: no metadata server said.
    sessions: Option<Vec<SessionView>>,
    map_version: Option<u64>,
    /// `None`: neither the coordinator nor any metadata server said.
    tablets: Option<Vec<TabletState>>,
    metadata_copies: usize,
    /// Copies of tablets that are being made again; `None` if none lacks any.
    restoring: Option<RestoringState>,
    /// Metadata servers that did not say what they have.
    silent: Vec<SilentView>,
    /// Of all metadata servers that answer.
    chunks: Option<ChunkTally>,
    /// Of the tablets whose owners answer.
    checkpoints: Option<CheckpointsView>,
}

/// Checkpoints of metadata, on data servers.
#[derive(Debug, Serialize)]
struct CheckpointsView {
    /// Tablets that have one, of those whose owners answer.
    stored: usize,
    tablets: usize,
    /// How long ago the oldest of these was begun.
    oldest_s: Option<u64>,
}

#[derive(Debug, Serialize)]
struct DaemonView {
    #[serde(skip)]
    name: DaemonName,
    kind: &'static str,
    id: u32,
    /// Of the running process.
    pid: Option<u32>,
    address: String,
    /// Where it shows metrics and health.
    metrics: Option<SocketAddr>,
    state: &'static str,
    /// By how many milliseconds its clock is ahead of the middle one of the servers that it hears.
    clock_ahead_ms: Option<i64>,
    /// Why it failed, or what is wrong with its clock.
    reason: Option<String>,
}

#[derive(Debug, Serialize)]
struct ProcessView {
    pid: u32,
    state: &'static str,
}

#[derive(Debug, Serialize)]
struct MountView {
    path: PathBuf,
    pid: Option<u32>,
    state: &'static str,
}

#[derive(Debug, Serialize)]
struct SilentView {
    /// The metadata server's number.
    server: u32,
    why: String,
}

/// Runs `status`. It fails (exit code 3) when nothing runs.
pub fn status(flags: &Status) -> Result<()> {
    let layout = flags.directory.layout()?;
    let cluster = Cluster::read(&layout.cluster_file())?;
    let cluster = as_it_is(&layout, cluster);
    let (view, tablets) = look(&layout, &cluster)?;
    match flags.json {
        true => println!("{}", serde_json::to_string_pretty(&view)?),
        false => print(&view, tablets.as_ref(), flags.tablets),
    }
    if !view.daemons.iter().any(DaemonView::runs) {
        let dir = flags.directory.dir.display();
        bail!(Unreachable(format!("no daemon runs in {dir}; start them with `bearing up --dir {dir}`")));
    }
    Ok(())
}

/// The cluster with all servers that joined it, if anybody runs who can be asked.
fn as_it_is(layout: &Layout, cluster: Cluster) -> Cluster {
    let runs = |daemon: &Daemon| {
        let state = DaemonState::read(&layout.daemon(daemon.name));
        is_elsewhere(layout, daemon) || state.is_some_and(|state| state.is_alive())
    };
    match cluster.daemons().iter().any(runs) {
        true => ask::current(layout, &cluster, PATIENCE),
        false => cluster,
    }
}

/// Whether a daemon's directory is on another host.
fn is_elsewhere(layout: &Layout, daemon: &Daemon) -> bool {
    !layout.daemon(daemon.name).exists()
}

fn look(layout: &Layout, cluster: &Cluster) -> Result<(View, Option<Tablets>)> {
    let (daemons, mut elsewhere) = (cluster.daemons(), BTreeMap::new());
    let others: Vec<SocketAddr> =
        daemons.iter().filter(|daemon| is_elsewhere(layout, daemon)).map(|daemon| daemon.address).collect();
    elsewhere.extend(others.iter().copied().zip(ask::who_answers(layout, &others, PATIENCE)));
    let view = |daemon: &Daemon| match elsewhere.get(&daemon.address) {
        Some(answers) => elsewhere_view(daemon, *answers),
        None => daemon_view(layout, daemon),
    };
    let daemons: Vec<DaemonView> = daemons.iter().map(view).collect();
    let tablets = tablets(layout, cluster, &daemons);
    let supervisor = Report::read(&supervisor_file(layout)).filter(Report::is_alive);
    let view = View {
        daemons,
        supervisor: supervisor
            .map(|report| ProcessView { pid: report.process.pid, state: word(report.state) }),
        mount: mount_view(layout)?,
        sessions: sessions_view(layout, cluster),
        map_version: tablets.as_ref().and_then(|tablets| tablets.map_version),
        tablets: tablets.as_ref().map(|tablets| tablets.tablets.clone()),
        metadata_copies: usize::from(cluster.metadata_copies),
        restoring: tablets.as_ref().and_then(Tablets::restoring),
        silent: tablets.as_ref().map(silent).unwrap_or_default(),
        chunks: tablets.as_ref().and_then(chunks),
        checkpoints: tablets.as_ref().map(checkpoints),
    };
    Ok((view, tablets))
}

/// The tablets, unless it is known that nobody runs who could be asked.
fn tablets(layout: &Layout, cluster: &Cluster, daemons: &[DaemonView]) -> Option<Tablets> {
    let knows = |daemon: &DaemonView| !matches!(daemon.kind, "data" | "flow") && daemon.runs();
    if !daemons.iter().any(knows) {
        return None;
    }
    let (tablets, complaint) = Tablets::ask(layout, cluster, PATIENCE);
    complaint.into_iter().for_each(complain);
    (!tablets.tablets.is_empty()).then_some(tablets)
}

fn silent(tablets: &Tablets) -> Vec<SilentView> {
    let silent = tablets.servers.iter().filter_map(|server| {
        Some(SilentView { server: server.number, why: server.told.as_ref().err()?.clone() })
    });
    silent.collect()
}

/// The chunks of all tablets that are served.
fn chunks(tablets: &Tablets) -> Option<ChunkTally> {
    let told = tablets.servers.iter().filter_map(|server| server.told.as_ref().ok());
    told.map(|told| told.chunks).reduce(|mut sum, chunks| {
        sum.add(&chunks);
        sum
    })
}

fn checkpoints(tablets: &Tablets) -> CheckpointsView {
    let told = tablets.servers.iter().filter_map(|server| server.told.as_ref().ok());
    let owned = told.flat_map(|told| &told.tablets).filter_map(|tablet| match &tablet.role {
        TabletRole::Owner(owner) => Some(owner.checkpoint),
        TabletRole::Copy { .. } => None,
    });
    let owned: Vec<Option<CheckpointView>> = owned.collect();
    let now = Clock.now().wall;
    let stored = owned.iter().flatten();
    let oldest = stored.clone().map(|stored| stored.at).min();
    CheckpointsView {
        stored: stored.count(),
        tablets: owned.len(),
        oldest_s: oldest.map(|at| now.0.saturating_sub(at.0).max(0) as u64 / 1_000_000_000),
    }
}

/// Checkpoints, for people.
fn checkpoint_words(view: &CheckpointsView) -> String {
    let CheckpointsView { stored, tablets, oldest_s } = view;
    match oldest_s {
        Some(oldest) if stored == tablets => {
            format!("checkpoints of metadata: all, the oldest {oldest} s old")
        }
        Some(oldest) => {
            format!("checkpoints of metadata: {stored} of {tablets} tablets, the oldest {oldest} s old")
        }
        None => "checkpoints of metadata: none yet".to_owned(),
    }
}

/// Chunks, for people. Nothing to do is worth no words.
fn chunk_words(report: &ChunkTally) -> String {
    let mut words = vec![format!("chunks: {}", report.chunks)];
    if report.sealed > 0 {
        words.push(format!("{} bytes live, {} dead", report.live_bytes, report.dead_bytes));
    }
    if report.compacting > 0 {
        words.push(format!(
            "{} being compacted, {} bytes to keep",
            report.compacting, report.compacting_bytes
        ));
    }
    if report.lacking > 0 {
        let left = report.lacking_bytes;
        words.push(format!("{} lack copies, {left} bytes left to copy", report.lacking));
    }
    if report.damaged > 0 {
        words.push(format!("{} have a damaged copy", report.damaged));
    }
    if report.dead > 0 {
        words.push(format!("{} are being removed", report.dead));
    }
    words.join("; ")
}

fn complain(error: anyhow::Error) {
    eprintln!("bearing: the registers of tablets are not known: {error:#}");
}

/// The sessions, asked of the metadata servers that run.
fn sessions_view(layout: &Layout, cluster: &Cluster) -> Option<Vec<SessionView>> {
    let runs = |daemon: &Daemon| {
        let serves = || {
            let state = DaemonState::read(&layout.daemon(daemon.name));
            state.is_some_and(|state| state.is_alive() && state.state.is_serving())
        };
        daemon.name.kind_word() == "metadata" && (is_elsewhere(layout, daemon) || serves())
    };
    let servers: Vec<_> = cluster.daemons().into_iter().filter(runs).map(|daemon| daemon.address).collect();
    let (sessions, failed) = sessions::all(layout, &servers, PATIENCE);
    failed.iter().for_each(|error| eprintln!("bearing: some sessions are not known: {error:#}"));
    (failed.len() < servers.len()).then_some(sessions)
}

impl DaemonView {
    /// Whether it runs, as far as is known here.
    fn runs(&self) -> bool {
        self.pid.is_some() || self.state == ANSWERS
    }
}

/// Of a daemon on another host that answers a greeting.
const ANSWERS: &str = "answers";

fn elsewhere_view(daemon: &Daemon, answers: bool) -> DaemonView {
    DaemonView {
        name: daemon.name,
        kind: daemon.name.kind_word(),
        id: daemon.name.number,
        pid: None,
        address: daemon.address.to_string(),
        metrics: None,
        state: if answers { ANSWERS } else { "silent" },
        clock_ahead_ms: None,
        reason: None,
    }
}

fn daemon_view(layout: &Layout, daemon: &Daemon) -> DaemonView {
    let state = DaemonState::read(&layout.daemon(daemon.name));
    let alive = state.as_ref().filter(|state| state.is_alive());
    let (pid, word_of) = match &state {
        None => (None, "stopped"),
        Some(state) if state.is_alive() => (Some(state.pid), word(state.state)),
        Some(DaemonState {
            state: phase @ (Phase::Stopped | Phase::Failed | Phase::DiskFailed | Phase::DiskFull),
            ..
        }) => (None, word(*phase)),
        Some(_) => (None, "dead"),
    };
    DaemonView {
        name: daemon.name,
        kind: daemon.name.kind_word(),
        id: daemon.name.number,
        pid,
        address: daemon.address.to_string(),
        metrics: alive.and_then(|state| state.metrics),
        state: word_of,
        clock_ahead_ms: alive.and_then(|state| state.clock_ahead_ms),
        reason: state.as_ref().and_then(|state| state.reason.clone()),
    }
}

fn word(phase: Phase) -> &'static str {
    match phase {
        Phase::Starting => "starting",
        Phase::Serving => "serving",
        Phase::ClockOff => "clock off",
        Phase::DiskFull => "disk full",
        Phase::DiskFailed => "disk failed",
        Phase::Stopping => "stopping",
        Phase::Stopped => "stopped",
        Phase::Failed => "failed",
    }
}

fn mount_view(layout: &Layout) -> Result<Option<MountView>> {
    let Some(report) = Report::read(&mount_file(layout)) else { return Ok(None) };
    let Some(path) = report.mount.clone() else { return Ok(None) };
    let state = match report.is_alive() {
        true if mounts::is_ours(&path)? => "mounted",
        true => word(report.state),
        false if mounts::state(&path)? == MountState::Dead => "dead",
        false => return Ok(None),
    };
    let pid = report.is_alive().then_some(report.process.pid);
    Ok(Some(MountView { path, pid, state }))
}

fn print(view: &View, tablets: Option<&Tablets>, each_tablet: bool) {
    let mut daemons = Table::new();
    daemons.load_style(presets::NOTHING).set_header(["DAEMON", "PID", "ADDRESS", "METRICS", "STATE"]);
    for daemon in &view.daemons {
        let pid = daemon.pid.map_or("-".to_owned(), |pid| pid.to_string());
        let name = daemon.name.to_string();
        let metrics = daemon.metrics.map_or("-".to_owned(), |address| address.to_string());
        daemons.add_row([name, pid, daemon.address.clone(), metrics, daemon.state.to_owned()]);
    }
    println!("{daemons}");
    for daemon in &view.daemons {
        if let Some(reason) = &daemon.reason {
            println!("\n{} ({}): {reason}", daemon.name, daemon.state);
        }
    }
    for lines in tablets.map(|tablets| copies::lines(tablets, each_tablet)).unwrap_or_default() {
        println!("\n{lines}");
    }
    if let Some(report) = &view.chunks {
        println!("\n{}", chunk_words(report));
    }
    if let Some(view) = &view.checkpoints {
        println!("{}", checkpoint_words(view));
    }
    match &view.mount {
        Some(mount) => println!("\nmount of `up`: {} ({})", mount.path.display(), mount.state),
        None => println!("\n`up` has not mounted it"),
    }
    print_sessions(view.sessions.as_deref().unwrap_or_default());
}

fn print_sessions(sessions: &[SessionView]) {
    if sessions.is_empty() {
        return;
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["HOST", "PID", "MOUNTED AT", "SINCE", "DELEGATED"]);
    for session in sessions {
        let or_dash = |text: Option<String>| text.unwrap_or("-".to_owned());
        let place = match (&session.host, &session.path) {
            (_, Some(path)) => path.clone(),
            (Some(_), None) => "not mounted (fs, check)".to_owned(),
            (None, None) => "-".to_owned(),
        };
        let since = session.since.map(|since| time_text(Wall(since.saturating_mul(1_000_000_000))));
        table.add_row([
            or_dash(session.host.clone()),
            or_dash(session.process.map(|process| process.to_string())),
            place,
            or_dash(since),
            session.delegations.to_string(),
        ]);
    }
    println!("\n{table}");
}
