//! One file of which something is open, buffered or on its way.

use super::dirty::Runs;
use super::rights::OpenFor;
use crate::run::Gate;
use bearing_proto::client::Handle;
use bearing_types::{Attributes, ChunkId, Code, Mono, SetIds, Wall};
use std::collections::BTreeMap;

/// What is buffered of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buffered {
    /// Bytes that have their offsets.
    Placed,
    /// Bytes for the end of the file, wherever that will be. Their offsets only say how they follow each
    /// other; what was one write lies in one run.
    Appended,
}

/// A file of which something is open, buffered or on its way.
pub(crate) struct File {
    pub(super) handle: Handle,
    pub(super) opens: u32,
    pub(super) open_for: OpenFor,
    /// As last seen at the server.
    pub(super) attributes: Attributes,
    /// When that was asked for.
    pub(super) validated: Mono,
    /// Of what kind `dirty` and `flushing` are.
    pub(super) buffered: Buffered,
    pub(super) dirty: Runs,
    pub(super) flushing: Runs,
    /// How many of the bytes in `flushing` are appended already.
    pub(super) appended: u64,
    /// The end of the furthest placed write that is not committed.
    pub(super) written_end: Option<u64>,
    pub(super) modified: Wall,
    /// What becomes of the set-user-id and set-group-id bits when what is dirty is committed.
    pub(super) set_ids: SetIds,
    /// Chunks with frames of this file that are committed but were not synced, and where the last of these
    /// frames ends.
    pub(super) unsynced: BTreeMap<ChunkId, u64>,
    /// There may be more such chunks, among those of which nobody remembers whose frames they have.
    pub(super) unsynced_unknown: bool,
    pub(super) losses: Losses,
    /// One write-out at a time.
    pub(super) gate: Gate,
    pub(super) writeout_planned: bool,
    /// The server keeps the node for us after its last link went.
    pub(super) release_due: bool,
}

/// What a file has lost of what was written to it. As with Linux's own filesystems each sync of each open
/// file tells of a loss once.
#[derive(Debug, Default)]
pub(super) struct Losses {
    pub(super) count: u64,
    /// Why, the last time.
    pub(super) code: Option<Code>,
    /// Somebody was told of the last one. Otherwise who opens the file next is.
    pub(super) told: bool,
    /// Of so many a sync of everything has told.
    pub(super) told_by_all: u64,
}

impl Losses {
    pub fn note(&mut self, code: Code) {
        (self.count, self.code, self.told) = (self.count + 1, Some(code), false);
    }

    /// A sync of everything tells of those that nobody was told of, once.
    pub fn tell_all(&mut self) -> Result<(), Code> {
        let news = self.is_untold() && self.count > self.told_by_all;
        self.told_by_all = self.count;
        self.code.filter(|_| news).map_or(Ok(()), Err)
    }

    /// There is one that nobody was told of.
    pub fn is_untold(&self) -> bool {
        self.count > 0 && !self.told
    }

    /// How many losses are no news for a file that is opened now.
    pub fn known(&self) -> u64 {
        if self.told { self.count } else { self.count.saturating_sub(1) }
    }

    /// Tells whoever was told of so many.
    pub fn tell(&mut self, told: u64) -> Result<(), Code> {
        match self.code {
            Some(code) if self.count > told => {
                self.told = true;
                Err(code)
            }
            _ => Ok(()),
        }
    }
}

impl File {
    /// One of which nothing is open, buffered or unsynced.
    pub fn new(handle: Handle, attributes: Attributes) -> File {
        File {
            handle,
            opens: 0,
            open_for: OpenFor::default(),
            attributes,
            validated: Mono::ZERO,
            buffered: Buffered::Placed,
            dirty: Runs::default(),
            flushing: Runs::default(),
            appended: 0,
            written_end: None,
            modified: Wall(0),
            set_ids: SetIds::Keep,
            unsynced: BTreeMap::new(),
            unsynced_unknown: false,
            losses: Losses::default(),
            gate: Gate::default(),
            writeout_planned: false,
            release_due: false,
        }
    }

    /// Its length with our own writes, as far as can be known.
    pub fn size(&self) -> u64 {
        self.size_over(self.attributes.size)
    }

    /// The same over another length at the server.
    pub fn size_over(&self, stored: u64) -> u64 {
        match self.buffered {
            Buffered::Placed => stored.max(self.written_end.unwrap_or(0)),
            Buffered::Appended => stored.saturating_add(self.buffered_bytes() as u64 - self.appended),
        }
    }

    /// The length up to which it is known where the bytes lie.
    pub fn placed_size(&self) -> u64 {
        match self.buffered {
            Buffered::Placed => self.size(),
            Buffered::Appended => self.attributes.size,
        }
    }

    /// The end of what is buffered and has its place.
    pub fn end_of_placed(&self) -> Option<u64> {
        match self.buffered {
            Buffered::Placed => self.dirty.end().max(self.flushing.end()),
            Buffered::Appended => None,
        }
    }

    /// Whether a change of its content changes its mode too, as far as is known.
    pub fn is_changed_by(&self, set_ids: SetIds) -> bool {
        set_ids.applied(self.attributes.mode, self.attributes.gid) != self.attributes.mode
    }

    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty() || !self.flushing.is_empty()
    }

    pub fn is_unused(&self) -> bool {
        self.opens == 0 && !self.is_dirty() && !self.gate.is_held()
    }

    pub fn buffered_bytes(&self) -> usize {
        self.dirty.bytes() + self.flushing.bytes()
    }
}
