//! Where the bytes of files lie, as far as it is known.

use super::extents::{ExtentMap, ReadRight, Stored, end_of};
use super::table::Files;
use crate::operation::SeekTarget;
use bearing_proto::client::{CommitMode, Extent};
use bearing_proto::grant::ReadRights;
use bearing_types::{Attributes, Mono, NodeId, Version};
use std::ops::Range;

/// Extents gathered for one read, all below `next`.
pub(crate) struct Gathered {
    pub version: Option<Version>,
    pub next: u64,
    pub extents: Vec<Stored>,
}

/// How far a search got with what is known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Found(u64),
    /// Nothing of the kind is in the rest of the file.
    Nowhere,
    /// Not before here, and from here on nothing is known.
    Unknown(u64),
}

/// A part of a file's extents as a server told it.
pub(crate) struct Page<'a> {
    pub version: Version,
    pub size: u64,
    pub offset: u64,
    pub extents: &'a [Extent],
    pub complete: bool,
    /// The rights to read them, if they may be read.
    pub reads: Option<&'a ReadRights>,
}

impl Page<'_> {
    /// The extents with the right to read each.
    fn stored(&self) -> Vec<Stored> {
        let right = |number: usize, extent: &Extent| {
            let reads = self.reads?;
            Some(ReadRight::new(extent, reads.expires, *reads.macs.get(number)?))
        };
        let stored = |(number, extent): (usize, &Extent)| {
            let right = right(number, extent);
            Stored { extent: *extent, right }
        };
        self.extents.iter().enumerate().map(stored).collect()
    }
}

impl Files {
    /// Where the bytes of a file lie has to be asked for again.
    pub fn forget_extents(&mut self, node: NodeId) {
        self.extents.remove(&node);
    }

    /// The file was cut (or lengthened) at the server.
    pub fn truncated(&mut self, node: NodeId, size: u64) {
        self.extents.remove(&node);
        if let Some(file) = self.files.get_mut(&node) {
            file.attributes.size = size;
            file.written_end = file.end_of_placed();
        }
    }

    /// A page of extents came.
    pub fn on_extents(&mut self, node: NodeId, page: Page<'_>, sent: Mono) {
        if let Some(file) = self.files.get_mut(&node)
            && page.version > file.attributes.version
        {
            file.attributes.version = page.version;
            file.attributes.size = page.size;
            file.validated = file.validated.max(sent);
        }
        let known = self.extents.get(&node).filter(|map| map.version() == page.version);
        let mut map = match known {
            Some(map) if map.count() < self.extents_per_file_max => {
                map.add_page(page.offset, &page.stored(), page.complete);
                return;
            }
            Some(_) | None => ExtentMap::unknown(page.version, page.size),
        };
        map.add_page(page.offset, &page.stored(), page.complete);
        self.extents.insert(node, map);
    }

    /// Extents of our own became part of the file, and nothing else did if the version grew by one.
    pub fn committed(&mut self, node: NodeId, extents: &[Extent], attributes: &Attributes) {
        let follows = |map: &&mut ExtentMap| map.version().next() == attributes.version;
        match self.extents.get(&node).filter(follows) {
            Some(map) => {
                for extent in extents {
                    map.cover(*extent);
                }
                map.advance(attributes.version, attributes.size);
            }
            None => drop(self.extents.remove(&node)),
        }
    }

    /// Gathers what is known from where it stands on. Whether that is all; begins again when the file has
    /// another version than before.
    pub fn gather_extents(&mut self, node: NodeId, range: &Range<u64>, gathered: &mut Gathered) -> bool {
        let Some(file) = self.files.get(&node) else { return true };
        let (version, stored) = (file.attributes.version, file.attributes.size);
        let end = range.end.min(stored);
        if range.start >= end {
            return true;
        }
        let Some(map) = self.extents.get(&node).filter(|map| version <= map.version()) else {
            return false;
        };
        if gathered.version != Some(map.version()) {
            *gathered = Gathered { version: Some(map.version()), next: range.start, extents: Vec::new() };
        }
        let known = map.first_unknown(gathered.next..end).unwrap_or(end);
        gathered.extents.extend(map.parts(gathered.next..known.min(map.size())));
        gathered.next = known;
        known >= end
    }

    /// Whether extents from there on are of a kind, and whether that is all that is asked for: they are, or
    /// the file ends. `None`: nothing is known. Moves on to what is not known.
    pub fn refers(
        &mut self,
        node: NodeId,
        next: &mut u64,
        which: impl Fn(&Extent) -> bool,
    ) -> Option<(bool, bool)> {
        let map = self.extents.get(&node)?;
        let known = map.first_unknown(*next..map.size()).unwrap_or(map.size());
        let refers = map.parts(*next..known).any(|part| which(&part.extent));
        let through = refers || known >= map.size();
        // A page of an older version than what is known by now is not taken.
        *next = known.max(*next);
        Some((refers, through))
    }

    /// The length of a file at its home, as last seen.
    pub fn stored_size(&self, node: NodeId) -> u64 {
        self.files.get(&node).map_or(0, |file| file.attributes.size)
    }

    /// Size and extents have to be asked for again.
    pub fn unknown_again(&mut self, node: NodeId, mode: CommitMode, size_min: u64) {
        self.extents.remove(&node);
        if let Some(file) = self.files.get_mut(&node) {
            file.attributes.size = match mode {
                CommitMode::Put => file.size().max(size_min),
                CommitMode::Append => file.attributes.size.saturating_add(size_min),
            };
            file.validated = Mono::ZERO;
        }
        if mode == CommitMode::Append {
            self.count_appended(node, size_min);
        }
    }

    /// How many bytes of a range may be without stored bytes: all beyond the end, and before it as many as
    /// the file has holes.
    pub fn missing(&self, node: NodeId, range: &Range<u64>) -> u64 {
        let Some(file) = self.files.get(&node) else { return 0 };
        let (size, space) = (file.attributes.size, file.attributes.space);
        let beyond = range.end.saturating_sub(range.start.max(size));
        let before = range.end.min(size).saturating_sub(range.start);
        beyond + before.min(size.saturating_sub(space))
    }

    /// Looks on for stored bytes, or a hole, from there.
    pub fn seek_step(&mut self, node: NodeId, from: u64, target: SeekTarget) -> Step {
        let Some(file) = self.files.get(&node) else { return Step::Nowhere };
        let (version, size) = (file.attributes.version, file.attributes.size);
        if from >= size {
            return Step::Nowhere;
        }
        let Some(map) = self.extents.get(&node).filter(|map| version <= map.version()) else {
            return Step::Unknown(from);
        };
        let known = map.first_unknown(from..size).unwrap_or(size);
        let mut parts = map.parts(from..known);
        match target {
            SeekTarget::Data => match parts.next() {
                Some(part) => Step::Found(part.extent.file_offset),
                None if known < size => Step::Unknown(known),
                None => Step::Nowhere,
            },
            SeekTarget::Hole => {
                let mut end = from;
                for part in parts.map(|stored| stored.extent) {
                    if part.file_offset > end {
                        break;
                    }
                    end = end_of(&part);
                }
                // Where the last known bytes end and nothing more is known, there may be more.
                if end < known || known == size { Step::Found(end.min(size)) } else { Step::Unknown(known) }
            }
        }
    }
}
