//! Every dependency of every package stands in the table of rooms and is pinned in the workspace.

use super::report::Findings;
use super::rooms::{self, Room};
use super::tree::{Manifest, Tree};

/// Which column of the table holds for a dependency.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Code,
    Tests,
}

/// Checks all manifests.
pub fn check(tree: &Tree, found: &mut Findings) {
    for manifest in &tree.manifests {
        match rooms::find(&manifest.room) {
            Some(room) => check_manifest(manifest, room, found),
            None => found.add(
                &manifest.path,
                1,
                format!("the room `{}` is not in the table of rooms", manifest.room),
                "add a row to xtask/src/tidy/rooms.rs, at the height where it belongs",
            ),
        }
    }
}

fn check_manifest(manifest: &Manifest, room: &Room, found: &mut Findings) {
    for (column, table) in dependency_tables(&manifest.table) {
        for (key, value) in table {
            let package = value.get("package").and_then(|p| p.as_str()).unwrap_or(key);
            check_one(manifest, room, column, key, package, found);
            if value.get("workspace").and_then(|w| w.as_bool()) != Some(true) {
                found.add(
                    &manifest.path,
                    manifest.line_of(key),
                    format!("dependency `{key}` is not taken from the workspace"),
                    "pin it in the root Cargo.toml and write `.workspace = true` here",
                );
            }
        }
    }
}

/// The dependency tables of a manifest, those under `[target.*]` too. A build script is code.
fn dependency_tables(table: &toml::Table) -> Vec<(Column, &toml::Table)> {
    let mut holders = vec![table];
    if let Some(targets) = table.get("target").and_then(|t| t.as_table()) {
        holders.extend(targets.values().filter_map(|t| t.as_table()));
    }
    let mut tables = Vec::new();
    for holder in holders {
        for (name, column) in [
            ("dependencies", Column::Code),
            ("build-dependencies", Column::Code),
            ("dev-dependencies", Column::Tests),
        ] {
            tables.extend(holder.get(name).and_then(|t| t.as_table()).map(|t| (column, t)));
        }
    }
    tables
}

fn check_one(
    manifest: &Manifest,
    room: &Room,
    column: Column,
    key: &str,
    package: &str,
    found: &mut Findings,
) {
    let line = manifest.line_of(key);
    let tests = column == Column::Tests;
    if let Some(other) = package.strip_prefix("bearing-") {
        // A room may name itself among its test dependencies, to switch a feature on.
        let for_tests = tests && (other == room.name || rooms::TEST_ROOMS.contains(&other));
        if !room.rooms.contains(&other) && !for_tests {
            found.add(
                &manifest.path,
                line,
                format!("room `{}` imports room `{other}`", room.name),
                format!("imports point down only; `{}` may import: {}", room.name, listed(room.rooms)),
            );
        }
        return;
    }
    let for_tests = tests && rooms::TEST_OUTSIDE.contains(&package);
    if !room.outside.contains(&package) && !for_tests {
        found.add(
            &manifest.path,
            line,
            format!("room `{}` imports the outside crate `{package}`", room.name),
            format!(
                "`{}` may import: {}; if it must, widen its row in xtask/src/tidy/rooms.rs and say why in docs/design",
                room.name,
                listed(room.outside)
            ),
        );
    }
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}
