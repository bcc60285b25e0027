//! A file of tests beside a `main.rs` is named there: one that is not is never compiled, so it passes always.

use super::report::Findings;
use super::tree::Tree;

/// Checks every program of tests that has a folder.
pub fn check(tree: &Tree, found: &mut Findings) {
    let folders = tree.texts.iter().filter_map(|(path, text)| Some((path.strip_suffix("main.rs")?, text)));
    for (folder, text) in folders.filter(|(folder, _)| folder.contains("/tests/")) {
        for path in tree.texts.keys() {
            let name = path.strip_prefix(folder).and_then(|rest| rest.strip_suffix(".rs"));
            let Some(name) = name.filter(|name| *name != "main") else { continue };
            let module = name.strip_suffix("/mod").unwrap_or(name);
            if !module.contains('/') && !text.lines().any(|line| line == format!("mod {module};")) {
                let seen = format!("`{folder}main.rs` does not name it, so these tests never run");
                found.add(path, 1, seen, format!("add `mod {module};` there"));
            }
        }
    }
}
