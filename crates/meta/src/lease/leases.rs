//! Leases of one tablet: who may use what without asking, and recalls under way. Who may have a file open is
//! told apart from this (`lease/opens.rs`): a lease ends with time, an open file does not.
//!
//! Invariants: while a recall of a key runs, and a quiet moment after, no new lease on it is given; at most a
//! bounded number of holders is tracked per key, and who comes above that gets a short lease that is not
//! tracked and cannot be recalled, only waited for; nobody on the server waits for a client. After a
//! take-over, what sessions of the former owner may hold is what the horizon says (`lease/horizon.rs`):
//! changes of that wait until these sessions have dropped everything, or the longest of their leases has
//! passed.

use crate::config::Config;
use crate::lease::parked::Parked;
use crate::lease::turns::Turns;
use crate::record::Reach;
use bearing_proto::client::{LeaseKey, LeaseMs};
use bearing_types::{IdMap, Mono, NodeId, SessionId};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Keys in one recall: it has to fit a datagram.
const RECALL_KEYS_MAX: usize = 256;

/// Ends of leases are rounded up to such steps, so that what ends together is found together.
const TICK: Duration = Duration::from_millis(50);
/// A session that has not answered a recall for so long may be over: its home is asked, once for each recall.
const SILENT: Duration = Duration::from_millis(100);
/// A key that has leases is looked at no more often than this, to see which have ended.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct LeaseTable {
    /// Never walked, so its order does not matter.
    entries: IdMap<LeaseKey, LeaseEntry>,
    /// When entries are looked at next, by steps of [`TICK`]: no step walks all of them. A key may stand
    /// where its entry is not due any more.
    due: BTreeMap<Mono, Vec<LeaseKey>>,
    recalls: BTreeMap<u64, RecallState>,
    /// Which key is being recalled from whom.
    recalled: BTreeSet<(SessionId, LeaseKey)>,
    next_recall: u64,
    /// Requests that wait for leases of others. What they wait for is not leased meanwhile.
    pub parked: Parked,
    turns: Turns,
    /// Sessions that may hold leases of the former owner, on what, and until when.
    inherited: BTreeMap<SessionId, (Reach, Mono)>,
    /// Sessions that are over, until none of their leases could last: these count no more.
    over: BTreeMap<SessionId, Mono>,
}

#[derive(Debug)]
struct LeaseEntry {
    /// In the order of the sessions; mostly one.
    holders: SmallVec<[(SessionId, Mono); 1]>,
    quiet_until: Option<Mono>,
    /// The end of the last lease that nobody is remembered for.
    untracked_until: Option<Mono>,
    uses: u32,
    due: Mono,
}

#[derive(Debug)]
struct RecallState {
    session: SessionId,
    keys: Vec<LeaseKey>,
    expires: Mono,
    /// Its silence was noticed.
    silent: bool,
}

/// A recall to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecallWish {
    pub session: SessionId,
    pub number: u64,
    pub keys: Vec<LeaseKey>,
}

/// A lease as it can be given now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// None: the key is being recalled, or was just now.
    Nothing,
    /// Its holder is remembered and will be asked before a change.
    Tracked(LeaseMs),
    /// Its holder is not remembered: a change waits until it is over.
    Untracked(LeaseMs),
}

impl Offer {
    /// How long it lasts.
    pub fn length(self) -> LeaseMs {
        match self {
            Offer::Nothing => LeaseMs(0),
            Offer::Tracked(lease) | Offer::Untracked(lease) => lease,
        }
    }
}

impl LeaseEntry {
    fn new(due: Mono) -> LeaseEntry {
        LeaseEntry { holders: SmallVec::new(), quiet_until: None, untracked_until: None, uses: 0, due }
    }

    fn is_quiet(&self, now: Mono) -> bool {
        self.quiet_until.is_some_and(|until| now < until)
    }

    /// Drops what has ended. Gives when the next thing ends; `None` if nothing is left.
    fn expire(&mut self, now: Mono) -> Option<Mono> {
        self.holders.retain(|(_, until)| *until > now);
        self.quiet_until = self.quiet_until.filter(|until| *until > now);
        self.untracked_until = self.untracked_until.filter(|until| *until > now);
        let held = self.holders.iter().map(|(_, until)| *until);
        held.chain(self.quiet_until).chain(self.untracked_until).min()
    }

