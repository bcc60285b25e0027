//! Reads a trace, line by line.

use super::event::{Event, Parsed, Parser};
use super::format::Format;
use super::plain::{HEADER, text_of};
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
    /// It is to be a plain trace, and begins with this instead of the header.
    Header(String),
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::Read(error) => write!(f, "it cannot be read: {error}"),
            TraceError::Empty => f.write_str("it is empty"),
            TraceError::Compressed(program) => {
                write!(f, "it is compressed; pipe it in: {program} -dc FILE | bearing lab trace inspect -")
            }
            TraceError::Header(line) => write!(
                f,
                "a plain trace begins with the line {HEADER}, in this order, and this one with {line:?}"
            ),
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
/// What some programs put before text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// So much of a trace is looked at to find out its format.
const HEAD_MAX: u64 = 64 << 10;
/// What is earlier than the first operation by more than this was not recorded in order.
const DISORDER_US: i64 = 1_000_000;
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
        let text = text_of(head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&head));
        let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        let begins = |line: Option<&&str>| line.unwrap_or(&"").chars().take(100).collect();
        let format = format
            .or_else(|| Format::of(&lines))
            .ok_or_else(|| TraceError::Unknown(begins(lines.first())))?;
        let header = lines.iter().find(|line| !line.starts_with('#'));
        if format == Format::Plain && header.is_none_or(|line| *line != HEADER) {
            return Err(TraceError::Header(begins(header)));
        }
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
            let marked = self.tally.lines == 1;
            let bytes = self.buffer.strip_prefix(BYTE_ORDER_MARK).filter(|_| marked).unwrap_or(&self.buffer);
            let text = text_of(bytes);
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
                    self.tally.earlier += u64::from(at.saturating_add(DISORDER_US) < zero);
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
