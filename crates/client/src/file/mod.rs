//! Open files: own writes that are not stored yet, and what is known of stored content.
//!
//! Invariants: all open files of one node share one state, so each sees the others' writes; bytes are in `dirty`, then in `flushing`, then in the
//! extents, and reads put them over each other in that order; a failed write-out is reported once. Buffers are bounded: beyond the bound
//! a write waits until something was written out.
//!
//! What is buffered of a file has its places, or is to be appended, never both: the one is written out before the other begins. Where
//! appended bytes will lie only the file's home knows, when it commits them: until then nobody reads them here, they are only counted.

mod access;
mod again;
pub(crate) mod chunk;
mod copy;
pub(crate) mod data_request;
mod dirty;
pub(crate) mod extents;
mod flush;
mod holes;
mod left;
pub(crate) mod open;
mod read;
mod renew;
mod rights;
mod write;

use crate::again::Left;
use crate::bounded::Bounded;
use crate::config::ClientConfig;
use crate::operation::OpenFile;
use crate::task::{Gate, Promise};
use access::Accesses;
use bearing_proto::client::{Extent, Handle};
use bearing_proto::grant::{OpenToken, ReadRights};
use bearing_types::{Attributes, Block, ChunkId, Code, Credentials, Mono, NodeId, SetIds, Version, Wall};
use dirty::Runs;
use extents::{ExtentMap, ReadRight, Stored};
use left::LeftBehind;
use renew::Renewals;
use rights::OpenFor;
use std::collections::{BTreeMap, BTreeSet};

/// How far written bytes shall get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stability {
    /// Others see them when they open the file.
    Visible,
    /// They survive a power cut too.
    Stable,
}

/// What is buffered of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buffered {
    /// Bytes that have their offsets.
    Placed,
    /// Bytes for the end of the file, wherever that will be. Their offsets only say how they follow each other; what was one write lies in
    /// one run.
    Appended,
}

/// A file of which something is open, buffered or on its way.
pub(crate) struct File {
    handle: Handle,
    opens: u32,
    open_for: OpenFor,
    /// As last seen at the server.
    attributes: Attributes,
    /// When that was asked for.
    validated: Mono,
    /// Of what kind `dirty` and `flushing` are.
    buffered: Buffered,
    dirty: Runs,
    flushing: Runs,
    /// How many of the bytes in `flushing` are appended already.
    appended: u64,
    /// The end of the furthest placed write that is not committed.
    written_end: Option<u64>,
    modified: Wall,
    /// What becomes of the set-user-id and set-group-id bits when what is dirty is committed.
    set_ids: SetIds,
    /// Chunks with frames of this file that are committed but were not synced, and where the last of these frames ends.
    unsynced: BTreeMap<ChunkId, u64>,
    /// There may be more such chunks, among those of which nobody remembers whose frames they have.
    unsynced_unknown: bool,
    losses: Losses,
    /// One write-out at a time.
    gate: Gate,
    writeout_planned: bool,
    /// The server keeps the node for us after its last link went.
    release_due: bool,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    node: NodeId,
    read: bool,
    write: bool,
    /// It was opened to be executed, which needs no right to read it.
    execute: bool,
    /// How many losses of the file its syncs and its flushes have told of. A flush tells somebody else, such as a child process whose end closes what it was
    /// given: whoever syncs has to hear of the same loss.
    told_by_sync: u64,
    told_by_flush: u64,
}

/// What a file has lost of what was written to it. As with Linux's own filesystems each sync of each open file tells of a loss once.
#[derive(Debug, Default)]
struct Losses {
    count: u64,
    /// Why, the last time.
    code: Option<Code>,
    /// Somebody was told of the last one. Otherwise who opens the file next is.
    told: bool,
}

impl Losses {
    fn note(&mut self, code: Code) {
        *self = Losses { count: self.count + 1, code: Some(code), told: false };
    }

    /// There is one that nobody was told of.
    fn is_untold(&self) -> bool {
        self.count > 0 && !self.told
    }

    /// How many losses are no news for a file that is opened now.
    fn known(&self) -> u64 {
        if self.told { self.count } else { self.count.saturating_sub(1) }
    }

    /// Tells whoever was told of so many.
    fn tell(&mut self, told: u64) -> Result<(), Code> {
        match self.code {
            Some(code) if self.count > told => {
                self.told = true;
                Err(code)
            }
            _ => Ok(()),
        }
    }
}

#[derive(Debug)]
struct Opening {
    handle: Handle,
    count: u32,
    release_due: bool,
}

/// Releases under way, and who wants to open the file again.
#[derive(Default)]
struct Releasing {
    count: u32,
    waiting: Vec<Promise<()>>,
}

