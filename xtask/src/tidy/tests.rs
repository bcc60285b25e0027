//! One violation of each kind, planted into a small clean tree, is found where it stands.

use std::path::Path;

use super::tree::Tree;
use super::{Findings, check};

const ROOT: &str = "[workspace]\nmembers = [\"crates/*\"]\n\n[workspace.dependencies]\n\
    bearing-types = { path = \"crates/types\" }\nserde = \"1\"\nthiserror = \"2\"\n";
const REASONS: &str = "| crate | why |\n|---|---|\n| `serde` | formats |\n| `thiserror` | errors |\n";
const TYPES: &str = "[package]\nname = \"bearing-types\"\n\n[dependencies]\nserde.workspace = true\n";
const META: &str = "[package]\nname = \"bearing-meta\"\n\n[dependencies]\nbearing-types.workspace = true\n\n\
    [dev-dependencies]\nproptest.workspace = true\n\n[features]\nmutants = []\n";
const SERVER: &str =
    "[package]\nname = \"bearing-server\"\n\n[dependencies]\nbearing-meta.workspace = true\n";
const LIB: &str = "//! A machine.\n\
    #[cfg(all(feature = \"mutants\", not(debug_assertions)))]\ncompile_error!(\"planted bugs\");\n\
    use std::collections::{BTreeMap, HashMap};\nuse std::net::SocketAddr;\nuse std::time::Duration;\n\
    mod log;\n\
    pub struct Table { ordered: BTreeMap<u8, u8>, hashed: HashMap<u8, u8> }\n\
    impl Table {\n    fn f(&self) -> usize { log::g(); self.ordered.iter().count() + self.hashed.len() }\n}\n\
    // std::fs::read is only named here, and \"println!\" too\n\
    const TEXT: &str = \"std::time::Instant::now() println!\";\n\
    #[cfg(test)]\nmod tests { fn f() { println!(\"{:?}\", std::time::Instant::now()); } }\n\
    #[cfg(test)]\nmod laws;\n";
const LAWS: &str = "use std::fs;\nfn f() { std::thread::yield_now(); }\n";

/// The clean tree with `path` replaced (or its text extended, if `path` ends in `+`).
fn findings(changes: &[(&str, &str)]) -> Vec<String> {
    let root = tempfile::tempdir().expect("a directory");
    let clean = [
        ("Cargo.toml", ROOT),
        ("docs/SUMMARY.md", "- [Why](design/dependencies.md)\n- [A](guide.md)\n- [B](promises.md)\n"),
        ("docs/design/dependencies.md", REASONS),
        ("docs/guide.md", "# How\n"),
        ("docs/promises.md", "# What\n"),
        ("crates/types/Cargo.toml", TYPES),
        ("crates/types/src/lib.rs", "//! Words.\n"),
        ("crates/meta/Cargo.toml", META),
        ("crates/meta/src/lib.rs", LIB),
        ("crates/meta/src/laws.rs", LAWS),
        ("crates/server/Cargo.toml", SERVER),
        ("crates/server/src/lib.rs", "//! A shell.\nuse std::{fs, thread};\n"),
    ];
    for (path, text) in clean {
        write(root.path(), path, text);
    }
    for (path, text) in changes {
        match path.strip_suffix('+') {
            Some(path) => {
                let before = std::fs::read_to_string(root.path().join(path)).expect("is there");
                write(root.path(), path, &(before + text));
            }
            None => write(root.path(), path, text),
        }
    }
    let tree = Tree::read(root.path()).expect("reads");
    let found: Findings = check(&tree);
    found.iter().map(|finding| finding.to_string()).collect()
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().expect("has a parent")).expect("make a directory");
    std::fs::write(path, text).expect("write a file");
}

/// Plants `text` and expects exactly one finding, at `place`, that says `seen`.
fn caught(path: &str, text: &str, place: &str, seen: &str) {
    let found = findings(&[(path, text)]);
    assert_eq!(found.len(), 1, "planted {text:?} in {path}: {found:#?}");
    assert!(found[0].starts_with(&format!("{place}: ")), "place of {text:?}: {}", found[0]);
    assert!(found[0].contains(seen), "what {text:?} is: {}", found[0]);
    assert!(found[0].contains("instead: "), "the remedy for {text:?}: {}", found[0]);
}

/// Plants one line in a file of its own in a pure room.
fn caught_in_meta(line: &str, seen: &str) {
    caught("crates/meta/src/bad.rs", &format!("//! Bad.\n{line}\n"), "crates/meta/src/bad.rs:2", seen);
}

#[test]
fn a_clean_tree_passes() {
    assert_eq!(findings(&[]), Vec::<String>::new());
}

