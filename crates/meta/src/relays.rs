//! Whom a server passes requests on to that it does not own: what the cluster's lookup says, by the machines
//! that the lab judges too.
//!
//! ```text
//! a request             ->  decided here, passed on, or held while other servers are asked
//! a message, the time   ->  the same of those that are held
//! ```
//!
//! Invariants: a lookup only says whom to ask first. What it takes for this server's, or knows nothing of,
//! goes to [`crate::MetaServer`], which decides, and refers what is not its own. Nothing of a request is
//! changed. At most [`HELD_MAX`] are held, each until its lookup has an answer or gives up: with filters 60
//! ms at most.

mod filters;

use crate::config::Config;
use crate::engine::MetaServer;
use crate::mutant::Mutant;
use bearing_lookup::{
    Command, Event, FileKey, Machine, Map, Message, Query, QueryId, TableServer, Target, Trail,
};
use bearing_placement::{Assignment, LookupKind};
use bearing_proto::client::{Call, Request};
use bearing_proto::filters::FilterMessage;
use bearing_types::{Block, MapVersion, Mono, ServerId};
use filters::Filters;
use std::collections::BTreeMap;

pub use filters::FilterView;

/// So many requests are held while others are asked. More are taken for this server's, which refers them.
pub const HELD_MAX: usize = 1024;

/// Where a request goes on to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// To whom.
    pub server: ServerId,
    /// How often it was passed on then.
    pub hops: u8,
    /// What the machines of the lookup noted.
    pub trail: Trail,
}

/// A request that came. `F` is what the shell has to know of where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked<F> {
    /// Where it came from.
    pub from: F,
    /// What is asked.
    pub request: Request,
    /// How often it was passed on.
    pub hops: u8,
    /// What the machines of the lookup noted.
    pub trail: Trail,
}

/// What a lookup says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said<F> {
    /// A request is for this server's machine, which decides or refers it.
    Decide(F, Request),
    /// It goes on.
    Pass(Hop, F, Request),
    /// A message for another server's lookup.
    Send(ServerId, FilterMessage),
}

/// See the module.
#[derive(Debug)]
pub struct Relays<F> {
    me: ServerId,
    lookup: Passing,
    /// At most [`HELD_MAX`].
    held: BTreeMap<QueryId, (F, Request)>,
    /// The number of the last query.
    asked: u64,
    said: Vec<Command>,
    /// The planted bug.
    changes_epochs: bool,
}

#[derive(Debug)]
enum Passing {
    /// All know all: the owner by the newest assignment.
    Table(TableServer, Option<MapVersion>),
    /// Bloom filters in groups.
    Filters(Box<Filters>),
}

impl<F> Relays<F> {
    /// Of a server in a cluster with this lookup; `None` if clients ask owners themselves.
    pub fn new(me: ServerId, lookup: LookupKind) -> Option<Relays<F>> {
        let lookup = match lookup {
            LookupKind::OneHop => Passing::Table(TableServer::passing(me), None),
            LookupKind::BloomGroups => Passing::Filters(Box::new(Filters::new(me))),
            _ => return None,
        };
        Some(Relays { me, lookup, held: BTreeMap::new(), asked: 0, said: Vec::new(), changes_epochs: false })
    }

    /// With the planted bug of a configuration, if it is one of its own.
    pub fn with_planted(self, config: &Config) -> Relays<F> {
        Relays { changes_epochs: config.planted(Mutant::RelayChangesEpoch), ..self }
    }

    /// Takes what the server's machine knows by now: cheap if that is nothing new.
    pub fn learn(&mut self, now: Mono, machine: &MetaServer, out: &mut Vec<Said<F>>) {
        if let Some((version, assignment)) = machine.assignment() {
            self.learn_map(now, version, assignment, || machine.listed_others(), out);
        }
        self.learn_served(now, machine.serving().map(|(block, _)| block), out);
    }

    /// Takes the newest assignment, and the other metadata servers by the coordinator's list, unless that is
    /// not known.
    pub fn learn_map(
        &mut self,
        now: Mono,
        version: MapVersion,
        assignment: &Assignment,
        others: impl FnOnce() -> Option<Vec<ServerId>>,
        out: &mut Vec<Said<F>>,
    ) {
        match &mut self.lookup {
            Passing::Table(machine, known) => {
                if known.replace(version) != Some(version) {
                    machine.step(now, Event::Map(Map::new(version, assignment.clone())), &mut self.said);
                }
            }
            Passing::Filters(filters) => filters.learn_list(now, version, others, &mut self.said),
        }
        self.carry_out(now, None, out);
    }

