//! Programs of many users on one tree: kinds as a mix says, files by popularity, at the rate of a recording.
//!
//! Invariants: what is used exists, made before or there in the beginning; a name that is removed is used
//! again only after it is made again; memory grows with the tree, never with the operations.

use super::clock::Clock;
use super::deck::{Ask, Cards, Deck};
use super::files::{FileName, Files, Slot};
use super::paths::Paths;
use super::popularity::{Drift, HotPercent, Popularity};
use super::shape::{DirectoryNumber, Shape};
use crate::trace::{Event, Kind};
use bearing_workload::Seeded;

/// What one workload of this kind differs in from another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mixture {
    pub(super) cards: Cards,
    /// One operation comes in so many nanoseconds.
    pub(super) period_ns: u64,
    /// How many of a hundred lookups are of a directory.
    pub(super) directories_percent: u64,
    pub(super) hot_percent: HotPercent,
    pub(super) drift: Option<Drift>,
}

/// One use in so many is of a file that was made lately, if there is one.
const RECENT_ONE_IN: u64 = 10;
/// So many of the files that were made last are remembered for that.
const RECENT_MAX: usize = 1024;
/// So many open files are remembered; then the oldest is forgotten and never closed.
const OPEN_MAX: usize = 4096;

/// See the module.
#[derive(Debug)]
pub(super) struct Mixed {
    rng: Seeded,
    mixture: Mixture,
    clock: Clock,
    left: u64,
    clients: u32,
    deck: Deck,
    shape: Shape,
    paths: Paths,
    files: Files,
    popularity: Popularity,
    /// A ring.
    recent: Vec<Slot>,
    recent_next: usize,
    open: Vec<OpenFile>,
    /// Whether files are ever closed. Who reads in HDFS asks where the blocks are, and says nothing after.
    closes: bool,
}

#[derive(Clone, Copy, Debug)]
struct OpenFile {
    client: u64,
    slot: Slot,
    file: FileName,
}

/// How a workload is run.
pub(super) struct Run {
    pub(super) operations: u64,
    pub(super) clients: u32,
    pub(super) skew: f64,
    pub(super) rng: Seeded,
}

impl Mixed {
    /// On the tree of a shape, which has at least one file.
    pub(super) fn new(mixture: Mixture, shape: Shape, run: Run) -> Mixed {
        let Run { operations, clients, skew, mut rng } = run;
        let files = Files::of(&shape);
        let (hot, drift) = (mixture.hot_percent, mixture.drift);
        let popularity = Popularity::new(&files, skew, hot, drift, &mut rng.fork(1));
        let deck = Deck::new(mixture.cards);
        Mixed {
            rng,
            clock: Clock::new(mixture.period_ns),
            left: operations,
            clients,
            closes: deck.has(Ask::Close),
            deck,
            paths: Paths::of(&shape),
            shape,
            files,
            popularity,
            recent: Vec::new(),
            recent_next: 0,
            open: Vec::new(),
            mixture,
        }
    }

    pub(super) fn shape(&self) -> &Shape {
        &self.shape
    }

    pub(super) fn paths(&self) -> &Paths {
        &self.paths
    }

    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// The file that is used next.
    fn used(&mut self) -> (Slot, FileName) {
        if self.rng.below(RECENT_ONE_IN) == 0
            && let Some(recent) = self.recent_file()
        {
            return recent;
        }
        let slot = self.popularity.draw(&mut self.rng);
        self.files.at_or_after(slot)
    }

    /// One of those that were made lately and are still there.
    fn recent_file(&mut self) -> Option<(Slot, FileName)> {
        let slot = *self.rng.pick(&self.recent)?;
        Some((slot, self.files.get(slot)?))
    }

    /// A file that goes away or gets another name: half of them are young, the others any.
    fn passing(&mut self) -> (Slot, FileName) {
        let recent = if self.rng.chance(1, 2) { self.recent_file() } else { None };
        recent.unwrap_or_else(|| self.files.any(&mut self.rng))
    }

    fn note_recent(&mut self, slot: Slot) {
        match self.recent.len() < RECENT_MAX {
            true => self.recent.push(slot),
            false => self.recent[self.recent_next] = slot,
        }
        self.recent_next = (self.recent_next + 1) % RECENT_MAX;
    }

