//! A client's end of the wire: session, sequence numbers, packets, and the map of tablets.

use super::cluster::Cluster;
use anyhow::{Context, Result};
use bearing_env::{Destination, Endpoint, Incoming, Transport, random_u64};
use bearing_lookup::ClientMap;
use bearing_proto::client::{Call, Reply, Request, Survey, Surveyed};
use bearing_proto::envelope::{self, Packing};
use bearing_proto::keys::{Key, session_secret};
use bearing_proto::{Message, Sender};
use bearing_types::{Epoch, Position, Sequence, SessionId};
use std::net::SocketAddr;
use std::time::Duration;

/// The largest datagram that is sent; 32 operations fit.
const DATAGRAM_BYTES_MAX: usize = 16 * 1024;

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
    key: Key,
    session: SessionId,
    map: ClientMap,
    incoming: Vec<Incoming>,
    finished_below: Sequence,
}

impl Link {
    /// A link to a cluster's server under a new session, which is not opened yet.
    pub fn new(cluster: &Cluster) -> Result<Link> {
        let session = SessionId(random_u64());
        Link::as_session(cluster, session)
    }

    /// A link under the session of another link, as if this server belonged to the same cluster.
    pub fn as_session(cluster: &Cluster, session: SessionId) -> Result<Link> {
        let server = cluster.address();
        let endpoint = Endpoint::client_at(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let key = session_secret(&cluster.enrolment_key()?, session);
        Ok(Link {
            endpoint,
            server,
            key,
            session,
            map: ClientMap::new(),
            incoming: Vec::new(),
            finished_below: Sequence(0),
        })
    }

    /// Its session.
    pub fn session(&self) -> SessionId {
        self.session
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
        let packet = packing.seal(Sender::Client(self.session), Some(&self.key), &[]);
        self.endpoint
            .send(Destination::Address(self.server), Transport::Datagram, &packet)
            .context("send to the server")
    }

    /// Sends what is queued, waits for datagrams, and hands over the replies in them. Returns the number of datagrams with replies.
    pub fn receive(
        &mut self,
        timeout: Duration,
        mut each: impl FnMut(&mut ClientMap, Reply) -> Result<()>,
    ) -> Result<u64> {
        self.endpoint.receive(Some(timeout), &mut self.incoming).context("receive from the server")?;
        let mut datagrams = 0;
        let mut surveys = Vec::new();
        for packet in self.incoming.drain(..) {
            let opened =
                envelope::open(&packet.bytes, Some(&self.key)).context("open the server's packet")?;
            self.endpoint.recycle(packet.bytes);
            datagrams += 1;
            for message in opened.messages {
                match message {
                    Message::Reply(reply) => each(&mut self.map, reply)?,
                    Message::Survey(survey) => surveys.push(survey),
                    // Nobody else uses what this client holds.
                    other => anyhow::bail!("the server sent something unexpected: {other:?}"),
                }
            }
        }
        for Survey { tablet, epoch, number, .. } in surveys {
            // Nothing is ever open here.
            let finished_below = self.finished_below;
            let surveyed = Surveyed { tablet, epoch, number, finished_below, open: Vec::new() };
            let mut packing = Packing::new();
            packing.push(&Message::Surveyed(surveyed), DATAGRAM_BYTES_MAX);
            self.seal(packing)?;
        }
        Ok(datagrams)
    }
}
