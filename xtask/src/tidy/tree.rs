//! The files that tidy looks at, read once.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::lex::{self, Token};
use super::paths;

/// A Rust source file.
#[derive(Debug)]
pub struct RustFile {
    /// Path from the root, with forward slashes.
    pub path: String,
    /// The room it belongs to (`meta`, `xtask`).
    pub room: String,
    /// Whether it is compiled only for tests: under `tests/`, `benches/`, or a `#[cfg(test)] mod x;`.
    pub test_only: bool,
    /// The number of lines.
    pub lines: usize,
    /// Its code without the parts that only tests compile.
    pub tokens: Vec<Token>,
    /// Its code with them.
    pub all_tokens: Vec<Token>,
    /// Its comments: (line, text).
    pub comments: Vec<(usize, String)>,
}

/// A package's `Cargo.toml`.
#[derive(Debug)]
pub struct Manifest {
    /// Path from the root.
    pub path: String,
    /// The room it describes.
    pub room: String,
    /// The text, to find lines in.
    pub text: String,
    /// The parsed table.
    pub table: toml::Table,
}

/// Everything tidy looks at.
#[derive(Debug)]
pub struct Tree {
    /// Every `.rs` file of `crates/*` and `xtask`, by path.
    pub rust: Vec<RustFile>,
    /// Every package's manifest.
    pub manifests: Vec<Manifest>,
    /// The root manifest.
    pub workspace: toml::Table,
    /// Every file the repository holds that is text: path and content.
    pub texts: BTreeMap<String, String>,
    /// Every other one, such as a picture: its path.
    pub others: BTreeSet<String>,
}

impl Tree {
    /// Reads the tree under `root`.
    pub fn read(root: &Path) -> Result<Tree> {
        let (texts, others) = read_files(root)?;
        let workspace = parse(&texts, "Cargo.toml")?;
        let mut rust = Vec::new();
        let mut manifests = Vec::new();
        for (path, text) in &texts {
            let Some(room) = room_of(path) else { continue };
            if path.ends_with(".rs") {
                rust.push(rust_file(path, &room, text));
            } else if path.ends_with("/Cargo.toml") && path.matches('/').count() <= 2 {
                manifests.push(Manifest {
                    path: path.clone(),
                    room,
                    text: text.clone(),
                    table: parse(&texts, path)?,
                });
            }
        }
        mark_test_files(&mut rust);
        Ok(Tree { rust, manifests, workspace, texts, others })
    }
}

impl Manifest {
    /// The first line on which `word` stands, or 1.
    pub fn line_of(&self, word: &str) -> usize {
        line_of(&self.text, word)
    }
}

/// The first line of `text` on which `word` stands, or 1.
pub fn line_of(text: &str, word: &str) -> usize {
    text.lines().position(|line| line.contains(word)).map_or(1, |index| index + 1)
}

fn parse(texts: &BTreeMap<String, String>, path: &str) -> Result<toml::Table> {
    let text =
        texts.get(path).with_context(|| format!("{path}: not found; run tidy at the project's root"))?;
    text.parse().with_context(|| format!("{path}: not TOML"))
}

fn room_of(path: &str) -> Option<String> {
    let mut parts = path.split('/');
    match parts.next()? {
        "xtask" => Some("xtask".to_owned()),
        "crates" => parts.next().map(str::to_owned),
        _ => None,
    }
}

fn rust_file(path: &str, room: &str, text: &str) -> RustFile {
    let source = lex::cut(text);
    let test_only = path.contains("/tests/") || path.contains("/benches/");
    RustFile {
        path: path.to_owned(),
        room: room.to_owned(),
        test_only,
        lines: text.lines().count(),
        tokens: paths::without_tests(&source.tokens),
        all_tokens: source.tokens,
        comments: source.comments,
    }
}

/// Marks the files of modules that are declared under `#[cfg(test)]`, and those of their submodules.
fn mark_test_files(rust: &mut [RustFile]) {
    let mut stems: Vec<String> = Vec::new();
    for file in rust.iter() {
        let (folder, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
        let stem = name.trim_end_matches(".rs");
        let base = match stem {
            "lib" | "main" | "mod" => folder.to_owned(),
            _ => format!("{folder}/{stem}"),
        };
        stems.extend(paths::test_modules(&file.all_tokens).iter().map(|module| format!("{base}/{module}")));
    }
    for file in rust {
        let path = &file.path;
        file.test_only |=
            stems.iter().any(|stem| *path == format!("{stem}.rs") || path.starts_with(&format!("{stem}/")));
    }
}

/// What the repository holds, or will once it is committed. Without git, what is there.
fn read_files(root: &Path) -> Result<(BTreeMap<String, String>, BTreeSet<String>)> {
    let names = listed_by_git(root).map_or_else(|| walked(root), Ok)?;
    let (mut texts, mut others) = (BTreeMap::new(), BTreeSet::new());
    for name in names {
        match std::fs::read_to_string(root.join(&name)) {
            Ok(text) => _ = texts.insert(name, text),
            // One that is not UTF-8 is no text.
            Err(error) if error.kind() == ErrorKind::InvalidData => _ = others.insert(name),
            // A file that git lists may be deleted in the work tree.
            Err(_) => {}
        }
    }
    Ok((texts, others))
}

fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    if !root.join(".git").exists() {
        return None;
    }
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Some(text.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

fn walked(root: &Path) -> Result<Vec<String>> {
    const SKIPPED: &[&str] = &["target", ".git", ".bearing", "mnt"];
    let mut names = Vec::new();
    let walk = walkdir::WalkDir::new(root).sort_by_file_name().into_iter().filter_entry(|entry| {
        entry.depth() != 1 || !SKIPPED.contains(&entry.file_name().to_string_lossy().as_ref())
    });
    for entry in walk {
        let entry = entry.context("walk the project")?;
        if entry.file_type().is_file() {
            let path = entry.path().strip_prefix(root).unwrap_or(entry.path());
            names.push(path.to_string_lossy().replace('\\', "/"));
        }
    }
    Ok(names)
}
