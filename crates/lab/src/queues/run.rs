//! Measuring a cluster: how much it can do, and how long one operation takes.
//!
//! Invariants: nothing is counted before the queues have settled; what was begun either ended or is still
//! under way, and both are counted.

use super::cluster::{Cluster, Division, Setup, SetupError};
use super::split::Split;
use crate::statistics::{mean, percentile};
use bearing_lookup::QueryId;
use bearing_lookup::world::{Done, Ending, Party};
use bearing_types::Mono;
use std::time::Duration;

/// How long is watched, in times that one thing takes a server at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Before anything is counted.
    pub settle: u32,
    /// While it is counted.
    pub measure: u32,
}

impl Watch {
    /// For latencies, where capacity is measured for `once`. Queues at 80 % are as long as they will be after
    /// 50 operations of a server, also where lookups have many hops; some 60,000 operations say how long one
    /// takes, so fewer servers are watched longer.
    pub fn of_latencies(once: u32, servers: u32) -> Watch {
        let measure = (60_000 / servers.max(1)).clamp(once, 100 * once);
        Watch { settle: (2 * once).max(50), measure }
    }
}

/// A closed loop has settled when as many operations have ended as are under way; where servers are loaded
/// unevenly, when so many times as many have, because what was begun at once has to drain from all but the
/// busiest.
fn settled(division: Division) -> u64 {
    match division {
        Division::EqualArcs => 1,
        Division::Published => 8,
    }
}

/// What a cluster did in a stretch of time.
#[derive(Clone, Debug)]
pub struct Rates {
    /// Operations that ended.
    pub ended: u64,
    /// Of these, how many failed.
    pub failed: u64,
    /// Operations a second.
    pub per_second: f64,
    /// The same of as many servers that did nothing but storage operations.
    pub ideal: f64,
    /// How long these took, with the way back, in seconds.
    pub took: Vec<f64>,
    /// How often these were passed on, in the mean.
    pub hops: f64,
    /// Where the throughput went.
    pub split: Option<Split>,
    /// Messages between servers.
    pub messages: u64,
}

/// The most that a cluster does.
#[derive(Clone, Debug)]
pub struct Capacity {
    /// What it did.
    pub rates: Rates,
    /// With how many operations under way for each server.
    pub outstanding: u32,
}

/// How long operations take at some load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// In the mean, in seconds.
    pub mean: f64,
    /// The median.
    pub median: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// How many operations it is of.
    pub count: usize,
}

impl Latency {
    fn of(took: &[f64]) -> Latency {
        Latency {
            mean: mean(took),
            median: percentile(took, 0.5),
            p95: percentile(took, 0.95),
            p99: percentile(took, 0.99),
            count: took.len(),
        }
    }
}

/// Operations under way for each server: at first, and at most. Few at first: where servers are loaded
/// unevenly, what was begun at once has to drain from all but the busiest.
const OUTSTANDING: [u32; 2] = [2, 256];
/// Where ways are long more have to be under way, up to this; what takes longer is refused.
pub(super) const OUTSTANDING_MOST: u32 = 1 << 14;
/// And no more than this of all servers together.
pub(super) const OUTSTANDING_ALL: u64 = 1 << 22;
/// More are under way while that adds this share to the throughput.
const GROWTH: f64 = 0.01;

/// The most that this cluster does: a closed loop in which twice as many operations are under way each
/// time, until that adds less than 1 %. Turns take as long as they do in the mean: a short look would take a
/// server that was lucky in some for the busiest.
pub fn capacity(setup: &Setup, watch: Watch) -> Result<Capacity, SetupError> {
    let mut cluster = Cluster::new(setup)?;
    cluster.world.set_spread(0.0, setup.seed);
    let most = most_outstanding(&cluster)?;
    learn(&mut cluster, setup.learnt);
    let mut outstanding = OUTSTANDING[0];
    let mut under_way = 0;
    let mut best: Option<Capacity> = None;
    loop {
        let more = outstanding * setup.servers - under_way;
        under_way += more;
        begin(&mut cluster, more);
        let rates = watch_closed(&mut cluster, watch, u64::from(under_way), setup.division);
        let before = best.as_ref().map_or(0.0, |best| best.rates.per_second);
        let is_done = rates.per_second < before * (1.0 + GROWTH) || 2 * outstanding > most;
        if rates.per_second >= before {
            best = Some(Capacity { rates, outstanding });
        }
        match best {
            Some(best) if is_done => return Ok(best),
            _ => outstanding *= 2,
        }
    }
}

