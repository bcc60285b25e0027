//! `recover`: checkpoints of metadata, and what is made of them when all metadata servers have lost theirs.

use crate::ask;
use crate::failure::Usage;
use crate::tablets::view;
use crate::target::Directory;
use crate::voice::{complain, say};
use anyhow::{Context, Result, bail};
use bearing_env::Clock;
use bearing_meta::recovery::{Found, Lost, Path as FoundPath, Report};
use bearing_proto::coordinator::AskCall;
use bearing_proto::tablets::{CheckpointView, TabletRole, TabletsView};
use bearing_server::cluster::{Cluster, Layout};
use bearing_server::recover::{Recovery, scan};
use bearing_types::{LogIndex, NodeId, TabletSerial};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::Duration;

/// `recover`.
#[derive(Debug, Subcommand)]
pub enum RecoverCommand {
    /// Store checkpoints of all metadata now, and wait until data servers have them
    #[command(after_help = CHECKPOINT_HELP)]
    Checkpoint(Checkpoint),
    /// Write down what the data servers of this host hold, for a recovery on another host
    #[command(after_help = SCAN_HELP)]
    Scan(Scan),
    /// Make all metadata anew of what data servers hold
    #[command(after_help = METADATA_HELP)]
    Metadata(Metadata),
}

const CHECKPOINT_HELP: &str = "\
Metadata servers store checkpoints by themselves: of whatever has changed, every five
minutes. This is for before something risky.

Examples:
  bearing recover checkpoint
  bearing recover checkpoint --dir /srv/b";

const SCAN_HELP: &str = "\
The cluster has to be stopped. The file has names of files and, of checkpoints, all
metadata: keep it as you keep the cluster's directory.

Example:
  bearing recover scan --dir /srv/b --to /tmp/host2.scan";

const METADATA_HELP: &str = "\
For when the disks of all metadata servers are lost and those of data servers are not:
with one metadata server left, `bearing up` is all that is needed. The cluster has to be
stopped; run this where the coordinator and a metadata server lie. That server gets all
metadata, and others get copies when the cluster is up again.

What is older than the last checkpoint comes back as it was: names, links, attributes,
access lists, quotas. What was written later comes back as far as its bytes are stable:
files under the last name that their writer knew, and without what has no bytes (empty
files, directories, links, attributes, removals). Locks and sessions are over: unmount all
clients first.

Examples:
  bearing recover metadata --dry-run            says what would come back, and what not;
                                                also of a cluster that has lost nothing
  bearing recover metadata
  bearing recover metadata --scan host2.scan --scan host3.scan --without data-4";

