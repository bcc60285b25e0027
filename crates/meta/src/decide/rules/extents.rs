//! The extents of a file: ordered by file offset, never overlapping, none beyond the file's size.

use crate::record::{ExtentRecord, Key, Record, take_range};
use crate::view::{Decide, Draft, Stop, View};
use bearing_proto::client::{ChunkRef, Extent};
use bearing_proto::frame::PAYLOAD_BYTES_MAX;
use bearing_proto::peer::Deferred;
use bearing_types::{Code, NodeId};
use std::collections::BTreeMap;
use std::ops::Range;

/// Extents asked of the store at a time.
const PAGE_MAX: usize = 1 << 16;
/// At most so many extents are dropped by one request; clients cut in steps then. While they are read and it
/// is decided, the server answers nobody: 450,000 took 0.6 s, and others take its tablets after 0.2 s.
pub(crate) const DROPPED_MAX: usize = 1 << 15;

/// The extents that overlap with `start..end`, by file offset.
pub(crate) fn overlapping(
    view: &mut View,
    node: NodeId,
    start: u64,
    end: u64,
    count_max: usize,
) -> Decide<BTreeMap<u64, ExtentRecord>> {
    if start >= end {
        return Ok(BTreeMap::new());
    }
    // No extent is longer than a frame, so none that starts earlier reaches `start`.
    let mut from = start.saturating_sub(u64::from(PAYLOAD_BYTES_MAX));
    let overlaps = |(offset, extent): &(u64, ExtentRecord)| offset + u64::from(extent.length) > start;
    if let Some(pairs) = view.extents_held(node, (start, end), count_max)? {
        return Ok(pairs.into_iter().filter_map(extent).filter(overlaps).take(count_max).collect());
    }
    let mut found = BTreeMap::new();
    loop {
        let keys = Key::Extent(node, from)..=Key::Extent(node, end - 1);
        let page = count_max.min(PAGE_MAX);
        let pairs = view.range(keys.clone(), page)?;
        let (full, last) = (view.range_was_full(&keys, page), pairs.last().map(|(key, _)| *key));
        found.extend(pairs.into_iter().filter_map(extent).filter(overlaps));
        // A page may hold extents that end before `start` and nothing else: then what is asked for lies on
        // the next.
        match last {
            Some(Key::Extent(_, offset)) if full && found.len() < count_max && offset < end - 1 => {
                from = offset + 1
            }
            _ => return Ok(found),
        }
    }
}

/// The extents that overlap with any of these ranges, at most about `count_max`. All that is missing is asked
/// for at once.
pub(crate) fn overlapping_any(
    view: &mut View,
    node: NodeId,
    ranges: &[Range<u64>],
    count_max: usize,
) -> Decide<BTreeMap<u64, ExtentRecord>> {
    let (mut found, mut missing) = (BTreeMap::new(), false);
    for range in ranges {
        if found.len() >= count_max {
            break;
        }
        match overlapping(view, node, range.start, range.end, count_max) {
            Ok(more) => found.extend(more),
            Err(Stop::Need) => missing = true,
            Err(stop) => return Err(stop),
        }
    }
    if missing { Err(Stop::Need) } else { Ok(found) }
}

