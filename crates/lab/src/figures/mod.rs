//! The figures that can be drawn.

mod mayflower;

use crate::figure::Figure;

/// How much is run for a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Seeds, each a run of its own: at least 10, unless it is to be quick.
    pub seeds: u64,
    /// Reads of each run.
    pub reads: usize,
    /// The first seed.
    pub seed: u64,
}

/// A figure that can be drawn.
#[derive(Clone, Copy)]
pub struct Known {
    /// Its name.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    draw: fn(&str, Effort) -> Figure,
}

impl Known {
    /// Draws it. `is_quick` runs a fifth, for a look.
    pub fn draw(&self, seed: u64, is_quick: bool) -> Figure {
        let (seeds, reads) = if is_quick { (3, 600) } else { (10, 2000) };
        (self.draw)(self.name, Effort { seeds, reads, seed })
    }
}

/// All of them.
pub const FIGURES: &[Known] = &[
    Known { name: "mayflower-3", about: "completion times of reads by selection", draw: mayflower::figure_3 },
    Known { name: "mayflower-4", about: "the same by where readers are", draw: mayflower::figure_4 },
    Known { name: "mayflower-5", about: "the same by the rate of reads", draw: mayflower::figure_5 },
    Known { name: "mayflower-6", about: "the same by oversubscription", draw: mayflower::figure_6 },
    Known { name: "mayflower-7", about: "reads beside flows of others", draw: mayflower::figure_7 },
    Known { name: "mayflower-8", about: "completion times by the size of a read", draw: mayflower::figure_8 },
    Known { name: "mayflower-9", about: "Mayflower beside HDFS", draw: mayflower::figure_9 },
    Known {
        name: "mayflower-disks",
        about: "beyond the paper: hosts with slow disks",
        draw: mayflower::slow_disks,
    },
    Known {
        name: "mayflower-optimum",
        about: "beyond the paper: few reads beside the best possible",
        draw: mayflower::optimum,
    },
    Known {
        name: "mayflower-writes",
        about: "beyond the paper: where new chunks are written",
        draw: mayflower::writes,
    },
    Known { name: "mayflower-hosts", about: "beyond the paper: 64 to 1,024 hosts", draw: mayflower::hosts },
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Too few reads to say anything, but every figure is whole.
    #[test]
    fn every_figure_has_its_lines_and_what_was_seen_of_each_claim() {
        for known in FIGURES {
            let figure = (known.draw)(known.name, Effort { seeds: 2, reads: 24, seed: 5 });
            let points = figure.series.iter().flat_map(|series| &series.points);
            assert!(
                points.clone().count() > 5 && points.flatten().all(|value| value.is_finite()),
                "{}",
                known.name
            );
            for (published, ours) in figure.published.iter().zip(&figure.ours) {
                assert_eq!(published.claim, ours.claim, "{}", known.name);
            }
            assert!(figure.published.len() <= figure.ours.len() && !figure.ours.is_empty(), "{}", known.name);
            assert!(
                figure.ours.iter().all(|seen| seen.value.is_finite()),
                "{}: {:?}",
                known.name,
                figure.ours
            );
            let json = serde_json::to_value(&figure).unwrap();
            let keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
            let expected = ["commit", "figure", "ours", "published", "seed", "series", "unit", "x", "y"];
            assert_eq!(keys, expected);
        }
    }
}
