//! What the kernel caches, and making it ask again.
//!
//! A name is recalled *before* it changes, and most that are recalled stay what they are. So its dentry is
//! expired and never dropped: the next lookup asks what it leads to, and the kernel drops the dentry then if
//! that is something else. A dentry that is dropped while it is right is gone for whoever works in the
//! directory (getcwd(2) fails) and for what is mounted there. Invariant: only an answer to a lookup makes the
//! kernel drop a dentry, but see below.
//!
//! To expire a name, the kernel locks its directory. A request of our own may hold that lock while its server
//! waits for the very recall that wants the name expired; both would stand until the lease ends. So names are
//! expired on threads of their own. If a directory stays locked, all names are made to be asked for again
//! instead (FUSE_NOTIFY_INC_EPOCH, Linux 6.16 and later), which takes no lock. That is the last resort: the
//! kernel then drops each dentry when it is next looked up, and puts it back with the answer; for so long
//! getcwd(2) fails.

use crate::gate::Gate;
use bearing_mount::{Handle, KernelCache};
use bearing_types::{Name, NodeId};
use fuser::{INodeNo, Notifier};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a directory's lock is waited for before all names are asked for again.
const PATIENCE: Duration = Duration::from_millis(20);
/// Threads that expire names: so many directories less one may stay locked while names elsewhere are expired
/// one by one.
const THREADS: usize = 4;
/// The kernel's numbers of the notifications.
const INVAL_ENTRY: i32 = 3;
const INC_EPOCH: i32 = 8;
/// FUSE_EXPIRE_ONLY. Before Linux 6.2 it means nothing, and the dentry is dropped.
const EXPIRE_ONLY: u32 = 1;

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
        let device = Arc::new(Device(device));
        let has_epoch = device.increase_epoch().is_ok();
        let expiring = device.clone();
        let names = Names::new(
            Arc::new(move |directory, name| gone_is_done(expiring.expire(directory, name))),
            has_epoch.then(|| Box::new(move || device.increase_epoch()) as Box<_>),
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
        gone_is_done(self.names.expire(names.collect()))
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

/// The device of the mount, for notifications that the library has no call for.
struct Device(OwnedFd);

impl Device {
    /// Makes the kernel ask what a name leads to when it is next looked up.
    fn expire(&self, directory: INodeNo, name: &Name) -> io::Result<()> {
        let name = name.as_bytes();
        // struct fuse_notify_inval_entry_out: directory, length of the name, flags; then the name and a zero
        // byte.
        let (length, flags) = ((name.len() as u32).to_ne_bytes(), EXPIRE_ONLY.to_ne_bytes());
        self.notify(INVAL_ENTRY, &[&directory.0.to_ne_bytes(), &length, &flags, name, &[0]])
    }

    /// Makes all names that the kernel knows be asked for again. It fails when the kernel does not know the
    /// notification.
    fn increase_epoch(&self) -> io::Result<()> {
        self.notify(INC_EPOCH, &[])
    }

    fn notify(&self, code: i32, body: &[&[u8]]) -> io::Result<()> {
        let body = body.concat();
        // struct fuse_out_header: length, code of the notification, 0 for "not a reply".
        let length = (16 + body.len() as u32).to_ne_bytes();
        let message = [&length[..], &code.to_ne_bytes(), &[0; 8], &body].concat();
        // SAFETY: `message` holds the bytes that are written and outlives the call; the descriptor is open.
        let written = unsafe { libc::write(self.0.as_raw_fd(), message.as_ptr().cast(), message.len()) };
        if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

type ExpireName = Arc<dyn Fn(INodeNo, &Name) -> io::Result<()> + Send + Sync>;
type ExpireAll = Box<dyn Fn() -> io::Result<()> + Send + Sync>;

/// Names to expire, and who waits for that.
struct Job {
    names: Vec<(INodeNo, Name)>,
    done: SyncSender<io::Result<()>>,
}

/// Makes the kernel ask for names again; see the module.
struct Names {
    jobs: Mutex<Sender<Job>>,
    counts: Arc<Counts>,
    expire_all: Option<ExpireAll>,
    patience: Duration,
}

#[derive(Default)]
struct Counts {
    /// Jobs that are not done.
    waiting: AtomicUsize,
    /// Names that are expired.
    expired: AtomicUsize,
}

impl Names {
    fn new(expire_name: ExpireName, expire_all: Option<ExpireAll>) -> io::Result<Names> {
        let (jobs, todo) = channel::<Job>();
        let (todo, counts) = (Arc::new(Mutex::new(todo)), Arc::new(Counts::default()));
        for _ in 0..THREADS {
            let (todo, counts, expire_name) = (todo.clone(), counts.clone(), expire_name.clone());
            // It ends when the names are dropped. Nobody joins it: it may stand at a lock.
            std::thread::Builder::new()
                .name("bearing-names".to_owned())
                .spawn(move || work(&todo, &expire_name, &counts))?;
        }
        Ok(Names { jobs: Mutex::new(jobs), counts, expire_all, patience: PATIENCE })
    }

    fn expire(&self, names: Vec<(INodeNo, Name)>) -> io::Result<()> {
        let Counts { waiting, expired } = &*self.counts;
        if let Some(expire_all) = &self.expire_all
            && waiting.load(Ordering::SeqCst) >= THREADS
        {
            return expire_all();
        }
        let (done, result) = sync_channel(1);
        waiting.fetch_add(1, Ordering::SeqCst);
        let job = Job { names, done };
        let died = || io::Error::other("the threads that make the kernel ask for names again have died");
        self.jobs.lock().expect("sending does not panic").send(job).map_err(|_| died())?;
        let Some(expire_all) = &self.expire_all else { return result.recv().map_err(|_| died())? };
        loop {
            let before = expired.load(Ordering::SeqCst);
            match result.recv_timeout(self.patience) {
                Ok(result) => return result,
                // It gets on.
                Err(RecvTimeoutError::Timeout) if expired.load(Ordering::SeqCst) != before => {}
                Err(RecvTimeoutError::Timeout) => {
                    tracing::debug!("a directory stays locked; all names are asked for again");
                    return expire_all();
                }
                Err(RecvTimeoutError::Disconnected) => return Err(died()),
            }
        }
    }
}

fn work(todo: &Mutex<Receiver<Job>>, expire_name: &ExpireName, counts: &Counts) {
    let next = || todo.lock().expect("receiving does not panic").recv();
    while let Ok(Job { names, done }) = next() {
        let mut result = Ok(());
        for (directory, name) in names {
            result = result.and(expire_name(directory, &name));
            counts.expired.fetch_add(1, Ordering::SeqCst);
        }
        counts.waiting.fetch_sub(1, Ordering::SeqCst);
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
    fn a_name_is_expired_by_itself_when_its_directory_is_free() {
        let names = Names::new(
            Arc::new(|directory, _| {
                assert_eq!(directory, INodeNo(7));
                Ok(())
            }),
            Some(Box::new(|| panic!("there was no need to expire all"))),
        );
        let names = Names { patience: Duration::from_secs(60), ..names.unwrap() };
        names.expire(vec![(INodeNo(7), name())]).unwrap();
    }

    /// Directory 7 is locked until the sender is dropped.
    fn with_a_locked_directory() -> (Sender<()>, Arc<AtomicUsize>, Names) {
        let (unlock, locked) = channel::<()>();
        let (locked, all) = (Mutex::new(locked), Arc::new(AtomicUsize::new(0)));
        let counted = all.clone();
        let names = Names::new(
            Arc::new(move |directory, _| {
                if directory == INodeNo(7) {
                    let _ = locked.lock().unwrap().recv();
                }
                Ok(())
            }),
            Some(Box::new(move || {
                counted.fetch_add(1, Ordering::SeqCst);
                Ok(())
            })),
        );
        (unlock, all, names.unwrap())
    }

    #[test]
    fn a_locked_directory_makes_all_names_be_asked_for_again_and_holds_nobody_up() {
        let (unlock, all, names) = with_a_locked_directory();
        for asked in 1..=THREADS + 3 {
            names.expire(vec![(INodeNo(7), name())]).unwrap();
            assert_eq!(all.load(Ordering::SeqCst), asked);
        }
        drop(unlock);
    }

    #[test]
    fn while_a_directory_is_locked_names_in_others_are_expired_by_themselves() {
        let (unlock, all, names) = with_a_locked_directory();
        for _ in 1..THREADS {
            names.expire(vec![(INodeNo(7), name())]).unwrap();
        }
        let before = all.load(Ordering::SeqCst);
        let names = Names { patience: Duration::from_secs(60), ..names };
        names.expire(vec![(INodeNo(8), name())]).unwrap();
        assert_eq!(all.load(Ordering::SeqCst), before);
        drop(unlock);
    }

    #[test]
    fn any_number_of_names_is_expired_one_by_one_as_long_as_that_gets_on() {
        let (step, may_go_on) = channel::<()>();
        let may_go_on = Mutex::new(may_go_on);
        let names = Names::new(
            Arc::new(move |_, _| {
                may_go_on.lock().unwrap().recv().map_err(io::Error::other)?;
                // A failure does not keep the rest from being expired.
                Err(io::Error::from_raw_os_error(libc::ENOMEM))
            }),
            Some(Box::new(|| panic!("there was no need to expire all"))),
        );
        let names = Names { patience: Duration::from_secs(60), ..names.unwrap() };
        (0..3000).for_each(|_| step.send(()).unwrap());
        let failed = names.expire(vec![(INodeNo(7), name()); 3000]).unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(libc::ENOMEM));
        assert_eq!(names.counts.expired.load(Ordering::SeqCst), 3000);
    }

    #[test]
    fn a_kernel_that_is_gone_has_forgotten_and_other_failures_are_told() {
        let failed = |number| gone_is_done(Err(io::Error::from_raw_os_error(number)));
        assert!(failed(libc::ENODEV).is_ok() && failed(libc::ENOENT).is_ok());
        assert!(failed(libc::ENOMEM).is_err());
    }
}
