//! Tickets: what servers must know of a session, sealed by one of them so that any of them can open it. No
//! server keeps a table of sessions that it never heard of, and none asks another.
//!
//! This module has the content; the world seals it (XChaCha20-Poly1305 under
//! [`crate::keys::ServerKeys::tickets`]).

use crate::enrolment::EnrolmentName;
use crate::keys::Key;
use bearing_types::{ServerId, SessionId, Squash, Wall};
use serde::{Deserialize, Serialize};

/// The longest ticket that a packet carries, in bytes.
pub const TICKET_BYTES_MAX: usize = 256;

/// What a ticket says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The session. A server drew it.
    pub session: SessionId,
    /// Signs the session's packets, in both directions.
    pub secret: Key,
    /// By which enrolment it began.
    pub enrolment: EnrolmentName,
    /// What is made of its user ids.
    pub squash: Squash,
    /// The version of the protocol that was agreed.
    pub version: u16,
    /// From then on it is refused.
    pub expires: Wall,
}

#[derive(Serialize, Deserialize)]
struct Encoded {
    session: SessionId,
    secret: [u8; 32],
    enrolment: EnrolmentName,
    squash: Squash,
    version: u16,
    expires: Wall,
}

impl Ticket {
    /// Its bytes, to be sealed.
    pub fn encode(&self) -> Vec<u8> {
        let encoded = Encoded {
            session: self.session,
            secret: *self.secret.bytes(),
            enrolment: self.enrolment.clone(),
            squash: self.squash,
            version: self.version,
            expires: self.expires,
        };
        postcard::to_stdvec(&encoded).expect("plain values always encode")
    }

    /// From its bytes.
    pub fn decode(bytes: &[u8]) -> Option<Ticket> {
        let (Encoded { session, secret, enrolment, squash, version, expires }, rest) =
            postcard::take_from_bytes(bytes).ok()?;
        let secret = Key::new(secret);
        rest.is_empty().then_some(Ticket { session, secret, enrolment, squash, version, expires })
    }
}

/// What a server gives a client at the end of the handshake, encrypted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreed {
    /// The session.
    pub session: SessionId,
    /// Its secret.
    pub secret: [u8; 32],
    /// The version that both sides speak from now on.
    pub version: u16,
    /// The sealed ticket.
    pub ticket: Vec<u8>,
    /// It is refused so many seconds from now; the client asks for another one before.
    pub ticket_seconds: u32,
    /// The server.
    pub server: ServerId,
    /// The number of its present life.
    pub start: crate::envelope::Start,
}

impl Agreed {
    /// Its bytes, to be encrypted.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("plain values always encode")
    }

    /// From its bytes.
    pub fn decode(bytes: &[u8]) -> Option<Agreed> {
        postcard::from_bytes(bytes).ok()
    }
}

/// About tickets, within a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TicketMessage {
    /// A client wants another ticket, because its own is going to expire.
    Renew,
    /// Here it is.
    Renewed {
        /// The sealed ticket.
        ticket: Vec<u8>,
        /// It is refused so many seconds from now.
        ticket_seconds: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::{Gid, Uid};
    use proptest::prelude::*;

    #[test]
    fn a_ticket_is_read_back_and_leaves_room_for_its_seal() {
        let ticket = Ticket {
            session: SessionId(u64::MAX),
            secret: Key::new([7; 32]),
            enrolment: EnrolmentName::new(&"n".repeat(63)).unwrap(),
            squash: Squash::All { uid: Uid(u32::MAX), gid: Gid(u32::MAX) },
            version: u16::MAX,
            expires: Wall(i64::MAX),
        };
        let bytes = ticket.encode();
        assert!(bytes.len() + 64 <= TICKET_BYTES_MAX, "{}", bytes.len());
        assert_eq!(Ticket::decode(&bytes), Some(ticket));
        assert_eq!(Ticket::decode(&[&bytes[..], &[0]].concat()), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Ticket::decode(&bytes);
            let _ = postcard::from_bytes::<Agreed>(&bytes);
        }
    }
}
