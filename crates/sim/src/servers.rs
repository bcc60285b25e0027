//! Servers that come, leave and stay after all, and what has to be so of their tablets when nothing is wrong
//! any more.

use crate::audit::Audit;
use crate::clock::{MILLISECOND, SECOND};
use crate::cluster::{COPIES, Hosts, Role};
use crate::complaint::Promise;
use crate::nemesis::Nemesis;
use crate::network::HostId;
use crate::sim::{Sim, index_of};
use bearing_meta::ChunkRecord;
use bearing_placement::{Balance, Tablet};
use bearing_proto::coordinator::{DrainRecord, drain_key, encode_register, server_key};
use bearing_proto::disk::disk_key;
use bearing_types::{Block, ServerId, Wall};
use bearing_workload::Seeded;
use std::collections::BTreeSet;

/// When all tablets have all copies, they are even within this time, a pause of 5 s in it.
const EVEN_WITHIN: u64 = 5 * SECOND + 10 * SECOND;
/// A tablet is not served for so long at most when one server leaves it to another and nothing is wrong.
const HANDED_OVER_WITHIN: u64 = 50 * MILLISECOND;

/// See the module.
pub struct Servers {
    /// Those that are not there: to come yet, or removed.
    pub absent: BTreeSet<HostId>,
    draining: BTreeSet<HostId>,
    removed: BTreeSet<HostId>,
}

/// What can be done to a server.
#[derive(Clone, Copy, Debug)]
enum Change {
    Join,
    Drain,
    Stay,
    Remove,
}

impl Servers {
    /// One data server comes later, and in half of the runs a metadata server.
    pub fn draw(rng: &mut Seeded, hosts: Hosts) -> Servers {
        let later = hosts.metadata().last().filter(|_| rng.chance(1, 2));
        let (draining, removed) = (BTreeSet::new(), BTreeSet::new());
        Servers { absent: later.into_iter().chain(hosts.data().last()).collect(), draining, removed }
    }

    fn stays(&self, host: HostId) -> bool {
        !self.absent.contains(&host) && !self.draining.contains(&host)
    }
}

impl Sim {
    /// Metadata servers that tablets are for.
    fn active(&self) -> Vec<ServerId> {
        let staying = self.hosts.metadata().filter(|host| self.servers.stays(*host));
        staying.filter_map(|host| self.server_of(host)).collect()
    }

    /// Whether anything counts on a server: a tablet's register, or the record of a chunk that has a byte.
    fn counts_on(&mut self, host: HostId) -> bool {
        match self.hosts.role(host) {
            Role::Metadata(server) => self.coordinator.names(server),
            Role::Data(server) => {
                let (records, _) = self.chunk_records();
                let counts = |record: &ChunkRecord| {
                    record.servers.contains(&server) || record.pending_replica == Some(server)
                };
                records.values().any(|record| !record.deleting && record.sealed != Some(0) && counts(record))
            }
            Role::Coordinator | Role::Client(_) | Role::Flow => false,
        }
    }

    fn server_of(&self, host: HostId) -> Option<ServerId> {
        match self.hosts.role(host) {
            Role::Metadata(server) | Role::Data(server) => Some(server),
            Role::Coordinator | Role::Client(_) | Role::Flow => None,
        }
    }

    /// One of the changes that are possible now, drawn by this number.
    pub(crate) fn change_servers(&mut self, number: u64) {
        let spare = self.active().len() > usize::from(self.world.copies).max(2);
        let there =
            |host: &HostId| self.servers.stays(*host) && self.lost != Some(*host) && self.away != Some(*host);
        let spare_data = self.hosts.data().filter(there).count() > usize::from(COPIES);
        let mut possible: Vec<(HostId, Change)> = Vec::new();
        for host in self.hosts.metadata().chain(self.hosts.data()) {
            let spare = if let Role::Data(_) = self.hosts.role(host) { spare_data } else { spare };
            let (absent, draining) =
                (self.servers.absent.contains(&host), self.servers.draining.contains(&host));
            if absent && !self.servers.removed.contains(&host) {
                possible.push((host, Change::Join));
            }
            if !absent && !draining && spare {
                possible.push((host, Change::Drain));
            }
            if draining && self.lost != Some(host) {
                possible.push((host, Change::Stay));
                possible.extend((!self.counts_on(host)).then_some((host, Change::Remove)));
            }
        }
        let Some((host, change)) = possible.get(number as usize % possible.len().max(1)) else { return };
        self.change_server(*host, *change);
    }

    fn change_server(&mut self, host: HostId, change: Change) -> bool {
        let Some(entry) = self.hosts.entry(host) else { return false };
        let server = entry.server;
        let drained = |removed| DrainRecord { server, since: Wall(0), removed };
        let registers = match change {
            Change::Join => vec![(server_key(server), Some(encode_register(&entry)))],
            Change::Drain => vec![(drain_key(server), Some(encode_register(&drained(None))))],
            Change::Stay => vec![(drain_key(server), None)],
            Change::Remove => {
                let removed = encode_register(&drained(Some(Wall(0))));
                vec![(server_key(server), None), (disk_key(server), None), (drain_key(server), Some(removed))]
            }
        };
        if !self.coordinator.change(&mut self.world, &registers) {
            return false;
        }
        self.world.tell(|| format!("{host:?}: {change:?}"));
        let servers = &mut self.servers;
        let name = match change {
            Change::Join => {
                servers.absent.remove(&host);
                "a server joins"
            }
            Change::Drain => {
                servers.draining.insert(host);
                "a server leaves"
            }
            Change::Stay => {
                servers.draining.remove(&host);
                "a server stays after all"
            }
            Change::Remove => {
                servers.draining.remove(&host);
                servers.removed.insert(host);
                servers.absent.insert(host);
                "a server is removed"
            }
        };
        let kind = if let Role::Data(_) = self.hosts.role(host) { "data: " } else { "" };
        self.world.counts.add(&format!("fault: {kind}{name}"));
        match change {
            Change::Join => self.start(host),
            Change::Remove => self.crash(host),
            Change::Drain | Change::Stay => {}
        }
        true
    }

