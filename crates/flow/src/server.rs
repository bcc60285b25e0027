//! The machine. Events come in, commands go out.

use crate::replan::{LOOKED_AT_MAX, Reading};
use bearing_placement::Draws;
use bearing_routing::{
    Choice, Estimates, FLOWS_MAX, FlowId, HostLoads, LinkId, Part, Path, Paths, Place, Placed, Placing,
    Price, Rate, Read, Route, Selection, SwitchId, Topology, Write,
};
use bearing_types::Mono;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// No flow counts as larger than this, a PiB: one absurd number would outweigh all others.
const BYTES_MAX: u64 = 1 << 50;

/// Whether reads under way are moved to other replicas and paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replanning {
    /// Never, as published.
    Off,
    /// When flows have ended and it saves enough.
    On,
}

/// How it chooses and how often it asks.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How replicas and paths are chosen.
    pub selection: Selection,
    /// Every host is asked for its counters so often. The paper says 3 s in one place and 1 s in another,
    /// and that up to 5 s make no difference.
    pub poll_interval: Duration,
    /// Whether what was chosen may be changed.
    pub replanning: Replanning,
    /// Draws begin from here.
    pub seed: u64,
}

/// A question, by whatever number its asker gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request(pub u64);

/// A large flow of others, which somebody has noticed.
#[derive(Clone, Debug, PartialEq)]
pub struct Background {
    /// From where.
    pub source: Place,
    /// To where.
    pub target: Place,
    /// How it goes.
    pub path: Path,
    /// How much, if that is known.
    pub bytes: Option<u64>,
}

/// What a flow has carried in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Which.
    pub flow: FlowId,
    /// Since it began.
    pub bytes: u64,
}

/// What happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Somebody wants to read.
    Ask(Request, Read),
    /// Somebody wants to write a chunk, to hosts that are chosen like this.
    Place(Request, Write, Placing),
    /// A flow is over, or will not be.
    Ended(FlowId),
    /// Somebody has noticed a flow of others.
    Noticed(Request, Background),
    /// What the flows that a host sends have carried.
    Counters(Place, Vec<Counted>),
    /// What a data server's disk gives in all, or `None`: more than its link carries.
    Disk(Place, Option<Rate>),
    /// All of this has failed, and nothing else.
    Failed(BTreeSet<LinkId>, BTreeSet<SwitchId>),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// An answer: what was chosen, or `None` if no replica can be reached.
    Answer(Request, Option<Choice>),
    /// The hosts of a new chunk's copies, the first first. Fewer than asked for if there are not so many.
    Placed(Request, Vec<Placed>),
    /// The number of a flow of others, or `None` if its ends are not in the network.
    Numbered(Request, Option<FlowId>),
    /// A read goes on by this part too, or in place of the flow that is named.
    Redirect(Request, Option<FlowId>, Part),
    /// A host's counters are wanted.
    Poll(Place),
}

/// A replica and a path that could be chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The index of the replica in the read.
    pub replica: usize,
    /// The way from it to the reader.
    pub path: Path,
    /// What it would give, and do to others.
    pub price: Price,
    /// Flows that cross a link of it, or read from the same disk.
    pub shared_with: usize,
}

/// What is known of a flow besides its estimates.
#[derive(Clone, Copy, Debug)]
struct Ends {
    source: Place,
    target: Place,
    /// The read that it is of; others' flows are of none.
    request: Option<Request>,
    /// The last count, and when.
    bytes: u64,
    at: Mono,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct FlowServer {
    options: Options,
    paths: Paths,
    estimates: Estimates,
    loads: HostLoads,
    flows: BTreeMap<FlowId, Ends>,
    readings: BTreeMap<Request, Reading>,
    /// By host: what it sends.
    sent: Vec<BTreeSet<FlowId>>,
    /// The host that is asked next, and when.
    next_poll: (Place, Mono),
    draws: Draws,
}

impl FlowServer {
    /// Over a network in which nothing flows.
    pub fn new(now: Mono, topology: Arc<Topology>, options: Options) -> FlowServer {
        FlowServer {
            estimates: options.selection.estimates(&topology),
            loads: HostLoads::new(&topology),
            flows: BTreeMap::new(),
            readings: BTreeMap::new(),
            sent: vec![BTreeSet::new(); topology.places() as usize],
            next_poll: (Place(0), now),
            draws: Draws(options.seed),
            paths: Paths::new(topology),
            options,
        }
    }