/// `recover checkpoint`.
#[derive(Args, Clone, Debug)]
pub struct Checkpoint {
    /// Where the cluster lies.
    #[command(flatten)]
    pub directory: Directory,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `recover scan`.
#[derive(Args, Clone, Debug)]
pub struct Scan {
    /// Where the cluster lies.
    #[command(flatten)]
    pub directory: Directory,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
}

/// `recover metadata`.
#[derive(Args, Clone, Debug)]
pub struct Metadata {
    /// Where the cluster lies.
    #[command(flatten)]
    pub directory: Directory,
    /// What `bearing recover scan` wrote on another host; may be given more than once
    #[arg(long, value_name = "FILE")]
    pub scan: Vec<PathBuf>,
    /// A server whose disk is lost, such as data-3; may be given more than once
    #[arg(long, value_name = "SERVER")]
    pub without: Vec<String>,
    /// Only say what would come back
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON, with all that is not what it was
    #[arg(long)]
    pub json: bool,
}

/// A metadata server answers within this time or not at all.
const ANSWER_PATIENCE: Duration = Duration::from_secs(3);
/// Between two looks at how far checkpoints are.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// Checkpoints that do not get on for so long are given up.
const STUCK_AFTER: Duration = Duration::from_secs(60);
/// So many lines are printed of each list: JSON has them all.
const LINES_MAX: usize = 20;

/// Runs `recover`.
pub fn run(command: &RecoverCommand) -> Result<()> {
    match command {
        RecoverCommand::Checkpoint(flags) => checkpoint(flags),
        RecoverCommand::Scan(flags) => write_scan(flags),
        RecoverCommand::Metadata(flags) => metadata(flags),
    }
}

// --- checkpoints ---

#[derive(Serialize)]
struct Stored {
    tablets: usize,
    took_ms: u64,
}

fn checkpoint(flags: &Checkpoint) -> Result<()> {
    let layout = flags.directory.layout()?;
    let cluster = ask::current(&layout, &Cluster::read(&layout.cluster_file())?, ANSWER_PATIENCE);
    let began = Clock.mono();
    let count = ask::tablets(&layout, &cluster, ANSWER_PATIENCE)?.1.len();
    // As of what they had when they were asked.
    let asked = owned(&layout, &cluster, &AskCall::Checkpoint);
    let wanted: BTreeMap<TabletSerial, LogIndex> =
        asked.into_iter().map(|(serial, committed, _)| (serial, committed)).collect();
    let (mut stored, mut news) = (0, Clock.mono());
    loop {
        let now = owned(&layout, &cluster, &AskCall::Tablets).into_iter();
        let is_done = |(serial, _, stored): &(TabletSerial, LogIndex, Option<CheckpointView>)| {
            let wanted = wanted.get(serial).copied().unwrap_or(LogIndex::ZERO);
            stored.is_some_and(|stored| stored.index >= wanted)
        };
        let done = now.filter(is_done).count();
        if done > stored {
            (stored, news) = (done, Clock.mono());
        }
        if stored == count {
            break;
        }
        if Clock.mono().since(news) >= STUCK_AFTER {
            bail!(
                "checkpoints of {stored} of {count} tablets are stored, and for {} s no further one was; do data servers have room? (bearing status)",
                STUCK_AFTER.as_secs()
            );
        }
        std::thread::sleep(LOOK_PAUSE);
    }
    let took_ms = Clock.mono().since(began).as_millis() as u64;
    match flags.json {
        true => say!("{}", serde_json::to_string(&Stored { tablets: stored, took_ms })?)?,
        false => say!("checkpoints of all {stored} tablets are stored ({took_ms} ms)")?,
    }
    Ok(())
}

/// Each tablet, up to where all is committed, and its newest checkpoint, as far as owners answer.
fn owned(
    layout: &Layout,
    cluster: &Cluster,
    call: &AskCall,
) -> Vec<(TabletSerial, LogIndex, Option<CheckpointView>)> {
    let told = ask::each(layout, &cluster.metadata_addresses(), call, ANSWER_PATIENCE);
    let views: Vec<TabletsView> = told.into_iter().filter_map(|told| told.and_then(view).ok()).collect();
    let tablets = views.into_iter().flat_map(|view| view.tablets);
    let owned = tablets.filter_map(|tablet| match tablet.role {
        TabletRole::Owner(owner) => Some((tablet.serial, tablet.committed, owner.checkpoint)),
        TabletRole::Copy { .. } => None,
    });
    owned.collect()
}

// --- recovery ---

fn scan_here(layout: &Layout, cluster: &Cluster) -> Result<Found> {
    let mut found = Found::default();
    scan(layout, cluster, &mut found, |name, chunks| complain!("{name}: {chunks} chunks read"))?;
    Ok(found)
}

fn write_scan(flags: &Scan) -> Result<()> {
    let layout = flags.directory.layout()?;
    let cluster = Cluster::read(&layout.cluster_file())?;
    let found = scan_here(&layout, &cluster)?;
    // It has all metadata in it.
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&flags.to);
    let written = file.and_then(|mut file| file.write_all(&found.encode()));
    written.with_context(|| format!("write {}", flags.to.display()))?;
    say!(
        "{} chunks with {} frames of files are written down in {}",
        found.chunks.len(),
        found.frames_len(),
        flags.to.display()
    )?;
    Ok(())
}

#[derive(Serialize)]
struct Recovered {
    directories: u64,
    files: u64,
    others: u64,
    names: u64,
    bytes: u64,
    younger: Vec<String>,
    changed: Vec<String>,
    lost: Vec<NotAsItWas>,
    tablets_without_checkpoint: usize,
    checkpoints_not_readable: usize,
    stored_in: Option<String>,
}

