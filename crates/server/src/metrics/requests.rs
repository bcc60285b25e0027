//! Requests by kind, and how long each took.
//!
//! What is under way stands in a table of fixed size, at a place that follows from who asks and the request's
//! number: nothing is allocated, and what is never answered is written over some time. Whose place was taken
//! by another one is counted, but not in the latencies: with 4096 places that happens to few.

use crate::metrics::{Histogram, Metric, Page};
use bearing_proto::Sender;
use bearing_types::Mono;

/// A power of two.
const PLACES: usize = 4096;

#[derive(Clone, Copy)]
struct Begun {
    who: u64,
    number: u64,
    kind: usize,
    at: Mono,
}

/// See the module.
pub struct Requests {
    names: Vec<&'static str>,
    begun: Vec<u64>,
    took: Vec<Histogram>,
    under_way: Vec<Option<Begun>>,
}

impl Requests {
    /// None yet, of kinds that are called like this.
    pub fn new(names: Vec<&'static str>) -> Requests {
        let (begun, took) = (vec![0; names.len()], vec![Histogram::default(); names.len()]);
        Requests { names, begun, took, under_way: vec![None; PLACES] }
    }

    /// A request came. If it came before, it is as old as it was then.
    pub fn begin(&mut self, now: Mono, (who, number): (u64, u64), kind: usize) {
        let place = &mut self.under_way[place_of(who, number)];
        if place.is_some_and(|begun| (begun.who, begun.number) == (who, number)) {
            return;
        }
        self.begun[kind] += 1;
        *place = Some(Begun { who, number, kind, at: now });
    }

    /// It is answered.
    pub fn end(&mut self, now: Mono, (who, number): (u64, u64)) {
        let place = &mut self.under_way[place_of(who, number)];
        if let Some(begun) = place.take_if(|begun| (begun.who, begun.number) == (who, number)) {
            self.took[begun.kind].record(now.since(begun.at));
        }
    }

    /// Shows those kinds that came.
    pub fn show(&self, page: &mut Page, total: &'static Metric, took: &'static Metric) {
        for (kind, name) in self.names.iter().enumerate().filter(|(kind, _)| self.begun[*kind] > 0) {
            page.count(total, [*name], self.begun[kind]);
            page.spread(took, [*name], &self.took[kind]);
        }
    }
}

/// Numbers of one asker follow each other, and so do their places: none of his own takes another's, and the
/// processor sees which is next. Askers are spread by a multiplication.
fn place_of(who: u64, number: u64) -> usize {
    let first = who.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - PLACES.trailing_zeros());
    first.wrapping_add(number) as usize % PLACES
}

/// Who asks, as a number.
pub fn number_of(asker: Sender) -> u64 {
    match asker {
        Sender::Client(session) => session.0,
        Sender::Server(server) => u64::from(server.0),
        Sender::Nobody => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(requests: &Requests) -> u64 {
        requests.took.iter().map(Histogram::count).sum()
    }

    #[test]
    fn a_request_that_comes_again_is_one_and_as_old_as_at_first() {
        let mut requests = Requests::new(vec!["a", "b"]);
        requests.begin(Mono(1_000_000), (7, 1), 1);
        requests.begin(Mono(2_000_000), (7, 1), 1);
        requests.end(Mono(4_000_000), (7, 1));
        requests.end(Mono(5_000_000), (7, 1));
        assert_eq!((requests.begun, requests.took[1].count()), (vec![0, 1], 1));
        assert_eq!(requests.took[1].sum(), 0.003);
    }

    #[test]
    fn what_is_never_answered_takes_no_room_and_few_of_those_under_way_get_lost() {
        let mut requests = Requests::new(vec!["a"]);
        (0..10_000).for_each(|number| requests.begin(Mono(number), (1, number), 0));
        assert_eq!(requests.under_way.len(), PLACES);
        for number in 10_000..10_064 {
            requests.begin(Mono(number), (1, number), 0);
        }
        (10_000..10_064).for_each(|number| requests.end(Mono(number), (1, number)));
        assert_eq!((requests.begun[0], took(&requests)), (10_064, 64));
    }
}
