//! Reads a trace, line by line.

use super::event::{Event, Parsed, Parser};
use super::format::Format;
use super::tally::Tally;
use std::fmt;
use std::io::{self, BufRead, Chain, Cursor, Read};

/// Why a trace cannot be read at all.
#[derive(Debug)]
pub enum TraceError {
    /// Reading failed.
    Read(io::Error),
    /// Nothing is in it.
    Empty,
    /// It is compressed, by this program.
    Compressed(&'static str),
    /// It is of no known format; with its first line.
    Unknown(String),
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::Read(error) => write!(f, "it cannot be read: {error}"),
            TraceError::Empty => f.write_str("it is empty"),
            TraceError::Compressed(program) => {
                write!(f, "it is compressed; pipe it in: {program} -dc FILE | bearing lab trace inspect -")
            }
            TraceError::Unknown(line) => {
                let names = Format::ALL.map(Format::name).join(", ");
                write!(
                    f,
                    "it is no trace of a known format ({names}): it begins with {line:?}; say with --format which one it is"
                )
            }
        }
    }
}

impl std::error::Error for TraceError {}

/// How files begin that these programs made.
const COMPRESSED: [(&[u8], &str); 4] =
    [(b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"BZh", "bzip2"), (b"\xfd7zXZ", "xz")];
/// So much of a trace is looked at to find out its format.
const HEAD_MAX: u64 = 64 << 10;
/// A longer line is none.
const LINE_MAX: u64 = 1 << 20;

/// Reads a trace.
pub struct Reader<R> {
    input: Chain<Cursor<Vec<u8>>, R>,
    format: Format,
    parser: Box<dyn Parser>,
    buffer: Vec<u8>,
    tally: Tally,
    /// The time of the first operation, by the recording's own clock.
    zero_us: Option<i64>,
}

impl<R: BufRead> Reader<R> {
    /// Of a trace of this format, or of whichever its first lines are.
    pub fn new(mut input: R, format: Option<Format>) -> Result<Reader<R>, TraceError> {
        let mut head = Vec::new();
        (&mut input).take(HEAD_MAX).read_to_end(&mut head).map_err(TraceError::Read)?;
        if head.is_empty() {
            return Err(TraceError::Empty);
        }
        if let Some((_, program)) = COMPRESSED.iter().find(|(magic, _)| head.starts_with(magic)) {
            return Err(TraceError::Compressed(program));
        }
        let text = String::from_utf8_lossy(&head);
        let lines = || text.lines().map(str::trim_end).filter(|line| !line.is_empty());
        let known = format
            .or_else(|| Format::ALL.into_iter().find(|format| lines().any(|line| format.is_line(line))));
        let first = || lines().next().unwrap_or_default().chars().take(100).collect();
        let format = known.ok_or_else(|| TraceError::Unknown(first()))?;
        Ok(Reader {
            input: Cursor::new(head).chain(input),
            format,
            parser: format.parser(),
            buffer: Vec::new(),
            tally: Tally::default(),
            zero_us: None,
        })
    }

    /// How it was recorded.
    pub fn format(&self) -> Format {
        self.format
    }

    /// What was read so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The next line without its end, into `buffer`. Whether there was one.
    fn line(&mut self) -> io::Result<bool> {
        self.buffer.clear();
        if (&mut self.input).take(LINE_MAX).read_until(b'\n', &mut self.buffer)? == 0 {
            return Ok(false);
        }
        self.tally.lines += 1;
        // What is too long is skipped to its end, in pieces.
        let mut rest = Vec::new();
        let mut ended = self.buffer.last() == Some(&b'\n') || (self.buffer.len() as u64) < LINE_MAX;
        while !ended {
            rest.clear();
            let read = (&mut self.input).take(LINE_MAX).read_until(b'\n', &mut rest)?;
            ended = read == 0 || rest.last() == Some(&b'\n');
        }
        Ok(true)
    }

    /// The next operation; none at the end.
    pub fn next_event(&mut self) -> io::Result<Option<Event>> {
        while self.line()? {
            let text = String::from_utf8_lossy(&self.buffer);
            let line = text.trim_end_matches(['\r', '\n']);
            let parsed = if self.buffer.len() as u64 == LINE_MAX {
                Parsed::Malformed("it is longer than a line may be")
            } else if line.trim().is_empty() {
                Parsed::Nothing
            } else {
                self.parser.line(line)
            };
            match parsed {
                Parsed::Event(at, mut event) => {
                    let zero = *self.zero_us.get_or_insert(at);
                    // Recordings of several processors are not quite in order.
                    event.at_us = u64::try_from(at.saturating_sub(zero)).unwrap_or(0);
                    if event.path.is_empty() {
                        event.path.push('/');
                    }
                    self.tally.last_us = self.tally.last_us.max(event.at_us);
                    *self.tally.kinds.entry(event.kind).or_default() += 1;
                    return Ok(Some(event));
                }
                Parsed::Other(word) => self.tally.note_other(word),
                Parsed::Nothing => {}
                Parsed::Malformed(why) => self.tally.note_malformed(why, line),
            }
        }
        Ok(None)
    }
}
