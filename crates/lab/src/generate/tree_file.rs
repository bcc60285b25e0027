//! Shapes of trees as text: see `docs/formats/tree.md`.

use super::shape::{DirectoryNumber, Shape, ShapeBuilder, ShapeError};
use std::fmt;
use std::io::{self, BufRead, Read, Write};

/// The version that is written, and the newest that is read.
const VERSION: u32 = 1;
/// The first line, before the version.
const MAGIC: &str = "bearing-tree,";
/// The second line.
const FIELDS: &str = "parent,files";
/// A longer line is none.
const LINE_MAX: u64 = 4096;

/// Why a tree file cannot be read.
#[derive(Debug)]
pub enum TreeFileError {
    /// Reading failed.
    Read(io::Error),
    /// It is none: the first line is another one.
    NoTree,
    /// It is of this newer version.
    Newer(u32),
    /// A line is wrong.
    Malformed {
        /// Its number, from 1.
        line: u64,
        /// Why.
        why: String,
    },
}

impl fmt::Display for TreeFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TreeFileError::Read(error) => write!(f, "it cannot be read: {error}"),
            TreeFileError::NoTree => {
                write!(
                    f,
                    "it is no tree file: the first line is not {MAGIC}{VERSION}; make one with lab trace scan"
                )
            }
            TreeFileError::Newer(version) => {
                write!(
                    f,
                    "it is of version {version}, this program reads up to {VERSION}; use a newer program"
                )
            }
            TreeFileError::Malformed { line, why } => write!(f, "line {line}: {why}"),
        }
    }
}

impl std::error::Error for TreeFileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TreeFileError::Read(error) => Some(error),
            TreeFileError::NoTree | TreeFileError::Newer(_) | TreeFileError::Malformed { .. } => None,
        }
    }
}

/// Writes a shape.
pub fn write_tree(shape: &Shape, mut output: impl Write) -> io::Result<()> {
    writeln!(output, "{MAGIC}{VERSION}\n{FIELDS}")?;
    for (number, (parent, files)) in shape.iter().enumerate() {
        match number {
            0 => writeln!(output, "-,{files}")?,
            _ => writeln!(output, "{},{files}", parent.0)?,
        }
    }
    output.flush()
}

/// Lines with their numbers, one after the other.
struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    /// The next line without its end that is no comment; none at the end.
    fn next(&mut self) -> Result<Option<&str>, TreeFileError> {
        loop {
            self.buffer.clear();
            let mut limited = (&mut self.input).take(LINE_MAX);
            if limited.read_until(b'\n', &mut self.buffer).map_err(TreeFileError::Read)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.buffer.len() as u64 == LINE_MAX {
                return Err(self.malformed("it is longer than a line may be"));
            }
            if self.buffer.first() != Some(&b'#') {
                break;
            }
        }
        match std::str::from_utf8(&self.buffer) {
            Ok(line) => Ok(Some(line.trim_end_matches(['\r', '\n']))),
            Err(_) => Err(TreeFileError::Malformed { line: self.number, why: "it is no text".to_owned() }),
        }
    }

    fn malformed(&self, why: impl fmt::Display) -> TreeFileError {
        TreeFileError::Malformed { line: self.number, why: why.to_string() }
    }
}

/// Reads a shape.
pub fn read_tree(input: impl BufRead) -> Result<Shape, TreeFileError> {
    let mut lines = Lines { input, buffer: Vec::new(), number: 0 };
    let version = match lines.next() {
        Ok(first) => first.and_then(|line| line.strip_prefix(MAGIC)).and_then(|version| version.parse().ok()),
        // Bytes of something else are no line that was meant to be one.
        Err(TreeFileError::Malformed { .. }) => None,
        Err(error) => return Err(error),
    };
    match version {
        None | Some(0) => return Err(TreeFileError::NoTree),
        Some(VERSION) => {}
        Some(newer) => return Err(TreeFileError::Newer(newer)),
    }
    if lines.next()? != Some(FIELDS) {
        return Err(lines.malformed(format_args!("it is not {FIELDS}")));
    }
    let mut builder = ShapeBuilder::default();
    let mut rooted = false;
    while let Some(line) = lines.next()? {
        let added = add(&mut builder, line, std::mem::replace(&mut rooted, true));
        added.map_err(|why| lines.malformed(why))?;
    }
    match rooted {
        true => Ok(builder.finish()),
        false => Err(lines.malformed("the root's line has to follow")),
    }
}

