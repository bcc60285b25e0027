//! The extents of a file from an offset on. Who may read the file gets the right to read the bytes of each on
//! data servers.

use crate::decide::ops::rights;
use crate::decide::rules::extents;
use crate::record::NodeContent;
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Body, Extent, Handle};
use bearing_proto::grant::{Admission, Capability, ReadRights};
use bearing_types::Code;

pub(super) fn decide(
    view: &mut View,
    handle: Handle,
    by: &Admission,
    offset: u64,
    count_max: u32,
) -> Decide<Body> {
    let record = view.node_at(handle)?;
    if !matches!(record.content, NodeContent::File) || count_max == 0 {
        return Err(Stop::Refuse(Code::InvalidArgument));
    }
    let (rights, token) = rights::admit(view, handle, &record, by)?;
    let count_max = count_max.min(view.config.extents_max) as usize;
    let found = extents::overlapping(view, handle.node, offset, u64::MAX, count_max + 1)?;
    let complete = found.len() <= count_max;
    let extents: Vec<Extent> =
        found.iter().take(count_max).map(|(offset, extent)| extents::shown(*offset, extent)).collect();
    let reads = if rights.reads() { Some(read_rights(view, &extents)?) } else { None };
    let (version, size) = (record.attributes.version, record.attributes.size);
    Ok(Body::Extents { version, size, extents, complete, reads, token })
}

fn read_rights(view: &View, extents: &[Extent]) -> Decide<ReadRights> {
    let (session, key) = (rights::asker(view)?, view.keys.grants());
    let expires = view.now.wall.after(view.config.capability_ttl);
    let macs = extents.iter().map(|extent| Capability::sign(extent.read_right(session, expires), key).mac);
    Ok(ReadRights { expires, macs: macs.collect() })
}
