//! Locks of files: taken at the file's home, waited for, given back.
//!
//! Invariants: whoever gets a lock sees what others wrote before they gave theirs back: what was written is made visible before a lock is given back or
//! shared, and what is known of a file here and in the kernel is checked after a lock was got. Who waits keeps its place in the server's queue by asking
//! again now and then; a server that has a free lock for it says so. A wait that is given up has got nothing, unless the answer that it got the lock
//! was on its way: then it has it.
//!
//! A lock whose return no server took is owed: it is given back later, and its owner gets no other lock of the file before that.

use crate::bounded::Bounded;
use crate::config::ClientConfig;
use crate::event::Invalidation;
use crate::hub::{Hub, State};
use crate::operation::{Answer, Ticket};
use crate::task::{Awaited, Promise, promise};
use crate::timer::Timer;
use bearing_proto::client::{Body, Call, Handle, LockFree, WaitId};
use bearing_types::{Code, FileType, Lock, LockMode, LockOwner, LockRange, LockSpace, Mono, NodeId, Version};
use std::collections::BTreeMap;

/// Whose locks of which file.
type Holder = (NodeId, LockOwner, LockSpace);

/// Why a wait goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
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

/// See the module.
pub(crate) struct Locks {
    waiting: BTreeMap<WaitId, Waiting>,
    next: u64,
    /// Locks to be given back, and who waits for that.
    owed: BTreeMap<Holder, Vec<Promise<()>>>,
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
}

impl State {
    fn begin_waiting(&mut self, ticket: Ticket) -> WaitId {
        let wait = WaitId(self.locks.next);
        self.locks.next += 1;
        let waiting = Waiting { ticket, pause: None, is_free: false, is_given_up: false };
        self.locks.waiting.insert(wait, waiting);
        wait
    }

    /// Pauses until it is time to ask again.
    fn pause_lock(&mut self, wait: WaitId) -> Awaited<Woken> {
        let (promise, awaited) = promise();
        let due = self.now.mono.after(self.config.lock_poll);
        let waiting = self.locks.waiting.get_mut(&wait).expect("a wait ends with its operation");
        if waiting.is_given_up {
            promise.keep(Woken::GiveUp);
        } else if std::mem::take(&mut waiting.is_free) {
            promise.keep(Woken::Ask);
        } else {
            waiting.pause = Some((due, promise));
            self.timers.set(due, Timer::Lock(wait));
        }
        awaited
    }

    fn wake_lock(&mut self, wait: WaitId, why: Woken) {
        let Some(waiting) = self.locks.waiting.get_mut(&wait) else { return };
        waiting.is_given_up |= why == Woken::GiveUp;
        match waiting.pause.take() {
            Some((due, promise)) => {
                self.timers.cancel(due, Timer::Lock(wait));
                promise.keep(why);
            }
            None => waiting.is_free |= why == Woken::Ask,
        }
    }

    /// It is time to ask again.
    pub fn lock_due(&mut self, wait: WaitId) {
        self.wake_lock(wait, Woken::Ask);
    }

    /// A server says that a lock is free.
    pub fn take_lock_free(&mut self, free: LockFree) {
        self.wake_lock(free.wait, Woken::Ask);
    }

    /// Whoever began an operation does not want to wait any more.
    pub fn give_up(&mut self, ticket: Ticket) {
        let waits = self.locks.waiting.iter().filter(|(_, waiting)| waiting.ticket == ticket);
        let waits: Vec<WaitId> = waits.map(|(wait, _)| *wait).collect();
        waits.into_iter().for_each(|wait| self.wake_lock(wait, Woken::GiveUp));
    }

    fn is_owed(&mut self, holder: Holder) -> Option<Awaited<()>> {
        let waiting = self.locks.owed.get_mut(&holder)?;
        let (promise, awaited) = promise();
        waiting.push(promise);
        Some(awaited)
    }

    fn paid(&mut self, holder: Holder) {
        for promise in self.locks.owed.remove(&holder).into_iter().flatten() {
            promise.keep(());
        }
    }
}

