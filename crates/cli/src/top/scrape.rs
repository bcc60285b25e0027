//! Pages of metrics read again: two of them make rates and latencies.

use bearing_types::Mono;
use std::collections::BTreeMap;

/// A line of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Name and labels as they were written.
    series: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

impl Sample {
    /// The value of a label.
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

/// A page of one daemon, and when it came.
#[derive(Clone, Debug)]
pub struct Scrape {
    at: Mono,
    samples: BTreeMap<String, Vec<Sample>>,
    values: BTreeMap<String, f64>,
}

impl Scrape {
    /// Reads a page. What is no sample is passed over: this program wrote it.
    pub fn read(at: Mono, text: &str) -> Scrape {
        let (mut samples, mut values) = (BTreeMap::<String, Vec<Sample>>::new(), BTreeMap::new());
        for (name, sample) in text.lines().filter(|line| !line.starts_with('#')).filter_map(sample) {
            values.insert(sample.series.clone(), sample.value);
            samples.entry(name).or_default().push(sample);
        }
        Scrape { at, samples, values }
    }

    /// The samples of a metric.
    pub fn of(&self, name: &str) -> &[Sample] {
        self.samples.get(name).map_or(&[], Vec::as_slice)
    }

    /// Their sum.
    pub fn sum(&self, name: &str) -> f64 {
        self.of(name).iter().map(|sample| sample.value).sum()
    }
}

fn sample(line: &str) -> Option<(String, Sample)> {
    let (series, value) = line.rsplit_once(' ')?;
    let (value, (name, mut rest)) = (value.parse().ok()?, series.split_once('{').unwrap_or((series, "")));
    let mut labels = BTreeMap::new();
    while let Some((label, quoted)) = rest.split_once("=\"") {
        let (mut text, mut chars) = (String::new(), quoted.char_indices());
        loop {
            match chars.next()?.1 {
                '"' => break,
                '\\' => text.push(match chars.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                other => text.push(other),
            }
        }
        labels.insert(label.to_owned(), text);
        rest = chars.as_str().trim_start_matches(',');
    }
    Some((name.to_owned(), Sample { series: series.to_owned(), labels, value }))
}

/// One daemon at two times.
pub struct Change<'a> {
    before: &'a Scrape,
    after: &'a Scrape,
}

impl<'a> Change<'a> {
    /// From one page to a later one.
    pub fn new(before: &'a Scrape, after: &'a Scrape) -> Change<'a> {
        Change { before, after }
    }

    /// How much each counter of a metric grew in a second. One that is lower than before began anew.
    pub fn rates(&self, name: &str) -> impl Iterator<Item = (&'a Sample, f64)> + use<'a> {
        let seconds = self.after.at.since(self.before.at).as_secs_f64().max(1e-3);
        let before = &self.before.values;
        self.after.of(name).iter().map(move |sample| {
            let known = before.get(&sample.series).filter(|known| **known <= sample.value);
            (sample, (sample.value - known.copied().unwrap_or(0.0)) / seconds)
        })
    }

    /// All of them together.
    pub fn rate(&self, name: &str) -> f64 {
        self.rates(name).map(|(_, rate)| rate).sum()
    }
}

/// How often what took how long: upper bounds of durations in seconds, each with a rate.
#[derive(Clone, Debug, Default)]
pub struct Spread {
    cumulated: BTreeMap<u64, f64>,
}

impl Spread {
    /// Adds the buckets of a histogram: its `le` and by how much it grew.
    pub fn add(&mut self, bound: &str, rate: f64) {
        let bound: f64 = bound.parse().unwrap_or(f64::INFINITY);
        // Bounds are positive: their bits are in their order.
        *self.cumulated.entry(bound.to_bits()).or_default() += rate;
    }

    /// How long at most this part of all took, in seconds, evenly spread within a bucket; `None` if there
    /// were none. What is beyond the last bound is taken for as long as that.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let wanted = self.cumulated.values().last().filter(|all| **all > 0.0)? * part;
        let (mut low, mut below) = (0.0, 0.0);
        for (bound, cumulated) in &self.cumulated {
            let bound = f64::from_bits(*bound);
            if *cumulated >= wanted && bound.is_finite() {
                return Some(low + (bound - low) * ((wanted - below) / (cumulated - below).max(1e-9)));
            }
            (low, below) = if bound.is_finite() { (bound, *cumulated) } else { (low, below) };
        }
        Some(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# HELP a_total Some.\n# TYPE a_total counter\na_total{kind=\"create\"} 3\n\
        a_total{kind=\"a \\\"b\\\", c\",of=\"x\"} 4.5\nplain 7\nb_bucket{le=\"5e-05\",kind=\"k\"} 1\n";

    #[test]
    fn a_page_is_read_as_it_was_written() {
        let scrape = Scrape::read(Mono(0), PAGE);
        assert_eq!((scrape.sum("a_total"), scrape.sum("plain"), scrape.sum("none")), (7.5, 7.0, 0.0));
        let [_, strange] = scrape.of("a_total") else { panic!("{scrape:?}") };
        assert_eq!((strange.label("kind"), strange.label("of"), strange.value), ("a \"b\", c", "x", 4.5));
        assert_eq!(scrape.of("b_bucket")[0].label("le"), "5e-05");
    }

    #[test]
    fn counters_make_rates_and_one_that_began_anew_counts_from_nothing() {
        let before = Scrape::read(Mono(0), "a{k=\"1\"} 10\na{k=\"2\"} 50\n");
        let after = Scrape::read(Mono(2_000_000_000), "a{k=\"1\"} 14\na{k=\"2\"} 6\na{k=\"3\"} 2\n");
        let change = Change::new(&before, &after);
        let rates: Vec<f64> = change.rates("a").map(|(_, rate)| rate).collect();
        assert_eq!((rates, change.rate("a")), (vec![2.0, 3.0, 1.0], 6.0));
    }

    #[test]
    fn quantiles_lie_within_their_bucket() {
        let mut spread = Spread::default();
        assert_eq!(spread.quantile(0.5), None);
        for (bound, rate) in [("0.001", 50.0), ("0.002", 90.0), ("0.004", 99.0), ("+Inf", 100.0)] {
            spread.add(bound, rate);
        }
        assert_eq!(spread.quantile(0.5), Some(0.001));
        assert_eq!(spread.quantile(0.7), Some(0.0015));
        assert_eq!(spread.quantile(0.99), Some(0.004));
        assert_eq!(spread.quantile(1.0), Some(0.004), "nobody knows how much longer");
    }
}
