//! One TCP connection: packets framed by a length, a bounded queue out, partial packets in.
//!
//! A frame is a packet's length (u32, little-endian) and the packet. If the highest bit of the length is set,
//! a second length follows: so many bytes at the packet's end are bulk, which has a buffer of its own on both
//! sides and is never copied.

use super::pool::Pool;
use super::queue::Queue;
use super::{PACKET_BYTES_MAX, Peer, SendError};
use bearing_types::Mono;
use socket2::Socket;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const LENGTH_BYTES: usize = 4;
/// In a packet's length: the length of its bulk follows.
const HAS_BULK: u32 = 1 << 31;
/// Bytes that one connection may hand in per turn, so that no other waits long.
const TURN_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Room is made for so much of a packet's bulk at least, and for four times what has come of it.
const BULK_STEP: usize = 1024 * 1024;

/// Bytes of a packet on a stream on which nobody has proved himself: enough for a handshake, and for a
/// greeting with its ticket.
const UNPROVEN_PACKET_MAX: usize = 2048;
/// Packets that such a stream may hand in.
const UNPROVEN_PACKETS_MAX: usize = 8;
/// A packet that began to come in and does not grow for so long is not waited for.
pub const STALLED_TIMEOUT: Duration = Duration::from_secs(10);

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Not yet established; packets wait.
    Connecting,
    /// Established.
    Open,
}

/// Whose a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Ours: we made it.
    Ourselves,
    /// Of whoever proved a key on it.
    Peer(Peer),
}

impl Owner {
    /// Whether it is a client's.
    pub fn is_client(self) -> bool {
        match self {
            Owner::Peer(Peer::Client(_)) => true,
            Owner::Peer(Peer::Server(_)) | Owner::Ourselves => false,
        }
    }
}

/// Whether anything more can be written now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The queue is empty.
    All,
    /// The socket has no room: wait until it has.
    Partly,
}

/// Why a connection was given up. (Which one it was is known by the caller.)
#[derive(Debug)]
pub enum Closed {
    /// The other side closed it.
    ByPeer,
    /// It failed, or could not be made.
    Failed,
    /// The other side announced a packet beyond the limit: it does not speak our protocol, or did not prove
    /// itself first.
    TooLarge,
    /// The other side did not prove itself in time, or it holds too much.
    OverLimit,
}

impl From<io::Error> for Closed {
    fn from(_: io::Error) -> Closed {
        Closed::Failed
    }
}

/// One connection.
pub struct Connection {
    /// The socket.
    pub socket: Socket,
    /// The other side.
    pub peer: SocketAddr,
    /// We made it, by sending to `peer`.
    pub outbound: bool,
    /// How far it is.
    pub stage: Stage,
    /// The turn in which something last came in.
    pub used_turn: u64,
    /// When the packet that is coming in last grew.
    pub grown: Mono,
    /// The other side has proved a key, or we made the connection: it may send large packets. Whose it is.
    pub owner: Option<Owner>,
    /// What of its buffers was added to the sums.
    pub counted: usize,
    /// We wait for room to write.
    pub wants_room: bool,
    queue: Queue,
    /// Of all that was ever queued, the first so many bytes are waited for, and since which turn.
    awaited: u64,
    awaited_turn: u64,
    /// Packets handed in while nobody had proved himself.
    unproven_packets: usize,
    prefix: [u8; 2 * LENGTH_BYTES],
    prefix_bytes: usize,
    /// The packet that is coming in, once its prefix is complete.
    packet: Option<Partial>,
    /// The turn in which that began.
    pub packet_turn: u64,
}

/// A packet that is coming in.
struct Partial {
    head: Vec<u8>,
    head_bytes: usize,
    bulk: Vec<u8>,
    bulk_bytes: usize,
}

impl Partial {
    fn bytes(&self) -> usize {
        self.head.len() + self.bulk.len()
    }

    /// What is being filled, and how much of it is missing.
    fn part(&mut self) -> (&mut Vec<u8>, usize) {
        match self.head_bytes - self.head.len() {
            0 => {
                let missing = self.bulk_bytes - self.bulk.len();
                (&mut self.bulk, missing)
            }
            missing => (&mut self.head, missing),
        }
    }
}

impl Connection {
    /// A connection on a non-blocking socket.
    pub fn new(socket: Socket, peer: SocketAddr, outbound: bool, stage: Stage) -> Connection {
        Connection {
            socket,
            peer,
            outbound,
            stage,
            used_turn: 0,
            grown: Mono::ZERO,
            owner: outbound.then_some(Owner::Ourselves),
            counted: 0,
            unproven_packets: 0,
            wants_room: false,
            queue: Queue::default(),
            awaited: 0,
            awaited_turn: 0,
            prefix: [0; 2 * LENGTH_BYTES],
            prefix_bytes: 0,
            packet: None,
            packet_turn: 0,
        }
    }

