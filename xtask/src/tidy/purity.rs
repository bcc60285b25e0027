//! Words, decisions and machines touch nothing but their arguments.
//!
//! The scan goes by names, so it can be fooled on purpose; it is there for the slip, not for the thief.
//! Crates that do such things (loggers, random numbers) are already refused by the table of rooms; their
//! names are looked for here as well, because a dependency may come in through another's re-export.

use std::collections::BTreeSet;

use super::paths::{self, Named};
use super::report::Findings;
use super::rooms::{self, Floor};
use super::tree::{RustFile, Tree};

/// Names that mean the same wherever they stand in a path.
const ANYWHERE: &[(&str, &str, &str)] = &[
    ("Instant", "a clock", CLOCK),
    ("SystemTime", "a clock", CLOCK),
    ("UNIX_EPOCH", "a clock", CLOCK),
    ("RandomState", "unseeded randomness", CHANCE),
    ("thread_rng", "unseeded randomness", CHANCE),
    ("OsRng", "unseeded randomness", CHANCE),
    ("from_entropy", "unseeded randomness", CHANCE),
    ("thread_local", "threads", THREAD),
    ("TcpStream", "a socket", SOCKET),
    ("TcpListener", "a socket", SOCKET),
    ("UdpSocket", "a socket", SOCKET),
    ("UnixStream", "a socket", SOCKET),
    ("UnixListener", "a socket", SOCKET),
    ("UnixDatagram", "a socket", SOCKET),
    ("ToSocketAddrs", "a socket (it asks the resolver)", SOCKET),
];

/// Modules and items of the standard library, by what follows `std::`.
const STANDARD: &[(&str, &str, &str)] = &[
    ("time::*", "a clock", CLOCK),
    ("thread", "threads", THREAD),
    ("net::*", "a socket", SOCKET),
    ("net::self", "a socket", SOCKET),
    ("net::Tcp", "a socket", SOCKET),
    ("net::Udp", "a socket", SOCKET),
    ("os", "the operating system", SOCKET),
    ("fs", "files", FILE),
    (
        "env",
        "the environment",
        "take the value as an argument; reading the environment is the shell's business",
    ),
    (
        "process",
        "a process",
        "return an error; a bug is a panic (assert), ending the process is the shell's business",
    ),
    ("io::*", "files or terminals", FILE),
    ("io::stdin", "a terminal", PRINT),
    ("io::stdout", "a terminal", PRINT),
    ("io::stderr", "a terminal", PRINT),
    ("io::Stdin", "a terminal", PRINT),
    ("io::Stdout", "a terminal", PRINT),
    ("io::Stderr", "a terminal", PRINT),
];

/// Crates by the first word of a path, unless the room has a module of that name.
const CRATES: &[(&str, &str, &str)] = &[
    ("tracing", "logging", PRINT),
    ("log", "logging", PRINT),
    ("rand", "unseeded randomness", CHANCE),
    ("fastrand", "unseeded randomness", CHANCE),
    ("getrandom", "unseeded randomness", CHANCE),
    ("libc", "the operating system", SOCKET),
    ("socket2", "a socket", SOCKET),
    ("tokio", "threads and sockets", THREAD),
];

const MACROS: &[&str] = &["println", "eprintln", "print", "eprint", "dbg"];

const CLOCK: &str = "take `now` as an argument (bearing-types has the time types)";
const CHANCE: &str = "take a seeded generator, or the value drawn from one, as an argument";
const THREAD: &str = "keep state in the machine and let the shell in `env` or `server` run it on threads";
const SOCKET: &str = "emit a command and let the shell in `env` carry it out";
const FILE: &str = "go through the traits of bearing-seams; files belong to `env` and `engines-local`";
const PRINT: &str = "keep a counter or emit a note; shells publish them";

/// Checks the sources of all pure rooms.
pub fn check(tree: &Tree, found: &mut Findings) {
    for room in rooms::TABLE.iter().filter(|room| room.floor == Floor::Pure) {
        let files: Vec<&RustFile> =
            tree.rust.iter().filter(|f| f.room == room.name && !f.test_only).collect();
        let own = own_modules(&files);
        for file in files {
            check_file(file, &own, found);
        }
    }
}

/// Names of the room's own modules: `log::append` may well be ours.
fn own_modules(files: &[&RustFile]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in files {
        for pair in file.tokens.windows(2) {
            if pair[0].is_word("mod") {
                names.insert(pair[1].text.clone());
            }
        }
    }
    names
}

fn check_file(file: &RustFile, own: &BTreeSet<String>, found: &mut Findings) {
    for named in paths::all(&file.tokens) {
        if let Some((what, instead)) = forbidden(&named, own) {
            let path = named.segments.join("::");
            found.add(
                &file.path,
                named.line,
                format!("`{path}` is {what}, in the pure room `{}`", file.room),
                instead,
            );
        }
    }
    for pair in file.tokens.windows(2) {
        if pair[1].is_mark('!') && MACROS.contains(&pair[0].text.as_str()) {
            let seen = format!("`{}!` prints, in the pure room `{}`", pair[0].text, file.room);
            found.add(&file.path, pair[0].line, seen, PRINT);
        }
    }
}

fn forbidden(named: &Named, own: &BTreeSet<String>) -> Option<(&'static str, &'static str)> {
    let segments: Vec<&str> = named.segments.iter().map(String::as_str).collect();
    let first = *segments.first()?;
    if matches!(first, "std" | "core" | "alloc") {
        let rest = segments[1..].join("::");
        if let Some((_, what, instead)) = STANDARD.iter().find(|(path, ..)| begins(&rest, path)) {
            return Some((what, instead));
        }
    }
    let outside =
        CRATES.iter().find(|(name, ..)| segments.len() > 1 && *name == first && !own.contains(first));
    if let Some((_, what, instead)) = outside {
        return Some((what, instead));
    }
    let (_, what, instead) = ANYWHERE.iter().find(|(name, ..)| segments.contains(name))?;
    Some((what, instead))
}

/// Whether `rest` is `path` or goes on from it. A rule that ends in a type's beginning (`net::Tcp`) covers
/// every type so named; one that ends in a module (`fs`) covers only that module.
fn begins(rest: &str, path: &str) -> bool {
    let Some(after) = rest.strip_prefix(path) else { return false };
    let open_ended = path.ends_with("Tcp") || path.ends_with("Udp");
    open_ended || after.is_empty() || after.starts_with("::")
}
