//! Reads under way that would end sooner by other replicas or paths. Beyond the paper, which never changes
//! what it has chosen.
//!
//! When flows have ended, the reads that will take longest are looked at: a further replica may be added, or
//! a part moved to another one. Churn is bounded: only what saves enough is changed, a part stays where it is
//! while its estimates are frozen, and a read is changed a few times at most.

use bearing_routing::{Carrier, Estimates, FlowId, Part, Paths, Rate, Read};
use bearing_types::Mono;

/// Reads that are looked at when something has ended.
pub(crate) const LOOKED_AT_MAX: usize = 8;
/// Changes of one read.
const CHANGES_MAX: u32 = 4;
/// A change saves at least this share of the time that is left, and at least so many seconds.
const SAVED_SHARE: f64 = 0.2;
const SAVED_SECONDS: f64 = 0.1;
/// Parts of a read at the most.
const PARTS_MAX: usize = 3;

/// A read under way.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) read: Read,
    /// Its flows, and the replicas that they come from.
    pub(crate) parts: Vec<(FlowId, usize)>,
    pub(crate) changes: u32,
}

impl Reading {
    /// Bytes that are left, and the rate of all parts.
    fn left(&self, now: Mono, estimates: &Estimates) -> (f64, Rate) {
        let bytes = self.parts.iter().filter_map(|(flow, _)| estimates.remaining(now, *flow)).sum();
        let rate = self.parts.iter().filter_map(|(flow, _)| estimates.rate(*flow)).sum();
        (bytes, rate)
    }

    /// The seconds that are left.
    pub(crate) fn seconds_left(&self, now: Mono, estimates: &Estimates) -> f64 {
        let (bytes, rate) = self.left(now, estimates);
        rate.seconds_for(bytes)
    }

    /// The change that saves most, if one saves enough: the flow that ends for it, and the new part, which is
    /// in the estimates from now on.
    pub(crate) fn improve(
        &mut self,
        now: Mono,
        paths: &mut Paths,
        estimates: &mut Estimates,
    ) -> Option<(Option<FlowId>, Part)> {
        let (bytes, rate) = self.left(now, estimates);
        let seconds = rate.seconds_for(bytes);
        if self.changes >= CHANGES_MAX || seconds < SAVED_SECONDS {
            return None;
        }
        let mut best: Option<(f64, Option<usize>, usize, usize, Rate)> = None;
        let mut consider = |saved: f64, replaced, replica, route, rate| {
            if best.as_ref().is_none_or(|best| saved > best.0) {
                best = Some((saved, replaced, replica, route, rate));
            }
        };
        let routes: Vec<_> =
            self.read.replicas.iter().map(|replica| paths.between(*replica, self.read.reader)).collect();
        let own: Vec<FlowId> = self.parts.iter().map(|part| part.0).collect();
        for (replica, routes) in routes.iter().enumerate() {
            for (index, route) in routes.iter().enumerate() {
                let carriers: Vec<Carrier> = estimates.carriers(self.read.replicas[replica], route);
                let used_by = self.parts.iter().position(|part| part.1 == replica);
                if used_by.is_none() && self.parts.len() < PARTS_MAX {
                    let price = estimates.price(now, &carriers, &own);
                    let together = rate - price.own_loss + price.rate;
                    let saved = seconds - together.seconds_for(bytes) - price.impact;
                    consider(saved, None, replica, index, price.rate);
                }
                for (part, (flow, _)) in self.parts.iter().enumerate() {
                    let others_use_it = used_by.is_some_and(|used| used != part);
                    if others_use_it || estimates.is_frozen(now, *flow) {
                        continue;
                    }
                    let lifted = estimates.lift(*flow);
                    let price = estimates.price(now, &carriers, &own);
                    let together = rate - lifted.rate() - price.own_loss + price.rate;
                    estimates.put_back(lifted);
                    let saved = seconds - together.seconds_for(bytes) - price.impact;
                    consider(saved, Some(part), replica, index, price.rate);
                }
            }
        }
        let (_, replaced, replica, index, rate) =
            best.filter(|best| best.0 >= SAVED_SECONDS.max(SAVED_SHARE * seconds))?;
        let route = routes[replica].iter().nth(index)?;
        let carriers = estimates.carriers(self.read.replicas[replica], route);
        let ended = replaced.map(|part| self.parts.remove(part).0);
        let left = match ended {
            Some(flow) => {
                let left = estimates.remaining(now, flow).unwrap_or(0.0);
                estimates.end(now, flow);
                left
            }
            // What it takes from the others is not known before it has: its share of the rate.
            None => bytes / (self.parts.len() + 1) as f64,
        };
        let (flow, _) = estimates.attempt(now, carriers, Some(left as u64), rate);
        estimates.freeze(now, flow);
        self.parts.push((flow, replica));
        self.changes += 1;
        Some((ended, Part { flow, replica, path: route.path(), rate, bytes: left as u64 }))
    }
}
