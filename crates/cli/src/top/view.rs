//! What `top` shows of two looks at all daemons.

use crate::names::shown;
use crate::top::scrape::{Change, Scrape, Spread};
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{BinaryBytes, HumanCount};
use std::collections::BTreeMap;

/// One look: the page of each daemon that answered, by name.
pub type Look = BTreeMap<String, Scrape>;

/// Who asks: host and process, and where it is mounted.
pub type Clients = BTreeMap<String, String>;

/// Paths of directories, by node.
pub type Paths = BTreeMap<String, Vec<u8>>;

/// A part of the screen: a table whose last rows may be left out.
pub struct Part {
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// So many columns from the second one on hold numbers.
    numbers: std::ops::Range<usize>,
}

impl Part {
    /// Its lines, with so many rows at most.
    pub fn lines(&self, rows_max: usize) -> Vec<String> {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(self.header.clone());
        self.rows.iter().take(rows_max).for_each(|row| _ = table.add_row(row));
        for column in self.numbers.clone() {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }
}

/// The daemons that do not answer or do not serve.
pub fn unwell(look: &Look, names: &[String]) -> Vec<String> {
    let said = names.iter().filter_map(|name| match look.get(name) {
        None => Some(format!("{name} does not answer")),
        Some(page) if page.sum("bearing_serving") == 0.0 => Some(format!("{name} does not serve")),
        Some(_) => None,
    });
    said.collect()
}

/// What changed between two looks, daemon by daemon: those that were there both times.
pub struct Changes<'a> {
    all: Vec<(&'a str, Change<'a>, &'a Scrape)>,
}

impl<'a> Changes<'a> {
    /// From one look to the next.
    pub fn new(before: &'a Look, after: &'a Look) -> Changes<'a> {
        let both = after
            .iter()
            .filter_map(|(name, page)| Some((name.as_str(), Change::new(before.get(name)?, page), page)));
        Changes { all: both.collect() }
    }

    fn rate(&self, metric: &str) -> f64 {
        self.all.iter().map(|(_, change, _)| change.rate(metric)).sum()
    }

    fn rate_of(&self, metric: &str, label: &str, value: &str) -> f64 {
        let rates = self.all.iter().flat_map(|(_, change, _)| change.rates(metric));
        rates.filter(|(sample, _)| sample.label(label) == value).map(|(_, rate)| rate).sum()
    }

    fn sum(&self, metric: &str) -> f64 {
        self.all.iter().map(|(.., page)| page.sum(metric)).sum()
    }

