//! `lab trace`: what is in a trace, and the same trace in the plain format.

use super::generate::{GenerateFlags, ScanFlags, generate, scan};
use super::output::Output;
use crate::failure::Usage;
use crate::voice::say;
use anyhow::{Context, Result, bail};
use bearing_lab::trace::{Format, HEADER, Kind, Reader, Tally, line_of};
use clap::{Args, Subcommand};
use comfy_table::{Table, presets};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// What is done with traces.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Say what is in a trace: its format, operations by kind, lines that cannot be understood
    Inspect(InspectFlags),
    /// Write a trace in the plain format (docs/formats/trace.md), to look at it or to change it
    Convert(ConvertFlags),
    /// Make a trace of a published workload, in the plain format
    Generate(GenerateFlags),
    /// Write the shape of a tree, without names (docs/formats/tree.md), to make traces on it
    Scan(ScanFlags),
}

const INSPECT_EXAMPLES: &str = "\
Examples:
  bearing lab trace inspect hdfs-audit.log
  zcat access.log.gz | bearing lab trace inspect -

It reads the plain format, Berkeley's RES and INS as text (berkeley), Microsoft's production servers as CSV
(microsoft), HDFS audit logs (hdfs-audit), Ellard's NFS text (ellard) and JuiceFS access logs (juicefs).";

/// `lab trace inspect`.
#[derive(Args, Clone, Debug)]
#[command(after_help = INSPECT_EXAMPLES)]
pub struct InspectFlags {
    /// The trace; - for what is piped in
    pub trace: PathBuf,
    /// Its format [default: seen from its first lines]
    #[arg(long)]
    pub format: Option<String>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `lab trace convert`.
#[derive(Args, Clone, Debug)]
pub struct ConvertFlags {
    /// The trace; - for what is piped in
    pub trace: PathBuf,
    /// Where to write it; - to print it
    pub out: PathBuf,
    /// Its format [default: seen from its first lines]
    #[arg(long)]
    pub format: Option<String>,
}

/// Runs `lab trace`.
pub fn run(command: &TraceCommand) -> Result<()> {
    match command {
        TraceCommand::Inspect(flags) => inspect(flags),
        TraceCommand::Convert(flags) => convert(flags),
        TraceCommand::Generate(flags) => generate(flags),
        TraceCommand::Scan(flags) => scan(flags),
    }
}

pub(super) fn open(path: &Path, format: Option<&str>) -> Result<Reader<Box<dyn BufRead>>> {
    let format = match format {
        None => None,
        Some(name) => Some(Format::named(name).ok_or_else(|| {
            let names = Format::ALL.map(Format::name).join(", ");
            Usage(format!("there is no format {name:?} of traces; give one of {names}"))
        })?),
    };
    let input: Box<dyn BufRead> = match path.to_str() {
        Some("-") => Box::new(io::stdin().lock()),
        _ => Box::new(BufReader::with_capacity(
            1 << 20,
            File::open(path).with_context(|| format!("open the trace {}", path.display()))?,
        )),
    };
    Reader::new(input, format).with_context(|| format!("read the trace {}", path.display()))
}

fn inspect(flags: &InspectFlags) -> Result<()> {
    let mut reader = open(&flags.trace, flags.format.as_deref())?;
    while reader.next_event().with_context(|| format!("read {}", flags.trace.display()))?.is_some() {}
    let (format, tally) = (reader.format(), reader.tally());
    if flags.json {
        return say_json(format, tally);
    }
    let seconds = tally.last_us as f64 / 1e6;
    say!("{} trace, {} lines, {} operations in {seconds:.3} s", format.name(), tally.lines, tally.events())?;
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["OPERATION", "COUNT", "SHARE"]);
    let all = tally.events().max(1) as f64;
    for (kind, count) in &tally.kinds {
        let share = format!("{:.2} %", 100.0 * *count as f64 / all);
        table.add_row([kind.name().to_owned(), count.to_string(), share]);
    }
    if !tally.kinds.is_empty() {
        say!("\n{table}")?;
    }
    if !tally.others.is_empty() {
        let others: Vec<String> =
            tally.others.iter().map(|(word, count)| format!("{word} {count}")).collect();
        say!(
            "\nleft out, because they were refused or name no file that is asked for: {}",
            others.join(", ")
        )?;
    }
    if tally.malformed > 0 {
        say!("\nlines that cannot be understood: {}; the first of them:", tally.malformed)?;
        for one in &tally.examples {
            say!("  line {}: {}: {}", one.line, one.why, one.text)?;
        }
    }
    if let Some(warning) = warning(tally) {
        say!("\n{warning}")?;
    }
    Ok(())
}

/// What is to be known before anything is concluded from it.
pub(super) fn warning(tally: &Tally) -> Option<String> {
    let mut said = Vec::new();
    if tally.events() == 0 {
        said.push("no operation was found: nothing can be replayed".to_owned());
    } else if tally.metadata_events() == 0 {
        said.push(
            "no operation asks for metadata, these are reads and writes of bytes: the names give a tree and how \
             often each file was used, but nothing is known of lookups, creations or updates"
                .to_owned(),
        );
    }
    if tally.earlier > 0 {
        said.push(format!(
            "{} operations are earlier than the first one, and count as if they were at its time: if these are \
             several files, give them in the order of time, the oldest first",
            tally.earlier
        ));
    }
    (!said.is_empty()).then(|| said.join("\n"))
}

fn say_json(format: Format, tally: &Tally) -> Result<()> {
    let kinds: serde_json::Map<String, serde_json::Value> =
        tally.kinds.iter().map(|(kind, count)| (kind.name().to_owned(), (*count).into())).collect();
    let examples: Vec<serde_json::Value> = tally
        .examples
        .iter()
        .map(|one| serde_json::json!({"line": one.line, "why": one.why, "text": one.text}))
        .collect();
    let json = serde_json::json!({
        "format": format.name(),
        "lines": tally.lines,
        "operations": kinds,
        "left_out": tally.others,
        "malformed": tally.malformed,
        "malformed_lines": examples,
        "earlier_than_the_first": tally.earlier,
        "seconds": tally.last_us as f64 / 1e6,
        "warning": warning(tally),
    });
    say!("{}", serde_json::to_string_pretty(&json)?)?;
    Ok(())
}

fn convert(flags: &ConvertFlags) -> Result<()> {
    let mut reader = open(&flags.trace, flags.format.as_deref())?;
    let mut next = || reader.next_event().with_context(|| format!("read {}", flags.trace.display()));
    // A mistake does not replace a file by nothing.
    let Some(first) = next()? else {
        bail!(
            "no operation was found in {}: nothing is written; `bearing lab trace inspect` says what is in it",
            flags.trace.display()
        );
    };
    let mut out = Output::new(&flags.out, Some(&flags.trace))?;
    let writing = || format!("write {}", flags.out.display());
    writeln!(out, "{HEADER}\n{}", line_of(&first)).with_context(writing)?;
    while let Some(event) = next()? {
        writeln!(out, "{}", line_of(&event)).with_context(writing)?;
    }
    out.finish().with_context(writing)?;
    let tally = reader.tally();
    let left_out: u64 = tally.others.values().sum();
    let renames = tally.kinds.get(&Kind::Rename).copied().unwrap_or(0);
    eprintln!(
        "{} operations written ({renames} of them renames); {left_out} left out, {} lines not understood",
        tally.events(),
        tally.malformed
    );
    if let Some(warning) = warning(tally) {
        eprintln!("{warning}");
    }
    Ok(())
}
