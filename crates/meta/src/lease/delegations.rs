//! Directories that are delegated: to whom, with what is lent with each, which is the same as the records
//! say; and until when.
//!
//! Invariant: a holder's lease is one for all that it holds in the tablet, as it counts it itself. So no step
//! walks what a holder holds, which may be tens of thousands of directories.

use crate::config::Config;
use crate::record::{Delegated, Holder};
use bearing_types::{LogIndex, Mono, NodeId, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Delegations {
    holders: BTreeMap<NodeId, Holder>,
    held: BTreeMap<Holder, Held>,
    /// Nodes that are lent, and with which directory.
    lent: BTreeMap<NodeId, NodeId>,
    lent_with: BTreeMap<NodeId, Vec<NodeId>>,
    /// Directories that were called back, and since when.
    called_back: BTreeMap<NodeId, Mono>,
    /// The last entry that ended one. A new owner that does not have it knows the delegation still.
    ended: Option<LogIndex>,
}

/// What one holder holds.
#[derive(Debug)]
struct Held {
    directories: BTreeSet<NodeId>,
    /// The end of its lease.
    until: Mono,
    /// Those that it has said it does not use, but the records of which are there yet.
    unused: BTreeSet<NodeId>,
}

impl Held {
    fn is_used(&self, directory: NodeId, now: Mono) -> bool {
        now < self.until && self.directories.contains(&directory) && !self.unused.contains(&directory)
    }

    fn any_is_used(&self, now: Mono) -> bool {
        now < self.until && self.unused.len() < self.directories.len()
    }
}

impl Delegations {
    /// A directory is delegated so from now on, with nodes that it names. Its holder has a full lease.
    pub fn delegate(&mut self, directory: NodeId, delegated: Delegated, now: Mono, config: &Config) {
        self.remove(directory);
        self.holders.insert(directory, delegated.holder);
        let held = self.held.entry(delegated.holder).or_insert_with(|| Held {
            directories: BTreeSet::new(),
            until: Mono::ZERO,
            unused: BTreeSet::new(),
        });
        held.directories.insert(directory);
        held.until = held.until.max(now.after(config.delegation_ttl));
        self.lent.extend(delegated.nodes.iter().map(|node| (*node, directory)));
        if !delegated.nodes.is_empty() {
            self.lent_with.insert(directory, delegated.nodes);
        }
    }

    /// A directory is delegated no more.
    pub fn end(&mut self, directory: NodeId, index: LogIndex) {
        self.ended = Some(index);
        self.remove(directory);
        self.called_back.remove(&directory);
    }

    /// What is decided without regard to those that are over rests on this entry.
    pub fn ended(&self) -> LogIndex {
        self.ended.unwrap_or(LogIndex::ZERO)
    }

    fn remove(&mut self, directory: NodeId) {
        if let Some(holder) = self.holders.remove(&directory)
            && let Some(held) = self.held.get_mut(&holder)
        {
            held.directories.remove(&directory);
            held.unused.remove(&directory);
            if held.directories.is_empty() {
                self.held.remove(&holder);
            }
        }
        for node in self.lent_with.remove(&directory).into_iter().flatten() {
            if self.lent.get(&node) == Some(&directory) {
                self.lent.remove(&node);
            }
        }
    }

    /// A holder's lease on all that it holds lasts for a full life from now.
    pub fn renew(&mut self, holder: Holder, now: Mono, config: &Config) {
        if let Some(held) = self.held.get_mut(&holder) {
            held.until = held.until.max(now.after(config.delegation_ttl));
        }
    }

    /// All holders' leases last for a full life from now.
    pub fn renew_all(&mut self, now: Mono, config: &Config) {
        for held in self.held.values_mut() {
            held.until = held.until.max(now.after(config.delegation_ttl));
        }
    }

    /// A session says that it does not use a directory.
    pub fn is_not_used(&mut self, directory: NodeId, session: SessionId) {
        let holder = self.holders.get(&directory).filter(|holder| holder.session == session);
        if let Some(held) = holder.and_then(|holder| self.held.get_mut(holder)) {
            held.unused.insert(directory);
        }
    }

    /// A session is over: it uses nothing any more.
    pub fn forget_session(&mut self, session: SessionId) {
        for (_, held) in self.held.range_mut(all_of(session)) {
            held.until = Mono::ZERO;
        }
    }

    /// Who holds a directory.
    pub fn holder(&self, directory: NodeId) -> Option<Holder> {
        self.holders.get(&directory).copied()
    }

    /// Whether a directory's holder may use it yet without asking.
    pub fn is_used(&self, directory: NodeId, now: Mono) -> bool {
        let held = self.holders.get(&directory).and_then(|holder| self.held.get(holder));
        held.is_some_and(|held| held.is_used(directory, now))
    }

    /// Whether a holder may use anything of it yet without asking.
    pub fn uses_any(&self, holder: Holder, now: Mono) -> bool {
        self.held.get(&holder).is_some_and(|held| held.any_is_used(now))
    }

    /// The same for a session.
    pub fn session_uses_any(&self, session: SessionId, now: Mono) -> bool {
        self.held.range(all_of(session)).any(|(_, held)| held.any_is_used(now))
    }

    /// Somebody else looks into a delegated directory.
    pub fn call_back(&mut self, directory: NodeId, now: Mono) {
        self.called_back.entry(directory).or_insert(now);
    }

    /// Whether something that is delegated so was called back so long ago that it is renewed no more: others
    /// wait for it, whatever its holder does with it.
    pub fn is_overdue(&self, holder: Holder, now: Mono, config: &Config) -> bool {
        let overdue = |since: Mono| now.since(since) > config.delegation_return_timeout;
        let mut called_back = self.called_back.iter();
        called_back.any(|(directory, since)| overdue(*since) && self.holder(*directory) == Some(holder))
    }

    /// The directory with which a node is lent.
    pub fn lent_with(&self, node: NodeId) -> Option<NodeId> {
        self.lent.get(&node).copied()
    }

    /// All delegated directories, by id.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.holders.keys().copied()
    }

    /// How many directories each holder holds.
    pub fn counts(&self) -> impl Iterator<Item = (Holder, usize)> + '_ {
        self.held.iter().map(|(holder, held)| (*holder, held.directories.len()))
    }

    /// What one holder holds, by id.
    pub fn of(&self, holder: Holder) -> impl Iterator<Item = NodeId> + '_ {
        self.held.get(&holder).into_iter().flat_map(|held| held.directories.iter().copied())
    }

    /// What a session holds, with the holder.
    pub fn of_session(&self, session: SessionId) -> impl Iterator<Item = (Holder, NodeId)> + '_ {
        self.held
            .range(all_of(session))
            .flat_map(|(holder, held)| held.directories.iter().map(move |directory| (*holder, *directory)))
    }
}

