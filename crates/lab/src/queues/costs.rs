//! What work costs a server.

use bearing_lookup::world::{AT_ONCE, Work};
use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};
use std::time::Duration;

/// Where costs come from. No line of a figure has both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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

/// What `lab calibrate` measures on live daemons: how they work is an event loop, which takes all that waits.
/// In files: microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coefficients {
    /// To wake up when something comes.
    #[serde(with = "microseconds")]
    pub wake: Duration,
    /// To begin a turn: to take what waits, and to send what follows.
    #[serde(with = "microseconds")]
    pub turn: Duration,
    /// To pass a query on.
    #[serde(with = "microseconds")]
    pub lookup: Duration,
    /// To carry out an operation of the workload, in the mean.
    #[serde(with = "microseconds")]
    pub storage: Duration,
    /// What a client and the way to it and back add to each operation.
    #[serde(with = "microseconds")]
    pub client: Duration,
    /// Turns take longer or shorter by a factor: the standard deviation of its logarithm. No unit.
    #[serde(deserialize_with = "spread")]
    pub spread: f64,
}

/// More than turns of any server differ.
const SPREAD_MOST: f64 = 2.0;

fn spread<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let spread = f64::deserialize(deserializer)?;
    if (0.0..=SPREAD_MOST).contains(&spread) {
        return Ok(spread);
    }
    Err(D::Error::invalid_value(Unexpected::Float(spread), &"a spread from 0 to 2"))
}

/// What work costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    mode: Mode,
    wake: Duration,
    turn: Duration,
    lookup: Duration,
    storage: Duration,
    message: Duration,
    agent: Duration,
    client: Duration,
    spread: f64,
}

impl Costs {
    /// A storage operation of MetaFlow's simulation: 2,000 servers without any loss do a million a second
    /// (8.0e5 are printed as a loss of 12 to 20 %).
    pub const STORAGE: Duration = Duration::from_millis(2);
    /// What an agent costs of a lookup that takes as long as a storage operation: 15 % of the processor.
    const AGENT: f64 = 0.15 / 0.85;

    /// The paper's ratios, where throughput is looked at. `None` if the ratio is not above a millionth and
    /// below a million.
    pub fn of_throughput(ratio: ThroughputRatio, agent: Agent) -> Option<Costs> {
        Costs::of_latency(LatencyRatio(1.0 / ratio.0), agent)
    }

    /// The same, where latency is looked at.
    pub fn of_latency(ratio: LatencyRatio, agent: Agent) -> Option<Costs> {
        if !(ratio.0 > 1e-6 && ratio.0 < 1e6) {
            return None;
        }
        let lookup = Costs::STORAGE.mul_f64(ratio.0);
        let agent = match agent {
            Agent::None => Duration::ZERO,
            Agent::Published => lookup.mul_f64(Costs::AGENT),
        };
        Some(Costs {
            mode: Mode::PaperRatios,
            wake: Duration::ZERO,
            turn: Duration::ZERO,
            lookup,
            storage: Costs::STORAGE,
            // What other messages cost is not printed: as much as a lookup.
            message: lookup,
            agent,
            client: Duration::ZERO,
            spread: 0.0,
        })
    }

    /// What was measured. Other messages are taken to cost as much as a lookup: both are a packet that is
    /// opened and one that is sent. An agent costs nothing: servers take what the network carries as it is.
    pub fn calibrated(measured: Coefficients) -> Costs {
        let Coefficients { wake, turn, lookup, storage, client, spread } = measured;
        let (message, agent) = (lookup, Duration::ZERO);
        Costs { mode: Mode::Calibrated, wake, turn, lookup, storage, message, agent, client, spread }
    }

    /// Where they come from.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// A storage operation alone.
    pub(super) fn own_storage(&self) -> Duration {
        self.storage
    }

    /// A storage operation of a server that is busy with nothing else, with its share of a turn.
    pub fn storage(&self) -> Duration {
        self.storage + self.turn / AT_ONCE as u32
    }

    /// What a client and the way to it and back add.
    pub fn client(&self) -> Duration {
        self.client
    }

    /// How much turns differ in how long they take ([`Coefficients::spread`]).
    pub fn spread(&self) -> f64 {
        self.spread
    }

    /// The longest that one thing takes a server: the time that its queue changes in.
    pub fn longest(&self) -> Duration {
        self.wake + self.turn + (self.storage + self.agent).max(self.lookup).max(Duration::from_nanos(1))
    }

    /// The same shares where a storage operation takes so long.
    pub fn scaled(self, storage: Duration) -> Costs {
        let factor = storage.as_secs_f64() / self.storage.as_secs_f64();
        Costs {
            wake: self.wake.mul_f64(factor),
            turn: self.turn.mul_f64(factor),
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
        Work {
            relay: self.lookup,
            serve: self.storage + agent,
            check: self.storage,
            message: self.message,
            turn: self.turn,
            wake: self.wake,
        }
    }
}

mod microseconds {
    use serde::de::{Error, Unexpected};
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    /// More than any of them takes, in microseconds.
    const MOST: f64 = 1e9;

    pub fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(time.as_nanos() as f64 / 1e3)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let time = f64::deserialize(deserializer)?;
        if (0.0..=MOST).contains(&time) {
            Ok(Duration::from_nanos((time * 1e3).round() as u64))
        } else {
            Err(D::Error::invalid_value(Unexpected::Float(time), &"microseconds from 0 to 1e9"))
        }
    }
}
