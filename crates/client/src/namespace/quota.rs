//! Quotas: setting one, asking for the one that counts a node.

use crate::context::{Context, State};
use crate::operation::Answer;
use crate::state::lease::node_keys;
use bearing_proto::client::{Body, Call, Handle};
use bearing_types::{Amount, Code, Credentials};

impl Context {
    pub(crate) async fn set_quota(
        &self,
        directory: Handle,
        who: &Credentials,
        limit: Amount,
    ) -> Result<Answer, Code> {
        self.leave_to_home(directory.node).await;
        let call = Call::SetQuota { directory, who: who.clone(), limit };
        let taken = |state: &mut State, answered| state.take_node_body(answered);
        self.change(node_keys(directory.node, true), directory.home, call, taken).await??;
        Ok(Answer::Done)
    }

    pub(crate) async fn quota(&self, node: Handle) -> Result<Answer, Code> {
        self.settled(node.node).await;
        // Directories that a quota counts are not lent. This is asked often: whoever walks a tree asks for
        // its kind of filesystem.
        if self.with(|state| state.delegations.holds(node.node) || state.delegations.is_our_node(node.node)) {
            return Ok(Answer::Quota(None));
        }
        self.catch_up(node.node).await;
        let answered = self.call(node.home, Call::Quota { node }).await?;
        self.with(|state| match answered.body {
            Body::Quota(quota) => Ok(Answer::Quota(quota)),
            _ => Err(state.io.unexpected()),
        })
    }
}
