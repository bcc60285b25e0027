//! Packets: what travels in one datagram, or as one frame of a stream.
//!
//! ```text
//! offset size  field (little endian)
//!      0    4  magic "BRNG"
//!      4    2  protocol version: the one that was agreed
//!      6    1  sender: 0 client, 1 server, 2 nobody (unsigned refusals only); 3 is a handshake, see `hello`
//!      7    1  zero
//!      8    8  session or server id
//!     16    4  bytes of the body
//!     20    4  bytes of the attachment
//!     24    2  number of messages
//!     26    2  bytes of the ticket
//!     28    4  zero
//!     32    8  counter of the sender, from 1; 0: a hint
//!     40    8  start: the number of the sending server's life; 0 from a client
//!     48    8  start of the receiving server, as its answers told; 0 unknown, or the receiver is a client.
//!             In a hint: the counter that it answers
//!     56   16  MAC over bytes 0..56, body and ticket (zero for `nobody`)
//!     72    -  body: messages in postcard's encoding, back to back
//!      -    -  ticket
//!      -    -  attachment: bulk bytes, covered by a CRC32C that the body carries
//! ```
//!
//! On a stream the attachment has a buffer of its own at both ends, so it is sealed and opened apart from
//! what stands before it, and never copied.
//!
//! The MAC's key is the session secret between a client and any server, in both directions, and the cluster's
//! packet key between servers; the sender's kind is under the MAC, so a packet cannot be reflected. A server
//! takes only packets that name its present start, each counter once: what was overheard before it was
//! started again is nothing to it. To whatever else is signed well it answers with a *hint*, which holds no
//! content and moves nothing: its start ([`Message::Welcome`]), or why it takes none.

use crate::keys::{Key, Mac};
use crate::{client, clock, coordinator, data, filters, flow, join, peer, relay, replication, ring, ticket};
use bearing_types::{ServerId, SessionId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// The newest version of the protocol that this program speaks.
pub const VERSION: u16 = 17;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 72;
/// The largest packet on a stream, in bytes.
pub const PACKET_BYTES_MAX: usize = 8 << 20;
/// Messages to one receiver are packed into datagrams of up to so many bytes. A larger answer goes by stream;
/// so does what goes to servers. Nothing else that is larger reaches a client.
pub const DATAGRAM_PACKED_MAX: usize = 8 * 1024;
/// The most messages in one packet.
pub const MESSAGES_MAX: usize = 1024;

pub(crate) const MAGIC: [u8; 4] = *b"BRNG";
const SIGNED_BYTES: usize = 56;

/// A range of versions of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// The lowest.
    pub lowest: u16,
    /// The highest.
    pub highest: u16,
}

impl Versions {
    /// What this program speaks. Version 12 is not spoken any more: nothing asks which version was agreed on
    /// before it sends what only this one knows, and servers of version 12 take no packet with such a
    /// message.
    pub const SPOKEN: Versions = Versions { lowest: VERSION, highest: VERSION };

    /// The highest that both speak.
    pub fn common(self, other: Versions) -> Option<u16> {
        let highest = self.highest.min(other.highest);
        (highest >= self.lowest.max(other.lowest)).then_some(highest)
    }

    fn contains(self, version: u16) -> bool {
        (self.lowest..=self.highest).contains(&version)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lowest == self.highest {
            true => write!(f, "{}", self.highest),
            false => write!(f, "{} to {}", self.lowest, self.highest),
        }
    }
}

/// The number of a server's life, drawn when it begins, and anew whenever it forgets which counters it saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Start(pub u64);

impl Start {
    /// Not known, or not a server's.
    pub const NONE: Start = Start(0);
}

/// Everything that one process says to another.
// Most messages are requests: a box for each would cost more than the room.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Client to metadata server.
    Request(client::Request),
    /// Metadata server to client.
    Reply(client::Reply),
    /// Metadata server to client.
    Recall(client::Recall),
    /// Client to metadata server.
    Recalled(client::Recalled),
    /// Between metadata servers.
    Peer(peer::PeerMessage),
    /// To a data server.
    Data(data::DataRequest),
    /// From a data server.
    DataReply(data::DataReply),
    /// To the coordinator.
    Ask(coordinator::Ask),
    /// From the coordinator.
    Told(coordinator::Told),
    /// The packet was not taken.
    Refused(Refusal),
    /// Between servers.
    Clock(clock::ClockMessage),
    /// Metadata server to client.
    OpenStateQuery(client::OpenStateQuery),
    /// Client to metadata server.
    OpenState(client::OpenState),
    /// Metadata server to client.
    LockFree(client::LockFree),
    /// A hint of a server to whoever does not name its start, which stands in the packet's header.
    Welcome {
        /// What it speaks.
        versions: Versions,
    },
    /// Between client and any server.
    Ticket(ticket::TicketMessage),
    /// Between metadata servers.
    Replication(replication::ReplicationMessage),
    /// Between metadata servers.
    Ring(ring::RingMessage),
    /// Of a host that joins, to a metadata server.
    Join(join::Join),
    /// The answer.
    Joined(join::Joined),
    /// Between metadata servers.
    Relay(relay::Relay),
    /// Between metadata servers.
    Filters(filters::FilterMessage),
    /// To the flow server.
    Flow(flow::FlowRequest),
    /// From the flow server.
    FlowReply(flow::FlowReply),
}

