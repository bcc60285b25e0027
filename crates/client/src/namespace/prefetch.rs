//! Prefetching names: when several names of a directory were asked for one by one, all others are taken with
//! their leases in the background, so that the next ones are answered from the cache.
//!
//! Invariants: nobody waits for this, and what it takes is what the cache would take of single lookups:
//! judged by the same grant when it is used, and gone with the same recalls. It goes on only while names of
//! the directory are asked for, and after a directory of which little was used it pauses.

use crate::context::{Context, State};
use crate::state::Answered;
use crate::state::lease::Directory;
use bearing_proto::client::{Body, Call};
use bearing_proto::rules;
use bearing_types::{Cookie, Credentials, FileType, NodeId, Permission};

impl State {
    /// A name that is there had to be asked for. Whether to look up the others now.
    fn name_missed(&mut self, parent: &Directory, who: &Credentials) -> bool {
        let config = &self.io.config;
        let grant = &parent.view.grant.body;
        // Access control lists are only judged by servers, name by name.
        let may_list = !grant.acl.has_access()
            && grant.access.allows(who, Permission::LIST_AND_SEARCH, FileType::Directory);
        let entries = rules::entries_of(&parent.view.node.attributes);
        let few = entries <= u64::from(config.prefetch_entries_max);
        let may = config.prefetch_after > 0 && may_list && few && !self.delegations.concerns(grant.seat.node);
        may && self.trails.missed(grant.seat.node, self.io.now.mono, config)
    }

    /// Whether somebody still asks for names of a directory that others decide in.
    fn prefetches(&self, directory: NodeId) -> bool {
        !self.delegations.concerns(directory)
            && self.trails.is_asked_for(directory, self.io.now.mono, &self.io.config)
    }

    /// Takes a page: where to go on, and how many names it had.
    fn on_page(&mut self, parent: &Directory, answered: Answered) -> Option<(Option<Cookie>, u32)> {
        let Body::Prefetched { entries, next } = answered.body else {
            self.io.unexpected();
            return None;
        };
        // Meanwhile we decide in it ourselves.
        if self.delegations.concerns(parent.node()) {
            return None;
        }
        let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        let mut taken = 0;
        for (name, view) in entries {
            taken += u32::from(self.take_prefetched(parent, &name, &view, &answered.stamp));
        }
        self.io.counters.names_prefetched += u64::from(taken);
        self.trails.taken(parent.node(), taken);
        Some((next, count))
    }
}

impl Context {
    /// A name of a directory had to be asked for: perhaps more will be.
    pub(super) fn consider_prefetch(&self, parent: &Directory, who: &Credentials) {
        if self.with(|state| state.name_missed(parent, who)) {
            let work = self.clone().prefetch(parent.clone(), who.clone());
            self.with(|state| state.spawn(work));
        }
    }

    async fn prefetch(self, parent: Directory, who: Credentials) {
        let directory = parent.view.node.node.node;
        let (page, mut left) =
            self.with(|state| (state.io.config.list_page, state.io.config.prefetch_entries_max));
        let mut next = Some(Cookie::START);
        while let Some(after) = next.filter(|_| left > 0) {
            if !self.with(|state| state.prefetches(directory)) {
                break;
            }
            let (grant, who) = (parent.view.grant.clone(), who.clone());
            let position = grant.body.seat.position_of(after.hash());
            let call = Call::Prefetch { grant, who, after, count_max: page.min(left) };
            // Whatever is refused here, single lookups are told why.
            let Ok(answered) = self.call(position, call).await else { break };
            let taken = self.with(|state| state.on_page(&parent, answered));
            let Some((go_on, count)) = taken else { break };
            left = left.saturating_sub(count);
            // Never back to where we were.
            next = go_on.filter(|go_on| *go_on > after);
        }
        self.with(|state| state.trails.end(directory, state.io.now.mono, &state.io.config));
    }
}