    /// What it believes.
    pub fn estimates(&self) -> &Estimates {
        &self.estimates
    }

    /// When it wants to be stepped at the latest.
    pub fn next_wake(&self) -> Mono {
        self.next_poll.1
    }

    /// The first of the shortest ways.
    pub fn route(&mut self, source: Place, target: Place) -> Option<Path> {
        self.paths.between(source, target).iter().next().map(Route::path)
    }

    /// What could be chosen for a read, each with its price.
    pub fn offers(&mut self, now: Mono, read: &Read) -> Vec<Offer> {
        let mut offers = Vec::new();
        for (replica, source) in read.replicas.iter().enumerate() {
            for route in self.paths.between(*source, read.reader).iter() {
                let carriers = self.estimates.carriers(*source, route);
                let price = self.estimates.price(now, &carriers, &[]);
                let shared_with = self.estimates.sharing(&carriers);
                offers.push(Offer { replica, path: route.path(), price, shared_with });
            }
        }
        offers
    }

    /// Between which places flows go.
    pub fn ends(&self) -> impl Iterator<Item = (FlowId, Place, Place)> + '_ {
        self.flows.iter().map(|(flow, ends)| (*flow, ends.source, ends.target))
    }

    /// What a flow of others has carried, as its host counts it.
    pub(crate) fn measured(&mut self, now: Mono, counted: Counted) {
        self.estimates.report(now, counted.flow, counted.bytes);
    }

    /// Takes what has happened, and appends what is to be done.
    pub fn step(&mut self, now: Mono, events: impl IntoIterator<Item = Event>, out: &mut Vec<Command>) {
        let mut have_ended = false;
        for event in events {
            have_ended |= matches!(event, Event::Ended(_));
            match event {
                Event::Ask(request, read) => self.on_ask(now, request, &read, out),
                Event::Place(request, write, placing) => self.on_place(now, request, write, placing, out),
                Event::Ended(flow) => self.on_ended(now, flow),
                Event::Noticed(request, flow) => self.on_noticed(now, request, flow, out),
                Event::Counters(host, counted) => self.on_counters(now, host, &counted),
                Event::Disk(place, rate) => {
                    if place.0 < self.paths.topology().places() {
                        self.estimates.set_disk(place, rate);
                    }
                }
                Event::Failed(links, switches) => self.paths.fail(links, switches),
            }
        }
        if have_ended && self.options.replanning == Replanning::On {
            self.replan(now, out);
        }
        self.poll(now, out);
    }

    /// Looks at the reads that will take longest.
    fn replan(&mut self, now: Mono, out: &mut Vec<Command>) {
        let left = |reading: &Reading| reading.seconds_left(now, &self.estimates);
        let mut longest: Vec<(f64, Request)> =
            self.readings.iter().map(|(request, reading)| (left(reading), *request)).collect();
        longest.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        for (_, request) in longest.into_iter().take(LOOKED_AT_MAX) {
            let Some(reading) = self.readings.get_mut(&request) else { continue };
            let Some((ended, part)) = reading.improve(now, &mut self.paths, &mut self.estimates) else {
                continue;
            };
            let (source, reader) = (reading.read.replicas[part.replica], reading.read.reader);
            if let Some(ends) = ended.and_then(|flow| self.flows.remove(&flow)) {
                ended.map(|flow| self.sent[ends.source.0 as usize].remove(&flow));
            }
            self.note(now, part.flow, source, reader, Some(request));
            out.push(Command::Redirect(request, ended, part));
        }
    }

    fn on_ask(&mut self, now: Mono, request: Request, read: &Read, out: &mut Vec<Command>) {
        let draw = self.draws.draw();
        let read = &Read { bytes: read.bytes.min(BYTES_MAX), ..read.clone() };
        let selection = self.options.selection;
        let (paths, estimates) = (&mut self.paths, &mut self.estimates);
        let choice = selection.choose(now, read, paths, estimates, &self.loads, draw);
        for part in choice.iter().flat_map(|choice| &choice.parts) {
            let source = read.replicas[part.replica];
            self.loads.expect(&mut self.paths, source, read.reader, part.rate);
            self.note(now, part.flow, source, read.reader, Some(request));
        }
        if let Some(choice) = &choice {
            let parts = choice.parts.iter().map(|part| (part.flow, part.replica)).collect();
            self.readings.insert(request, Reading { read: read.clone(), parts, changes: 0 });
        }
        out.push(Command::Answer(request, choice));
    }

