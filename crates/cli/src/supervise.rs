//! The supervisor: starts the daemons of a cluster and its mount as child processes, waits until all serve,
//! starts again what dies.
//!
//! It decides nothing about the cluster. A child that says that starting it again would not help is left
//! dead, and says so in its log and state file. When the supervisor itself is killed, the kernel tells its
//! children to stop.

use crate::ask;
use crate::failure::HOPELESS;
use crate::mount_files::open_log;
use crate::mounts::{self, Detach, MountState};
use crate::process::{Process, bound_to_parent, own_program, stop_all, without_files};
use crate::report::{Report, mount_file, mount_log, supervisor_file};
use crate::voice::complain;
use anyhow::{Context, Result, bail};
use bearing_placement::Tablet;
use bearing_proto::client::ServerKind;
use bearing_server::cluster::{Cluster, DaemonName, Layout};
use bearing_server::state::{DaemonState, Phase};
use bearing_types::ServerId;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The pause before a child is started again after its second failure in a row, doubled with every further
/// one. After the first there is none: clients wait for a server that is down.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A child that ran for so long has no failures in a row any more.
const SOUND_AFTER: Duration = Duration::from_secs(5);
/// While the cluster comes up, a child that fails so often in a row makes the start fail, unless the others
/// of its kind have copies of all that it has.
const START_FAILURES_MAX: u32 = 3;
/// How long the cluster may take to come up. A long log is replayed within this.
const START_PATIENCE: Duration = Duration::from_secs(120);
/// How long the coordinator may take to say who has copies of what.
const REGISTERS_PATIENCE: Duration = Duration::from_secs(5);
/// How often state files are looked at while the cluster comes up.
const LOOK: Duration = Duration::from_millis(20);
/// How often it is looked which servers there are.
const SERVERS_LOOK: Duration = Duration::from_millis(500);
/// How long children may take to stop in order.
const STOP_PATIENCE: Duration = Duration::from_secs(20);
/// How long the mount may take when a server is dead and will not be started again: what that server should
/// have stored has nowhere to go, and what the others should is there in less.
const STOP_PATIENCE_IN_VAIN: Duration = Duration::from_secs(5);

/// What to supervise.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The cluster's directory, absolute.
    pub layout: Layout,
    /// The cluster.
    pub cluster: Cluster,
    /// Where to mount it, absolute.
    pub mount: Option<PathBuf>,
    /// What to do with daemons that die.
    pub restart: Restart,
    /// Whether to serve what is left when part of the tree is out of reach.
    pub partial: bool,
}

/// What to do with daemons that die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Start them again.
    Always,
    /// Leave them dead.
    Never,
}

/// Who a child is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Role {
    Daemon(DaemonName),
    Mount(PathBuf),
}

/// A child process, or the wish to have one.
struct Ward {
    role: Role,
    child: Option<Child>,
    started: Instant,
    failures: u32,
    /// When to start it (again).
    due: Option<Instant>,
}

/// Supervises until told to stop. `ready` is called once, when everything serves that the cluster needs; it
/// is told what is wrong with the servers that it does without.
pub fn supervise(plan: &Plan, ready: impl FnOnce(&[String]) -> Result<()>) -> Result<()> {
    let _lock = lock(&plan.layout)?;
    let report = |state, reason: Option<String>| {
        let report = Report { reason, ..Report::own(state, plan.mount.as_deref()) };
        report.write(&supervisor_file(&plan.layout))
    };
    report(Phase::Starting, None)?;
    let signals = forward_signals()?;
    stop_strays(plan);
    let mut supervisor = Supervisor { plan, program: own_program()?, wards: Vec::new(), signals };
    let result = supervisor.run(|missing| {
        report(Phase::Serving, Some(missing.join("\n")).filter(|missing| !missing.is_empty()))?;
        ready(missing)
    });
    report(Phase::Stopping, None)?;
    complain!("stopping the cluster; ctrl-c kills what does not end at once");
    supervisor.stop();
    match &result {
        Ok(()) => report(Phase::Stopped, None)?,
        Err(error) => report(Phase::Failed, Some(format!("{error:#}")))?,
    }
    result
}

