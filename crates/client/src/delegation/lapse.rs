//! What is lent when the lease on it has run out because its owner was not heard for long.
//!
//! Only the owner knows whether anybody else has looked in meanwhile. So nothing is served and nothing
//! decided from here on, and nothing is given up either: what was decided before is kept and sent until the
//! owner takes it, which renews the lease, or refuses it, and only then is it lost. A server that was away
//! for a minute costs its clients that minute, and no byte.

use crate::context::{Context, State};
use crate::operation::{OpenFile, Operation};

impl State {
    /// Whether an operation concerns something whose lease has run out so. Writes are buffered all the same,
    /// and whoever wants them stored waits for that.
    fn meets_lapse(&self, operation: &Operation) -> bool {
        let lapsed = |position| self.delegations.is_lapsed_at(position, self.io.now.mono);
        match operation {
            Operation::Lookup { directory, .. }
            | Operation::Parent { directory }
            | Operation::Create { directory, .. }
            | Operation::MakeDirectory { directory, .. }
            | Operation::Unlink { directory, .. }
            | Operation::RemoveDirectory { directory, .. }
            | Operation::List { directory, .. } => lapsed(directory.home),
            Operation::Rename { source, target, .. } => lapsed(source.home) || lapsed(target.home),
            Operation::Link { node, directory, .. } => lapsed(node.home) || lapsed(directory.home),
            Operation::Attributes { node, .. }
            | Operation::SetAttributes { node, .. }
            | Operation::Xattr { node, .. }
            | Operation::Xattrs { node, .. }
            | Operation::SetXattr { node, .. }
            | Operation::ReadLink { node }
            | Operation::Open { node, .. } => lapsed(node.home),
            Operation::Read { file, .. }
            | Operation::Seek { file, .. }
            | Operation::Allocate { file, .. } => self.is_file_lapsed(*file),
            Operation::Copy { source, target, .. } => {
                self.is_file_lapsed(*source) || self.is_file_lapsed(*target)
            }
            // Of these nothing is answered from what is lent: they are about what was written, or somebody
            // else is asked, which waits by itself.
            Operation::Root
            | Operation::Close { .. }
            | Operation::Write { .. }
            | Operation::MakeHole { .. }
            | Operation::Flush { .. }
            | Operation::Sync { .. }
            | Operation::SyncAll
            | Operation::SyncNames
            | Operation::Statfs
            | Operation::Extents { .. }
            | Operation::Chunks { .. }
            | Operation::Advise(_)
            | Operation::Lock { .. }
            | Operation::Unlock { .. }
            | Operation::TestLock { .. }
            | Operation::SetQuota { .. }
            | Operation::Quota { .. }
            | Operation::Place { .. }
            | Operation::End => false,
        }
    }

    fn is_file_lapsed(&self, file: OpenFile) -> bool {
        self.files.home_of(file).is_some_and(|home| self.delegations.is_lapsed_at(home, self.io.now.mono))
    }
}

impl Context {
    /// Waits until the owner of what an operation concerns has said whether what it lent is lent yet.
    pub(crate) async fn past_lapse_of(&self, operation: &Operation) {
        while self.with(|state| state.meets_lapse(operation)) {
            self.await_owner().await;
        }
    }
}
