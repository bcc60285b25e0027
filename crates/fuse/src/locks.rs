//! Locks: what flock(2) and fcntl(2) ask for, who asks, and when what they got goes.
//!
//! Invariants: the thread that took a request from the kernel never waits for a lock; whoever waits has a
//! thread of his own, so that the one who gives the lock back is always heard. What an owner locked goes at
//! the latest when the file handle through which it was locked is released, and what a process locked with
//! fcntl(2) when it closes any of its file handles of the file.
//!
//! The library hides two things that are looked up in /proc instead. Which of flock(2) and fcntl(2) a lock on
//! a whole file is: the system call in which the asking thread stands says so; where that may not be read (a
//! mount by somebody who is not root, where tracing is restricted) both count as fcntl(2), and conflict, as
//! on NFS. And that the kernel wants a request interrupted: a signal that is pending for the asking thread,
//! not blocked and still there at a second look, says so.

use crate::bridge::Bridge;
use bearing_mount::Operation;
use bearing_types::{Code, Lock, LockMode, LockOwner, LockRange, LockSpace, Outcome};
use fuser::INodeNo;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Threads that wait for locks; more waits are refused (ENOLCK).
const WAITING_MAX: usize = 1024;
/// How long a lock is waited for that a release under way may free.
const RELEASE_AWAITED: Duration = Duration::from_secs(1);
/// How the kernel says "to the end of the file, wherever that is".
const END: u64 = i64::MAX as u64;
/// How often the asking thread is looked at until it has gone to sleep in its system call.
const LOOKS_MAX: u32 = 50;
/// The pause between these looks.
const LOOK_PAUSE: Duration = Duration::from_micros(50);

/// What the kernel asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// The file.
    pub number: INodeNo,
    /// The file handle through which.
    pub file: u64,
    /// For whom.
    pub owner: LockOwner,
    /// The first byte.
    pub start: u64,
    /// The last byte.
    pub last: u64,
    /// F_RDLCK, F_WRLCK or F_UNLCK.
    pub kind: i32,
    /// The process that shall be named as the holder.
    pub pid: u32,
    /// The thread that asks.
    pub thread: u32,
}

type Locker = (LockOwner, LockSpace);

#[derive(Debug, Default)]
struct Taken {
    /// Who may have locked something through a file handle.
    by_file: BTreeMap<u64, (INodeNo, BTreeSet<Locker>)>,
    /// The processes that may have locked something of a file with fcntl(2).
    by_node: BTreeSet<(INodeNo, LockOwner)>,
    /// File handles with locks that are being released.
    leaving: BTreeMap<u64, INodeNo>,
}

/// Who may hold locks through this mount.
#[derive(Debug, Default)]
pub(crate) struct Lockers {
    taken: Mutex<Taken>,
    /// Told when a file handle was released.
    left: Condvar,
    waiting: AtomicUsize,
}

impl Lockers {
    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().expect("no thread panics while it holds the lockers")
    }

    /// Begins to release a file handle. The kernel does not wait for a release, but sends it before close(2)
    /// returns: whoever is refused a lock meanwhile asks again after it, because he may count on the locks
    /// being gone.
    pub fn leave(&self, file: u64) -> Leaving<'_> {
        let mut taken = self.lock();
        if let Some((number, _)) = taken.by_file.get(&file) {
            let number = *number;
            taken.leaving.insert(file, number);
        }
        Leaving { lockers: self, file }
    }

    /// The file handles of a file that are being released.
    fn leaving(&self, number: INodeNo) -> BTreeSet<u64> {
        let leaving = &self.lock().leaving;
        leaving.iter().filter(|(_, of)| **of == number).map(|(file, _)| *file).collect()
    }

    /// Waits until these are released, or for a while: what is written out before may take long, and the
    /// thread is the kernel's.
    fn await_left(&self, files: &BTreeSet<u64>) {
        let any = |taken: &mut Taken| files.iter().any(|file| taken.leaving.contains_key(file));
        drop(self.left.wait_timeout_while(self.lock(), RELEASE_AWAITED, any));
    }

    fn note(&self, asked: &Asked, space: LockSpace) {
        let mut taken = self.lock();
        let file = taken.by_file.entry(asked.file).or_insert_with(|| (asked.number, BTreeSet::new()));
        file.1.insert((asked.owner, space));
        if space == LockSpace::Ranges {
            taken.by_node.insert((asked.number, asked.owner));
        }
    }

    fn spaces(&self, asked: &Asked) -> Vec<LockSpace> {
        let taken = self.lock();
        let lockers = taken.by_file.get(&asked.file).into_iter().flat_map(|(_, lockers)| lockers);
        lockers.filter(|(owner, _)| *owner == asked.owner).map(|(_, space)| *space).collect()
    }

    /// Takes the right to wait in a thread of one's own.
    pub fn begin_waiting(&self) -> Outcome<()> {
        let add = |waiting| (waiting < WAITING_MAX).then_some(waiting + 1);
        let added = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        added.map(|_| ()).map_err(|_| Code::NoLocks)
    }

    /// Gives it back.
    pub fn end_waiting(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A file handle that is being released, while this lives.
pub(crate) struct Leaving<'a> {
    lockers: &'a Lockers,
    file: u64,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if self.lockers.lock().leaving.remove(&self.file).is_some() {
            self.lockers.left.notify_all();
        }
    }
}

