//! Removing names: unlink and rmdir.

use super::grants::Grants;
use crate::context::{Context, State};
use crate::operation::Answer;
use crate::state::lease::{Directory, Named, node_keys};
use bearing_proto::client::{Call, Handle};
use bearing_types::{Code, Credentials, FileType, Name};

/// What is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removal {
    Name,
    Directory,
}

impl Context {
    pub(crate) async fn unlink(
        &self,
        directory: Handle,
        name: &Name,
        who: &Credentials,
    ) -> Result<Answer, Code> {
        self.remove(Removal::Name, directory, name, who).await
    }

    pub(crate) async fn remove_directory(
        &self,
        directory: Handle,
        name: &Name,
        who: &Credentials,
    ) -> Result<Answer, Code> {
        self.remove(Removal::Directory, directory, name, who).await
    }

    async fn remove(
        &self,
        removal: Removal,
        directory: Handle,
        name: &Name,
        who: &Credentials,
    ) -> Result<Answer, Code> {
        let here = |state: &mut State, _| match removal {
            Removal::Name => state.unlink_here(directory.node, name, who),
            Removal::Directory => state.remove_directory_here(directory.node, name, who),
        };
        if let Some(removed) = self.decide_in(directory.node, here).await {
            return removed.map(|()| Answer::Done);
        }
        let mut grants = Grants::with_names();
        loop {
            let target = self.target(directory, name, who).await?;
            let parent = self.directory(directory, grants.freshness).await?;
            match self.remove_from(removal, &parent, name, who, target).await {
                Err(code) if grants.again(code) => self.grant_refused(&[(directory.node, name)]),
                removed => {
                    if removed.is_ok() {
                        self.consider_delegation(directory, who);
                    }
                    return removed.map(|()| Answer::Done);
                }
            }
        }
    }

    async fn remove_from(
        &self,
        removal: Removal,
        parent: &Directory,
        name: &Name,
        who: &Credentials,
        target: Named,
    ) -> Result<(), Code> {
        let (node, keep_open) = (target.node.node, self.keep_open(Some(target)));
        let mut keys = vec![parent.name_key(name), parent.content_key()];
        keys.extend(node_keys(node, target.file_type == FileType::Directory));
        let (grant, who, name) = (parent.view.grant.clone(), who.clone(), name.clone());
        let position = parent.position(&name);
        let call = match removal {
            Removal::Name => Call::Unlink { grant, who, name, node, keep_open },
            Removal::Directory => Call::RemoveDirectory { grant, who, name, node },
        };
        self.change(keys, position, call, |_, _| ()).await
    }

    /// Whether a file whose name goes is open here. If so, its node is kept for us, and released when the
    /// last open file closes.
    pub(super) fn keep_open(&self, target: Option<Named>) -> bool {
        self.with(|state| target.is_some_and(|target| state.files.name_goes(target.node.node)))
    }
}
