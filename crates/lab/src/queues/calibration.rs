//! Coefficients that make queues behave as live servers do, and how far they do.
//!
//! Invariants: what coefficients are judged by is never what they were fitted to. Loads are interleaved,
//! and of each the median over all rounds counts: the speed of a machine changes from minute to minute.

use super::cluster::{Copies, Division, Relays, Setup, SetupError};
use super::costs::{Coefficients, Costs};
use super::network::Wires;
use super::run::{Watch, closed_loop, latency};
use crate::statistics::percentile;
use bearing_lookup::world::Order;
use bearing_placement::{Combination, LookupKind, Scheme};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Metadata servers that are measured, all of them on one processor: one that passes requests on needs others
/// beside it.
pub const SERVERS: u32 = 3;
/// What queues say may be off by this share, in throughput and in the median.
pub const TOLERANCE: f64 = 0.15;
/// The version of files.
pub const VERSION: u32 = 1;

/// Whom clients ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Asked {
    /// The owner.
    Owner,
    /// Any server, in turn. One that is not the owner passes the request on.
    Any,
}

/// When operations begin.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pace {
    /// So many are under way, all the time.
    Closed(u32),
    /// So many a second, as they come (Poisson).
    Open(f64),
}

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Whom clients ask.
    pub asked: Asked,
    /// When operations begin.
    pub pace: Pace,
}

/// What servers made of a load. Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Operations a second.
    pub per_second: f64,
    /// The median of how long one takes.
    pub median: f64,
    /// Processor time of all servers for one operation.
    pub processor: f64,
}

/// What queues say of a load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Said {
    /// Operations a second.
    pub per_second: f64,
    /// The median of how long one takes, in seconds.
    pub median: f64,
}

/// What was seen of one load, and what queues say.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// The load.
    pub load: Load,
    /// Measured.
    pub seen: Seen,
    /// Said by queues.
    pub said: Said,
}

impl Judged {
    /// By which share throughput and median are off: above 0 if queues say too much. `None`: the throughput
    /// of an open loop is given.
    pub fn errors(&self) -> [Option<f64>; 2] {
        let off = |said: f64, seen: f64| said / seen - 1.0;
        let is_given = matches!(self.load.pace, Pace::Open(_));
        let throughput = (!is_given).then(|| off(self.said.per_second, self.seen.per_second));
        [throughput, Some(off(self.said.median, self.seen.median))]
    }
}

/// What `lab calibrate` found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The version of the file's format.
    pub version: u32,
    /// The sources that the servers were built from.
    pub commit: String,
    /// The day.
    pub date: String,
    /// The machine.
    pub machine: String,
    /// How often each load was measured.
    pub rounds: usize,
    /// What work costs.
    pub coefficients: Coefficients,
    /// What coefficients were fitted to.
    pub fitted: Vec<Judged>,
    /// What they were not fitted to.
    pub judged: Vec<Judged>,
}

impl Calibration {
    /// The largest errors, in throughput and in the median, over all loads that nothing was fitted to;
    /// infinite where nothing says how large they are.
    pub fn errors(&self) -> [f64; 2] {
        let largest = |of: usize| {
            let errors = self.judged.iter().filter_map(|judged| judged.errors()[of]);
            let known = |error: f64| if error.is_finite() { error.abs() } else { f64::INFINITY };
            errors.map(known).reduce(f64::max).unwrap_or(f64::INFINITY)
        };
        [0, 1].map(largest)
    }

    /// Whether queues say what was seen, within [`TOLERANCE`].
    pub fn holds(&self) -> bool {
        self.errors().iter().all(|error| *error <= TOLERANCE)
    }
}

/// What was measured in one round: what is fitted to, and what coefficients are judged by.
#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    /// By load of [`FITTED`].
    pub fitted: [Seen; 4],
    /// By load of [`judged_by`].
    pub judged: [Seen; 4],
}

/// The loads that coefficients are fitted to: one operation at a time shows what it takes to wake up and to
/// begin a turn, many at a time what operations cost, and both with any server asked what lookups cost.
pub const FITTED: [Load; 4] = [
    Load { asked: Asked::Owner, pace: Pace::Closed(1) },
    Load { asked: Asked::Any, pace: Pace::Closed(1) },
    Load { asked: Asked::Owner, pace: Pace::Closed(32) },
    Load { asked: Asked::Any, pace: Pace::Closed(32) },
];

