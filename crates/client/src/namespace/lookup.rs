//! A name in a directory.

use super::grants::{Grants, VANISHED_TRIES, vanished};
use crate::context::{Context, State};
use crate::operation::{Answer, Found};
use crate::state::lease::{Directory, Named};
use bearing_proto::client::{Body, Call, Handle};
use bearing_types::{Code, Credentials, FileType, Name, NodeId, Permission};

impl Context {
    pub(crate) async fn lookup(
        &self,
        directory: Handle,
        name: &Name,
        who: &Credentials,
    ) -> Result<Answer, Code> {
        let mut tries = VANISHED_TRIES;
        loop {
            let (named, found) = self.resolve(directory, name, who).await?;
            let found = match found {
                Some(found) => Ok(found),
                None => self.node_found(named).await,
            };
            match found {
                Err(code) if vanished(code) && tries > 0 => {
                    // The node went between the two questions, so the name did too: ask for it again.
                    tries -= 1;
                    self.forget_name(directory.node, name);
                }
                Err(code) if vanished(code) => return Err(Code::NotFound),
                found => return found.map(Answer::Found),
            }
        }
    }

    /// What a name leads to, and its attributes if the same answer had them.
    async fn resolve(
        &self,
        directory: Handle,
        name: &Name,
        who: &Credentials,
    ) -> Result<(Named, Option<Found>), Code> {
        let here = |state: &mut State, _| state.lookup_here(directory.node, name, who);
        if let Some(found) = self.decide_in(directory.node, here).await {
            return found.map(|(entry, remaining, found)| {
                let until = self.with(|state| state.io.now.mono.after(remaining.0));
                (Named { node: entry.node, file_type: entry.file_type, until: Some(until) }, found)
            });
        }
        let mut grants = Grants::new();
        loop {
            let parent = self.directory(directory, grants.freshness).await?;
            if let Some(named) = self.cached_name(&parent, name, who)? {
                return Ok((named, None));
            }
            match self.ask_name(&parent, name, who).await {
                Err(code) if grants.again(code) => {
                    self.with(|state| state.io.counters.grants_refused += 1);
                }
                resolved => return resolved,
            }
        }
    }

    /// A leased name, if who asks may search the directory. Access control lists are only judged by servers.
    fn cached_name(&self, parent: &Directory, name: &Name, who: &Credentials) -> Result<Option<Named>, Code> {
        let grant = &parent.view.grant.body;
        if grant.acl.has_access() {
            return Ok(None);
        }
        let named = self.with(|state| {
            let named = state.cache.name(grant, name, state.io.now.mono);
            match named {
                Some((_, first)) => {
                    state.io.counters.name_hits += 1;
                    state.io.counters.names_prefetched_used += u64::from(first);
                    state.trails.met(grant.seat.node, first, state.io.now.mono);
                }
                None => state.io.counters.name_misses += 1,
            }
            named.map(|(named, _)| named)
        });
        match named {
            Some(_) if !grant.access.allows(who, Permission::SEARCH, FileType::Directory) => {
                Err(Code::Access)
            }
            named => Ok(named),
        }
    }

    async fn ask_name(
        &self,
        parent: &Directory,
        name: &Name,
        who: &Credentials,
    ) -> Result<(Named, Option<Found>), Code> {
        let grant = parent.view.grant.clone();
        let call = Call::Lookup { grant, who: who.clone(), name: name.clone() };
        let answered = self.call(parent.position(name), call).await?;
        let taken = self.with(|state| match answered.body {
            Body::Entry(view, _) => Ok(state.take_entry(parent, name, view, &answered.stamp)),
            _ => Err(state.io.unexpected()),
        })?;
        self.consider_prefetch(parent, who);
        Ok(taken)
    }

    /// Attributes of what a name leads to.
    pub(super) async fn node_found(&self, named: Named) -> Result<Found, Code> {
        let mut found = match named.file_type {
            FileType::Directory => self.directory_found(named.node).await?,
            _ => self.file_found(named.node).await?,
        };
        found.name_remaining = self.with(|state| state.remaining(named.until));
        Ok(found)
    }

    /// What a name leads to, for operations that end it: their requests have to say, and drop, what is held
    /// of the node.
    pub(super) async fn target(
        &self,
        directory: Handle,
        name: &Name,
        who: &Credentials,
    ) -> Result<Named, Code> {
        Ok(self.resolve(directory, name, who).await?.0)
    }

    /// A grant was too old, or a name leads to something else by now: both are asked for again.
    pub(super) fn grant_refused(&self, names: &[(NodeId, &Name)]) {
        self.with(|state| state.io.counters.grants_refused += 1);
        for (directory, name) in names {
            self.forget_name(*directory, name);
        }
    }

    fn forget_name(&self, directory: NodeId, name: &Name) {
        self.with(|state| {
            if let Some(parent) = state.cache.directory(directory, state.io.now.mono) {
                state.cache.forget(&[parent.name_key(name)]);
            }
        });
    }
}
