//! A counting Bloom filter: one that forgets what is taken out.
//!
//! Invariants: counters have 4 bits; one that reached 15 stays there for ever (it no longer knows how many
//! count on it), and none goes below 0. What is in is never denied, as long as nothing is taken out more
//! often than it was put in: of a key that was not put in, or is out, the filter may believe that it is in,
//! and taking it out would take from others. What is certainly not in is refused.

use crate::bloom::filter::{Bloom, Probe, Shape};
use crate::query::FileKey;
use bearing_types::ParameterError;

/// A counter that reached this stays.
const FULL: u8 = 15;

/// A counting filter: a multiset that answers "perhaps" or "no".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counting {
    shape: Shape,
    /// Two counters a byte, the even one in the low half.
    pairs: Box<[u8]>,
    /// The same as bits: what would be published. Kept, so that asking and comparing do not walk the
    /// counters.
    bits: Bloom,
}

impl Counting {
    /// An empty one.
    pub fn new(shape: Shape) -> Result<Counting, ParameterError> {
        let bits = Bloom::new(shape)?;
        Ok(Counting { shape, pairs: vec![0; shape.bits.div_ceil(2) as usize].into(), bits })
    }

    /// Puts a key in, once more if it is there.
    pub fn insert(&mut self, file: FileKey) {
        for place in self.places(file) {
            let count = self.count(place);
            self.put(place, count.saturating_add(1).min(FULL));
            self.bits.set(place);
        }
    }

    /// Takes a key out once; the caller knows that it is in. A key that was certainly not in is refused
    /// (`false`), and nothing changes.
    pub fn remove(&mut self, file: FileKey) -> bool {
        if !self.bits.may_hold(file) {
            return false;
        }
        for place in self.places(file) {
            match self.count(place) {
                0 | FULL => {}
                1 => {
                    self.put(place, 0);
                    self.bits.clear(place);
                }
                count => self.put(place, count - 1),
            }
        }
        true
    }

    /// Whether a key may be in; `false` is certain.
    pub fn may_hold(&self, file: FileKey) -> bool {
        self.bits.may_hold(file)
    }

    /// The plain filter of what is in.
    pub fn bits(&self) -> &Bloom {
        &self.bits
    }

    /// Bytes of the counters, encoded as two a byte behind a filter's header. The bits follow from them.
    pub fn encoded_bytes(&self) -> usize {
        self.shape.counting_bytes()
    }

    fn places(&self, file: FileKey) -> Vec<usize> {
        self.shape.places(Probe::of(file, self.shape.seed)).collect()
    }

    fn count(&self, place: usize) -> u8 {
        self.pairs[place / 2] >> (4 * (place % 2)) & FULL
    }

    fn put(&mut self, place: usize, count: u8) {
        let shift = 4 * (place % 2);
        self.pairs[place / 2] = self.pairs[place / 2] & !(FULL << shift) | count << shift;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// The slow oracles: a multiset of keys, and a filter built anew from it.
        #[test]
        fn it_is_the_filter_of_what_is_in(
            bits in 8u32..600, hashes in 1u8..5, steps in proptest::collection::vec((any::<bool>(), 0u64..40), 0..200)
        ) {
            let shape = Shape { bits, hashes, seed: 5 };
            let mut counting = Counting::new(shape).unwrap();
            let mut oracle: BTreeMap<u64, u32> = BTreeMap::new();
            let mut most = BTreeMap::new();
            for (add, key) in steps {
                if add {
                    counting.insert(FileKey(key));
                    *oracle.entry(key).or_default() += 1;
                } else if let Some(count) = oracle.get_mut(&key) {
                    prop_assert!(counting.remove(FileKey(key)));
                    *count -= 1;
                    if *count == 0 {
                        oracle.remove(&key);
                    }
                }
                prop_assert!(oracle.keys().all(|key| counting.may_hold(FileKey(*key))));
                for (place, count) in counts(shape, &oracle) {
                    let highest = most.entry(place).or_insert(0);
                    *highest = count.max(*highest);
                }
            }
            let mut plain = Bloom::new(shape).unwrap();
            oracle.keys().for_each(|key| plain.insert(FileKey(*key)));
            // Counters that were full once stay; all others say exactly what is in.
            let stuck: Vec<usize> = most.iter().filter(|(_, most)| **most >= 15).map(|(place, _)| *place).collect();
            stuck.iter().for_each(|place| plain.set(*place));
            prop_assert_eq!(counting.bits(), &plain);
        }

        #[test]
        fn taking_out_what_is_certainly_not_in_changes_nothing(keys: Vec<u64>, other: u64) {
            let mut counting = Counting::new(Shape { bits: 2000, hashes: 4, seed: 1 }).unwrap();
            keys.iter().for_each(|key| counting.insert(FileKey(*key)));
            let before = counting.clone();
            if !counting.may_hold(FileKey(other)) {
                prop_assert!(!counting.remove(FileKey(other)));
                prop_assert_eq!(counting, before);
            }
        }
    }

    fn counts(shape: Shape, keys: &BTreeMap<u64, u32>) -> BTreeMap<usize, u32> {
        let mut counts = BTreeMap::new();
        for (key, count) in keys {
            for place in shape.places(Probe::of(FileKey(*key), shape.seed)) {
                *counts.entry(place).or_default() += count;
            }
        }
        counts
    }

    /// Why the caller must know: no filter can.
    #[test]
    fn taking_out_what_only_seems_to_be_in_takes_from_others() {
        let mut counting = Counting::new(Shape { bits: 8, hashes: 1, seed: 1 }).unwrap();
        counting.insert(FileKey(1));
        let double = (2..100).map(FileKey).find(|other| counting.may_hold(*other)).unwrap();
        assert!(counting.remove(double));
        assert!(!counting.may_hold(FileKey(1)));
    }

    #[test]
    fn a_full_counter_stays_full_and_denies_nobody() {
        let mut counting = Counting::new(Shape { bits: 64, hashes: 3, seed: 1 }).unwrap();
        (0..40).for_each(|_| counting.insert(FileKey(1)));
        (0..39).for_each(|_| assert!(counting.remove(FileKey(1))));
        assert!(counting.may_hold(FileKey(1)));
    }
}