/// See the module.
pub(crate) struct Files {
    /// Nodes that are being opened: they count as open, because the server may have opened them already.
    opening: BTreeMap<NodeId, Opening>,
    opens: BTreeMap<OpenFile, Open>,
    /// As whom they are opened again if the session is lost.
    openers: BTreeMap<OpenFile, Credentials>,
    /// Files that were open in a session before this one, and were not used since.
    left: BTreeMap<OpenFile, Left>,
    renewals: Renewals,
    files: BTreeMap<NodeId, File>,
    extents: Bounded<NodeId, ExtentMap>,
    left_behind: LeftBehind,
    buffered_bytes: usize,
    waiting_for_room: Vec<Promise<()>>,
    next_open: u64,
    /// Unlinked files that the server was told we have open no more, until it has answered.
    releasing: BTreeMap<NodeId, Releasing>,
    extents_per_file_max: usize,
    accesses: Accesses,
}

impl File {
    /// One of which nothing is open, buffered or unsynced.
    fn new(handle: Handle, attributes: Attributes) -> File {
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
    fn size(&self) -> u64 {
        self.size_over(self.attributes.size)
    }

    /// The same over another length at the server.
    fn size_over(&self, stored: u64) -> u64 {
        match self.buffered {
            Buffered::Placed => stored.max(self.written_end.unwrap_or(0)),
            Buffered::Appended => stored.saturating_add(self.buffered_bytes() as u64 - self.appended),
        }
    }

    /// The length up to which it is known where the bytes lie.
    fn placed_size(&self) -> u64 {
        match self.buffered {
            Buffered::Placed => self.size(),
            Buffered::Appended => self.attributes.size,
        }
    }

    /// The end of what is buffered and has its place.
    fn end_of_placed(&self) -> Option<u64> {
        match self.buffered {
            Buffered::Placed => self.dirty.end().max(self.flushing.end()),
            Buffered::Appended => None,
        }
    }

    /// Whether a change of its content changes its mode too, as far as is known.
    fn is_changed_by(&self, set_ids: SetIds) -> bool {
        set_ids.applied(self.attributes.mode, self.attributes.gid) != self.attributes.mode
    }

    fn is_dirty(&self) -> bool {
        !self.dirty.is_empty() || !self.flushing.is_empty()
    }

    fn is_unused(&self) -> bool {
        self.opens == 0 && !self.is_dirty() && !self.gate.is_held()
    }

    fn buffered_bytes(&self) -> usize {
        self.dirty.bytes() + self.flushing.bytes()
    }
}

impl Files {
    pub fn new(config: &ClientConfig) -> Files {
        Files {
            opening: BTreeMap::new(),
            opens: BTreeMap::new(),
            openers: BTreeMap::new(),
            left: BTreeMap::new(),
            renewals: Renewals::default(),
            files: BTreeMap::new(),
            extents: Bounded::new(config.extent_files_max),
            left_behind: LeftBehind::new(config.closed_files_max),
            buffered_bytes: 0,
            waiting_for_room: Vec::new(),
            next_open: 1,
            releasing: BTreeMap::new(),
            extents_per_file_max: config.extents_per_file_max,
            accesses: Accesses::default(),
        }
    }

    pub fn is_open(&self, node: NodeId) -> bool {
        self.opening.contains_key(&node) || self.files.get(&node).is_some_and(|file| file.opens > 0)
    }

    /// Whether anything is known of a file beyond its attributes.
    pub fn is_in_use(&self, node: NodeId) -> bool {
        self.opening.contains_key(&node)
            || self.releasing.contains_key(&node)
            || self.files.contains_key(&node)
    }

    /// Files with something buffered.
    pub fn dirty(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.files.iter().filter(|(_, file)| file.is_dirty()).map(|(node, _)| *node)
    }

    /// The open files whose homes lie in a block.
    pub fn open_in(&self, block: Block) -> Vec<NodeId> {
        let open = self.files.iter().filter(|(_, file)| file.opens > 0);
        let open = open.map(|(node, file)| (*node, file.handle.home));
        let opening = self.opening.iter().map(|(node, opening)| (*node, opening.handle.home));
        let inside: BTreeSet<_> =
            open.chain(opening).filter(|(_, home)| block.contains(*home)).map(|(node, _)| node).collect();
        inside.into_iter().collect()
    }

    /// A flush or a sync of an open file is over: tells it of losses that it has not heard of.
    pub fn tell_losses(&mut self, file: OpenFile, stability: Stability) -> Result<(), Code> {
        let Some(open) = self.opens.get_mut(&file) else { return Ok(()) };
        let Some(file) = self.files.get_mut(&open.node) else { return Ok(()) };
        let told = match stability {
            Stability::Visible => open.told_by_flush.max(open.told_by_sync),
            Stability::Stable => open.told_by_sync,
        };
        open.told_by_flush = file.losses.count;
        if stability == Stability::Stable {
            open.told_by_sync = file.losses.count;
        }
        file.losses.tell(told)
    }

