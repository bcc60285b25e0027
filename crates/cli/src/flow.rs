//! `flow`: what the flow server knows of reads and of the network.

use crate::connect;
use crate::fs::paths::absolute;
use crate::target::Target;
use crate::voice::say;
use anyhow::{Result, bail};
use bearing_mount::Mount;
use bearing_mount::session::RankError;
use bearing_proto::flow::{FlowRow, LinkRow, SourceRow, Traffic};
use bearing_server::cluster::DaemonName;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::net::IpAddr;
use std::sync::Arc;

/// `flow`.
#[derive(Debug, Subcommand)]
pub enum FlowCommand {
    /// Show the reads under way and the most loaded links
    Top(FlowTop),
    /// Show which of some hosts would read a file fastest
    Rank(Rank),
}

const TOP_EXAMPLES: &str = "\
Reads of 1 MiB and more are known to the flow server, with the rate that it expects or has measured. Links are
shown if anything flows over them, the fullest first. Without a topology file (see `bearing lab topology`,
and topology = \"FILE\" under [flow] in flow/config.toml) the links are those of the hosts, taken to carry
10 Gb/s each.

Examples:
  bearing flow top
  watch -n 1 bearing flow top --rows 5
  bearing flow top --json | jq '.links[0]'";

/// `flow top`.
#[derive(Args, Debug)]
#[command(after_help = TOP_EXAMPLES)]
pub struct FlowTop {
    /// The cluster.
    #[command(flatten)]
    pub target: Target,
    /// How many flows, and how many links
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub rows: usize,
}

const RANK_EXAMPLES: &str = "\
For whoever places tasks: the hosts in the order in which they would have read the file, by where its
replicas are and by what flows now. Hosts are addresses, as the flow server sees them.

Examples:
  bearing flow rank /shards/17 10.0.0.4 10.0.0.9
  bearing flow rank /shards/17 10.0.0.4 10.0.0.9 --json | jq -r '.[0].host'";

/// `flow rank`.
#[derive(Args, Debug)]
#[command(after_help = RANK_EXAMPLES)]
pub struct Rank {
    /// The cluster.
    #[command(flatten)]
    pub target: Target,
    /// The file
    #[arg(value_hint = clap::ValueHint::Other)]
    pub path: OsString,
    /// Addresses of hosts that could read it
    #[arg(required = true)]
    pub hosts: Vec<IpAddr>,
}

/// Runs `flow`.
pub fn run(command: &FlowCommand) -> Result<()> {
    match command {
        FlowCommand::Top(flags) => top(flags),
        FlowCommand::Rank(flags) => rank(flags),
    }
}

fn with_mount<T>(target: &Target, work: impl FnOnce(&Arc<Mount>) -> Result<T>) -> Result<T> {
    let config = connect::config(&target.cluster, target.secret.as_deref())?;
    let mount = connect::connect_as(&target.cluster, &config)?;
    let result = work(&mount);
    connect::end(&mount)?;
    result
}

/// What to do about a silent flow server.
pub const SILENT: &str = "the flow server does not answer, or the cluster has none: reads go to the nearest replica. `bearing status` says \
     whether it runs";

fn heard<T>(result: Result<T, RankError>) -> Result<T> {
    match result {
        Err(RankError::NoAdvice(bearing_mount::session::NoAdvice::Silent)) => bail!("{SILENT}"),
        other => Ok(other?),
    }
}

fn top(flags: &FlowTop) -> Result<()> {
    let traffic = with_mount(&flags.target, |mount| heard(connect::session(mount)?.traffic()))?;
    if flags.target.json {
        say!("{}", serde_json::to_string_pretty(&json_of(&traffic))?)?;
        return Ok(());
    }
    for line in lines(&traffic, flags.rows) {
        say!("{line}")?;
    }
    Ok(())
}

/// A rate, for people.
pub fn rate(bytes: u64) -> String {
    format!("{}/s", size(bytes))
}

/// A number of bytes, for people.
pub fn size(bytes: u64) -> String {
    let units = [("GB", 1e9), ("MB", 1e6), ("kB", 1e3)];
    match units.into_iter().find(|(_, unit)| bytes as f64 >= *unit) {
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / unit),
        None => format!("{bytes} B"),
    }
}

fn server(id: bearing_types::ServerId) -> String {
    DaemonName::of(id).to_string()
}

/// A place of the network without what the flow server adds to a host's name.
fn host(name: &str) -> &str {
    name.split(": ").next().unwrap_or(name)
}