/// So many under way for each server keep it busy, however long ways are.
fn most_outstanding(cluster: &Cluster) -> Result<u32, SetupError> {
    let Some(server) = cluster.world.servers().next() else { return Ok(OUTSTANDING[1]) };
    let ways = (0..cluster.clients as usize)
        .map(|client| cluster.world.way(Party::Client(client), Party::Server(server)));
    let way = 2 * ways.max().unwrap_or_default();
    let storage = cluster.costs().storage();
    let on_the_way = way.as_secs_f64() / storage.as_secs_f64();
    // As many again wait at servers, and lookups pass on some times.
    let wanted = OUTSTANDING[1].max((8.0 * on_the_way) as u32);
    let all = u64::from(wanted) * cluster.servers.len() as u64;
    let is_little = wanted == OUTSTANDING[1] || all <= OUTSTANDING_ALL;
    match wanted <= OUTSTANDING_MOST && is_little {
        true => Ok(wanted),
        false => Err(SetupError::Far { way, storage }),
    }
}

/// Each client has so many operations under way, all the time.
pub fn closed_loop(setup: &Setup, each: u32, watch: Watch) -> Result<Rates, SetupError> {
    let mut cluster = Cluster::new(setup)?;
    learn(&mut cluster, setup.learnt);
    begin(&mut cluster, each * setup.clients);
    let under_way = u64::from(each * setup.clients);
    Ok(watch_closed(&mut cluster, watch, under_way, setup.division))
}

/// Clients in turn begin so many operations more, now.
fn begin(cluster: &mut Cluster, count: u32) {
    let now = cluster.world.now();
    (0..count).for_each(|number| {
        cluster.ask_at(now, (number % cluster.clients) as usize);
    });
}

fn watch_closed(cluster: &mut Cluster, watch: Watch, under_way: u64, division: Division) -> Rates {
    go_on(cluster, watch.settle, settled(division) * under_way, |_, _, _| {});
    let (began, before) = (cluster.world.now(), done(cluster));
    let messages = cluster.world.messages();
    let (mut took, mut hops, mut failed) = (Vec::new(), 0u64, 0);
    go_on(cluster, watch.measure, under_way, |_, ending, all| {
        took.push(all.as_secs_f64());
        hops += u64::from(ending.hops);
        failed += u64::from(ending.by.is_err());
    });
    let measured = cluster.world.now().since(began);
    let during: Vec<Done> = done(cluster)
        .iter()
        .zip(&before)
        .map(|(after, before)| Done {
            busy: after.busy.saturating_sub(before.busy),
            work: after.work.saturating_sub(before.work),
            relayed: after.relayed - before.relayed,
            served: after.served - before.served,
            copied: after.copied - before.copied,
        })
        .collect();
    let storage = cluster.costs().storage();
    let ended = took.len() as u64;
    Rates {
        ended,
        failed,
        per_second: ended as f64 / measured.as_secs_f64().max(f64::MIN_POSITIVE),
        ideal: cluster.processors as f64 / storage.as_secs_f64(),
        hops: hops as f64 / ended.max(1) as f64,
        split: Split::of(&during, cluster.processors, ended, cluster.costs()),
        messages: cluster.world.messages() - messages,
        took,
    }
}

fn done(cluster: &Cluster) -> Vec<Done> {
    cluster.owners.iter().map(|owner| cluster.world.done(*owner)).collect()
}

