//! What was read of a trace so far.

use super::event::Kind;
use std::collections::BTreeMap;

/// A line that could not be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Its number, from 1.
    pub line: u64,
    /// Why.
    pub why: &'static str,
    /// How it begins.
    pub text: String,
}

/// What was read so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Lines.
    pub lines: u64,
    /// Operations by kind.
    pub kinds: BTreeMap<Kind, u64>,
    /// Operations that have nothing to do with names, by the recording's own words.
    pub others: BTreeMap<String, u64>,
    /// Lines that could not be understood.
    pub malformed: u64,
    /// The first of them.
    pub examples: Vec<Malformed>,
    /// The time of the last operation, in microseconds since the first.
    pub last_us: u64,
    /// Operations that are earlier than the first one by more than a second: they count as if they were not.
    pub earlier: u64,
}

impl Tally {
    /// Operations of any kind.
    pub fn events(&self) -> u64 {
        self.kinds.values().sum()
    }

    /// Operations that metadata servers are asked for.
    pub fn metadata_events(&self) -> u64 {
        self.kinds.iter().filter(|(kind, _)| kind.is_metadata()).map(|(_, count)| count).sum()
    }

    pub(super) fn note_other(&mut self, word: String) {
        /// A recording that is none could have a new word in each line.
        const WORDS_MAX: usize = 200;
        const WORD_MAX: usize = 40;
        let word = printable(&word, WORD_MAX);
        let known = self.others.len() < WORDS_MAX || self.others.contains_key(&word);
        *self.others.entry(if known { word } else { "...".to_owned() }).or_default() += 1;
    }

    pub(super) fn note_malformed(&mut self, why: &'static str, text: &str) {
        const EXAMPLES_MAX: usize = 5;
        const TEXT_MAX: usize = 120;
        self.malformed += 1;
        if self.examples.len() < EXAMPLES_MAX {
            let text = printable(text, TEXT_MAX);
            self.examples.push(Malformed { line: self.lines, why, text });
        }
    }
}

/// The beginning of a text, without what a terminal would obey.
fn printable(text: &str, most: usize) -> String {
    let shown = |letter: char| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter };
    text.chars().take(most).map(shown).collect()
}
