//! The TCP side of an endpoint: the listener, and all connections by their ids.

use super::address::plain;
use super::connection::{Closed, Connection, Stage, Written};
use super::poll::{Interest, Poll, Ready};
use super::pool::Pool;
use super::{ConnectionId, Counters, Destination, Incoming, SendError, Transport};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

/// Accepted connections at most; beyond, the one that was silent for longest is closed.
const ACCEPTED_MAX: usize = 4096;
/// Accepted per turn, at most; the rest comes with the next.
const ACCEPT_TURN_MAX: usize = 64;
/// Bytes that may wait for one connection. Enough for a few of the largest packets.
pub const QUEUE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// How long sent bytes, or a connection attempt, may go unacknowledged before the connection is given up. The system's own limits are
/// minutes, far beyond any lease.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(5);
/// Failed peers that wait to be taken by the caller; one that never asks loses nothing but the news.
const FAILURES_MAX: usize = 256;
const SCRATCH_BYTES: usize = 64 * 1024;
const SOCKET_BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// All streams of an endpoint.
pub struct Streams {
    listener: Option<TcpListener>,
    connections: HashMap<ConnectionId, Connection>,
    by_address: HashMap<SocketAddr, ConnectionId>,
    accepted_count: usize,
    next_id: ConnectionId,
    dirty: Vec<ConnectionId>,
    scratch: Box<[u8]>,
    turn: u64,
    /// Peers whose connection failed or ended since the caller last asked.
    pub failures: Vec<SocketAddr>,
}

