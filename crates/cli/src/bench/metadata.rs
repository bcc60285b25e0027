//! `bench metadata`: one metadata server on one core, a native client on another, over loopback datagrams.

use super::bare::{Bare, Templates};
use super::cluster::{Cluster, Kind, Servers};
use super::create::Creates;
use super::drive::{Load, Loop, Tally, Until};
use super::link::Link;
use super::machine::{self, CLIENT_CORE, Identity, Removed};
use super::report::{Line, Pair, Results, Sample};
use super::stat::{Draw, Skew, Stats};
use super::tree::{Ask, Tree};
use crate::failure::Usage;
use anyhow::{Context, Result, bail};
use bearing_env::{Clock, random_u64};
use bearing_types::Sequence;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// `bench metadata`.
#[derive(Args, Clone, Debug)]
pub struct Metadata {
    /// Distinct entries, created before anything is measured
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=16_000_000))]
    pub entries: u32,
    /// Seconds per measurement
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=20))]
    pub seconds: u64,
    /// Operations under way at the same time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=512))]
    pub in_flight: u32,
    /// Operations per datagram when packed
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=32))]
    pub packed: u32,
    /// How entries are drawn
    #[arg(long, value_enum, default_value_t = Distribution::Both)]
    pub distribution: Distribution,
    /// What to measure
    #[arg(long, value_enum, default_value_t = Measure::All)]
    pub measure: Measure,
    /// Pairs per line of the result
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub repetitions: u32,
    /// Where draws begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Where to put the servers' stores, removed afterwards [default: a new directory in the system's
    /// temporary one]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Where to put the raw results [default: bench/runs/DATE-metadata.csv]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// How entries are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Distribution {
    /// By Zipf's law with exponent 0.99.
    Zipf,
    /// All alike.
    Uniform,
    /// One after the other.
    Both,
}

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Measure {
    /// Everything.
    All,
    /// Reads only.
    Stat,
    /// Durable creation only.
    Create,
}

/// Datagrams under way while the entries are made, and when packed creation is measured.
const FILL_DATAGRAMS: usize = 64;
/// Creates from which the bare store's records are taken.
const TEMPLATE_ENTRIES: u32 = 4_000;
/// Not counted at the start of each line.
const WARM_UP: Duration = Duration::from_millis(500);

/// Runs the measurement.
pub fn run(flags: &Metadata) -> Result<()> {
    let identity = Identity::read();
    if identity.cores < 2 {
        bail!(Usage("the measurement needs two cores: one for the server, one for the client".to_owned()));
    }
    let out = flags
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("bench/runs/{}-metadata.csv", identity.date)));
    let (directory, _removed) = directory(flags)?;
    machine::pin(CLIENT_CORE)?;
    let mut results = Results::new(identity, flags.seed);
    let mut bench = Bench::make(flags, &directory, &mut results)?;
    if flags.measure != Measure::Create {
        bench.stats(flags, &mut results)?;
    }
    if flags.measure != Measure::Stat {
        bench.creates(flags, &mut results)?;
    }
    results.write(&out)?;
    println!("\n{}\n\nraw results: {}", results.table(), out.display());
    Ok(())
}

/// Where stores go, and what removes it in the end.
fn directory(flags: &Metadata) -> Result<(PathBuf, Removed)> {
    let directory = match &flags.dir {
        Some(directory) => std::path::absolute(directory).context("find the directory")?,
        None => std::env::temp_dir().join(format!("bearing-bench-{:016x}", random_u64())),
    };
    if directory.exists() && std::fs::read_dir(&directory)?.next().is_some() {
        bail!(Usage(format!("{} is not empty; give a new directory", directory.display())));
    }
    std::fs::create_dir_all(&directory).with_context(|| format!("make {}", directory.display()))?;
    let removed = Removed(directory.clone());
    Ok((directory, removed))
}

/// One server to talk to.
struct Side {
    cluster: Cluster,
    link: Link,
    requests: Loop<Ask>,
}

struct Bench {
    server: Side,
    canned: Side,
    tree: Tree,
    templates: Templates,
    bare: Bare,
}

