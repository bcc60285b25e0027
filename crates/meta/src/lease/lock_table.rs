//! Who holds locks of files, who waits, whose turn it is (see `decide/rules/file_locks.rs`).

use crate::config::Config;
use bearing_proto::client::{LockFree, WaitId};
use bearing_types::{FileLocks, HeldLock, LockOwner, LockSpace, Mono, NodeId, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// Waits for one file that are remembered; who comes later asks now and then all the same, without a place in
/// the queue.
pub(crate) const WAITERS_MAX: usize = 4096;

/// Holders looked at in search of a deadlock. Where there are more, none is found.
pub(crate) const DEADLOCK_STEPS_MAX: usize = 8192;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
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
    pub fn due<'a>(
        &'a self,
        node: NodeId,
        locks: &'a FileLocks,
        now: Mono,
        config: &Config,
    ) -> Vec<&'a Waiter> {
        let mut due: Vec<&Waiter> = Vec::new();
        for waiter in self.queues.get(&node).into_iter().flatten() {
            let late = waiter.told.is_some_and(|told| now.since(told) >= config.free_lock_ttl);
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

    pub fn retain(&mut self, node: NodeId, keep: impl Fn(&Waiter) -> bool) {
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
    pub fn tell(&mut self, node: NodeId, now: Mono, config: &Config) -> Vec<(SessionId, LockFree)> {
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
    pub fn expire(&mut self, now: Mono, config: &Config) -> Vec<NodeId> {
        let nodes: Vec<NodeId> = self.queues.keys().copied().collect();
        for node in &nodes {
            self.retain(*node, |waiter| now.since(waiter.asked) < config.lock_wait_ttl);
        }
        nodes
    }

    /// The sessions that others wait for.
    pub fn waited_for(&self) -> BTreeSet<SessionId> {
        let queues = self.queues.iter().filter_map(|(node, queue)| Some((self.held.get(node)?, queue)));
        let pairs = queues.flat_map(|(locks, queue)| queue.iter().map(move |waiter| (locks, waiter)));
        let holders = pairs.flat_map(|(locks, waiter)| locks.conflicts(&waiter.wish));
        holders.map(|holder| holder.session).collect()
    }

    /// Whether the holders that a wish would wait for wait, over any number of others, for the one who
    /// wishes. Only what lies in this tablet is seen.
    pub fn would_deadlock(&self, node: NodeId, wish: &HeldLock) -> bool {
        // As on Linux: an open file belongs to no process, so nothing can be said of those who wait through
        // one.
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
        if open.is_empty() {
            return false;
        }
        let mut waits: BTreeMap<Owner, Vec<(&NodeId, &HeldLock)>> = BTreeMap::new();
        for (node, waiter) in
            self.queues.iter().flat_map(|(node, queue)| queue.iter().map(move |one| (node, one)))
        {
            if waiter.wish.lock.space == LockSpace::Ranges {
                waits.entry(owner(&waiter.wish)).or_default().push((node, &waiter.wish));
            }
        }
        let mut steps = 0;
        while let Some(next) = open.pop() {
            if next == me {
                return true;
            }
            if !seen.insert(next) {
                continue;
            }
            for (node, wish) in waits.get(&next).into_iter().flatten() {
                let holders = holders(node, wish);
                steps += holders.len();
                if steps > DEADLOCK_STEPS_MAX {
                    return false;
                }
                open.extend(holders);
            }
        }
        false
    }
}
