//! `ring show`: the ring of metadata servers as a picture: who follows whom, who owns what, where the copies
//! are.

use crate::ask;
use crate::failure::Unreachable;
use crate::tablets::{TabletState, Tablets, ranges};
use crate::target::Directory;
use anyhow::{Result, bail};
use bearing_server::cluster::Cluster;
use bearing_types::{Block, Position};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

/// `ring`.
#[derive(Debug, Subcommand)]
pub enum RingCommand {
    /// Draw the servers in the order of the ring, with the tablets that each owns and the copies it holds
    Show(RingShow),
}

const EXAMPLES: &str = "\
Each server is followed by its successors: they hold the copies of its tablets, and take them over
when it dies. A copy is held as a member, which confirms every change, or as a learner, which is still
being given the tablet. The strip below shows who owns which part of the ring.

Examples:
  bearing ring show
  bearing ring show --json | jq '.servers[] | {server, owns, silent}'";

/// `ring show`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RingShow {
    /// Where the cluster lies.
    #[command(flatten)]
    pub directory: Directory,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How long a server may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Columns of the strip, a power of two.
const STRIP: usize = 64;

/// The ring.
#[derive(Debug, Serialize)]
struct Ring {
    map_version: Option<u64>,
    metadata_copies: usize,
    tablets: usize,
    /// In the order of the ring.
    servers: Vec<Place>,
    #[serde(skip)]
    strip: String,
}

/// A server on the ring.
#[derive(Debug, Serialize)]
struct Place {
    server: u32,
    address: String,
    /// Why it does not answer, if it does not.
    silent: Option<String>,
    /// Who follows it, as many as there are other copies.
    successors: Vec<u32>,
    owns: Vec<Owned>,
    /// How many of its tablets have copies on which other servers.
    copies_on: BTreeMap<u32, usize>,
    /// How many tablets of which others it holds as a member, and as a learner.
    member_for: BTreeMap<u32, usize>,
    learner_for: BTreeMap<u32, usize>,
}

#[derive(Debug, Serialize)]
struct Owned {
    block: String,
    epoch: u64,
    members: Vec<u32>,
}

/// Runs `ring`. It fails (exit code 3) when nobody says anything.
pub fn run(command: &RingCommand) -> Result<()> {
    let RingCommand::Show(flags) = command;
    let layout = flags.directory.layout()?;
    let cluster = ask::current(&layout, &Cluster::read(&layout.cluster_file())?, PATIENCE);
    let (tablets, complaint) = Tablets::ask(&layout, &cluster, PATIENCE);
    if tablets.tablets.is_empty() {
        let dir = flags.directory.dir.display();
        let remedy = format!("look at `bearing status --dir {dir}`");
        bail!(Unreachable(format!(
            "neither the coordinator nor any metadata server says who owns what; {remedy}"
        )));
    }
    if let Some(error) = complaint {
        eprintln!("bearing: shown is what metadata servers say, without the registers: {error:#}");
    }
    let ring = Ring::of(&tablets);
    match flags.json {
        true => println!("{}", serde_json::to_string_pretty(&ring)?),
        false => print!("{}", ring.drawn()),
    }
    Ok(())
}

impl Ring {
    fn of(tablets: &Tablets) -> Ring {
        let numbers: Vec<u32> = tablets.servers.iter().map(|server| server.number).collect();
        let place = |(at, server): (usize, &crate::tablets::Server)| {
            let others = numbers.iter().cycle().skip(at + 1).take(numbers.len() - 1);
            let mut place = Place {
                server: server.number,
                address: server.address.to_string(),
                silent: server.told.as_ref().err().cloned(),
                successors: others.take(tablets.copies_wanted.saturating_sub(1)).copied().collect(),
                owns: Vec::new(),
                copies_on: BTreeMap::new(),
                member_for: BTreeMap::new(),
                learner_for: BTreeMap::new(),
            };
            tablets.tablets.iter().for_each(|tablet| place.count(tablet));
            place
        };
        Ring {
            map_version: tablets.map_version,
            metadata_copies: tablets.copies_wanted,
            tablets: tablets.tablets.len(),
            servers: tablets.servers.iter().enumerate().map(place).collect(),
            strip: strip(&tablets.tablets),
        }
    }