    fn on_place(
        &mut self,
        now: Mono,
        request: Request,
        write: Write,
        placing: Placing,
        out: &mut Vec<Command>,
    ) {
        let draw = self.draws.draw();
        let write = Write { bytes: write.bytes.min(BYTES_MAX), ..write };
        let (paths, estimates, loads) = (&mut self.paths, &mut self.estimates, &mut self.loads);
        let placed = placing.place(now, write, paths, estimates, loads, draw);
        for copy in &placed {
            self.note(now, copy.flow, copy.source, copy.target, None);
        }
        out.push(Command::Placed(request, placed));
    }

    fn note(&mut self, now: Mono, flow: FlowId, source: Place, target: Place, request: Option<Request>) {
        // Who never tells the end of anything has a bounded memory of ours: the oldest is forgotten.
        if self.flows.len() >= FLOWS_MAX
            && let Some((oldest, _)) = self.flows.first_key_value()
        {
            self.on_ended(now, *oldest);
        }
        self.flows.insert(flow, Ends { source, target, request, bytes: 0, at: now });
        self.sent[source.0 as usize].insert(flow);
    }

    fn on_ended(&mut self, now: Mono, flow: FlowId) {
        self.estimates.end(now, flow);
        if let Some(ends) = self.flows.remove(&flow) {
            self.sent[ends.source.0 as usize].remove(&flow);
            let Some(request) = ends.request else { return };
            let Some(reading) = self.readings.get_mut(&request) else { return };
            reading.parts.retain(|part| part.0 != flow);
            if reading.parts.is_empty() {
                self.readings.remove(&request);
            }
        }
    }

    fn on_noticed(&mut self, now: Mono, request: Request, noticed: Background, out: &mut Vec<Command>) {
        if noticed.source.max(noticed.target).0 >= self.paths.topology().places() {
            out.push(Command::Numbered(request, None));
            return;
        }
        let bytes = noticed.bytes.map(|bytes| bytes.min(BYTES_MAX));
        let carriers = self.estimates.carriers_of(&noticed.path);
        // Until it was measured it is taken to have what a new flow would get.
        let price = self.estimates.price(now, &carriers, &[]);
        let (flow, _) = self.estimates.attempt(now, carriers, bytes, price.rate);
        self.note(now, flow, noticed.source, noticed.target, None);
        out.push(Command::Numbered(request, Some(flow)));
    }

    fn on_counters(&mut self, now: Mono, host: Place, counted: &[Counted]) {
        for Counted { flow, bytes } in counted {
            self.estimates.report(now, *flow, *bytes);
        }
        let Some(flows) = self.sent.get(host.0 as usize) else { return };
        let counts: BTreeMap<FlowId, u64> =
            counted.iter().map(|counted| (counted.flow, counted.bytes)).collect();
        let mut sent = Vec::new();
        for flow in flows {
            let Some(ends) = self.flows.get_mut(flow) else { continue };
            let Some(bytes) = counts.get(flow).copied().filter(|bytes| *bytes >= ends.bytes) else {
                continue;
            };
            let rate = Rate::measured(bytes - ends.bytes, now.since(ends.at).as_nanos() as u64);
            (ends.bytes, ends.at) = (bytes, now);
            sent.push((ends.target, rate));
        }
        self.loads.measured(&mut self.paths, host, sent);
    }

    /// Hosts are asked one after the other, so that all have been asked within an interval.
    fn poll(&mut self, now: Mono, out: &mut Vec<Command>) {
        let places = self.paths.topology().places();
        let delay = self.options.poll_interval / places;
        while self.next_poll.1 <= now {
            let (place, at) = self.next_poll;
            out.push(Command::Poll(place));
            let next = Place((place.0 + 1) % places);
            if next == Place(0) {
                for flow in self.estimates.expire(now) {
                    self.on_ended(now, flow);
                }
            }
            // Nobody is asked twice because this machine was not stepped for a while.
            self.next_poll = (next, at.after(delay).max(now.after(delay / 2)));
        }
    }
}

#[cfg(test)]
mod tests;
