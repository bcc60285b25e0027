//! A cluster of filter machines, with files, that has long been running.
//!
//! Invariants: filters are exchanged by the machines' own messages; a query runs alone, so the counts of the
//! server that served it say which level led there; one seed gives one run.

use super::assumed::{ACTIVE, Times, Workload, in_bounds};
use super::files::{Files, Popularity, scaled_list};
use bearing_lookup::bloom::{
    BloomClient, BloomMessage, BloomOptions, BloomServer, Choice, Counts, Founding, Keying, RecentShape,
    Shape, Sizes,
};
use bearing_lookup::world::World;
use bearing_lookup::{Event, FileKey, Message, QueryId, Target};
use bearing_placement::LookupKind;
use bearing_types::{Mono, ServerId};
use bearing_workload::Seeded;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What the filters hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filters {
    /// 8 bits for each of all files, as in table 5.
    Published,
    /// The same filters, but only the files in use are put in: perhaps the paper's simulator knew no others.
    ActiveOnly,
    /// 16 bits for each file.
    Wide,
    /// Ours: 9 bits for each directory; when up to eight servers are named, those are asked before all are.
    Directories,
}

/// Servers named by filters that [`Filters::Directories`] asks before it asks all.
const NAMED_MAX: u32 = 8;

/// A cluster to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) lookup: LookupKind,
    pub(super) servers: u32,
    /// M of G-HBA. `None`: the published one.
    pub(super) group_most: Option<u32>,
    pub(super) filters: Filters,
    /// Files of a server. 1 or more.
    pub(super) files_each: u64,
    /// Files of a directory on average, in tenths. 10 or more.
    pub(super) tenths_a_directory: u64,
    pub(super) workload: Workload,
    pub(super) seed: u64,
}

impl Setting {
    pub(super) fn files(&self) -> Files {
        Files {
            servers: self.servers,
            count: self.files_each * u64::from(self.servers),
            tenths_a_directory: self.tenths_a_directory,
            keying: if self.filters == Filters::Directories { Keying::Directory } else { Keying::File },
            seed: self.seed,
        }
    }

    /// The options of the lookup, with lists of recent files as long for these files as the published ones
    /// are for all.
    pub(super) fn options(&self) -> BloomOptions {
        let (servers, lookup, files) = (self.servers, self.lookup, self.files());
        let by_file = Sizes { servers, keys_each: self.files_each };
        let made = match self.filters {
            Filters::Published | Filters::ActiveOnly => in_bounds(BloomOptions::of(lookup, by_file)),
            Filters::Wide => {
                let wide = in_bounds(BloomOptions::of(LookupKind::BloomArray16, by_file)).filter;
                BloomOptions { filter: wide, ..in_bounds(BloomOptions::of(lookup, by_file)) }
            }
            Filters::Directories => {
                let sizes = Sizes { servers, keys_each: (files.directories() / u64::from(servers)).max(1) };
                let made = in_bounds(BloomOptions::of_directories(lookup, sizes));
                BloomOptions { named_max: NAMED_MAX, ..made }
            }
        };
        let recent = made.recent.map(|recent| self.scaled(recent, files.active()));
        let group_most = match self.group_most {
            Some(most) if lookup == LookupKind::BloomGroups => most,
            Some(_) | None => made.group_most,
        };
        BloomOptions { recent, group_most, ..made }
    }

    fn scaled(&self, recent: RecentShape, active: u64) -> RecentShape {
        let listed = f64::from(recent.keys_each) * f64::from(self.servers);
        let list = scaled_list(self.workload, listed.min(ACTIVE), active);
        let keys_each = list.div_ceil(u64::from(self.servers));
        let bits = f64::from(recent.filter.bits) / f64::from(recent.keys_each);
        let filter = in_bounds(Shape::for_keys(keys_each, bits, recent.filter.seed));
        RecentShape { keys_each: keys_each as u32, filter }
    }

    fn filled(&self) -> u64 {
        if self.filters == Filters::ActiveOnly { self.files().active() } else { self.files().count }
    }
}

/// Where a query ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// L1.
    Recent,
    /// L2.
    Segment,
    /// L3.
    Group,
    /// Beyond the paper: those that filters named.
    Named,
    /// L4.
    All,
}

/// A query that ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) level: Level,
    /// The server that it came to first.
    pub(super) entry: ServerId,
    /// Whether it was the file's home that answered.
    pub(super) is_right: bool,
    /// In the network, in milliseconds.
    pub(super) network: f64,
}