#[test]
fn an_import_that_points_up_is_caught() {
    caught(
        "crates/types/Cargo.toml+",
        "bearing-meta.workspace = true\n",
        "crates/types/Cargo.toml:6",
        "imports room `meta`",
    );
}

#[test]
fn an_import_for_one_target_only_is_caught() {
    let text = "[target.'cfg(unix)'.dependencies]\nbearing-env.workspace = true\n";
    caught("crates/meta/Cargo.toml+", text, "crates/meta/Cargo.toml:13", "imports room `env`");
}

#[test]
fn an_outside_crate_that_is_not_in_the_row_is_caught() {
    caught(
        "crates/types/Cargo.toml+",
        "tracing.workspace = true\n",
        "crates/types/Cargo.toml:6",
        "outside crate `tracing`",
    );
}

#[test]
fn a_renamed_package_is_still_itself() {
    let text = "notes = { package = \"log\", workspace = true }\n";
    caught("crates/types/Cargo.toml+", text, "crates/types/Cargo.toml:6", "outside crate `log`");
}

#[test]
fn test_only_crates_are_refused_as_code_and_allowed_for_tests() {
    caught(
        "crates/types/Cargo.toml+",
        "proptest.workspace = true\n",
        "crates/types/Cargo.toml:6",
        "outside crate `proptest`",
    );
    let tests = "\n[dev-dependencies]\nproptest.workspace = true\nbearing-workload.workspace = true\n";
    assert_eq!(findings(&[("crates/types/Cargo.toml+", tests)]), Vec::<String>::new());
}

#[test]
fn a_dependency_pinned_in_a_room_is_caught() {
    caught(
        "crates/types/Cargo.toml+",
        "thiserror = \"2\"\n",
        "crates/types/Cargo.toml:6",
        "not taken from the workspace",
    );
}

#[test]
fn a_room_that_nobody_placed_is_caught() {
    let text = "[package]\nname = \"bearing-attic\"\n";
    caught("crates/attic/Cargo.toml", text, "crates/attic/Cargo.toml:1", "not in the table");
}

#[test]
fn clocks_are_caught() {
    caught_in_meta("use std::time::Instant;", "a clock");
    caught_in_meta("use std::time::{Duration, SystemTime};", "a clock");
    caught_in_meta("use std::time::*;", "a clock");
    caught_in_meta("fn f() { g(time::Instant::now()) }", "a clock");
}

#[test]
fn threads_are_caught() {
    caught_in_meta("fn f() { ::std::thread::spawn(g); }", "threads");
    caught_in_meta("thread_local! { static X: u8 = 1; }", "threads");
}

#[test]
fn sockets_are_caught_and_addresses_are_not() {
    caught_in_meta("use std::net::{SocketAddr, UdpSocket};", "a socket");
    caught_in_meta("fn f(s: std::net::TcpStream) {}", "a socket");
    caught_in_meta("fn f(s: std::os::unix::net::UnixStream) {}", "the operating system");
}

#[test]
fn files_and_terminals_are_caught_and_io_traits_are_not() {
    caught_in_meta("use std::{collections::BTreeMap, fs, io::Write};", "files");
    caught_in_meta("use std::io::{Read, stdout};", "a terminal");
    caught_in_meta("fn f() { std::fs::read(x); }", "files");
}

#[test]
fn environment_and_processes_are_caught() {
    caught_in_meta("fn f() { std::env::var(x); }", "the environment");
    caught_in_meta("fn f() { std::process::exit(1); }", "a process");
}

#[test]
fn logging_and_printing_are_caught() {
    for name in ["println", "eprintln", "print", "eprint", "dbg"] {
        caught_in_meta(&format!("fn f() {{ {name}!(x); }}"), "prints");
    }
    caught_in_meta("fn f() { tracing::info!(x); }", "logging");
}

#[test]
fn the_log_crate_is_told_from_a_module_of_that_name() {
    caught("crates/types/src/bad.rs", "use log::warn;\n", "crates/types/src/bad.rs:1", "logging");
    assert_eq!(findings(&[("crates/meta/src/good.rs", "use log::warn;\n")]), Vec::<String>::new());
}

#[test]
fn unseeded_randomness_is_caught() {
    caught_in_meta("use std::collections::hash_map::RandomState;", "unseeded randomness");
    caught_in_meta("fn f() { getrandom::fill(x); }", "unseeded randomness");
    caught_in_meta("fn f() { rand::random(); }", "unseeded randomness");
    caught_in_meta("fn f() { thread_rng(); }", "unseeded randomness");
}

