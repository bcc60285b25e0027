//! The network between hosts: what arrives, when, how often.

use crate::clock::MILLISECOND;
use crate::counts::Counts;
use bearing_workload::Seeded;
use std::collections::{BTreeMap, BTreeSet};

/// A machine of the simulated cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostId(pub u8);

/// How a packet travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// May be lost, doubled, late or reordered.
    Datagram,
    /// In order and whole, as long as both ends live and can reach each other.
    Stream,
}

/// How bad the network is, in millionths of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weather {
    /// Lost.
    pub drop: u64,
    /// Doubled.
    pub double: u64,
    /// Some milliseconds late, so that others overtake them.
    pub late: u64,
    /// Up to seconds late.
    pub stray: u64,
    /// With a wrong byte in the bulk part (heads and messages are signed; these would only be lost).
    pub damage: u64,
}

impl Weather {
    /// Nothing is lost.
    pub const FAIR: Weather = Weather { drop: 0, double: 0, late: 0, stray: 0, damage: 0 };
    /// What a run has all the time.
    pub const USUAL: Weather =
        Weather { drop: 5_000, double: 5_000, late: 20_000, stray: 1_000, damage: 5_000 };
    /// A bad spell.
    pub const STORM: Weather =
        Weather { drop: 150_000, double: 50_000, late: 200_000, stray: 10_000, damage: 20_000 };
}

/// The network.
pub struct Network {
    rng: Seeded,
    /// How bad it is now.
    pub weather: Weather,
    cut: BTreeSet<(HostId, HostId)>,
    /// Directions in which each packet is late by up to so many nanoseconds, so that they overtake each
    /// other.
    lag: BTreeMap<(HostId, HostId), u64>,
    stream_last: BTreeMap<(HostId, HostId), u64>,
}

impl Network {
    /// A fair network.
    pub fn new(rng: Seeded) -> Network {
        Network {
            rng,
            weather: Weather::FAIR,
            cut: BTreeSet::new(),
            lag: BTreeMap::new(),
            stream_last: BTreeMap::new(),
        }
    }

    /// Cuts or heals one direction.
    pub fn set_cut(&mut self, from: HostId, to: HostId, cut: bool) {
        if cut {
            self.cut.insert((from, to));
        } else {
            self.cut.remove(&(from, to));
        }
    }

    /// Packets in one direction are late by up to so many nanoseconds; 0: they are not.
    pub fn set_lag(&mut self, from: HostId, to: HostId, lag: u64) {
        match lag {
            0 => self.lag.remove(&(from, to)),
            _ => self.lag.insert((from, to), lag),
        };
    }

    /// Heals everything.
    pub fn heal(&mut self) {
        self.lag.clear();
        self.cut.clear();
    }

    /// Whether nothing gets from one to the other.
    pub fn is_cut(&self, from: HostId, to: HostId) -> bool {
        self.cut.contains(&(from, to))
    }

    fn happens(&mut self, millionths: u64) -> bool {
        millionths > 0 && self.rng.chance(millionths, 1_000_000)
    }

    /// After how many nanoseconds a packet arrives; several when it is doubled, none when it is lost.
    pub fn delays(&mut self, from: HostId, to: HostId, way: Way, now: u64, counts: &mut Counts) -> Vec<u64> {
        if self.is_cut(from, to) {
            counts.add("fault: packet cut off by a partition");
            return Vec::new();
        }
        let lag = self.lag.get(&(from, to)).copied();
        let lag = lag.map_or(0, |lag| self.rng.below(lag));
        let delays = match way {
            Way::Stream => vec![self.stream_delay(from, to, now)],
            Way::Datagram => self.datagram_delays(counts),
        };
        delays.into_iter().map(|delay| delay + if way == Way::Datagram { lag } else { 0 }).collect()
    }

    fn latency(&mut self) -> u64 {
        self.rng.between(20_000, 250_000)
    }

    fn stream_delay(&mut self, from: HostId, to: HostId, now: u64) -> u64 {
        let last = self.stream_last.get(&(from, to)).copied().unwrap_or(0);
        let at = (now + self.latency()).max(last + 1);
        self.stream_last.insert((from, to), at);
        at - now
    }

    fn datagram_delays(&mut self, counts: &mut Counts) -> Vec<u64> {
        let weather = self.weather;
        if self.happens(weather.drop) {
            counts.add("fault: packet dropped");
            return Vec::new();
        }
        let mut delay = self.latency();
        if self.happens(weather.late) {
            counts.add("fault: packet late");
            delay += self.rng.between(1, 30) * MILLISECOND;
        } else if self.happens(weather.stray) {
            counts.add("fault: packet very late");
            delay += self.rng.between(100, 6_000) * MILLISECOND;
        }
        let mut delays = vec![delay];
        if self.happens(weather.double) {
            counts.add("fault: packet doubled");
            let apart = if self.rng.chance(1, 4) { 3_000 * MILLISECOND } else { 2 * MILLISECOND };
            delays.push(delay + self.rng.below(apart));
        }
        delays
    }

    /// Perhaps spoils the bulk bytes of a packet.
    pub fn perhaps_damage(&mut self, bulk: &mut [u8], counts: &mut Counts) {
        if bulk.is_empty() || !self.happens(self.weather.damage) {
            return;
        }
        counts.add("fault: bulk bytes damaged");
        let at = self.rng.below(bulk.len() as u64) as usize;
        bulk[at] ^= 1 << self.rng.below(8);
    }
}