    fn drawn(&self) -> String {
        let mut text = String::new();
        let copies =
            if self.metadata_copies == 1 { "1 copy" } else { &format!("{} copies", self.metadata_copies) };
        let version = self.map_version.map_or(String::new(), |version| format!(", map version {version}"));
        let _ = writeln!(
            text,
            "{} metadata servers, {} tablets with {copies} each{version}\n",
            self.servers.len(),
            self.tablets
        );
        let silent = self.servers.iter().filter(|place| place.silent.is_some());
        let silent: BTreeSet<u32> = silent.map(|place| place.server).collect();
        let last = self.servers.len().saturating_sub(1);
        for (at, place) in self.servers.iter().enumerate() {
            let rail = if at == 0 { "╭─▶ " } else { "│   " };
            let mut lines = place.lines(&silent).into_iter();
            let _ = writeln!(text, "{rail}{}", lines.next().unwrap_or_default());
            lines.for_each(|line| {
                let _ = writeln!(text, "│     │ {line}");
            });
            let _ = writeln!(text, "{}", if at == last { "╰─────╯" } else { "│     ▼" });
        }
        let _ = writeln!(text, "\nowners of the ring, from position 0:\n  {}", self.strip);
        text
    }
}

impl Place {
    fn count(&mut self, tablet: &TabletState) {
        let mine = tablet.owner == self.server;
        if mine {
            let (block, epoch, members) = (tablet.block.clone(), tablet.epoch, tablet.members.clone());
            self.owns.push(Owned { block, epoch, members });
        }
        for member in tablet.members.iter().filter(|member| **member != tablet.owner) {
            if mine {
                *self.copies_on.entry(*member).or_default() += 1;
            } else if *member == self.server {
                *self.member_for.entry(tablet.owner).or_default() += 1;
            }
        }
        if tablet.learner.as_ref().is_some_and(|learner| learner.server == self.server) {
            *self.learner_for.entry(tablet.owner).or_default() += 1;
        }
    }

    /// Its name, and what there is to say of it.
    fn lines(&self, silent: &BTreeSet<u32>) -> Vec<String> {
        let mark = if self.silent.is_some() { "  SILENT" } else { "" };
        let mut lines = vec![format!("metadata-{}  {}{mark}", self.server, self.address)];
        lines.extend(self.silent.clone());
        let bar = "■".repeat(self.owns.len().min(40));
        lines.push(match self.owns.len() {
            0 => "owns        no tablet".to_owned(),
            1 => format!("owns        1 tablet {bar} epoch {}", self.owns[0].epoch),
            owns => {
                let epochs = ranges(self.owns.iter().map(|owned| owned.epoch));
                let noun = if epochs.contains([' ', '-']) { "epochs" } else { "epoch" };
                format!("owns        {owns} tablets {bar} {noun} {epochs}")
            }
        });
        if !self.copies_on.is_empty() {
            lines.push(format!("copies on   {}", self.of_others(&self.copies_on, silent)));
        }
        if !self.member_for.is_empty() {
            lines.push(format!("member of   {}", self.of_others(&self.member_for, silent)));
        }
        if !self.learner_for.is_empty() {
            lines.push(format!("learner of  {}", self.of_others(&self.learner_for, silent)));
        }
        if !self.successors.is_empty() {
            let successors = self.successors.iter().map(|server| named(*server, silent));
            lines.push(format!("followed by {}", successors.collect::<Vec<_>>().join(", ")));
        }
        lines
    }

    /// In the order of the ring, from this server on.
    fn of_others(&self, counts: &BTreeMap<u32, usize>, silent: &BTreeSet<u32>) -> String {
        let mut counts: Vec<(&u32, &usize)> = counts.iter().collect();
        counts.sort_by_key(|(server, _)| (**server < self.server, **server));
        let words = counts.iter().map(|(server, count)| format!("{}: {count}", named(**server, silent)));
        words.collect::<Vec<_>>().join(", ")
    }
}

fn named(server: u32, silent: &BTreeSet<u32>) -> String {
    let mark = if silent.contains(&server) { " (silent)" } else { "" };
    format!("metadata-{server}{mark}")
}

/// Who owns each part of the ring: a digit or letter for each server, `*` where several do, or there are
/// more.
fn strip(tablets: &[TabletState]) -> String {
    let bits = STRIP.trailing_zeros() as u8;
    let part = |at: usize| {
        let block = Block::around(Position((at as u64) << (64 - bits)), bits);
        let within = tablets.iter().filter(|tablet| tablet.place.covers(block) || block.covers(tablet.place));
        let mut owners: Vec<u32> = within.map(|tablet| tablet.owner).collect();
        owners.dedup();
        match owners[..] {
            [] => Some('?'),
            [owner] => char::from_digit(owner, 36),
            _ => None,
        }
    };
    (0..STRIP).map(|at| part(at).unwrap_or('*')).collect()
}
