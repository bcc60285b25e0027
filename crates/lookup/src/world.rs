//! A cluster of lookup machines in one thread and virtual time: what the conformance suite, the tests and
//! later the lab drive them with.
//!
//! Invariants: one seed and one order of calls give one run; a server that vanished answers nothing, and
//! whoever sends to it learns that it cannot be reached; only the truth decides whether a server that wants
//! to serve a query may.

use crate::machine::{Command, Event, Machine};
use crate::query::{FileKey, LookupError, Query, QueryId, Target};
use bearing_types::{Mono, Position, ServerId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How a query ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The server that decided it, or why none did.
    pub by: Result<ServerId, LookupError>,
    /// How often it was passed on.
    pub hops: u8,
    /// How long it took.
    pub took: Duration,
}

/// Who decides a target, if anybody does.
pub type Truth = Box<dyn Fn(&Target) -> Option<ServerId>>;
/// Where the network carries a position.
pub type Network = Box<dyn Fn(Position) -> Option<ServerId>>;

/// See the module.
pub struct World<S = Box<dyn Machine>> {
    now: Mono,
    latency: Duration,
    serial: u64,
    queue: BTreeMap<(Mono, u64), (Party, Event)>,
    servers: BTreeMap<ServerId, S>,
    clients: Vec<Box<dyn Machine>>,
    wakes: BTreeMap<ServerId, Mono>,
    /// The same in the order of time.
    due: BTreeSet<(Mono, ServerId)>,
    truth: Truth,
    network: Network,
    stored: BTreeMap<ServerId, BTreeSet<FileKey>>,
    asked: BTreeMap<QueryId, (usize, Mono)>,
    endings: BTreeMap<QueryId, Ending>,
    messages: u64,
    /// How many queries each server was sent by clients.
    first_asked: BTreeMap<ServerId, u64>,
    /// How many queries servers sent to servers that are not there.
    missed: u64,
    /// Of 1,000 messages between servers so many are lost.
    loss_per_mille: u64,
    draws: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Party {
    Client(usize),
    Server(ServerId),
}

impl<S: Machine> World<S> {
    /// A world without anybody in it, where everything sent takes so long.
    pub fn new(latency: Duration, truth: Truth) -> World<S> {
        World {
            now: Mono::ZERO,
            latency,
            serial: 0,
            queue: BTreeMap::new(),
            servers: BTreeMap::new(),
            clients: Vec::new(),
            wakes: BTreeMap::new(),
            due: BTreeSet::new(),
            truth,
            network: Box::new(|_| None),
            stored: BTreeMap::new(),
            asked: BTreeMap::new(),
            endings: BTreeMap::new(),
            messages: 0,
            first_asked: BTreeMap::new(),
            missed: 0,
            loss_per_mille: 0,
            draws: 0,
        }
    }

    /// From now on somebody else decides.
    pub fn set_truth(&mut self, truth: Truth) {
        self.truth = truth;
    }

    /// From now on the network carries positions so.
    pub fn set_network(&mut self, network: Network) {
        self.network = network;
    }

    /// From now on so many of 1,000 messages between servers are lost, drawn from a seed. Queries are not:
    /// whoever sends them sends them again.
    pub fn lose(&mut self, per_mille: u64, seed: u64) {
        (self.loss_per_mille, self.draws) = (per_mille, seed);
    }

    /// Adds a client. Clients are numbered from 0.
    pub fn add_client(&mut self, machine: Box<dyn Machine>) {
        self.clients.push(machine);
    }

    /// Adds a server; its machine is told nothing.
    pub fn add_server(&mut self, server: ServerId, machine: S) {
        self.servers.insert(server, machine);
        self.stored.entry(server).or_default();
        self.note_wake(server);
    }

    /// A server's store has a file that its machine was made with: it is not told.
    pub fn keep(&mut self, server: ServerId, file: FileKey) {
        self.stored.entry(server).or_default().insert(file);
    }

    /// A server vanishes without a word.
    pub fn vanish(&mut self, server: ServerId) -> Option<S> {
        self.set_wake(server, None);
        self.servers.remove(&server)
    }