/// One supervisor per cluster. The lock goes with the process.
fn lock(layout: &Layout) -> Result<File> {
    let path = layout.root().join("supervisor.lock");
    let file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
    if file.try_lock().is_err() {
        let pid = Report::read(&supervisor_file(layout))
            .map_or(String::new(), |report| format!(" (process {})", report.process.pid));
        bail!("the cluster in {} is already running{pid}", layout.root().display());
    }
    Ok(file)
}

/// Daemons and mounts that an earlier, killed supervisor left running.
fn stop_strays(plan: &Plan) {
    let states = plan
        .cluster
        .daemons()
        .into_iter()
        .filter_map(|daemon| DaemonState::read(&plan.layout.daemon(daemon.name)));
    let daemons = states.map(|state| Process { pid: state.pid, started_ticks: state.started_ticks });
    let mount = Report::read(&mount_file(&plan.layout)).map(|report| report.process);
    let alive: Vec<Process> = daemons.chain(mount).filter(|process| process.is_alive()).collect();
    if !alive.is_empty() {
        complain!("stopping {} processes that an earlier, killed supervisor left", alive.len());
        stop_all(&alive, STOP_PATIENCE);
    }
}

fn forward_signals() -> Result<Receiver<i32>> {
    let (sender, receiver) = channel();
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGCHLD]).context("wait for signals")?;
    std::thread::spawn(move || signals.forever().try_for_each(|signal| sender.send(signal)));
    Ok(receiver)
}

struct Supervisor<'a> {
    plan: &'a Plan,
    program: PathBuf,
    wards: Vec<Ward>,
    signals: Receiver<i32>,
}

/// Why a wait ended.
#[derive(PartialEq, Eq)]
enum Woken {
    Stop,
    Look,
}

