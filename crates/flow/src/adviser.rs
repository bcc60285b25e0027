//! The flow server as others see it: questions by servers and addresses, answers by flow numbers, and the
//! counters of data servers.
//!
//! Invariants: every question is answered at once; nothing that is asked or reported can make it fail. Flows
//! that it does not know, because it was started again or its data servers have changed, it takes up from
//! what data servers count. This module must not know sockets or files.

use crate::server::{Background, Command, Counted, Event, FlowServer, Options, Request};
use crate::sites::{Network, Sites};
use crate::strangers::Strangers;
use bearing_placement::Draws;
use bearing_proto::Sender;
use bearing_proto::data::{DataBody, DataCall, DataReply, DataRequest, Flow, FlowNumber};
use bearing_proto::flow::{
    Candidate, Explanation, FlowBody, FlowCall, FlowError, FlowReply, FlowRequest, FlowRow, LinkRow,
    PlanPart, RANKED_MAX, REPLICAS_MAX, Replicated, SourceRow, TRAFFIC_MAX, Traffic,
};
use bearing_routing::{Choice, End, FlowId, Hop, Path, Place, Rate, Read, Topology, TopologyError};
use bearing_types::{ChunkId, Mono, ServerId};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// What a disk gave is believed for so long.
const DISK_TTL: Duration = Duration::from_secs(10);
/// And only if it was busy for so long of the time between two reports.
const DISK_BUSY_MIN: Duration = Duration::from_millis(20);
/// So much of a new measurement counts.
const DISK_WEIGHT: f64 = 0.5;

/// What happens to it.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// These are the data servers, and where. Replaces all that were told before.
    Servers(BTreeMap<ServerId, IpAddr>),
    /// A request came from this address.
    Asked(Sender, IpAddr, FlowRequest),
    /// A data server has answered.
    Counters(ServerId, DataReply),
    /// The time that [`Adviser::next_wake`] named has come.
    Tick,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Say {
    /// Answer.
    Answer(Sender, FlowReply),
    /// Ask a data server.
    Ask(ServerId, DataRequest),
}

/// What is known of a data server.
#[derive(Clone, Copy, Debug, Default)]
struct Source {
    heard: Option<Mono>,
    queued: u64,
    /// Bytes and busy microseconds, as they were told last.
    read: u64,
    busy_us: u64,
    /// What its disk gives, in bytes a second, and when that was measured.
    disk: Option<(f64, Mono)>,
}

/// See the module.
pub struct Adviser {
    options: Options,
    network: Option<Network>,
    sites: Sites,
    addresses: BTreeMap<ServerId, IpAddr>,
    server: FlowServer,
    numbers: BTreeMap<FlowNumber, FlowId>,
    names: BTreeMap<FlowId, Flow>,
    sources: BTreeMap<ServerId, Source>,
    strangers: Strangers,
    draws: Draws,
    asked: u64,
    answered: u64,
    out: Vec<Command>,
}

impl Adviser {
    /// An adviser in a network that was described, or not. Numbers of flows are drawn from the options' seed,
    /// which has to be another one at each start.
    pub fn new(now: Mono, network: Option<Network>, options: Options) -> Result<Adviser, TopologyError> {
        let sites = Sites::new(network.as_ref(), &BTreeMap::new())?;
        let server = FlowServer::new(now, sites.topology.clone(), options);
        Ok(Adviser {
            network,
            sites,
            addresses: BTreeMap::new(),
            server,
            numbers: BTreeMap::new(),
            names: BTreeMap::new(),
            sources: BTreeMap::new(),
            strangers: Strangers::default(),
            draws: Draws(options.seed),
            asked: 0,
            answered: 0,
            out: Vec::new(),
            options,
        })
    }

    /// When it wants to be stepped: only while there are flows.
    pub fn next_wake(&self) -> Option<Mono> {
        (self.server.estimates().count() > 0).then(|| self.server.next_wake())
    }

    /// How many flows it knows.
    pub fn flows(&self) -> usize {
        self.server.estimates().count()
    }

    /// Takes what has happened, and appends what is to be done.
    pub fn step(&mut self, now: Mono, said: Said, out: &mut Vec<Say>) {
        match said {
            Said::Servers(servers) => self.on_servers(now, servers),
            Said::Asked(from, address, FlowRequest { id, call }) => {
                // Ends are told, not asked.
                self.answered += u64::from(!matches!(call, FlowCall::Ended { .. }));
                let result = self.answer(now, address, call);
                out.push(Say::Answer(from, FlowReply { id, result }));
            }
            Said::Counters(server, reply) => self.on_counters(now, server, reply),
            Said::Tick => self.tell(now, None),
        }
        for command in std::mem::take(&mut self.out) {
            if let Command::Poll(place) = command
                && let Some(server) = self.sites.server_at(place)
            {
                self.asked += 1;
                let request = DataRequest { id: self.asked, chunk: ChunkId(0), call: DataCall::Counters };
                out.push(Say::Ask(server, request));
            }
        }
        self.forget_ended();
    }

