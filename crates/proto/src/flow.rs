//! Between clients, or whoever places tasks, and the flow server. It is an adviser: whoever gets no answer
//! reads from the nearest replica.

use crate::data::{Flow, FlowNumber};
use bearing_types::ServerId;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// A request to the flow server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowRequest {
    /// Chosen by the asker; comes back with the reply.
    pub id: u64,
    /// What is asked.
    pub call: FlowCall,
}

/// Bytes that lie on all of these servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replicated {
    /// The data servers.
    pub servers: Vec<ServerId>,
    /// How many bytes.
    pub bytes: u64,
}

/// Replicas of one read that are looked at; the flow server ignores those beyond.
pub const REPLICAS_MAX: usize = 16;
/// Hosts times reads in one [`FlowCall::Rank`].
pub const RANKED_MAX: usize = 1_024;
/// Flows, and links, in one [`FlowBody::Traffic`].
pub const TRAFFIC_MAX: usize = 1_000;

/// What can be asked of the flow server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FlowCall {
    /// From a client: from which replicas is this to be read, to where the question comes from? What is
    /// answered counts as under way until it has ended.
    Plan {
        /// What is to be read.
        read: Replicated,
    },
    /// From that client: these flows have ended, or never began.
    Ended {
        /// Their numbers.
        flows: Vec<FlowNumber>,
    },
    /// What would be answered, and what each other replica and path would cost? Nothing counts as under way.
    Explain {
        /// The reader's host; `None`: where the question comes from.
        reader: Option<IpAddr>,
        /// What would be read.
        read: Replicated,
    },
    /// Which of these hosts reads these bytes fastest?
    Rank {
        /// The hosts.
        readers: Vec<IpAddr>,
        /// What they would read, one after the other.
        reads: Vec<Replicated>,
    },
    /// Which flows are there, and how loaded are links?
    Traffic,
}

/// A reply of the flow server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowReply {
    /// The request's id.
    pub id: u64,
    /// The result.
    pub result: Result<FlowBody, FlowError>,
}

/// Why the flow server has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FlowError {
    /// The reader's host is not in the network that it knows.
    UnknownReader,
    /// None of the servers is in that network, or can be reached there.
    NoReplica,
    /// The question names more than the limits allow, or nothing.
    TooMuch,
}

impl std::fmt::Display for FlowError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FlowError::UnknownReader => "the host is not in the network that the flow server knows; add its address to the topology file",
            FlowError::NoReplica => "none of the data servers is in the network that the flow server knows, or can be reached there",
            FlowError::TooMuch => "the question names too many hosts or reads, or none",
        })
    }
}

/// A part of a read: so many bytes from this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanPart {
    /// The data server.
    pub server: ServerId,
    /// How many of the bytes, and what requests for them name, so that they are counted.
    pub flow: Flow,
    /// The rate that is expected, in bytes a second; at least 1.
    pub rate: u64,
}

/// What one replica, by one path, would cost. Times are in microseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The data server.
    pub server: ServerId,
    /// Names of the switches on the path.
    pub path: Vec<String>,
    /// The rate that a flow would get there, in bytes a second.
    pub rate: u64,
    /// How long the read would take.
    pub takes_us: u64,
    /// By how much, in sum, other flows would end later.
    pub impact_us: u64,
    /// Flows that share the path or the disk.
    pub shared_with: u32,
}

/// What would be chosen, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// Name of the selection.
    pub selection: String,
    /// What would be answered.
    pub parts: Vec<PlanPart>,
    /// How long the read would take.
    pub takes_us: u64,
    /// By how much, in sum, other flows would end later.
    pub impact_us: u64,
    /// Everything that could be chosen, the cheapest first.
    pub candidates: Vec<Candidate>,
    /// Servers of the read that are not in the network that the flow server knows, or cannot be reached.
    pub unknown: Vec<ServerId>,
}

/// A flow under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowRow {
    /// Its number.
    pub flow: FlowNumber,
    /// The data server that sends it, or the name of the host.
    pub source: String,
    /// The name of the reader's host.
    pub target: String,
    /// The estimated rate in bytes a second.
    pub rate: u64,
    /// Bytes that are left, as estimated.
    pub left: u64,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRow {
    /// The end that sends.
    pub source: String,
    /// The end that receives.
    pub target: String,
    /// What it carries in bytes a second.
    pub capacity: u64,
    /// The sum of what its flows are estimated to have.
    pub load: u64,
    /// How many they are.
    pub flows: u32,
}

/// A data server as the flow server sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceRow {
    /// The server.
    pub server: ServerId,
    /// Bytes that were asked of it and are not sent yet, when it was asked last.
    pub queued: u64,
    /// What its disk gives in bytes a second, if that was measured lately.
    pub disk: Option<u64>,
    /// Milliseconds since its counters came; `None`: never.
    pub heard_ms: Option<u64>,
}

/// What the flow server believes of the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// How many flows there are.
    pub count: u64,
    /// The largest of them.
    pub flows: Vec<FlowRow>,
    /// The most loaded links.
    pub links: Vec<LinkRow>,
    /// All data servers that it knows.
    pub sources: Vec<SourceRow>,
    /// Questions answered since its start.
    pub answered: u64,
    /// Reports about flows that it did not know.
    pub unknown_reports: u64,
    /// Whether it has a topology file. Without one only data servers' counters count.
    pub has_topology: bool,
}

/// The content of a reply that went well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FlowBody {
    /// From whom to read.
    Plan {
        /// At least one; together all bytes.
        parts: Vec<PlanPart>,
    },
    /// Noted.
    Done,
    /// Why.
    Explained(Explanation),
    /// Microseconds that all reads would take, by reader in the order of the question; `None`: the host is
    /// not known, or cannot reach all of it.
    Ranked(Vec<Option<u64>>),
    /// The state of the network.
    Traffic(Traffic),
}
