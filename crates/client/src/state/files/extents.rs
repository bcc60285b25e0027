//! Where a file's bytes lie in chunks, as far as it is known, at one version of the file.

use bearing_proto::client::Extent;
use bearing_proto::grant::Capability;
use bearing_proto::keys::Mac;
use bearing_types::{SessionId, Version, Wall};
use std::collections::BTreeMap;
use std::ops::Range;

/// An extent, or a part of one, with the right to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub extent: Extent,
    /// None with what this client wrote: it may read all of its own chunks.
    pub right: Option<ReadRight>,
}

/// The right to read an extent, as its home gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadRight {
    skip: u32,
    length: u32,
    pub expires: Wall,
    mac: Mac,
}

impl ReadRight {
    /// The right to read an extent.
    pub fn new(extent: &Extent, expires: Wall, mac: Mac) -> ReadRight {
        ReadRight { skip: extent.skip, length: extent.length, expires, mac }
    }
}

impl Stored {
    /// What this client wrote.
    fn own(extent: Extent) -> Stored {
        Stored { extent, right: None }
    }

    /// The part that lies in a range of the file.
    pub fn clipped(&self, range: Range<u64>) -> Option<Stored> {
        Some(Stored { extent: clipped(&self.extent, range)?, right: self.right })
    }

    /// What data servers want to see of a session that reads it.
    pub fn capability(&self, session: SessionId) -> Option<Capability> {
        let ReadRight { skip, length, expires, mac } = self.right?;
        let whole = Extent { skip, length, ..self.extent };
        Some(Capability { body: whole.read_right(session, expires), mac })
    }
}

/// See the module. Extents never overlap; `known` are the ranges of the file in which every extent is here,
/// so that the rest of such a range is a hole.
#[derive(Clone, Debug)]
pub(crate) struct ExtentMap {
    version: Version,
    size: u64,
    extents: BTreeMap<u64, Stored>,
    known: BTreeMap<u64, u64>,
}

impl ExtentMap {
    /// Knows nothing yet.
    pub fn unknown(version: Version, size: u64) -> ExtentMap {
        ExtentMap { version, size, extents: BTreeMap::new(), known: BTreeMap::new() }
    }

    /// A file without any content.
    pub fn empty(version: Version) -> ExtentMap {
        let mut map = ExtentMap::unknown(version, 0);
        map.know(0..u64::MAX);
        map
    }

