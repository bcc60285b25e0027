//! What a mount needs to know to reach a cluster.

use bearing_proto::enrolment::Enrolment;
use bearing_proto::sessions::SessionDescription;
use bearing_types::FilesystemId;
use std::net::SocketAddr;
use std::time::Duration;

/// See the fields.
#[derive(Clone, Debug)]
pub struct MountConfig {
    /// Addresses of metadata servers to ask first; any one that answers is enough.
    pub seeds: Vec<SocketAddr>,
    /// By which secret it gets a session.
    pub enrolment: Enrolment,
    /// The filesystem.
    pub filesystem: FilesystemId,
    /// How long the first answer of the cluster is waited for, if any server says anything at all.
    pub connect_wait: Duration,
    /// What is seen of what others are writing.
    pub consistency: Consistency,
    /// Whether to ask for directories that only this client changes, and decide in them without asking.
    pub delegates: bool,
    /// What servers tell operators of this client.
    pub description: Option<SessionDescription>,
    /// Whether reads are noted as times of access.
    pub access_times: bool,
    /// Whether notes tell of each request, whom it went to and who answered.
    pub tells_lookups: bool,
}

/// What a client sees of what others are writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// Whoever opens a file after another one has closed it sees what that one wrote. Of a file that another
    /// client has open for writing, size, times and what is new may be seen a second late, and so may times
    /// and counts of a directory that several clients change.
    #[default]
    CloseToOpen,
    /// Every read sees what was stored (by fsync, close or a native append) before it began. A read of a file
    /// that another client has open for writing asks its home first.
    Linearizable,
}

impl Consistency {
    /// How late that may be.
    pub(crate) fn lateness(self) -> Duration {
        match self {
            Consistency::CloseToOpen => Duration::from_secs(1),
            Consistency::Linearizable => Duration::ZERO,
        }
    }
}

impl MountConfig {
    /// The first filesystem of a cluster, with the usual times.
    pub fn new(seeds: Vec<SocketAddr>, enrolment: impl Into<Enrolment>) -> MountConfig {
        MountConfig {
            seeds,
            enrolment: enrolment.into(),
            filesystem: FilesystemId(1),
            // The root itself may be delegated to a client that has just died: its lease has to run out
            // first.
            connect_wait: Duration::from_secs(20),
            consistency: Consistency::CloseToOpen,
            delegates: false,
            description: None,
            access_times: false,
            tells_lookups: false,
        }
    }
}