    /// Takes which tablets this server serves.
    pub fn learn_served(
        &mut self,
        now: Mono,
        served: impl Iterator<Item = Block> + Clone,
        out: &mut Vec<Said<F>>,
    ) {
        if let Passing::Filters(filters) = &mut self.lookup {
            filters.learn_served(now, served, &mut self.said);
            self.carry_out(now, None, out);
        }
    }

    /// A request came.
    pub fn on_request(&mut self, now: Mono, asked: Asked<F>, out: &mut Vec<Said<F>>) {
        let Asked { from, request, hops, trail } = asked;
        // Some are answered by any server.
        let by_any = matches!(request.call, Call::Map { .. } | Call::Statfs | Call::Describe(_));
        if by_any || self.held.len() >= HELD_MAX {
            return out.push(Said::Decide(from, request));
        }
        let id = self.next_id(now);
        let position = request.position;
        let target = Target { position, file: FileKey::of_part(position) };
        let query = Query { hops, trail, ..Query::new(id, target) };
        self.step(now, Event::Query(query));
        self.carry_out(now, Some((id, from, request)), out);
    }

    /// A message of another server's lookup came.
    pub fn on_message(&mut self, now: Mono, from: ServerId, message: &FilterMessage, out: &mut Vec<Said<F>>) {
        if let Passing::Filters(filters) = &mut self.lookup {
            filters.take(now, from, message, &mut self.said);
            self.carry_out(now, None, out);
        }
    }

    /// It is `next_wake`.
    pub fn wake(&mut self, now: Mono, out: &mut Vec<Said<F>>) {
        if let Passing::Filters(filters) = &mut self.lookup {
            filters.wake(now, &mut self.said);
            self.carry_out(now, None, out);
        }
    }

    /// When it wants to be woken.
    pub fn next_wake(&self) -> Option<Mono> {
        match &self.lookup {
            Passing::Table(..) => None,
            Passing::Filters(filters) => filters.next_wake(),
        }
    }

    /// Requests that are held.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// What is known of the others' filters, if servers have such.
    pub fn filters(&self) -> Option<FilterView> {
        match &self.lookup {
            Passing::Table(..) => None,
            Passing::Filters(filters) => filters.view(),
        }
    }

    /// Numbers are not used again in another life of this server, nor by another one: answers may be late.
    fn next_id(&mut self, now: Mono) -> QueryId {
        const COUNT_BITS: u32 = 44;
        self.asked = now.0.max(self.asked + 1);
        QueryId(u64::from(self.me.0) << COUNT_BITS | self.asked & ((1 << COUNT_BITS) - 1))
    }

    fn step(&mut self, now: Mono, event: Event) {
        match &mut self.lookup {
            Passing::Table(machine, _) => machine.step(now, event, &mut self.said),
            Passing::Filters(filters) => filters.step(now, event, &mut self.said),
        }
    }

    /// Does what the machine says, also about what it is told meanwhile. `current`: the request that came; it
    /// is held if nothing was said of it.
    fn carry_out(&mut self, now: Mono, mut current: Option<(QueryId, F, Request)>, out: &mut Vec<Said<F>>) {
        let mut commands = std::mem::take(&mut self.said);
        while !commands.is_empty() {
            for command in commands.drain(..) {
                match command {
                    Command::Pass(server, Query { id, hops, trail, .. }) => {
                        let taken = self.take(&mut current, id);
                        let changes = self.changes_epochs;
                        out.extend(taken.map(|(from, mut request)| {
                            if changes {
                                request.epoch = request.epoch.next();
                            }
                            Said::Pass(Hop { server, hops, trail }, from, request)
                        }));
                    }
                    Command::Serve(Query { id, .. })
                    | Command::Refer(Query { id, .. }, _)
                    | Command::Fail(Query { id, .. }, _) => {
                        let taken = self.take(&mut current, id);
                        out.extend(taken.map(|(from, request)| Said::Decide(from, request)));
                    }
                    Command::Send(server, Message::Bloom(message)) => {
                        out.push(Said::Send(server, FilterMessage::from(&message)));
                    }
                    Command::Check(query) => {
                        if let Passing::Filters(filters) = &mut self.lookup {
                            filters.check(now, query, &mut self.said);
                        }
                    }
                    Command::Send(_, Message::Finger(_)) | Command::Carry(_) => {}
                }
            }
            std::mem::swap(&mut commands, &mut self.said);
        }
        // The buffer is used again.
        self.said = commands;
        self.held.extend(current.map(|(id, from, request)| (id, (from, request))));
    }

    fn take(&mut self, current: &mut Option<(QueryId, F, Request)>, id: QueryId) -> Option<(F, Request)> {
        match current.take_if(|(mine, ..)| *mine == id) {
            Some((_, from, request)) => Some((from, request)),
            None => self.held.remove(&id),
        }
    }
}
