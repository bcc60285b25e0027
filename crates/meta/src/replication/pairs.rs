//! Leases between this server and each other one, in both directions.
//!
//! Invariants: a lease counts from the stamp of what was answered, never from an answer's receipt; what may
//! be taken over from a server counts from the receipt of what it sent, never from its stamp, and leaves out,
//! up to a bound, when this server itself was not there to hear. A term changes whenever anything is claimed
//! of a server: what was confirmed to it before counts no more.

use bearing_proto::replication::{Append, Held};
use bearing_types::{Mono, ServerId};
use std::collections::BTreeMap;
use std::time::Duration;

/// For so long at most a server may be thought to have spoken to one that did not listen: one that never
/// comes to listen does not wait for a dead one for ever.
pub(crate) const DEAF_MAX: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct Pairs {
    /// This server's life: answers to an earlier one count for nothing.
    life: u64,
    started: Mono,
    pairs: BTreeMap<ServerId, Pair>,
}

#[derive(Debug)]
struct Pair {
    // What the other gives to this server, as an owner.
    /// The newest stamp that was answered.
    answered: Option<Mono>,
    /// The term of that answer.
    term_given: u64,
    /// Whether its clock was off, as it said with that.
    clock_off: bool,
    // What this server gives to the other.
    /// When it was heard last, later by how long this server heard nobody since.
    heard: Option<Mono>,
    deaf: Duration,
    /// When this server learnt that it owns one more tablet, whether it was heard by then or not.
    named: Option<Mono>,
    /// Its life and its newest stamp.
    newest: (u64, u64),
    /// Claims of anything of the other's in this life.
    claims: u64,
}

impl Pairs {
    /// Of a server that starts now, with a number that no earlier life of it had.
    pub fn new(life: u64, now: Mono) -> Pairs {
        Pairs { life, started: now, pairs: BTreeMap::new() }
    }

    fn pair(&mut self, server: ServerId) -> &mut Pair {
        self.pairs.entry(server).or_insert(Pair {
            answered: None,
            term_given: 0,
            clock_off: false,
            heard: None,
            deaf: Duration::ZERO,
            named: None,
            newest: (0, 0),
            claims: 0,
        })
    }

    // --- as an owner ---

    /// A message without entries.
    pub fn beacon(&self, now: Mono, to: ServerId) -> Append {
        let answered = self.pairs.get(&to).and_then(|pair| pair.answered).map_or(0, |stamp| stamp.0);
        Append { life: self.life, stamp: now.0, answered, ..Append::default() }
    }

    /// An answer. Whether it is the newest so far; `None` if it is of an earlier life and says nothing.
    pub fn on_held(&mut self, from: ServerId, held: &Held) -> Option<bool> {
        if held.life != self.life {
            return None;
        }
        let pair = self.pair(from);
        let stamp = Mono(held.stamp);
        let newest = pair.answered.is_none_or(|answered| stamp >= answered);
        if newest {
            pair.answered = Some(stamp);
            (pair.term_given, pair.clock_off) = (held.term, held.clock_off);
        }
        Some(newest)
    }

    /// Whether another server takes nothing over that it has confirmed in its present term.
    pub fn has_lease(&self, now: Mono, from: ServerId, lease_ttl: Duration) -> bool {
        self.answered(from).is_some_and(|stamp| now < stamp.after(lease_ttl))
    }

    /// Whether another server, that confirmed something in a term, leaves it to this one now.
    pub fn relies(&self, now: Mono, on: ServerId, confirmed: Option<u64>, lease_ttl: Duration) -> bool {
        let given = self.pairs.get(&on).map(|pair| pair.term_given);
        self.has_lease(now, on, lease_ttl) && confirmed.is_some() && confirmed == given
    }

    /// Whether something that was confirmed in a term has to be confirmed again.
    pub fn is_of_another_term(&self, on: ServerId, confirmed: Option<u64>) -> bool {
        self.pairs.get(&on).is_some_and(|pair| pair.answered.is_some() && confirmed != Some(pair.term_given))
    }

    /// When another server answered last, by the stamps of what it answered.
    pub fn answered(&self, by: ServerId) -> Option<Mono> {
        self.pairs.get(&by).and_then(|pair| pair.answered)
    }

