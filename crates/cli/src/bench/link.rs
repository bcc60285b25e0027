//! A client's end of the wire: session, sequence numbers, packets, and the map of tablets. Whom a request
//! goes to is said by who measures: lookups of clients are not part of it.

use super::cluster::Cluster;
use anyhow::{Context, Result, bail};
use bearing_env::handshake::{Initiator, Outcome};
use bearing_env::{Destination, Endpoint, Incoming, Transport};
use bearing_lookup::{ClientMap, Located};
use bearing_proto::client::{Answer, Call, OpenState, OpenStateQuery, Reply, Request};
use bearing_proto::enrolment::Enrolment;
use bearing_proto::envelope::{self, Packing, Stamp, Start, Versions};
use bearing_proto::freshness::{FromServers, Next, Sending, Welcomed};
use bearing_proto::keys::Key;
use bearing_proto::ticket::Agreed;
use bearing_proto::window::Freshness;
use bearing_proto::{Message, Sender};
use bearing_types::{Epoch, Position, Sequence, ServerId, SessionId};
use std::net::SocketAddr;
use std::time::Duration;

/// The largest datagram that is sent; 32 operations fit.
const DATAGRAM_BYTES_MAX: usize = 16 * 1024;

/// How often a session is asked for, and how long each answer is waited for.
const HELLOS: usize = 20;
const HELLO_WAIT: Duration = Duration::from_millis(500);

/// One request to send.
pub struct Outgoing {
    /// Its number.
    pub sequence: Sequence,
    /// Where to.
    pub position: Position,
    /// What is asked.
    pub call: Call,
}

/// Whom requests go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toward {
    /// The owner.
    Owner,
    /// Any server, in turn.
    Any,
}

/// See the module.
pub struct Link {
    endpoint: Endpoint,
    /// Their numbers are known once they have answered.
    servers: Vec<(SocketAddr, ServerId)>,
    /// Whom requests go to.
    pub toward: Toward,
    turn: usize,
    agreed: Agreed,
    key: Key,
    sending: Sending<SocketAddr>,
    from: FromServers,
    map: ClientMap,
    incoming: Vec<Incoming>,
    finished_below: Sequence,
}

impl Link {
    /// A link to a cluster's servers under a new session, which is agreed on, but not opened yet.
    pub fn new(cluster: &Cluster) -> Result<Link> {
        let (first, others) = cluster.addresses().split_first().context("a cluster has a server")?;
        let mut endpoint = Endpoint::client_at(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let agreed = enrol(&mut endpoint, *first, &cluster.enrolment_key()?.into())?;
        let (mut sending, mut from) = (Sending::default(), FromServers::default());
        sending.learn(*first, agreed.start, agreed.version);
        from.learn(agreed.server, agreed.start);
        let mut link = Link {
            endpoint,
            servers: vec![(*first, agreed.server)],
            toward: Toward::Owner,
            turn: 0,
            key: Key::new(agreed.secret),
            agreed,
            sending,
            from,
            map: ClientMap::new(),
            incoming: Vec::new(),
            finished_below: Sequence(0),
        };
        others.iter().try_for_each(|address| link.greet(*address))?;
        Ok(link)
    }

    /// Learns the start of one more server.
    fn greet(&mut self, address: SocketAddr) -> Result<()> {
        for _ in 0..HELLOS {
            let next = self.sending.greet(address);
            let packet = Packing::new().seal(&self.stamp(next), Some(&self.key), &[]);
            self.endpoint.send(Destination::Address(address), Transport::Datagram, &packet)?;
            self.endpoint.receive(Some(HELLO_WAIT), &mut self.incoming)?;
            for packet in self.incoming.drain(..) {
                let opened = envelope::open(&packet.bytes, Some(&self.key)).context("open a welcome")?;
                let (Sender::Server(server), [Message::Welcome { versions }]) =
                    (opened.sender, &opened.messages[..])
                else {
                    continue;
                };
                let header = opened.header;
                if let Welcomed::Known(of) = self.sending.welcomed(address, header.to, header.from, *versions)
                    && of == address
                {
                    self.from.learn(server, header.from);
                    self.servers.push((address, server));
                    return Ok(());
                }
            }
        }
        bail!("the server at {address} does not answer a greeting")
    }

    /// Its session.
    pub fn session(&self) -> SessionId {
        self.agreed.session
    }

    /// The map of tablets.
    pub fn map(&self) -> &ClientMap {
        &self.map
    }

    /// Takes the map of another link.
    pub fn take_map(&mut self, map: ClientMap) {
        self.map = map;
    }

    /// Queues one datagram with some requests.
    pub fn send(
        &mut self,
        requests: impl IntoIterator<Item = Outgoing>,
        finished_below: Sequence,
    ) -> Result<()> {
        self.finished_below = finished_below;
        let mut packing = Packing::new();
        let mut owner = None;
        for Outgoing { sequence, position, call } in requests {
            let located = self.map.locate(position);
            owner = located.map(|located| located.owner);
            let epoch = located.map_or(Epoch(0), |located| located.epoch);
            let request = Request { sequence, finished_below, position, epoch, call };
            let fits = packing.push(&Message::Request(request), DATAGRAM_BYTES_MAX);
            anyhow::ensure!(fits, "so many operations do not fit a datagram; lower --packed");
        }
        let to = self.choose(owner);
        self.seal(packing, to)
    }

    fn choose(&mut self, owner: Option<ServerId>) -> SocketAddr {
        self.turn += 1;
        let owns = self.servers.iter().find(|(_, server)| Some(*server) == owner);
        let (address, _) = match self.toward {
            Toward::Owner => owns.unwrap_or(&self.servers[0]),
            Toward::Any => &self.servers[self.turn % self.servers.len()],
        };
        *address
    }

    fn stamp(&self, next: Next) -> Stamp<'_> {
        Stamp {
            version: next.version,
            sender: Sender::Client(self.agreed.session),
            counter: next.counter,
            from: Start::NONE,
            to: next.to.0,
            ticket: if next.with_ticket { &self.agreed.ticket } else { &[] },
        }
    }

