//! The extents of a file from an offset on.

use crate::extents;
use crate::record::NodeContent;
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Body, Handle};
use bearing_types::Code;

pub(super) fn decide(view: &mut View, handle: Handle, offset: u64, count_max: u32) -> Decide<Body> {
    let record = view.node_at(handle)?;
    if !matches!(record.content, NodeContent::File) || count_max == 0 {
        return Err(Stop::Refuse(Code::InvalidArgument));
    }
    let count_max = count_max.min(view.config.extents_max) as usize;
    let found = extents::overlapping(view, handle.node, offset, u64::MAX, count_max + 1)?;
    let complete = found.len() <= count_max;
    let extents =
        found.iter().take(count_max).map(|(offset, extent)| extents::shown(*offset, extent)).collect();
    Ok(Body::Extents { version: record.attributes.version, size: record.attributes.size, extents, complete })
}
