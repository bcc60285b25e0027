//! Copying from file to file: data servers append what they, or others, hold already, and the new frames
//! become part of the file by an ordinary commit. So chunks need not know how many files refer to their
//! bytes.
//!
//! A copy reads the source as it is when the copy begins, with our own writes. It is no more atomic than many
//! writes are: holes are made after the bytes, and what is written to either file meanwhile is in the copy or
//! not.

use super::flush::{Placed, append_right};
use super::read::REREADS_MAX;
use crate::context::Context;
use crate::operation::{Answer, OpenFile};
use crate::state::DataFailure;
use crate::state::files::{Job, Piece, Stability, Stored, end_of};
use bearing_proto::client::{ChunkView, CommitMode, Handle};
use bearing_proto::data::{DataCall, Source};
use bearing_proto::frame;
use bearing_proto::rules::FILE_BYTES_MAX;
use bearing_types::{Code, NodeId, SetIds};
use std::ops::Range;
use std::sync::Arc;

/// What is copied at once: bytes and holes, by their places in the target.
struct Plan {
    range: Range<u64>,
    pieces: Vec<Piece>,
    holes: Vec<Range<u64>>,
}

impl Context {
    pub(crate) async fn copy(
        &self,
        (source, source_offset): (OpenFile, u64),
        (target, target_offset): (OpenFile, u64),
        length: u64,
        set_ids: SetIds,
    ) -> Result<Answer, Code> {
        let (from, to) = self.with(|state| {
            let from = state.files.readable(source)?;
            Ok((from, state.files.writable(target)?))
        })?;
        self.flush_if_dirty(from).await?;
        if to != from {
            self.flush_if_dirty(to).await?;
        }
        self.validate(from).await?;
        let mut before: Option<Vec<Stored>> = None;
        for _ in 0..REREADS_MAX {
            let (range, limit) = self.with(|state| {
                let end = source_offset.saturating_add(length).min(state.files.size_of(from));
                (source_offset..end.max(source_offset), state.io.config.copy_bytes_max)
            });
            let target_end = target_offset.checked_add(range.end - range.start);
            let target_end = target_end.filter(|end| *end <= FILE_BYTES_MAX).ok_or(Code::TooLarge)?;
            if from == to && range.start < target_end && target_offset < range.end {
                return Err(Code::InvalidArgument);
            }
            let range = range.start..range.end.min(range.start.saturating_add(limit));
            let extents = self.extents(from, range.clone()).await?;
            if before.as_ref() == Some(&extents) {
                break;
            }
            // The extents may have told that the file is shorter.
            let end = self.with(|state| range.end.min(state.files.size_of(from)).max(range.start));
            let pieces_max = self.with(|state| state.io.config.commit_extents_max);
            let plan = plan(range.start..end, target_offset, &extents, pieces_max);
            match self.carry_out_copy((target, to), &plan, set_ids).await {
                // A chunk that is gone was in no use: the source has other extents by now.
                Err(Code::Stale) if !extents.is_empty() => {
                    self.with(|state| state.files.forget_extents(from));
                }
                Err(code) => return Err(code),
                Ok(()) => {
                    let count = plan.range.end - plan.range.start;
                    self.with(|state| state.io.counters.bytes_copied += count);
                    return Ok(Answer::Written(count as u32));
                }
            }
            before = Some(extents);
        }
        // It refers to what was lost before it was made stable.
        Err(Code::Io)
    }

    async fn carry_out_copy(
        &self,
        (target, to): (OpenFile, NodeId),
        plan: &Plan,
        set_ids: SetIds,
    ) -> Result<(), Code> {
        if !plan.pieces.is_empty() {
            self.copy_pieces(to, plan, set_ids).await?;
        }
        for hole in &plan.holes {
            let is_last = hole.end == plan.range.end;
            let size_min = if is_last { hole.end } else { 0 };
            // What is known of the target is of no earlier time than the commit, if there was one.
            let needed = plan.pieces.is_empty()
                || is_last && self.with(|state| state.files.stored_size(to)) < hole.end
                || !self.extents(to, hole.clone()).await?.is_empty();
            if needed {
                self.ask_hole((target, to), hole.clone(), size_min, set_ids).await?;
            }
        }
        Ok(())
    }

