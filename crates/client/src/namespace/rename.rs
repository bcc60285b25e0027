//! Moving a name.

use super::grants::Grants;
use crate::context::{Context, State};
use crate::delegation::decide::End;
use crate::event::Invalidation;
use crate::operation::Answer;
use crate::state::lease::{Directory, Named, node_keys};
use bearing_proto::client::{Body, Call, Handle, LeaseKey, RenameMode};
use bearing_types::{Code, Credentials, FileType, Name};

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub directory: Handle,
    pub name: &'a Name,
}

impl Context {
    pub(crate) async fn rename(
        &self,
        source: Place<'_>,
        target: Place<'_>,
        who: &Credentials,
        mode: RenameMode,
    ) -> Result<Answer, Code> {
        let (from, to) = (source, target);
        let ends = |place: Place<'_>| (place.directory, place.name.clone());
        let ((from_directory, from_name), (to_directory, to_name)) = (ends(from), ends(to));
        self.settled(to_directory.node).await;
        let here = |state: &mut State, _| {
            let from = End { directory: from_directory, name: &from_name };
            state.rename_here(from, End { directory: to_directory, name: &to_name }, who, mode)
        };
        if let Some(moved) = self.decide_in(from_directory.node, here).await {
            return moved.map(|()| Answer::Done);
        }
        self.suspend(to_directory.node).await;
        let mut grants = Grants::with_names();
        loop {
            let moved = self.target(source.directory, source.name, who).await?;
            let replaced = match self.target(target.directory, target.name, who).await {
                Ok(named) => Some(named),
                Err(Code::NotFound) if mode != RenameMode::Exchange => None,
                Err(code) => return Err(code),
            };
            if source.directory != target.directory
                && self.with(|state| state.delegations.is_lent(source.directory.node))
            {
                self.expose(moved.node.node).await;
            }
            let from = self.directory(source.directory, grants.freshness).await?;
            let to = self.directory(target.directory, grants.freshness).await?;
            // Of one directory both grants have to be the same one.
            let from = if source.directory == target.directory { to.clone() } else { from };
            let keys = keys_of((&from, source.name, Some(moved)), (&to, target.name, replaced));
            let call = Call::Rename {
                source: from.view.grant.clone(),
                source_name: source.name.clone(),
                target: to.view.grant.clone(),
                target_name: target.name.clone(),
                who: who.clone(),
                mode,
                moved: moved.node.node,
                replaced: replaced.map(|named| named.node.node),
                // Nothing goes by an exchange.
                keep_open: mode != RenameMode::Exchange && self.keep_open(replaced),
            };
            let ends = [Some((&to, target)), (mode == RenameMode::Exchange).then_some((&from, source))];
            let renamed: Vec<_> = ends
                .into_iter()
                .flatten()
                .map(|(directory, place)| {
                    (directory.name_key(place.name), place.directory.node, place.name.clone())
                })
                .collect();
            self.with(|state| state.renamed.extend(renamed.iter().cloned()));
            let moving = self.change(keys, to.position(target.name), call, |state, answered| {
                if let Body::Entry(view, _) = answered.body {
                    state.take_entry(&to, target.name, view, &answered.stamp);
                }
                let exchanged = replaced.filter(|_| mode == RenameMode::Exchange);
                for (named, place) in [(Some(moved), target), (exchanged, source)] {
                    let Some(named) = named else { continue };
                    let directory = place.directory.node;
                    if named.file_type != FileType::Directory {
                        state.cache.note_name(named.node.node, directory, place.name);
                    }
                    // It would serve it for as long as it was told of the other name, which nobody leases us
                    // any more.
                    let name = place.name.clone();
                    state.invalidate([Invalidation::Entry { directory, name }]);
                }
            });
            let moved = moving.await;
            self.with(|state| {
                for ended in &renamed {
                    let place = state.renamed.iter().position(|other| other == ended);
                    place.into_iter().for_each(|place| _ = state.renamed.swap_remove(place));
                }
            });
            match moved {
                Err(code) if grants.again(code) => self.grant_refused(&[
                    (source.directory.node, source.name),
                    (target.directory.node, target.name),
                ]),
                moved => {
                    if moved.is_ok() && source.directory == target.directory {
                        self.consider_delegation(source.directory, who);
                    }
                    return moved.map(|()| Answer::Done);
                }
            }
        }
    }
}

fn keys_of(
    source: (&Directory, &Name, Option<Named>),
    target: (&Directory, &Name, Option<Named>),
) -> Vec<LeaseKey> {
    let mut keys = Vec::new();
    for (directory, name, named) in [source, target] {
        keys.extend([directory.name_key(name), directory.content_key()]);
        if let Some(named) = named {
            keys.extend(node_keys(named.node.node, named.file_type == FileType::Directory));
        }
    }
    keys.sort();
    keys.dedup();
    keys
}