    /// Whether another server's clock was off when it answered last.
    pub fn is_clock_off(&self, of: ServerId) -> bool {
        self.pairs.get(&of).is_some_and(|pair| pair.clock_off)
    }

    // --- as a member ---

    /// A message of an owner.
    pub fn on_append(&mut self, now: Mono, from: ServerId, append: &Append) {
        let pair = self.pair(from);
        (pair.heard, pair.deaf) = (Some(now), Duration::ZERO);
        let (life, stamp) = pair.newest;
        pair.newest = (append.life, if append.life == life { stamp.max(append.stamp) } else { append.stamp });
    }

    /// A register names a new owner.
    pub fn is_named(&mut self, now: Mono, owner: ServerId) {
        self.pair(owner).named = Some(now);
    }

    /// This server had no processor, or worked, for so long until now: what others sent lies unread yet, so
    /// nobody was silent.
    pub fn was_deaf(&mut self, now: Mono, length: Duration) {
        for pair in self.pairs.values_mut() {
            let counts = length.min(DEAF_MAX.saturating_sub(pair.deaf));
            pair.deaf += counts;
            pair.heard = pair.heard.map(|heard| heard.after(counts).min(now));
            pair.named = pair.named.map(|named| named.after(counts).min(now));
        }
    }

    /// An answer to all that has arrived of a server.
    pub fn answer(&self, to: ServerId) -> Held {
        let (life, stamp) = self.pairs.get(&to).map_or((0, 0), |pair| pair.newest);
        Held { life, stamp, term: self.term(to), ..Held::default() }
    }

    /// This server's term towards another one.
    pub fn term(&self, towards: ServerId) -> u64 {
        self.life.wrapping_add(self.pairs.get(&towards).map_or(0, |pair| pair.claims))
    }

    /// Something is about to be claimed of a server.
    pub fn claim(&mut self, from: ServerId) {
        self.pair(from).claims += 1;
    }

