//! Every outside crate has its reason in `docs/design/dependencies.md`, and no reason outlives its crate.

use std::collections::BTreeMap;

use super::report::Findings;
use super::tree::{Tree, line_of};

/// Where the reasons are: rows of a table, each beginning with the crate's name in backticks.
pub const PAGE: &str = "docs/design/dependencies.md";

/// Compares the page with `[workspace.dependencies]`.
pub fn check(tree: &Tree, found: &mut Findings) {
    let pins = tree.workspace.get("workspace").and_then(|w| w.get("dependencies")).and_then(|d| d.as_table());
    let outside: Vec<&String> = pins
        .into_iter()
        .flatten()
        .map(|(name, _)| name)
        .filter(|name| !name.starts_with("bearing-"))
        .collect();
    let reasons = tree.texts.get(PAGE).map(|text| rows(text)).unwrap_or_default();
    let root = tree.texts.get("Cargo.toml").map_or("", String::as_str);
    for name in &outside {
        if !reasons.contains_key(name.as_str()) {
            let line = line_of(root, &format!("{name} = "));
            let instead = format!("add a row \"| `{name}` | why |\" to {PAGE}, or drop the dependency");
            found.add("Cargo.toml", line, format!("the dependency `{name}` has no reason"), instead);
        }
    }
    for (name, line) in reasons {
        if !outside.iter().any(|known| known.as_str() == name) {
            let seen = format!("a reason for `{name}`, which is not a dependency of the workspace");
            found.add(PAGE, line, seen, "remove the row");
        }
    }
}

/// The crates that have a row, and its line.
fn rows(text: &str) -> BTreeMap<&str, usize> {
    let mut rows = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let name = line.strip_prefix("| `").and_then(|rest| rest.split_once("` |")).map(|(name, _)| name);
        if let Some(name) = name {
            rows.insert(name, index + 1);
        }
    }
    rows
}
