//! Holes: making them, and finding where they and the stored bytes begin.

use crate::context::Context;
use crate::operation::{Answer, OpenFile, SeekTarget};
use crate::state::files::Step;
use bearing_proto::client::{Body, Call, LeaseKey};
use bearing_proto::rules::FILE_BYTES_MAX;
use bearing_types::{Code, NodeId, SetIds};
use std::ops::Range;

/// Pages of extents asked for within one search before it is given up.
const PAGES_MAX: u32 = 1 << 20;

/// See [`Context::seek`].
const BLOCK_BYTES: u64 = 4096;

impl Context {
    pub(crate) async fn make_hole(
        &self,
        file: OpenFile,
        range: Range<u64>,
        size_min: u64,
        set_ids: SetIds,
    ) -> Result<Answer, Code> {
        let node = self.with(|state| state.files.writable(file))?;
        // What was written before must not fill the hole when it is flushed later.
        self.flush_if_dirty(node).await?;
        self.ask_hole((file, node), range, size_min, set_ids).await.map(|()| Answer::Done)
    }

    /// Refuses what the space at hand will not hold. Stored bytes need no space of their own here, although
    /// to write over them takes some: as with every filesystem that writes elsewhere, what was allocated may
    /// still find the disks full.
    pub(crate) async fn allocate(
        &self,
        file: OpenFile,
        range: Range<u64>,
        grows: bool,
        set_ids: SetIds,
    ) -> Result<Answer, Code> {
        let node = self.with(|state| state.files.writable(file))?;
        self.flush_if_dirty(node).await?;
        self.validate(node).await?;
        let missing = self.with(|state| state.files.missing(node, &range));
        if missing > 0 {
            self.expect_room(node, missing).await?;
        }
        let size_min = if grows { range.end } else { 0 };
        self.ask_hole((file, node), 0..0, size_min, set_ids).await.map(|()| Answer::Done)
    }

    /// Whether so many bytes more have room on the data servers, and in the quota that counts the file.
    async fn expect_room(&self, node: NodeId, bytes: u64) -> Result<(), Code> {
        let handle = self.with(|state| state.files.handle(node)).ok_or(Code::InvalidArgument)?;
        // Who has just started has heard from no data server, and knows nothing of their space.
        if let Answer::Statfs(all) = self.statfs().await?
            && all.bytes_total > 0
            && all.bytes_free < bytes
        {
            return Err(Code::NoSpace);
        }
        match self.quota(handle).await? {
            Answer::Quota(Some(quota)) if quota.limit.minus(quota.used).space < bytes => {
                Err(Code::QuotaExceeded)
            }
            _ => Ok(()),
        }
    }

    /// Has a hole made, whatever is buffered: in pieces if a server refuses to drop so many extents at once.
    pub(super) async fn ask_hole(
        &self,
        (file, node): (OpenFile, NodeId),
        range: Range<u64>,
        size_min: u64,
        set_ids: SetIds,
    ) -> Result<(), Code> {
        if size_min > FILE_BYTES_MAX {
            return Err(Code::TooLarge);
        }
        match self.ask_piece_of_hole((file, node), range.clone(), size_min, set_ids).await {
            Err(Code::TooLarge) => {}
            done => return done,
        }
        let handle = self.with(|state| state.files.handle(node)).ok_or(Code::InvalidArgument)?;
        // Beyond its end there is nothing to drop.
        let end = range.end.min(self.ask_attributes(handle).await?.attributes.size);
        let (mut at, mut step) = (range.start, end.saturating_sub(range.start).div_ceil(2));
        while at < end {
            let piece = at..end.min(at.saturating_add(step));
            match self.ask_piece_of_hole((file, node), piece.clone(), size_min, set_ids).await {
                Ok(()) => (at, step) = (piece.end, step.saturating_mul(2)),
                Err(Code::TooLarge) if step > 1 => step /= 2,
                Err(code) => return Err(code),
            }
        }
        Ok(())
    }

    async fn ask_piece_of_hole(
        &self,
        (file, node): (OpenFile, NodeId),
        range: Range<u64>,
        size_min: u64,
        set_ids: SetIds,
    ) -> Result<(), Code> {
        self.leave_to_home(node).await;
        let (handle, token) = self.with(|state| (state.files.handle(node), state.files.token(file)));
        let handle = handle.ok_or(Code::InvalidArgument)?;
        // A file that was made here and lost before its home heard of it.
        let token = token.ok_or(Code::Io)?;
        let Range { start, end } = range;
        let call = Call::MakeHole { node: handle, token, start, end, size_min, set_ids };
        let clears = self.with(|state| state.files.is_changed_by(node, set_ids));
        self.change(vec![LeaseKey::File(node)], handle.home, call, |state, answered| {
            state.files.forget_extents(node);
            match answered.body {
                Body::Node(view) => {
                    state.take_node(&view, &answered.stamp);
                    if clears {
                        state.forget_mode(node);
                    }
                    Ok(())
                }
                _ => Err(state.io.unexpected()),
            }
        })
        .await?
    }

    /// Stored bytes and holes are told in blocks, as programs expect: a block in which anything is stored is
    /// no hole.
    pub(crate) async fn seek(&self, file: OpenFile, offset: u64, target: SeekTarget) -> Result<Answer, Code> {
        let node = self.with(|state| state.files.node_of(file))?;
        self.flush_if_dirty(node).await?;
        self.validate(node).await?;
        let size = || self.with(|state| state.files.stored_size(node));
        if offset >= size() {
            return Ok(Answer::Place(None));
        }
        let mut block = offset - offset % BLOCK_BYTES;
        loop {
            let stored = self.seek_exactly(node, block, SeekTarget::Data).await?;
            let hole = stored.is_none_or(|stored| stored >= block + BLOCK_BYTES);
            match (target, stored) {
                (SeekTarget::Data, None) => return Ok(Answer::Place(None)),
                (SeekTarget::Data, Some(stored)) => {
                    return Ok(Answer::Place(Some(offset.max(stored - stored % BLOCK_BYTES))));
                }
                // Somebody may have cut it meanwhile.
                (SeekTarget::Hole, _) if hole => {
                    let end = Some(size()).filter(|size| offset < *size);
                    return Ok(Answer::Place(end.map(|end| offset.max(block).min(end))));
                }
                (SeekTarget::Hole, _) => {
                    let end =
                        self.seek_exactly(node, block.max(stored.unwrap_or(0)), SeekTarget::Hole).await?;
                    block = end.unwrap_or(u64::MAX).min(size()).next_multiple_of(BLOCK_BYTES);
                }
            }
        }
    }

    async fn seek_exactly(&self, node: NodeId, from: u64, target: SeekTarget) -> Result<Option<u64>, Code> {
        let mut from = from;
        for _ in 0..PAGES_MAX {
            match self.with(|state| state.files.seek_step(node, from, target)) {
                Step::Found(at) => return Ok(Some(at)),
                Step::Nowhere => return Ok(None),
                Step::Unknown(at) => {
                    from = at;
                    self.ask_extents(node, at).await?;
                }
            }
        }
        Err(Code::Io)
    }
}