    /// For how long nothing may be taken over from a server yet; zero when it may be. One that was never
    /// heard gets longer, from this server's start; and a new owner had no reason to speak to this server
    /// before.
    pub fn grace_left(&self, now: Mono, of: ServerId, grace: Duration, first_grace: Duration) -> Duration {
        let pair = self.pairs.get(&of);
        let heard = pair.and_then(|pair| pair.heard);
        let end = heard.map_or(self.started.after(first_grace), |heard| heard.after(grace));
        let named = pair.and_then(|pair| pair.named).map(|named| named.after(grace));
        named.map_or(end, |named| named.max(end)).since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: ServerId = ServerId(1);
    const B: ServerId = ServerId(2);
    const LEASE: Duration = Duration::from_millis(200);
    const GRACE: Duration = Duration::from_millis(250);
    const LONG: Duration = Duration::from_secs(2);

    fn ms(ms: u64) -> Mono {
        Mono(ms * 1_000_000)
    }

    #[test]
    fn a_lease_counts_from_the_stamp_that_is_answered_and_takeover_from_the_receipt() {
        let (mut owner, mut member) = (Pairs::new(7, ms(0)), Pairs::new(9, ms(0)));
        let beacon = owner.beacon(ms(1000), B);
        member.on_append(ms(5000), A, &beacon);
        let answer = member.answer(A);
        assert_eq!(owner.on_held(B, &answer), Some(true));
        assert!(owner.relies(ms(1199), B, Some(9), LEASE));
        assert!(!owner.relies(ms(1200), B, Some(9), LEASE));
        assert_eq!(member.grace_left(ms(5100), A, GRACE, LONG), Duration::from_millis(150));
        assert_eq!(member.grace_left(ms(5250), A, GRACE, LONG), Duration::ZERO);
    }

    #[test]
    fn an_older_answer_neither_renews_nor_brings_a_term_back() {
        let (mut owner, mut member) = (Pairs::new(7, ms(0)), Pairs::new(9, ms(0)));
        member.on_append(ms(10), A, &owner.beacon(ms(10), B));
        let old = member.answer(A);
        member.claim(A);
        member.on_append(ms(400), A, &owner.beacon(ms(400), B));
        assert_eq!(owner.on_held(B, &member.answer(A)), Some(true));
        assert_eq!(owner.on_held(B, &old), Some(false));
        assert!(!owner.relies(ms(401), B, Some(9), LEASE), "confirmed before the claim");
        assert!(owner.is_of_another_term(B, Some(9)));
        assert!(owner.relies(ms(401), B, Some(10), LEASE));
    }

    #[test]
    fn answers_to_an_earlier_life_say_nothing_and_a_new_life_of_a_member_has_confirmed_nothing() {
        let (mut owner, mut member) = (Pairs::new(7, ms(0)), Pairs::new(9, ms(0)));
        member.on_append(ms(1), A, &owner.beacon(ms(1), B));
        let answer = member.answer(A);
        assert_eq!(Pairs::new(8, ms(2)).on_held(B, &answer), None);
        owner.on_held(B, &answer);
        let mut again = Pairs::new(1 << 40, ms(3));
        again.on_append(ms(4), A, &owner.beacon(ms(4), B));
        owner.on_held(B, &again.answer(A));
        assert!(!owner.relies(ms(5), B, Some(9), LEASE));
    }

    #[test]
    fn who_may_have_spoken_while_nobody_listened_was_not_silent_up_to_a_bound() {
        let (owner, mut member) = (Pairs::new(7, ms(0)), Pairs::new(9, ms(0)));
        member.on_append(ms(1000), A, &owner.beacon(ms(1000), B));
        member.was_deaf(ms(1240), Duration::from_millis(200));
        assert_eq!(member.grace_left(ms(1240), A, GRACE, LONG), Duration::from_millis(210));
        member.was_deaf(ms(1250), Duration::from_millis(200));
        assert_eq!(member.grace_left(ms(1250), A, GRACE, LONG), GRACE, "never later than now");
        for at in [3000, 6000, 9000] {
            member.was_deaf(ms(at), Duration::from_millis(1000));
        }
        assert_eq!(member.grace_left(ms(9000), A, GRACE, LONG), Duration::ZERO);
        member.on_append(ms(9000), A, &owner.beacon(ms(9000), B));
        member.was_deaf(ms(9900), Duration::from_millis(900));
        assert_eq!(member.grace_left(ms(9900), A, GRACE, LONG), GRACE, "heard since");
    }

    #[test]
    fn who_was_never_heard_is_waited_for_longer() {
        let member = Pairs::new(9, ms(500));
        assert_eq!(member.grace_left(ms(2400), A, GRACE, LONG), Duration::from_millis(100));
        assert_eq!(member.grace_left(ms(2500), A, GRACE, LONG), Duration::ZERO);
    }

    proptest! {
        /// Whatever arrives when, in whichever order or never: the owner's lease is over when the member may
        /// take over. Clocks differ by any offset and run alike to a few percent.
        #[test]
        fn the_lease_is_over_when_the_member_may_take_over(
            packets in proptest::collection::vec((1..50_u64, 0..400_u64, 0..400_u64, any::<bool>()), 1..40),
            offset in 0..10_000_u64,
            drift in 95..105_u64,
        ) {
            let member_clock = |at: u64| Mono((at * drift / 100 + offset) * 1_000_000);
            let (mut owner, mut member) = (Pairs::new(7, ms(0)), Pairs::new(9, member_clock(0)));
            let mut sent = 0;
            let mut there = Vec::new();
            let mut back: Vec<(u64, Held)> = Vec::new();
            for (pause, takes, takes_back, lost) in packets {
                sent += pause;
                there.push((sent + takes, owner.beacon(ms(sent), B), (!lost).then_some(takes_back)));
            }
            for at in 0..4000 {
                for (_, append, takes_back) in there.iter().filter(|(arrives, ..)| *arrives == at) {
                    member.on_append(member_clock(at), A, append);
                    back.extend(takes_back.map(|takes| (at + takes, member.answer(A))));
                }
                for (_, held) in back.iter().filter(|(arrives, _)| *arrives == at) {
                    owner.on_held(B, held);
                }
                let free = member.grace_left(member_clock(at), A, GRACE, LONG).is_zero();
                prop_assert!(!(free && owner.relies(ms(at), B, Some(9), LEASE)), "at {at} ms");
            }
        }
    }
}
