//! Which files of a room import each other in a circle: whoever changes one of them has to know them all.
//!
//! A file imports those whose names it writes down as paths: `crate::a::b`, `super::c`, `child::d`, and what
//! these hand on with `pub use`. Methods that are called on a value are not seen; the table of folders in
//! `folders.rs` says who may hold whose values.

use super::paths;
use super::report::Findings;
use super::tree::{RustFile, Tree};
use std::collections::{BTreeMap, BTreeSet};

/// Files in one circle, at most.
const CIRCLE_MAX: usize = 5;

/// A module's path inside its room.
pub type Module = Vec<String>;
/// Which modules of a room each imports.
pub type Graph = BTreeMap<Module, BTreeSet<Module>>;

/// Checks that no circle is larger than allowed.
pub fn check(tree: &Tree, found: &mut Findings) {
    for (room, graph) in graphs(tree) {
        let circle = largest(&graph);
        if circle.len() > CIRCLE_MAX {
            let files: Vec<String> = circle.iter().map(|module| module.join("/")).collect();
            found.add(
                &format!("crates/{room}/src/{}", files[0]),
                1,
                format!("a circle of {} files, {CIRCLE_MAX} are allowed: {}", circle.len(), files.join(", ")),
                "move what two files need of each other to a third one below both",
            );
        }
    }
}

/// For each room its files, imports between them, and its largest circle.
pub fn table(tree: &Tree) -> String {
    let mut text = "room                files  imports  largest circle\n".to_owned();
    for (room, graph) in graphs(tree) {
        let imports: usize = graph.values().map(BTreeSet::len).sum();
        let circle = largest(&graph);
        text += &format!("{room:18} {:6} {imports:8} {:15}", graph.len(), circle.len());
        if circle.len() > CIRCLE_MAX {
            let files: Vec<String> = circle.iter().map(|module| module.join("/")).collect();
            text += &format!("  {}", files.join(" "));
        }
        text += "\n";
    }
    text
}

/// The imports inside each room.
pub fn graphs(tree: &Tree) -> BTreeMap<String, Graph> {
    let mut files: BTreeMap<String, BTreeMap<Module, &RustFile>> = BTreeMap::new();
    for file in tree.rust.iter().filter(|file| !file.test_only) {
        if let Some(module) = module_of(&file.path) {
            files.entry(file.room.clone()).or_default().insert(module, file);
        }
    }
    files.into_iter().map(|(room, files)| (room, graph(&files))).collect()
}

/// `crates/meta/src/ops/create.rs` is `ops::create`.
fn module_of(path: &str) -> Option<Module> {
    let inner = path.split_once("/src/")?.1.strip_suffix(".rs")?;
    let mut module: Module = inner.split('/').map(str::to_owned).collect();
    module.pop_if(|last| matches!(last.as_str(), "mod" | "lib" | "main"));
    Some(module)
}

fn graph(files: &BTreeMap<Module, &RustFile>) -> Graph {
    let mut handed_on: BTreeMap<(Module, String), Module> = BTreeMap::new();
    for (module, file) in files {
        for path in paths::handed_on(&file.tokens) {
            if let (Some((target, _)), Some(name)) = (resolve(files, module, &path), path.last()) {
                handed_on.insert((module.clone(), name.clone()), target);
            }
        }
    }
    let mut graph = Graph::new();
    for (module, file) in files {
        let imports = graph.entry(module.clone()).or_default();
        let named = paths::by_module(&file.tokens).into_iter().flat_map(|(inner, tokens)| {
            let from: Module = module.iter().chain(&inner).cloned().collect();
            paths::all(&tokens).into_iter().map(move |named| (from.clone(), named.segments))
        });
        for (from, path) in named.filter(|(_, path)| path.len() > 1) {
            let Some((mut target, mut rest)) = resolve(files, &from, &path) else { continue };
            // What a folder hands on belongs to the file that has it.
            while let Some(next) =
                rest.first().and_then(|name| handed_on.get(&(target.clone(), name.clone())))
                && *next != target
            {
                target = next.clone();
                rest = &rest[..1];
            }
            if target != *module {
                imports.insert(target);
            }
        }
    }
    graph
}

/// The file that a path leads into, if it is one of the room, and what of the path is within it.
fn resolve<'p>(
    files: &BTreeMap<Module, &RustFile>,
    from: &Module,
    path: &'p [String],
) -> Option<(Module, &'p [String])> {
    let mut base = from.clone();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => {
            base.clear();
            rest = &path[1..];
        }
        "self" => rest = &path[1..],
        "super" => {
            while rest.first().is_some_and(|name| name == "super") {
                base.pop();
                rest = &rest[1..];
            }
        }
        child => {
            base.push(child.to_owned());
            let is_child = files.contains_key(&base);
            base.pop();
            if !is_child {
                return None;
            }
        }
    }
    while let Some(name) = rest.first() {
        base.push(name.clone());
        if !files.contains_key(&base) {
            base.pop();
            break;
        }
        rest = &rest[1..];
    }
    files.contains_key(&base).then_some((base, rest))
}

/// The largest set of files of which each leads to every other.
fn largest(graph: &Graph) -> Vec<Module> {
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        graph.keys().map(|module| (module, reach(graph, module))).collect();
    let circle = |module: &&Module| -> Vec<Module> {
        let others = reached[*module].iter();
        others.filter(|other| reached[**other].contains(*module)).map(|other| (*other).clone()).collect()
    };
    graph.keys().map(|module| circle(&module)).max_by_key(Vec::len).unwrap_or_default()
}

fn reach<'g>(graph: &'g Graph, from: &Module) -> BTreeSet<&'g Module> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&Module> = graph.get(from).into_iter().flatten().collect();
    while let Some(module) = next.pop() {
        if reached.insert(module) {
            next.extend(graph.get(module).into_iter().flatten());
        }
    }
    reached
}
