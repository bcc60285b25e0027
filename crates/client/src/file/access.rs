//! Times of access. A file that is read through this client is noted, and its home hears of it later, of many at once: reading waits for nothing.
//!
//! What the kernel answers from its own pages nobody sees; so a file that is opened for reading only counts as read, and one that is opened for writing too when the
//! kernel asks for its bytes. A read that was noted and not told when the client dies is lost.

use crate::hub::{Hub, Work};
use bearing_proto::client::{Call, Handle};
use bearing_types::{NodeId, Wall};
use std::collections::BTreeMap;

/// Files that are noted at the same time; when there are so many, further reads are not noted until these were told.
const NOTED_MAX: usize = 4096;
/// What is told at the same time.
const TOLD_MAX: usize = 32;

/// Reads that the files' homes have not heard of.
#[derive(Default)]
pub(super) struct Accesses {
    noted: BTreeMap<NodeId, (Handle, Wall)>,
    planned: bool,
}

impl Accesses {
    /// When a file was read, if its home has not heard of that.
    pub fn of(&self, node: NodeId) -> Option<Wall> {
        self.noted.get(&node).map(|(_, at)| *at)
    }

    /// Somebody says what the time of access shall be.
    pub fn forget(&mut self, node: NodeId) {
        self.noted.remove(&node);
    }
}

impl Hub {
    /// An open file is read.
    pub(super) fn note_access(&self, node: NodeId) {
        let begins = self.with(|state| {
            let now = state.now.wall;
            let file = state.files.files.get(&node).filter(|_| state.config.access_times);
            let noted = &mut state.files.accesses;
            let Some(file) = file.filter(|file| file.attributes.notes_access(now)) else { return false };
            if noted.noted.len() >= NOTED_MAX || noted.noted.contains_key(&node) {
                return false;
            }
            noted.noted.insert(node, (file.handle, now));
            !std::mem::replace(&mut noted.planned, true)
        });
        if begins {
            let hub = self.clone();
            self.with(|state| state.spawn(hub.tell_accesses_later()));
        }
    }

    async fn tell_accesses_later(self) {
        let after = self.with(|state| state.config.access_delay);
        self.sleep(after).await;
        self.with(|state| state.files.accesses.planned = false);
        self.tell_accesses().await;
    }

    /// Tells of all that was noted.
    async fn tell_accesses(&self) {
        let work = self.accesses_to_tell();
        self.windowed(TOLD_MAX, work).await;
    }

    /// The same at the end of a session, which does not wait for servers that are gone.
    pub(crate) fn tell_accesses_unheard(&self) {
        let (hub, work) = (self.clone(), self.accesses_to_tell());
        self.with(|state| {
            state.spawn(async move {
                hub.windowed(TOLD_MAX, work).await;
            });
        });
    }

    /// What is left to ask of servers, when what is decided here is done.
    fn accesses_to_tell(&self) -> Vec<Work<()>> {
        let noted = self.with(|state| std::mem::take(&mut state.files.accesses.noted));
        let mut work: Vec<Work<()>> = Vec::new();
        for (node, (handle, at)) in noted {
            self.with(|state| {
                if let Some(file) = state.files.files.get_mut(&node) {
                    file.attributes.accessed = file.attributes.accessed.max(at);
                }
                state.cache.note_access(node, at);
            });
            if self.with(|state| state.access_here(node, at)) {
                continue;
            }
            let hub = self.clone();
            work.push(Box::pin(async move {
                // A time of access is no reason to trouble anybody.
                let _ = hub.call(handle.home, Call::Accessed { node: handle, at }).await;
            }));
        }
        work
    }
}
