//! A further name for a node.

use super::grants::Grants;
use crate::context::Context;
use crate::operation::{Answer, Found};
use crate::state::lease::{Directory, Named};
use bearing_proto::client::{Body, Call, Handle, LeaseKey};
use bearing_types::{Code, Credentials, FileType, Name};

impl Context {
    pub(crate) async fn link(
        &self,
        node: Handle,
        directory: Handle,
        name: &Name,
        who: &Credentials,
    ) -> Result<Answer, Code> {
        // The node is known by another name from now on.
        self.suspend(directory.node).await;
        self.publish_node(node.node).await;
        let mut grants = Grants::new();
        loop {
            let parent = self.directory(directory, grants.freshness).await?;
            match self.link_in(&parent, node, name, who).await {
                Err(code) if grants.again(code) => self.with(|state| state.io.counters.grants_refused += 1),
                Ok(Some(found)) => return Ok(Answer::Found(found)),
                // Links to directories do not exist, so it is a file whatever kind of file.
                Ok(None) => {
                    let named = Named { node, file_type: FileType::Regular, until: None };
                    return self.node_found(named).await.map(Answer::Found);
                }
                Err(code) => return Err(code),
            }
        }
    }

    async fn link_in(
        &self,
        parent: &Directory,
        node: Handle,
        name: &Name,
        who: &Credentials,
    ) -> Result<Option<Found>, Code> {
        let keys = vec![parent.name_key(name), parent.content_key(), LeaseKey::File(node.node)];
        let grant = parent.view.grant.clone();
        let call = Call::Link { grant, who: who.clone(), name: name.clone(), node };
        self.change(keys, parent.position(name), call, |state, answered| match answered.body {
            Body::Entry(view, _) => Ok(state.take_entry(parent, name, view, &answered.stamp).1),
            Body::Node(view) => {
                let seen = state.take_node(&view, &answered.stamp);
                Ok(Some(state.found(&seen, None)))
            }
            Body::Done => Ok(None),
            _ => Err(state.io.unexpected()),
        })
        .await?
    }
}
