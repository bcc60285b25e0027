//! Deep-learning training: each client reads all files of a data set in each epoch, in an order of its own
//! that is new each time. Nothing is used twice before all is used once: caches of clients have nothing to
//! keep.

use super::paths::Paths;
use super::permutation::Permutation;
use super::shape::{DirectoryNumber, Shape};
use crate::trace::{Event, Kind};
use bearing_workload::Seeded;

/// What is asked of a file.
const STEPS: [Kind; 3] = [Kind::Lookup, Kind::Open, Kind::Close];
/// A client asks one after the other, in such an interval: 1,000 a second.
const INTERVAL_US: u64 = 1000;

/// See the module.
#[derive(Debug)]
pub(super) struct Loader {
    shape: Shape,
    paths: Paths,
    /// By directory: the first of its files among all.
    firsts: Vec<u64>,
    seed: u64,
    clients: u64,
    asked: u64,
    operations: u64,
}

impl Loader {
    /// Of the files of a shape, at least one.
    pub(super) fn new(shape: Shape, clients: u32, operations: u64, seed: u64) -> Loader {
        let mut before = 0;
        let firsts = shape.iter().map(|(_, files)| {
            before += u64::from(files);
            before - u64::from(files)
        });
        let firsts = firsts.collect();
        Loader {
            paths: Paths::of(&shape),
            shape,
            firsts,
            seed,
            clients: clients.into(),
            asked: 0,
            operations,
        }
    }

    pub(super) fn shape(&self) -> &Shape {
        &self.shape
    }

    pub(super) fn paths(&self) -> &Paths {
        &self.paths
    }

    pub(super) fn left(&self) -> u64 {
        self.operations - self.asked
    }

    /// The path of one of all files.
    fn path(&self, file: u64) -> String {
        // Directories without files begin where the next one does: the last that begins there has it.
        let directory = self.firsts.partition_point(|first| *first <= file) - 1;
        self.paths.file(DirectoryNumber(directory as u32), (file - self.firsts[directory]) as u32)
    }
}

impl Iterator for Loader {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        if self.asked == self.operations {
            return None;
        }
        let (turn, client) = (self.asked / self.clients, self.asked % self.clients);
        self.asked += 1;
        let (visit, step) = (turn / STEPS.len() as u64, turn % STEPS.len() as u64);
        let (epoch, place) = (visit / self.shape.files(), visit % self.shape.files());
        // Distinct for each client and epoch; the seeds of two runs are made far apart by the generator.
        let order = Seeded::new(self.seed ^ epoch << 32 ^ client).next();
        let file = Permutation::new(self.shape.files(), order).at(place);
        let at_us = turn * INTERVAL_US + client * INTERVAL_US / self.clients;
        Some(Event { at_us, client, kind: STEPS[step as usize], path: self.path(file), to: None })
    }
}
