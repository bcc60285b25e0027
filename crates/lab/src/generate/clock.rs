//! Arrivals: one operation in each period, at any moment of it. So a trace keeps the rate of its recording
//! however long it is made, with nothing but whole numbers; hours of the day and bursts are not modelled.

use bearing_workload::Seeded;

/// See the module.
#[derive(Debug)]
pub(super) struct Clock {
    period_ns: u64,
    now_ns: u64,
}

impl Clock {
    pub(super) fn new(period_ns: u64) -> Clock {
        Clock { period_ns, now_ns: 0 }
    }

    /// When the next operation comes, in microseconds.
    pub(super) fn next(&mut self, rng: &mut Seeded) -> u64 {
        let at = self.now_ns + rng.below(self.period_ns);
        self.now_ns += self.period_ns;
        at / 1000
    }
}

/// The period of so many records in so many hours.
pub(super) const fn period_ns(records: u64, hours: u64) -> u64 {
    hours * 3_600_000_000_000 / records
}
