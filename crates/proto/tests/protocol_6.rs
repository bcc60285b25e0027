//! Packets of the protocol before this one, as its program sent them (`protocol_6.txt`): they are refused by
//! their version, whatever is in them.

use bearing_proto::envelope::{PacketError, Versions, header, open};
use bearing_proto::hello::{Answer, Hello, HelloRefusal, Reaction, is_handshake};
use bearing_proto::keys::Key;

const BEFORE: Versions = Versions { lowest: 6, highest: 6 };

/// The packets with their names: what is not indented is a name, what is, hexadecimal.
fn recorded() -> Vec<(&'static str, Vec<u8>)> {
    let mut packets: Vec<(&str, Vec<u8>)> = Vec::new();
    for line in include_str!("protocol_6.txt").lines() {
        match line.strip_prefix("    ") {
            None => packets.push((line, Vec::new())),
            Some(hex) => {
                let bytes = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16));
                packets.last_mut().unwrap().1.extend(bytes.map(Result::unwrap));
            }
        }
    }
    packets
}

#[test]
fn every_packet_of_the_version_before_is_refused_naming_both_versions() {
    let (handshakes, packets): (Vec<_>, Vec<_>) =
        recorded().into_iter().partition(|(_, bytes)| is_handshake(bytes));
    assert_eq!((handshakes.len(), packets.len()), (2, 6));
    for (name, bytes) in packets {
        assert_eq!(header(&bytes), Err(PacketError::Version(6)), "{name}");
        // With the key that it was signed with, too.
        let refused = open(&bytes, Some(&Key::new([7; 32]))).unwrap_err();
        let both = format!("protocol version 6, this program speaks {}", Versions::SPOKEN);
        assert!(refused.to_string().starts_with(&both), "{name}: {refused}");
    }
}

#[test]
fn handshakes_of_the_version_before_are_read_and_have_no_version_in_common() {
    let packets = recorded();
    let (hello, _) = Hello::decode(&packets[0].1).unwrap();
    assert_eq!((hello.versions, Versions::SPOKEN.common(hello.versions)), (BEFORE, None));
    let answer = Answer::decode(&packets[1].1).unwrap();
    assert_eq!((answer.versions, answer.reaction), (BEFORE, Reaction::Refused(HelloRefusal::Version)));
}