/// Why a packet was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The MAC does not fit: the secret is wrong. Unsigned.
    Unauthenticated,
    /// The packet has another protocol version than this one. Unsigned.
    Version {
        /// The version that the refuser speaks.
        speaks: u16,
    },
    /// The session is not known here: its ticket is to be shown. Unsigned.
    NeedTicket,
    /// The ticket has expired. Signed.
    Expired,
    /// The enrolment by which the session began was revoked. Signed.
    Revoked,
}

/// Who sealed a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sender {
    /// A client, by its session.
    Client(SessionId),
    /// A server.
    Server(ServerId),
    /// Nobody: the packet is unsigned and may hold refusals only.
    Nobody,
}

/// What stands before a packet's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The version that its sender and receiver agreed on.
    pub version: u16,
    /// Who sealed it.
    pub sender: Sender,
    /// The sender's counter; 0: a hint.
    pub counter: u64,
    /// The sending server's start.
    pub from: Start,
    /// The receiving server's start; in a hint, the counter that it answers.
    pub to: u64,
    body_bytes: usize,
    ticket_bytes: usize,
    attachment_bytes: usize,
    messages: usize,
}

/// What a packet is sealed with.
#[derive(Clone, Copy, Debug)]
pub struct Stamp<'a> {
    /// The version that sender and receiver agreed on.
    pub version: u16,
    /// Who seals it.
    pub sender: Sender,
    /// The sender's counter; 0: a hint.
    pub counter: u64,
    /// The sending server's start.
    pub from: Start,
    /// The receiving server's start; in a hint, the counter that it answers.
    pub to: u64,
    /// The ticket, empty for none.
    pub ticket: &'a [u8],
}

impl Stamp<'static> {
    /// Of an unsigned refusal.
    pub const NOBODY: Stamp<'static> =
        Stamp { version: VERSION, sender: Sender::Nobody, counter: 0, from: Start::NONE, to: 0, ticket: &[] };
}

/// An attachment on its way out; several packets may have the same.
pub type Bulk = Arc<Vec<u8>>;

/// How long an attachment is.
pub fn length(bulk: Option<&Bulk>) -> usize {
    bulk.map_or(0, |bulk| bulk.len())
}

/// An opened packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Who sealed it.
    pub sender: Sender,
    /// What stood before its body.
    pub header: Header,
    /// What it says.
    pub messages: Vec<Message>,
    /// Bulk bytes.
    pub attachment: Vec<u8>,
}

/// Why bytes are no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketError {
    /// Not ours at all, cut short, or nonsense inside.
    Malformed,
    /// Another protocol version.
    Version(u16),
    /// The MAC does not fit.
    Unauthenticated,
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PacketError::Malformed => write!(f, "not a packet of this protocol"),
            PacketError::Version(found @ ..=5) => write!(
                f,
                "protocol version {found}, which is refused because other clients could compute its session secrets; this \
                 program speaks {}; install its release on the other side",
                Versions::SPOKEN
            ),
            PacketError::Version(found) => write!(
                f,
                "protocol version {found}, this program speaks {}; run the same release on both sides",
                Versions::SPOKEN
            ),
            PacketError::Unauthenticated => {
                write!(f, "the packet's signature does not fit; check the cluster's secrets")
            }
        }
    }
}

impl std::error::Error for PacketError {}

impl Sender {
    fn to_wire(self) -> (u8, u64) {
        match self {
            Sender::Client(session) => (0, session.0),
            Sender::Server(server) => (1, u64::from(server.0)),
            Sender::Nobody => (2, 0),
        }
    }

