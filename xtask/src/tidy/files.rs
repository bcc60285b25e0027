//! Sources stay short, and nothing is left half done.

use super::lex::Token;
use super::report::Findings;
use super::tree::{RustFile, Tree};

/// A file with more lines than this is two nouns.
pub const LINES_MAX: usize = 800;

/// Words that leave work behind, unless an issue is named: `WORD(#12)`.
const MARKS: &[&str] = &["TODO", "FIXME", "XXX"];

/// Checks all Rust sources.
pub fn check(tree: &Tree, found: &mut Findings) {
    for file in &tree.rust {
        if file.lines > LINES_MAX {
            found.add(
                &file.path,
                LINES_MAX + 1,
                format!("the file has {} lines, {LINES_MAX} are allowed", file.lines),
                "it holds two nouns: move one of them to a file of its own",
            );
        }
        unfinished_code(file, found);
        unfinished_comments(file, found);
    }
}

fn unfinished_code(file: &RustFile, found: &mut Findings) {
    let is_macro = |pair: &[Token]| {
        (pair[0].is_word("todo") || pair[0].is_word("unimplemented")) && pair[1].is_mark('!')
    };
    for pair in file.all_tokens.windows(2).filter(|pair| is_macro(pair)) {
        let instead = "finish it, or return an error that says what is not supported";
        found.add(&file.path, pair[0].line, format!("`{}!` is a hole in the code", pair[0].text), instead);
    }
}

fn unfinished_comments(file: &RustFile, found: &mut Findings) {
    for (line, text) in &file.comments {
        for mark in MARKS.iter().filter(|mark| bare(text, mark)) {
            let instead = "do it now, or open an issue and name it: WORD(#12)";
            found.add(&file.path, *line, format!("a bare {mark} in a comment"), instead);
        }
    }
}

/// Whether `mark` stands in `text` as a word of its own without an issue after it.
fn bare(text: &str, mark: &str) -> bool {
    text.match_indices(mark).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = &text[at + mark.len()..];
        let joined = |c: char| c.is_alphanumeric() || c == '_';
        !before.is_some_and(joined) && !after.starts_with(joined) && !after.starts_with("(#")
    })
}
