//! Figures 6 and 7: how large groups should be.
//!
//! Measured: the rates of equation (4), with filters as in figure 13's first claim. Assumed: its times
//! ([`Times`]).

use super::assumed::{ASSUMED, HP, INS, RES, SERVERS, Times, Workload, figure, xs};
use super::cluster::{Filters, Level, Setting};
use super::where_found::{groups, tallies};
use crate::figure::{Figure, Series};
use crate::figures::draw::line;
use crate::figures::effort::Effort;
use crate::statistics::{Interval, mean};
use bearing_lookup::bloom::{Measured, published_group_most, replicas_each};

/// Rates of the levels for a few sizes of groups, between which they are interpolated.
#[derive(Clone, Debug)]
struct Rates {
    servers: u32,
    /// Size, share of L1, share of the group: rising sizes.
    at: Vec<[f64; 3]>,
}

impl Rates {
    fn measured(servers: u32, workload: Workload, effort: Effort) -> Rates {
        let mut sizes = [2, published_group_most(servers), servers / 4, servers / 2].map(|size| size.max(2));
        sizes.sort_unstable();
        let mut at: Vec<[f64; 3]> = Vec::new();
        for size in sizes {
            if at.last().is_some_and(|last| last[0] == f64::from(size)) {
                continue;
            }
            let setting = groups(servers, workload, Filters::ActiveOnly, effort);
            let tallies = tallies(&Setting { group_most: Some(size), ..setting }, effort);
            let mean_of = |of: &dyn Fn(&super::cluster::Tally) -> f64| {
                mean(&tallies.iter().map(of).collect::<Vec<f64>>())
            };
            let recent = mean_of(&|tally| tally.up_to(Level::Recent));
            at.push([f64::from(size), recent, mean_of(&|tally| tally.group_rate())]);
        }
        Rates { servers, at }
    }

    fn of(&self, size: f64) -> [f64; 2] {
        let after = self.at.iter().position(|at| at[0] >= size).unwrap_or(self.at.len() - 1);
        let (low, high) = (self.at[after.saturating_sub(1)], self.at[after]);
        let share =
            if high[0] > low[0] { ((size - low[0]) / (high[0] - low[0])).clamp(0.0, 1.0) } else { 0.0 };
        [1, 2].map(|which| low[which] + share * (high[which] - low[which]))
    }

    /// Equation (4), in milliseconds.
    fn latency(&self, members: u32) -> f64 {
        let [recent_rate, group_rate] = self.of(f64::from(members));
        let servers = f64::from(self.servers);
        let filters = 1.0 + replicas_each(self.servers, members);
        let measured = Measured {
            recent_rate,
            group_rate,
            recent: servers * Times::PROBE,
            segment: filters * Times::PROBE,
            group: Times::multicast(f64::from(members) - 1.0),
            all: Times::multicast(servers - 1.0),
        };
        measured.latency(members)
    }

    /// Equation (2), with an exponent of space; the printed one is 1.
    fn benefit(&self, members: u32, exponent: f64) -> f64 {
        1.0 / (self.latency(members) * replicas_each(self.servers, members).powf(exponent))
    }

    /// The size with the highest benefit, of those up to half of the servers.
    fn best(&self, exponent: f64) -> u32 {
        let sizes = 1..=self.servers / 2;
        sizes
            .map(|size| (size, self.benefit(size, exponent)))
            .fold((1, f64::NEG_INFINITY), |best, one| if one.1 > best.1 { one } else { best })
            .0
    }

    /// The exponent of space under which one member more is worth as much space as it costs latency: with it
    /// this size is neither too large nor too small, though another may be better, far from it. 2 or more.
    fn exponent_for(&self, size: u32) -> f64 {
        let change = |of: &dyn Fn(u32) -> f64| of(size + 1).ln() - of(size - 1).ln();
        -change(&|size| self.latency(size)) / change(&|size| replicas_each(self.servers, size))
    }
}

const UNEXPLAINED: &str = "times that grow no faster than the group make the largest group the best: one \
                           member more saves space in proportion and costs one message";

fn see_exponent(figure: &mut Figure, rates: &Rates, size: u32) {
    let exponent = rates.exponent_for(size);
    let best = rates.best(exponent);
    let why = format!(
        "one member more saves as much as it costs then; the printed equation has 1. M = {best} is the best \
         under it: a server that holds all asks no group"
    );
    let said = format!("exponent of space that M = {size} needs at {} servers", rates.servers);
    figure.see(said, exponent, if best == size { "the printed equation has 1" } else { &why });
}

