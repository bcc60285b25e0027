//! A UDP socket: batches in by recvmmsg, batches out by sendmmsg.

use super::address::{LocalAddress, RawAddress, for_family, plain};
use super::pool::Pool;
use super::{Counters, Destination, Incoming, SendError, Transport};
use std::collections::VecDeque;
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::{io, mem};

/// Datagrams per system call.
const BATCH: usize = 64;
/// The largest payload that IPv4 and IPv6 can carry (65,535 less the headers of IPv4 and UDP).
pub const DATAGRAM_BYTES_MAX: usize = 65_507;
/// Room per datagram when receiving; nothing larger exists without jumbograms, and those are dropped as
/// truncated.
const SLOT_BYTES: usize = 65_536;
/// Bytes that may wait for room in the socket's buffer.
const QUEUE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A datagram that waits to be sent: where its bytes end in the queue (they begin where those before it end).
struct Waiting {
    to: SocketAddr,
    /// The address of ours that it leaves from, where that is not the system's choice.
    from: Option<Ipv6Addr>,
    bytes: usize,
}

/// The UDP side of an endpoint.
pub struct Datagrams {
    socket: Arc<UdpSocket>,
    is_v6: bool,
    /// It hears what is sent to any address of this machine, and says which.
    is_carried: bool,
    slots: Box<[u8]>,
    queue: Vec<u8>,
    queue_sent: usize,
    waiting: VecDeque<Waiting>,
}

impl Datagrams {
    /// Takes over a bound, non-blocking socket.
    pub fn new(socket: UdpSocket) -> io::Result<Datagrams> {
        let is_v6 = socket.local_addr()?.is_ipv6();
        Ok(Datagrams {
            socket: Arc::new(socket),
            is_v6,
            is_carried: false,
            slots: vec![0; BATCH * SLOT_BYTES].into_boxed_slice(),
            queue: Vec::new(),
            queue_sent: 0,
            waiting: VecDeque::new(),
        })
    }

    /// The same of a socket of [`super::streams::bind_carried`].
    pub fn carried(socket: UdpSocket) -> io::Result<Datagrams> {
        Ok(Datagrams { is_carried: true, ..Datagrams::new(socket)? })
    }

    /// The socket.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// A way to send from other threads.
    pub fn sender(&self) -> DatagramSender {
        DatagramSender { socket: Arc::clone(&self.socket), is_v6: self.is_v6 }
    }

    /// Queues a datagram for the next flush. `from`: the address of ours that it leaves from.
    pub fn queue(&mut self, to: SocketAddr, from: Option<Ipv6Addr>, packet: &[u8]) -> Result<(), SendError> {
        if packet.len() > DATAGRAM_BYTES_MAX {
            return Err(SendError::TooLarge { bytes: packet.len(), bytes_max: DATAGRAM_BYTES_MAX });
        }
        if self.queue.len() - self.queue_sent + packet.len() > QUEUE_BYTES_MAX {
            return Err(SendError::QueueFull);
        }
        let to = for_family(to, self.is_v6).ok_or(SendError::Unreachable)?;
        self.queue.extend_from_slice(packet);
        self.waiting.push_back(Waiting { to, from, bytes: packet.len() });
        Ok(())
    }

    /// Sends what is queued, as far as the socket has room. Returns whether all is sent. A datagram that the
    /// system refuses is counted and dropped, as the network would have done.
    pub fn flush(&mut self, counters: &mut Counters) -> bool {
        while !self.waiting.is_empty() {
            let (count, dropped) = match self.send_batch() {
                Ok(count) => (count, 0),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // The error belongs to the first of the batch.
                Err(_) => (1, 1),
            };
            counters.datagrams_sent += (count - dropped) as u64;
            counters.datagrams_dropped += dropped as u64;
            self.queue_sent += self.waiting.drain(..count).map(|waiting| waiting.bytes).sum::<usize>();
        }
        self.queue.clear();
        self.queue_sent = 0;
        true
    }

