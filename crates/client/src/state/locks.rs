//! Who waits for locks of files, and which are to be given back. [`crate::file::locks`] tells what they are
//! for.

use crate::config::ClientConfig;
use crate::operation::Ticket;
use crate::run::{Awaited, Io, Promise, Timer, promise};
use crate::tables::Bounded;
use bearing_proto::client::WaitId;
use bearing_types::{LockOwner, LockRange, LockSpace, Mono, NodeId, Sequence, Version};
use std::collections::BTreeMap;

/// Whose locks of which file.
pub(crate) type Holder = (NodeId, LockOwner, LockSpace);

/// Why a wait goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    Ask,
    GiveUp,
}

struct Waiting {
    ticket: Ticket,
    /// The task, while it pauses, and until when.
    pause: Option<(Mono, Promise<Woken>)>,
    /// The lock was said to be free while the request was under way.
    is_free: bool,
    is_given_up: bool,
}

struct Owed {
    ranges: Vec<LockRange>,
    given_up: Sequence,
    waiting: Vec<Promise<()>>,
}

/// See the module.
pub(crate) struct Locks {
    waiting: BTreeMap<WaitId, Waiting>,
    next: u64,
    /// Ranges to be given back, and who waits for that.
    owed: BTreeMap<Holder, Owed>,
    /// The version of which all is that the kernel holds of a file that is locked now and then.
    pages: Bounded<NodeId, Version>,
}

impl Locks {
    pub fn new(config: &ClientConfig) -> Locks {
        Locks {
            waiting: BTreeMap::new(),
            next: 1,
            owed: BTreeMap::new(),
            pages: Bounded::new(config.nodes_max),
        }
    }

    /// Writes of our own became part of a file, and nothing else did if its version grew by one.
    pub fn committed(&mut self, node: NodeId, version: Version) {
        if let Some(pages) = self.pages.get(&node).filter(|pages| pages.next() == version) {
            *pages = version;
        }
    }

    /// An operation waits for a lock.
    pub fn begin_waiting(&mut self, ticket: Ticket) -> WaitId {
        let wait = WaitId(self.next);
        self.next += 1;
        let waiting = Waiting { ticket, pause: None, is_free: false, is_given_up: false };
        self.waiting.insert(wait, waiting);
        wait
    }

    /// Pauses until it is time to ask again.
    pub fn pause(&mut self, wait: WaitId, io: &mut Io) -> Awaited<Woken> {
        let (promise, awaited) = promise();
        let due = io.now.mono.after(io.config.lock_interval);
        let waiting = self.waiting.get_mut(&wait).expect("a wait ends with its operation");
        if waiting.is_given_up {
            promise.keep(Woken::GiveUp);
        } else if std::mem::take(&mut waiting.is_free) {
            promise.keep(Woken::Ask);
        } else {
            waiting.pause = Some((due, promise));
            io.timers.set(due, Timer::Lock(wait));
        }
        awaited
    }

    fn wake(&mut self, wait: WaitId, why: Woken, io: &mut Io) {
        let Some(waiting) = self.waiting.get_mut(&wait) else { return };
        waiting.is_given_up |= why == Woken::GiveUp;
        match waiting.pause.take() {
            Some((due, promise)) => {
                io.timers.cancel(due, Timer::Lock(wait));
                promise.keep(why);
            }
            None => waiting.is_free |= why == Woken::Ask,
        }
    }

    /// It is time to ask again, or a server says that the lock is free.
    pub fn ask_again(&mut self, wait: WaitId, io: &mut Io) {
        self.wake(wait, Woken::Ask, io);
    }

    /// The wait is over.
    pub fn end_waiting(&mut self, wait: WaitId) {
        self.waiting.remove(&wait);
    }

    /// Whoever began an operation does not want to wait any more.
    pub fn give_up(&mut self, ticket: Ticket, io: &mut Io) {
        let waits = self.waiting.iter().filter(|(_, waiting)| waiting.ticket == ticket);
        let waits: Vec<WaitId> = waits.map(|(wait, _)| *wait).collect();
        waits.into_iter().for_each(|wait| self.wake(wait, Woken::GiveUp, io));
    }

    /// Whether a holder owes something.
    pub fn owes(&self, holder: Holder) -> bool {
        self.owed.contains_key(&holder)
    }

    /// What to wait for before a holder gets another lock.
    pub fn is_paid(&mut self, holder: Holder) -> Option<Awaited<()>> {
        let owed = self.owed.get_mut(&holder)?;
        let (promise, awaited) = promise();
        owed.waiting.push(promise);
        Some(awaited)
    }

    /// The return of a range was given up; all requests so far have numbers below the next one. Whether its
    /// holder owes nothing else.
    pub fn owe(&mut self, holder: Holder, range: LockRange, next: Sequence) -> bool {
        let owed = self.owed.entry(holder).or_insert_with(|| Owed {
            ranges: Vec::new(),
            given_up: next,
            waiting: Vec::new(),
        });
        let first = owed.ranges.is_empty();
        owed.given_up = next;
        if !owed.ranges.contains(&range) {
            owed.ranges.push(range);
        }
        first
    }

    /// What a holder owes, with a number above all the requests that were given up for it.
    pub fn owed(&self, holder: Holder) -> Option<(Vec<LockRange>, Sequence)> {
        self.owed.get(&holder).map(|owed| (owed.ranges.clone(), owed.given_up))
    }

    /// This much is given back. Whether no more is owed by now.
    pub fn paid(&mut self, holder: Holder, (ranges, given_up): (&[LockRange], Sequence)) -> bool {
        let is_all = |owed: &Owed| owed.ranges == ranges && owed.given_up == given_up;
        let all = self.owed.get(&holder).is_some_and(is_all);
        if all {
            for promise in self.owed.remove(&holder).into_iter().flat_map(|owed| owed.waiting) {
                promise.keep(());
            }
        }
        all
    }

    /// Whether the kernel holds nothing of a file that is not of this version. Otherwise nothing is known of
    /// what it holds.
    pub fn pages_are(&mut self, node: NodeId, version: Option<Version>) -> bool {
        let same = version.is_some() && self.pages.peek(&node).copied() == version;
        if !same {
            self.pages.remove(&node);
        }
        same
    }

    /// All that the kernel holds of a file is of this version.
    pub fn set_pages(&mut self, node: NodeId, version: Version) {
        self.pages.insert(node, version);
    }
}