    fn from_wire(kind: u8, id: u64) -> Result<Sender, PacketError> {
        match kind {
            0 => Ok(Sender::Client(SessionId(id))),
            1 => u32::try_from(id).map(|id| Sender::Server(ServerId(id))).map_err(|_| PacketError::Malformed),
            2 => Ok(Sender::Nobody),
            _ => Err(PacketError::Malformed),
        }
    }
}

/// A packet in the making: messages are added one by one as long as they fit, then it is sealed.
#[derive(Clone, Debug, Default)]
pub struct Packing {
    packet: Vec<u8>,
    messages: usize,
}

impl Packing {
    /// An empty packet.
    pub fn new() -> Packing {
        Packing::default()
    }

    /// Whether no message was added.
    pub fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// Bytes so far.
    pub fn bytes(&self) -> usize {
        self.packet.len()
    }

    /// Adds a message unless the packet would exceed `bytes_max` or [`MESSAGES_MAX`]; says whether it did.
    pub fn push(&mut self, message: &Message, bytes_max: usize) -> bool {
        let before = self.packet.len().max(HEADER_BYTES);
        if self.messages == MESSAGES_MAX {
            return false;
        }
        self.packet.resize(before, 0);
        let taken = std::mem::take(&mut self.packet);
        self.packet = postcard::to_extend(message, taken).expect("plain values always encode");
        if self.packet.len() > bytes_max {
            self.packet.truncate(before);
            return false;
        }
        self.messages += 1;
        true
    }

    /// Seals what was added and gives the packet's bytes. `key` is `None` only for [`Sender::Nobody`].
    pub fn seal(self, stamp: &Stamp<'_>, key: Option<&Key>, attachment: &[u8]) -> Vec<u8> {
        let mut packet = self.seal_head(stamp, key, attachment.len());
        packet.extend_from_slice(attachment);
        packet
    }

    /// The same without the attachment, of so many bytes, which is to follow.
    pub fn seal_head(self, stamp: &Stamp<'_>, key: Option<&Key>, attachment_bytes: usize) -> Vec<u8> {
        let mut packet = self.packet;
        packet.resize(packet.len().max(HEADER_BYTES), 0);
        let (kind, id) = stamp.sender.to_wire();
        let body_bytes = (packet.len() - HEADER_BYTES) as u32;
        packet[0..4].copy_from_slice(&MAGIC);
        packet[4..6].copy_from_slice(&stamp.version.to_le_bytes());
        packet[6] = kind;
        packet[8..16].copy_from_slice(&id.to_le_bytes());
        packet[16..20].copy_from_slice(&body_bytes.to_le_bytes());
        packet[20..24].copy_from_slice(&(attachment_bytes as u32).to_le_bytes());
        packet[24..26].copy_from_slice(&(self.messages as u16).to_le_bytes());
        packet[26..28].copy_from_slice(&(stamp.ticket.len() as u16).to_le_bytes());
        packet[32..40].copy_from_slice(&stamp.counter.to_le_bytes());
        packet[40..48].copy_from_slice(&stamp.from.0.to_le_bytes());
        packet[48..56].copy_from_slice(&stamp.to.to_le_bytes());
        packet.extend_from_slice(stamp.ticket);
        if let Some(key) = key {
            let mac = key.sign(&[&packet[..SIGNED_BYTES], &packet[HEADER_BYTES..]]);
            packet[SIGNED_BYTES..HEADER_BYTES].copy_from_slice(&mac.0);
        }
        packet
    }
}

/// A sealed packet of one message, or of none: a greeting.
pub fn seal(stamp: &Stamp<'_>, key: Option<&Key>, message: Option<&Message>, attachment: &[u8]) -> Vec<u8> {
    let mut packing = Packing::new();
    message.into_iter().for_each(|message| assert!(packing.push(message, usize::MAX)));
    packing.seal(stamp, key, attachment)
}

