//! Where did the packet go, not which bytes were sent.

use super::*;
use bearing_env::ConnectionId;
use bearing_env::handshake::{Initiator, Outcome, Tickets};
use bearing_proto::client::{Body, Call, Recall, Request};
use bearing_proto::data::{DataBody, DataReply};
use bearing_proto::enrolment::Enrolment;
use bearing_proto::join::Join;
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
    Key::new([5; 32])
}

fn ticket(enrolment: &str) -> Ticket {
    Ticket {
        session: CLIENT,
        secret: client_key(),
        enrolment: EnrolmentName::new(enrolment).unwrap(),
        squash: Squash::None,
        version: VERSION,
        expires: now().wall.after(Duration::from_secs(60)),
    }
}

fn now() -> Now {
    Now { mono: Mono(9_000_000_000), wall: Wall(5_000_000_000) }
}

fn later(seconds: u64) -> Now {
    let time = Duration::from_secs(seconds);
    Now { mono: now().mono.after(time), wall: now().wall.after(time) }
}

fn post() -> Post {
    Post::new(ME, keys(), [(ME, at(1)), (OTHER, at(2))]).with_known_starts()
}

/// A client's packet to a post, that shows a ticket or not.
fn from_session(post: &Post, counter: u64, shown: Option<&Ticket>, message: Option<&Message>) -> Vec<u8> {
    let sealed = shown.map(|ticket| Tickets::new(&keys()).seal(ticket)).unwrap_or_default();
    let (sender, to) = (Sender::Client(CLIENT), post.start.0);
    let stamp = Stamp { version: VERSION, sender, counter, from: Start::NONE, to, ticket: &sealed };
    envelope::seal(&stamp, Some(&client_key()), message, &[])
}

fn from_other(post: &Post, from: u64, counter: u64, message: &Message) -> Vec<u8> {
    let (sender, to) = (Sender::Server(OTHER), post.start.0);
    let stamp = Stamp { version: VERSION, sender, counter, from: Start(from), to, ticket: &[] };
    envelope::seal(&stamp, Some(keys().packets()), Some(message), &[])
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
    let answer = Answer::Done { tablet: Block::RING, epoch: Epoch(1), result, changed: Vec::new() };
    Message::Reply(Reply { sequence: Sequence(sequence), answer })
}

fn datagram(port: u16, bytes: Vec<u8>) -> Incoming {
    Incoming {
        from: Destination::Address(at(port)),
        peer: at(port),
        transport: Transport::Datagram,
        bytes,
        bulk: Vec::new(),
    }
}

fn stream(connection: u64, bytes: Vec<u8>) -> Incoming {
    let from = Destination::Connection(ConnectionId(connection));
    Incoming { from, peer: at(9), transport: Transport::Stream, bytes, bulk: Vec::new() }
}

