//! What the machine counts; shells publish it.

/// Plain sums since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Directories that were delegated to us.
    pub delegations: u64,
    /// Changes that were decided here.
    pub steps: u64,
    /// Batches of them that were done.
    pub batches: u64,
    /// Sessions that servers ended, each followed by another one.
    pub sessions_lost: u64,
    /// Bytes of reads that were fetched before they were asked for.
    pub bytes_read_ahead: u64,
    /// Questions to the flow server.
    pub flow_asked: u64,
    /// Those that it answered in time.
    pub flow_answered: u64,
    /// Those that it did not.
    pub flow_silent: u64,
    /// Pieces that were fetched from two replicas, because the first took too long.
    pub pieces_twice: u64,
    /// Operations that began.
    pub operations: u64,
    /// Requests to metadata servers, each counted once.
    pub requests: u64,
    /// Requests sent again because no answer came.
    pub resends: u64,
    /// Answers that said "not now".
    pub retries: u64,
    /// Answers that named another owner or epoch.
    pub referrals: u64,
    /// Maps taken.
    pub maps: u64,
    /// Requests given up at their deadline.
    pub deadlines: u64,
    /// Replies that nobody waited for any more.
    pub late_replies: u64,
    /// Messages of a kind that no client gets.
    pub unexpected: u64,
    /// Refusals of packets.
    pub refused: u64,
    /// Recalls answered.
    pub recalls: u64,
    /// Open-state queries answered.
    pub open_state_queries: u64,
    /// Leases not taken because a recall or an own change came between.
    pub leases_passed_over: u64,
    /// Leases of open files asked for because they would have ended.
    pub leases_renewed: u64,
    /// Lookups answered from cached names.
    pub name_hits: u64,
    /// Lookups asked for.
    pub name_misses: u64,
    /// Names prefetched.
    pub names_prefetched: u64,
    /// Those of them that were asked for.
    pub names_prefetched_used: u64,
    /// Attributes answered from the cache.
    pub attribute_hits: u64,
    /// Attributes asked for.
    pub attribute_misses: u64,
    /// Grants found in the cache.
    pub grant_hits: u64,
    /// Grants asked for.
    pub grant_misses: u64,
    /// Grants that a server refused.
    pub grants_refused: u64,
    /// Files opened without asking.
    pub local_opens: u64,
    /// Times that a delegated directory was too large to be held whole, and entries that were dropped then.
    pub thinned: u64,
    /// See the field before.
    pub entries_dropped: u64,
    /// Names of such directories that were asked for.
    pub names_learnt: u64,
    /// Times that such a directory, left to its home for a while, was decided in again.
    pub shown_again: u64,
    /// Bytes taken by writes.
    pub bytes_written: u64,
    /// Bytes given by reads.
    pub bytes_read: u64,
    /// Bytes copied from file to file.
    pub bytes_copied: u64,
    /// Frames appended to chunks.
    pub frames: u64,
    /// Chunks opened.
    pub chunks_opened: u64,
    /// Chunks given up.
    pub chunks_lost: u64,
    /// Reads that another replica had to answer.
    pub replicas_passed_over: u64,
    /// Writes that had to wait for room in the buffer.
    pub writes_held_back: u64,
}
