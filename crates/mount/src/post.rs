//! Outgoing messages: where servers are, what shares a packet, how it is sealed. And incoming packets, opened.
//!
//! Invariants: datagrams leave from the thread that has something to send, whoever waits for the socket; stream packets wait in a queue for the
//! thread that does. What cannot be sent is dropped and reported as unreachable: the machine sends again. This module must not know what
//! a message means.

use bearing_client::{Event, Target, Transport};
use bearing_env::{DatagramSender, Destination, Endpoint, SendError, Waker};
use bearing_proto::client::ServerEntry;
use bearing_proto::envelope::{self, Message, Packet, PacketError, Packing, Refusal, Sender};
use bearing_proto::keys::Key;
use bearing_types::{ServerId, SessionId};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock};

/// Messages share a datagram up to this size.
const SHARED_BYTES_MAX: usize = 8 << 10;
/// A message that is alone in a datagram may have this size; a larger one goes by stream.
const DATAGRAM_BYTES_MAX: usize = 60 << 10;

/// A message to send.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    /// To whom.
    pub to: Target,
    /// How.
    pub transport: Transport,
    /// What.
    pub message: Message,
    /// Its bulk bytes.
    pub attachment: Vec<u8>,
}

/// See the module.
pub(crate) struct Post {
    session: SessionId,
    secret: Key,
    datagrams: DatagramSender,
    waker: Waker,
    seeds: Vec<SocketAddr>,
    next_seed: AtomicUsize,
    servers: RwLock<BTreeMap<ServerId, SocketAddr>>,
    by_stream: Mutex<Vec<(SocketAddr, Vec<u8>)>>,
    packets_refused: AtomicU64,
}

impl Post {
    /// The post of a session over an endpoint.
    pub fn new(session: SessionId, secret: Key, endpoint: &Endpoint, seeds: Vec<SocketAddr>) -> Post {
        Post {
            session,
            secret,
            datagrams: endpoint.datagram_sender(),
            waker: endpoint.waker(),
            seeds,
            next_seed: AtomicUsize::new(0),
            servers: RwLock::new(BTreeMap::new()),
            by_stream: Mutex::new(Vec::new()),
            packets_refused: AtomicU64::new(0),
        }
    }

    /// Ends the wait of whoever waits for the socket.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Incoming packets that were not taken: cut short, or their signature did not fit.
    pub fn packets_refused(&self) -> u64 {
        self.packets_refused.load(Ordering::Relaxed)
    }

    /// Takes the addresses of all servers, instead of those known before.
    pub fn set_servers(&self, servers: Vec<ServerEntry>) {
        let servers = servers.into_iter().map(|entry| (entry.server, entry.address)).collect();
        *self.servers.write().expect("no thread panics while it holds the addresses") = servers;
    }

    fn address(&self, to: Target) -> Option<SocketAddr> {
        match to {
            Target::Server(server) => self
                .servers
                .read()
                .expect("no thread panics while it holds the addresses")
                .get(&server)
                .copied(),
            Target::AnySeed => {
                let turn = self.next_seed.fetch_add(1, Ordering::Relaxed);
                self.seeds.get(turn % self.seeds.len().max(1)).copied()
            }
        }
    }

    /// Sends letters. Messages for one target share datagrams, in their order. Returns the servers that cannot be reached.
    pub fn send(&self, letters: Vec<Letter>) -> Vec<ServerId> {
        let mut by_target: BTreeMap<Target, Vec<Letter>> = BTreeMap::new();
        for letter in letters {
            by_target.entry(letter.to).or_default().push(letter);
        }
        let mut unreachable = Vec::new();
        for (target, letters) in by_target {
            let sent = self.address(target).is_some_and(|address| self.send_to(address, letters));
            if let (false, Target::Server(server)) = (sent, target) {
                unreachable.push(server);
            }
        }
        unreachable
    }

    fn send_to(&self, address: SocketAddr, letters: Vec<Letter>) -> bool {
        let mut shared = Packing::new();
        let mut is_sent = true;
        for letter in letters {
            let may_share = letter.attachment.is_empty() && letter.transport == Transport::Datagram;
            if may_share && shared.push(&letter.message, SHARED_BYTES_MAX) {
                continue;
            }
            let full = std::mem::take(&mut shared);
            is_sent &= full.is_empty() || self.send_datagram(address, self.seal(full, &[]));
            if !may_share || !shared.push(&letter.message, SHARED_BYTES_MAX) {
                is_sent &= self.send_alone(address, letter);
            }
        }
        is_sent & (shared.is_empty() || self.send_datagram(address, self.seal(shared, &[])))
    }

