//! The lease horizon of a tablet: which sessions may hold leases of it, on what, and how long these can last
//! at most. It is in the log, so that a later owner waits only for those that may still use what is to be
//! changed.
//!
//! Invariants: a lease leaves only when the stable horizon covers it; the horizon is made smaller only when
//! all leases that it is made smaller by are over. So what a later owner finds covers every lease that is
//! still used, and a lease given before the take-over is over when the longest that the horizon names has
//! passed since.
//!
//! A session's part is one record, an absolute put. It is written when it has to grow, with the same sync as
//! the reply that gives the lease; and made smaller once in the time of the longest lease, if there is
//! anything to leave out. A session that holds nothing keeps an empty record: it may have files open.

use crate::config::Config;
use crate::lease::leases::Offer;
use crate::record::Reach;
use bearing_proto::client::LeaseKey;
use bearing_types::{LogIndex, Mono, SessionId};
use std::collections::BTreeMap;

/// One session.
#[derive(Debug)]
struct Part {
    logged: Reach,
    /// The log record that says so, or more.
    index: LogIndex,
    /// The first one that names the session.
    named: Option<LogIndex>,
    /// What was leased since the last turn, and between the last two.
    recent: Reach,
    before: Reach,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Horizon {
    parts: BTreeMap<SessionId, Part>,
    /// When it is made smaller next.
    turn: Mono,
}

/// What a reply with leases has to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cover {
    /// This record, which is logged already.
    Logged(LogIndex),
    /// A record that says this.
    Wanted(Reach),
}

impl Horizon {
    /// Of nobody.
    pub fn new(now: Mono, config: &Config) -> Horizon {
        Horizon { parts: BTreeMap::new(), turn: now.after(config.lease_ttl_max) }
    }

    /// After a take-over: what the log says of a session. It counts as leased until the longest of these
    /// leases is over.
    pub fn inherit(&mut self, session: SessionId, reach: Reach, now: Mono) {
        let (index, named) = (LogIndex::ZERO, Some(LogIndex::ZERO));
        let part = Part { logged: reach, index, named, recent: Reach::NONE, before: reach };
        self.parts.insert(session, part);
        self.turn = self.turn.max(now.after(reach.longest()));
    }

    /// The sessions that it names, with what they may hold.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, Reach)> + '_ {
        self.parts.iter().map(|(session, part)| (*session, part.logged))
    }

    /// Whether it says that a session may hold leases.
    pub fn names(&self, session: SessionId) -> bool {
        self.parts.get(&session).is_some_and(|part| part.logged != Reach::NONE)
    }

    pub fn knows(&self, session: SessionId) -> bool {
        self.parts.contains_key(&session)
    }

    pub fn forget(&mut self, session: SessionId) {
        self.parts.remove(&session);
    }

    /// What a session may be given without another record being waited for.
    pub fn stable(&self, session: SessionId, committed: LogIndex) -> Reach {
        let part = self.parts.get(&session).filter(|part| part.index <= committed);
        part.map_or(Reach::NONE, |part| part.logged)
    }

    /// Whether leases need another record.
    pub fn lacks(&self, session: SessionId, given: &[(LeaseKey, Offer)], config: &Config) -> bool {
        let reach = reach_of(given, config);
        self.parts.get(&session).is_none_or(|part| !part.logged.covers(reach))
    }

    /// Notes leases that go out with a reply.
    pub fn cover(&mut self, session: SessionId, given: &[(LeaseKey, Offer)], config: &Config) -> Cover {
        let reach = reach_of(given, config);
        let Some(part) = self.parts.get_mut(&session) else {
            let (index, named) = (LogIndex::ZERO, None);
            let part = Part { logged: reach, index, named, recent: reach, before: Reach::NONE };
            self.parts.insert(session, part);
            return Cover::Wanted(reach);
        };
        part.recent = part.recent.with(reach);
        if part.logged.covers(reach) {
            // An open file without a lease needs no more than that the session is known.
            return Cover::Logged(if reach == Reach::NONE {
                part.named.unwrap_or(part.index)
            } else {
                part.index
            });
        }
        part.logged = part.logged.with(reach);
        Cover::Wanted(part.logged)
    }

    /// What a session's record says was logged so.
    pub fn logged_at(&mut self, session: SessionId, index: LogIndex) {
        let Some(part) = self.parts.get_mut(&session) else { return };
        part.index = index;
        part.named.get_or_insert(index);
    }

    /// Once in the time of the longest lease: the records that say more than can still be leased, as they
    /// should be. They are to be logged.
    pub fn shrunk(&mut self, now: Mono, config: &Config) -> Vec<(SessionId, Reach)> {
        if now < self.turn {
            return Vec::new();
        }
        self.turn = now.after(config.lease_ttl_max);
        let mut shrunk = Vec::new();
        for (session, part) in &mut self.parts {
            part.before = std::mem::replace(&mut part.recent, Reach::NONE);
            if part.logged != part.before {
                part.logged = part.before;
                shrunk.push((*session, part.logged));
            }
        }
        shrunk
    }
}

