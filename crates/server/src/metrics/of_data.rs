//! What a data server shows.

use crate::metrics::*;
use bearing_data::{Census, Counters};

/// Shows what the machine counted.
pub fn show_counters(page: &mut Page, counters: &Counters) {
    for (kind, bytes) in
        [("appended", counters.append_bytes), ("drawn", counters.drawn_bytes), ("read", counters.read_bytes)]
    {
        page.count(&DATA_BYTES, [kind], bytes);
    }
    for (kind, frames) in
        [("appended", counters.appends), ("drawn", counters.drawn), ("replicated", counters.replicated)]
    {
        page.count(&DATA_FRAMES, [kind], frames);
    }
    page.count(&DATA_READS, [], counters.reads);
    page.count(&DATA_SYNCS, ["requests"], counters.syncs);
    page.count(&DATA_SYNCS, ["logs"], counters.log_syncs);
    page.count(&DATA_RESENDS, [], counters.resends);
    for (reason, count) in
        [("invalid", counters.refused), ("busy", counters.dropped), ("full", counters.full)]
    {
        page.count(&DATA_REFUSED, [reason], count);
    }
    page.count(&DATA_CORRUPT, [], counters.corrupt);
    page.count(&DATA_GIVEN_UP, [], counters.replicas_lost);
    page.count(&DATA_SEALS, [], counters.seals);
    page.count(&DATA_REMOVED, [], counters.removed);
    page.count(&DATA_COPIES, [], counters.copies);
    page.count(&DATA_COPIED_BYTES, [], counters.copied_bytes);
    page.count(&SCRUBBED_CHUNKS, [], counters.scrubbed);
    page.count(&SCRUBBED_BYTES, [], counters.scrubbed_bytes);
}

/// Shows what the machine holds.
pub fn show_census(page: &mut Page, census: &Census) {
    for (state, count) in [("open", census.open), ("sealed", census.sealed), ("damaged", census.damaged)] {
        page.level(&DATA_CHUNKS, [state], count as f64);
    }
    page.level(&SCRUB_LEFT, [], census.scrub_left as f64);
}

/// Shows the disk.
pub fn show_disk(page: &mut Page, used: u64, free: u64, failed: bool) {
    page.level(&DATA_DISK, ["used"], used as f64);
    page.level(&DATA_DISK, ["free"], free as f64);
    page.level(&DISK_FAILED, [], f64::from(u8::from(failed)));
}