    fn send_alone(&self, address: SocketAddr, letter: Letter) -> bool {
        let mut packing = Packing::new();
        let fits = packing.push(&letter.message, envelope::PACKET_BYTES_MAX);
        debug_assert!(fits, "a message of the machine fits a packet");
        let packet = self.seal(packing, &letter.attachment);
        match letter.transport {
            Transport::Datagram if packet.len() <= DATAGRAM_BYTES_MAX => self.send_datagram(address, packet),
            Transport::Datagram | Transport::Stream => self.send_by_stream(address, packet),
        }
    }

    fn seal(&self, packing: Packing, attachment: &[u8]) -> Vec<u8> {
        packing.seal(Sender::Client(self.session), Some(&self.secret), attachment)
    }

    fn send_datagram(&self, address: SocketAddr, packet: Vec<u8>) -> bool {
        match self.datagrams.send(address, &packet) {
            // A full buffer loses a datagram like a full network does.
            Ok(()) | Err(SendError::QueueFull) => true,
            Err(SendError::TooLarge { .. }) => self.send_by_stream(address, packet),
            Err(SendError::Gone | SendError::Unreachable) => false,
        }
    }

    fn send_by_stream(&self, address: SocketAddr, packet: Vec<u8>) -> bool {
        self.by_stream.lock().expect("no thread panics while it queues packets").push((address, packet));
        self.waker.wake();
        true
    }

    /// Hands queued stream packets to the endpoint. Returns the servers that cannot be reached.
    pub fn hand_over(&self, endpoint: &mut Endpoint) -> Vec<ServerId> {
        let queued =
            std::mem::take(&mut *self.by_stream.lock().expect("no thread panics while it queues packets"));
        let mut failed = Vec::new();
        for (address, packet) in queued {
            let to = Destination::Address(address);
            if endpoint.send(to, bearing_env::Transport::Stream, &packet).is_err() {
                failed.push(address);
            }
        }
        endpoint.take_failures(&mut failed);
        self.servers_at(&failed)
    }

    /// The servers at addresses.
    pub fn servers_at(&self, addresses: &[SocketAddr]) -> Vec<ServerId> {
        if addresses.is_empty() {
            return Vec::new();
        }
        let servers = self.servers.read().expect("no thread panics while it holds the addresses");
        let is_meant = |(_, address): &(_, &SocketAddr)| addresses.contains(address);
        servers.iter().filter(is_meant).map(|(server, _)| *server).collect()
    }

    /// What a packet that came in says. One that is not ours, or not signed as it should be, says nothing.
    pub fn open(&self, bytes: &[u8]) -> Vec<Event> {
        match envelope::open(bytes, Some(&self.secret)) {
            Ok(packet) => events(packet),
            // A server of another release does not know our version either.
            Err(PacketError::Version(speaks)) => vec![Event::Refused(Refusal::Version { speaks })],
            Err(PacketError::Malformed | PacketError::Unauthenticated) => {
                self.packets_refused.fetch_add(1, Ordering::Relaxed);
                Vec::new()
            }
        }
    }
}

