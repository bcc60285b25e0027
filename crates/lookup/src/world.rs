//! A cluster of lookup machines in one thread and virtual time: what the conformance suite, the tests and
//! the lab drive them with.
//!
//! Invariants: one seed and one order of calls give one run; a server that vanished answers nothing, and
//! a sender learns that it cannot be reached; only the truth decides whether a server that wants
//! to serve a query may. Work takes no time and every way is equally long, unless somebody says otherwise
//! ([`World::set_work`], [`World::set_ways`]). Clients have all the processors they need.

mod hosts;

pub use hosts::{AT_ONCE, Done, Order, Work};

use crate::machine::{Command, Event, Machine};
use crate::query::{FileKey, LookupError, Query, QueryId, Target};
use bearing_placement::Draws;
use bearing_types::{Mono, Position, ServerId};
use hosts::{Begun, Decided, Held, Job, Kind, Processor, Takes};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
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
/// How long something takes from one to the other.
pub type Ways = Box<dyn Fn(Party, Party) -> Duration>;
/// Who has to store a copy before a query that its owner has carried out is answered, if anybody has to.
pub type Copies = Box<dyn Fn(&Query) -> Option<ServerId>>;

/// See the module.
pub struct World<S = Box<dyn Machine>> {
    now: Mono,
    ways: Ways,
    work: Work,
    order: Order,
    copies: Copies,
    serial: u64,
    queue: BinaryHeap<Reverse<Due>>,
    /// By host.
    processors: BTreeMap<ServerId, Processor>,
    /// Hosts of servers that share one. Others have their own.
    hosts: BTreeMap<ServerId, ServerId>,
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
    /// How much turns differ in how long they take, and where draws of that go on.
    spread: f64,
    turn_draws: Draws,
}

/// Who sends or is sent something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// A client, by its number.
    Client(usize),
    /// A server.
    Server(ServerId),
}

/// Something that happens later. Nothing else happens at the same time with the same number.
#[derive(Debug)]
struct Due {
    at: Mono,
    number: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    /// Something arrives.
    Arrive(Party, Job),
    /// A processor is done with the work of this number.
    Finish(ServerId, u64),
    /// A client begins a query.
    Ask(usize, QueryId, Target),
}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Due {}

impl<S: Machine> World<S> {
    /// A world without anybody in it, where everything sent takes so long.
    pub fn new(latency: Duration, truth: Truth) -> World<S> {
        World {
            now: Mono::ZERO,
            ways: Box::new(move |_, _| latency),
            work: Work::NONE,
            order: Order::Arrival,
            copies: Box::new(|_| None),
            serial: 0,
            queue: BinaryHeap::new(),
            processors: BTreeMap::new(),
            hosts: BTreeMap::new(),
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
            spread: 0.0,
            turn_draws: Draws(0),
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

    /// From now on work costs this, and is done in this order. To be said before anything is sent.
    pub fn set_work(&mut self, work: Work, order: Order) {
        (self.work, self.order) = (work, order);
    }

    /// From now on turns take longer or shorter, by a factor whose logarithm has this standard deviation and
    /// whose mean is 1.
    pub fn set_spread(&mut self, spread: f64, seed: u64) {
        (self.spread, self.turn_draws) = (spread, Draws(seed));
    }

    /// From now on what is sent takes so long.
    pub fn set_ways(&mut self, ways: Ways) {
        self.ways = ways;
    }

    /// From now on these store copies.
    pub fn set_copies(&mut self, copies: Copies) {
        self.copies = copies;
    }

    /// From now on a server is on the host of another one. To be said before anything is sent.
    pub fn share_host(&mut self, server: ServerId, with: ServerId) {
        self.hosts.insert(server, self.host(with));
    }

    fn host(&self, server: ServerId) -> ServerId {
        self.hosts.get(&server).copied().unwrap_or(server)
    }

    fn processor(&mut self, server: ServerId) -> &mut Processor {
        self.processors.entry(self.host(server)).or_default()
    }

    /// What the processor of a server's host has done so far.
    pub fn done(&self, server: ServerId) -> Done {
        self.processors
            .get(&self.host(server))
            .map_or_else(Done::default, |processor| processor.done(self.now))
    }

    /// From now on so many of 1,000 messages between servers are lost, drawn from a seed. Queries are not:
    /// their senders send them again.
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
        let machine = self.servers.remove(&server);
        if let Some(processor) = self.processors.get_mut(&self.host(server)) {
            let (waiting, queries) = processor.vanish(server);
            waiting.into_iter().for_each(|job| self.answer_for_who_is_gone(server, job));
            let jobs = queries.into_iter().map(|query| Job::Event(Event::Query(query)));
            jobs.for_each(|job| self.answer_for_who_is_gone(server, job));
            self.go_on(server);
        }
        machine
    }

    /// The servers that are there.
    pub fn servers(&self) -> impl Iterator<Item = ServerId> + '_ {
        self.servers.keys().copied()
    }

