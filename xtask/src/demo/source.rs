//! The tree that the demo imports: documents of this machine, the project's own sources, generated text.
//!
//! Copies and generated files are staged first, so that editing the project meanwhile changes nothing.
//! What is generated depends on nothing but the number of files.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Real files of many sizes that nearly every Debian has.
const DOCUMENTS: &str = "/usr/share/doc";
/// Generated even where there are documents enough.
const GENERATED_MIN: usize = 200;
/// Files in one generated directory.
const FILES_PER_DIRECTORY: usize = 50;

/// A tree to import and the name it gets at the top of the mount.
#[derive(Debug)]
pub struct Tree {
    /// Where it is.
    pub path: PathBuf,
    /// Its name in the mount.
    pub name: String,
}

impl Tree {
    /// Copies it under `target` with `cp -a`; what an earlier attempt left there is removed.
    pub fn copy_into(&self, target: &Path) -> Result<()> {
        let place = target.join(&self.name);
        remove_if_there(&place)?;
        println!("cp -a {} ./mnt/{}", self.path.display(), self.name);
        let status = Command::new("cp").arg("-a").arg(&self.path).arg(&place).status().context("start cp")?;
        if !status.success() {
            bail!("cp -a {} ended with {status}", self.path.display());
        }
        Ok(())
    }
}

/// Gathers trees that together hold at least `files_min` files.
pub fn gather(root: &Path, staging: &Path, files_min: usize) -> Result<Vec<Tree>> {
    remove_if_there(staging)?;
    let mut trees = Vec::new();
    if Path::new(DOCUMENTS).is_dir() {
        trees.push(Tree { path: PathBuf::from(DOCUMENTS), name: "doc".to_owned() });
    }
    let project = staging.join("project");
    if stage_project(root, &project)? {
        trees.push(Tree { path: project, name: "project".to_owned() });
    }
    let mut real = 0;
    for tree in &trees {
        let count = count_files(&tree.path)?;
        println!("{}: {count} files", tree.path.display());
        real += count;
    }
    let generated = files_min.saturating_sub(real).max(GENERATED_MIN);
    let path = staging.join("generated");
    generate(&path, generated)?;
    println!("{}: {generated} files", path.display());
    trees.push(Tree { path, name: "generated".to_owned() });
    Ok(trees)
}

fn remove_if_there(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn count_files(path: &Path) -> Result<usize> {
    let mut count = 0;
    for entry in walkdir::WalkDir::new(path) {
        let entry = entry.with_context(|| format!("walk {}", path.display()))?;
        count += usize::from(entry.file_type().is_file());
    }
    Ok(count)
}

/// Copies what git tracks; without git there is nothing to copy.
fn stage_project(root: &Path, target: &Path) -> Result<bool> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output();
    let Ok(listed) = listed else { return Ok(false) };
    if !listed.status.success() {
        return Ok(false);
    }
    let names = String::from_utf8_lossy(&listed.stdout);
    let mut copied = false;
    for name in names.split('\0').filter(|name| !name.is_empty() && root.join(name).is_file()) {
        let place = target.join(name);
        let parent = place.parent().context("a listed file has a directory")?;
        std::fs::create_dir_all(parent).with_context(|| format!("make {}", parent.display()))?;
        std::fs::copy(root.join(name), &place).with_context(|| format!("copy {name}"))?;
        copied = true;
    }
    Ok(copied)
}

/// Writes `count` text files of 100 bytes to some 20 KiB, in directories of fifty, three levels deep.
fn generate(path: &Path, count: usize) -> Result<()> {
    for index in 0..count {
        let directory = index / FILES_PER_DIRECTORY;
        let place = path.join(format!("shelf-{:02}/box-{directory:04}", directory % 16));
        if index % FILES_PER_DIRECTORY == 0 {
            std::fs::create_dir_all(&place).with_context(|| format!("make {}", place.display()))?;
        }
        let name = place.join(format!("note-{index:05}.txt"));
        std::fs::write(&name, text(index)).with_context(|| format!("write {}", name.display()))?;
    }
    Ok(())
}

/// The text of one file: its words follow from its number.
fn text(index: usize) -> String {
    const WORDS: &[&str] = &[
        "ring", "arc", "block", "epoch", "lease", "prefix", "extent", "chunk", "finger", "owner", "seal",
        "span",
    ];
    let mut state = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    // Mostly small, some large, as in real trees.
    let words = if next() % 10 == 0 { 400 + next() % 3_000 } else { 12 + next() % 200 };
    let mut text = format!("note {index}\n\n");
    for word in 0..words {
        let end = if word % 12 == 11 { '\n' } else { ' ' };
        let chosen = WORDS[(next() % WORDS.len() as u64) as usize];
        // Writing to a string cannot fail.
        let _ = write!(text, "{chosen}{end}");
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_trees_have_the_files_asked_for_and_are_always_the_same() {
        let (one, two) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("two"));
        generate(one.path(), 120).expect("writes");
        generate(two.path(), 120).expect("writes");
        assert_eq!(count_files(one.path()).expect("counts"), 120);
        let name = "shelf-02/box-0002/note-00119.txt";
        let read = |root: &Path| std::fs::read(root.join(name)).expect("is there");
        assert_eq!(read(one.path()), read(two.path()));
    }

    #[test]
    fn generated_texts_differ_and_vary_in_size() {
        let sizes: Vec<usize> = (0..200).map(|index| text(index).len()).collect();
        assert!(sizes.iter().any(|&size| size < 500) && sizes.iter().any(|&size| size > 5_000));
        assert_ne!(text(1), text(2));
    }

    #[test]
    fn at_least_the_files_asked_for_are_gathered() {
        let root = tempfile::tempdir().expect("a directory");
        let staging = root.path().join("staging");
        let trees = gather(root.path(), &staging, 5_000).expect("gathers");
        let files: usize = trees.iter().map(|tree| count_files(&tree.path).expect("counts")).sum();
        assert!(files >= 5_000, "{files}");
    }

    #[test]
    fn a_copy_replaces_what_an_earlier_attempt_left() {
        let root = tempfile::tempdir().expect("a directory");
        generate(&root.path().join("source"), 3).expect("writes");
        let target = root.path().join("target");
        std::fs::create_dir_all(target.join("t")).expect("makes");
        std::fs::write(target.join("t/half"), "x").expect("writes");
        let tree = Tree { path: root.path().join("source"), name: "t".to_owned() };
        tree.copy_into(&target).expect("copies");
        assert_eq!(count_files(&target).expect("counts"), 3);
    }
}
