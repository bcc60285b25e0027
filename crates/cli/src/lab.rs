//! `lab`: published figures drawn anew, traces replayed, topologies looked at.

mod calibrate;
mod generate;
mod output;
mod queues;
mod replay;
mod report;
mod trace;

use crate::bench::commit;
use crate::failure::Usage;
use crate::voice::say;
use anyhow::{Context, Result, bail};
use bearing_lab::figure::Figure;
use bearing_lab::{CALIBRATED, FIGURES, WAITING, picture};
use bearing_routing::{Rate, SwitchTree, Tier, Topology};
use bearing_server::topology_file;
use clap::{Args, Subcommand};
use comfy_table::{Table, presets};
use std::path::PathBuf;

/// What the lab does.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// List the figures that can be drawn
    List,
    /// Draw a figure of a paper anew, with what the paper says beside what is seen here
    Figure(FigureFlags),
    /// Draw all figures: one page with the claims that hold and those that do not
    Report(report::ReportFlags),
    /// Replay a trace over schemes: locality, balance, what moves, hops; one page with conclusions
    Replay(replay::ReplayFlags),
    /// Read or make traces of what programs asked of a filesystem
    #[command(subcommand)]
    Trace(trace::TraceCommand),
    /// What clusters of many servers can do, and what lookups, imbalance and idle servers take of it
    Queues(queues::QueuesFlags),
    /// Measure what work costs the servers of this program on this machine, for `queues` and `report`
    Calibrate(calibrate::CalibrateFlags),
    /// Look at a topology file, or draw a picture of it
    Topology(TopologyFlags),
}

const FIGURE_EXAMPLES: &str = "\
Examples:
  bearing lab figure mayflower-3 --quick
  bearing lab figure mayflower-6 --json > figure-6.json

Decisions are made by the code that clusters run; `bearing lab report` says of each figure what is measured, what
simulated and what assumed. A seed gives the same numbers everywhere.";

/// `lab figure`.
#[derive(Args, Clone, Debug)]
#[command(after_help = FIGURE_EXAMPLES)]
pub struct FigureFlags {
    /// Its name: see `bearing lab list`
    pub name: String,
    /// Fewer seeds and reads, for a look: 3 of 600 instead of 10 of 2,000
    #[arg(long)]
    pub quick: bool,
    /// Draws begin from here
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

const TOPOLOGY_EXAMPLES: &str = "\
Examples:
  bearing lab topology network.toml
  bearing lab topology network.toml --svg network.svg

A file with two racks:
  version = 1
  [shape]
  kind = \"leaf-spine\"
  leaves = 2
  spines = 2
  hosts = 8
  rate = \"10 Gb/s\"
  oversubscription = [2]";

/// `lab topology`.
#[derive(Args, Clone, Debug)]
#[command(after_help = TOPOLOGY_EXAMPLES)]
pub struct TopologyFlags {
    /// The file (docs/formats/topology.md)
    pub file: PathBuf,
    /// Write a picture there
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// Runs `lab`.
pub fn run(command: &LabCommand) -> Result<()> {
    match command {
        LabCommand::List => list(),
        LabCommand::Figure(flags) => figure(flags),
        LabCommand::Report(flags) => report::run(flags),
        LabCommand::Replay(flags) => replay::run(flags),
        LabCommand::Trace(command) => trace::run(command),
        LabCommand::Queues(flags) => queues::run(flags),
        LabCommand::Calibrate(flags) => calibrate::run(flags),
        LabCommand::Topology(flags) => topology(flags),
    }
}

fn list() -> Result<()> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["FIGURE", "SHOWS"]);
    for figure in FIGURES {
        table.add_row([figure.name, figure.about]);
    }
    say!("{table}\n\nWith `bearing lab report --calibration` also {CALIBRATED}.\n\nNot drawn yet:")?;
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["FIGURE", "WAITS FOR"]);
    for waiting in WAITING {
        table.add_row([waiting.name, waiting.why]);
    }
    say!("{table}")?;
    Ok(())
}