    /// A tablet shall be another server's.
    pub(crate) fn move_tablet(&mut self, number: u64, to: ServerId) {
        let tablets: Vec<Block> = self.ledger.tablets().collect();
        let Some(tablet) = Nemesis::tablet(number, &tablets) else { return };
        let Some(owner) = self.ledger.owner_of(tablet) else { return };
        if self.world.is_up(owner) && !self.world.is_frozen(owner) {
            let Sim { world, ledger, metadata, .. } = self;
            metadata[index_of(owner, 1)].move_tablet(world, ledger, tablet, to);
        }
    }

    /// Nothing is wrong any more: a while later who leaves has nothing, and the others have as much one as
    /// another.
    pub(crate) fn expect_evenness(&mut self) {
        let end = self.world.now().0 + EVEN_WITHIN;
        self.run_until(end, |sim| sim.unevenness().is_none());
        if let Some(what) = self.unevenness().filter(|_| self.ledger.complaints.is_empty()) {
            let what = format!("{} s after all copies were there {what}", EVEN_WITHIN / SECOND);
            self.ledger.blame(&self.world, Promise::Even, what);
        }
    }

    /// Data servers that leave, or left, and that something counts on.
    pub(crate) fn leaving_data(&mut self) -> Vec<HostId> {
        let leaving: Vec<HostId> = self.hosts.data().filter(|host| !self.servers.stays(*host)).collect();
        leaving.into_iter().filter(|host| self.counts_on(*host)).collect()
    }

    fn unevenness(&mut self) -> Option<String> {
        let leaving: Vec<HostId> = self.hosts.metadata().filter(|host| !self.servers.stays(*host)).collect();
        for host in leaving {
            if self.counts_on(host) {
                return Some(format!("{host:?} leaves, and something counts on it still"));
            }
        }
        let mut spread = Vec::new();
        for server in self.active() {
            spread.push((server, self.coordinator.spread(server)));
        }
        // Not only are counts even: nothing more is about to move.
        let (tablets, copies) = (self.coordinator.tablets(), usize::from(self.world.copies));
        let balance = Balance::new(tablets.iter(), self.active());
        let settled = |tablet: &&Tablet| {
            let others = tablet.members.iter().copied().filter(|member| *member != tablet.owner);
            let kept: BTreeSet<ServerId> = balance.copies_of(tablet.owner, copies).into_iter().collect();
            tablet.learner.is_none() && others.collect::<BTreeSet<ServerId>>() == kept
        };
        if balance.moves().next().is_some() || !tablets.iter().all(|tablet| settled(&tablet)) {
            return Some(format!("tablets are on their way: {spread:?}"));
        }
        let is_even =
            |counts: Vec<usize>| counts.iter().max().unwrap_or(&0) - counts.iter().min().unwrap_or(&0) <= 1;
        let owned = spread.iter().map(|(_, (owned, _))| *owned).collect();
        let held = spread.iter().map(|(_, (_, held))| *held).collect();
        (!is_even(owned) || !is_even(held)).then(|| format!("tablets are spread so: {spread:?}"))
    }
}

impl Audit {
    /// A server leaves and comes back while nothing is wrong: each of its tablets is not served for a moment.
    pub(crate) fn leave(&self, sim: &mut Sim) {
        if sim.active().len() <= usize::from(sim.world.copies).max(2) || !sim.ledger.complaints.is_empty() {
            return;
        }
        let active = sim.active();
        let Some(host) = active.first().and_then(|server| sim.hosts.host_of(*server)) else { return };
        sim.ledger.handed_over.clear();
        for change in [Change::Drain, Change::Stay] {
            sim.change_server(host, change);
            sim.world.counts.add("drill: a server leaves and comes back");
            // What is shown has to be of these changes alone.
            sim.expect_evenness();
        }
        // Who changed registers hears of it a moment later.
        sim.run_for(SECOND);
        let handed_over = std::mem::take(&mut sim.ledger.handed_over);
        sim.world.counts.add_many("drill: tablets handed over", handed_over.len() as u64);
        let longest = handed_over.into_iter().max_by_key(|(_, length)| *length);
        let Some((tablet, length)) = longest else { return };
        sim.world.tell(|| format!("the longest hand-over took {} us, of {tablet}", length / 1000));
        if length > HANDED_OVER_WITHIN && sim.ledger.complaints.is_empty() {
            let what = format!(
                "{tablet} was left to another server, and not served for {} us, though nothing was wrong",
                length / 1000
            );
            sim.ledger.blame(&sim.world, Promise::InTime, what);
        }
    }
}