/// Clients do what they learn from: one operation under way each, until so many have ended for each of them
/// in the mean. Nothing is under way afterwards.
pub(super) fn learn(cluster: &mut Cluster, each: u32) {
    if each == 0 {
        return;
    }
    let clients = cluster.clients;
    let mut ended = 0;
    begin(cluster, clients);
    go_on(cluster, each, u64::from(each) * u64::from(clients), |_, _, _| ended += 1);
    let unit = cluster.costs().longest();
    for _ in 0..PATIENCE {
        // One that was answered may not have begun its next yet.
        cluster.world.run_until_answered(unit * PATIENCE);
        ended += cluster.world.take_ended().len() as u64;
        if ended == cluster.asked() {
            return;
        }
        cluster.world.run_for(unit);
    }
}

/// A cluster in which nothing ends any more is watched no longer than this many times as long.
const PATIENCE: u32 = 1000;

/// Time passes, this long and until so many operations have ended; a client that is answered asks again. Each
/// ending is shown, with how long it took with the way back.
fn go_on(cluster: &mut Cluster, units: u32, least: u64, mut see: impl FnMut(QueryId, Ending, Duration)) {
    let unit = cluster.costs().longest();
    let mut ended = 0;
    let (mut end, last) = (cluster.world.now(), cluster.world.now().after(unit * units * PATIENCE));
    loop {
        end = end.after(unit * if ended == 0 { units.max(1) } else { 1 });
        while cluster.world.happen_by(end) {
            for (id, client, ending) in cluster.world.take_ended() {
                ended += 1;
                let back = way_back(cluster, client, &ending);
                see(id, ending, ending.took + back);
                let at = cluster.world.now().after(back);
                cluster.ask_at(at, client);
            }
        }
        if ended >= least || end > last {
            return;
        }
    }
}

/// The client knows of an ending only when the answer has come back to it.
fn way_back(cluster: &Cluster, client: usize, ending: &Ending) -> Duration {
    let from = ending.by.map_or(Party::Client(client), Party::Server);
    match from {
        Party::Client(_) => Duration::ZERO,
        server => cluster.world.way(server, Party::Client(client)),
    }
}

/// How long operations take that come as they like, so many a second in all. Those that begin while the
/// queues settle are not counted; the others all are, however late they end.
pub fn latency(setup: &Setup, per_second: f64, watch: Watch) -> Result<Latency, SetupError> {
    let mut cluster = Cluster::new(setup)?;
    learn(&mut cluster, setup.learnt);
    let unit = cluster.costs().longest();
    let begins = cluster.world.now().after(unit * watch.settle);
    let ends = begins.after(unit * watch.measure);
    let mut next = cluster.world.now();
    let mut first = None;
    let mut took = Vec::new();
    let mut counted = 0;
    bearing_types::within("operations a second", per_second, per_second > 0.0, "more than 0")?;
    while next < ends || counted == 0 || took.len() < counted {
        if next < ends || counted == 0 {
            let id = {
                let client = cluster.client();
                cluster.ask_at(next, client)
            };
            if next >= begins {
                first = first.or(Some(id));
                counted += 1;
            }
            let gap = -cluster.share().ln() / per_second;
            let until = next.after(Duration::from_secs_f64(gap.min(1e6)));
            listen(&mut cluster, until.min(ends), first, &mut took);
            next = until;
        } else {
            let more = cluster.world.now().after(unit);
            listen(&mut cluster, more, first, &mut took);
        }
    }
    Ok(Latency::of(&took))
}

fn listen(cluster: &mut Cluster, until: Mono, first: Option<QueryId>, took: &mut Vec<f64>) {
    while cluster.world.happen_by(until) {
        for (id, client, ending) in cluster.world.take_ended() {
            if first.is_some_and(|first| id >= first) {
                let back = way_back(cluster, client, &ending);
                took.push((ending.took + back).as_secs_f64());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_latencies_are_their_own_percentiles() {
        let took: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let expected = Latency { mean: 50.5, median: 50.0, p95: 95.0, p99: 99.0, count: 100 };
        assert_eq!(Latency::of(&took), expected);
    }
}