    fn tell(&mut self, now: Mono, event: Option<Event>) {
        self.server.step(now, event, &mut self.out);
    }

    /// Another network is another machine: what flows in it is told by the next counters.
    fn on_servers(&mut self, now: Mono, servers: BTreeMap<ServerId, IpAddr>) {
        if servers == self.addresses {
            return;
        }
        // A network that could be built without servers can be built with them: they hang on its hosts.
        let Ok(sites) = Sites::new(self.network.as_ref(), &servers) else { return };
        self.server = FlowServer::new(now, sites.topology.clone(), self.options);
        self.sources.retain(|server, _| servers.contains_key(server));
        (self.sites, self.addresses) = (sites, servers);
        self.numbers.clear();
        self.names.clear();
        self.strangers.clear();
        for (server, place) in self.sites.servers().collect::<Vec<_>>() {
            let disk = self.sources.get(&server).and_then(|source| source.disk);
            self.tell(now, Some(Event::Disk(place, disk.map(|(rate, _)| Rate::of(rate)))));
        }
    }

    fn answer(&mut self, now: Mono, address: IpAddr, call: FlowCall) -> Result<FlowBody, FlowError> {
        match call {
            FlowCall::Plan { read } => {
                self.forget_disks(now);
                let (read, servers, _) = self.located(address, &read)?;
                let parts = self.plan(now, address, read, &servers)?;
                Ok(FlowBody::Plan { parts })
            }
            FlowCall::Ended { flows } => {
                for flow in flows {
                    if let Some(id) = self.numbers.get(&flow).copied() {
                        self.tell(now, Some(Event::Ended(id)));
                    }
                }
                Ok(FlowBody::Done)
            }
            FlowCall::Explain { reader, read } => {
                self.forget_disks(now);
                self.explain(now, reader.unwrap_or(address), &read).map(FlowBody::Explained)
            }
            FlowCall::Rank { readers, reads } => {
                self.forget_disks(now);
                let count = readers.len().saturating_mul(reads.len());
                if count == 0 || count > RANKED_MAX {
                    return Err(FlowError::TooMuch);
                }
                let ranked = readers.iter().map(|reader| self.takes(now, *reader, &reads)).collect();
                Ok(FlowBody::Ranked(ranked))
            }
            FlowCall::Traffic => Ok(FlowBody::Traffic(self.traffic(now))),
        }
    }

    /// A read as places, the servers of its replicas, and those that are not in the network.
    fn located(
        &self,
        reader: IpAddr,
        read: &Replicated,
    ) -> Result<(Read, Vec<ServerId>, Vec<ServerId>), FlowError> {
        let reader = self.sites.reader(reader).ok_or(FlowError::UnknownReader)?;
        let listed = read.servers.iter().copied().take(REPLICAS_MAX);
        let (known, unknown): (Vec<ServerId>, Vec<ServerId>) =
            listed.partition(|server| self.sites.server(*server).is_some());
        let replicas: Vec<Place> = known.iter().filter_map(|server| self.sites.server(*server)).collect();
        if replicas.is_empty() {
            return Err(FlowError::NoReplica);
        }
        Ok((Read { reader, replicas, bytes: read.bytes }, known, unknown))
    }

    fn plan(
        &mut self,
        now: Mono,
        reader: IpAddr,
        read: Read,
        servers: &[ServerId],
    ) -> Result<Vec<PlanPart>, FlowError> {
        let request = Request(self.answered);
        let choice =
            ask(&mut self.server, now, (request, read), &mut self.out).ok_or(FlowError::NoReplica)?;
        let mut parts = Vec::new();
        for part in choice.parts {
            let number = FlowNumber(self.draws.draw());
            let flow = Flow { number, bytes: part.bytes, reader };
            self.note(part.flow, flow);
            parts.push(PlanPart { server: servers[part.replica], flow, rate: whole(part.rate) });
        }
        Ok(parts)
    }

    fn note(&mut self, id: FlowId, flow: Flow) {
        self.numbers.insert(flow.number, id);
        self.names.insert(id, flow);
    }