    fn place(&self, session: SessionId) -> Result<usize, usize> {
        self.holders.binary_search_by_key(&session, |(holder, _)| *holder)
    }
}

impl LeaseTable {
    /// After a take-over: these sessions may hold what their horizon says, until its longest lease is over.
    /// All are asked to drop everything, and so to say which files they have open.
    pub fn inherit(
        &mut self,
        sessions: impl IntoIterator<Item = (SessionId, Reach)>,
        now: Mono,
        config: &Config,
    ) -> Vec<RecallWish> {
        let mut wishes = Vec::new();
        let expires = now.after(config.lease_ttl_max);
        for (session, reach) in sessions {
            if reach != Reach::NONE {
                self.inherited.insert(session, (reach, now.after(reach.longest())));
            }
            wishes.push(self.begin(session, Vec::new(), expires));
        }
        wishes
    }

    /// The lease that can be given on `key`. Length follows use (AngleCut section 4.2, with frequency; height
    /// enters through directories being asked more often).
    pub fn offer(&self, key: LeaseKey, session: SessionId, now: Mono, config: &Config) -> Offer {
        if !self.may_offer(key, session, now) {
            return Offer::Nothing;
        }
        let Some(entry) = self.entries.get(&key) else {
            return Offer::Tracked(length(1, config));
        };
        if entry.is_quiet(now) {
            return Offer::Nothing;
        }
        if entry.holders.len() >= config.lease_holders_max && entry.place(session).is_err() {
            return Offer::Untracked(LeaseMs(config.untracked_lease_ttl.as_millis() as u32));
        }
        Offer::Tracked(length(entry.uses.saturating_add(1), config))
    }

    /// The first lease on a key that this very decision frees of all others.
    pub fn offer_after_change(&self, key: LeaseKey, session: SessionId, now: Mono, config: &Config) -> Offer {
        if self.may_offer(key, session, now) { Offer::Tracked(length(1, config)) } else { Offer::Nothing }
    }

    /// Not to whom it is being recalled from, nor what others wait for, nor what several change by turns.
    fn may_offer(&self, key: LeaseKey, session: SessionId, now: Mono) -> bool {
        !self.is_recalled_from(session, key) && !self.parked.has(key) && !self.turns.rests(key, now)
    }

    /// While an answer to a recall may be on its way, a new lease to the same session would be dropped by it.
    fn is_recalled_from(&self, session: SessionId, key: LeaseKey) -> bool {
        self.recalled.contains(&(session, key))
    }

    /// Notes a lease that goes out with a reply. Gives when it ends.
    pub fn give(&mut self, key: LeaseKey, session: SessionId, offer: Offer, now: Mono) -> Mono {
        let until = now.after(Duration::from_millis(u64::from(offer.length().0)));
        if offer == Offer::Nothing {
            return until;
        }
        let entry = self.entry(key, until);
        entry.uses = entry.uses.saturating_add(1);
        entry.quiet_until = None;
        let held = match offer {
            Offer::Untracked(_) => {
                entry.untracked_until = entry.untracked_until.max(Some(until));
                until
            }
            Offer::Tracked(_) | Offer::Nothing => {
                let place = entry.place(session).unwrap_or_else(|place| {
                    entry.holders.insert(place, (session, until));
                    place
                });
                let (_, held) = &mut entry.holders[place];
                *held = (*held).max(until);
                *held
            }
        };
        self.outdate_recall(key, session);
        held
    }

    /// What was recalled is leased anew: an answer that is on its way is about what was held before.
    fn outdate_recall(&mut self, key: LeaseKey, session: SessionId) {
        if !self.recalled.remove(&(session, key)) {
            return;
        }
        let of_key = |recall: &RecallState| recall.session == session && recall.keys.contains(&key);
        let number = self.recalls.iter().find(|(_, recall)| of_key(recall)).map(|(number, _)| *number);
        let Some(recall) = number.and_then(|number| self.recalls.get_mut(&number)) else { return };
        recall.keys.retain(|recalled| *recalled != key);
        // One of no keys is of all there are.
        if recall.keys.is_empty() {
            number.and_then(|number| self.recalls.remove(&number));
        }
    }

