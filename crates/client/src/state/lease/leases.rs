//! Which leases may be taken from a reply: none that a recall, or a change of our own, may have ended since
//! the request was sent.
//!
//! A counter runs over the recalls received. A request remembers the counter when it is first sent; a key
//! remembers it when it is recalled. A reply gives a lease only if its request is younger than the key's last
//! recall. Our own changes release our own leases at the server without a message, so a key is also
//! *changing* from when the request is sent until its reply is here: nobody but that reply gives a lease
//! meanwhile, and what was asked before its end gives none after.
//!
//! A change that was given up at its deadline may be carried out later. Its keys go on *changing* for as long
//! again; by then the number of its request has been declared finished to every server that was asked
//! anything since, and is refused there.

use bearing_proto::client::LeaseKey;
use bearing_types::{Block, Mono, Position};
use std::collections::BTreeMap;

/// Counts recalls and own changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark(u64);

/// Where a reply stands in time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    /// When its request was first sent: leases count from there.
    pub sent: Mono,
    /// What had been recalled then.
    pub mark: Mark,
    /// Whether it is the reply to a change of the keys it leases.
    pub own_change: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Leases {
    counter: u64,
    recalled: BTreeMap<LeaseKey, u64>,
    recalled_blocks: Vec<(Block, u64)>,
    changing: BTreeMap<LeaseKey, u32>,
    prune_at: usize,
    /// Nothing is leased any more.
    stopped: bool,
}

/// Recalled keys remembered before the first look for those that no request can meet any more.
const PRUNE_AT_MIN: usize = 256;

impl Leases {
    pub fn new() -> Leases {
        Leases {
            counter: 0,
            recalled: BTreeMap::new(),
            recalled_blocks: Vec::new(),
            changing: BTreeMap::new(),
            prune_at: PRUNE_AT_MIN,
            stopped: false,
        }
    }

    /// No reply gives a lease from now on.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// What a request that is sent now remembers.
    pub fn mark(&self) -> Mark {
        Mark(self.counter)
    }

    /// These keys are recalled now.
    pub fn recall_keys(&mut self, keys: &[LeaseKey]) {
        self.counter += 1;
        for key in keys {
            self.recalled.insert(*key, self.counter);
        }
    }

    /// Everything in this block is recalled now.
    pub fn recall_block(&mut self, block: Block) {
        self.counter += 1;
        self.recalled_blocks.push((block, self.counter));
    }

    /// A change of these keys is about to be sent.
    pub fn begin_change(&mut self, keys: &[LeaseKey]) {
        for key in keys {
            *self.changing.entry(*key).or_insert(0) += 1;
        }
    }

    /// It is answered, and what the answer leases was taken.
    pub fn end_change(&mut self, keys: &[LeaseKey]) {
        for key in keys {
            let count = self.changing.get_mut(key).expect("a change ends once");
            *count -= 1;
            if *count == 0 {
                self.changing.remove(key);
            }
        }
        self.recall_keys(keys);
    }

    /// Whether a change of a key is on its way.
    pub fn is_changing(&self, key: LeaseKey) -> bool {
        self.changing.contains_key(&key)
    }

    /// Whether a reply may give a lease on a key that lies at `position`.
    pub fn may_take(&self, key: LeaseKey, position: Position, stamp: &Stamp) -> bool {
        let allowed = u32::from(stamp.own_change);
        let quiet = self.changing.get(&key).is_none_or(|count| *count <= allowed);
        let key_young = self.recalled.get(&key).is_none_or(|counter| *counter <= stamp.mark.0);
        quiet && key_young && self.block_is_young(position, stamp)
    }

    /// Whether a reply to a change of our own is not older than what is known of a key: nothing ended its
    /// leases since the request was sent, or nothing but changes of our own up to `known`.
    pub fn is_news(&self, key: LeaseKey, position: Position, stamp: &Stamp, known: Option<Mark>) -> bool {
        let recalled = self.recalled.get(&key);
        let key_young = recalled
            .is_none_or(|counter| *counter <= stamp.mark.0 || known.is_some_and(|known| *counter <= known.0));
        key_young && self.block_is_young(position, stamp)
    }

    fn block_is_young(&self, position: Position, stamp: &Stamp) -> bool {
        let later = |counter: u64| counter > stamp.mark.0;
        let mut recalled = self.recalled_blocks.iter();
        !self.stopped && !recalled.any(|(block, counter)| later(*counter) && block.contains(position))
    }

    /// Whether enough is remembered to be worth a [`Leases::prune`].
    pub fn wants_pruning(&self) -> bool {
        self.recalled.len() + self.recalled_blocks.len() >= self.prune_at
    }

    /// Forgets recalls that no outstanding request is older than.
    pub fn prune(&mut self, oldest: Option<Mark>) {
        let oldest = oldest.map_or(self.counter, |mark| mark.0);
        self.recalled.retain(|_, counter| *counter > oldest);
        self.recalled_blocks.retain(|(_, counter)| *counter > oldest);
        self.prune_at = PRUNE_AT_MIN.max(2 * (self.recalled.len() + self.recalled_blocks.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::NodeId;

    const KEY: LeaseKey = LeaseKey::File(NodeId(1));
    const AT: Position = Position(9);

    fn stamp(leases: &Leases) -> Stamp {
        Stamp { sent: Mono(0), mark: leases.mark(), own_change: false }
    }

    #[test]
    fn a_reply_to_a_request_older_than_a_recall_gives_no_lease_on_that_key_alone() {
        let mut leases = Leases::new();
        let old = stamp(&leases);
        leases.recall_keys(&[KEY]);
        let young = stamp(&leases);
        assert!(!leases.may_take(KEY, AT, &old));
        assert!(leases.may_take(LeaseKey::File(NodeId(2)), AT, &old));
        assert!(leases.may_take(KEY, AT, &young));
    }

    #[test]
    fn a_recall_of_a_tablet_stops_all_older_replies_from_there() {
        let mut leases = Leases::new();
        let old = stamp(&leases);
        let (low, _) = Block::RING.halves().unwrap();
        leases.recall_block(low);
        assert!(!leases.may_take(KEY, AT, &old));
        assert!(leases.may_take(KEY, Position(u64::MAX), &old));
        assert!(leases.may_take(KEY, AT, &stamp(&leases)));
    }

    #[test]
    fn while_a_key_changes_only_the_changes_own_reply_gives_a_lease() {
        let mut leases = Leases::new();
        leases.begin_change(&[KEY]);
        let reader = stamp(&leases);
        let own = Stamp { own_change: true, ..reader };
        assert!(!leases.may_take(KEY, AT, &reader));
        assert!(leases.may_take(KEY, AT, &own));
        leases.begin_change(&[KEY]);
        assert!(!leases.may_take(KEY, AT, &own), "the other change may have come after this one");
        leases.end_change(&[KEY]);
        leases.end_change(&[KEY]);
        assert!(!leases.may_take(KEY, AT, &reader), "it was asked before the change was over");
        assert!(leases.may_take(KEY, AT, &stamp(&leases)));
    }

    #[test]
    fn what_no_request_can_meet_any_more_is_forgotten() {
        let mut leases = Leases::new();
        leases.recall_keys(&[KEY]);
        let between = leases.mark();
        leases.recall_keys(&[LeaseKey::File(NodeId(2))]);
        leases.prune(Some(between));
        assert_eq!(leases.recalled.len(), 1);
        leases.prune(None);
        assert!(leases.recalled.is_empty());
    }
}
