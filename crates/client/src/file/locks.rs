//! Locks of files: taken at the file's home, waited for, given back.
//!
//! Invariants: whoever gets a lock sees what others wrote before they gave theirs back: what was written is
//! made visible before a lock is given back or shared, and what is known of a file here and in the kernel is
//! checked after a lock was got. Who waits keeps its place in the server's queue by asking again now and
//! then; a server that has a free lock for it says so. A wait that is given up has got nothing, unless the
//! answer that it got the lock was on its way: then it has it.
//!
//! A lock whose return no server took is owed: it is given back later, and its owner gets no other lock of
//! the file before that, nor while the first try could still be carried out: it would take that one.

use crate::context::{Context, State};
use crate::event::Invalidation;
use crate::operation::{Answer, Ticket};
use crate::state::{LockHolder, Woken};
use bearing_proto::client::{Body, Call, Handle, WaitId};
use bearing_types::{Code, FileType, Lock, LockMode, LockOwner, LockRange, LockSpace};

impl Context {
    /// Takes a lock; if `waits`, whenever it is free.
    pub(crate) async fn lock(
        &self,
        ticket: Ticket,
        node: Handle,
        lock: Lock,
        waits: bool,
    ) -> Result<Answer, Code> {
        let holder = (node.node, lock.owner, lock.space);
        if !waits && let Some(owed) = self.with(|state| state.locks.is_paid(holder)) {
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
            let wait = self.with(|state| state.locks.begin_waiting(ticket));
            let got = self.wait_for_lock(node, lock, wait).await;
            self.with(|state| state.locks.end_waiting(wait));
            if got == Err(Code::Interrupted) {
                let context = self.clone();
                // If it is lost, the server forgets who does not ask any more.
                let stop =
                    async move { drop(context.call(node.home, Call::StopWaiting { node, wait }).await) };
                self.with(|state| state.spawn(stop));
            }
            got?;
        }
        self.look_again(node).await;
        Ok(Answer::Done)
    }

    async fn wait_for_lock(&self, node: Handle, lock: Lock, wait: WaitId) -> Result<(), Code> {
        let holder = (node.node, lock.owner, lock.space);
        loop {
            // What its owner owes is given back first, and may take what comes before.
            if !self.with(|state| state.locks.owes(holder)) {
                match self.call(node.home, Call::Lock { node, lock, wait: Some(wait) }).await {
                    Err(Code::Locked) => {}
                    other => return other.map(|_| ()),
                }
            }
            let woken = self.with(|state| state.locks.pause(wait, &mut state.io));
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
            if state.locks.pages_are(node.node, found) {
                return None;
            }
            Some(state.invalidate_and_tell(vec![Invalidation::Node { node: node.node }]))
        });
        if let Some(forgotten) = forgotten {
            forgotten.await;
            if let Some(version) = found {
                self.with(|state| state.locks.set_pages(node.node, version));
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
            let first = self.with(|state| state.owe_lock((node.node, owner, space), range));
            if first {
                let context = self.clone();
                self.with(|state| state.spawn(context.pay(node, owner, space)));
            }
        }
        given_back.map(|_| ())?;
        stored.map(|()| Answer::Done)
    }

    /// Gives back what an owner owes of a file, and nothing else, until a server takes it.
    async fn pay(self, node: Handle, owner: LockOwner, space: LockSpace) {
        let holder = (node.node, owner, space);
        while let Some((ranges, given_up)) = self.with(|state| state.locks.owed(holder)) {
            // A server that hears this carries out no request that was given up, however late that comes.
            let last = self.with(|state| state.requests.finished_below() >= given_up);
            for range in ranges.iter().copied() {
                let given_back = self.call(node.home, Call::Unlock { node, owner, space, range }).await;
                if given_back.is_err_and(|code| code == Code::Unreachable) {
                    self.with(|state| state.owe_lock(holder, range));
                }
            }
            if last && self.with(|state| state.locks.paid(holder, (&ranges, given_up))) {
                break;
            }
            self.sleep(self.with(|state| state.io.config.lock_interval)).await;
        }
    }

    /// Who stands in the way of a lock.
    pub(crate) async fn test_lock(&self, node: Handle, lock: Lock) -> Result<Answer, Code> {
        self.leave_to_home(node.node).await;
        let answered = self.call(node.home, Call::TestLock { node, lock }).await?;
        self.with(|state| match answered.body {
            Body::Lock(held) => Ok(Answer::Lock(held.map(|held| held.lock))),
            _ => Err(state.io.unexpected()),
        })
    }
}

impl State {
    /// The return of a range was given up: it is to be given back later. Whether its holder owes nothing
    /// else.
    fn owe_lock(&mut self, holder: LockHolder, range: LockRange) -> bool {
        let next = self.requests.next();
        self.locks.owe(holder, range, next)
    }
}
