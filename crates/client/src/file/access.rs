//! Times of access. A file that is read through this client is noted, and its home hears of it later, of many
//! at once: reading waits for nothing.
//!
//! What the kernel answers from its own pages nobody sees; so a file that is opened for reading only counts
//! as read, and one that is opened for writing too when the kernel asks for its bytes. A read that was noted
//! and not told when the client dies is lost.

use crate::context::{Context, Work};
use bearing_proto::client::Call;
use bearing_types::NodeId;

/// What is told at the same time.
const TOLD_MAX: usize = 32;

impl Context {
    /// An open file is read.
    pub(super) fn note_access(&self, node: NodeId) {
        let begins = self
            .with(|state| state.io.config.access_times && state.files.note_access(node, state.io.now.wall));
        if begins {
            let context = self.clone();
            self.with(|state| state.spawn(context.tell_accesses_later()));
        }
    }

    async fn tell_accesses_later(self) {
        let after = self.with(|state| state.io.config.access_delay);
        self.sleep(after).await;
        self.with(|state| state.files.begin_telling_accesses());
        self.tell_accesses().await;
    }

    /// Tells of all that was noted.
    async fn tell_accesses(&self) {
        let work = self.accesses_to_tell();
        self.windowed(TOLD_MAX, work).await;
    }

    /// The same at the end of a session, which does not wait for servers that are gone.
    pub(crate) fn tell_accesses_unheard(&self) {
        let (context, work) = (self.clone(), self.accesses_to_tell());
        self.with(|state| {
            state.spawn(async move {
                context.windowed(TOLD_MAX, work).await;
            });
        });
    }

    /// What is left to ask of servers, when what is decided here is done.
    fn accesses_to_tell(&self) -> Vec<Work<()>> {
        let noted = self.with(|state| state.files.take_accesses());
        let mut work: Vec<Work<()>> = Vec::new();
        for (handle, at) in noted {
            let ours = self.with(|state| {
                state.cache.note_access(handle.node, at);
                state.access_here(handle.node, at)
            });
            if ours {
                continue;
            }
            let context = self.clone();
            work.push(Box::pin(async move {
                // A time of access is no reason to trouble anybody.
                let _ = context.call(handle.home, Call::Accessed { node: handle, at }).await;
            }));
        }
        work
    }
}
