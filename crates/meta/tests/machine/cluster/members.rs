//! What tests of copies ask.

use super::{Cluster, Host};
use bearing_meta::{Config, Event, Note};
use bearing_placement::Scheme;
use bearing_proto::client::{Answer, Call, Request};
use bearing_proto::coordinator::{DrainRecord, decode_register, drain_key, encode_register, tablet_key};
use bearing_proto::questions::Unanswered;
use bearing_proto::registrar::Registrar;
use bearing_proto::tablets::Digest;
use bearing_seams::{Coordinator, DiskLabel, MemCoordinator, MemStore, MemTabletLog, RegisterChange};
use bearing_types::{Block, Epoch, LogIndex, Position, Sequence, ServerId, SessionId, TabletSerial, Wall};
use std::collections::BTreeMap;
use std::time::Duration;

/// As an end of what is cut.
pub const COORDINATOR: ServerId = ServerId(0);

/// Tablets stay where the test has them: nothing is evened out.
pub fn still() -> Config {
    Config { balance_delay: Duration::from_secs(86_400), ..Config::standard() }
}

impl Cluster {
    /// A cluster with so many copies of each tablet.
    pub fn with_copies(servers: u32, copies: u8) -> Cluster {
        Cluster::made(servers, Scheme::AnglecutHashed, still(), &super::DATA, copies)
    }

    /// The same, where tablets are evened out.
    pub fn evened(servers: u32, copies: u8) -> Cluster {
        Cluster::made(servers, Scheme::AnglecutHashed, Config::standard(), &super::DATA, copies)
    }

    /// The coordinator's registers, as they are now.
    pub fn registers(&self) -> MemCoordinator {
        self.coordinator.clone()
    }

    /// Somebody puts them back, and starts the coordinator. What there was.
    pub fn put_back(&mut self, registers: MemCoordinator) -> MemCoordinator {
        (self.registrar, self.unanswered) = (Registrar::default(), Unanswered::default());
        self.late_told.clear();
        std::mem::replace(&mut self.coordinator, registers)
    }

    /// Kills a server. What it has logged is given back, to start it again with.
    pub fn kill(&mut self, id: ServerId) -> MemTabletLog {
        self.events.retain(|(to, _)| *to != id);
        self.hosts.remove(&id).unwrap().log
    }

    /// Starts a server again from what it has logged. Other than after [`Cluster::restart`] no time has
    /// passed then.
    pub fn revive(&mut self, id: ServerId, mut log: MemTabletLog) {
        let mut store = MemStore::new();
        log.disk().unwrap().into_iter().for_each(|disk| store.set_disk(disk).unwrap());
        self.start(id, store, log);
    }

    /// Who serves the tablets, and under which epochs.
    pub fn owners(&self) -> BTreeMap<Position, (ServerId, Epoch)> {
        let serving = |(id, host): (&ServerId, &Host)| {
            let tablets = host.machine.serving().map(|(block, epoch)| (block.start(), (*id, epoch)));
            tablets.collect::<Vec<_>>()
        };
        self.hosts.iter().flat_map(serving).collect()
    }

    /// An operator has a server leave, or stay.
    pub fn drain(&mut self, server: ServerId, leaves: bool) {
        let there = self.coordinator.read(&drain_key(server)).unwrap().map(|entry| entry.version);
        let record = DrainRecord { server, since: Wall(0), removed: None };
        let value = leaves.then(|| encode_register(&record));
        self.coordinator.swap(&[RegisterChange::new(drain_key(server), there, value)]).unwrap();
        self.tell_news();
    }

    /// How many tablets a server owns, and of how many it has a copy, by their registers.
    pub fn has(&mut self, server: ServerId) -> (usize, usize) {
        let blocks: Vec<Block> = (0..16).map(|place| Block::RING.sub_block(4, place)).collect();
        let tablets: Vec<_> = blocks.into_iter().map(|block| self.register(block)).collect();
        let owned = tablets.iter().filter(|tablet| tablet.owner == server).count();
        (owned, tablets.iter().filter(|tablet| tablet.members.contains(&server)).count())
    }

    /// How many messages between servers are held.
    pub fn peers_held(&self) -> usize {
        self.held_peers.len()
    }

    /// Sends a call once; whether it is done a second later.
    pub fn is_done_in_time(&mut self, session: SessionId, position: Position, call: Call) -> bool {
        self.next_sequence += 1;
        let sequence = Sequence(self.next_sequence);
        let (server, _, epoch) = self.owner(position);
        let request = Request { sequence, finished_below: sequence, position, epoch, call };
        self.send(server, Event::Request(session, self.squash, request));
        self.pass(Duration::from_secs(1));
        matches!(self.answer(session, sequence), Some(Answer::Done { result: Ok(_), .. }))
    }

    /// What the coordinator has of the tablet at a position.
    pub fn register_of(&mut self, position: Position) -> bearing_placement::Tablet {
        let (_, block, _) = self.owner(position);
        self.register(block)
    }

    /// And of one that nobody serves, perhaps.
    pub fn register(&mut self, block: Block) -> bearing_placement::Tablet {
        let entry = self.coordinator.read(&tablet_key(block)).unwrap().expect("each tablet has a register");
        decode_register(&entry.value).unwrap()
    }
}

/// What a tablet's store has, as of an entry.
pub fn digested(host: &mut Host, tablet: TabletSerial, index: LogIndex) -> Event {
    let digest = bearing_meta::compared_pairs(&mut host.store, tablet).and_then(Digest::of);
    Event::Digested(tablet, index, digest)
}

/// Whether a server says that something is wrong.
pub fn is_complaint(note: &Note) -> bool {
    use Note::{Damaged, DamagedStore, Failed, Unreadable, WrongDisk};
    matches!(note, Failed(_) | Unreadable(_) | DamagedStore(_) | Damaged(_) | WrongDisk(_))
}
