//! What the owner of a tablet knows of the other servers that hold its log.
//!
//! Invariants: an entry is committed when the owner and every member has synced it, learners not counted; a
//! member counts as one that relies on this server only in the term in which it confirmed this tablet under
//! its present epoch.

use crate::config::Config;
use crate::event::Failing;
use crate::replication::Pairs;
use crate::replication::pairs::DEAF_MAX;
use bearing_types::{LogIndex, Mono, ServerId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Who keeps up has synced what it was sent within this time.
const KEEPS_UP: Duration = Duration::from_millis(10);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Members {
    others: BTreeMap<ServerId, Member>,
    /// With too few of them nothing new is committed, but what may have been answered, up to this entry.
    too_few: Option<LogIndex>,
    /// The planted bug.
    pub forget_slowest: bool,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    /// Whether it is one. A learner is not, until it has all that is committed.
    counts: bool,
    /// When it began to count, the owner had entries up to this one: other members may have synced these.
    counted_at: LogIndex,
    /// It has synced everything up to this entry.
    synced: LogIndex,
    /// The term in which it last said so.
    confirmed: Option<u64>,
    /// The last entry that was sent to it.
    sent: LogIndex,
    /// Up to where it was told that all is committed.
    told: LogIndex,
    /// When that was, as long as it has not answered just that message: it may be lost.
    told_at: Option<Mono>,
    /// When it last got on, or was sent something when it lacked nothing.
    moved: Mono,
    /// When it was last sent what it lacks.
    resent: Mono,
    /// It said so soon after that it lacks something: that is sent again when it gets on, as when what it
    /// lacks was only overtaken.
    lacks: bool,
    /// Since when it does not rely on this server, later by how long this server heard nobody since.
    missing: Option<Mono>,
    deaf: Duration,
    /// It lacks what was committed before the epoch began: nobody but a snapshot can fill that up.
    lost: bool,
}

impl Members {
    /// An epoch begins: these have everything before `first`, and nothing was sent to them.
    pub fn of_epoch(others: impl Iterator<Item = ServerId>, first: LogIndex, now: Mono) -> Members {
        let before = LogIndex(first.0 - 1);
        let new = Member::that_has(before, now);
        Members { others: others.map(|server| (server, new)).collect(), too_few: None, forget_slowest: false }
    }

    /// They are fewer than have to be for anything new; up to this entry something may have been answered.
    pub fn are_too_few(&mut self, answered: LogIndex) {
        self.too_few = Some(answered);
    }

    /// A learner has the snapshot, and is being sent what follows it, up to an entry. It counts for nothing
    /// yet.
    pub fn learn(&mut self, server: ServerId, base: LogIndex, sent: LogIndex, now: Mono) {
        self.others.insert(server, Member { counts: false, sent, ..Member::that_has(base, now) });
    }

    /// Up to where a learner has synced, if it counts for nothing.
    pub fn learnt(&self, server: ServerId) -> Option<LogIndex> {
        self.others.get(&server).filter(|member| !member.counts).map(|member| member.synced)
    }

    /// A learner counts from now on, for commits and leases alike: soon the register will say so. The owner
    /// has entries up to this one.
    pub fn count(&mut self, server: ServerId, last: LogIndex) {
        if let Some(member) = self.others.get_mut(&server) {
            (member.counts, member.counted_at) = (true, last);
        }
    }

    /// Whether a server that counts has all that can be committed without it, and leaves the tablet to this
    /// one.
    pub fn is_one(
        &self,
        server: ServerId,
        committed: LogIndex,
        pairs: &Pairs,
        now: Mono,
        config: &Config,
    ) -> bool {
        self.others.get(&server).is_some_and(|member| {
            let needed = committed.max(member.counted_at);
            member.counts && member.synced >= needed && member.relies(server, pairs, now, config)
        })
    }

    /// Whether nothing new is committed, for want of members.
    pub fn lack_some(&self) -> bool {
        self.too_few.is_some()
    }

    /// The other servers.
    pub fn servers(&self) -> impl Iterator<Item = ServerId> + '_ {
        self.others.keys().copied()
    }

    /// Those that count, each with up to where it has synced and whether it leaves the tablet to this server.
    pub fn told_of<'a>(
        &'a self,
        pairs: &'a Pairs,
        now: Mono,
        config: &'a Config,
    ) -> impl Iterator<Item = (ServerId, LogIndex, bool)> + 'a {
        let counting = self.others.iter().filter(|(_, member)| member.counts);
        counting
            .map(move |(server, member)| (*server, member.synced, member.relies(*server, pairs, now, config)))
    }

    /// How many count.
    pub fn count_others(&self) -> usize {
        self.others.values().filter(|member| member.counts).count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.others.is_empty()
    }

    /// An entry is on its way to all of them, with how far the tablet is committed.
    pub fn sent(&mut self, now: Mono, index: LogIndex, committed: LogIndex) {
        for member in self.others.values_mut() {
            if member.sent == member.synced {
                member.moved = now;
            }
            (member.sent, member.told, member.told_at) = (index, committed, Some(now));
        }
    }

    /// Those that are to be told how far it is committed: who does not know, or has not answered for a while,
    /// and who has to confirm the tablet again. They count as told.
    pub fn untold(
        &mut self,
        now: Mono,
        pairs: &Pairs,
        committed: LogIndex,
        pause: Duration,
    ) -> Vec<ServerId> {
        let due = |server: &ServerId, member: &Member| {
            let lost = member.told_at.is_some_and(|told_at| now.since(told_at) >= pause);
            lost || member.told < committed || pairs.is_of_another_term(*server, member.confirmed)
        };
        let due = self.others.iter_mut().filter(|(server, member)| due(server, member));
        due.map(|(server, member)| {
            (member.told, member.told_at) = (committed, Some(now));
            *server
        })
        .collect()
    }

    /// A member that has got what was sent at `stamp` says what it has, in a term. An answer that is not its
    /// newest says nothing of the term. Whether this is news.
    pub fn on_synced(
        &mut self,
        now: Mono,
        server: ServerId,
        index: LogIndex,
        (stamp, term): (Mono, Option<u64>),
    ) -> bool {
        let Some(member) = self.others.get_mut(&server) else { return false };
        let news = index > member.synced || (term.is_some() && term != member.confirmed);
        if index > member.synced {
            (member.synced, member.moved) = (index, now);
        }
        member.confirmed = term.or(member.confirmed);
        member.told_at = member.told_at.filter(|told_at| *told_at != stamp);
        news
    }

    /// Up to where all of them have synced, and this server, which has it up to `own`.
    pub fn committed(&self, own: LogIndex) -> LogIndex {
        let counting = self.others.values().filter(|member| member.counts);
        if self.forget_slowest {
            let best = counting.map(|member| member.synced).max();
            return best.map_or(own, |best| own.min(best));
        }
        let by_all = counting.map(|member| member.synced).fold(own, LogIndex::min);
        self.too_few.map_or(by_all, |answered| by_all.min(answered))
    }

    /// Whether all of them leave the tablet to this server now.
    pub fn rely(&self, pairs: &Pairs, now: Mono, config: &Config) -> bool {
        let mut counting = self.others.iter().filter(|(_, member)| member.counts);
        counting.all(|(server, member)| member.relies(*server, pairs, now, config))
    }

    /// Whether all of them have what was sent to them, or got on just now.
    pub fn keep_up(&self, now: Mono) -> bool {
        let on_time = |member: &Member| member.synced >= member.sent || now.since(member.moved) < KEEPS_UP;
        self.others.values().filter(|member| member.counts).all(on_time)
    }

    /// Those that are to be sent again what follows an entry, because they have not got on for so long.
    pub fn lagging(&mut self, now: Mono, pause: Duration) -> Vec<(ServerId, LogIndex)> {
        let idle = |member: &Member| now.since(member.moved.max(member.resent)) >= pause;
        let late = self.others.iter_mut().filter(|(_, member)| member.synced < member.sent && idle(member));
        let again = late.map(|(server, member)| {
            (member.resent, member.lacks) = (now, false);
            (*server, member.synced)
        });
        again.collect()
    }

    /// A member lacks what follows an entry: whether that is to be sent again now.
    pub fn on_lacking(&mut self, now: Mono, server: ServerId, pause: Duration) -> bool {
        let Some(member) = self.others.get_mut(&server) else { return false };
        let due = now.since(member.resent) >= pause;
        if due {
            member.resent = now;
        }
        member.lacks = !due;
        due
    }

    /// A member got on: up to where, if what follows is to be sent again now.
    pub fn on_filled(&mut self, now: Mono, server: ServerId) -> Option<LogIndex> {
        let member = self.others.get_mut(&server)?;
        let due = std::mem::replace(&mut member.lacks, false) && member.synced < member.sent;
        if due {
            member.resent = now;
        }
        due.then_some(member.synced)
    }

    /// Up to where a member has synced the tablet, as far as it said so in this epoch.
    pub fn synced(&self, server: ServerId) -> Option<LogIndex> {
        self.others.get(&server).map(|member| member.synced)
    }

    /// A member lacks what was committed before the epoch began, which it had once.
    pub fn has_lost(&mut self, server: ServerId) {
        let member = self.others.get_mut(&server).filter(|member| member.counts);
        member.into_iter().for_each(|member| member.lost = true);
    }

    /// Whether it does.
    pub fn is_lost(&self, server: ServerId) -> bool {
        self.others.get(&server).is_some_and(|member| member.lost)
    }

    /// This server heard nobody for so long until now: see [`Pairs::was_deaf`].
    pub fn was_deaf(&mut self, now: Mono, length: Duration) {
        for member in self.others.values_mut() {
            let counts = length.min(DEAF_MAX.saturating_sub(member.deaf));
            member.deaf += counts;
            member.missing = member.missing.map(|since| since.after(counts).min(now));
        }
    }

    /// Those that have lost what they had, and those that have not relied on this server, or not got on with
    /// what was sent to them, for as long as a member may. To be asked often: it notes since when.
    pub fn failing(&mut self, pairs: &Pairs, now: Mono, config: &Config) -> Vec<(ServerId, Failing)> {
        let mut out = Vec::new();
        for (server, member) in &mut self.others {
            let relies = member.relies(*server, pairs, now, config);
            member.missing = if relies { None } else { Some(member.missing.unwrap_or(now)) };
            member.deaf = if relies { Duration::ZERO } else { member.deaf };
            let met = pairs.answered(*server).is_some();
            let (slow, silent) = match met {
                true => (config.member_timeout, config.member_silence_timeout),
                false => (config.first_grace, config.first_grace),
            };
            let stuck = if member.synced < member.sent { now.since(member.moved) } else { Duration::ZERO };
            // One that answers is asked to rely on this server again, whatever it did meanwhile.
            let silent = if pairs.has_lease(now, *server, config.server_lease_ttl) { slow } else { silent };
            let missing = member.missing.map_or(Duration::ZERO, |since| now.since(since));
            let why = match () {
                () if member.lost => Failing::Lost,
                () if stuck >= slow => Failing::Stuck(stuck),
                () if missing >= silent => Failing::Silent(missing, member.deaf),
                () => continue,
            };
            out.push((*server, why));
        }
        out
    }
}

