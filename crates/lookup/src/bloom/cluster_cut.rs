//! A network that is cut in two and healed again, on small clusters of the machines: files come and go on
//! both sides, servers join on both.
//!
//! Guaranteed: during the cut, a file whose home is in and on the side of the client that asks is found; from
//! the first query after it, on either side. A query for a file of the other side, or for none, ends as
//! absent; only a client that reaches few servers, and loses what it sends to these too, may give up before.
//! When nothing happens for a while after the cut, all servers are in one layout again.

use crate::bloom::cluster::{Cluster, End};
use crate::bloom::cluster_laws::BLOOM;
use crate::bloom::options::{BloomOptions, Sizes};
use crate::query::{FileKey, LookupError, QueryId};
use bearing_placement::LookupKind;
use bearing_types::ServerId;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Filters for 20 files that get up to a hundred: they mislead all the time.
fn options(lookup: LookupKind, group_most: u32) -> BloomOptions {
    let published = BloomOptions::of(lookup, Sizes { servers: 10, keys_each: 20 }).unwrap();
    let group_most = if lookup == LookupKind::BloomGroups { group_most } else { 1 };
    BloomOptions { group_most, asks_max: 16, ..published }
}

fn key(number: u64) -> FileKey {
    FileKey((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// What is to be found; the home, its side and its being in are looked at after everything that happens,
/// until the query ends.
struct Expected {
    client: usize,
    file: FileKey,
    home: Option<ServerId>,
    excused: bool,
    /// Its client reached few servers, and messages were lost: it may have come to none of them in time.
    hard: bool,
}

struct Run {
    cluster: Cluster,
    homes: BTreeMap<FileKey, ServerId>,
    removed: Vec<FileKey>,
    asked: BTreeMap<QueryId, Expected>,
    next_server: u32,
    next_file: u64,
}

impl Run {
    /// Of `servers` that begin together, with a few files at each.
    fn of(options: BloomOptions, seed: u64, servers: u32) -> Run {
        let cluster = Cluster::founded(options, seed, servers);
        let (homes, removed, asked) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        let mut run = Run { cluster, homes, removed, asked, next_server: 1000, next_file: 0 };
        run.cluster.settle();
        for _ in 0..servers {
            run.insert();
        }
        run.cluster.settle();
        run
    }

    fn file(&mut self) -> FileKey {
        self.next_file += 1;
        key(self.next_file)
    }

    fn insert(&mut self) {
        let ready = self.cluster.ready();
        let Some(home) = self.cluster.draws.one(&ready) else { return };
        for _ in 0..self.cluster.draws.below(12) {
            let file = self.file();
            self.cluster.store(home, file);
            self.homes.insert(file, home);
        }
    }

    fn remove(&mut self) {
        let files: Vec<_> = self.homes.iter().map(|(file, home)| (*file, *home)).collect();
        if let Some((file, home)) = self.cluster.draws.one(&files)
            && self.cluster.is_ready(home)
        {
            self.homes.remove(&file);
            self.removed.push(file);
            self.note();
            self.cluster.remove(home, file);
        }
    }

    /// A new server comes in on the side of the one that it asks.
    fn join(&mut self) {
        let ready = self.cluster.ready();
        if let Some(through) = self.cluster.draws.one(&ready) {
            let server = ServerId(self.next_server);
            self.next_server += 1;
            if self.cluster.cut_off.contains(&through) {
                self.cluster.cut_off.insert(server);
            }
            self.cluster.start(server, Some(through));
        }
    }

    fn ask(&mut self) {
        let files: Vec<FileKey> = self.homes.keys().copied().collect();
        let gone = self.removed.clone();
        let file = match self.cluster.draws.below(10) {
            0 => Some(key(1 << 40)),
            1 => self.cluster.draws.one(&gone),
            _ => self.cluster.draws.one(&files),
        };
        let Some(file) = file else { return };
        let client = self.cluster.draws.below(2);
        let id = self.cluster.ask_as(client, file);
        let home = self.homes.get(&file).copied();
        self.asked.insert(id, Expected { client, file, home, excused: false, hard: false });
        self.note();
    }

    fn note(&mut self) {
        let few = |client| {
            let ready = self.cluster.ready();
            let reached = ready.iter().filter(|server| self.cluster.client_reaches(client, **server)).count();
            self.cluster.loss > 0 && 4 * reached < ready.len()
        };
        let hard = [0, 1].map(few);
        for (id, expected) in &mut self.asked {
            if self.cluster.ends.contains_key(id) {
                continue;
            }
            expected.hard |= hard[expected.client];
            let there = expected.home.is_none_or(|home| {
                self.cluster.is_ready(home) && self.cluster.client_reaches(expected.client, home)
            });
            let moved = self.homes.get(&expected.file).copied() != expected.home;
            expected.excused |= moved || !there;
        }
    }

    /// Lets time pass, and sees in small steps who is reached.
    fn pass(&mut self, time: Duration) {
        let step = Duration::from_millis(5);
        for _ in 0..time.as_millis() / step.as_millis() {
            self.cluster.run(step);
            self.note();
        }
    }

    fn live(&mut self, steps: usize, pause_ms: usize) {
        for _ in 0..steps {
            match self.cluster.draws.below(100) {
                0..70 => self.ask(),
                70..85 => self.insert(),
                85..92 => self.remove(),
                92..95 => self.join(),
                _ => {
                    let pause = self.cluster.draws.below(pause_ms) as u64;
                    self.pass(Duration::from_millis(pause));
                }
            }
            let pause = self.cluster.draws.below(6) as u64 * 5;
            self.pass(Duration::from_millis(pause));
        }
    }

    fn verdict(&self) -> Result<(), TestCaseError> {
        for (id, expected) in &self.asked {
            let home = expected.home;
            match (home, self.cluster.ends.get(id)) {
                (_, None) => prop_assert!(false, "{:?} hangs", id),
                (_, Some(End::Served(server))) => {
                    prop_assert!(home.is_some(), "{id:?} found at {server}, is nowhere")
                }
                (_, Some(End::Failed(LookupError::TooManyHops(_)))) if expected.hard => {}
                (Some(home), Some(End::Failed(error))) => {
                    prop_assert!(expected.excused, "{id:?} at {home} was not found: {error}");
                }
                (None, Some(End::Failed(error))) => prop_assert_eq!(*error, LookupError::Absent),
            }
        }
        Ok(())
    }
}

fn a_cut(
    seed: u64,
    options: BloomOptions,
    servers: u32,
    cut_ms: usize,
    loss: u64,
) -> Result<(), TestCaseError> {
    let mut run = Run::of(options, seed, servers);
    let mut cut_off: BTreeSet<ServerId> =
        BTreeSet::from([ServerId(1 + run.cluster.draws.below(servers as usize) as u32)]);
    let share = run.cluster.draws.below(100) as u64;
    for server in 1..=servers {
        if cut_off.len() + 1 < servers as usize && run.cluster.draws.percent(share) {
            cut_off.insert(ServerId(server));
        }
    }
    run.cluster.cut_off = cut_off;
    run.cluster.loss = loss;
    run.note();
    run.live(60, cut_ms);
    let rest = run.cluster.draws.below(cut_ms) as u64;
    run.pass(Duration::from_millis(rest));
    run.cluster.cut_off.clear();
    run.live(60, 2000);
    run.pass(Duration::from_secs(10));
    run.verdict()?;
    run.cluster.loss = 0;
    run.cluster.run(run.cluster.options.beat * 400);
    prop_assert!(run.cluster.all_ended());
    prop_assert_eq!(run.cluster.check(), Ok(()));
    for (file, home) in run.homes.clone() {
        for client in 0..2 {
            prop_assert_eq!(run.cluster.find_as(client, file), End::Served(home));
        }
    }
    for file in run.removed.clone() {
        prop_assert_eq!(run.cluster.find(file), End::Failed(LookupError::Absent));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn a_cut_network_finds_the_files_of_each_side_and_all_once_it_is_healed(
        seed: u64, lookup in 0usize..8, group_most in 2u32..6, servers in 2u32..24, cut_ms in 100usize..40_000,
        lossy: bool
    ) {
        let lookup = BLOOM.get(lookup).copied().unwrap_or(LookupKind::BloomGroups);
        a_cut(seed, options(lookup, group_most), servers, cut_ms, if lossy { 10 } else { 0 })?;
    }
}

/// A cut so long that each side believes the other gone, and the way back.
fn cut_and_heal(cluster: &mut Cluster, cut_off: BTreeSet<ServerId>) {
    cluster.cut_off = cut_off;
    cluster.settle();
    cluster.cut_off.clear();
    cluster.settle();
    cluster.settle();
}

#[test]
fn who_was_cut_off_again_and_again_holds_what_it_held() {
    let mut cluster = Cluster::founded(options(LookupKind::BloomGroups, 4), 3, 9);
    cluster.settle();
    for _ in 0..20 {
        cut_and_heal(&mut cluster, BTreeSet::from([ServerId(7)]));
        assert_eq!(cluster.check(), Ok(()));
    }
}