/// These ranges in order, those that touch as one.
pub(crate) fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges.into_iter().filter(|range| range.start < range.end) {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

fn extent((key, record): (Key, Record)) -> Option<(u64, ExtentRecord)> {
    match (key, record) {
        (Key::Extent(_, offset), Record::Extent(extent)) => Some((offset, extent)),
        _ => None,
    }
}

/// Bytes that a change frees, by chunk.
#[derive(Default)]
pub(crate) struct Freed {
    by_chunk: BTreeMap<ChunkRef, u64>,
}

impl Freed {
    /// All bytes together.
    pub fn bytes(&self) -> u64 {
        self.by_chunk.values().sum()
    }

    pub fn add(&mut self, chunk: ChunkRef, bytes: u64) {
        *self.by_chunk.entry(chunk).or_default() += bytes;
    }

    /// Tells the chunks' records. Nobody waits for that.
    pub fn release(self, view: &mut View) -> Decide<u64> {
        let bytes = self.bytes();
        for (chunk, bytes) in self.by_chunk {
            if view.tablet.contains(chunk.position) {
                release_space(view, chunk, bytes)?;
            } else {
                let work = Deferred::ReleaseSpace { chunk, bytes };
                view.queue(Draft { to: chunk.position, work, awaited: false, locks: Vec::new() })?;
            }
        }
        Ok(bytes)
    }
}

/// The same as [`take_range`], noting what is freed.
pub(crate) fn clear(extents: &mut BTreeMap<u64, ExtentRecord>, start: u64, end: u64, freed: &mut Freed) {
    take_range(extents, start, end, |chunk, bytes| freed.add(chunk, bytes));
}

/// Writes the difference between two states of the same range of extents.
pub(crate) fn write_difference(
    view: &mut View,
    node: NodeId,
    before: &BTreeMap<u64, ExtentRecord>,
    after: &BTreeMap<u64, ExtentRecord>,
) {
    for offset in before.keys().filter(|offset| !after.contains_key(offset)) {
        view.delete(Key::Extent(node, *offset));
    }
    for (offset, extent) in after.iter().filter(|(offset, extent)| before.get(offset) != Some(extent)) {
        view.put(Key::Extent(node, *offset), Record::Extent(*extent));
    }
}

/// Drops all content from `size` on. Returns the bytes freed.
pub(crate) fn cut(view: &mut View, node: NodeId, size: u64) -> Decide<u64> {
    let before = overlapping(view, node, size, u64::MAX, DROPPED_MAX)?;
    if before.len() >= DROPPED_MAX {
        return Err(Stop::Refuse(Code::TooLarge));
    }
    let mut after = before.clone();
    let mut freed = Freed::default();
    clear(&mut after, size, u64::MAX, &mut freed);
    write_difference(view, node, &before, &after);
    freed.release(view)
}

/// An extent as clients see it.
pub(crate) fn shown(offset: u64, extent: &ExtentRecord) -> Extent {
    Extent {
        file_offset: offset,
        length: extent.length,
        chunk: extent.chunk,
        frame: extent.frame,
        skip: extent.skip,
    }
}

/// So many bytes of a chunk are referred to by nobody.
pub(crate) fn release_space(view: &mut View, chunk: ChunkRef, bytes: u64) -> Decide<()> {
    let mut record = match view.chunk(chunk) {
        Ok(record) => record,
        Err(Stop::Refuse(Code::Stale)) => return Ok(()),
        Err(stop) => return Err(stop),
    };
    if record.deleting {
        return Ok(());
    }
    record.dead_bytes = record.dead_bytes.saturating_add(bytes);
    view.put(Key::Chunk(chunk.chunk), Record::Chunk(Box::new(record)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::{ChunkId, Position};
    use proptest::prelude::*;

    const CHUNK: ChunkRef = ChunkRef { chunk: ChunkId(1), position: Position(0) };

    proptest! {
        // The oracle: which (frame, byte of the frame) gives each byte of a small file.
        #[test]
        fn clearing_takes_away_exactly_the_range(writes in proptest::collection::vec((0u64..60, 1u32..20), 1..20)) {
            let mut extents = BTreeMap::new();
            let mut oracle: BTreeMap<u64, (u64, u32)> = BTreeMap::new();
            let mut freed = Freed::default();
            for (frame, (offset, length)) in writes.iter().enumerate() {
                let frame = frame as u64;
                clear(&mut extents, *offset, offset + u64::from(*length), &mut freed);
                extents.insert(*offset, ExtentRecord { length: *length, chunk: CHUNK, frame, skip: 0 });
                for at in 0..*length {
                    oracle.insert(offset + u64::from(at), (frame, at));
                }
            }
            let mut seen = BTreeMap::new();
            for (offset, extent) in &extents {
                for at in 0..extent.length {
                    let twice = seen.insert(offset + u64::from(at), (extent.frame, extent.skip + at));
                    prop_assert!(twice.is_none());
                }
            }
            let written: u64 = writes.iter().map(|(_, length)| u64::from(*length)).sum();
            prop_assert_eq!(freed.bytes(), written - seen.len() as u64);
            prop_assert_eq!(seen, oracle);
        }
    }
}
