//! Figures 4 to 7 of RDHT-MDSC. Figure 3 is about linked lists in a table of fixed size, nothing of ours.

use super::draw::line;
use super::effort::Effort;
use crate::figure::Figure;
use crate::parallel::each;
use crate::queues::{
    Agent, Copies, Costs, Division, Mode, Rates, Relays, Setup, ThroughputRatio, Watch, closed_loop,
};
use crate::statistics::{Interval, mean};
use bearing_lookup::finger::{FingerClient, FingerConfig, FingerServer, Points, Reliability, RoutingCache};
use bearing_lookup::world::{Order, World};
use bearing_lookup::{FileKey, QueryId, Target};
use bearing_placement::{Arcs, Draws, Parameters, Scheme};
use bearing_types::{Position, ServerId};
use std::time::Duration;

/// What an operation takes a server: one processor of 2.8 GHz, metadata in memory, one message each way. The
/// paper gives no time; only shares depend on nothing else, but for figure 7.
const STORAGE: Duration = Duration::from_micros(100);
const SERVERS: [u32; 5] = [1, 2, 3, 4, 5];
const CLIENTS: [u32; 5] = [8, 16, 24, 32, 40];
/// What passing a query on costs: as much as to carry it out. It has to be taken from the network, read and
/// sent again, and an operation in memory is little more.
const RATIO: f64 = 1.0;

/// What a line is of.
#[derive(Clone, Copy, Debug)]
struct Kind {
    scheme: Scheme,
    /// With LC-RIC, or all through the relay.
    has_cache: bool,
    copies: Copies,
    /// What passing on costs, in operations.
    relay: f64,
}

fn setup(kind: Kind, servers: u32, clients: u32, seed: u64) -> Setup {
    let costs = Costs::of_throughput(ThroughputRatio(1.0 / kind.relay), Agent::None);
    let parameters = Parameters { even_points: true, ..kind.scheme.parameters() };
    let mut scheme = kind.scheme.parts();
    if !kind.has_cache {
        scheme.lookup = Scheme::Chord.parts().lookup;
    }
    Setup {
        scheme,
        parameters,
        servers,
        clients,
        division: Division::Published,
        relays: Relays::Drawn,
        copies: kind.copies,
        learnt: 0,
        costs: costs.expect("a ratio above 0").scaled(STORAGE),
        order: Order::Arrival,
        one_host: false,
        wires: None,
        seed,
    }
}

/// Operations of a server until queues are as long as they will be.
const SETTLE: u32 = 20;

/// Clients have one operation under way each; caches are warm: each client has done some 200 before.
fn rates(kind: Kind, servers: u32, clients: u32, effort: Effort) -> Vec<Rates> {
    let seeds: Vec<u64> = (0..effort.seeds).map(|seed| effort.seed + seed).collect();
    each(&seeds, |seed| {
        let queries = effort.queries as u32;
        // Without a cache nothing has to be learnt.
        let learnt = if kind.has_cache { queries.min(200) } else { queries.min(20) };
        let watch = Watch { settle: SETTLE, measure: queries };
        let setup = Setup { learnt, ..setup(kind, servers, clients, *seed) };
        closed_loop(&setup, 1, watch).expect("a cluster of the figure")
    })
}

fn milliseconds(rates: &[Rates]) -> Interval {
    Interval::of(&rates.iter().map(|rates| mean(&rates.took) * 1e3).collect::<Vec<f64>>())
}

fn per_second(rates: &[Rates]) -> f64 {
    mean(&rates.iter().map(|rates| rates.per_second).collect::<Vec<f64>>())
}

/// Runs by servers and clients.
struct Grid(Vec<Vec<Vec<Rates>>>);

impl Grid {
    fn of(kind: Kind, effort: Effort) -> Grid {
        let by_clients =
            |servers: u32| CLIENTS.iter().map(|clients| rates(kind, servers, *clients, effort)).collect();
        Grid(SERVERS.iter().map(|servers| by_clients(*servers)).collect())
    }

    /// The rate with the most clients, by servers.
    fn rates(&self) -> Vec<f64> {
        self.0.iter().map(|by_clients| by_clients.last().map_or(0.0, |rates| per_second(rates))).collect()
    }

    /// Milliseconds of an operation.
    fn latency(&self, servers: usize, clients: usize) -> f64 {
        milliseconds(&self.0[servers - 1][clients]).mean
    }