    /// The machine forgets flows that have ended, or of which nobody told the end.
    fn forget_ended(&mut self) {
        if self.names.len() + self.strangers.count() == self.server.estimates().count() {
            return;
        }
        let Adviser { names, numbers, server, .. } = self;
        names.retain(|id, flow| {
            let lives = server.estimates().rate(*id).is_some();
            if !lives {
                numbers.remove(&flow.number);
            }
            lives
        });
    }

    /// A disk of which nothing was measured lately may have become faster.
    fn forget_disks(&mut self, now: Mono) {
        let old = |source: &Source| source.disk.is_some_and(|(_, at)| now.since(at) > DISK_TTL);
        let servers: Vec<ServerId> =
            self.sources.iter().filter(|(_, source)| old(source)).map(|(server, _)| *server).collect();
        for server in servers {
            if let Some(source) = self.sources.get_mut(&server) {
                source.disk = None;
            }
            if let Some(place) = self.sites.server(server) {
                self.tell(now, Some(Event::Disk(place, None)));
            }
        }
    }

    fn on_counters(&mut self, now: Mono, server: ServerId, reply: DataReply) {
        let Some(place) = self.sites.server(server) else { return };
        let Ok(DataBody::Counters { flows, queued, read, busy_us, carried }) = reply.result else { return };
        let source = self.sources.entry(server).or_default();
        let before = std::mem::replace(source, Source { heard: Some(now), queued, read, busy_us, ..*source });
        // A server that was started again counts from nothing.
        let (bytes, busy) = (read.saturating_sub(before.read), busy_us.saturating_sub(before.busy_us));
        if before.heard.is_some() && bytes > 0 && busy as u128 >= DISK_BUSY_MIN.as_micros() {
            let measured = Rate::measured(bytes, busy * 1_000).bytes();
            let rate = before.disk.map_or(measured, |(disk, _)| disk + DISK_WEIGHT * (measured - disk));
            source.disk = Some((rate, now));
            self.tell(now, Some(Event::Disk(place, Some(Rate::of(rate)))));
        }
        let mut counted = Vec::new();
        for (flow, bytes) in flows {
            if let Some(id) =
                self.numbers.get(&flow.number).copied().or_else(|| self.take_up(now, place, flow, bytes))
            {
                counted.push(Counted { flow: id, bytes });
            }
        }
        self.tell(now, Some(Event::Counters(place, counted)));
        if let (Some(carried), Some(address)) = (carried, self.addresses.get(&server)) {
            let Adviser { strangers, sites, server, out, .. } = self;
            strangers.on_carried(now, (*address, place), carried, (sites, server), out);
        }
    }

    /// A flow that somebody planned before this machine began, or before its network changed.
    fn take_up(&mut self, now: Mono, source: Place, flow: Flow, sent: u64) -> Option<FlowId> {
        let target = self.sites.reader(flow.reader)?;
        if sent >= flow.bytes {
            return None;
        }
        let path = self.server.route(source, target)?;
        let noticed = Background { source, target, path, bytes: Some(flow.bytes) };
        let mut out = Vec::new();
        self.server.step(now, [Event::Noticed(Request(0), noticed)], &mut out);
        let id = out.iter().find_map(|command| match command {
            Command::Numbered(_, id) => *id,
            _ => None,
        });
        self.out.append(&mut out);
        self.note(id?, flow);
        id
    }

    fn explain(&mut self, now: Mono, reader: IpAddr, read: &Replicated) -> Result<Explanation, FlowError> {
        let (read, servers, mut unknown) = self.located(reader, read)?;
        let mut copy = self.server.clone();
        let offers = copy.offers(now, &read);
        let unreached =
            (0..servers.len()).filter(|replica| !offers.iter().any(|offer| offer.replica == *replica));
        unknown.extend(unreached.map(|replica| servers[replica]));
        let mut candidates: Vec<Candidate> = offers
            .iter()
            .map(|offer| Candidate {
                server: servers[offer.replica],
                path: self.switches(&offer.path),
                rate: whole(offer.price.rate),
                takes_us: micros(offer.price.rate.seconds_for(read.bytes as f64)),
                impact_us: micros(offer.price.impact),
                shared_with: offer.shared_with as u32,
            })
            .collect();
        candidates.sort_by_key(|candidate| candidate.takes_us.saturating_add(candidate.impact_us));
        let choice = ask(&mut copy, now, (Request(0), read), &mut Vec::new()).ok_or(FlowError::NoReplica)?;
        let part = |part: &bearing_routing::Part| PlanPart {
            server: servers[part.replica],
            flow: Flow { number: FlowNumber(0), bytes: part.bytes, reader },
            rate: whole(part.rate),
        };
        Ok(Explanation {
            selection: self.options.selection.name().to_owned(),
            parts: choice.parts.iter().map(part).collect(),
            takes_us: micros(choice.seconds),
            impact_us: micros(choice.impact),
            candidates,
            unknown,
        })
    }

