//! What is written and not stored yet: buffering, and handing it over to be written out.

use super::dirty::Runs;
use super::extents::Stored;
use super::file::{Buffered, File};
use super::table::Files;
use crate::config::ClientConfig;
use crate::run::{Awaited, promise};
use bearing_proto::client::{CommitMode, Handle};
use bearing_proto::frame::FrameOwner;
use bearing_proto::rules::FILE_BYTES_MAX;
use bearing_types::{Code, Name, NodeId, SetIds, Wall};
use std::ops::Range;

/// What has to be done about what is buffered.
pub(crate) enum Next {
    Nothing,
    WriteThrough,
    WriteOut,
    WriteOutLater,
}

/// What is being written out of one file.
pub(crate) struct Job {
    pub handle: Handle,
    pub mode: CommitMode,
    pub pieces: Vec<Piece>,
    pub size_min: u64,
    pub modified: Wall,
    pub set_ids: SetIds,
    /// There was more than goes with one commit.
    pub is_part: bool,
}

/// What goes into one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Its place in the file.
    pub range: Range<u64>,
    /// Where its bytes are stored; `None`: they are in the file's `flushing`.
    pub stored: Option<Stored>,
}

impl Files {
    /// Puts bytes into the buffer.
    pub fn buffer(
        &mut self,
        node: NodeId,
        offset: Option<u64>,
        bytes: Vec<u8>,
        set_ids: SetIds,
        (now, write_out_bytes): (Wall, usize),
    ) -> Result<Next, Code> {
        let file = self.files.get_mut(&node).ok_or(Code::InvalidArgument)?;
        let end = offset.unwrap_or_else(|| file.size()).checked_add(bytes.len() as u64);
        let end = end.filter(|end| *end <= FILE_BYTES_MAX).ok_or(Code::TooLarge)?;
        if bytes.is_empty() {
            return Ok(Next::Nothing);
        }
        let before = file.dirty.bytes();
        match offset {
            Some(offset) => {
                file.buffered = Buffered::Placed;
                file.dirty.write(offset, bytes);
                file.written_end = file.written_end.max(Some(end));
            }
            None => {
                file.buffered = Buffered::Appended;
                file.dirty.write(file.dirty.end().unwrap_or(0), bytes);
            }
        }
        let grown = file.dirty.bytes() - before;
        file.modified = now;
        file.set_ids = file.set_ids.max(set_ids);
        let clears = file.is_changed_by(set_ids);
        let enough = !file.gate.is_held() && file.dirty.bytes() >= write_out_bytes;
        let next = match enough {
            _ if clears => Next::WriteThrough,
            true => Next::WriteOut,
            false if !std::mem::replace(&mut file.writeout_planned, true) => Next::WriteOutLater,
            false => Next::Nothing,
        };
        self.buffered_bytes += grown;
        Ok(next)
    }

    /// If the buffers are full: what to wait for, and the file to write out meanwhile, unless all that is
    /// full is being written out.
    pub fn wait_for_room(
        &mut self,
        node: NodeId,
        config: &ClientConfig,
    ) -> Option<(Awaited<()>, Option<NodeId>)> {
        let own = self.files.get(&node).map_or(0, File::buffered_bytes);
        let own_full = own > 0 && own >= config.file_buffer_bytes_max;
        let all_full = self.buffered_bytes > 0 && self.buffered_bytes >= config.buffer_bytes_max;
        if !own_full && !all_full {
            return None;
        }
        let idle = |file: &File| !file.gate.is_held() && !file.dirty.is_empty();
        let fullest = if own_full {
            self.files.get(&node).filter(|file| idle(file)).map(|_| node)
        } else {
            let files = self.files.iter().filter(|(_, file)| idle(file));
            files.max_by_key(|(node, file)| (file.dirty.bytes(), **node)).map(|(node, _)| *node)
        };
        let (promise, awaited) = promise();
        self.waiting_for_room.push(promise);
        Some((awaited, fullest))
    }

    /// Buffers shrank: whoever waits for room looks again.
    pub fn made_room(&mut self) {
        for promise in self.waiting_for_room.drain(..) {
            promise.keep(());
        }
    }

    /// The time has come to write a file out that was not written out before. Whether there is anything.
    pub fn begin_writeout(&mut self, node: NodeId) -> bool {
        let Some(file) = self.files.get_mut(&node) else { return false };
        file.writeout_planned = false;
        file.is_dirty()
    }

    /// Whether something of the other kind is buffered, which has to be written out first.
    pub fn holds_other(&self, node: NodeId, kind: Buffered) -> bool {
        self.files.get(&node).is_some_and(|file| file.is_dirty() && file.buffered != kind)
    }

    /// Waits until nobody else writes a file out; `None`: there is none. See [`Gate::enter`].
    pub fn enter_gate(&mut self, node: NodeId) -> Option<Option<Awaited<()>>> {
        self.files.get_mut(&node).map(|file| file.gate.enter())
    }