fn figure(flags: &FigureFlags) -> Result<()> {
    let Some(known) = FIGURES.iter().find(|known| known.name == flags.name) else {
        if flags.name == CALIBRATED {
            bail!(Usage(format!(
                "{CALIBRATED} needs a calibration; `bearing lab report --calibration FILE` draws it"
            )));
        }
        if let Some(waiting) = WAITING.iter().find(|waiting| waiting.name == flags.name) {
            bail!(Usage(format!("{} is not drawn yet; it waits for this: {}", waiting.name, waiting.why)));
        }
        let names: Vec<&str> = FIGURES.iter().map(|known| known.name).collect();
        bail!(Usage(format!("there is no figure {:?}; give one of {}", flags.name, names.join(", "))));
    };
    let mut drawn = known.draw(flags.seed, flags.quick);
    drawn.commit = commit();
    if flags.json {
        say!("{}", serde_json::to_string_pretty(&drawn)?)?;
        return Ok(());
    }
    show(&drawn)
}

/// Tables that a person reads.
fn show(figure: &Figure) -> Result<()> {
    let unit = if figure.unit.is_empty() { String::new() } else { format!(" ({})", figure.unit) };
    say!("{}: {}{unit} over {}\n", figure.figure, figure.y, figure.x)?;
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let points = figure.series.first().map_or(&[][..], |series| &series.points);
    // A distribution has a column for each scheme's times; else the first coordinates are the same.
    let same = figure.series.iter().all(|series| series.points.iter().zip(points).all(|(a, b)| a[0] == b[0]));
    let (given, shown) = if same { (0, 1) } else { (1, 0) };
    let mut header = vec!["SCHEME".to_owned()];
    let wanted: Vec<usize> = if same {
        (0..points.len()).collect()
    } else {
        // Of the distribution: a quarter, the half, three quarters, nine tenths, nineteen twentieths.
        [4, 9, 14, 17, 18].into_iter().filter(|index| *index < points.len()).collect()
    };
    header.extend(wanted.iter().map(|index| rounded(points[*index][given])));
    table.set_header(header);
    for series in &figure.series {
        let cell = |index: &usize| {
            let Some(point) = series.points.get(*index) else { return "-".to_owned() };
            match series.half.get(*index).filter(|half| half.is_finite()) {
                Some(half) => format!("{} +- {}", rounded(point[shown]), rounded(*half)),
                None => rounded(point[shown]),
            }
        };
        let mut row = vec![series.scheme.clone()];
        row.extend(wanted.iter().map(cell));
        table.add_row(row);
    }
    say!("{table}\n")?;
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["THE PAPER SAYS", "", "HERE", "HOLDS", ""]);
    for (index, seen) in figure.ours.iter().enumerate() {
        let published = figure.published.get(index);
        let value = published.map_or(String::new(), |claim| rounded(claim.value));
        let holds = match (published.is_some() || seen.must, seen.holds) {
            (false, _) => "",
            (true, true) => "yes",
            (true, false) => "no",
        };
        table.add_row([&seen.claim, &value, &rounded(seen.value), holds, &seen.why]);
    }
    say!("{table}")?;
    Ok(())
}

fn rounded(value: f64) -> String {
    format!("{:.3}", value).trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn topology(flags: &TopologyFlags) -> Result<()> {
    let topology = topology_file::read(&flags.file)?;
    if let Some(file) = &flags.svg {
        std::fs::write(file, picture::svg(&topology)).with_context(|| format!("write {}", file.display()))?;
        say!("{}", file.display())?;
        return Ok(());
    }
    say!(
        "{} hosts, {} switches, {} links",
        topology.places(),
        topology.switches().len(),
        topology.links().len()
    )?;
    for (capacity, count) in capacities(&topology) {
        say!("  {count} of {capacity}")?;
    }
    match SwitchTree::new(topology) {
        Ok(tree) => {
            let nodes = |tier: Tier| tree.nodes().filter(|node| tree.tier(*node) == tier).count();
            let (inner, edge) = (nodes(Tier::Aggregation), nodes(Tier::Edge));
            say!(
                "switches can carry metadata requests: a tree of 1 root, {inner} inner and {edge} edge nodes"
            )?;
        }
        Err(error) => say!("switches cannot carry metadata requests: {error}")?,
    }
    Ok(())
}

/// Capacities with the number of links that have them, the largest first.
fn capacities(topology: &Topology) -> Vec<(Rate, usize)> {
    let mut capacities: Vec<(Rate, usize)> = Vec::new();
    for link in topology.links() {
        let capacity = topology.capacity(link);
        match capacities.iter_mut().find(|(known, _)| *known == capacity) {
            Some((_, count)) => *count += 1,
            None => capacities.push((capacity, 1)),
        }
    }
    capacities.sort_by(|(one, _), (other, _)| other.bytes().total_cmp(&one.bytes()));
    capacities
}
