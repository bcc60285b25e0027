//! Each test that `docs/promises.md` names is in the sources: who renames or removes one changes the page.

use std::collections::BTreeSet;

use super::report::Findings;
use super::tree::Tree;

/// The page.
pub const PAGE: &str = "docs/promises.md";
/// A name of so many words is that of a test, or of something else in the sources.
const WORDS_MIN: usize = 4;

/// Looks for each name of the page in the sources.
pub fn check(tree: &Tree, found: &mut Findings) {
    let Some(text) = tree.texts.get(PAGE) else { return };
    let known: BTreeSet<&str> =
        tree.rust.iter().flat_map(|file| &file.all_tokens).map(|token| token.text.as_str()).collect();
    for (index, line) in text.lines().enumerate() {
        for name in line.split('`').skip(1).step_by(2).filter(|name| is_name(name)) {
            if !known.contains(name) {
                let seen = format!("`{name}`, which no source has");
                found.add(
                    PAGE,
                    index + 1,
                    seen,
                    "name the test that holds the promise, or say that none does",
                );
            }
        }
    }
}

fn is_name(word: &str) -> bool {
    let plain = |c: char| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit();
    word.chars().all(plain) && word.split('_').count() >= WORDS_MIN
}
