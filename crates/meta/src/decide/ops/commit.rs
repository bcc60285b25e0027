//! Makes written extents part of a file. Later extents cover earlier ones; what is covered is unreferenced.
//! Appended ones go behind the end that the file has when this is decided, whoever appended before: so
//! appends of several clients are atomic and never overwrite each other.

use crate::decide::maintenance;
use crate::decide::ops::rights;
use crate::decide::rules::extents::{self, Freed};
use crate::decide::rules::{namespace, quotas};
use crate::record::{ExtentRecord, NodeContent, NodeRecord};
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Body, CommitMode, Extent, Handle, LeaseKey};
use bearing_proto::frame::PAYLOAD_BYTES_MAX;
use bearing_proto::grant::{Capability, OpenToken};
use bearing_proto::rules::{self, Committed, FILE_BYTES_MAX};
use bearing_types::{Amount, Code, SetIds, Wall};
use std::collections::BTreeMap;

/// At most so many extents are covered by one commit: 512 MiB of a file that was written in pages of 4 KiB.
const COVERED_MAX: usize = 1 << 17;

/// What is to be part of a file.
#[derive(Clone, Copy)]
pub(super) struct Written<'a> {
    /// In the order written: a later one covers an earlier one.
    pub extents: &'a [Extent],
    /// The rights to append to their chunks.
    pub opened: &'a [Capability],
    /// The file is at least so long afterwards.
    pub size_min: u64,
    pub mode: CommitMode,
    pub set_ids: SetIds,
}

pub(super) fn decide(
    view: &mut View,
    handle: Handle,
    token: OpenToken,
    written: Written,
    modified: Wall,
) -> Decide<Body> {
    let record = view.node_at(handle)?;
    rights::writes(view, handle.node, &token)?;
    let record = put(view, handle, record, written, modified)?;
    Ok(Body::Node(namespace::node_view(view, handle.node, &record)))
}

/// Makes the extents part of the file.
pub(super) fn put(
    view: &mut View,
    handle: Handle,
    mut record: NodeRecord,
    written: Written,
    modified: Wall,
) -> Decide<NodeRecord> {
    let Written { extents: written, opened, size_min, mode, set_ids } = written;
    if !matches!(record.content, NodeContent::File) || size_min > FILE_BYTES_MAX || !written.iter().all(valid)
    {
        return Err(Stop::Refuse(Code::InvalidArgument));
    }
    rights::filled(view, written, opened)?;
    maintenance::join(view, written)?;
    let base = match mode {
        CommitMode::Put => 0,
        CommitMode::Append => record.attributes.size,
    };
    let written = &moved(written, base)?[..];
    let size_min = size_min.checked_add(base).filter(|size| *size <= FILE_BYTES_MAX);
    let size_min = size_min.ok_or(Stop::Refuse(Code::TooLarge))?;
    let end = written.iter().map(extent_end).max().unwrap_or(0);
    // No extent lies beyond the size, so a file that only grows needs no look at its extents.
    let size = record.attributes.size;
    let covered = written.iter().map(|extent| extent.file_offset..extent_end(extent).min(size)).collect();
    let covered = extents::joined(covered);
    let before = extents::overlapping_any(view, handle.node, &covered, COVERED_MAX)?;
    if before.len() >= COVERED_MAX {
        return Err(Stop::Refuse(Code::TooLarge));
    }
    let mut after = before.clone();
    let freed = lay_over(&mut after, written);
    extents::write_difference(view, handle.node, &before, &after);

    let added: u64 = written.iter().map(|extent| u64::from(extent.length)).sum();
    let growth = added.saturating_sub(freed.bytes());
    quotas::admit(view, record.quota, Amount { space: growth, entries: 0 })?;
    let freed = freed.release(view)?;
    let committed = Committed { added, freed, size_min: size_min.max(end), modified, set_ids };
    record.attributes = rules::committed(&record.attributes, committed, view.time());
    view.put_node(handle.node, record.clone());
    view.changes(LeaseKey::File(handle.node));
    Ok(record)
}

/// The same extents further behind in the file.
fn moved(written: &[Extent], by: u64) -> Decide<Vec<Extent>> {
    // Valid ones end far below the largest number, and so does every file.
    let moved = written.iter().map(|extent| Extent { file_offset: extent.file_offset + by, ..*extent });
    let moved: Vec<Extent> = moved.collect();
    if moved.iter().all(valid) { Ok(moved) } else { Err(Stop::Refuse(Code::TooLarge)) }
}

fn lay_over(extents: &mut BTreeMap<u64, ExtentRecord>, written: &[Extent]) -> Freed {
    let mut freed = Freed::default();
    for extent in written {
        extents::clear(extents, extent.file_offset, extent_end(extent), &mut freed);
        let record = ExtentRecord {
            length: extent.length,
            chunk: extent.chunk,
            frame: extent.frame,
            skip: extent.skip,
        };
        extents.insert(extent.file_offset, record);
    }
    freed
}

fn valid(extent: &Extent) -> bool {
    let in_frame = extent.skip.checked_add(extent.length).is_some_and(|end| end <= PAYLOAD_BYTES_MAX);
    let in_file =
        extent.file_offset.checked_add(u64::from(extent.length)).is_some_and(|end| end <= FILE_BYTES_MAX);
    extent.length > 0 && in_frame && in_file
}

fn extent_end(extent: &Extent) -> u64 {
    extent.file_offset + u64::from(extent.length)
}
