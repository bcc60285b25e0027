//! What work costs a server.

use bearing_lookup::world::Work;
use std::time::Duration;

/// Where costs come from. No line of a figure has both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The ratios that MetaFlow's simulation used; only shares and ratios of results mean anything.
    PaperRatios,
    /// Measured on the daemons of this repository.
    Calibrated,
}

/// Lookups a second over storage operations a second of one processor (MetaFlow section 7.A.4). Above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThroughputRatio(pub f64);

/// The time of a lookup over that of a storage operation (the same section). Above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyRatio(pub f64);

/// Whether servers translate addresses of what the network has carried to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agent {
    /// They take the destination as it is: nothing is done.
    None,
    /// MetaFlow's NAT agent, which takes up to 15 % of the processor (figure 18) where a lookup costs as much
    /// as a storage operation; beside faster and slower lookups, in proportion to them.
    Published,
}

/// What `lab calibrate` measures on live daemons. There are no values here: none has been measured yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coefficients {
    /// To pass a query on.
    pub lookup: Duration,
    /// To carry out an operation of the workload, in the mean.
    pub storage: Duration,
    /// To take a message between servers.
    pub message: Duration,
    /// To take a query that the network carried, beyond what any other costs.
    pub agent: Duration,
    /// From one link to the next through a switch.
    pub hop: Duration,
}

/// What work costs, and the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    mode: Mode,
    lookup: Duration,
    storage: Duration,
    message: Duration,
    agent: Duration,
    hop: Duration,
}

impl Costs {
    /// A storage operation of MetaFlow's simulation: 2,000 servers without any loss do a million a second
    /// (8.0e5 are printed as a loss of 12 to 20 %).
    pub const STORAGE: Duration = Duration::from_millis(2);
    /// Through a switch at 10 Gb/s, with 300 bytes on the wire and the cable. Assumed; beside
    /// [`Costs::STORAGE`] it is nothing.
    pub const HOP: Duration = Duration::from_micros(1);
    /// What an agent costs of a lookup that takes as long as a storage operation: 15 % of the processor.
    const AGENT: f64 = 0.15 / 0.85;

    /// The paper's ratios, where throughput is looked at. `None` if the ratio is not above 0.
    pub fn of_throughput(ratio: ThroughputRatio, agent: Agent) -> Option<Costs> {
        Costs::of_latency(LatencyRatio(1.0 / ratio.0), agent)
    }

    /// The paper's ratios, where latency is looked at. `None` if the ratio is not above 0.
    pub fn of_latency(ratio: LatencyRatio, agent: Agent) -> Option<Costs> {
        if !(ratio.0 > 0.0 && ratio.0 < 1e6) {
            return None;
        }
        let lookup = Costs::STORAGE.mul_f64(ratio.0);
        let agent = match agent {
            Agent::None => Duration::ZERO,
            Agent::Published => lookup.mul_f64(Costs::AGENT),
        };
        let storage = Costs::STORAGE;
        // What other messages cost is not printed: as much as a lookup.
        Some(Costs { mode: Mode::PaperRatios, lookup, storage, message: lookup, agent, hop: Costs::HOP })
    }

    /// What was measured.
    pub fn calibrated(measured: Coefficients) -> Costs {
        let Coefficients { lookup, storage, message, agent, hop } = measured;
        Costs { mode: Mode::Calibrated, lookup, storage, message, agent, hop }
    }

    /// Where they come from.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// A storage operation.
    pub fn storage(&self) -> Duration {
        self.storage
    }

    /// Through a switch.
    pub fn hop(&self) -> Duration {
        self.hop
    }

    /// The longest that one thing takes a server: the time that its queue changes in.
    pub fn longest(&self) -> Duration {
        (self.storage + self.agent).max(self.lookup).max(Duration::from_nanos(1))
    }

    /// The same shares where a storage operation takes so long.
    pub fn scaled(self, storage: Duration) -> Costs {
        let factor = storage.as_secs_f64() / self.storage.as_secs_f64();
        Costs {
            lookup: self.lookup.mul_f64(factor),
            storage,
            message: self.message.mul_f64(factor),
            agent: self.agent.mul_f64(factor),
            ..self
        }
    }

    /// What it costs the servers of a lookup whose queries the network carries, or does not.
    pub fn work(&self, is_carried: bool) -> Work {
        let agent = if is_carried { self.agent } else { Duration::ZERO };
        Work { relay: self.lookup, serve: self.storage + agent, check: self.storage, message: self.message }
    }
}
