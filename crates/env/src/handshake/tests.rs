use super::*;
use bearing_proto::enrolment::{Enrolment, EnrolmentName};
use bearing_proto::envelope::{Start, Versions};
use bearing_proto::hello::{Answer, HelloRefusal, Reaction};
use bearing_proto::keys::{Key, ServerKeys};
use bearing_types::{Gid, Mono, Now, ServerId, Squash, Uid, Wall};
use proptest::prelude::*;
use std::net::SocketAddr;
use std::time::Duration;

const LIFE: Duration = Duration::from_secs(3600);
const START: Start = Start(42);
const SIX: Versions = Versions { lowest: 6, highest: 6 };

fn keys() -> ServerKeys {
    ServerKeys::new(&Key::new([1; 32]), Key::new([2; 32]))
}

fn server(versions: Versions) -> Responder {
    Responder::new(ServerId(3), versions, keys(), LIFE)
}

fn default_enrolment() -> Enrolment {
    Key::new([2; 32]).into()
}

fn named(squash: Squash) -> Enrolment {
    let name = EnrolmentName::new("laptops").unwrap();
    Enrolment { secret: keys().enrolment(&name, squash), name, squash }
}

fn peer(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn now() -> Now {
    Now { mono: Mono(5_000_000_000), wall: Wall(1_000_000_000_000) }
}

fn said(heard: Heard) -> Vec<u8> {
    match heard {
        Heard::Answer(bytes) | Heard::Refusal(_, bytes) => bytes,
        Heard::Nothing => panic!("no answer"),
    }
}

fn shake(server: &mut Responder, enrolment: &Enrolment, versions: Versions) -> Outcome {
    let mut client = Initiator::new(enrolment, versions, None);
    let answer = said(server.take(now(), peer(1), START, client.hello(), |_| Some(false)));
    assert!(answer.len() < client.hello().len(), "nobody is made to send more than was sent to him");
    client.take(&answer)
}

#[test]
fn both_sides_agree_on_a_session_and_any_server_opens_its_ticket() {
    let squash = Squash::Root { uid: Uid(65_534), gid: Gid(65_534) };
    for enrolment in [default_enrolment(), named(squash)] {
        let Outcome::Agreed(agreed) = shake(&mut server(SIX), &enrolment, SIX) else { panic!("no session") };
        let ticket = Tickets::new(&keys()).open(&agreed.ticket).expect("any server opens it");
        assert_eq!((ticket.session, ticket.secret.bytes()), (agreed.session, &agreed.secret));
        assert_eq!((ticket.enrolment, ticket.squash), (enrolment.name, enrolment.squash));
        assert_eq!((ticket.expires, agreed.ticket_seconds), (now().wall.after(LIFE), 3600));
        assert_eq!((agreed.server, agreed.start, agreed.version), (ServerId(3), START, 6));
        let other = ServerKeys::new(&Key::new([9; 32]), Key::new([2; 32]));
        assert_eq!(Tickets::new(&other).open(&agreed.ticket), None, "another cluster's does not");
    }
}

#[test]
fn sessions_of_one_enrolment_share_nothing() {
    let mut server = server(SIX);
    let mut agreed = || match shake(&mut server, &default_enrolment(), SIX) {
        Outcome::Agreed(agreed) => agreed,
        other => panic!("{other:?}"),
    };
    let (one, other) = (agreed(), agreed());
    assert_ne!(one.session, other.session);
    assert_ne!(one.secret, other.secret);
}

#[test]
fn the_highest_common_version_is_agreed_and_none_is_refused_naming_the_servers() {
    let versions = |lowest, highest| Versions { lowest, highest };
    let cases = [(versions(6, 7), SIX, 6), (versions(6, 7), versions(6, 7), 7), (SIX, versions(5, 9), 6)];
    for (offers, speaks, expected) in cases {
        let Outcome::Agreed(agreed) = shake(&mut server(speaks), &default_enrolment(), offers) else {
            panic!("{offers} and {speaks} have {expected}")
        };
        assert_eq!(agreed.version, expected);
        assert_eq!(Tickets::new(&keys()).open(&agreed.ticket).unwrap().version, expected);
    }
    match shake(&mut server(SIX), &default_enrolment(), versions(8, 8)) {
        Outcome::Refused(HelloRefusal::Version, speaks) => assert_eq!(speaks, SIX),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_hello_that_the_version_before_sent_is_refused_with_the_versions_of_this_one() {
    let recorded = include_str!("../../../proto/tests/protocol_6.txt").lines().skip(1);
    let hex: String = recorded.map_while(|line| line.strip_prefix("    ")).collect();
    let hello: Vec<u8> =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    let answer = server(Versions::SPOKEN).take(now(), peer(1), START, &hello, |_| Some(false));
    let Heard::Refusal(HelloRefusal::Version, answer) = answer else { panic!("{answer:?}") };
    assert_eq!(Answer::decode(&answer).unwrap().versions, Versions::SPOKEN);
}

#[test]
fn nobody_on_the_way_talks_two_sides_down_to_an_older_version() {
    let mut client = Initiator::new(&default_enrolment(), Versions { lowest: 6, highest: 7 }, None);
    let mut hello = client.hello().to_vec();
    hello[4] = 6;
    let mut server = server(Versions { lowest: 6, highest: 7 });
    let answer = server.take(now(), peer(1), START, &hello, |_| Some(false));
    assert!(matches!(answer, Heard::Refusal(HelloRefusal::Secret, _)), "{answer:?}");
    let honest = said(server.take(now(), peer(1), START, client.hello(), |_| Some(false)));
    let mut changed = honest.clone();
    *changed.last_mut().unwrap() ^= 1;
    assert!(matches!(client.take(&changed), Outcome::Nothing));
}

#[test]
fn a_wrong_secret_a_changed_rule_and_a_revoked_name_are_refused_each_by_its_reason() {
    let refused = |enrolment: &Enrolment, revoked: Option<bool>| {
        let client = Initiator::new(enrolment, SIX, None);
        match server(SIX).take(now(), peer(1), START, client.hello(), |_| revoked) {
            Heard::Refusal(reason, _) => Some(reason),
            Heard::Answer(_) => None,
            Heard::Nothing => panic!("no answer"),
        }
    };
    let wrong: Enrolment = Key::new([3; 32]).into();
    assert_eq!(refused(&wrong, Some(false)), Some(HelloRefusal::Secret));
    let squashed = named(Squash::All { uid: Uid(7), gid: Gid(7) });
    assert_eq!(refused(&squashed, Some(false)), None);
    let freed = Enrolment { squash: Squash::None, ..squashed.clone() };
    assert_eq!(refused(&freed, Some(false)), Some(HelloRefusal::Secret));
    assert_eq!(refused(&squashed, Some(true)), Some(HelloRefusal::Revoked));
}

#[test]
fn many_handshakes_need_a_cookie_of_the_address_and_more_than_the_limit_are_not_computed() {
    let mut server = server(SIX);
    let overheard = Initiator::new(&default_enrolment(), SIX, None);
    let exchanges = |server: &mut Responder, count: usize, from: u16| -> usize {
        let agreed = |answer: &Heard| match answer {
            Heard::Answer(bytes) => matches!(Answer::decode(bytes).unwrap().reaction, Reaction::Agreed(_)),
            _ => false,
        };
        let mut take = || server.take(now(), peer(from), START, overheard.hello(), |_| Some(false));
        (0..count).filter(|_| agreed(&take())).count()
    };
    assert_eq!(exchanges(&mut server, 5000, 66), 200, "whoever only repeats what he heard gets no further");
    // An honest client does as it is told, and gets its session.
    let mut client = Initiator::new(&default_enrolment(), SIX, None);
    let answer = said(server.take(now(), peer(1), START, client.hello(), |_| Some(false)));
    let Outcome::Cookie(cookie) = client.take(&answer) else { panic!("no cookie") };
    let mut client = Initiator::new(&default_enrolment(), SIX, Some(cookie));
    let elsewhere = said(server.take(now(), peer(2), START, client.hello(), |_| Some(false)));
    assert!(matches!(client.take(&elsewhere), Outcome::Cookie(_)), "a cookie is good for its address only");
    let answer = said(server.take(now(), peer(1), START, client.hello(), |_| Some(false)));
    assert!(matches!(client.take(&answer), Outcome::Agreed(_)));
    // A second later cookies are not asked for any more.
    let later = Now { mono: now().mono.after(Duration::from_secs(1)), ..now() };
    let answer = server.take(later, peer(66), START, overheard.hello(), |_| Some(false));
    assert!(matches!(Answer::decode(&said(answer)).unwrap().reaction, Reaction::Agreed(_)));
}

#[test]
fn strangers_who_send_hellos_without_end_keep_no_client_out() {
    let mut server = server(SIX);
    let stranger: Enrolment = Key::new([9; 32]).into();
    let spoofed = |n: u32| SocketAddr::from((std::net::Ipv4Addr::from_bits(0x0a00_0000 + n), 7));
    let mut take = |from: SocketAddr, bytes: &[u8]| server.take(now(), from, START, bytes, |_| Some(false));
    // Short ones are none, and count for nothing; but for their secret the others are as good as any.
    let hello = Initiator::new(&stranger, SIX, None);
    for n in 0..20_000 {
        assert_eq!(take(spoofed(n), &hello.hello()[..32]), Heard::Nothing);
        assert_ne!(take(spoofed(n), hello.hello()), Heard::Nothing);
    }
    // One who answers at his address has the part of that address.
    let mut with_cookie = |enrolment: &Enrolment, from: SocketAddr| {
        let mut asking = Initiator::new(enrolment, SIX, None);
        let answer = said(take(from, asking.hello()));
        let Outcome::Cookie(cookie) = asking.take(&answer) else { panic!("no cookie") };
        Initiator::new(enrolment, SIX, Some(cookie))
    };
    let hello = with_cookie(&stranger, spoofed(1));
    let mut client = with_cookie(&default_enrolment(), peer(1));
    let read = (0..20_000).filter(|_| take(spoofed(1), hello.hello()) != Heard::Nothing).count();
    assert_eq!(read, 200);
    let answer = said(take(peer(1), client.hello()));
    assert!(matches!(client.take(&answer), Outcome::Agreed(_)));
}

#[test]
fn a_renewed_ticket_is_of_the_same_session() {
    let server = server(SIX);
    let Outcome::Agreed(agreed) = shake(&mut self::server(SIX), &default_enrolment(), SIX) else { panic!() };
    let ticket = server.open_ticket(&agreed.ticket).unwrap();
    let later = Now { wall: now().wall.after(LIFE), ..now() };
    let (renewed, seconds) = server.renew(later, &ticket);
    let renewed = server.open_ticket(&renewed).unwrap();
    assert_eq!(renewed, bearing_proto::ticket::Ticket { expires: later.wall.after(LIFE), ..ticket });
    assert_eq!(seconds, 3600);
}

proptest! {
    #[test]
    fn a_changed_ticket_is_none(at in 0usize..200, bit in 0u8..8) {
        let Outcome::Agreed(agreed) = shake(&mut server(SIX), &default_enrolment(), SIX) else { panic!() };
        let mut bytes = agreed.ticket;
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        prop_assert_eq!(Tickets::new(&keys()).open(&bytes), None);
        prop_assert_eq!(Tickets::new(&keys()).open(&bytes[..at]), None);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..1100), kind in 0u8..4) {
        let mut with_head = b"BRNG\x07\x00\x03".to_vec();
        with_head.push(kind);
        with_head.extend_from_slice(&bytes);
        let (mut server, mut client) = (server(SIX), Initiator::new(&default_enrolment(), SIX, None));
        for bytes in [&bytes, &with_head] {
            let _ = server.take(now(), peer(1), START, bytes, |_| Some(false));
            prop_assert!(!matches!(client.take(bytes), Outcome::Agreed(_)));
            let _ = server.open_ticket(bytes);
        }
        // As if it were the answer to this very try.
        if with_head.len() >= 18 {
            with_head[10..18].copy_from_slice(&client.hello()[10..18]);
            prop_assert!(!matches!(client.take(&with_head), Outcome::Agreed(_)));
        }
    }
}