fn from_client(post: &mut Post, wrap: impl FnOnce(Vec<u8>) -> Incoming, sequence: u64) {
    let mut incoming = wrap(from_session(post, sequence, Some(&ticket("")), Some(&request(sequence))));
    let opened = post.open(now(), &mut incoming);
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
    post.to_session(CLIENT, &reply(1, 10), None);
    post.to_session(CLIENT, &reply(2, 10), None);
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
        post.to_session(CLIENT, &reply(sequence, 3000), None);
    }
    let packets = sent(&mut post, &client_key());
    assert_eq!(packets.iter().map(|(_, _, messages)| messages.len()).collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn an_answer_that_fits_no_datagram_goes_whole_on_the_stream_that_asked_and_else_says_so() {
    let mut post = post();
    from_client(&mut post, |bytes| datagram(50, bytes), 1);
    from_client(&mut post, |bytes| stream(6, bytes), 2);
    post.to_session(CLIENT, &reply(1, 20_000), None);
    post.to_session(CLIENT, &reply(2, 20_000), None);
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
    post.to_session(CLIENT, &recall, None);
    assert_eq!(
        sent(&mut post, &client_key()),
        [(Destination::Address(at(51)), Transport::Datagram, vec![recall])]
    );
}

#[test]
fn small_messages_to_servers_are_packed_and_large_ones_go_by_stream() {
    let mut post = post();
    post.to_server(OTHER, &request(1), None);
    post.to_server(OTHER, &request(2), None);
    post.to_server(OTHER, &reply(3, 100_000), None);
    let packets = sent(&mut post, keys().packets());
    let address = Destination::Address(at(2));
    assert!(packets.contains(&(address, Transport::Datagram, vec![request(1), request(2)])));
    assert!(packets.contains(&(address, Transport::Stream, vec![reply(3, 100_000)])));
    post.to_server(ServerId(99), &request(4), None);
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
    let packet = from_session(&post, 1, Some(&ticket("")), Some(&asked));
    post.open(now(), &mut stream(6, packet));
    let answer = Message::DataReply(DataReply { id: 5, result: Ok(DataBody::Bytes { crc: 0 }) });
    post.answer(Sender::Client(CLIENT), &answer, Some(vec![7; 100_000].into()));
    let sealed = post.take_sealed();
    assert_eq!(sealed[0].to, Destination::Connection(ConnectionId(6)));
    let bulk = sealed[0].bulk.as_deref().cloned().unwrap();
    let opened = envelope::open_with(&sealed[0].packet, bulk, Some(&client_key())).unwrap();
    assert_eq!(opened.attachment, [7; 100_000]);
}

#[test]
fn a_wrong_secret_is_told_so_and_leaves_no_trace() {
    let mut post = post();
    let mut forged = from_session(&post, 1, Some(&ticket("")), Some(&request(1)));
    forged[60] ^= 1;
    let opened = post.open(now(), &mut datagram(50, forged.clone()));
    assert_eq!(opened, Opened::NotTaken { peer: at(50), error: PacketError::Unauthenticated, first: true });
    let again = post.open(now(), &mut datagram(50, forged));
    assert!(matches!(again, Opened::NotTaken { first: false, .. }));
    let refusal = envelope::open(&post.take_sealed()[0].packet, None).unwrap();
    assert_eq!(refusal.messages, [Message::Refused(Refusal::Unauthenticated)]);
    post.to_session(CLIENT, &reply(1, 1), None);
    assert_eq!(post.undeliverable().no_address, 1);
}

#[test]
fn another_version_is_told_ours_and_refusals_are_limited_per_second() {
    let mut post = post();
    let mut old = from_session(&post, 1, Some(&ticket("")), Some(&request(1)));
    old[4] = 200;
    for _ in 0..REFUSALS_PER_SECOND * 2 {
        post.open(now(), &mut datagram(50, old.clone()));
    }
    let sealed = post.take_sealed();
    assert_eq!(sealed.len(), REFUSALS_PER_SECOND as usize);
    let refusal = envelope::open(&sealed[0].packet, None).unwrap();
    assert_eq!(refusal.messages, [Message::Refused(Refusal::Version { speaks: VERSION })]);
    post.open(later(1), &mut datagram(50, old));
    assert_eq!(post.take_sealed().len(), 1);
}

#[test]
fn noise_gets_no_answer() {
    let mut post = post();
    post.open(now(), &mut datagram(50, b"GET / HTTP/1.1\r\n".to_vec()));
    assert!(post.take_sealed().is_empty());
}

/// What was sent as a hint, and where to.
fn hints(post: &mut Post, key: &Key) -> Vec<(Destination, Message)> {
    let hint = |sealed: Sealed| {
        let packet = envelope::open(&sealed.packet, Some(key)).unwrap();
        assert_eq!(packet.header.counter, 0, "a hint moves nothing");
        (sealed.to, packet.messages[0].clone())
    };
    post.take_sealed().into_iter().map(hint).collect()
}

#[test]
fn a_session_is_known_by_its_ticket_at_a_server_that_never_heard_of_it() {
    let mut post = post();
    let without = from_session(&post, 1, None, Some(&request(1)));
    assert_eq!(post.open(now(), &mut datagram(50, without)), Opened::Nothing);
    let refusal = envelope::open(&post.take_sealed()[0].packet, None).unwrap();
    assert_eq!(refusal.messages, [Message::Refused(Refusal::NeedTicket)]);
    from_client(&mut post, |bytes| datagram(50, bytes), 2);
    let without = from_session(&post, 3, None, Some(&request(3)));
    assert!(matches!(post.open(now(), &mut datagram(50, without)), Opened::Messages { .. }));
}

#[test]
fn a_packet_that_was_overheard_is_not_taken_again_and_moves_no_answers() {
    let mut post = post();
    let packet = from_session(&post, 1, Some(&ticket("")), Some(&request(1)));
    assert!(matches!(post.open(now(), &mut datagram(50, packet.clone())), Opened::Messages { .. }));
    assert_eq!(post.open(now(), &mut datagram(66, packet.clone())), Opened::Nothing);
    assert_eq!(post.open(now(), &mut stream(6, packet)), Opened::Nothing);
    post.to_session(CLIENT, &reply(1, 10), None);
    let packets = sent(&mut post, &client_key());
    assert_eq!(packets[0].0, Destination::Address(at(50)), "where the client is");
    assert_eq!((packets.len(), post.replayed()), (1, 2));
    // One that was kept back on the way is new, but moves nothing either.
    let kept_back = from_session(&post, 2, None, Some(&request(2)));
    from_client(&mut post, |bytes| datagram(50, bytes), 3);
    assert!(matches!(post.open(now(), &mut datagram(66, kept_back)), Opened::Messages { .. }));
    post.to_session(CLIENT, &reply(3, 10), None);
    assert_eq!(sent(&mut post, &client_key())[0].0, Destination::Address(at(50)));
}

#[test]
fn after_a_restart_what_was_overheard_gets_the_servers_start_and_nothing_else() {
    let mut before = post();
    from_client(&mut before, |bytes| datagram(50, bytes), 1);
    let overheard = from_session(&before, 2, Some(&ticket("")), Some(&request(2)));
    let mut after = post();
    assert_eq!(after.open(now(), &mut datagram(66, overheard.clone())), Opened::Nothing);
    let welcome = Message::Welcome { versions: Versions::SPOKEN };
    assert_eq!(hints(&mut after, &client_key()), [(Destination::Address(at(66)), welcome)]);
    after.to_session(CLIENT, &reply(2, 10), None);
    assert_eq!(after.undeliverable().no_address, 1, "no way back leads to its sender");
    let short = from_session(&before, 2, None, Some(&request(2)));
    assert_eq!(after.open(now(), &mut datagram(66, short)), Opened::Nothing);
    // The client itself goes on as soon as it names the new start.
    from_client(&mut after, |bytes| datagram(50, bytes), 3);
}

#[test]
fn a_ticket_ends_unless_it_is_renewed() {
    let mut post = post();
    from_client(&mut post, |bytes| datagram(50, bytes), 1);
    let renew = from_session(&post, 2, None, Some(&RENEW));
    assert!(matches!(post.open(later(59), &mut datagram(50, renew)), Opened::Messages { .. }));
    let packets = sent(&mut post, &client_key());
    let [Message::Ticket(TicketMessage::Renewed { ticket: renewed, ticket_seconds })] = &packets[0].2[..]
    else {
        panic!("{packets:?}")
    };
    assert_eq!(u64::from(*ticket_seconds), TICKET_LIFE.as_secs());
    let renewed = Tickets::new(&keys()).open(renewed).unwrap();
    assert_eq!(renewed.expires, later(59).wall.after(TICKET_LIFE));
    let goes_on = from_session(&post, 3, None, Some(&request(3)));
    assert!(matches!(post.open(later(100), &mut datagram(50, goes_on)), Opened::Messages { .. }));
    let old = from_session(&post, 4, Some(&ticket("")), Some(&request(4)));
    assert_eq!(post.open(later(10_000), &mut datagram(50, old)), Opened::Nothing);
    let expired = Message::Refused(Refusal::Expired);
    assert_eq!(hints(&mut post, &client_key()), [(Destination::Address(at(50)), expired)]);
}

#[test]
fn a_revoked_enrolment_is_refused_in_the_middle_of_a_session_and_none_is_let_in_before_that_is_known() {
    let mut post = post();
    let named = ticket("laptops");
    let packet = |post: &Post, counter| from_session(post, counter, Some(&named), Some(&request(counter)));
    let bytes = packet(&post, 1);
    assert_eq!(post.open(now(), &mut datagram(50, bytes)), Opened::Nothing);
    assert!(post.take_sealed().is_empty(), "it is not known yet: the client asks again");
    post.set_revoked(BTreeSet::new());
    let bytes = packet(&post, 2);
    assert!(matches!(post.open(now(), &mut datagram(50, bytes)), Opened::Messages { .. }));
    post.set_revoked(BTreeSet::from([named.enrolment.clone()]));
    let bytes = packet(&post, 3);
    assert_eq!(post.open(now(), &mut datagram(50, bytes)), Opened::Nothing);
    let revoked = Message::Refused(Refusal::Revoked);
    assert_eq!(hints(&mut post, &client_key()), [(Destination::Address(at(50)), revoked)]);
}

#[test]
fn a_client_shakes_hands_and_its_rule_comes_with_every_packet() {
    let mut post = post();
    post.set_revoked(BTreeSet::new());
    let squash = Squash::Root { uid: bearing_types::Uid(9), gid: bearing_types::Gid(9) };
    let name = EnrolmentName::new("laptops").unwrap();
    let enrolment = Enrolment { secret: keys().enrolment(&name, squash), name, squash };
    let mut client = Initiator::new(&enrolment, Versions::SPOKEN, None);
    let mut hello = datagram(50, client.hello().to_vec());
    assert_eq!(post.open(now(), &mut hello), Opened::Nothing);
    let answer = post.take_sealed().remove(0);
    assert_eq!(answer.to, Destination::Address(at(50)));
    let Outcome::Agreed(agreed) = client.take(&answer.packet) else { panic!("no session") };
    assert_eq!((agreed.server, agreed.start), (ME, post.start));
    let stamp = Stamp {
        version: agreed.version,
        sender: Sender::Client(agreed.session),
        counter: 1,
        from: Start::NONE,
        to: agreed.start.0,
        ticket: &agreed.ticket,
    };
    let packet = envelope::seal(&stamp, Some(&Key::new(agreed.secret)), Some(&request(1)), &[]);
    match post.open(now(), &mut datagram(50, packet)) {
        Opened::Messages { sender, squash: found, .. } => {
            assert_eq!((sender, found), (Sender::Client(agreed.session), squash));
        }
        other => panic!("{other:?}"),
    }
    let stranger = Initiator::new(&Key::new([99; 32]).into(), Versions::SPOKEN, None);
    let opened = post.open(now(), &mut datagram(51, stranger.hello().to_vec()));
    assert_eq!(opened, Opened::NoSession { peer: at(51), reason: HelloRefusal::Secret });
}

#[test]
fn a_session_of_a_token_may_join_and_nothing_else_and_no_other_may_join() {
    let join = Message::Join(Join { id: 1, metadata: vec![at(5)], data: Vec::new() });
    for (enrolment, message, is_taken) in [
        ("join.1", &join, true),
        ("join.1", &request(1), false),
        ("laptops", &join, false),
        ("laptops", &request(1), true),
    ] {
        let mut post = post();
        post.set_revoked(BTreeSet::new());
        let packet = from_session(&post, 1, Some(&ticket(enrolment)), Some(message));
        let opened = post.open(now(), &mut datagram(50, packet));
        assert_eq!(
            matches!(opened, Opened::Messages { .. }),
            is_taken,
            "{enrolment}: {message:?}: {opened:?}"
        );
        assert!(is_taken || matches!(opened, Opened::NotTaken { .. }));
        let token = post.token_of(ticket(enrolment).session).map(|(name, _)| name.as_str().to_owned());
        assert_eq!(token.is_some(), enrolment == "join.1" && is_taken);
    }
}

#[test]
fn a_packet_between_servers_is_taken_once_and_only_by_the_life_that_it_was_meant_for() {
    let mut post = post();
    let packet = from_other(&post, 9, 1, &request(1));
    assert!(matches!(post.open(now(), &mut datagram(2, packet.clone())), Opened::Messages { .. }));
    assert_eq!(post.open(now(), &mut datagram(2, packet.clone())), Opened::Nothing);
    let mut restarted = self::post();
    assert_eq!(restarted.open(now(), &mut datagram(2, packet)), Opened::Nothing);
    let welcome = Message::Welcome { versions: Versions::SPOKEN };
    assert_eq!(hints(&mut restarted, keys().packets()), [(Destination::Address(at(2)), welcome)]);
}

#[test]
fn what_is_for_a_server_whose_start_is_not_known_waits_and_goes_when_it_is_told() {
    let mut post = Post::new(ME, keys(), [(ME, at(1)), (OTHER, at(2))]);
    post.to_server(OTHER, &request(1), None);
    post.to_server(OTHER, &reply(3, 100_000), None);
    let greetings = post.take_sealed();
    let opened = |sealed: &Sealed| envelope::open(&sealed.packet, Some(keys().packets())).unwrap();
    assert!(greetings.iter().all(|sealed| opened(sealed).messages.is_empty()));
    let answers = opened(&greetings[0]).header.counter;
    let sender = Sender::Server(OTHER);
    let stamp = Stamp { version: VERSION, sender, counter: 0, from: Start(77), to: answers, ticket: &[] };
    let welcome = Message::Welcome { versions: Versions::SPOKEN };
    let welcome = envelope::seal(&stamp, Some(keys().packets()), Some(&welcome), &[]);
    assert_eq!(post.open(now(), &mut datagram(2, welcome)), Opened::Nothing);
    let sealed = post.take_sealed();
    let said: Vec<Message> = sealed.iter().flat_map(|sealed| opened(sealed).messages).collect();
    assert_eq!(said, [request(1), reply(3, 100_000)]);
    assert!(sealed.iter().all(|sealed| opened(sealed).header.to == 77));
    let first = sealed.iter().find(|sealed| sealed.transport == Transport::Stream).unwrap();
    assert!(opened(first).messages.is_empty(), "a stream begins with a short packet that proves who we are");
}

#[test]
fn a_greeting_that_another_server_answers_tells_nothing_of_the_one_that_was_greeted() {
    let third = ServerId(3);
    let mut post = Post::new(ME, keys(), [(ME, at(1)), (OTHER, at(2)), (third, at(3))]);
    post.to_server(OTHER, &request(1), None);
    let opened = |sealed: &Sealed| envelope::open(&sealed.packet, Some(keys().packets())).unwrap();
    let answers = opened(&post.take_sealed()[0]).header.counter;
    let welcome = |from: ServerId, start: u64| {
        let (sender, from) = (Sender::Server(from), Start(start));
        let stamp = Stamp { version: VERSION, sender, counter: 0, from, to: answers, ticket: &[] };
        let welcome = Message::Welcome { versions: Versions::SPOKEN };
        envelope::seal(&stamp, Some(keys().packets()), Some(&welcome), &[])
    };
    // Whoever overheard the greeting sent it to the third server.
    assert_eq!(post.open(now(), &mut datagram(2, welcome(third, 33))), Opened::Nothing);
    assert!(post.take_sealed().is_empty(), "what is meant for one server is not stamped for another");
    assert_eq!(post.open(now(), &mut datagram(2, welcome(OTHER, 22))), Opened::Nothing);
    let sealed = post.take_sealed();
    assert_eq!((opened(&sealed[0]).header.to, &opened(&sealed[0]).messages[..]), (22, &[request(1)][..]));
}

proptest::proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_and_are_never_taken(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..700), kind in 0u8..4) {
        let mut post = post();
        let mut with_head = vec![b'B', b'R', b'N', b'G', 6, 0, kind, 0];
        with_head.extend_from_slice(&bytes);
        for bytes in [bytes, with_head] {
            let opened = post.open(now(), &mut datagram(50, bytes));
            let is_taken = matches!(opened, Opened::Messages { .. });
            proptest::prop_assert!(!is_taken);
        }
    }
}