    async fn copy_pieces(&self, to: NodeId, plan: &Plan, set_ids: SetIds) -> Result<(), Code> {
        let job = self.with(|state| {
            let handle = state.files.handle(to)?;
            let size_min = plan.pieces.last().map_or(0, |piece| piece.range.end);
            let modified = state.io.now.wall;
            let (mode, pieces) = (CommitMode::Put, plan.pieces.clone());
            Some(Job { handle, mode, pieces, size_min, modified, set_ids, is_part: false })
        });
        let job = job.ok_or(Code::InvalidArgument)?;
        if !self.enter_gate(to).await {
            return Err(Code::InvalidArgument);
        }
        let clears = self.with(|state| state.files.is_changed_by(to, set_ids));
        let stored = self.store(to, &job, Stability::Visible).await;
        self.leave_gate(to);
        self.with(|state| {
            state.files.drop_unused(to);
            if clears {
                state.forget_mode(to);
            }
        });
        stored
    }

    /// Has servers append bytes that they, or others, hold.
    pub(super) async fn append_stored(
        &self,
        node: NodeId,
        handle: Handle,
        piece: &Piece,
        stored: Stored,
    ) -> Result<(Arc<ChunkView>, Result<Placed, DataFailure>), Code> {
        let capability = self.with(|state| state.capability_to_read(&stored)).ok_or(Code::Stale)?;
        let stored = stored.extent;
        let view = self.chunk_view(stored.chunk, false).await?;
        let (owner, servers) = self.with(|state| {
            (
                state.files.frame_owner(node, piece, state.cache.last_name(node), state.io.now.wall),
                state.replicas_in_order(&view),
            )
        });
        let owner = owner.ok_or(Code::InvalidArgument)?;
        let frame_bytes = frame::frame_bytes(&owner, stored.length);
        let chunk = self.writable_chunk(node, handle.home, frame_bytes).await?;
        let source = Source {
            chunk: stored.chunk.chunk,
            frame: stored.frame,
            skip: stored.skip,
            length: stored.length,
            capability,
            servers,
        };
        let appends = match append_right(&chunk) {
            Ok(appends) => appends,
            Err(failure) => return Ok((chunk, Err(failure))),
        };
        let known = self.with(|state| state.chunks.acknowledged_of(chunk.chunk.chunk));
        let call = DataCall::AppendFrom {
            capability: appends,
            servers: chunk.servers.clone(),
            known,
            owner,
            source: Box::new(source),
        };
        let placed = self.ask_append(&chunk, call, Vec::new(), frame_bytes).await;
        Ok((chunk, placed))
    }
}

/// What is to be done so that the target has at `target_offset` what the source has in `range`; less than all
/// of that if it is in too many pieces.
fn plan(range: Range<u64>, target_offset: u64, extents: &[Stored], pieces_max: usize) -> Plan {
    let place = |at: u64| at - range.start + target_offset;
    let (mut at, mut pieces, mut holes) = (range.start, Vec::new(), Vec::new());
    for stored in extents.iter().filter_map(|stored| stored.clipped(range.clone())) {
        let extent = stored.extent;
        if pieces.len() == pieces_max {
            return Plan { range: target_offset..place(at), pieces, holes };
        }
        let end = end_of(&extent);
        if at < extent.file_offset {
            holes.push(place(at)..place(extent.file_offset));
        }
        pieces.push(Piece { range: place(extent.file_offset)..place(end), stored: Some(stored) });
        at = end;
    }
    if at < range.end {
        holes.push(place(at)..place(range.end));
    }
    Plan { range: target_offset..place(range.end), pieces, holes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_proto::client::{ChunkRef, Extent};
    use bearing_types::{ChunkId, Position};

    fn extent(file_offset: u64, length: u32) -> Stored {
        let chunk = ChunkRef { chunk: ChunkId(1), position: Position(0) };
        Stored { extent: Extent { file_offset, length, chunk, frame: file_offset, skip: 0 }, right: None }
    }

    #[test]
    fn bytes_and_holes_keep_their_distances_and_cut_pieces_skip_what_lies_before() {
        let plan = plan(105..140, 1000, &[extent(100, 10), extent(120, 5), extent(125, 5)], 9);
        assert_eq!(plan.range, 1000..1035);
        let pieces: Vec<_> = plan.pieces.iter().map(|piece| piece.range.clone()).collect();
        assert_eq!(pieces, [1000..1005, 1015..1020, 1020..1025]);
        assert_eq!(plan.holes, [1005..1015, 1025..1035]);
        let first = plan.pieces[0].stored.unwrap().extent;
        assert_eq!((first.frame, first.skip, first.length), (100, 5, 5));
    }

    #[test]
    fn too_many_pieces_end_the_copy_where_the_last_one_ends() {
        let plan = plan(0..100, 50, &[extent(0, 5), extent(10, 5), extent(20, 5)], 2);
        assert_eq!((plan.range, plan.pieces.len(), plan.holes), (50..65, 2, vec![55..60; 1]));
    }
}