#[derive(Serialize)]
struct NotAsItWas {
    path: String,
    node: u64,
    why: String,
}

fn metadata(flags: &Metadata) -> Result<()> {
    let layout = flags.directory.layout()?;
    let cluster = Cluster::read(&layout.cluster_file())?;
    let mut recovery = Recovery::begin(&layout, &cluster)?;
    let mut found = scan_here(&layout, &cluster)?;
    for path in &flags.scan {
        let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        let other = Found::decode(&bytes);
        found.absorb(other.ok_or_else(|| {
            Usage(format!(
                "{} is nothing that this version of `bearing recover scan` wrote; scan that host again with this version",
                path.display()
            ))
        })?);
    }
    recovery.refuse_if_incomplete(&found, &flags.without, flags.dry_run)?;
    if found.chunks.is_empty() {
        bail!(
            "no data server of {} holds a single chunk: nothing can be recovered; bring what other hosts hold with --scan",
            layout.root().display()
        );
    }
    let rebuilt = recovery.rebuild(&found);
    let report = rebuilt.report.clone();
    let owner = match flags.dry_run {
        true => None,
        false => Some(recovery.store(rebuilt)?.to_string()),
    };
    match flags.json {
        true => say!("{}", serde_json::to_string_pretty(&recovered(&report, owner))?)?,
        false => tell(&report, owner.as_deref(), &layout)?,
    }
    Ok(())
}

fn shown(path: &FoundPath) -> String {
    String::from_utf8_lossy(path).into_owned()
}

fn recovered(report: &Report, stored_in: Option<String>) -> Recovered {
    let paths = |found: &[(NodeId, FoundPath)]| found.iter().map(|(_, path)| shown(path)).collect();
    let lost = report.lost.iter().map(|Lost { path, node, why }| NotAsItWas {
        path: shown(path),
        node: node.0,
        why: why.to_string(),
    });
    Recovered {
        directories: report.directories,
        files: report.files,
        others: report.others,
        names: report.names,
        bytes: report.bytes,
        younger: paths(&report.younger),
        changed: paths(&report.changed),
        lost: lost.collect(),
        tablets_without_checkpoint: report.tablets_without.len(),
        checkpoints_not_readable: report.unread.len(),
        stored_in,
    }
}

fn tell(report: &Report, owner: Option<&str>, layout: &Layout) -> Result<()> {
    let Report { directories, files, others, names, bytes, .. } = report;
    let verb = if owner.is_some() { "recovered" } else { "would be recovered" };
    say!(
        "{verb}: {directories} directories, {files} files with {bytes} bytes, {others} links and special files; {names} names"
    )?;
    if !report.tablets_without.is_empty() {
        say!(
            "no checkpoint was found of {} tablets: of what lay there only files with bytes come back",
            report.tablets_without.len()
        )?;
    }
    if !report.unread.is_empty() {
        say!(
            "{} checkpoints that were found cannot be read: they are damaged, or of another version",
            report.unread.len()
        )?;
    }
    let list = |what: &str, lines: Vec<String>| -> Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        say!("{what}: {}", lines.len())?;
        for line in lines.iter().take(LINES_MAX) {
            say!("  {line}")?;
        }
        if lines.len() > LINES_MAX {
            say!("  and {} more: --json has them all", lines.len() - LINES_MAX)?;
        }
        Ok(())
    };
    let paths = |found: &[(NodeId, FoundPath)]| found.iter().map(|(_, path)| shown(path)).collect();
    list("younger than the checkpoint, and there", paths(&report.younger))?;
    list("changed after the checkpoint, with what was written since", paths(&report.changed))?;
    let lost = report.lost.iter().map(|lost| format!("{}: {}", shown(&lost.path), lost.why));
    list("not what it was", lost.collect())?;
    match owner {
        Some(owner) => {
            say!("stored in {owner}; start the cluster with: bearing up --dir {}", layout.root().display())?
        }
        None => say!("nothing was changed; without --dry-run it is stored")?,
    }
    Ok(())
}