impl Supervisor<'_> {
    fn run(&mut self, ready: impl FnOnce(&[String]) -> Result<()>) -> Result<()> {
        let deadline = Instant::now() + START_PATIENCE;
        for daemon in self.plan.cluster.daemons() {
            self.wards.push(Ward::new(Role::Daemon(daemon.name)));
        }
        let Some(mut missing) = self.bring_up(deadline)? else { return Ok(()) };
        if let Some(point) = &self.plan.mount {
            self.wards.push(Ward::new(Role::Mount(point.clone())));
            match self.bring_up(deadline)? {
                Some(still_missing) => missing = still_missing,
                None => return Ok(()),
            }
        }
        ready(&missing)?;
        while self.wait(Some(SERVERS_LOOK))? == Woken::Look {
            self.reap();
            self.follow();
            self.start_due()?;
        }
        Ok(())
    }

    /// Servers come and go: `cluster.toml` says which there are.
    fn follow(&mut self) {
        let Ok(cluster) = Cluster::read(&self.plan.layout.cluster_file()) else { return };
        let names: Vec<DaemonName> = cluster.daemons().into_iter().map(|daemon| daemon.name).collect();
        let gone = |ward: &Ward| matches!(&ward.role, Role::Daemon(name) if !names.contains(name));
        for mut ward in self.wards.extract_if(.., |ward| gone(ward)) {
            complain!("{} left the cluster; it is stopped", ward.title());
            stop_wards(vec![&mut ward], STOP_PATIENCE, &self.signals);
        }
        for name in names {
            if !self.wards.iter().any(|ward| ward.is_server(name.server())) {
                complain!("{name} is new in the cluster; it is started");
                self.wards.push(Ward::new(Role::Daemon(name)));
            }
        }
    }

    /// Starts what is not started and waits until all serve; `None` when told to stop meanwhile. A server
    /// that does not start does not keep the others from serving, as long as they have copies of what it has:
    /// gives what is wrong with such ones.
    fn bring_up(&mut self, deadline: Instant) -> Result<Option<Vec<String>>> {
        loop {
            self.reap();
            self.start_due()?;
            let (failing, others): (Vec<&Ward>, Vec<&Ward>) =
                self.wards.iter().partition(|ward| ward.is_failing());
            let data_left = others.iter().any(|ward| ward.is_of(ServerKind::Data));
            let done_without = |ward: &Ward| match &ward.role {
                Role::Daemon(DaemonName { kind: ServerKind::Data, .. }) => data_left,
                Role::Daemon(DaemonName { kind: ServerKind::Metadata | ServerKind::Flow, .. }) => true,
                Role::Daemon(_) | Role::Mount(_) => false,
            };
            let waiting: Vec<String> =
                others.iter().filter(|ward| !self.serves(ward)).map(|ward| self.state_of(ward)).collect();
            if let Some(ward) = failing.iter().find(|ward| !done_without(ward)) {
                bail!("{} does not start: {}", ward.title(), self.reason(ward));
            }
            if let Some(lost) = self.what_is_lost(&failing)? {
                bail!("{lost}");
            }
            if waiting.is_empty() {
                let missing = failing.into_iter().filter(|ward| !self.serves(ward));
                return Ok(Some(missing.map(|ward| self.what_is_missing(ward)).collect()));
            }
            if Instant::now() > deadline {
                bail!(
                    "after {} s there is still no answer from {}; see the logs in {}",
                    START_PATIENCE.as_secs(),
                    waiting.join(", "),
                    self.plan.layout.root().display()
                );
            }
            if self.wait(Some(LOOK))? == Woken::Stop {
                return Ok(None);
            }
        }
    }

    /// What of the tree cannot be served without these metadata servers, if that is not what was asked for.
    fn what_is_lost(&self, failing: &[&Ward]) -> Result<Option<String>> {
        let away: Vec<&&Ward> = failing.iter().filter(|ward| ward.is_of(ServerKind::Metadata)).collect();
        let Some(first) = away.first() else { return Ok(None) };
        let coordinator = self.wards.iter().find(|ward| ward.is_of(ServerKind::Coordinator));
        if self.plan.partial || !coordinator.is_some_and(|ward| self.serves(ward)) {
            return Ok(None);
        }
        let (_, tablets) = ask::tablets(&self.plan.layout, &self.plan.cluster, REGISTERS_PATIENCE)?;
        let is_away = |server: &ServerId| away.iter().any(|ward| ward.is_server(*server));
        let all_away = |tablet: &&Tablet| tablet.members.iter().all(is_away);
        let lost: Vec<String> =
            tablets.iter().filter(all_away).map(|tablet| tablet.block.to_string()).collect();
        if lost.is_empty() {
            return Ok(None);
        }
        let names: Vec<String> = away.iter().map(|ward| ward.title()).collect();
        let recovery = match lost.len() == tablets.len() {
            true => {
                ". When the disks of all metadata servers are lost, `bearing recover metadata` makes it anew of data servers"
            }
            false => "",
        };
        Ok(Some(format!(
            "{} does not start: {}. {} of {} tablets have a copy nowhere but on {}, so their part of the tree is out of reach: {}. Set that right; \
             or serve the rest with `bearing up --partial`: whoever asks for what lies in these tablets gets an error after a minute{}",
            first.title(),
            self.reason(first),
            lost.len(),
            tablets.len(),
            names.join(" and "),
            lost.join(" "),
            recovery
        )))
    }

    /// Waits for a signal, for the next start that is due, or at most so long.
    fn wait(&self, at_most: Option<Duration>) -> Result<Woken> {
        let now = Instant::now();
        let next_due = self.wards.iter().filter_map(|ward| ward.due).min();
        let until_due = next_due.map(|due| due.saturating_duration_since(now));
        let timeout = [until_due, at_most].into_iter().flatten().min().unwrap_or(PAUSE_MAX);
        match self.signals.recv_timeout(timeout) {
            Ok(SIGCHLD) | Err(RecvTimeoutError::Timeout) => Ok(Woken::Look),
            Ok(_) => Ok(Woken::Stop),
            Err(RecvTimeoutError::Disconnected) => bail!("the thread that waits for signals is gone"),
        }
    }

    /// Takes note of children that ended, and plans their next start.
    fn reap(&mut self) {
        for ward in &mut self.wards {
            let Some(child) = &mut ward.child else { continue };
            let Ok(Some(status)) = child.try_wait() else { continue };
            ward.child = None;
            let hopeless = status.code() == Some(i32::from(HOPELESS));
            ward.failures = if ward.started.elapsed() > SOUND_AFTER { 1 } else { ward.failures + 1 };
            // A mount that ends well was unmounted by somebody.
            let unmounted = status.success() && matches!(ward.role, Role::Mount(_));
            let again = !hopeless && !unmounted && self.plan.restart == Restart::Always;
            ward.due = again.then(|| Instant::now() + ward.pause());
            let next = match ward.due {
                Some(_) if ward.pause().is_zero() => "started again".to_owned(),
                Some(_) => format!("started again in {} ms", ward.pause().as_millis()),
                None => "left dead".to_owned(),
            };
            complain!("{} ended ({status}); {next}", ward.title());
        }
    }

    fn start_due(&mut self) -> Result<()> {
        let now = Instant::now();
        for ward in self.wards.iter_mut().filter(|ward| ward.due.is_some_and(|due| due <= now)) {
            if let Role::Mount(point) = &ward.role {
                clear_dead_mount(point)?;
            }
            let mut command = command(&self.program, self.plan, &ward.role)?;
            bound_to_parent(&mut command);
            without_files(&mut command);
            let child = command.spawn().with_context(|| format!("start {}", ward.title()))?;
            ward.child = Some(child);
            ward.started = now;
            ward.due = None;
        }
        Ok(())
    }

    /// Whether a child runs and says that it serves.
    fn serves(&self, ward: &Ward) -> bool {
        let Some(child) = &ward.child else { return false };
        let (pid, state) = match &ward.role {
            Role::Daemon(name) => match DaemonState::read(&self.plan.layout.daemon(*name)) {
                Some(state) => (state.pid, state.state),
                None => return false,
            },
            Role::Mount(_) => match Report::read(&mount_file(&self.plan.layout)) {
                Some(report) => (report.process.pid, report.state),
                None => return false,
            },
        };
        pid == child.id() && state.is_serving()
    }

    /// A child that does not serve, with what it says of that itself.
    fn state_of(&self, ward: &Ward) -> String {
        let reported = match &ward.role {
            Role::Daemon(name) => {
                DaemonState::read(&self.plan.layout.daemon(*name)).and_then(|state| state.reason)
            }
            Role::Mount(_) => Report::read(&mount_file(&self.plan.layout)).and_then(|report| report.reason),
        };
        reported.map_or_else(|| ward.title(), |reason| format!("{} ({reason})", ward.title()))
    }

    /// Why a child failed: by its own report, or by the end of its log.
    fn reason(&self, ward: &Ward) -> String {
        let layout = &self.plan.layout;
        let (reported, log) = match &ward.role {
            Role::Daemon(name) => (
                DaemonState::read(&layout.daemon(*name)).and_then(|state| state.reason),
                layout.daemon_log(*name),
            ),
            Role::Mount(_) => {
                (Report::read(&mount_file(layout)).and_then(|report| report.reason), mount_log(layout))
            }
        };
        reported.unwrap_or_else(|| format!("{}; see {}", last_line(&log), log.display()))
    }

    /// What is said of a server that the cluster does without.
    fn what_is_missing(&self, ward: &Ward) -> String {
        let try_next = match ward.gave_up() {
            true => "Set that right, then run `bearing down` and `bearing up`",
            false => "It is started again and again: set that right, and it serves",
        };
        format!(
            "{} does not start: {}. The cluster runs without it: others have copies of what it has, and more are made where servers are left \
             for that. {try_next}",
            ward.title(),
            self.reason(ward)
        )
    }

    /// Stops the mount first, so that what was written gets through, then the servers, and last the
    /// coordinator.
    fn stop(&mut self) {
        let order = |role: &Role| match role {
            Role::Mount(_) => 0,
            Role::Daemon(DaemonName::COORDINATOR) => 2,
            Role::Daemon(_) => 1,
        };
        let dead: Vec<String> =
            self.wards.iter().filter(|ward| ward.is_dead_server()).map(Ward::title).collect();
        let patience = if dead.is_empty() { STOP_PATIENCE } else { STOP_PATIENCE_IN_VAIN };
        for turn in 0..=2 {
            let wards: Vec<&mut Ward> =
                self.wards.iter_mut().filter(|ward| order(&ward.role) == turn).collect();
            if stop_wards(wards, patience, &self.signals) > 0 && !dead.is_empty() {
                complain!("{} had died: what was not stable and needed it is lost", dead.join(", "));
            }
        }
        if let Some(point) = &self.plan.mount
            && mounts::state(point).is_ok_and(|state| state == MountState::Dead)
            && let Err(error) = mounts::detach(point, Detach::Now)
        {
            complain!("{error:#}");
        }
    }
}

