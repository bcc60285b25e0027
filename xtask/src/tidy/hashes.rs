//! Nobody in a pure room walks over a hash map: its order differs from run to run.
//!
//! Works by names: a field, binding, argument or alias whose type is a hash map or set is remembered, and
//! a walk over that name is refused. A bare name means its last declaration above; a name after a dot means
//! a field, which counts in its file, and in the whole room when nothing else there bears the same name.

use std::collections::BTreeSet;

use super::lex::{Kind, Token};
use super::paths::closing;
use super::report::Findings;
use super::rooms::{self, Floor};
use super::tree::{RustFile, Tree};

const WALKS: &[&str] = &[
    "iter",
    "iter_mut",
    "keys",
    "into_keys",
    "values",
    "values_mut",
    "into_values",
    "drain",
    "retain",
    "extract_if",
    "into_iter",
];

/// Calls that hand the same map on.
const THROUGH: &[&str] =
    &["as_ref", "as_mut", "borrow", "borrow_mut", "clone", "lock", "read", "write", "unwrap", "take"];

const INSTEAD: &str =
    "use BTreeMap or BTreeSet, whose order is the same in every run (or keep a sorted list beside)";

/// Checks the sources of all pure rooms.
pub fn check(tree: &Tree, found: &mut Findings) {
    for room in rooms::TABLE.iter().filter(|room| room.floor == Floor::Pure) {
        let files: Vec<&RustFile> =
            tree.rust.iter().filter(|f| f.room == room.name && !f.test_only).collect();
        check_room(&files, found);
    }
}

fn check_room(files: &[&RustFile], found: &mut Findings) {
    let mut hashes: BTreeSet<String> = ["HashMap", "HashSet"].map(str::to_owned).into();
    for file in files {
        aliases(&file.tokens, &mut hashes);
    }
    let declared: Vec<Vec<Declared>> = files.iter().map(|file| declarations(&file.tokens, &hashes)).collect();
    let with = |hash: bool| declared.iter().flatten().filter(move |d| d.hash == hash).map(|d| d.name.clone());
    let others: BTreeSet<String> = with(false).collect();
    let fields: BTreeSet<String> = with(true).filter(|name| !others.contains(name)).collect();
    for (file, local) in files.iter().zip(&declared) {
        let names = Names { local, fields: &fields };
        method_walks(file, &names, found);
        loop_walks(file, &names, found);
    }
}

/// A name, the token where it is declared, and whether its type is a hash map.
struct Declared {
    name: String,
    at: usize,
    hash: bool,
}

struct Names<'a> {
    /// Declarations of this file in order.
    local: &'a [Declared],
    /// Names that are hash maps wherever the room declares them.
    fields: &'a BTreeSet<String>,
}

impl Names<'_> {
    fn holds(&self, tokens: &[Token], at: usize) -> bool {
        let name = &tokens[at].text;
        let mut same = self.local.iter().filter(|d| d.name == *name);
        if at > 0 && tokens[at - 1].is_mark('.') {
            return self.fields.contains(name) || same.any(|d| d.hash);
        }
        same.take_while(|d| d.at < at).last().is_some_and(|d| d.hash)
    }
}

/// `type Index = HashMap<..>;` makes `Index` one more hash map.
fn aliases(tokens: &[Token], hashes: &mut BTreeSet<String>) {
    for at in 0..tokens.len() {
        if !tokens[at].is_word("type") || tokens.get(at + 1).is_none_or(|t| t.kind != Kind::Word) {
            continue;
        }
        let end = (at..tokens.len()).find(|&i| tokens[i].is_mark(';')).unwrap_or(tokens.len());
        let equals = (at..end).find(|&i| tokens[i].is_mark('='));
        if equals.is_some_and(|i| outer_type_is_hash(tokens, i + 1, hashes)) {
            hashes.insert(tokens[at + 1].text.clone());
        }
    }
}

fn declarations(tokens: &[Token], hashes: &BTreeSet<String>) -> Vec<Declared> {
    let mut declared = Vec::new();
    for at in 0..tokens.len() {
        if tokens[at].kind != Kind::Word {
            continue;
        }
        if is_single_colon(tokens, at + 1) {
            let hash = outer_type_is_hash(tokens, at + 2, hashes);
            declared.push(Declared { name: tokens[at].text.clone(), at, hash });
        } else if tokens[at].is_word("let") {
            declared.extend(bound(tokens, at, hashes));
        }
    }
    declared
}

