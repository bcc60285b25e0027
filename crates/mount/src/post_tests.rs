//! What goes out in which packets, and which packets that come in are believed.

use super::*;
use bearing_env::Incoming;
use bearing_env::handshake::{Heard, Responder};
use bearing_proto::client::{Call, Request};
use bearing_proto::envelope::{Stamp, Start, VERSION};
use bearing_proto::keys::{Key, ServerKeys};
use bearing_types::{Epoch, Now, Position, Sequence};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
const SERVER: ServerId = ServerId(1);
const START: Start = Start(7);

fn local() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn message(sequence: u64) -> Message {
    Message::Request(Request {
        sequence: Sequence(sequence),
        finished_below: Sequence(0),
        position: Position(u64::MAX),
        epoch: Epoch(1),
        call: Call::Statfs,
    })
}

fn letter(sequence: u64, attachment: Vec<u8>, transport: Transport) -> Errand {
    let (to, message, life) = (Target::AnySeed, message(sequence), Life::default());
    Errand::Send(Letter { to, transport, message, attachment, life })
}

/// A post and the server at the other end.
struct Both {
    post: Post,
    endpoint: Endpoint,
    server: Endpoint,
    responder: Responder,
    received: Vec<Incoming>,
    events: Vec<Event>,
}

impl Both {
    fn new() -> Both {
        let (server, endpoint) = (Endpoint::server(local()).unwrap(), Endpoint::client_at(local()).unwrap());
        let keys = ServerKeys::new(&Key::new([1; 32]), Key::new([2; 32]));
        let responder = Responder::new(SERVER, Versions::SPOKEN, keys, Duration::from_secs(60));
        let post = Post::new(Key::new([2; 32]).into(), &endpoint, vec![server.local_address()]);
        Both { post, endpoint, server, responder, received: Vec::new(), events: Vec::new() }
    }

    fn enrolled() -> Both {
        let mut both = Both::new();
        assert!(both.post.send(vec![Errand::Enrol]).is_empty());
        both.turn_until(|both| !both.received.is_empty());
        let hello = both.received.remove(0);
        let heard = both.responder.take(now(), hello.peer, START, &hello.bytes, |_| Some(false));
        let Heard::Answer(answer) = heard else { panic!("{heard:?}") };
        both.server.send(hello.from, hello.transport, &answer).unwrap();
        both.turn_until(|both| !both.events.is_empty());
        let session = both.post.session().unwrap();
        assert_eq!(std::mem::take(&mut both.events), [Event::Enrolled(session)]);
        both
    }

    fn turn_until(&mut self, done: impl Fn(&Both) -> bool) {
        let start = std::time::Instant::now();
        while !done(self) {
            assert!(start.elapsed() < PATIENCE, "{} packets, {:?}", self.received.len(), self.events);
            let mut incoming = Vec::new();
            assert!(self.post.hand_over(&mut self.endpoint).is_empty());
            self.endpoint.receive(Some(Duration::from_millis(1)), &mut incoming).unwrap();
            for Incoming { peer, bytes, bulk, .. } in incoming {
                self.events.extend(self.post.open(peer, &bytes, bulk));
            }
            self.server.receive(Some(Duration::from_millis(1)), &mut self.received).unwrap();
            self.received.iter().for_each(|packet| {
                if let Destination::Connection(id) = packet.from {
                    self.server.vouch(id, bearing_env::Peer::Client(1));
                }
            });
        }
    }

    fn key(&self) -> Key {
        self.post.line().session().unwrap().key.clone()
    }

    fn opened(&self) -> Vec<(bearing_env::Transport, Packet)> {
        let open = |incoming: &Incoming| {
            let (bytes, bulk) = (&incoming.bytes, incoming.bulk.clone());
            (incoming.transport, envelope::open_with(bytes, bulk, Some(&self.key())).unwrap())
        };
        self.received.iter().map(open).collect()
    }

    /// Sends errands and returns what the server got: packets, and the messages in each, without greetings.
    fn sent(&mut self, errands: Vec<Errand>, expected: usize) -> Vec<(bearing_env::Transport, Packet)> {
        assert!(self.post.send(errands).is_empty());
        let count =
            |both: &Both| -> usize { both.opened().iter().map(|(_, packet)| packet.messages.len()).sum() };
        self.turn_until(|both| count(both) >= expected);
        let mut packets = self.opened();
        packets.retain(|(_, packet)| !packet.messages.is_empty());
        packets
    }

    fn said_by_server(&self, counter: u64, from: Start, to: u64, message: &Message) -> Vec<u8> {
        let sender = Sender::Server(SERVER);
        let stamp = Stamp { version: VERSION, sender, counter, from, to, ticket: &[] };
        envelope::seal(&stamp, Some(&self.key()), Some(message), b"bulk")
    }

    fn open(&self, packet: &[u8]) -> Vec<Event> {
        self.post.open(self.server.local_address(), packet, Vec::new())
    }
}

fn now() -> Now {
    Clock.now()
}

