//! Raw results line by line, and the table made of them.

use super::machine::{self, Identity};
use anyhow::{Context, Result};
use comfy_table::{Table, presets};
use std::fmt::Write as _;
use std::path::Path;

/// One measurement.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Operations per second.
    pub rate: f64,
    /// Operations.
    pub operations: u64,
    /// Seconds.
    pub seconds: f64,
    /// Processor time of the server per operation, in microseconds.
    pub server_us: f64,
    /// The share of its core that the client used.
    pub client_share: f64,
    /// Replies per datagram with replies.
    pub replies_per_datagram: f64,
    /// Median and 99th percentile from sending to answer, in microseconds.
    pub latency_us: (u64, u64),
    /// Requests told to come again, and requests sent again for want of an answer.
    pub repeats: (u64, u64),
    /// The load of the machine's last minute.
    pub load: String,
}

/// The two sides of one pair.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The metadata server.
    pub server: Sample,
    /// What it is compared with.
    pub other: Sample,
}

/// What one line of the table is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The operation.
    pub operation: &'static str,
    /// How entries are drawn.
    pub distribution: &'static str,
    /// Operations under way.
    pub in_flight: usize,
    /// Operations per datagram.
    pub packed: usize,
    /// What it is compared with.
    pub beside: String,
}

/// All results of a run.
pub struct Results {
    identity: Identity,
    seed: u64,
    lines: Vec<(Line, Vec<Pair>)>,
    notes: Vec<(String, String)>,
}

const COLUMNS: &str = "operation,distribution,in_flight,packed,repetition,subject,operations,seconds,ops_per_s,\
server_cpu_us_per_op,client_core_share,replies_per_datagram,p50_us,p99_us,told_to_retry,resent,load,ratio,cpu_ratio";

impl Results {
    /// No results yet.
    pub fn new(identity: Identity, seed: u64) -> Results {
        Results { identity, seed, lines: Vec::new(), notes: Vec::new() }
    }

    /// Something about the run that is no pair.
    pub fn note(&mut self, name: &str, value: String) {
        println!("{name}: {value}");
        self.notes.push((name.to_owned(), value));
    }

    /// The pairs of one line.
    pub fn add(&mut self, line: Line, pairs: Vec<Pair>) {
        self.lines.push((line, pairs));
    }

    /// Writes the raw results.
    pub fn write(&self, path: &Path) -> Result<()> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).with_context(|| format!("make {}", parent.display()))?;
        }
        std::fs::write(path, self.raw()).with_context(|| format!("write {}", path.display()))
    }

    fn raw(&self) -> String {
        let mut text = self.identity.comment();
        text += &format!("# seed: {}\n", self.seed);
        text +=
            &format!("# server on core {}, client on core {}\n", machine::SERVER_CORE, machine::CLIENT_CORE);
        for (name, value) in &self.notes {
            text += &format!("# {name}: {value}\n");
        }
        text += &format!("{COLUMNS}\n");
        for (line, pairs) in &self.lines {
            for (number, pair) in pairs.iter().enumerate() {
                let ratios = format!("{:.3},{:.3}", pair.ratio(), pair.cpu_ratio());
                row(&mut text, line, number, "server", &pair.server, &ratios);
                row(&mut text, line, number, &line.beside, &pair.other, ",");
            }
        }
        text
    }

    /// The table for people: minimum, median, maximum.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header([
            "operation",
            "drawn",
            "in flight",
            "per datagram",
            "server op/s",
            "beside",
            "op/s",
            "ratio",
            "server us/op",
            "beside us/op",
            "us ratio",
            "p50 us",
            "p99 us",
        ]);
        for (line, pairs) in &self.lines {
            let spread = |value: &dyn Fn(&Pair) -> f64, digits: usize| {
                let [low, middle, high] = spread(pairs.iter().map(value).collect());
                format!("{low:.digits$} / {middle:.digits$} / {high:.digits$}")
            };
            let middle = |value: &dyn Fn(&Pair) -> f64| spread_middle(pairs, value);
            table.add_row([
                line.operation.to_owned(),
                line.distribution.to_owned(),
                line.in_flight.to_string(),
                line.packed.to_string(),
                spread(&|pair| pair.server.rate, 0),
                line.beside.clone(),
                spread(&|pair| pair.other.rate, 0),
                spread(&|pair| pair.ratio(), 2),
                format!("{:.2}", middle(&|pair| pair.server.server_us)),
                format!("{:.2}", middle(&|pair| pair.other.server_us)),
                format!("{:.2}", middle(&|pair| pair.cpu_ratio())),
                format!("{:.0}", middle(&|pair| pair.server.latency_us.0 as f64)),
                format!("{:.0}", middle(&|pair| pair.server.latency_us.1 as f64)),
            ]);
        }
        table.to_string()
    }
}

fn row(text: &mut String, line: &Line, number: usize, subject: &str, sample: &Sample, ratios: &str) {
    let Line { operation, distribution, in_flight, packed, .. } = line;
    let Sample { operations, seconds, rate, server_us, client_share, replies_per_datagram, .. } = sample;
    let ((p50, p99), (retried, resent)) = (sample.latency_us, sample.repeats);
    let repetition = number + 1;
    let load = &sample.load;
    let written = writeln!(
        text,
        "{operation},{distribution},{in_flight},{packed},{repetition},{subject},{operations},{seconds:.3},{rate:.0},\
{server_us:.3},{client_share:.2},{replies_per_datagram:.1},{p50},{p99},{retried},{resent},{load},{ratios}"
    );
    written.expect("a string takes everything");
}

impl Pair {
    /// The server's rate over the other's.
    pub fn ratio(&self) -> f64 {
        self.server.rate / self.other.rate
    }

    /// The other's processor time per operation over the server's: the ratio when the server's core is the
    /// limit of both.
    pub fn cpu_ratio(&self) -> f64 {
        self.other.server_us / self.server.server_us
    }
}

fn spread_middle(pairs: &[Pair], value: &dyn Fn(&Pair) -> f64) -> f64 {
    spread(pairs.iter().map(value).collect())[1]
}

/// Minimum, median and maximum; of an even number the lower median.
pub fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => [f64::NAN; 3],
        count => [values[0], values[(count - 1) / 2], values[count - 1]],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_minimum_median_maximum() {
        assert_eq!(spread(vec![3.0, 1.0, 2.0]), [1.0, 2.0, 3.0]);
        assert_eq!(spread(vec![4.0, 1.0]), [1.0, 1.0, 4.0]);
        assert!(spread(vec![])[0].is_nan());
    }

    #[test]
    fn every_row_has_the_columns_of_the_head() {
        let sample = Sample { rate: 10.0, server_us: 2.0, ..Sample::default() };
        let other = Sample { rate: 20.0, server_us: 1.0, ..Sample::default() };
        let line = Line {
            operation: "stat",
            distribution: "zipf",
            in_flight: 16,
            packed: 1,
            beside: "canned".into(),
        };
        let identity = Identity {
            date: "2026-01-01".into(),
            commit: "c".into(),
            command: "bearing".into(),
            cores: 2,
            processor: "p".into(),
            kernel: "k".into(),
        };
        let mut results = Results::new(identity, 1);
        results.add(line, vec![Pair { server: sample, other }]);
        let raw = results.raw();
        let rows: Vec<&str> = raw.lines().filter(|line| !line.starts_with('#')).collect();
        let columns = rows[0].split(',').count();
        assert_eq!(rows.len(), 3);
        assert!(rows.iter().all(|row| row.split(',').count() == columns), "{raw}");
        assert!(rows[1].ends_with(",0.500,0.500"), "{raw}");
    }
}