fn reach_of(given: &[(LeaseKey, Offer)], config: &Config) -> Reach {
    let each = given.iter().map(|(key, offer)| Reach::of(key, offer.length(), config));
    each.fold(Reach::NONE, Reach::with)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_proto::client::LeaseMs;
    use bearing_types::NodeId;
    use std::time::Duration;

    const A: SessionId = SessionId(1);
    const FILE: LeaseKey = LeaseKey::File(NodeId(1));

    fn lease(node: u64, length: u32) -> [(LeaseKey, Offer); 1] {
        [(LeaseKey::File(NodeId(node)), Offer::Tracked(LeaseMs(length)))]
    }

    fn horizon() -> (Horizon, Config) {
        let config = Config::standard();
        (Horizon::new(Mono(0), &config), config)
    }

    #[test]
    fn a_lease_within_what_is_logged_needs_no_record() {
        let (mut horizon, config) = horizon();
        assert!(matches!(horizon.cover(A, &lease(1, 300), &config), Cover::Wanted(_)));
        horizon.logged_at(A, LogIndex(7));
        assert_eq!(horizon.cover(A, &lease(1, 300), &config), Cover::Logged(LogIndex(7)));
        assert!(horizon.lacks(A, &lease(1, 301), &config), "a longer one does");
        let mut records = 0;
        for uses in 1..=10 {
            records += u32::from(horizon.lacks(A, &lease(1, uses * 300), &config));
            horizon.cover(A, &lease(1, uses * 300), &config);
        }
        assert_eq!(records, 4, "600, 1200, 2400, 3000");
    }

    #[test]
    fn what_may_still_be_leased_is_never_left_out_and_what_is_over_is_soon() {
        let (mut horizon, config) = horizon();
        horizon.cover(A, &lease(1, 3000), &config);
        let at = |ms: u64| Mono(ms * 1_000_000);
        assert!(horizon.shrunk(at(2999), &config).is_empty());
        assert!(horizon.shrunk(at(3000), &config).is_empty(), "it may have been given just now");
        assert_eq!(horizon.shrunk(at(6000), &config), [(A, Reach::NONE)]);
        assert!(horizon.shrunk(at(9000), &config).is_empty(), "it says so already");
        assert!(horizon.knows(A), "it may have files open");
        assert_eq!(horizon.stable(A, LogIndex::ZERO), Reach::NONE);
    }

    #[test]
    fn what_was_inherited_counts_for_the_longest_lease_once_more() {
        let (mut horizon, config) = horizon();
        horizon.inherit(A, Reach { places: u64::MAX, longest_ms: 5000 }, Mono(0));
        assert!(horizon.shrunk(Mono(4_999_000_000), &config).is_empty());
        horizon.cover(A, &lease(1, 300), &config);
        let mut now = Mono(0);
        let shrunk = (0..4).map(|_| {
            now = now.after(Duration::from_secs(5));
            horizon.shrunk(now, &config)
        });
        let lately = Reach::of(&FILE, LeaseMs(300), &config);
        assert_eq!(shrunk.flatten().collect::<Vec<_>>(), [(A, lately), (A, Reach::NONE)]);
    }

    #[test]
    fn a_session_with_few_leases_is_in_the_way_of_few_changes() {
        let config = Config::standard();
        let reach = Reach::of(&FILE, LeaseMs(300), &config);
        assert!(reach.may_hold(&FILE));
        let held = (2..1002).filter(|node| reach.may_hold(&LeaseKey::File(NodeId(*node)))).count();
        assert!((5..40).contains(&held), "{held} of 1000");
        assert!(!Reach::NONE.may_hold(&FILE));
        assert!(Reach::of_anything(&config).may_hold(&FILE));
    }
}
