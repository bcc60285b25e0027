//! The machine at a client: it asks any server, and another one if that cannot be reached.

use crate::bloom::options::HOPS_MAX;
use crate::machine::{Command, Event, Machine, pass};
use crate::query::Query;
use bearing_types::{Mono, ServerId};
use std::collections::BTreeSet;

/// Which server a query goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// One after the other: even load, and every server learns every file that is often used.
    RoundRobin,
    /// By the file: the server that was asked for a file before has it among the recently found.
    ByFile,
}

/// A client of servers with Bloom filters. It keeps no filters.
#[derive(Debug)]
pub struct BloomClient {
    choice: Choice,
    servers: BTreeSet<ServerId>,
    /// Those that may be asked, in order: not the ones that could not be reached or took no query, unless no
    /// other was left.
    there: Vec<ServerId>,
    turn: usize,
}

impl BloomClient {
    /// A client that knows these servers. It learns others from answers and from the map.
    pub fn new(choice: Choice, servers: impl IntoIterator<Item = ServerId>) -> BloomClient {
        let servers: BTreeSet<ServerId> = servers.into_iter().collect();
        BloomClient { choice, there: servers.iter().copied().collect(), servers, turn: 0 }
    }

    /// This one may be asked too.
    pub fn know(&mut self, server: ServerId) {
        self.servers.insert(server);
        if let Err(place) = self.there.binary_search(&server) {
            self.there.insert(place, server);
        }
    }

    fn set_aside(&mut self, server: ServerId) {
        self.there.retain(|other| *other != server);
        if self.there.is_empty() {
            // Perhaps some are back. A query that still finds nobody ends by its hops.
            self.there = self.servers.iter().copied().collect();
        }
    }

    /// Passes a query to the server whose turn it is.
    fn ask(&mut self, query: Query, out: &mut Vec<Command>) {
        let first = match self.choice {
            Choice::RoundRobin => self.turn,
            Choice::ByFile => query.target.file.0 as usize,
        };
        self.turn = self.turn.wrapping_add(1);
        let chosen = self.there.get(first % self.there.len().max(1)).copied();
        // Its notes stay: what a filter led astray goes on with the next level, not with the same filter
        // again.
        pass(query, chosen, HOPS_MAX, out);
    }
}

impl Machine for BloomClient {
    fn step(&mut self, _now: Mono, event: Event, out: &mut Vec<Command>) {
        match event {
            Event::Query(query) => self.ask(query, out),
            Event::Unreachable(server, query) => {
                self.set_aside(server);
                query.into_iter().for_each(|query| self.ask(query, out));
            }
            // It is not in, or has too much to do.
            Event::Referred(query, server, _) => {
                self.set_aside(server);
                self.ask(query, out);
            }
            Event::Served(_, server) => self.know(server),
            Event::Map(map) => {
                self.servers = map.assignment().tablets().map(|tablet| tablet.owner).collect();
                self.there = self.servers.iter().copied().collect();
            }
            Event::Message(..) | Event::Stored(_) | Event::Removed(_) | Event::Checked(..) => {}
            Event::Join(_) | Event::Leave | Event::Wake => {}
        }
    }

    fn table_bytes(&self) -> usize {
        self.servers.len() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::{FileKey, LookupError, QueryId, Target};
    use bearing_types::Position;

    fn query(file: u64) -> Query {
        Query::new(QueryId(1), Target { position: Position(0), file: FileKey(file) })
    }

    fn asked(client: &mut BloomClient, event: Event) -> Command {
        let mut out = Vec::new();
        client.step(Mono::ZERO, event, &mut out);
        assert_eq!(out.len(), 1);
        out.remove(0)
    }

    #[test]
    fn servers_are_asked_in_turn_and_others_if_one_cannot_be_reached() {
        let mut client = BloomClient::new(Choice::RoundRobin, [1, 2, 3].map(ServerId));
        let mut at = |event| match asked(&mut client, event) {
            Command::Pass(server, query) => (server.0, query),
            other => panic!("{other:?}"),
        };
        assert_eq!(at(Event::Query(query(1))).0, 1);
        let (second, passed) = at(Event::Query(query(1)));
        assert_eq!((second, passed.hops), (2, 1));
        let (third, again) = at(Event::Unreachable(ServerId(2), Some(passed)));
        assert!(third != 2 && again.hops == 2);
        assert!((0..4).all(|_| at(Event::Query(query(1))).0 != 2));
        at(Event::Referred(again, ServerId(3), None));
    }

    #[test]
    fn by_file_the_same_file_goes_to_the_same_server() {
        let mut client = BloomClient::new(Choice::ByFile, (1..9).map(ServerId));
        let first = asked(&mut client, Event::Query(query(77)));
        assert!((0..5).all(|_| asked(&mut client, Event::Query(query(77))) == first));
    }

    #[test]
    fn a_query_ends_when_nobody_is_known_and_when_nobody_can_be_reached() {
        let nobody = asked(&mut BloomClient::new(Choice::RoundRobin, []), Event::Query(query(1)));
        assert_eq!(nobody, Command::Fail(query(1), LookupError::NobodyKnown));
        let mut client = BloomClient::new(Choice::RoundRobin, [1, 2].map(ServerId));
        let mut command = asked(&mut client, Event::Query(query(1)));
        let mut passes = 0;
        while let Command::Pass(server, query) = command {
            passes += 1;
            command = asked(&mut client, Event::Unreachable(server, Some(query)));
        }
        assert!(matches!(command, Command::Fail(_, LookupError::TooManyHops(HOPS_MAX))));
        assert_eq!(passes, HOPS_MAX);
    }
}
