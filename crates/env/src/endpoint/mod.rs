//! The network of one process: datagrams and streams on one port, driven by one thread.
//!
//! Invariants: no call but [`Endpoint::receive`] waits; every queue is bounded, and what does not fit is
//! dropped and reported; a peer cannot make us hold more memory than it sent, and before it is vouched for
//! hardly any. The endpoint must not know what a packet means, nor whether it will be answered: retries are
//! the machines' business.
//!
//! Datagrams that the network carries to addresses of a whole prefix come by a socket of their own
//! ([`Endpoint::carry`]): [`Destination::Carried`] says to which, and an answer leaves from there.

mod address;
mod connection;
mod datagrams;
mod poll;
mod pool;
mod queue;
mod streams;

pub use datagrams::{DATAGRAM_BYTES_MAX, DatagramSender};
pub use poll::Waker;

use crate::Clock;
use datagrams::Datagrams;
use poll::{Interest, Poll, Ready};
use pool::Pool;
use std::borrow::Cow;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use streams::Streams;

/// The largest packet on a stream; a peer that announces a larger one is cut off.
pub const PACKET_BYTES_MAX: usize = 8 * 1024 * 1024;

const DATAGRAM_TOKEN: u64 = 0;
const LISTENER_TOKEN: u64 = 1;
const WAKER_TOKEN: u64 = 2;
const CARRIED_TOKEN: u64 = 3;
const FIRST_CONNECTION_TOKEN: u64 = 16;
/// How often a port is tried that must be free for UDP and TCP alike.
const PORT_TRIES: usize = 16;

/// One connection of this endpoint's life; never used again after it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Where a packet goes to or came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    /// A peer by its address; a stream to it is made when needed, and answers on that stream come from this
    /// address too.
    Address(SocketAddr),
    /// A peer who sent a datagram to this address, which the network carried here. The answer leaves from
    /// there, by datagram.
    Carried(SocketAddr, Ipv6Addr),
    /// A stream that a peer made to us.
    Connection(ConnectionId),
}

/// Who proved a key on a stream, by a number in the caller's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A server. Part of what streams may hold is kept for them.
    Server(u64),
    /// A client, by its session. All of them together hold so much; one that comes no further makes room for
    /// others.
    Client(u64),
}

/// How a packet travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// UDP: up to [`DATAGRAM_BYTES_MAX`] bytes, may be lost, doubled or reordered.
    Datagram,
    /// TCP: up to [`PACKET_BYTES_MAX`] bytes, in order while the connection lasts.
    Stream,
}

/// A packet that came in. Give `bytes` back with [`Endpoint::recycle`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// Where to send the answer.
    pub from: Destination,
    /// The sender's address.
    pub peer: SocketAddr,
    /// How it came, and how to answer.
    pub transport: Transport,
    /// The packet.
    pub bytes: Vec<u8>,
    /// What its sender handed over as bulk stands behind it.
    pub bulk: Vec<u8>,
}

/// Why a packet was dropped instead of queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// It does not fit this transport.
    #[error(
        "a packet of {bytes} bytes exceeds the {bytes_max} bytes of its transport; send it by stream, or in parts"
    )]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// What fits.
        bytes_max: usize,
    },
    /// The peer (or the network card) takes packets more slowly than they come.
    #[error("too much is waiting to be sent to this peer; try again later")]
    QueueFull,
    /// The connection has ended.
    #[error("the connection has ended")]
    Gone,
    /// No way to that address from here.
    #[error("the address cannot be reached from here")]
    Unreachable,
}

/// Why an endpoint could not be made.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// Another program holds the port.
    #[error(
        "port {} of {} is in use ({protocol}); stop the program that holds it (`ss -lnp | grep :{}` names it), or choose another port",
        address.port(), address.ip(), address.port()
    )]
    InUse {
        /// The address asked for.
        address: SocketAddr,
        /// UDP or TCP.
        protocol: &'static str,
    },
    /// The address is not of this machine, or the system refuses for another reason.
    #[error(
        "cannot listen on {address} ({protocol}): {source}; check that the address is one of this machine's (`ip address`)"
    )]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// UDP or TCP.
        protocol: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The system has no descriptors or memory left.
    #[error("cannot set up waiting for the network: {0}; check the limit of open files (`ulimit -n`)")]
    Setup(#[from] io::Error),
}

/// What has happened so far. Only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams received whole.
    pub datagrams_received: u64,
    /// Datagrams received with their end missing, and dropped.
    pub datagrams_truncated: u64,
    /// Datagrams given to the system.
    pub datagrams_sent: u64,
    /// Datagrams that the system refused.
    pub datagrams_dropped: u64,
    /// Packets received by stream.
    pub stream_packets_received: u64,
    /// Packets that were not queued, for any [`SendError`].
    pub packets_not_queued: u64,
    /// Streams that peers made to us.
    pub connections_accepted: u64,
    /// Streams that ended, whoever made them.
    pub connections_closed: u64,
    /// Of these, cut off for a packet beyond the limit, for not proving themselves in time, or for holding
    /// too much.
    pub connections_refused: u64,
}

