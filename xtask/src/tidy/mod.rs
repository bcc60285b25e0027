//! `cargo xtask tidy`: the rules of the house that the compiler does not know.
//!
//! Each rule is a file; each reads the tree and adds findings, and none changes anything. A finding says
//! where, what was seen, and what to do instead.

mod circles;
mod columns;
mod exit;
mod files;
mod folders;
mod hashes;
mod hygiene;
mod imports;
mod lex;
mod mutants;
mod pages;
mod paths;
mod promises;
mod purity;
mod reasons;
mod report;
mod rooms;
mod tree;
mod untested;

#[cfg(test)]
mod tests;

use std::path::Path;

use anyhow::{Result, bail};

use report::Findings;
use tree::Tree;

/// Prints how large the circles of files are that import each other.
pub fn print_circles(root: &Path) -> Result<()> {
    print!("{}", circles::table(&Tree::read(root)?));
    Ok(())
}

/// Checks the project at `root`, prints what is wrong, and fails if anything is.
pub fn run(root: &Path) -> Result<()> {
    let tree = Tree::read(root)?;
    let found = check(&tree);
    for finding in found.iter() {
        eprintln!("{finding}");
    }
    if found.count() > 0 {
        bail!("tidy: {} finding(s)", found.count());
    }
    println!(
        "tidy: {} packages, {} sources, {} files: clean",
        tree.manifests.len(),
        tree.rust.len(),
        tree.texts.len()
    );
    Ok(())
}

fn check(tree: &Tree) -> Findings {
    let mut found = Findings::default();
    imports::check(tree, &mut found);
    purity::check(tree, &mut found);
    hashes::check(tree, &mut found);
    files::check(tree, &mut found);
    mutants::check(tree, &mut found);
    hygiene::check(tree, &mut found);
    columns::check(tree, &mut found);
    reasons::check(tree, &mut found);
    promises::check(tree, &mut found);
    pages::check(tree, &mut found);
    circles::check(tree, &mut found);
    folders::check(tree, &mut found);
    exit::check(tree, &mut found);
    untested::check(tree, &mut found);
    found
}
