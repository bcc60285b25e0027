//! A request that a server passes on, because its lookup says that another one owns what it asks for.
//!
//! Whoever gets it is the one who decides, by its tablet's epoch, and answers the client by itself: at the
//! address that the client proved to the first server, in the session of the ticket. Nobody on the way
//! changes the request.

use crate::client::Request;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relay {
    /// The client's ticket, as it showed it: it says which session, and with what its packets are signed.
    pub ticket: Vec<u8>,
    /// Where the client was heard of, by a datagram that it signed.
    pub origin: SocketAddr,
    /// What it asks.
    pub request: Request,
    /// How often it was passed on.
    pub hops: u8,
    /// How far the lookup has come, and the server that it came to first, if that one wants to hear where it
    /// ended: notes of the lookup's machines (`bearing_lookup::Trail`).
    pub trail: (u8, Option<bearing_types::ServerId>),
}
