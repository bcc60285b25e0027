//! Limits and times of a client. Every queue, cache, batch and retry names its bound here.

use crate::mutant::Mutant;
use bearing_proto::sessions::SessionDescription;
use bearing_types::{FilesystemId, Squash};
use std::net::IpAddr;
use std::time::Duration;

/// How files that are read in order are fetched before they are read. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AheadConfig {
    /// So much of a file has to be read in order first, and to be left.
    pub after: u64,
    /// So far ahead at first.
    pub window_min: u64,
    /// So far at most: twice what was read in order. Zero: nothing is fetched ahead.
    pub window_max: u64,
    /// Bytes held of all files.
    pub bytes_max: u64,
    /// So much is planned at a time.
    pub run_max: u64,
    /// And fetched at a time.
    pub piece: u64,
    /// Pieces under way at the same time, for one run.
    pub pieces_max: usize,
    /// The flow server is asked about runs of at least this.
    pub ask_min: u64,
    /// It is not waited for longer.
    pub flow_timeout: Duration,
}

impl AheadConfig {
    /// The defaults.
    pub fn standard() -> AheadConfig {
        AheadConfig {
            after: 256 << 10,
            window_min: 2 << 20,
            window_max: 16 << 20,
            bytes_max: 128 << 20,
            run_max: 64 << 20,
            piece: 1 << 20,
            pieces_max: 4,
            ask_min: 1 << 20,
            flow_timeout: Duration::from_millis(5),
        }
    }
}

/// See the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// As whom the users of this client count, as its enrolment says it. Servers go by their own knowledge of
    /// that.
    pub squash: Squash,
    /// The filesystem that `Operation::Root` asks for.
    pub filesystem: FilesystemId,
    /// A request is given up after this time: long enough for a server to be restarted.
    pub request_timeout: Duration,
    /// What stores what a program was told is written is tried for so long: longer than servers are away.
    pub write_timeout: Duration,
    /// How long the end of the session is told before the client goes without: a session that is not renewed
    /// ends by itself.
    pub close_timeout: Duration,
    /// How long the owners of chunks are told at that end that nothing more comes in them: without that they
    /// find it out later.
    pub finish_timeout: Duration,
    /// The first pauses before a request without an answer is sent again; later ones double.
    pub resend_interval: Duration,
    /// The longest such pause.
    pub resend_interval_max: Duration,
    /// The first pause after an answer said "not now"; later ones double.
    pub retry_delay: Duration,
    /// The longest such pause, unless the server asks for a longer one.
    pub retry_delay_max: Duration,
    /// The longest for the first ten times.
    pub retry_delay_soon_max: Duration,
    /// Maps are asked for at most so often.
    pub map_interval: Duration,
    /// The first pause before the lease of an open file is asked for again when none was given; later ones
    /// double.
    pub renew_delay: Duration,
    /// The longest such pause.
    pub renew_delay_max: Duration,
    /// Leases of open files that are asked for at one server at the same time.
    pub renewals_max: usize,
    /// A file is opened without asking only if its lease lasts so long yet: enough to renew it before it
    /// ends.
    pub local_open_ttl_min: Duration,
    /// Taken off every lease, besides a hundredth of it.
    pub lease_margin: Duration,
    /// Clocks of servers and this client may differ by so much: grants and capabilities are used no longer
    /// than this before their end.
    pub skew_max: Duration,
    /// Whether to ask for directories that only this client changes, to decide in them without asking.
    pub delegates: bool,
    /// Whether reads are noted as times of access.
    pub access_times: bool,
    /// After how long a file's home hears that it was read.
    pub access_delay: Duration,
    /// Entries of delegated directories that are held. Beyond, those in which nothing happened for longest
    /// are given back.
    pub delegated_entries_max: usize,
    /// Whether to tell what is decided in delegated directories ([`crate::Command::Decided`]).
    pub tells_steps: bool,
    /// Whether there is a note for each request that finds its owner.
    pub tells_lookups: bool,
    /// So many names of a directory have to be asked for one by one before the others are prefetched. Zero:
    /// never.
    pub prefetch_after: u32,
    /// And within this time; who asks for none for so long is not prefetched for any more.
    pub prefetch_timeout: Duration,
    /// Larger directories are not prefetched.
    pub prefetch_entries_max: u32,
    /// When most of what was prefetched was not used, it is not done again for so long; for twice as long
    /// each time.
    pub prefetch_delay: Duration,
    /// The longest such pause.
    pub prefetch_delay_max: Duration,
    /// How late the times and counts of a directory may be that several clients change. Zero: never (a strict
    /// mount).
    pub directory_ttl: Duration,
    /// How long the size and extents of an open file may be used when another client may be writing it.
    pub file_ttl: Duration,
    /// Directories cached.
    pub directories_max: usize,
    /// Names cached.
    pub names_max: usize,
    /// Attributes of files cached.
    pub nodes_max: usize,
    /// Files of which the name is remembered for the headers of frames.
    pub last_names_max: usize,
    /// Files whose extents are cached.
    pub extent_files_max: usize,
    /// Extents cached of one file.
    pub extents_per_file_max: usize,
    /// Extents asked for at a time.
    pub extents_page: u32,
    /// Extents in one commit.
    pub commit_extents_max: usize,
    /// Entries asked for at a time in a listing.
    pub list_page: u32,
    /// Chunk views cached.
    pub chunks_max: usize,
    /// Bytes buffered of one file that nobody writes out yet; then that begins, while writes go on.
    pub write_out_bytes: usize,
    /// Buffered bytes of one file; beyond, writes wait.
    pub file_buffer_bytes_max: usize,
    /// Buffered bytes of all files; beyond, writes wait.
    pub buffer_bytes_max: usize,
    /// Buffered writes are written out after this time without being asked to.
    pub writeout_delay: Duration,
    /// A new chunk is opened when one has so many bytes.
    pub chunk_bytes_max: u64,
    /// Frames of at least so many bytes go to chunks of their file's own, as far as there are.
    pub large_frame_bytes: u64,
    /// Full chunks that are not known to be stable; of more the oldest are synced unasked.
    pub unsynced_chunks_max: usize,
    /// Closed files of which it is remembered one by one what they left unsynced, or lost.
    pub closed_files_max: usize,
    /// Appends under way at the same time, for one file.
    pub appends_max: usize,
    /// Data reads under way at the same time, for one operation.
    pub reads_max: usize,
    /// What is fetched before it is read.
    pub ahead: AheadConfig,
    /// Addresses of this host: servers near to it are read from first.
    pub addresses: Vec<IpAddr>,
    /// Bytes that one copy from file to file does; the program asks for the rest.
    pub copy_bytes_max: u64,
    /// A data server has to answer within this time.
    pub data_timeout: Duration,
    /// One of several that may have what is read is passed over after so long.
    pub replica_timeout: Duration,
    /// A frame is tried so often when data servers say they are full.
    pub append_tries_max: u32,
    /// A data server that failed is avoided for this time.
    pub avoid_ttl: Duration,
    /// Who waits for a lock asks again after this time, whatever it is told.
    pub lock_interval: Duration,
    /// What its servers tell operators of this session.
    pub description: Option<SessionDescription>,
    /// A planted bug to run with. Without the feature `mutants` it does nothing.
    pub mutant: Option<Mutant>,
}

