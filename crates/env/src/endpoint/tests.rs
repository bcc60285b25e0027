use super::*;
use socket2::{Domain, Socket, Type};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// Far more than anything here takes; only a broken endpoint gets there.
const DEADLINE: Duration = Duration::from_secs(20);

fn loopbacks() -> [SocketAddr; 2] {
    ["127.0.0.1:0".parse().unwrap(), "[::1]:0".parse().unwrap()]
}

fn server() -> Endpoint {
    Endpoint::server(loopbacks()[0]).unwrap()
}

/// As if every packet were signed.
fn vouch_for_all(endpoint: &mut Endpoint, incoming: &[Incoming]) {
    for packet in incoming {
        if let Destination::Connection(connection) = packet.from {
            endpoint.vouch(connection, Peer::Client(7));
        }
    }
}

/// Drives endpoints in turn until a condition holds.
fn drive(endpoints: &mut [(&mut Endpoint, &mut Vec<Incoming>)], mut done: impl FnMut(&[usize]) -> bool) {
    let started = Instant::now();
    loop {
        let counts: Vec<usize> = endpoints.iter().map(|(_, incoming)| incoming.len()).collect();
        if done(&counts) {
            return;
        }
        assert!(started.elapsed() < DEADLINE, "still waiting with {counts:?} packets");
        for (endpoint, incoming) in endpoints.iter_mut() {
            endpoint.receive(Some(Duration::from_millis(1)), incoming).unwrap();
            vouch_for_all(endpoint, incoming);
        }
    }
}

fn wait_for(endpoint: &mut Endpoint, count: usize) -> Vec<Incoming> {
    let mut incoming = Vec::new();
    drive(&mut [(endpoint, &mut incoming)], |counts| counts[0] >= count);
    incoming
}

/// The first packet from an address, whoever else sends something.
fn packet_of(endpoint: &mut Endpoint, peer: SocketAddr) -> Incoming {
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < DEADLINE, "nothing came from {peer}");
        let packet = wait_for(endpoint, 1).into_iter().find(|packet| packet.peer == peer);
        if let Some(packet) = packet {
            return packet;
        }
    }
}

#[test]
fn datagrams_go_both_ways_over_both_families() {
    for address in loopbacks() {
        let mut server = Endpoint::server(address).unwrap();
        let mut client = Endpoint::client().unwrap();
        client.send(Destination::Address(server.local_address()), Transport::Datagram, b"question").unwrap();
        client.flush().unwrap();
        let question = wait_for(&mut server, 1).remove(0);
        assert_eq!((question.bytes.as_slice(), question.transport), (&b"question"[..], Transport::Datagram));
        server.send(question.from, question.transport, b"answer").unwrap();
        server.flush().unwrap();
        let answer = wait_for(&mut client, 1).remove(0);
        assert_eq!(answer.bytes, b"answer");
        assert_eq!(answer.from, Destination::Address(server.local_address()), "as the client knows it");
    }
}

#[test]
fn a_wildcard_server_serves_both_families() {
    let mut server = Endpoint::server("[::]:0".parse().unwrap()).unwrap();
    let mut client = Endpoint::client().unwrap();
    for (n, address) in loopbacks().into_iter().enumerate() {
        let to = Destination::Address(SocketAddr::new(address.ip(), server.local_address().port()));
        for transport in [Transport::Datagram, Transport::Stream] {
            client.send(to, transport, &[n as u8]).unwrap();
            client.flush().unwrap();
            let (mut at_server, mut at_client) = (Vec::new(), Vec::new());
            drive(&mut [(&mut server, &mut at_server), (&mut client, &mut at_client)], |counts| {
                counts[0] == 1
            });
            assert_eq!(at_server[0].peer.is_ipv4(), address.is_ipv4());
            server.send(at_server[0].from, transport, b"ok").unwrap();
            drive(&mut [(&mut server, &mut at_server), (&mut client, &mut at_client)], |counts| {
                counts[1] == 1
            });
            assert_eq!(at_client[0].from, to);
        }
    }
}

#[test]
fn many_datagrams_arrive_in_batches_whatever_their_size() {
    let mut server = server();
    let mut client = Endpoint::client().unwrap();
    let to = Destination::Address(server.local_address());
    let mut received = Vec::new();
    for round in 0..10 {
        for n in 0..20 {
            let size = if n == 0 { DATAGRAM_BYTES_MAX } else { round * 100 + n };
            client.send(to, Transport::Datagram, &vec![n as u8; size]).unwrap();
        }
        client.flush().unwrap();
        let mut incoming = wait_for(&mut server, 20);
        incoming.iter().for_each(|packet| assert!(packet.bytes.iter().all(|byte| *byte == packet.bytes[0])));
        received.extend(incoming.iter().map(|packet| packet.bytes.len()));
        incoming.drain(..).for_each(|packet| server.recycle(packet.bytes));
    }
    assert_eq!(received.len(), 200);
    assert_eq!(server.counters().datagrams_received, 200);
    assert_eq!(client.counters().datagrams_sent, 200);
}

