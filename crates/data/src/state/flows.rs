//! What is counted for the flow server: bytes sent of each flow that it planned, and for how long the disk
//! was asked for something.

use bearing_proto::data::{Carried, DataBody, FLOWS_COUNTED_MAX, Flow, FlowNumber};
use bearing_types::Mono;
use std::collections::BTreeMap;
use std::time::Duration;

/// A flow of which nothing was sent for so long is told no more.
const FLOW_TTL: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    /// With the bytes that were sent, and when the last ones were.
    sent: BTreeMap<FlowNumber, (Flow, u64, Mono)>,
    /// Bytes that the disk gave.
    read: u64,
    /// Since when it is asked for something.
    busy_since: Option<Mono>,
    busy: Duration,
    /// What the host's interface has carried, as the shell has told.
    pub carried: Option<Carried>,
}

impl Flows {
    /// The disk is asked for something.
    pub fn begin(&mut self, now: Mono) {
        self.busy_since.get_or_insert(now);
    }

    /// The disk has given so many bytes, or none, and is asked for nothing more if it is `idle`.
    pub fn end(&mut self, now: Mono, bytes: u64, idle: bool) {
        self.read = self.read.saturating_add(bytes);
        if let Some(since) = self.busy_since.take() {
            self.busy += now.since(since);
            self.busy_since = (!idle).then_some(now);
        }
    }

    /// Bytes of a flow were sent.
    pub fn sent(&mut self, now: Mono, flow: Flow, bytes: u64) {
        if self.sent.len() >= FLOWS_COUNTED_MAX
            && !self.sent.contains_key(&flow.number)
            && let Some(oldest) =
                self.sent.iter().min_by_key(|(_, (_, _, at))| *at).map(|(number, _)| *number)
        {
            self.sent.remove(&oldest);
        }
        let (_, all, at) = self.sent.entry(flow.number).or_insert((flow, 0, now));
        (*all, *at) = (all.saturating_add(bytes), now);
    }

    /// What the flow server is told.
    pub fn told(&mut self, now: Mono, queued: u64) -> DataBody {
        self.sent.retain(|_, (_, _, at)| now.since(*at) < FLOW_TTL);
        let running = self.busy_since.map_or(Duration::ZERO, |since| now.since(since));
        DataBody::Counters {
            flows: self.sent.values().map(|(flow, bytes, _)| (*flow, *bytes)).collect(),
            queued,
            read: self.read,
            busy_us: (self.busy + running).as_micros() as u64,
            carried: self.carried,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn at(ms: u64) -> Mono {
        Mono::ZERO.after(Duration::from_millis(ms))
    }

    fn flow(number: u64) -> Flow {
        Flow { number: FlowNumber(number), bytes: 100, reader: IpAddr::from([10, 0, 0, 1]) }
    }

    #[test]
    fn time_counts_only_while_something_is_asked_for() {
        let mut flows = Flows::default();
        flows.begin(at(10));
        flows.begin(at(12));
        flows.end(at(20), 7, false);
        flows.end(at(30), 8, true);
        flows.begin(at(100));
        let DataBody::Counters { read, busy_us, queued, .. } = flows.told(at(105), 3) else { panic!() };
        assert_eq!((read, busy_us, queued), (15, 25_000, 3));
    }

    #[test]
    fn flows_are_told_while_they_go_on_and_never_more_than_so_many() {
        let mut flows = Flows::default();
        for number in 0..FLOWS_COUNTED_MAX as u64 + 5 {
            flows.sent(at(number), flow(number), 1);
        }
        flows.sent(at(8_000), flow(9), 4);
        let DataBody::Counters { flows: told, .. } = flows.told(at(8_000), 0) else { panic!() };
        assert_eq!(told.len(), FLOWS_COUNTED_MAX);
        assert_eq!(told[0].0.number, FlowNumber(5), "the oldest gave way");
        assert!(told.contains(&(flow(9), 5)));
        let DataBody::Counters { flows: told, .. } = flows.told(at(17_999), 0) else { panic!() };
        assert_eq!(told, [(flow(9), 5)]);
    }
}
