//! What is held of a file, as its record says.

use crate::record::{Key, Record};
use crate::view::{Decide, View};
use bearing_types::{FileLocks, NodeId, SessionId};

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