impl ClientConfig {
    /// The defaults.
    pub fn standard(filesystem: FilesystemId) -> ClientConfig {
        ClientConfig {
            squash: Squash::None,
            filesystem,
            request_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(600),
            close_timeout: Duration::from_secs(2),
            finish_timeout: Duration::from_millis(500),
            resend_interval: Duration::from_millis(100),
            resend_interval_max: Duration::from_secs(2),
            retry_delay: Duration::from_millis(2),
            retry_delay_max: Duration::from_millis(200),
            retry_delay_soon_max: Duration::from_millis(25),
            map_interval: Duration::from_millis(200),
            renew_delay: Duration::from_millis(50),
            renew_delay_max: Duration::from_secs(10),
            renewals_max: 32,
            local_open_ttl_min: Duration::from_millis(100),
            lease_margin: Duration::from_millis(5),
            skew_max: Duration::from_millis(250),
            delegates: false,
            description: None,
            access_times: false,
            access_delay: Duration::from_secs(2),
            delegated_entries_max: 128 << 10,
            tells_steps: false,
            tells_lookups: false,
            prefetch_after: 16,
            prefetch_timeout: Duration::from_millis(200),
            prefetch_entries_max: 16 << 10,
            prefetch_delay: Duration::from_secs(5),
            prefetch_delay_max: Duration::from_secs(300),
            directory_ttl: Duration::from_secs(1),
            file_ttl: Duration::from_secs(1),
            directories_max: 32 << 10,
            names_max: 128 << 10,
            nodes_max: 128 << 10,
            last_names_max: 8 << 10,
            extent_files_max: 4096,
            extents_per_file_max: 64 << 10,
            extents_page: 512,
            commit_extents_max: 1024,
            list_page: 512,
            chunks_max: 8192,
            write_out_bytes: 4 << 20,
            file_buffer_bytes_max: 16 << 20,
            buffer_bytes_max: 64 << 20,
            writeout_delay: Duration::from_secs(5),
            chunk_bytes_max: 64 << 20,
            unsynced_chunks_max: 64,
            closed_files_max: 64 << 10,
            large_frame_bytes: 1 << 20,
            appends_max: 8,
            reads_max: 8,
            ahead: AheadConfig::standard(),
            addresses: Vec::new(),
            copy_bytes_max: 64 << 20,
            data_timeout: Duration::from_secs(5),
            replica_timeout: Duration::from_secs(1),
            append_tries_max: 8,
            avoid_ttl: Duration::from_secs(10),
            lock_interval: Duration::from_secs(1),
            mutant: None,
        }
    }

    /// Whether a bug is planted: never in a build without the feature, whatever the field says.
    pub(crate) fn planted(&self, mutant: Mutant) -> bool {
        cfg!(feature = "mutants") && self.mutant == Some(mutant)
    }
}
