//! Every metric: its name, its kind, its labels, who shows it, and what it means. What is not here cannot be
//! shown; `docs/metrics.md` is this list, and a test compares the two.
//!
//! Names say the unit last, as Prometheus' conventions ask: seconds, bytes, or nothing for plain numbers; a
//! counter ends in `_total`.

/// How a metric is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, and begins at 0 when the daemon is started.
    Counter,
    /// It is as it is now.
    Gauge,
    /// Durations in buckets.
    Histogram,
}

/// Which daemons show a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// All of them.
    Every,
    /// Metadata servers.
    Metadata,
    /// Data servers.
    Data,
    /// The coordinator.
    Coordinator,
    /// The flow server.
    Flow,
}

/// One metric.
#[derive(Debug)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// How it is to be read.
    pub kind: Kind,
    /// Who shows it.
    pub source: Source,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it means.
    pub help: &'static str,
}

macro_rules! metrics {
    ($($source:ident { $($constant:ident: $kind:ident $name:literal $([$($label:literal),*])?, $help:literal;)* })*) => {
        $($(
            pub(crate) static $constant: Metric = Metric {
                name: $name,
                kind: Kind::$kind,
                source: Source::$source,
                labels: &[$($($label),*)?],
                help: $help,
            };
        )*)*

        /// All metrics.
        pub static CATALOG: &[&Metric] = &[$($(&$constant),*),*];
    };
}

