//! The table of rooms: what each crate may import. Imports point down only.
//!
//! A room is a directory under `crates/`; its package is `bearing-<room>`. The order of the table is the
//! order of the floors: words, decisions, machines, world, people, and beside them xtask. Widening a row
//! is a decision about the architecture and belongs in `docs/design/` with its reason.

/// What a room is allowed to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    /// Words, decisions and machines: no clock, thread, socket, file, log or unseeded chance.
    Pure,
    /// World and people: may touch the machine.
    World,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Directory under `crates/`, or `xtask`.
    pub name: &'static str,
    /// Which rules its sources keep.
    pub floor: Floor,
    /// Rooms it may import.
    pub rooms: &'static [&'static str],
    /// Outside crates it may import.
    pub outside: &'static [&'static str],
}

/// What any room's tests may import besides the room's own row. Nothing here can reach a release build.
pub const TEST_OUTSIDE: &[&str] = &["proptest", "tempfile", "blake3", "serde_json", "libc", "walkdir"];

/// Rooms that any room's tests may import besides the room's own row.
pub const TEST_ROOMS: &[&str] = &["workload"];

/// Packages that may never switch the planted bugs on.
pub const SHIPPED: &[&str] = &["cli", "server", "fuse", "mount"];

const fn pure(name: &'static str, rooms: &'static [&'static str], outside: &'static [&'static str]) -> Room {
    Room { name, floor: Floor::Pure, rooms, outside }
}

const fn world(name: &'static str, rooms: &'static [&'static str], outside: &'static [&'static str]) -> Room {
    Room { name, floor: Floor::World, rooms, outside }
}

/// The table.
pub const TABLE: &[Room] = &[
    // Words.
    pure("types", &[], &["serde", "xxhash-rust", "thiserror"]),
    pure("seams", &["types"], &["serde", "thiserror"]),
    // Decisions.
    pure("routing", &["types"], &["thiserror"]),
    pure("placement", &["types", "routing"], &["serde", "blake3", "xxhash-rust", "thiserror"]),
    pure("lookup", &["types", "placement"], &["serde", "xxhash-rust", "thiserror"]),
    pure("openflow", &["types", "placement", "routing"], &["thiserror"]),
    pure(
        "proto",
        &["types", "seams", "placement", "lookup", "routing", "openflow"],
        &["serde", "postcard", "blake3", "crc32c", "xxhash-rust", "thiserror"],
    ),
    // Machines: none imports another.
    pure(
        "meta",
        &["types", "seams", "placement", "lookup", "routing", "proto"],
        &["serde", "postcard", "blake3", "crc32c", "smallvec", "xxhash-rust", "thiserror"],
    ),
    pure(
        "data",
        &["types", "seams", "placement", "proto"],
        &["serde", "postcard", "blake3", "crc32c", "thiserror"],
    ),
    pure(
        "flow",
        &["types", "seams", "placement", "lookup", "routing", "openflow", "proto"],
        &["serde", "postcard", "thiserror"],
    ),
    pure(
        "client",
        &["types", "seams", "placement", "lookup", "routing", "proto"],
        &["serde", "postcard", "blake3", "crc32c", "hashbrown", "xxhash-rust", "thiserror"],
    ),
    // World.
    world(
        "env",
        &["types", "seams", "proto"],
        &[
            "libc",
            "socket2",
            "getrandom",
            "thiserror",
            "crc32c",
            "blake3",
            "signal-hook",
            "snow",
            "chacha20poly1305",
        ],
    ),
    world(
        "engines-local",
        &["types", "seams"],
        &["fjall", "redb", "postcard", "serde", "thiserror", "crc32c", "blake3", "libc"],
    ),
    world("engines-etcd", &["types", "seams"], &["etcd-client", "tokio", "tonic", "getrandom"]),
    world(
        "mount",
        &["types", "seams", "placement", "lookup", "proto", "client", "env"],
        &["thiserror", "libc", "postcard", "serde", "crc32c", "tracing"],
    ),
    world(
        "server",
        &[
            "types",
            "seams",
            "placement",
            "routing",
            "lookup",
            "proto",
            "meta",
            "data",
            "flow",
            "env",
            "engines-local",
            "engines-etcd",
        ],
        &[
            "serde",
            "toml",
            "tracing",
            "thiserror",
            "anyhow",
            "libc",
            "postcard",
            "crc32c",
            "blake3",
            "signal-hook",
            "hyper",
            "hyper-util",
            "prometheus-client",
            "tokio",
        ],
    ),
    world("fuse", &["types", "mount"], &["fuser", "libc", "thiserror", "tracing"]),
    // People.
    world("workload", &["types", "seams", "proto"], &["serde", "serde_json", "xxhash-rust", "thiserror"]),
    world(
        "sim",
        &[
            "types",
            "seams",
            "placement",
            "routing",
            "lookup",
            "proto",
            "meta",
            "data",
            "flow",
            "client",
            "workload",
        ],
        &["anyhow", "clap", "mimalloc", "serde", "postcard", "blake3", "crc32c", "xxhash-rust", "thiserror"],
    ),
    world(
        "lab",
        &["types", "routing", "placement", "lookup", "openflow", "flow", "workload"],
        &["maud", "microlp", "plotters", "serde", "xxhash-rust"],
    ),
    world(
        "cli",
        &[
            "types",
            "seams",
            "placement",
            "lookup",
            "routing",
            "openflow",
            "proto",
            "meta",
            "data",
            "flow",
            "client",
            "env",
            "engines-local",
            "mount",
            "server",
            "fuse",
            "workload",
            "lab",
        ],
        &[
            "anyhow",
            "clap",
            "clap_complete",
            "clap_mangen",
            "comfy-table",
            "indicatif",
            "serde",
            "serde_json",
            "toml",
            "tracing",
            "tracing-subscriber",
            "signal-hook",
            "getrandom",
            "libc",
            "hdrhistogram",
            "walkdir",
            "blake3",
            "thiserror",
        ],
    ),
    // Beside: starts the other programs, imports none of the rooms.
    world("xtask", &[], &["anyhow", "blake3", "clap", "fuser", "libc", "serde_json", "toml", "walkdir"]),
];

/// The row of a room.
pub fn find(name: &str) -> Option<&'static Room> {
    TABLE.iter().find(|room| room.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_point_only_at_earlier_rows() {
        for (index, room) in TABLE.iter().enumerate() {
            for below in room.rooms {
                let position = TABLE.iter().position(|r| r.name == *below);
                assert!(position.is_some_and(|p| p < index), "{} may not import {below}", room.name);
            }
        }
    }

    #[test]
    fn no_machine_imports_another() {
        let machines = ["meta", "data", "flow", "client"];
        for room in TABLE.iter().filter(|room| machines.contains(&room.name)) {
            assert!(!room.rooms.iter().any(|below| machines.contains(below)), "{}", room.name);
        }
    }

    #[test]
    fn pure_rooms_import_only_pure_rooms() {
        for room in TABLE.iter().filter(|room| room.floor == Floor::Pure) {
            for below in room.rooms {
                assert_eq!(find(below).map(|r| r.floor), Some(Floor::Pure), "{} -> {below}", room.name);
            }
        }
    }
}
