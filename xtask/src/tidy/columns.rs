//! Comments and prose are no wider than code, so that two files fit side by side.
//!
//! Left alone: what cannot be broken (one long word, an entry that is a link), tables, headings, and blocks
//! of code.

use super::report::Findings;
use super::tree::Tree;

/// As `max_width` in `rustfmt.toml`, in characters.
const COLUMNS_MAX: usize = 110;

/// Checks all comments of Rust sources and all prose of Markdown files.
pub fn check(tree: &Tree, found: &mut Findings) {
    for file in &tree.rust {
        let lines: Vec<&str> = tree.texts.get(&file.path).map_or(Vec::new(), |text| text.lines().collect());
        for (line, text) in &file.comments {
            let whole = lines.get(line - 1).copied().unwrap_or_default();
            check_line(&file.path, *line, whole, text.trim_start_matches(['/', '!', '*']), found);
        }
    }
    let pages = tree.texts.iter().filter(|(path, _)| path.ends_with(".md"));
    for (path, text) in pages {
        for (line, text) in prose(text) {
            check_line(path, line, text, text, found);
        }
    }
}

fn check_line(path: &str, line: usize, whole: &str, text: &str, found: &mut Findings) {
    let columns = whole.chars().count();
    if columns > COLUMNS_MAX && !is_one_piece(text) {
        let seen = format!("the line is {columns} columns wide, {COLUMNS_MAX} are allowed");
        found.add(path, line, seen, "wrap the paragraph");
    }
}

/// Whether a text, behind the mark of a list's entry, is one word or one link.
fn is_one_piece(text: &str) -> bool {
    let text = text.trim().trim_start_matches("- ");
    !text.contains(' ') || (text.starts_with('[') && text.ends_with(')') && text.matches("](").count() == 1)
}

/// The lines of a page that are neither code nor table, heading or link definition.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut in_code = false;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        let defines_link = line.starts_with('[') && line.contains("]: ");
        if !in_code
            && !fence
            && !line.starts_with(['|', '#', '<'])
            && !line.starts_with("    ")
            && !defines_link
        {
            lines.push((index + 1, line));
        }
    }
    lines
}
