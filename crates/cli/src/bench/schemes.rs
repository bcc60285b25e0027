//! `bench schemes`: every scheme's placement and lookup as code alone, in one thread: how long locating
//! takes, tables, changes, and what they keep.

use super::machine::{self, Identity};
use super::report::spread;
use anyhow::{Context, Result, bail};
use bearing_lookup::bloom::{Bloom, BloomOptions, Probe, Shape, Sizes, replicas_each};
use bearing_lookup::{Event, FileKey, Lookup, Map, Query, QueryId, Target};
use bearing_openflow::{Budget, Form, Tables, change};
use bearing_placement::partition::build;
use bearing_placement::{
    Assignment, BTree, Growth, Load, LookupKind, Parameters, Partition, Scheme, Seat, Seating,
};
use bearing_types::{MapVersion, Mono, NameHash, NodeId, Position, ServerId};
use clap::Args;
use comfy_table::{Table, presets};
use std::fmt::Write as _;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// `bench schemes`.
#[derive(Args, Clone, Debug)]
pub struct Schemes {
    /// Sizes of clusters, one after the other
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "100,1000,10000", value_parser = clap::value_parser!(u32).range(2..=50_000))]
    pub servers: Vec<u32>,
    /// How often everything is timed
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub repetitions: u32,
    /// Where to put the raw results [default: bench/runs/DATE-schemes.csv]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Locates in one timing.
const LOCATES: u64 = 200_000;
/// Boundaries are rounded to short prefixes within this share of an arc, as a cluster's tablets are.
const TOLERANCE: f64 = 0.1;
/// Files of each server, for filters.
const FILES_EACH: u64 = 1_000;

/// What was measured, and what came out each time.
struct Line {
    what: &'static str,
    scheme: String,
    servers: u32,
    unit: &'static str,
    values: Vec<f64>,
}

/// Runs `bench schemes`.
pub fn run(options: &Schemes) -> Result<()> {
    let mut bench = Bench { options: options.clone(), lines: Vec::new() };
    for servers in &options.servers {
        bench.locate(*servers)?;
    }
    bench.seats();
    bench.filters()?;
    for servers in &options.servers {
        bench.tables(*servers)?;
    }
    println!("{}", bench.table());
    let identity = Identity::read();
    let path =
        options.out.clone().unwrap_or_else(|| format!("bench/runs/{}-schemes.csv", identity.date).into());
    bench.write(&path, &identity)?;
    println!("\nraw results: {}", path.display());
    Ok(())
}

struct Bench {
    options: Schemes,
    lines: Vec<Line>,
}

fn members(count: u32) -> Vec<ServerId> {
    (1..=count).map(ServerId).collect()
}

