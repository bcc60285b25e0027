//! The server's side.

use super::limits::{Admission, Limits};
use super::{AGREED_BYTES_MAX, Tickets, builder};
use crate::{random_bytes, random_u64};
use bearing_proto::envelope::{Start, Versions};
use bearing_proto::hello::{Answer, HELLO_BYTES_MAX, Hello, HelloRefusal, Reaction};
use bearing_proto::keys::{Key, ServerKeys, handshake_secret};
use bearing_proto::ticket::{Agreed, Ticket};
use bearing_types::{Now, ServerId, SessionId};
use std::net::SocketAddr;
use std::time::Duration;

/// What a server did with a hello.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing: it is none, or too many came.
    Nothing,
    /// Answer with these bytes.
    Answer(Vec<u8>),
    /// Answer with these bytes, and tell people why, if that was not told lately.
    Refusal(HelloRefusal, Vec<u8>),
}

/// See the module. It keeps nothing of any handshake.
pub struct Responder {
    server: ServerId,
    versions: Versions,
    keys: ServerKeys,
    tickets: Tickets,
    ticket_life: Duration,
    limits: Limits,
}

impl Responder {
    /// A server that speaks these versions, and gives tickets for so long.
    pub fn new(server: ServerId, versions: Versions, keys: ServerKeys, ticket_life: Duration) -> Responder {
        let tickets = Tickets::new(&keys);
        Responder { server, versions, keys, tickets, ticket_life, limits: Limits::new() }
    }

    /// Opens a ticket.
    pub fn open_ticket(&self, bytes: &[u8]) -> Option<Ticket> {
        self.tickets.open(bytes)
    }

    /// Another ticket of the same session, with the seconds until it expires.
    pub fn renew(&self, now: Now, ticket: &Ticket) -> (Vec<u8>, u32) {
        let expires = now.wall.after(self.ticket_life);
        (self.tickets.seal(&Ticket { expires, ..ticket.clone() }), self.ticket_life.as_secs() as u32)
    }

    /// Answers a hello. `is_revoked` says of the name of an enrolment whether it is, `None`: not known yet.
    pub fn take(
        &mut self,
        now: Now,
        peer: SocketAddr,
        start: Start,
        bytes: &[u8],
        is_revoked: impl FnOnce(&Hello) -> Option<bool>,
    ) -> Heard {
        // Only what is a hello counts: anything shorter costs nothing, here and whoever sends it.
        let Some((hello, prologue_bytes)) = Hello::decode(bytes) else { return Heard::Nothing };
        let (prologue, message) = bytes.split_at(prologue_bytes);
        let Some(version) = self.versions.common(hello.versions) else {
            return self.refuse(&hello, HelloRefusal::Version);
        };
        match self.limits.admit(now.mono, peer, hello.cookie) {
            Admission::Read => {}
            Admission::Cookie(cookie) => {
                return Heard::Answer(self.answer(&hello, Reaction::Cookie(cookie)));
            }
            Admission::Drop => return Heard::Nothing,
        }
        let secret = handshake_secret(&self.keys.enrolment(&hello.name, hello.squash));
        let Ok(mut noise) = builder(prologue, secret.bytes()).and_then(snow::Builder::build_responder) else {
            return Heard::Nothing;
        };
        if noise.read_message(message, &mut [0; HELLO_BYTES_MAX]).is_err() {
            return self.refuse(&hello, HelloRefusal::Secret);
        }
        match is_revoked(&hello) {
            Some(false) => {}
            Some(true) => return self.refuse(&hello, HelloRefusal::Revoked),
            None => return Heard::Nothing,
        }
        if !self.limits.take_exchange() {
            return Heard::Nothing;
        }
        let agreed = self.agree(now, start, &hello, version);
        let mut second = [0; AGREED_BYTES_MAX];
        match noise.write_message(&agreed.encode(), &mut second) {
            Ok(length) => Heard::Answer(self.answer(&hello, Reaction::Agreed(&second[..length]))),
            // Its key was no point of the curve, or the like.
            Err(_) => Heard::Nothing,
        }
    }

    fn agree(&self, now: Now, start: Start, hello: &Hello, version: u16) -> Agreed {
        let ticket = Ticket {
            session: SessionId(random_u64()),
            secret: Key::new(random_bytes()),
            enrolment: hello.name.clone(),
            squash: hello.squash,
            version,
            expires: now.wall,
        };
        let (sealed, ticket_seconds) = self.renew(now, &ticket);
        Agreed {
            session: ticket.session,
            secret: *ticket.secret.bytes(),
            version,
            ticket: sealed,
            ticket_seconds,
            server: self.server,
            start,
        }
    }

    fn refuse(&self, hello: &Hello, reason: HelloRefusal) -> Heard {
        Heard::Refusal(reason, self.answer(hello, Reaction::Refused(reason)))
    }

    fn answer(&self, hello: &Hello, reaction: Reaction<'_>) -> Vec<u8> {
        Answer { versions: self.versions, try_number: hello.try_number, reaction }.encode()
    }
}