/// A UDP socket, the listener on the same port if it is a server's, and all streams.
pub struct Endpoint {
    poll: Poll,
    datagrams: Datagrams,
    carried: Option<Datagrams>,
    streams: Streams,
    waker: Waker,
    pool: Pool,
    ready: Vec<Ready>,
    local: SocketAddr,
    datagrams_want_room: bool,
    carried_want_room: bool,
    /// How many of the streams' failures the caller could have taken since they happened.
    failures_announced: usize,
    counters: Counters,
}

impl Endpoint {
    /// Listens for datagrams and streams on one port. Port 0 takes any that is free for both;
    /// [`Endpoint::local_address`] tells it. An IPv6 wildcard address serves IPv4 too.
    pub fn server(address: SocketAddr) -> Result<Endpoint, EndpointError> {
        for _ in 1..PORT_TRIES {
            match Endpoint::server_once(address) {
                // A port that was free for TCP may be taken for UDP: let the system choose another.
                Err(EndpointError::InUse { .. }) if address.port() == 0 => {}
                other => return other,
            }
        }
        Endpoint::server_once(address)
    }

    fn server_once(address: SocketAddr) -> Result<Endpoint, EndpointError> {
        let listener = streams::listen(address).map_err(|source| bind_error(address, "TCP", source))?;
        let address = listener.local_addr()?;
        let socket = streams::bind_datagrams(address).map_err(|source| bind_error(address, "UDP", source))?;
        let poll = Poll::new()?;
        poll.add(&listener, LISTENER_TOKEN, Interest::Read)?;
        Endpoint::assemble(
            poll,
            Datagrams::new(socket)?,
            Streams::new(Some(listener), FIRST_CONNECTION_TOKEN),
        )
    }

    /// A client's endpoint on any free port, for IPv6 and IPv4, or for IPv4 alone where the machine has no
    /// IPv6. It accepts no streams.
    pub fn client() -> Result<Endpoint, EndpointError> {
        let any_v6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        Endpoint::client_at(any_v6).or_else(|_| Endpoint::client_at((Ipv4Addr::UNSPECIFIED, 0).into()))
    }

    /// A client's endpoint that sends its datagrams from an address.
    pub fn client_at(address: SocketAddr) -> Result<Endpoint, EndpointError> {
        let socket = streams::bind_datagrams(address).map_err(|source| bind_error(address, "UDP", source))?;
        Endpoint::assemble(Poll::new()?, Datagrams::new(socket)?, Streams::new(None, FIRST_CONNECTION_TOKEN))
    }

    fn assemble(poll: Poll, datagrams: Datagrams, streams: Streams) -> Result<Endpoint, EndpointError> {
        let waker = Waker::new()?;
        poll.add(datagrams.socket(), DATAGRAM_TOKEN, Interest::Read)?;
        poll.add(waker.descriptor(), WAKER_TOKEN, Interest::Read)?;
        Ok(Endpoint {
            local: datagrams.socket().local_addr()?,
            poll,
            datagrams,
            carried: None,
            streams,
            waker,
            pool: Pool::default(),
            ready: Vec::new(),
            datagrams_want_room: false,
            carried_want_room: false,
            failures_announced: 0,
            counters: Counters::default(),
        })
    }

    /// Takes datagrams to this port of every IPv6 address that this machine takes for its own: `ip -6 route
    /// add local PREFIX dev lo` has it take a whole prefix. Port 0 takes any; gives the one it is.
    pub fn carry(&mut self, port: u16) -> Result<u16, EndpointError> {
        let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        let socket = streams::bind_carried(port).map_err(|source| bind_error(address, "UDP", source))?;
        let carried = Datagrams::carried(socket)?;
        self.poll.add(carried.socket(), CARRIED_TOKEN, Interest::Read)?;
        let port = carried.socket().local_addr()?.port();
        self.carried = Some(carried);
        Ok(port)
    }

    /// The address it listens on, with the port that was chosen.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// A handle that ends waits from other threads.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// A handle that sends datagrams from other threads while this endpoint waits.
    pub fn datagram_sender(&self) -> DatagramSender {
        self.datagrams.sender()
    }

    /// What has happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Whether there is a stream to an address, or one is being made.
    pub fn has_stream(&self, address: SocketAddr) -> bool {
        self.streams.is_connected(address)
    }

    /// A packet that came by a connection was signed, and not seen before: its peer may send large ones from
    /// now on. Connections of one peer share what he may make us hold. Until then a connection hands in a few
    /// short packets, for 5 s at most.
    pub fn vouch(&mut self, connection: ConnectionId, peer: Peer) {
        self.streams.vouch(connection, peer, &mut self.counters);
    }

    /// Memory of the buffers of all streams, in bytes.
    pub fn stream_bytes(&self) -> usize {
        self.streams.capacity()
    }

    /// Queues a packet; [`Endpoint::flush`] or [`Endpoint::receive`] sends it. To a
    /// [`Destination::Connection`] it always goes by stream. An error means that it was dropped.
    pub fn send(&mut self, to: Destination, transport: Transport, packet: &[u8]) -> Result<(), SendError> {
        self.send_with_bulk(to, transport, packet, None)
    }

