//! The coordinator's host: registers in memory behind messages. A crash only makes it unreachable for a
//! while.

use crate::cluster::{COORDINATOR, COORDINATOR_HOST, Hosts};
use crate::network::{HostId, Way};
use crate::post::Post;
use crate::world::{Happening, World};
use bearing_placement::Tablet;
use bearing_proto::client::FilesystemRecord;
use bearing_proto::coordinator::{
    Ask, AskCall, FILESYSTEM_KEY, TABLET_PREFIX, TellBody, Told, decode_register,
};
use bearing_proto::disk::{DISK_PREFIX, disk_key};
use bearing_proto::questions::{Questions, Work};
use bearing_proto::registrar::Registrar;
use bearing_proto::{Message, Sender};
use bearing_seams::{Changes, Coordinator, MemCoordinator, RegisterChange, Swap};
use bearing_types::ServerId;
use std::collections::VecDeque;

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
    /// Each question takes it so long, in nanoseconds, one after the other.
    pub takes: u64,
    /// Every other answer is lost.
    pub loses: bool,
    questions: Questions,
    /// What is worked on, and the number of the step at which it is done.
    working: Option<(u64, Work)>,
    steps: u64,
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
            takes: 0,
            loses: false,
            questions: Questions::default(),
            working: None,
            steps: 0,
            answers: 0,
            told: 0,
        }
    }

    /// A packet arrived.
    pub fn arrive(&mut self, world: &mut World, _from: HostId, way: Way, bytes: &[u8]) {
        let Some(packet) = self.post.open(world, way, bytes) else { return };
        let Sender::Server(asker) = packet.sender else { return };
        for message in packet.messages {
            let Message::Ask(ask) = message else { continue };
            if let Some(slow) = self.questions.take(asker, ask) {
                world.counts.add("coordinator: questions that it is at already");
                self.tell(world, asker, slow);
            }
        }
        self.work(world);
        self.post.flush(world);
    }

    /// One thing is worked on for a while, or all that there is to do is done.
    fn work(&mut self, world: &mut World) {
        while self.working.is_none()
            && let Some(work) = self.questions.begin()
        {
            if self.takes == 0 || self.registrar.only_waits(&work) {
                self.do_one(world, work);
                continue;
            }
            world.counts.add("fault: a question takes the coordinator long");
            self.steps += 1;
            self.working = Some((self.steps, work));
            let life = world.life(COORDINATOR_HOST);
            world.after(self.takes, Happening::Done(COORDINATOR_HOST, life, self.steps));
        }
    }

    fn do_one(&mut self, world: &mut World, work: Work) {
        let answers = match work {
            Work::News => self.registrar.news(&mut self.registers),
            Work::Answer(asker, ask) => self.answer(world, asker, ask).into_iter().collect(),
        };
        for (asker, told) in answers {
            self.questions.answered(asker, told.id);
            self.tell(world, asker, told);
        }
    }

    fn answer(&mut self, world: &mut World, asker: ServerId, ask: Ask) -> Option<(ServerId, Told)> {
        let more = self.questions.len();
        world.tell(|| format!("the coordinator answers {asker} {:?} and has {more} more", ask.call));
        if matches!(ask.call, AskCall::Swap { .. }) {
            world.counts.add("coordinator: swaps");
        }
        let told = self.registrar.answer(&mut self.registers, asker, ask);
        match told.as_ref().map(|told| &told.result) {
            Some(Ok(TellBody::Swapped(_))) => {
                self.kept.push_back(self.registers.clone());
                self.kept.drain(..self.kept.len().saturating_sub(COPIES_KEPT));
            }
            Some(Ok(TellBody::Conflict { .. })) => world.counts.add("coordinator: swaps that met another's"),
            _ => {}
        }
        told.map(|told| (asker, told))
    }

    fn tell(&mut self, world: &mut World, asker: ServerId, told: Told) {
        let Some(to) = self.hosts.host_of(asker) else { return };
        self.answers += 1;
        if self.loses && self.answers.is_multiple_of(2) {
            world.counts.add("fault: an answer of the coordinator is lost");
        } else {
            self.post.send(world, to, Sender::Server(asker), Way::Datagram, &Message::Told(told), &[]);
        }
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
        (self.registrar, self.questions) = (Registrar::default(), Questions::default());
        self.working = None;
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

    /// All tablets.
    pub fn tablets(&mut self) -> Vec<Tablet> {
        let registers = self.newest.as_mut().unwrap_or(&mut self.registers);
        let changes = registers.changes(TABLET_PREFIX, 0).expect("registers in memory are listed");
        changes.found.present.iter().filter_map(|entry| decode_register(&entry.value).ok()).collect()
    }

    /// The filesystem.
    pub fn filesystem(&mut self) -> FilesystemRecord {
        let entry = self.registers.read(FILESYSTEM_KEY).ok().flatten().expect("a cluster has one");
        decode_register(&entry.value).expect("as it was written")
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

    /// An operator changes registers. Whether they could be: not if older ones are in their place.
    pub fn change(&mut self, world: &mut World, wanted: &[(String, Option<Vec<u8>>)]) -> bool {
        if self.newest.is_some() || !world.is_up(COORDINATOR_HOST) {
            return false;
        }
        let mut changes = Vec::new();
        for (key, value) in wanted {
            let there = self.registers.read(key).expect("registers in memory are read");
            changes.push(RegisterChange::new(key, there.map(|entry| entry.version), value.clone()));
        }
        let ask = Ask { id: 0, call: AskCall::Swap { changes } };
        let told = self.registrar.answer(&mut self.registers, COORDINATOR, ask);
        let swapped = told.map(|told| told.result);
        assert!(matches!(swapped, Some(Ok(TellBody::Swapped(_)))), "nobody else writes meanwhile");
        self.questions.changed();
        self.work(world);
        self.post.flush(world);
        true
    }

    /// How many of the tablets have each server for their owner, and how many for a member.
    pub fn spread(&mut self, server: ServerId) -> (usize, usize) {
        let tablets = self.tablets();
        let owned = tablets.iter().filter(|tablet| tablet.owner == server).count();
        (owned, tablets.iter().filter(|tablet| tablet.members.contains(&server)).count())
    }

    /// A question was worked on for long enough.
    pub fn done(&mut self, world: &mut World, step: u64) {
        if let Some((_, work)) = self.working.take_if(|(working, _)| *working == step) {
            self.do_one(world, work);
            self.work(world);
            self.post.flush(world);
        }
    }
}
