//! What the folders of a machine's room may import of each other: a folder imports only those above it, and
//! knows nobody who imports it.
//!
//! A row is a folder, or a file of the room's root that stands apart from the others there. `.` is all other
//! files of the root: words that every folder may use, so they import little themselves. `lib.rs` is not
//! looked at. Imports are those of [`circles`](super::circles).

use super::circles::{self, Graph, Module};
use super::report::Findings;
use super::tree::Tree;

/// A folder, and which others of the room it may import. All may import `.`, unless the row of `.` says what
/// these may.
type Row = (&'static str, &'static [&'static str]);

/// The rooms that are watched, each with its folders from the bottom up.
const TABLE: &[(&str, &[Row])] = &[
    (
        "meta",
        &[
            (".", &["record"]),
            ("record", &[]),
            ("lease", &["record"]),
            ("memory", &["record"]),
            ("txn", &["record"]),
            ("chunks", &["record"]),
            ("replication", &["record"]),
            ("tablet", &["record", "lease", "memory", "txn", "chunks", "replication"]),
            ("view", &["record", "lease", "memory", "txn", "chunks"]),
            ("decide/rules", &["record", "view"]),
            ("decide/maintenance", &["record", "chunks", "view", "decide/rules"]),
            ("decide/participants", &["record", "view", "decide/rules"]),
            ("decide/ops", &["record", "view", "decide/rules", "decide/maintenance", "decide/participants"]),
            (
                "decide",
                &[
                    "record",
                    "chunks",
                    "view",
                    "decide/rules",
                    "decide/maintenance",
                    "decide/participants",
                    "decide/ops",
                ],
            ),
            (
                "engine",
                &[
                    "record",
                    "lease",
                    "memory",
                    "txn",
                    "chunks",
                    "replication",
                    "tablet",
                    "view",
                    "decide",
                    "decide/maintenance",
                    "decide/rules",
                ],
            ),
            ("relays", &["engine"]),
            ("recovery", &["record", "memory"]),
        ],
    ),
    (
        "client",
        &[
            (".", &[]),
            ("run", &[]),
            ("tables", &[]),
            ("state/lease", &["tables"]),
            ("state/files", &["run", "tables"]),
            ("state/lent", &["run", "tables"]),
            ("state", &["run", "tables", "state/lease", "state/files", "state/lent"]),
            ("context", &["run", "state", "state/lease", "state/files", "state/lent"]),
            ("again", &["context", "state", "state/files"]),
            ("calls", &["context", "state", "state/lease"]),
            ("delegation", &["context", "state", "state/lease", "state/files", "state/lent"]),
            ("file", &["context", "state", "state/lease", "state/files"]),
            ("namespace", &["context", "delegation", "state", "state/lease", "state/lent"]),
            (
                "machine",
                &[
                    "again",
                    "calls",
                    "context",
                    "delegation",
                    "file",
                    "namespace",
                    "run",
                    "state",
                    "state/files",
                ],
            ),
        ],
    ),
];

/// Checks the rooms of the table.
pub fn check(tree: &Tree, found: &mut Findings) {
    for (room, graph) in circles::graphs(tree) {
        if let Some((_, rows)) = TABLE.iter().find(|(name, _)| *name == room) {
            check_room(&room, rows, &graph, found);
        }
    }
}

fn check_room(room: &str, rows: &'static [Row], graph: &Graph, found: &mut Findings) {
    for (module, imports) in graph.iter().filter(|(module, _)| !module.is_empty()) {
        let path = format!("crates/{room}/src/{}", module.join("/"));
        let Some((folder, may)) = row_of(rows, graph, module) else {
            let seen = format!("the folder `{}` has no row in the table of `{room}`", module[0]);
            found.add(&path, 1, seen, "say in xtask/src/tidy/folders.rs what it may import");
            continue;
        };
        for imported in imports.iter().filter(|imported| !imported.is_empty()) {
            let Some((other, _)) = row_of(rows, graph, imported) else { continue };
            if other == folder || other == "." || may.contains(&other) {
                continue;
            }
            found.add(
                &path,
                1,
                format!("`{folder}` imports `{}`, and may not import `{other}`", imported.join("::")),
                "take what is needed as an argument, return what is to be done, or move it to where it belongs",
            );
        }
    }
}

/// The row of the innermost folder that a module is in.
fn row_of(rows: &'static [Row], graph: &Graph, module: &Module) -> Option<Row> {
    let row = |name: &str| rows.iter().find(|(folder, _)| *folder == name).copied();
    let within = (1..=module.len()).rev().find_map(|length| row(&module[..length].join("/")));
    let is_folder = graph.keys().any(|other| other.len() > 1 && other[0] == module[0]);
    within.or_else(|| row(".").filter(|_| !is_folder))
}
