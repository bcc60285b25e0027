//! Which of very many are asked for most, in little room: the Space-Saving sketch (Metwally, Agrawal, El
//! Abbadi, "Efficient computation of frequent and top-k elements in data streams", ICDT 2005), over counts
//! that fade, so that it tells of now.
//!
//! Who is not among those that are kept takes the place of the least, with its count as a possible error.
//! What is shown leaves that error out: nobody is shown as hotter than he is, and whoever has more than a
//! 32nd of all requests is shown.

use bearing_types::Mono;
use std::time::Duration;

const KEPT: usize = 32;
/// So many are shown.
const SHOWN: usize = 10;
/// A count is half as much after so long.
const HALF_LIFE: Duration = Duration::from_secs(5);
/// How often counts are let fade.
const FADE_EVERY: Duration = Duration::from_millis(100);
/// Slower than this, in requests per second, is not worth a line.
const SHOWN_FROM: f64 = 0.1;

/// See the module. Keys and counts apart: to find a key is to compare few cache lines.
pub struct Hottest<V> {
    keys: Vec<u64>,
    counts: Vec<f64>,
    errors: Vec<f64>,
    values: Vec<V>,
    faded: Mono,
}

impl<V: Copy> Hottest<V> {
    /// Nobody yet.
    pub fn new() -> Hottest<V> {
        let (counts, errors) = (Vec::with_capacity(KEPT), Vec::with_capacity(KEPT));
        Hottest { keys: Vec::with_capacity(KEPT), counts, errors, values: Vec::new(), faded: Mono::ZERO }
    }

    /// Counts a request for what has this key; the value is kept with it.
    pub fn hit(&mut self, now: Mono, key: u64, value: V) {
        self.fade(now);
        if let Some(place) = self.keys.iter().position(|kept| *kept == key) {
            self.counts[place] += 1.0;
        } else if self.keys.len() < KEPT {
            self.keys.push(key);
            self.counts.push(1.0);
            self.errors.push(0.0);
            self.values.push(value);
        } else {
            let least = self.least();
            (self.keys[least], self.values[least]) = (key, value);
            self.errors[least] = self.counts[least];
            self.counts[least] += 1.0;
        }
    }

    /// The hottest, each with at least how many requests a second it had lately.
    pub fn shown(&mut self, now: Mono) -> Vec<(u64, V, f64)> {
        self.fade(now);
        let per_second = std::f64::consts::LN_2 / HALF_LIFE.as_secs_f64();
        let rate = |place: usize| (self.counts[place] - self.errors[place]) * per_second;
        let mut all: Vec<_> =
            (0..self.keys.len()).map(|place| (self.keys[place], self.values[place], rate(place))).collect();
        all.retain(|(.., rate)| *rate >= SHOWN_FROM);
        all.sort_by(|(.., one), (.., other)| other.total_cmp(one));
        all.truncate(SHOWN);
        all
    }

    fn least(&self) -> usize {
        let places = self.counts.iter().enumerate();
        places.min_by(|(_, one), (_, other)| one.total_cmp(other)).map_or(0, |(place, _)| place)
    }

    fn fade(&mut self, now: Mono) {
        let passed = now.since(self.faded);
        if passed < FADE_EVERY {
            return;
        }
        self.faded = now;
        let left = 0.5_f64.powf(passed.as_secs_f64() / HALF_LIFE.as_secs_f64());
        self.counts.iter_mut().chain(&mut self.errors).for_each(|count| *count *= left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_hottest_are_found_among_very_many_and_no_rate_is_made_up() {
        let mut hottest = Hottest::new();
        // A thousand requests a second for a minute: a third each for two keys, the rest for ever new ones.
        for step in 0..60_000_u64 {
            let key = if step % 3 < 2 { step % 3 } else { 1000 + step };
            hottest.hit(Mono(step * SECOND / 1000), key, ());
        }
        let shown = hottest.shown(Mono(60 * SECOND));
        let rates: Vec<(u64, f64)> = shown.iter().map(|(key, _, rate)| (*key, *rate)).collect();
        assert_eq!(rates.iter().map(|(key, _)| *key).filter(|key| *key < 2).count(), 2, "{rates:?}");
        assert!(rates[..2].iter().all(|(_, rate)| (310.0..=340.0).contains(rate)), "{rates:?}");
        assert!(rates[2..].iter().all(|(_, rate)| *rate < 1.0), "{rates:?}");
    }

    #[test]
    fn who_is_asked_for_no_more_is_forgotten() {
        let mut hottest = Hottest::new();
        (0..1000).for_each(|_| hottest.hit(Mono(SECOND), 7, 'x'));
        let [(7, 'x', before)] = hottest.shown(Mono(SECOND))[..] else { panic!("not shown") };
        let [(7, 'x', after)] = hottest.shown(Mono(11 * SECOND))[..] else { panic!("not shown") };
        assert!((before / after - 4.0).abs() < 0.01, "{before} {after}");
        assert!(hottest.shown(Mono(120 * SECOND)).is_empty());
    }
}
