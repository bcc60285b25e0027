//! Leases of one tablet: who may use what without asking, and recalls under way.
//!
//! Invariants: while a recall of a key runs, and a quiet moment after, no new lease on it is given; at most a bounded number of holders is tracked per key (above
//! it, none is given); nobody on the server waits for a client. After a take-over, what sessions of the former owner may hold is unknown: changes
//! that would need a recall wait until these sessions have dropped everything, or the longest lease has passed.

use crate::config::Config;
use bearing_proto::client::{LeaseKey, LeaseMs};
use bearing_types::{Mono, NodeId, SessionId};
use std::collections::BTreeMap;

/// "Open" is believed for so many times the longest lease: a change may have to wait that long for another holder, who is silent, and no new lease
/// is given meanwhile.
const OPEN_BELIEVED: u32 = 2;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct LeaseTable {
    entries: BTreeMap<LeaseKey, LeaseEntry>,
    recalls: BTreeMap<u64, RecallState>,
    next_recall: u64,
    /// Sessions that may hold leases of the former owner, and until when.
    inherited: BTreeMap<SessionId, Mono>,
    /// Files that sessions said they have open when their lease was recalled, and until when that is believed: long enough for them to get a
    /// new lease, under which they are asked again.
    open: BTreeMap<NodeId, BTreeMap<SessionId, Mono>>,
}

#[derive(Debug, Default)]
struct LeaseEntry {
    holders: BTreeMap<SessionId, Mono>,
    quiet_until: Option<Mono>,
    uses: u32,
}

#[derive(Debug)]
struct RecallState {
    session: SessionId,
    keys: Vec<LeaseKey>,
    expires: Mono,
}

/// A recall to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecallWish {
    pub session: SessionId,
    pub number: u64,
    pub keys: Vec<LeaseKey>,
}

impl LeaseTable {
    /// After a take-over: these sessions may hold anything until `until`.
    pub fn inherit(&mut self, sessions: impl IntoIterator<Item = SessionId>, until: Mono) -> Vec<RecallWish> {
        let mut wishes = Vec::new();
        for session in sessions {
            self.inherited.insert(session, until);
            wishes.push(self.begin(session, Vec::new(), until));
        }
        wishes
    }

    /// How long a lease on `key` would last; `None` while it is being recalled or has too many holders.
    /// Length follows use (AngleCut section 4.2, with frequency; height enters through directories being asked more often).
    pub fn offer(&self, key: LeaseKey, session: SessionId, now: Mono, config: &Config) -> LeaseMs {
        if self.is_recalled_from(session, key) {
            return LeaseMs(0);
        }
        let Some(entry) = self.entries.get(&key) else {
            return length(1, config);
        };
        let quiet = entry.quiet_until.is_some_and(|until| now < until);
        let crowded =
            entry.holders.len() >= config.lease_holders_max && !entry.holders.contains_key(&session);
        if quiet || crowded { LeaseMs(0) } else { length(entry.uses.saturating_add(1), config) }
    }

    /// How long a first lease on a key would last that this very decision frees of all others.
    pub fn offer_after_change(&self, key: LeaseKey, session: SessionId, config: &Config) -> LeaseMs {
        if self.is_recalled_from(session, key) { LeaseMs(0) } else { length(1, config) }
    }

    /// While an answer to a recall may be on its way, a new lease to the same session would be dropped by it.
    fn is_recalled_from(&self, session: SessionId, key: LeaseKey) -> bool {
        self.recalls.values().any(|recall| recall.session == session && recall.keys.contains(&key))
    }

    /// Whether a key is being recalled, or was a moment ago.
    pub fn is_quiet(&self, key: LeaseKey, now: Mono) -> bool {
        self.entries.get(&key).and_then(|entry| entry.quiet_until).is_some_and(|until| now < until)
    }

    /// Notes a lease that goes out with a reply.
    pub fn give(&mut self, key: LeaseKey, session: SessionId, lease: LeaseMs, now: Mono) {
        if lease.0 == 0 {
            return;
        }
        let entry = self.entries.entry(key).or_default();
        entry.uses = entry.uses.saturating_add(1);
        entry.quiet_until = None;
        let until = now.after(std::time::Duration::from_millis(u64::from(lease.0)));
        let held = entry.holders.entry(session).or_insert(until);
        *held = (*held).max(until);
    }

