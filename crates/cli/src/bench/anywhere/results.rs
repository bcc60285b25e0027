//! Raw results line by line, and the table and the JSON made of them.

use super::phase::Phase;
use super::team::Took;
use crate::bench::machine::{self, Identity};
use crate::bench::report::spread;
use anyhow::{Context, Result};
use comfy_table::{Table, presets};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;

/// One measurement.
#[derive(Clone, Debug)]
struct Row {
    phase: Phase,
    processes: u32,
    repetition: u32,
    /// Operations, files or megabytes.
    amount: f64,
    took: Took,
    load: String,
}

/// All results of a run.
pub struct Results {
    identity: Identity,
    subject: String,
    notes: Vec<(String, String)>,
    rows: Vec<Row>,
}

const COLUMNS: &str = "phase,processes,repetition,subject,operations,unit,seconds,drain_seconds,per_s,load";

impl Results {
    /// No results yet.
    pub fn new(identity: Identity, subject: String) -> Results {
        Results { identity, subject, notes: Vec::new(), rows: Vec::new() }
    }

    /// Something about the run that is no measurement.
    pub fn note(&mut self, name: &str, value: String) {
        self.notes.push((name.to_owned(), value));
    }

    /// A measurement.
    pub fn add(&mut self, phase: Phase, processes: u32, repetition: u32, amount: f64, took: Took) {
        self.rows.push(Row { phase, processes, repetition, amount, took, load: machine::load() });
    }

    /// Writes the raw results.
    pub fn write(&self, path: &Path) -> Result<()> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).with_context(|| format!("make {}", parent.display()))?;
        }
        std::fs::write(path, self.raw()).with_context(|| format!("write {}", path.display()))
    }

    fn raw(&self) -> String {
        let Identity { date, commit, command, cores, processor, kernel } = &self.identity;
        let mut text = format!(
            "# command: {command}\n# date: {date}\n# commit: {commit}\n# machine: {cores} cores, {processor}, Linux {kernel}\n"
        );
        for (name, value) in &self.notes {
            writeln!(text, "# {name}: {value}").expect("a string takes everything");
        }
        writeln!(text, "{COLUMNS}").expect("a string takes everything");
        for row in &self.rows {
            let Row { phase, processes, repetition, amount, took, load } = row;
            let (word, unit, subject) = (phase.word(), phase.unit(), &self.subject);
            let (seconds, drain, rate) = (took.seconds, took.drain, row.rate());
            writeln!(
                text,
                "{word},{processes},{repetition},{subject},{amount:.0},{unit},{seconds:.4},{drain:.4},{rate:.1},{load}"
            )
            .expect("a string takes everything");
        }
        text
    }

    /// When each phase was: its name, the number of processes, nanoseconds of begin and end.
    pub fn times(&self) -> String {
        let line = |row: &Row| {
            format!("{} {} {} {}\n", row.phase.word(), row.processes, row.took.began, row.took.seen)
        };
        self.rows.iter().map(line).collect()
    }

    /// The rows by phase and number of processes, in the order in which these came first.
    fn lines(&self) -> Vec<(Phase, u32, Vec<&Row>)> {
        let mut lines: Vec<(Phase, u32, Vec<&Row>)> = Vec::new();
        for row in &self.rows {
            let same = |line: &&mut (Phase, u32, Vec<&Row>)| (line.0, line.1) == (row.phase, row.processes);
            match lines.iter_mut().find(same) {
                Some(line) => line.2.push(row),
                None => lines.push((row.phase, row.processes, vec![row])),
            }
        }
        lines
    }

    /// The table for people: minimum, median, maximum.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header(["phase", "processes", "per second", "unit", "seconds", "of these, drain"]);
        for (phase, processes, rows) in self.lines() {
            let cell = |value: &dyn Fn(&Row) -> f64, digits: usize| {
                let [low, middle, high] = spread(rows.iter().map(|row| value(row)).collect());
                format!("{low:.digits$} / {middle:.digits$} / {high:.digits$}")
            };
            table.add_row([
                phase.word(),
                processes.to_string(),
                cell(&Row::rate, 0),
                phase.unit().to_owned(),
                cell(&|row| row.took.seconds, 3),
                cell(&|row| row.took.drain, 3),
            ]);
        }
        table.to_string()
    }

    /// The results for programs: of each line minimum, median and maximum.
    pub fn json(&self) -> Value {
        let spread_of =
            |rows: &[&Row], value: &dyn Fn(&Row) -> f64| spread(rows.iter().map(|row| value(row)).collect());
        let lines = self.lines();
        let lines: Vec<Value> = lines
            .iter()
            .map(|(phase, processes, rows)| {
                json!({
                    "phase": phase.word(),
                    "processes": processes,
                    "unit": phase.unit(),
                    "repetitions": rows.len(),
                    "per_s": spread_of(rows, &Row::rate),
                    "seconds": spread_of(rows, &|row| row.took.seconds),
                    "drain_seconds": spread_of(rows, &|row| row.took.drain),
                })
            })
            .collect();
        let notes: serde_json::Map<String, Value> =
            self.notes.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
        let Identity { date, commit, command, cores, processor, kernel } = &self.identity;
        json!({
            "command": command,
            "date": date,
            "commit": commit,
            "machine": { "cores": cores, "processor": processor, "kernel": kernel },
            "subject": self.subject,
            "notes": notes,
            "spread": ["minimum", "median", "maximum"],
            "lines": lines,
        })
    }
}

impl Row {
    fn rate(&self) -> f64 {
        self.amount / self.took.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Results {
        let identity = Identity {
            date: "2026-01-01".into(),
            commit: "c".into(),
            command: "bearing".into(),
            cores: 2,
            processor: "p".into(),
            kernel: "k".into(),
        };
        let mut results = Results::new(identity, "ext4".into());
        for (repetition, seconds) in [(1, 2.0), (2, 1.0), (3, 4.0)] {
            results.add(Phase::Create, 1, repetition, 100.0, Took { seconds, drain: 0.5, began: 7, seen: 9 });
        }
        results.add(Phase::Create, 4, 1, 100.0, Took { seconds: 1.0, drain: 0.0, began: 8, seen: 10 });
        results
    }

    #[test]
    fn every_row_has_the_columns_of_the_head() {
        let raw = results().raw();
        let rows: Vec<&str> = raw.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(rows.len(), 5);
        let columns = rows[0].split(',').count();
        assert!(rows.iter().all(|row| row.split(',').count() == columns), "{raw}");
        assert!(rows[1].starts_with("create,1,1,ext4,100,operations,2.0000,0.5000,50.0,"), "{raw}");
        assert!(results().times().ends_with("create 1 7 9\ncreate 4 8 10\n"), "{}", results().times());
    }

    #[test]
    fn repetitions_are_shown_as_minimum_median_maximum() {
        let json = results().json();
        assert_eq!(json["lines"].as_array().unwrap().len(), 2);
        assert_eq!(json["lines"][0]["per_s"], json!([25.0, 50.0, 100.0]));
        assert!(results().table().contains("25 / 50 / 100"), "{}", results().table());
    }
}