impl Bridge {
    /// Gives, changes or takes back a lock, without waiting for anybody who has it.
    pub fn set_lock(&self, asked: &Asked) -> Outcome<()> {
        let node = self.handle(asked.number)?;
        let space = self.space_of(asked);
        let range = range(asked)?;
        let Some(lock) = lock(asked, space, range)? else {
            let owner = asked.owner;
            return self.caller.done(Operation::Unlock { node, owner, space, range });
        };
        // Before it is asked for: if the answer is lost, it may be held all the same.
        self.lockers.note(asked, space);
        let leaving = self.lockers.leaving(asked.number);
        let mut result = self.caller.done(Operation::Lock { node, lock, waits: false });
        if result == Err(Code::Locked) && !leaving.is_empty() {
            self.lockers.await_left(&leaving);
            result = self.caller.done(Operation::Lock { node, lock, waits: false });
        }
        // Another close(2) of the process may have come in between.
        self.lockers.note(asked, space);
        result
    }

    /// Gives a lock when it is free. For a thread that has nothing else to do.
    pub fn wait_for_lock(&self, asked: &Asked, mut is_wanted: impl FnMut() -> bool) -> Outcome<()> {
        let node = self.handle(asked.number)?;
        let space = self.space_of(asked);
        let range = range(asked)?;
        let Some(lock) = lock(asked, space, range)? else { return Err(Code::InvalidArgument) };
        if space == LockSpace::Whole {
            // As on Linux: who changes his lock from one kind to the other and has to wait, waits without.
            // Two of them would wait for each other for ever.
            let owner = asked.owner;
            self.caller.done(Operation::Unlock { node, owner, space, range: LockRange::ALL })?;
        }
        let operation = Operation::Lock { node, lock, waits: true };
        let result = self.caller.call_while(operation, &mut is_wanted).map(|_| ());
        // Another close(2) of the process may have come in between.
        self.lockers.note(asked, space);
        result
    }

    /// Who stands in the way of a lock.
    pub fn test_lock(&self, asked: &Asked) -> Outcome<Option<Lock>> {
        let node = self.handle(asked.number)?;
        // Only fcntl(2) can ask.
        let lock = lock(asked, LockSpace::Ranges, range(asked)?)?.ok_or(Code::InvalidArgument)?;
        let leaving = self.lockers.leaving(asked.number);
        let found = self.caller.lock_in_the_way(Operation::TestLock { node, lock })?;
        if found.is_none() || leaving.is_empty() {
            return Ok(found);
        }
        self.lockers.await_left(&leaving);
        self.caller.lock_in_the_way(Operation::TestLock { node, lock })
    }

    /// A process closes a file handle: what it locked of the file goes, through whatever handle.
    pub fn closed_by(&self, number: INodeNo, owner: LockOwner) -> Outcome<()> {
        if !self.lockers.lock().by_node.remove(&(number, owner)) {
            return Ok(());
        }
        let node = self.handle(number)?;
        let (space, range) = (LockSpace::Ranges, LockRange::ALL);
        self.caller.done(Operation::Unlock { node, owner, space, range })
    }

    /// The last user of a file handle is gone: what was locked through it goes.
    pub fn unlock_released(&self, file: u64) -> Outcome<()> {
        let taken = self.lockers.lock().by_file.remove(&file);
        let Some((number, lockers)) = taken else { return Ok(()) };
        let node = self.handle(number)?;
        let mut result = Ok(());
        for (owner, space) in lockers {
            let may_hold = match space {
                // A process that closed it has lost its locks already, and may have new ones through another
                // handle.
                LockSpace::Ranges => self.is_last_of(number, owner),
                LockSpace::Whole => true,
            };
            if may_hold {
                let range = LockRange::ALL;
                result = result.and(self.caller.done(Operation::Unlock { node, owner, space, range }));
            }
        }
        result
    }