    fn draw(&self, figure: &mut Figure, what: &str) {
        let xs = CLIENTS.map(f64::from);
        for (servers, by_clients) in SERVERS.iter().zip(&self.0) {
            let intervals: Vec<Interval> = by_clients.iter().map(|rates| milliseconds(rates)).collect();
            let plural = if *servers == 1 { "" } else { "s" };
            figure.costly(
                Mode::PaperRatios,
                line(&format!("{what}, {servers} server{plural}"), &xs, &intervals),
            );
        }
    }
}

fn figure(name: &str, effort: Effort, x: &str, y: &str) -> Figure {
    Figure {
        figure: name.to_owned(),
        x: x.to_owned(),
        y: y.to_owned(),
        unit: "ms".to_owned(),
        series: Vec::new(),
        published: Vec::new(),
        ours: Vec::new(),
        seed: effort.seed,
        commit: String::new(),
        costs: None,
    }
}

const DHT: Kind = Kind { scheme: Scheme::DhtMdsc, has_cache: true, copies: Copies::One, relay: 1.0 / RATIO };
const PLAIN: Kind = Kind { has_cache: false, ..DHT };
const READS: Kind = Kind { scheme: Scheme::RdhtMdsc, ..DHT };
const WRITES: Kind = Kind { copies: Copies::OnSuccessor, ..READS };
const BOTH: &str = "reads or writes";

/// Without LC-RIC.
pub fn figure_4(name: &str, effort: Effort) -> Figure {
    let grid = Grid::of(PLAIN, effort);
    let mut figure = figure(name, effort, "clients", "mean latency");
    grid.draw(&mut figure, BOTH);
    let last = CLIENTS.len() - 1;
    let five = grid.0.last().and_then(|by_clients| by_clients.last()).map_or(&[][..], Vec::as_slice);
    // One hop leads to the relay; every further one was paid for by a server that passed it on.
    let relayed = mean(&five.iter().map(|rates| rates.hops - 1.0).collect::<Vec<f64>>());
    // (1 + relayed x cost) / 5 servers > 1 server.
    let breaks_even = 4.0 / relayed.max(f64::MIN_POSITIVE);
    let dear = Kind { relay: breaks_even * 1.5, ..PLAIN };
    let dear: Vec<Interval> =
        CLIENTS.iter().map(|clients| milliseconds(&rates(dear, 5, *clients, effort))).collect();
    let dear_line = format!("{BOTH}, 5 servers, if passing on cost {:.1} operations", breaks_even * 1.5);
    figure.costly(Mode::PaperRatios, line(&dear_line, &CLIENTS.map(f64::from), &dear));
    figure.claim(
        "latency with 40 clients, 5 servers over 1: more than",
        1.0,
        grid.latency(5, last) / grid.latency(1, last),
        1.0..=f64::INFINITY,
        "does not follow from queues: an operation is passed on about once among 5 servers with equal ranges, so \
         five servers that pass on at the cost of an operation still do more than one; the paper says neither \
         what passing on costs nor what limits one server",
    );
    let rates = grid.rates();
    let added = rates.windows(2).map(|pair| (pair[1] - pair[0]) / rates[0]).fold(0.0, f64::max);
    let claim = "what one server more adds, over what one alone does, at most: less than 1";
    figure.must(claim.to_owned(), added, 0.0..=1.0 - 1e-9, "");
    figure.see("operations a second with 40 clients, 5 servers over 1".to_owned(), rates[4] / rates[0], "");
    figure.see("times that an operation is passed on among 5 servers".to_owned(), relayed, "");
    figure.see(
        "operations that passing on once would have to cost for 5 servers to be as slow as 1".to_owned(),
        breaks_even,
        "",
    );
    figure.see(
        "latency with 40 clients, 5 servers over 1, if it cost half as much again".to_owned(),
        dear[last].mean / grid.latency(1, last),
        "",
    );
    figure
}

/// With LC-RIC.
pub fn figure_5(name: &str, effort: Effort) -> Figure {
    let grid = Grid::of(DHT, effort);
    let mut figure = figure(name, effort, "clients", "mean latency");
    grid.draw(&mut figure, BOTH);
    let rates = grid.rates();
    let ratio = rates[4] / rates[0];
    let why = "one of the paper's servers dropped packets, which it says is a part of its 4.5; here nothing is \
               dropped, and what is short of 5 are servers that wait for clients";
    for what in ["reads", "writes"] {
        figure.claim(
            &format!("{what} a second with 40 clients, 5 servers over 1"),
            4.5,
            ratio,
            4.0..=5.0,
            why,
        );
    }
    let claim = "operations a second with 40 clients, 5 servers over 1: at least 4";
    figure.must(claim.to_owned(), ratio, 4.0..=f64::INFINITY, "");
    let hops =
        grid.0[4].last().map_or(0.0, |runs| mean(&runs.iter().map(|run| run.hops).collect::<Vec<_>>()));
    figure.see("hops of an operation among 5 servers".to_owned(), hops, "caches are warm");
    figure
}

