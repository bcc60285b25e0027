//! The same call again and again by processes that share a directory.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use super::run::{Rows, Subject, Work};

/// Calls of each process.
const COUNT: u32 = 2000;

type Call = fn(&Path, u32, u32) -> io::Result<()>;

/// In this order: each finds what the one before has left.
const CALLS: [(&str, Call); 5] = [
    ("create", |at, process, number| fs::File::create_new(at.join(format!("a{process}-{number}"))).map(drop)),
    ("rename", |at, process, number| {
        fs::rename(at.join(format!("a{process}-{number}")), at.join(format!("b{process}-{number}")))
    }),
    ("remove", |at, process, number| fs::remove_file(at.join(format!("b{process}-{number}")))),
    ("mkdir", |at, process, number| fs::create_dir(at.join(format!("d{process}-{number}")))),
    ("rmdir", |at, process, number| fs::remove_dir(at.join(format!("d{process}-{number}")))),
];

/// Measures every call by one process and by four.
pub fn run(rows: &mut Rows, subject: &Subject, round: u32) -> Result<()> {
    for processes in [1, 4] {
        let directory = subject.points[0].join(format!("calls-{processes}-{round}"));
        fs::create_dir(&directory).with_context(|| format!("make {}", directory.display()))?;
        for (name, call) in CALLS {
            rows.measure((round, &format!("{name} x{processes}")), subject, || {
                repeat(&directory, processes, call)
            })?;
        }
    }
    Ok(())
}

fn repeat(directory: &Path, processes: u32, call: Call) -> Result<Work> {
    let begun = Instant::now();
    let latencies = std::thread::scope(|scope| {
        let works: Vec<_> = (0..processes)
            .map(|process| {
                scope.spawn(move || {
                    let one = |number| {
                        let begun = Instant::now();
                        call(directory, process, number).map(|()| begun.elapsed().as_micros() as u64)
                    };
                    (0..COUNT).map(one).collect::<io::Result<Vec<_>>>()
                })
            })
            .collect();
        let joined = works.into_iter().map(|work| work.join().expect("a worker that panics says so"));
        joined.collect::<io::Result<Vec<_>>>()
    })?;
    Ok(Work::of_latencies(begun.elapsed(), latencies.concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_finds_what_the_one_before_left_and_nothing_stays() {
        let place = tempfile::tempdir().unwrap();
        for (_, call) in CALLS {
            repeat(place.path(), 2, call).unwrap();
        }
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