/// Stops children; says how many had to be killed. A person who presses ctrl-c again has no patience any
/// more.
fn stop_wards(wards: Vec<&mut Ward>, patience: Duration, signals: &Receiver<i32>) -> usize {
    let mut children: Vec<Child> = wards.into_iter().filter_map(|ward| ward.child.take()).collect();
    for child in &children {
        // SAFETY: kill takes plain numbers; the child was not waited for, so the number is still its own.
        unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
    }
    let mut deadline = Instant::now() + patience;
    let mut killed = 0;
    for child in &mut children {
        while matches!(child.try_wait(), Ok(None)) {
            if signals.try_iter().any(|signal| signal == SIGINT) {
                deadline = Instant::now();
            }
            if Instant::now() >= deadline {
                complain!("process {} does not stop; it is killed", child.id());
                killed += 1;
                // Failing means that it ended meanwhile.
                let _ = child.kill();
                let _ = child.wait();
            } else {
                std::thread::sleep(LOOK);
            }
        }
    }
    killed
}

/// A killed mount leaves a dead one in the tree.
fn clear_dead_mount(point: &Path) -> Result<()> {
    if mounts::state(point)? == MountState::Dead {
        mounts::detach(point, Detach::Now)?;
        complain!("{}: a dead mount was detached", point.display());
    }
    Ok(())
}