/// Writes with a copy on the successor.
pub fn figure_6(name: &str, effort: Effort) -> Figure {
    let (reads, writes, single) = (Grid::of(READS, effort), Grid::of(WRITES, effort), Grid::of(DHT, effort));
    let mut figure = figure(name, effort, "clients", "mean latency");
    reads.draw(&mut figure, "reads");
    writes.draw(&mut figure, "writes");
    // The number of clients up to which the latency of two servers grows by no more than the least step.
    let two: Vec<f64> = (0..CLIENTS.len()).map(|clients| writes.latency(2, clients)).collect();
    let first = two[1] - two[0];
    let bends = (1..two.len() - 1).find(|index| two[index + 1] - two[*index] > 1.25 * first);
    let until = bends.map_or(CLIENTS[CLIENTS.len() - 1], |index| CLIENTS[index]);
    figure.claim(
        "clients up to which writes of two servers grow slower in proportion only",
        24.0,
        f64::from(until),
        24.0..=24.0,
        "queues are full from 8 clients on, so latency grows in proportion to the clients as far as is drawn; \
         the paper lays its bend to an interface that drops packets, which nothing does here",
    );
    let last = CLIENTS.len() - 1;
    let many = 2..=5;
    let slower = many.clone().map(|servers| writes.latency(servers, last) / single.latency(servers, last));
    let claim =
        "writes with a copy over those of figure 5, 40 clients, least over 2 to 5 servers: more than 1";
    figure.must(claim.to_owned(), slower.fold(f64::INFINITY, f64::min), 1.0 + 1e-9..=f64::INFINITY, "");
    let apart =
        many.map(|servers| (reads.latency(servers, last) / single.latency(servers, last) - 1.0).abs());
    let claim = "reads over those of figure 5, 40 clients, how far apart at most: at most 5 %";
    figure.must(claim.to_owned(), apart.fold(0.0, f64::max), 0.0..=0.05, "");
    let (written, read) = (writes.rates(), reads.rates());
    figure.see("writes a second with 40 clients, 5 servers over 1".to_owned(), written[4] / written[0], "");
    figure.see("reads a second with 40 clients, 5 servers over 1".to_owned(), read[4] / read[0], "");
    figure
}

/// From one host to another, through five switches. Assumed.
const WAY: Duration = Duration::from_micros(5);
/// Nobody waits longer for a reconstruction.
const GIVES_UP: Duration = Duration::from_secs(2);

/// Milliseconds from the missed ping to the last acknowledgement, after a server has vanished among so many
/// while 40 clients are served. `None`: it has not ended within [`GIVES_UP`].
fn reconstruction(servers: u32, storage: Duration, order: Order, seed: u64) -> Option<f64> {
    let costs = Costs::of_throughput(ThroughputRatio(RATIO), Agent::None)?.scaled(storage);
    let members: Vec<ServerId> = (1..=servers).map(ServerId).collect();
    let arcs = Arcs::even(&members).ok()?;
    let points = Points::of(&arcs);
    let (before, mut draws) = (arcs.clone(), Draws(seed));
    let owner = move |target: &Target| Some(before.owner(target.position));
    let mut world: World<FingerServer> = World::new(WAY, Box::new(owner));
    world.set_work(costs.work(false), order);
    let config = FingerConfig::new(Reliability::Rebuilding);
    for server in &members {
        world.add_server(*server, FingerServer::settled(*server, &members, &points, config.clone()));
    }
    let clients = 40;
    for client in 0..clients {
        let mut known = members.clone();
        known.rotate_left(client % members.len());
        world.add_client(Box::new(FingerClient::new(&known, RoutingCache::Lazy, points.clone())));
    }
    let mut asked = 0;
    let mut ask = |world: &mut World<FingerServer>, client: usize| {
        let position = Position(draws.draw());
        let target = Target { position, file: FileKey::of_part(position) };
        world.ask_at(world.now().after(WAY), client, QueryId(asked), target);
        asked += 1;
    };
    (0..clients).for_each(|client| ask(&mut world, client));
    let mut moments = Draws(seed ^ 0x6661_696c);
    let failed = members[moments.below(u64::from(servers)) as usize];
    let fails = world.now().after(Duration::from_micros(30_000 + moments.below(30_000)));
    let gives_up = fails.after(GIVES_UP);
    let mut is_gone = false;
    loop {
        let goes_on = world.happen_by(if is_gone { gives_up } else { fails });
        for (_, client, _) in world.take_ended() {
            ask(&mut world, client);
        }
        let done = members.iter().filter_map(|server| world.server(*server)?.reconstructed());
        let done = done.filter(|done| done.gone == failed).map(|done| done.ended.since(done.begun));
        if let Some(took) = done.max().filter(|_| is_gone) {
            return Some(took.as_secs_f64() * 1e3);
        }
        match (goes_on, is_gone) {
            (true, _) => {}
            (false, true) => return None,
            (false, false) => {
                is_gone = true;
                world.vanish(failed);
                let next = arcs.successors(arc_of(&arcs, failed), 2).get(1).copied()?;
                let starts: Vec<(Position, ServerId)> = arcs
                    .iter()
                    .map(|(first, _, owner)| (first, if owner == failed { next } else { owner }))
                    .collect();
                let after = Arcs::new(starts).ok()?;
                world.set_truth(Box::new(move |target| Some(after.owner(target.position))));
            }
        }
    }
}