    /// Whether an owner may hold a lock of a file, and has no other handle through which it locked it.
    fn is_last_of(&self, number: INodeNo, owner: LockOwner) -> bool {
        let mut taken = self.lockers.lock();
        let through = (owner, LockSpace::Ranges);
        let other = taken.by_file.values().any(|(of, lockers)| *of == number && lockers.contains(&through));
        !other && taken.by_node.remove(&(number, owner))
    }

    fn space_of(&self, asked: &Asked) -> LockSpace {
        if asked.start != 0 || asked.last != END {
            return LockSpace::Ranges;
        }
        if asked.kind == libc::F_UNLCK
            && let [space] = self.lockers.spaces(asked)[..]
        {
            return space;
        }
        if stands_in_flock(asked.thread) { LockSpace::Whole } else { LockSpace::Ranges }
    }
}

fn range(asked: &Asked) -> Outcome<LockRange> {
    let Asked { start, last, .. } = *asked;
    if start <= last { Ok(LockRange { start, last }) } else { Err(Code::InvalidArgument) }
}

/// The lock that is asked for; `None`: it is given back.
fn lock(asked: &Asked, space: LockSpace, range: LockRange) -> Outcome<Option<Lock>> {
    let mode = match asked.kind {
        libc::F_RDLCK => LockMode::Shared,
        libc::F_WRLCK => LockMode::Exclusive,
        libc::F_UNLCK => return Ok(None),
        _ => return Err(Code::InvalidArgument),
    };
    Ok(Some(Lock { owner: asked.owner, space, range, mode, pid: asked.pid }))
}

/// How the kernel is told of a lock's kind.
pub(crate) fn kind(lock: &Lock) -> i32 {
    match lock.mode {
        LockMode::Shared => libc::F_RDLCK,
        LockMode::Exclusive => libc::F_WRLCK,
    }
}

// --- the thread that asks ---

/// Whether a thread stands in flock(2). If that cannot be known, no.
fn stands_in_flock(thread: u32) -> bool {
    if thread == 0 {
        return false;
    }
    let path = format!("/proc/{thread}/syscall");
    for _ in 0..LOOKS_MAX {
        match std::fs::read_to_string(&path) {
            // It has not gone to sleep yet.
            Ok(text) if text.starts_with("running") => std::thread::sleep(LOOK_PAUSE),
            Ok(text) => return is_flock(&text),
            Err(_) => return false,
        }
    }
    false
}

fn is_flock(syscall: &str) -> bool {
    let number = syscall.split(' ').next().and_then(|number| number.parse::<i64>().ok());
    // A 32-bit program on x86-64 has its own numbers: 143 is its flock, and no lock call of others.
    let narrow = cfg!(target_arch = "x86_64").then_some(143);
    number.is_some_and(|number| number == libc::SYS_flock || Some(number) == narrow)
}

/// Looks whether a thread that waits in the kernel shall be woken, because a signal came.
pub(crate) struct Signals {
    thread: u32,
    /// At the last look some signal was there.
    pending: bool,
}

impl Signals {
    /// Of a thread.
    pub fn of(thread: u32) -> Signals {
        Signals { thread, pending: false }
    }

    /// Whether it shall go on waiting. A signal counts when it is there at two looks: one for the whole
    /// process may be taken by another thread.
    pub fn leave_it_waiting(&mut self) -> bool {
        // Processes outside our namespace have no number here: they wait.
        if self.thread == 0 {
            return true;
        }
        let Ok(status) = std::fs::read_to_string(format!("/proc/{}/status", self.thread)) else {
            return false;
        };
        let before = std::mem::replace(&mut self.pending, is_pending(&status));
        !(before && self.pending)
    }
}

