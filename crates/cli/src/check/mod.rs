//! `check`: walks all names as fsck does, through an ordinary client session, and has the copies of tablets
//! compared (see `copies`).
//!
//! What holds: every name leads to a node of the kind it says; a node has as many names as its link count
//! says; a directory has one name, knows its parent, and counts its child directories; a file's stored bytes
//! lie within its size, in chunks that the records know and that their servers hold (see `chunks`). Changes
//! by others while it runs can look like problems; what is in doubt is looked at again before it is reported.

mod chunks;
mod copies;

use crate::connect;
use crate::names::{kind_word, shown};
use crate::target::Target;
use crate::voice::counted;
use anyhow::{Result, bail};
use bearing_mount::session::{OpenMode, Session};
use bearing_mount::{Answer, Caller, CheckDepth, Detail, Found, Handle, Listed, Operation};
use bearing_server::cluster::Layout;
use bearing_types::{Code, Cookie, Credentials, FileType, NodeId, Outcome};
use chunks::Chunks;
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  bearing check                                  names, nodes, sizes, copies of metadata
  bearing check --read                           and every byte, once
  bearing check --verify --json                  and every copy of every byte";

/// `check`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Check {
    /// The cluster.
    #[command(flatten)]
    pub target: Target,
    /// Also read every file to its end, each byte from one of its replicas
    #[arg(long)]
    pub read: bool,
    /// Also have every data server read all its replicas, as fast as it looks for damage by itself
    /// (`scrub_bytes_per_second`)
    #[arg(long)]
    pub verify: bool,
}

/// Entries looked at together.
const BATCH: u32 = 512;
/// Problems printed; all are counted.
const SHOWN_MAX: usize = 100;
/// Bytes read at a time.
const PART_BYTES: u32 = 1 << 20;

/// What was seen.
#[derive(Debug, Default, Serialize)]
struct Counts {
    directories: u64,
    files: u64,
    symlinks: u64,
    others: u64,
    names: u64,
    bytes: u64,
    bytes_read: u64,
    problems: u64,
    /// What is not as it should be and is mended by the servers themselves.
    mending: u64,
    #[serde(flatten)]
    chunks: chunks::Counts,
    #[serde(flatten)]
    copies: copies::Counts,
}

#[derive(Debug, Serialize)]
struct View<'a> {
    #[serde(flatten)]
    counts: &'a Counts,
    shown: &'a [String],
}

/// Runs `check`.
pub fn run(flags: &Check) -> Result<()> {
    let mount = connect::connect(&flags.target.cluster, flags.target.secret.as_deref())?;
    let caller: Arc<dyn Caller> = mount.clone();
    let session = Session::new(caller.clone(), Credentials::ROOT)?;
    let depth = if flags.verify { CheckDepth::Read } else { CheckDepth::Held };
    let mut checker = Checker::new(&*caller, flags.read.then_some(&session), depth);
    let walked = checker.walk();
    let ended = connect::end(&mount);
    walked?;
    ended?;
    checker.copies(copies::compare(connect::directory(&flags.target.cluster).map(Layout::new))?);
    print(&checker, flags)?;
    match checker.counts.problems {
        0 => Ok(()),
        problems => bail!("{} found", counted(problems, "problem", "problems")),
    }
}

