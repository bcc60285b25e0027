//! `bench flow`: how long the flow server takes to decide.

use super::machine::{self, Identity};
use anyhow::{Context, Result};
use bearing_flow::{Command, Event, FlowServer, Options, Replanning, Request};
use bearing_routing::{FlowId, Place, Read, Selection};
use bearing_types::Mono;
use bearing_workload::Seeded;
use clap::Args;
use comfy_table::{Table, presets};
use hdrhistogram::Histogram;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  bearing bench flow
  bearing bench flow --decisions 100000 --out flow.csv";

/// `bench flow`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Flow {
    /// Decisions that are timed, for each size and selection
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..))]
    pub decisions: u32,
    /// Where to put the raw results [default: bench/runs/DATE-flow.csv]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Flows for each host that are under way all the time: 1,000 at 64 hosts.
const FLOWS_EACH: f64 = 15.6;

/// Networks: their name, and their hosts in racks and pods.
const NETWORKS: [(&str, u32); 2] = [("Mayflower's testbed", 64), ("a fat tree of 16 ports", 1024)];

struct Line {
    network: &'static str,
    hosts: u32,
    flows: usize,
    selection: Selection,
    took: Histogram<u64>,
}

/// Runs `bench flow`.
pub fn run(options: &Flow) -> Result<()> {
    let mut lines = Vec::new();
    for (network, hosts) in NETWORKS {
        for name in ["mayflower-b", "mayflower-p", "mayflower-n"] {
            lines.push(decide(network, hosts, name.parse()?, options.decisions)?);
        }
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "NETWORK",
        "HOSTS",
        "FLOWS",
        "SELECTION",
        "MEDIAN us",
        "P99 us",
        "MOST us",
    ]);
    let identity = Identity::read();
    let mut text = identity.comment();
    let _ = writeln!(
        text,
        "# one thread; a decision is the machine's whole step for a question of three replicas"
    );
    let _ = writeln!(text, "# load: {}", machine::load());
    text.push_str("network,hosts,flows,selection,quantile,nanoseconds\n");
    for line in &lines {
        let micros = |quantile| format!("{:.1}", line.took.value_at_quantile(quantile) as f64 / 1e3);
        let (hosts, flows) = (line.hosts.to_string(), line.flows.to_string());
        let row =
            [line.network, &hosts, &flows, line.selection.name(), &micros(0.5), &micros(0.99), &micros(1.0)];
        table.add_row(row);
        for quantile in [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0] {
            let value = line.took.value_at_quantile(quantile);
            let Line { network, hosts, flows, selection, .. } = line;
            let _ = writeln!(text, "\"{network}\",{hosts},{flows},{},{quantile},{value}", selection.name());
        }
    }
    println!("{table}");
    let path = options.out.clone().unwrap_or_else(|| format!("bench/runs/{}-flow.csv", identity.date).into());
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    }
    std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    println!("\nraw results: {}", path.display());
    Ok(())
}

/// Times decisions while as many flows end as begin.
fn decide(network: &'static str, hosts: u32, selection: Selection, decisions: u32) -> Result<Line> {
    let shape = match hosts {
        64 => bearing_routing::Shape::mayflower(8.0)?,
        _ => bearing_routing::Shape::fat_tree(16)?,
    };
    let options =
        Options { selection, poll_interval: Duration::from_secs(3600), replanning: Replanning::Off, seed: 1 };
    let mut server = FlowServer::new(Mono::ZERO, Arc::new(shape.topology()), options);
    let wanted = (f64::from(hosts) * FLOWS_EACH) as usize;
    let mut rng = Seeded::new(1);
    let mut live: Vec<FlowId> = Vec::new();
    let mut took = Histogram::new(3)?;
    let mut out = Vec::new();
    let mut timed = 0;
    // Every host's paths are computed once, which is no decision.
    let warm_up = decisions;
    for number in 0u64.. {
        let mut host = || Place(rng.below(u64::from(hosts)) as u32);
        let read = Read { reader: host(), replicas: vec![host(), host(), host()], bytes: 128_000_000 };
        let ask = Event::Ask(Request(number), read);
        let start = Instant::now();
        server.step(Mono(number * 1000), [ask], &mut out);
        let elapsed = start.elapsed();
        if live.len() >= wanted && number > u64::from(warm_up) {
            took.record(elapsed.as_nanos() as u64)?;
            timed += 1;
        }
        for command in out.drain(..) {
            if let Command::Answer(_, Some(choice)) = command {
                live.extend(choice.parts.iter().map(|part| part.flow));
            }
        }
        let mut ended = Vec::new();
        while live.len() > wanted {
            ended.push(Event::Ended(live.swap_remove(rng.below(live.len() as u64) as usize)));
        }
        server.step(Mono(number * 1000 + 1), ended, &mut out);
        if timed >= decisions {
            break;
        }
    }
    Ok(Line { network, hosts, flows: wanted, selection, took })
}
