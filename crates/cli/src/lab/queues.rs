//! `lab queues`: what clusters of many servers can do, and where the rest goes.

use super::calibrate;
use super::replay::candidates;
use crate::failure::Usage;
use crate::voice::say;
use anyhow::{Result, bail};
use bearing_lab::parallel::each;
use bearing_lab::queues::study::{Found, LOADS, Study};
use bearing_lab::queues::{Agent, Costs, Division, Mode, ThroughputRatio, Wires};
use bearing_server::topology_file;
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  bearing lab queues --servers 100,500,2000
  bearing lab queues --schemes hash,metaflow,one-hop --servers 500 --calibration calibration.json
  bearing lab queues --servers 64 --clients 200 --topology network.toml

Without a calibration costs are ratios as in MetaFlow's simulation: a lookup costs as much as a storage operation
(--ratio), and only shares mean anything. Throughput is a product: lookup (work on storage of all work) x
imbalance (mean work over the most of one server) x idle (servers that own something) x turns (few requests wait
when a server begins to take what waits; 1 with --ratio).

metaflow is without its agents (in-network in the figures): that servers take what the network carries as it is, at no
cost, is assumed.";

/// `lab queues`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct QueuesFlags {
    /// Schemes, each perhaps with another's lookup behind a +
    #[arg(
        long,
        value_name = "A,B,..",
        value_delimiter = ',',
        default_value = "hash,anglecut-hashed,metaflow,one-hop,chord,rdht-mdsc,central"
    )]
    pub schemes: Vec<String>,
    /// Numbers of servers
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "100,500", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub servers: Vec<u32>,
    /// How many clients ask
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub clients: u32,
    /// Lookups a second over storage operations a second of one processor
    #[arg(long, value_name = "R", default_value_t = 1.0, conflicts_with = "calibration")]
    pub ratio: f64,
    /// What work costs, as `bearing lab calibrate` measured it
    #[arg(long, value_name = "FILE")]
    pub calibration: Option<PathBuf>,
    /// The network: hosts, switches, links with rates and latencies [default: a fat tree of 10 Gb/s]
    #[arg(long, value_name = "FILE")]
    pub topology: Option<PathBuf>,
    /// Draws begin from here
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

const DIVISIONS: [(Division, &str); 2] =
    [(Division::Published, "as published"), (Division::EqualArcs, "equal arcs")];

/// Runs `lab queues`.
pub fn run(flags: &QueuesFlags) -> Result<()> {
    let calibration = flags.calibration.as_deref().map(calibrate::read).transpose()?;
    let costs = match &calibration {
        Some(found) => Costs::calibrated(found.coefficients),
        None => match Costs::of_throughput(ThroughputRatio(flags.ratio), Agent::None) {
            Some(costs) => costs,
            None => bail!(Usage(format!(
                "--ratio may not be {}; give more than a millionth, less than a million",
                flags.ratio
            ))),
        },
    };
    let wires = flags.topology.as_deref().map(topology_file::read_with_latencies).transpose()?;
    let wires = wires.map(|(topology, latencies)| {
        let latencies = latencies.into_iter().map(|latency| latency.unwrap_or(Wires::LATENCY)).collect();
        Arc::new(Wires { topology, latencies })
    });
    let mut studies = Vec::new();
    for candidate in candidates(&flags.schemes)? {
        for servers in &flags.servers {
            studies.extend(DIVISIONS.map(|(division, _)| Study {
                candidate: candidate.clone(),
                servers: *servers,
                clients: flags.clients,
                division,
                costs,
                wires: wires.clone(),
                seed: flags.seed,
            }));
        }
    }
    let bar = ProgressBar::new(studies.len() as u64);
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} runs, {eta} left")?);
    bar.tick();
    let found = each(&studies, |study| {
        let found = study.run().map_err(|error| error.to_string());
        bar.inc(1);
        found
    });
    bar.finish_and_clear();
    let precision = calibration.as_ref().map(calibrate::error_of);
    // Perhaps one of several schemes cannot be queued; if none can, what was asked for is not there.
    let refused = found.iter().find_map(|found| found.as_ref().err()).cloned();
    let refused = refused.filter(|_| found.iter().all(Result::is_err));
    if let Some(error) = refused {
        bail!("{error}");
    }
    if flags.json {
        let rows: Vec<Value> = studies.iter().zip(&found).map(|(study, found)| value(study, found)).collect();
        let mode = match costs.mode() {
            Mode::PaperRatios => "paper-ratios",
            Mode::Calibrated => "calibrated",
        };
        say!(
            "{}",
            serde_json::to_string_pretty(&json!({"mode": mode, "precision": precision, "runs": rows}))?
        )?;
        return Ok(());
    }
    show(&studies, &found, costs.mode())?;
    match precision {
        Some(precision) => say!("\n{precision}")?,
        None => say!(
            "\ncosts are ratios of a paper: times are in storage operations, throughput is the share of what as many \
             servers did without lookups, imbalance and idle servers"
        )?,
    }
    Ok(())
}