    /// Since which turn it holds bytes without coming further: the packet that is coming in is not whole, or
    /// what was queued then is not sent. To grow by a few bytes is not to come further. `None`: it holds
    /// nothing.
    pub fn stuck_since(&self) -> Option<u64> {
        let incoming = self.packet.as_ref().map(|_| self.packet_turn);
        let outgoing = (self.queue.waiting() > 0).then_some(self.awaited_turn);
        incoming.into_iter().chain(outgoing).min()
    }

    /// Bytes of the packet that is coming in. `None`: none is.
    pub fn partial(&self) -> Option<usize> {
        self.packet.as_ref().map(Partial::bytes)
    }

    /// When the packet that is coming in is given up unless it grows.
    pub fn stalled_due(&self) -> Option<Mono> {
        self.packet.as_ref().map(|_| self.grown.after(STALLED_TIMEOUT))
    }

    /// What is queued now is waited for from this turn on, once all that was waited for before is sent.
    pub fn await_queue(&mut self, turn: u64) {
        if self.queue.sent() >= self.awaited {
            (self.awaited, self.awaited_turn) = (self.queue.queued(), turn);
        }
    }

    /// Bytes that it holds: what waits to be sent, and what came of a packet.
    pub fn buffered(&self) -> usize {
        self.queue.waiting() + self.packet.as_ref().map_or(0, Partial::bytes)
    }

    /// Memory that these take.
    pub fn capacity(&self) -> usize {
        let incoming = self.packet.as_ref().map(|packet| packet.head.capacity() + packet.bulk.capacity());
        self.queue.capacity() + incoming.unwrap_or(0)
    }

    /// Queues a packet, whose end is `bulk`, for the next flush.
    pub fn queue(
        &mut self,
        packet: &[u8],
        bulk: Option<Arc<Vec<u8>>>,
        queue_bytes_max: usize,
    ) -> Result<(), SendError> {
        let bytes = packet.len() + bulk.as_ref().map_or(0, |bulk| bulk.len());
        if bytes > PACKET_BYTES_MAX {
            return Err(SendError::TooLarge { bytes, bytes_max: PACKET_BYTES_MAX });
        }
        let waiting = self.queue.waiting();
        // A single packet always fits an empty queue, whatever the limit.
        if waiting > 0 && waiting + bytes > queue_bytes_max {
            return Err(SendError::QueueFull);
        }
        match bulk {
            None => self.queue.push(&[&(bytes as u32).to_le_bytes(), packet]),
            Some(bulk) => {
                let lengths = [bytes as u32 | HAS_BULK, bulk.len() as u32].map(u32::to_le_bytes);
                self.queue.push(&[&lengths[0], &lengths[1], packet]);
                self.queue.push_shared(bulk);
            }
        }
        Ok(())
    }

