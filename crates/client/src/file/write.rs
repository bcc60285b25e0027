//! Writing: into the buffer, which pushes back when it is full, or holds what goes to the other place.

use super::{Buffered, File, Open};
use crate::event::Invalidation;
use crate::hub::{Hub, State};
use crate::operation::{Answer, OpenFile};
use crate::task::{Awaited, promise};
use bearing_types::{Code, NodeId, Position, SetIds};

/// The largest length of a file.
pub(super) const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// What has to be done about what is buffered.
enum Next {
    Nothing,
    WriteThrough,
    WriteOut,
    WriteOutLater,
}

impl Hub {
    pub(crate) async fn write(
        &self,
        file: OpenFile,
        offset: Option<u64>,
        bytes: Vec<u8>,
        set_ids: SetIds,
    ) -> Result<Answer, Code> {
        let node = self.with(|state| state.files.opened(file, |open| open.write))?;
        let kind = if offset.is_some() { Buffered::Placed } else { Buffered::Appended };
        self.room(node).await;
        while self.with(|state| state.files.holds_other(node, kind)) {
            // If this fails, the file's next flush tells of it.
            self.clone().write_behind(node).await;
            self.room(node).await;
        }
        let next = self.with(|state| state.buffer(node, offset, &bytes, set_ids))?;
        let hub = self.clone();
        match next {
            Next::Nothing => {}
            // Nobody shall run what was written with the rights of the file's owner, nor see that he could.
            Next::WriteThrough => {
                self.flush_if_dirty(node).await?;
                self.with(|state| state.forget_mode(node));
            }
            Next::WriteOut => self.with(|state| state.spawn(hub.write_behind(node))),
            Next::WriteOutLater => self.with(|state| state.spawn(hub.write_out_later(node))),
        }
        Ok(Answer::Written(bytes.len() as u32))
    }

    /// Waits until the buffers have room. As long as they have none, what is buffered is written out.
    async fn room(&self, node: NodeId) {
        let mut waited = false;
        while let Some((awaited, write_out)) = self.with(|state| state.wait_for_room(node)) {
            if !waited {
                self.with(|state| state.counters.writes_held_back += 1);
                waited = true;
            }
            if let Some(fullest) = write_out {
                let hub = self.clone();
                self.with(|state| state.spawn(hub.write_behind(fullest)));
            }
            awaited.await;
        }
    }

    async fn write_out_later(self, node: NodeId) {
        let after = self.with(|state| state.config.writeout_after);
        self.sleep(after).await;
        let dirty = self.with(|state| {
            let file = state.files.files.get_mut(&node)?;
            file.writeout_planned = false;
            file.is_dirty().then_some(())
        });
        if dirty.is_some() {
            self.write_behind(node).await;
        }
    }
}

impl State {
    /// Puts bytes into the buffer.
    fn buffer(
        &mut self,
        node: NodeId,
        offset: Option<u64>,
        bytes: &[u8],
        set_ids: SetIds,
    ) -> Result<Next, Code> {
        let now = self.now.wall;
        let file = self.files.files.get_mut(&node).ok_or(Code::InvalidArgument)?;
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
        let enough = !file.gate.is_held() && file.dirty.bytes() >= self.config.write_out_bytes;
        let next = match enough {
            _ if clears => Next::WriteThrough,
            true => Next::WriteOut,
            false if !std::mem::replace(&mut file.writeout_planned, true) => Next::WriteOutLater,
            false => Next::Nothing,
        };
        self.files.buffered_bytes += grown;
        self.counters.bytes_written += bytes.len() as u64;
        Ok(next)
    }

    /// The kernel, which goes by the mode that it knows, asks for it again.
    pub(super) fn forget_mode(&mut self, node: NodeId) {
        self.invalidate(vec![Invalidation::Node { node }]);
    }

    /// If the buffers are full: what to wait for, and the file to write out meanwhile, unless all that is full is being written out.
    fn wait_for_room(&mut self, node: NodeId) -> Option<(Awaited<()>, Option<NodeId>)> {
        let own = self.files.files.get(&node).map_or(0, File::buffered_bytes);
        let own_full = own > 0 && own >= self.config.file_buffer_bytes_max;
        let all_full =
            self.files.buffered_bytes > 0 && self.files.buffered_bytes >= self.config.buffer_bytes_max;
        if !own_full && !all_full {
            return None;
        }
        let idle = |file: &File| !file.gate.is_held() && !file.dirty.is_empty();
        let fullest = if own_full {
            self.files.files.get(&node).filter(|file| idle(file)).map(|_| node)
        } else {
            let files = self.files.files.iter().filter(|(_, file)| idle(file));
            files.max_by_key(|(node, file)| (file.dirty.bytes(), **node)).map(|(node, _)| *node)
        };
        let (promise, awaited) = promise();
        self.files.waiting_for_room.push(promise);
        Some((awaited, fullest))
    }
}

impl super::Files {
    /// Whether something of the other kind is buffered, which has to be written out first.
    fn holds_other(&self, node: NodeId, kind: Buffered) -> bool {
        self.files.get(&node).is_some_and(|file| file.is_dirty() && file.buffered != kind)
    }

    /// The node of an open file, if it was opened so that this may be done.
    pub(super) fn opened(&self, file: OpenFile, may: impl Fn(&Open) -> bool) -> Result<NodeId, Code> {
        self.opens.get(&file).filter(|open| may(open)).map(|open| open.node).ok_or(Code::InvalidArgument)
    }

    /// Where the node of an open file is at home.
    pub fn home_of(&self, file: OpenFile) -> Option<Position> {
        let node = self.node_of(file).ok()?;
        self.files.get(&node).map(|file| file.handle.home)
    }

    /// The node of an open file.
    pub fn node_of(&self, file: OpenFile) -> Result<NodeId, Code> {
        self.opened(file, |_| true)
    }
}
