//! Laws of the Bloom lookups, on small clusters of their machines.

use crate::bloom::cluster::{Cluster, End};
use crate::bloom::options::{BloomOptions, Sizes};
use crate::machine::Event;
use crate::query::{FileKey, LookupError, QueryId};
use bearing_placement::LookupKind;
use bearing_types::ServerId;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub const BLOOM: [LookupKind; 4] =
    [LookupKind::BloomLevels, LookupKind::BloomGroups, LookupKind::BloomArray8, LookupKind::BloomArray16];

/// Filters for 20 files that get up to a hundred: they mislead, and name several homes, all the time.
fn options(lookup: LookupKind, group_most: u32, named_max: u32) -> BloomOptions {
    let published = BloomOptions::of(lookup, Sizes { servers: 10, keys_each: 20 }).unwrap();
    let group_most = if lookup == LookupKind::BloomGroups { group_most } else { 1 };
    // Under a tenth of lost messages 8 tries are not enough for millions of questions.
    BloomOptions { group_most, named_max, asks_max: 16, ..published }
}

fn cluster(options: BloomOptions, seed: u64, servers: u32) -> Cluster {
    let mut cluster = Cluster::new(options, seed);
    for id in 1..=servers {
        cluster.start(ServerId(id), (id > 1).then_some(ServerId(1)));
        cluster.run(options.beat * 3);
    }
    cluster.settle();
    cluster.check().unwrap();
    cluster
}

