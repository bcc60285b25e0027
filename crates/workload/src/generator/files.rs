//! What is done with an open file.

use super::{Area, Generator, Known};
use crate::Record;
use crate::action::{Action, FileSteps};
use bearing_types::{Credentials, FileType, Lock, LockMode, LockOwner, LockRange, LockSpace};

impl Generator {
    /// Records appended to a log, or all of it read.
    pub(super) fn log(&mut self) -> Option<Action> {
        let node = *self.rng.pick(&self.logs)?;
        let write = self.rng.chance(3, 4);
        let mut steps = Vec::new();
        // All clients want the same few: these are the locks that are waited for.
        if self.rng.chance(4, 5) {
            steps.push(self.lock());
        }
        for _ in 0..if write { self.rng.between(1, 4) } else { 0 } {
            let (number, long) = (self.rng.next(), self.rng.chance(1, 4));
            let bytes = self.rng.between(u64::from(Record::BYTES_MIN), if long { 4000 } else { 200 }) as u32;
            steps.push(FileSteps::Append { bytes: Record { number, bytes }.encode(), record: Some(number) });
            match self.rng.below(4) {
                0 => steps.push(FileSteps::Flush),
                1 => steps.push(FileSteps::Sync),
                _ => {}
            }
        }
        if !write || self.rng.chance(1, 3) {
            steps.push(FileSteps::Read { offset: 0, length: 1 << 20 });
        }
        Some(Action::File { node, who: Credentials::ROOT, read: true, write, truncate: false, steps })
    }

    pub(super) fn file(&mut self, area: Area) -> Action {
        if self.rng.chance(1, 5)
            && let Some(log) = self.log()
        {
            return log;
        }
        let Some(known) = self.known(area, |known| known.file_type == FileType::Regular) else {
            return Action::One(self.create(area));
        };
        let write = self.rng.chance(3, 5);
        let mut steps = if write { self.write_steps(&known) } else { self.read_steps() };
        if self.rng.chance(1, 4) {
            steps.insert(0, self.lock());
        }
        let truncate = write && self.rng.chance(1, 5);
        Action::File { node: known.node, who: self.who(), read: true, write, truncate, steps }
    }

    fn read_steps(&mut self) -> Vec<FileSteps> {
        // Front to back in parts, as programs do it, or all of it at once.
        let mut steps = if self.rng.chance(1, 4) {
            let length = self.rng.between(300, 900);
            let parts = self.rng.between(2, 10);
            (0..parts).map(|part| FileSteps::Read { offset: part * length, length: length as u32 }).collect()
        } else {
            vec![FileSteps::Read { offset: 0, length: 1 << 20 }]
        };
        // What others do to the file meanwhile shows in the later ones.
        for _ in 0..self.rng.below(4) {
            let offset = self.rng.below(u64::from(self.options.write_bytes_max));
            steps.push(FileSteps::Read { offset, length: self.rng.between(1, 3000) as u32 });
        }
        steps
    }

    /// Front to back, and what was not read yet is written over on the way.
    fn edit_steps(&mut self) -> Vec<FileSteps> {
        let length = self.rng.between(300, 900);
        let mut steps = Vec::new();
        for part in 0..self.rng.between(4, 10) {
            steps.push(FileSteps::Read { offset: part * length, length: length as u32 });
            if self.rng.chance(1, 3) {
                steps.push(self.write());
                if self.rng.chance(1, 2) {
                    steps.push(FileSteps::Sync);
                }
            }
        }
        steps
    }

    fn write_steps(&mut self, known: &Known) -> Vec<FileSteps> {
        if self.rng.chance(1, 12) {
            return self.edit_steps();
        }
        let mut steps = Vec::new();
        for _ in 0..self.rng.between(1, 3) {
            let step = match self.rng.below(14) {
                0..5 => self.write(),
                5 => self.append(),
                6 => FileSteps::Flush,
                7 | 8 => FileSteps::Sync,
                9 => FileSteps::Resize { size: self.rng.below(u64::from(self.options.write_bytes_max)) },
                10 if self.rng.chance(1, 2) => self.hole(),
                10 => FileSteps::Read { offset: 0, length: 1 << 20 },
                11 | 12 => self.copy(),
                _ => match &known.name {
                    Some((directory, name)) => {
                        FileSteps::Unlink { directory: *directory, name: name.clone() }
                    }
                    None => FileSteps::Flush,
                },
            };
            steps.push(step);
        }
        if self.rng.chance(1, 3) {
            steps.push(FileSteps::Read { offset: 0, length: 1 << 20 });
        }
        steps
    }

    fn lock(&mut self) -> FileSteps {
        let space = if self.rng.chance(1, 2) { LockSpace::Whole } else { LockSpace::Ranges };
        let start = self.rng.below(4);
        let range = match space {
            LockSpace::Whole => LockRange::ALL,
            LockSpace::Ranges => LockRange { start, last: start + self.rng.below(3) },
        };
        let mode = if self.rng.chance(2, 3) { LockMode::Exclusive } else { LockMode::Shared };
        let lock = Lock { owner: LockOwner(0), space, range, mode, pid: 0 };
        FileSteps::Lock { lock, waits: self.rng.chance(2, 3) }
    }

    fn hole(&mut self) -> FileSteps {
        let (start, length) = (self.rng.below(u64::from(self.options.write_bytes_max)), self.rng.below(2000));
        let size_min = if self.rng.chance(1, 3) { start + length } else { 0 };
        FileSteps::MakeHole { start, end: start + length, size_min }
    }

    fn copy(&mut self) -> FileSteps {
        let bytes_max = u64::from(self.options.write_bytes_max);
        // Files begin with bytes more often than they go on with some.
        let low = if self.rng.chance(1, 2) { self.rng.below(100) } else { self.rng.below(bytes_max) };
        let (length, gap) = (self.rng.between(1, 2000), self.rng.below(100));
        let high = low + length + gap;
        let (from, to) = if self.rng.chance(2, 3) { (low, high) } else { (high, low) };
        FileSteps::Copy { from, to, length }
    }

    fn append(&mut self) -> FileSteps {
        FileSteps::Append { bytes: self.bytes(), record: None }
    }

    fn write(&mut self) -> FileSteps {
        let offset =
            if self.rng.chance(1, 2) { 0 } else { self.rng.below(u64::from(self.options.write_bytes_max)) };
        FileSteps::Write { offset, bytes: self.bytes() }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = self.rng.between(1, u64::from(self.options.write_bytes_max)) as usize;
        // Two bytes tell writes apart, and a counter tells their places apart.
        let tag = self.rng.next() as u8;
        (0..length).map(|at| tag ^ (at / 251) as u8 ^ (at as u8).rotate_left(3)).collect()
    }
}