fn print(checker: &Checker, flags: &Check) -> Result<()> {
    let Checker { counts, problems, .. } = checker;
    if flags.target.json {
        println!("{}", serde_json::to_string_pretty(&View { counts, shown: problems })?);
        return Ok(());
    }
    for problem in problems {
        println!("{problem}");
    }
    let all = counts.problems + counts.mending;
    if all as usize > problems.len() {
        println!("... and {} more", all as usize - problems.len());
    }
    println!(
        "{}, {} ({} bytes), {}, {}, {}; {}",
        counted(counts.directories, "directory", "directories"),
        counted(counts.files, "file", "files"),
        counts.bytes,
        counted(counts.symlinks, "symbolic link", "symbolic links"),
        counted(counts.others, "other", "others"),
        counted(counts.names, "name", "names"),
        counted(counts.problems, "problem", "problems")
    );
    let chunks = &counts.chunks;
    let held = if flags.verify {
        "were read by their servers and fit their checksums"
    } else {
        "are held by their servers"
    };
    let open = match chunks.open {
        0 => String::new(),
        open => format!(", {open} of them open yet (their replicas are looked at once they are sealed)"),
    };
    println!(
        "{}{open}; sealed: {} bytes, {} of them no file's; {} replicas {held}",
        counted(chunks.chunks, "chunk", "chunks"),
        chunks.chunk_bytes,
        chunks.unreferred_bytes + chunks.slack_bytes,
        chunks.replicas
    );
    print_copies(&counts.copies);
    if counts.mending > 0 || chunks.copies_lacking > 0 {
        println!(
            "{} replicas are bad, {} copies are lacking: they are made again by themselves, see `bearing status`",
            chunks.replicas_bad, chunks.copies_lacking
        );
    }
    if chunks.unreferred > 0 {
        println!(
            "{} chunks ({} bytes) hold nothing that a name leads to: they are removed by themselves, unless somebody still has a removed file open",
            chunks.unreferred, chunks.unreferred_bytes
        );
    }
    if counts.bytes_read > 0 {
        println!("{} bytes were read and fit their checksums", counts.bytes_read);
    }
    Ok(())
}

fn print_copies(copies: &copies::Counts) {
    if let Some(why) = &copies.copies_not_looked_at {
        return println!("copies of metadata were not compared: {why}");
    }
    let copies::Counts { tablets_compared, tablet_copies_compared, records_compared, .. } = copies;
    let differing = match copies.tablets_differing {
        0 => "the same".to_owned(),
        1 => "the same but for 1 tablet".to_owned(),
        differing => format!("the same but for {differing} tablets"),
    };
    if *tablets_compared > 0 {
        println!(
            "{tablet_copies_compared} copies of {} ({records_compared} records) are {differing}",
            counted(*tablets_compared, "tablet", "tablets")
        );
    }
    if copies.tablets_alone > 0 {
        println!("{} tablets have one copy only", copies.tablets_alone);
    }
}

/// A directory to be walked.
struct Pending {
    directory: Handle,
    parent: Handle,
    path: Vec<u8>,
}

/// Names of a node that is no directory.
struct Names {
    node: Handle,
    seen: u32,
    links: u32,
    /// The first of its names.
    path: Vec<u8>,
}

struct Checker<'a> {
    caller: &'a dyn Caller,
    reader: Option<&'a Session>,
    counts: Counts,
    problems: Vec<String>,
    pending: Vec<Pending>,
    directories: BTreeMap<NodeId, Vec<u8>>,
    linked: BTreeMap<NodeId, Names>,
    chunks: Chunks<'a>,
}