fn key(number: usize) -> FileKey {
    FileKey((number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// What is to be found, and until when nothing happened that excuses its not being found.
struct Expected {
    file: FileKey,
    home: Option<ServerId>,
    excused: bool,
    /// Servers that were down meanwhile: nobody may have heard that they are.
    down: BTreeSet<ServerId>,
}

struct Run {
    cluster: Cluster,
    homes: BTreeMap<FileKey, ServerId>,
    asked: BTreeMap<QueryId, Expected>,
    next_server: u32,
    next_file: usize,
}

impl Run {
    fn step(&mut self) {
        let choice = self.cluster.draws.below(100);
        let live = self.cluster.live();
        let ready = self.cluster.ready();
        match choice {
            0..40 => self.ask(),
            40..60 => self.insert(&ready),
            60..68 => self.remove(),
            68..76 => self.join(&live),
            76..82 if live.len() > 2 => self.crash(&live),
            82..86 if ready.len() > 2 => self.leave(&ready),
            _ => {
                let pause = Duration::from_millis(self.cluster.draws.next() % 4000);
                self.cluster.run(pause);
            }
        }
        self.rejoin();
        let pause = Duration::from_micros(self.cluster.draws.next() % 30_000);
        self.cluster.run(pause);
        self.note();
    }

    fn ask(&mut self) {
        let files: Vec<FileKey> = self.homes.keys().copied().collect();
        let absent = self.cluster.draws.percent(20);
        let file = self.cluster.draws.one(&files).filter(|_| !absent).unwrap_or(key(1 << 40));
        let home = self.homes.get(&file).copied();
        let id = self.cluster.ask(file);
        self.asked.insert(id, Expected { file, home, excused: false, down: BTreeSet::new() });
        self.note();
    }

    /// A home that is not reachable at some time excuses a query from finding it.
    fn note(&mut self) {
        let live = self.cluster.live();
        let down: Vec<ServerId> =
            self.cluster.nodes.keys().copied().filter(|server| !live.contains(server)).collect();
        for (id, expected) in &mut self.asked {
            let moved = self.homes.get(&expected.file).copied() != expected.home;
            let there = expected.home.is_none_or(|home| self.cluster.is_ready(home));
            if !self.cluster.ends.contains_key(id) {
                expected.excused |= moved || !there;
                expected.down.extend(&down);
            }
        }
    }

    fn insert(&mut self, ready: &[ServerId]) {
        if let Some(home) = self.cluster.draws.one(ready) {
            for _ in 0..self.cluster.draws.below(30) {
                let file = key(self.next_file);
                self.next_file += 1;
                self.cluster.store(home, file);
                self.homes.insert(file, home);
            }
        }
    }

    fn remove(&mut self) {
        let files: Vec<_> = self.homes.iter().map(|(file, home)| (*file, *home)).collect();
        let Some((file, home)) = self.cluster.draws.one(&files) else { return };
        if self.cluster.is_ready(home) {
            self.homes.remove(&file);
            self.note();
            self.cluster.remove(home, file);
        }
    }

    fn join(&mut self, live: &[ServerId]) {
        let through = self.cluster.draws.one(live);
        let crashed: Vec<_> =
            self.cluster.nodes.keys().filter(|server| !live.contains(server)).copied().collect();
        let again = self
            .cluster
            .draws
            .one(&crashed)
            .filter(|_| self.next_server > 20 || self.cluster.draws.percent(60));
        let server = again.unwrap_or(ServerId(self.next_server));
        if again.is_none() {
            if self.next_server > 20 {
                return;
            }
            self.next_server += 1;
        }
        self.cluster.start(server, through);
    }

    fn crash(&mut self, live: &[ServerId]) {
        let server = self.cluster.draws.one(live).unwrap();
        // One that is ready stays, so that there is a cluster to join.
        if self.cluster.ready().iter().any(|ready| *ready != server) {
            self.cluster.crash(server);
            self.note();
        }
    }

    /// Its files go to another server, then it goes.
    fn leave(&mut self, ready: &[ServerId]) {
        let (server, heir) = (self.cluster.draws.one(ready).unwrap(), self.cluster.draws.one(ready).unwrap());
        if server == heir {
            return;
        }
        for file in self.cluster.nodes[&server].store.clone() {
            self.homes.insert(file, heir);
            self.note();
            self.cluster.store(heir, file);
            self.cluster.remove(server, file);
        }
        self.note();
        self.cluster.tell(server, Event::Leave);
        self.cluster.run(self.cluster.options.beat * 4);
        self.note();
        self.cluster.crash(server);
    }

    /// Who cannot come in because its sponsor is gone tries another.
    fn rejoin(&mut self) {
        let stuck: Vec<ServerId> = self
            .cluster
            .machines()
            .filter(|(_, machine)| machine.sponsor().is_some_and(|sponsor| !self.cluster.is_ready(sponsor)))
            .map(|(id, _)| id)
            .collect();
        for server in stuck {
            let ready = self.cluster.ready();
            if let Some(through) = self.cluster.draws.one(&ready) {
                self.cluster.tell(server, Event::Join(Some(through)));
            }
        }
    }

    fn verdict(&self) -> Result<(), TestCaseError> {
        for (id, expected) in &self.asked {
            let end = self.cluster.ends.get(id);
            prop_assert!(end.is_some(), "{:?} hangs", id);
            match (expected.home, end) {
                (_, Some(End::Served(server))) => {
                    prop_assert!(expected.home.is_some(), "{:?} was found at {} and is nowhere", id, server);
                }
                (Some(home), Some(End::Failed(error))) => {
                    prop_assert!(expected.excused, "{:?} at {} was not found: {}", id, home, error);
                }
                (None, Some(End::Failed(LookupError::Unanswered(server)))) => {
                    prop_assert!(expected.down.contains(server), "{:?}: {} was there", id, server);
                }
                (None, Some(End::Failed(error))) => prop_assert_eq!(*error, LookupError::Absent),
                (_, None) => {}
            }
        }
        Ok(())
    }
}

fn a_run(seed: u64, options: BloomOptions, loss: u64) -> Result<(), TestCaseError> {
    let cluster = cluster(options, seed, 5);
    let mut run =
        Run { cluster, homes: BTreeMap::new(), asked: BTreeMap::new(), next_server: 6, next_file: 0 };
    run.cluster.loss = loss;
    for _ in 0..120 {
        run.step();
    }
    run.cluster.run(Duration::from_secs(10));
    run.note();
    run.cluster.loss = 0;
    for _ in 0..8 {
        run.rejoin();
        run.cluster.run(run.cluster.options.beat * 10);
    }
    run.cluster.settle();
    run.verdict()?;
    prop_assert!(run.cluster.all_ended());
    prop_assert_eq!(run.cluster.check(), Ok(()));
    for (file, home) in run.homes.clone() {
        if run.cluster.is_ready(home) {
            prop_assert_eq!(run.cluster.find(file), End::Served(home));
        }
    }
    prop_assert_eq!(run.cluster.find(key(1 << 40)), End::Failed(LookupError::Absent));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn a_file_whose_home_can_be_reached_is_always_found(
        seed: u64, lookup in 0usize..8, group_most in 1u32..6, named_max in 0u32..4, lossy: bool
    ) {
        // Every second run is of G-HBA.
        let lookup = BLOOM.get(lookup).copied().unwrap_or(LookupKind::BloomGroups);
        a_run(seed, options(lookup, group_most, named_max), if lossy { 10 } else { 0 })?;
    }
}

/// A request to be let in that came late made one server take another for gone for ever.
#[test]
fn whoever_is_in_is_heard_again_after_a_late_request_of_its_earlier_life() {
    a_run(4_097_161_697_815_949_574, options(LookupKind::BloomGroups, 4, 2), 10).unwrap();
}

/// None of 16 requests to a server that had crashed came back with a word of that.
#[test]
fn that_a_server_which_crashed_did_not_answer_is_said() {
    a_run(13_513_987_017_474_206_338, options(LookupKind::BloomArray8, 1, 0), 10).unwrap();
}
