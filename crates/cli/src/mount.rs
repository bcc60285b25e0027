//! `mount` and `umount`.

use crate::failure::Usage;
use crate::mount_files::{MountFiles, open_log};
use crate::mounts::{self, Detach, MountState};
use crate::process::{Process, in_own_session, own_program, wait_until, without_files};
use crate::report::Report;
use crate::supervise::last_line;
use crate::voice::{log_to_stderr, say};
use crate::{connect, guard, sessions};
use anyhow::{Context, Result, bail};
use bearing_fuse::{Options, mount_blocking};
use bearing_mount::Consistency;
use bearing_server::cluster::Layout;
use bearing_server::state::Phase;
use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MOUNT_EXAMPLES: &str = "\
Examples:
  bearing mount .bearing ./mnt
  bearing mount 10.0.0.5:9000,10.0.0.6:9000 /mnt --secret enrolment.key";

/// `mount`.
#[derive(Args, Clone, Debug)]
#[command(after_help = MOUNT_EXAMPLES)]
pub struct Mount {
    /// A cluster's directory, or addresses of metadata servers (HOST:PORT[,HOST:PORT])
    #[arg(value_hint = clap::ValueHint::DirPath)]
    pub cluster: OsString,
    /// The directory to mount at
    pub path: PathBuf,
    /// The enrolment secret, when CLUSTER is not a directory
    #[arg(long, value_name = "FILE")]
    pub secret: Option<PathBuf>,
    /// Options as in mount(8): rw, ro, allow_other, owner_only, nonempty, suid, dev, locks=shared,
    /// locks=local, locks=refused, nodelegate, consistency=linearizable, noatime, trash=DAYS, threads=N,
    /// fsname=NAME
    #[arg(short, long, value_name = "OPTIONS", default_value = "")]
    pub options: String,
    /// Stay in the foreground; ctrl-c unmounts
    #[arg(long)]
    pub foreground: bool,
    /// Where to report the state (used by `up`).
    #[arg(long, hide = true)]
    pub state: Option<PathBuf>,
}

const UMOUNT_EXAMPLES: &str = "\
Examples:
  bearing umount ./mnt

It returns when everything is stored and the mount's processes have ended.";

/// `umount`.
#[derive(Args, Debug)]
#[command(after_help = UMOUNT_EXAMPLES)]
pub struct Umount {
    /// Where it is mounted
    pub path: PathBuf,
}

/// How long a mount in the background may take to appear.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the process of a mount that was taken away may take to store what was written, and to end.
const END_PATIENCE: Duration = Duration::from_secs(70);

/// How long those who still use a mount that is taken away may go on.
const GRACE: Duration = Duration::from_secs(2);

/// Runs `mount`.
pub fn mount(flags: &Mount) -> Result<()> {
    let point = mounts::absolute(&flags.path)?;
    let options = Options::new().apply(&flags.options).map_err(|error| Usage(error.to_string()))?;
    if !flags.foreground {
        // What can be said at once is said here, and not in a log.
        connect::config(&flags.cluster, flags.secret.as_deref())?;
        bearing_fuse::check_device()?;
        let log = in_background(flags, &point)?;
        say!("mounted at {}; its log is {}", flags.path.display(), log.display())?;
        return Ok(());
    }
    log_to_stderr();
    let told = make_free(&point)?;
    told.iter().for_each(|told| tracing::info!("{told}"));
    let result = mount_here(flags, &point, &options);
    if let (Err(error), Some(file)) = (&result, &flags.state) {
        let failed =
            Report { reason: Some(format!("{error:#}")), ..Report::own(Phase::Failed, Some(&point)) };
        failed.write(file)?;
    }
    result
}

fn mount_here(flags: &Mount, point: &Path, options: &Options) -> Result<()> {
    let report = |phase| match &flags.state {
        Some(file) => Report::own(phase, Some(point)).write(file),
        None => Ok(()),
    };
    report(Phase::Starting)?;
    let mut config = connect::config(&flags.cluster, flags.secret.as_deref())?;
    config.delegates = options.delegates;
    if options.linearizable {
        config.consistency = Consistency::Linearizable;
    }
    config.description = Some(sessions::description(Some(point)));
    config.access_times = options.access_times;
    let mount = connect::connect_as(&flags.cluster, &config)?;
    let mut reported = Ok(());
    mount_blocking(mount.clone(), point, options, |_| {
        unmount_on_signals(mount.clone(), point.to_owned());
        if let Err(error) = guard::start(point) {
            tracing::warn!("{error:#}; if this process is killed, programs may wait until umount -f");
        }
        tracing::info!("mounted at {} ({options})", point.display());
        reported = report(Phase::Serving);
    })?;
    reported?;
    tracing::info!("{} is unmounted", point.display());
    connect::end(&mount)?;
    // Something else may be mounted there by now, and reports itself.
    let is_own = |file: &PathBuf| Report::read(file).is_some_and(|last| last.process == Process::own());
    if flags.state.as_ref().is_some_and(is_own) { report(Phase::Stopped) } else { Ok(()) }
}