    /// Names of the switches on a path: those that stand for hosts too, as a path leads from and to them.
    fn switches(&self, path: &Path) -> Vec<String> {
        let name = |end| match end {
            End::Switch(_) => Some(self.sites.topology.end_name(end).to_owned()),
            End::Host(_) => None,
        };
        path.0.iter().filter_map(|hop| name(self.sites.topology.target(*hop))).collect()
    }

    /// How long these reads take one after the other.
    fn takes(&mut self, now: Mono, reader: IpAddr, reads: &[Replicated]) -> Option<u64> {
        let mut copy = self.server.clone();
        let mut seconds = 0.0;
        for read in reads {
            let (read, ..) = self.located(reader, read).ok()?;
            let choice = ask(&mut copy, now, (Request(0), read), &mut Vec::new())?;
            seconds += choice.seconds;
            let over = choice.parts.iter().map(|part| Event::Ended(part.flow));
            copy.step(now, over, &mut Vec::new());
        }
        Some(micros(seconds))
    }

    fn traffic(&mut self, now: Mono) -> Traffic {
        let topology: &Topology = &self.sites.topology;
        let estimates = self.server.estimates();
        let mut loads: BTreeMap<Hop, (f64, u32)> = BTreeMap::new();
        for (_, rate, hops) in estimates.flows() {
            for hop in hops {
                let load = loads.entry(hop).or_default();
                *load = (load.0 + rate.bytes(), load.1 + 1);
            }
        }
        // Links within hosts are there for this machine only.
        let is_real = |hop: &Hop| {
            [topology.source(*hop), topology.target(*hop)].iter().all(|end| matches!(end, End::Switch(_)))
        };
        let mut links: Vec<LinkRow> = loads
            .into_iter()
            .filter(|(hop, _)| is_real(hop))
            .map(|(hop, (load, flows))| LinkRow {
                source: topology.end_name(topology.source(hop)).to_owned(),
                target: topology.end_name(topology.target(hop)).to_owned(),
                capacity: whole(topology.capacity(hop.link())),
                load: load as u64,
                flows,
            })
            .collect();
        let share = |link: &LinkRow| link.load as f64 / link.capacity as f64;
        links.sort_by(|one, other| share(other).total_cmp(&share(one)));
        links.truncate(TRAFFIC_MAX);
        let mut flows: Vec<FlowRow> = self
            .server
            .ends()
            .map(|(id, source, target)| FlowRow {
                flow: self.names.get(&id).map_or(FlowNumber(0), |flow| flow.number),
                source: topology.host_name(source).to_owned(),
                target: topology.host_name(target).to_owned(),
                rate: estimates.rate(id).map_or(0, whole),
                left: estimates.remaining(now, id).unwrap_or(0.0) as u64,
            })
            .collect();
        flows.sort_by_key(|flow| std::cmp::Reverse(flow.left));
        flows.truncate(TRAFFIC_MAX);
        let row = |server: ServerId| {
            let source = self.sources.get(&server).copied().unwrap_or_default();
            SourceRow {
                server,
                queued: source.queued,
                disk: source.disk.map(|(rate, _)| rate as u64),
                heard_ms: source.heard.map(|heard| now.since(heard).as_millis() as u64),
            }
        };
        Traffic {
            count: estimates.count() as u64,
            flows,
            links,
            sources: self.sites.servers().map(|(server, _)| row(server)).collect(),
            answered: self.answered,
            unknown_reports: estimates.unknown_reports(),
            has_topology: self.network.is_some(),
        }
    }
}

/// Asks a machine, which answers at once.
fn ask(
    server: &mut FlowServer,
    now: Mono,
    (request, read): (Request, Read),
    out: &mut Vec<Command>,
) -> Option<Choice> {
    let before = out.len();
    server.step(now, [Event::Ask(request, read)], out);
    let answer = out[before..].iter().position(|command| matches!(command, Command::Answer(..)))?;
    match out.remove(before + answer) {
        Command::Answer(_, choice) => choice,
        _ => None,
    }
}

fn whole(rate: Rate) -> u64 {
    (rate.bytes() as u64).max(1)
}

fn micros(seconds: f64) -> u64 {
    (seconds * 1e6).min(1e15) as u64
}

#[cfg(test)]
mod tests;
