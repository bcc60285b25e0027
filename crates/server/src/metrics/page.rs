//! One page of metrics: filled by a loop, then written in Prometheus' text format.

use crate::metrics::catalog::{Kind, Metric};
use crate::metrics::histogram::Histogram;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;

/// Metrics with their values, in the order in which they were first shown.
#[derive(Debug, Default)]
pub struct Page {
    families: Vec<Family>,
}

#[derive(Debug)]
struct Family {
    metric: &'static Metric,
    samples: Vec<(Vec<(&'static str, String)>, Value)>,
}

#[derive(Clone, Debug)]
enum Value {
    Count(u64),
    Seconds(f64),
    Level(f64),
    Spread(Histogram),
}

impl Page {
    /// Shows a counter. The labels' values are in the order of the catalog.
    pub fn count<const N: usize>(&mut self, metric: &'static Metric, labels: [&str; N], value: u64) {
        self.add(metric, &labels, Value::Count(value));
    }

    /// Shows a counter of seconds.
    pub fn seconds<const N: usize>(&mut self, metric: &'static Metric, labels: [&str; N], value: f64) {
        self.add(metric, &labels, Value::Seconds(value));
    }

    /// Shows a gauge.
    pub fn level<const N: usize>(&mut self, metric: &'static Metric, labels: [&str; N], value: f64) {
        self.add(metric, &labels, Value::Level(value));
    }

    /// Shows a histogram.
    pub fn spread<const N: usize>(&mut self, metric: &'static Metric, labels: [&str; N], value: &Histogram) {
        self.add(metric, &labels, Value::Spread(value.clone()));
    }

    fn add(&mut self, metric: &'static Metric, labels: &[&str], value: Value) {
        assert_eq!(labels.len(), metric.labels.len(), "{} has the labels {:?}", metric.name, metric.labels);
        let kind = match value {
            Value::Count(_) | Value::Seconds(_) => Kind::Counter,
            Value::Level(_) => Kind::Gauge,
            Value::Spread(_) => Kind::Histogram,
        };
        assert_eq!(kind, metric.kind, "{}", metric.name);
        let labels = metric.labels.iter().copied().zip(labels.iter().map(|label| (*label).to_owned()));
        let sample = (labels.collect(), value);
        match self.families.iter_mut().find(|family| family.metric.name == metric.name) {
            Some(family) => family.samples.push(sample),
            None => self.families.push(Family { metric, samples: vec![sample] }),
        }
    }

    /// The page in the text format 0.0.4, which everybody reads.
    pub fn text(self) -> String {
        let (mut registry, mut text) = (Registry::default(), String::new());
        registry.register_collector(Box::new(self));
        prometheus_text::encode(&mut text, &registry).expect("a string takes all that is written");
        text
    }
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for Family { metric, samples } in &self.families {
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            // The library puts it on again.
            let name = metric.name.strip_suffix("_total").unwrap_or(metric.name);
            let mut family = encoder.encode_descriptor(name, metric.help, None, kind)?;
            for (labels, value) in samples {
                match labels.is_empty() {
                    true => encode(value, &mut family)?,
                    false => encode(value, &mut family.encode_family(labels)?)?,
                }
            }
        }
        Ok(())
    }
}

fn encode(value: &Value, encoder: &mut MetricEncoder) -> fmt::Result {
    match value {
        Value::Count(count) => encoder.encode_counter::<NoLabelSet, _, u64>(count, None),
        Value::Seconds(seconds) => encoder.encode_counter::<NoLabelSet, _, u64>(seconds, None),
        // Whole numbers are read more easily without a point.
        Value::Level(level) if level.fract() == 0.0 && level.abs() < 1e15 => {
            encoder.encode_gauge(&(*level as i64))
        }
        Value::Level(level) => encoder.encode_gauge(level),
        Value::Spread(spread) => {
            encoder.encode_histogram::<NoLabelSet>(spread.sum(), spread.count(), &spread.buckets(), None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{LOG_SYNC_SECONDS, REFERRALS, REPLICA_LAG_ENTRIES};
    use std::time::Duration;

    #[test]
    fn a_page_is_in_the_text_format() {
        let mut page = Page::default();
        page.count(&REFERRALS, [], 3);
        page.level(&REPLICA_LAG_ENTRIES, ["metadata-2"], 7.0);
        page.level(&REPLICA_LAG_ENTRIES, ["a \"b\""], 0.5);
        let mut syncs = Histogram::default();
        for ns in [100, 90_000, 80_000, 9_000_000_000] {
            syncs.record(Duration::from_nanos(ns));
        }
        page.spread(&LOG_SYNC_SECONDS, [], &syncs);
        let text = page.text();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("# HELP")).collect();
        assert_eq!(
            lines[..5],
            [
                "# TYPE bearing_referrals_total counter",
                "bearing_referrals_total 3",
                "# TYPE bearing_replica_lag_entries gauge",
                "bearing_replica_lag_entries{member=\"metadata-2\"} 7",
                "bearing_replica_lag_entries{member=\"a \\\"b\\\"\"} 0.5",
            ]
        );
        for line in [
            "bearing_log_sync_seconds_bucket{le=\"5e-05\"} 1",
            "bearing_log_sync_seconds_bucket{le=\"0.0001\"} 3",
            "bearing_log_sync_seconds_bucket{le=\"3.2768\"} 3",
            "bearing_log_sync_seconds_bucket{le=\"+Inf\"} 4",
            "bearing_log_sync_seconds_count 4",
        ] {
            assert!(lines.contains(&line), "{line} is not in {text}");
        }
    }
}
