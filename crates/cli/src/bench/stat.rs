//! Draws entries and asks for them: stat by name, under the directory's grant, with a lease in every answer.

use super::drive::Work;
use super::tree::{Ask, Tree};
use anyhow::{Context, Result};
use bearing_proto::client::{Body, Call};
use bearing_types::{Code, Mono, Position};
use bearing_workload::{Seeded, Zipf};

/// The exponent of the skewed draw, the one of YCSB.
const EXPONENT: f64 = 0.99;

/// How entries are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skew {
    /// By Zipf's law; ranks are spread over directories.
    Zipf,
    /// All alike.
    Uniform,
}

impl Skew {
    /// The word in the results.
    pub fn word(self) -> &'static str {
        match self {
            Skew::Zipf => "zipf",
            Skew::Uniform => "uniform",
        }
    }
}

/// Draws entries.
pub struct Draw {
    skew: Skew,
    zipf: Zipf,
    rng: Seeded,
    /// Which entry has which rank.
    ranks: Vec<u32>,
}

impl Draw {
    /// Draws from `count` entries.
    pub fn new(skew: Skew, count: u32, seed: u64) -> Draw {
        let mut rng = Seeded::new(seed);
        let mut ranks: Vec<u32> = (0..count).collect();
        for last in (1..ranks.len()).rev() {
            ranks.swap(last, rng.below(last as u64 + 1) as usize);
        }
        Draw { skew, zipf: Zipf::new(u64::from(count), EXPONENT), rng, ranks }
    }

    fn entry(&mut self) -> u32 {
        let rank = match self.skew {
            Skew::Zipf => self.zipf.rank(&mut self.rng),
            Skew::Uniform => self.rng.below(self.ranks.len() as u64),
        };
        self.ranks[rank as usize]
    }
}

/// See the module.
pub struct Stats<'a> {
    /// What is asked for.
    pub tree: &'a mut Tree,
    /// Which.
    pub draw: &'a mut Draw,
}

impl Work for Stats<'_> {
    type Tag = Ask;

    fn next(&mut self, now: Mono) -> Option<Ask> {
        let entry = self.draw.entry();
        Some(self.tree.due(Tree::directory_of(entry), now).unwrap_or(Ask::Entry(entry)))
    }

    fn may_wait(&self, tag: Ask) -> bool {
        tag.may_wait()
    }

    fn call(&self, tag: Ask) -> (Position, Call) {
        self.tree.renewal(tag)
    }

    fn answered(&mut self, tag: Ask, result: Result<Body, Code>, sent: Mono) -> Result<bool> {
        let body = result.with_context(|| format!("stat ({tag:?})"))?;
        let Ask::Entry(_) = tag else {
            self.tree.renewed(tag, &body, sent);
            return Ok(false);
        };
        anyhow::ensure!(
            matches!(&body, Body::Entry(view, _) if view.attributes.is_some()),
            "stat without attributes"
        );
        Ok(true)
    }
}
