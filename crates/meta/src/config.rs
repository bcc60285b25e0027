//! Limits of a metadata server. Every queue, cache and wait names its bound here.

use crate::mutant::Mutant;
use bearing_placement::LookupKind;
use bearing_proto::prefix::Prefix;
use std::time::Duration;

/// See the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Clean entries cached per tablet.
    pub cache_entries_max: usize,
    /// So many keys of committed changes are gathered before they go to the store. They go at the next upkeep
    /// anyway.
    pub apply_gathered_max: usize,
    /// The longest lease: files and directories that are read often.
    pub lease_ttl_max: Duration,
    /// The shortest lease worth giving.
    pub lease_ttl_min: Duration,
    /// The lease on names that are looked up ahead, and on what they lead to: long enough to be used by who
    /// goes through a large directory.
    pub prefetch_lease_ttl: Duration,
    /// How long a grant is good. For changes, fragments refuse one that is older than the last chmod; for
    /// lookups and listings, recalls take it away in time. This only bounds what a client that cheats can
    /// see, and it is long so that servers whose clocks are far apart still take each other's grants.
    pub grant_ttl: Duration,
    /// How long a data capability is good.
    pub capability_ttl: Duration,
    /// Clocks of servers may differ by so much.
    pub skew_max: Duration,
    /// A session ends when it was not renewed for so long.
    pub session_ttl: Duration,
    /// A directory that was called back is not delegated again for so long.
    pub delegation_delay: Duration,
    /// How long delegations may be used without being renewed.
    pub delegation_ttl: Duration,
    /// How long a delegation that was called back may go on to be renewed, while what was decided in it is
    /// sent.
    pub delegation_return_timeout: Duration,
    /// Larger directories are not delegated.
    pub delegated_entries_max: usize,
    /// Nor such of which an answer would have more bytes.
    pub delegated_bytes_max: usize,
    /// Ids lent to a client at a time.
    pub ids_lent: u32,
    /// At most so many holders of a lease are tracked.
    pub lease_holders_max: usize,
    /// Whoever comes above that gets a lease of this length, which is waited for instead of recalled.
    pub untracked_lease_ttl: Duration,
    /// A session is asked so long after the end of its lease whether it has the file open: long enough to ask
    /// about many at once.
    pub open_query_delay: Duration,
    /// An open-state query that is not answered is sent again after so long.
    pub open_query_interval: Duration,
    /// Who said that it has a file open is asked again after so long, in case the word that it is closed was
    /// lost.
    pub opened_query_interval: Duration,
    /// Files in one open-state query: what fits a datagram.
    pub open_query_nodes_max: usize,
    /// Files of a tablet that one session may have open, remembered one by one. Above, it may have any file
    /// open until it has said which.
    pub opens_per_session_max: usize,
    /// After a recall no new lease is given for so long, so that the retried change finds it free also when
    /// it has to recall at several tablets in turn. The change itself ends it.
    pub recall_lease_delay: Duration,
    /// How long a message to another server is waited for before it is sent again.
    pub resend_interval: Duration,
    /// The longest such pause: they double.
    pub resend_interval_max: Duration,
    /// The first pause before an unanswered question to the coordinator is sent again.
    pub coordinator_resend_interval: Duration,
    /// The longest such pause.
    pub coordinator_resend_interval_max: Duration,
    /// A server that did nothing for so long was stopped: nobody was silent meanwhile, it did not listen.
    pub stop_timeout: Duration,
    /// How long a data server may take to answer a fence.
    pub fence_timeout: Duration,
    /// How often an owner is heard of by the members of its tablets.
    pub beacon_interval: Duration,
    /// How long an owner may rely on a member's answer, from when it sent what is answered.
    pub server_lease_ttl: Duration,
    /// A member takes over when it has not heard of the owner for so long. More than the lease, by what
    /// clocks may run apart.
    pub takeover_grace: Duration,
    /// Each member waits for so much longer than the one before it in turn.
    pub takeover_stagger: Duration,
    /// Whom clients are told to ask first.
    pub lookup: LookupKind,
    /// Where clients are told that the network carries requests to.
    pub prefix: Option<Prefix>,
    /// An owner that was not heard since this server's start, or a member that never answered, gets so long.
    pub first_grace: Duration,
    /// A member that answers, but syncs nothing, for so long is swapped out.
    pub member_timeout: Duration,
    /// One that answers nothing is swapped out after so long without its lease: nothing is served until then.
    pub member_silence_timeout: Duration,
    /// Servers are evened out when all tablets have had all their copies for so long: one that is only
    /// started again has what it had by then.
    pub balance_delay: Duration,
    /// How often neighbours on the ring ping each other.
    pub ring_ping_interval: Duration,
    /// A neighbour that was silent for so long has failed: longer than takeovers wait, so that tablets are
    /// claimed by then, and long enough for a few pings to be lost or late.
    pub ring_ping_timeout: Duration,
    /// How often one of the others is pinged too, in turn: so long it takes a cluster, once for each server,
    /// to make one ring of what became several.
    pub ring_look_interval: Duration,
    /// A server that cannot serve what it took for so long links the ring anew nevertheless.
    pub relink_patience: Duration,
    /// A tablet that has changed gets another checkpoint after so long.
    pub checkpoint_interval: Duration,
    /// Node ids taken from the common counter at a time; more are taken when half of them are used.
    pub id_range: u32,
    /// Operations of clients and other servers under way at the same time. Nobody gets more than a share of
    /// what is free; more are told to retry.
    pub jobs_max: usize,
    /// Operations under way because sessions are silent.
    pub sweeps_max: usize,
    /// Replies to one session that are kept by one tablet because their client has not said that it has them.
    /// With more, its changes are told to retry.
    pub replies_kept_max: usize,
    /// What the replies take that a tablet keeps: one session has a 16th of it at most, and a 256th when it
    /// is used up.
    pub replies_bytes_max: usize,
    /// Queued items of one tablet that are sent again at a time.
    pub items_resent_max: usize,
    /// Entries in one answer to a listing.
    pub list_entries_max: u32,
    /// Extents in one answer.
    pub extents_max: u32,
    /// Pairs in one part of a snapshot, at most.
    pub copy_pairs_max: usize,
    /// A prepared participant asks the coordinator after so long.
    pub inquire_interval: Duration,
    /// What could not be decided for so long is given up and whoever asked is told to ask again, so that no
    /// decision rests on older answers.
    pub job_timeout: Duration,
    /// The mark of a removed directory is kept for so long: longer than `job_timeout`, and than a grant
    /// lives.
    pub dead_mark_ttl: Duration,
    /// The mark of an ended session is kept for so long: longer than a network can keep a packet.
    pub ended_mark_ttl: Duration,
    /// How often marks are looked through.
    pub collect_interval: Duration,
    /// A lock that became free is kept for so long for whoever waited for it and was told.
    pub free_lock_ttl: Duration,
    /// Who waits for a lock and has not asked for so long is forgotten.
    pub lock_wait_ttl: Duration,
    /// The holder of a lock that others wait for is looked after when it was silent for so long.
    pub lock_silence_timeout: Duration,
    /// A chunk is sealed by its tablet so long after it was opened: longer than the right to append to it
    /// lives.
    pub chunk_ttl: Duration,
    /// It is looked at, whether anybody refers to it, so long after its writer said that it is done with it.
    pub scan_delay: Duration,
    /// A writer that has not said so is waited for so long: longer than a server is away to which it has yet
    /// to tell what it decided in delegated directories.
    pub writer_patience: Duration,
    /// And again so long after the last usage scan, although nothing was dropped.
    pub scan_interval: Duration,
    /// A sealed chunk of at least so many bytes is compacted when less than half of it is in use.
    pub compact_bytes_min: u64,
    /// The mark that a chunk takes no new extents is kept for so long: longer than any writer waits between
    /// an append and its commit.
    pub closed_mark_ttl: Duration,
    /// A data server that was silent for so long is lost: what it holds is copied again.
    pub lost_timeout: Duration,
    /// Chunks that are seen to at the same time.
    pub maintenance_jobs_max: usize,
    /// Copies of chunks under way at the same time.
    pub copies_max: usize,
    /// A round over all chunks begins so long after the one before ended.
    pub sweep_interval: Duration,
    /// What a tablet may use of a quota it may use for so long after it asked.
    pub quota_share_ttl: Duration,
    /// How often a quota's home is told what is used.
    pub quota_report_interval: Duration,
    /// So much of the disk of log and store is kept free for removals and the server's own work, in bytes;
    /// less of a small disk.
    pub reserve_bytes: u64,
    /// A planted bug to run with. Without the feature `mutants` it does nothing.
    pub mutant: Option<Mutant>,
}