impl Member {
    fn that_has(synced: LogIndex, now: Mono) -> Member {
        Member {
            counts: true,
            counted_at: LogIndex::ZERO,
            synced,
            confirmed: None,
            sent: synced,
            told: LogIndex::ZERO,
            told_at: None,
            moved: now,
            resent: now,
            lacks: false,
            missing: None,
            deaf: Duration::ZERO,
            lost: false,
        }
    }

    fn relies(&self, server: ServerId, pairs: &Pairs, now: Mono, config: &Config) -> bool {
        pairs.relies(now, server, self.confirmed, config.server_lease_ttl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_proto::replication::Held;

    const B: ServerId = ServerId(2);
    const C: ServerId = ServerId(3);

    const PAUSE: Duration = Duration::from_millis(50);

    fn ms(ms: u64) -> Mono {
        Mono(ms * 1_000_000)
    }

    fn answered(pairs: &mut Pairs, by: ServerId, at: u64, term: u64) {
        let held = Held { life: 7, stamp: ms(at).0, term, ..Held::default() };
        assert_eq!(pairs.on_held(by, &held), Some(true));
    }

    #[test]
    fn committed_is_what_the_slowest_has_synced_and_the_owner_too() {
        let mut members = Members::of_epoch([B, C].into_iter(), LogIndex(5), ms(0));
        members.sent(ms(0), LogIndex(9), LogIndex(4));
        assert_eq!(members.committed(LogIndex(9)), LogIndex(4));
        members.on_synced(ms(1), B, LogIndex(9), (ms(1), None));
        members.on_synced(ms(1), C, LogIndex(7), (ms(1), None));
        assert_eq!(members.committed(LogIndex(9)), LogIndex(7));
        assert_eq!(members.committed(LogIndex(6)), LogIndex(6));
        members.on_synced(ms(2), C, LogIndex(6), (ms(2), None));
        assert_eq!(members.committed(LogIndex(9)), LogIndex(7), "what came late takes nothing back");
        assert_eq!(Members::default().committed(LogIndex(3)), LogIndex(3));
    }

    #[test]
    fn all_have_to_rely_on_the_owner_each_in_its_present_term() {
        let (mut pairs, config) = (Pairs::new(7, ms(0)), Config::standard());
        let mut members = Members::of_epoch([B, C].into_iter(), LogIndex(1), ms(0));
        answered(&mut pairs, B, 10, 20);
        answered(&mut pairs, C, 10, 30);
        members.on_synced(ms(11), B, LogIndex(0), (ms(11), Some(20)));
        assert!(!members.rely(&pairs, ms(11), &config), "C has not confirmed it");
        assert_eq!(members.untold(ms(11), &pairs, LogIndex(0), PAUSE), [C]);
        members.on_synced(ms(11), C, LogIndex(0), (ms(11), Some(30)));
        assert!(members.rely(&pairs, ms(11), &config));
        answered(&mut pairs, B, 12, 21);
        assert!(!members.rely(&pairs, ms(13), &config), "B has claimed something since");
        assert!(Members::default().rely(&pairs, ms(13), &config), "alone");
    }

    #[test]
    fn a_member_that_does_not_get_on_is_swapped_out_and_one_that_is_only_busy_is_not() {
        let (mut pairs, config) = (Pairs::new(7, ms(0)), Config::standard());
        let mut members = Members::of_epoch([B].into_iter(), LogIndex(1), ms(0));
        for at in (0..5_000).step_by(10) {
            answered(&mut pairs, B, at, 20);
            members.sent(ms(at), LogIndex(at + 10), LogIndex(0));
            members.on_synced(ms(at), B, LogIndex(at), (ms(at), Some(20)));
            assert!(members.failing(&pairs, ms(at), &config).is_empty(), "always behind, never stuck");
        }
        let mut found = None;
        for at in (5_000..8_000).step_by(10) {
            answered(&mut pairs, B, at, 20);
            found = found.or((!members.failing(&pairs, ms(at), &config).is_empty()).then_some(at));
        }
        assert_eq!(
            found,
            Some(4_990 + config.member_timeout.as_millis() as u64),
            "it answers, but syncs nothing"
        );
    }

    #[test]
    fn what_is_lacking_is_sent_again_after_a_pause_not_at_once() {
        let mut members = Members::of_epoch([B].into_iter(), LogIndex(1), ms(0));
        members.sent(ms(100), LogIndex(3), LogIndex(0));
        assert_eq!(members.lagging(ms(149), PAUSE), []);
        assert_eq!(members.lagging(ms(150), PAUSE), [(B, LogIndex(0))]);
        assert_eq!(members.lagging(ms(151), PAUSE), []);
        assert!(!members.on_lacking(ms(152), B, PAUSE));
        assert!(members.on_lacking(ms(250), B, PAUSE));
        members.on_synced(ms(160), B, LogIndex(3), (ms(160), None));
        assert_eq!(members.lagging(ms(999), PAUSE), []);
    }

    #[test]
    fn a_member_that_has_not_synced_what_it_was_sent_for_a_while_does_not_keep_up() {
        let mut members = Members::of_epoch([B].into_iter(), LogIndex(1), ms(0));
        assert!(members.keep_up(ms(500)), "nothing was sent");
        members.sent(ms(500), LogIndex(2), LogIndex(0));
        assert!(members.keep_up(ms(509)));
        assert!(!members.keep_up(ms(510)));
        members.on_synced(ms(511), B, LogIndex(2), (ms(500), None));
        assert!(members.keep_up(ms(900)));
    }

    #[test]
    fn what_was_overtaken_is_sent_again_as_soon_as_the_gap_before_it_is_filled() {
        let mut members = Members::of_epoch([B].into_iter(), LogIndex(1), ms(0));
        members.sent(ms(100), LogIndex(3), LogIndex(0));
        assert!(members.on_lacking(ms(100), B, PAUSE));
        assert!(!members.on_lacking(ms(101), B, PAUSE), "a second copy of the same is of no use");
        members.on_synced(ms(102), B, LogIndex(2), (ms(100), None));
        assert_eq!(members.on_filled(ms(102), B), Some(LogIndex(2)));
        members.on_synced(ms(103), B, LogIndex(3), (ms(100), None));
        assert_eq!(members.on_filled(ms(103), B), None);
    }

    #[test]
    fn what_was_committed_is_told_again_until_just_that_is_answered() {
        let pairs = Pairs::new(7, ms(0));
        let mut members = Members::of_epoch([B].into_iter(), LogIndex(1), ms(0));
        members.sent(ms(10), LogIndex(1), LogIndex(0));
        members.on_synced(ms(11), B, LogIndex(1), (ms(10), None));
        assert_eq!(members.untold(ms(20), &pairs, LogIndex(1), PAUSE), [B]);
        // That was lost; the next beacon was not.
        members.on_synced(ms(41), B, LogIndex(1), (ms(40), None));
        assert_eq!(members.untold(ms(69), &pairs, LogIndex(1), PAUSE), []);
        assert_eq!(members.untold(ms(70), &pairs, LogIndex(1), PAUSE), [B]);
        members.on_synced(ms(71), B, LogIndex(1), (ms(70), None));
        assert_eq!(members.untold(ms(999), &pairs, LogIndex(1), PAUSE), []);
    }
}
