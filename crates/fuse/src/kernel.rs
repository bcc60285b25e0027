//! What the kernel caches, and making it forget.
//!
//! To forget a name, the kernel locks its directory. A request of our own may hold that lock while its server waits for the very recall that
//! wants the name forgotten; both would stand until the lease ends. So names are invalidated on a thread of their own. If that takes
//! long, or there are many, all names are made to be asked for again instead (FUSE_NOTIFY_INC_EPOCH, Linux 6.16 and later), which takes no lock.

use crate::gate::Gate;
use bearing_mount::{Handle, KernelCache};
use bearing_types::{Name, NodeId};
use fuser::{INodeNo, Notifier};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a directory's lock is waited for before all names are asked for again.
const PATIENCE: Duration = Duration::from_millis(20);
/// So many names at a time are not forgotten one by one, which takes about 10 us each while whoever recalls them waits: all names are made to be asked for again.
/// What is still leased is answered without a server then.
const MANY: usize = 256;
/// The kernel's number of the notification.
const INC_EPOCH: i32 = 8;

/// The caches of one mount.
pub(crate) struct Kernel {
    notifier: Notifier,
    names: Names,
    gate: Arc<Gate>,
    root: Handle,
}

impl Kernel {
    /// The caches of the kernel behind a device that is connected, for a filesystem with this root.
    pub fn new(notifier: Notifier, device: OwnedFd, gate: Arc<Gate>, root: Handle) -> io::Result<Kernel> {
        let forgetter = notifier.clone();
        let epoch = Epoch::of(device);
        let names = Names::new(
            Box::new(move |directory, name| {
                gone_is_done(forgetter.inval_entry(directory, OsStr::from_bytes(name.as_bytes())))
            }),
            epoch.map(|epoch| Box::new(move || epoch.increase()) as Box<_>),
        )?;
        Ok(Kernel { notifier, names, gate, root })
    }

    fn number(&self, node: NodeId) -> INodeNo {
        if node == self.root.node { INodeNo::ROOT } else { INodeNo(node.0) }
    }
}

impl KernelCache for Kernel {
    fn invalidate_entries(&self, entries: &[(NodeId, &Name)]) -> io::Result<()> {
        self.gate.invalidate();
        let names = entries.iter().map(|(node, name)| (self.number(*node), (*name).clone()));
        gone_is_done(self.names.forget(names.collect()))
    }

    fn invalidate_node(&self, node: NodeId) -> io::Result<()> {
        self.gate.invalidate();
        // From offset 0 with length 0: attributes and all pages.
        gone_is_done(self.notifier.inval_inode(self.number(node), 0, 0))
    }
}

/// An unmounted kernel serves nothing from its caches, and what it does not know it need not forget.
fn gone_is_done(result: io::Result<()>) -> io::Result<()> {
    let is_gone = |error: &io::Error| {
        let gone = [libc::ENODEV, libc::ENOTCONN, libc::ECONNABORTED, libc::ENOENT];
        error.raw_os_error().is_some_and(|number| gone.contains(&number))
    };
    result.or_else(|error| if is_gone(&error) { Ok(()) } else { Err(error) })
}

/// Makes all names that the kernel knows be asked for again.
struct Epoch(OwnedFd);

impl Epoch {
    /// None when the kernel does not know the notification.
    fn of(device: OwnedFd) -> Option<Epoch> {
        let epoch = Epoch(device);
        epoch.increase().is_ok().then_some(epoch)
    }

