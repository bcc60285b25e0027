//! The client that computes (`computed`): the list of servers is all it keeps, and equal arcs follow from it.

use crate::machine::{Command, Event, Machine, pass};
use crate::query::Query;
use crate::table::TableClient;
use bearing_placement::Arcs;
use bearing_types::{MapVersion, Mono, Position, ServerId};

/// See the module.
#[derive(Debug, Default)]
pub struct ComputedClient {
    version: Option<MapVersion>,
    arcs: Option<Arcs>,
}

impl ComputedClient {
    /// A client that knows of no server yet.
    pub fn new() -> ComputedClient {
        ComputedClient::default()
    }

    /// Whose a position is among equal arcs.
    pub fn locate(&self, position: Position) -> Option<ServerId> {
        self.arcs.as_ref().map(|arcs| arcs.owner(position))
    }

    /// The next server clockwise that was not tried yet: one further with every hop.
    fn next(&self, gone: ServerId, query: &Query) -> Option<ServerId> {
        let tried = usize::from(query.hops);
        let order = self.arcs.as_ref()?.successors(query.target.position, tried + 2);
        order
            .get(tried.min(order.len().saturating_sub(1)))
            .or(order.first())
            .copied()
            .filter(|server| *server != gone)
    }
}

impl Machine for ComputedClient {
    fn step(&mut self, _now: Mono, event: Event, out: &mut Vec<Command>) {
        let hops_max = TableClient::HOPS_MAX;
        match event {
            Event::Query(query) => pass(query, self.locate(query.target.position), hops_max, out),
            Event::Referred(query, _, Some(located)) => {
                pass(query, Some(located.owner), hops_max, out);
            }
            Event::Referred(query, server, None) | Event::Unreachable(server, Some(query)) => {
                pass(query, self.next(server, &query), hops_max, out);
            }
            Event::Map(map) => {
                if self.version.is_none_or(|known| known < map.version()) {
                    let servers: Vec<ServerId> = map.assignment().arcs().servers().into_iter().collect();
                    (self.version, self.arcs) = (Some(map.version()), Arcs::even(&servers).ok());
                }
            }
            Event::Unreachable(_, None) | Event::Served(..) | Event::Message(..) => {}
            Event::Stored(_) | Event::Removed(_) | Event::Checked(..) => {}
            Event::Join(_) | Event::Leave | Event::Wake => {}
        }
    }

    fn table_bytes(&self) -> usize {
        self.arcs.as_ref().map_or(0, |arcs| arcs.count() * size_of::<ServerId>())
    }
}