#[test]
fn packets_beyond_their_transport_are_refused_before_sending() {
    let mut client = Endpoint::client().unwrap();
    let to = Destination::Address("127.0.0.1:9".parse().unwrap());
    let too_large = client.send(to, Transport::Datagram, &vec![0; DATAGRAM_BYTES_MAX + 1]);
    assert!(matches!(too_large, Err(SendError::TooLarge { bytes: 65_508, .. })));
    let too_large = client.send(to, Transport::Stream, &vec![0; PACKET_BYTES_MAX + 1]);
    assert!(matches!(too_large, Err(SendError::TooLarge { .. })));
    let gone = client.send(Destination::Connection(ConnectionId(77)), Transport::Stream, b"x");
    assert_eq!(gone, Err(SendError::Gone));
    assert_eq!(client.counters().packets_not_queued, 3);
}

#[test]
fn stream_packets_of_all_sizes_arrive_in_order_and_answers_come_back_on_the_same_stream() {
    for address in loopbacks() {
        let mut server = Endpoint::server(address).unwrap();
        let mut client = Endpoint::client().unwrap();
        let to = Destination::Address(server.local_address());
        let sizes = [0, 1, 3, 4, 65_531, 65_536, 65_537, 200_000, PACKET_BYTES_MAX, 5, 1_000_000];
        for (n, size) in sizes.iter().enumerate() {
            client.send(to, Transport::Stream, &vec![n as u8; *size]).unwrap();
        }
        let (mut at_server, mut at_client) = (Vec::new(), Vec::new());
        drive(&mut [(&mut client, &mut at_client), (&mut server, &mut at_server)], |counts| {
            counts[1] == sizes.len()
        });
        for (n, packet) in at_server.iter().enumerate() {
            assert_eq!(packet.bytes.len(), sizes[n]);
            assert!(packet.bytes.iter().all(|byte| *byte == n as u8), "packet {n} holds its own bytes only");
            server.send(packet.from, packet.transport, &packet.bytes).unwrap();
        }
        drive(&mut [(&mut server, &mut at_server), (&mut client, &mut at_client)], |counts| {
            counts[1] == sizes.len()
        });
        assert!(at_client.iter().zip(&at_server).all(|(a, b)| a.bytes == b.bytes && a.from == to));
        assert_eq!(server.counters().connections_accepted, 1);
    }
}

#[test]
fn a_peer_that_does_not_listen_is_reported_once() {
    // Kept, but not listened on: a port that is free is soon another test's, or the very one that the client
    // connects from.
    let kept = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    kept.bind(&loopbacks()[0].into()).unwrap();
    let address = kept.local_addr().unwrap().as_socket().unwrap();
    let mut client = Endpoint::client().unwrap();
    let mut failures = Vec::new();
    let _ = client.send(Destination::Address(address), Transport::Stream, b"anybody there?");
    let started = Instant::now();
    while failures.is_empty() {
        assert!(started.elapsed() < DEADLINE);
        client.receive(Some(Duration::from_millis(1)), &mut Vec::new()).unwrap();
        client.take_failures(&mut failures);
    }
    assert_eq!(failures, [address]);
}

#[test]
fn a_restarted_server_on_the_same_port_is_reached_again_after_the_failure_is_reported() {
    let mut first = server();
    let address = first.local_address();
    let mut client = Endpoint::client().unwrap();
    let to = Destination::Address(address);
    client.send(to, Transport::Stream, b"one").unwrap();
    let (mut at_server, mut at_client) = (Vec::new(), Vec::new());
    drive(&mut [(&mut client, &mut at_client), (&mut first, &mut at_server)], |counts| counts[1] == 1);
    drop(first);
    let (mut failures, started) = (Vec::new(), Instant::now());
    // Whoever else was given the port in between is a test that soon ends.
    let mut second = loop {
        match Endpoint::server(address) {
            Ok(second) => break second,
            Err(error) => assert!(started.elapsed() < DEADLINE, "{error}"),
        }
    };
    while failures.is_empty() {
        assert!(started.elapsed() < DEADLINE);
        client.receive(Some(Duration::from_millis(1)), &mut at_client).unwrap();
        client.take_failures(&mut failures);
    }
    client.send(to, Transport::Stream, b"two").unwrap();
    at_server.clear();
    drive(&mut [(&mut client, &mut at_client), (&mut second, &mut at_server)], |counts| counts[1] == 1);
    assert_eq!(at_server[0].bytes, b"two");
}

