//! Sealing and opening tickets.
//!
//! ```text
//! 0   1 version of the format, 1
//! 1  24 nonce, random
//! 25  - XChaCha20-Poly1305 of the content, with its tag; the first byte is authenticated too
//! ```

use crate::random_bytes;
use bearing_proto::keys::ServerKeys;
use bearing_proto::ticket::Ticket;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

const FORMAT: u8 = 1;
const NONCE_BYTES: usize = 24;

/// Seals and opens tickets of one cluster.
pub struct Tickets {
    cipher: XChaCha20Poly1305,
}

impl Tickets {
    /// Those under a cluster's keys.
    pub fn new(keys: &ServerKeys) -> Tickets {
        Tickets { cipher: XChaCha20Poly1305::new(keys.tickets().bytes().into()) }
    }

    /// Seals a ticket.
    pub fn seal(&self, ticket: &Ticket) -> Vec<u8> {
        let nonce: [u8; NONCE_BYTES] = random_bytes();
        let payload = Payload { msg: &ticket.encode(), aad: &[FORMAT] };
        let sealed = self.cipher.encrypt(XNonce::from_slice(&nonce), payload);
        let sealed = sealed.expect("a ticket is far shorter than what the cipher takes");
        [&[FORMAT][..], &nonce, &sealed].concat()
    }

    /// What a ticket says; `None` if no server of this cluster sealed it.
    pub fn open(&self, bytes: &[u8]) -> Option<Ticket> {
        let (&format, rest) = bytes.split_first()?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_BYTES)?;
        if format != FORMAT {
            return None;
        }
        let payload = Payload { msg: sealed, aad: &[FORMAT] };
        Ticket::decode(&self.cipher.decrypt(XNonce::from_slice(nonce), payload).ok()?)
    }
}