    /// A directory is delegated no more. It is left alone for a moment, so that whoever it was called back
    /// for gets through.
    pub fn undelegated(&mut self, directory: NodeId, now: Mono, config: &Config) {
        let key = LeaseKey::Delegation(directory);
        self.entries.remove(&key);
        let quiet = now.after(config.delegation_delay);
        self.entry(key, quiet).quiet_until = Some(quiet);
    }

    /// Whether a directory may be delegated again. Not while its names are being recalled from who asks: what
    /// answers that would end the lease on them that it gets when it gives the directory back.
    pub fn may_delegate(&self, directory: NodeId, session: SessionId, now: Mono) -> bool {
        let key = LeaseKey::Delegation(directory);
        let quiet = self.entries.get(&key).is_some_and(|entry| entry.is_quiet(now));
        let recalled =
            [key, LeaseKey::Names(directory)].iter().any(|key| self.is_recalled_from(session, *key));
        let shared = [key, LeaseKey::Content(directory)].iter().any(|key| self.turns.rests(*key, now));
        !quiet && !recalled && !self.parked.has(key) && !shared
    }

    /// The entry of a key; a new one is looked at when `until` comes.
    fn entry(&mut self, key: LeaseKey, until: Mono) -> &mut LeaseEntry {
        self.entries.entry(key).or_insert_with(|| {
            let due = tick_after(until);
            self.due.entry(due).or_default().push(key);
            LeaseEntry::new(due)
        })
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
                if Some(*session) != requester && *until > now && !self.over.contains_key(session) {
                    holders.entry(*session).or_default().push(*key);
                }
            }
        }
        for (session, (reach, until)) in &self.inherited {
            let may_hold = *until > now && keys.iter().any(|key| reach.may_hold(key));
            if Some(*session) != requester && may_hold {
                holders.entry(*session).or_default();
            }
        }
        holders
    }

    /// When the first lease that others than `requester` have on one of the keys ends by itself.
    pub fn first_end(&self, keys: &[LeaseKey], requester: Option<SessionId>, now: Mono) -> Option<Mono> {
        let entries = keys.iter().filter_map(|key| self.entries.get(key));
        let held = entries.flat_map(|entry| &entry.holders).map(|(session, until)| (*session, *until));
        let inherited = self.inherited.iter().map(|(session, (_, until))| (*session, *until));
        let others = held.chain(inherited).filter(|(session, _)| Some(*session) != requester);
        others.map(|(_, until)| until).filter(|until| *until > now).min()
    }

    /// Until when one of the keys has a lease that nobody is remembered for. No new ones are given until it
    /// is over, and a moment longer, so that the change that asks finds the key free when it comes again.
    pub fn await_untracked(&mut self, keys: &[LeaseKey], now: Mono, config: &Config) -> Option<Mono> {
        let mut last = None;
        for key in keys {
            let Some(entry) = self.entries.get_mut(key) else { continue };
            let Some(until) = entry.untracked_until.filter(|until| *until > now) else { continue };
            entry.quiet_until = entry.quiet_until.max(Some(until.after(config.recall_lease_delay)));
            last = last.max(Some(until));
        }
        last
    }

    /// Whether nobody but `requester` may use one of the keys, and nothing is said to end soon.
    pub fn is_free(&self, keys: &[LeaseKey], requester: Option<SessionId>, now: Mono) -> bool {
        let holds = |(session, until): &(SessionId, Mono)| {
            Some(*session) != requester && *until > now && !self.over.contains_key(session)
        };
        let is_held = |entry: &LeaseEntry| {
            entry.untracked_until.is_some_and(|until| until > now) || entry.holders.iter().any(holds)
        };
        let held = keys.iter().filter_map(|key| self.entries.get(key)).any(is_held);
        let inherits = |(session, (reach, until)): (&SessionId, &(Reach, Mono))| {
            Some(*session) != requester && *until > now && keys.iter().any(|key| reach.may_hold(key))
        };
        !held && !self.inherited.iter().any(inherits)
    }

    /// Whether a session has a lease on a key.
    pub fn has_leased(&self, key: LeaseKey, session: SessionId, now: Mono) -> bool {
        let holders = self.entries.get(&key).into_iter().flat_map(|entry| &entry.holders);
        holders.copied().any(|(holder, until)| holder == session && until > now)
    }

    /// Whether anybody may hold a lease on a key.
    pub fn has(&self, key: LeaseKey) -> bool {
        self.entries.contains_key(&key)
    }

    /// Starts recalls from the holders found by [`LeaseTable::holders`]. Keys that are being recalled from a
    /// session already are not recalled twice.
    pub fn recall(
        &mut self,
        holders: BTreeMap<SessionId, Vec<LeaseKey>>,
        now: Mono,
        config: &Config,
    ) -> Vec<RecallWish> {
        let mut wishes = Vec::new();
        let expires = now.after(config.lease_ttl_max);
        for (session, mut keys) in holders {
            keys.sort_unstable();
            keys.dedup();
            for key in &keys {
                self.entry(*key, expires).quiet_until = Some(expires);
            }
            keys.retain(|key| !self.is_recalled_from(session, *key));
            let parts = keys.chunks(RECALL_KEYS_MAX).map(<[LeaseKey]>::to_vec).collect::<Vec<_>>();
            wishes.extend(parts.into_iter().map(|keys| self.begin(session, keys, expires)));
        }
        wishes
    }

    /// What is recalled by these is wanted for a change: one turn of each key, however many have it.
    pub fn take_turns(&mut self, wishes: &[RecallWish], now: Mono) {
        let keys: BTreeSet<LeaseKey> = wishes.iter().flat_map(|wish| wish.keys.iter().copied()).collect();
        keys.into_iter().for_each(|key| self.turns.recalled(key, now));
    }

    fn begin(&mut self, session: SessionId, keys: Vec<LeaseKey>, expires: Mono) -> RecallWish {
        let number = self.next_recall;
        self.next_recall += 1;
        self.recalled.extend(keys.iter().map(|key| (session, *key)));
        self.recalls.insert(number, RecallState { session, keys: keys.clone(), expires, silent: false });
        RecallWish { session, number, keys }
    }

    fn end(&mut self, number: u64) -> Option<RecallState> {
        let recall = self.recalls.remove(&number)?;
        for key in &recall.keys {
            self.recalled.remove(&(recall.session, *key));
        }
        Some(recall)
    }

    /// A session says that it uses the keys of a recall no more. Gives the keys if the recall was under way;
    /// none: everything of the tablet.
    pub fn recalled(
        &mut self,
        session: SessionId,
        number: u64,
        now: Mono,
        config: &Config,
    ) -> Option<Vec<LeaseKey>> {
        if self.recalls.get(&number).is_none_or(|recall| recall.session != session) {
            return None;
        }
        let recall = self.end(number)?;
        if recall.keys.is_empty() {
            self.inherited.remove(&session);
        }
        self.drop_held(session, &recall.keys, now, config);
        Some(recall.keys)
    }

    fn drop_held(&mut self, session: SessionId, keys: &[LeaseKey], now: Mono, config: &Config) {
        for key in keys {
            let Some(entry) = self.entries.get_mut(key) else { continue };
            if let Ok(place) = entry.place(session) {
                entry.holders.remove(place);
            }
            // Who wants it may have it leased himself, and may not come again. Or he has it already.
            let is_recalled = |(holder, until): &(SessionId, Mono)| {
                *until > now && self.recalled.contains(&(*holder, *key))
            };
            if entry.is_quiet(now) && !entry.holders.iter().any(is_recalled) {
                let delegation = matches!(key, LeaseKey::Delegation(_));
                let quiet = if delegation { config.delegation_delay } else { config.recall_lease_delay };
                entry.quiet_until = Some(now.after(quiet));
            }
        }
    }

    /// These keys were recalled because they are lent. Nobody leases them as long as they are; and when they
    /// are given back, whoever had that done shall lease them.
    pub fn lent(&mut self, keys: &[LeaseKey]) {
        for key in keys {
            if let Some(entry) = self.entries.get_mut(key) {
                entry.quiet_until = None;
            }
        }
    }

    /// A session is over: it uses nothing any more. Its leases stay where they are until their time is over,
    /// and count no more: there may be very many.
    pub fn forget_session(&mut self, session: SessionId, now: Mono, config: &Config) {
        let last = now.after(config.lease_ttl_max);
        self.over.insert(session, last);
        self.inherited.remove(&session);
        let recalls = self.recalls.iter().filter(|(_, recall)| recall.session == session);
        let numbers: Vec<u64> = recalls.map(|(number, _)| *number).collect();
        for number in numbers {
            self.end(number);
        }
    }

    /// Sessions that have not answered a recall for a while and were not given here for it before.
    pub fn newly_silent(&mut self, now: Mono, config: &Config) -> BTreeSet<SessionId> {
        // All recalls last as long.
        let began_before = now.after(config.lease_ttl_max.saturating_sub(SILENT));
        let recalls = self.recalls.values_mut();
        let silent = recalls.filter(|recall| !recall.silent && recall.expires <= began_before);
        silent
            .map(|recall| {
                recall.silent = true;
                recall.session
            })
            .collect()
    }

    /// A change of these keys is done: nobody else has leases on them, and new ones may be given. Its
    /// requester's own ones on nodes stay: its kernel may go by what it was told of them before. So do all
    /// if the change may be called off yet.
    pub fn changed(&mut self, keys: &[LeaseKey], requester: Option<SessionId>, may_be_called_off: bool) {
        for key in keys {
            let stays = may_be_called_off || matches!(key, LeaseKey::File(_) | LeaseKey::Access(_));
            let held = self.entries.get_mut(key).zip(requester.filter(|_| stays));
            let kept = held.filter(|(entry, session)| entry.place(*session).is_ok());
            match kept {
                Some((entry, session)) => {
                    entry.holders.retain(|(holder, _)| *holder == session);
                    (entry.quiet_until, entry.untracked_until) = (None, None);
                }
                None => {
                    self.entries.remove(key);
                }
            }
        }
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

    /// How many keys have leases.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many recalls were not answered yet.
    pub fn recalls(&self) -> usize {
        self.recalls.len()
    }

    /// Drops what time has ended.
    pub fn expire(&mut self, now: Mono) {
        // Recalls expire in the order in which they began: they all last as long.
        while let Some((number, recall)) = self.recalls.first_key_value() {
            if recall.expires > now {
                break;
            }
            let number = *number;
            self.end(number);
        }
        self.inherited.retain(|_, (_, until)| *until > now);
        self.over.retain(|_, until| *until > now);
        self.turns.expire(now);
        while let Some(bucket) = self.due.first_entry().filter(|bucket| *bucket.key() <= now) {
            let (due, keys) = bucket.remove_entry();
            for key in keys {
                let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.due == due) else {
                    continue;
                };
                match entry.expire(now) {
                    Some(next) => {
                        entry.due = tick_after(next.max(now.after(LOOK_EVERY)));
                        self.due.entry(entry.due).or_default().push(key);
                    }
                    None => {
                        self.entries.remove(&key);
                    }
                }
            }
        }
    }
}

