//! The simulated network: exact shares for all flows at every moment, and the flow server's machine, which
//! knows only what it is told.

use super::{Experiment, Job, Kind, jobs};
use bearing_flow::{Background, Command, Counted, Event, FlowServer, Options, Request};
use bearing_routing::{
    Choice, FlowId, Hop, LinkId, Part, Path, Paths, Pieces, Place, Placed, Rate, Shares, Write,
};
use bearing_types::Mono;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Flows that the flow server has not been told of have numbers from here on.
const UNTOLD: u64 = 1 << 62;

/// How long everything took, in seconds, in the order in which it began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Reads.
    pub reads: Vec<f64>,
    /// Flows of others.
    pub others: Vec<f64>,
    /// Writes, until the last copy is there.
    pub writes: Vec<f64>,
    /// Of reads from several replicas: between the ends of their first and last stream.
    pub gaps: Vec<f64>,
    /// Bytes that were carried, of all.
    pub carried: f64,
    /// How often a read under way was given another part.
    pub redirected: u64,
}

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Arrive(usize),
    Ask(usize),
    Start(usize),
    /// A stream has what it was fetching; by the version of its rate.
    Fetched(FlowId, u64),
    Wake,
}

/// A connection from a data server to a reader.
#[derive(Clone, Debug)]
struct Stream {
    job: usize,
    index: usize,
    source: Place,
    /// Of its piece.
    fetched: f64,
    carried: f64,
    rate: f64,
    as_of: u64,
    version: u64,
}

impl Stream {
    /// It has carried nothing yet.
    fn new(job: usize, index: usize, source: Place, now: u64) -> Stream {
        Stream { job, index, source, fetched: 0.0, carried: 0.0, rate: 0.0, as_of: now, version: 0 }
    }

    fn advance(&mut self, now: u64) {
        let bytes = self.rate * (now - self.as_of) as f64 / 1e9;
        (self.fetched, self.carried, self.as_of) = (self.fetched + bytes, self.carried + bytes, now);
    }
}

/// A read under way.
#[derive(Clone, Debug)]
struct Reading {
    pieces: Pieces,
    streams: Vec<FlowId>,
    /// When its first stream had nothing left.
    first_end: Option<u64>,
    open: usize,
}

struct World<'a> {
    experiment: &'a Experiment,
    jobs: Vec<Job>,
    now: u64,
    sequence: u64,
    next: BinaryHeap<Reverse<(u64, u64, Next)>>,
    shares: Shares,
    paths: Paths,
    server: FlowServer,
    choices: BTreeMap<usize, Choice>,
    placed: BTreeMap<usize, Vec<Placed>>,
    numbered: BTreeMap<usize, FlowId>,
    readings: BTreeMap<usize, Reading>,
    streams: BTreeMap<FlowId, Stream>,
    sources: Vec<Vec<FlowId>>,
    ended: usize,
    took: Vec<f64>,
    outcome: Outcome,
}

/// Runs an experiment until all its flows have ended.
pub fn run(experiment: &Experiment) -> Outcome {
    let topology = experiment.room.topology.clone();
    let options = Options {
        selection: experiment.selection,
        poll_interval: experiment.poll_interval,
        replanning: experiment.replanning,
        seed: experiment.seed,
    };
    let links = (0..topology.hops() as u32).map(|hop| topology.capacity(LinkId(hop / 2)));
    let disks = (0..topology.places()).map(|place| disk(experiment, Place(place)).unwrap_or(Rate::UNBOUNDED));
    let capacities = links.chain(disks);
    let jobs = jobs(experiment);
    let mut world = World {
        experiment,
        now: 0,
        sequence: 0,
        next: BinaryHeap::new(),
        shares: Shares::new(capacities.collect::<Vec<Rate>>()),
        server: FlowServer::new(Mono::ZERO, topology.clone(), options),
        choices: BTreeMap::new(),
        placed: BTreeMap::new(),
        numbered: BTreeMap::new(),
        readings: BTreeMap::new(),
        streams: BTreeMap::new(),
        sources: vec![Vec::new(); topology.places() as usize],
        paths: Paths::new(topology),
        ended: 0,
        took: vec![0.0; jobs.len()],
        jobs,
        outcome: Outcome::default(),
    };
    if experiment.slow_disks.is_some_and(|slow| slow.is_reported) {
        let places = (0..experiment.room.topology.places()).map(Place);
        world.tell(places.map(|place| Event::Disk(place, disk(experiment, place))));
    }
    world.run();
    let took = |kind: Kind| {
        let of = |(job, took): (&Job, &f64)| (job.kind == kind).then_some(*took);
        world.jobs.iter().zip(&world.took).filter_map(of).collect()
    };
    Outcome {
        reads: took(Kind::Read),
        others: took(Kind::Others),
        writes: took(Kind::Write),
        ..world.outcome
    }
}