/// Reads what stands before the body, not checked by any key yet: it says with whose key to open the packet.
/// Refuses other versions. The attachment may be apart.
pub fn header(packet: &[u8]) -> Result<Header, PacketError> {
    // Older versions have shorter headers; all begin alike.
    if packet.len() < 8 || packet[0..4] != MAGIC {
        return Err(PacketError::Malformed);
    }
    let version = u16_at(packet, 4);
    if !Versions::SPOKEN.contains(version) {
        return Err(PacketError::Version(version));
    }
    if packet.len() < HEADER_BYTES {
        return Err(PacketError::Malformed);
    }
    let (body_bytes, attachment_bytes) = (u32_at(packet, 16) as usize, u32_at(packet, 20) as usize);
    let (messages, ticket_bytes) = (usize::from(u16_at(packet, 24)), usize::from(u16_at(packet, 26)));
    // Sums of what fits 32 bits.
    let head_bytes = HEADER_BYTES + body_bytes + ticket_bytes;
    let is_whole = packet.len() == head_bytes || packet.len() == head_bytes + attachment_bytes;
    if !is_whole || messages > MESSAGES_MAX || ticket_bytes > ticket::TICKET_BYTES_MAX {
        return Err(PacketError::Malformed);
    }
    Ok(Header {
        version,
        sender: Sender::from_wire(packet[6], u64_at(packet, 8))?,
        counter: u64_at(packet, 32),
        from: Start(u64_at(packet, 40)),
        to: u64_at(packet, 48),
        body_bytes,
        ticket_bytes,
        attachment_bytes,
        messages,
    })
}

/// The ticket in a packet, empty if there is none.
pub fn ticket<'a>(packet: &'a [u8], header: &Header) -> &'a [u8] {
    let start = HEADER_BYTES + header.body_bytes;
    packet.get(start..start + header.ticket_bytes).unwrap_or_default()
}

/// Whether a packet is signed with a key.
fn is_signed(packet: &[u8], header: &Header, key: &Key) -> bool {
    let mac = Mac(packet[SIGNED_BYTES..HEADER_BYTES].try_into().expect("sixteen bytes"));
    let end = HEADER_BYTES + header.body_bytes + header.ticket_bytes;
    key.verify(&[&packet[..SIGNED_BYTES], &packet[HEADER_BYTES..end]], mac)
}

/// Opens a packet with the sender's key (`None` for [`Sender::Nobody`], which then may only hold refusals).
pub fn open(packet: &[u8], key: Option<&Key>) -> Result<Packet, PacketError> {
    open_with(packet, Vec::new(), key)
}

