//! A metadata server's lookup in its host, as the daemon's shell has it: requests that go on, and what
//! lookups say to each other.

use super::MetaHost;
use crate::ledger::Ledger;
use crate::network::Way;
use crate::world::World;
use bearing_meta::{Asked, Event, FilterView, Hop, MetaServer, Relays, Said};
use bearing_proto::client::Request;
use bearing_proto::filters::FilterMessage;
use bearing_proto::relay::Relay;
use bearing_proto::{Message, Sender};
use bearing_types::{ServerId, SessionId, Squash};

impl MetaHost {
    /// Has the lookup say what becomes of a request that came by datagram.
    pub(super) fn pass_on(&mut self, world: &mut World, ledger: &mut Ledger, asked: Asked<SessionId>) {
        if self.relays.is_none() {
            return self.decide(world, ledger, asked.from, asked.request);
        }
        let now = world.clock_of(self.host).mono;
        self.relay(world, ledger, |relays, machine, said| {
            machine.into_iter().for_each(|machine| relays.learn(now, machine, said));
            relays.on_request(now, asked, said);
        });
    }

    /// Tells the lookup what another server's says.
    pub(super) fn hear_filters(
        &mut self,
        world: &mut World,
        ledger: &mut Ledger,
        from: ServerId,
        message: &FilterMessage,
    ) {
        let now = world.clock_of(self.host).mono;
        self.relay(world, ledger, |relays, _, said| relays.on_message(now, from, message, said));
    }

    /// Tells the lookup what the machine knows, and what time it is.
    pub(super) fn tend_relays(&mut self, world: &mut World, ledger: &mut Ledger) {
        let now = world.clock_of(self.host).mono;
        self.relay(world, ledger, |relays, machine, said| {
            machine.into_iter().for_each(|machine| relays.learn(now, machine, said));
            relays.wake(now, said);
        });
    }

    /// What it knows of the others' filters, unless it is down or may serve nothing.
    pub fn filters(&self) -> Option<(ServerId, Option<FilterView>)> {
        self.machine.as_ref().filter(|machine| machine.is_settled_in())?;
        Some((self.server, self.relays.as_ref()?.filters()))
    }

    fn relay(
        &mut self,
        world: &mut World,
        ledger: &mut Ledger,
        work: impl FnOnce(&mut Relays<SessionId>, Option<&MetaServer>, &mut Vec<Said<SessionId>>),
    ) {
        let (Some(relays), None) = (&mut self.relays, &self.dying) else { return };
        let mut said = Vec::new();
        work(relays, self.machine.as_ref(), &mut said);
        for said in said {
            match said {
                Said::Decide(session, request) => self.decide(world, ledger, session, request),
                Said::Pass(hop, session, request) => self.send_on(world, ledger, hop, session, request),
                Said::Send(server, message) => self.send(world, server, &Message::Filters(message)),
            }
        }
    }

    /// Gives a request to the machine.
    pub(super) fn decide(
        &mut self,
        world: &mut World,
        ledger: &mut Ledger,
        session: SessionId,
        request: Request,
    ) {
        self.heard.insert(session);
        self.step(world, ledger, Event::Request(session, Squash::None, request));
    }

    fn send_on(
        &mut self,
        world: &mut World,
        ledger: &mut Ledger,
        Hop { server, hops, trail }: Hop,
        session: SessionId,
        request: Request,
    ) {
        let Some(to) = self.hosts.host_of(server) else {
            return self.decide(world, ledger, session, request);
        };
        let relay = Relay {
            // No ticket is sealed in the simulation: a session is known by its number.
            ticket: session.0.to_le_bytes().to_vec(),
            origin: (std::net::Ipv4Addr::LOCALHOST, 0).into(),
            request,
            hops,
            trail: (trail.level, trail.entry),
        };
        self.post.send(world, to, Sender::Server(server), Way::Datagram, &Message::Relay(relay), &[]);
    }
}