    /// The servers that are there.
    pub fn servers(&self) -> impl Iterator<Item = ServerId> + '_ {
        self.servers.keys().copied()
    }

    /// What happens to a server, as from its host.
    pub fn tell(&mut self, server: ServerId, event: Event) {
        self.step(Party::Server(server), event);
    }

    /// What happens to all clients, as from their hosts.
    pub fn tell_clients(&mut self, event: &Event) {
        (0..self.clients.len()).for_each(|client| self.step(Party::Client(client), event.clone()));
    }

    /// A file is stored on a server, and its machine told.
    pub fn store(&mut self, server: ServerId, file: FileKey) {
        self.stored.entry(server).or_default().insert(file);
        self.step(Party::Server(server), Event::Stored(file));
    }

    /// A file is removed from a server, and its machine told.
    pub fn unstore(&mut self, server: ServerId, file: FileKey) {
        self.stored.entry(server).or_default().remove(&file);
        self.step(Party::Server(server), Event::Removed(file));
    }

    /// Where a file is, if a server that is there has it.
    pub fn holder(&self, file: FileKey) -> Option<ServerId> {
        let holds = |server: &ServerId| self.stored.get(server).is_some_and(|files| files.contains(&file));
        self.servers.keys().copied().find(holds)
    }

    /// A client begins a query.
    pub fn ask(&mut self, client: usize, id: QueryId, target: Target) {
        self.asked.insert(id, (client, self.now));
        self.step(Party::Client(client), Event::Query(Query::new(id, target)));
    }

    /// How a query ended, if it has.
    pub fn ending(&self, id: QueryId) -> Option<Ending> {
        self.endings.get(&id).copied()
    }

    /// Queries that have not ended.
    pub fn open(&self) -> usize {
        self.asked.len() - self.endings.len()
    }

    /// Messages between servers so far.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// How many queries each server was sent by clients: those that went on from server to server count at
    /// the first.
    pub fn first_asked(&self) -> &BTreeMap<ServerId, u64> {
        &self.first_asked
    }

    /// How many queries servers sent to servers that are not there.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// The time.
    pub fn now(&self) -> Mono {
        self.now
    }

    /// The clients' machines, by number.
    pub fn clients(&self) -> impl ExactSizeIterator<Item = &dyn Machine> {
        self.clients.iter().map(AsRef::as_ref)
    }

    /// A server's machine.
    pub fn server(&self, server: ServerId) -> Option<&S> {
        self.servers.get(&server)
    }