    fn note_open(&mut self, client: u64, slot: Slot, file: FileName) {
        if !self.closes {
            return;
        }
        if self.open.len() == OPEN_MAX {
            self.open.remove(0);
        }
        self.open.push(OpenFile { client, slot, file });
    }

    /// An open file that still has the name by which it was opened, with its place among the open ones.
    fn open_file(&mut self) -> Option<(usize, OpenFile)> {
        while !self.open.is_empty() {
            let at = self.rng.below(self.open.len() as u64) as usize;
            let open = self.open[at];
            if self.files.get(open.slot) == Some(open.file) {
                return Some((at, open));
            }
            self.open.swap_remove(at);
        }
        None
    }

    /// Makes a file, in the place of a removed one if there is any: half of these get the old name again.
    fn create(&mut self) -> (Slot, FileName) {
        let (slot, file) = match self.files.take_removed(&mut self.rng) {
            Some((slot, file)) if self.rng.chance(1, 2) => {
                self.files.put(slot, file);
                (slot, file)
            }
            Some((slot, FileName { directory, .. })) => {
                let file = FileName { directory, name: self.paths.add_file(directory) };
                self.files.put(slot, file);
                (slot, file)
            }
            None => {
                let (_, FileName { directory, .. }) = self.used();
                let file = FileName { directory, name: self.paths.add_file(directory) };
                (self.files.add(file), file)
            }
        };
        self.note_recent(slot);
        (slot, file)
    }

    /// Moves a file; half of them stay in their directory.
    fn rename(&mut self) -> (FileName, FileName) {
        let (slot, from) = self.passing();
        let directory = if self.rng.chance(1, 2) { from.directory } else { self.used().1.directory };
        let to = FileName { directory, name: self.paths.add_file(directory) };
        self.files.put(slot, to);
        (from, to)
    }

    fn path(&self, file: FileName) -> String {
        self.paths.file(file.directory, file.name)
    }

    fn directory(&self, number: DirectoryNumber) -> String {
        self.paths.directory(number).to_owned()
    }

    fn event(&mut self) -> Event {
        let at_us = self.clock.next(&mut self.rng);
        let mut client = self.rng.below(self.clients.into());
        let mut to = None;
        let (kind, path) = match self.deck.deal(&mut self.rng) {
            Ask::Lookup => {
                let (_, file) = self.used();
                let of_directory = self.rng.chance(self.mixture.directories_percent, 100);
                let path = if of_directory { self.directory(file.directory) } else { self.path(file) };
                (Kind::Lookup, path)
            }
            Ask::LookupOpen => match self.open_file() {
                Some((_, open)) => {
                    client = open.client;
                    (Kind::Lookup, self.path(open.file))
                }
                // It was open when the recording began.
                None => (Kind::Lookup, self.used_path()),
            },
            Ask::List => {
                let (_, file) = self.used();
                (Kind::List, self.directory(file.directory))
            }
            Ask::Open => {
                let (slot, file) = self.used();
                self.note_open(client, slot, file);
                (Kind::Open, self.path(file))
            }
            Ask::Close => match self.open_file() {
                Some((at, open)) => {
                    self.open.swap_remove(at);
                    client = open.client;
                    (Kind::Close, self.path(open.file))
                }
                None => (Kind::Close, self.used_path()),
            },
            Ask::Create => {
                let (slot, file) = self.create();
                self.note_open(client, slot, file);
                (Kind::Create, self.path(file))
            }
            Ask::MakeDirectory => {
                let (_, file) = self.used();
                let made = self.paths.add_directory(file.directory);
                (Kind::MakeDirectory, self.directory(made))
            }
            Ask::Update => (Kind::Update, self.used_path()),
            Ask::Remove if self.files.may_remove() => {
                let (slot, file) = self.passing();
                self.files.remove(slot);
                (Kind::Remove, self.path(file))
            }
            Ask::Remove => (Kind::Lookup, self.used_path()),
            Ask::Rename => {
                let (from, moved) = self.rename();
                to = Some(self.path(moved));
                (Kind::Rename, self.path(from))
            }
        };
        Event { at_us, client, kind, path, to }
    }

    fn used_path(&mut self) -> String {
        let (_, file) = self.used();
        self.path(file)
    }
}

impl Iterator for Mixed {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.left = self.left.checked_sub(1)?;
        Some(self.event())
    }
}