#[test]
fn a_peer_that_announces_too_much_is_cut_off() {
    let mut server = server();
    let mut stranger = TcpStream::connect(server.local_address()).unwrap();
    stranger.write_all(&(PACKET_BYTES_MAX as u32 + 1).to_le_bytes()).unwrap();
    let started = Instant::now();
    while server.counters().connections_refused == 0 {
        assert!(started.elapsed() < DEADLINE);
        server.receive(Some(Duration::from_millis(1)), &mut Vec::new()).unwrap();
    }
    assert_eq!(stranger.read(&mut [0; 8]).unwrap_or(0), 0, "the connection is closed");
}

#[test]
fn strangers_with_half_a_packet_hold_little_and_honest_clients_go_on() {
    let mut server = server();
    let mut client = Endpoint::client().unwrap();
    let to = Destination::Address(server.local_address());
    client.send(to, Transport::Stream, b"who I am").unwrap();
    let (mut at_server, mut at_client) = (Vec::new(), Vec::new());
    drive(&mut [(&mut client, &mut at_client), (&mut server, &mut at_server)], |counts| counts[1] == 1);
    let mut strangers = Vec::new();
    for announced in [PACKET_BYTES_MAX as u32, 2048] {
        for _ in 0..250 {
            let mut stranger = TcpStream::connect(server.local_address()).unwrap();
            stranger.set_nonblocking(true).unwrap();
            stranger.write_all(&announced.to_le_bytes()).unwrap();
            // It may be closed already, or its buffer be full: all the better.
            let _ = stranger.write(&vec![1; announced as usize / 2]);
            strangers.push(stranger);
            server.receive(Some(Duration::ZERO), &mut at_server).unwrap();
        }
    }
    drive(&mut [(&mut server, &mut at_server)], |_| true);
    assert!(server.stream_bytes() < 2 << 20, "{} bytes", server.stream_bytes());
    // The client that was there before goes on with the largest packets, and so does one that comes now.
    let mut newcomer = Endpoint::client().unwrap();
    at_server.clear();
    for client in [&mut client, &mut newcomer] {
        client.send(to, Transport::Stream, b"who I am").unwrap();
        client.send(to, Transport::Stream, &vec![5; PACKET_BYTES_MAX]).unwrap();
    }
    let mut at_newcomer = Vec::new();
    let mut all =
        [(&mut client, &mut at_client), (&mut newcomer, &mut at_newcomer), (&mut server, &mut at_server)];
    drive(&mut all, |counts| counts[2] == 4);
    assert_eq!(at_server.iter().filter(|packet| packet.bytes.len() == PACKET_BYTES_MAX).count(), 2);
}

#[test]
fn who_does_not_prove_himself_is_read_no_further_and_closed_after_a_few_packets() {
    let mut server = server();
    let mut stranger = TcpStream::connect(server.local_address()).unwrap();
    let packet = [4, 0, 0, 0, 1, 2, 3, 4];
    stranger.write_all(&packet.repeat(20)).unwrap();
    let (mut incoming, started) = (Vec::new(), Instant::now());
    while server.counters().connections_refused == 0 {
        assert!(started.elapsed() < DEADLINE);
        let before = incoming.len();
        server.receive(Some(Duration::from_millis(1)), &mut incoming).unwrap();
        assert!(incoming.len() <= before + 1, "one packet a turn, so that the caller may judge it");
    }
    assert!(incoming.len() <= 9, "{} packets", incoming.len());
}

#[test]
fn one_peer_holds_no_more_with_many_connections_than_with_a_few() {
    let mut server = server();
    let mut peers = Vec::new();
    let mut incoming = Vec::new();
    for _ in 0..20 {
        let mut peer = TcpStream::connect(server.local_address()).unwrap();
        peer.write_all(&[1, 0, 0, 0, 9]).unwrap();
        let from = peer.local_addr().unwrap();
        incoming.push(packet_of(&mut server, from));
        peers.push(peer);
    }
    assert_eq!(server.counters().connections_closed, 4, "all twenty are one peer's");
    let half = vec![1; PACKET_BYTES_MAX - 1];
    let started = Instant::now();
    for mut peer in peers.drain(4..) {
        std::thread::spawn({
            let half = half.clone();
            move || {
                let _ = peer.write_all(&(PACKET_BYTES_MAX as u32).to_le_bytes());
                let _ = peer.write_all(&half);
                // Open until the server closes it, or the test is over.
                let _ = peer.read(&mut [0; 8]);
            }
        });
    }
    while server.counters().connections_refused < 8 {
        assert!(started.elapsed() < DEADLINE, "{:?}", server.counters());
        server.receive(Some(Duration::from_millis(1)), &mut incoming).unwrap();
    }
    assert!(server.stream_bytes() <= 2 * (64 << 20), "{} bytes", server.stream_bytes());
}

