//! What a data server counts. Shells publish it.

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames acknowledged to clients.
    pub appends: u64,
    /// Their bytes.
    pub append_bytes: u64,
    /// Frames made of bytes that servers held already.
    pub drawn: u64,
    /// Their bytes.
    pub drawn_bytes: u64,
    /// Frames acknowledged to other primaries.
    pub replicated: u64,
    /// Reads answered with bytes.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Sync requests of clients answered.
    pub syncs: u64,
    /// Syncs of logs: with group commit fewer than requests.
    pub log_syncs: u64,
    /// Messages sent again to other servers.
    pub resends: u64,
    /// Requests refused for what they are: capability, epoch, sender, checksum.
    pub refused: u64,
    /// Requests dropped because a queue was full.
    pub dropped: u64,
    /// Reads and seals that found stored bytes damaged or missing.
    pub corrupt: u64,
    /// Chunks given up because another server did not answer or refused.
    pub replicas_lost: u64,
    /// Appends refused because a disk was full.
    pub full: u64,
    /// Fences answered.
    pub fences: u64,
    /// Seals answered.
    pub seals: u64,
    /// Chunks removed.
    pub removed: u64,
    /// Replicas made from others.
    pub copies: u64,
    /// Bytes written for that.
    pub copied_bytes: u64,
    /// Chunks read and found whole.
    pub scrubbed: u64,
    /// Bytes read for that.
    pub scrubbed_bytes: u64,
}
