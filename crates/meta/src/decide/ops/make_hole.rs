//! Makes a range of a file a hole: its bytes are unreferenced, and read as zeros from then on. The file may
//! become longer, never shorter.

use crate::decide::ops::rights;
use crate::decide::rules::extents::{self, DROPPED_MAX, Freed};
use crate::decide::rules::namespace;
use crate::record::NodeContent;
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Body, Handle, LeaseKey};
use bearing_proto::grant::OpenToken;
use bearing_proto::rules::{self, Committed, FILE_BYTES_MAX};
use bearing_types::{Code, SetIds};
use std::ops::Range;

pub(super) fn decide(
    view: &mut View,
    handle: Handle,
    token: OpenToken,
    range: Range<u64>,
    size_min: u64,
    set_ids: SetIds,
) -> Decide<Body> {
    let mut record = view.node_at(handle)?;
    rights::writes(view, handle.node, &token)?;
    if !matches!(record.content, NodeContent::File) || range.start > range.end {
        return Err(Stop::Refuse(Code::InvalidArgument));
    }
    if size_min > FILE_BYTES_MAX {
        return Err(Stop::Refuse(Code::TooLarge));
    }
    let end = range.end.min(record.attributes.size);
    let before = extents::overlapping(view, handle.node, range.start, end, DROPPED_MAX)?;
    if before.len() >= DROPPED_MAX {
        return Err(Stop::Refuse(Code::TooLarge));
    }
    let mut after = before.clone();
    let mut freed = Freed::default();
    extents::clear(&mut after, range.start, end, &mut freed);
    extents::write_difference(view, handle.node, &before, &after);
    let freed = freed.release(view)?;

    let committed = Committed { added: 0, freed, size_min, modified: view.time(), set_ids };
    record.attributes = rules::committed(&record.attributes, committed, view.time());
    view.put_node(handle.node, record.clone());
    view.changes(LeaseKey::File(handle.node));
    Ok(Body::Node(namespace::node_view(view, handle.node, &record)))
}
