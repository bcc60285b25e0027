//! One directory of very many files, and very many directories: at which rate they are made from first to
//! last, how long a listing takes, and what each takes of the memory of the daemons.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::run::{Rows, Subject, Work, resident_bytes, timed};

/// Daemons have stored what they were given, and freed what they can, after this time.
const CALM: Duration = Duration::from_secs(3);

/// Makes files in one directory, a tenth after the other, and lists it; through the other mount too.
pub fn files(rows: &mut Rows, subject: &Subject, count: u64) -> Result<String> {
    let make = |at: &Path, number: u64| fs::File::create_new(at.join(format!("file-{number}"))).map(drop);
    let said = fill(rows, subject, ("files", count), &make)?;
    for (work, point) in [("list", subject.points.first()), ("list, other mount", subject.points.last())] {
        let directory = point.context("a mount")?.join("large-files");
        rows.measure((1, &format!("{work} {count} files")), subject, || {
            timed(count, || {
                let listed = fs::read_dir(&directory).context("list")?.count() as u64;
                ensure!(listed == count, "{listed} files are listed of {count}");
                Ok(())
            })
        })?;
    }
    Ok(said)
}

/// Makes directories, 100 in each.
pub fn directories(rows: &mut Rows, subject: &Subject, count: u64) -> Result<String> {
    let make = |at: &Path, number: u64| {
        let parent = at.join((number / 100).to_string());
        if number.is_multiple_of(100) {
            fs::create_dir(&parent)?;
        }
        fs::create_dir(parent.join(number.to_string()))
    };
    fill(rows, subject, ("directories", count), &make)
}

/// Gives what the memory of each daemon grew by.
fn fill(
    rows: &mut Rows,
    subject: &Subject,
    (what, count): (&str, u64),
    make: &dyn Fn(&Path, u64) -> std::io::Result<()>,
) -> Result<String> {
    let at = subject.points.first().context("a mount")?.join(format!("large-{what}"));
    fs::create_dir(&at).with_context(|| format!("make {}", at.display()))?;
    let before = resident_bytes(&subject.marker)?;
    for tenth in 1..=10 {
        let (first, last) = (count * (tenth - 1) / 10, count * tenth / 10);
        rows.measure((1, &format!("{count} {what}: tenth {tenth}")), subject, || {
            let begun = Instant::now();
            let one = |number| {
                let begun = Instant::now();
                make(&at, number).map(|()| begun.elapsed().as_micros() as u64)
            };
            let latencies = (first..last).map(one).collect::<std::io::Result<Vec<_>>>()?;
            Ok(Work::of_latencies(begun.elapsed(), latencies))
        })?;
    }
    std::thread::sleep(CALM);
    let mut text = String::new();
    for (name, bytes) in resident_bytes(&subject.marker)? {
        let was = before.iter().find(|(other, _)| *other == name).map_or(0, |(_, was)| *was);
        let grown = bytes.saturating_sub(was);
        text += &format!("{}: {name}: {} bytes for each of {count} {what}\n", subject.name, grown / count);
    }
    print!("{text}");
    Ok(text)
}
