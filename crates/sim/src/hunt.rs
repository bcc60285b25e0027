//! The hunt for a planted bug: from several starts that share no seed, how many seeds until a promise is
//! broken, and which promise.
//!
//! The median over the starts is what the checkers are worth against this kind of bug; one start could be
//! luck.

use crate::complaint::Promise;
use crate::options::Options;
use crate::sim::run_caught;
use std::collections::BTreeMap;
use std::fmt;

/// The seeds from one start up to the first that breaks a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    from: u64,
    tried: u64,
    found: Option<Promise>,
}

impl Track {
    /// Runs seeds from a start until one breaks a promise, but no more than so many.
    pub fn follow(from: u64, seeds_max: u64, options: &Options) -> Track {
        let mut track = Track { from, tried: 0, found: None };
        while track.found.is_none() && track.tried < seeds_max {
            let report = run_caught(from + track.tried, options);
            track.tried += 1;
            track.found = report.violations.first().map(|complaint| complaint.promise);
        }
        track
    }

    /// The seeds that were run.
    pub fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        self.from..self.from + self.tried
    }
}

/// What came of the hunt for one bug.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunt {
    name: String,
    tracks: Vec<Track>,
}

impl Hunt {
    /// What the columns of a told hunt are.
    pub const HEAD: &'static str =
        "planted bug             median  seeds to the first find, by start  promise that was broken";

    /// From what was found on each track.
    pub fn new(name: &str, tracks: &[Track]) -> Hunt {
        Hunt { name: name.to_owned(), tracks: tracks.to_vec() }
    }

    /// The bug.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Seeds to the first find, the median over the starts. `None`: from most starts it was not found.
    pub fn median(&self) -> Option<u64> {
        let mut tried: Vec<u64> = self.tracks.iter().map(Track::cost).collect();
        tried.sort_unstable();
        tried.get(tried.len() / 2).copied().filter(|tried| *tried < u64::MAX)
    }
}

impl Track {
    fn cost(&self) -> u64 {
        if self.found.is_some() { self.tried } else { u64::MAX }
    }
}

impl fmt::Display for Hunt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut by = BTreeMap::new();
        self.tracks.iter().filter_map(|track| track.found).for_each(|rule| *by.entry(rule).or_insert(0) += 1);
        let tried = self.tracks.iter().map(|track| match track.found {
            Some(_) => track.tried.to_string(),
            None => format!(">{}", track.tried),
        });
        let by: Vec<String> = by.iter().map(|(promise, count)| format!("{promise} {count}")).collect();
        let median = self.median().map_or_else(|| "-".to_owned(), |median| median.to_string());
        let tried = tried.collect::<Vec<_>>().join(" ");
        write!(f, "{:<22}  {median:>6}  {tried:<33}  {}", self.name, by.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn track(from: u64, tried: u64, found: bool) -> Track {
        Track { from, tried, found: found.then_some(Promise::NoLoop) }
    }

    #[test]
    fn the_median_is_over_the_starts_and_a_start_without_a_find_counts_as_endless() {
        let hunt = |tracks: &[Track]| Hunt::new("x", tracks).median();
        assert_eq!(hunt(&[track(0, 9, true), track(40, 1, true), track(80, 40, false)]), Some(9));
        assert_eq!(hunt(&[track(0, 40, false), track(40, 1, true), track(80, 40, false)]), None);
    }

    #[test]
    fn a_track_ends_at_its_limit_when_nothing_is_broken() {
        let options = Options { calm: true, ..Options::usual(40) };
        let track = Track::follow(7, 2, &options);
        assert_eq!(track, Track { from: 7, tried: 2, found: None });
        assert_eq!(track.seeds().collect::<Vec<_>>(), [7, 8]);
    }
}