/// What a host's disk gives, if it is slow.
fn disk(experiment: &Experiment, place: Place) -> Option<Rate> {
    let slow = experiment.slow_disks.filter(|slow| place.0.is_multiple_of(slow.every));
    slow.map(|slow| slow.rate)
}

impl World<'_> {
    /// What a stream crosses: the disk, numbered behind all hops, and its path. Only reads need disks: what
    /// is written waits in memory.
    fn crossed(&self, job: usize, source: Place, path: Path) -> Vec<Hop> {
        let disk = Hop::numbered(self.paths.topology().hops() as u32 + source.0);
        let disk = (self.jobs[job].kind == Kind::Read).then_some(disk);
        disk.into_iter().chain(path.0).collect()
    }

    fn run(&mut self) {
        for index in 0..self.jobs.len() {
            self.at(self.jobs[index].at, Next::Arrive(index));
        }
        self.at(0, Next::Wake);
        while self.ended < self.jobs.len() {
            let Some(Reverse((now, _, next))) = self.next.pop() else {
                unreachable!("a flow that never ends")
            };
            self.now = now;
            match next {
                Next::Arrive(job) => self.on_arrive(job),
                Next::Ask(job) => self.on_ask(job),
                Next::Start(job) => self.on_start(job),
                Next::Fetched(flow, version) => self.on_fetched(flow, version),
                Next::Wake => {
                    self.tell([]);
                    self.at(self.server.next_wake().0.max(now + 1), Next::Wake);
                }
            }
            self.settle();
        }
    }

    fn at(&mut self, time: u64, next: Next) {
        self.sequence += 1;
        self.next.push(Reverse((time, self.sequence, next)));
    }

    fn tell(&mut self, events: impl IntoIterator<Item = Event>) {
        let mut out = Vec::new();
        self.server.step(Mono(self.now), events, &mut out);
        let (mut polled, mut redirected) = (Vec::new(), Vec::new());
        for command in out {
            match command {
                Command::Answer(Request(job), choice) => {
                    let choice = choice.expect("every host can be reached");
                    self.choices.insert(job as usize, choice);
                }
                Command::Placed(Request(job), placed) => {
                    self.placed.insert(job as usize, placed);
                }
                Command::Numbered(Request(job), flow) => {
                    self.numbered.insert(job as usize, flow.expect("its ends are in the network"));
                }
                Command::Redirect(Request(job), ended, part) => redirected.push((job as usize, ended, part)),
                Command::Poll(place) => polled.push(place),
            }
        }
        for (job, ended, part) in redirected {
            self.redirect(job, ended, part);
        }
        if !polled.is_empty() {
            let counters: Vec<Event> =
                polled.into_iter().map(|place| Event::Counters(place, self.counted(place))).collect();
            self.tell(counters);
        }
    }

    /// What a host's flows have carried, of those that the server knows.
    fn counted(&mut self, place: Place) -> Vec<Counted> {
        let mut counted = Vec::new();
        for flow in self.sources[place.0 as usize].iter().filter(|flow| flow.0 < UNTOLD) {
            if let Some(stream) = self.streams.get_mut(flow) {
                stream.advance(self.now);
                counted.push(Counted { flow: *flow, bytes: stream.carried as u64 });
            }
        }
        counted
    }

    fn on_arrive(&mut self, job: usize) {
        if self.jobs[job].kind == Kind::Others {
            self.begin_others(job);
        } else {
            let half = self.experiment.query.as_nanos() as u64 / 2;
            self.at(self.now + half, Next::Ask(job));
        }
    }

    /// Others' flows take a path by hash.
    fn begin_others(&mut self, index: usize) {
        let job = self.jobs[index].clone();
        let (source, target) = (job.replicas[0], job.reader);
        let routes = self.paths.between(source, target);
        let drawn = index % routes.count();
        let path = routes.iter().nth(drawn).map(|route| route.path()).unwrap_or_default();
        let flow = if self.experiment.others.is_some_and(|others| others.is_reported) {
            let background = Background { source, target, path: path.clone(), bytes: None };
            self.tell([Event::Noticed(Request(index as u64), background)]);
            self.numbered.remove(&index).expect("a noticed flow gets a number")
        } else {
            FlowId(UNTOLD + index as u64)
        };
        self.begin(index, vec![(flow, source, path, job.bytes)], job.bytes, u64::MAX);
    }

    fn on_ask(&mut self, index: usize) {
        let (job, request) = (&self.jobs[index], Request(index as u64));
        let event = match self.experiment.writes.filter(|_| job.kind == Kind::Write) {
            Some(writes) => {
                let write = Write { writer: job.reader, copies: writes.copies, bytes: job.bytes };
                Event::Place(request, write, writes.placing)
            }
            None => {
                let (reader, replicas) = (job.reader, job.replicas.clone());
                Event::Ask(request, bearing_routing::Read { reader, replicas, bytes: job.bytes })
            }
        };
        self.tell([event]);
        let half = self.experiment.query.as_nanos() as u64 / 2;
        self.at(self.now + half, Next::Start(index));
    }

    fn on_start(&mut self, index: usize) {
        if let Some(placed) = self.placed.remove(&index) {
            // Every copy gets all bytes: nobody helps another.
            let bytes = self.jobs[index].bytes;
            let parts = placed.into_iter().map(|copy| (copy.flow, copy.source, copy.path, bytes));
            return self.begin(index, parts.collect(), bytes, u64::MAX);
        }
        let choice = self.choices.remove(&index).expect("it was asked for");
        let replicas = self.jobs[index].replicas.clone();
        let parts = choice.parts.into_iter();
        let parts = parts.map(|part| (part.flow, replicas[part.replica], part.path, part.bytes)).collect();
        self.begin(index, parts, self.experiment.piece, self.experiment.least);
    }

    fn begin(&mut self, job: usize, parts: Vec<(FlowId, Place, Path, u64)>, piece: u64, least: u64) {
        let sizes = parts.iter().map(|part| part.3);
        let pieces = Pieces::new(sizes, piece, least);
        let streams: Vec<FlowId> = parts.iter().map(|part| part.0).collect();
        let open = streams.len();
        self.readings.insert(job, Reading { pieces, streams, first_end: None, open });
        for (index, (flow, source, path, _)) in parts.into_iter().enumerate() {
            let crossed = self.crossed(job, source, path);
            self.shares.add(flow, crossed, Rate::UNBOUNDED);
            self.sources[source.0 as usize].push(flow);
            let stream = Stream::new(job, index, source, self.now);
            self.streams.insert(flow, stream);
            self.fetch_next(flow);
        }
    }

    /// A read goes on by another part, at once: the way of the message is not simulated.
    fn redirect(&mut self, job: usize, ended: Option<FlowId>, part: Part) {
        self.outcome.redirected += 1;
        let source = self.jobs[job].replicas[part.replica];
        // It may not have begun, or be over: the machine hears of that in its own time.
        let Some(reading) = self.readings.get_mut(&job) else {
            self.tell([Event::Ended(part.flow)]);
            return;
        };
        let moved = ended.and_then(|flow| self.streams.remove(&flow).map(|stream| (flow, stream)));
        match moved {
            Some((flow, mut stream)) => {
                stream.advance(self.now);
                self.shares.remove(flow);
                self.sources[stream.source.0 as usize].retain(|other| *other != flow);
                reading.streams[stream.index] = part.flow;
                self.outcome.carried += stream.carried;
                let moved = Stream { source, carried: 0.0, rate: 0.0, as_of: self.now, ..stream };
                self.streams.insert(part.flow, moved);
            }
            None if ended.is_some() => {
                self.tell([Event::Ended(part.flow)]);
                return;
            }
            None => {
                let index = reading.pieces.add_stream();
                reading.streams.push(part.flow);
                reading.open += 1;
                let stream = Stream::new(job, index, source, self.now);
                self.streams.insert(part.flow, stream);
            }
        }
        let crossed = self.crossed(job, source, part.path);
        self.shares.add(part.flow, crossed, Rate::UNBOUNDED);
        self.sources[source.0 as usize].push(part.flow);
        if ended.is_none() {
            self.fetch_next(part.flow);
        }
    }

    fn on_fetched(&mut self, flow: FlowId, version: u64) {
        if self.streams.get(&flow).is_some_and(|stream| stream.version == version) {
            self.fetch_next(flow);
        }
    }

    /// The next piece of a stream, or its end.
    fn fetch_next(&mut self, flow: FlowId) {
        let now = self.now;
        let job = self.streams[&flow].job;
        let reading = self.readings.get_mut(&job).expect("a stream belongs to a read");
        for other in &reading.streams {
            if let Some(stream) = self.streams.get_mut(other) {
                stream.advance(now);
            }
        }
        let fetched = |index: usize| {
            self.streams.get(&reading.streams[index]).map_or(0, |stream| stream.fetched as u64)
        };
        let index = self.streams[&flow].index;
        let piece = reading.pieces.next(index, fetched);
        // A piece under way may have become shorter for its stream.
        let others: Vec<FlowId> = reading.streams.iter().copied().filter(|other| *other != flow).collect();
        match piece {
            Some(_) => {
                self.streams.get_mut(&flow).expect("it fetches").fetched = 0.0;
                self.schedule(flow);
            }
            None => self.end(flow),
        }
        for other in others.into_iter().filter(|other| self.streams.contains_key(other)).collect::<Vec<_>>() {
            self.schedule(other);
        }
    }

    /// When a stream will have its piece at the present rate.
    fn schedule(&mut self, flow: FlowId) {
        let stream = self.streams.get_mut(&flow).expect("it fetches");
        stream.version += 1;
        let Some(piece) = self.readings[&stream.job].pieces.current(stream.index) else { return };
        if stream.rate <= 0.0 {
            return;
        }
        let left = ((piece.end - piece.start) as f64 - stream.fetched).max(0.0);
        let time = self.now + (left / stream.rate * 1e9).ceil() as u64;
        let next = Next::Fetched(flow, stream.version);
        self.at(time, next);
    }

    fn end(&mut self, flow: FlowId) {
        let stream = self.streams.remove(&flow).expect("it has fetched all");
        self.shares.remove(flow);
        let index = stream.job;
        self.outcome.carried += stream.carried;
        self.sources[stream.source.0 as usize].retain(|other| *other != flow);
        if flow.0 < UNTOLD {
            self.tell([Event::Ended(flow)]);
        }
        let reading = self.readings.get_mut(&index).expect("a stream belongs to a read");
        let first = *reading.first_end.get_or_insert(self.now);
        reading.open -= 1;
        if reading.open == 0 {
            debug_assert!(reading.pieces.is_done());
            if reading.streams.len() > 1 && self.jobs[index].kind == Kind::Read {
                self.outcome.gaps.push((self.now - first) as f64 / 1e9);
            }
            self.readings.remove(&index);
            self.took[index] = (self.now - self.jobs[index].at) as f64 / 1e9;
            self.ended += 1;
        }
    }

    /// Rates that a change has reached.
    fn settle(&mut self) {
        for flow in self.shares.settle() {
            let rate = self.shares.rate(flow).bytes();
            let Some(stream) = self.streams.get_mut(&flow) else { continue };
            if stream.rate == rate {
                continue;
            }
            stream.advance(self.now);
            stream.rate = rate;
            self.schedule(flow);
        }
    }
}

#[cfg(test)]
mod tests;