/// A client with a number of its own that sent a part of a packet, and is silent then until it is closed.
fn hoard(server: &mut Endpoint, number: u64, held: usize) {
    let mut peer = TcpStream::connect(server.local_address()).unwrap();
    peer.write_all(&[1, 0, 0, 0, 9]).unwrap();
    let mut incoming = Vec::new();
    while incoming.is_empty() {
        server.receive(Some(Duration::from_millis(1)), &mut incoming).unwrap();
    }
    let Destination::Connection(connection) = incoming[0].from else { panic!("{incoming:?}") };
    server.vouch(connection, Peer::Client(number));
    let before = server.stream_bytes();
    std::thread::spawn(move || {
        let _ = peer.write_all(&(PACKET_BYTES_MAX as u32).to_le_bytes());
        let _ = peer.write_all(&vec![1; held]);
        let _ = peer.read(&mut [0; 8]);
    });
    let started = Instant::now();
    while server.stream_bytes() < before + held {
        assert!(started.elapsed() < DEADLINE, "{} bytes", server.stream_bytes());
        server.receive(Some(Duration::from_millis(1)), &mut incoming).unwrap();
    }
}

#[test]
fn clients_that_hold_much_and_come_no_further_make_room_and_stop_no_stream_of_servers() {
    let (mut server, mut other) = (server(), server());
    (server.streams.clients_bytes_max, server.streams.bytes_max) = (6 << 20, 12 << 20);
    (0..3).for_each(|number| hoard(&mut server, 100 + number, (2 << 20) - 100));
    // What we send to another server has room of its own.
    let to_other = Destination::Address(other.local_address());
    server.send(to_other, Transport::Stream, b"who I am").unwrap();
    server.send(to_other, Transport::Stream, &vec![5; 4 << 20]).unwrap();
    let mut client = Endpoint::client().unwrap();
    let to = Destination::Address(server.local_address());
    client.send(to, Transport::Stream, b"who I am").unwrap();
    client.send(to, Transport::Stream, &vec![5; 5 << 20]).unwrap();
    let (mut at_server, mut at_client, mut at_other) = (Vec::new(), Vec::new(), Vec::new());
    let mut all = [(&mut client, &mut at_client), (&mut server, &mut at_server), (&mut other, &mut at_other)];
    drive(&mut all, |counts| counts[1] == 2 && counts[2] == 2);
    let closed = server.counters().connections_refused;
    assert!(closed > 0, "only a part of the packet is read at a time, and for that there was no room");
    // An answer has room too.
    server.send(at_server[1].from, Transport::Stream, &vec![6; 5 << 20]).unwrap();
    drive(&mut [(&mut client, &mut at_client), (&mut server, &mut at_server)], |counts| counts[0] == 1);
    assert_eq!(server.counters().connections_refused, 3);
    assert_eq!(server.counters().connections_accepted, 4, "the client never had to come again");
}

#[test]
fn a_packet_that_does_not_grow_is_not_waited_for() {
    let mut server = server();
    hoard(&mut server, 100, 1000);
    let give_up = |server: &mut Endpoint, after: Duration| {
        server.streams.end_wait(Clock.mono().after(after));
        server.streams.give_up_stalled(&server.poll, &mut server.pool, &mut Vec::new(), &mut server.counters);
        server.counters.connections_refused
    };
    assert_eq!(give_up(&mut server, Duration::ZERO), 0);
    assert!(server.streams.begin_turn(Clock.mono(), &mut server.counters).is_some(), "it wakes by itself");
    assert_eq!(give_up(&mut server, Duration::from_secs(10)), 1);
    assert_eq!(server.stream_bytes(), 0);
}