fn arc_of(arcs: &Arcs, server: ServerId) -> Position {
    arcs.iter().find(|(_, _, owner)| *owner == server).map_or(Position(0), |(first, ..)| first)
}

/// Reconstruction times.
pub fn figure_7(name: &str, effort: Effort) -> Figure {
    let mut figure = figure(name, effort, "servers", "mean reconstruction time");
    let sizes = [3, 5, 9, 17, 33];
    // Draws are cheap here: the moment of the failure is what varies.
    let seeds: Vec<u64> = (0..5 * effort.seeds).map(|seed| effort.seed + seed).collect();
    let mut of_five = Vec::new();
    for (micros, order) in [(20, Order::Arrival), (100, Order::Arrival), (500, Order::StoreLast)] {
        let storage = Duration::from_micros(micros);
        let runs: Vec<Vec<f64>> = sizes
            .iter()
            .map(|servers| {
                let taken = each(&seeds, |seed| reconstruction(*servers, storage, order, *seed));
                // One that does not end is as bad as can be seen.
                taken.into_iter().map(|taken| taken.unwrap_or(GIVES_UP.as_secs_f64() * 1e3)).collect()
            })
            .collect();
        let intervals: Vec<Interval> = runs.iter().map(|runs| Interval::of(runs)).collect();
        let word = match order {
            Order::Arrival => "",
            Order::StoreLast => ", messages before operations",
        };
        let name = format!("{micros} us an operation{word}");
        figure.costly(Mode::PaperRatios, line(&name, &sizes.map(f64::from), &intervals));
        of_five.push((micros, name, runs[1].iter().copied().fold(0.0, f64::max)));
    }
    let at_100 = of_five.iter().find(|(micros, ..)| *micros == 100).map_or(f64::INFINITY, |(.., most)| *most);
    let why = "an operation and a message take 100 us of a server's processor, which is assumed";
    figure.claim("the longest with 5 servers (ms): less than", 18.0, at_100, 0.0..=18.0, why);
    figure.stands(None, None, 18.0);
    let claim = "the longest with 5 servers, over all seeds (ms): less than 18";
    figure.must(claim.to_owned(), at_100, 0.0..=18.0 - 1e-9, why);
    for (_, name, most) in of_five {
        figure.see(format!("the longest with 5 servers, {name} (ms)"), most, "40 clients wait as well");
    }
    let slow = Duration::from_micros(500);
    let taken = each(&seeds, |seed| reconstruction(5, slow, Order::Arrival, *seed));
    let longest =
        taken.into_iter().map(|taken| taken.unwrap_or(GIVES_UP.as_secs_f64() * 1e3)).fold(0.0, f64::max);
    let why = "40 clients fill queues of some 4 ms each, in which pings wait as well; now and then one is late \
               enough to be taken for a failure that was none, and then the ring needs longer or has not mended \
               itself after two seconds (2,000)";
    let claim = "the longest with 5 servers, 500 us an operation, in the order of arrival (ms)";
    figure.see(claim.to_owned(), longest, why);
    figure
}