    fn increase(&self) -> io::Result<()> {
        // struct fuse_out_header: length, code of the notification, 0 for "not a reply".
        let mut header = [0u8; 16];
        header[..4].copy_from_slice(&16u32.to_ne_bytes());
        header[4..8].copy_from_slice(&INC_EPOCH.to_ne_bytes());
        // SAFETY: `header` holds the bytes that are written and outlives the call; the descriptor is open.
        let written = unsafe { libc::write(self.0.as_raw_fd(), header.as_ptr().cast(), header.len()) };
        if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

type ForgetName = Box<dyn Fn(INodeNo, &Name) -> io::Result<()> + Send>;
type ForgetAll = Box<dyn Fn() -> io::Result<()> + Send + Sync>;

/// Names to forget, and who waits for that.
struct Job {
    names: Vec<(INodeNo, Name)>,
    done: SyncSender<io::Result<()>>,
}

/// Makes the kernel forget names; see the module.
struct Names {
    jobs: Mutex<Sender<Job>>,
    /// Jobs that are not done: somebody waits for a directory's lock.
    waiting: Arc<AtomicUsize>,
    /// Counts names that are forgotten.
    forgotten: Arc<AtomicUsize>,
    forget_all: Option<ForgetAll>,
    patience: Duration,
}

impl Names {
    fn new(forget_name: ForgetName, forget_all: Option<ForgetAll>) -> io::Result<Names> {
        let (jobs, todo) = channel::<Job>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let forgotten = Arc::new(AtomicUsize::new(0));
        let (done, counted) = (waiting.clone(), forgotten.clone());
        // It ends when the names are dropped. Nobody joins it: it may stand at a lock.
        std::thread::Builder::new()
            .name("bearing-names".to_owned())
            .spawn(move || work(&todo, &forget_name, &done, &counted))?;
        Ok(Names { jobs: Mutex::new(jobs), waiting, forgotten, forget_all, patience: PATIENCE })
    }

    fn forget(&self, names: Vec<(INodeNo, Name)>) -> io::Result<()> {
        if let Some(forget_all) = &self.forget_all
            && (names.len() >= MANY || self.waiting.load(Ordering::SeqCst) > 0)
        {
            return forget_all();
        }
        let (done, result) = sync_channel(1);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let job = Job { names, done };
        let died = || io::Error::other("the thread that makes the kernel forget names has died");
        self.jobs.lock().expect("sending does not panic").send(job).map_err(|_| died())?;
        let Some(forget_all) = &self.forget_all else { return result.recv().map_err(|_| died())? };
        loop {
            let before = self.forgotten.load(Ordering::SeqCst);
            match result.recv_timeout(self.patience) {
                Ok(result) => return result,
                // It gets on.
                Err(RecvTimeoutError::Timeout) if self.forgotten.load(Ordering::SeqCst) != before => {}
                Err(RecvTimeoutError::Timeout) => return forget_all(),
                Err(RecvTimeoutError::Disconnected) => return Err(died()),
            }
        }
    }
}

fn work(todo: &Receiver<Job>, forget_name: &ForgetName, waiting: &AtomicUsize, forgotten: &AtomicUsize) {
    while let Ok(Job { names, done }) = todo.recv() {
        let mut result = Ok(());
        for (directory, name) in names {
            result = result.and(forget_name(directory, &name));
            forgotten.fetch_add(1, Ordering::SeqCst);
        }
        waiting.fetch_sub(1, Ordering::SeqCst);
        // Whoever lost patience does not wait any more.
        let _ = done.send(result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> Name {
        Name::new(b"name").unwrap()
    }

    #[test]
    fn a_name_is_forgotten_by_itself_when_its_directory_is_free() {
        let names = Names::new(
            Box::new(|directory, _| {
                assert_eq!(directory, INodeNo(7));
                Ok(())
            }),
            Some(Box::new(|| panic!("there was no need to forget all"))),
        );
        let names = Names { patience: Duration::from_secs(60), ..names.unwrap() };
        names.forget(vec![(INodeNo(7), name())]).unwrap();
    }

    #[test]
    fn a_locked_directory_makes_all_names_be_forgotten_and_holds_nobody_up() {
        let (unlock, locked) = channel::<()>();
        let all = Arc::new(AtomicUsize::new(0));
        let counted = all.clone();
        let names = Names::new(
            Box::new(move |_, _| {
                // Until the test is over.
                let _ = locked.recv();
                Ok(())
            }),
            Some(Box::new(move || {
                counted.fetch_add(1, Ordering::SeqCst);
                Ok(())
            })),
        )
        .unwrap();
        names.forget(vec![(INodeNo(7), name())]).unwrap();
        names.forget(vec![(INodeNo(8), name())]).unwrap();
        assert_eq!(all.load(Ordering::SeqCst), 2, "the second did not even try");
        drop(unlock);
    }

    #[test]
    fn very_many_names_are_forgotten_at_once() {
        let all = Arc::new(AtomicUsize::new(0));
        let counted = all.clone();
        let names = Names::new(
            Box::new(|_, _| panic!("one by one it takes too long")),
            Some(Box::new(move || {
                counted.fetch_add(1, Ordering::SeqCst);
                Ok(())
            })),
        );
        names.unwrap().forget(vec![(INodeNo(7), name()); MANY]).unwrap();
        assert_eq!(all.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn some_names_are_forgotten_one_by_one_as_long_as_that_gets_on() {
        let (step, may_go_on) = channel::<()>();
        let names = Names::new(
            Box::new(move |_, _| {
                may_go_on.recv().map_err(io::Error::other)?;
                // A failure does not keep the rest from being forgotten.
                Err(io::Error::from_raw_os_error(libc::ENOMEM))
            }),
            Some(Box::new(|| panic!("there was no need to forget all"))),
        );
        let names = Names { patience: Duration::from_secs(60), ..names.unwrap() };
        (0..3).for_each(|_| step.send(()).unwrap());
        let failed = names.forget(vec![(INodeNo(7), name()); 3]).unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(libc::ENOMEM));
        assert_eq!(names.forgotten.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn a_kernel_that_is_gone_has_forgotten_and_other_failures_are_told() {
        let failed = |number| gone_is_done(Err(io::Error::from_raw_os_error(number)));
        assert!(failed(libc::ENODEV).is_ok() && failed(libc::ENOENT).is_ok());
        assert!(failed(libc::ENOMEM).is_err());
    }
}