    pub fn leave_gate(&mut self, node: NodeId) {
        if let Some(file) = self.files.get_mut(&node) {
            file.gate.leave();
        }
    }

    /// Takes what is dirty out of the way of new writes. Nobody else writes the file out meanwhile.
    pub fn begin_flush(&mut self, node: NodeId, extents_max: usize) -> Option<Job> {
        let file = self.files.get_mut(&node)?;
        debug_assert!(file.gate.is_held() && file.flushing.is_empty());
        let mode = match file.buffered {
            Buffered::Placed => CommitMode::Put,
            Buffered::Appended => CommitMode::Append,
        };
        file.flushing = match mode {
            CommitMode::Put => std::mem::take(&mut file.dirty),
            CommitMode::Append => file.dirty.take_first(extents_max),
        };
        let is_part = mode == CommitMode::Append && !file.dirty.is_empty();
        let set_ids = file.set_ids;
        if !is_part {
            file.set_ids = SetIds::Keep;
        }
        Some(Job {
            handle: file.handle,
            mode,
            pieces: file.flushing.pieces().into_iter().map(|range| Piece { range, stored: None }).collect(),
            size_min: file.flushing.end().unwrap_or(0),
            modified: file.modified,
            set_ids,
            is_part,
        })
    }

    /// What was being written out is stored, or lost. Whether anything was lost.
    pub fn end_flush(&mut self, node: NodeId, result: Result<(), Code>) -> Option<Code> {
        let file = self.files.get_mut(&node)?;
        let flushed = std::mem::take(&mut file.flushing);
        let lost = result.err().filter(|_| !flushed.is_empty());
        lost.into_iter().for_each(|code| file.losses.note(code));
        file.appended = 0;
        file.written_end = file.end_of_placed();
        self.buffered_bytes -= flushed.bytes();
        self.made_room();
        lost
    }

    /// The bytes of a piece of what is being written out.
    pub fn flushing(&self, node: NodeId, piece: &Piece) -> impl Iterator<Item = &[u8]> + Clone {
        let file = self.files.get(&node).into_iter();
        file.flat_map(|file| file.flushing.parts(piece.range.clone())).map(|(_, bytes)| bytes)
    }

    /// What the frame of a piece says of its file, which was last seen under this name.
    pub fn frame_owner(
        &self,
        node: NodeId,
        piece: &Piece,
        last_name: Option<&(NodeId, Name)>,
        written: Wall,
    ) -> Option<FrameOwner> {
        let file = self.files.get(&node)?;
        let (parent, name) = match last_name {
            Some((parent, name)) => (*parent, name.as_bytes().to_vec()),
            None => (NodeId(0), Vec::new()),
        };
        let attributes = &file.attributes;
        let start = piece.range.start;
        let is_guess = matches!(file.buffered, Buffered::Appended) && piece.stored.is_none();
        let file_offset = match is_guess {
            // A guess: the home says it when the extent is committed.
            true => {
                let before = start - file.flushing.start().unwrap_or(start);
                attributes.size.saturating_add(before)
            }
            false => start,
        };
        Some(FrameOwner {
            node,
            home: file.handle.home,
            parent,
            name,
            file_offset,
            version: attributes.version,
            mode: attributes.mode,
            uid: attributes.uid,
            gid: attributes.gid,
            written,
            is_guess,
        })
    }

    /// The part of a read that lies in the file, and our own unstored bytes in it.
    pub fn own_bytes(&self, node: NodeId, offset: u64, length: u32) -> (Range<u64>, Vec<(u64, Vec<u8>)>) {
        let end = offset.saturating_add(u64::from(length)).min(self.size_of(node));
        let range = offset..end.max(offset);
        let placed = |file: &&File| file.buffered == Buffered::Placed;
        let Some(file) = self.files.get(&node).filter(placed) else { return (range, Vec::new()) };
        let mut own = Runs::default();
        for (at, bytes) in file.flushing.parts(range.clone()).chain(file.dirty.parts(range.clone())) {
            own.write(at, bytes.to_vec());
        }
        let own = own.parts(range.clone()).map(|(at, bytes)| (at, bytes.to_vec())).collect();
        (range, own)
    }

    pub fn size_of(&self, node: NodeId) -> u64 {
        self.files.get(&node).map_or(0, File::placed_size)
    }

    /// Whether a read goes beyond what is stored, and own bytes are to be appended there.
    pub fn reaches_appended(&self, node: NodeId, offset: u64, length: u32) -> bool {
        self.files.get(&node).is_some_and(|file| {
            let end = offset.saturating_add(u64::from(length));
            file.buffered == Buffered::Appended && file.is_dirty() && end > file.attributes.size
        })
    }

    /// So many bytes more of what is being written out are part of the file.
    pub fn count_appended(&mut self, node: NodeId, bytes: u64) {
        if let Some(file) = self.files.get_mut(&node) {
            file.appended += bytes;
        }
    }
}
