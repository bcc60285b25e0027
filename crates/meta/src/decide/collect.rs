//! Collection of marks that have done their work: of directories that were removed, of sessions that ended. A
//! chore goes over them in bounded steps.
//!
//! Why they may go at all:
//!
//! - A *dead* mark refuses children of a removed directory to whoever has a grant from before. Without it,
//!   the first child of a directory in a tablet needs the consent of the directory's node, and that is gone
//!   for ever (ids are never used again). What the mark alone refuses is an operation that got this consent
//!   before the removal and decides after it. No operation lives longer than `job_timeout`, so a mark that is
//!   older refuses nothing that the node would not. It is kept for longer than any grant lives, so that such
//!   clients are told "no such directory" and not to ask again. And for as long as the directory is
//!   delegated: its holder had its home remove it, and nobody else will ever look into it, so it is called
//!   back from here.
//! - An *ended* mark refuses what a session sent before its end. Without it, the tablet does not know the
//!   session, and a session that a tablet does not know is asked for at its home, where it has no record any
//!   more: session ids are never used again. So the mark saves a question. At the home itself it refuses a
//!   late copy of the packet that opened the session. A client sends nothing else before that is answered,
//!   and does not send it again afterwards: only a packet that the network kept for longer than
//!   `ended_mark_ttl` (an hour; networks keep packets for minutes) could open the session once more.
//! - A *closed* mark refuses extents in a chunk that is looked at or gone (why it may go:
//!   `maintenance/usage_scan.rs`).
//!
//! Invariant: a mark is never taken for older than it is. Ages are told by the machine's monotonic clock as
//! far as this server has had the tablet; marks of owners before count from when it was taken, whatever their
//! clocks said. This module must not know what the marks are asked for.

use crate::record::{Key, Record};
use crate::view::{Decide, View};
use crate::words::Ripe;
use bearing_placement::position_of_session;
use bearing_types::{ChunkId, NodeId, SessionId};

/// Marks looked at in one step.
const MARKS_MAX: usize = 256;

/// What a step came to.
#[derive(Debug)]
pub(crate) struct Collected {
    /// Where the next one goes on; `None` at the end.
    pub next: Option<Key>,
    pub removed: bool,
    pub ended: Vec<SessionId>,
    /// Directories that are gone, but delegated.
    pub delegated: Vec<NodeId>,
}

/// One step: a page of dead marks, or of ended ones.
pub(crate) fn step(view: &mut View, from: Key, ripe: Ripe) -> Decide<Collected> {
    let (last, before) = match from {
        Key::Ended(_) => (Key::Ended(SessionId(u64::MAX)), ripe.ended),
        Key::Closed(_) => (Key::Closed(ChunkId(u64::MAX)), ripe.closed),
        _ => (Key::Dead(NodeId(u64::MAX)), ripe.dead),
    };
    let page = view.range(from..=last, MARKS_MAX)?;
    let full = view.range_was_full(&(from..=last), MARKS_MAX);
    let mut collected = Collected { next: None, removed: false, ended: Vec::new(), delegated: Vec::new() };
    let is_ripe =
        |record: &Record| matches!(record, Record::Mark(made) if before.is_some_and(|before| *made < before));
    for (key, _) in page.iter().filter(|(_, record)| is_ripe(record)) {
        if let Key::Dead(directory) = key
            && view.delegations.holder(*directory).is_some()
        {
            collected.delegated.push(*directory);
            continue;
        }
        view.delete(*key);
        collected.removed = true;
        if let Key::Ended(session) = key {
            // The record of one that its client closed: not looked for, which would take a load for each.
            if view.tablet.contains(position_of_session(*session)) {
                view.delete(Key::Session(*session));
            }
            collected.ended.push(*session);
        }
    }
    collected.next = match page.last() {
        Some((key, _)) if full => after(*key),
        _ => after(last),
    };
    Ok(collected)
}

/// The first key behind a mark's, over all marks.
fn after(key: Key) -> Option<Key> {
    match key {
        Key::Dead(NodeId(u64::MAX)) => Some(Key::Ended(SessionId(0))),
        Key::Dead(NodeId(node)) => Some(Key::Dead(NodeId(node + 1))),
        Key::Ended(SessionId(u64::MAX)) => Some(Key::Closed(ChunkId(0))),
        Key::Ended(SessionId(session)) => Some(Key::Ended(SessionId(session + 1))),
        Key::Closed(ChunkId(chunk)) => chunk.checked_add(1).map(|next| Key::Closed(ChunkId(next))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_go_over_all_marks_and_end() {
        let (mut key, mut kinds) = (Some(Key::FIRST_MARK), 0);
        while let Some(present) = key {
            kinds += 1;
            key = match present {
                Key::Dead(_) => after(Key::Dead(NodeId(u64::MAX))),
                Key::Closed(_) => after(Key::Closed(ChunkId(u64::MAX))),
                _ => after(Key::Ended(SessionId(u64::MAX))),
            };
        }
        assert_eq!(kinds, 3);
    }
}
