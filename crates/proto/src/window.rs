//! The window of counters that a receiver keeps of one sender, so that no packet is taken twice. As in
//! WireGuard and RFC 6479: a ring of bits that moves with the highest counter; what lies behind it counts as
//! seen.

/// Bits of the window. Threads of one mount send at the same time, and a stream is slower than a datagram: so
/// far behind the newest a packet may come.
pub const WINDOW_BITS: u64 = 4096;

const WORD_BITS: u64 = 64;
const WORDS: usize = (WINDOW_BITS / WORD_BITS) as usize;

/// What a counter says of its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Above all that were seen: its sender is where it came from.
    Newest,
    /// Not seen before, but overtaken.
    Overtaken,
    /// Seen before, or too old to know.
    Replayed,
}

/// See the module. Counters begin with 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayWindow {
    highest: u64,
    seen: Box<[u64; WORDS]>,
}

impl Default for ReplayWindow {
    fn default() -> ReplayWindow {
        ReplayWindow { highest: 0, seen: Box::new([0; WORDS]) }
    }
}

impl ReplayWindow {
    /// Takes the counter of a packet whose signature fits.
    pub fn take(&mut self, counter: u64) -> Freshness {
        // The word that the highest counter is in may still hold bits of a full turn ago behind it, so one
        // word less can be told.
        if counter == 0 || counter.saturating_add(WINDOW_BITS - WORD_BITS) <= self.highest {
            return Freshness::Replayed;
        }
        let freshness = if counter > self.highest { Freshness::Newest } else { Freshness::Overtaken };
        if freshness == Freshness::Newest {
            self.advance(counter);
        }
        let (word, bit) = (Self::word(counter), 1 << (counter % WORD_BITS));
        if self.seen[word] & bit != 0 {
            return Freshness::Replayed;
        }
        self.seen[word] |= bit;
        freshness
    }

    fn word(counter: u64) -> usize {
        (counter / WORD_BITS) as usize % WORDS
    }

    fn advance(&mut self, counter: u64) {
        let (was, is) = (self.highest / WORD_BITS, counter / WORD_BITS);
        for word in 1..=(is - was).min(WORDS as u64) {
            self.seen[(was + word) as usize % WORDS] = 0;
        }
        self.highest = counter;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_counter_is_taken_once_in_any_order_within_the_window() {
        let mut window = ReplayWindow::default();
        assert_eq!(window.take(5), Freshness::Newest);
        assert_eq!(window.take(3), Freshness::Overtaken);
        assert_eq!(window.take(3), Freshness::Replayed);
        assert_eq!(window.take(5), Freshness::Replayed);
        assert_eq!(window.take(0), Freshness::Replayed);
        assert_eq!(window.take(u64::MAX), Freshness::Newest);
        assert_eq!(window.take(5), Freshness::Replayed, "too old to know");
        assert_eq!(window.take(u64::MAX), Freshness::Replayed);
    }

    proptest! {
        #[test]
        fn nothing_is_taken_twice_and_nothing_recent_is_refused(steps in proptest::collection::vec((0u64..9000, any::<bool>()), 1..300)) {
            let (mut window, mut taken, mut highest) = (ReplayWindow::default(), BTreeSet::new(), 0u64);
            for (step, back) in steps {
                let counter = if back { highest.saturating_sub(step) } else { highest + step % 200 };
                let freshness = window.take(counter);
                if taken.contains(&counter) || counter == 0 {
                    prop_assert_eq!(freshness, Freshness::Replayed);
                } else if counter > highest {
                    prop_assert_eq!(freshness, Freshness::Newest);
                } else if highest - counter < WINDOW_BITS - WORD_BITS {
                    prop_assert_eq!(freshness, Freshness::Overtaken);
                }
                if freshness != Freshness::Replayed {
                    taken.insert(counter);
                    highest = highest.max(counter);
                }
            }
        }
    }
}
