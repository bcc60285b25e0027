//! A client's end of the wire: session, sequence numbers, packets, and the map of tablets.

use super::cluster::Cluster;
use anyhow::{Context, Result, bail};
use bearing_env::handshake::{Initiator, Outcome};
use bearing_env::{Destination, Endpoint, Incoming, Transport};
use bearing_lookup::ClientMap;
use bearing_proto::client::{Call, OpenState, OpenStateQuery, Reply, Request};
use bearing_proto::enrolment::Enrolment;
use bearing_proto::envelope::{self, Packing, Stamp, Start, Versions};
use bearing_proto::freshness::{FromServers, Sending};
use bearing_proto::keys::Key;
use bearing_proto::ticket::Agreed;
use bearing_proto::window::Freshness;
use bearing_proto::{Message, Sender};
use bearing_types::{Epoch, Position, Sequence, SessionId};
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

/// See the module.
pub struct Link {
    endpoint: Endpoint,
    server: SocketAddr,
    agreed: Agreed,
    key: Key,
    sending: Sending<SocketAddr>,
    from: FromServers,
    map: ClientMap,
    incoming: Vec<Incoming>,
    finished_below: Sequence,
}

impl Link {
    /// A link to a cluster's server under a new session, which is agreed on, but not opened yet.
    pub fn new(cluster: &Cluster) -> Result<Link> {
        let server = cluster.address();
        let mut endpoint = Endpoint::client_at(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let agreed = enrol(&mut endpoint, server, &cluster.enrolment_key()?.into())?;
        let (mut sending, mut from) = (Sending::default(), FromServers::default());
        sending.learn(server, agreed.start, agreed.version);
        from.learn(agreed.server, agreed.start);
        Ok(Link {
            endpoint,
            server,
            key: Key::new(agreed.secret),
            agreed,
            sending,
            from,
            map: ClientMap::new(),
            incoming: Vec::new(),
            finished_below: Sequence(0),
        })
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
        for Outgoing { sequence, position, call } in requests {
            let epoch = self.map.locate(position).map_or(Epoch(0), |located| located.epoch);
            let request = Request { sequence, finished_below, position, epoch, call };
            let fits = packing.push(&Message::Request(request), DATAGRAM_BYTES_MAX);
            anyhow::ensure!(fits, "so many operations do not fit a datagram; lower --packed");
        }
        self.seal(packing)
    }

    fn seal(&mut self, packing: Packing) -> Result<()> {
        let next =
            self.sending.next(self.server).context("the server's start is known from the handshake")?;
        let stamp = Stamp {
            version: next.version,
            sender: Sender::Client(self.agreed.session),
            counter: next.counter,
            from: Start::NONE,
            to: next.to.0,
            ticket: if next.with_ticket { &self.agreed.ticket } else { &[] },
        };
        let packet = packing.seal(&stamp, Some(&self.key), &[]);
        self.endpoint
            .send(Destination::Address(self.server), Transport::Datagram, &packet)
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
            if let Sender::Server(server) = opened.sender {
                let freshness = self.from.take(server, opened.header.from, opened.header.counter);
                anyhow::ensure!(freshness != Freshness::Replayed, "a packet of the server came twice");
                self.sending.heard(self.server);
            }
            datagrams += 1;
            for message in opened.messages {
                match message {
                    Message::Reply(reply) => each(&mut self.map, reply)?,
                    Message::OpenStateQuery(open_state_query) => open_state_queries.push(open_state_query),
                    // Nobody else uses what this client holds.
                    other => anyhow::bail!("the server sent something unexpected: {other:?}"),
                }
            }
        }
        for OpenStateQuery { tablet, epoch, number, .. } in open_state_queries {
            // Nothing is ever open here.
            let finished_below = self.finished_below;
            let open_state = OpenState { tablet, epoch, number, finished_below, open: Vec::new() };
            let mut packing = Packing::new();
            packing.push(&Message::OpenState(open_state), DATAGRAM_BYTES_MAX);
            self.seal(packing)?;
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