#[test]
fn walks_over_hash_maps_are_caught() {
    for walk in [
        "fn f(m: &HashMap<u8, u8>) { m.keys(); }",
        "fn f(m: &mut std::collections::HashSet<u8>) { m.retain(g); }",
        "fn f(m: Option<&HashMap<u8, u8>>) { m.unwrap().values(); }",
        "fn f() { let mut m = HashMap::new(); for x in &mut m { g(x); } }",
        "fn f() { let m = x.map(g).collect::<HashSet<_>>(); m.into_iter(); }",
        "type Index = HashMap<u8, u8>; fn f(m: Index) { m.drain(); }",
        "struct S { m: HashMap<u8, u8> } impl S { fn f(&self) { for (k, v) in &self.m { } } }",
    ] {
        caught_in_meta(walk, "walks over a hash map");
    }
}

#[test]
fn a_field_that_another_file_declares_is_known() {
    caught_in_meta("fn f(t: &super::Table) { t.hashed.iter(); }", "walks over a hash map");
}

#[test]
fn walks_over_other_things_pass() {
    let good = "fn f(m: &HashMap<u8, u8>) -> bool { m.get(&1).iter().any(g) }\n\
        fn g(m: &[u8]) { for x in m { m.iter(); } }\nfn h(t: &super::Table) { t.ordered.iter(); }\n";
    assert_eq!(findings(&[("crates/meta/src/good.rs", good)]), Vec::<String>::new());
    let shell = "fn f(m: &HashMap<u8, u8>) { m.keys(); }\n";
    assert_eq!(findings(&[("crates/server/src/good.rs", shell)]), Vec::<String>::new());
}

#[test]
fn a_long_file_is_caught_in_tests_too() {
    caught("crates/meta/tests/long.rs", &"\n".repeat(801), "crates/meta/tests/long.rs:801", "801 lines");
    assert_eq!(findings(&[("crates/meta/tests/long.rs", &"\n".repeat(800))]), Vec::<String>::new());
}

#[test]
fn wide_comments_are_caught() {
    let words = "word ".repeat(22);
    assert_eq!(
        findings(&[("crates/server/src/wide.rs", &format!("// {}", &words[..107]))]),
        Vec::<String>::new()
    );
    for comment in ["// ", "/// ", "//! ", "fn f() {} // "] {
        let text = format!("\n{comment}{words}so\n");
        caught("crates/server/src/wide.rs", &text, "crates/server/src/wide.rs:2", "columns wide");
    }
    let no_comment = format!("const TEXT: &str = \"// {words}so\";\n// https://{}\n", "x".repeat(110));
    assert_eq!(findings(&[("crates/server/src/good.rs", &no_comment)]), Vec::<String>::new());
}

#[test]
fn wide_prose_is_caught() {
    let words = "word ".repeat(22);
    caught("README.md", &format!("# T\n\n{words}so\n"), "README.md:3", "columns wide");
    caught("README.md", &format!("- {words}so\n"), "README.md:1", "columns wide");
    let link = format!("- [{}](https://{})", words.trim(), "x".repeat(30));
    let good = format!("# {words}so\n\n| {words} |\n\n```text\n{words}so\n```\n{link}\n");
    assert_eq!(findings(&[("README.md", &good)]), Vec::<String>::new());
}

#[test]
fn holes_are_caught() {
    caught_in_meta("fn f() { todo!() }", "a hole");
    caught_in_meta("fn f() { unimplemented!(\"later\") }", "a hole");
    caught_in_meta(concat!("// TO", "DO: later"), "a bare");
    caught_in_meta(concat!("fn f() {} /* FIX", "ME */"), "a bare");
    let named = concat!("// TO", "DO(#12): later, and MYTO", "DOS\n");
    assert_eq!(findings(&[("crates/meta/src/good.rs", named)]), Vec::<String>::new());
}

#[test]
fn planted_bugs_by_default_are_caught() {
    let text = META.replace("mutants = []", "mutants = []\nall = [\"mutants\"]\ndefault = [\"all\"]");
    caught("crates/meta/Cargo.toml", &text, "crates/meta/Cargo.toml:13", "default features");
    let text = ROOT.replace("thiserror = \"2\"", "thiserror = { version = \"2\", features = [\"mutants\"] }");
    caught("Cargo.toml", &text, "Cargo.toml:7", "for everybody");
}

#[test]
fn planted_bugs_in_what_is_shipped_are_caught() {
    let text = SERVER.replace(".workspace = true", " = { workspace = true, features = [\"mutants\"] }");
    caught("crates/server/Cargo.toml", &text, "crates/server/Cargo.toml:5", "is shipped");
    caught(
        "crates/server/Cargo.toml+",
        "[features]\nx = [\"bearing-meta/mutants\"]\n",
        "crates/server/Cargo.toml:7",
        "is shipped",
    );
}