    /// Lets time pass, and everything in it happen.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now.after(time);
        while let Some(at) = self.next_time().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.happen();
        }
        self.now = end;
    }

    /// Lets time pass until every query has ended, or so long. Whether they all have.
    pub fn run_until_answered(&mut self, at_most: Duration) -> bool {
        let end = self.now.after(at_most);
        while self.open() > 0 {
            let Some(at) = self.next_time().filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            self.happen();
        }
        self.open() == 0
    }

    fn next_time(&self) -> Option<Mono> {
        let sent = self.queue.keys().next().map(|(at, _)| *at);
        sent.into_iter().chain(self.due.first().map(|(at, _)| *at)).min()
    }

    fn happen(&mut self) {
        let due = self.queue.first_key_value().map(|(key, _)| *key).filter(|(at, _)| *at <= self.now);
        if let Some((to, event)) = due.and_then(|key| self.queue.remove(&key)) {
            self.step(to, event);
            return;
        }
        if let Some((_, server)) = self.due.first().copied().filter(|(at, _)| *at <= self.now) {
            self.set_wake(server, None);
            self.step(Party::Server(server), Event::Wake);
        }
    }

    fn note_wake(&mut self, server: ServerId) {
        let wake = self.servers.get(&server).and_then(|machine| machine.next_wake());
        self.set_wake(server, wake);
    }

    fn set_wake(&mut self, server: ServerId, wake: Option<Mono>) {
        let before = match wake {
            Some(at) => self.wakes.insert(server, at),
            None => self.wakes.remove(&server),
        };
        if before != wake {
            before.map(|at| self.due.remove(&(at, server)));
            wake.map(|at| self.due.insert((at, server)));
        }
    }

    fn step(&mut self, party: Party, event: Event) {
        let mut out = Vec::new();
        let now = self.now;
        match party {
            Party::Client(client) => {
                if let Some(machine) = self.clients.get_mut(client) {
                    machine.step(now, event, &mut out);
                }
            }
            Party::Server(server) => {
                let Some(machine) = self.servers.get_mut(&server) else {
                    self.answer_for_who_is_gone(event);
                    return;
                };
                machine.step(now, event, &mut out);
                self.note_wake(server);
            }
        }
        out.into_iter().for_each(|command| self.run(party, command));
    }

    /// It vanished while something was on its way: the client that waits for a query hears that it cannot be
    /// reached.
    fn answer_for_who_is_gone(&mut self, event: Event) {
        if let Event::Query(query) | Event::Unreachable(_, Some(query)) | Event::Checked(query, _) = event {
            self.send_to_client(query, |query| Event::Referred(query, ServerId(u32::MAX), None));
        }
    }

    fn run(&mut self, party: Party, command: Command) {
        match command {
            Command::Pass(server, query) => self.pass(party, server, query),
            Command::Carry(query) => match (self.network)(query.target.position) {
                Some(server) => self.pass(party, server, query),
                None => self.send(party, Event::Unreachable(ServerId(u32::MAX), Some(query))),
            },
            Command::Serve(query) => self.serve(party, query),
            Command::Refer(query, hint) => {
                let Party::Server(server) = party else { panic!("a client refers a query: {query:?}") };
                self.send_to_client(query, |query| Event::Referred(query, server, hint));
            }
            Command::Fail(query, error) => self.end(query, Err(error)),
            Command::Send(server, message) => {
                let Party::Server(from) = party else { panic!("a client sends {message:?}") };
                self.messages += 1;
                if self.is_lost() {
                } else if self.servers.contains_key(&server) {
                    self.send(Party::Server(server), Event::Message(from, message));
                } else {
                    self.send(party, Event::Unreachable(server, None));
                }
            }
            Command::Check(query) => {
                let Party::Server(server) = party else { panic!("a client checks {query:?}") };
                let there = self.stored.get(&server).is_some_and(|files| files.contains(&query.target.file));
                self.step(party, Event::Checked(query, there));
            }
        }
    }

    fn pass(&mut self, from: Party, server: ServerId, query: Query) {
        if matches!(from, Party::Client(_)) {
            *self.first_asked.entry(server).or_default() += 1;
        } else if !self.servers.contains_key(&server) {
            self.missed += 1;
        }
        if self.servers.contains_key(&server) {
            self.send(Party::Server(server), Event::Query(query));
        } else {
            self.send(from, Event::Unreachable(server, Some(query)));
        }
    }

    fn serve(&mut self, party: Party, query: Query) {
        let Party::Server(server) = party else { panic!("a client serves {query:?}") };
        if (self.truth)(&query.target) == Some(server) {
            self.end(query, Ok(server));
            self.send_to_client(query, |query| Event::Served(query, server));
        } else {
            // The tablet's epoch decides, whatever the lookup believes.
            self.send_to_client(query, |query| Event::Referred(query, server, None));
        }
    }

    fn end(&mut self, query: Query, by: Result<ServerId, LookupError>) {
        let began = self.asked.get(&query.id).map_or(Mono::ZERO, |(_, began)| *began);
        let ending = Ending { by, hops: query.hops, took: self.now.since(began) };
        let before = self.endings.insert(query.id, ending);
        assert!(before.is_none(), "query {:?} ended twice: {before:?}, then {ending:?}", query.id);
    }

    fn send_to_client(&mut self, query: Query, event: impl FnOnce(Query) -> Event) {
        if let Some((client, _)) = self.asked.get(&query.id) {
            self.send(Party::Client(*client), event(query));
        }
    }

    fn send(&mut self, to: Party, event: Event) {
        self.serial += 1;
        self.queue.insert((self.now.after(self.latency), self.serial), (to, event));
    }

    fn is_lost(&mut self) -> bool {
        self.draws = self.draws.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.draws >> 33) % 1000 < self.loss_per_mille
    }
}
