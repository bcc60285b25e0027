//! Grants shown by requests that are sent again. A grant says what a directory's mode, owner and group were; while a request waited, these may
//! have changed. So before it is sent again, under its number, it gets the grant that is good by then.

use crate::hub::{Hub, State};
use crate::namespace::Freshness;
use bearing_proto::client::{Call, Handle, LeaseKey};
use bearing_proto::grant::Grant;
use bearing_types::{Block, NodeId, Sequence};

impl Hub {
    /// Asks for the directories whose grants a request shows, and has it sent.
    pub(crate) async fn fetch_grants(self, sequence: Sequence) {
        for handle in self.with(|state| state.requests.directories_shown(sequence)) {
            // If there is none to be had, the old one is shown: the server may have done what was asked long ago, and say so.
            if let Ok(directory) = self.directory(handle, Freshness::Granted).await {
                self.with(|state| state.requests.show_grant(sequence, &directory.view.grant));
            }
        }
        self.with(|state| state.grants_came(sequence));
    }
}

impl State {
    /// Puts grants that are leased now into a request. Whether that are all it needs.
    pub fn renew_grants(&mut self, call: &mut Call) -> bool {
        let mut all = true;
        for shown in grants_in(call) {
            match self.cache.directory(shown.body.seat.node, self.now.mono) {
                Some(cached) => replace(shown, &cached.view.grant),
                None => all = false,
            }
        }
        all
    }

    /// Directories may have changed: requests that show their grants get new ones before they are sent again.
    pub fn doubt_grants_of(&mut self, keys: &[LeaseKey]) {
        let mut nodes = keys.iter().filter_map(|key| match key {
            LeaseKey::Access(node) => Some(*node),
            LeaseKey::Name(..) | LeaseKey::File(_) | LeaseKey::Content(_) => None,
        });
        // Most changes are of no directory's access attributes.
        if let Some(first) = nodes.next() {
            let nodes: Vec<NodeId> = std::iter::once(first).chain(nodes).collect();
            self.requests.doubt_grants(|directory| nodes.contains(&directory.node));
        }
    }

    /// The same for all directories that lie in a block.
    pub fn doubt_grants_in(&mut self, block: Block) {
        self.requests.doubt_grants(|directory| block.contains(directory.home));
    }
}

/// Puts a newer grant in the place of an older one of the same directory. Names that moved with a new seat are looked for by the operation, when
/// the old grant was refused.
pub(crate) fn replace(shown: &mut Grant, newer: &Grant) {
    if shown.body.seat == newer.body.seat {
        *shown = newer.clone();
    }
}

/// The grants that a call shows.
pub(crate) fn grants_in(call: &mut Call) -> Vec<&mut Grant> {
    match call {
        Call::Lookup { grant, .. }
        | Call::List { grant, .. }
        | Call::Create { grant, .. }
        | Call::MakeDirectory { grant, .. }
        | Call::Unlink { grant, .. }
        | Call::RemoveDirectory { grant, .. }
        | Call::Link { grant, .. } => vec![grant],
        Call::Rename { source, target, .. } => vec![source, target],
        Call::OpenSession
        | Call::RenewSession
        | Call::CloseSession
        | Call::Map { .. }
        | Call::Root { .. }
        | Call::Directory { .. }
        | Call::Attributes { .. }
        | Call::SetAttributes { .. }
        | Call::ReadLink { .. }
        | Call::Open { .. }
        | Call::Extents { .. }
        | Call::Commit { .. }
        | Call::Release { .. }
        | Call::OpenChunk { .. }
        | Call::Chunk { .. }
        | Call::SealChunk { .. }
        | Call::Statfs => Vec::new(),
    }
}

/// The directory of a grant.
pub(crate) fn directory_of(grant: &Grant) -> Handle {
    Handle { node: grant.body.seat.node, home: grant.body.seat.home }
}