/// Whether a signal waits for a thread that it neither blocks nor ignores.
fn is_pending(status: &str) -> bool {
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0)
    };
    (mask("SigPnd") | mask("ShdPnd")) & !mask("SigBlk") & !mask("SigIgn") != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeCaller, found, handle};
    use bearing_mount::Answer;
    use bearing_types::FileType;
    use std::sync::Arc;

    fn bridge() -> (Arc<FakeCaller>, Bridge) {
        bridge_answering(vec![Ok(Answer::Done); 16])
    }

    fn bridge_answering(answers: Vec<Outcome<Answer>>) -> (Arc<FakeCaller>, Bridge) {
        let caller = Arc::new(FakeCaller::answering(answers));
        let bridge = Bridge::new(caller.clone(), handle(1));
        bridge.tell(found(5, FileType::Regular));
        (caller, bridge)
    }

    fn asked(file: u64, owner: u64, start: u64, last: u64, kind: i32) -> Asked {
        Asked { number: INodeNo(5), file, owner: LockOwner(owner), start, last, kind, pid: 7, thread: 0 }
    }

    fn unlocks(caller: &FakeCaller) -> Vec<(u64, LockSpace)> {
        let unlock = |operation: &Operation| match operation {
            Operation::Unlock { owner, space, .. } => Some((owner.0, *space)),
            _ => None,
        };
        caller.asked().iter().filter_map(unlock).collect()
    }

    #[test]
    fn what_a_process_locked_goes_with_the_first_close_and_only_once() {
        let (caller, bridge) = bridge();
        bridge.set_lock(&asked(1, 77, 0, 9, libc::F_WRLCK)).unwrap();
        bridge.closed_by(INodeNo(5), LockOwner(78)).unwrap();
        assert_eq!(unlocks(&caller), [], "another process has nothing");
        bridge.closed_by(INodeNo(5), LockOwner(77)).unwrap();
        bridge.closed_by(INodeNo(5), LockOwner(77)).unwrap();
        bridge.unlock_released(1).unwrap();
        assert_eq!(unlocks(&caller), [(77, LockSpace::Ranges)]);
    }

    #[test]
    fn what_nobody_closed_goes_with_its_file_handle() {
        let (caller, bridge) = bridge();
        bridge.set_lock(&asked(1, 77, 0, 9, libc::F_RDLCK)).unwrap();
        bridge.set_lock(&asked(2, 77, 20, 29, libc::F_RDLCK)).unwrap();
        bridge.unlock_released(1).unwrap();
        assert_eq!(unlocks(&caller), [], "it has locked something through another handle too");
        bridge.unlock_released(2).unwrap();
        assert_eq!(unlocks(&caller), [(77, LockSpace::Ranges)]);
    }

    #[test]
    fn who_is_refused_a_lock_while_a_file_handle_is_released_asks_again_after_that() {
        let refused = [Ok(Answer::Done), Err(Code::Locked), Ok(Answer::Done), Ok(Answer::Done)];
        let (caller, bridge) = bridge_answering(refused.to_vec());
        bridge.set_lock(&asked(1, 77, 0, 9, libc::F_WRLCK)).unwrap();
        let leaving = bridge.lockers.leave(1);
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| bridge.set_lock(&asked(2, 78, 0, 9, libc::F_WRLCK)));
            // Once it was refused it waits for what was being released then.
            while caller.asked().len() < 2 {
                std::thread::yield_now();
            }
            bridge.unlock_released(1).unwrap();
            drop(leaving);
            asking.join().unwrap().unwrap();
        });
        let said = |operation: &Operation| match operation {
            Operation::Lock { lock, .. } => Some(("lock", lock.owner.0)),
            Operation::Unlock { owner, .. } => Some(("unlock", owner.0)),
            _ => None,
        };
        let said: Vec<_> = caller.asked().iter().filter_map(said).collect();
        assert_eq!(said, [("lock", 77), ("lock", 78), ("unlock", 77), ("lock", 78)]);
    }

    #[test]
    fn a_refusal_is_told_at_once_when_nothing_is_released() {
        let (caller, bridge) = bridge_answering(vec![Err(Code::Locked)]);
        assert_eq!(bridge.set_lock(&asked(1, 77, 0, 9, libc::F_WRLCK)), Err(Code::Locked));
        assert_eq!(caller.asked().len(), 1);
    }

    #[test]
    fn a_pending_signal_counts_unless_it_is_blocked_or_ignored() {
        let status = |pending: &str, shared: &str, blocked: &str, ignored: &str| {
            let text = format!(
                "Name:\tx\nSigPnd:\t{pending}\nShdPnd:\t{shared}\nSigBlk:\t{blocked}\nSigIgn:\t{ignored}\n"
            );
            is_pending(&text)
        };
        assert!(!status("0000000000000000", "0", "0", "0"));
        assert!(status("0000000000002000", "0", "0", "0"));
        assert!(status("0", "2000", "0", "0"));
        assert!(!status("0", "2000", "2000", "0") && !status("0", "2000", "0", "2000"));
        assert!(status("4", "2000", "2000", "0"));
    }

    #[test]
    fn the_system_call_tells_flock_from_fcntl() {
        assert!(is_flock(&format!("{} 0x3 0x2 0x0 0x0 0x0 0x0 0x7ffd 0x7f2b", libc::SYS_flock)));
        assert!(!is_flock(&format!("{} 0x3 0x7 0x7ffd 0x0 0x0 0x0 0x7ffd 0x7f2b", libc::SYS_fcntl)));
        assert!(!is_flock("running") && !is_flock("-1 0x7ffd 0x7f2b") && !is_flock(""));
    }
}