impl Streams {
    /// No connections yet. Ids begin at `first_id`; lower tokens are the caller's.
    pub fn new(listener: Option<TcpListener>, first_id: u64) -> Streams {
        Streams {
            listener,
            connections: HashMap::new(),
            by_address: HashMap::new(),
            accepted_count: 0,
            next_id: ConnectionId(first_id),
            dirty: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES].into_boxed_slice(),
            turn: 0,
            failures: Vec::new(),
        }
    }

    /// Queues a packet for a peer, connecting if there is no connection yet.
    pub fn queue(&mut self, poll: &Poll, to: Destination, packet: &[u8]) -> Result<(), SendError> {
        let id = match to {
            Destination::Connection(id) => id,
            Destination::Address(address) => match self.by_address.get(&address) {
                Some(id) => *id,
                None => self.connect(poll, address)?,
            },
        };
        let connection = self.connections.get_mut(&id).ok_or(SendError::Gone)?;
        connection.queue(packet, QUEUE_BYTES_MAX)?;
        self.dirty.push(id);
        Ok(())
    }

    fn connect(&mut self, poll: &Poll, address: SocketAddr) -> Result<ConnectionId, SendError> {
        let start = || -> io::Result<Socket> {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
            prepare(&socket)?;
            match socket.connect(&SockAddr::from(address)) {
                Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
                _ => Ok(socket),
            }
        };
        let connection = start().map(|socket| Connection::new(socket, address, true, Stage::Connecting));
        let added = connection.and_then(|connection| self.add(poll, connection, Interest::ReadAndWrite));
        let id = added.map_err(|_| {
            self.note_failure(address);
            SendError::Unreachable
        })?;
        self.by_address.insert(address, id);
        Ok(id)
    }

    fn add(
        &mut self,
        poll: &Poll,
        mut connection: Connection,
        interest: Interest,
    ) -> io::Result<ConnectionId> {
        let id = self.next_id;
        poll.add(&connection.socket, id.0, interest)?;
        connection.wants_room = interest == Interest::ReadAndWrite;
        connection.used_turn = self.turn;
        self.next_id = ConnectionId(id.0 + 1);
        self.connections.insert(id, connection);
        Ok(id)
    }

    /// Writes what was queued since the last flush.
    pub fn flush(&mut self, poll: &Poll, counters: &mut Counters) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            self.write(poll, id, counters);
        }
        self.dirty = dirty;
    }

    fn write(&mut self, poll: &Poll, id: ConnectionId, counters: &mut Counters) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let result = connection.flush().and_then(|written| {
            let wants_room = written == Written::Partly;
            if wants_room != connection.wants_room {
                let interest = if wants_room { Interest::ReadAndWrite } else { Interest::Read };
                poll.change(&connection.socket, id.0, interest)?;
                connection.wants_room = wants_room;
            }
            Ok(())
        });
        if let Err(closed) = result {
            self.close(id, closed, counters);
        }
    }

    /// Accepts what is waiting.
    pub fn accept(&mut self, poll: &Poll, counters: &mut Counters) {
        for _ in 0..ACCEPT_TURN_MAX {
            let Some(listener) = &self.listener else { return };
            match listener.accept() {
                Ok((stream, peer)) => {
                    let socket = Socket::from(stream);
                    let prepared = prepare(&socket);
                    let connection = Connection::new(socket, plain(peer), false, Stage::Open);
                    if prepared.and_then(|()| self.add(poll, connection, Interest::Read)).is_ok() {
                        self.accepted_count += 1;
                        counters.connections_accepted += 1;
                    }
                    if self.accepted_count > ACCEPTED_MAX {
                        self.close_most_silent(counters);
                    }
                }
                // Out of descriptors: without this the listener would stay ready and the loop spin.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                    return self.close_most_silent(counters);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The connection that waited is gone again.
                Err(_) => {}
            }
        }
    }

    fn close_most_silent(&mut self, counters: &mut Counters) {
        let accepted = self.connections.iter().filter(|(_, connection)| !connection.outbound);
        if let Some(id) =
            accepted.min_by_key(|(id, connection)| (connection.used_turn, id.0)).map(|(id, _)| *id)
        {
            self.close(id, Closed::Failed, counters);
        }
    }

    /// Begins a turn: connections used in it count as used later than those of earlier turns.
    pub fn begin_turn(&mut self) {
        self.turn += 1;
    }

    /// Reads from and writes to a connection that is ready.
    pub fn handle(
        &mut self,
        poll: &Poll,
        ready: Ready,
        pool: &mut Pool,
        incoming: &mut Vec<Incoming>,
        counters: &mut Counters,
    ) {
        let id = ConnectionId(ready.token);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let mut result = if ready.write { connection.connected() } else { Ok(()) };
        if ready.read && result.is_ok() {
            connection.used_turn = self.turn;
            let peer = connection.peer;
            let from =
                if connection.outbound { Destination::Address(peer) } else { Destination::Connection(id) };
            let mut deliver = |bytes| {
                counters.stream_packets_received += 1;
                incoming.push(Incoming { from, peer, transport: Transport::Stream, bytes });
            };
            result = connection.receive(&mut self.scratch, pool, &mut deliver);
        }
        match result {
            Err(closed) => self.close(id, closed, counters),
            Ok(()) if ready.write => self.write(poll, id, counters),
            Ok(()) => {}
        }
    }

    fn note_failure(&mut self, peer: SocketAddr) {
        if self.failures.len() < FAILURES_MAX && !self.failures.contains(&peer) {
            self.failures.push(peer);
        }
    }

    fn close(&mut self, id: ConnectionId, closed: Closed, counters: &mut Counters) {
        let Some(connection) = self.connections.remove(&id) else { return };
        counters.connections_closed += 1;
        if matches!(closed, Closed::TooLarge) {
            counters.connections_refused += 1;
        }
        if connection.outbound {
            self.by_address.remove(&connection.peer);
            self.note_failure(connection.peer);
        } else {
            self.accepted_count -= 1;
        }
    }
}

/// Options of every connection.
fn prepare(socket: &Socket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX))
}

/// A non-blocking listener on an address.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // Without it a restarted server waits a minute for its old connections to be forgotten.
    socket.set_reuse_address(true)?;
    socket.bind(&SockAddr::from(address))?;
    socket.listen(1024)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// A non-blocking UDP socket on an address, with large buffers if the system allows.
pub fn bind_datagrams(address: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // Best effort: the system cuts it to net.core.rmem_max and wmem_max.
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER_BYTES);
    socket.bind(&SockAddr::from(address))?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}
