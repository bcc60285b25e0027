//! What can be set about a scheme, with its bounds.

use bearing_types::{ParameterError, within};

/// Parameters of partitions. Each scheme reads its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// Points of each server on the ring (consistent hashing; AngleCut's virtual nodes). 1 to 4,096.
    pub virtual_nodes: u32,
    /// RDHT-MDSC's set-up: points of the ring at equal distances, so that servers have equal ranges; a server
    /// that joins halves the longest. Otherwise points lie where they are hashed to.
    pub even_points: bool,
    /// AngleCut section 4.4: the weight of old boundaries grows from `alpha_start` to `alpha_max`, each 0
    /// to 1.
    pub alpha_start: f64,
    /// See `alpha_start`. The paper tried 0.2 to 1.
    pub alpha_max: f64,
    /// How much the weight grows with every rebalance. 0 to 1.
    pub alpha_step: f64,
    /// Beyond the paper: a boundary stays if what would change hands is no more than this part of what a
    /// server has in the mean. At least 0; 0 is the published form.
    pub hysteresis: f64,
    /// Beyond the paper: the share of the ring's load that one rebalance may move. Above 0, at most 1; 1 is
    /// the published form.
    pub migration_budget: f64,
    /// How far a boundary may be moved for a shorter prefix, as a share of the arc beside it. 0 to 0.5.
    pub tolerance: f64,
    /// DROP: buckets of each server's histogram. 2 to 65,536.
    pub buckets: u32,
    /// DROP and subtrees: a server above the mean by this share is heavy. Above 0.
    pub threshold: f64,
    /// MetaFlow section 6: a split ends when the left part holds more than `split_low` of the load and less
    /// than `split_high`. 0 < low < high < 1.
    pub split_low: f64,
    /// See `split_low`.
    pub split_high: f64,
    /// Draws that a scheme makes (a random walk's steps) begin from here.
    pub seed: u64,
}

impl Default for Parameters {
    /// As published, where something is published.
    fn default() -> Parameters {
        Parameters {
            virtual_nodes: 1,
            even_points: false,
            alpha_start: 0.0,
            alpha_max: 0.8,
            alpha_step: 0.1,
            hysteresis: 0.0,
            migration_budget: 1.0,
            tolerance: 0.0,
            buckets: 256,
            threshold: 0.1,
            split_low: 0.4,
            split_high: 0.6,
            seed: 1,
        }
    }
}

impl Parameters {
    /// Whether all are within their bounds. The first that is not is named, with its bound.
    pub fn check(&self) -> Result<(), ParameterError> {
        let share = |value: f64| (0.0..=1.0).contains(&value);
        within("virtual_nodes", self.virtual_nodes, (1..=4096).contains(&self.virtual_nodes), "1 to 4096")?;
        within("alpha_start", self.alpha_start, share(self.alpha_start), "0 to 1")?;
        within("alpha_max", self.alpha_max, share(self.alpha_max), "0 to 1")?;
        within("alpha_step", self.alpha_step, share(self.alpha_step), "0 to 1")?;
        let ordered = self.alpha_start <= self.alpha_max;
        within("alpha_start", self.alpha_start, ordered, "at most alpha_max")?;
        within("hysteresis", self.hysteresis, self.hysteresis >= 0.0, "0 or more")?;
        let budget = self.migration_budget > 0.0 && share(self.migration_budget);
        within("migration_budget", self.migration_budget, budget, "more than 0, at most 1")?;
        within("tolerance", self.tolerance, (0.0..=0.5).contains(&self.tolerance), "0 to 0.5")?;
        within("buckets", self.buckets, (2..=65_536).contains(&self.buckets), "2 to 65536")?;
        within("threshold", self.threshold, self.threshold > 0.0, "more than 0")?;
        let split = self.split_low > 0.0 && self.split_high < 1.0 && self.split_low < self.split_high;
        let shown = format!("{} (with split_high {})", self.split_low, self.split_high);
        within("split_low", shown, split, "more than 0, less than split_high, which is less than 1")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_within_bounds() {
        assert_eq!(Parameters::default().check(), Ok(()));
    }

    #[test]
    fn a_parameter_out_of_bounds_is_named_with_its_value_and_its_bound() {
        let wrong: [(&str, Parameters); 7] = [
            ("alpha_max may not be 1.5; give 0 to 1", Parameters { alpha_max: 1.5, ..Parameters::default() }),
            (
                "alpha_start may not be NaN; give 0 to 1",
                Parameters { alpha_start: f64::NAN, ..Parameters::default() },
            ),
            (
                "virtual_nodes may not be 0; give 1 to 4096",
                Parameters { virtual_nodes: 0, ..Parameters::default() },
            ),
            (
                "tolerance may not be 0.7; give 0 to 0.5",
                Parameters { tolerance: 0.7, ..Parameters::default() },
            ),
            ("buckets may not be 1; give 2 to 65536", Parameters { buckets: 1, ..Parameters::default() }),
            (
                "migration_budget may not be 0; give more than 0, at most 1",
                Parameters { migration_budget: 0.0, ..Parameters::default() },
            ),
            (
                "split_low may not be 0.7 (with split_high 0.6); give more than 0, less than split_high, which is less than 1",
                Parameters { split_low: 0.7, ..Parameters::default() },
            ),
        ];
        for (message, parameters) in wrong {
            assert_eq!(parameters.check().unwrap_err().to_string(), message);
        }
    }
}
