//! Traces that are made, not recorded: mixes, rates and shapes of trees that papers published, and what is
//! known to be hard.
//!
//! Invariants: a seed gives the same operations on every machine; operations are consistent with each other
//! and with the tree that is there in the beginning; memory grows with the tree, not with the operations.
//! This module must not know the schemes that its traces are replayed on: its parameters were written down
//! before any of them (`docs/design/2026-11-30-generated-traces.md`).

mod clock;
mod deck;
mod files;
mod grown;
mod loader;
mod mdtest;
mod mixed;
mod options;
mod paths;
mod permutation;
mod popularity;
mod shape;
#[cfg(test)]
mod tests;
mod tree_file;
mod workload;

pub use options::{Options, Tree};
pub use shape::{DEPTH_MAX, DIRECTORIES_MAX, DirectoryNumber, FILES_MAX, Shape, ShapeBuilder, ShapeError};
pub use tree_file::{TreeFileError, read_tree, write_tree};
pub use workload::{UnknownWorkload, WORKLOADS, Workload};

use crate::trace::Event;
use bearing_types::ParameterError;
use loader::Loader;
use mdtest::Mdtest;
use mixed::Mixed;
use paths::Paths;

/// Makes the operations of a trace, in the order of their times.
#[derive(Debug)]
pub struct Generator {
    source: Source,
    copies: Copies,
}

#[derive(Debug)]
enum Source {
    Mixed(Box<Mixed>),
    Loader(Box<Loader>),
    Mdtest(Mdtest),
}

/// The copies of an intensified trace do the same at the same time, each in its own directory.
#[derive(Debug)]
struct Copies {
    count: u32,
    clients: u32,
    /// What the copies from this one on have not done yet.
    pending: Option<Event>,
    next: u32,
}

/// Something that is there before the first operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartEntry {
    /// Its path.
    pub path: String,
    /// What it is.
    pub kind: StartKind,
}

/// What something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartKind {
    /// A directory.
    Directory,
    /// Anything else.
    File,
}

impl Workload {
    /// Its operations.
    pub fn generate(&self, options: Options) -> Result<Generator, ParameterError> {
        options::generator(self, options)
    }
}

impl Generator {
    /// The tree that is there before the first operation, however many operations were taken already:
    /// directories before what is in them. The root is not among it.
    pub fn start(&self) -> impl Iterator<Item = StartEntry> + '_ {
        (0..self.copies.count).flat_map(move |copy| {
            let top = (self.copies.count > 1).then(|| self.copies.path(copy, "/"));
            let entries = self.source.start();
            let entries = entries
                .map(move |entry| StartEntry { path: self.copies.path(copy, &entry.path), kind: entry.kind });
            top.into_iter().map(directory).chain(entries)
        })
    }

    /// How many operations are left.
    pub fn left(&self) -> u64 {
        let copies = u64::from(self.copies.count);
        let pending = if self.copies.pending.is_some() { copies - u64::from(self.copies.next) } else { 0 };
        self.source.left() * copies + pending
    }
}

impl Iterator for Generator {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        if self.copies.count == 1 {
            return self.source.next();
        }
        if self.copies.pending.is_none() {
            self.copies.pending = Some(self.source.next()?);
            self.copies.next = 0;
        }
        self.copies.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left());
        (left.unwrap_or(usize::MAX), left.ok())
    }
}

impl Copies {
    /// A path in the directory of a copy.
    fn path(&self, copy: u32, path: &str) -> String {
        if self.count == 1 {
            return path.to_owned();
        }
        let mut own = String::with_capacity(path.len() + "/copy-12345".len());
        own.push_str("/copy-");
        paths::put_number(&mut own, copy);
        own.push_str(if path == "/" { "" } else { path });
        own
    }

    /// What the next copy does.
    fn next(&mut self) -> Option<Event> {
        let event = self.pending.as_ref()?;
        let copy = self.next;
        let own = Event {
            at_us: event.at_us,
            client: u64::from(copy) * u64::from(self.clients) + event.client,
            kind: event.kind,
            path: self.path(copy, &event.path),
            to: event.to.as_ref().map(|to| self.path(copy, to)),
        };
        self.next += 1;
        if self.next == self.count {
            self.pending = None;
        }
        Some(own)
    }
}

impl Source {
    fn next(&mut self) -> Option<Event> {
        match self {
            Source::Mixed(mixed) => mixed.next(),
            Source::Loader(loader) => loader.next(),
            Source::Mdtest(mdtest) => mdtest.next(),
        }
    }

    fn left(&self) -> u64 {
        match self {
            Source::Mixed(mixed) => mixed.left(),
            Source::Loader(loader) => loader.left(),
            Source::Mdtest(mdtest) => mdtest.left(),
        }
    }

    fn start(&self) -> Box<dyn Iterator<Item = StartEntry> + '_> {
        match self {
            Source::Mixed(mixed) => Box::new(entries(mixed.shape(), mixed.paths())),
            Source::Loader(loader) => Box::new(entries(loader.shape(), loader.paths())),
            Source::Mdtest(mdtest) => Box::new(mdtest.directories().map(directory)),
        }
    }
}

fn directory(path: String) -> StartEntry {
    StartEntry { path, kind: StartKind::Directory }
}

/// What a shape has, but for its root.
fn entries<'a>(shape: &'a Shape, paths: &'a Paths) -> impl Iterator<Item = StartEntry> + 'a {
    shape.iter().enumerate().flat_map(move |(number, (_, files))| {
        let number = DirectoryNumber(number as u32);
        let own = (number != ShapeBuilder::ROOT).then(|| directory(paths.directory(number).to_owned()));
        let files = (0..files).map(move |name| paths.file(number, name));
        own.into_iter().chain(files.map(|path| StartEntry { path, kind: StartKind::File }))
    })
}