/// The same for a packet whose attachment came apart; without one it may stand in the packet.
pub fn open_with(packet: &[u8], bulk: Vec<u8>, key: Option<&Key>) -> Result<Packet, PacketError> {
    let header = header(packet)?;
    let sender = header.sender;
    match (sender, key) {
        (Sender::Nobody, _) => {}
        (_, None) => return Err(PacketError::Unauthenticated),
        (_, Some(key)) if is_signed(packet, &header, key) => {}
        (_, Some(_)) => return Err(PacketError::Unauthenticated),
    }
    let (body, rest) = packet[HEADER_BYTES..].split_at(header.body_bytes);
    let messages = decode_messages(body, header.messages)?;
    let only_refusals = messages.iter().all(|message| matches!(message, Message::Refused(_)));
    if sender == Sender::Nobody && !only_refusals {
        return Err(PacketError::Unauthenticated);
    }
    let behind = &rest[header.ticket_bytes..];
    if behind.len() + bulk.len() != header.attachment_bytes {
        return Err(PacketError::Malformed);
    }
    let attachment = if behind.is_empty() { bulk } else { behind.to_vec() };
    Ok(Packet { sender, header, messages, attachment })
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn decode_messages(mut body: &[u8], count: usize) -> Result<Vec<Message>, PacketError> {
    let mut messages = Vec::with_capacity(count);
    for _ in 0..count {
        let (message, rest) = postcard::take_from_bytes(body).map_err(|_| PacketError::Malformed)?;
        messages.push(message);
        body = rest;
    }
    if body.is_empty() { Ok(messages) } else { Err(PacketError::Malformed) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Call, Request};
    use bearing_types::{Epoch, Name, Position, Sequence};
    use proptest::prelude::*;

    fn request() -> Message {
        Message::Request(Request {
            sequence: Sequence(7),
            finished_below: Sequence(5),
            position: Position(9),
            epoch: Epoch(2),
            call: Call::Statfs,
        })
    }

    fn stamp() -> Stamp<'static> {
        let sender = Sender::Client(SessionId(3));
        Stamp { version: VERSION, sender, counter: 12, from: Start::NONE, to: 99, ticket: b"ticket" }
    }

    fn sealed() -> (Key, Vec<u8>) {
        let key = Key::new([7; 32]);
        let mut packing = Packing::new();
        assert!(packing.push(&request(), 1000) && packing.push(&request(), 1000));
        let packet = packing.seal(&stamp(), Some(&key), b"bulk");
        (key, packet)
    }

    #[test]
    fn a_name_is_sent_as_its_length_and_its_bytes_and_checked_when_it_comes() {
        for length in [1, 21, 22, 23, 127] {
            let bytes = vec![b'x'; length];
            let sent = postcard::to_stdvec(&Name::new(&bytes).unwrap()).unwrap();
            assert_eq!((usize::from(sent[0]), &sent[1..]), (length, &bytes[..]));
            assert_eq!(postcard::from_bytes::<Name>(&sent).unwrap().as_bytes(), bytes);
        }
        let longest = postcard::to_stdvec(&Name::new(&[b'x'; 255]).unwrap()).unwrap();
        assert_eq!(&longest[..3], [0xff, 0x01, b'x']);
        let too_long = [&[0x80, 0x02][..], &[b'x'; 256]].concat();
        for bad in [&[0][..], &[1, b'/'], &[2, b'a', 0], &[9, b'a'], &too_long] {
            assert!(postcard::from_bytes::<Name>(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_sealed_packet_opens_to_what_was_sealed() {
        let (key, packet) = sealed();
        let opened = open(&packet, Some(&key)).unwrap();
        assert_eq!(opened.sender, Sender::Client(SessionId(3)));
        assert_eq!(opened.messages, [request(), request()]);
        assert_eq!(opened.attachment, b"bulk");
        assert_eq!((opened.header.counter, opened.header.to), (12, 99));
        assert_eq!(ticket(&packet, &opened.header), b"ticket");
    }

    #[test]
    fn an_attachment_may_come_apart_and_has_to_come_whole() {
        let key = Key::new([7; 32]);
        let mut packing = Packing::new();
        assert!(packing.push(&request(), 1000));
        let head = packing.seal_head(&stamp(), Some(&key), 4);
        assert_eq!(open_with(&head, b"bulk".to_vec(), Some(&key)).unwrap().attachment, b"bulk");
        let whole = [&head[..], b"bulk"].concat();
        assert_eq!(open(&whole, Some(&key)).unwrap().attachment, b"bulk");
        for (packet, bulk) in [(&head, &b""[..]), (&head, b"bul"), (&whole, b"bulk")] {
            assert_eq!(open_with(packet, bulk.to_vec(), Some(&key)), Err(PacketError::Malformed));
        }
    }

    #[test]
    fn the_highest_common_version_is_chosen_or_none() {
        let versions = |lowest, highest| Versions { lowest, highest };
        assert_eq!(versions(6, 7).common(versions(6, 6)), Some(6));
        assert_eq!(versions(6, 7).common(versions(7, 9)), Some(7));
        assert_eq!(versions(8, 8).common(versions(6, 6)), None);
        assert_eq!(versions(6, 6).common(versions(8, 8)), None);
    }

    #[test]
    fn a_message_that_does_not_fit_leaves_the_packet_as_it_was() {
        let key = Key::new([7; 32]);
        let mut packing = Packing::new();
        assert!(packing.is_empty() && packing.push(&request(), 1000));
        assert!(!packing.push(&request(), HEADER_BYTES + 6));
        let packet = packing.seal(&stamp(), Some(&key), b"x");
        assert_eq!(open(&packet, Some(&key)).unwrap().messages, [request()]);
    }

    #[test]
    fn another_version_is_refused_by_its_number() {
        let (key, mut packet) = sealed();
        packet[4] = VERSION as u8 + 1;
        assert_eq!(open(&packet, Some(&key)), Err(PacketError::Version(VERSION + 1)));
        packet[4] = 5;
        let message = open(&packet[..48], Some(&key)).unwrap_err().to_string();
        assert!(
            message.contains("version 5")
                && message.contains(&format!("speaks {VERSION}"))
                && message.contains("install"),
            "{message}"
        );
    }

    #[test]
    fn nobody_may_only_refuse() {
        let packet = seal(&Stamp::NOBODY, None, Some(&request()), &[]);
        assert_eq!(open(&packet, None), Err(PacketError::Unauthenticated));
        let refusal = Message::Refused(Refusal::Unauthenticated);
        assert!(open(&seal(&Stamp::NOBODY, None, Some(&refusal), &[]), None).is_ok());
    }

    proptest! {
        #[test]
        fn any_flipped_bit_of_header_or_body_is_refused(at in 0usize..1000, bit in 0u8..8) {
            let (key, mut packet) = sealed();
            let covered = packet.len() - 4;
            packet[at % covered] ^= 1 << bit;
            prop_assert!(open(&packet, Some(&key)).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = open(&bytes, Some(&Key::new([1; 32])));
            let mut with_head = b"BRNG\x08\x00\x02\x00".to_vec();
            with_head.extend(bytes);
            let _ = open(&with_head, None);
        }
    }
}
