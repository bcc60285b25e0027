//! mdtest as IO500 runs it: all clients make their files, then all ask for attributes, then (of the hard one)
//! all read, then all remove. Each phase begins when the one before it is over.
//!
//! As IO500 shifts ranks (`-N 1`), a client asks for the attributes of its neighbour's files, reads those of
//! the neighbour after that, and removes those of the third: what a client knows of its own files is of no
//! use to it.

use super::paths::put_number;
use crate::trace::{Event, Kind};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    /// A directory for each client, empty files.
    Easy,
    /// One directory, files of 3,901 bytes.
    Hard,
}

/// What a client does with each file in a phase, and whose it is: the client's own or so many further.
type Phase = (&'static [Kind], u64);

const EASY: [Phase; 3] = [(&[Kind::Create, Kind::Close], 0), (&[Kind::Lookup], 1), (&[Kind::Remove], 3)];
const HARD: [Phase; 4] = [
    (&[Kind::Create, Kind::Write, Kind::Close], 0),
    (&[Kind::Lookup], 1),
    (&[Kind::Open, Kind::Read, Kind::Close], 2),
    (&[Kind::Remove], 3),
];
/// A client asks one after the other, in such an interval: 1,000 a second.
const INTERVAL_US: u64 = 1000;

impl Variant {
    fn phases(self) -> &'static [Phase] {
        match self {
            Variant::Easy => &EASY,
            Variant::Hard => &HARD,
        }
    }

    /// How many operations there are for each file.
    pub(super) fn operations_per_file(self) -> u64 {
        self.phases().iter().map(|(kinds, _)| kinds.len() as u64).sum()
    }

    /// The directory in which all is.
    fn top(self) -> &'static str {
        match self {
            Variant::Easy => "/mdtest-easy",
            Variant::Hard => "/mdtest-hard",
        }
    }

    /// The directory of a client's files.
    fn directory(self, client: u64) -> String {
        let mut path = self.top().to_owned();
        if self == Variant::Easy {
            path.push_str("/mdtest_tree.");
            put_number(&mut path, client as u32);
        }
        path
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Mdtest {
    variant: Variant,
    clients: u64,
    files_per_client: u64,
    left: u64,
    /// Where it is: phase, file, step, client.
    phase: usize,
    file: u64,
    step: usize,
    client: u64,
    /// Rounds of all clients so far.
    turn: u64,
}

impl Mdtest {
    /// With as many files for each client as fit into so many operations.
    pub(super) fn new(variant: Variant, clients: u32, operations: u64) -> Mdtest {
        let clients = u64::from(clients);
        let files_per_client = operations / (clients * variant.operations_per_file());
        let left = files_per_client * clients * variant.operations_per_file();
        Mdtest { variant, clients, files_per_client, left, phase: 0, file: 0, step: 0, client: 0, turn: 0 }
    }

    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// The directories that are there in the beginning: mdtest makes them before it takes the time.
    pub(super) fn directories(&self) -> impl Iterator<Item = String> + '_ {
        let own = if self.variant == Variant::Easy { self.clients } else { 0 };
        std::iter::once(self.variant.top().to_owned())
            .chain((0..own).map(|client| self.variant.directory(client)))
    }

    /// Clients take turns; a client does all with a file before it takes the next one.
    fn advance(&mut self) {
        self.left -= 1;
        self.client = (self.client + 1) % self.clients;
        if self.client > 0 {
            return;
        }
        self.turn += 1;
        self.step = (self.step + 1) % self.variant.phases()[self.phase].0.len();
        if self.step > 0 {
            return;
        }
        self.file = (self.file + 1) % self.files_per_client;
        if self.file == 0 {
            self.phase += 1;
        }
    }
}

impl Iterator for Mdtest {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        if self.left == 0 {
            return None;
        }
        let (kinds, shift) = self.variant.phases()[self.phase];
        let owner = (self.client + shift) % self.clients;
        let mut path = self.variant.directory(owner);
        path.push_str("/file.mdtest.");
        put_number(&mut path, owner as u32);
        path.push('.');
        put_number(&mut path, self.file as u32);
        let at_us = self.turn * INTERVAL_US + self.client * INTERVAL_US / self.clients;
        let event = Event { at_us, client: self.client, kind: kinds[self.step], path, to: None };
        self.advance();
        Some(event)
    }
}
