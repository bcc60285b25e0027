//! What this client may do with a file that it has open, and how it shows that to servers.
//!
//! A file that was opened for reading under a lease has no token yet: servers check its user again, and the
//! first answer brings a token. Before its mode may change (a recall, or a change of our own) it is asked
//! for, so that the file stays open whatever becomes of its mode.

use crate::context::{Context, State};
use crate::state::Answered;
use bearing_proto::client::{Body, Call};
use bearing_proto::grant::Admission;
use bearing_types::{Code, NodeId};

impl State {
    /// What admits to a file's extents.
    pub(super) fn admission(&self, node: NodeId) -> Option<Admission> {
        let ours = || self.delegations.token(node).map(Admission::Open);
        self.files.admission(node)?.or_else(ours)
    }

    fn on_held(&mut self, answered: Answered) -> Result<(), Code> {
        let Body::Opened(view, token) = answered.body else {
            return Err(self.io.unexpected());
        };
        token.into_iter().for_each(|token| self.files.on_token(token));
        self.take_node(&view, &answered.stamp);
        Ok(())
    }
}

impl Context {
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
        Some(answered.and_then(|answered| self.with(|state| state.on_held(answered))))
    }
}
