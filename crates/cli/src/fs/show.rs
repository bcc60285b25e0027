//! What shows: ls, stat, tree, find, du.

use super::paths::{absolute, joined};
use super::walk::{Event, Order, walk};
use crate::names::{Names, kind_letter, kind_word, lossy, mode_text, shown, time_text};
use crate::voice::counted;
use anyhow::Result;
use bearing_mount::session::{LastLink, Session};
use bearing_mount::{Found, Listed};
use bearing_types::{Attributes, FileType, NodeId};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

const EXAMPLES: &str = "\
Examples:
  bearing fs find / --name '*.log' --larger 1000000
  bearing fs find /home --kind directory --depth 1";

/// `fs find`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct FindFlags {
    /// Where to begin
    #[arg(default_value = "/")]
    pub path: OsString,
    /// Names that fit a pattern: * is anything, ? is any byte
    #[arg(long, value_name = "PATTERN")]
    pub name: Option<OsString>,
    /// Only of this kind
    #[arg(long, value_enum)]
    pub kind: Option<Kind>,
    /// Only files with more bytes
    #[arg(long, value_name = "BYTES")]
    pub larger: Option<u64>,
    /// Only files with fewer bytes
    #[arg(long, value_name = "BYTES")]
    pub smaller: Option<u64>,
    /// At most so many levels
    #[arg(long, value_name = "N")]
    pub depth: Option<u32>,
}

/// A kind of node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

