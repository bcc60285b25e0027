//! The sessions that this server has heard of: their tickets, which counters it saw, and where they were last
//! heard of.
//!
//! Invariants: a session is here only if a packet of it that names this server's present start was signed
//! with its ticket's secret. The way back follows only packets whose counter is above all before. Whoever
//! forgets a session must draw a new start, for its window is gone.

use crate::routes::Origin;
use bearing_proto::ticket::Ticket;
use bearing_proto::window::{Freshness, ReplayWindow};
use bearing_types::SessionId;
use std::collections::BTreeMap;

/// Sessions that are kept; of more, those that were silent longest are forgotten (they show their tickets
/// again).
pub const SESSIONS_MAX: usize = 1 << 16;

/// A session.
pub struct Session {
    /// What its ticket says.
    pub ticket: Ticket,
    /// The ticket as it was shown last, or as it was given since.
    pub sealed: Box<[u8]>,
    window: ReplayWindow,
    sent: u64,
    origin: Option<Origin>,
    heard: u64,
}

impl Session {
    /// The counter of the next packet to it.
    pub fn next_counter(&mut self) -> u64 {
        self.sent += 1;
        self.sent
    }

    /// Another server heard of it there.
    pub fn heard_elsewhere(&mut self, origin: Origin) {
        self.origin.get_or_insert(origin);
    }

    /// Where it was last heard of.
    pub fn origin(&self) -> Option<Origin> {
        self.origin
    }
}

/// See the module.
#[derive(Default)]
pub struct Sessions {
    table: BTreeMap<SessionId, Session>,
    heard: u64,
}

impl Sessions {
    /// A session that was heard of.
    pub fn get(&self, session: SessionId) -> Option<&Session> {
        self.table.get(&session)
    }

    /// The same, to send to it.
    pub fn get_mut(&mut self, session: SessionId) -> Option<&mut Session> {
        self.table.get_mut(&session)
    }

    /// A packet of a session showed this ticket and was signed with its secret. Gives `true` when others had
    /// to be forgotten for it.
    pub fn admit(&mut self, ticket: Ticket, sealed: &[u8]) -> bool {
        if let Some(known) = self.table.get_mut(&ticket.session) {
            (known.ticket, known.sealed) = (ticket, sealed.into());
            return false;
        }
        let full = self.table.len() >= SESSIONS_MAX;
        if full {
            self.forget_silent();
        }
        let window = ReplayWindow::default();
        let heard = self.heard;
        let (session, sealed) = (ticket.session, sealed.into());
        self.table.insert(session, Session { ticket, sealed, window, sent: 0, origin: None, heard });
        full
    }

    /// Forgets the half that was silent longest, so that the cost is spread over many new sessions.
    fn forget_silent(&mut self) {
        let mut heard: Vec<u64> = self.table.values().map(|session| session.heard).collect();
        let middle = heard.len() / 2;
        let (_, median, _) = heard.select_nth_unstable(middle);
        let median = *median;
        self.table.retain(|_, session| session.heard > median);
    }

    /// A packet of an admitted session came from somewhere; says whether it is fresh.
    pub fn take(&mut self, session: SessionId, counter: u64, origin: Origin) -> Freshness {
        let Some(known) = self.table.get_mut(&session) else { return Freshness::Replayed };
        let freshness = known.window.take(counter);
        if freshness == Freshness::Replayed {
            return freshness;
        }
        self.heard += 1;
        known.heard = self.heard;
        // A recall reaches a client best by datagram: a stream may be gone by then.
        // Nor does it by an address that the network carries to whoever owns a position.
        let rank = |origin: Origin| (matches!(origin, Origin::Datagram(_)), origin.is_datagram());
        let suits = known.origin.is_none_or(|known| rank(origin) >= rank(known));
        if freshness == Freshness::Newest && suits || known.origin.is_none() {
            known.origin = Some(origin);
        }
        freshness
    }
}