fn division_of(study: &Study) -> &'static str {
    DIVISIONS.iter().find(|(division, _)| *division == study.division).map_or("", |(_, name)| name)
}

fn value(study: &Study, found: &Result<Found, String>) -> Value {
    let mut row = json!({
        "scheme": study.candidate.name,
        "servers": study.servers,
        "clients": study.clients,
        "division": division_of(study),
        "seed": study.seed,
    });
    match found {
        Err(error) => row["error"] = json!(error),
        Ok(found) => {
            let rates = &found.capacity.rates;
            row["per_second"] = json!(rates.per_second);
            row["share_of_ideal"] = json!(rates.per_second / rates.ideal);
            if let Some(split) = rates.split {
                row["lookup"] = json!(split.lookup);
                row["imbalance"] = json!(split.imbalance);
                row["idle"] = json!(split.idle);
                row["turns"] = json!(split.turns);
            }
            row["hops"] = json!(rates.hops);
            for (load, latency) in LOADS.iter().zip(&found.latencies) {
                row[format!("latency_at_{:.0}_percent", load * 100.0)] = json!({
                    "mean_s": latency.mean, "median_s": latency.median, "p95_s": latency.p95, "p99_s": latency.p99,
                });
            }
        }
    }
    row
}

fn show(studies: &[Study], found: &[Result<Found, String>], mode: Mode) -> Result<()> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "SCHEME",
        "SERVERS",
        "ARCS",
        "OP/S",
        "OF IDEAL",
        "= LOOKUP",
        "x BALANCE",
        "x IDLE",
        "x TURNS",
        "HOPS",
        "MEDIAN AT 50 %",
        "AT 80 %",
        "99 % AT 80 %",
    ]);
    for column in 3..13 {
        table
            .column_mut(column)
            .into_iter()
            .for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    }
    for (study, found) in studies.iter().zip(found) {
        let mut row =
            vec![study.candidate.name.clone(), study.servers.to_string(), division_of(study).to_owned()];
        match found {
            Err(error) => row.push(error.clone()),
            Ok(found) => {
                let rates = &found.capacity.rates;
                let part =
                    |part: Option<f64>| part.map_or_else(|| "-".to_owned(), |part| format!("{part:.3}"));
                let time = |seconds: f64| match mode {
                    Mode::PaperRatios => format!("{:.2}", seconds / study.costs.storage().as_secs_f64()),
                    Mode::Calibrated => format!("{:.0} us", seconds * 1e6),
                };
                row.push(match mode {
                    Mode::PaperRatios => "-".to_owned(),
                    Mode::Calibrated => format!("{:.0}", rates.per_second),
                });
                row.push(part(Some(rates.per_second / rates.ideal)));
                row.push(part(rates.split.map(|split| split.lookup)));
                row.push(part(rates.split.map(|split| split.imbalance)));
                row.push(part(rates.split.map(|split| split.idle)));
                row.push(part(rates.split.map(|split| split.turns)));
                row.push(format!("{:.2}", rates.hops));
                let [half, most] = &found.latencies;
                row.extend([time(half.median), time(most.median), time(most.p99)]);
            }
        }
        table.add_row(row);
    }
    say!("{table}")?;
    Ok(())
}
