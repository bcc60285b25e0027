//! The first level: for every home a small filter of the files that were lately found there (G-HBA section
//! 2.3, L1).
//!
//! Invariants: bounded, whatever is learnt. Files age by generations: when the young one holds its share, it
//! becomes the old one and the old one is gone; so the last `keys_max` files at least are remembered, and
//! never more than twice that. A home with many more of them than its filter is made for ages alone, and
//! sooner: a filter that is too full would name its home for every file, and take what it has not learnt for
//! known. A file that moved is believed at both homes until it aged: no unique answer, so the next level
//! decides.

use crate::bloom::filter::{Bloom, Probe, Shape};
use crate::query::FileKey;
use bearing_types::{ParameterError, ServerId, within};
use std::collections::BTreeMap;

/// How much is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecentShape {
    /// Files of all homes in one generation. 1 or more.
    pub keys_max: u32,
    /// The filter of one home in one generation.
    pub filter: Shape,
}

impl RecentShape {
    /// Whether all is within bounds.
    pub fn check(&self) -> Result<(), ParameterError> {
        within("keys_max", self.keys_max, self.keys_max >= 1, "1 or more")?;
        self.filter.check()
    }

    /// Bytes of an array for so many homes, encoded, when each has been met in both generations.
    pub fn encoded_bytes(&self, homes: u32) -> usize {
        2 * homes as usize * self.filter.encoded_bytes()
    }
}

type Generation = BTreeMap<ServerId, Bloom>;

/// An array of filters of recently found files.
#[derive(Clone, Debug)]
pub struct Recent {
    shape: RecentShape,
    young: Generation,
    old: Generation,
    /// Keys in the young generation.
    keys: u32,
}

/// A filter with more than this share of its bits set has more keys than it was made for (those set half): a
/// home's ages then. With 6 hashes it misleads about 1 file in 20.
const CROWDED: f64 = 0.6;

fn is_crowded(filter: &Bloom) -> bool {
    f64::from(filter.ones()) > CROWDED * f64::from(filter.shape().bits)
}

/// What the array says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    /// No home, or several.
    None,
    /// This one alone.
    Only(ServerId),
}

impl Hit {
    /// The only one of several answers.
    pub fn only_of(homes: impl IntoIterator<Item = ServerId>) -> Hit {
        let mut homes = homes.into_iter();
        match (homes.next(), homes.next()) {
            (Some(home), None) => Hit::Only(home),
            _ => Hit::None,
        }
    }
}

impl Recent {
    /// An array that remembers nothing yet.
    pub fn new(shape: RecentShape) -> Result<Recent, ParameterError> {
        shape.check()?;
        Ok(Recent { shape, young: Generation::new(), old: Generation::new(), keys: 0 })
    }

    /// A file was found at a home.
    pub fn learn(&mut self, file: FileKey, home: ServerId) {
        if self.young.get(&home).is_some_and(|filter| filter.may_hold(file)) {
            return;
        }
        if self.keys == self.shape.keys_max {
            self.old = std::mem::take(&mut self.young);
            self.keys = 0;
        }
        if self.young.get(&home).is_some_and(is_crowded) {
            self.old.extend(self.young.remove(&home).map(|filter| (home, filter)));
        }
        let filter = self.young.entry(home).or_insert_with(|| Bloom::empty(self.shape.filter));
        filter.insert(file);
        self.keys += 1;
    }

    /// Where a file was lately found, if that is one home alone.
    pub fn home(&self, file: FileKey) -> Hit {
        let probe = Probe::of(file, self.shape.filter.seed);
        let holds = |filter: Option<&Bloom>| filter.is_some_and(|filter| filter.may_hold_probe(probe));
        let homes = self.young.keys().chain(self.old.keys().filter(|home| !self.young.contains_key(home)));
        let believed =
            homes.filter(|home| holds(self.young.get(*home)) || holds(self.old.get(*home))).copied();
        Hit::only_of(believed)
    }

    /// A home is gone.
    pub fn forget(&mut self, home: ServerId) {
        self.young.remove(&home);
        self.old.remove(&home);
    }

    /// Bytes of the filters, encoded.
    pub fn encoded_bytes(&self) -> usize {
        (self.young.len() + self.old.len()) * self.shape.filter.encoded_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shape(keys_max: u32) -> RecentShape {
        RecentShape { keys_max, filter: Shape::for_keys(u64::from(keys_max), 16.0, 3).unwrap() }
    }

    proptest! {
        /// The slow oracle: the list of what was learnt.
        #[test]
        fn the_last_learnt_are_remembered_and_the_bytes_bounded(
            keys_max in 1u32..50, learnt in proptest::collection::vec((any::<u64>(), 1u32..6), 1..300)
        ) {
            let mut recent = Recent::new(shape(keys_max)).unwrap();
            for (file, home) in &learnt {
                recent.learn(FileKey(*file), ServerId(*home));
            }
            for (file, home) in learnt.iter().rev().take(keys_max as usize) {
                let believed = recent.young.get(&ServerId(*home)).into_iter().chain(recent.old.get(&ServerId(*home)));
                prop_assert!(believed.into_iter().any(|filter| filter.may_hold(FileKey(*file))));
            }
            prop_assert!(recent.keys <= keys_max);
            prop_assert!(recent.encoded_bytes() <= shape(keys_max).encoded_bytes(5));
        }
    }

    #[test]
    fn what_aged_is_forgotten() {
        let mut recent = Recent::new(shape(10)).unwrap();
        recent.learn(FileKey(1), ServerId(1));
        assert_eq!(recent.home(FileKey(1)), Hit::Only(ServerId(1)));
        (100..130).for_each(|file| recent.learn(FileKey(file), ServerId(1)));
        assert_eq!(recent.home(FileKey(1)), Hit::None);
    }

    #[test]
    fn a_file_that_moved_has_no_unique_home_until_the_old_one_is_forgotten() {
        let mut recent = Recent::new(shape(10)).unwrap();
        recent.learn(FileKey(1), ServerId(1));
        recent.learn(FileKey(1), ServerId(2));
        assert_eq!(recent.home(FileKey(1)), Hit::None);
        recent.forget(ServerId(1));
        assert_eq!(recent.home(FileKey(1)), Hit::Only(ServerId(2)));
    }

    /// One home has nearly all of the files that are asked for, far more than its filter is made for.
    #[test]
    fn a_home_with_most_of_the_files_does_not_mislead_about_all_others() {
        let filter = Shape::for_keys(784, 8.0, 3).unwrap();
        let mut recent = Recent::new(RecentShape { keys_max: 20 * 784, filter }).unwrap();
        let key = |number: u64| FileKey(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for learnt in [15_000, 200_000] {
            (0..learnt).for_each(|file| recent.learn(key(file), ServerId(1)));
            let misled = (0..10_000).filter(|file| recent.home(key(1 << 40 | file)) != Hit::None).count();
            assert!(misled < 1000, "{misled} of 10,000 after {learnt}");
            let last = (learnt - 500..learnt).filter(|file| recent.home(key(*file)) == Hit::None).count();
            assert_eq!(last, 0, "the last of them are remembered");
        }
    }

    #[test]
    fn a_size_of_nothing_is_refused() {
        let error = Recent::new(RecentShape { keys_max: 0, ..shape(1) }).unwrap_err();
        assert_eq!(error.to_string(), "keys_max may not be 0; give 1 or more");
    }
}