    fn send_batch(&mut self) -> io::Result<usize> {
        let count = self.waiting.len().min(BATCH);
        let mut addresses = [RawAddress::empty(); BATCH];
        let mut locals = [LocalAddress::empty(); BATCH];
        // SAFETY: iovec and mmsghdr are plain integers and pointers, for which all zeros (null) is a valid
        // value.
        let (mut vectors, mut headers): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
            unsafe { mem::zeroed() };
        let mut start = self.queue_sent;
        for (n, waiting) in self.waiting.iter().take(count).enumerate() {
            addresses[n] = RawAddress::new(waiting.to);
            if let Some(from) = waiting.from {
                locals[n] = LocalAddress::new(from);
                locals[n].attach(&mut headers[n].msg_hdr);
            }
            let bytes = &mut self.queue[start..start + waiting.bytes];
            vectors[n] = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
            start += waiting.bytes;
        }
        for n in 0..count {
            headers[n].msg_hdr.msg_name = (&raw mut addresses[n].storage).cast();
            headers[n].msg_hdr.msg_namelen = addresses[n].length;
            headers[n].msg_hdr.msg_iov = &raw mut vectors[n];
            headers[n].msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: the first `count` headers point at addresses and vectors on this stack frame and at bytes
        // of `self.queue`, none of which moves or is freed before the call returns.
        let sent = unsafe {
            libc::sendmmsg(
                self.socket.as_raw_fd(),
                headers.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
    }

    /// Receives one batch.
    pub fn receive(
        &mut self,
        pool: &mut Pool,
        incoming: &mut Vec<Incoming>,
        counters: &mut Counters,
    ) -> io::Result<()> {
        let mut addresses = [RawAddress::empty(); BATCH];
        let mut locals = [LocalAddress::empty(); BATCH];
        // SAFETY: iovec and mmsghdr are plain integers and pointers, for which all zeros (null) is a valid
        // value.
        let (mut vectors, mut headers): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
            unsafe { mem::zeroed() };
        for (n, slot) in self.slots.chunks_exact_mut(SLOT_BYTES).enumerate() {
            vectors[n] = libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: slot.len() };
            headers[n].msg_hdr.msg_name = (&raw mut addresses[n].storage).cast();
            headers[n].msg_hdr.msg_namelen = addresses[n].length;
            headers[n].msg_hdr.msg_iov = &raw mut vectors[n];
            headers[n].msg_hdr.msg_iovlen = 1;
            if self.is_carried {
                locals[n].attach(&mut headers[n].msg_hdr);
            }
        }
        // SAFETY: all BATCH headers point at addresses and vectors on this stack frame and at disjoint slots
        // of `self.slots`, none of which moves or is freed before the call returns.
        let received = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                headers.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        if received < 0 {
            return temporary(io::Error::last_os_error());
        }
        for n in 0..received as usize {
            let truncated = headers[n].msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            let (Some(from), false) = (addresses[n].get(), truncated) else {
                counters.datagrams_truncated += 1;
                continue;
            };
            let mut bytes = pool.take();
            let start = n * SLOT_BYTES;
            bytes.extend_from_slice(&self.slots[start..start + headers[n].msg_len as usize]);
            counters.datagrams_received += 1;
            let peer = plain(from);
            let from = match self.is_carried {
                false => Destination::Address(peer),
                // The kernel says so of each; one that does not is nobody's.
                true => match LocalAddress::of(&headers[n].msg_hdr) {
                    Some(at) => Destination::Carried(peer, at),
                    None => continue,
                },
            };
            incoming.push(Incoming { from, peer, transport: Transport::Datagram, bytes, bulk: Vec::new() });
        }
        Ok(())
    }
}

/// Errors of receiving that pass: nothing there, a signal, or a complaint of the network about something sent
/// earlier.
fn temporary(error: io::Error) -> io::Result<()> {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, Interrupted, NetworkUnreachable, WouldBlock};
    match error.kind() {
        WouldBlock | Interrupted | ConnectionRefused | HostUnreachable | NetworkUnreachable => Ok(()),
        _ => Err(error),
    }
}

/// Sends datagrams from any thread, one per system call, while another thread waits in
/// [`super::Endpoint::receive`].
#[derive(Clone, Debug)]
pub struct DatagramSender {
    socket: Arc<UdpSocket>,
    is_v6: bool,
}

impl DatagramSender {
    /// Sends one datagram at once. When the socket's buffer is full it is dropped with
    /// [`SendError::QueueFull`].
    pub fn send(&self, to: SocketAddr, packet: &[u8]) -> Result<(), SendError> {
        let to = for_family(to, self.is_v6).ok_or(SendError::Unreachable)?;
        match self.socket.send_to(packet, to) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(SendError::QueueFull),
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
                Err(SendError::TooLarge { bytes: packet.len(), bytes_max: DATAGRAM_BYTES_MAX })
            }
            Err(_) => Err(SendError::Unreachable),
        }
    }
}
