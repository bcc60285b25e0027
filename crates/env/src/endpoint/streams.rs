//! The TCP side of an endpoint: the listener, and all connections by their ids.

use super::address::plain;
use super::connection::{Closed, Connection, Owner, STALLED_TIMEOUT, Stage, Written};
use super::poll::{Interest, Poll, Ready};
use super::pool::Pool;
use super::{ConnectionId, Counters, Destination, Incoming, Peer, SendError, Transport};
use bearing_types::Mono;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

/// Accepted connections at most; beyond, the one that was silent for longest is closed.
const ACCEPTED_MAX: usize = 4096;
/// Of these, so many on which nobody has proved himself yet; beyond, the oldest is closed. One holds 2 KiB at
/// most.
const UNPROVEN_MAX: usize = 256;
/// Somebody has to prove himself on a connection within this time.
const UNPROVEN_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections of one owner; beyond, the one that was silent for longest is closed.
const OWNER_CONNECTIONS_MAX: usize = 16;
/// Bytes that all connections of one owner hold: a few of the largest packets each way.
const OWNER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes that all connections hold. Beyond, connections of clients are closed, first the one that came no
/// further for longest: a client has any number of sessions, so what one of them may hold bounds nobody.
const BYTES_MAX: usize = 512 * 1024 * 1024;
/// Of these, so many are held by connections of clients. The rest is for other servers, and for streams that
/// we make.
const CLIENTS_BYTES_MAX: usize = 384 * 1024 * 1024;
/// How often it is looked for packets that do not grow, at most.
const STALLED_INTERVAL: Duration = Duration::from_secs(1);
/// Accepted per turn, at most; the rest comes with the next.
const ACCEPT_TURN_MAX: usize = 64;
/// Bytes that may wait for one connection. Enough for a few of the largest packets.
pub const QUEUE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// How long sent bytes, or a connection attempt, may go unacknowledged before the connection is given up. The
/// system's own limits are minutes, far beyond any lease.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(5);
/// Failed peers that wait to be taken by the caller; one that never asks loses nothing but the news.
const FAILURES_MAX: usize = 256;
const SCRATCH_BYTES: usize = 64 * 1024;
const SOCKET_BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// What one owner has.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    connections: usize,
    bytes: usize,
}