#[test]
fn messages_to_one_server_share_a_datagram_up_to_its_size() {
    let letters = |count: u64| (0..count).map(|n| letter(n, vec![], Transport::Datagram)).collect::<Vec<_>>();
    assert_eq!(Both::enrolled().sent(letters(20), 20).len(), 1);
    let many = Both::enrolled().sent(letters(900), 900);
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
    let counters: Vec<u64> = many.iter().map(|(_, packet)| packet.header.counter).collect();
    assert_eq!(counters, [1, 2]);
    assert!(many.iter().all(|(_, packet)| packet.header.to == START.0), "known from the handshake");
}

#[test]
fn bulk_bytes_travel_alone_and_by_stream_when_they_are_many() {
    let errands = vec![
        letter(0, vec![], Transport::Datagram),
        letter(1, vec![7; 100], Transport::Datagram),
        letter(2, vec![8; 1 << 20], Transport::Datagram),
        letter(3, vec![], Transport::Stream),
        letter(4, vec![], Transport::Datagram),
    ];
    let packets = Both::enrolled().sent(errands, 5);
    assert_eq!(packets.len(), 5);
    let by_stream: Vec<usize> = packets
        .iter()
        .filter(|(transport, _)| *transport == bearing_env::Transport::Stream)
        .map(|(_, packet)| packet.attachment.len())
        .collect();
    assert_eq!(by_stream, [1 << 20, 0]);
}

#[test]
fn a_server_whose_start_is_not_known_is_greeted_and_gets_what_waited_once_it_says_so() {
    for transport in [Transport::Datagram, Transport::Stream] {
        let mut both = Both::enrolled();
        let address = both.server.local_address();
        let session = both.post.line().session().unwrap().clone();
        *both.post.line() = Line::default();
        both.post.line().set_session(session);
        assert!(both.post.send(vec![letter(1, vec![3; 50], transport)]).is_empty());
        both.turn_until(|both| !both.received.is_empty());
        let (_, greeting) = both.opened().remove(0);
        assert!(greeting.messages.is_empty(), "nothing is said to an unknown life of a server");
        assert!(!envelope::ticket(&both.received[0].bytes, &greeting.header).is_empty());
        let welcome = Message::Welcome { versions: Versions::SPOKEN };
        let welcome = both.said_by_server(0, Start(99), greeting.header.counter, &welcome);
        assert_eq!(both.post.open(address, &welcome, Vec::new()), []);
        let packets = both.sent(vec![], 1);
        assert_eq!((packets[0].1.header.to, &packets[0].1.messages[..]), (99, &[message(1)][..]));
        assert_eq!(both.post.open(address, &welcome, Vec::new()), [], "overheard and sent again");
    }
}

#[test]
fn a_server_that_was_started_again_is_reported_and_its_old_packets_are_nothing() {
    let both = Both::enrolled();
    let address = both.server.local_address();
    both.post.set_servers(
        vec![ServerEntry { server: SERVER, kind: bearing_proto::client::ServerKind::Metadata, address }],
        None,
    );
    let old = both.said_by_server(1, START, 0, &message(1));
    let counter = both.post.line().greet(address).map(|greeting| greeting.packet()).unwrap();
    let answers = envelope::header(&counter).unwrap().counter;
    let welcome = both.said_by_server(0, Start(8), answers, &Message::Welcome { versions: Versions::SPOKEN });
    assert_eq!(both.open(&welcome), [Event::Unreachable(SERVER)]);
    assert_eq!(both.open(&old), []);
    assert_eq!(both.open(&both.said_by_server(1, Start(8), 0, &message(1))).len(), 1);
}

#[test]
fn what_was_to_be_said_in_a_session_that_is_over_is_not_said_in_the_next() {
    let mut both = Both::enrolled();
    let late = [Transport::Datagram, Transport::Stream].map(|transport| letter(1, vec![], transport));
    both.post.send(vec![letter(2, vec![], Transport::Stream)]);
    both.post.begin_life();
    both.post.send(late.to_vec());
    let Errand::Send(new) = letter(3, vec![], Transport::Datagram) else { unreachable!() };
    let new = Errand::Send(Letter { life: both.post.life(), ..new });
    let packets = both.sent(vec![new], 1);
    let said: Vec<&Message> = packets.iter().flat_map(|(_, packet)| &packet.messages).collect();
    assert_eq!(said, [&message(3)]);
}

#[test]
fn a_server_without_an_address_is_unreachable() {
    let both = Both::enrolled();
    let Errand::Send(lost) = letter(0, vec![], Transport::Datagram) else { unreachable!() };
    let lost = Errand::Send(Letter { to: Target::Server(ServerId(4)), ..lost });
    assert_eq!(both.post.send(vec![lost, letter(1, vec![], Transport::Datagram)]), [ServerId(4)]);
}

