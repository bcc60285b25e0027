//! New files, links, special files and directories.

use super::grants::Grants;
use crate::context::{Context, State};
use crate::operation::{Answer, Found};
use crate::state::lease::{Directory, Named};
use bearing_proto::client::{Body, Call, Handle, NewNode};
use bearing_proto::grant::OpenToken;
use bearing_types::{Code, Credentials, FileType, Mode, Name};

type Created = (Named, Option<Found>, Option<OpenToken>);

impl Context {
    pub(crate) async fn create(
        &self,
        directory: Handle,
        name: &Name,
        who: &Credentials,
        new: NewNode,
        open: bool,
    ) -> Result<Answer, Code> {
        let open = open && new.file_type == FileType::Regular;
        let here = |state: &mut State, _| state.create_here(directory.node, name, who, &new, open);
        if let Some(made) = self.decide_in(directory.node, here).await {
            return made.map(|(found, file)| match file {
                Some(file) => Answer::Opened(file, found),
                None => Answer::Found(found),
            });
        }
        let make = |parent: &Directory| Call::Create {
            grant: parent.view.grant.clone(),
            who: who.clone(),
            name: name.clone(),
            new: new.clone(),
        };
        let (named, found, token) = self.make((directory, name), who, make).await?;
        let found = self.made(named, found).await?;
        if !open {
            return Ok(Answer::Found(found));
        }
        let file = self.with(|state| state.open_created(&found, who, token));
        Ok(Answer::Opened(file, found))
    }

    async fn made(&self, named: Named, found: Option<Found>) -> Result<Found, Code> {
        match found {
            Some(found) => Ok(found),
            None => self.node_found(named).await,
        }
    }

    pub(crate) async fn make_directory(
        &self,
        directory: Handle,
        name: &Name,
        who: &Credentials,
        mode: Mode,
    ) -> Result<Answer, Code> {
        let here = |state: &mut State, _| state.make_directory_here(directory.node, name, who, mode);
        if let Some(made) = self.decide_in(directory.node, here).await {
            return made.map(Answer::Found);
        }
        let make = |parent: &Directory| Call::MakeDirectory {
            grant: parent.view.grant.clone(),
            who: who.clone(),
            name: name.clone(),
            mode,
        };
        let (named, found, _) = self.make((directory, name), who, make).await?;
        self.made(named, found).await.map(Answer::Found)
    }

    async fn make(
        &self,
        (directory, name): (Handle, &Name),
        who: &Credentials,
        call: impl Fn(&Directory) -> Call,
    ) -> Result<Created, Code> {
        let mut grants = Grants::new();
        loop {
            let parent = self.directory(directory, grants.freshness).await?;
            let keys = vec![parent.name_key(name), parent.content_key()];
            let made = self
                .change(keys, parent.position(name), call(&parent), |state, answered| match answered.body {
                    Body::Entry(view, token) => {
                        let (named, found) = state.take_entry(&parent, name, view, &answered.stamp);
                        Ok((named, found, token))
                    }
                    _ => Err(state.io.unexpected()),
                })
                .await;
            match made {
                Err(code) if grants.again(code) => self.with(|state| state.io.counters.grants_refused += 1),
                Err(code) => return Err(code),
                Ok(made) => {
                    self.consider_delegation(directory, who);
                    return made;
                }
            }
        }
    }
}
