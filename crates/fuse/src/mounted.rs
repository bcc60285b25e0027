//! Mounting and unmounting.
//!
//! Order: the machine is connected, the kernel is connected, the machine is told where the kernel's caches
//! are, then requests are served. Nothing can be invalidated before it was told. After the last request the
//! session ends, so that what was written is stable.

use crate::bridge::Bridge;
use crate::filesystem::Requests;
use crate::gate::Gate;
use crate::kernel::Kernel;
use crate::options::Options;
use crate::point::{PointError, check_device, device_at, prepare, unmount};
use bearing_mount::trash::{Day, Trash};
use bearing_mount::{Caller, KernelCache, Mount, Operation};
use bearing_types::Code;
use fuser::Session;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// How often it is looked what in the trash was kept long enough.
const EXPIRE_EVERY: Duration = Duration::from_secs(3600);

/// Why mounting failed or a mount ended badly.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The directory, or this machine, is not fit.
    #[error(transparent)]
    Point(#[from] PointError),
    /// The cluster does not give its root directory.
    #[error("read the root directory: {0}")]
    Root(Code),
    /// The kernel refused.
    #[error("mount on {}: {source}", point.display())]
    Kernel {
        /// The directory.
        point: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The connection to the kernel broke.
    #[error("serve {}: {source}", point.display())]
    Serving {
        /// The directory.
        point: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// It cannot be unmounted.
    #[error("unmount {}: {source}", point.display())]
    Unmount {
        /// The directory.
        point: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// A mounted directory. Dropping it leaves it mounted until the process ends; see [`Mounted::unmount`].
pub struct Mounted {
    serving: JoinHandle<io::Result<()>>,
    unmounter: Unmounter,
}

/// Unmounts from another thread, for instance when a signal comes.
#[derive(Clone)]
pub struct Unmounter {
    point: PathBuf,
    device: String,
}

/// Mounts a filesystem on a directory and serves it in threads of its own.
pub fn spawn(mount: Arc<Mount>, point: &Path, options: &Options) -> Result<Mounted, MountError> {
    let caller = mount.clone();
    start(caller, point, options, move |cache| match cache {
        Some(cache) => mount.set_kernel_cache(cache),
        None => mount.forget_kernel_cache(),
    })
}

/// The same for any caller, who is told of the kernel's cache before the first request and of its end after
/// the last.
pub(crate) fn start(
    caller: Arc<dyn Caller>,
    point: &Path,
    options: &Options,
    set_cache: impl Fn(Option<Arc<dyn KernelCache>>) + Send + 'static,
) -> Result<Mounted, MountError> {
    check_device()?;
    let point = prepare(point, options.occupied)?;
    let root = caller.found(Operation::Root).map_err(MountError::Root)?.node;
    let gate = Arc::new(Gate::default());
    let trash = options.trash_days.map(|days| Arc::new(Trash::new(caller.clone(), root, days)));
    let bridge = Bridge::new(caller, root).with_trash(trash.clone()).with_consistency(options.linearizable);
    let requests = Requests::new(bridge, gate.clone(), options.locks);
    let kernel_error = |source| MountError::Kernel { point: point.clone(), source };
    let session = Session::new(requests, &point, &options.config()).map_err(kernel_error)?;
    let device = session.as_fd().try_clone_to_owned().map_err(kernel_error)?;
    let kernel = Kernel::new(session.notifier(), device, gate, root).map_err(kernel_error)?;
    set_cache(Some(Arc::new(kernel)));
    let gone = || kernel_error(io::Error::other("it is not in the table of mounts"));
    let mounted_device = device_at(&point).map_err(kernel_error)?.ok_or_else(gone)?;
    let (stop_expiring, stopped) = channel();
    if let Some(trash) = trash {
        let expire = move || expire(&trash, &stopped);
        Builder::new().name("bearing-trash".to_owned()).spawn(expire).map_err(kernel_error)?;
    }
    let serving = Builder::new()
        .name("bearing-fuse".to_owned())
        .spawn(move || {
            let result = session.run();
            drop(stop_expiring);
            set_cache(None);
            end_of_serving(result)
        })
        .map_err(kernel_error)?;
    Ok(Mounted { serving, unmounter: Unmounter { point, device: mounted_device } })
}

/// Every mount ends with the kernel giving its connection up. A thread that is taking a request at that
/// moment is told ECONNABORTED, all others ENODEV.
fn end_of_serving(result: io::Result<()>) -> io::Result<()> {
    let is_end = |error: &io::Error| error.raw_os_error() == Some(libc::ECONNABORTED);
    result.or_else(|error| if is_end(&error) { Ok(()) } else { Err(error) })
}

/// Removes what was kept long enough, now and then, until the mount is gone.
fn expire(trash: &Trash, stopped: &Receiver<()>) {
    loop {
        match trash.expire(Day::today()) {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "removed for good what was kept in the trash long enough"),
            Err(code) => tracing::warn!(%code, "could not empty the trash; trying again later"),
        }
        if stopped.recv_timeout(EXPIRE_EVERY) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// Mounts a filesystem on a directory and returns when it was unmounted. `ready` is called once requests are
/// served; it may keep the unmounter.
pub fn mount_blocking(
    mount: Arc<Mount>,
    point: &Path,
    options: &Options,
    ready: impl FnOnce(&Unmounter),
) -> Result<(), MountError> {
    let mounted = spawn(mount, point, options)?;
    ready(mounted.unmounter());
    mounted.wait()
}

impl Mounted {
    /// Where it is mounted.
    pub fn point(&self) -> &Path {
        &self.unmounter.point
    }

    /// What unmounts it.
    pub fn unmounter(&self) -> &Unmounter {
        &self.unmounter
    }

    /// Waits until it is unmounted, by us or anybody.
    pub fn wait(self) -> Result<(), MountError> {
        let point = self.unmounter.point;
        let result = self.serving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        result.map_err(|source| MountError::Serving { point, source })
    }

    /// Unmounts it and waits for the last request.
    pub fn unmount(self) -> Result<(), MountError> {
        self.unmounter.unmount()?;
        self.wait()
    }
}

impl Unmounter {
    /// Where it is mounted.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Unmounts. If somebody still uses it, it leaves the tree at once and is served until the last user is
    /// gone.
    pub fn unmount(&self) -> Result<(), MountError> {
        let failed = |source| MountError::Unmount { point: self.point.clone(), source };
        // Somebody else may have unmounted it, and mounted something there since.
        if device_at(&self.point).map_err(failed)?.as_ref() != Some(&self.device) {
            return Ok(());
        }
        match unmount(&self.point) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            result => result.map_err(failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_ended_while_a_request_was_taken_is_no_failure() {
        let with = |number| end_of_serving(Err(io::Error::from_raw_os_error(number)));
        assert!(with(libc::ECONNABORTED).is_ok());
        assert_eq!(with(libc::EIO).unwrap_err().raw_os_error(), Some(libc::EIO));
    }
}