/// Adds the directory of a line. The first one is the root.
fn add(builder: &mut ShapeBuilder, line: &str, rooted: bool) -> Result<(), String> {
    let (parent, files) = line.split_once(',').ok_or("it is not parent,files")?;
    let files = files.parse().map_err(|_| format!("files is {files:?}, no number below 2^32"))?;
    let number = match (rooted, parent) {
        (false, "-") => ShapeBuilder::ROOT,
        (false, _) => return Err(format!("the first directory is the root: parent is {parent:?}, not -")),
        (true, _) => {
            let parent =
                parent.parse().map_err(|_| format!("parent is {parent:?}, no directory's number"))?;
            builder.directory(DirectoryNumber(parent)).map_err(|error: ShapeError| error.to_string())?
        }
    };
    builder.files(number, files).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shape(directories: &[(u32, u32)]) -> Shape {
        let mut builder = ShapeBuilder::default();
        for (number, (parent, files)) in (1..).zip(directories) {
            let added = builder.directory(DirectoryNumber(parent % number)).expect("shallow");
            builder.files(added, *files).expect("few");
        }
        builder.finish()
    }

    #[test]
    fn a_shape_has_this_text() {
        let mut text = Vec::new();
        write_tree(&shape(&[(0, 2), (1, 0), (0, 7)]), &mut text).expect("memory takes all");
        assert_eq!(text, b"bearing-tree,1\nparent,files\n-,0\n0,2\n1,0\n0,7\n");
        let commented = b"bearing-tree,1\r\nparent,files\r\n# a comment\n-,0\n0,2\n1,0\n0,7";
        assert_eq!(read_tree(&commented[..]).expect("well formed"), shape(&[(0, 2), (1, 0), (0, 7)]));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let said = |text: &str| read_tree(text.as_bytes()).expect_err("it is wrong").to_string();
        for none in ["", "time_us,client", "bearing-tree,x\n", "bearing-tree,0\n"] {
            assert!(said(none).starts_with("it is no tree file"), "{none}");
        }
        assert_eq!(
            said("bearing-tree,2\n"),
            "it is of version 2, this program reads up to 1; use a newer program"
        );
        let body = |lines: &str| said(&format!("bearing-tree,1\nparent,files\n{lines}"));
        assert_eq!(said("bearing-tree,1\nfiles\n"), "line 2: it is not parent,files");
        assert_eq!(body(""), "line 2: the root's line has to follow");
        assert_eq!(body("0,1\n"), "line 3: the first directory is the root: parent is \"0\", not -");
        assert_eq!(body("-,1\n#\n1,1\n"), "line 5: the directory that it lies in is not known yet");
        assert_eq!(body("-,1\n0,-1\n"), "line 4: files is \"-1\", no number below 2^32");
        assert_eq!(body("-,1\n-,1\n"), "line 4: parent is \"-\", no directory's number");
        assert_eq!(body("-,1\n\n"), "line 4: it is not parent,files");
        assert_eq!(body("-,4294967295\n"), "line 3: there are more than 1073741824 files");
        assert_eq!(body(&"1".repeat(5000)), "line 3: it is longer than a line may be");
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(directories in prop::collection::vec((any::<u32>(), 0..1000u32), 0..60)) {
            let shape = shape(&directories);
            let mut text = Vec::new();
            write_tree(&shape, &mut text).expect("memory takes all");
            prop_assert_eq!(read_tree(&text[..]).expect("well formed"), shape);
        }

        #[test]
        fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = read_tree(&bytes[..]);
            let body = [b"bearing-tree,1\nparent,files\n-,1\n", &bytes[..]].concat();
            let _ = read_tree(&body[..]);
        }
    }
}
