//! Limits of a data server. Every queue, batch, wait and retry names its bound here.
//!
//! A request over a limit is dropped and counted: the asker sends it again after its pause, as if the network
//! had lost it.

use std::time::Duration;

/// See the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The most servers of one chunk.
    pub copies_max: usize,
    /// A chunk that would grow beyond this takes no more appends; its writers open a new one.
    pub chunk_bytes_max: u64,
    /// Appends of one chunk under way at its primary, in frames.
    pub pipeline_frames_max: usize,
    /// Appends of one chunk under way, in bytes.
    pub pipeline_bytes_max: u64,
    /// Frames that a replica keeps, of one chunk, because an earlier one is missing.
    pub gap_frames_max: usize,
    /// The checksums that a replica remembers, of one chunk, of frames it does not know to be acknowledged by
    /// all.
    pub recent_frames_max: usize,
    /// Bytes of frames held for all chunks together.
    pub held_bytes_max: u64,
    /// A gap that did not fill for so long is reported to the primary.
    pub gap_timeout: Duration,
    /// What another server did not answer is sent again after so long.
    pub resend_interval: Duration,
    /// At most so many frames are sent again to one server at a time.
    pub resend_frames_max: usize,
    /// When nothing was appended for so long, the backups are told what all servers have, so that they can
    /// give it to readers.
    pub announce_delay: Duration,
    /// A server of a chunk that answered no append for so long is lost to the chunk.
    pub append_timeout: Duration,
    /// A server of a chunk that answered no sync for so long is lost to the chunk.
    pub sync_timeout: Duration,
    /// Writes refused by a full disk are tried again after so long.
    pub full_delay: Duration,
    /// Sync requests waiting for one chunk.
    pub syncs_waiting_max: usize,
    /// Reads under way.
    pub reads_max: usize,
    /// Bytes of reads under way.
    pub read_bytes_max: u64,
    /// Appends under way whose bytes are read from a chunk.
    pub fetches_max: usize,
    /// How many servers are asked for these bytes.
    pub fetch_sources_max: usize,
    /// A server that did not give them for so long is passed over. All together and an append take less time
    /// than clients wait.
    pub fetch_timeout: Duration,
    /// Bytes that a scan reads at a time; a multiple of a frame's block.
    pub scan_bytes: u32,
    /// Scans under way; more wait, at most one for each chunk.
    pub scans_max: usize,
    /// Fences and seals waiting for one chunk.
    pub cuts_waiting_max: usize,
    /// Requests waiting for one chunk's removal.
    pub removers_max: usize,
    /// The grave of a removed chunk is kept for so long.
    pub grave_ttl: Duration,
    /// Pings under way.
    pub pings_max: usize,
    /// All copies that this server makes fetch together at most so many bytes a second.
    pub copy_bytes_per_second: u64,
    /// Another replica that did not answer a copy for so long is passed over.
    pub copy_timeout: Duration,
    /// After a refusal a copy waits for so long before it asks the next replica.
    pub copy_delay: Duration,
    /// Looking for rot begins so long after the first chunk was seen to be sealed.
    pub scrub_delay: Duration,
    /// A round of looking for rot begins so long after the one before began.
    pub scrub_interval: Duration,
    /// Looking for rot reads at most so many bytes a second.
    pub scrub_bytes_per_second: u64,
    /// A chunk that was found whole counts as that for so long when a metadata server asks.
    pub verified_ttl: Duration,
    /// Damaged chunks told in one answer to a ping.
    pub damaged_told_max: usize,
    /// What the chunks lie on, told from all other filesystems of the cluster; `None`: that is not known, and
    /// their space is taken for their own.
    pub filesystem: Option<u64>,
    /// Clocks of servers may differ by so much: a capability is good for this much longer than it says.
    pub skew_max: Duration,
}

impl Config {
    /// The defaults.
    pub fn standard() -> Config {
        Config {
            copies_max: 8,
            chunk_bytes_max: 1 << 30,
            pipeline_frames_max: 256,
            pipeline_bytes_max: 64 << 20,
            gap_frames_max: 256,
            recent_frames_max: 1024,
            held_bytes_max: 512 << 20,
            gap_timeout: Duration::from_secs(1),
            resend_interval: Duration::from_millis(50),
            resend_frames_max: 8,
            announce_delay: Duration::from_millis(2),
            append_timeout: Duration::from_secs(2),
            sync_timeout: Duration::from_secs(10),
            full_delay: Duration::from_millis(500),
            syncs_waiting_max: 1024,
            reads_max: 4096,
            read_bytes_max: 256 << 20,
            fetches_max: 256,
            fetch_sources_max: 3,
            fetch_timeout: Duration::from_millis(700),
            scan_bytes: 1 << 20,
            scans_max: 8,
            cuts_waiting_max: 16,
            removers_max: 16,
            grave_ttl: Duration::from_secs(24 * 3600),
            pings_max: 64,
            copy_bytes_per_second: 64 << 20,
            copy_timeout: Duration::from_secs(2),
            copy_delay: Duration::from_millis(100),
            scrub_delay: Duration::from_secs(60),
            scrub_interval: Duration::from_secs(7 * 24 * 3600),
            scrub_bytes_per_second: 16 << 20,
            verified_ttl: Duration::from_secs(600),
            damaged_told_max: 256,
            filesystem: None,
            skew_max: Duration::from_millis(250),
        }
    }
}