    /// What happens to a server, as from its host.
    pub fn tell(&mut self, server: ServerId, event: Event) {
        self.step(Party::Server(server), event);
        self.go_on(server);
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

    /// A client will begin a query at this time, which is not past.
    pub fn ask_at(&mut self, at: Mono, client: usize, id: QueryId, target: Target) {
        self.plan(at.max(self.now), |_| What::Ask(client, id, target));
    }

    /// How long something takes from one to the other.
    pub fn way(&self, from: Party, to: Party) -> Duration {
        (self.ways)(from, to)
    }

    /// What has ended since this was last called, and who had asked. These queries are forgotten: their
    /// numbers may be used again.
    pub fn take_ended(&mut self) -> Vec<(QueryId, usize, Ending)> {
        let ended = std::mem::take(&mut self.endings);
        let mut asker = |id: &QueryId| self.asked.remove(id).map_or(0, |(client, _)| client);
        ended.into_iter().map(|(id, ending)| (id, asker(&id), ending)).collect()
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
        while self.happen_by(end) {}
    }

    /// Lets the next thing happen, if that is not later than this; otherwise time passes until then. Whether
    /// something happened.
    pub fn happen_by(&mut self, end: Mono) -> bool {
        match self.next_time().filter(|at| *at <= end) {
            Some(at) => {
                self.now = self.now.max(at);
                self.happen();
                true
            }
            None => {
                self.now = self.now.max(end);
                false
            }
        }
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
        let sent = self.queue.peek().map(|Reverse(due)| due.at);
        sent.into_iter().chain(self.due.first().map(|(at, _)| *at)).min()
    }

    fn happen(&mut self) {
        if self.queue.peek().is_some_and(|Reverse(due)| due.at <= self.now) {
            let what = self.queue.pop().map(|Reverse(due)| due.what);
            match what.expect("one is due") {
                What::Arrive(Party::Client(client), Job::Event(event)) => {
                    self.step(Party::Client(client), event);
                }
                What::Arrive(Party::Client(_), Job::Copy(..) | Job::Copied(_)) => {}
                What::Arrive(Party::Server(server), job) => self.arrive(server, job),
                What::Finish(server, number) => self.finish(server, number),
                What::Ask(client, id, target) => self.ask(client, id, target),
            }
            return;
        }
        if let Some((_, server)) = self.due.first().copied().filter(|(at, _)| *at <= self.now) {
            self.set_wake(server, None);
            self.step(Party::Server(server), Event::Wake);
        }
    }

    /// Something arrives at a server: its processor takes it at once, or when it is done with what came
    /// before.
    fn arrive(&mut self, server: ServerId, job: Job) {
        if !self.servers.contains_key(&server) {
            self.answer_for_who_is_gone(server, job);
            return;
        }
        match self.order {
            Order::Arrival => {
                let now = self.now;
                let processor = self.processor(server);
                processor.waiting.push_back((server, job));
                let is_asleep = processor.begun.is_none() && processor.idle_since != Some(now);
                if is_asleep && !self.work.wake.is_zero() {
                    let takes = Takes { all: self.work.wake, work: Duration::ZERO };
                    self.start(server, Held::Turn(Vec::new()), takes);
                }
            }
            Order::StoreLast => {
                let (held, takes) = self.begin(server, job);
                let now = self.now;
                self.processor(server).decide((server, held, Takes::work(takes)), now);
            }
        }
        self.go_on(server);
    }

    fn finish(&mut self, server: ServerId, number: u64) {
        let begun = self.processor(server).begun.take_if(|begun| begun.number == number);
        if let Some(begun) = begun {
            self.follow(server, begun.held);
            self.go_on(server);
        }
    }

    /// If the processor of a server's host is idle it begins with what comes next. What costs nothing is done
    /// at once.
    fn go_on(&mut self, server: ServerId) {
        loop {
            let processor = self.processor(server);
            if processor.begun.is_some() {
                return;
            }
            let next = processor.next_decided().or_else(|| self.take_turn(server));
            let Some((server, held, takes)) = next else {
                let now = self.now;
                self.processor(server).idle_since = Some(now);
                return;
            };
            if takes.all.is_zero() {
                self.follow(server, held);
            } else {
                self.start(server, held, takes);
            }
        }
    }

    fn start(&mut self, server: ServerId, held: Held, takes: Takes) {
        let until = self.now.after(takes.all);
        let number = self.plan(until, |number| What::Finish(server, number));
        self.processor(server).begin(Begun { number, server, held, takes, until });
    }

    /// What waits longest at a server's host, or with it all that waits for the same server.
    fn take_turn(&mut self, server: ServerId) -> Option<Decided> {
        let turn = self.work.turn;
        let (server, mut jobs) = self.processor(server).next_waiting(!turn.is_zero())?;
        if turn.is_zero() {
            let (held, takes) = self.begin(server, jobs.pop()?);
            return Some((server, held, Takes::work(takes)));
        }
        let begun: Vec<(Held, Duration)> = jobs.into_iter().map(|job| self.begin(server, job)).collect();
        let work = begun.iter().map(|(_, takes)| *takes).sum::<Duration>();
        let held = begun.into_iter().map(|(held, _)| held).collect();
        let takes = Takes { all: (turn + work).mul_f64(self.luck()), work };
        Some((server, Held::Turn(held), takes))
    }

    /// Drawn from a log-normal distribution of mean 1 (Box and Muller).
    fn luck(&mut self) -> f64 {
        if self.spread == 0.0 {
            return 1.0;
        }
        let [radius, angle] = [(), ()].map(|()| self.turn_draws.fraction());
        let normal = (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
        (self.spread * normal - self.spread * self.spread / 2.0).exp()
    }

    /// What follows from something, and how long it takes until then.
    fn begin(&mut self, server: ServerId, job: Job) -> (Held, Duration) {
        match job {
            Job::Event(event) => {
                let kind = Kind::of(&event);
                let commands = self.decide(Party::Server(server), event);
                let work = self.work;
                let takes = self.processor(server).work(&work, kind, &commands);
                (Held::Commands(commands), takes)
            }
            Job::Copy(query, owner) => {
                let work = self.work;
                let takes = self.processor(server).copy(&work);
                (Held::Copy(query, owner), takes)
            }
            Job::Copied(query) => (Held::Copied(query), self.work.message),
        }
    }

    fn follow(&mut self, server: ServerId, held: Held) {
        match held {
            Held::Commands(commands) => {
                commands.into_iter().for_each(|command| self.run(Party::Server(server), command));
            }
            Held::Copy(query, owner) => {
                self.messages += 1;
                self.send(Party::Server(server), Party::Server(owner), Job::Copied(query));
            }
            Held::Copied(query) => self.answer(server, query),
            Held::Turn(taken) => taken.into_iter().for_each(|held| self.follow(server, held)),
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

    /// Something happens to somebody, and what follows from that, at once.
    fn step(&mut self, party: Party, event: Event) {
        if let Party::Server(server) = party
            && !self.servers.contains_key(&server)
        {
            self.answer_for_who_is_gone(server, Job::Event(event));
            return;
        }
        self.decide(party, event).into_iter().for_each(|command| self.run(party, command));
    }

    /// What somebody who is there makes of an event.
    fn decide(&mut self, party: Party, event: Event) -> Vec<Command> {
        let mut out = Vec::new();
        match party {
            Party::Client(client) => {
                if let Some(machine) = self.clients.get_mut(client) {
                    machine.step(self.now, event, &mut out);
                }
            }
            Party::Server(server) => {
                if let Some(machine) = self.servers.get_mut(&server) {
                    machine.step(self.now, event, &mut out);
                    self.note_wake(server);
                }
            }
        }
        out
    }

    /// It vanished while something was on its way or waited there: the client that waits for a query hears
    /// that it cannot be reached, and who waits for a copy goes on without one.
    fn answer_for_who_is_gone(&mut self, server: ServerId, job: Job) {
        let from = Party::Server(server);
        match job {
            Job::Event(
                Event::Query(query) | Event::Unreachable(_, Some(query)) | Event::Checked(query, _),
            )
            | Job::Copied(query) => {
                self.send_to_client(from, query, |query| Event::Referred(query, ServerId(u32::MAX), None));
            }
            Job::Event(_) => {}
            Job::Copy(query, owner) => self.send(from, Party::Server(owner), Job::Copied(query)),
        }
    }

    fn run(&mut self, party: Party, command: Command) {
        match command {
            Command::Pass(server, query) => self.pass(party, server, query),
            Command::Carry(query) => match (self.network)(query.target.position) {
                Some(server) => self.pass(party, server, query),
                None => {
                    let lost = Event::Unreachable(ServerId(u32::MAX), Some(query));
                    self.send(party, party, Job::Event(lost));
                }
            },
            Command::Serve(query) => self.serve(party, query),
            Command::Refer(query, hint) => {
                let Party::Server(server) = party else { panic!("a client refers a query: {query:?}") };
                self.send_to_client(party, query, |query| Event::Referred(query, server, hint));
            }
            Command::Fail(query, error) => self.end(query, Err(error)),
            Command::Send(server, message) => {
                let Party::Server(from) = party else { panic!("a client sends {message:?}") };
                self.messages += 1;
                if self.is_lost() {
                } else if self.servers.contains_key(&server) {
                    self.send(party, Party::Server(server), Job::Event(Event::Message(from, message)));
                } else {
                    self.send(party, party, Job::Event(Event::Unreachable(server, None)));
                }
            }
            Command::Check(query) => {
                let Party::Server(server) = party else { panic!("a client checks {query:?}") };
                let there = self.stored.get(&server).is_some_and(|files| files.contains(&query.target.file));
                if self.work == Work::NONE {
                    self.step(party, Event::Checked(query, there));
                } else {
                    // The processor goes on with it before anything else.
                    let checked = Job::Event(Event::Checked(query, there));
                    self.processor(server).waiting.push_front((server, checked));
                }
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
            self.send(from, Party::Server(server), Job::Event(Event::Query(query)));
        } else {
            self.send(from, from, Job::Event(Event::Unreachable(server, Some(query))));
        }
    }

    fn serve(&mut self, party: Party, query: Query) {
        let Party::Server(server) = party else { panic!("a client serves {query:?}") };
        if (self.truth)(&query.target) != Some(server) {
            // The tablet's epoch decides, whatever the lookup believes.
            self.send_to_client(party, query, |query| Event::Referred(query, server, None));
            return;
        }
        let copy = (self.copies)(&query).filter(|copy| *copy != server && self.servers.contains_key(copy));
        match copy {
            Some(copy) => {
                self.messages += 1;
                self.send(party, Party::Server(copy), Job::Copy(query, server));
            }
            None => self.answer(server, query),
        }
    }

    fn answer(&mut self, server: ServerId, query: Query) {
        self.end(query, Ok(server));
        self.send_to_client(Party::Server(server), query, |query| Event::Served(query, server));
    }

    fn end(&mut self, query: Query, by: Result<ServerId, LookupError>) {
        let began = self.asked.get(&query.id).map_or(Mono::ZERO, |(_, began)| *began);
        let ending = Ending { by, hops: query.hops, took: self.now.since(began) };
        let before = self.endings.insert(query.id, ending);
        assert!(before.is_none(), "query {:?} ended twice: {before:?}, then {ending:?}", query.id);
    }

    fn send_to_client(&mut self, from: Party, query: Query, event: impl FnOnce(Query) -> Event) {
        if let Some((client, _)) = self.asked.get(&query.id) {
            self.send(from, Party::Client(*client), Job::Event(event(query)));
        }
    }

    fn send(&mut self, from: Party, to: Party, job: Job) {
        let at = self.now.after((self.ways)(from, to));
        self.plan(at, |_| What::Arrive(to, job));
    }

    /// The number of what was planned.
    fn plan(&mut self, at: Mono, what: impl FnOnce(u64) -> What) -> u64 {
        self.serial += 1;
        let number = self.serial;
        self.queue.push(Reverse(Due { at, number, what: what(number) }));
        number
    }

    fn is_lost(&mut self) -> bool {
        self.draws = self.draws.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.draws >> 33) % 1000 < self.loss_per_mille
    }
}
