//! What an operator is told of a cluster's sessions.

use bearing_types::{SessionId, Wall};
use serde::{Deserialize, Serialize};

/// Bytes of a text in a description, at most.
pub const DESCRIPTION_TEXT_BYTES_MAX: usize = 255;
/// Sessions in one answer, at most: with all their words they fit into a packet.
pub const SESSIONS_TOLD_MAX: usize = 8192;

/// Who uses a session, in the client's own words: nothing depends on them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionDescription {
    /// The client's host.
    pub host: String,
    /// Where it is mounted; nothing for a program that uses files without a mount.
    pub path: Option<Vec<u8>>,
    /// Its process there.
    pub process: u32,
    /// The program's version.
    pub version: String,
    /// When it began, by the client's clock.
    pub since: Wall,
}

impl SessionDescription {
    /// Whether its texts are as short as they may be.
    pub fn is_short(&self) -> bool {
        let path = self.path.as_ref().map_or(0, Vec::len);
        [self.host.len(), path, self.version.len()].iter().all(|bytes| *bytes <= DESCRIPTION_TEXT_BYTES_MAX)
    }
}

/// What one metadata server knows of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionsView {
    /// Sessions whose home is here, in order, with what they said of themselves since this server serves
    /// their home.
    pub sessions: Vec<(SessionId, Option<SessionDescription>)>,
    /// Sessions with so many directories of this server's tablets delegated to them, in order.
    pub delegations: Vec<(SessionId, u32)>,
    /// Sessions that are left out of the first list because there are too many.
    pub left_out: u64,
}
