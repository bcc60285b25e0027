//! When all has been looked at: servers are killed, kept away, and started behind a slow coordinator, one at
//! a time and with nothing else wrong, and it is timed how long that is felt. Each limit is one that a
//! promise states.

use crate::audit::Audit;
use crate::clock::{MILLISECOND, SECOND};
use crate::cluster::METADATA;
use crate::complaint::Promise;
use crate::network::HostId;
use crate::sim::{Sim, index_of};
use bearing_client::{Answer, Operation};
use bearing_proto::client::{AttributeChange, Handle, NewNode};
use bearing_types::{Block, Credentials, Epoch, FileType, Mode, Name};
use std::collections::{BTreeMap, BTreeSet};

/// Longer than any lease lives and the horizon names it.
const QUIET: u64 = 10 * SECOND;
/// A server is down for so long when it is killed and started again.
const RESTART: u64 = 200 * MILLISECOND;
/// A change goes through so long after its server is back, when nobody holds a lease.
const BACK_WITHIN: u64 = 500 * MILLISECOND;
/// Changes go through so long after all servers are back, when those who held leases ended their sessions:
/// they are found out when they do not answer.
const FREE_WITHIN: u64 = 1_000 * MILLISECOND;
/// How late the coordinator answers.
const LATE: u64 = 1_000 * MILLISECOND;
/// How long a server stays away.
const AWAY: u64 = 45 * SECOND;
/// Whoever does not need it is served within this time.
const UNHINDERED: u64 = SECOND;
/// A client looks so often at what it is to hold long leases on, with such pauses: a lease is longer the more
/// often it was asked for without ever being over for long.
const LOOKS: usize = 320;
const LOOK_EVERY: u64 = 20 * MILLISECOND;
/// Questions of each client that need a server that is away.
const QUESTIONS: usize = 30;
/// Files of which some lie with every server.
const FILES: usize = 24;

impl Audit {
    /// See the module.
    pub fn drill(&self, sim: &mut Sim) {
        if !sim.ledger.complaints.is_empty() {
            return;
        }
        sim.recorder.closed = true;
        let Some(files) = self.files(sim) else { return };
        for host in sim.hosts.metadata() {
            if let Some(file) = file_at(sim, &files, host) {
                self.kill(sim, host, file);
            }
        }
        self.cut_after_the_end(sim, &files);
        self.leave(sim);
        self.start_late(sim);
        self.stay_away(sim, &files);
        sim.run_for(QUIET);
    }

    fn files(&self, sim: &mut Sim) -> Option<Vec<Handle>> {
        let root = self.root_handle()?;
        let mut files = Vec::new();
        for number in 0..FILES {
            let name = Name::new(format!("drill-{number}").as_bytes()).expect("a plain name");
            let new = NewNode {
                file_type: FileType::Regular,
                mode: Mode::new(0o644),
                device: 0,
                target: Vec::new(),
            };
            let who = Credentials::ROOT;
            let make = Operation::Create { directory: root, name, who, new, open: false };
            let Some(Answer::Found(found)) = self.must(sim, make) else { return None };
            files.push(found.node);
        }
        Some(files)
    }

    /// A server is killed and started again: whoever wants a change there gets it as soon as it is back, and
    /// it takes nothing over from those that were up all the while.
    fn kill(&self, sim: &mut Sim, host: HostId, file: Handle) {
        sim.run_for(QUIET);
        let others: Vec<HostId> = sim.hosts.metadata().filter(|other| *other != host).collect();
        let before: Vec<_> = others.iter().map(|other| blocks(sim, *other)).collect();
        sim.crash(host);
        let (ticket, begun) = (sim.begin(chmod(file)), sim.world.now().0);
        sim.run_for(RESTART);
        sim.start(host);
        let took = self.time(sim, ticket, begun);
        sim.world.counts.add("drill: a server is killed and started again");
        let what = format!("{host:?} was down for {} ms, and a change there", RESTART / MILLISECOND);
        blame_if_late(sim, took, RESTART + BACK_WITHIN, &what);
        for (other, had) in others.iter().zip(before) {
            let lost: Vec<Block> = had.difference(&blocks(sim, *other)).copied().collect();
            if !lost.is_empty() {
                let what = format!("{host:?} was started again, and {other:?} lost {lost:?} meanwhile");
                sim.ledger.blame(&sim.world, Promise::InTime, what);
            }
        }
    }