    /// The sessions other than `requester` that may still use one of the keys.
    pub fn holders(
        &self,
        keys: &[LeaseKey],
        requester: Option<SessionId>,
        now: Mono,
    ) -> BTreeMap<SessionId, Vec<LeaseKey>> {
        let mut holders: BTreeMap<SessionId, Vec<LeaseKey>> = BTreeMap::new();
        for key in keys {
            for (session, until) in self.entries.get(key).into_iter().flat_map(|entry| &entry.holders) {
                if Some(*session) != requester && *until > now {
                    holders.entry(*session).or_default().push(*key);
                }
            }
        }
        for (session, until) in &self.inherited {
            if Some(*session) != requester && *until > now && !keys.is_empty() {
                holders.entry(*session).or_default();
            }
        }
        holders
    }

    /// Starts recalls from the holders found by [`LeaseTable::holders`]. Keys that are being recalled from a session already are not recalled twice.
    pub fn recall(
        &mut self,
        holders: BTreeMap<SessionId, Vec<LeaseKey>>,
        now: Mono,
        config: &Config,
    ) -> Vec<RecallWish> {
        let mut wishes = Vec::new();
        for (session, mut keys) in holders {
            for key in &keys {
                self.entries.entry(*key).or_default().quiet_until = Some(now.after(config.lease_max));
            }
            keys.retain(|key| {
                !self.recalls.values().any(|recall| recall.session == session && recall.keys.contains(key))
            });
            if !keys.is_empty() {
                wishes.push(self.begin(session, keys, now.after(config.lease_max)));
            }
        }
        wishes
    }

    fn begin(&mut self, session: SessionId, keys: Vec<LeaseKey>, expires: Mono) -> RecallWish {
        let number = self.next_recall;
        self.next_recall += 1;
        self.recalls.insert(number, RecallState { session, keys: keys.clone(), expires });
        RecallWish { session, number, keys }
    }

    /// A session says that it uses the keys of a recall no more. `true` if a recall ended.
    pub fn recalled(
        &mut self,
        session: SessionId,
        number: u64,
        open: &[NodeId],
        now: Mono,
        config: &Config,
    ) -> bool {
        if self.recalls.get(&number).is_none_or(|recall| recall.session != session) {
            return false;
        }
        let recall = self.recalls.remove(&number).expect("seen just now");
        if recall.keys.is_empty() {
            self.inherited.remove(&session);
        }
        for node in open {
            self.open.entry(*node).or_default().insert(session, now.after(OPEN_BELIEVED * config.lease_max));
        }
        self.drop_held(session, &recall.keys, now, config);
        true
    }

    fn drop_held(&mut self, session: SessionId, keys: &[LeaseKey], now: Mono, config: &Config) {
        for key in keys {
            let Some(entry) = self.entries.get_mut(key) else { continue };
            entry.holders.remove(&session);
            if entry.holders.is_empty() {
                entry.quiet_until = Some(now.after(config.recall_quiet));
            }
        }
    }

    /// A change of these keys is done: the requester's own leases on them are released, and new ones may be given.
    pub fn changed(&mut self, keys: &[LeaseKey]) {
        for key in keys {
            self.entries.remove(key);
        }
    }

    /// The sessions that said they have a file open when it was recalled.
    pub fn open_by(&self, node: NodeId) -> impl Iterator<Item = SessionId> + '_ {
        self.open.get(&node).into_iter().flat_map(|sessions| sessions.keys().copied())
    }

    /// Recalls to send again: those that are not answered.
    pub fn unanswered(&self) -> Vec<RecallWish> {
        let wish = |(number, recall): (&u64, &RecallState)| RecallWish {
            session: recall.session,
            number: *number,
            keys: recall.keys.clone(),
        };
        self.recalls.iter().map(wish).collect()
    }

    /// Lets go of what time has ended. `true` if a recall ended by it.
    pub fn expire(&mut self, now: Mono) -> bool {
        let recalls = self.recalls.len();
        self.recalls.retain(|_, recall| recall.expires > now);
        self.inherited.retain(|_, until| *until > now);
        self.entries.retain(|_, entry| {
            entry.holders.retain(|_, until| *until > now);
            !entry.holders.is_empty() || entry.quiet_until.is_some_and(|until| until > now)
        });
        self.open.retain(|_, sessions| {
            sessions.retain(|_, until| *until > now);
            !sessions.is_empty()
        });
        recalls != self.recalls.len()
    }
}