fn command(program: &Path, plan: &Plan, role: &Role) -> Result<Command> {
    let mut command = Command::new(program);
    let log = match role {
        Role::Daemon(name) => {
            command.args(["daemon", name.kind_word(), "--config"]).arg(plan.layout.daemon_config(*name));
            plan.layout.daemon_log(*name)
        }
        Role::Mount(point) => {
            command.args(["mount", "--foreground", "--state"]).arg(mount_file(&plan.layout));
            command.arg(plan.layout.root()).arg(point);
            mount_log(&plan.layout)
        }
    };
    let log = open_log(&log)?;
    let errors = log.try_clone().context("share a log file")?;
    command.stdin(Stdio::null()).stdout(log).stderr(errors).current_dir("/");
    Ok(command)
}

/// The last line that a program printed.
pub fn last_line(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it printed nothing").to_owned()
}

impl Ward {
    fn new(role: Role) -> Ward {
        let now = Instant::now();
        Ward { role, child: None, started: now, failures: 0, due: Some(now) }
    }

    fn title(&self) -> String {
        match &self.role {
            Role::Daemon(name) => name.to_string(),
            Role::Mount(point) => format!("the mount at {}", point.display()),
        }
    }

    fn gave_up(&self) -> bool {
        self.child.is_none() && self.due.is_none()
    }

    /// It failed so often in a row that it is not waited for.
    fn is_failing(&self) -> bool {
        self.gave_up() || self.failures >= START_FAILURES_MAX
    }

    fn is_of(&self, kind: ServerKind) -> bool {
        matches!(&self.role, Role::Daemon(name) if name.kind == kind)
    }

    fn is_server(&self, server: ServerId) -> bool {
        matches!(&self.role, Role::Daemon(name) if name.server() == server)
    }

    fn is_dead_server(&self) -> bool {
        self.gave_up() && matches!(self.role, Role::Daemon(_))
    }

    fn pause(&self) -> Duration {
        match self.failures.checked_sub(2) {
            None => Duration::ZERO,
            Some(doublings) => PAUSE_MIN.saturating_mul(1 << doublings.min(16)).min(PAUSE_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_start_again_is_at_once_and_then_pauses_double_up_to_their_limit() {
        let mut ward = Ward::new(Role::Daemon(DaemonName::COORDINATOR));
        let pauses: Vec<u128> = (1..=8)
            .map(|failures| {
                ward.failures = failures;
                ward.pause().as_millis()
            })
            .collect();
        assert_eq!(pauses, [0, 100, 200, 400, 800, 1600, 3200, 5000]);
    }
}
