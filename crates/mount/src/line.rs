//! What the packets of a session are sealed with: its secret and ticket, the servers' starts, and which
//! packets of theirs came before.
//!
//! Invariants: nothing here waits or sends; it is used in short moments under one lock, and sealing itself is
//! done outside of that.

use bearing_proto::envelope::{Header, Packing, Sender, Stamp, Start, Versions};
use bearing_proto::freshness::{FromServers, Held, HeldPackets, Next, Sending, Welcomed};
use bearing_proto::keys::Key;
use bearing_proto::ticket::{Agreed, TICKET_BYTES_MAX};
use bearing_proto::window::Freshness;
use bearing_types::{Mono, ServerId, SessionId};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// An unanswered wish for another ticket is repeated after so long.
const RENEW_AGAIN: Duration = Duration::from_secs(10);

/// How a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By datagram.
    Datagram,
    /// By stream.
    Stream,
}

/// What was agreed on with the servers.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// Its id.
    pub id: SessionId,
    /// Signs all packets.
    pub key: Key,
    version: u16,
    ticket: Arc<[u8]>,
    renew_at: Mono,
    /// Servers take the ticket until then at least, if their clocks are right: it was sealed before it was
    /// received.
    good_until: Mono,
}

impl Session {
    /// A new session.
    pub fn new(agreed: &Agreed, now: Mono) -> Session {
        Session {
            id: agreed.session,
            key: Key::new(agreed.secret),
            version: agreed.version,
            ticket: agreed.ticket.as_slice().into(),
            renew_at: half_way(now, agreed.ticket_seconds),
            good_until: now.after(life(agreed.ticket_seconds)),
        }
    }
}

fn life(ticket_seconds: u32) -> Duration {
    Duration::from_secs(u64::from(ticket_seconds))
}

fn half_way(now: Mono, ticket_seconds: u32) -> Mono {
    now.after(life(ticket_seconds) / 2)
}

/// Seals one packet.
pub(crate) struct Seal {
    session: Session,
    next: Next,
}

impl Seal {
    /// The packet, but for its attachment of so many bytes.
    pub fn packet(self, packing: Packing, attachment_bytes: usize) -> Vec<u8> {
        let stamp = Stamp {
            version: self.session.version,
            sender: Sender::Client(self.session.id),
            counter: self.next.counter,
            from: Start::NONE,
            to: self.next.to.0,
            ticket: if self.next.with_ticket { &self.session.ticket } else { &[] },
        };
        packing.seal_head(&stamp, Some(&self.session.key), attachment_bytes)
    }
}

/// Seals a greeting: a packet without messages that shows the ticket.
pub(crate) struct Greeting(Seal);

impl Greeting {
    /// The packet.
    pub fn packet(self) -> Vec<u8> {
        self.0.packet(Packing::new(), 0)
    }
}

/// What may go to a server now.
pub(crate) enum Sealing {
    /// A packet.
    Packet(Seal),
    /// A greeting; the packet has to wait.
    Greeting(Greeting),
}

/// See the module.
#[derive(Default)]
pub(crate) struct Line {
    session: Option<Session>,
    sending: Sending<SocketAddr>,
    from: FromServers,
    held: HeldPackets<SocketAddr, Way>,
}

impl Line {
    /// The line of a session that was agreed on with the server at an address.
    pub fn begin(session: Session, peer: SocketAddr, agreed: &Agreed) -> Line {
        let (mut sending, mut from) = (Sending::default(), FromServers::default());
        sending.learn(peer, agreed.start, agreed.version);
        from.learn(agreed.server, agreed.start);
        Line { session: Some(session), sending, from, held: HeldPackets::default() }
    }

    /// The session, if there is one.
    pub fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    #[cfg(test)]
    pub fn set_session(&mut self, session: Session) {
        self.session = Some(session);
    }

    /// With what the next packet to a server is sealed. `None`: there is no session.
    pub fn next(&mut self, to: SocketAddr) -> Option<Sealing> {
        match self.sending.next(to) {
            Some(next) => Some(Sealing::Packet(Seal { session: self.session.clone()?, next })),
            None => self.greet(to).map(Sealing::Greeting),
        }
    }

    /// With what a greeting is sealed. `None`: there is no session.
    pub fn greet(&mut self, to: SocketAddr) -> Option<Greeting> {
        let session = self.session.clone()?;
        Some(Greeting(Seal { session, next: self.sending.greet(to) }))
    }

    /// A packet has to wait.
    pub fn hold(&mut self, to: SocketAddr, held: Held<Way>) {
        self.held.push(to, held);
    }

    /// What waits for a server.
    pub fn take_held(&mut self, to: SocketAddr) -> VecDeque<Held<Way>> {
        self.held.take(to)
    }

    /// What waits for a server that cannot be reached is lost, as far as it goes by stream.
    pub fn drop_held(&mut self, to: SocketAddr) {
        for held in self.held.take(to) {
            if held.way == Way::Datagram {
                self.held.push(to, held);
            }
        }
    }

    /// A signed packet came; says whether it is new.
    pub fn take(&mut self, peer: SocketAddr, server: ServerId, header: &Header) -> bool {
        let is_new = self.from.take(server, header.from, header.counter) != Freshness::Replayed;
        if is_new {
            self.sending.heard(peer);
        }
        is_new
    }

    /// Whether anything was sent to an address.
    pub fn has_sent_to(&self, address: SocketAddr) -> bool {
        self.sending.has_sent_to(address)
    }

    /// The address that was greeted with a counter.
    pub fn greeted(&self, counter: u64) -> Option<SocketAddr> {
        self.sending.greeted(counter)
    }

    /// Whether the ticket that is shown now has had its time. An earlier one may be refused for its age while
    /// the session goes on, and so may this one by a server whose clock is wrong.
    pub fn is_ticket_over(&self, now: Mono) -> bool {
        self.session.as_ref().is_some_and(|session| session.good_until <= now)
    }

    /// Whether a signed hint answers something that was not hinted at yet.
    pub fn is_new_hint(&self, peer: SocketAddr, answers: u64) -> bool {
        self.sending.is_new_hint(peer, answers)
    }

    /// A signed welcome came.
    pub fn welcomed(
        &mut self,
        peer: SocketAddr,
        server: ServerId,
        header: &Header,
        versions: Versions,
    ) -> Welcomed<SocketAddr> {
        let welcomed = self.sending.welcomed(peer, header.to, header.from, versions);
        if matches!(welcomed, Welcomed::Known(_) | Welcomed::Restarted(_)) {
            self.from.learn(server, header.from);
        }
        welcomed
    }

    /// Whether another ticket is to be asked for now.
    pub fn is_ticket_old(&mut self, now: Mono) -> bool {
        let old = self.session.as_mut().filter(|session| session.renew_at <= now);
        old.map(|session| session.renew_at = now.after(RENEW_AGAIN)).is_some()
    }

    /// Another ticket came.
    pub fn renewed(&mut self, ticket: Vec<u8>, ticket_seconds: u32, now: Mono) {
        if let Some(session) = &mut self.session
            && ticket.len() <= TICKET_BYTES_MAX
        {
            session.ticket = ticket.into();
            session.renew_at = half_way(now, ticket_seconds);
            session.good_until = now.after(life(ticket_seconds));
        }
    }
}
