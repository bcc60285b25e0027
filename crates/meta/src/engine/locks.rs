//! Locks of files (`decide/ops/lock.rs`): who holds them, who waits, whose turn it is.
//!
//! Invariants: what is held is what the records say, so it survives restarts and goes along with the tablet;
//! it goes when its owner gives it back, or with the mark that its session ended. Who waits is known to the
//! tablet's owner of the moment only: a client that waits asks again now and then, and so has its place again
//! in a while. A lock that becomes free is kept for a short time for whoever waited longest for it, and is
//! given when that client asks: so it is never given to somebody who does not want it any more.
//!
//! Shared locks are given beside shared locks also while somebody waits for an exclusive one, as Linux does:
//! to make them wait would make deadlocks between programs that have none on one machine.

use crate::engine::machine::MetaServer;
use crate::event::Command;
use crate::record::{Key, Record};
use bearing_types::{NodeId, Now, Position};
use std::collections::BTreeMap;

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
        for session in tablet.locks.waited_for() {
            if tablet.sessions.is_silent(session, now.mono, self.config.lock_silence_timeout) {
                tablet.sessions.doubt(session);
            }
        }
        self.tell_waiters(now, start, nodes, out);
    }
}