/// `ls`.
pub fn list(session: &Session, path: &OsStr, long: bool, as_json: bool) -> Result<()> {
    let path = absolute(path)?;
    let found = session.find(path, LastLink::Follow)?;
    if !found.attributes.is_directory() {
        return list_one(path, &found, long, as_json);
    }
    let mut entries = session.list(path)?.collect::<Result<Vec<Listed>, _>>()?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    if as_json {
        let entries: Vec<Value> = entries.iter().map(listed_json).collect();
        println!("{}", serde_json::to_string_pretty(&entries)?);
        return Ok(());
    }
    let mut out = io::stdout().lock();
    let names = Names::to(&out);
    for entry in &entries {
        if long {
            let attributes = match entry.attributes {
                Some(attributes) => attributes,
                None => session.find(&joined(path, entry.name.as_bytes()), LastLink::Keep)?.attributes,
            };
            write!(out, "{} ", long_text(&attributes))?;
        }
        out.write_all(&names.written(entry.name.as_bytes()))?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// A walk that begins at the root gives it as the empty path, to which a slash and a name are added.
fn or_root(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"/" } else { path }
}

/// What is no directory is listed by itself, under the path that was given.
fn list_one(path: &[u8], found: &Found, long: bool, as_json: bool) -> Result<()> {
    let Found { node, attributes, .. } = found;
    if as_json {
        let value = entry_json(path, node.node, attributes.file_type, Some(attributes));
        println!("{}", serde_json::to_string_pretty(&[value])?);
        return Ok(());
    }
    let mut out = io::stdout().lock();
    if long {
        write!(out, "{} ", long_text(attributes))?;
    }
    out.write_all(&Names::to(&out).written(path))?;
    Ok(out.write_all(b"\n")?)
}

fn long_text(attributes: &Attributes) -> String {
    format!(
        "{}{} {:>3} {:>5} {:>5} {:>12} {}",
        kind_letter(attributes.file_type),
        mode_text(attributes.mode),
        attributes.links,
        attributes.uid.0,
        attributes.gid.0,
        attributes.size,
        time_text(attributes.modified)
    )
}

fn listed_json(entry: &Listed) -> Value {
    entry_json(entry.name.as_bytes(), entry.node.node, entry.file_type, entry.attributes.as_ref())
}

fn entry_json(name: &[u8], node: NodeId, file_type: FileType, attributes: Option<&Attributes>) -> Value {
    let mut value = json!({ "name": lossy(name), "node": node.0, "type": kind_word(file_type) });
    if let (Some(attributes), Value::Object(fields)) = (attributes, &mut value) {
        fields.insert("size".to_owned(), attributes.size.into());
        fields.insert("mode".to_owned(), format!("{:04o}", attributes.mode.bits()).into());
    }
    value
}

/// `stat`.
pub fn stat(session: &Session, path: &OsStr, as_json: bool) -> Result<()> {
    let Found { node, attributes, .. } = session.find(absolute(path)?, LastLink::Keep)?;
    let seconds = |time: bearing_types::Wall| time.0 as f64 / 1e9;
    if as_json {
        let value = json!({
            "path": lossy(path.as_bytes()),
            "node": node.node.0,
            "type": kind_word(attributes.file_type),
            "mode": format!("{:04o}", attributes.mode.bits()),
            "links": attributes.links,
            "uid": attributes.uid.0,
            "gid": attributes.gid.0,
            "size": attributes.size,
            "space": attributes.space,
            "accessed": seconds(attributes.accessed),
            "modified": seconds(attributes.modified),
            "changed": seconds(attributes.changed),
            "born": seconds(attributes.born),
        });
        println!("{}", serde_json::to_string_pretty(&value)?);
        return Ok(());
    }
    let (path, kind) = (shown(path.as_bytes()), kind_word(attributes.file_type));
    println!("{path}: {kind} (node {}, at home at {})", node.node.0, node.home);
    println!("mode {:04o}, owner {}, group {}", attributes.mode.bits(), attributes.uid.0, attributes.gid.0);
    println!("{} bytes, {} stored, {} links", attributes.size, attributes.space, attributes.links);
    println!("modified {}, changed {}", time_text(attributes.modified), time_text(attributes.changed));
    println!("accessed {}, born {}", time_text(attributes.accessed), time_text(attributes.born));
    Ok(())
}

/// `tree`.
pub fn tree(session: &Session, path: &OsStr, depth_max: Option<u32>, as_json: bool) -> Result<()> {
    let (mut directories, mut others) = (0_u64, 0_u64);
    // Of each directory above, whether further entries of it come after the one that is being shown.
    let mut more: Vec<bool> = Vec::new();
    let mut nested = Nested::default();
    let mut out = io::stdout().lock();
    let names = Names::to(&out);
    walk(session, absolute(path)?, Order::ByName, depth_max, |event| {
        let entry = match event {
            Event::Leave(_) => {
                nested.leave();
                return Ok(());
            }
            Event::Enter(entry) => entry,
        };
        let is_directory = entry.file_type == FileType::Directory;
        *(if is_directory { &mut directories } else { &mut others }) += u64::from(entry.depth > 0);
        if as_json {
            nested.enter(
                entry.depth,
                is_directory,
                json!({ "name": lossy(entry.name()), "type": kind_word(entry.file_type) }),
            );
            return Ok(());
        }
        more.truncate(entry.depth.saturating_sub(1));
        for more in &more {
            out.write_all(if *more { "│   " } else { "    " }.as_bytes())?;
        }
        if entry.depth > 0 {
            out.write_all(if entry.is_last { "└── " } else { "├── " }.as_bytes())?;
            more.push(!entry.is_last);
        }
        out.write_all(&names.written(if entry.depth == 0 { path.as_bytes() } else { entry.name() }))?;
        if is_directory && entry.depth > 0 {
            out.write_all(b"/")?;
        }
        Ok(out.write_all(b"\n")?)
    })?;
    if as_json {
        writeln!(out, "{}", serde_json::to_string_pretty(&nested.whole())?)?;
    } else {
        let directories = counted(directories, "directory", "directories");
        writeln!(out, "\n{directories}, {others} files and others")?;
    }
    Ok(())
}

/// A tree of JSON objects, made in the order of a walk.
#[derive(Default)]
struct Nested {
    open: Vec<Value>,
    whole: Option<Value>,
}

impl Nested {
    fn enter(&mut self, depth: usize, is_directory: bool, mut value: Value) {
        if is_directory {
            value["entries"] = json!([]);
            self.open.push(value);
        } else if depth > 0 {
            self.add(value);
        } else {
            self.whole = Some(value);
        }
    }

    fn leave(&mut self) {
        match self.open.pop() {
            Some(value) if self.open.is_empty() => self.whole = Some(value),
            Some(value) => self.add(value),
            None => {}
        }
    }

    fn add(&mut self, value: Value) {
        if let Some(entries) = self.open.last_mut().and_then(|parent| parent["entries"].as_array_mut()) {
            entries.push(value);
        }
    }

    fn whole(self) -> Value {
        self.whole.unwrap_or(Value::Null)
    }
}

/// `find`.
pub fn find(session: &Session, flags: &FindFlags, as_json: bool) -> Result<()> {
    let mut out = io::stdout().lock();
    let names = Names::to(&out);
    let mut found = Vec::new();
    let needs_size = flags.larger.is_some() || flags.smaller.is_some();
    walk(session, absolute(&flags.path)?, Order::AsListed, flags.depth, |event| {
        let Event::Enter(entry) = event else { return Ok(()) };
        let of_kind = flags.kind.is_none_or(|kind| kind.file_type() == entry.file_type);
        let named = flags.name.as_ref().is_none_or(|pattern| matches(pattern.as_bytes(), entry.name()));
        if !of_kind || !named {
            return Ok(());
        }
        if needs_size {
            let attributes = entry.attributes(session)?;
            let is_regular = attributes.file_type == FileType::Regular;
            let fits = flags.larger.is_none_or(|least| attributes.size > least)
                && flags.smaller.is_none_or(|most| attributes.size < most);
            if !is_regular || !fits {
                return Ok(());
            }
        }
        if as_json {
            found.push(json!({ "path": lossy(or_root(&entry.path)), "type": kind_word(entry.file_type) }));
            return Ok(());
        }
        out.write_all(&names.written(or_root(&entry.path)))?;
        Ok(out.write_all(b"\n")?)
    })?;
    if as_json {
        writeln!(out, "{}", serde_json::to_string_pretty(&found)?)?;
    }
    Ok(())
}

impl Kind {
    fn file_type(self) -> FileType {
        match self {
            Kind::File => FileType::Regular,
            Kind::Directory => FileType::Directory,
            Kind::Symlink => FileType::Symlink,
            Kind::Fifo => FileType::Fifo,
            Kind::Socket => FileType::Socket,
        }
    }
}

/// Whether a name fits a pattern: `*` is any bytes, `?` is one byte, everything else is itself.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut place) = (0, 0);
    // Where the last star was, and up to where it reaches: it takes one byte more whenever what follows does
    // not fit.
    let mut star = None;
    while place < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, place));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[place] => {
                at += 1;
                place += 1;
            }
            _ => match &mut star {
                Some((star, reach)) => {
                    *reach += 1;
                    (at, place) = (*star + 1, *reach);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// What a directory holds, with all below it.
struct Usage {
    path: Vec<u8>,
    parent: Option<usize>,
    files: u64,
    bytes: u64,
    stored: u64,
}

/// `du`.
pub fn usage(session: &Session, path: &OsStr, summary: bool, as_json: bool) -> Result<()> {
    let mut usages: Vec<Usage> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    walk(session, absolute(path)?, Order::AsListed, None, |event| {
        match event {
            Event::Leave(_) => {
                open.pop();
            }
            Event::Enter(entry) => {
                let is_directory = entry.file_type == FileType::Directory;
                if is_directory || open.is_empty() {
                    let (path, parent) = (entry.path.clone(), open.last().copied());
                    usages.push(Usage { path, parent, files: 0, bytes: 0, stored: 0 });
                }
                if is_directory {
                    open.push(usages.len() - 1);
                } else {
                    let attributes = entry.attributes(session)?;
                    let into = open.last().copied().unwrap_or(0);
                    usages[into].files += 1;
                    usages[into].bytes += attributes.size;
                    usages[into].stored += attributes.space;
                }
            }
        }
        Ok(())
    })?;
    // A directory comes before those in it.
    for at in (1..usages.len()).rev() {
        let Usage { parent, files, bytes, stored, .. } = usages[at];
        if let Some(parent) = parent.map(|parent| &mut usages[parent]) {
            parent.files += files;
            parent.bytes += bytes;
            parent.stored += stored;
        }
    }
    if summary {
        usages.truncate(1);
    }
    if as_json {
        let values: Vec<Value> = usages
            .iter()
            .map(|usage| json!({ "path": lossy(or_root(&usage.path)), "files": usage.files, "bytes": usage.bytes, "stored": usage.stored }))
            .collect();
        println!("{}", serde_json::to_string_pretty(&values)?);
        return Ok(());
    }
    let mut out = io::stdout().lock();
    let names = Names::to(&out);
    writeln!(out, "{:>12} {:>12} {:>8}", "bytes", "stored", "files")?;
    for usage in usages.iter().rev() {
        write!(out, "{:>12} {:>12} {:>8} ", usage.bytes, usage.stored, usage.files)?;
        out.write_all(&names.written(or_root(&usage.path)))?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_as_a_shells_do() {
        for (pattern, name) in [
            ("*", ""),
            ("*.rs", "a.rs"),
            ("a*b*c", "aXbbYc"),
            ("?", "x"),
            ("a", "a"),
            ("**", "x"),
            ("*a*", "bab"),
        ] {
            assert!(matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in [("*.rs", "a.rsx"), ("?", ""), ("a*b", "acbd"), ("", "a"), ("a", "A")] {
            assert!(!matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
    }
}