/// The loads that coefficients are judged by. Open ones are 50 and 80 % of what servers do with many
/// operations under way.
pub fn judged_by(per_second: f64) -> [Load; 4] {
    [Pace::Closed(8), Pace::Closed(64), Pace::Open(0.5 * per_second), Pace::Open(0.8 * per_second)]
        .map(|pace| Load { asked: Asked::Any, pace })
}

/// Coefficients by the medians of all rounds, and how far queues then say what was seen. At least one round.
pub fn calibrate(rounds: &[Round]) -> Result<(Coefficients, Vec<Judged>, Vec<Judged>), SetupError> {
    let medians = |of: fn(&Round) -> &[Seen; 4]| {
        std::array::from_fn(|load| {
            let median = |part: fn(&Seen) -> f64| {
                let samples: Vec<f64> = rounds.iter().map(|round| part(&of(round)[load])).collect();
                percentile(&samples, 0.5)
            };
            Seen {
                per_second: median(|seen| seen.per_second),
                median: median(|seen| seen.median),
                processor: median(|seen| seen.processor),
            }
        })
    };
    let (fitted, judged): ([Seen; 4], [Seen; 4]) =
        (medians(|round| &round.fitted), medians(|round| &round.judged));
    let coefficients = fit(&fitted)?;
    let beside = |loads: [Load; 4], seen: [Seen; 4]| -> Result<Vec<Judged>, SetupError> {
        let said = |(load, seen)| Ok(Judged { load, seen, said: predict(coefficients, load)? });
        loads.into_iter().zip(seen).map(said).collect()
    };
    // Open loops are judged at the rate that there was: it followed the machine's speed.
    let mut loads = judged_by(fitted[3].per_second);
    for (load, seen) in loads.iter_mut().zip(&judged) {
        if let Pace::Open(per_second) = &mut load.pace {
            *per_second = seen.per_second;
        }
    }
    Ok((coefficients, beside(FITTED, fitted)?, beside(loads, judged)?))
}

/// The coefficients by which queues do what servers did under [`FITTED`].
fn fit(seen: &[Seen; 4]) -> Result<Coefficients, SetupError> {
    let [single, single_any, many, many_any] = seen;
    let passed = 1.0 - 1.0 / f64::from(SERVERS);
    // A request that is passed on costs one turn and one lookup more.
    let turn_and_lookup = (1.0 / single_any.per_second - 1.0 / single.per_second).max(0.0) / passed;
    let of = |lookup: f64, storage: f64| {
        let time = |seconds: f64| Duration::from_secs_f64(seconds.max(0.0));
        let turn = turn_and_lookup - lookup;
        // Of what differs, a log-normal factor of mean 1, the median is below the mean by this share.
        let above = (1.0 / single.per_second - single.median).max(0.0) / (turn + storage);
        let spread = (-2.0 * (1.0 - above.min(0.8)).ln()).sqrt();
        Coefficients {
            wake: time(single.processor - turn - storage),
            turn: time(turn),
            lookup: time(lookup),
            storage: time(storage),
            client: time(1.0 / single.per_second - single.processor.max(turn + storage)),
            spread,
        }
    };
    let storage_with = |lookup: f64| {
        bisect(single.processor, many.per_second, |storage| {
            predict(of(lookup, storage), FITTED[2]).map(|seen| seen.per_second)
        })
    };
    let lookup = bisect(turn_and_lookup, many_any.per_second, |lookup| {
        predict(of(lookup, storage_with(lookup)?), FITTED[3]).map(|seen| seen.per_second)
    })?;
    Ok(of(lookup, storage_with(lookup)?))
}

/// How often the range of a coefficient is halved when it is fitted.
const STEPS: u32 = 12;

/// Where a function that falls has a value, from 0 to an end, or which of the two is nearest to that.
fn bisect(end: f64, wanted: f64, of: impl Fn(f64) -> Result<f64, SetupError>) -> Result<f64, SetupError> {
    let (mut low, mut high) = (0.0, end);
    for _ in 0..STEPS {
        let middle = (low + high) / 2.0;
        if of(middle)? > wanted { low = middle } else { high = middle }
    }
    Ok((low + high) / 2.0)
}