#[test]
fn planted_bugs_without_a_guard_are_caught() {
    let text = LIB.replace("not(debug_assertions)", "debug_assertions");
    caught("crates/meta/src/lib.rs", &text, "crates/meta/Cargo.toml:11", "no guard");
}

#[test]
fn a_second_place_that_asks_for_planted_bugs_is_caught() {
    let attribute = "fn f() {\n    #[cfg(feature = \"mutants\")]\n    return;\n}\n";
    caught("crates/meta/src/run.rs", attribute, "crates/meta/src/run.rs:2", "more than one place");
    let once = "fn planted() -> bool {\n    cfg!(feature = \"mutants\")\n}\n";
    assert_eq!(findings(&[("crates/meta/src/config.rs", once)]), Vec::<String>::new());
    let twice = format!("{once}{once}");
    caught("crates/meta/src/config.rs", &twice, "crates/meta/src/config.rs:5", "more than one place");
}

#[test]
fn paths_of_one_machine_are_caught() {
    for name in ["wo", "ho", "ro"].iter().zip(["rk", "me", "ot"]).map(|(a, b)| format!("/{a}{b}/")) {
        caught("docs/guide.md", &format!("one\ncd {name}x\n"), "docs/guide.md:2", "path of one machine");
    }
}

#[test]
fn registries_are_caught_outside_the_lock_file() {
    let text = concat!("source = \"https://index.crates", ".io\"\n");
    caught("tools/get.sh", text, "tools/get.sh:1", "package registry");
    assert_eq!(findings(&[("Cargo.lock", text)]), Vec::<String>::new());
}

#[test]
fn dependencies_and_reasons_must_match() {
    caught("Cargo.toml+", "blake3 = \"1\"\n", "Cargo.toml:8", "has no reason");
    let page = "docs/design/dependencies.md";
    caught(&format!("{page}+"), "| `blake3` | sums |\n", &format!("{page}:5"), "not a dependency");
}

#[test]
fn a_promise_names_a_test_that_is_there() {
    let page = "| what | kept | `a_test_that_was_renamed` in `a_file.rs` |\n";
    caught("docs/promises.md", page, "docs/promises.md:1", "no source has");
    let tests = ("crates/meta/src/laws.rs+", "#[test]\nfn a_test_that_was_renamed() {}\n");
    assert_eq!(findings(&[("docs/promises.md", page), tests]), Vec::<String>::new());
}

#[test]
fn a_page_that_is_not_in_the_book_is_caught() {
    caught("docs/more.md", "# More\n", "docs/more.md:1", "not in docs/SUMMARY.md");
    assert_eq!(findings(&[("docs/SUMMARY.md+", "- [C](more.md)\n"), ("docs/more.md", "")]), [""; 0]);
}

#[test]
fn dead_links_are_caught_and_those_that_lead_out_of_the_book() {
    caught("NOTES.md", "x\n[a](docs/gone.md#there)\n", "NOTES.md:2", "not there");
    caught("docs/guide.md", "[a]: ../crates/none\n", "docs/guide.md:1", "not there");
    caught("docs/guide.md", "[a](../Cargo.toml)\n", "docs/guide.md:1", "not in the book");
    let fine = "[a](#here) `[b](c)` [d](https://e.f) [g](design)\n```\n[h](i)\n```\n";
    assert_eq!(findings(&[("docs/guide.md", fine)]), [""; 0]);
}

#[test]
fn a_source_that_a_page_names_and_nobody_has_is_caught() {
    caught("docs/guide.md", "`types/src/{lib,gone}.rs`\n", "docs/guide.md:1", "no source");
    assert_eq!(
        findings(&[("docs/guide.md", "`crates/types/src/lib.rs`, `gone.rs`, `ops/<name>.rs`\n")]),
        [""; 0]
    );
}

#[test]
fn a_dated_note_without_a_status_is_caught() {
    let summary = ("docs/SUMMARY.md+", "- [C](design/2026-11-21-bones.md)\n");
    let note = |text: &'static str| findings(&[summary, ("docs/design/2026-11-21-bones.md", text)]);
    assert_eq!(note("# Bones\n\nStatus: accepted.\n"), [""; 0]);
    let found = note("# Bones\n\nAll that is.\n");
    assert!(found.len() == 1 && found[0].contains("without a status"), "{found:#?}");
}