fn events(packet: Packet) -> Vec<Event> {
    let mut attachment = packet.attachment;
    let from = match packet.sender {
        Sender::Server(server) => Some(Target::Server(server)),
        // Nobody may only refuse; our own kind signs with another secret, so what looks like it is an echo.
        Sender::Nobody | Sender::Client(_) => None,
    };
    packet
        .messages
        .into_iter()
        .filter_map(|message| match (message, from) {
            (Message::Refused(refusal), _) => Some(Event::Refused(refusal)),
            (message, Some(from)) => {
                Some(Event::Message { from, message, attachment: std::mem::take(&mut attachment) })
            }
            (_, None) => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_env::Incoming;
    use bearing_proto::client::{Call, Request};
    use bearing_types::{Epoch, Position, Sequence};
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn local() -> SocketAddr {
        "127.0.0.1:0".parse().unwrap()
    }

    fn letter(sequence: u64, attachment: Vec<u8>, transport: Transport) -> Letter {
        let message = Message::Request(Request {
            sequence: Sequence(sequence),
            finished_below: Sequence(0),
            position: Position(u64::MAX),
            epoch: Epoch(1),
            call: Call::Statfs,
        });
        Letter { to: Target::AnySeed, transport, message, attachment }
    }

    /// Sends letters to a server and returns what it got: packets, and the messages in each.
    fn sent(letters: Vec<Letter>, expected: usize) -> Vec<(bearing_env::Transport, Packet)> {
        let mut server = Endpoint::server(local()).unwrap();
        let mut endpoint = Endpoint::client_at(local()).unwrap();
        let key = Key::new([3; 32]);
        let seeds = vec![server.local_address()];
        let post = Post::new(SessionId(5), key.clone(), &endpoint, seeds);
        assert!(post.send(letters).is_empty());
        post.hand_over(&mut endpoint);
        let (mut all, mut none): (Vec<Incoming>, Vec<Incoming>) = (Vec::new(), Vec::new());
        let start = std::time::Instant::now();
        let count = |all: &[Incoming]| -> usize {
            all.iter()
                .map(|incoming| envelope::open(&incoming.bytes, Some(&key)).unwrap().messages.len())
                .sum()
        };
        while count(&all) < expected {
            assert!(start.elapsed() < PATIENCE, "{} of {expected} messages came", count(&all));
            endpoint.receive(Some(Duration::from_millis(1)), &mut none).unwrap();
            server.receive(Some(Duration::from_millis(1)), &mut all).unwrap();
        }
        all.iter()
            .map(|incoming| (incoming.transport, envelope::open(&incoming.bytes, Some(&key)).unwrap()))
            .collect()
    }

    #[test]
    fn messages_to_one_server_share_a_datagram_up_to_its_size() {
        let letters =
            |count: u64| (0..count).map(|n| letter(n, vec![], Transport::Datagram)).collect::<Vec<_>>();
        assert_eq!(sent(letters(20), 20).len(), 1);
        let many = sent(letters(900), 900);
        assert_eq!(many.len(), 2, "900 messages of some 16 bytes fill more than 8 KiB and less than 16");
        let sequences: Vec<u64> = many
            .iter()
            .flat_map(|(_, packet)| &packet.messages)
            .map(|message| match message {
                Message::Request(request) => request.sequence.0,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(sequences, (0..900).collect::<Vec<_>>(), "in their order");
    }

    #[test]
    fn bulk_bytes_travel_alone_and_by_stream_when_they_are_many() {
        let packets = sent(
            vec![
                letter(0, vec![], Transport::Datagram),
                letter(1, vec![7; 100], Transport::Datagram),
                letter(2, vec![8; 1 << 20], Transport::Datagram),
                letter(3, vec![], Transport::Stream),
                letter(4, vec![], Transport::Datagram),
            ],
            5,
        );
        assert_eq!(packets.len(), 5);
        let by_stream: Vec<usize> = packets
            .iter()
            .filter(|(transport, _)| *transport == bearing_env::Transport::Stream)
            .map(|(_, packet)| packet.attachment.len())
            .collect();
        assert_eq!(by_stream, [1 << 20, 0]);
    }

    #[test]
    fn a_server_without_an_address_is_unreachable() {
        let endpoint = Endpoint::client_at(local()).unwrap();
        let post = Post::new(SessionId(5), Key::new([3; 32]), &endpoint, vec![]);
        let lost = Letter { to: Target::Server(ServerId(4)), ..letter(0, vec![], Transport::Datagram) };
        assert_eq!(post.send(vec![lost, letter(1, vec![], Transport::Datagram)]), [ServerId(4)]);
    }

    #[test]
    fn what_is_not_signed_with_the_session_secret_says_nothing() {
        let endpoint = Endpoint::client_at(local()).unwrap();
        let post = Post::new(SessionId(5), Key::new([3; 32]), &endpoint, vec![]);
        let mut packet = Vec::new();
        let message = letter(1, vec![], Transport::Datagram).message;
        for key in [Key::new([3; 32]), Key::new([4; 32])] {
            envelope::seal(
                Sender::Server(ServerId(1)),
                Some(&key),
                std::slice::from_ref(&message),
                b"bulk",
                &mut packet,
            );
            let expected = usize::from(key == Key::new([3; 32]));
            assert_eq!(post.open(&packet).len(), expected);
        }
        assert_eq!(post.packets_refused(), 1);
        envelope::seal(Sender::Nobody, None, &[Message::Refused(Refusal::Unauthenticated)], &[], &mut packet);
        assert_eq!(post.open(&packet), [Event::Refused(Refusal::Unauthenticated)]);
        packet[4] = 99;
        assert_eq!(post.open(&packet), [Event::Refused(Refusal::Version { speaks: 99 })]);
    }
}
