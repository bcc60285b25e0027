//! Locks of files (`ops/lock.rs`): who holds them, who waits, whose turn it is.
//!
//! Invariants: what is held is what the records say, so it survives restarts and goes along with the tablet; it goes when its owner gives it back, or with
//! the mark that its session ended. Who waits is known to the tablet's owner of the moment only: a client that waits asks again now and then, and
//! so has its place again in a while. A lock that becomes free is kept for a short time for whoever waited longest for it, and is given when that client
//! asks: so it is never given to somebody who does not want it any more.
//!
//! Shared locks are given beside shared locks also while somebody waits for an exclusive one, as Linux does: to make them wait would make
//! deadlocks between programs that have none on one machine.

use crate::config::Config;
use crate::event::Command;
use crate::job::JobWork;
use crate::key::Key;
use crate::machine::MetaServer;
use crate::record::Record;
use crate::view::{Decide, View};
use bearing_proto::client::{LockFree, WaitId};
use bearing_types::{FileLocks, HeldLock, LockOwner, LockSpace, Mono, NodeId, Now, Position, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// Waits for one file that are remembered; who comes later asks now and then all the same, without a place in the queue.
const WAITERS_MAX: usize = 4096;
/// Waits looked at in search of a deadlock.
const DEADLOCK_STEPS_MAX: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Waiter {
    wish: HeldLock,
    wait: WaitId,
    /// When it last asked.
    asked: Mono,
    /// When it was told that its lock is free.
    told: Option<Mono>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct LockTable {
    held: BTreeMap<NodeId, FileLocks>,
    /// In the order in which they came.
    queues: BTreeMap<NodeId, Vec<Waiter>>,
}

impl LockTable {
    /// A record is so now.
    pub fn note(&mut self, node: NodeId, locks: Option<&FileLocks>) {
        match locks {
            Some(locks) => drop(self.held.insert(node, locks.clone())),
            None => drop(self.held.remove(&node)),
        }
    }

    /// Whether anything is held of a file.
    pub fn is_locked(&self, node: NodeId) -> bool {
        self.held.contains_key(&node)
    }

    /// The files of which a session holds locks.
    pub fn nodes_of(&self, session: SessionId) -> Vec<NodeId> {
        let of = |locks: &FileLocks| locks.iter().any(|held| held.session == session);
        self.held.iter().filter(|(_, locks)| of(locks)).map(|(node, _)| *node).collect()
    }

    /// The waiters whose turn it is, first come first, and each only if those before it leave room.
    fn due<'a>(&'a self, node: NodeId, locks: &'a FileLocks, now: Mono, config: &Config) -> Vec<&'a Waiter> {
        let mut due: Vec<&Waiter> = Vec::new();
        for waiter in self.queues.get(&node).into_iter().flatten() {
            let late = waiter.told.is_some_and(|told| now.since(told) >= config.lock_kept);
            let blocked = locks.conflicts(&waiter.wish).next().is_some()
                || due.iter().any(|before| before.wish.conflicts(&waiter.wish));
            if !late && !blocked {
                due.push(waiter);
            }
        }
        due
    }

    /// Whether a lock that nobody holds is kept for somebody who waited before.
    pub fn is_kept_for_another(
        &self,
        node: NodeId,
        locks: &FileLocks,
        wish: &HeldLock,
        wait: Option<WaitId>,
        (now, config): (Mono, &Config),
    ) -> bool {
        // What its holder has already stands in nobody's way more than before.
        if locks.has(wish) {
            return false;
        }
        let me = |waiter: &&Waiter| waiter.wish.session == wish.session && Some(waiter.wait) == wait;
        let due = self.due(node, locks, now, config);
        due.into_iter().take_while(|waiter| !me(waiter)).any(|waiter| waiter.wish.conflicts(wish))
    }

    /// Somebody waits, or goes on to.
    pub fn wait(&mut self, node: NodeId, wish: HeldLock, wait: WaitId, now: Mono) {
        let queue = self.queues.entry(node).or_default();
        let known = |waiter: &&mut Waiter| waiter.wish.session == wish.session && waiter.wait == wait;
        if let Some(waiter) = queue.iter_mut().find(known) {
            (waiter.asked, waiter.told) = (now, None);
        } else if queue.len() < WAITERS_MAX {
            queue.push(Waiter { wish, wait, asked: now, told: None });
        }
    }

    /// Somebody waits no more.
    pub fn stop(&mut self, node: NodeId, session: SessionId, wait: WaitId) {
        self.retain(node, |waiter| waiter.wish.session != session || waiter.wait != wait);
    }

    fn retain(&mut self, node: NodeId, keep: impl Fn(&Waiter) -> bool) {
        if let Some(queue) = self.queues.get_mut(&node) {
            queue.retain(keep);
            if queue.is_empty() {
                self.queues.remove(&node);
            }
        }
    }

    /// A session is over: it waits for nothing.
    pub fn forget_session(&mut self, session: SessionId) {
        let nodes: Vec<NodeId> = self.queues.keys().copied().collect();
        for node in nodes {
            self.retain(node, |waiter| waiter.wish.session != session);
        }
    }

    /// Who is to be told that what it waits for is free.
    fn tell(&mut self, node: NodeId, now: Mono, config: &Config) -> Vec<(SessionId, LockFree)> {
        let none = FileLocks::default();
        let locks = self.held.get(&node).unwrap_or(&none);
        let due = self.due(node, locks, now, config).into_iter();
        let told: BTreeSet<(SessionId, WaitId)> = due
            .filter(|waiter| waiter.told.is_none())
            .map(|waiter| (waiter.wish.session, waiter.wait))
            .collect();
        for waiter in self.queues.get_mut(&node).into_iter().flatten() {
            if told.contains(&(waiter.wish.session, waiter.wait)) {
                waiter.told = Some(now);
            }
        }
        told.into_iter().map(|(session, wait)| (session, LockFree { node, wait })).collect()
    }

    /// Forgets those who have not asked for long.
    fn expire(&mut self, now: Mono, config: &Config) -> Vec<NodeId> {
        let nodes: Vec<NodeId> = self.queues.keys().copied().collect();
        for node in &nodes {
            self.retain(*node, |waiter| now.since(waiter.asked) < config.lock_wait_life);
        }
        nodes
    }

    /// The sessions that others wait for.
    fn waited_for(&self) -> BTreeSet<SessionId> {
        let queues = self.queues.iter().filter_map(|(node, queue)| Some((self.held.get(node)?, queue)));
        let pairs = queues.flat_map(|(locks, queue)| queue.iter().map(move |waiter| (locks, waiter)));
        let holders = pairs.flat_map(|(locks, waiter)| locks.conflicts(&waiter.wish));
        holders.map(|holder| holder.session).collect()
    }

    /// Whether the holders that a wish would wait for wait, over any number of others, for the one who wishes. Only what lies in this tablet is seen.
    pub fn would_deadlock(&self, node: NodeId, wish: &HeldLock) -> bool {
        // As on Linux: an open file belongs to no process, so nothing can be said of those who wait through one.
        if wish.lock.space != LockSpace::Ranges {
            return false;
        }
        type Owner = (SessionId, LockOwner);
        let owner = |held: &HeldLock| (held.session, held.lock.owner);
        let me = owner(wish);
        let (mut seen, mut open): (BTreeSet<Owner>, Vec<Owner>) = Default::default();
        let holders = |node: &NodeId, wish: &HeldLock| -> Vec<Owner> {
            self.held.get(node).map(|locks| locks.conflicts(wish).map(owner).collect()).unwrap_or_default()
        };
        open.extend(holders(&node, wish));
        while let Some(next) = open.pop() {
            if next == me {
                return true;
            }
            if !seen.insert(next) || seen.len() > DEADLOCK_STEPS_MAX {
                continue;
            }
            let waits = self.queues.iter().flat_map(|(node, queue)| queue.iter().map(move |one| (node, one)));
            for (node, waiter) in waits.filter(|(_, waiter)| owner(&waiter.wish) == next) {
                if waiter.wish.lock.space == LockSpace::Ranges {
                    open.extend(holders(node, &waiter.wish));
                }
            }
        }
        false
    }
}

impl MetaServer {
    /// Locks were given or given back.
    pub(crate) fn note_locks(
        &mut self,
        now: Now,
        start: Position,
        batch: &BTreeMap<Key, Option<Record>>,
        out: &mut Vec<Command>,
    ) {
        let mut changed = Vec::new();
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        for (key, record) in batch {
            match (key, record) {
                (Key::Locks(node), Some(Record::Locks(locks))) => tablet.locks.note(*node, Some(locks)),
                (Key::Locks(node), None) => tablet.locks.note(*node, None),
                _ => continue,
            }
            changed.extend(match key {
                Key::Locks(node) => Some(*node),
                _ => None,
            });
        }
        self.tell_waiters(now, start, changed, out);
    }

    /// Tells whoever's turn it is.
    pub(crate) fn tell_waiters(
        &mut self,
        now: Now,
        start: Position,
        nodes: Vec<NodeId>,
        out: &mut Vec<Command>,
    ) {
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        for node in nodes {
            let told = tablet.locks.tell(node, now.mono, &self.config);
            out.extend(told.into_iter().map(|(session, free)| Command::LockFree(session, free)));
        }
    }

    /// Looks after those who wait: some have gone, some wait for sessions that are over.
    pub(crate) fn watch_locks(&mut self, now: Now, start: Position, out: &mut Vec<Command>) {
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let nodes = tablet.locks.expire(now.mono, &self.config);
        let mut silent = Vec::new();
        for session in tablet.locks.waited_for() {
            let state = tablet.sessions.entry(session).or_default();
            if state.heard.is_none_or(|heard| now.mono.since(heard) >= self.config.lock_silence) {
                state.heard = Some(now.mono);
                silent.push(session);
            }
        }
        for session in silent {
            self.new_job(start, JobWork::SweepSession(session), now);
        }
        self.tell_waiters(now, start, nodes, out);
    }
}

/// What is held of a file.
pub(crate) fn held(view: &mut View, node: NodeId) -> Decide<FileLocks> {
    Ok(view.get_as(Key::Locks(node), Record::into_locks)?.unwrap_or_default())
}

/// A file's locks are so now.
pub(crate) fn put(view: &mut View, node: NodeId, locks: FileLocks) {
    match locks.is_empty() {
        true => view.delete(Key::Locks(node)),
        false => view.put(Key::Locks(node), Record::Locks(locks)),
    }
}

/// A file is gone, and its locks with it.
pub(crate) fn forget(view: &mut View, node: NodeId) {
    if view.waits.is_locked(node) {
        view.delete(Key::Locks(node));
    }
}

/// A session is over, and so is what it has locked.
pub(crate) fn free_session(view: &mut View, session: SessionId) -> Decide<()> {
    for node in view.waits.nodes_of(session) {
        let mut locks = held(view, node)?;
        if locks.clear_session(session) {
            put(view, node, locks);
        }
    }
    Ok(())
}
