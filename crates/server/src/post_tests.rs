//! Where did the packet go, not which bytes were sent.

use super::*;
use bearing_env::ConnectionId;
use bearing_proto::client::{Body, Call, Recall, Request};
use bearing_proto::data::{DataBody, DataReply};
use bearing_proto::keys::session_secret;
use bearing_types::{Block, Epoch, Position, Sequence};
use std::net::Ipv4Addr;

const ME: ServerId = ServerId(1);
const OTHER: ServerId = ServerId(2);
const CLIENT: SessionId = SessionId(77);

fn at(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn keys() -> ServerKeys {
    ServerKeys::new(&Key::new([1; 32]), Key::new([2; 32]))
}

fn client_key() -> Key {
    session_secret(&Key::new([2; 32]), CLIENT)
}

fn post() -> Post {
    Post::new(ME, keys(), [(ME, at(1)), (OTHER, at(2))])
}

fn request(sequence: u64) -> Message {
    Message::Request(Request {
        sequence: Sequence(sequence),
        finished_below: Sequence(0),
        position: Position(0),
        epoch: Epoch(1),
        call: Call::Statfs,
    })
}

fn reply(sequence: u64, bytes: usize) -> Message {
    let result = Ok(Box::new(Body::Link(vec![b'x'; bytes])));
    let answer = Answer::Done { tablet: Block::RING, epoch: Epoch(1), result };
    Message::Reply(Reply { sequence: Sequence(sequence), answer })
}

fn packet(sender: Sender, key: &Key, message: &Message) -> Vec<u8> {
    let mut packing = Packing::new();
    assert!(packing.push(message, PACKET_BYTES_MAX));
    packing.seal(sender, Some(key), &[])
}

fn datagram(port: u16, bytes: Vec<u8>) -> Incoming {
    Incoming { from: Destination::Address(at(port)), peer: at(port), transport: Transport::Datagram, bytes }
}

fn stream(connection: u64, bytes: Vec<u8>) -> Incoming {
    let from = Destination::Connection(ConnectionId(connection));
    Incoming { from, peer: at(9), transport: Transport::Stream, bytes }
}

fn from_client(post: &mut Post, wrap: impl FnOnce(Vec<u8>) -> Incoming, sequence: u64) {
    let incoming = wrap(packet(Sender::Client(CLIENT), &client_key(), &request(sequence)));
    let opened = post.open(Mono::ZERO, &incoming);
    assert!(matches!(opened, Opened::Messages { sender: Sender::Client(CLIENT), .. }), "{opened:?}");
}

fn sent(post: &mut Post, key: &Key) -> Vec<(Destination, Transport, Vec<Message>)> {
    let opened = |sealed: Sealed| {
        let messages = envelope::open(&sealed.packet, Some(key)).unwrap().messages;
        (sealed.to, sealed.transport, messages)
    };
    post.take_sealed().into_iter().map(opened).collect()
}

#[test]
fn answers_to_one_client_share_a_datagram_in_order() {
    let mut post = post();
    from_client(&mut post, |bytes| datagram(50, bytes), 1);
    from_client(&mut post, |bytes| datagram(50, bytes), 2);
    post.to_session(CLIENT, &reply(1, 10), &[]);
    post.to_session(CLIENT, &reply(2, 10), &[]);
    let expected = vec![reply(1, 10), reply(2, 10)];
    assert_eq!(
        sent(&mut post, &client_key()),
        [(Destination::Address(at(50)), Transport::Datagram, expected)]
    );
}

#[test]
fn a_full_datagram_is_followed_by_another() {
    let mut post = post();
    from_client(&mut post, |bytes| datagram(50, bytes), 1);
    for sequence in 0..4 {
        post.to_session(CLIENT, &reply(sequence, 3000), &[]);
    }
    let packets = sent(&mut post, &client_key());
    assert_eq!(packets.iter().map(|(_, _, messages)| messages.len()).collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn an_answer_that_fits_no_datagram_goes_whole_on_the_stream_that_asked_and_else_says_so() {
    let mut post = post();
    from_client(&mut post, |bytes| datagram(50, bytes), 1);
    from_client(&mut post, |bytes| stream(6, bytes), 2);
    post.to_session(CLIENT, &reply(1, 20_000), &[]);
    post.to_session(CLIENT, &reply(2, 20_000), &[]);
    let too_large = Message::Reply(Reply { sequence: Sequence(1), answer: Answer::TooLarge });
    let packets = sent(&mut post, &client_key());
    assert!(packets.contains(&(Destination::Address(at(50)), Transport::Datagram, vec![too_large])));
    let connection = Destination::Connection(ConnectionId(6));
    assert!(packets.contains(&(connection, Transport::Stream, vec![reply(2, 20_000)])));
}

#[test]
fn a_recall_goes_to_where_the_client_last_sent_a_datagram() {
    let mut post = post();
    from_client(&mut post, |bytes| datagram(50, bytes), 1);
    from_client(&mut post, |bytes| datagram(51, bytes), 2);
    from_client(&mut post, |bytes| stream(6, bytes), 3);
    let recall =
        Message::Recall(Recall { tablet: Block::RING, epoch: Epoch(1), number: 1, keys: Vec::new() });
    post.to_session(CLIENT, &recall, &[]);
    assert_eq!(
        sent(&mut post, &client_key()),
        [(Destination::Address(at(51)), Transport::Datagram, vec![recall])]
    );
}

#[test]
fn small_messages_to_servers_are_packed_and_large_ones_go_by_stream() {
    let mut post = post();
    post.to_server(OTHER, &request(1), &[]);
    post.to_server(OTHER, &request(2), &[]);
    post.to_server(OTHER, &reply(3, 100_000), &[]);
    let packets = sent(&mut post, keys().packets());
    let address = Destination::Address(at(2));
    assert!(packets.contains(&(address, Transport::Datagram, vec![request(1), request(2)])));
    assert!(packets.contains(&(address, Transport::Stream, vec![reply(3, 100_000)])));
    post.to_server(ServerId(99), &request(4), &[]);
    assert_eq!(post.undeliverable().no_address, 1);
}

#[test]
fn bulk_bytes_travel_alone_on_the_way_the_request_came() {
    let mut post = post();
    let asked = Message::Data(bearing_proto::data::DataRequest {
        id: 5,
        chunk: bearing_types::ChunkId(1),
        call: bearing_proto::data::DataCall::Ping,
    });
    post.open(Mono::ZERO, &stream(6, packet(Sender::Client(CLIENT), &client_key(), &asked)));
    let answer = Message::DataReply(DataReply { id: 5, result: Ok(DataBody::Bytes { crc: 0 }) });
    post.answer(Sender::Client(CLIENT), &answer, &[7; 100_000]);
    let sealed = post.take_sealed();
    assert_eq!(sealed[0].to, Destination::Connection(ConnectionId(6)));
    assert_eq!(envelope::open(&sealed[0].packet, Some(&client_key())).unwrap().attachment.len(), 100_000);
}

#[test]
fn a_wrong_secret_is_told_so_and_leaves_no_trace() {
    let mut post = post();
    let forged = packet(Sender::Client(CLIENT), &Key::new([9; 32]), &request(1));
    let opened = post.open(Mono::ZERO, &datagram(50, forged.clone()));
    assert_eq!(opened, Opened::NotTaken { peer: at(50), error: PacketError::Unauthenticated, first: true });
    let again = post.open(Mono::ZERO, &datagram(50, forged));
    assert!(matches!(again, Opened::NotTaken { first: false, .. }));
    let refusal = envelope::open(&post.take_sealed()[0].packet, None).unwrap();
    assert_eq!(refusal.messages, [Message::Refused(Refusal::Unauthenticated)]);
    post.to_session(CLIENT, &reply(1, 1), &[]);
    assert_eq!(post.undeliverable().no_address, 1);
}

#[test]
fn another_version_is_told_ours_and_refusals_are_limited_per_second() {
    let mut post = post();
    let mut old = packet(Sender::Client(CLIENT), &client_key(), &request(1));
    old[4] = 200;
    for _ in 0..REFUSALS_PER_SECOND * 2 {
        post.open(Mono::ZERO, &datagram(50, old.clone()));
    }
    let sealed = post.take_sealed();
    assert_eq!(sealed.len(), REFUSALS_PER_SECOND as usize);
    let refusal = envelope::open(&sealed[0].packet, None).unwrap();
    assert_eq!(refusal.messages, [Message::Refused(Refusal::Version { speaks: VERSION })]);
    post.open(Mono::ZERO.after(Duration::from_secs(1)), &datagram(50, old));
    assert_eq!(post.take_sealed().len(), 1);
}

#[test]
fn noise_gets_no_answer() {
    let mut post = post();
    post.open(Mono::ZERO, &datagram(50, b"GET / HTTP/1.1\r\n".to_vec()));
    assert!(post.take_sealed().is_empty());
}
