//! `append`: to the end of a file to which others append at the same time.

use super::paths::{absolute, masked};
use crate::failure::Usage;
use crate::names::{lossy, shown};
use anyhow::{Context, Result, bail};
use bearing_mount::session::{File, OpenMode, Session};
use bearing_proto::frame::PAYLOAD_BYTES_MAX;
use serde_json::json;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// What is appended in one piece has at most as many bytes.
const RECORD_BYTES_MAX: usize = PAYLOAD_BYTES_MAX as usize;
/// Lines that are there already are appended together, up to so many bytes.
const GATHERED_BYTES: usize = 256 << 10;

/// What is one record of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// All of it.
    Whole,
    /// Each line.
    Line,
}

/// What was appended.
#[derive(Debug, Default, PartialEq, Eq)]
struct Appended {
    records: u64,
    bytes: u64,
}

/// `append`.
pub fn append(session: &Session, source: &Path, target: &OsStr, record: Record, as_json: bool) -> Result<()> {
    let input: Box<dyn Read> = match source == Path::new("-") {
        true => Box::new(io::stdin()),
        false => {
            let open = std::fs::File::open(source).with_context(|| format!("open {}", source.display()))?;
            Box::new(open)
        }
    };
    let mut input = BufReader::with_capacity(GATHERED_BYTES, input);
    let path = absolute(target)?;
    // Before the file is made: what cannot be appended leaves nothing behind.
    let whole = (record == Record::Whole).then(|| read_whole(&mut input)).transpose()?;
    let file = session.open(path, OpenMode::Create(masked(0o666)))?;
    let mut appended = Appended::default();
    let done = match whole {
        Some(bytes) => put(&file, &bytes, 1, &mut appended),
        None => each_line(&mut input, |lines, count| put(&file, lines, count, &mut appended)),
    };
    // What was appended before something went wrong stays.
    let synced = file.sync();
    let closed = file.close();
    done.with_context(|| format!("append to {} after {} records", shown(path), appended.records))?;
    synced.and(closed)?;
    if as_json {
        let Appended { records, bytes } = appended;
        println!("{}", json!({ "path": lossy(path), "records": records, "bytes": bytes }));
    }
    Ok(())
}

/// Appends records in one piece, and has everybody see them.
fn put(file: &File, bytes: &[u8], records: u64, appended: &mut Appended) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let count = file.append(bytes)?;
    if count as usize != bytes.len() {
        bail!("only {count} of {} bytes were taken", bytes.len());
    }
    file.flush()?;
    appended.records += records;
    appended.bytes += u64::from(count);
    Ok(())
}

fn read_whole(input: &mut impl Read) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(RECORD_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).context("read what to append")?;
    if bytes.len() > RECORD_BYTES_MAX {
        bail!(Usage(format!(
            "more than {} MiB cannot be appended in one piece; with --lines each line is one, and `bearing fs \
             put` makes a new file of any length",
            RECORD_BYTES_MAX >> 20
        )));
    }
    Ok(bytes)
}

/// Gives whole lines, those together that are there without waiting, and how many they are. What follows the
/// last newline is a line too.
fn each_line<R: Read>(
    input: &mut BufReader<R>,
    mut take: impl FnMut(&[u8], u64) -> Result<()>,
) -> Result<()> {
    let (mut gathered, mut count, mut number) = (Vec::new(), 0, 0);
    loop {
        let start = gathered.len();
        let mut line = (&mut *input).take(RECORD_BYTES_MAX as u64 + 1);
        let length = line.read_until(b'\n', &mut gathered).context("read what to append")?;
        number += 1;
        let is_too_long = length > RECORD_BYTES_MAX;
        if is_too_long {
            gathered.truncate(start);
        }
        count += u64::from(length > 0 && !is_too_long);
        let more_is_here = input.buffer().contains(&b'\n');
        if length == 0 || is_too_long || !more_is_here || gathered.len() >= GATHERED_BYTES {
            // One that would make them too long together goes for itself.
            let apart = if gathered.len() > RECORD_BYTES_MAX { start } else { gathered.len() };
            let (first, last) = gathered.split_at(apart);
            take(first, count - u64::from(!last.is_empty()))?;
            take(last, u64::from(!last.is_empty()))?;
            gathered.clear();
            count = 0;
        }
        if is_too_long {
            bail!("line {number} has more than {} MiB, which no record may have", RECORD_BYTES_MAX >> 20);
        }
        if length == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(input: &[u8]) -> (Vec<(Vec<u8>, u64)>, Result<()>) {
        let (mut pieces, mut reader) = (Vec::new(), BufReader::with_capacity(GATHERED_BYTES, input));
        let done = each_line(&mut reader, |lines, count| {
            if !lines.is_empty() {
                pieces.push((lines.to_vec(), count));
            }
            Ok(())
        });
        (pieces, done)
    }

    #[test]
    fn lines_that_are_there_go_together_and_none_is_divided() {
        assert_eq!(pieces(b"").0, []);
        assert_eq!(pieces(b"one\ntwo\nthree").0, [(b"one\ntwo\n".to_vec(), 2), (b"three".to_vec(), 1)]);
        assert_eq!(pieces(b"\n\n").0, [(b"\n\n".to_vec(), 2)]);
        for lengths in [vec![10; 100_000], vec![1000, 300_000, 5, RECORD_BYTES_MAX, 17, RECORD_BYTES_MAX, 1]]
        {
            let line = |length: &usize| [vec![b'x'; length - 1], vec![b'\n']].concat();
            let lines: Vec<Vec<u8>> = lengths.iter().map(line).collect();
            let (pieces, done) = pieces(&lines.concat());
            done.unwrap();
            let bytes: Vec<u8> = pieces.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
            assert!(bytes == lines.concat());
            assert_eq!(pieces.iter().map(|(_, count)| count).sum::<u64>(), lines.len() as u64);
            for (bytes, _) in &pieces {
                assert!(bytes.len() <= RECORD_BYTES_MAX && bytes.ends_with(b"\n"), "{}", bytes.len());
            }
        }
    }

    #[test]
    fn what_is_too_long_is_refused_and_what_comes_before_it_is_taken() {
        let long = vec![b'x'; RECORD_BYTES_MAX + 1];
        assert!(read_whole(&mut long.as_slice()).unwrap_err().to_string().contains("--lines"));
        assert_eq!(read_whole(&mut &long[1..]).unwrap().len(), RECORD_BYTES_MAX);
        let (pieces, done) = pieces(&[b"short\n", long.as_slice()].concat());
        assert_eq!(pieces, [(b"short\n".to_vec(), 1)]);
        assert!(done.unwrap_err().to_string().contains("line 2 has more than 4 MiB"));
    }
}