/// Positions that are not in order, the same every time.
fn position(index: u64) -> Position {
    Position(index.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn target(index: u64) -> Target {
    Target { position: position(index), file: FileKey(index) }
}

impl Bench {
    fn add(
        &mut self,
        what: &'static str,
        scheme: impl ToString,
        servers: u32,
        unit: &'static str,
        values: Vec<f64>,
    ) {
        eprintln!("{what} {} {servers}: {:.1} {unit}", scheme.to_string(), spread(values.clone())[1]);
        self.lines.push(Line { what, scheme: scheme.to_string(), servers, unit, values });
    }

    /// Nanoseconds of one call, each time.
    fn timed(&self, calls: u64, mut call: impl FnMut(u64)) -> Vec<f64> {
        let once = |_| {
            let start = Instant::now();
            (0..calls).for_each(&mut call);
            start.elapsed().as_nanos() as f64 / calls as f64
        };
        (0..self.options.repetitions).map(once).collect()
    }

    /// A client's whole step for a new query; what its tables and a server's take.
    fn locate(&mut self, count: u32) -> Result<()> {
        let servers = members(count);
        for scheme in Scheme::ALL {
            let parts = scheme.parts();
            let partition = build(parts.partition, &servers, &scheme.parameters())?;
            let assignment = Arc::new(Assignment::of(&partition.arcs().rounded(TOLERANCE), 1)?);
            let sizes = Sizes { servers: count, keys_each: FILES_EACH };
            let lookup = Lookup::new(parts.lookup, sizes)?;
            let mut client = lookup.client(&servers, 0);
            let mut out = Vec::new();
            client.step(Mono::ZERO, Event::Map(Map::new(MapVersion(1), Arc::clone(&assignment))), &mut out);
            if matches!(parts.lookup, LookupKind::CachedFingers | LookupKind::RebuildingFingers) {
                // A cache that has met everybody, as it is after a while.
                let query = Query::new(QueryId(0), target(0));
                for server in &servers {
                    client.step(Mono::ZERO, Event::Served(query, *server), &mut out);
                }
            }
            let step = self.timed(LOCATES, |index| {
                out.clear();
                client.step(Mono::ZERO, Event::Query(Query::new(QueryId(index), target(index))), &mut out);
                black_box(&out);
            });
            self.add("locate at the client", scheme, count, "ns", step);
            self.add("tables of a client", scheme, count, "bytes", vec![client.table_bytes() as f64]);
            let bytes = match BloomOptions::of(parts.lookup, sizes) {
                // Filters have to hold files to be worth a measurement: see `filters`.
                Ok(filters) => filter_bytes(&filters, count),
                Err(_) => self.query_at_a_server(scheme, &lookup, &servers, assignment),
            };
            self.add("tables of a server", scheme, count, "bytes", vec![bytes]);
        }
        Ok(())
    }

    /// A server's whole step for a query that is its own or another's. Gives what its tables take.
    fn query_at_a_server(
        &mut self,
        scheme: Scheme,
        lookup: &Lookup,
        servers: &[ServerId],
        map: Arc<Assignment>,
    ) -> f64 {
        let Some((_, mut server)) = lookup.servers(servers).into_iter().next() else { return 0.0 };
        let mut out = Vec::new();
        server.step(Mono::ZERO, Event::Map(Map::new(MapVersion(1), map)), &mut out);
        let step = self.timed(LOCATES, |index| {
            out.clear();
            server.step(Mono::ZERO, Event::Query(Query::new(QueryId(index), target(index))), &mut out);
            black_box(&out);
        });
        self.add("a query at a server", scheme, servers.len() as u32, "ns", step);
        server.table_bytes() as f64
    }

    /// Positions from seats.
    fn seats(&mut self) {
        for (name, seating) in [
            ("anglecut-hashed", Seating::AnglecutHashed),
            ("hash", Seating::Hash),
            ("drop", Seating::PathKey),
            ("chosen", Seating::Chosen),
        ] {
            let root = Seat::root(NodeId::ROOT, seating);
            let names = self.timed(LOCATES, |index| {
                black_box(root.position_of(NameHash::from_bits(position(index).0 >> 16)));
            });
            self.add("position of a name", name, 0, "ns", names);
            let children = self.timed(LOCATES, |index| {
                black_box(root.child(NodeId(index + 2), NameHash::from_bits(position(index).0 >> 16)));
            });
            self.add("seat of a directory", name, 0, "ns", children);
        }
    }

    /// Filters by themselves: one, and side by side as many as a member of a group holds with 100 servers
    /// (11) and a server of HBA with 100 and 1,000.
    fn filters(&mut self) -> Result<()> {
        let keys = FILES_EACH * 10;
        let mut filters = Vec::new();
        for server in 0..999u64 {
            let mut filter = Bloom::new(Shape::for_keys(keys, 8.0, 1)?)?;
            (0..keys).for_each(|key| filter.insert(FileKey(position(server * keys + key).0)));
            filters.push(filter);
        }
        for count in [1, 11, 99, 999] {
            let calls = LOCATES / count as u64;
            let array = self.timed(calls, |index| {
                let probe = Probe::of(FileKey(position(index).0), 1);
                black_box(filters[..count].iter().filter(|filter| filter.may_hold_probe(probe)).count());
            });
            self.add("a look into an array of filters", format!("{count} of {keys} files"), 0, "ns", array);
        }
        Ok(())
    }

    /// MetaFlow's tables over a fat tree that holds so many servers.
    fn tables(&mut self, count: u32) -> Result<()> {
        let ports = (2u32..)
            .step_by(2)
            .find(|ports| ports.pow(3) / 4 >= count)
            .context("no fat tree is large enough")?;
        let topology = Arc::new(bearing_routing::Shape::fat_tree(ports)?.switch_tree()?);
        let servers = members(count);
        let load = Load::new((0..u64::from(count) * 20).map(|index| (position(index), 1.0)));
        let busy = servers.len() - servers.len() / 8;
        for (name, growth, form) in [
            ("metaflow", Growth::published(busy), Form::Published),
            ("metaflow, fewest prefixes", Growth::fewest_prefixes(busy), Form::Compressed),
        ] {
            let parameters = Parameters::default();
            // Tables of the published form may exceed any switch's budget: what they would need is to be
            // seen.
            let budget = Budget(usize::MAX);
            let mut tree = BTree::new(Arc::clone(&topology), &servers, growth, &load, &parameters)?;
            let mut tables = None;
            let built = self.timed(1, |_| {
                tables = Tables::new(&topology, tree.hosts(), tree.arcs(), form, budget).ok();
            });
            let Some(mut tables) = tables else { bail!("no tables were made for {count} servers") };
            let seconds = built.iter().map(|nanos| nanos / 1e6).collect();
            self.add("all tables", name, count, "ms", seconds);
            let entries: Vec<f64> =
                topology.switches().map(|switch| tables.of(switch).entries().len() as f64).collect();
            let most = entries.iter().copied().fold(0.0, f64::max);
            self.add("entries of the fullest switch", name, count, "entries", vec![most]);
            let mean = entries.iter().sum::<f64>() / entries.len() as f64;
            self.add("entries of a switch, mean", name, count, "entries", vec![mean]);
            self.add(
                "imbalance of the busy servers",
                name,
                count,
                "ratio",
                vec![load.imbalance(tree.arcs())],
            );
            let mut splits = Vec::new();
            let mut steps = Vec::new();
            for index in 0..self.options.repetitions {
                let server = tree.arcs().owner(position(u64::from(index) + 77));
                let start = Instant::now();
                let Some(activated) = tree.split(server, &load)? else { continue };
                let next = tables.after(tree.hosts(), &[activated.handover])?;
                let way = change(&tables, &next)?;
                splits.push(start.elapsed().as_nanos() as f64 / 1e3);
                steps.push(way.steps.len() as f64);
                tables = next;
            }
            if !splits.is_empty() {
                self.add("a split, its tables and its steps", name, count, "us", splits);
                self.add("steps of a split", name, count, "steps", steps);
            }
        }
        Ok(())
    }

    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN).set_header([
            "what",
            "scheme",
            "servers",
            "min / median / max",
            "unit",
        ]);
        for line in &self.lines {
            let [least, median, most] = spread(line.values.clone());
            let values = if line.values.len() == 1 {
                format!("{median:.1}")
            } else {
                format!("{least:.1} / {median:.1} / {most:.1}")
            };
            let servers = if line.servers == 0 { String::new() } else { line.servers.to_string() };
            table.add_row([line.what.to_owned(), line.scheme.clone(), servers, values, line.unit.to_owned()]);
        }
        table.to_string()
    }

    fn write(&self, path: &Path, identity: &Identity) -> Result<()> {
        let mut text = identity.comment();
        let _ = writeln!(
            text,
            "# one thread; a client's locate is its whole step for a new query, its tables in the caches of this machine's processor"
        );
        let _ = writeln!(text, "# filters: {FILES_EACH} files a server; their bytes grow with files");
        let _ = writeln!(text, "# tables of tablets: boundaries rounded within {TOLERANCE} of an arc");
        let _ = writeln!(text, "# load: {}", machine::load());
        text.push_str("what,scheme,servers,repetition,value,unit\n");
        for line in &self.lines {
            for (repetition, value) in line.values.iter().enumerate() {
                let Line { what, scheme, servers, unit, .. } = line;
                let _ = writeln!(text, "{what},\"{scheme}\",{servers},{},{value:.3},{unit}", repetition + 1);
            }
        }
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
        }
        std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
    }
}

/// Bytes of a server's filters when all replicas are there, from their shapes.
fn filter_bytes(filters: &BloomOptions, servers: u32) -> f64 {
    let held = 1.0 + replicas_each(servers, filters.group_most);
    let recent = filters.recent.map_or(0, |recent| recent.encoded_bytes(servers));
    held * filters.filter.encoded_bytes() as f64 + recent as f64
}