impl Bench {
    fn make(flags: &Metadata, directory: &Path, results: &mut Results) -> Result<Bench> {
        let fill = Load { in_flight: FILL_DATAGRAMS * flags.packed as usize, packed: flags.packed as usize };
        let mut beside = Cluster::make(&directory.join("beside"), Servers::ONE)?;
        let templates = take_templates(&mut beside, flags)?;
        results.note(
            "log record of a create",
            format!("{} bytes, {:.1} changes", templates.bytes_mean(), templates.changes_mean()),
        );
        let bare = Bare::make(&directory.join("bare"))?;
        let mut cluster = Cluster::make(&directory.join("server"), Servers::ONE)?;
        cluster.start(Kind::Real)?;
        let mut link = Link::new(&cluster)?;
        let mut requests = Loop::new(Sequence(1));
        let began = Instant::now();
        let tree = Tree::make(&mut link, &mut requests, flags.entries, fill)?;
        let (took, entries) = (began.elapsed().as_secs_f64(), f64::from(tree.len()));
        let made = format!(
            "{} entries in {} directories, one of them with a fifth of all, in {took:.1} s ({:.0} durable creates per second, {} under way, {} per datagram)",
            tree.len(),
            tree.directory_count(),
            entries / took,
            fill.in_flight,
            fill.packed
        );
        results.note("filled", made);
        beside.start(Kind::Canned)?;
        let mut canned = Link::new(&beside)?;
        canned.take_map(link.map().clone());
        let canned = Side { cluster: beside, link: canned, requests: Loop::new(Sequence(1)) };
        Ok(Bench { server: Side { cluster, link, requests }, canned, tree, templates, bare })
    }

    fn stats(&mut self, flags: &Metadata, results: &mut Results) -> Result<()> {
        let skews: &[Skew] = match flags.distribution {
            Distribution::Zipf => &[Skew::Zipf],
            Distribution::Uniform => &[Skew::Uniform],
            Distribution::Both => &[Skew::Zipf, Skew::Uniform],
        };
        let (in_flight, packed) = (flags.in_flight as usize, flags.packed as usize);
        let loads = [(in_flight, 1), (in_flight.max(packed), packed), (in_flight * packed, packed)];
        for skew in skews {
            for (in_flight, packed) in loads {
                let load = Load { in_flight, packed };
                let pairs = self.stat_pairs(flags, *skew, load)?;
                let (distribution, beside) = (skew.word(), "canned".to_owned());
                results.add(Line { operation: "stat", distribution, in_flight, packed, beside }, pairs);
            }
        }
        Ok(())
    }

    fn stat_pairs(&mut self, flags: &Metadata, skew: Skew, load: Load) -> Result<Vec<Pair>> {
        let duration = Duration::from_secs(flags.seconds);
        let mut draw = Draw::new(skew, self.tree.len(), flags.seed);
        self.server.stat(&mut self.tree, &mut draw, load, WARM_UP)?;
        self.canned_stat(&mut draw, load, WARM_UP)?;
        let mut pairs = Vec::new();
        for number in 0..flags.repetitions {
            // Turn and turn about, so that neither always comes first.
            let canned_first =
                if number % 2 == 1 { Some(self.canned_stat(&mut draw, load, duration)?) } else { None };
            let server = self.server.stat(&mut self.tree, &mut draw, load, duration)?;
            let other = match canned_first {
                Some(sample) => sample,
                None => self.canned_stat(&mut draw, load, duration)?,
            };
            let pair = Pair { server, other };
            println!(
                "stat {} {} in flight, {} per datagram: {:.0} beside {:.0} op/s, ratio {:.2}; {:.2} beside {:.2} us of the server's core",
                skew.word(),
                load.in_flight,
                load.packed,
                pair.server.rate,
                pair.other.rate,
                pair.ratio(),
                pair.server.server_us,
                pair.other.server_us
            );
            pairs.push(pair);
        }
        Ok(pairs)
    }

    /// The server's session is renewed before: the canned server answers renewals too, in vain.
    fn canned_stat(&mut self, draw: &mut Draw, load: Load, duration: Duration) -> Result<Sample> {
        let Side { link, requests, .. } = &mut self.server;
        self.tree.renew_session(link, requests)?;
        self.canned.stat(&mut self.tree, draw, load, duration)
    }

