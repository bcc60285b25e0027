//! Which file is used next: Zipf's distribution over all files in an order of the seed, and over the files of
//! a few subtrees that much of the use goes to.

use super::files::{Files, Slot};
use super::permutation::Permutation;
use bearing_workload::{Seeded, Zipf};
use std::ops::Range;

/// How much of the use goes to a pair of subtrees, in percent. 0: it is spread over the whole tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct HotPercent(pub(super) u64);

/// How popularity moves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drift {
    /// After so many draws a file from the end of the order becomes the most popular one, and each other one
    /// has a rank less.
    pub(super) rank_interval: u64,
    /// After so many draws the next pair of subtrees is the popular one.
    pub(super) subtree_interval: u64,
}

/// A popular subtree has about this part of all files, at most a fifth and at least a thousandth.
const HOT_PART: u64 = 20;
const HOT_PART_MOST: u64 = 5;
const HOT_PART_LEAST: u64 = 1000;
/// Subtrees are popular in pairs, and the first one of a pair twice as much as the second.
const PAIR: usize = 2;
/// So many subtrees are popular one after the other.
const HOT_MAX: usize = 8 * PAIR;

/// See the module.
#[derive(Debug)]
pub(super) struct Popularity {
    whole: Ranks,
    hot: Vec<Ranks>,
    hot_percent: HotPercent,
    drift: Option<Drift>,
    drawn: u64,
}

impl Popularity {
    /// Over the files of a shape.
    pub(super) fn new(
        files: &Files,
        skew: f64,
        hot_percent: HotPercent,
        drift: Option<Drift>,
        rng: &mut Seeded,
    ) -> Popularity {
        let whole = Ranks::new(files.subtrees()[0].clone(), skew, rng);
        let hot = hot_subtrees(files.subtrees());
        let hot = hot.into_iter().map(|range| Ranks::new(range, skew, rng)).collect();
        Popularity { whole, hot, hot_percent, drift, drawn: 0 }
    }

    /// The slot of the next file. It may be free.
    pub(super) fn draw(&mut self, rng: &mut Seeded) -> Slot {
        let (shift, pair) = match self.drift {
            Some(drift) => (self.drawn / drift.rank_interval, self.drawn / drift.subtree_interval),
            None => (0, 0),
        };
        self.drawn += 1;
        let hot = !self.hot.is_empty() && rng.chance(self.hot_percent.0, 100);
        let ranks = match hot {
            true => {
                let of_pair = usize::from(rng.chance(1, 3));
                let pair = (pair % self.hot.len() as u64) as usize;
                &self.hot[(pair * PAIR + of_pair) % self.hot.len()]
            }
            false => &self.whole,
        };
        ranks.draw(shift, rng)
    }
}

/// Zipf's distribution over a range of slots.
#[derive(Debug)]
struct Ranks {
    zipf: Zipf,
    order: Permutation,
    count: u64,
    from: Slot,
}

impl Ranks {
    fn new(range: Range<Slot>, skew: f64, rng: &mut Seeded) -> Ranks {
        let count = range.len() as u64;
        let order = Permutation::new(count, rng.next());
        Ranks { zipf: Zipf::new(count, skew), order, count, from: range.start }
    }

    fn draw(&self, shift: u64, rng: &mut Seeded) -> Slot {
        let rank = self.zipf.rank(rng);
        let place = (rank + self.count - shift % self.count) % self.count;
        self.from + self.order.at(place) as Slot
    }
}

/// Subtrees that do not lie in each other, the nearest to the wanted size first. None if the tree has none of
/// about that size.
fn hot_subtrees(subtrees: &[Range<Slot>]) -> Vec<Range<Slot>> {
    let all = subtrees[0].len() as u64;
    let fits = |size: u64| size > 0 && size * HOT_PART_LEAST >= all && size * HOT_PART_MOST <= all;
    let mut candidates: Vec<&Range<Slot>> =
        subtrees.iter().filter(|range| fits(range.len() as u64)).collect();
    candidates.sort_by_key(|range| (range.len() as u64).abs_diff(all / HOT_PART));
    let mut chosen: Vec<Range<Slot>> = Vec::new();
    for candidate in candidates {
        let apart = |other: &Range<Slot>| candidate.end <= other.start || other.end <= candidate.start;
        if chosen.iter().all(apart) {
            chosen.push(candidate.clone());
        }
        if chosen.len() == HOT_MAX {
            break;
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::super::grown;
    use super::*;

    fn files(seed: u64) -> Files {
        Files::of(&grown::grow(50_000, &mut Seeded::new(seed)).expect("within bounds"))
    }

    #[test]
    fn popular_subtrees_are_apart_and_of_a_size() {
        for seed in 0..8 {
            let files = files(seed);
            let hot = hot_subtrees(files.subtrees());
            assert!(hot.len() >= PAIR, "seed {seed}: {hot:?}");
            for (at, one) in hot.iter().enumerate() {
                assert!((50..=10_000).contains(&one.len()), "{one:?}");
                assert!(hot[..at].iter().all(|other| one.end <= other.start || other.end <= one.start));
            }
            let first = hot[0].len();
            assert!((1_000..=5_000).contains(&first), "seed {seed}: the first one has {first} of 50,000");
        }
    }

    #[test]
    fn a_pair_of_subtrees_has_its_share() {
        let files = files(1);
        let hot = hot_subtrees(files.subtrees());
        let share = |percent, range: &Range<Slot>| {
            let mut rng = Seeded::new(2);
            let mut popularity = Popularity::new(&files, 1.1, HotPercent(percent), None, &mut rng);
            let inside = |_: &u32| range.contains(&popularity.draw(&mut rng));
            (0..20_000).filter(inside).count() as f64 / 20_000.0
        };
        // What is spread over the whole tree falls into it too: its own part, or more with a popular file.
        assert!((0.46..0.70).contains(&share(70, &hot[0])), "{}", share(70, &hot[0]));
        assert!((0.23..0.45).contains(&share(70, &hot[1])), "{}", share(70, &hot[1]));
        assert!(share(0, &hot[0]) < 0.3, "{}", share(0, &hot[0]));
    }
}
