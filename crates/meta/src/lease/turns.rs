//! What several clients use by turns: a lease on it would be recalled by the next of them. It is not leased
//! for a while, and longer each time that it is found to be so again; so at most every few seconds somebody
//! tries.

use bearing_proto::client::LeaseKey;
use bearing_types::{IdMap, Mono};
use std::time::Duration;

/// So often something was recalled before it rests: once may be a hand-over.
const TURNS_MIN: u32 = 2;
/// The first rest; each is twice as long as the one before.
const REST_MIN: Duration = Duration::from_millis(250);
/// The longest.
const REST_MAX: Duration = Duration::from_secs(8);
/// A turn that comes so long after the rest that followed the last one is a first one.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
struct Turn {
    count: u32,
    at: Mono,
}

impl Turn {
    fn rests_until(&self) -> Mono {
        if self.count < TURNS_MIN {
            return self.at;
        }
        self.at.after((REST_MIN * (1 << (self.count - TURNS_MIN).min(16))).min(REST_MAX))
    }

    fn is_forgotten(&self, now: Mono) -> bool {
        self.rests_until().after(FORGOTTEN_AFTER) <= now
    }
}

/// See the module. Never walked in an order that matters.
#[derive(Debug, Default)]
pub(crate) struct Turns(IdMap<LeaseKey, Turn>);

impl Turns {
    /// Somebody has to give this back for another.
    pub fn recalled(&mut self, key: LeaseKey, now: Mono) {
        let turn = self.0.entry(key).or_insert(Turn { count: 0, at: now });
        let count = if turn.is_forgotten(now) { 0 } else { turn.count };
        *turn = Turn { count: count.saturating_add(1), at: now };
    }

    /// Whether this is not to be leased now.
    pub fn rests(&self, key: LeaseKey, now: Mono) -> bool {
        self.0.get(&key).is_some_and(|turn| now < turn.rests_until())
    }

    /// Forgets what nobody has wanted from another for long.
    pub fn expire(&mut self, now: Mono) {
        self.0.retain(|_, turn| !turn.is_forgotten(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::NodeId;

    const KEY: LeaseKey = LeaseKey::Names(NodeId(1));

    fn at(ms: u64) -> Mono {
        Mono(ms * 1_000_000)
    }

    #[test]
    fn one_hand_over_is_none_of_several_that_take_turns() {
        let mut turns = Turns::default();
        turns.recalled(KEY, at(0));
        assert!(!turns.rests(KEY, at(0)));
        turns.recalled(KEY, at(2000));
        assert!(!turns.rests(KEY, at(2000)), "that was long ago");
        turns.recalled(KEY, at(2100));
        assert!(turns.rests(KEY, at(2349)) && !turns.rests(KEY, at(2350)));
    }

    #[test]
    fn rests_grow_as_long_as_it_goes_on_and_are_forgotten() {
        let mut turns = Turns::default();
        let mut now = 0;
        let mut rests = Vec::new();
        for _ in 0..9 {
            turns.recalled(KEY, at(now));
            let rest = (0..10_000).find(|ms| !turns.rests(KEY, at(now + ms))).unwrap();
            rests.push(rest);
            now += rest + 10;
        }
        assert_eq!(rests, [0, 250, 500, 1000, 2000, 4000, 8000, 8000, 8000]);
        turns.expire(at(now + 1000));
        assert_eq!(turns.0.len(), 1);
        turns.expire(at(now + 3000));
        assert!(turns.0.is_empty());
    }
}
