//! Pages: every one of `docs/` is in the book, links lead somewhere, sources that are named exist, and design
//! notes say whether they are valid.

use super::report::Findings;
use super::tree::Tree;

/// The book's table of contents.
pub const SUMMARY: &str = "docs/SUMMARY.md";
/// Where sources are: below the root, or below `crates/`.
const SOURCES: [&str; 2] = ["/src/", "/tests/"];
/// Folders of dated notes: files that they name may be gone.
const DATED: [&str; 2] = ["docs/design/2", "docs/benchmarks/2"];

/// Checks all Markdown files.
pub fn check(tree: &Tree, found: &mut Findings) {
    let pages = || tree.texts.iter().filter(|(path, _)| path.ends_with(".md"));
    let listed: Vec<String> = tree.texts.get(SUMMARY).map_or(Vec::new(), |text| {
        links(text).into_iter().filter_map(|(_, link)| target(SUMMARY, &link)).collect()
    });
    for (path, text) in pages() {
        if path.starts_with("docs/") && path != SUMMARY && !listed.contains(path) {
            let seen = format!("the page is not in {SUMMARY}");
            found.add(path, 1, seen, "add a line for it there, or the book lacks it");
        }
        if DATED.iter().any(|folder| path.starts_with(folder)) && text.lines().nth(2).is_none_or(no_status) {
            let instead = "write \"Status: accepted, begun or superseded by ..\" below the title";
            found.add(path, 3, "a dated note without a status".to_owned(), instead);
        }
        if !DATED.iter().any(|folder| path.starts_with(folder)) && path != "CHANGELOG.md" {
            check_sources(tree, path, text, found);
        }
        for (line, link) in links(text) {
            let Some(target) = target(path, &link) else { continue };
            let below = format!("{target}/");
            let is_there = tree.texts.contains_key(&target)
                || tree.others.contains(&target)
                || tree.texts.keys().any(|k| k.starts_with(&below));
            if !is_there {
                found.add(path, line, format!("a link to `{link}`, which is not there"), "mend the link");
            } else if path.starts_with("docs/") && !target.starts_with("docs/") {
                let seen = format!("a link to `{link}`, which is not in the book");
                found.add(path, line, seen, "name the file in code font: from the book the link is dead");
            }
        }
    }
}

/// Sources that a page names in code font are there.
fn check_sources(tree: &Tree, path: &str, text: &str, found: &mut Findings) {
    for (index, line) in text.lines().enumerate() {
        let spans = line.split('`').skip(1).step_by(2);
        let named =
            spans.filter(|span| span.ends_with(".rs") && SOURCES.iter().any(|part| span.contains(part)));
        for file in named.flat_map(alternatives).filter(|file| !file.contains('<')) {
            let below_crates = format!("crates/{file}");
            if !tree.texts.contains_key(&file) && !tree.texts.contains_key(&below_crates) {
                found.add(path, index + 1, format!("`{file}`, which is no source"), "name where it is now");
            }
        }
    }
}

/// `a/{b,c}.rs` is `a/b.rs` and `a/c.rs`.
fn alternatives(span: &str) -> Vec<String> {
    let Some((before, (inner, after))) =
        span.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    else {
        return vec![span.to_owned()];
    };
    inner.split(',').map(|one| format!("{before}{one}{after}")).collect()
}

fn no_status(line: &str) -> bool {
    !line.starts_with("Status: ")
}

/// Where links of a page lead, as they are written, with their lines. Code is left out.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        in_code ^= line.trim_start().starts_with("```");
        if in_code || line.starts_with("    ") {
            continue;
        }
        let plain: String = line.split('`').step_by(2).collect();
        let inline = plain.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let defined = plain.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, link)| link);
        links.extend(inline.chain(defined).map(|link| (index + 1, link.to_owned())));
    }
    links
}

/// The path from the root that a page's link leads to; none for places elsewhere or on the page itself.
fn target(page: &str, link: &str) -> Option<String> {
    let path = link.split('#').next().filter(|path| !path.is_empty() && !path.contains(':'))?;
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}