    fn creates(&mut self, flags: &Metadata, results: &mut Results) -> Result<()> {
        let (in_flight, packed) = (flags.in_flight as usize, flags.packed as usize);
        for (in_flight, packed) in [(in_flight, 1), (FILL_DATAGRAMS * packed, packed)] {
            let load = Load { in_flight, packed };
            let mut pairs = Vec::new();
            for number in 0..flags.repetitions {
                pairs.push(self.create_pair(flags, load, number)?);
            }
            let beside = format!("bare store, batches of {in_flight}");
            results.add(
                Line { operation: "create", distribution: "one directory", in_flight, packed, beside },
                pairs,
            );
        }
        Ok(())
    }

    fn create_pair(&mut self, flags: &Metadata, load: Load, number: u32) -> Result<Pair> {
        let duration = Duration::from_secs(flags.seconds);
        let Side { cluster, link, requests } = &mut self.server;
        let name = format!("created-{}-{number}", load.in_flight);
        let directory = self.tree.add_directory(link, requests, &name)?;
        let mut creates = Creates { tree: &mut self.tree, directory, count: 0 };
        let server = measured(cluster, || requests.run(link, &mut creates, load, Until::After(duration)))?;
        let tree = &mut self.tree;
        let keep_session = || tree.keep_session(link, requests);
        let written = self.bare.run(&self.templates, load.in_flight, duration, keep_session)?;
        let seconds = written.elapsed.as_secs_f64();
        let rate = written.records as f64 / seconds;
        let other = Sample {
            rate,
            operations: written.records,
            seconds,
            server_us: written.processor_us_per_record(),
            load: machine::load(),
            ..Sample::default()
        };
        let pair = Pair { server, other };
        println!(
            "create {} in flight, {} per datagram: {:.0} beside {:.0} op/s, ratio {:.2}; {:.1} replies per datagram",
            load.in_flight,
            load.packed,
            pair.server.rate,
            pair.other.rate,
            pair.ratio(),
            pair.server.replies_per_datagram
        );
        Ok(pair)
    }
}

impl Side {
    fn stat(&mut self, tree: &mut Tree, draw: &mut Draw, load: Load, duration: Duration) -> Result<Sample> {
        let Side { cluster, link, requests } = self;
        measured(cluster, || requests.run(link, &mut Stats { tree, draw }, load, Until::After(duration)))
    }
}

/// Measures what a loop does, and what it costs.
fn measured(cluster: &Cluster, run: impl FnOnce() -> Result<Tally>) -> Result<Sample> {
    let client = std::process::id();
    let before = (cluster.processor_time()?, machine::processor_time(client)?);
    let began = Clock.mono();
    let tally = run()?;
    let took = Clock.mono().since(began).as_secs_f64();
    let after = (cluster.processor_time()?, machine::processor_time(client)?);
    let seconds = tally.elapsed.as_secs_f64();
    let operations = tally.operations;
    Ok(Sample {
        rate: operations as f64 / seconds,
        operations,
        seconds,
        server_us: (after.0 - before.0).as_secs_f64() * 1e6 / operations as f64,
        client_share: (after.1 - before.1).as_secs_f64() / took,
        replies_per_datagram: tally.replies as f64 / tally.datagrams.max(1) as f64,
        latency_us: (
            tally.latency.value_at_quantile(0.5) / 1_000,
            tally.latency.value_at_quantile(0.99) / 1_000,
        ),
        repeats: (tally.retries, tally.resent),
        load: machine::load(),
    })
}

/// Lets a metadata server make some entries, stops it and reads what it logged.
fn take_templates(cluster: &mut Cluster, flags: &Metadata) -> Result<Templates> {
    cluster.start(Kind::Real)?;
    let mut link = Link::new(cluster)?;
    let load = Load { in_flight: FILL_DATAGRAMS * flags.packed as usize, packed: flags.packed as usize };
    Tree::make(&mut link, &mut Loop::new(Sequence(1)), TEMPLATE_ENTRIES, load)?;
    cluster.stop()?;
    Templates::read(&cluster.server_directory())
}