fn length(uses: u32, config: &Config) -> LeaseMs {
    let (low, high) = (config.lease_min.as_millis() as u32, config.lease_max.as_millis() as u32);
    LeaseMs((low.saturating_mul(uses)).clamp(low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: LeaseKey = LeaseKey::File(NodeId(1));
    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);

    fn table() -> (LeaseTable, Config) {
        (LeaseTable::default(), Config::standard())
    }

    #[test]
    fn a_recalled_key_gives_no_lease_until_a_quiet_moment_has_passed() {
        let (mut table, config) = table();
        table.give(KEY, A, LeaseMs(1000), Mono(0));
        let holders = table.holders(&[KEY], Some(B), Mono(1));
        let wishes = table.recall(holders, Mono(1), &config);
        assert_eq!(wishes.len(), 1);
        assert_eq!(table.offer(KEY, B, Mono(2), &config), LeaseMs(0));
        assert!(table.recalled(A, wishes[0].number, &[NodeId(1)], Mono(3), &config));
        assert!(table.holders(&[KEY], Some(B), Mono(3)).is_empty());
        assert_eq!(table.offer(KEY, B, Mono(4), &config), LeaseMs(0));
        assert_ne!(table.offer(KEY, B, Mono(3).after(config.recall_quiet), &config), LeaseMs(0));
        assert_eq!(table.open_by(NodeId(1)).collect::<Vec<_>>(), [A]);
    }

    #[test]
    fn the_requesters_own_lease_and_expired_ones_are_in_nobodys_way() {
        let (mut table, _) = table();
        table.give(KEY, A, LeaseMs(1), Mono(0));
        assert!(table.holders(&[KEY], Some(A), Mono(1)).is_empty());
        assert!(table.holders(&[KEY], Some(B), Mono(1_000_000)).is_empty());
    }

    #[test]
    fn inherited_sessions_block_changes_until_they_answer_or_time_passes() {
        let (mut table, config) = table();
        let wishes = table.inherit([A], Mono(100));
        assert_eq!(table.holders(&[KEY], Some(B), Mono(1)).len(), 1);
        assert!(table.recalled(A, wishes[0].number, &[], Mono(2), &config));
        assert!(table.holders(&[KEY], Some(B), Mono(2)).is_empty());
        table.inherit([A], Mono(100));
        assert!(table.holders(&[KEY], Some(B), Mono(100)).is_empty());
    }

    #[test]
    fn who_said_open_is_believed_until_it_can_have_a_lease_again_and_not_for_ever() {
        let (mut table, config) = table();
        table.give(KEY, A, LeaseMs(1000), Mono(0));
        let holders = table.holders(&[KEY], Some(B), Mono(1));
        let wishes = table.recall(holders, Mono(1), &config);
        table.recalled(A, wishes[0].number, &[NodeId(1)], Mono(1), &config);
        table.changed(&[KEY]);
        table.expire(Mono(2));
        assert_eq!(table.open_by(NodeId(1)).collect::<Vec<_>>(), [A]);
        table.expire(Mono(1).after(OPEN_BELIEVED * config.lease_max));
        assert_eq!(table.open_by(NodeId(1)).count(), 0);
    }

    #[test]
    fn a_session_that_has_not_answered_a_recall_gets_no_lease_that_the_answer_would_drop() {
        let (mut table, config) = table();
        table.give(KEY, A, LeaseMs(1000), Mono(0));
        let holders = table.holders(&[KEY], Some(B), Mono(1));
        let wishes = table.recall(holders, Mono(1), &config);
        table.changed(&[KEY]);
        assert_eq!(table.offer(KEY, A, Mono(2), &config), LeaseMs(0));
        assert_eq!(table.offer_after_change(KEY, A, &config), LeaseMs(0));
        assert_ne!(table.offer_after_change(KEY, B, &config), LeaseMs(0));
        table.recalled(A, wishes[0].number, &[], Mono(3), &config);
        assert_ne!(table.offer_after_change(KEY, A, &config), LeaseMs(0));
    }

    #[test]
    fn a_lease_gets_longer_with_every_use_up_to_the_longest() {
        let (mut table, config) = table();
        let mut given = Vec::new();
        for use_ in 0..15u64 {
            let lease = table.offer(KEY, A, Mono(use_), &config);
            table.give(KEY, A, lease, Mono(use_));
            given.push(lease.0);
        }
        assert_eq!(given[..4], [300, 600, 900, 1200]);
        assert_eq!(given[9..], [3000; 6]);
        let other = LeaseKey::File(NodeId(2));
        assert_eq!(table.offer(other, A, Mono(20), &config), LeaseMs(300), "by its own use, not by others'");
    }

    #[test]
    fn the_same_key_is_recalled_once_from_a_session() {
        let (mut table, config) = table();
        table.give(KEY, A, LeaseMs(1000), Mono(0));
        let holders = table.holders(&[KEY], Some(B), Mono(1));
        assert_eq!(table.recall(holders.clone(), Mono(1), &config).len(), 1);
        assert_eq!(table.recall(holders, Mono(1), &config).len(), 0);
    }
}
