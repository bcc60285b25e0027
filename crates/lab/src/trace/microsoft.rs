//! Microsoft's production servers, ETW as CSV: a header with the columns of each event, then rows. Columns
//! are found by their names: newer recordings insert some.
//!
//! A recording with disk events only says which files' bytes moved: those are reads and writes here, and no
//! metadata are asked for.

use super::event::{Event, Kind, Parsed, Parser, client_of};
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Microsoft {
    /// Where in a row of an event the columns are that matter here.
    columns: HashMap<String, Columns>,
    header: Header,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Header {
    #[default]
    Before,
    Within,
    Behind,
}

#[derive(Clone, Copy, Debug)]
struct Columns {
    time: usize,
    process: Option<usize>,
    options: Option<usize>,
    name: Option<usize>,
}

/// Fields between commas, trimmed; those in quotes may have commas.
fn fields(line: &str) -> Vec<&str> {
    let mut fields = Vec::new();
    let (mut begin, mut in_quotes) = (0, false);
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            b'"' => in_quotes = !in_quotes,
            b',' if !in_quotes => {
                fields.push(line[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    fields.push(line[begin..].trim());
    fields
}

fn kind_of(event: &str, options: Option<&str>) -> Option<Kind> {
    Some(match event {
        "FileIoCreate" => created(options),
        "FileIoQueryInfo" => Kind::Lookup,
        "FileIoSetInfo" => Kind::Update,
        "FileIoDelete" => Kind::Remove,
        "FileIoRename" => Kind::Rename,
        "FileIoDirEnum" => Kind::List,
        "FileIoClose" => Kind::Close,
        "FileIoRead" | "DiskRead" => Kind::Read,
        "FileIoWrite" | "DiskWrite" => Kind::Write,
        _ => return None,
    })
}

/// The upper eight bits of the options are the disposition: 0, 2 and 5 may make a file, 1, 3 and 4 use one
/// that is there (3 makes one if there is none; most often there is). The lowest bit asks for a directory.
fn created(options: Option<&str>) -> Kind {
    let digits = options.and_then(|options| options.strip_prefix("0x"));
    let Some(options) = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()) else {
        return Kind::Open;
    };
    match (options >> 24, options & 1) {
        (2, 1) => Kind::MakeDirectory,
        (0 | 2 | 5, _) => Kind::Create,
        _ => Kind::Open,
    }
}

/// `"Disk8:\s0\s1\s2"` as `/Disk8:/s0/s1/s2`.
fn path_of(name: &str) -> Option<String> {
    let name = name.trim_matches('"').trim();
    if name.is_empty() || name.eq_ignore_ascii_case("unknown") {
        return None;
    }
    let parts = name.split(['\\', '/']).filter(|part| !part.is_empty());
    Some(parts.fold(String::new(), |path, part| path + "/" + part)).filter(|path| !path.is_empty())
}

impl Parser for Microsoft {
    fn line(&mut self, line: &str) -> Parsed {
        match (line.trim(), self.header) {
            ("BeginHeader", _) => {
                self.header = Header::Within;
                return Parsed::Nothing;
            }
            ("EndHeader", _) => {
                self.header = Header::Behind;
                return Parsed::Nothing;
            }
            (_, Header::Before) => return Parsed::Malformed("it stands before BeginHeader"),
            _ => {}
        }
        let fields = fields(line);
        let event = fields[0];
        if self.header == Header::Within {
            let at = |name: &str| fields.iter().rposition(|field| field.eq_ignore_ascii_case(name));
            let process = fields.iter().position(|field| field.starts_with("Process Name"));
            if let Some(time) = at("TimeStamp") {
                let columns = Columns { time, process, options: at("Options"), name: at("FileName") };
                self.columns.insert(event.to_owned(), columns);
            }
            return Parsed::Nothing;
        }
        let Some(columns) = self.columns.get(event) else {
            return Parsed::Malformed("the header does not name such an event");
        };
        let field = |column: Option<usize>| column.and_then(|column| fields.get(column)).copied();
        let Some(kind) = kind_of(event, field(columns.options)) else {
            return Parsed::Other(event.to_owned());
        };
        let Some(at) = field(Some(columns.time)).and_then(|time| time.parse::<i64>().ok()) else {
            return Parsed::Malformed("its TimeStamp is no number");
        };
        let Some(path) = field(columns.name).and_then(path_of) else {
            return Parsed::Other(format!("{event}, of no name"));
        };
        let client = client_of(field(columns.process).unwrap_or("").as_bytes());
        // The new name of a rename is not in the row.
        Parsed::Event(at, Event { at_us: 0, client, kind, path, to: None })
    }
}
