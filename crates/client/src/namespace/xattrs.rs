//! Extended attributes. Values are not cached; that a node has none is known as long as its attributes are,
//! so most questions are answered here.

use crate::context::{Context, State};
use crate::delegation::decide::Local;
use crate::operation::Answer;
use crate::state::lease::node_keys;
use bearing_proto::client::{Body, Call, Handle, XattrChange};
use bearing_types::{
    AclHash, Attributes, Code, Credentials, FileType, NodeId, Permission, XattrName, XattrSpace,
};

impl Context {
    pub(crate) async fn xattr(
        &self,
        node: Handle,
        file_type: FileType,
        who: &Credentials,
        name: XattrName,
    ) -> Result<Answer, Code> {
        let is_list = matches!(name.space(), XattrSpace::AccessList | XattrSpace::DefaultList);
        if is_list && self.with(|state| state.has_no_lists(node)) {
            return Err(Code::NoData);
        }
        if let Some(attributes) = self.with(|state| state.without_xattrs(node, file_type)) {
            let bears = matches!(file_type, FileType::Regular | FileType::Directory);
            let asks = name.space() == XattrSpace::User && bears;
            let may = !asks || attributes.access().allows(who, Permission::READ, file_type);
            return Err(if may { Code::NoData } else { Code::Access });
        }
        self.ask_xattr(node, Call::Xattr { node, who: who.clone(), name }).await
    }

    pub(crate) async fn xattrs(
        &self,
        node: Handle,
        file_type: FileType,
        who: &Credentials,
    ) -> Result<Answer, Code> {
        if self.with(|state| state.without_xattrs(node, file_type)).is_some() {
            return Ok(Answer::Xattr(Vec::new()));
        }
        self.ask_xattr(node, Call::Xattrs { node, who: who.clone() }).await
    }

    async fn ask_xattr(&self, node: Handle, call: Call) -> Result<Answer, Code> {
        self.leave_to_home(node.node).await;
        let answered = self.call(node.home, call).await?;
        self.with(|state| match answered.body {
            Body::Xattr(bytes) => Ok(Answer::Xattr(bytes)),
            _ => Err(state.io.unexpected()),
        })
    }

    pub(crate) async fn set_xattr(
        &self,
        node: Handle,
        file_type: FileType,
        who: &Credentials,
        name: XattrName,
        change: XattrChange,
    ) -> Result<Answer, Code> {
        if let Some(set) = self.set_list(node.node, file_type, who, &name, &change).await {
            return set.map(|()| Answer::Done);
        }
        self.leave_to_home(node.node).await;
        if matches!(name.space(), XattrSpace::AccessList | XattrSpace::DefaultList) {
            // A list decides over access as the mode does.
            let _ = self.hold_open(node.node).await;
        }
        let keys = node_keys(node.node, file_type == FileType::Directory);
        let call = Call::SetXattr { node, who: who.clone(), name, change };
        let taken = |state: &mut State, answered| state.take_node_body(answered);
        self.change(keys, node.home, call, taken).await??;
        Ok(Answer::Done)
    }

    /// Sets an access control list that says no more than permission bits, of a node of ours.
    async fn set_list(
        &self,
        node: NodeId,
        file_type: FileType,
        who: &Credentials,
        name: &XattrName,
        change: &XattrChange,
    ) -> Option<Result<(), Code>> {
        if !matches!(name.space(), XattrSpace::AccessList | XattrSpace::DefaultList) {
            return None;
        }
        if file_type == FileType::Directory {
            let here = |state: &mut State, _| state.set_list_of_directory_here(node, who, name, change);
            return self.decide_in(node, here).await;
        }
        match self.with(|state| state.set_list_here(node, who, name, change)) {
            Local::Done(set) => Some(set),
            Local::Outside | Local::NeedIds | Local::Lapsed | Local::Unknown(_) => None,
        }
    }
}

impl State {
    /// Whether a lease says that a directory has no access control lists: a grant speaks of them.
    fn has_no_lists(&mut self, node: Handle) -> bool {
        let cached = self.cache.directory(node.node, self.io.now.mono);
        cached.is_some_and(|cached| cached.view.grant.body.acl == AclHash(0))
    }

    /// The attributes of a node of which a lease says that it has no extended ones.
    fn without_xattrs(&mut self, node: Handle, file_type: FileType) -> Option<Attributes> {
        let now = self.io.now.mono;
        if let Some(seen) = self.our_node(node.node) {
            return (!seen.extended).then_some(seen.attributes);
        }
        if let Some(ours) = self.local_directory(node.node) {
            let seen = ours.view.node;
            return (!seen.extended).then_some(seen.attributes);
        }
        if file_type == FileType::Directory {
            let cached = self.cache.directory(node.node, now).filter(|cached| cached.content_until.is_some());
            let seen = cached.map(|cached| cached.view.node).filter(|seen| !seen.extended);
            return seen.map(|seen| seen.attributes);
        }
        let seen = self.cache.node(node.node, now).filter(|seen| !seen.extended);
        seen.map(|seen| seen.attributes)
    }
}