    fn seal(&mut self, packing: Packing, to: SocketAddr) -> Result<()> {
        let next = self.sending.next(to).context("the server's start is known from the handshake")?;
        let packet = packing.seal(&self.stamp(next), Some(&self.key), &[]);
        self.endpoint
            .send(Destination::Address(to), Transport::Datagram, &packet)
            .context("send to the server")
    }

    /// Sends what is queued, waits for datagrams, and hands over the replies in them. Returns the number of
    /// datagrams with replies.
    pub fn receive(
        &mut self,
        timeout: Duration,
        mut each: impl FnMut(&mut ClientMap, Reply) -> Result<()>,
    ) -> Result<u64> {
        self.endpoint.receive(Some(timeout), &mut self.incoming).context("receive from the server")?;
        let mut datagrams = 0;
        let mut open_state_queries = Vec::new();
        for packet in self.incoming.drain(..) {
            let opened =
                envelope::open(&packet.bytes, Some(&self.key)).context("open the server's packet")?;
            self.endpoint.recycle(packet.bytes);
            let mut sender = None;
            if let Sender::Server(server) = opened.sender {
                let freshness = self.from.take(server, opened.header.from, opened.header.counter);
                anyhow::ensure!(freshness != Freshness::Replayed, "a packet of the server came twice");
                sender = self.servers.iter().find(|(_, known)| *known == server).copied();
                sender.into_iter().for_each(|(address, _)| self.sending.heard(address));
            }
            datagrams += 1;
            for message in opened.messages {
                match message {
                    Message::Reply(reply) => {
                        // Where requests are passed on nobody refers to the owner: he answers.
                        if let (Answer::Done { tablet, epoch, .. }, Some((_, owner))) =
                            (&reply.answer, sender)
                            && self.servers.len() > 1
                        {
                            self.map.learn(Located { block: *tablet, epoch: *epoch, owner });
                        }
                        each(&mut self.map, reply)?;
                    }
                    Message::OpenStateQuery(query) => {
                        open_state_queries.extend(sender.map(|(address, _)| (query, address)));
                    }
                    // Nobody else uses what this client holds.
                    other => anyhow::bail!("the server sent something unexpected: {other:?}"),
                }
            }
        }
        for (OpenStateQuery { tablet, epoch, number, .. }, from) in open_state_queries {
            // Nothing is ever open here.
            let finished_below = self.finished_below;
            let open_state = OpenState { tablet, epoch, number, finished_below, open: Vec::new() };
            let mut packing = Packing::new();
            packing.push(&Message::OpenState(open_state), DATAGRAM_BYTES_MAX);
            self.seal(packing, from)?;
        }
        Ok(datagrams)
    }
}

/// Agrees on a session with a server.
fn enrol(endpoint: &mut Endpoint, server: SocketAddr, enrolment: &Enrolment) -> Result<Agreed> {
    let mut incoming = Vec::new();
    for _ in 0..HELLOS {
        let mut initiator = Initiator::new(enrolment, Versions::SPOKEN, None);
        endpoint.send(Destination::Address(server), Transport::Datagram, initiator.hello())?;
        endpoint.receive(Some(HELLO_WAIT), &mut incoming)?;
        for packet in incoming.drain(..) {
            match initiator.take(&packet.bytes) {
                Outcome::Agreed(agreed) => return Ok(*agreed),
                Outcome::Refused(reason, _) => bail!("the server gives no session: {reason:?}"),
                Outcome::Cookie(_) | Outcome::Nothing => {}
            }
        }
    }
    bail!("the server at {server} gives no session: it does not answer")
}
