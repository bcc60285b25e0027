//! Workers that make small files, look at them, read, rename and remove them, in directories that all share.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::run::{Subject, Work};

pub const DIRECTORIES: u64 = 8;
/// Of 100 operations: makes, looks, reads, renames; the rest removes.
pub const MIX: [u64; 4] = [30, 30, 15, 10];
/// Of 100 renames so many go to another directory.
pub const CROSSING: u64 = 30;
/// With fewer files of its own a worker makes one.
const FILES_MIN: usize = 3;

/// Has workers, spread over the mounts, work for so long. With `apart` those of different mounts share no
/// directory.
pub fn run(subject: &Subject, place: &Path, workers: u32, length: Duration, apart: bool) -> Result<Work> {
    let mounts = subject.points.len() as u32;
    let part = |number: u32| if apart { format!("of-{}", number % mounts) } else { "all".to_owned() };
    for number in 0..mounts {
        for directory in 0..DIRECTORIES {
            let path = subject.points[0].join(place).join(part(number)).join(directory.to_string());
            fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        }
    }
    let begun = Instant::now();
    let worked = std::thread::scope(|scope| {
        let works: Vec<_> = (0..workers)
            .map(|number| {
                let point = subject.points[(number % mounts) as usize].join(place).join(part(number));
                scope.spawn(move || Worker::new(point, number).work(begun + length))
            })
            .collect();
        let joined = works.into_iter().map(|work| work.join().expect("a worker that panics says so"));
        joined.collect::<Result<Vec<_>>>()
    })?;
    Ok(Work::of_latencies(begun.elapsed(), worked.concat()))
}

struct Worker {
    point: PathBuf,
    number: u32,
    made: u64,
    files: Vec<PathBuf>,
    state: u64,
}

impl Worker {
    fn new(point: PathBuf, number: u32) -> Worker {
        Worker { point, number, made: 0, files: Vec::new(), state: u64::from(number) + 1 }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % below
    }

    fn new_name(&mut self, directory: u64) -> PathBuf {
        self.made += 1;
        self.point.join(directory.to_string()).join(format!("w{}-{}", self.number, self.made))
    }

    /// Works until then. Microseconds of each operation.
    fn work(mut self, end: Instant) -> Result<Vec<u64>> {
        let mut latencies = Vec::new();
        while Instant::now() < end {
            let drawn = self.draw(100);
            let begun = Instant::now();
            self.operate(drawn)
                .with_context(|| format!("worker {} in {}", self.number, self.point.display()))?;
            latencies.push(begun.elapsed().as_micros() as u64);
        }
        Ok(latencies)
    }

    fn operate(&mut self, drawn: u64) -> io::Result<()> {
        let [make, look, read, rename] = MIX;
        if drawn < make || self.files.len() < FILES_MIN {
            let directory = self.draw(DIRECTORIES);
            let path = self.new_name(directory);
            fs::File::create_new(&path)?.write_all(&[b'x'; 100])?;
            self.files.push(path);
            return Ok(());
        }
        let index = self.draw(self.files.len() as u64) as usize;
        let path = self.files[index].clone();
        if drawn < make + look {
            fs::symlink_metadata(path).map(drop)
        } else if drawn < make + look + read {
            fs::read(path).map(drop)
        } else if drawn < make + look + read + rename {
            let crosses = self.draw(100) < CROSSING;
            let elsewhere = self.draw(DIRECTORIES);
            let here = path.parent().and_then(Path::file_name).and_then(|name| name.to_str()?.parse().ok());
            let target = self.new_name(here.filter(|_| !crosses).unwrap_or(elsewhere));
            fs::rename(&path, &target)?;
            self.files[index] = target;
            Ok(())
        } else {
            fs::remove_file(path)?;
            self.files.swap_remove(index);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_leave_what_they_say_and_every_operation_is_counted() {
        let place = tempfile::tempdir().unwrap();
        for directory in 0..DIRECTORIES {
            fs::create_dir(place.path().join(directory.to_string())).unwrap();
        }
        let mut worker = Worker::new(place.path().to_owned(), 3);
        for _ in 0..2000 {
            let drawn = worker.draw(100);
            worker.operate(drawn).unwrap();
        }
        let here = |directory: u64| fs::read_dir(place.path().join(directory.to_string())).unwrap().count();
        assert_eq!((0..DIRECTORIES).map(here).sum::<usize>(), worker.files.len());
        assert!(worker.files.iter().all(|path| path.exists()) && worker.files.len() >= FILES_MIN);
    }
}