/// Throughput by latency and space, over M.
pub fn figure_6(name: &str, effort: Effort) -> Figure {
    let mut series = Vec::new();
    let mut of_hp = Vec::new();
    for servers in [30, 100] {
        for workload in [HP, RES, INS] {
            let rates = Rates::measured(servers, workload, effort);
            let best = rates.benefit(rates.best(1.0), 1.0);
            let points =
                (2..=servers / 2).map(|size| [f64::from(size), rates.benefit(size, 1.0) / best]).collect();
            let scheme = format!("{}, {servers} servers", workload.name);
            series.push(Series { scheme, points, half: Vec::new() });
            if workload.name == HP.name {
                of_hp.push(rates);
            }
        }
    }
    let axes = ["M, the most members of a group", "1 / (latency * space), best = 1", ""];
    let mut figure = figure(name, effort, axes, series);
    for (rates, published) in of_hp.iter().zip([6, 9]) {
        let said = format!("best M at {} servers", rates.servers);
        let best = f64::from(rates.best(1.0));
        figure.claim(
            &said,
            f64::from(published),
            best,
            f64::from(published)..=f64::from(published),
            UNEXPLAINED,
        );
        figure.stands(
            Some(&format!("{}, {} servers", HP.name, rates.servers)),
            Some(f64::from(published)),
            1.0,
        );
    }
    for (rates, published) in of_hp.iter().zip([6, 9]) {
        see_exponent(&mut figure, rates, published);
        let [recent, group] = rates.of(f64::from(published));
        figure.see(format!("L1's rate at {} servers", rates.servers), recent, ASSUMED);
        figure.see(
            format!("the group's rate at {} servers and M = {published}", rates.servers),
            group,
            "measured",
        );
    }
    figure
}

/// The best M over servers.
pub fn figure_7(name: &str, effort: Effort) -> Figure {
    let rates: Vec<Rates> = SERVERS.iter().map(|servers| Rates::measured(*servers, HP, effort)).collect();
    let sizes = |of: &dyn Fn(&Rates) -> u32| -> Vec<Interval> {
        rates.iter().map(|rates| Interval { mean: f64::from(of(rates)), half: 0.0 }).collect()
    };
    let series = vec![
        line("equation (2), measured rates", &xs(&SERVERS), &sizes(&|rates| rates.best(1.0))),
        line(
            "published, as table 5 has it",
            &xs(&SERVERS),
            &sizes(&|rates| published_group_most(rates.servers)),
        ),
    ];
    let mut figure = figure(name, effort, ["servers", "best M", ""], series);
    let last = figure.y("equation (2), measured rates", SERVERS.len() - 1);
    figure.claim("best M at 100 servers", 9.0, last, 9.0..=9.0, UNEXPLAINED);
    figure.stands(None, Some(100.0), 9.0);
    for rates in &rates {
        if rates.servers >= 20 {
            see_exponent(&mut figure, rates, published_group_most(rates.servers));
        }
    }
    figure
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: Rates = Rates { servers: 100, at: Vec::new() };

    fn rates() -> Rates {
        Rates { at: vec![[2.0, 0.6, 0.2], [10.0, 0.6, 0.1], [50.0, 0.6, 0.1]], ..RATES }
    }

    #[test]
    fn rates_between_two_sizes_lie_between_theirs() {
        assert_eq!(rates().of(1.0), [0.6, 0.2]);
        assert!((rates().of(6.0)[1] - 0.15).abs() < 1e-12);
        assert_eq!([rates().of(10.0)[1], rates().of(50.0)[1], rates().of(80.0)[1]], [0.1; 3]);
    }

    #[test]
    fn under_the_exponent_found_a_member_more_gains_as_much_as_it_costs() {
        let rates = Rates { at: vec![[2.0, 0.6, 0.1], [50.0, 0.6, 0.1]], ..RATES };
        assert_eq!(rates.best(1.0), 50);
        let exponent = rates.exponent_for(9);
        let [before, after] = [8, 10].map(|size| rates.benefit(size, exponent));
        assert!((before / after - 1.0).abs() < 1e-9 && (0.0..0.5).contains(&exponent), "{exponent}");
        assert!(rates.benefit(10, exponent + 0.01) > rates.benefit(8, exponent + 0.01));
        assert!(rates.benefit(10, exponent - 0.01) < rates.benefit(8, exponent - 0.01));
    }
}
