//! `lab calibrate`: what work costs the servers of this program on this machine.
//!
//! Three metadata servers on one core, a client on another. Loads are interleaved round by round, so that the
//! machine's moods meet all of them alike.

use super::output::Output;
use crate::bench::cluster::{Cluster, Kind, Servers};
use crate::bench::drive::{self, Loop};
use crate::bench::link::{Link, Toward};
use crate::bench::machine::{self, CLIENT_CORE, Identity, Removed};
use crate::bench::stat::{Draw, Skew, Stats};
use crate::bench::tree::{Ask, Tree};
use crate::failure::Usage;
use crate::voice::say;
use anyhow::{Context, Result, bail};
use bearing_env::random_u64;
use bearing_lab::percentile;
use bearing_lab::queues::calibration::{
    self, Asked, Calibration, FITTED, Judged, Load, Pace, Round, Seen, TOLERANCE, judged_by,
};
use bearing_placement::LookupKind;
use bearing_types::Sequence;
use bearing_workload::Seeded;
use clap::Args;
use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  bearing lab calibrate
  bearing lab queues --calibration calibration.json --servers 100,500
  bearing lab report --out figures --calibration calibration.json

Needs two cores and one and a half minutes with nothing else running. Coefficients are fitted to some loads and judged by
others; how far they are off is in the file, and in every report that uses it.";

/// `lab calibrate`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CalibrateFlags {
    /// Where the coefficients go
    #[arg(long, value_name = "FILE", default_value = "calibration.json")]
    pub out: PathBuf,
    /// How often each load is measured, for a quarter of a second
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Print the file as well
    #[arg(long)]
    pub json: bool,
}

/// Entries that are asked for.
const ENTRIES: u32 = 20_000;
/// How long each load is measured in a round.
const SLOT: Duration = Duration::from_millis(250);
/// Rounds that are not counted.
const WARM_UP: u32 = 1;

/// Runs `lab calibrate`.
pub fn run(flags: &CalibrateFlags) -> Result<()> {
    let identity = Identity::read();
    if identity.cores < 2 {
        bail!(Usage("the measurement needs two cores: one for the servers, one for the client".to_owned()));
    }
    // That it cannot be written is said now, not when all is measured.
    let mut out = Output::new(&flags.out, None)?;
    let directory = std::env::temp_dir().join(format!("bearing-calibrate-{:016x}", random_u64()));
    std::fs::create_dir_all(&directory).with_context(|| format!("make {}", directory.display()))?;
    let _removed = Removed(directory.clone());
    machine::pin(CLIENT_CORE)?;
    let mut bench = Bench::make(&directory)?;
    let bar = ProgressBar::new(u64::from(WARM_UP + flags.rounds));
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} rounds, {eta} left")?);
    let mut rounds = Vec::new();
    for number in 0..WARM_UP + flags.rounds {
        let round = bench.round(&rounds)?;
        if number >= WARM_UP {
            rounds.push(round);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let (coefficients, fitted, judged) = calibration::calibrate(&rounds)?;
    let Identity { date, commit, cores, processor, kernel, .. } = identity;
    let found = Calibration {
        version: calibration::VERSION,
        commit,
        date,
        machine: format!("{cores} cores, {processor}, Linux {kernel}"),
        rounds: rounds.len(),
        coefficients,
        fitted,
        judged,
    };
    let text = serde_json::to_string_pretty(&found)?;
    match flags.json {
        true => say!("{text}")?,
        false => show(&found)?,
    }
    let writing = || format!("write {}", flags.out.display());
    out.write_all(text.as_bytes()).with_context(writing)?;
    out.finish().with_context(writing)?;
    if !flags.json {
        say!("\n{}", flags.out.display())?;
    }
    Ok(())
}

/// Reads what `lab calibrate` wrote.
pub fn read(path: &Path) -> Result<Calibration> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("read {}; `bearing lab calibrate` makes such a file", path.display()))?;
    #[derive(serde::Deserialize)]
    struct Versioned {
        version: u32,
    }
    if let Ok(Versioned { version }) = serde_json::from_str(&text)
        && version > calibration::VERSION
    {
        bail!(
            "{} has version {version}, this program knows versions up to {}; use a newer one",
            path.display(),
            calibration::VERSION
        );
    }
    let found: Calibration = serde_json::from_str(&text).with_context(|| {
        format!("{} is no calibration; `bearing lab calibrate` makes one", path.display())
    })?;
    if found.version == 0 {
        bail!(
            "{} has version 0, versions begin with 1; `bearing lab calibrate` makes such a file",
            path.display()
        );
    }
    if found.coefficients.storage.is_zero() {
        bail!("{}: storage is 0, so operations cost nothing; calibrate again", path.display());
    }
    if found.errors().iter().any(|error| error.is_infinite()) {
        bail!("{} does not say how far it is off (\"judged\"); calibrate again", path.display());
    }
    Ok(found)
}

