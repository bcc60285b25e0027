//! Notes that a file was read. Neither its version nor its time of change grows, and no lease is recalled:
//! others see the new time of access when what they hold is over.

use crate::view::{Decide, View};
use bearing_proto::client::{Body, Handle};
use bearing_proto::rules;
use bearing_types::Wall;

pub(super) fn decide(view: &mut View, handle: Handle, at: Wall) -> Decide<Body> {
    view.require(handle.home)?;
    // What was lent meanwhile is not called back for this.
    if view.delegations.lent_with(handle.node).is_none() {
        note(view, handle, at)?;
    }
    Ok(Body::Done)
}

/// Notes it, whoever the file is lent to.
pub(super) fn note(view: &mut View, handle: Handle, at: Wall) -> Decide<()> {
    // One that is gone is no reason to refuse anything: what was decided with this would be lost.
    let Some(mut record) = view.node(handle.node)? else { return Ok(()) };
    if rules::note_access(&mut record.attributes, at, view.time()) {
        view.put_node(handle.node, record);
    }
    Ok(())
}
