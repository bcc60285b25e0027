//! What all lookups share: the query that travels, and the machines that pass it on.
//!
//! A lookup is a pair of machines, one at each client and one at each server. A query is a request on its way
//! to whoever decides it. Wherever it is, the machine there does exactly one of these with it, at once or
//! after it asked others:
//!
//! ```text
//! Pass    it goes on to a server                  (one hop)
//! Carry   it goes into the network, which knows   (one hop)
//! Serve   it is here: the tablet decides          (servers only)
//! Refer   it is not here, perhaps there           (servers only; the client goes on)
//! Fail    it ends with an error
//! ```
//!
//! Invariants: a query that was passed on more often than its lookup's bound fails; so none goes round for
//! ever, whatever vanished meanwhile. No machine reads a clock or waits; a lookup only says whom to ask
//! first, so a wrong one costs hops, never a wrong answer.

use crate::map::Map;
use crate::message::Message;
use crate::query::{FileKey, LookupError, Query};
use crate::tablet_index::Located;
use bearing_types::{Mono, ServerId};
use std::fmt;
use std::sync::Arc;

/// What happens to a machine.
#[derive(Clone, Debug)]
pub enum Event {
    /// A query begins (at a client), or arrives (at a server).
    Query(Query),
    /// The server a query was passed to, or a message was sent to, cannot be reached.
    Unreachable(ServerId, Option<Query>),
    /// At a client: a query was answered, by this server.
    Served(Query, ServerId),
    /// At a client: a server says that it is not there, and perhaps who has it.
    Referred(Query, ServerId, Option<Located>),
    /// A message of another machine of this lookup.
    Message(ServerId, Message),
    /// The coordinator says who owns what.
    Map(Arc<Map>),
    /// At a server with filters: a file is stored here from now on.
    Stored(FileKey),
    /// At a server with filters: a file that was stored here is gone. Once for each [`Event::Stored`]: one
    /// more may hide another file for ever.
    Removed(FileKey),
    /// At a server with filters: what the store says of a query that was to be checked.
    Checked(Query, bool),
    /// This server comes into the cluster, through one that is in it; none: it is the first.
    Join(Option<ServerId>),
    /// This server is to go.
    Leave,
    /// It is `next_wake`.
    Wake,
}

/// What a machine wants done. One of the first five ends its part in a query.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// The query goes on to a server.
    Pass(ServerId, Query),
    /// The query goes into the network, addressed to its position.
    Carry(Query),
    /// The query is for this server.
    Serve(Query),
    /// The query is not for this server, perhaps for that.
    Refer(Query, Option<Located>),
    /// The query ends.
    Fail(Query, LookupError),
    /// A message for another server's machine.
    Send(ServerId, Message),
    /// Whether the store here has the query's file: answered by [`Event::Checked`].
    Check(Query),
}

/// Half of a lookup.
pub trait Machine: fmt::Debug + Send {
    /// Takes one event, and says what follows.
    fn step(&mut self, now: Mono, event: Event, out: &mut Vec<Command>);

    /// When it wants [`Event::Wake`].
    fn next_wake(&self) -> Option<Mono> {
        None
    }

    /// Bytes that the machine's tables take, shared ones included once.
    fn table_bytes(&self) -> usize;
}

impl Machine for Box<dyn Machine> {
    fn step(&mut self, now: Mono, event: Event, out: &mut Vec<Command>) {
        self.as_mut().step(now, event, out);
    }

    fn next_wake(&self) -> Option<Mono> {
        self.as_ref().next_wake()
    }

    fn table_bytes(&self) -> usize {
        self.as_ref().table_bytes()
    }
}

/// Passes a query on, or ends it if it was passed on as often as it may be.
pub(crate) fn pass(query: Query, to: Option<ServerId>, hops_max: u8, out: &mut Vec<Command>) {
    out.push(match to {
        None => Command::Fail(query, LookupError::NobodyKnown),
        Some(_) if query.hops >= hops_max => Command::Fail(query, LookupError::TooManyHops(query.hops)),
        Some(server) => Command::Pass(server, query.passed()),
    });
}
