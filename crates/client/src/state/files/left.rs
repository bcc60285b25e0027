//! What closed files left behind: bytes that are not stable, and losses that nobody was told of.
//!
//! A bounded number of files is remembered one by one. Of more it is only known in which chunks their bytes
//! lie: whoever opens a file then asks its home whether it refers to what these have lost, and a sync of
//! everything takes whatever these have lost for theirs.

use super::file::File;
use super::rights::OpenFor;
use crate::tables::Bounded;
use bearing_proto::client::Handle;
use bearing_proto::grant::OpenToken;
use bearing_types::{Attributes, ChunkId, Code, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
pub(super) struct LeftBehind {
    files_max: usize,
    unsynced: Bounded<NodeId, Unsynced>,
    /// Chunks with unsynced bytes of files of which that is not remembered. Whether a sync of everything has
    /// told what they lost.
    unknown: BTreeMap<ChunkId, bool>,
    /// Files that lost something, which whoever opens them next is told.
    lost: BTreeSet<NodeId>,
    /// Every other file may have lost something too, but for these: they are new, or somebody was told.
    lost_unknown: Option<Bounded<NodeId, ()>>,
    /// Something was lost of which no sync of everything has told.
    untold: bool,
}

/// What a closed file left unsynced, and what finds it again and admits to it.
pub(super) struct Unsynced {
    pub handle: Handle,
    pub open_for: OpenFor,
    pub attributes: Attributes,
    pub chunks: BTreeMap<ChunkId, u64>,
}

impl LeftBehind {
    pub fn new(files_max: usize) -> LeftBehind {
        LeftBehind {
            files_max,
            unsynced: Bounded::new(files_max),
            unknown: BTreeMap::new(),
            lost: BTreeSet::new(),
            lost_unknown: None,
            untold: false,
        }
    }

    /// A file is closed with something unsynced.
    pub fn note_unsynced(&mut self, file: File) {
        let File { handle, open_for, attributes, unsynced: chunks, .. } = file;
        let left = Unsynced { handle, open_for, attributes, chunks };
        if let Some((_, gone)) = self.unsynced.insert(handle.node, left) {
            for chunk in gone.chunks.into_keys() {
                self.unknown.entry(chunk).or_insert(false);
            }
        }
    }

    /// A closed file lost something, and nobody was told.
    pub fn note_lost(&mut self, node: NodeId) {
        self.untold = true;
        self.lost.insert(node);
        self.bound_lost();
    }

    fn bound_lost(&mut self) {
        while self.lost.len() > self.files_max {
            self.lost.pop_first();
            self.lost_unknown = Some(Bounded::new(self.files_max));
        }
    }

    /// A file is opened: whether it lost something that nobody was told of.
    pub fn take_lost(&mut self, node: NodeId) -> bool {
        let may_have = self.lost_unknown.as_mut().is_some_and(|told| {
            let news = told.get(&node).is_none();
            told.insert(node, ());
            news
        });
        self.lost.remove(&node) || may_have
    }

    /// A file is new: it has lost nothing.
    pub fn note_new(&mut self, node: NodeId) {
        if let Some(told) = &mut self.lost_unknown {
            told.insert(node, ());
        }
    }

    /// A file is no more, so nothing of it can be lost.
    pub fn forget(&mut self, node: NodeId) {
        self.unsynced.remove(&node);
        self.lost.remove(&node);
    }

    /// A closed file that was made here is at its home now.
    pub fn on_token(&mut self, node: NodeId, token: OpenToken) {
        if let Some(left) = self.unsynced.get(&node) {
            left.open_for.on_token(token);
        }
    }

    /// Of all other chunks everything is stable.
    pub fn retain_chunks(&mut self, keeps: impl Fn(ChunkId) -> bool) {
        let nodes: Vec<NodeId> = self.unsynced.iter().map(|(node, _)| *node).collect();
        for node in nodes {
            let Some(left) = self.unsynced.get(&node) else { continue };
            left.chunks.retain(|chunk, _| keeps(*chunk));
            if left.chunks.is_empty() {
                self.unsynced.remove(&node);
            }
        }
        self.unknown.retain(|chunk, _| keeps(*chunk));
    }

    /// The next sync of everything is to tell of what was lost although one has told of it.
    pub fn tell_again(&mut self) {
        self.untold = true;
    }

    /// The files that left something unsynced.
    pub fn unsynced(&self) -> Vec<NodeId> {
        self.unsynced.iter().map(|(node, _)| *node).collect()
    }

    /// What a file left unsynced when it was closed is an open file's again.
    pub fn take_unsynced(&mut self, node: NodeId) -> Option<Unsynced> {
        self.unsynced.remove(&node)
    }

    pub fn is_unsynced_in(&self, chunk: ChunkId) -> bool {
        self.unknown.contains_key(&chunk)
            || self.unsynced.iter().any(|(_, left)| left.chunks.contains_key(&chunk))
    }

    /// Chunks with unsynced bytes of files that nobody remembers.
    pub fn unknown(&self) -> impl Iterator<Item = ChunkId> + '_ {
        self.unknown.keys().copied()
    }

    /// Takes over what stays of the session before, in which these files had something that was not stable.
    pub fn follow(&mut self, before: LeftBehind, unstable: impl Iterator<Item = NodeId>) {
        self.lost = before.lost;
        let had = self.lost.len();
        self.lost.extend(before.unsynced.iter().map(|(node, _)| *node).chain(unstable));
        self.untold = before.untold || self.lost.len() > had || !before.unknown.is_empty();
        self.lost_unknown = match before.unknown.is_empty() {
            true => before.lost_unknown,
            false => Some(Bounded::new(self.files_max)),
        };
        self.bound_lost();
    }

    /// A sync of everything is over: tells of what was lost, once. `has_lost` says whether a chunk is sealed
    /// without some of what was appended.
    pub fn tell(&mut self, has_lost: impl Fn(ChunkId) -> bool) -> Result<(), Code> {
        for (chunk, told) in &mut self.unknown {
            if !*told && has_lost(*chunk) {
                (*told, self.untold) = (true, true);
            }
        }
        if std::mem::take(&mut self.untold) { Err(Code::Io) } else { Ok(()) }
    }
}