/// How many queries ended where.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tally {
    levels: [u64; 5],
    wrong: u64,
}

impl Tally {
    pub(super) fn count(&mut self, found: Found) {
        self.levels[found.level as usize] += 1;
        self.wrong += u64::from(!found.is_right);
    }

    /// The share of queries that ended at this level or before.
    pub(super) fn up_to(&self, level: Level) -> f64 {
        let ended: u64 = self.levels[..=level as usize].iter().sum();
        ended as f64 / self.levels.iter().sum::<u64>().max(1) as f64
    }

    /// The share that ended at the right server.
    pub(super) fn right(&self) -> f64 {
        1.0 - self.wrong as f64 / self.levels.iter().sum::<u64>().max(1) as f64
    }

    /// The share of queries past L1 that a group answered, taken together: P_l2 of equation (4), read as the
    /// group's.
    pub(super) fn group_rate(&self) -> f64 {
        let [recent, within] = [Level::Recent, Level::Group].map(|level| self.up_to(level));
        if recent < 1.0 { (within - recent) / (1.0 - recent) } else { 0.0 }
    }
}

/// See the module.
pub(super) struct Cluster {
    world: World<BloomServer>,
    files: Files,
    workload: Workload,
    popularity: Popularity,
    young: u64,
    /// Young files that machines were told of, by key: a directory is told of once.
    told: BTreeSet<FileKey>,
    asked: u64,
}

/// Nothing waits longer for an answer.
const ANSWER: Duration = Duration::from_secs(60);

impl Cluster {
    /// A cluster whose servers know each other's filters and have each answered so many queries before.
    pub(super) fn new(setting: &Setting, past: u64) -> Cluster {
        let (files, options) = (setting.files(), setting.options());
        let world = world_of(setting, &options);
        let mut rng = Seeded::new(setting.seed);
        let past_rng = rng.fork(1);
        let popularity = Popularity::new(setting.workload, files.active(), rng);
        let mut cluster = Cluster {
            world,
            files,
            workload: setting.workload,
            popularity,
            young: 0,
            told: BTreeSet::new(),
            asked: 0,
        };
        cluster.world.run_for(options.beat + options.beat / 2);
        cluster.remember(setting, past, past_rng);
        // One in forty is newer than some editions: about as many as are never published at once.
        (0..files.count / 40).for_each(|_| cluster.create());
        cluster.world.run_for(Duration::from_millis(10));
        cluster
    }

    /// What earlier queries taught: the message that ends each, without the way to it.
    fn remember(&mut self, setting: &Setting, past: u64, rng: Seeded) {
        let mut popularity = Popularity::new(setting.workload, self.files.active(), rng);
        if setting.options().recent.is_none() {
            return;
        }
        for server in (1..=self.files.servers).map(ServerId) {
            for _ in 0..past {
                let number = popularity.draw();
                let found = Message::Bloom(BloomMessage::Found(self.files.key(number)));
                self.world.tell(server, Event::Message(self.files.home(number), found));
            }
        }
    }

    fn create(&mut self) {
        let number = self.files.count + self.young;
        self.young += 1;
        if self.told.insert(self.files.key(number)) {
            self.world.store(self.files.home(number), self.files.key(number));
        }
    }

    /// The next operation.
    pub(super) fn operation(&mut self) -> Found {
        let workload = self.workload;
        if self.popularity.rng.chance(workload.created_per_mille, 1000) {
            self.create();
        }
        if self.young > 0 && self.popularity.rng.chance(workload.young_per_mille, 1000) {
            let young = self.popularity.rng.below(self.young);
            return self.find(self.files.count + young);
        }
        let number = self.popularity.draw();
        self.find(number)
    }

    fn find(&mut self, number: u64) -> Found {
        let (home, target) = (self.files.home(number), self.files.target(number));
        let before = self.counts(home);
        // The client goes round.
        let entry = ServerId(1 + (self.asked % u64::from(self.files.servers)) as u32);
        self.asked += 1;
        let id = QueryId(self.asked);
        self.world.ask(0, id, target);
        self.world.run_until_answered(ANSWER);
        let ending = self.world.ending(id);
        Found {
            level: level_of(before, self.counts(home)),
            entry,
            is_right: ending.is_some_and(|ending| ending.by == Ok(home)),
            network: ending.map_or(f64::INFINITY, |ending| ending.took.as_secs_f64() * 1e3),
        }
    }

    /// So many operations.
    pub(super) fn operations(&mut self, count: usize) -> Tally {
        let mut tally = Tally::default();
        (0..count).for_each(|_| tally.count(self.operation()));
        tally
    }