/// The end of the tick in which a moment lies.
pub(crate) fn tick_after(moment: Mono) -> Mono {
    let tick = TICK.as_nanos() as u64;
    Mono(moment.0.div_ceil(tick).saturating_mul(tick))
}

fn length(uses: u32, config: &Config) -> LeaseMs {
    let (low, high) = (config.lease_ttl_min.as_millis() as u32, config.lease_ttl_max.as_millis() as u32);
    LeaseMs((low.saturating_mul(uses)).clamp(low, high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::NodeId;

    const KEY: LeaseKey = LeaseKey::File(NodeId(1));
    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);

    fn table() -> (LeaseTable, Config) {
        (LeaseTable::default(), Config::standard())
    }

    #[test]
    fn a_recalled_key_gives_no_lease_until_a_quiet_moment_has_passed() {
        let (mut table, config) = table();
        table.give(KEY, A, Offer::Tracked(LeaseMs(1000)), Mono(0));
        let holders = table.holders(&[KEY], Some(B), Mono(1));
        let wishes = table.recall(holders, Mono(1), &config);
        assert_eq!(wishes.len(), 1);
        assert_eq!(table.offer(KEY, B, Mono(2), &config), Offer::Nothing);
        assert!(table.recalled(A, wishes[0].number, Mono(3), &config).is_some());
        assert!(table.holders(&[KEY], Some(B), Mono(3)).is_empty());
        assert_eq!(table.offer(KEY, B, Mono(4), &config), Offer::Nothing);
        assert_ne!(table.offer(KEY, B, Mono(3).after(config.recall_lease_delay), &config), Offer::Nothing);
    }

    #[test]
    fn the_moment_is_as_short_when_who_asked_has_a_lease_too_and_does_not_come_again() {
        let (mut table, config) = table();
        table.give(KEY, A, Offer::Tracked(LeaseMs(3000)), Mono(0));
        table.give(KEY, B, Offer::Tracked(LeaseMs(3000)), Mono(0));
        let holders = table.holders(&[KEY], Some(B), Mono(1));
        let wishes = table.recall(holders, Mono(1), &config);
        table.recalled(A, wishes[0].number, Mono(3), &config);
        assert_ne!(table.offer(KEY, A, Mono(3).after(config.recall_lease_delay), &config), Offer::Nothing);
    }

    #[test]
    fn one_change_is_one_turn_however_many_readers_are_asked() {
        let (mut table, config) = table();
        for session in 10..20 {
            table.give(KEY, SessionId(session), Offer::Tracked(LeaseMs(1000)), Mono(0));
        }
        let holders = table.holders(&[KEY], Some(B), Mono(1));
        let wishes = table.recall(holders, Mono(1), &config);
        assert_eq!(wishes.len(), 10);
        table.take_turns(&wishes, Mono(1));
        assert!(!table.turns.rests(KEY, Mono(2)));
    }

    #[test]
    fn what_is_lent_may_be_leased_again_when_it_comes_back() {
        let (mut table, config) = table();
        for session in [A, B] {
            table.give(KEY, session, Offer::Tracked(LeaseMs(1000)), Mono(0));
        }
        let holders = table.holders(&[KEY], Some(B), Mono(1));
        let wishes = table.recall(holders, Mono(1), &config);
        table.recalled(A, wishes[0].number, Mono(2), &config).unwrap();
        assert_eq!(table.offer(KEY, A, Mono(3), &config), Offer::Nothing);
        table.lent(&[KEY]);
        assert_ne!(table.offer(KEY, A, Mono(4), &config), Offer::Nothing);
        assert_eq!(table.holders(&[KEY], Some(A), Mono(4)).len(), 1, "who has it keeps it");
    }

    #[test]
    fn who_wants_a_change_that_may_be_called_off_keeps_its_leases_and_is_asked_before_the_next() {
        let (mut table, config) = table();
        for session in [A, B] {
            let offer = table.offer(KEY, session, Mono(0), &config);
            table.give(KEY, session, offer, Mono(0));
        }
        table.changed(&[KEY], Some(A), true);
        assert_eq!(table.holders(&[KEY], None, Mono(1)), BTreeMap::from([(A, vec![KEY])]));
        table.changed(&[KEY], None, false);
        assert!(table.holders(&[KEY], None, Mono(1)).is_empty());
        table.changed(&[KEY], Some(A), true);
        assert!(table.entries.is_empty());
    }

    #[test]
    fn a_lease_that_is_given_while_the_key_is_recalled_is_not_dropped_by_the_answer() {
        let (mut table, config) = table();
        table.give(KEY, A, Offer::Tracked(LeaseMs(1000)), Mono(0));
        let holders = table.holders(&[KEY], Some(B), Mono(1));
        let wishes = table.recall(holders, Mono(1), &config);
        table.give(KEY, A, Offer::Tracked(LeaseMs(3000)), Mono(2));
        assert_eq!(table.recalled(A, wishes[0].number, Mono(3), &config), None);
        assert!(table.unanswered().is_empty(), "one of no keys would be of everything");
        let holders = table.holders(&[KEY], Some(B), Mono(4));
        assert_eq!(table.recall(holders, Mono(4), &config).len(), 1, "it is recalled anew");
    }

    #[test]
    fn the_requesters_own_lease_and_expired_ones_are_in_nobodys_way() {
        let (mut table, _) = table();
        table.give(KEY, A, Offer::Tracked(LeaseMs(1)), Mono(0));
        assert!(table.holders(&[KEY], Some(A), Mono(1)).is_empty());
        assert!(table.holders(&[KEY], Some(B), Mono(1_000_000)).is_empty());
    }

    #[test]
    fn inherited_sessions_block_changes_until_they_answer_or_time_passes() {
        let (mut table, config) = table();
        let reach = Reach { places: u64::MAX, longest_ms: 100 };
        let wishes = table.inherit([(A, reach)], Mono(0), &config);
        assert_eq!(table.holders(&[KEY], Some(B), Mono(1)).len(), 1);
        assert!(table.recalled(A, wishes[0].number, Mono(2), &config).is_some());
        assert!(table.holders(&[KEY], Some(B), Mono(2)).is_empty());
        table.inherit([(A, reach)], Mono(0), &config);
        assert!(table.holders(&[KEY], Some(B), Mono(100_000_000)).is_empty());
    }

    #[test]
    fn a_session_that_has_not_answered_a_recall_gets_no_lease_that_the_answer_would_drop() {
        let (mut table, config) = table();
        table.give(KEY, A, Offer::Tracked(LeaseMs(1000)), Mono(0));
        let holders = table.holders(&[KEY], Some(B), Mono(1));
        let wishes = table.recall(holders, Mono(1), &config);
        table.changed(&[KEY], None, false);
        assert_eq!(table.offer(KEY, A, Mono(2), &config), Offer::Nothing);
        assert_eq!(table.offer_after_change(KEY, A, Mono(4), &config), Offer::Nothing);
        assert_ne!(table.offer_after_change(KEY, B, Mono(4), &config), Offer::Nothing);
        table.recalled(A, wishes[0].number, Mono(3), &config);
        assert_ne!(table.offer_after_change(KEY, A, Mono(4), &config), Offer::Nothing);
    }

    #[test]
    fn a_lease_gets_longer_with_every_use_up_to_the_longest() {
        let (mut table, config) = table();
        let mut given = Vec::new();
        for use_ in 0..15u64 {
            let lease = table.offer(KEY, A, Mono(use_), &config);
            table.give(KEY, A, lease, Mono(use_));
            given.push(lease.length().0);
        }
        assert_eq!(given[..4], [300, 600, 900, 1200]);
        assert_eq!(given[9..], [3000; 6]);
        let other = LeaseKey::File(NodeId(2));
        assert_eq!(
            table.offer(other, A, Mono(20), &config),
            Offer::Tracked(LeaseMs(300)),
            "by its own use, not by others'"
        );
    }

    #[test]
    fn many_keys_are_recalled_in_messages_that_fit_a_datagram() {
        use bearing_proto::Message;
        use bearing_proto::client::Recall;
        use bearing_proto::envelope::{DATAGRAM_PACKED_MAX, Packing};
        use bearing_types::{Block, Epoch, NameHash};
        let (mut table, config) = table();
        let name = |at: u64| LeaseKey::Name(NodeId(u64::MAX - at), NameHash::LAST);
        let keys: Vec<LeaseKey> = (0..5000).map(name).collect();
        for key in &keys {
            table.give(*key, A, Offer::Tracked(LeaseMs(1000)), Mono(0));
        }
        let holders = table.holders(&keys, Some(B), Mono(1));
        let wishes = table.recall(holders, Mono(1), &config);
        assert_eq!(wishes.iter().map(|wish| wish.keys.len()).sum::<usize>(), keys.len());
        for RecallWish { number, keys, .. } in wishes {
            assert!(table.recalled(A, number, Mono(2), &config).is_some());
            let recall = Recall { tablet: Block::RING, epoch: Epoch(u64::MAX), number, keys };
            assert!(Packing::new().push(&Message::Recall(recall), DATAGRAM_PACKED_MAX));
        }
        assert!(table.holders(&keys, Some(B), Mono(3)).is_empty());
    }

    #[test]
    fn the_same_key_is_recalled_once_from_a_session() {
        let (mut table, config) = table();
        table.give(KEY, A, Offer::Tracked(LeaseMs(1000)), Mono(0));
        let holders = table.holders(&[KEY], Some(B), Mono(1));
        assert_eq!(table.recall(holders.clone(), Mono(1), &config).len(), 1);
        assert_eq!(table.recall(holders, Mono(1), &config).len(), 0);
    }

    #[test]
    fn above_the_limit_leases_are_short_and_a_change_waits_until_the_last_is_over() {
        let (mut table, mut config) = table();
        config.lease_holders_max = 2;
        let session = |number: u64| SessionId(100 + number);
        let untracked = Offer::Untracked(LeaseMs(200));
        for number in 0..1000 {
            let now = Mono(number * 1_000_000);
            let offer = table.offer(KEY, session(number), now, &config);
            assert_eq!(offer == untracked, number >= 2, "{number}");
            table.give(KEY, session(number), offer, now);
        }
        assert!(matches!(table.offer(KEY, session(1), Mono(0), &config), Offer::Tracked(_)));
        assert_eq!(table.holders(&[KEY], None, Mono(1)).len(), 2, "the others cannot be asked");
        let now = Mono(1_000_000_000);
        assert_eq!(table.await_untracked(&[KEY], now, &config), Some(Mono(1_199_000_000)));
        assert_eq!(table.offer(KEY, B, now, &config), Offer::Nothing, "or it would never be over");
        let over = now.after(config.untracked_lease_ttl);
        assert_eq!(table.await_untracked(&[KEY], over, &config), None);
        assert_eq!(table.offer(KEY, B, over, &config), Offer::Nothing, "the change comes again first");
        table.changed(&[KEY], None, false);
        assert_ne!(table.offer(KEY, B, over, &config), Offer::Nothing);
    }

    #[test]
    fn what_has_ended_is_let_go_of_and_what_was_renewed_is_not() {
        let (mut table, config) = table();
        for node in 0..100 {
            let offer = Offer::Tracked(LeaseMs(300));
            table.give(LeaseKey::File(NodeId(node)), A, offer, Mono(node * 1_000_000));
        }
        let later = Mono(200_000_000);
        table.give(KEY, A, Offer::Tracked(LeaseMs(3000)), later);
        table.expire(Mono(349_000_000));
        assert_eq!(table.entries.len(), 99, "all but the first: ends are rounded up");
        table.expire(Mono(350_000_000));
        assert_eq!(table.entries.len(), 50, "nodes 51 to 99, and the renewed one");
        table.expire(Mono(1_000_000_000));
        assert_eq!(table.entries.len(), 1);
        assert_eq!(table.holders(&[KEY], None, Mono(1_000_000_000)).len(), 1);
        table.expire(later.after(config.lease_ttl_max));
        assert!(table.entries.is_empty() && table.due.is_empty());
    }

    #[test]
    fn what_a_session_held_that_is_over_is_in_nobodys_way_and_it_is_asked_for_nothing() {
        let (mut table, config) = table();
        table.give(KEY, A, Offer::Tracked(LeaseMs(3000)), Mono(0));
        let anything = Reach::of_anything(&config);
        table.inherit([(A, anything), (B, anything)], Mono(1), &config);
        let holders = table.holders(&[KEY], None, Mono(1));
        table.recall(holders, Mono(1), &config);
        table.forget_session(A, Mono(2), &config);
        assert_eq!(table.holders(&[KEY], None, Mono(3)), BTreeMap::from([(B, Vec::new())]));
        assert!(table.unanswered().iter().all(|wish| wish.session == B));
        table.expire(Mono(3).after(config.lease_ttl_max));
        assert!(table.over.is_empty() && table.entries.is_empty());
    }

    #[test]
    fn a_session_that_is_silent_is_noticed_once_for_each_recall() {
        let (mut table, config) = table();
        table.give(KEY, A, Offer::Tracked(LeaseMs(3000)), Mono(0));
        let holders = table.holders(&[KEY], None, Mono(1));
        table.recall(holders, Mono(1), &config);
        let soon = Mono(1).after(SILENT);
        assert!(table.newly_silent(Mono(soon.0 - 1), &config).is_empty());
        assert_eq!(table.newly_silent(soon, &config), BTreeSet::from([A]));
        assert!(table.newly_silent(soon.after(SILENT), &config).is_empty());
    }

    #[test]
    fn a_recall_that_is_never_answered_ends_with_its_lease() {
        let (mut table, config) = table();
        table.give(KEY, A, Offer::Tracked(LeaseMs(1000)), Mono(0));
        let holders = table.holders(&[KEY], Some(B), Mono(1));
        let wishes = table.recall(holders, Mono(1), &config);
        assert_eq!(table.unanswered(), wishes);
        table.expire(Mono(1).after(config.lease_ttl_max));
        assert!(table.unanswered().is_empty());
        assert_eq!(table.recalled(A, wishes[0].number, Mono(5_000_000_000), &config), None);
        assert_ne!(table.offer(KEY, A, Mono(5_000_000_000), &config), Offer::Nothing);
    }
}
