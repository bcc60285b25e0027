//! Beyond the papers: what clusters of the servers of this program can do, by what was measured of these.

use super::draw::line;
use crate::candidate::Candidate;
use crate::figure::Figure;
use crate::parallel::each;
use crate::queues::calibration::{Calibration, TOLERANCE};
use crate::queues::study::Study;
use crate::queues::{Costs, Division, SetupError};
use crate::report::Basis;
use crate::statistics::{Interval, mean};
use bearing_placement::Scheme;

/// The figure's name.
pub const CALIBRATED: &str = "queues-calibrated";

const SCHEMES: [Scheme; 5] =
    [Scheme::Hash, Scheme::AnglecutHashed, Scheme::Metaflow, Scheme::OneHop, Scheme::Chord];
const DIVISIONS: [(Division, &str); 2] =
    [(Division::EqualArcs, "equal arcs"), (Division::Published, "as published")];
const CLIENTS: u32 = 500;

/// Draws it. `is_quick` runs less, for a look.
pub fn calibrated(found: &Calibration, seed: u64, is_quick: bool) -> Result<Figure, SetupError> {
    let (sizes, seeds): (&[u32], u64) = if is_quick { (&[10, 100], 2) } else { (&[10, 100, 500, 2000], 4) };
    of_sizes(found, sizes, seed, seeds)
}

fn of_sizes(found: &Calibration, sizes: &[u32], seed: u64, seeds: u64) -> Result<Figure, SetupError> {
    let costs = Costs::calibrated(found.coefficients);
    let mut figure = Figure {
        figure: CALIBRATED.to_owned(),
        x: "servers".to_owned(),
        y: "throughput".to_owned(),
        unit: "operations/s".to_owned(),
        series: Vec::new(),
        published: Vec::new(),
        ours: Vec::new(),
        seed,
        commit: String::new(),
        costs: None,
    };
    let lines: Vec<(Scheme, Division, &str)> = DIVISIONS
        .into_iter()
        .flat_map(|(division, word)| SCHEMES.map(|scheme| (scheme, division, word)))
        .collect();
    let mut studies = Vec::new();
    for (scheme, division, _) in &lines {
        for servers in sizes {
            studies.extend((seed..seed + seeds).map(|seed| Study {
                candidate: Candidate::of(*scheme),
                servers: *servers,
                clients: CLIENTS,
                division: *division,
                costs,
                wires: None,
                seed,
            }));
        }
    }
    let rates: Vec<f64> = each(&studies, |study| Ok(study.capacity()?.rates.per_second))
        .into_iter()
        .collect::<Result<_, SetupError>>()?;
    let ideal = |servers: &u32| {
        let each = 1.0 / costs.storage().as_secs_f64();
        Interval { mean: f64::from(*servers) * each, half: 0.0 }
    };
    let xs: Vec<f64> = sizes.iter().map(|servers| f64::from(*servers)).collect();
    for (_, word) in DIVISIONS {
        let ideal: Vec<Interval> = sizes.iter().map(ideal).collect();
        figure.costly(costs.mode(), line(&format!("ideal, {word}"), &xs, &ideal));
    }
    for ((scheme, _, word), rates) in lines.iter().zip(rates.chunks(sizes.len() * seeds as usize)) {
        let points: Vec<Interval> = rates.chunks(seeds as usize).map(Interval::of).collect();
        let last = rates.chunks(seeds as usize).last().map_or(0.0, mean);
        let most = sizes.last().map_or(0.0, |servers| ideal(servers).mean);
        figure.costly(costs.mode(), line(&format!("{scheme}, {word}"), &xs, &points));
        figure.see(format!("{scheme}, {word}, with the most servers: of the ideal"), last / most, "");
    }
    let [throughput, median] = found.errors();
    for (what, error) in [("throughput", throughput), ("the median latency", median)] {
        let claim = format!(
            "how far queues are off in {what} under loads that they were not fitted to: at most {TOLERANCE}"
        );
        figure.must(claim, error, 0.0..=TOLERANCE, "the machine was not still, or the model lacks something");
    }
    Ok(figure)
}

/// What of it is measured, what simulated, what assumed.
pub fn basis(found: &Calibration) -> Basis {
    let Calibration { date, machine, commit, rounds, .. } = found;
    Basis {
        measured: format!(
            "what work costs metadata servers, on {date} ({machine}; called beside sources {commit}; medians of {rounds} \
             rounds)"
        ),
        simulated:
            "hosts are queues whose servers take all that waits in turns; lookups and placements are those \
                    of production"
                .to_owned(),
        assumed:
            "operations are stat; other messages cost as much as a lookup; links take 500 ns and carry 10 \
                  Gb/s; clients are never busy; what the network carries costs a server nothing more (metaflow \
                  here is without its agents)"
                .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queues::calibration::{Asked, Judged, Load, Pace, Said, Seen, VERSION};
    use crate::queues::{Coefficients, Mode};
    use std::time::Duration;

    #[test]
    fn own_servers_are_drawn_with_the_error_of_their_calibration() {
        let [wake, turn, lookup, storage, client] = [0, 50, 12, 18, 10].map(Duration::from_micros);
        let seen = Seen { per_second: 1000.0, median: 1e-3, processor: 1e-4 };
        let said = Said { per_second: 1100.0, median: 8e-4 };
        let found = Calibration {
            version: VERSION,
            commit: String::new(),
            date: String::new(),
            machine: String::new(),
            rounds: 1,
            coefficients: Coefficients { wake, turn, lookup, storage, client, spread: 0.3 },
            fitted: Vec::new(),
            judged: vec![Judged { load: Load { asked: Asked::Any, pace: Pace::Closed(8) }, seen, said }],
        };
        let figure = of_sizes(&found, &[5], 1, 1).unwrap();
        assert_eq!((figure.costs, figure.series.len()), (Some(Mode::Calibrated), 12));
        let rate = |name: &str| figure.y(name, 0);
        let (ideal, hash, chord) =
            (rate("ideal, equal arcs"), rate("hash, equal arcs"), rate("chord, equal arcs"));
        assert!(hash > 0.9 * ideal && hash < 1.05 * ideal && chord < 0.9 * hash, "{ideal}, {hash}, {chord}");
        let off: Vec<(bool, bool)> =
            figure.ours.iter().filter(|seen| seen.must).map(|seen| (seen.holds, seen.value > 0.05)).collect();
        assert_eq!(off, [(true, true), (false, true)], "throughput is off by 10 %, the median by 20");
    }
}