    /// The right to write that came with an open file.
    pub fn token(&self, file: OpenFile) -> Option<OpenToken> {
        let open = self.opens.get(&file).filter(|open| open.write)?;
        self.files.get(&open.node)?.open_for.write()
    }

    /// What finds the node of an open file.
    fn handle(&self, node: NodeId) -> Option<Handle> {
        self.files.get(&node).map(|file| file.handle)
    }

    /// Where the bytes of a file lie has to be asked for again.
    fn forget_extents(&mut self, node: NodeId) {
        self.extents.remove(&node);
    }

    /// A recall was answered with "open".
    pub fn recalled(&mut self, node: NodeId) {
        self.told_open(node);
        self.doubt(node);
    }

    /// What is cached of an open file is checked before the next read.
    pub fn doubt(&mut self, node: NodeId) {
        if let Some(file) = self.files.get_mut(&node) {
            file.validated = Mono::ZERO;
        }
    }

    /// A server was told that the file is open, and may keep the node for us: it is told again when the last open file closes.
    pub fn told_open(&mut self, node: NodeId) {
        if let Some(opening) = self.opening.get_mut(&node) {
            opening.release_due = true;
        }
        if let Some(file) = self.files.get_mut(&node) {
            file.release_due |= file.opens > 0;
        }
    }

    /// A name of the node is about to go. Whether the node has to be kept for us.
    pub fn name_goes(&mut self, node: NodeId) -> bool {
        self.told_open(node);
        self.is_open(node)
    }

    /// Somebody says what a file's time of access shall be.
    pub fn forget_access(&mut self, node: NodeId) {
        self.accesses.forget(node);
    }

    /// Attributes as this client's own writes and reads leave them.
    pub fn overlaid(&self, node: NodeId, mut attributes: Attributes) -> Attributes {
        attributes.accessed =
            self.accesses.of(node).map_or(attributes.accessed, |at| at.max(attributes.accessed));
        match self.files.get(&node) {
            Some(file) if file.is_dirty() => Attributes {
                size: file.size_over(attributes.size),
                modified: attributes.modified.max(file.modified),
                changed: attributes.changed.max(file.modified),
                ..attributes
            },
            Some(_) | None => attributes,
        }
    }

    /// A server told a node's attributes.
    pub fn observe(&mut self, node: NodeId, attributes: &Attributes, sent: Mono) {
        if let Some(file) = self.files.get_mut(&node)
            && attributes.version >= file.attributes.version
        {
            file.attributes = *attributes;
            file.validated = file.validated.max(sent);
        }
        if self.extents.peek(&node).is_some_and(|map| map.version() < attributes.version) {
            self.extents.remove(&node);
        }
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
    fn take_extents(&mut self, node: NodeId, page: Page<'_>, sent: Mono) {
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
    fn committed(&mut self, node: NodeId, extents: &[Extent], attributes: &Attributes) {
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

    /// Lets go of a file of which nothing is open or buffered; remembers what it left unsynced, and what it lost
    /// unnoticed.
    fn drop_unused(&mut self, node: NodeId) {
        if !self.files.get(&node).is_some_and(File::is_unused) {
            return;
        }
        let Some(file) = self.files.remove(&node) else { return };
        if file.losses.is_untold() {
            self.left_behind.note_lost(node);
        }
        if !file.unsynced.is_empty() {
            self.left_behind.note_unsynced(file);
        }
    }

    /// Open files in which something that lies in a chunk was not synced.
    fn unsynced_in(&self, chunk: ChunkId) -> Vec<NodeId> {
        let files = self.files.iter().filter(|(_, file)| file.unsynced.contains_key(&chunk));
        files.map(|(node, _)| *node).collect()
    }

    /// What a file has in a chunk is stable.
    fn synced_in(&mut self, node: NodeId, chunk: ChunkId) {
        if let Some(file) = self.files.get_mut(&node) {
            file.unsynced.remove(&chunk);
        }
    }

    /// Whether anything was not synced in a chunk, also of files that are closed.
    fn is_unsynced_anywhere(&self, chunk: ChunkId) -> bool {
        self.files.values().any(|file| file.unsynced.contains_key(&chunk))
            || self.left_behind.is_unsynced_in(chunk)
    }

    /// Buffers shrank: whoever waits for room looks again.
    fn made_room(&mut self) {
        for promise in self.waiting_for_room.drain(..) {
            promise.keep(());
        }
    }
}

/// A part of a file's extents as a server told it.
struct Page<'a> {
    version: Version,
    size: u64,
    offset: u64,
    extents: &'a [Extent],
    complete: bool,
    /// The rights to read them, if they may be read.
    reads: Option<&'a ReadRights>,
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