    /// The other members of a server's group.
    pub(super) fn peers(&self, server: ServerId) -> Vec<ServerId> {
        let shares = self.world.server(server).and_then(|machine| machine.shares());
        let members = shares.map_or([].as_slice(), |shares| shares.members());
        members.iter().copied().filter(|member| *member != server).collect()
    }

    /// Replicas of each server.
    pub(super) fn replicas(&self) -> BTreeMap<ServerId, usize> {
        let held =
            |server: ServerId| self.world.server(server).map_or(0, |machine| machine.replicas().count());
        self.world.servers().map(|server| (server, held(server))).collect()
    }

    fn counts(&self, server: ServerId) -> Counts {
        self.world.server(server).map(BloomServer::counts).unwrap_or_default()
    }
}

/// The machines with their files, and one client.
pub(super) fn world_of(setting: &Setting, options: &BloomOptions) -> World<BloomServer> {
    let files = setting.files();
    let one_way = Duration::from_secs_f64(Times::ONE_WAY / 1e3);
    let home = |target: &Target| Some(ServerId(target.position.0 as u32));
    let mut world = World::new(one_way, Box::new(home));
    let mut held: BTreeMap<ServerId, BTreeSet<_>> = BTreeMap::new();
    for number in 0..setting.filled() {
        held.entry(files.home(number)).or_default().insert(files.key(number));
    }
    let founding = in_bounds(Founding::of((1..=files.servers).map(ServerId), options.group_most));
    for server in (1..=files.servers).map(ServerId) {
        let keys = held.remove(&server).unwrap_or_default();
        let told = keys.iter().copied();
        let machine = BloomServer::founded_with(server, *options, &founding, Mono::ZERO, told);
        world.add_server(server, in_bounds(machine));
        keys.into_iter().for_each(|key| world.keep(server, key));
    }
    let servers = (1..=files.servers).map(ServerId);
    world.add_client(Box::new(BloomClient::new(Choice::RoundRobin, servers)));
    world
}

fn level_of(before: Counts, after: Counts) -> Level {
    if after.found_recent > before.found_recent {
        Level::Recent
    } else if after.found_segment > before.found_segment {
        Level::Segment
    } else if after.found_group > before.found_group {
        Level::Group
    } else if after.found_named > before.found_named {
        Level::Named
    } else {
        Level::All
    }
}

#[cfg(test)]
mod tests {
    use super::super::assumed::HP;
    use super::*;
    use crate::figures::effort::Effort;
    use crate::figures::ghba::where_found::{groups, tallies};

    const EFFORT: Effort = Effort { seeds: 2, queries: 300, seed: 4 };

    fn run(lookup: LookupKind, filters: Filters) -> Vec<Tally> {
        tallies(&Setting { lookup, ..groups(12, HP, filters, EFFORT) }, EFFORT)
    }

    #[test]
    fn a_seed_gives_the_same_levels_and_all_end_at_the_home() {
        for filters in [Filters::Published, Filters::ActiveOnly, Filters::Wide, Filters::Directories] {
            let tallies = run(LookupKind::BloomGroups, filters);
            assert_eq!(tallies, run(LookupKind::BloomGroups, filters));
            assert_ne!(tallies[0], tallies[1], "seeds differ");
            assert!(tallies.iter().all(|tally| tally.right() == 1.0 && tally.up_to(Level::All) == 1.0));
            let named = |tally: &Tally| tally.up_to(Level::Named) - tally.up_to(Level::Group);
            assert_eq!(named(&tallies[0]) > 0.0, filters == Filters::Directories, "{tallies:?}");
        }
    }

    #[test]
    fn emptier_filters_and_wider_ones_find_more_in_the_group_which_hba_has_not() {
        let [published, active, wide] =
            [Filters::Published, Filters::ActiveOnly, Filters::Wide].map(|filters| {
                let tallies = run(LookupKind::BloomGroups, filters);
                tallies[0].group_rate()
            });
        assert!(published < wide && published < active, "{published} {active} {wide}");
        let alone = run(LookupKind::BloomLevels, Filters::Published);
        assert_eq!(alone[0].up_to(Level::Segment), alone[0].up_to(Level::Group));
        assert!(alone[0].up_to(Level::Recent) > 0.1, "{alone:?}");
        let array = run(LookupKind::BloomArray8, Filters::Published);
        assert_eq!(array[0].up_to(Level::Recent), 0.0);
    }
}
