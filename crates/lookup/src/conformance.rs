//! What every lookup promises, whatever its scheme: the suite that the author of a new one starts from
//! (`docs/add-a-scheme.md`).
//!
//! Invariants: uses only the trait [`Machine`] and what a [`Kit`] says; panics with a readable claim and the
//! seed when a promise is broken; one seed gives one run.

use crate::machine::{Event, Machine};
use crate::map::Map;
use crate::query::{FileKey, QueryId, Target};
use crate::world::{Ending, World};
use bearing_placement::{Arcs, Assignment, Draws, Partition};
use bearing_types::{MapVersion, Position, ServerId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Makes a machine that knows these servers.
pub type MakeClient<'a> = dyn Fn(&[ServerId]) -> Box<dyn Machine> + 'a;
/// Makes the machines of these servers and of whoever is beside them, such as a coordinator.
pub type MakeServers<'a> = dyn Fn(&[ServerId]) -> Vec<(ServerId, Box<dyn Machine>)> + 'a;
/// Makes the machine of a server that is about to join.
pub type MakeNewcomer<'a> = dyn Fn(ServerId) -> Box<dyn Machine> + 'a;
/// Divides the ring among servers.
pub type MakePartition<'a> = dyn Fn(&[ServerId]) -> Box<dyn Partition> + 'a;

/// What a lookup is made of.
pub struct Kit<'a> {
    /// A client that knows these servers.
    pub client: &'a MakeClient<'a>,
    /// These servers as they are when all have long been there, and whoever owns nothing beside them.
    pub servers: &'a MakeServers<'a>,
    /// A server that is about to join.
    pub newcomer: &'a MakeNewcomer<'a>,
    /// How the ring is divided.
    pub partition: &'a MakePartition<'a>,
    /// A query is passed on no more often than this.
    pub hops_max: u8,
    /// Who decides.
    pub decides: Decides,
    /// Servers that find out for themselves who came and who is gone have done so after this.
    pub settles: Duration,
}

/// Who decides a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decides {
    /// The owner of its position.
    Owner,
    /// The server that has its file, wherever that is.
    Holder,
}

const LATENCY: Duration = Duration::from_micros(100);
/// Every query ends within this, whatever happened.
const PATIENCE: Duration = Duration::from_secs(20);
const QUERIES: u64 = 60;

/// Runs the whole suite.
pub fn lookup(seed: u64, kit: &Kit) {
    let first = run(seed, kit);
    assert_eq!(first, run(seed, kit), "seed {seed}: the same calls went another way the second time");
}

struct Run<'a> {
    kit: &'a Kit<'a>,
    seed: u64,
    draws: Draws,
    world: World,
    partition: Box<dyn Partition>,
    assignment: Arc<Assignment>,
    version: u64,
    files: BTreeMap<u64, ServerId>,
    asked: u64,
    endings: Vec<Ending>,
}

fn run(seed: u64, kit: &Kit) -> Vec<Ending> {
    let mut run = Run::new(seed, kit);
    run.at_rest_every_query_reaches_who_decides();
    run.whatever_vanishes_every_query_ends();
    run.once_told_every_query_reaches_who_decides_again();
    run.who_joins_is_found_by_clients_that_were_told_nothing();
    run.endings
}