fn lines(traffic: &Traffic, rows: usize) -> Vec<String> {
    let mut lines = vec![format!(
        "{} {} under way, {} questions answered{}",
        traffic.count,
        if traffic.count == 1 { "flow" } else { "flows" },
        traffic.answered,
        if traffic.has_topology { "" } else { "; no topology file: data servers' counters alone decide" }
    )];
    if !traffic.flows.is_empty() {
        lines.push(String::new());
        lines.push(format!("{:<28} {:<20} {:>12} {:>12}", "FROM", "TO", "RATE", "LEFT"));
        lines.extend(traffic.flows.iter().take(rows).map(|row| {
            let from = row.source.replace(": server ", " server ");
            format!("{from:<28} {:<20} {:>12} {:>12}", host(&row.target), rate(row.rate), size(row.left))
        }));
    }
    if !traffic.links.is_empty() {
        lines.push(String::new());
        lines.push(format!("{:<28} {:<20} {:>6} {:>12} {:>6}", "LINK", "", "FULL", "CARRIES", "FLOWS"));
        lines.extend(traffic.links.iter().take(rows).map(|row| {
            let full = row.load as f64 * 100.0 / row.capacity as f64;
            format!(
                "{:<28} {:<20} {full:>5.0}% {:>12} {:>6}",
                row.source,
                row.target,
                rate(row.load),
                row.flows
            )
        }));
    }
    lines.push(String::new());
    lines.push(format!("{:<28} {:>12} {:>14} {:>12}", "DATA SERVER", "QUEUED", "DISK GIVES", "HEARD"));
    lines.extend(traffic.sources.iter().map(|row| {
        let disk = row.disk.map_or_else(|| "not measured".to_owned(), rate);
        let heard = row.heard_ms.map_or_else(|| "never".to_owned(), |ms| format!("{ms} ms ago"));
        format!("{:<28} {:>12} {disk:>14} {heard:>12}", server(row.server), size(row.queued))
    }));
    lines
}

fn json_of(traffic: &Traffic) -> Value {
    let flow = |row: &FlowRow| {
        json!({"flow": row.flow.0, "from": row.source, "to": row.target, "bytes_per_second": row.rate,
               "bytes_left": row.left})
    };
    let link = |row: &LinkRow| {
        json!({"from": row.source, "to": row.target, "capacity_bytes_per_second": row.capacity,
               "load_bytes_per_second": row.load, "flows": row.flows})
    };
    let source = |row: &SourceRow| {
        json!({"server": server(row.server), "queued_bytes": row.queued, "disk_bytes_per_second": row.disk,
               "heard_ms": row.heard_ms})
    };
    json!({
        "flows_under_way": traffic.count,
        "flows": traffic.flows.iter().map(flow).collect::<Vec<_>>(),
        "links": traffic.links.iter().map(link).collect::<Vec<_>>(),
        "data_servers": traffic.sources.iter().map(source).collect::<Vec<_>>(),
        "answered": traffic.answered,
        "unknown_reports": traffic.unknown_reports,
        "has_topology": traffic.has_topology,
    })
}

fn rank(flags: &Rank) -> Result<()> {
    let path = absolute(&flags.path)?;
    let times =
        with_mount(&flags.target, |mount| heard(connect::session(mount)?.rank_readers(path, &flags.hosts)))?;
    let mut ranked: Vec<_> = flags.hosts.iter().zip(times).collect();
    ranked.sort_by_key(|(_, time)| (time.is_none(), *time));
    if flags.target.json {
        let row = |(host, time): &(&IpAddr, Option<std::time::Duration>)| json!({"host": host, "microseconds": time.map(|time| time.as_micros() as u64)});
        say!("{}", serde_json::to_string_pretty(&ranked.iter().map(row).collect::<Vec<_>>())?)?;
        return Ok(());
    }
    for (host, time) in ranked {
        match time {
            Some(time) => say!("{host:<40} {:.3} s", time.as_secs_f64())?,
            None => say!("{host:<40} is not in the network that the flow server knows")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_proto::data::FlowNumber;
    use bearing_types::ServerId;

    #[test]
    fn traffic_is_shown_in_columns_with_units() {
        let traffic = Traffic {
            count: 1,
            flows: vec![FlowRow {
                flow: FlowNumber(7),
                source: "10.0.0.1: server 1001".into(),
                target: "10.0.0.9: readers".into(),
                rate: 125_000_000,
                left: 900,
            }],
            links: vec![LinkRow {
                source: "10.0.0.1".into(),
                target: "network".into(),
                capacity: 250_000_000,
                load: 125_000_000,
                flows: 1,
            }],
            sources: vec![SourceRow { server: ServerId(1001), queued: 0, disk: None, heard_ms: Some(20) }],
            answered: 4,
            unknown_reports: 0,
            has_topology: false,
        };
        let text = lines(&traffic, 5).join("\n");
        assert!(text.starts_with("1 flow under way, 4 questions answered; no topology file"), "{text}");
        assert!(text.contains("10.0.0.9               125.0 MB/s        900 B"), "{text}");
        assert!(text.contains("network                 50%   125.0 MB/s      1"), "{text}");
        assert!(
            text.contains("data-1") && text.contains("not measured") && text.contains("20 ms ago"),
            "{text}"
        );
    }
}