/// `name :` and not `path ::`.
fn is_single_colon(tokens: &[Token], at: usize) -> bool {
    tokens.get(at).is_some_and(|t| t.is_mark(':'))
        && !tokens.get(at + 1).is_some_and(|t| t.is_mark(':'))
        && !tokens[at - 1].is_mark(':')
}

/// Whether the type (or the path of an expression) at `start` is a hash map, behind references, locks
/// and smart pointers too.
fn outer_type_is_hash(tokens: &[Token], start: usize, hashes: &BTreeSet<String>) -> bool {
    const SHELLS: &[&str] = &["Option", "Arc", "Rc", "Box", "RefCell", "Cell", "Mutex", "RwLock", "Cow"];
    let mut at = start;
    while let Some(token) = tokens.get(at) {
        let next_joins = tokens.get(at + 1).is_some_and(|t| t.is_mark(':'));
        let skipped = token.is_mark('&')
            || token.is_word("mut")
            || token.is_word("dyn")
            || (token.kind == Kind::Other && token.text.starts_with('\''));
        if hashes.contains(&token.text) && token.kind == Kind::Word {
            return true;
        } else if skipped {
            at += 1;
        } else if token.kind == Kind::Word && next_joins {
            at += 3;
        } else if SHELLS.contains(&token.text.as_str()) && tokens.get(at + 1).is_some_and(|t| t.is_mark('<'))
        {
            at += 2;
        } else {
            return false;
        }
    }
    false
}

/// `let name = ..`; a hash map if that is `HashMap::new()` or ends in `collect::<HashMap<..>>()`.
fn bound(tokens: &[Token], at: usize, hashes: &BTreeSet<String>) -> Option<Declared> {
    let name_at = at + 1 + usize::from(tokens.get(at + 1)?.is_word("mut"));
    let name = tokens.get(name_at).filter(|t| t.kind == Kind::Word)?;
    if !tokens.get(name_at + 1)?.is_mark('=') {
        return None;
    }
    let start = name_at + 2;
    let hash = outer_type_is_hash(tokens, start, hashes) || collects_hash(tokens, start, hashes);
    Some(Declared { name: name.text.clone(), at: name_at, hash })
}

fn collects_hash(tokens: &[Token], start: usize, hashes: &BTreeSet<String>) -> bool {
    let mut i = start;
    while i < tokens.len() && !tokens[i].is_mark(';') {
        let collects = tokens[i].is_word("collect") && tokens.get(i + 3).is_some_and(|t| t.is_mark('<'));
        if collects && outer_type_is_hash(tokens, i + 4, hashes) {
            return true;
        }
        i = if tokens[i].is_mark('{') { closing(tokens, i) } else { i + 1 };
    }
    false
}

/// `name.iter()`, `name.borrow().keys()`.
fn method_walks(file: &RustFile, names: &Names<'_>, found: &mut Findings) {
    let tokens = &file.tokens;
    for at in 0..tokens.len() {
        if tokens[at].kind != Kind::Word || !names.holds(tokens, at) {
            continue;
        }
        let mut call = at + 1;
        while let Some(method) = called(tokens, call) {
            if WALKS.contains(&method) {
                let name = &tokens[at].text;
                let seen =
                    format!("`{name}.{method}()` walks over a hash map, in the pure room `{}`", file.room);
                found.add(&file.path, tokens[call + 1].line, seen, INSTEAD);
                break;
            }
            if !THROUGH.contains(&method) {
                break;
            }
            call = closing(tokens, call + 2);
        }
    }
}

/// The method in `. method (` at `at`.
fn called(tokens: &[Token], at: usize) -> Option<&str> {
    let method = tokens.get(at + 1).filter(|t| t.kind == Kind::Word)?;
    (tokens.get(at)?.is_mark('.') && tokens.get(at + 2)?.is_mark('(')).then_some(method.text.as_str())
}

/// `for x in &self.name {`.
fn loop_walks(file: &RustFile, names: &Names<'_>, found: &mut Findings) {
    let tokens = &file.tokens;
    for at in 0..tokens.len() {
        if !tokens[at].is_word("in") {
            continue;
        }
        let plain = |t: &Token| t.kind == Kind::Word || t.is_mark('&') || t.is_mark('.') || t.is_mark('*');
        let end = (at + 1..tokens.len()).find(|&i| !plain(&tokens[i])).unwrap_or(tokens.len());
        let last = end - 1;
        if last > at && tokens.get(end).is_some_and(|t| t.is_mark('{')) && names.holds(tokens, last) {
            let name = &tokens[last].text;
            let seen = format!("`for .. in {name}` walks over a hash map, in the pure room `{}`", file.room);
            found.add(&file.path, tokens[last].line, seen, INSTEAD);
        }
    }
}
