//! What a trace is made with, and its bounds.

use super::loader::Loader;
use super::mdtest::Mdtest;
use super::mixed::{Mixed, Run};
use super::shape::{FILES_MAX, Shape};
use super::workload::{Behaviour, Workload};
use super::{Copies, Generator, Source, grown};
use bearing_types::{ParameterError, within};
use bearing_workload::Seeded;

/// What a trace is made with.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many operations: at most so many of mdtest, whose phases are whole, and exactly so many of all
    /// others; of each copy.
    pub operations: u64,
    /// How many clients each copy has; `None`: as many as the workload has by itself.
    pub clients: Option<u32>,
    /// Another seed makes another tree and other operations.
    pub seed: u64,
    /// The trace intensifying factor: so many copies run at the same time, each in its own directory and with
    /// its own clients.
    pub intensify: u32,
    /// The exponent of Zipf's distribution; `None`: the workload's own.
    pub skew: Option<f64>,
    /// The tree in the beginning.
    pub tree: Tree,
}

/// The tree in the beginning.
#[derive(Clone, Debug)]
pub enum Tree {
    /// As large as the workload makes it by itself.
    Own,
    /// As the workload makes it, with so many files.
    Files(u64),
    /// One that was scanned.
    Scanned(Shape),
}

impl Options {
    /// So many operations, with all else as the workload has it, and seed 1.
    pub fn new(operations: u64) -> Options {
        Options { operations, clients: None, seed: 1, intensify: 1, skew: None, tree: Tree::Own }
    }
}

const OPERATIONS_MAX: u64 = 1_000_000_000;
const CLIENTS_MAX: u32 = 1_000_000;
const INTENSIFY_MAX: u32 = 10_000;
/// A slot has 8 bytes.
const TREE_FILES_MAX: u64 = 100_000_000;
const _: () = assert!(TREE_FILES_MAX <= FILES_MAX && TREE_FILES_MAX + OPERATIONS_MAX < u32::MAX as u64);

/// A file for so many operations, as in the trace of HP: 94.7 million requests, 4.0 million files.
const OPERATIONS_PER_FILE: u64 = 24;
const OWN_FILES_LEAST: u64 = 10_000;
const OWN_FILES_MOST: u64 = 4_000_000;
const LOADER_FILES: u64 = 1_000_000;

/// The generator of a workload.
pub(super) fn generator(workload: &Workload, options: Options) -> Result<Generator, ParameterError> {
    let Options { operations, clients, seed, intensify, skew, tree } = options;
    let clients = clients.unwrap_or(workload.clients);
    within("operations", operations, (1..=OPERATIONS_MAX).contains(&operations), "1 to 1,000,000,000")?;
    within("clients", clients, (1..=CLIENTS_MAX).contains(&clients), "1 to 1,000,000")?;
    within("intensify", intensify, (1..=INTENSIFY_MAX).contains(&intensify), "1 to 10,000")?;
    if let Some(skew) = skew {
        within("skew", skew, workload.skew.is_some(), "none: no file of this workload is more popular")?;
        within("skew", skew, (0.1..=4.0).contains(&skew), "0.1 to 4")?;
    }
    let mut rng = Seeded::new(seed);
    let source = match workload.behaviour {
        Behaviour::Mixed(mixture) => {
            let own = (operations / OPERATIONS_PER_FILE).clamp(OWN_FILES_LEAST, OWN_FILES_MOST);
            let shape = shape(tree, own, &mut rng.fork(0), grown::grow)?;
            let skew = skew.or(workload.skew).unwrap_or(1.0);
            Source::Mixed(Box::new(Mixed::new(mixture, shape, Run { operations, clients, skew, rng })))
        }
        Behaviour::Loader => {
            let shape = shape(tree, LOADER_FILES, &mut rng.fork(0), grown::classes)?;
            Source::Loader(Box::new(Loader::new(shape, clients, operations, rng.next())))
        }
        Behaviour::Mdtest(variant) => {
            within("tree", "given", matches!(tree, Tree::Own), "none: mdtest makes all of its files")?;
            let least = u64::from(clients) * variant.operations_per_file();
            let bound =
                "at least one file for each client, of 4 operations in the easy one, 8 in the hard one";
            within("operations", operations, operations >= least, bound)?;
            Source::Mdtest(Mdtest::new(variant, clients, operations))
        }
    };
    Ok(Generator { source, copies: Copies { count: intensify, clients, pending: None, next: 0 } })
}

/// The tree in the beginning; one that is not given is grown with `own` files.
fn shape(
    tree: Tree,
    own: u64,
    rng: &mut Seeded,
    grow: fn(u64, &mut Seeded) -> Result<Shape, super::ShapeError>,
) -> Result<Shape, ParameterError> {
    let files = match &tree {
        Tree::Own => own,
        Tree::Files(files) => *files,
        Tree::Scanned(shape) => shape.files(),
    };
    within("files of the tree", files, (1..=TREE_FILES_MAX).contains(&files), "1 to 100,000,000")?;
    let grown = match tree {
        Tree::Scanned(shape) => Ok(shape),
        Tree::Own | Tree::Files(_) => grow(files, rng),
    };
    let bound = "fewer: they need more directories than a tree may have";
    grown.map_err(|_| ParameterError { name: "files of the tree", value: files.to_string(), bound })
}
