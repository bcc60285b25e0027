//! Extents of one file, by where they begin in it: what a range that is written or dropped leaves of them.

use crate::record::records::ExtentRecord;
use bearing_proto::client::ChunkRef;
use std::collections::BTreeMap;

/// Takes `start..end` away from the extents given, which must be all that overlap with it; what sticks out
/// stays. Each chunk that had something of it is given, with how many bytes.
pub(crate) fn take_range(
    extents: &mut BTreeMap<u64, ExtentRecord>,
    start: u64,
    end: u64,
    mut freed: impl FnMut(ChunkRef, u64),
) {
    let hit: Vec<(u64, ExtentRecord)> = extents
        .range(..end)
        .filter(|(offset, extent)| **offset + u64::from(extent.length) > start)
        .map(|(offset, extent)| (*offset, *extent))
        .collect();
    for (offset, extent) in hit {
        extents.remove(&offset);
        let extent_end = offset + u64::from(extent.length);
        if offset < start {
            extents.insert(offset, ExtentRecord { length: (start - offset) as u32, ..extent });
        }
        if extent_end > end {
            let skipped = (end - offset) as u32;
            extents.insert(
                end,
                ExtentRecord { length: extent.length - skipped, skip: extent.skip + skipped, ..extent },
            );
        }
        freed(extent.chunk, extent_end.min(end) - offset.max(start));
    }
}