    pub fn version(&self) -> Version {
        self.version
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn count(&self) -> usize {
        self.extents.len()
    }

    /// Takes a page of extents that begins at `offset`. `complete`: it reaches the end of the file.
    pub fn add_page(&mut self, offset: u64, page: &[Stored], complete: bool) {
        for stored in page {
            self.put(*stored);
        }
        let reached = page.last().map_or(offset, |last| end_of(&last.extent));
        self.know(offset..if complete { u64::MAX } else { reached });
    }

    /// Puts an extent that this client wrote over what was there.
    pub fn cover(&mut self, new: Extent) {
        self.put(Stored::own(new));
    }

    fn put(&mut self, new: Stored) {
        let (from, to) = (new.extent.file_offset, end_of(&new.extent));
        let before = self.extents.range(..from).next_back();
        let first =
            before.filter(|(_, stored)| end_of(&stored.extent) > from).map_or(from, |(start, _)| *start);
        let touched: Vec<u64> = self.extents.range(first..to).map(|(start, _)| *start).collect();
        for start in touched {
            let old = self.extents.remove(&start).expect("listed just now");
            let rests = [old.clipped(start..from), old.clipped(to..end_of(&old.extent))];
            for rest in rests.into_iter().flatten() {
                self.extents.insert(rest.extent.file_offset, rest);
            }
        }
        self.extents.insert(from, new);
        self.know(from..to);
    }

    /// The same file after a commit of our own and nothing else.
    pub fn advance(&mut self, version: Version, size: u64) {
        self.version = version;
        self.size = size;
    }

    /// The first byte of a range of which it is not known where it lies; `None`: all is known.
    pub fn first_unknown(&self, range: Range<u64>) -> Option<u64> {
        let (_, end) = self
            .known
            .range(..=range.start)
            .next_back()
            .filter(|(_, end)| **end > range.start)
            .unwrap_or((&0, &range.start));
        (*end < range.end).then_some(*end)
    }

    /// The parts of extents that lie in a range.
    pub fn parts(&self, range: Range<u64>) -> impl Iterator<Item = Stored> {
        let before = self.extents.range(..range.start).next_back();
        let inside = self.extents.range(range.start..range.end.max(range.start));
        before.into_iter().chain(inside).filter_map(move |(_, stored)| stored.clipped(range.clone()))
    }

    fn know(&mut self, range: Range<u64>) {
        let (mut from, mut to) = (range.start, range.end);
        if from >= to {
            return;
        }
        if let Some((start, end)) = self.known.range(..from).next_back().filter(|(_, end)| **end >= from) {
            (from, to) = (*start, to.max(*end));
        }
        while let Some((start, end)) = self.known.range(from..=to).next().map(|(start, end)| (*start, *end)) {
            to = to.max(end);
            self.known.remove(&start);
        }
        self.known.insert(from, to);
    }
}

/// The first byte after an extent.
pub(crate) fn end_of(extent: &Extent) -> u64 {
    extent.file_offset.saturating_add(u64::from(extent.length))
}

/// The part of an extent that lies in a range of the file.
pub(crate) fn clipped(extent: &Extent, range: Range<u64>) -> Option<Extent> {
    let from = extent.file_offset.max(range.start);
    let to = end_of(extent).min(range.end);
    if from >= to {
        return None;
    }
    let cut = (from - extent.file_offset) as u32;
    Some(Extent {
        file_offset: from,
        length: (to - from) as u32,
        skip: extent.skip.saturating_add(cut),
        ..*extent
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_proto::client::ChunkRef;
    use bearing_types::{ChunkId, Position};
    use proptest::prelude::*;

    fn extent(file_offset: u64, length: u32, frame: u64) -> Extent {
        let chunk = ChunkRef { chunk: ChunkId(1), position: Position(0) };
        Extent { file_offset, length, chunk, frame, skip: 0 }
    }

    proptest! {
        #[test]
        fn later_extents_cover_earlier_ones_byte_by_byte(writes in proptest::collection::vec((0u64..300, 1u32..60), 0..40), from in 0u64..400, length in 0u64..200) {
            let mut map = ExtentMap::unknown(Version(1), 400);
            let mut oracle: Vec<Option<(u64, u32)>> = vec![None; 400];
            for (frame, (offset, length)) in writes.into_iter().enumerate() {
                map.cover(extent(offset, length, frame as u64));
                for at in 0..length {
                    oracle[offset as usize + at as usize] = Some((frame as u64, at));
                }
            }
            let range = from..from + length;
            let mut seen = vec![None; 400];
            for part in map.parts(range.clone()).map(|stored| stored.extent) {
                for at in 0..part.length {
                    let place = part.file_offset as usize + at as usize;
                    prop_assert!(range.contains(&(place as u64)));
                    prop_assert!(seen[place].replace((part.frame, part.skip + at)).is_none());
                }
            }
            for at in range.start.min(400)..range.end.min(400) {
                prop_assert_eq!(seen[at as usize], oracle[at as usize]);
            }
        }

        #[test]
        fn known_ranges_join_and_the_first_unknown_byte_is_found(pages in proptest::collection::vec((0u64..100, 0u64..30), 0..20), from in 0u64..120, length in 1u64..40) {
            let mut map = ExtentMap::unknown(Version(1), 200);
            let mut oracle = [false; 200];
            for (offset, length) in pages {
                map.know(offset..offset + length);
                oracle[offset as usize..(offset + length) as usize].fill(true);
            }
            let expected = (from..from + length).find(|at| !oracle[*at as usize]);
            prop_assert_eq!(map.first_unknown(from..from + length), expected);
        }
    }

    #[test]
    fn a_part_of_an_extent_is_read_with_the_right_to_all_of_it() {
        let (whole, session) = (extent(100, 50, 7), SessionId(3));
        let right = ReadRight::new(&whole, Wall(9), Mac([1; 16]));
        let mut map = ExtentMap::unknown(Version(1), 200);
        map.add_page(100, &[Stored { extent: whole, right: Some(right) }], true);
        map.cover(extent(110, 5, 8));
        let parts: Vec<Stored> = map.parts(105..150).collect();
        let places: Vec<_> = parts.iter().map(|part| (part.extent.file_offset, part.extent.skip)).collect();
        assert_eq!(places, [(105, 5), (110, 0), (115, 15)]);
        let shown = |part: &Stored| part.capability(session).map(|capability| capability.body);
        let right = Some(whole.read_right(session, Wall(9)));
        assert_eq!(parts.iter().map(shown).collect::<Vec<_>>(), [right, None, right]);
    }

    #[test]
    fn a_page_is_known_up_to_its_last_extent_or_to_the_end() {
        let mut map = ExtentMap::unknown(Version(1), 100);
        map.add_page(0, &[Stored::own(extent(10, 10, 0))], false);
        assert_eq!(map.first_unknown(0..100), Some(20));
        map.add_page(20, &[], true);
        assert_eq!(map.first_unknown(0..100), None);
        assert_eq!(ExtentMap::empty(Version(1)).first_unknown(0..1), None);
    }
}
