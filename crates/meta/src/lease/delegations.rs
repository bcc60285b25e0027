//! Directories that are delegated, with what is lent with each. The same as the records say.

use crate::record::{Delegated, Holder};
use bearing_types::{NodeId, SessionId};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Delegations {
    holders: BTreeMap<NodeId, Holder>,
    /// Nodes that are lent, and with which directory.
    lent: BTreeMap<NodeId, NodeId>,
    lent_with: BTreeMap<NodeId, Vec<NodeId>>,
}

impl Delegations {
    /// A directory is delegated so from now on, with nodes that it names.
    pub fn delegate(&mut self, directory: NodeId, delegated: Delegated) {
        self.end(directory);
        self.holders.insert(directory, delegated.holder);
        self.lent.extend(delegated.nodes.iter().map(|node| (*node, directory)));
        if !delegated.nodes.is_empty() {
            self.lent_with.insert(directory, delegated.nodes);
        }
    }

    /// A directory is delegated no more.
    pub fn end(&mut self, directory: NodeId) {
        self.holders.remove(&directory);
        for node in self.lent_with.remove(&directory).into_iter().flatten() {
            if self.lent.get(&node) == Some(&directory) {
                self.lent.remove(&node);
            }
        }
    }

    /// Who holds a directory.
    pub fn holder(&self, directory: NodeId) -> Option<Holder> {
        self.holders.get(&directory).copied()
    }

    /// The directory with which a node is lent.
    pub fn lent_with(&self, node: NodeId) -> Option<NodeId> {
        self.lent.get(&node).copied()
    }

    /// All delegated directories with their holders, by id.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, Holder)> + '_ {
        self.holders.iter().map(|(directory, holder)| (*directory, *holder))
    }

    /// What one holder holds, by id.
    pub fn of(&self, holder: Holder) -> impl Iterator<Item = NodeId> + '_ {
        self.iter().filter(move |(_, held)| *held == holder).map(|(directory, _)| directory)
    }

    /// What a session holds, by id.
    pub fn of_session(&self, session: SessionId) -> impl Iterator<Item = NodeId> + '_ {
        self.iter().filter(move |(_, held)| held.session == session).map(|(directory, _)| directory)
    }
}