    /// The latencies of a histogram, by the value of a label.
    fn spreads(&self, metric: &str, label: &str) -> BTreeMap<&'a str, Spread> {
        let mut spreads: BTreeMap<&str, Spread> = BTreeMap::new();
        for (_, change, _) in &self.all {
            for (sample, rate) in change.rates(&format!("{metric}_bucket")) {
                spreads.entry(sample.label(label)).or_default().add(sample.label("le"), rate);
            }
        }
        spreads
    }

    /// A few lines on all of it.
    pub fn summary(&self) -> Vec<String> {
        let all = self.together("bearing_request_seconds");
        let syncs = self.together("bearing_log_sync_seconds");
        let lag =
            self.all.iter().map(|(.., page)| page.sum("bearing_replica_lag_entries")).fold(0.0, f64::max);
        let bytes = |kind| {
            format!("{}/s", BinaryBytes(self.rate_of("bearing_data_bytes_total", "kind", kind) as u64))
        };
        vec![
            format!(
                "metadata   {} requests/s, {}; {} log syncs/s, {}",
                number(self.rate("bearing_requests_total")),
                latencies(&all),
                number(self.rate("bearing_log_sync_seconds_count")),
                latencies(&syncs),
            ),
            format!(
                "data       {} appended, {} read; {} syncs/s",
                bytes("appended"),
                bytes("read"),
                number(self.rate_of("bearing_data_syncs_total", "of", "requests")),
            ),
            format!(
                "held       {} leases, {} delegated directories, {} recalls/s; slowest copy {} entries behind",
                number(self.sum("bearing_leases")),
                number(self.sum("bearing_delegations")),
                number(self.rate("bearing_recalls_total")),
                number(lag),
            ),
        ]
    }

    fn together(&self, metric: &str) -> Spread {
        self.spreads(metric, "").remove("").unwrap_or_default()
    }

    /// Requests to metadata and data servers, by kind.
    pub fn operations(&self) -> Part {
        let mut rows = Vec::new();
        for (server, total, seconds) in [
            ("metadata", "bearing_requests_total", "bearing_request_seconds"),
            ("data", "bearing_data_requests_total", "bearing_data_request_seconds"),
        ] {
            for (kind, spread) in self.spreads(seconds, "kind") {
                let rate = self.rate_of(total, "kind", kind);
                if rate > 0.0 {
                    rows.push((
                        rate,
                        vec![
                            kind.to_owned(),
                            server.to_owned(),
                            number(rate),
                            at(&spread, 0.5),
                            at(&spread, 0.99),
                        ],
                    ));
                }
            }
        }
        part(vec!["OPERATION", "AT", "PER S", "P50", "P99"], 2..5, rows)
    }

    /// Tablets, by requests.
    pub fn tablets(&self) -> Part {
        let mut rows = Vec::new();
        for (name, change, page) in &self.all {
            for (sample, rate) in
                change.rates("bearing_tablet_requests_total").filter(|(_, rate)| *rate > 0.0)
            {
                let tablet = sample.label("tablet");
                let epochs = page.of("bearing_tablet_epoch").iter();
                let epoch = epochs
                    .filter(|sample| sample.label("tablet") == tablet)
                    .map(|sample| sample.value)
                    .next();
                let row =
                    vec![tablet.to_owned(), (*name).to_owned(), number(rate), number(epoch.unwrap_or(0.0))];
                rows.push((rate, row));
            }
        }
        part(vec!["TABLET", "OWNER", "PER S", "EPOCH"], 2..4, rows)
    }

    /// The directories that are asked for most: node, home and rate.
    pub fn directories(&self) -> Vec<(String, String, f64)> {
        let mut rates: BTreeMap<(&str, &str), f64> = BTreeMap::new();
        for sample in self.all.iter().flat_map(|(.., page)| page.of("bearing_directory_requests_per_second"))
        {
            *rates.entry((sample.label("directory"), sample.label("home"))).or_default() += sample.value;
        }
        let mut all: Vec<_> =
            rates.into_iter().map(|((node, home), rate)| (node.to_owned(), home.to_owned(), rate)).collect();
        all.sort_by(|(.., one), (.., other)| other.total_cmp(one));
        all
    }

    /// These, for people.
    pub fn directory_part(&self, paths: &Paths) -> Part {
        let rows = self.directories().into_iter().map(|(node, _, rate)| {
            let path = paths.get(&node).map_or_else(|| format!("node {node}"), |path| shown(path));
            (rate, vec![path, number(rate)])
        });
        part(vec!["DIRECTORY", "PER S"], 1..2, rows.collect())
    }

    /// The sessions that ask most.
    pub fn sessions(&self) -> Vec<(String, f64)> {
        let mut rates: BTreeMap<&str, f64> = BTreeMap::new();
        for sample in self.all.iter().flat_map(|(.., page)| page.of("bearing_session_requests_per_second")) {
            *rates.entry(sample.label("session")).or_default() += sample.value;
        }
        rates.into_iter().map(|(session, rate)| (session.to_owned(), rate)).collect()
    }

    /// These, for people.
    pub fn session_part(&self, clients: &Clients) -> Part {
        let rows = self.sessions().into_iter().map(|(session, rate)| {
            let who = clients.get(&session).cloned().unwrap_or_else(|| format!("session {session}"));
            (rate, vec![who, number(rate)])
        });
        part(vec!["SESSION", "PER S"], 1..2, rows.collect())
    }
}

/// The hottest first.
fn part(
    header: Vec<&'static str>,
    numbers: std::ops::Range<usize>,
    mut rows: Vec<(f64, Vec<String>)>,
) -> Part {
    rows.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    Part { header, numbers, rows: rows.into_iter().map(|(_, row)| row).collect() }
}

fn latencies(spread: &Spread) -> String {
    format!("p50 {}, p99 {}", at(spread, 0.5), at(spread, 0.99))
}

fn at(spread: &Spread, part: f64) -> String {
    match spread.quantile(part) {
        None => "-".to_owned(),
        Some(seconds) if seconds < 0.001 => format!("{:.0} µs", seconds * 1e6),
        Some(seconds) if seconds < 0.1 => format!("{:.1} ms", seconds * 1e3),
        Some(seconds) if seconds < 1.0 => format!("{:.0} ms", seconds * 1e3),
        Some(seconds) => format!("{seconds:.1} s"),
    }
}

fn number(value: f64) -> String {
    match value {
        value if value > 0.0 && value < 9.95 && value.fract() != 0.0 => format!("{value:.1}"),
        value => HumanCount(value.round() as u64).to_string(),
    }
}
