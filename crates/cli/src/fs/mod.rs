//! `fs`: files of a cluster without mounting it.

use crate::args::{Fs, FsCommand};
use crate::connect;
use crate::failure::Usage;
use crate::names::{kind_letter, kind_word, mode_text, shown, time_text};
use anyhow::{Context, Result, bail};
use bearing_mount::session::{File, LastLink, OpenMode, Session};
use bearing_mount::{Found, Listed};
use bearing_types::{Attributes, Mode};
use serde_json::{Value, json};
use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

/// Bytes copied at a time.
const PART_BYTES: usize = 1 << 20;

/// Runs `fs`.
pub fn run(flags: &Fs) -> Result<()> {
    let mount = connect::connect(&flags.target.cluster, flags.target.secret.as_deref())?;
    let session = connect::session(&mount)?;
    let done = carry_out(&session, &flags.command, flags.target.json);
    let ended = connect::end(&mount);
    done.and(ended)
}

fn carry_out(session: &Session, command: &FsCommand, as_json: bool) -> Result<()> {
    match command {
        FsCommand::Ls { path, long } => list(session, path, *long, as_json),
        FsCommand::Stat { path } => stat(session, path, as_json),
        FsCommand::Mkdir { path, parents } => make_directory(session, path, *parents, as_json),
        FsCommand::Put { source, target } => put(session, source, target, as_json),
        FsCommand::Get { source, target } => get(session, source, target, as_json),
        FsCommand::Cat { paths } => cat(session, paths),
    }
}

fn list(session: &Session, path: &str, long: bool, as_json: bool) -> Result<()> {
    let path = absolute(path)?;
    let found = session.find(path, LastLink::Follow)?;
    let entries: Vec<Listed> = if found.attributes.is_directory() {
        session.list(path)?.collect::<Result<_, _>>()?
    } else {
        bail!("{} is no directory; use `bearing fs stat`", shown(path));
    };
    if as_json {
        let entries: Vec<Value> = entries.iter().map(listed_json).collect();
        println!("{}", serde_json::to_string_pretty(&entries)?);
        return Ok(());
    }
    let mut out = io::stdout().lock();
    for entry in &entries {
        if long {
            let attributes = match entry.attributes {
                Some(attributes) => attributes,
                None => session.find(&joined(path, entry.name.as_bytes()), LastLink::Keep)?.attributes,
            };
            write!(out, "{} ", long_text(&attributes))?;
        }
        out.write_all(entry.name.as_bytes())?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    [directory, b"/", name].concat()
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
    let mut value = json!({
        "name": entry.name.to_string(),
        "node": entry.node.node.0,
        "type": kind_word(entry.file_type),
    });
    if let (Some(attributes), Value::Object(fields)) = (&entry.attributes, &mut value) {
        fields.insert("size".to_owned(), attributes.size.into());
        fields.insert("mode".to_owned(), format!("{:04o}", attributes.mode.bits()).into());
    }
    value
}

fn stat(session: &Session, path: &str, as_json: bool) -> Result<()> {
    let Found { node, attributes, .. } = session.find(absolute(path)?, LastLink::Keep)?;
    let seconds = |time: bearing_types::Wall| time.0 as f64 / 1e9;
    if as_json {
        let value = json!({
            "path": path,
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
    println!("{path}: {} (node {}, at home at {})", kind_word(attributes.file_type), node.node.0, node.home);
    println!("mode {:04o}, owner {}, group {}", attributes.mode.bits(), attributes.uid.0, attributes.gid.0);
    println!("{} bytes, {} stored, {} links", attributes.size, attributes.space, attributes.links);
    println!("modified {}, changed {}", time_text(attributes.modified), time_text(attributes.changed));
    println!("accessed {}, born {}", time_text(attributes.accessed), time_text(attributes.born));
    Ok(())
}

fn make_directory(session: &Session, path: &str, parents: bool, as_json: bool) -> Result<()> {
    let (path, mode) = (absolute(path)?, masked(0o777));
    if parents {
        session.make_directories(path, mode)?;
    } else {
        session.make_directory(path, mode)?;
    }
    if as_json {
        println!("{}", json!({ "path": shown(path) }));
    }
    Ok(())
}

fn put(session: &Session, source: &Path, target: &str, as_json: bool) -> Result<()> {
    let (mut input, mode): (Box<dyn Read>, Mode) = if source == Path::new("-") {
        (Box::new(io::stdin()), masked(0o666))
    } else {
        let file = fs::File::open(source).with_context(|| format!("open {}", source.display()))?;
        let metadata = file.metadata().with_context(|| format!("look at {}", source.display()))?;
        if metadata.is_dir() {
            bail!("{} is a directory; mount the cluster and use cp -a", source.display());
        }
        (Box::new(file), masked(std::os::unix::fs::MetadataExt::mode(&metadata)))
    };
    let file = session.open(absolute(target)?, OpenMode::Replace(mode))?;
    let bytes = store(&mut input, &file).with_context(|| format!("store {}", source.display()))?;
    file.sync()?;
    file.close()?;
    if as_json {
        println!("{}", json!({ "path": target, "bytes": bytes }));
    }
    Ok(())
}

fn store(input: &mut dyn Read, file: &File) -> Result<u64> {
    let mut buffer = vec![0; PART_BYTES];
    let mut offset = 0;
    loop {
        let length = input.read(&mut buffer)?;
        if length == 0 {
            return Ok(offset);
        }
        file.write_at(offset, &buffer[..length])?;
        offset += length as u64;
    }
}

fn get(session: &Session, source: &str, target: &Path, as_json: bool) -> Result<()> {
    let file = session.open(absolute(source)?, OpenMode::Read)?;
    let mut output = fs::File::create(target).with_context(|| format!("create {}", target.display()))?;
    let bytes = fetch(&file, &mut output).with_context(|| format!("fetch {source}"))?;
    file.close()?;
    if as_json {
        println!("{}", json!({ "path": target.display().to_string(), "bytes": bytes }));
    }
    Ok(())
}

fn cat(session: &Session, paths: &[String]) -> Result<()> {
    let mut output = io::stdout().lock();
    for path in paths {
        let file = session.open(absolute(path)?, OpenMode::Read)?;
        fetch(&file, &mut output).with_context(|| format!("print {path}"))?;
        file.close()?;
    }
    Ok(output.flush()?)
}

fn fetch(file: &File, output: &mut dyn Write) -> Result<u64> {
    let mut offset = 0;
    loop {
        let part = file.read_at(offset, PART_BYTES as u32)?;
        if part.is_empty() {
            return Ok(offset);
        }
        output.write_all(&part)?;
        offset += part.len() as u64;
    }
}

/// Paths in the cluster begin at its root: there is no working directory to begin at.
fn absolute(path: &str) -> Result<&[u8]> {
    if path.starts_with('/') {
        Ok(path.as_bytes())
    } else {
        bail!(Usage(format!("{path}: a path in the cluster begins with /, like /{path}")))
    }
}

/// Permission bits less this process's umask.
fn masked(bits: u32) -> Mode {
    // SAFETY: umask only swaps a number; it is put back at once, and no other thread makes files here.
    let mask = unsafe {
        let mask = libc::umask(0o077);
        libc::umask(mask);
        mask
    };
    Mode::new(bits & 0o7777 & !mask)
}