impl Config {
    /// The defaults that `docs/promises.md` lists.
    pub fn standard() -> Config {
        Config {
            cache_entries_max: 1 << 20,
            apply_gathered_max: 4096,
            lease_ttl_max: Duration::from_secs(3),
            lease_ttl_min: Duration::from_millis(300),
            prefetch_lease_ttl: Duration::from_secs(2),
            grant_ttl: Duration::from_secs(300),
            capability_ttl: Duration::from_secs(600),
            skew_max: Duration::from_millis(250),
            session_ttl: Duration::from_secs(30),
            delegation_ttl: Duration::from_secs(10),
            delegation_return_timeout: Duration::from_secs(40),
            delegation_delay: Duration::from_millis(20),
            delegated_entries_max: 32 << 10,
            delegated_bytes_max: 6 << 20,
            ids_lent: 512,
            lease_holders_max: 64,
            untracked_lease_ttl: Duration::from_millis(200),
            open_query_delay: Duration::from_millis(500),
            open_query_interval: Duration::from_millis(500),
            opened_query_interval: Duration::from_secs(30),
            open_query_nodes_max: 512,
            opens_per_session_max: 64 << 10,
            recall_lease_delay: Duration::from_secs(1),
            resend_interval: Duration::from_millis(50),
            resend_interval_max: Duration::from_millis(400),
            coordinator_resend_interval: Duration::from_millis(200),
            coordinator_resend_interval_max: Duration::from_millis(800),
            stop_timeout: Duration::from_secs(1),
            fence_timeout: Duration::from_millis(1500),
            beacon_interval: Duration::from_millis(20),
            server_lease_ttl: Duration::from_millis(200),
            takeover_grace: Duration::from_millis(250),
            takeover_stagger: Duration::from_millis(150),
            lookup: LookupKind::ClientMap,
            prefix: None,
            first_grace: Duration::from_secs(2),
            member_timeout: Duration::from_secs(1),
            member_silence_timeout: Duration::from_millis(50),
            balance_delay: Duration::from_secs(5),
            ring_ping_interval: Duration::from_millis(100),
            ring_ping_timeout: Duration::from_millis(500),
            ring_look_interval: Duration::from_millis(500),
            relink_patience: Duration::from_secs(5),
            checkpoint_interval: Duration::from_secs(300),
            id_range: 1 << 20,
            jobs_max: 8192,
            sweeps_max: 64,
            replies_kept_max: 64 << 10,
            replies_bytes_max: 256 << 20,
            items_resent_max: 256,
            list_entries_max: 1024,
            extents_max: 512,
            copy_pairs_max: 1024,
            inquire_interval: Duration::from_millis(200),
            job_timeout: Duration::from_secs(30),
            dead_mark_ttl: Duration::from_millis(300_500),
            ended_mark_ttl: Duration::from_secs(3600),
            collect_interval: Duration::from_secs(10),
            free_lock_ttl: Duration::from_secs(1),
            lock_wait_ttl: Duration::from_secs(5),
            lock_silence_timeout: Duration::from_secs(10),
            chunk_ttl: Duration::from_secs(660),
            scan_delay: Duration::from_secs(60),
            writer_patience: Duration::from_secs(3600),
            scan_interval: Duration::from_secs(24 * 3600),
            compact_bytes_min: 1 << 20,
            closed_mark_ttl: Duration::from_secs(3600),
            lost_timeout: Duration::from_secs(30),
            maintenance_jobs_max: 16,
            copies_max: 8,
            sweep_interval: Duration::from_secs(2),
            quota_share_ttl: Duration::from_secs(3),
            quota_report_interval: Duration::from_secs(1),
            reserve_bytes: 256 << 20,
            mutant: None,
        }
    }

    /// Whether a bug is planted: never in a build without the feature, whatever the field says.
    pub(crate) fn planted(&self, mutant: Mutant) -> bool {
        cfg!(feature = "mutants") && self.mutant == Some(mutant)
    }
}
