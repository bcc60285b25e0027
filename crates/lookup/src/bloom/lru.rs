//! The first level: for every home a small filter of the files that were lately found there (G-HBA section
//! 2.3, L1), kept as a list in the order of their last use, so that the file longest unused makes room.
//!
//! Invariants: bounded, whatever is learnt: `keys_each` files a home, so that no filter is fuller than it was
//! made for. A file that moved is believed at both homes until it is the oldest at the first: no unique
//! answer, so the next level decides.

use crate::bloom::counting::Counting;
use crate::bloom::filter::{Probe, Shape};
use crate::query::FileKey;
use bearing_types::{ParameterError, ServerId, within};
use std::collections::{BTreeMap, HashMap};

/// How much is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecentShape {
    /// Files of a home. 1 or more.
    pub keys_each: u32,
    /// Its filter.
    pub filter: Shape,
}

impl RecentShape {
    /// Whether all is within bounds.
    pub fn check(&self) -> Result<(), ParameterError> {
        within("keys_each", self.keys_each, self.keys_each >= 1, "1 or more")?;
        self.filter.check()
    }

    /// Bytes of the filters of so many homes, encoded.
    pub fn encoded_bytes(&self, homes: u32) -> usize {
        homes as usize * self.filter.encoded_bytes()
    }
}

/// What was lately found at one home.
#[derive(Clone, Debug)]
struct Home {
    filter: Counting,
    /// By the time of their last use.
    by_use: BTreeMap<u64, FileKey>,
    /// The same by file.
    used: HashMap<FileKey, u64>,
}

/// An array of filters of recently found files.
#[derive(Clone, Debug)]
pub struct Recent {
    shape: RecentShape,
    homes: BTreeMap<ServerId, Home>,
    /// Grows with every use.
    uses: u64,
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
        Ok(Recent { shape, homes: BTreeMap::new(), uses: 0 })
    }

    /// A file was found at a home.
    pub fn learn(&mut self, file: FileKey, home: ServerId) {
        self.uses += 1;
        let Recent { shape, homes, uses } = self;
        let home = homes.entry(home).or_insert_with(|| Home {
            filter: Counting::new(shape.filter).expect("checked when the array was made"),
            by_use: BTreeMap::new(),
            used: HashMap::new(),
        });
        match home.used.insert(file, *uses) {
            Some(before) => {
                home.by_use.remove(&before);
            }
            None => home.filter.insert(file),
        }
        home.by_use.insert(*uses, file);
        if home.by_use.len() > shape.keys_each as usize
            && let Some((_, oldest)) = home.by_use.pop_first()
        {
            home.used.remove(&oldest);
            home.filter.remove(oldest);
        }
    }

    /// Where a file was lately found, if that is one home alone.
    pub fn home(&self, file: FileKey) -> Hit {
        let probe = Probe::of(file, self.shape.filter.seed);
        let believed = self.homes.iter().filter(|(_, home)| home.filter.bits().may_hold_probe(probe));
        Hit::only_of(believed.map(|(server, _)| *server))
    }

    /// A home is gone.
    pub fn forget(&mut self, home: ServerId) {
        self.homes.remove(&home);
    }

    /// Bytes of the filters, encoded.
    pub fn encoded_bytes(&self) -> usize {
        self.homes.len() * self.shape.filter.encoded_bytes()
    }

    /// Bytes of the lists and of the counters behind the filters, by which the oldest is taken out.
    pub fn list_bytes(&self) -> usize {
        let listed: usize = self.homes.values().map(|home| home.by_use.len()).sum();
        let counters: usize = self.homes.values().map(|home| home.filter.encoded_bytes()).sum();
        2 * listed * (size_of::<u64>() + size_of::<FileKey>()) + counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bloom::filter::Bloom;
    use proptest::prelude::*;

    fn shape(keys_each: u32) -> RecentShape {
        RecentShape { keys_each, filter: Shape::for_keys(u64::from(keys_each), 16.0, 3).unwrap() }
    }

    proptest! {
        /// The slow oracle: for each home the list of what was learnt, each file at its last use.
        #[test]
        fn its_filters_hold_the_last_used_of_each_home_and_no_more(
            keys_each in 1u32..20, learnt in proptest::collection::vec((0u64..60, 1u32..4), 1..300)
        ) {
            let mut recent = Recent::new(shape(keys_each)).unwrap();
            let mut lists: BTreeMap<ServerId, Vec<FileKey>> = BTreeMap::new();
            for (file, home) in &learnt {
                let (file, home) = (FileKey(*file), ServerId(*home));
                recent.learn(file, home);
                let list = lists.entry(home).or_default();
                list.retain(|other| *other != file);
                list.push(file);
            }
            for (home, list) in &lists {
                let mut filter = Bloom::new(shape(keys_each).filter).unwrap();
                list.iter().rev().take(keys_each as usize).for_each(|file| filter.insert(*file));
                prop_assert_eq!(recent.homes[home].filter.bits(), &filter);
            }
            prop_assert_eq!(recent.homes.len(), lists.len());
        }
    }

    #[test]
    fn what_was_not_used_for_long_is_forgotten_and_what_was_used_again_is_not() {
        let mut recent = Recent::new(shape(10)).unwrap();
        (0..10).for_each(|file| recent.learn(FileKey(file), ServerId(1)));
        recent.learn(FileKey(0), ServerId(1));
        recent.learn(FileKey(100), ServerId(1));
        assert_eq!(recent.home(FileKey(0)), Hit::Only(ServerId(1)));
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
        let mut recent = Recent::new(RecentShape { keys_each: 784, filter }).unwrap();
        let key = |number: u64| FileKey(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for learnt in [15_000, 200_000] {
            (0..learnt).for_each(|file| recent.learn(key(file), ServerId(1)));
            let misled = (0..10_000).filter(|file| recent.home(key(1 << 40 | file)) != Hit::None).count();
            assert!(misled < 400, "{misled} of 10,000 after {learnt}");
            let last = (learnt - 784..learnt).filter(|file| recent.home(key(*file)) == Hit::None).count();
            assert_eq!(last, 0, "the last of them are remembered");
        }
    }

    #[test]
    fn lists_take_two_words_twice_a_file_and_counters_a_filter() {
        let mut recent = Recent::new(shape(10)).unwrap();
        (0..5).for_each(|file| recent.learn(FileKey(file), ServerId(1)));
        recent.learn(FileKey(9), ServerId(2));
        assert_eq!(recent.list_bytes(), 2 * 6 * 16 + 2 * shape(10).filter.counting_bytes());
    }

    #[test]
    fn a_size_of_nothing_is_refused() {
        let error = Recent::new(RecentShape { keys_each: 0, ..shape(1) }).unwrap_err();
        assert_eq!(error.to_string(), "keys_each may not be 0; give 1 or more");
    }
}