/// All streams of an endpoint.
pub struct Streams {
    listener: Option<TcpListener>,
    connections: HashMap<ConnectionId, Connection>,
    by_address: HashMap<SocketAddr, ConnectionId>,
    accepted_count: usize,
    /// Connections on which nobody had proved himself when they were accepted, in that order, and when they
    /// are given up.
    unproven: VecDeque<(Mono, ConnectionId)>,
    /// Bytes that are held, of each owner and in all.
    owners: HashMap<Owner, Sum>,
    bytes: usize,
    clients_bytes: usize,
    /// The limits of these two.
    pub bytes_max: usize,
    pub clients_bytes_max: usize,
    /// When to look for packets that do not grow. `None`: none was coming in.
    stalled_due: Option<Mono>,
    now: Mono,
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
            unproven: VecDeque::new(),
            owners: HashMap::new(),
            bytes: 0,
            clients_bytes: 0,
            bytes_max: BYTES_MAX,
            clients_bytes_max: CLIENTS_BYTES_MAX,
            stalled_due: None,
            now: Mono::ZERO,
            next_id: ConnectionId(first_id),
            dirty: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES].into_boxed_slice(),
            turn: 0,
            failures: Vec::new(),
        }
    }

    /// Queues a packet for a peer, connecting if there is no connection yet.
    pub fn queue(
        &mut self,
        poll: &Poll,
        to: Destination,
        packet: &[u8],
        bulk: Option<Arc<Vec<u8>>>,
        counters: &mut Counters,
    ) -> Result<(), SendError> {
        let bytes = packet.len() + bulk.as_ref().map_or(0, |bulk| bulk.len());
        let id = match to {
            Destination::Connection(id) => id,
            Destination::Carried(..) => return Err(SendError::Unreachable),
            Destination::Address(address) => match self.by_address.get(&address) {
                Some(id) => *id,
                None => self.connect(poll, address)?,
            },
        };
        if !self.connections.contains_key(&id) {
            return Err(SendError::Gone);
        }
        if self.owner_bytes(id) + bytes > OWNER_BYTES_MAX || !self.make_room(id, bytes, counters) {
            return Err(SendError::QueueFull);
        }
        let connection = self.connections.get_mut(&id).ok_or(SendError::Gone)?;
        connection.queue(packet, bulk, QUEUE_BYTES_MAX)?;
        connection.await_queue(self.turn);
        self.count(id);
        self.dirty.push(id);
        Ok(())
    }

    /// Whether there is a stream to an address, or one is being made.
    pub fn is_connected(&self, address: SocketAddr) -> bool {
        self.by_address.contains_key(&address)
    }

    /// Memory of all buffers of connections.
    pub fn capacity(&self) -> usize {
        self.connections.values().map(Connection::capacity).sum()
    }

    /// Adds to the sums what a connection holds now.
    fn count(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (was, is) = (connection.counted, connection.buffered());
        connection.counted = is;
        self.bytes = self.bytes - was + is;
        if let Some(owner) = connection.owner {
            let sum = self.owners.entry(owner).or_default();
            sum.bytes = sum.bytes - was + is;
            if owner.is_client() {
                self.clients_bytes = self.clients_bytes - was + is;
            }
        }
    }

    /// Bytes that the owner of a connection holds. What we hold on streams of our own is bounded for each of
    /// them only.
    fn owner_bytes(&self, id: ConnectionId) -> usize {
        match self.connections.get(&id).and_then(|connection| connection.owner) {
            Some(owner @ Owner::Peer(_)) => self.owners.get(&owner).map_or(0, |sum| sum.bytes),
            Some(Owner::Ourselves) | None => 0,
        }
    }

    /// Makes room for so many bytes more on a connection, by closing others of clients. Says whether there
    /// is.
    fn make_room(&mut self, id: ConnectionId, bytes: usize, counters: &mut Counters) -> bool {
        while self.is_full(id, bytes) {
            let others = self.connections.iter().filter(|(other, connection)| {
                **other != id && connection.counted > 0 && connection.owner.is_some_and(Owner::is_client)
            });
            let stuck = others.filter_map(|(other, connection)| Some((connection.stuck_since()?, *other)));
            let Some((_, longest)) = stuck.min() else { return false };
            self.close(longest, Closed::OverLimit, counters);
        }
        true
    }

    fn is_full(&self, id: ConnectionId, bytes: usize) -> bool {
        let owner = self.connections.get(&id).and_then(|connection| connection.owner);
        let is_client = owner.is_some_and(Owner::is_client);
        self.bytes + bytes > self.bytes_max
            || is_client && self.clients_bytes + bytes > self.clients_bytes_max
    }

    /// Whoever is at the other end of a connection has proved a key. Everything of one owner counts together.
    pub fn vouch(&mut self, id: ConnectionId, peer: Peer, counters: &mut Counters) {
        let Some(connection) = self.connections.get_mut(&id).filter(|connection| connection.owner.is_none())
        else {
            return;
        };
        let owner = Owner::Peer(peer);
        connection.owner = Some(owner);
        if owner.is_client() {
            self.clients_bytes += connection.counted;
        }
        let sum = self.owners.entry(owner).or_default();
        sum.bytes += connection.counted;
        sum.connections += 1;
        if sum.connections > OWNER_CONNECTIONS_MAX {
            self.close_most_silent(counters, |connection| connection.owner == Some(owner));
        }
    }

    /// Closes what nobody proved himself on in time. Gives when the next is due.
    fn give_up_unproven(&mut self, counters: &mut Counters) -> Option<Mono> {
        let is_unproven = |connections: &HashMap<ConnectionId, Connection>, id| {
            connections.get(&id).is_some_and(|connection| connection.owner.is_none())
        };
        while let Some((due, id)) = self.unproven.front().copied() {
            let waits = is_unproven(&self.connections, id);
            if waits && due > self.now && self.unproven.len() <= UNPROVEN_MAX {
                return Some(due);
            }
            self.unproven.pop_front();
            if waits {
                self.close(id, Closed::OverLimit, counters);
            }
        }
        None
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
            connection.await_queue(self.turn);
            let wants_room = written == Written::Partly;
            if wants_room != connection.wants_room {
                let interest = if wants_room { Interest::ReadAndWrite } else { Interest::Read };
                poll.change(&connection.socket, id.0, interest)?;
                connection.wants_room = wants_room;
            }
            Ok(())
        });
        self.count(id);
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
                    if let Ok(id) = prepared.and_then(|()| self.add(poll, connection, Interest::Read)) {
                        self.accepted_count += 1;
                        counters.connections_accepted += 1;
                        self.begin_unproven(id, counters);
                    }
                    if self.accepted_count > ACCEPTED_MAX {
                        self.close_most_silent(counters, |connection| !connection.outbound);
                    }
                }
                // Out of descriptors: without this the listener would stay ready and the loop spin.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                    return self.close_most_silent(counters, |connection| !connection.outbound);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The connection that waited is gone again.
                Err(_) => {}
            }
        }
    }

    fn begin_unproven(&mut self, id: ConnectionId, counters: &mut Counters) {
        // Those that were proven or closed meanwhile are not counted.
        if self.unproven.len() >= UNPROVEN_MAX {
            let connections = &self.connections;
            self.unproven
                .retain(|(_, id)| connections.get(id).is_some_and(|connection| connection.owner.is_none()));
        }
        self.unproven.push_back((self.now.after(UNPROVEN_TIMEOUT), id));
        self.give_up_unproven(counters);
    }

    fn close_most_silent(&mut self, counters: &mut Counters, which: impl Fn(&Connection) -> bool) {
        let candidates = self.connections.iter().filter(|(_, connection)| which(connection));
        if let Some(id) =
            candidates.min_by_key(|(id, connection)| (connection.used_turn, id.0)).map(|(id, _)| *id)
        {
            self.close(id, Closed::Failed, counters);
        }
    }

    /// Begins a turn: connections used in it count as used later than those of earlier turns. Gives when
    /// something is to be done though nothing comes in.
    pub fn begin_turn(&mut self, now: Mono, counters: &mut Counters) -> Option<Mono> {
        self.turn += 1;
        self.now = now;
        let unproven_due = self.give_up_unproven(counters);
        unproven_due.into_iter().chain(self.stalled_due).min()
    }

    /// The wait of this turn is over.
    pub fn end_wait(&mut self, now: Mono) {
        self.now = now;
    }

    /// Closes connections on which a packet began to come in and does not grow.
    pub fn give_up_stalled(
        &mut self,
        poll: &Poll,
        pool: &mut Pool,
        incoming: &mut Vec<Incoming>,
        counters: &mut Counters,
    ) {
        if self.stalled_due.is_none_or(|due| due > self.now) {
            return;
        }
        let now = self.now;
        let is_stalled = |connection: &Connection| connection.stalled_due().is_some_and(|due| due <= now);
        let stalled = self.connections.iter().filter(|(_, connection)| is_stalled(connection));
        for id in stalled.map(|(id, _)| *id).collect::<Vec<_>>() {
            // We may have been away for long ourselves: what came meanwhile waits in the socket.
            self.handle(poll, Ready { token: id.0, read: true, write: false }, pool, incoming, counters);
            if self.connections.get(&id).is_some_and(is_stalled) {
                self.close(id, Closed::OverLimit, counters);
            }
        }
        let due = self.connections.values().filter_map(Connection::stalled_due).min();
        self.stalled_due = due.map(|due| due.max(now.after(STALLED_INTERVAL)));
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
            let (before, packets) = (connection.partial(), incoming.len());
            let mut deliver = |bytes, bulk| {
                counters.stream_packets_received += 1;
                incoming.push(Incoming { from, peer, transport: Transport::Stream, bytes, bulk });
            };
            result = connection.receive(&mut self.scratch, pool, &mut deliver);
            let is_another = before.is_none() || incoming.len() > packets;
            if connection.partial().is_some() && is_another {
                connection.packet_turn = self.turn;
            }
            if connection.partial().is_some() && (is_another || connection.partial() != before) {
                connection.grown = self.now;
                self.stalled_due.get_or_insert(self.now.after(STALLED_TIMEOUT));
            }
        }
        self.count(id);
        if result.is_ok() && self.holds_too_much(id, counters) {
            result = Err(Closed::OverLimit);
        }
        match result {
            Err(closed) => self.close(id, closed, counters),
            Ok(()) if ready.write => self.write(poll, id, counters),
            Ok(()) => {}
        }
    }

    /// Whether a connection that holds something holds more than it may, with others of its owner, or has no
    /// room though others were closed.
    fn holds_too_much(&mut self, id: ConnectionId, counters: &mut Counters) -> bool {
        let holds = self.connections.get(&id).is_some_and(|connection| connection.counted > 0);
        holds && (self.owner_bytes(id) > OWNER_BYTES_MAX || !self.make_room(id, 0, counters))
    }

    fn note_failure(&mut self, peer: SocketAddr) {
        if self.failures.len() < FAILURES_MAX && !self.failures.contains(&peer) {
            self.failures.push(peer);
        }
    }

    fn close(&mut self, id: ConnectionId, closed: Closed, counters: &mut Counters) {
        let Some(connection) = self.connections.remove(&id) else { return };
        counters.connections_closed += 1;
        if matches!(closed, Closed::TooLarge | Closed::OverLimit) {
            counters.connections_refused += 1;
        }
        self.bytes -= connection.counted;
        if let Some(owner) = connection.owner {
            let sum = self.owners.entry(owner).or_default();
            sum.bytes -= connection.counted;
            sum.connections -= usize::from(!connection.outbound);
            if owner.is_client() {
                self.clients_bytes -= connection.counted;
            }
            if sum.connections == 0 && sum.bytes == 0 {
                self.owners.remove(&owner);
            }
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

/// A non-blocking UDP socket that hears what comes to this port of any IPv6 address that this machine takes
/// for its own, such as a whole prefix, says which that was, and may send from there.
pub fn bind_carried(port: u16) -> io::Result<std::net::UdpSocket> {
    let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_only_v6(true)?;
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER_BYTES);
    socket.set_freebind_v6(true)?;
    let on: libc::c_int = 1;
    // SAFETY: the option takes an int, which `on` is, and the socket is open.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IPV6,
            libc::IPV6_RECVPKTINFO,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    socket.bind(&SockAddr::from(address))?;
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
