//! What a metadata server shows.

use crate::cluster::DaemonName;
use crate::metrics::*;
use bearing_meta::{Census, Counters, DiskSpace};
use bearing_proto::client::{Call, Handle, Request};
use bearing_proto::delegation::Change;
use bearing_proto::kinds::CallKind;
use bearing_proto::tablets::ChunkTally;
use bearing_types::{Mono, NodeId, Position, Sequence, SessionId};

/// Tablets that are shown one by one: each is two lines of every page.
const TABLETS_SHOWN: usize = 256;

/// What the shell itself sees of requests.
pub struct Watched {
    requests: Requests,
    directories: Hottest<Position>,
    sessions: Hottest<()>,
}

impl Watched {
    /// Nothing yet.
    pub fn new() -> Watched {
        let names = CallKind::ALL.iter().map(|kind| kind.name()).collect();
        Watched { requests: Requests::new(names), directories: Hottest::new(), sessions: Hottest::new() }
    }

    /// A request came.
    pub fn request(&mut self, now: Mono, session: SessionId, request: &Request) {
        let kind = request.call.kind();
        self.requests.begin(now, (session.0, request.sequence.0), kind as usize);
        self.sessions.hit(now, session.0, ());
        if let Call::Delegated { steps, .. } = &request.call {
            for directory in steps.iter().filter_map(|step| changed(&step.change)) {
                self.directories.hit(now, directory.node.0, directory.home);
            }
        } else if let Some(directory) = asked_for(&request.call) {
            self.directories.hit(now, directory.node.0, directory.home);
        }
    }

    /// It is answered.
    pub fn answered(&mut self, now: Mono, session: SessionId, sequence: Sequence) {
        self.requests.end(now, (session.0, sequence.0));
    }

    /// Shows it.
    pub fn show(&mut self, now: Mono, page: &mut Page) {
        self.requests.show(page, &REQUESTS, &REQUEST_SECONDS);
        for (session, (), rate) in self.sessions.shown(now) {
            page.level(&SESSION_RATE, [&SessionId(session).to_string()], rate);
        }
        for (node, home, rate) in self.directories.shown(now) {
            page.level(&DIRECTORY_RATE, [&NodeId(node).to_string(), &home.to_string()], rate);
        }
    }
}

/// The directory that a call is about, if it is about one.
fn asked_for(call: &Call) -> Option<Handle> {
    match call {
        Call::Lookup { grant, .. }
        | Call::List { grant, .. }
        | Call::Prefetch { grant, .. }
        | Call::Create { grant, .. }
        | Call::MakeDirectory { grant, .. }
        | Call::Unlink { grant, .. }
        | Call::RemoveDirectory { grant, .. }
        | Call::Link { grant, .. }
        | Call::Rename { target: grant, .. } => {
            Some(Handle { node: grant.body.seat.node, home: grant.body.seat.home })
        }
        Call::Directory { directory } | Call::Delegate { directory, .. } => Some(*directory),
        _ => None,
    }
}

/// The directory that a step changed, if it changed one.
fn changed(change: &Change) -> Option<Handle> {
    match change {
        Change::Create { directory, .. }
        | Change::MakeDirectory { directory, .. }
        | Change::Unlink { directory, .. }
        | Change::RemoveDirectory { directory, .. }
        | Change::Rename { target: directory, .. } => Some(*directory),
        Change::SetAttributes { .. }
        | Change::Commit { .. }
        | Change::Release { .. }
        | Change::Accessed { .. } => None,
    }
}

/// Shows what the machine counted.
pub fn show_counters(page: &mut Page, counters: &Counters) {
    page.count(&REFERRALS, [], counters.referrals);
    page.count(&DECISIONS, [], counters.runs);
    page.count(&STORE_LOADS, [], counters.loads);
    page.count(&LOG_RECORDS, [], counters.records);
    page.count(&TRANSACTIONS, [], counters.transactions);
    page.count(&TRANSACTIONS_ABORTED, [], counters.aborts);
    page.count(&RECALLS, [], counters.recalls);
    page.count(&OPEN_QUERIES, [], counters.open_state_queries);
    page.count(&RESTORED_BYTES, [], counters.restored_bytes);
    page.count(&TAKEOVERS, [], counters.takeovers);
    page.seconds(&TAKEOVER_SECONDS, [], counters.takeover_us as f64 / 1e6);
    page.count(&SWAPPED_OUT, [], counters.swapped_out);
    page.count(&CHUNKS_COPIED, [], counters.copied_bytes);
    page.count(&CHUNKS_REMOVED, [], counters.chunks_removed);
    page.count(&CHECKPOINTS, [], counters.checkpoints);
    page.count(&CHECKPOINT_FAILURES, [], counters.checkpoint_failures);
}

/// Shows what the machine holds.
pub fn show_census(page: &mut Page, census: &Census) {
    page.level(&SESSIONS, [], census.sessions as f64);
    page.level(&LEASES, [], census.leases as f64);
    page.level(&RECALLS_OPEN, [], census.recalls as f64);
    page.level(&DELEGATIONS, [], census.delegations as f64);
    page.level(&JOBS, [], census.jobs as f64);
    page.level(&PARKED, [], census.parked as f64);
    for (role, count) in [
        ("served", census.served.len()),
        ("adopted", census.adopted),
        ("leaving", census.leaving),
        ("copy", census.copies),
    ] {
        page.level(&TABLETS, [role], count as f64);
    }
    page.level(&TABLETS_LACKING, [], census.lacking as f64);
    page.level(&TABLETS_LEARNING, [], census.learning as f64);
    for tablet in census.served.iter().take(TABLETS_SHOWN) {
        let name = tablet.block.to_string();
        page.level(&TABLET_EPOCH, [&name], tablet.epoch.0 as f64);
        page.count(&TABLET_REQUESTS, [&name], tablet.requests);
    }
    for (server, member) in &census.members {
        let name = DaemonName::of(*server).to_string();
        page.level(&REPLICA_LAG_ENTRIES, [&name], member.lag as f64);
        page.level(&REPLICA_LAG_BYTES, [&name], member.lag_bytes as f64);
        page.level(&REPLICA_TABLETS, [&name], member.tablets as f64);
        page.level(&REPLICA_LEASES, [&name], member.relies as f64);
    }
}

/// Shows the chunks that it looks after, and its disk.
pub fn show_space(page: &mut Page, tally: &ChunkTally, disk: DiskSpace) {
    for (state, count) in [
        ("open", tally.chunks - tally.sealed),
        ("sealed", tally.sealed),
        ("lacking", tally.lacking),
        ("damaged", tally.damaged),
        ("removing", tally.dead),
        ("compacting", tally.compacting),
    ] {
        page.level(&CHUNKS, [state], count as f64);
    }
    for (state, bytes) in [
        ("live", tally.live_bytes),
        ("dead", tally.dead_bytes),
        ("lacking", tally.lacking_bytes),
        ("compacting", tally.compacting_bytes),
    ] {
        page.level(&CHUNK_BYTES, [state], bytes as f64);
    }
    page.level(&DISK_FREE, [], disk.free as f64);
    page.level(&DISK_SIZE, [], disk.total as f64);
}
