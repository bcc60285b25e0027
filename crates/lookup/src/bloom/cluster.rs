//! A small cluster of the machines in one thread and virtual time, for tests: messages take a while, overtake
//! each other, get lost and come twice; servers crash and start again. One seed replays a run.

use crate::bloom::client::{BloomClient, Choice};
use crate::bloom::layout::Founding;
use crate::bloom::options::BloomOptions;
use crate::bloom::server::{BloomServer, Counts};
use crate::machine::{Command, Event, Machine};
use crate::query::{FileKey, LookupError, Query, QueryId, Target};
use bearing_types::{Mono, Position, ServerId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Draws, and what is made of them here.
pub struct Draws(bearing_placement::Draws);

impl Draws {
    pub fn next(&mut self) -> u64 {
        self.0.draw()
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    pub fn percent(&mut self, share: u64) -> bool {
        self.next() % 100 < share
    }

    pub fn one<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        (!of.is_empty()).then(|| of[self.below(of.len())])
    }
}

/// A server: what runs, and what survives a crash.
pub struct Node {
    pub machine: Option<BloomServer>,
    pub store: BTreeSet<FileKey>,
    life: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    Served(ServerId),
    Failed(LookupError),
}

#[derive(Clone, Copy)]
enum At {
    Client(usize),
    Server(ServerId, u32),
}

/// Clients: two, so that each half of a network that is cut in two has one. Queries of even numbers are of
/// the first.
const CLIENTS: usize = 2;

/// A query that did not end yet.
#[derive(Clone, Copy, Default)]
struct Underway {
    /// As the client passed it on, and to whom.
    sent: Option<(ServerId, Query)>,
    /// The server that has it.
    at: Option<ServerId>,
}

fn client_of(query: QueryId) -> usize {
    query.0 as usize % CLIENTS
}

pub struct Cluster {
    pub now: Mono,
    pub draws: Draws,
    /// Percent of messages that are lost, and percent that come once more up to 10 s later.
    pub loss: u64,
    pub options: BloomOptions,
    pub nodes: BTreeMap<ServerId, Node>,
    /// Servers that nobody reaches but each other and the second client. Nobody while the network is whole.
    pub cut_off: BTreeSet<ServerId>,
    clients: [BloomClient; CLIENTS],
    queue: BTreeMap<(Mono, u64), (At, Event)>,
    sequence: u64,
    underway: BTreeMap<QueryId, Underway>,
    pub ends: BTreeMap<QueryId, End>,
    pub messages: u64,
    next_query: u64,
}

impl Cluster {
    pub fn new(options: BloomOptions, seed: u64) -> Cluster {
        Cluster {
            now: Mono(86_400_000_000_000),
            draws: Draws(bearing_placement::Draws(seed)),
            loss: 0,
            options,
            nodes: BTreeMap::new(),
            cut_off: BTreeSet::new(),
            clients: std::array::from_fn(|_| BloomClient::new(Choice::RoundRobin, [])),
            queue: BTreeMap::new(),
            sequence: 0,
            underway: BTreeMap::new(),
            ends: BTreeMap::new(),
            messages: 0,
            next_query: 0,
        }
    }

    pub fn live(&self) -> Vec<ServerId> {
        self.nodes.iter().filter(|(_, node)| node.machine.is_some()).map(|(id, _)| *id).collect()
    }

    /// Servers that may take files.
    pub fn ready(&self) -> Vec<ServerId> {
        self.machines().filter(|(_, machine)| machine.is_in()).map(|(id, _)| id).collect()
    }

    pub fn machines(&self) -> impl Iterator<Item = (ServerId, &BloomServer)> {
        self.nodes.iter().filter_map(|(id, node)| Some((*id, node.machine.as_ref()?)))
    }

    pub fn is_ready(&self, server: ServerId) -> bool {
        self.machines().any(|(id, machine)| id == server && machine.is_in())
    }

    /// Servers 1 to `count` that begin together.
    pub fn founded(options: BloomOptions, seed: u64, count: u32) -> Cluster {
        let mut cluster = Cluster::new(options, seed);
        let founding = Founding::of((1..=count).map(ServerId), options.group_most).unwrap();
        for id in (1..=count).map(ServerId) {
            let machine = BloomServer::founded(id, options, &founding, cluster.now).unwrap();
            cluster.nodes.insert(id, Node { machine: Some(machine), store: BTreeSet::new(), life: 0 });
            cluster.clients.iter_mut().for_each(|client| client.know(id));
        }
        cluster
    }

    /// What all machines that run did, together.
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for (_, machine) in self.machines() {
            let one = machine.counts();
            sum.found_recent += one.found_recent;
            sum.found_segment += one.found_segment;
            sum.found_group += one.found_group;
            sum.found_named += one.found_named;
            sum.found_all += one.found_all;
            sum.misled += one.misled;
            sum.published += one.published;
            sum.forwarded += one.forwarded;
            sum.wasted += one.wasted;
            sum.migrated += one.migrated;
            sum.refetched += one.refetched;
        }
        sum
    }

    /// A new server, or one that crashed, with the files that it had.
    pub fn start(&mut self, server: ServerId, through: Option<ServerId>) {
        let node =
            self.nodes.entry(server).or_insert(Node { machine: None, store: BTreeSet::new(), life: 0 });
        node.machine = Some(BloomServer::new(server, self.options).unwrap());
        for file in node.store.clone() {
            self.step(server, Event::Stored(file));
        }
        self.clients.iter_mut().for_each(|client| client.know(server));
        self.step(server, Event::Join(through));
    }

    pub fn crash(&mut self, server: ServerId) {
        let Some(node) = self.nodes.get_mut(&server) else { return };
        node.machine = None;
        node.life += 1;
        // The clients' connections break: they ask others.
        let lost: Vec<_> =
            self.underway.values().filter(|query| query.at == Some(server)).map(|query| query.sent).collect();
        for (to, query) in lost.into_iter().flatten() {
            self.deliver(At::Client(client_of(query.id)), Event::Unreachable(to, Some(query)));
        }
    }

    pub fn store(&mut self, server: ServerId, file: FileKey) {
        if self.nodes.get_mut(&server).is_some_and(|node| node.store.insert(file)) {
            self.step(server, Event::Stored(file));
        }
    }

    pub fn remove(&mut self, server: ServerId, file: FileKey) {
        if self.nodes.get_mut(&server).is_some_and(|node| node.store.remove(&file)) {
            self.step(server, Event::Removed(file));
        }
    }

    pub fn ask(&mut self, file: FileKey) -> QueryId {
        self.ask_as(0, file)
    }

    /// The same of one of the clients.
    pub fn ask_as(&mut self, client: usize, file: FileKey) -> QueryId {
        self.next_query += 1;
        let id = QueryId(self.next_query * CLIENTS as u64 + client as u64);
        self.underway.insert(id, Underway::default());
        let query = Query::new(id, Target { position: Position(0), file });
        self.deliver(At::Client(client), Event::Query(query));
        id
    }

    /// Whether a client and a server are on one side of a cut, if there is one.
    pub fn client_reaches(&self, client: usize, server: ServerId) -> bool {
        self.cut_off.is_empty() || self.cut_off.contains(&server) == (client == 1)
    }

    /// Asks, and runs until the answer is there.
    pub fn find(&mut self, file: FileKey) -> End {
        self.find_as(0, file)
    }

    /// The same of one of the clients.
    pub fn find_as(&mut self, client: usize, file: FileKey) -> End {
        let id = self.ask_as(client, file);
        for _ in 0..100_000 {
            if let Some(end) = self.ends.get(&id) {
                return *end;
            }
            self.turn(Mono(u64::MAX));
        }
        panic!("query {id:?} hangs");
    }

    pub fn run(&mut self, duration: Duration) {
        let until = self.now.after(duration);
        while self.turn(until) {}
        self.now = until;
    }

    /// The next thing that happens, if it is not after `until`.
    fn turn(&mut self, until: Mono) -> bool {
        let wakes = self.machines().filter_map(|(id, machine)| Some((machine.next_wake()?, id)));
        let wake = wakes.min();
        let queued = self.queue.first_key_value().map(|(key, _)| *key);
        match (wake, queued) {
            (Some((due, server)), queued) if due <= until && queued.is_none_or(|(at, _)| due <= at) => {
                self.now = self.now.max(due);
                self.step(server, Event::Wake);
            }
            (_, Some(key)) if key.0 <= until => {
                self.now = self.now.max(key.0);
                let (at, event) = self.queue.remove(&key).unwrap();
                self.arrive(at, event);
            }
            _ => return false,
        }
        true
    }

    fn arrive(&mut self, at: At, event: Event) {
        match at {
            At::Client(client) => {
                if let Event::Unreachable(_, Some(query)) | Event::Referred(query, ..) | Event::Query(query) =
                    &event
                    && self.ends.contains_key(&query.id)
                {
                    return;
                }
                let mut out = Vec::new();
                self.clients[client].step(self.now, event, &mut out);
                out.into_iter().for_each(|command| self.run_of_client(client, command));
            }
            At::Server(server, life) => {
                if self.nodes.get(&server).is_some_and(|node| node.life == life && node.machine.is_some()) {
                    if let Event::Query(query) = &event
                        && let Some(underway) = self.underway.get_mut(&query.id)
                    {
                        underway.at = Some(server);
                    }
                    // The store answers as it is now.
                    let event = match event {
                        Event::Checked(query, _) => {
                            let has = self.nodes[&server].store.contains(&query.target.file);
                            Event::Checked(query, has)
                        }
                        other => other,
                    };
                    self.step(server, event);
                } else if let Event::Query(query) = event {
                    // It crashed while the query was on its way.
                    let sent = self.underway.get(&query.id).and_then(|underway| underway.sent);
                    let back = sent.map(|(to, query)| Event::Unreachable(to, Some(query)));
                    if let Some(event) = back {
                        self.deliver(At::Client(client_of(query.id)), event);
                    }
                }
            }
        }
    }

    /// Something happens at a server.
    pub fn tell(&mut self, server: ServerId, event: Event) {
        self.step(server, event);
    }

    fn step(&mut self, server: ServerId, event: Event) {
        let mut out = Vec::new();
        if let Some(machine) = self.nodes.get_mut(&server).and_then(|node| node.machine.as_mut()) {
            machine.step(self.now, event, &mut out);
        }
        out.into_iter().for_each(|command| self.run_of_server(server, command));
    }

    fn deliver(&mut self, at: At, event: Event) {
        let delay = Duration::from_micros(200 + self.draws.next() % 3000);
        self.deliver_after(delay, at, event);
    }

    fn deliver_after(&mut self, delay: Duration, at: At, event: Event) {
        self.sequence += 1;
        self.queue.insert((self.now.after(delay), self.sequence), (at, event));
    }

    fn reach(&self, server: ServerId) -> Option<At> {
        let node = self.nodes.get(&server).filter(|node| node.machine.is_some())?;
        Some(At::Server(server, node.life))
    }

    fn back_to(&mut self, server: ServerId, event: Event) {
        if let Some(at) = self.reach(server) {
            self.deliver(at, event);
        }
    }

    fn linked(&self, one: ServerId, other: ServerId) -> bool {
        self.cut_off.contains(&one) == self.cut_off.contains(&other)
    }

    fn run_of_client(&mut self, client: usize, command: Command) {
        match command {
            Command::Pass(to, query) => {
                self.underway.insert(query.id, Underway { sent: Some((to, query)), at: None });
                let at = self.reach(to).filter(|_| self.client_reaches(client, to));
                match at.filter(|_| !self.draws_loss()) {
                    Some(at) => self.deliver(at, Event::Query(query)),
                    None => self.deliver(At::Client(client), Event::Unreachable(to, Some(query))),
                }
            }
            Command::Fail(query, error) => self.end(query.id, End::Failed(error)),
            other => panic!("a client does not say {other:?}"),
        }
    }

    fn draws_loss(&mut self) -> bool {
        self.loss > 0 && self.draws.next() % 100 < self.loss
    }

    fn run_of_server(&mut self, server: ServerId, command: Command) {
        match command {
            Command::Pass(to, query) => {
                let at = self.reach(to).filter(|_| self.linked(server, to));
                match at.filter(|_| !self.draws_loss()) {
                    Some(at) => self.deliver(at, Event::Query(query)),
                    None => self.back_to(server, Event::Unreachable(to, Some(query))),
                }
            }
            Command::Send(to, message) => {
                self.messages += 1;
                match self.reach(to).filter(|_| self.linked(server, to)) {
                    Some(_) if self.draws_loss() => {}
                    Some(at) => {
                        if self.draws_loss() {
                            let late = Duration::from_millis(self.draws.next() % 10_000);
                            self.deliver_after(late, at, Event::Message(server, message.clone()));
                        }
                        self.deliver(at, Event::Message(server, message));
                    }
                    // Sometimes the sender hears that nobody is there.
                    None if self.draws.percent(50) => self.back_to(server, Event::Unreachable(to, None)),
                    None => {}
                }
            }
            Command::Check(query) => self.back_to(server, Event::Checked(query, false)),
            Command::Serve(query) => {
                assert!(self.nodes[&server].store.contains(&query.target.file), "served where it is not");
                self.end(query.id, End::Served(server));
                self.deliver(At::Client(client_of(query.id)), Event::Served(query, server));
            }
            Command::Refer(query, hint) => {
                self.deliver(At::Client(client_of(query.id)), Event::Referred(query, server, hint));
            }
            Command::Fail(query, error) => self.end(query.id, End::Failed(error)),
            Command::Carry(_) => panic!("no network carries these"),
        }
    }

    fn end(&mut self, id: QueryId, end: End) {
        self.underway.remove(&id);
        // Of two copies of a query the first that finds it counts.
        let known = self.ends.entry(id).or_insert(end);
        if let (End::Failed(_), End::Served(_)) = (*known, end) {
            *known = end;
        }
    }

    pub fn all_ended(&self) -> bool {
        self.underway.is_empty()
    }

    /// Heart-beats until everything lost was said again.
    pub fn settle(&mut self) {
        self.loss = 0;
        self.run(self.options.beat * (6 * self.options.silent_beats + 20));
    }

    /// What must hold when nothing was lost for a while: one layout, of exactly those that live; in each
    /// group each other server's filter at exactly one member.
    pub fn check(&self) -> Result<(), String> {
        let live: BTreeSet<ServerId> = self.live().into_iter().collect();
        let Some((_, first)) = self.machines().next() else { return Ok(()) };
        let layout = first.layout().ok_or("no layout")?;
        if layout.division().all() != live {
            return Err(format!("live are {live:?}, in are {:?}", layout.division().all()));
        }
        let mut held: BTreeMap<_, Vec<ServerId>> = BTreeMap::new();
        for (id, machine) in self.machines() {
            if machine.layout() != Some(layout) || !machine.is_in() {
                return Err(format!("{id} is not in, or knows of another layout: {:?}", machine.layout()));
            }
            let group = layout.division().group_of(id).ok_or("no group")?;
            machine.shares().ok_or("no shares")?.check(&live).map_err(|error| format!("{id}: {error}"))?;
            let holds: Vec<ServerId> = machine.replicas().map(|(of, _)| of).collect();
            if holds != machine.shares().map(|shares| shares.held_by(id).collect()).unwrap_or(Vec::new()) {
                return Err(format!("{id} holds {holds:?}, not its share"));
            }
            let edition = |of: &ServerId| self.nodes.get(of)?.machine.as_ref().map(BloomServer::edition);
            if let Some((of, old)) = machine.replicas().find(|(of, held)| edition(of) != Some(*held)) {
                return Err(format!("{id} holds an old filter of {of}: {old:?}, not {:?}", edition(&of)));
            }
            if !machine.holders_are_of_the_shares() {
                return Err(format!("{id}: its IDBFA is not of its share-out"));
            }
            held.entry(group).or_default().extend(holds);
        }
        for (group, members) in layout.division().groups() {
            let mut found = held.remove(&group).unwrap_or_default();
            found.sort();
            let outside: Vec<_> = live.iter().filter(|server| !members.contains(server)).copied().collect();
            if found != outside {
                return Err(format!("group {group:?} holds {found:?} of {outside:?}"));
            }
        }
        Ok(())
    }
}
