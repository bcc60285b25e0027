//! Packets: what travels in one datagram, or as one frame of a stream.
//!
//! ```text
//! offset size  field
//!      0    4  magic "BRNG"
//!      4    2  protocol version, little endian
//!      6    1  sender: 0 client, 1 server, 2 nobody (unsigned refusals only)
//!      7    1  zero
//!      8    8  session or server id
//!     16    4  bytes of the body
//!     20    4  bytes of the attachment
//!     24    2  number of messages
//!     26    6  zero
//!     32   16  MAC over bytes 0..32 and the body (zero for `nobody`)
//!     48    -  body: messages in postcard's encoding, back to back
//!      -    -  attachment: bulk bytes, covered by a CRC32C that the body carries
//! ```
//!
//! The MAC's key is the session secret between a client and any server, in both directions, and the cluster's packet key between servers;
//! the sender's kind is under the MAC, so a packet cannot be reflected.

use crate::keys::{Key, Mac};
use crate::{client, clock, coordinator, data, peer};
use bearing_types::{ServerId, SessionId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The version of the protocol.
pub const VERSION: u16 = 5;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 48;
/// The largest packet on a stream, in bytes.
pub const PACKET_BYTES_MAX: usize = 8 << 20;
/// The most messages in one packet.
pub const MESSAGES_MAX: usize = 1024;

const MAGIC: [u8; 4] = *b"BRNG";
const SIGNED_BYTES: usize = 32;

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
    Survey(client::Survey),
    /// Client to metadata server.
    Surveyed(client::Surveyed),
    /// Metadata server to client.
    LockFree(client::LockFree),
}

/// Why a packet was not taken. Unsigned, so a hint only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The MAC does not fit: the secret is wrong.
    Unauthenticated,
    /// The packet has another protocol version than this one.
    Version {
        /// The version that the refuser speaks.
        speaks: u16,
    },
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

/// An opened packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Who sealed it.
    pub sender: Sender,
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
            PacketError::Version(found) => {
                write!(
                    f,
                    "protocol version {found}, this program speaks {VERSION}; run the same release on both sides"
                )
            }
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
    pub fn seal(self, sender: Sender, key: Option<&Key>, attachment: &[u8]) -> Vec<u8> {
        let mut packet = self.packet;
        packet.resize(packet.len().max(HEADER_BYTES), 0);
        let (kind, id) = sender.to_wire();
        let body_bytes = (packet.len() - HEADER_BYTES) as u32;
        packet[0..4].copy_from_slice(&MAGIC);
        packet[4..6].copy_from_slice(&VERSION.to_le_bytes());
        packet[6] = kind;
        packet[8..16].copy_from_slice(&id.to_le_bytes());
        packet[16..20].copy_from_slice(&body_bytes.to_le_bytes());
        packet[20..24].copy_from_slice(&(attachment.len() as u32).to_le_bytes());
        packet[24..26].copy_from_slice(&(self.messages as u16).to_le_bytes());
        if let Some(key) = key {
            let mac = key.sign(&[&packet[..SIGNED_BYTES], &packet[HEADER_BYTES..]]);
            packet[SIGNED_BYTES..HEADER_BYTES].copy_from_slice(&mac.0);
        }
        packet.extend_from_slice(attachment);
        packet
    }
}

/// Seals messages into `packet`, which is cleared first. `key` is `None` only for [`Sender::Nobody`].
pub fn seal(
    sender: Sender,
    key: Option<&Key>,
    messages: &[Message],
    attachment: &[u8],
    packet: &mut Vec<u8>,
) {
    debug_assert!(messages.len() <= MESSAGES_MAX);
    packet.clear();
    let mut packing = Packing { packet: std::mem::take(packet), messages: 0 };
    for message in messages {
        packing.push(message, usize::MAX);
    }
    *packet = packing.seal(sender, key, attachment);
}

/// Who says it sealed the packet: whose key to open it with. Also refuses other versions.
pub fn sender(packet: &[u8]) -> Result<Sender, PacketError> {
    if packet.len() < HEADER_BYTES || packet[0..4] != MAGIC {
        return Err(PacketError::Malformed);
    }
    let version = u16::from_le_bytes([packet[4], packet[5]]);
    if version != VERSION {
        return Err(PacketError::Version(version));
    }
    Sender::from_wire(packet[6], u64::from_le_bytes(packet[8..16].try_into().expect("eight bytes")))
}

/// Opens a packet with the sender's key (`None` for [`Sender::Nobody`], which then may only hold refusals).
pub fn open(packet: &[u8], key: Option<&Key>) -> Result<Packet, PacketError> {
    let sender = sender(packet)?;
    let field = |at: usize| u32::from_le_bytes(packet[at..at + 4].try_into().expect("four bytes")) as usize;
    let (body_bytes, attachment_bytes) = (field(16), field(20));
    let count = usize::from(u16::from_le_bytes([packet[24], packet[25]]));
    let expected = HEADER_BYTES.checked_add(body_bytes).and_then(|bytes| bytes.checked_add(attachment_bytes));
    if expected != Some(packet.len()) || count > MESSAGES_MAX {
        return Err(PacketError::Malformed);
    }
    let (body, attachment) = packet[HEADER_BYTES..].split_at(body_bytes);
    match (sender, key) {
        (Sender::Nobody, _) => {}
        (_, None) => return Err(PacketError::Unauthenticated),
        (_, Some(key)) => {
            let mac = Mac(packet[SIGNED_BYTES..HEADER_BYTES].try_into().expect("sixteen bytes"));
            if !key.verify(&[&packet[..SIGNED_BYTES], body], mac) {
                return Err(PacketError::Unauthenticated);
            }
        }
    }
    let messages = decode_messages(body, count)?;
    let only_refusals = messages.iter().all(|message| matches!(message, Message::Refused(_)));
    if sender == Sender::Nobody && !only_refusals {
        return Err(PacketError::Unauthenticated);
    }
    Ok(Packet { sender, messages, attachment: attachment.to_vec() })
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

    fn sealed() -> (Key, Vec<u8>) {
        let key = Key::new([7; 32]);
        let mut packet = Vec::new();
        seal(Sender::Client(SessionId(3)), Some(&key), &[request(), request()], b"bulk", &mut packet);
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
    }

    #[test]
    fn a_message_that_does_not_fit_leaves_the_packet_as_it_was() {
        let key = Key::new([7; 32]);
        let mut packing = Packing::new();
        assert!(packing.is_empty() && packing.push(&request(), 1000));
        assert!(!packing.push(&request(), HEADER_BYTES + 6));
        let packet = packing.seal(Sender::Server(ServerId(1)), Some(&key), b"x");
        assert_eq!(open(&packet, Some(&key)).unwrap().messages, [request()]);
    }

    #[test]
    fn another_version_is_refused_by_its_number() {
        let (key, mut packet) = sealed();
        packet[4] = 9;
        assert_eq!(open(&packet, Some(&key)), Err(PacketError::Version(9)));
    }

    #[test]
    fn nobody_may_only_refuse() {
        let mut packet = Vec::new();
        seal(Sender::Nobody, None, &[request()], &[], &mut packet);
        assert_eq!(open(&packet, None), Err(PacketError::Unauthenticated));
        seal(Sender::Nobody, None, &[Message::Refused(Refusal::Unauthenticated)], &[], &mut packet);
        assert!(open(&packet, None).is_ok());
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
            let mut with_head = b"BRNG\x01\x00\x02\x00".to_vec();
            with_head.extend(bytes);
            let _ = open(&with_head, None);
        }
    }
}