#[test]
fn an_import_against_the_table_of_folders_is_caught() {
    let lib = ("crates/meta/src/lib.rs+", "mod record;\nmod engine;\n");
    let engine = ("crates/meta/src/engine/mod.rs", "//! The machine.\nmod machine;\n");
    let machine =
        ("crates/meta/src/engine/machine.rs", "//! M.\nuse crate::record::key::K;\npub struct M;\n");
    let record = ("crates/meta/src/record/mod.rs", "//! Records.\npub mod key;\n");
    let with_key =
        |key: &str| findings(&[lib, engine, machine, record, ("crates/meta/src/record/key.rs", key)]);
    assert_eq!(with_key("//! Keys.\npub struct K;\n"), [""; 0]);
    let found = with_key("//! Keys.\nuse crate::engine::machine::M;\npub struct K(M);\n");
    assert!(found.iter().any(|found| found.contains("may not import `engine`")), "{found:#?}");
    let helpers = ("crates/meta/src/helpers/mod.rs", "//! H.\npub mod h;\n");
    let found =
        findings(&[lib, engine, machine, record, helpers, ("crates/meta/src/helpers/h.rs", "//! H.\n")]);
    assert!(found.iter().any(|found| found.contains("`helpers` has no row")), "{found:#?}");
}

#[test]
fn a_reply_or_a_message_that_leaves_beside_the_one_exit_is_caught() {
    caught_in_meta("fn f(out: &mut Vec<Command>) { out.push(Command::Reply(1, 2)); }", "beside the one exit");
    caught_in_meta("fn f() -> Command { crate::event::Command::Peer(1, 2) }", "beside the one exit");
    let made = "fn f() -> Command { Command::Peer(1, 2) }\n";
    let fine = [
        ("crates/meta/src/engine/exit.rs", format!("//! The exit.\n{made}")),
        ("crates/meta/src/laws.rs+", made.to_owned()),
        ("crates/server/src/lib.rs+", made.to_owned()),
        ("crates/meta/src/lib.rs+", "fn f() -> Command { Command::Recall(1, 2) }\n".to_owned()),
    ];
    let fine = fine.each_ref().map(|(path, text)| (*path, text.as_str()));
    assert_eq!(findings(&fine), [""; 0]);
}

#[test]
fn a_file_of_tests_that_is_never_compiled_is_caught() {
    let named = ("crates/meta/tests/machine/main.rs", "//! Tests.\nmod cluster;\nmod ring;\n");
    let cluster = ("crates/meta/tests/machine/cluster/mod.rs", "//! Many.\n");
    let deeper = ("crates/meta/tests/machine/cluster/disks.rs", "//! Disks.\n");
    let ring = ("crates/meta/tests/machine/ring.rs", "//! A ring.\n");
    assert_eq!(findings(&[named, cluster, deeper, ring]), [""; 0]);
    let found = findings(&[named, cluster, ring, ("crates/meta/tests/machine/rings.rs", "//! Rings.\n")]);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].starts_with("crates/meta/tests/machine/rings.rs:1: "), "{found:#?}");
    assert!(found[0].contains("these tests never run") && found[0].contains("add `mod rings;` there"));
}

#[test]
fn a_circle_of_six_files_is_caught_and_one_of_five_is_not() {
    let names = ["a", "b", "c", "d", "e", "f"];
    let circle = |count: usize| -> Vec<(String, String)> {
        let names = &names[..count];
        let lib = names.iter().map(|name| format!("mod {name};\n")).collect::<String>();
        let file = |at: usize| {
            let next = names[(at + 1) % count];
            // By an import, by a path, and by a name that the folder above hands on.
            let text = match at % 3 {
                0 => format!("//! One.\nuse crate::{next}::Thing;\npub struct Thing;\n"),
                1 => format!("//! One.\nfn f() -> super::{next}::Thing {{ todo() }}\npub struct Thing;\n"),
                _ => format!("//! One.\nuse super::Of{next};\npub struct Thing;\n"),
            };
            (format!("crates/types/src/{}.rs", names[at]), text)
        };
        let handed_on = names.iter().map(|name| format!("pub(crate) use {name}::Of{name};\n"));
        let lib = format!("//! Words.\n{lib}{}", handed_on.collect::<String>());
        let mut files: Vec<(String, String)> = (0..count).map(file).collect();
        files.push(("crates/types/src/lib.rs".to_owned(), lib));
        files
    };
    for (count, caught) in [(5, 0), (6, 1)] {
        let files = circle(count);
        let changes: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let found = findings(&changes);
        assert_eq!(found.len(), caught, "{found:#?}");
        assert!(found.iter().all(|found| found.contains("a circle of 6 files")), "{found:#?}");
    }
}
