//! A part of a listing. The cookie says by itself where to go on, so nothing is kept between two calls.

use super::grants::{Freshness, Grants};
use crate::context::{Context, State};
use crate::operation::{Answer, ListPart, Listed};
use crate::state::lease::{Directory, Stamp};
use bearing_proto::client::{Body, Call, Detail, Handle, ListedEntry};
use bearing_types::{Code, Cookie, Credentials, NameHash};

impl Context {
    pub(crate) async fn list(
        &self,
        directory: Handle,
        who: &Credentials,
        part: ListPart,
    ) -> Result<Answer, Code> {
        let ListPart { after, count_max, .. } = part;
        let here = |state: &mut State, _| state.list_here(directory.node, who, part);
        let mut decided = self.decide_in(directory.node, here).await;
        if decided.is_none() && after == Cookie::START && self.follow(directory, who).await {
            decided = self.decide_in(directory.node, here).await;
        }
        if let Some(listed) = decided.and_then(Result::transpose) {
            return listed.map(Answer::Listed);
        }
        let mut grants = Grants::new();
        let mut listed = Vec::new();
        let mut next = Some(after);
        while let Some(after) = next.filter(|_| (listed.len() as u32) < count_max) {
            let left = count_max - listed.len() as u32;
            let rest = ListPart { after, count_max: left, ..part };
            let page = self.list_page(directory, who, rest, &grants).await;
            let (entries, go_on) = match page {
                Err(code) if grants.again(code) => {
                    self.with(|state| state.io.counters.grants_refused += 1);
                    continue;
                }
                page => page?,
            };
            listed.extend(entries);
            let reached = listed.last().map_or(after, |last: &Listed| last.cookie.max(after));
            // Ordinals begin at 1, so this cookie lies before every entry of the hash.
            next = go_on.map(|hash| Cookie::new(hash, 0).max(reached));
            if next == Some(after) {
                // A server that points back to where we are would have us ask for ever.
                return Err(self.with(|state| state.io.unexpected()));
            }
        }
        Ok(Answer::Listed(listed))
    }

    async fn list_page(
        &self,
        directory: Handle,
        who: &Credentials,
        rest: ListPart,
        grants: &Grants,
    ) -> Result<(Vec<Listed>, Option<NameHash>), Code> {
        let ListPart { after, count_max, detail } = rest;
        let large = self.listable(directory, grants.freshness == Freshness::Asked).await?;
        let (grant, parent) = match &large {
            Some((grant, _)) => (grant.clone(), None),
            None => {
                let parent = self.directory(directory, grants.freshness).await?;
                (parent.view.grant.clone(), Some(parent))
            }
        };
        let position = grant.body.seat.position_of(after.hash());
        let count_max = self.with(|state| count_max.min(state.io.config.list_page));
        // What is said of a large directory of ours would not be leased.
        let detail = match detail {
            Detail::Lookups if large.is_some() => Detail::Names,
            detail => detail,
        };
        let call = Call::List { grant, who: who.clone(), after, count_max, detail };
        let answered = self.call(position, call).await?;
        self.with(|state| {
            let Body::List { mut entries, next } = answered.body else { return Err(state.io.unexpected()) };
            if let Some(parent) = parent {
                state.take_found(&parent, &mut entries, &answered.stamp);
            }
            let mut listed: Vec<Listed> = entries.into_iter().map(to_listed).collect();
            if let Some((_, epoch)) = large {
                state.overlay(directory.node, &mut listed, epoch);
            }
            Ok((listed, next))
        })
    }
}

impl State {
    /// Takes what lookups of listed entries would say. Not of a directory that we decide in by now.
    fn take_found(&mut self, parent: &Directory, entries: &mut [ListedEntry], stamp: &Stamp) {
        if self.delegations.concerns(parent.node()) {
            return;
        }
        for entry in entries {
            if let Some(view) = entry.found.take() {
                self.take_entry(parent, &entry.name, *view, stamp);
            }
        }
    }
}

fn to_listed(entry: ListedEntry) -> Listed {
    Listed {
        cookie: entry.cookie,
        name: entry.name,
        node: entry.node,
        file_type: entry.file_type,
        attributes: entry.attributes,
    }
}