/// How far queues are off, in a sentence.
pub fn error_of(calibration: &Calibration) -> String {
    let [throughput, median] = calibration.errors().map(|error| error * 100.0);
    let beyond = if calibration.holds() {
        String::new()
    } else {
        format!(
            "; that is more than {:.0} %: calibrate again when nothing else runs, and trust these lines no \
             further than that",
            TOLERANCE * 100.0
        )
    };
    format!(
        "calibrated on {} ({}): on loads that were not fitted to, throughput is off by {throughput:.0} % at \
         most, the median by {median:.0} %{beyond}",
        calibration.date, calibration.machine
    )
}

struct Bench {
    // Before what it is talked to with: servers end when all is measured.
    cluster: Cluster,
    link: Link,
    requests: Loop<Ask>,
    tree: Tree,
    draw: Draw,
    rng: Seeded,
}

impl Bench {
    fn make(directory: &Path) -> Result<Bench> {
        let servers = Servers { count: calibration::SERVERS, lookup: LookupKind::OneHop };
        let mut cluster = Cluster::make(&directory.join("cluster"), servers)?;
        cluster.start(Kind::Real)?;
        let mut link = Link::new(&cluster)?;
        let mut requests = Loop::new(Sequence(1));
        let fill = drive::Load { in_flight: 64, packed: 1 };
        let tree = Tree::make(&mut link, &mut requests, ENTRIES, fill)?;
        let draw = Draw::new(Skew::Uniform, ENTRIES, 1);
        Ok(Bench { cluster, link, requests, tree, draw, rng: Seeded::new(1) })
    }

    /// Open loops are at shares of what was seen so far: one round alone may have been disturbed.
    fn round(&mut self, before: &[Round]) -> Result<Round> {
        let [a, b, c, d] = FITTED;
        let fitted = [self.measure(a)?, self.measure(b)?, self.measure(c)?, self.measure(d)?];
        let rates: Vec<f64> = before
            .iter()
            .map(|round| &round.fitted)
            .chain([&fitted])
            .map(|seen| seen[3].per_second)
            .collect();
        let [a, b, c, d] = judged_by(percentile(&rates, 0.5));
        let judged = [self.measure(a)?, self.measure(b)?, self.measure(c)?, self.measure(d)?];
        Ok(Round { fitted, judged })
    }

    fn measure(&mut self, load: Load) -> Result<Seen> {
        self.link.toward = match load.asked {
            Asked::Owner => Toward::Owner,
            Asked::Any => Toward::Any,
        };
        let pace = match load.pace {
            Pace::Closed(in_flight) => drive::Pace::Closed { in_flight: in_flight as usize },
            Pace::Open(per_second) => drive::Pace::Open { per_second },
        };
        let before = self.cluster.processor_time()?;
        let Bench { link, requests, tree, draw, rng, .. } = self;
        let tally = requests.pace(link, &mut Stats { tree, draw }, pace, rng, SLOT)?;
        let used = self.cluster.processor_time()? - before;
        if tally.operations == 0 {
            bail!("no operation was answered in {} ms; is something else running?", SLOT.as_millis());
        }
        let operations = tally.operations as f64;
        Ok(Seen {
            per_second: operations / tally.elapsed.as_secs_f64(),
            median: tally.latency.value_at_quantile(0.5) as f64 / 1e9,
            processor: used.as_secs_f64() / operations,
        })
    }
}