fn unmount_on_signals(mount: Arc<bearing_mount::Mount>, point: PathBuf) {
    match Signals::new([SIGTERM, SIGINT, SIGHUP]) {
        Ok(mut signals) => {
            std::thread::spawn(move || {
                for _ in signals.forever() {
                    unmount(&mount, &point);
                }
            });
        }
        Err(error) => tracing::warn!("cannot wait for signals ({error}); unmount with umount"),
    }
}

/// Unmounting ends the service of requests, and so this process. Users who will not leave do not hold it up:
/// what they wrote is made stable, and they are left with a view of nothing.
fn unmount(mount: &bearing_mount::Mount, point: &Path) {
    if mounts::detach(point, Detach::WhenIdle).is_ok() {
        return;
    }
    tracing::warn!("{} is in use; its users lose it", point.display());
    if let Err(error) = mounts::detach(point, Detach::Now) {
        tracing::error!("{error:#}");
        return;
    }
    std::thread::sleep(GRACE);
    match connect::end(mount) {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            tracing::error!("{error:#}");
            std::process::exit(1);
        }
    }
}

/// Starts this program again in the background and waits until the mount answers. Gives its log.
pub fn in_background(flags: &Mount, point: &Path) -> Result<PathBuf> {
    if let Some(told) = make_free(point)? {
        say!("{told}")?;
    }
    let directory = connect::directory(&flags.cluster).map(std::path::absolute).transpose()?;
    let files = MountFiles::of(directory.map(Layout::new).as_ref(), point)?;
    let log_path = files.log;
    let log = open_log(&log_path)?;
    let mut command = Command::new(own_program()?);
    command.args(["mount", "--foreground", "-o", &flags.options, "--state"]).arg(&files.state);
    if let Some(secret) = &flags.secret {
        command.arg("--secret").arg(secret);
    }
    command.arg(&flags.cluster).arg(point);
    command.stdin(Stdio::null()).stdout(log.try_clone().context("share a log file")?).stderr(log);
    in_own_session(&mut command);
    without_files(&mut command);
    let mut child = command.spawn().context("start the mount")?;
    let mut ended = None;
    let mut is_mounted = false;
    wait_until(Instant::now() + PATIENCE, || {
        ended = child.try_wait().ok().flatten();
        is_mounted = mounts::state(point).is_ok_and(|state| state == MountState::Ours);
        ended.is_some() || is_mounted
    });
    match (ended, is_mounted) {
        (Some(_), _) => bail!("{}", last_line(&log_path).trim_start_matches("bearing: ")),
        (None, true) => Ok(log_path),
        (None, false) => bail!("{} is still not mounted; see {}", point.display(), log_path.display()),
    }
}

/// Sees that nothing is mounted at a directory; the mount itself checks again. What a crash left is taken
/// away. Says so, if it did.
pub fn make_free(point: &Path) -> Result<Option<String>> {
    let mut told = None;
    match mounts::state(point)? {
        MountState::Ours => {
            let process =
                guard::of(point)?.map_or(String::new(), |served| format!(" (process {})", served.mount.pid));
            bail!(Usage(format!(
                "{point} is busy: a Bearing is mounted there already{process}; unmount it with `bearing umount {point}`, or choose another \
                 directory",
                point = point.display()
            )))
        }
        MountState::Foreign(what) => bail!(Usage(format!(
            "{} is busy: a filesystem of type {what} is mounted there; unmount it, or choose another directory",
            point.display()
        ))),
        MountState::Dead => {
            mounts::detach(point, Detach::Now)?;
            told = Some(format!("a dead mount that a crash had left at {} was detached", point.display()));
        }
        MountState::None => {}
    }
    Ok(told)
}

/// Runs `umount`.
pub fn umount(flags: &Umount) -> Result<()> {
    let point = mounts::absolute(&flags.path)?;
    let served = guard::of(&point)?;
    match mounts::state(&point)? {
        MountState::Ours => mounts::detach(&point, Detach::WhenIdle)?,
        MountState::Dead => mounts::detach(&point, Detach::Now)?,
        MountState::None => bail!("nothing is mounted at {}", point.display()),
        MountState::Foreign(kind) => {
            bail!("what is mounted at {} is of type {kind} and not Bearing's; use umount", point.display())
        }
    }
    // What was written is made stable, and the session is ended, only now: a cluster that is stopped
    // meanwhile would lose it.
    match served {
        Some(served) if !served.wait_gone(Instant::now() + END_PATIENCE) => bail!(
            "{} is unmounted, but its process {} has not ended in {} s: it waits for servers, to store what was written; see `bearing status`",
            point.display(),
            served.mount.pid,
            END_PATIENCE.as_secs()
        ),
        _ => Ok(()),
    }
}