    /// The same for a packet that ends with `bulk`, which is not copied when it goes by stream, and comes in
    /// apart there.
    pub fn send_with_bulk(
        &mut self,
        to: Destination,
        transport: Transport,
        packet: &[u8],
        bulk: Option<Arc<Vec<u8>>>,
    ) -> Result<(), SendError> {
        let whole = || match &bulk {
            None => Cow::Borrowed(packet),
            Some(bulk) => Cow::Owned([packet, bulk].concat()),
        };
        let result = match (to, transport) {
            (Destination::Address(address), Transport::Datagram) => {
                self.datagrams.queue(address, None, &whole())
            }
            (Destination::Carried(address, at), _) => match &mut self.carried {
                Some(carried) => carried.queue(address, Some(at), &whole()),
                None => Err(SendError::Unreachable),
            },
            _ => self.streams.queue(&self.poll, to, packet, bulk, &mut self.counters),
        };
        if result.is_err() {
            self.counters.packets_not_queued += 1;
        }
        result
    }

    /// Sends what is queued, as far as the system has room; the rest follows during later waits.
    pub fn flush(&mut self) -> io::Result<()> {
        let want_room = !self.datagrams.flush(&mut self.counters);
        if want_room != self.datagrams_want_room {
            self.poll.change(self.datagrams.socket(), DATAGRAM_TOKEN, interest(want_room))?;
            self.datagrams_want_room = want_room;
        }
        if let Some(carried) = &mut self.carried {
            let want_room = !carried.flush(&mut self.counters);
            if want_room != self.carried_want_room {
                self.poll.change(carried.socket(), CARRIED_TOKEN, interest(want_room))?;
                self.carried_want_room = want_room;
            }
        }
        self.streams.flush(&self.poll, &mut self.counters);
        Ok(())
    }

    /// Sends what is queued, waits until something comes in, a waker calls, a peer fails or the time is over
    /// (`None`: for ever), and adds what came in to `incoming`. It may return early with nothing.
    pub fn receive(&mut self, timeout: Option<Duration>, incoming: &mut Vec<Incoming>) -> io::Result<()> {
        self.flush()?;
        // A failure found while sending must not wait for the next packet; but one that the caller never
        // takes must not make it spin.
        let timeout = if self.failures_announced < self.streams.failures.len() {
            Some(Duration::ZERO)
        } else {
            timeout
        };
        let due = self.streams.begin_turn(Clock.mono(), &mut self.counters);
        let timeout = match due {
            Some(due) => Some(timeout.unwrap_or(Duration::MAX).min(due.since(Clock.mono()))),
            None => timeout,
        };
        let mut ready = std::mem::take(&mut self.ready);
        let waited = self.poll.wait(timeout, &mut ready);
        self.streams.end_wait(Clock.mono());
        let handled = waited.and_then(|()| ready.iter().try_for_each(|ready| self.handle(*ready, incoming)));
        self.streams.give_up_stalled(&self.poll, &mut self.pool, incoming, &mut self.counters);
        self.failures_announced = self.streams.failures.len();
        self.ready = ready;
        handled
    }

    fn handle(&mut self, ready: Ready, incoming: &mut Vec<Incoming>) -> io::Result<()> {
        match ready.token {
            DATAGRAM_TOKEN => {
                if ready.read {
                    self.datagrams.receive(&mut self.pool, incoming, &mut self.counters)?;
                }
                if ready.write { self.flush() } else { Ok(()) }
            }
            CARRIED_TOKEN => {
                if let (true, Some(carried)) = (ready.read, &mut self.carried) {
                    carried.receive(&mut self.pool, incoming, &mut self.counters)?;
                }
                if ready.write { self.flush() } else { Ok(()) }
            }
            LISTENER_TOKEN => {
                self.streams.accept(&self.poll, &mut self.counters);
                Ok(())
            }
            WAKER_TOKEN => {
                self.waker.clear();
                Ok(())
            }
            _ => {
                self.streams.handle(&self.poll, ready, &mut self.pool, incoming, &mut self.counters);
                Ok(())
            }
        }
    }

    /// Moves to `peers` the addresses to which a stream could not be made, or whose stream ended, since the
    /// last call. Packets queued for them may be lost; the next one makes a new stream.
    pub fn take_failures(&mut self, peers: &mut Vec<SocketAddr>) {
        peers.append(&mut self.streams.failures);
        self.failures_announced = 0;
    }

    /// Takes a packet's buffer back for reuse.
    pub fn recycle(&mut self, bytes: Vec<u8>) {
        self.pool.give(bytes);
    }
}

fn interest(want_room: bool) -> Interest {
    if want_room { Interest::ReadAndWrite } else { Interest::Read }
}

fn bind_error(address: SocketAddr, protocol: &'static str, source: io::Error) -> EndpointError {
    match source.kind() {
        io::ErrorKind::AddrInUse => EndpointError::InUse { address, protocol },
        _ => EndpointError::Bind { address, protocol, source },
    }
}

#[cfg(test)]
mod tests;