fn show(found: &Calibration) -> Result<()> {
    let micros = |time: Duration| format!("{:.1} us", time.as_nanos() as f64 / 1e3);
    let of = &found.coefficients;
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["COSTS A METADATA SERVER", ""]);
    for (what, time) in [
        ("to wake up when a request comes", of.wake),
        ("to begin a turn, in which it takes all that waits", of.turn),
        ("to carry out stat, of what waits", of.storage),
        ("to pass a request on, of what waits", of.lookup),
        ("and the client, with the way to it and back", of.client),
    ] {
        table.add_row([what.to_owned(), micros(time)]);
    }
    table.add_row([
        "how much turns differ (deviation of the logarithm)".to_owned(),
        format!("{:.2}", of.spread),
    ]);
    say!("{table}\n")?;
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "LOAD",
        "",
        "OP/S SEEN",
        "SAID",
        "OFF",
        "MEDIAN SEEN",
        "SAID",
        "OFF",
    ]);
    for (judged, use_of) in found
        .fitted
        .iter()
        .map(|judged| (judged, "fitted to"))
        .chain(found.judged.iter().map(|judged| (judged, "judged by")))
    {
        table.add_row(row(judged, use_of));
    }
    say!("{table}\n\n{}", error_of(found))?;
    Ok(())
}

fn row(judged: &Judged, use_of: &str) -> Vec<String> {
    let Judged { load, seen, said } = judged;
    let asked = match load.asked {
        Asked::Owner => "owners",
        Asked::Any => "any server",
    };
    let pace = match load.pace {
        Pace::Closed(count) => format!("{count} under way"),
        Pace::Open(per_second) => format!("{per_second:.0} a second"),
    };
    let shown = |error: f64| format!("{:+.0} %", error * 100.0);
    let [rate, median] = judged.errors().map(|error| error.map_or_else(|| "given".to_owned(), shown));
    let micros = |seconds: f64| format!("{:.0} us", seconds * 1e6);
    vec![
        format!("{asked}, {pace}"),
        use_of.to_owned(),
        format!("{:.0}", seen.per_second),
        format!("{:.0}", said.per_second),
        rate,
        micros(seen.median),
        micros(said.median),
        median,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("c.json");
        std::fs::write(&path, text).expect("written");
        format!("{:#}", read(&path).expect_err("refused"))
    }

    #[test]
    fn what_is_no_calibration_or_a_newer_one_is_refused() {
        let newer = said(r#"{"version": 2, "of": "tomorrow"}"#);
        assert!(newer.contains("version 2") && newer.contains("up to 1"), "{newer}");
        assert!(said("hello").contains("`bearing lab calibrate` makes one"));
        let missing = format!("{:#}", read(Path::new("/nowhere/c.json")).expect_err("not there"));
        assert!(missing.contains("`bearing lab calibrate` makes such a file"), "{missing}");
        let times = r#""wake": 0, "turn": 1, "lookup": -1, "storage": 1, "client": 1, "spread": 0"#;
        let negative = said(&format!(
            r#"{{"version": 1, "commit": "", "date": "", "machine": "", "rounds": 1,
            "coefficients": {{{times}}}, "fitted": [], "judged": []}}"#
        ));
        assert!(negative.contains("microseconds from 0 to 1e9"), "{negative}");
        let with = |version: u32, storage: u32, spread: f64| {
            let times = format!(r#""wake": 0, "turn": 1, "lookup": 1, "storage": {storage}, "client": 1"#);
            said(&format!(
                r#"{{"version": {version}, "commit": "", "date": "", "machine": "", "rounds": 1,
                "coefficients": {{{times}, "spread": {spread}}}, "fitted": [], "judged": []}}"#
            ))
        };
        assert!(with(1, 1, 8.0).contains("a spread from 0 to 2"));
        assert!(with(0, 1, 0.0).contains("version 0"));
        assert!(with(1, 0, 0.0).contains("operations cost nothing"));
        assert!(with(1, 1, 0.0).contains("how far it is off"));
    }
}