    /// A client ends its session and all servers lose power at that moment: once they are back, nobody waits
    /// for leases that it had.
    fn cut_after_the_end(&self, sim: &mut Sim, files: &[Handle]) {
        sim.run_for(QUIET);
        let last = sim.clients.len() - 1;
        for _ in 0..LOOKS {
            for file in files {
                sim.begin_at(last, Operation::Attributes { node: *file, file_type: FileType::Regular });
            }
            sim.run_for(LOOK_EVERY);
        }
        sim.begin_at(last, Operation::End);
        let end = sim.world.now().0 + QUIET;
        sim.run_until(end, |sim| !sim.clients[last].is_running());
        let servers: Vec<HostId> = sim.hosts.metadata().collect();
        servers.iter().for_each(|host| sim.crash(*host));
        let begun = sim.world.now().0;
        let tickets = files.iter().map(|file| sim.begin(chmod(*file))).collect();
        sim.run_for(RESTART);
        servers.iter().for_each(|host| sim.start(*host));
        let took = self.time_all(sim, tickets, begun);
        sim.world.counts.add("drill: all servers lose power as a client ends its session");
        let what = format!(
            "a client ended its session, then all were down for {} ms, and changes",
            RESTART / MILLISECOND
        );
        blame_if_late(sim, took, RESTART + FREE_WITHIN, &what);
    }

    /// A server is started while the coordinator is slow: it serves its tablets all the same, under one new
    /// epoch.
    fn start_late(&self, sim: &mut Sim) {
        let Some(host) = sim.hosts.metadata().find(|host| !serving(sim, *host).is_empty()) else { return };
        let before = serving(sim, host);
        sim.coordinator.takes = LATE;
        sim.crash(host);
        sim.start(host);
        // One answer after the other. That to the list and that to the swap; and every server may list what
        // changed, and ask for what it takes over of the silent one or goes on with without it, twice.
        let answers = 2 + 2 * u64::from(METADATA);
        sim.run_for(answers * LATE + BACK_WITHIN);
        let after = match sim.world.copies {
            1 => serving(sim, host),
            // Another member may have been faster.
            _ => sim.hosts.metadata().flat_map(|host| serving(sim, host)).collect(),
        };
        sim.coordinator.takes = 0;
        sim.world.counts.add("drill: a server is started while the coordinator is slow");
        let once = before.iter().all(|(block, epoch)| match sim.world.copies {
            1 => after.get(block) == Some(&epoch.next()),
            _ => after.get(block).is_some_and(|after| after > epoch),
        });
        if !once && sim.ledger.complaints.is_empty() {
            let what =
                format!("{host:?} served {before:?}; started with a slow coordinator it serves {after:?}");
            sim.ledger.blame(&sim.world, Promise::InTime, what);
        }
        sim.run_for(2 * LATE);
    }

    /// A server stays away. All others ask for what it is needed for; who does not need it is served as ever.
    fn stay_away(&self, sim: &mut Sim, files: &[Handle]) {
        let Some(root) = self.root_handle() else { return };
        let owner = |sim: &Sim, handle: Handle| {
            sim.hosts
                .metadata()
                .find(|host| serving(sim, *host).keys().any(|block| block.contains(handle.home)))
        };
        let Some(asked) = owner(sim, root) else { return };
        let away = sim.hosts.metadata().filter(|host| *host != asked);
        let away: Vec<HostId> = away.filter(|host| file_at(sim, files, *host).is_some()).collect();
        let (Some(away), Some(near)) = (away.first().copied(), file_at(sim, files, asked)) else { return };
        sim.crash(away);
        let attributes = Operation::Attributes { node: root, file_type: FileType::Directory };
        for client in 1..sim.clients.len() {
            (0..QUESTIONS).for_each(|_| sim.begin_at(client, attributes.clone()));
        }
        for _ in 0..3 {
            sim.run_for(AWAY / 3);
            let (ticket, begun) = (sim.begin(chmod(near)), sim.world.now().0);
            let took = self.time(sim, ticket, begun);
            sim.world.counts.add("drill: a server stays away");
            blame_if_late(sim, took, UNHINDERED, &format!("{away:?} is away, and a change at {asked:?}"));
        }
        sim.start(away);
    }
}

fn blame_if_late(sim: &mut Sim, took: u64, limit: u64, what: &str) {
    if took > limit {
        let what = format!("{what} took {} ms, {} at most", took / MILLISECOND, limit / MILLISECOND);
        sim.ledger.blame(&sim.world, Promise::InTime, what);
    }
}

fn serving(sim: &Sim, host: HostId) -> BTreeMap<Block, Epoch> {
    sim.metadata[index_of(host, 1)].serving().into_iter().collect()
}

fn blocks(sim: &Sim, host: HostId) -> BTreeSet<Block> {
    serving(sim, host).into_keys().collect()
}

fn file_at(sim: &Sim, files: &[Handle], host: HostId) -> Option<Handle> {
    let blocks = serving(sim, host);
    files.iter().copied().find(|file| blocks.keys().any(|block| block.contains(file.home)))
}

fn chmod(node: Handle) -> Operation {
    let change = AttributeChange { mode: Some(Mode::new(0o600)), ..AttributeChange::default() };
    let (file_type, who) = (FileType::Regular, Credentials::ROOT);
    Operation::SetAttributes { node, file_type, who, change, file: None }
}
