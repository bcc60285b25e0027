//! From what people write for a cluster to a connection with it.

use crate::failure::{Unreachable, Usage};
use crate::sessions;
use anyhow::{Context, Result, bail};
use bearing_env::{SecretError, read_enrolment};
use bearing_mount::session::Session;
use bearing_mount::{Caller, ConnectError, Enrolment, Mount, MountConfig};
use bearing_server::cluster::{Cluster, Layout};
use bearing_types::{Credentials, Gid, Uid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_shutdown};
use signal_hook::iterator::Signals;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Who waits longer than this for a cluster reads why.
const SAID_AFTER: Duration = Duration::from_secs(3);

/// The directory of a cluster that is not given by addresses.
pub fn directory(cluster: &OsStr) -> Option<&Path> {
    let directory = Path::new(cluster);
    (!cluster.to_str().is_some_and(looks_like_addresses) || directory.is_dir()).then_some(directory)
}

/// What is needed to reach a cluster.
pub fn config(cluster: &OsStr, secret: Option<&Path>) -> Result<MountConfig> {
    if let Some(directory) = directory(cluster) {
        let layout = Layout::new(directory);
        let description = Cluster::read(&layout.cluster_file())?;
        let enrolment = match secret {
            Some(path) => read_secret(path)?,
            None => read_secret(&layout.enrolment_key())?,
        };
        return Ok(MountConfig::new(description.metadata_addresses(), enrolment));
    }
    let cluster = cluster.to_string_lossy();
    let Some(secret) = secret else {
        bail!(Usage(format!(
            "{cluster} needs an enrolment secret of the cluster; copy secrets/enrolment.key from the cluster's directory, or a file \
             made there with `bearing enrol`, and give --secret FILE"
        )));
    };
    Ok(MountConfig::new(resolve(&cluster)?, read_secret(secret)?))
}

/// A directory may have a colon in its name too, but then it is there, or has a slash.
fn looks_like_addresses(cluster: &str) -> bool {
    !cluster.contains('/')
        && cluster
            .split(',')
            .all(|part| part.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()))
}

fn resolve(cluster: &str) -> Result<Vec<SocketAddr>> {
    let mut addresses = Vec::new();
    for part in cluster.split(',') {
        let found = part.to_socket_addrs().map_err(|error| {
            Unreachable(format!("cannot find the address of {part}: {error}; check the name"))
        })?;
        addresses.extend(found);
    }
    Ok(addresses)
}

fn read_secret(path: &Path) -> Result<Enrolment> {
    match read_enrolment(path) {
        Ok(enrolment) => Ok(enrolment),
        Err(SecretError::File { source, .. }) if source.kind() == ErrorKind::PermissionDenied => bail!(
            "the enrolment secret {} is not for this user ({source}); run this as its owner (sudo), or give a copy of your own with --secret FILE",
            path.display()
        ),
        Err(error) => Err(Usage(error.to_string()).into()),
    }
}

/// Connects.
pub fn connect(cluster: &OsStr, secret: Option<&Path>) -> Result<Arc<Mount>> {
    let mut config = config(cluster, secret)?;
    config.description = Some(sessions::description(None));
    connect_as(cluster, &config)
}

/// The same with another configuration.
pub fn connect_as(cluster: &OsStr, config: &MountConfig) -> Result<Arc<Mount>> {
    match saying_that_it_waits(config, || Mount::connect(config)) {
        Ok(mount) => Ok(Arc::new(mount)),
        Err(error @ ConnectError::Unreachable { .. }) => {
            let remedy = match directory(cluster) {
                Some(directory) => {
                    let directory = directory.display();
                    format!("look at `bearing status --dir {directory}`; `bearing up --dir {directory}` starts the cluster")
                }
                None => "`bearing status` on the cluster's machine shows the right addresses; UDP and TCP must reach them".to_owned(),
            };
            Err(Unreachable(format!("{error}; {remedy}")).into())
        }
        Err(error @ ConnectError::NotServed { .. }) => Err(Unreachable(error.to_string()).into()),
        Err(error) => Err(error).context("connect to the cluster"),
    }
}

/// Nobody should think that the program hangs.
fn saying_that_it_waits<T>(config: &MountConfig, work: impl FnOnce() -> T) -> T {
    let (over, waited) = channel::<()>();
    let seconds = config.connect_wait.as_secs();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if waited.recv_timeout(SAID_AFTER) == Err(RecvTimeoutError::Timeout) {
                eprintln!(
                    "bearing: waiting up to {seconds} s for the cluster to give its root: are enough of its metadata \
                     servers up?"
                );
            }
        });
        let result = work();
        drop(over);
        result
    })
}

/// The files of a cluster as this program's user sees them. End it with [`end`].
pub fn session(mount: &Arc<Mount>) -> Result<Session> {
    let caller: Arc<dyn Caller> = mount.clone();
    Ok(Session::new(caller, own_credentials())?)
}

/// Makes everything stable and says goodbye.
pub fn end(mount: &Mount) -> Result<()> {
    mount.end().context("end the session")
}

/// Says goodbye also when the program is told to stop: nobody has to wait for what its session held. The
/// second signal ends it at once.
pub fn end_on_signal(mount: &Arc<Mount>) -> Result<()> {
    let told = [SIGINT, SIGTERM, SIGHUP];
    let again = Arc::new(AtomicBool::new(false));
    for signal in told {
        // In this order: the first time there is nothing to end yet.
        register_conditional_shutdown(signal, 128 + signal, again.clone()).context("wait for signals")?;
        register(signal, again.clone()).context("wait for signals")?;
    }
    let mut signals = Signals::new(told).context("wait for signals")?;
    let mount = mount.clone();
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // What could not be made stable is what a stopped program had not made stable.
            let _ = mount.end();
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

fn own_credentials() -> Credentials {
    // SAFETY: these calls take nothing and cannot fail.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    // SAFETY: a count of 0 asks for the number of groups and writes nothing.
    let count = unsafe { libc::getgroups(0, std::ptr::null_mut()) }.max(0);
    let mut groups = vec![0; count as usize];
    // SAFETY: `groups` has room for `count` numbers.
    let count = unsafe { libc::getgroups(count, groups.as_mut_ptr()) }.max(0);
    groups.truncate(count as usize);
    Credentials { uid: Uid(uid), gid: Gid(gid), groups: groups.into_iter().map(Gid).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_from_directories() {
        for (text, expected) in [
            ("10.0.0.1:9000", true),
            ("a:1,b:2", true),
            ("[::1]:9000", true),
            (".bearing", false),
            ("./a:9000", false),
            ("a:1,b", false),
        ] {
            assert_eq!(looks_like_addresses(text), expected, "{text}");
        }
    }

    #[test]
    fn addresses_without_a_secret_say_where_to_get_one() {
        let error = config(OsStr::new("127.0.0.1:9"), None).unwrap_err().to_string();
        assert!(error.contains("enrolment.key") && error.contains("--secret"), "{error}");
    }
}
