//! Sealing and opening tickets, in the form of [`Sealing`].

use super::Sealing;
use bearing_proto::keys::ServerKeys;
use bearing_proto::ticket::Ticket;

/// Seals and opens tickets of one cluster.
pub struct Tickets(Sealing);

impl Tickets {
    /// Those under a cluster's keys.
    pub fn new(keys: &ServerKeys) -> Tickets {
        Tickets(Sealing::new(keys.tickets()))
    }

    /// Seals a ticket.
    pub fn seal(&self, ticket: &Ticket) -> Vec<u8> {
        self.0.seal(&ticket.encode())
    }

    /// What a ticket says; `None` if no server of this cluster sealed it.
    pub fn open(&self, bytes: &[u8]) -> Option<Ticket> {
        Ticket::decode(&self.0.open(bytes)?)
    }
}
