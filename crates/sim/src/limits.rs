//! What metadata servers of a run are configured with: small and short, so that all that limits do happens.

use bearing_meta::{Config, Mutant};
use bearing_workload::Seeded;
use std::time::Duration;

/// What servers keep free of a disk, in bytes that only serve to be compared.
pub const RESERVE_BYTES: u64 = 1000;

/// Limits that a few clients would never reach as they are usually set.
#[derive(Clone, Copy)]
pub struct Limits {
    lease_holders: usize,
    opens_per_session: usize,
    id_range: u32,
    jobs: usize,
    balance_delay: Duration,
}

impl Limits {
    /// Draws them.
    pub fn draw(rng: &mut Seeded) -> Limits {
        let lease_holders = if rng.chance(1, 2) { 64 } else { rng.between(1, 2) as usize };
        let opens_per_session = if rng.chance(1, 2) { 1000 } else { rng.between(2, 20) as usize };
        let id_range = rng.between(16, 200) as u32;
        let jobs = if rng.chance(1, 4) { 8192 } else { rng.between(60, 120) as usize };
        // Sometimes so short that servers are evened out in the midst of faults.
        let balance_delay =
            Duration::from_millis(if rng.chance(1, 2) { 5000 } else { rng.between(50, 1000) });
        Limits { lease_holders, opens_per_session, id_range, jobs, balance_delay }
    }

    /// What a server is configured with where directories are delegated, or are not.
    pub fn config(self, mutant: Option<Mutant>, delegations: bool) -> Config {
        let mut config = Config::standard();
        // Small, so that cold reads, parts of listings and of snapshots happen.
        config.cache_entries_max = 64;
        config.list_entries_max = 16;
        config.copy_pairs_max = 24;
        config.id_range = self.id_range;
        // So that directories are too large to be shown.
        if self.id_range.is_multiple_of(2) {
            config.delegated_entries_max = 6;
        }
        config.jobs_max = self.jobs;
        // Short, so that marks are collected, and requests given up, while clients work; but a request may
        // wait for a silent data server twice (fence, then seal).
        config.job_timeout = config.fence_timeout * 2 + Duration::from_millis(500);
        config.dead_mark_ttl = config.job_timeout + Duration::from_millis(500);
        config.ended_mark_ttl = Duration::from_secs(12);
        config.collect_interval = Duration::from_millis(500);
        // So that chunks are sealed, looked at, copied and removed while clients work, and while their late
        // commits are on the way.
        config.chunk_ttl = Duration::from_secs(15);
        config.scan_delay = Duration::from_millis(300);
        // Longer than any server is away; where nothing is decided that cannot be decided anew, late commits
        // are to be met.
        config.writer_patience = Duration::from_secs(if delegations { 190 } else { 0 });
        config.scan_interval = Duration::from_secs(10);
        config.lost_timeout = Duration::from_secs(7);
        config.sweep_interval = Duration::from_millis(300);
        config.checkpoint_interval = Duration::from_secs(3);
        config.compact_bytes_min = 1;
        config.closed_mark_ttl = Duration::from_secs(600);
        config.balance_delay = self.balance_delay;
        config.lease_holders_max = self.lease_holders;
        config.opens_per_session_max = self.opens_per_session;
        config.reserve_bytes = RESERVE_BYTES;
        config.mutant = mutant;
        config
    }
}