/// All that a session may be as a holder.
fn all_of(session: SessionId) -> std::ops::RangeInclusive<Holder> {
    Holder { session, incarnation: 0 }..=Holder { session, incarnation: u64::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);

    fn holder(session: SessionId) -> Holder {
        Holder { session, incarnation: 7 }
    }

    fn delegate(delegations: &mut Delegations, directory: u64, session: SessionId, now: Mono) {
        let delegated = Delegated { holder: holder(session), nodes: vec![NodeId(directory + 100)] };
        delegations.delegate(NodeId(directory), delegated, now, &Config::standard());
    }

    #[test]
    fn a_holder_has_one_lease_on_all_that_it_holds() {
        let (mut delegations, config) = (Delegations::default(), Config::standard());
        delegate(&mut delegations, 1, A, Mono(0));
        delegate(&mut delegations, 2, B, Mono(0));
        delegate(&mut delegations, 3, A, Mono(1));
        let over = Mono(0).after(config.delegation_ttl);
        assert!(delegations.is_used(NodeId(1), over), "what was lent later renewed it");
        assert!(!delegations.is_used(NodeId(2), over));
        delegations.renew(holder(B), Mono(5), &config);
        assert!(delegations.is_used(NodeId(2), over) && delegations.session_uses_any(B, over));
        assert!(!delegations.uses_any(holder(A), Mono(1).after(config.delegation_ttl)));
        assert_eq!(delegations.of(holder(A)).collect::<Vec<_>>(), [NodeId(1), NodeId(3)]);
    }

    #[test]
    fn what_a_holder_does_not_use_is_in_nobodys_way_and_the_rest_is() {
        let mut delegations = Delegations::default();
        for directory in [1, 2] {
            delegate(&mut delegations, directory, A, Mono(0));
        }
        delegations.is_not_used(NodeId(1), B);
        assert!(delegations.is_used(NodeId(1), Mono(1)), "it is not for others to say");
        delegations.is_not_used(NodeId(1), A);
        assert!(!delegations.is_used(NodeId(1), Mono(1)) && delegations.is_used(NodeId(2), Mono(1)));
        assert!(delegations.uses_any(holder(A), Mono(1)));
        delegations.end(NodeId(2), LogIndex(1));
        assert!(!delegations.uses_any(holder(A), Mono(1)));
        delegate(&mut delegations, 1, A, Mono(1));
        assert!(delegations.is_used(NodeId(1), Mono(1)), "it was lent again");
    }

    #[test]
    fn a_session_that_is_over_uses_nothing() {
        let mut delegations = Delegations::default();
        delegate(&mut delegations, 1, A, Mono(0));
        delegate(&mut delegations, 2, B, Mono(0));
        delegations.forget_session(A);
        assert!(!delegations.session_uses_any(A, Mono(1)) && delegations.session_uses_any(B, Mono(1)));
        assert_eq!(delegations.of_session(A).collect::<Vec<_>>(), [(holder(A), NodeId(1))]);
    }

    #[test]
    fn what_was_called_back_for_too_long_makes_its_holder_overdue() {
        let (mut delegations, config) = (Delegations::default(), Config::standard());
        delegate(&mut delegations, 1, A, Mono(0));
        delegate(&mut delegations, 2, B, Mono(0));
        delegations.call_back(NodeId(1), Mono(1));
        let late = Mono(2).after(config.delegation_return_timeout);
        delegations.call_back(NodeId(1), late);
        assert!(!delegations.is_overdue(holder(A), Mono(1).after(config.delegation_return_timeout), &config));
        assert!(delegations.is_overdue(holder(A), late, &config));
        assert!(!delegations.is_overdue(holder(B), late, &config));
        delegations.end(NodeId(1), LogIndex(1));
        delegate(&mut delegations, 1, A, late);
        assert!(!delegations.is_overdue(holder(A), late, &config));
    }
}
