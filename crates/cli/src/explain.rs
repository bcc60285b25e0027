//! `explain`: how a request finds its owner, and from where a file is read.

mod read;

use crate::connect;
use crate::fs::paths::absolute;
use crate::target::Target;
use crate::voice::say;
use anyhow::Result;
use bearing_client::{Note, Target as Asked};
use bearing_mount::MountConfig;
use bearing_mount::session::LastLink;
use bearing_server::cluster::DaemonName;
use clap::{Args, Subcommand};
use read::Read;
use serde::Serialize;
use std::ffi::OsString;

/// `explain`.
#[derive(Debug, Subcommand)]
pub enum ExplainCommand {
    /// Show whom was asked for each part of a path, over whom the request went, and who answered
    Lookup(Lookup),
    /// Show from which replicas a file would be read now, why, and what the others would cost
    Read(Read),
}

const EXAMPLES: &str = "\
Each line is a request: the position that it was for, whom the client asked first, who answered, how many
hops that is (2 or more where servers have Bloom filters), and after how long. A request that was not answered
at once was sent again.

Examples:
  bearing explain lookup /src/main.rs
  bearing explain lookup /src/main.rs --json | jq '.[] | {path, hops}'";

/// `explain lookup`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Lookup {
    /// The cluster.
    #[command(flatten)]
    pub target: Target,
    /// The path
    #[arg(value_hint = clap::ValueHint::Other)]
    pub path: OsString,
}

/// One request.
#[derive(Debug, Serialize)]
struct Line {
    path: String,
    position: String,
    asked: String,
    answered: String,
    hops: u32,
    sent: u32,
    microseconds: u64,
}

/// Runs `explain`.
pub fn run(command: &ExplainCommand) -> Result<()> {
    match command {
        ExplainCommand::Lookup(flags) => lookup(flags),
        ExplainCommand::Read(flags) => read::run(flags),
    }
}

fn lookup(Lookup { target, path }: &Lookup) -> Result<()> {
    let path = absolute(path)?;
    let config = connect::config(&target.cluster, target.secret.as_deref())?;
    let mount = connect::connect_as(&target.cluster, &MountConfig { tells_lookups: true, ..config })?;
    let looked = look(&mount, path);
    connect::end(&mount)?;
    let lines = looked?;
    if target.json {
        say!("{}", serde_json::to_string_pretty(&lines)?)?;
        return Ok(());
    }
    for Line { path, position, asked, answered, hops, sent, microseconds } in &lines {
        let again = if *sent > 1 { format!(", sent {sent} times") } else { String::new() };
        let hops = if *hops == 1 { "1 hop".to_owned() } else { format!("{hops} hops") };
        let took = *microseconds as f64 / 1000.0;
        say!("{path:<24} {position}  {asked} -> {answered}  {hops}, {took:.1} ms{again}")?;
    }
    Ok(())
}

fn look(mount: &std::sync::Arc<bearing_mount::Mount>, path: &[u8]) -> Result<Vec<Line>> {
    mount.take_notes();
    let session = connect::session(mount)?;
    let mut lines = Vec::new();
    let mut take = |part: &[u8]| {
        let part = String::from_utf8_lossy(part).into_owned();
        lines.extend(mount.take_notes().into_iter().filter_map(|note| line(&part, note)));
    };
    take(b"/");
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let ends: Vec<usize> = ends.filter(|at| *at > 0).chain([path.len()]).collect();
    for end in ends {
        let found = session.find(&path[..end], LastLink::Keep);
        take(&path[..end]);
        found?;
    }
    Ok(lines)
}

fn line(path: &str, note: Note) -> Option<Line> {
    let Note::Looked { position, first, answered, sends, after } = note else { return None };
    let name = |server| DaemonName::of(server).to_string();
    let (asked, hops) = match first {
        Asked::Server(server) => (name(server), if server == answered { 1 } else { 2 }),
        Asked::Carried(..) => ("the network".to_owned(), 1),
        Asked::AnySeed => ("any server".to_owned(), 1),
    };
    Some(Line {
        path: path.to_owned(),
        position: position.to_string(),
        asked,
        answered: name(answered),
        hops,
        sent: sends,
        microseconds: after.as_micros() as u64,
    })
}
