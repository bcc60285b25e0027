//! What this client may do with a file that it has open, and how it shows that to servers.
//!
//! A file that was opened for reading under a lease has no token yet: servers check its user again, and the first answer brings a token. Before its mode may
//! change (a recall, or a change of our own) it is asked for, so that the file stays open whatever becomes of its mode.

use crate::hub::{Hub, State};
use crate::request::Answered;
use bearing_proto::client::{Body, Call, Handle};
use bearing_proto::grant::{Admission, OpenToken};
use bearing_types::{Code, Credentials, NodeId};

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenFor {
    read: Option<OpenToken>,
    write: Option<OpenToken>,
    /// Who opened it for reading last without asking.
    unasked: Option<Credentials>,
}

impl OpenFor {
    /// A token came.
    pub fn take(&mut self, token: OpenToken) {
        if token.rights.reads() {
            (self.read, self.unasked) = (Some(token), None);
        }
        if token.rights.writes() {
            self.write = Some(token);
        }
    }

    /// It was opened for reading without asking.
    pub fn opened_unasked(&mut self, who: &Credentials) {
        if self.read.is_none() {
            self.unasked = Some(who.clone());
        }
    }

    /// The right to write.
    pub fn write(&self) -> Option<OpenToken> {
        self.write
    }

    /// What admits to the file's extents: to read them, if that is possible.
    pub fn admission(&self) -> Option<Admission> {
        let user = || self.unasked.clone().map(Admission::User);
        self.read.map(Admission::Open).or_else(user).or(self.write.map(Admission::Open))
    }
}

impl super::Files {
    /// A token of an open file came.
    pub(super) fn take_token(&mut self, token: OpenToken) {
        if let Some(file) = self.files.get_mut(&token.node) {
            file.open_for.take(token);
        }
    }

    /// Of these nodes those that are open without a token.
    pub(crate) fn unasked(&self, nodes: &[NodeId]) -> Vec<NodeId> {
        nodes.iter().copied().filter(|node| self.opened_unasked(*node).is_some()).collect()
    }

    /// Who has a file open that he was not asked for.
    fn opened_unasked(&self, node: NodeId) -> Option<(Handle, Credentials)> {
        let file = self.files.get(&node).filter(|file| file.opens > 0)?;
        Some((file.handle, file.open_for.unasked.clone()?))
    }
}

impl State {
    /// What admits to a file's extents.
    pub(super) fn admission(&self, node: NodeId) -> Option<Admission> {
        let open_for = self.files.files.get(&node).map(|file| &file.open_for)?;
        let ours = || self.delegations.token(node).map(Admission::Open);
        open_for.admission().or_else(ours)
    }

    fn take_held(&mut self, answered: Answered) -> Result<(), Code> {
        let Body::Opened(view, token) = answered.body else {
            self.counters.unexpected += 1;
            return Err(Code::Io);
        };
        token.into_iter().for_each(|token| self.files.take_token(token));
        self.take_node(&view, &answered.stamp);
        Ok(())
    }
}

impl Hub {
    /// Asks for the token of a file that was opened without. Whether there was such a file.
    pub(crate) async fn hold_open(&self, node: NodeId) -> Option<Result<(), Code>> {
        let (handle, who) = self.with(|state| state.files.opened_unasked(node))?;
        let call = |execute| {
            let (node, who) = (handle, who.clone());
            Call::Open { node, who, read: true, write: false, truncate: false, execute }
        };
        let mut answered = self.call(handle.home, call(false)).await;
        if matches!(answered, Err(Code::Access)) {
            answered = self.call(handle.home, call(true)).await;
        }
        Some(answered.and_then(|answered| self.with(|state| state.take_held(answered))))
    }
}
