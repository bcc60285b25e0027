//! Writing: into the buffer, which pushes back when it is full, or holds what goes to the other place.

use crate::context::{Context, State};
use crate::event::Invalidation;
use crate::operation::{Answer, OpenFile};
use crate::state::files::{Buffered, Next};
use bearing_types::{Code, NodeId, SetIds};

impl Context {
    pub(crate) async fn write(
        &self,
        file: OpenFile,
        offset: Option<u64>,
        bytes: Vec<u8>,
        set_ids: SetIds,
    ) -> Result<Answer, Code> {
        let node = self.with(|state| state.files.writable(file))?;
        let kind = if offset.is_some() { Buffered::Placed } else { Buffered::Appended };
        self.room(node).await;
        while self.with(|state| state.files.holds_other(node, kind)) {
            // If this fails, the file's next flush tells of it.
            self.clone().write_behind(node).await;
            self.room(node).await;
        }
        let count = bytes.len();
        let next = self.with(|state| {
            let (now, enough) = (state.io.now.wall, state.io.config.write_out_bytes);
            let next = state.files.buffer(node, offset, bytes, set_ids, (now, enough))?;
            state.io.counters.bytes_written += count as u64;
            Ok(next)
        })?;
        let context = self.clone();
        match next {
            Next::Nothing => {}
            // Nobody shall run what was written with the rights of the file's owner, nor see that he could.
            Next::WriteThrough => {
                self.flush_if_dirty(node).await?;
                self.with(|state| state.forget_mode(node));
            }
            Next::WriteOut => self.with(|state| state.spawn(context.write_behind(node))),
            Next::WriteOutLater => self.with(|state| state.spawn(context.write_out_later(node))),
        }
        Ok(Answer::Written(count as u32))
    }

    /// Waits until the buffers have room. As long as they have none, what is buffered is written out.
    async fn room(&self, node: NodeId) {
        let mut waited = false;
        while let Some((awaited, write_out)) =
            self.with(|state| state.files.wait_for_room(node, &state.io.config))
        {
            if !waited {
                self.with(|state| state.io.counters.writes_held_back += 1);
                waited = true;
            }
            if let Some(fullest) = write_out {
                let context = self.clone();
                self.with(|state| state.spawn(context.write_behind(fullest)));
            }
            awaited.await;
        }
    }

    async fn write_out_later(self, node: NodeId) {
        let after = self.with(|state| state.io.config.writeout_delay);
        self.sleep(after).await;
        if self.with(|state| state.files.begin_writeout(node)) {
            self.write_behind(node).await;
        }
    }
}

impl State {
    /// The kernel, which goes by the mode that it knows, asks for it again.
    pub(super) fn forget_mode(&mut self, node: NodeId) {
        self.invalidate([Invalidation::Node { node }]);
    }
}
