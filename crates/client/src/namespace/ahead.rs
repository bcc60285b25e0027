//! Lookups ahead: when several names of a directory were asked for one by one, all others are taken with their leases in the background, so that the next ones are
//! answered from the cache.
//!
//! Invariants: nobody waits for this, and what it takes is what the cache would take of single lookups: judged by the same grant when it is used, and gone with the same
//! recalls. It goes on only while names of the directory are asked for, and after a directory of which little was used it pauses.

use crate::bounded::Bounded;
use crate::cache::Directory;
use crate::delegation::ENTRY_BYTES;
use crate::hub::{Hub, State};
use crate::request::Answered;
use bearing_proto::client::{Body, Call};
use bearing_types::{Cookie, Credentials, FileType, Mono, NodeId, Permission};
use std::time::Duration;

/// Directories whose lookups are counted.
const TRAILS_MAX: usize = 1024;
/// One name of so many has to be asked for, or it was not worth it.
const USED_OF: u32 = 4;

/// See the module.
pub(crate) struct Ahead {
    trails: Bounded<NodeId, Trail>,
}

/// What is asked for in one directory.
#[derive(Debug)]
struct Trail {
    /// Names asked for one by one, since when.
    misses: u32,
    since: Mono,
    /// When a name was asked for last, by whoever.
    asked: Mono,
    fetching: bool,
    /// Names taken the last time, and those of them that were asked for.
    taken: u32,
    used: u32,
    not_before: Mono,
    pause: Duration,
}

impl Ahead {
    pub fn new() -> Ahead {
        Ahead { trails: Bounded::new(TRAILS_MAX) }
    }
}

impl State {
    /// A name was found in the cache; `first`: it had been looked up ahead, and is used now.
    pub(super) fn name_met(&mut self, directory: NodeId, first: bool) {
        self.counters.names_ahead_used += u64::from(first);
        if let Some(trail) = self.ahead.trails.get(&directory) {
            trail.asked = self.now.mono;
            trail.used += u32::from(first);
        }
    }

    /// A name that is there had to be asked for. Whether to look up the others now.
    fn name_missed(&mut self, parent: &Directory, who: &Credentials) -> bool {
        let (now, config) = (self.now.mono, &self.config);
        let grant = &parent.view.grant.body;
        let node = grant.seat.node;
        // Access control lists are only judged by servers, name by name.
        let may_list = !grant.acl.has_access()
            && grant.access.allows(who, Permission::LIST_AND_SEARCH, FileType::Directory);
        let entries = parent.view.node.attributes.size / ENTRY_BYTES;
        let lent = self.delegations.is_ours(node) || self.delegations.is_lent(node);
        if config.ahead_after == 0 || !may_list || lent || entries > u64::from(config.ahead_entries_max) {
            return false;
        }
        let pause = config.ahead_pause;
        if self.ahead.trails.peek(&node).is_none() {
            self.ahead.trails.insert(node, Trail::new(now, pause));
        }
        let trail = self.ahead.trails.get(&node).expect("put in just now, or before");
        if now.since(trail.since) > config.ahead_within {
            (trail.misses, trail.since) = (0, now);
        }
        trail.asked = now;
        trail.misses += 1;
        if trail.misses < config.ahead_after || trail.fetching || now < trail.not_before {
            return false;
        }
        trail.misses = 0;
        let worth_it = trail.used >= trail.taken / USED_OF;
        (trail.taken, trail.used) = (0, 0);
        if worth_it {
            trail.pause = pause;
            trail.fetching = true;
        } else {
            trail.rests(now, config.ahead_pause_max);
        }
        worth_it
    }

    /// Whether somebody still asks for names of a directory that others decide in.
    fn is_asked_for(&self, directory: NodeId) -> bool {
        let lent = self.delegations.is_ours(directory) || self.delegations.is_lent(directory);
        let trail = self.ahead.trails.peek(&directory);
        !lent && trail.is_some_and(|trail| self.now.mono.since(trail.asked) <= self.config.ahead_within)
    }

    /// Takes a page: where to go on, and how many names it had.
    fn take_page_ahead(&mut self, parent: &Directory, answered: Answered) -> Option<(Option<Cookie>, u32)> {
        let node = parent.view.node.node.node;
        let Body::Ahead { entries, next } = answered.body else {
            self.counters.unexpected += 1;
            return None;
        };
        // Meanwhile we decide in it ourselves.
        if self.delegations.is_ours(node) || self.delegations.is_lent(node) {
            return None;
        }
        let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        let mut taken = 0;
        for (name, view) in entries {
            taken += u32::from(self.take_name_ahead(parent, name, &view, &answered.stamp));
        }
        self.counters.names_ahead += u64::from(taken);
        if let Some(trail) = self.ahead.trails.get(&node) {
            trail.taken += taken;
        }
        Some((next, count))
    }

    /// It is over for now.
    fn ahead_ends(&mut self, directory: NodeId) {
        let (now, pause_max) = (self.now.mono, self.config.ahead_pause_max);
        if let Some(trail) = self.ahead.trails.get(&directory) {
            trail.fetching = false;
            trail.misses = 0;
            if trail.taken == 0 {
                trail.rests(now, pause_max);
            }
        }
    }
}

impl Trail {
    fn new(now: Mono, pause: Duration) -> Trail {
        let not_before = Mono::ZERO;
        Trail { misses: 0, since: now, asked: now, fetching: false, taken: 0, used: 0, not_before, pause }
    }

    fn rests(&mut self, now: Mono, pause_max: Duration) {
        self.not_before = now.after(self.pause);
        self.pause = (self.pause * 2).min(pause_max);
    }
}

impl Hub {
    /// A name of a directory had to be asked for: perhaps more will be.
    pub(super) fn consider_ahead(&self, parent: &Directory, who: &Credentials) {
        if self.with(|state| state.name_missed(parent, who)) {
            let work = self.clone().look_ahead(parent.clone(), who.clone());
            self.with(|state| state.spawn(work));
        }
    }

    async fn look_ahead(self, parent: Directory, who: Credentials) {
        let directory = parent.view.node.node.node;
        let (page, mut left) = self.with(|state| (state.config.list_page, state.config.ahead_entries_max));
        let mut next = Some(Cookie::START);
        while let Some(after) = next.filter(|_| left > 0) {
            if !self.with(|state| state.is_asked_for(directory)) {
                break;
            }
            let (grant, who) = (parent.view.grant.clone(), who.clone());
            let position = grant.body.seat.position_of(after.hash());
            let call = Call::Ahead { grant, who, after, count_max: page.min(left) };
            // Whatever is refused here, single lookups are told why.
            let Ok(answered) = self.call(position, call).await else { break };
            let taken = self.with(|state| state.take_page_ahead(&parent, answered));
            let Some((go_on, count)) = taken else { break };
            left = left.saturating_sub(count);
            // Never back to where we were.
            next = go_on.filter(|go_on| *go_on > after);
        }
        self.with(|state| state.ahead_ends(directory));
    }
}