    /// Writes what is queued, as far as the socket has room.
    pub fn flush(&mut self) -> Result<Written, Closed> {
        if self.stage == Stage::Connecting {
            return Ok(Written::Partly);
        }
        while self.queue.waiting() > 0 {
            // Programs that end with whoever reads their output do not end with a server: no SIGPIPE.
            let slices = self.queue.slices();
            match self.socket.send_vectored_with_flags(&slices, libc::MSG_NOSIGNAL) {
                Ok(0) => return Err(Closed::ByPeer),
                Ok(count) => self.queue.was_sent(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Written::Partly),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Written::All)
    }

    /// The connection attempt has come to an end, one way or the other.
    pub fn connected(&mut self) -> Result<(), Closed> {
        if self.stage == Stage::Connecting {
            if self.socket.take_error()?.is_some() {
                return Err(Closed::Failed);
            }
            // Still under way: the descriptor was reported for another reason.
            if self.socket.peer_addr().is_err() {
                return Ok(());
            }
            self.stage = Stage::Open;
        }
        Ok(())
    }

    /// Reads what is there and hands whole packets, with their bulk apart, to `deliver`. `scratch` is room
    /// for one read. Packets that were whole before the other side closed are delivered.
    pub fn receive(
        &mut self,
        scratch: &mut [u8],
        pool: &mut Pool,
        deliver: &mut impl FnMut(Vec<u8>, Vec<u8>),
    ) -> Result<(), Closed> {
        if self.owner.is_none() {
            return self.receive_unproven(scratch, pool, deliver);
        }
        let mut turn_bytes = 0;
        while turn_bytes < TURN_BYTES_MAX {
            let missing = self.missing();
            let result = if missing >= scratch.len() {
                self.read_directly(missing.min(TURN_BYTES_MAX))
            } else {
                (&self.socket).read(scratch)
            };
            let count = match result {
                Ok(0) => return Err(Closed::ByPeer),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            turn_bytes += count;
            if missing >= scratch.len() {
                self.deliver_whole(deliver);
            } else {
                self.split(&scratch[..count], pool, deliver)?;
                // A short read has emptied the socket; what comes later is reported anew.
                if count < scratch.len() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Reads one short packet and no byte more: what follows stays with the system until somebody has proved
    /// himself by it.
    fn receive_unproven(
        &mut self,
        scratch: &mut [u8],
        pool: &mut Pool,
        deliver: &mut impl FnMut(Vec<u8>, Vec<u8>),
    ) -> Result<(), Closed> {
        let packets = self.unproven_packets;
        while self.unproven_packets == packets {
            let wanted = if self.packet.is_some() { self.missing() } else { self.missing_prefix() };
            let count = match (&self.socket).read(&mut scratch[..wanted]) {
                Ok(0) => return Err(Closed::ByPeer),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            self.split(&scratch[..count], pool, deliver)?;
        }
        if self.unproven_packets > UNPROVEN_PACKETS_MAX { Err(Closed::OverLimit) } else { Ok(()) }
    }

    /// Bytes that the part of the packet that is coming in still lacks.
    fn missing(&mut self) -> usize {
        self.packet.as_mut().map_or(0, |packet| packet.part().1)
    }

    fn length(&self) -> u32 {
        length_at(&self.prefix, 0)
    }

    fn missing_prefix(&self) -> usize {
        let has_bulk = self.prefix_bytes >= LENGTH_BYTES && self.length() & HAS_BULK != 0;
        (if has_bulk { 2 * LENGTH_BYTES } else { LENGTH_BYTES }) - self.prefix_bytes
    }

    /// Reads the rest of a large part into its own buffer, without a copy. The buffer grows with what comes,
    /// not with what was announced.
    fn read_directly(&mut self, bytes_max: usize) -> io::Result<usize> {
        let packet = self.packet.as_mut().expect("bytes are missing only of a packet");
        let (part, missing) = packet.part();
        let before = part.len();
        if part.capacity() == before {
            part.reserve_exact(missing.min(BULK_STEP.max(4 * before)));
        }
        let room = bytes_max.min(part.capacity() - before);
        match (&self.socket).take(room as u64).read_to_end(part) {
            // What was read before the socket ran dry stays in the buffer.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock || part.len() == before => Err(error),
            _ => Ok(part.len() - before),
        }
    }

    fn split(
        &mut self,
        mut bytes: &[u8],
        pool: &mut Pool,
        deliver: &mut impl FnMut(Vec<u8>, Vec<u8>),
    ) -> Result<(), Closed> {
        while !bytes.is_empty() {
            if self.packet.is_none() {
                let count = bytes.len().min(self.missing_prefix());
                self.prefix[self.prefix_bytes..self.prefix_bytes + count].copy_from_slice(&bytes[..count]);
                self.prefix_bytes += count;
                bytes = &bytes[count..];
                if self.missing_prefix() > 0 {
                    continue;
                }
                self.packet = Some(self.announced(pool)?);
            }
            if let Some(packet) = &mut self.packet {
                let (part, missing) = packet.part();
                let count = bytes.len().min(missing);
                part.extend_from_slice(&bytes[..count]);
                bytes = &bytes[count..];
            }
            self.deliver_whole(deliver);
        }
        Ok(())
    }

    /// The packet that the prefix announces, empty.
    fn announced(&self, pool: &mut Pool) -> Result<Partial, Closed> {
        let bytes = (self.length() & !HAS_BULK) as usize;
        let bulk_bytes = match self.length() & HAS_BULK {
            0 => 0,
            _ => {
                u32::from_le_bytes([self.prefix[4], self.prefix[5], self.prefix[6], self.prefix[7]]) as usize
            }
        };
        let is_proven = self.owner.is_some();
        let bytes_max = if is_proven { PACKET_BYTES_MAX } else { UNPROVEN_PACKET_MAX };
        let head_bytes =
            bytes.checked_sub(bulk_bytes).filter(|_| bytes <= bytes_max).ok_or(Closed::TooLarge)?;
        // A buffer for reuse may have grown large.
        let head = if is_proven { pool.take() } else { Vec::with_capacity(head_bytes) };
        Ok(Partial { head, head_bytes, bulk: Vec::new(), bulk_bytes })
    }

    fn deliver_whole(&mut self, deliver: &mut impl FnMut(Vec<u8>, Vec<u8>)) {
        if self.missing() > 0 {
            return;
        }
        if let Some(packet) = self.packet.take() {
            self.prefix_bytes = 0;
            self.unproven_packets += usize::from(self.owner.is_none());
            deliver(packet.head, packet.bulk);
        }
    }
}

fn length_at(prefix: &[u8; 2 * LENGTH_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([prefix[at], prefix[at + 1], prefix[at + 2], prefix[at + 3]])
}
