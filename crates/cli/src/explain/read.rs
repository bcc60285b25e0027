//! `explain read`: from which replicas a file is read, and why.

use crate::connect;
use crate::flow::{SILENT, rate, size};
use crate::fs::paths::absolute;
use crate::target::Target;
use crate::voice::say;
use anyhow::Result;
use bearing_mount::session::{NoAdvice, ReadAdvice};
use bearing_proto::flow::{Candidate, Explanation, PlanPart};
use bearing_server::cluster::DaemonName;
use bearing_types::ServerId;
use clap::Args;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::net::IpAddr;

const EXAMPLES: &str = "\
A file is read chunk by chunk; this is about the chunk at --offset. The cost of a replica and a path is how
long the read would take there, and by how much, in sum, it would make other reads end later. Two replicas
are read from at the same time if that costs less.

Examples:
  bearing explain read /shards/17
  bearing explain read /shards/17 --offset 64M --reader 10.0.0.9
  bearing explain read /shards/17 --json | jq '.chosen[].server'";

/// `explain read`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Read {
    /// The cluster.
    #[command(flatten)]
    pub target: Target,
    /// The path
    #[arg(value_hint = clap::ValueHint::Other)]
    pub path: OsString,
    /// From where on, in bytes, or with K, M, G (powers of 1,024)
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = offset)]
    pub offset: u64,
    /// The reader's host; without it, this one
    #[arg(long, value_name = "IP")]
    pub reader: Option<IpAddr>,
}

fn offset(text: &str) -> Result<u64, String> {
    let complaint = || format!("{text:?} is no number of bytes; give one such as 4096 or 64M");
    let (number, unit) = match text.char_indices().find(|(_, c)| !c.is_ascii_digit()) {
        None => (text, 1),
        Some((at, _)) => match &text[at..] {
            "K" => (&text[..at], 1 << 10),
            "M" => (&text[..at], 1 << 20),
            "G" => (&text[..at], 1 << 30),
            _ => return Err(complaint()),
        },
    };
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).ok_or_else(complaint)
}

/// Runs it.
pub(super) fn run(flags: &Read) -> Result<()> {
    let path = absolute(&flags.path)?;
    let config = connect::config(&flags.target.cluster, flags.target.secret.as_deref())?;
    let mount = connect::connect_as(&flags.target.cluster, &config)?;
    let advice = connect::session(&mount)
        .and_then(|session| Ok(session.explain_read(path, flags.offset, flags.reader)?));
    connect::end(&mount)?;
    let advice = advice?;
    if flags.target.json {
        say!("{}", serde_json::to_string_pretty(&json_of(&advice))?)?;
        return Ok(());
    }
    for line in lines(&advice) {
        say!("{line}")?;
    }
    Ok(())
}

fn name(server: ServerId) -> String {
    DaemonName::of(server).to_string()
}

fn seconds(us: u64) -> String {
    format!("{:.3} s", us as f64 / 1e6)
}

fn lines(advice: &ReadAdvice) -> Vec<String> {
    let ReadAdvice { range, servers, told } = advice;
    if servers.is_empty() {
        return vec!["nothing is stored there: it is a hole, or the end of the file".to_owned()];
    }
    let names: Vec<String> = servers.iter().map(|server| name(*server)).collect();
    let mut lines = vec![format!(
        "bytes {} to {} ({}) lie on {}",
        range.start,
        range.end,
        size(range.end - range.start),
        names.join(", ")
    )];
    match told {
        Err(NoAdvice::Silent) => lines.push(format!("{SILENT}: {}", names[0])),
        Err(refused) => {
            lines.push(format!("{refused}; so it is read from the nearest replica, {}", names[0]))
        }
        Ok(explanation) => lines.extend(explained(explanation)),
    }
    lines
}

fn explained(told: &Explanation) -> Vec<String> {
    let part = |part: &PlanPart| {
        format!("  {:<12} {:>10} at {}", name(part.server), size(part.flow.bytes), rate(part.rate))
    };
    let mut lines = vec![format!(
        "{} reads it in {} and makes others end {} later, from",
        told.selection,
        seconds(told.takes_us),
        seconds(told.impact_us)
    )];
    lines.extend(told.parts.iter().map(part));
    lines.push("each replica and path alone:".to_owned());
    let candidate = |candidate: &Candidate| {
        format!(
            "  {:<12} {} = {} + {} for others, {}, shared with {}, by {}",
            name(candidate.server),
            seconds(candidate.takes_us + candidate.impact_us),
            seconds(candidate.takes_us),
            seconds(candidate.impact_us),
            rate(candidate.rate),
            candidate.shared_with,
            candidate.path.join(" > ")
        )
    };
    lines.extend(told.candidates.iter().map(candidate));
    let unknown = told.unknown.iter().map(|server| {
        format!(
            "  {:<12} is not in the network that the flow server knows, or not to be reached",
            name(*server)
        )
    });
    lines.extend(unknown);
    lines
}

fn json_of(advice: &ReadAdvice) -> Value {
    let part = |part: &PlanPart| json!({"server": name(part.server), "bytes": part.flow.bytes, "bytes_per_second": part.rate});
    let candidate = |candidate: &Candidate| {
        json!({"server": name(candidate.server), "path": candidate.path,
               "bytes_per_second": candidate.rate, "takes_us": candidate.takes_us,
               "impact_us": candidate.impact_us, "shared_with": candidate.shared_with})
    };
    let names = |servers: &[ServerId]| servers.iter().map(|server| name(*server)).collect::<Vec<_>>();
    let mut value = json!({
        "from": advice.range.start, "to": advice.range.end, "replicas": names(&advice.servers),
    });
    match &advice.told {
        Err(reason) => value["no_advice"] = json!(reason.to_string()),
        Ok(told) => {
            value["selection"] = json!(told.selection);
            value["takes_us"] = json!(told.takes_us);
            value["impact_us"] = json!(told.impact_us);
            value["chosen"] = told.parts.iter().map(part).collect();
            value["candidates"] = told.candidates.iter().map(candidate).collect();
            value["unknown"] = json!(names(&told.unknown));
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_have_units() {
        assert_eq!([offset("0"), offset("64M"), offset("3G")], [Ok(0), Ok(64 << 20), Ok(3 << 30)]);
        for wrong in ["", "M", "-1", "64MB", "99999999999G"] {
            assert!(offset(wrong).unwrap_err().contains("64M"), "{wrong}");
        }
    }

    #[test]
    fn without_advice_the_nearest_replica_is_named() {
        let servers = vec![ServerId(1002), ServerId(1001)];
        let advice = ReadAdvice { range: 0..5, servers, told: Err(NoAdvice::Silent) };
        let text = lines(&advice).join("\n");
        assert!(
            text.starts_with("bytes 0 to 5 (5 B) lie on data-2, data-1\nthe flow server does not answer"),
            "{text}"
        );
        assert!(text.ends_with("data-2"), "{text}");
        let end = ReadAdvice { servers: Vec::new(), ..advice };
        assert!(lines(&end)[0].contains("hole"));
    }
}