#[test]
fn what_is_not_signed_with_the_session_secret_or_came_before_says_nothing() {
    let both = Both::enrolled();
    let packet = both.said_by_server(5, START, 0, &message(1));
    assert_eq!(both.open(&packet).len(), 1);
    assert_eq!(both.open(&packet).len(), 0, "a second time");
    assert_eq!(both.open(&both.said_by_server(4, START, 0, &message(2))).len(), 1, "overtaken on the way");
    let mut forged = both.said_by_server(6, START, 0, &message(1));
    forged[60] ^= 1;
    assert_eq!(both.open(&forged).len(), 0);
    assert_eq!(both.post.packets_refused(), 2);
    let refusal = |refusal| envelope::seal(&Stamp::NOBODY, None, Some(&Message::Refused(refusal)), &[]);
    assert_eq!(both.open(&refusal(Refusal::Unauthenticated)), [Event::Refused(Refusal::Unauthenticated)]);
    assert_eq!(both.open(&refusal(Refusal::Revoked)), [], "only what is signed says that");
    let revoked = Message::Refused(Refusal::Revoked);
    assert_eq!(
        both.open(&both.said_by_server(0, START, 9, &revoked)),
        [],
        "it answers nothing that was sent"
    );
    both.post.send(vec![letter(1, vec![], Transport::Datagram)]);
    assert_eq!(both.open(&both.said_by_server(0, START, 1, &revoked)), [Event::Refused(Refusal::Revoked)]);
    let mut other = refusal(Refusal::Unauthenticated);
    other[4] = 99;
    assert_eq!(both.open(&other), [Event::Refused(Refusal::Version { speaks: 99 })]);
}

#[test]
fn a_ticket_that_has_its_time_before_it_is_not_over_whatever_a_signed_refusal_says() {
    let both = Both::enrolled();
    both.post.send(vec![letter(1, vec![], Transport::Datagram)]);
    let expired = both.said_by_server(0, START, 1, &Message::Refused(Refusal::Expired));
    let stranger = "192.0.2.1:9".parse().unwrap();
    assert_eq!(
        both.post.open(stranger, &expired, Vec::new()),
        [],
        "it answers an old packet that somebody sent again"
    );
    assert_eq!(both.open(&expired), [], "the clock of that server is wrong");
    let renewed = |ticket_seconds| TicketMessage::Renewed { ticket: vec![1; 100], ticket_seconds };
    assert_eq!(both.open(&both.said_by_server(1, START, 0, &Message::Ticket(renewed(60)))), []);
    assert_eq!(both.open(&expired), [], "another ticket is shown now");
    assert_eq!(both.open(&both.said_by_server(2, START, 0, &Message::Ticket(renewed(0)))), []);
    assert_eq!(both.open(&expired), [Event::Refused(Refusal::Expired)]);
}

#[test]
fn a_greeting_that_another_server_answers_tells_nothing_of_the_one_that_was_greeted() {
    let both = Both::enrolled();
    let address = both.server.local_address();
    let kind = bearing_proto::client::ServerKind::Data;
    let entry = |server| ServerEntry { server, kind, address };
    both.post.set_servers(vec![entry(ServerId(9))], None);
    let greeting = both.post.line().greet(address).unwrap().packet();
    let answers = envelope::header(&greeting).unwrap().counter;
    let welcome = both.said_by_server(0, Start(8), answers, &Message::Welcome { versions: Versions::SPOKEN });
    assert_eq!(both.open(&welcome), [], "server 9 is there, and the answer is another's");
    both.post.set_servers(vec![entry(ServerId(9)), entry(SERVER)], None);
    assert_eq!(both.open(&welcome).len(), 2, "both serve at this address, and began anew");
}

#[test]
fn a_stranger_who_asks_for_a_ticket_is_shown_none() {
    let mut both = Both::enrolled();
    let refusal = Message::Refused(Refusal::NeedTicket);
    let need_ticket = envelope::seal(&Stamp::NOBODY, None, Some(&refusal), &[]);
    let stranger = Endpoint::server(local()).unwrap();
    assert_eq!(both.post.open(stranger.local_address(), &need_ticket, Vec::new()), []);
    assert_eq!(both.open(&need_ticket), []);
    both.turn_until(|both| !both.received.is_empty());
    let (_, greeting) = both.opened().remove(0);
    assert!(!envelope::ticket(&both.received[0].bytes, &greeting.header).is_empty());
    assert_eq!(greeting.header.counter, 1, "nothing was signed for the stranger");
}

#[test]
fn a_session_is_agreed_on_anew_with_a_cookie_when_the_server_wants_one() {
    let mut both = Both::new();
    assert!(both.post.send(vec![Errand::Enrol]).is_empty());
    both.turn_until(|both| !both.received.is_empty());
    let hello = both.received.remove(0);
    let (said, _) = hello::Hello::decode(&hello.bytes).unwrap();
    let reaction = hello::Reaction::Cookie([4; hello::COOKIE_BYTES]);
    let answer = hello::Answer { versions: said.versions, try_number: said.try_number, reaction };
    both.server.send(hello.from, hello.transport, &answer.encode()).unwrap();
    both.turn_until(|both| !both.received.is_empty());
    let (again, _) = hello::Hello::decode(&both.received[0].bytes).unwrap();
    assert_eq!(again.cookie, Some([4; hello::COOKIE_BYTES]));
}
