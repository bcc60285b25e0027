//! Which of very many are asked for most, in little room: the Space-Saving sketch (Metwally, Agrawal, El
//! Abbadi, "Efficient computation of frequent and top-k elements in data streams", ICDT 2005), over counts
//! that fade, so that it tells of now.
//!
//! Who is not among those that are kept takes the place of the least, with its count as a possible error.
//! What is shown leaves that error out: nobody is shown as hotter than he is, and whoever has more than a
//! 32nd of all requests is shown. Of more than 20,000 requests a second only one in eight is looked at and
//! counts for eight, so that this costs next to nothing: such a rate is true within a few percent.

use bearing_types::Mono;
use std::time::Duration;

const KEPT: usize = 32;
/// So many are shown.
const SHOWN: usize = 10;
/// A count is half as much after so long.
const HALF_LIFE: Duration = Duration::from_secs(5);
/// How often counts are let fade.
const FADE_EVERY: Duration = Duration::from_millis(100);
/// So many within that time are each looked at.
const ALL_UP_TO: u64 = 2000;
/// Of those beyond, one in so many.
const SAMPLED: u64 = 8;
/// Slower than this, in requests per second, is not worth a line.
const SHOWN_FROM: f64 = 0.1;

/// See the module. Keys and counts apart: to find a key is to compare few cache lines.
pub struct Hottest<V> {
    keys: Vec<u64>,
    counts: Vec<f64>,
    errors: Vec<f64>,
    values: Vec<V>,
    faded: Mono,
    /// Hits since then.
    lately: u64,
}

impl<V: Copy> Hottest<V> {
    /// Nobody yet.
    pub fn new() -> Hottest<V> {
        let (counts, errors) = (Vec::with_capacity(KEPT), Vec::with_capacity(KEPT));
        Hottest {
            keys: Vec::with_capacity(KEPT),
            counts,
            errors,
            values: Vec::new(),
            faded: Mono::ZERO,
            lately: 0,
        }
    }

    /// Counts a request for what has this key; the value is kept with it.
    pub fn hit(&mut self, now: Mono, key: u64, value: V) {
        self.fade(now);
        self.lately += 1;
        let stands_for = if self.lately <= ALL_UP_TO { 1 } else { SAMPLED };
        // Multiples of the golden ratio: no period of the requests can hide from them.
        if self.lately.wrapping_mul(0x9e37_79b9_7f4a_7c15) > u64::MAX / stands_for {
            return;
        }
        let stands_for = stands_for as f64;
        if let Some(place) = self.keys.iter().position(|kept| *kept == key) {
            self.counts[place] += stands_for;
        } else if self.keys.len() < KEPT {
            self.keys.push(key);
            self.counts.push(stands_for);
            self.errors.push(0.0);
            self.values.push(value);
        } else {
            let least = self.least();
            (self.keys[least], self.values[least]) = (key, value);
            self.errors[least] = self.counts[least];
            self.counts[least] += stands_for;
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
        (self.faded, self.lately) = (now, 0);
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
    fn rates_that_are_too_high_to_look_at_each_request_are_true_within_a_few_percent() {
        // Requests come in turn, so that what is looked at could always be the same one's.
        for turns in 1..=16_u64 {
            let mut hottest = Hottest::new();
            (0..3_000_000).for_each(|step| hottest.hit(Mono(step * SECOND / 200_000), step % turns, ()));
            let shown = hottest.shown(Mono(15 * SECOND));
            // After three half-lives a rate is seven eighths of what it is.
            let true_rate = 200_000.0 / turns as f64 * 7.0 / 8.0;
            let within = |rate: f64| (0.96..1.04).contains(&(rate / true_rate));
            assert_eq!(shown.len() as u64, turns.min(10));
            assert!(shown.iter().all(|(.., rate)| within(*rate)), "{turns} in turn: {shown:?}, {true_rate}");
        }
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
