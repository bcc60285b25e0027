//! Open files: own writes that are not stored yet, and what is known of stored content.
//!
//! Invariants: all open files of one node share one state, so each sees the others' writes; bytes are in
//! `dirty`, then in `flushing`, then in the extents, and reads put them over each other in that order; a
//! failed write-out is reported once. Buffers are bounded: beyond the bound a write waits until something was
//! written out.
//!
//! What is buffered of a file has its places, or is to be appended, never both: the one is written out before
//! the other begins. Where appended bytes will lie only the file's home knows, when it commits them: until
//! then nobody reads them here, they are only counted.

use super::accesses::Accesses;
use super::extents::ExtentMap;
use super::file::File;
use super::left::LeftBehind;
use super::open::{Left, Open, Opening, Releasing};
use crate::config::ClientConfig;
use crate::operation::OpenFile;
use crate::run::Promise;
use crate::tables::Bounded;
use bearing_proto::client::Handle;
use bearing_proto::grant::OpenToken;
use bearing_types::{Attributes, Block, Code, Mono, NodeId, SetIds, Wall};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How far written bytes shall get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stability {
    /// Others see them when they open the file.
    Visible,
    /// They survive a power cut too.
    Stable,
}

/// See the module.
pub(crate) struct Files {
    /// Nodes that are being opened: they count as open, because the server may have opened them already.
    pub(super) opening: BTreeMap<NodeId, Opening>,
    pub(super) opens: BTreeMap<OpenFile, Open>,
    /// Files that were open in a session before this one, and were not used since.
    pub(super) left: BTreeMap<OpenFile, Left>,
    pub(super) files: BTreeMap<NodeId, File>,
    pub(super) extents: Bounded<NodeId, ExtentMap>,
    pub(super) left_behind: LeftBehind,
    pub(super) buffered_bytes: usize,
    pub(super) waiting_for_room: Vec<Promise<()>>,
    pub(super) next_open: u64,
    /// Unlinked files that the server was told we have open no more, until it has answered.
    pub(super) releasing: BTreeMap<NodeId, Releasing>,
    pub(super) extents_per_file_max: usize,
    pub(super) accesses: Accesses,
}

impl Files {
    pub fn new(config: &ClientConfig) -> Files {
        Files {
            opening: BTreeMap::new(),
            opens: BTreeMap::new(),
            left: BTreeMap::new(),
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

    /// Whether a file of this node is open, and not only being opened.
    pub fn is_opened(&self, node: NodeId) -> bool {
        self.opened_handle(node).is_some()
    }

    /// What finds the node of a file that is open, and not only being opened.
    pub fn opened_handle(&self, node: NodeId) -> Option<Handle> {
        self.files.get(&node).filter(|file| file.opens > 0).map(|file| file.handle)
    }

    /// Whether anything is open or buffered of a file.
    pub fn is_known(&self, node: NodeId) -> bool {
        self.files.contains_key(&node)
    }

    /// All files of which something is open or buffered.
    pub fn known(&self) -> Vec<NodeId> {
        self.files.keys().copied().collect()
    }

    /// Whether something of a file is buffered.
    pub fn is_dirty(&self, node: NodeId) -> bool {
        self.files.get(&node).is_some_and(File::is_dirty)
    }

    /// Whether a change of a file's content changes its mode too, as far as is known.
    pub fn is_changed_by(&self, node: NodeId, set_ids: SetIds) -> bool {
        self.files.get(&node).is_some_and(|file| file.is_changed_by(set_ids))
    }

    /// A file whose attributes were not seen for so long.
    pub fn not_validated(&self, node: NodeId, now: Mono, lateness: Duration) -> Option<Handle> {
        let file = self.files.get(&node)?;
        let young = now.since(file.validated) <= lateness && file.validated > Mono::ZERO;
        (!young).then_some(file.handle)
    }

    /// An open file is read. Whether somebody has to plan to tell its home.
    pub fn note_access(&mut self, node: NodeId, now: Wall) -> bool {
        let file = self.files.get(&node).filter(|file| file.attributes.notes_access(now));
        file.is_some_and(|file| self.accesses.note(file.handle, now))
    }

    /// The time has come to tell of what was read.
    pub fn begin_telling_accesses(&mut self) {
        self.accesses.begin_telling();
    }

    /// Files that were read, of which their homes are told now.
    pub fn take_accesses(&mut self) -> Vec<(Handle, Wall)> {
        let noted = self.accesses.take();
        for (handle, at) in &noted {
            if let Some(file) = self.files.get_mut(&handle.node) {
                file.attributes.accessed = file.attributes.accessed.max(*at);
            }
        }
        noted
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

    /// The right to write a file that somebody has open for writing.
    pub fn write_token(&self, node: NodeId) -> Option<OpenToken> {
        self.files.get(&node)?.open_for.write()
    }

    /// What finds the node of an open file.
    pub fn handle(&self, node: NodeId) -> Option<Handle> {
        self.files.get(&node).map(|file| file.handle)
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

    /// A server was told that the file is open, and may keep the node for us: it is told again when the last
    /// open file closes.
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

    /// Drops a file of which nothing is open or buffered; remembers what it left unsynced, and what it
    /// lost unnoticed.
    pub fn drop_unused(&mut self, node: NodeId) {
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
}