#[test]
fn a_packet_that_comes_byte_by_byte_is_put_together() {
    let mut server = server();
    let mut peer = TcpStream::connect(server.local_address()).unwrap();
    peer.set_nodelay(true).unwrap();
    let mut incoming = Vec::new();
    for byte in [3, 0, 0, 0, 7, 8, 9, 1, 0, 0, 0, 5] {
        peer.write_all(&[byte]).unwrap();
        server.receive(Some(Duration::from_millis(1)), &mut incoming).unwrap();
    }
    drive(&mut [(&mut server, &mut incoming)], |counts| counts[0] == 2);
    assert_eq!((incoming[0].bytes.as_slice(), incoming[1].bytes.as_slice()), (&[7, 8, 9][..], &[5][..]));
}

#[test]
fn a_peer_that_does_not_read_fills_its_queue_and_no_more() {
    let mut server = server();
    let mut peer = TcpStream::connect(server.local_address()).unwrap();
    peer.write_all(&[1, 0, 0, 0, 9]).unwrap();
    let from = packet_of(&mut server, peer.local_addr().unwrap()).from;
    let packet = vec![0; 1024 * 1024];
    let mut queued = 0;
    while server.send(from, Transport::Stream, &packet).is_ok() {
        server.flush().unwrap();
        queued += 1;
        assert!(queued < 1000, "the queue is bounded");
    }
    assert_eq!(server.send(from, Transport::Stream, &packet), Err(SendError::QueueFull));
    // Once it reads, everything that was queued arrives. It must not wait for bytes: the server writes on
    // this thread too, and only once it has heard that there is room.
    peer.set_nonblocking(true).unwrap();
    let mut missing = queued * (packet.len() + 4);
    let (mut scratch, started) = (vec![0; 1 << 20], Instant::now());
    while missing > 0 {
        assert!(started.elapsed() < DEADLINE, "{missing} bytes are missing");
        match peer.read(&mut scratch) {
            Ok(0) => panic!("closed with {missing} bytes missing"),
            Ok(count) => missing -= count,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}"),
        }
        server.receive(Some(Duration::from_millis(1)), &mut Vec::new()).unwrap();
    }
    server.send(from, Transport::Stream, b"more").expect("there is room again");
}

#[test]
fn a_waker_ends_a_wait_from_another_thread_and_wakes_are_not_kept() {
    let mut server = server();
    let waker = server.waker();
    let thread = std::thread::spawn(move || waker.wake());
    server.receive(Some(DEADLINE * 10), &mut Vec::new()).unwrap();
    thread.join().unwrap();
    server.waker().wake();
    server.receive(Some(DEADLINE * 10), &mut Vec::new()).unwrap();
    let started = Instant::now();
    server.receive(Some(Duration::from_millis(2)), &mut Vec::new()).unwrap();
    assert!(started.elapsed() >= Duration::from_millis(2), "an old wake does not end a later wait");
}

#[test]
fn other_threads_send_datagrams_while_the_endpoint_waits() {
    let mut server = server();
    let client = Endpoint::client().unwrap();
    let (sender, to) = (client.datagram_sender(), server.local_address());
    let thread = std::thread::spawn(move || sender.send(to, b"from a thread"));
    assert_eq!(wait_for(&mut server, 1)[0].bytes, b"from a thread");
    thread.join().unwrap().unwrap();
}

#[test]
fn a_port_in_use_is_named_with_what_to_try() {
    let first = server();
    let message = Endpoint::server(first.local_address()).err().expect("the port is taken").to_string();
    let port = first.local_address().port().to_string();
    assert!(
        message.contains(&port) && message.contains("ss -lnp") && message.contains("in use"),
        "{message}"
    );
    let foreign =
        Endpoint::server("192.0.2.1:0".parse().unwrap()).err().expect("not our address").to_string();
    assert!(foreign.contains("192.0.2.1") && foreign.contains("ip address"), "{foreign}");
}

#[test]
fn what_is_carried_to_an_address_is_answered_from_there() {
    let mut server = Endpoint::server(loopbacks()[1]).unwrap();
    let port = server.carry(0).unwrap();
    let mut client = Endpoint::client().unwrap();
    let at = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
    client.send(Destination::Address(at), Transport::Datagram, b"create").unwrap();
    client.flush().unwrap();
    let packet = wait_for(&mut server, 1).remove(0);
    assert!(matches!(packet.from, Destination::Carried(_, to) if to == Ipv6Addr::LOCALHOST));
    server.send(packet.from, packet.transport, b"created").unwrap();
    server.flush().unwrap();
    let answer = wait_for(&mut client, 1).remove(0);
    assert_eq!((answer.peer, answer.bytes), (at, b"created".to_vec()));
    let refused = server.send(packet.from, Transport::Datagram, &[0; DATAGRAM_BYTES_MAX + 1]);
    assert!(matches!(refused, Err(SendError::TooLarge { .. })));
}
