//! A session closes an unlinked file; and, in the background, the content of nodes that nobody can reach is
//! removed page by page.

use crate::decide::rules::extents::{self, Freed};
use crate::decide::rules::namespace::{self, REAPER};
use crate::decide::rules::{file_locks, xattrs};
use crate::record::Key;
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Body, Handle};
use bearing_types::{Code, NodeId, SessionId};
use std::collections::BTreeMap;

/// Extents removed in one step of the reaper.
const PAGE: usize = 1024;

pub(super) fn decide(view: &mut View, handle: Handle) -> Decide<Body> {
    view.require(handle.home)?;
    let session = view.session.ok_or(Stop::Refuse(Code::SessionEnded))?;
    // One that was on its way for long may meet what was opened after it. Nothing is lost by not hearing it:
    // sessions are asked what they have open.
    if !view.opens.is_late_release(session, handle.node, view.sequence) {
        forget_holder(view, handle.node, session)?;
    }
    Ok(Body::Done)
}

/// The session has the node open no more; the last one to say so ends it.
pub(crate) fn forget_holder(view: &mut View, node: NodeId, session: SessionId) -> Decide<()> {
    let mine = Key::Orphan(node, session);
    if view.get(mine)?.is_none() {
        return Ok(());
    }
    view.delete(mine);
    if view.opens.kept_by_another(session, node) {
        return Ok(());
    }
    match view.node(node)? {
        Some(record) if record.attributes.links == 0 => namespace::reap(view, node, record),
        Some(_) | None => Ok(()),
    }
}

/// The session said, when asked, that it has the node open no more: it is no holder any more, unless it was
/// given it again meanwhile.
pub(crate) fn forget_closed(view: &mut View, node: NodeId, session: SessionId) -> Decide<()> {
    if view.opens.said_closed(session, node) { forget_holder(view, node, session) } else { Ok(()) }
}

/// Removes one page of a node's extents; with the last page goes the node. Returns whether it is gone.
pub(crate) fn reap_page(view: &mut View, node: NodeId) -> Decide<bool> {
    let Some(mut record) = view.node(node)? else { return Ok(true) };
    let before = extents::overlapping(view, node, 0, u64::MAX, PAGE)?;
    let mut freed = Freed::default();
    for extent in before.values() {
        freed.add(extent.chunk, u64::from(extent.length));
    }
    extents::write_difference(view, node, &before, &BTreeMap::new());
    let last = before.len() < PAGE;
    record.attributes.space = record.attributes.space.saturating_sub(freed.bytes());
    freed.release(view)?;
    if last {
        // Whoever still had a handle may have given it some since its last name went.
        xattrs::remove_all(view, node, &mut record)?;
        view.delete(Key::Node(node));
        file_locks::forget(view, node);
        view.delete(Key::Orphan(node, REAPER));
    } else {
        view.put_node(node, record);
    }
    Ok(last)
}
