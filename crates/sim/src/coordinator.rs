//! The coordinator's host: registers in memory behind messages. A crash only makes it unreachable for a
//! while.

use crate::cluster::{COORDINATOR, COORDINATOR_HOST, Hosts};
use crate::network::{HostId, Way};
use crate::post::Post;
use crate::world::{Happening, World};
use bearing_placement::Tablet;
use bearing_proto::coordinator::{Ask, AskCall, Registrar, TABLET_PREFIX, TellBody, decode_register};
use bearing_proto::disk::{DISK_PREFIX, disk_key};
use bearing_proto::{Message, Sender};
use bearing_seams::{Changes, Coordinator, MemCoordinator, RegisterChange, Swap};
use bearing_types::ServerId;
use std::collections::{BTreeMap, VecDeque};

/// So many copies of the registers are kept.
const COPIES_KEPT: usize = 40;

/// See the module.
pub struct CoordinatorHost {
    registers: MemCoordinator,
    registrar: Registrar,
    /// Copies of the registers, each made after a swap.
    kept: VecDeque<MemCoordinator>,
    /// What is to be put back in the place of an older copy.
    newest: Option<MemCoordinator>,
    post: Post,
    hosts: Hosts,
    /// Its answers are late by so much, in nanoseconds; or every other one is lost.
    pub late: u64,
    /// See there.
    pub loses: bool,
    on_way: BTreeMap<u64, (HostId, Sender, Message)>,
    answers: u64,
    /// Registers of tablets are told up to this version.
    told: u64,
}

impl CoordinatorHost {
    /// A coordinator that holds these registers.
    pub fn new(hosts: Hosts, registers: MemCoordinator) -> CoordinatorHost {
        let post = Post::new(COORDINATOR_HOST, Sender::Server(COORDINATOR));
        CoordinatorHost {
            registers,
            registrar: Registrar::default(),
            kept: VecDeque::new(),
            newest: None,
            post,
            hosts,
            late: 0,
            loses: false,
            on_way: BTreeMap::new(),
            answers: 0,
            told: 0,
        }
    }

    /// A packet arrived.
    pub fn arrive(&mut self, world: &mut World, _from: HostId, way: Way, bytes: &[u8]) {
        let Some(packet) = self.post.open(world, way, bytes) else { return };
        let Sender::Server(asker) = packet.sender else { return };
        let Some(to) = self.hosts.host_of(asker) else { return };
        for message in packet.messages {
            let Message::Ask(ask) = message else { continue };
            if matches!(ask.call, AskCall::Swap { .. }) {
                world.counts.add("coordinator: swaps");
            }
            let told = self.registrar.answer(&mut self.registers, asker, ask);
            if matches!(told.result, Ok(TellBody::Swapped(_))) {
                self.kept.push_back(self.registers.clone());
                self.kept.drain(..self.kept.len().saturating_sub(COPIES_KEPT));
            }
            if matches!(told.result, Ok(TellBody::Conflict { .. })) {
                world.counts.add("coordinator: swaps that met another's");
            }
            let told = Message::Told(told);
            self.answers += 1;
            if self.loses && self.answers.is_multiple_of(2) {
                world.counts.add("fault: an answer of the coordinator is lost");
            } else if self.late > 0 {
                world.counts.add("fault: an answer of the coordinator is late");
                self.on_way.insert(self.answers, (to, packet.sender, told));
                let life = world.life(COORDINATOR_HOST);
                world.after(self.late, Happening::Done(COORDINATOR_HOST, life, self.answers));
            } else {
                self.post.send(world, to, packet.sender, Way::Datagram, &told, &[]);
            }
        }
        self.post.flush(world);
    }

    /// Somebody puts an older copy of the registers back, and starts the coordinator. Whether there was one:
    /// of a time when servers had the same disks, or they would refuse those.
    pub fn put_older_back(&mut self, number: u64) -> bool {
        let listed = |registers: &mut MemCoordinator, prefix| {
            registers.changes(prefix, 0).expect("registers in memory are listed")
        };
        let disks = listed(&mut self.registers, DISK_PREFIX).found;
        let last = listed(&mut self.registers, DISK_PREFIX).version;
        let older = self.kept.iter_mut().filter_map(|copy| {
            let Changes { version, found, .. } = listed(copy, DISK_PREFIX);
            (found == disks && version < last).then_some(&*copy)
        });
        let older: Vec<&MemCoordinator> = older.collect();
        if self.newest.is_some() || older.is_empty() {
            return false;
        }
        let older = older[number as usize % older.len()].clone();
        self.newest = Some(std::mem::replace(&mut self.registers, older));
        self.begin();
        true
    }

    /// And the newest again.
    pub fn put_newest_back(&mut self) -> bool {
        let Some(newest) = self.newest.take() else { return false };
        self.registers = newest;
        self.begin();
        true
    }

    /// The coordinator starts. Servers that know newer registers than it has are the first to ask it: until
    /// one of them has, it takes older ones for the newest.
    pub fn begin(&mut self) {
        self.registrar = Registrar::default();
        self.on_way.clear();
        if let Some(newest) = &mut self.newest {
            let since = newest.changes("", 0).expect("registers in memory are read").version;
            let ask = Ask { id: 0, call: AskCall::Changes { prefix: String::new(), since } };
            self.registrar.answer(&mut self.registers, COORDINATOR, ask);
        }
    }

    /// Tablets whose registers have changed since this was asked last.
    pub fn news(&mut self) -> Vec<Tablet> {
        if self.newest.is_some() {
            return Vec::new();
        }
        let changes = self.registers.changes(TABLET_PREFIX, self.told).expect("registers in memory are read");
        self.told = changes.version;
        changes.found.present.iter().filter_map(|entry| decode_register(&entry.value).ok()).collect()
    }

    /// The tablets that are registered as a server's, and under which epochs.
    pub fn tablets_of(&mut self, server: ServerId) -> Vec<Tablet> {
        self.tablets().into_iter().filter(|tablet| tablet.members.contains(&server)).collect()
    }

    /// Whether a tablet's register names a server.
    pub fn names(&mut self, server: ServerId) -> bool {
        let named = |tablet: &Tablet| tablet.members.contains(&server) || tablet.learner == Some(server);
        self.tablets().iter().any(named)
    }

    fn tablets(&mut self) -> Vec<Tablet> {
        let registers = self.newest.as_mut().unwrap_or(&mut self.registers);
        let changes = registers.changes(TABLET_PREFIX, 0).expect("registers in memory are listed");
        changes.found.present.iter().filter_map(|entry| decode_register(&entry.value).ok()).collect()
    }

    /// Whether a server's disk is registered.
    pub fn has_disk(&mut self, server: ServerId) -> bool {
        self.registers.read(&disk_key(server)).is_ok_and(|entry| entry.is_some())
    }

    /// The disk of a server is not registered any more: the next one is taken.
    pub fn forget_disk(&mut self, server: ServerId) {
        let key = disk_key(server);
        if let Ok(Some(entry)) = self.registers.read(&key) {
            let gone = self.registers.swap(&[RegisterChange::new(key, Some(entry.version), None)]);
            assert!(matches!(gone, Ok(Swap::Done(_))), "nobody else writes meanwhile");
        }
    }

    /// An answer that was held back leaves.
    pub fn done(&mut self, world: &mut World, number: u64) {
        let Some((to, receiver, told)) = self.on_way.remove(&number) else { return };
        self.post.send(world, to, receiver, Way::Datagram, &told, &[]);
        self.post.flush(world);
    }
}
