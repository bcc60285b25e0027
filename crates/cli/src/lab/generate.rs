//! `lab trace generate` and `scan`: traces of published workloads, and the shapes of trees.

use super::output::Output;
use crate::voice::say;
use anyhow::{Context, Result, bail};
use bearing_lab::generate::{
    DirectoryNumber, Options, ShapeBuilder, Tree, WORKLOADS, Workload, read_tree, write_tree,
};
use bearing_lab::trace::{HEADER, line_of};
use clap::Args;
use comfy_table::{Table, presets};
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

const GENERATE_EXAMPLES: &str = "\
Examples:
  bearing lab trace generate
  bearing lab trace generate msn --operations 10000000 --out msn.csv
  bearing lab trace generate res --intensify 100 | bearing lab replay --trace - --out res
  bearing lab trace generate livemaps --tree project.tree --skew 0.8 --out on-our-tree.csv

Without a name it lists the workloads. All parameters have a source, or are said to be chosen:
docs/design/2026-11-30-generated-traces.md.";

/// `lab trace generate`.
#[derive(Args, Clone, Debug)]
#[command(after_help = GENERATE_EXAMPLES)]
pub struct GenerateFlags {
    /// The workload
    pub workload: Option<String>,
    /// How many operations, of each copy
    #[arg(long, default_value_t = 1_000_000)]
    pub operations: u64,
    /// How many clients ask [default: as published]
    #[arg(long)]
    pub clients: Option<u32>,
    /// Draws begin from here
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// So many copies at the same time, each in a directory of its own (the trace intensifying factor)
    #[arg(long, default_value_t = 1)]
    pub intensify: u32,
    /// The exponent of Zipf's distribution, by which files are popular [default: the workload's]
    #[arg(long)]
    pub skew: Option<f64>,
    /// How many files the tree has in the beginning [default: the workload's]
    #[arg(long, conflicts_with = "tree")]
    pub files: Option<u64>,
    /// A tree that was scanned, instead of a grown one
    #[arg(long, value_name = "FILE")]
    pub tree: Option<PathBuf>,
    /// Where to write it [default: printed]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

const SCAN_EXAMPLES: &str = "\
Examples:
  bearing lab trace scan /srv/builds --out builds.tree
  bearing lab trace generate msn --tree builds.tree --out builds.csv

No names are written, only which directory lies in which and how many files each has. Links are not followed.";

/// `lab trace scan`.
#[derive(Args, Clone, Debug)]
#[command(after_help = SCAN_EXAMPLES)]
pub struct ScanFlags {
    /// The directory
    pub directory: PathBuf,
    /// Where to write it [default: printed]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Runs `lab trace generate`.
pub fn generate(flags: &GenerateFlags) -> Result<()> {
    let Some(name) = &flags.workload else { return list() };
    let workload = Workload::named(name)?;
    let tree = match (&flags.tree, flags.files) {
        (Some(path), _) => {
            let file = File::open(path).with_context(|| format!("open the tree {}", path.display()))?;
            let shape = read_tree(BufReader::new(file));
            Tree::Scanned(shape.with_context(|| format!("read the tree {}", path.display()))?)
        }
        (None, Some(files)) => Tree::Files(files),
        (None, None) => Tree::Own,
    };
    let options = Options {
        operations: flags.operations,
        clients: flags.clients,
        seed: flags.seed,
        intensify: flags.intensify,
        skew: flags.skew,
        tree,
    };
    let events = workload.generate(options)?;
    let out = Output::new(flags.out.as_deref().unwrap_or(Path::new("-")), flags.tree.as_deref())?;
    match write(events, out) {
        // The reader has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.with_context(|| match &flags.out {
            Some(path) => format!("write {}", path.display()),
            None => "print the trace".to_owned(),
        }),
    }
}

fn write(events: impl Iterator<Item = bearing_lab::trace::Event>, mut out: Output) -> io::Result<()> {
    writeln!(out, "{HEADER}")?;
    for event in events {
        writeln!(out, "{}", line_of(&event))?;
    }
    out.finish()
}

fn list() -> Result<()> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["WORKLOAD", "WHAT IT IS", "SOURCE"]);
    for workload in WORKLOADS {
        table.add_row([workload.name, workload.about, workload.source]);
    }
    say!("{table}")?;
    Ok(())
}

/// Runs `lab trace scan`.
pub fn scan(flags: &ScanFlags) -> Result<()> {
    if !flags.directory.is_dir() {
        bail!("{} is no directory that can be scanned; give one", flags.directory.display());
    }
    let mut shape = ShapeBuilder::default();
    // The directories that the walk is in, from the root down.
    let mut open: Vec<DirectoryNumber> = vec![ShapeBuilder::ROOT];
    let mut unread = 0;
    for entry in WalkDir::new(&flags.directory).min_depth(1).sort_by_file_name() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                unread += 1;
                eprintln!("left out: {error}");
                continue;
            }
        };
        open.truncate(entry.depth());
        let parent = *open.last().context("the walk left the directory")?;
        if entry.file_type().is_dir() {
            open.push(shape.directory(parent)?);
        } else {
            shape.files(parent, 1)?;
        }
    }
    let shape = shape.finish();
    let mut out = Output::new(flags.out.as_deref().unwrap_or(Path::new("-")), None)?;
    write_tree(&shape, &mut out).context("write the tree")?;
    out.finish().context("write the tree")?;
    eprintln!("{} directories, {} files; {unread} left out", shape.directories(), shape.files());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scanned_tree_has_the_shape_of_the_directory_and_carries_a_trace() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        for file in ["a/b/one", "a/b/two", "a/three", "four"] {
            std::fs::write(root.join(file), "").unwrap();
        }
        // A link to a directory is no directory, and does not lead out of the tree.
        std::os::unix::fs::symlink("/", root.join("a/out")).unwrap();
        let tree = directory.path().join("tree");
        scan(&ScanFlags { directory: root, out: Some(tree.clone()) }).unwrap();
        assert_eq!(std::fs::read_to_string(&tree).unwrap(), "bearing-tree,1\nparent,files\n-,1\n0,2\n1,2\n");
        let out = directory.path().join("trace");
        let flags = GenerateFlags {
            workload: Some("msn".into()),
            operations: 50,
            clients: None,
            seed: 1,
            intensify: 2,
            skew: None,
            files: None,
            tree: Some(tree),
            out: Some(out.clone()),
        };
        generate(&flags).unwrap();
        let text = std::fs::read_to_string(out).unwrap();
        assert_eq!(text.lines().count(), 1 + 2 * 50);
        assert!(text.contains(",/copy-0/") || text.contains(",/copy-1/"), "{text}");
    }
}