impl<'a> Run<'a> {
    fn new(seed: u64, kit: &'a Kit<'a>) -> Run<'a> {
        let mut draws = Draws(seed);
        let members: Vec<ServerId> = (1..=3 + draws.draw() as u32 % 10).map(ServerId).collect();
        let partition = (kit.partition)(&members);
        let assignment = Arc::new(Assignment::of(partition.arcs(), 1).expect("arcs cover the ring"));
        let mut world = World::new(LATENCY, Box::new(|_| None));
        for (server, machine) in (kit.servers)(&members) {
            world.add_server(server, machine);
        }
        world.add_client((kit.client)(&members));
        let mut run = Run {
            kit,
            seed,
            draws,
            world,
            partition,
            assignment,
            version: 0,
            files: BTreeMap::new(),
            asked: 0,
            endings: Vec::new(),
        };
        for file in 0..QUERIES {
            let server = members[run.draws.draw() as usize % members.len()];
            run.files.insert(file, server);
            run.world.store(server, FileKey(file));
        }
        run.announce(true);
        run.world.run_for(kit.settles);
        run
    }

    /// Servers, the network and perhaps clients hear of the present arcs, which decide from now on.
    fn announce(&mut self, to_clients: bool) {
        self.version += 1;
        let arcs = self.partition.arcs().clone();
        let next = self.assignment.toward(&arcs, 1).expect("arcs cover the ring");
        self.assignment = Arc::new(next);
        let map = Event::Map(Map::new(MapVersion(self.version), Arc::clone(&self.assignment)));
        let servers: Vec<ServerId> = self.world.servers().collect();
        servers.into_iter().for_each(|server| self.world.tell(server, map.clone()));
        if to_clients {
            self.world.tell_clients(&map);
        }
        let network = arcs.clone();
        self.world.set_network(Box::new(move |position| Some(network.owner(position))));
        self.decide(arcs);
    }

    fn decide(&mut self, arcs: Arcs) {
        let files = self.files.clone();
        match self.kit.decides {
            Decides::Owner => self.world.set_truth(Box::new(move |target| Some(arcs.owner(target.position)))),
            Decides::Holder => {
                self.world.set_truth(Box::new(move |target| files.get(&target.file.0).copied()))
            }
        }
    }

    /// Asks for everything once, and checks that each query ends within its bound. Gives what was asked for
    /// and how it ended.
    fn ask_all(&mut self, when: &str) -> Vec<(Target, Ending)> {
        let seed = self.seed;
        let mut asked = Vec::new();
        for file in 0..QUERIES {
            self.asked += 1;
            let target = Target { position: Position(self.draws.draw()), file: FileKey(file) };
            self.world.ask(0, QueryId(self.asked), target);
            asked.push((QueryId(self.asked), target));
        }
        let ended = self.world.run_until_answered(PATIENCE);
        assert!(ended, "seed {seed}: {} queries have not ended {when}", self.world.open());
        // Clients hear of it too.
        self.world.run_for(LATENCY);
        let hops_max = self.kit.hops_max;
        let ending = |(id, target): (QueryId, Target)| {
            let ending = self.world.ending(id).expect("it has ended");
            let hops = ending.hops;
            assert!(
                hops <= hops_max,
                "seed {seed}: {hops} hops {when}, more than the {hops_max} that are stated"
            );
            (target, ending)
        };
        let endings: Vec<(Target, Ending)> = asked.into_iter().map(ending).collect();
        self.endings.extend(endings.iter().map(|(_, ending)| *ending));
        endings
    }

    fn decider(&self, target: &Target) -> Option<ServerId> {
        match self.kit.decides {
            Decides::Owner => Some(self.partition.arcs().owner(target.position)),
            Decides::Holder => self.files.get(&target.file.0).copied(),
        }
    }

    fn all_reach_who_decides(&mut self, when: &str) {
        let seed = self.seed;
        for (target, ending) in self.ask_all(when) {
            let Some(decider) = self.decider(&target) else {
                assert!(ending.by.is_err(), "seed {seed}: {when} {ending:?} for what nobody has");
                continue;
            };
            assert_eq!(ending.by, Ok(decider), "seed {seed}: {when}, {target:?} after {} hops", ending.hops);
        }
    }

    fn at_rest_every_query_reaches_who_decides(&mut self) {
        self.all_reach_who_decides("at rest");
    }

    fn whatever_vanishes_every_query_ends(&mut self) {
        let members: Vec<ServerId> = self.partition.members().into_iter().collect();
        let gone = members[self.draws.draw() as usize % members.len()];
        self.world.vanish(gone);
        let answered =
            self.ask_all("after a server vanished").iter().filter(|(_, ending)| ending.by.is_ok()).count();
        // Which queries survive differs; that none does would be no lookup.
        assert!(answered > 0, "seed {}: no query at all was answered after {gone} vanished", self.seed);
        self.partition.fail(gone).expect("others are left");
        self.files.retain(|_, server| *server != gone);
    }

    fn once_told_every_query_reaches_who_decides_again(&mut self) {
        self.announce(true);
        self.world.run_for(self.kit.settles);
        self.all_reach_who_decides("once told that a server is gone");
    }

    fn who_joins_is_found_by_clients_that_were_told_nothing(&mut self) {
        let (new, through) = (ServerId(500), self.partition.members().into_iter().next());
        self.world.add_server(new, (self.kit.newcomer)(new));
        self.world.tell(new, Event::Join(through));
        self.world.run_for(self.kit.settles);
        self.partition.join(new).expect("it was no member");
        let moved = QUERIES - 1;
        if let Some(before) = self.files.insert(moved, new) {
            self.world.unstore(before, FileKey(moved));
        }
        self.world.store(new, FileKey(moved));
        self.announce(false);
        self.world.run_for(self.kit.settles);
        self.all_reach_who_decides("after a join that clients were not told of");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Command;
    use crate::table::TableServer;
    use bearing_placement::partition::build;
    use bearing_placement::{Parameters, PartitionKind};
    use bearing_types::Mono;

    /// It sends every query round and round.
    #[derive(Debug)]
    struct Broken;

    impl Machine for Broken {
        fn step(&mut self, _: Mono, event: Event, out: &mut Vec<Command>) {
            if let Event::Query(query) | Event::Referred(query, ..) | Event::Unreachable(_, Some(query)) =
                event
            {
                out.push(Command::Pass(ServerId(1), query.passed()));
            }
        }

        fn table_bytes(&self) -> usize {
            0
        }
    }

    #[test]
    #[should_panic(expected = "have not ended at rest")]
    fn one_that_goes_round_and_round_is_found() {
        let referring = |server: ServerId| -> Box<dyn Machine> { Box::new(TableServer::referring(server)) };
        let kit = Kit {
            client: &|_| Box::new(Broken),
            servers: &|members| members.iter().map(|server| (*server, referring(*server))).collect(),
            newcomer: &referring,
            partition: &|servers| {
                build(PartitionKind::Ring, servers, &Parameters::default()).expect("within bounds")
            },
            hops_max: 6,
            decides: Decides::Owner,
            settles: Duration::ZERO,
        };
        lookup(3, &kit);
    }
}
