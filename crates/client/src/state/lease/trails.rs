//! How names of directories are asked for, so that it is known when the others are worth prefetching.

use crate::config::ClientConfig;
use crate::tables::Bounded;
use bearing_types::{Mono, NodeId};
use std::time::Duration;

/// Directories whose lookups are counted.
const TRAILS_MAX: usize = 1024;
/// One name of so many has to be asked for, or it was not worth it.
const USED_OF: u32 = 4;

/// See the module.
pub(crate) struct Trails(Bounded<NodeId, Trail>);

/// What is asked for in one directory.
#[derive(Debug)]
struct Trail {
    /// Names asked for one by one, since when.
    misses: u32,
    since: Mono,
    /// When a name was asked for last, by whoever.
    asked: Mono,
    fetching: bool,
    /// Names taken the last time, and those of them that were asked for.
    taken: u32,
    used: u32,
    not_before: Mono,
    pause: Duration,
}

impl Trails {
    pub fn new() -> Trails {
        Trails(Bounded::new(TRAILS_MAX))
    }

    /// A name was found in the cache; `first`: it had been prefetched, and is used now.
    pub fn met(&mut self, directory: NodeId, first: bool, now: Mono) {
        if let Some(trail) = self.0.get(&directory) {
            trail.asked = now;
            trail.used += u32::from(first);
        }
    }

    /// A name that is there had to be asked for. Whether to look up the others now.
    pub fn missed(&mut self, directory: NodeId, now: Mono, config: &ClientConfig) -> bool {
        if self.0.peek(&directory).is_none() {
            self.0.insert(directory, Trail::new(now, config.prefetch_delay));
        }
        let trail = self.0.get(&directory).expect("put in just now, or before");
        if now.since(trail.since) > config.prefetch_timeout {
            (trail.misses, trail.since) = (0, now);
        }
        trail.asked = now;
        trail.misses += 1;
        if trail.misses < config.prefetch_after || trail.fetching || now < trail.not_before {
            return false;
        }
        trail.misses = 0;
        let worth_it = trail.used >= trail.taken / USED_OF;
        (trail.taken, trail.used) = (0, 0);
        if worth_it {
            trail.pause = config.prefetch_delay;
            trail.fetching = true;
        } else {
            trail.rests(now, config.prefetch_delay_max);
        }
        worth_it
    }

    /// Whether somebody asked for names of a directory a short time ago.
    pub fn is_asked_for(&self, directory: NodeId, now: Mono, config: &ClientConfig) -> bool {
        self.0.peek(&directory).is_some_and(|trail| now.since(trail.asked) <= config.prefetch_timeout)
    }

    /// So many names were prefetched.
    pub fn taken(&mut self, directory: NodeId, count: u32) {
        if let Some(trail) = self.0.get(&directory) {
            trail.taken += count;
        }
    }

    /// It is over for now.
    pub fn end(&mut self, directory: NodeId, now: Mono, config: &ClientConfig) {
        if let Some(trail) = self.0.get(&directory) {
            trail.fetching = false;
            trail.misses = 0;
            if trail.taken == 0 {
                trail.rests(now, config.prefetch_delay_max);
            }
        }
    }
}

impl Trail {
    fn new(now: Mono, pause: Duration) -> Trail {
        let not_before = Mono::ZERO;
        Trail { misses: 0, since: now, asked: now, fetching: false, taken: 0, used: 0, not_before, pause }
    }

    fn rests(&mut self, now: Mono, pause_max: Duration) {
        self.not_before = now.after(self.pause);
        self.pause = (self.pause * 2).min(pause_max);
    }
}