impl<'a> Checker<'a> {
    fn new(caller: &'a dyn Caller, reader: Option<&'a Session>, depth: CheckDepth) -> Checker<'a> {
        Checker {
            caller,
            reader,
            counts: Counts::default(),
            problems: Vec::new(),
            pending: Vec::new(),
            directories: BTreeMap::new(),
            linked: BTreeMap::new(),
            chunks: Chunks::new(caller, depth),
        }
    }

    fn walk(&mut self) -> Result<()> {
        let root = self.caller.found(Operation::Root)?.node;
        self.pending.push(Pending { directory: root, parent: root, path: Vec::new() });
        self.directories.insert(root.node, Vec::new());
        while let Some(pending) = self.pending.pop() {
            self.directory(&pending)?;
        }
        self.compare_links();
        self.chunks.look()?;
        for finding in std::mem::take(&mut self.chunks.findings) {
            self.counts.mending += u64::from(finding.mends);
            self.counts.problems += u64::from(!finding.mends);
            self.show(format!("{}: {}", finding.place, finding.what));
        }
        self.counts.chunks = std::mem::take(&mut self.chunks.counts);
        Ok(())
    }

    fn copies(&mut self, compared: copies::Copies) {
        for (tablet, what) in compared.findings {
            self.counts.problems += 1;
            self.show(format!("tablet {tablet}: {what}"));
        }
        self.counts.copies = compared.counts;
    }

    fn show(&mut self, problem: String) {
        if self.problems.len() < SHOWN_MAX {
            self.problems.push(problem);
        }
    }

    fn problem(&mut self, path: &[u8], what: &str) {
        self.counts.problems += 1;
        let path = if path.is_empty() { "/".to_owned() } else { shown(path) };
        self.show(format!("{path}: {what}"));
    }

    fn directory(&mut self, pending: &Pending) -> Result<()> {
        self.counts.directories += 1;
        self.check_parent(pending)?;
        let mut children = 0;
        let mut after = Cookie::START;
        loop {
            let entries = match self.caller.listed(Operation::List {
                directory: pending.directory,
                who: Credentials::ROOT,
                after,
                count_max: BATCH,
                detail: Detail::Attributes,
            }) {
                Ok(entries) => entries,
                Err(Code::NotFound | Code::Stale) if self.is_gone(pending) => return Ok(()),
                Err(code) => {
                    self.not_fatal(code)?;
                    self.problem(&pending.path, &format!("cannot be listed: {code}"));
                    return Ok(());
                }
            };
            let Some(last) = entries.last() else { break };
            after = last.cookie;
            children += self.entries(pending, &entries)?;
        }
        self.check_children(pending, children)
    }

    /// What ends the walk instead of being a problem of one name.
    fn not_fatal(&self, code: Code) -> Result<()> {
        match code {
            Code::Unreachable | Code::SessionEnded | Code::Unauthenticated => Err(code.into()),
            _ => Ok(()),
        }
    }

    fn check_parent(&mut self, pending: &Pending) -> Result<()> {
        match self.caller.found(Operation::Parent { directory: pending.directory }) {
            Ok(Found { node, .. }) if node == pending.parent => {}
            Ok(Found { node, .. }) => {
                if !self.is_gone(pending) {
                    let known =
                        self.directories.get(&node.node).map_or("unknown".to_owned(), |path| shown(path));
                    self.problem(
                        &pending.path,
                        &format!("says that its parent is node {} ({known})", node.node),
                    );
                }
            }
            Err(code) => self.not_fatal(code)?,
        }
        Ok(())
    }

    /// Whether the directory was moved or removed since it was listed.
    fn is_gone(&self, pending: &Pending) -> bool {
        let Some(name) = pending.path.rsplit(|byte| *byte == b'/').next().filter(|name| !name.is_empty())
        else {
            return false;
        };
        self.lookup(pending.parent, name) != Ok(pending.directory)
    }

    fn lookup(&self, directory: Handle, name: &[u8]) -> Outcome<Handle> {
        let name = bearing_types::Name::new(name)?;
        Ok(self.caller.found(Operation::Lookup { directory, name, who: Credentials::ROOT })?.node)
    }

    fn check_children(&mut self, pending: &Pending, children: u32) -> Result<()> {
        let attributes = Operation::Attributes { node: pending.directory, file_type: FileType::Directory };
        match self.caller.found(attributes) {
            Ok(Found { attributes, .. }) if attributes.links == 2 + children => {}
            Ok(Found { attributes, .. }) => {
                let what =
                    format!("has {children} child directories, but a link count of {}", attributes.links);
                self.problem(&pending.path, &what);
            }
            Err(code) => {
                self.not_fatal(code)?;
                if !self.is_gone(pending) {
                    self.problem(&pending.path, &format!("its attributes cannot be read: {code}"));
                }
            }
        }
        Ok(())
    }

    /// Looks at the nodes of some entries; says how many are directories.
    fn entries(&mut self, pending: &Pending, entries: &[Listed]) -> Result<u32> {
        let attributes =
            |entry: &Listed| Operation::Attributes { node: entry.node, file_type: entry.file_type };
        let answers = self.caller.call_all(entries.iter().map(attributes).collect());
        let (mut directories, mut stored) = (0, Vec::new());
        for (entry, answer) in entries.iter().zip(answers) {
            self.counts.names += 1;
            let path = [&pending.path[..], b"/", entry.name.as_bytes()].concat();
            match answer {
                Ok(Answer::Found(found)) => {
                    let first_name = !self.linked.contains_key(&entry.node.node);
                    let stores =
                        found.attributes.file_type == FileType::Regular && found.attributes.space > 0;
                    if stores && first_name {
                        stored.push((entry.node, path.clone()));
                    }
                    self.entry(pending, entry, &found, path)?;
                }
                Ok(other) => bail!("the client answered {other:?} to a question for attributes"),
                Err(code) => {
                    self.not_fatal(code)?;
                    if self.lookup(pending.directory, entry.name.as_bytes()) == Ok(entry.node) {
                        self.problem(
                            &path,
                            &format!("leads to node {}, which cannot be read: {code}", entry.node.node),
                        );
                    }
                }
            }
            directories += u32::from(entry.file_type == FileType::Directory);
        }
        for failed in self.chunks.files(&stored)? {
            let (node, path) = &stored[failed];
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            if self.lookup(pending.directory, name) == Ok(*node) {
                self.problem(path, "where its bytes lie cannot be read");
            }
        }
        Ok(directories)
    }

    fn entry(&mut self, pending: &Pending, entry: &Listed, found: &Found, path: Vec<u8>) -> Result<()> {
        let attributes = &found.attributes;
        if attributes.file_type != entry.file_type {
            let (name_says, node_is) = (kind_word(entry.file_type), kind_word(attributes.file_type));
            self.problem(&path, &format!("its name says {name_says}, its node is a {node_is}"));
        }
        match attributes.file_type {
            FileType::Directory => self.child(pending, entry.node, path),
            FileType::Regular => {
                self.counts.files += 1;
                self.counts.bytes += attributes.size;
                if attributes.space > attributes.size {
                    let what =
                        format!("{} bytes are stored for a size of {}", attributes.space, attributes.size);
                    self.problem(&path, &what);
                }
                self.read(&path, attributes.size)?;
                self.name_of(entry.node, attributes.links, path);
            }
            FileType::Symlink => {
                self.counts.symlinks += 1;
                self.name_of(entry.node, attributes.links, path);
            }
            FileType::Fifo | FileType::Socket | FileType::CharDevice | FileType::BlockDevice => {
                self.counts.others += 1;
                self.name_of(entry.node, attributes.links, path);
            }
        }
        Ok(())
    }

    fn child(&mut self, pending: &Pending, directory: Handle, path: Vec<u8>) {
        if let Some(other) = self.directories.get(&directory.node) {
            let what = format!("is a second name of the directory {}", shown(other));
            self.problem(&path, &what);
            return;
        }
        self.directories.insert(directory.node, path.clone());
        self.pending.push(Pending { directory, parent: pending.directory, path });
    }

    fn name_of(&mut self, node: Handle, links: u32, path: Vec<u8>) {
        let names = self.linked.entry(node.node).or_insert(Names { node, seen: 0, links, path });
        names.seen += 1;
        names.links = links;
    }

    fn read(&mut self, path: &[u8], size: u64) -> Result<()> {
        let Some(session) = self.reader else { return Ok(()) };
        let read = || {
            let file = session.open(path, OpenMode::Read)?;
            let mut offset = 0;
            loop {
                let part = file.read_at(offset, PART_BYTES)?;
                if part.is_empty() {
                    file.close()?;
                    return Ok::<u64, bearing_mount::session::PathError>(offset);
                }
                offset += part.len() as u64;
            }
        };
        match read() {
            Ok(bytes) => {
                self.counts.bytes_read += bytes;
                if bytes != size {
                    self.problem(path, &format!("{bytes} bytes can be read of a size of {size}"));
                }
            }
            Err(error) => self.problem(path, &format!("cannot be read: {error}")),
        }
        Ok(())
    }

    fn compare_links(&mut self) {
        let linked = std::mem::take(&mut self.linked);
        for names in linked.into_values().filter(|names| names.seen != names.links) {
            // Somebody may have linked or unlinked it while the walk went on.
            let attributes = Operation::Attributes { node: names.node, file_type: FileType::Regular };
            let links = self.caller.found(attributes).map_or(0, |found| found.attributes.links);
            if links != names.seen {
                self.problem(&names.path, &format!("has {} names, but a link count of {links}", names.seen));
            }
        }
    }
}