/// What queues say of a load.
pub fn predict(coefficients: Coefficients, load: Load) -> Result<Said, SetupError> {
    let costs = Costs::calibrated(coefficients);
    let (scheme, lookup) = match load.asked {
        Asked::Owner => (Scheme::AnglecutHashed, LookupKind::ClientMap),
        Asked::Any => (Scheme::AnglecutHashed, LookupKind::OneHop),
    };
    let setup = Setup {
        scheme: Combination { lookup, ..scheme.parts() },
        parameters: scheme.parameters(),
        servers: SERVERS,
        clients: 1,
        division: Division::EqualArcs,
        relays: Relays::InTurn,
        copies: Copies::One,
        learnt: 0,
        costs,
        order: Order::Arrival,
        one_host: true,
        wires: Some(Arc::new(Wires::loopback(3)?)),
        seed: 1,
    };
    let watch = Watch { settle: 100, measure: 1000 };
    // The median of an open loop wanders with the draws.
    let long = Watch { measure: 8000, ..watch };
    Ok(match load.pace {
        Pace::Closed(each) => {
            let rates = closed_loop(&setup, each, watch)?;
            Said { per_second: rates.per_second, median: percentile(&rates.took, 0.5) }
        }
        Pace::Open(per_second) => Said { per_second, median: latency(&setup, per_second, long)?.median },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coefficients(wake: u64, turn: u64, lookup: u64, storage: u64) -> Coefficients {
        let [wake, turn, lookup, storage, client] =
            [wake, turn, lookup, storage, 18].map(Duration::from_micros);
        Coefficients { wake, turn, lookup, storage, client, spread: 0.2 }
    }

    /// Servers that behave as queues do.
    fn round(of: Coefficients) -> Round {
        let seen = |load| {
            let Said { per_second, median } = predict(of, load).unwrap();
            let one = of.wake + of.turn + of.storage;
            Seen { per_second, median, processor: one.as_secs_f64() }
        };
        let fitted = FITTED.map(seen);
        Round { fitted, judged: judged_by(fitted[3].per_second).map(seen) }
    }

    #[test]
    fn coefficients_of_queues_are_found_again() {
        for of in [coefficients(0, 50, 12, 18), coefficients(20, 30, 25, 8), coefficients(5, 10, 3, 40)] {
            let (found, fitted, judged) = calibrate(&[round(of)]).unwrap();
            let near = |one: Duration, other: Duration| {
                one.abs_diff(other) < Duration::from_micros(2) + one.mul_f64(0.05)
            };
            assert!(
                near(found.turn, of.turn)
                    && near(found.wake, of.wake)
                    && near(found.lookup, of.lookup)
                    && near(found.storage, of.storage)
                    && near(found.client, of.client)
                    && (found.spread - of.spread).abs() < 0.03,
                "{found:?} is not {of:?}"
            );
            for judged in fitted.iter().chain(&judged) {
                assert!(judged.errors().iter().flatten().all(|error| error.abs() < 0.1), "{judged:?}");
            }
        }
    }

    #[test]
    fn a_round_that_was_disturbed_counts_once() {
        let of = round(coefficients(0, 50, 12, 18));
        let mut disturbed = of.clone();
        disturbed.fitted.iter_mut().chain(&mut disturbed.judged).for_each(|seen| seen.per_second /= 10.0);
        let rounds = [of.clone(), disturbed, of.clone()];
        assert_eq!(calibrate(&rounds).unwrap(), calibrate(&[of]).unwrap());
    }

    #[test]
    fn what_is_off_by_more_than_15_percent_does_not_hold() {
        let round = round(coefficients(0, 50, 12, 18));
        let (coefficients, fitted, mut judged) = calibrate(&[round]).unwrap();
        let of = |judged: &[Judged]| Calibration {
            version: VERSION,
            commit: String::new(),
            date: String::new(),
            machine: String::new(),
            rounds: 1,
            coefficients,
            fitted: fitted.clone(),
            judged: judged.to_vec(),
        };
        assert!(of(&judged).holds());
        assert!(!of(&[]).holds(), "nothing was judged");
        assert_eq!(of(&judged[2..]).errors()[0], f64::INFINITY, "the rate of an open loop is given");
        judged[2].seen.median /= 1.2;
        assert!(!of(&judged).holds());
        let again: Calibration = serde_json::from_str(&serde_json::to_string(&of(&judged)).unwrap()).unwrap();
        assert_eq!(again.coefficients, coefficients);
    }
}