metrics! {
    Every {
        BUILD: Gauge "bearing_build_info" ["version", "daemon"], "Always 1; which release this is, and which daemon.";
        SERVING: Gauge "bearing_serving", "1 while the daemon serves, else 0: then /healthz says why.";
        CLOCK_OFFSET: Gauge "bearing_clock_offset_seconds",
            "By how much the clock is ahead of the middle one of the servers that it hears.";
        COORDINATOR_HEARD: Gauge "bearing_coordinator_heard_seconds",
            "How long ago the coordinator (or etcd) answered anything; without it nobody takes over for others.";
        TURN_SECONDS: Histogram "bearing_turn_seconds",
            "How long one turn of the network loop took; others count a server as dead that is silent for 0.25 s.";
        PACKETS: Counter "bearing_packets_total" ["transport", "direction"],
            "Packets received and sent, by datagram and by stream.";
        PACKETS_LOST: Counter "bearing_packets_dropped_total",
            "Packets that were cut off on the way here, or that the system did not take.";
        CARRIED: Counter "bearing_carried_total" ["outcome"],
            "Datagrams that the network carried here by their position: taken; unknown, of a session that has no key here, dropped; astray, to no position, dropped. Requests among those taken whose tablet another server has count in bearing_referrals_total.";
        FILTERS: Counter "bearing_filters_total" ["outcome"],
            "Requests that Bloom filters led to this server, by the level that did: recent, segment (the filters of one server), group, all; misled: those that it does not serve, which went on from here.";
        STREAMS: Counter "bearing_streams_total" ["event"],
            "Streams that peers made, that ended, and that were cut off for breaking a limit.";
        PROCESS_CPU: Counter "process_cpu_seconds_total", "Processor time of the process.";
        PROCESS_RESIDENT: Gauge "process_resident_memory_bytes", "Memory of the process.";
        PROCESS_START: Gauge "process_start_time_seconds", "When the process was started, in seconds since 1970.";
        PROCESS_FILES: Gauge "process_open_fds", "Open file descriptors of the process.";
    }
    Metadata {
        REQUESTS: Counter "bearing_requests_total" ["kind"], "Requests of clients that came, repeated ones once.";
        REQUEST_SECONDS: Histogram "bearing_request_seconds" ["kind"],
            "From when a request came until its answer left, whatever it waited for: records, other servers, the disk.";
        REFERRALS: Counter "bearing_referrals_total", "Requests that were referred to another server.";
        DECISIONS: Counter "bearing_decisions_total",
            "Runs of the decision about an operation: more than requests by those that lacked a record and began anew.";
        STORE_LOADS: Counter "bearing_store_loads_total", "Reads of the store, because a record was not in the cache.";
        LOG_RECORDS: Counter "bearing_log_records_total", "Records appended to the tablet log.";
        LOG_SYNC_SECONDS: Histogram "bearing_log_sync_seconds",
            "How long a batch of records took to be appended to the tablet log and synced.";
        LOG_BYTES: Gauge "bearing_log_bytes", "What the tablet log takes of the disk.";
        STORE_BYTES: Gauge "bearing_store_bytes", "What the store takes of the disk, room taken ahead included.";
        TRANSACTIONS: Counter "bearing_transactions_total", "Operations over several tablets that began here.";
        TRANSACTIONS_ABORTED: Counter "bearing_transactions_aborted_total", "Those of them that were given up; they begin anew.";
        LEASES: Gauge "bearing_leases", "Names, nodes and listings that clients have leased.";
        RECALLS: Counter "bearing_recalls_total", "Recalls of leases and delegations that were sent.";
        RECALLS_OPEN: Gauge "bearing_recalls_unanswered", "Recalls that clients have not answered yet.";
        OPEN_QUERIES: Counter "bearing_open_state_queries_total", "Times that clients were asked which files they have open.";
        SESSIONS: Gauge "bearing_sessions", "Sessions of clients whose home is this server.";
        SESSION_RATE: Gauge "bearing_session_requests_per_second" ["session"],
            "The sessions that ask most, with at least how many requests a second they had lately; ten at most.";
        DELEGATIONS: Gauge "bearing_delegations", "Directories that are lent to clients.";
        DIRECTORY_RATE: Gauge "bearing_directory_requests_per_second" ["directory", "home"],
            "The directories that are asked for most, with at least how many requests a second they had lately; ten at most.";
        JOBS: Gauge "bearing_operations_under_way", "Operations that were begun and not decided yet.";
        PARKED: Gauge "bearing_replies_parked", "Answers that wait for a record to be synced on all members.";
        TABLETS: Gauge "bearing_tablets" ["role"],
            "Tablets here: served; adopted, its own and not served yet; leaving; copy, another server's.";
        TABLETS_LACKING: Gauge "bearing_tablets_lacking_copies", "Tablets of this server with fewer copies than there should be.";
        TABLETS_LEARNING: Gauge "bearing_tablets_copying", "Tablets of this server of which another one is being sent a copy.";
        TABLET_EPOCH: Gauge "bearing_tablet_epoch" ["tablet"],
            "The epoch of a tablet that is served here; of the first 256 along the ring. It grows with every change of its members.";
        TABLET_REQUESTS: Counter "bearing_tablet_requests_total" ["tablet"],
            "Requests of clients that a tablet took since it is served here; of the same tablets.";
        REPLICA_LAG_ENTRIES: Gauge "bearing_replica_lag_entries" ["member"],
            "Entries of the logs of this server's tablets that another server has not said to have synced.";
        REPLICA_LAG_BYTES: Gauge "bearing_replica_lag_bytes" ["member"], "About how many bytes these are.";
        REPLICA_TABLETS: Gauge "bearing_replica_tablets" ["member"], "Tablets of this server of which another server is a member.";
        REPLICA_LEASES: Gauge "bearing_replica_leases" ["member"],
            "Those of them that it leaves to this server now: only these are answered for.";
        RESTORED_BYTES: Counter "bearing_copies_sent_bytes_total", "Bytes of tablets that were sent to servers that had no copy.";
        TAKEOVERS: Counter "bearing_takeovers_total", "Tablets of silent servers that this one serves instead.";
        TAKEOVER_SECONDS: Counter "bearing_takeover_seconds_total",
            "How long nobody served these, each from its claim on, together.";
        SWAPPED_OUT: Counter "bearing_members_given_up_total", "Members that tablets of this server went on without.";
        CHUNKS: Gauge "bearing_chunks" ["state"],
            "Chunks that this server looks after: open, sealed; and of these lacking copies, damaged, removing, compacting.";
        CHUNK_BYTES: Gauge "bearing_chunk_bytes" ["state"],
            "Bytes of sealed chunks: live, which files refer to; dead, which none does; lacking, to be copied; compacting, to be kept.";
        CHUNKS_COPIED: Counter "bearing_chunks_copied_bytes_total", "Bytes of chunks that were copied again, for a copy that was lost.";
        CHUNKS_REMOVED: Counter "bearing_chunks_removed_total", "Chunks that were removed.";
        CHECKPOINTS: Counter "bearing_checkpoints_total", "Checkpoints of tablets that were stored on data servers.";
        CHECKPOINT_FAILURES: Counter "bearing_checkpoint_failures_total", "Checkpoints that came to nothing, and were begun anew later.";
        DISK_FREE: Gauge "bearing_disk_free_bytes", "What is free of the metadata server's disk.";
        DISK_SIZE: Gauge "bearing_disk_bytes", "How large that disk is.";
    }
    Flow {
        FLOW_QUESTIONS: Counter "bearing_flow_questions_total" ["kind"], "Questions of readers and others that came.";
        FLOW_QUESTION_SECONDS: Histogram "bearing_flow_question_seconds" ["kind"],
            "From when a question came until its answer left.";
        FLOWS: Gauge "bearing_flows", "Reads under way that the flow server knows.";
    }
    Data {
        DATA_REQUESTS: Counter "bearing_data_requests_total" ["kind"], "Requests of clients and servers that came.";
        DATA_REQUEST_SECONDS: Histogram "bearing_data_request_seconds" ["kind"],
            "From when a request came until its answer left, whatever it waited for: the disk, other copies.";
        DATA_BYTES: Counter "bearing_data_bytes_total" ["kind"],
            "Bytes of frames: appended by clients, drawn from chunks that are here (copy_file_range), read by clients.";
        DATA_FRAMES: Counter "bearing_data_frames_total" ["kind"],
            "Frames: appended by clients, drawn from chunks that are here, replicated for other servers.";
        DATA_READS: Counter "bearing_data_reads_total", "Reads that were answered with bytes.";
        DATA_SYNCS: Counter "bearing_data_syncs_total" ["of"],
            "Syncs: requests of clients, and logs of chunks. With several requests in one sync these are fewer.";
        DATA_RESENDS: Counter "bearing_data_resends_total", "Messages that had to be sent again to other data servers.";
        DATA_REFUSED: Counter "bearing_data_refused_total" ["reason"],
            "Requests that were not done: invalid (rights, epoch, checksum), busy (a queue was full), full (the disk).";
        DATA_CORRUPT: Counter "bearing_data_corrupt_total",
            "Reads and seals that found stored bytes damaged or missing; they are made again from another copy.";
        DATA_GIVEN_UP: Counter "bearing_data_replicas_lost_total",
            "Chunks that were given up while they were written, because another server did not answer.";
        DATA_SEALS: Counter "bearing_data_seals_total", "Chunks that were sealed.";
        DATA_REMOVED: Counter "bearing_data_chunks_removed_total", "Chunks that were removed.";
        DATA_COPIES: Counter "bearing_data_copies_total", "Copies of chunks that were made from other servers' ones.";
        DATA_COPIED_BYTES: Counter "bearing_data_copied_bytes_total", "Bytes that were written for that.";
        SCRUBBED_CHUNKS: Counter "bearing_scrubbed_chunks_total", "Chunks that were read from end to end and found whole.";
        SCRUBBED_BYTES: Counter "bearing_scrubbed_bytes_total", "Bytes that were read for that.";
        SCRUB_LEFT: Gauge "bearing_scrub_chunks_left", "Sealed chunks that this round of reading has not come to yet.";
        DATA_CHUNKS: Gauge "bearing_data_chunks" ["state"], "Chunks here: open, sealed; and of these damaged.";
        DATA_DISK: Gauge "bearing_data_disk_bytes" ["state"],
            "The data server's disk: used by chunks, and free.";
        DISK_FAILED: Gauge "bearing_data_disk_failed", "1 if the disk failed: what is there is read, nothing is written.";
    }
    Coordinator {
        QUESTIONS: Counter "bearing_questions_total" ["kind"], "Questions of servers that came.";
        QUESTION_SECONDS: Histogram "bearing_question_seconds" ["kind"],
            "From when a question came until its answer left; await waits for a change on purpose.";
        REGISTERS_BYTES: Gauge "bearing_registers_bytes", "What the file of registers takes of the disk.";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A table of the page as it should be.
    fn table(source: Source) -> String {
        let mut table = "| metric | kind | labels | meaning |\n|---|---|---|---|\n".to_owned();
        for metric in CATALOG.iter().filter(|metric| metric.source == source) {
            let kind = match metric.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            table += &format!("| `{}` | {kind} | {} | {} |\n", metric.name, labels.join(", "), metric.help);
        }
        table
    }

    #[test]
    fn the_page_on_metrics_has_all_of_them_and_no_others() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        let page = std::fs::read_to_string(path).unwrap();
        for source in [Source::Every, Source::Metadata, Source::Data, Source::Coordinator, Source::Flow] {
            let table = table(source);
            assert!(page.contains(&table), "docs/metrics.md lacks this table of {source:?}:\n{table}");
        }
        let rows =
            page.lines().filter(|line| line.starts_with("| `bearing_") || line.starts_with("| `process_"));
        assert_eq!(rows.count(), CATALOG.len(), "docs/metrics.md has metrics that nobody shows");
    }

    #[test]
    fn names_say_their_unit_and_counters_that_they_are_some() {
        let mut seen = BTreeSet::new();
        for metric in CATALOG {
            let Metric { name, kind, help, .. } = metric;
            assert!(seen.insert(name), "{name} is there twice");
            assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
            assert!(*kind != Kind::Histogram || name.ends_with("_seconds"), "{name}");
            assert!(help.ends_with('.') && !help.contains('|'), "{name}: {help}");
        }
    }
}