impl Hub {
    /// Takes a lock; if `waits`, whenever it is free.
    pub(crate) async fn lock(
        &self,
        ticket: Ticket,
        node: Handle,
        lock: Lock,
        waits: bool,
    ) -> Result<Answer, Code> {
        if let Some(owed) = self.with(|state| state.is_owed((node.node, lock.owner, lock.space))) {
            owed.await;
        }
        if lock.mode == LockMode::Shared {
            // It may be given in place of an exclusive one.
            self.flush_if_dirty(node.node).await?;
        }
        self.leave_to_home(node.node).await;
        if !waits {
            self.call(node.home, Call::Lock { node, lock, wait: None }).await?;
        } else {
            let wait = self.with(|state| state.begin_waiting(ticket));
            let got = self.wait_for_lock(node, lock, wait).await;
            self.with(|state| state.locks.waiting.remove(&wait));
            if got == Err(Code::Interrupted) {
                let hub = self.clone();
                // If it is lost, the server forgets who does not ask any more.
                let stop = async move { drop(hub.call(node.home, Call::StopWaiting { node, wait }).await) };
                self.with(|state| state.spawn(stop));
            }
            got?;
        }
        self.look_again(node).await;
        Ok(Answer::Done)
    }

    async fn wait_for_lock(&self, node: Handle, lock: Lock, wait: WaitId) -> Result<(), Code> {
        loop {
            match self.call(node.home, Call::Lock { node, lock, wait: Some(wait) }).await {
                Err(Code::Locked) => {}
                other => return other.map(|_| ()),
            }
            let woken = self.with(|state| state.pause_lock(wait));
            if woken.await == Woken::GiveUp {
                return Err(Code::Interrupted);
            }
        }
    }

    /// What is known of a file may be from before its lock: nothing of it is used unseen.
    async fn look_again(&self, node: Handle) {
        self.with(|state| state.files.doubt(node.node));
        let found = match self.attributes(node, FileType::Regular).await {
            Ok(Answer::Found(found)) => Some(found.attributes.version),
            Ok(_) | Err(_) => None,
        };
        let forgotten = self.with(|state| {
            if found.is_some() && state.locks.pages.peek(&node.node).copied() == found {
                return None;
            }
            state.locks.pages.remove(&node.node);
            Some(state.invalidate_and_tell(vec![Invalidation::Node { node: node.node }]))
        });
        if let Some(forgotten) = forgotten {
            forgotten.await;
            if let Some(version) = found {
                self.with(|state| state.locks.pages.insert(node.node, version));
            }
        }
    }

    /// Gives a range back. What was written is visible to others by then.
    pub(crate) async fn unlock(
        &self,
        node: Handle,
        owner: LockOwner,
        space: LockSpace,
        range: LockRange,
    ) -> Result<Answer, Code> {
        let stored = self.flush_if_dirty(node.node).await;
        self.leave_to_home(node.node).await;
        let given_back = self.call(node.home, Call::Unlock { node, owner, space, range }).await;
        if given_back.as_ref().is_err_and(|code| *code == Code::Unreachable) {
            let holder = (node.node, owner, space);
            let first = self.with(|state| state.locks.owed.insert(holder, Vec::new()).is_none());
            if first {
                let hub = self.clone();
                self.with(|state| state.spawn(hub.pay(node, owner, space)));
            }
        }
        given_back.map(|_| ())?;
        stored.map(|()| Answer::Done)
    }

    /// Gives all back that an owner has of a file, until a server takes it.
    async fn pay(self, node: Handle, owner: LockOwner, space: LockSpace) {
        let call = Call::Unlock { node, owner, space, range: LockRange::ALL };
        while self.call(node.home, call.clone()).await.is_err_and(|code| code == Code::Unreachable) {}
        self.with(|state| state.paid((node.node, owner, space)));
    }

    /// Who stands in the way of a lock.
    pub(crate) async fn test_lock(&self, node: Handle, lock: Lock) -> Result<Answer, Code> {
        self.leave_to_home(node.node).await;
        let answered = self.call(node.home, Call::TestLock { node, lock }).await?;
        self.with(|state| match answered.body {
            Body::Lock(held) => Ok(Answer::Lock(held.map(|held| held.lock))),
            _ => {
                state.counters.unexpected += 1;
                Err(Code::Io)
            }
        })
    }
}
