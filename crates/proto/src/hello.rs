//! The handshake's datagrams: what stands around the messages of Noise. Their layout never changes, whatever
//! the versions of the protocol do: it is how the two sides find out which of them both speak.
//!
//! ```text
//! offset size  field (little endian)
//!      0    4  magic "BRNG"
//!      4    2  the highest version that the sender speaks
//!      6    1  3: handshake (in the place where packets have their sender)
//!      7    1  0 hello, 1 agreed, 2 cookie, 3 refused
//!      8    2  the lowest version that the sender speaks
//!     10    8  the client's number for this try; answers repeat it
//!     18    1  bytes of the enrolment's name (hello)
//!     19    1  bytes of the cookie (hello)
//!     20    1  squash: 0 none, 1 root, 2 all (hello); the reason (refused)
//!     21    3  zero
//!     24    4  uid of the rule (hello)
//!     28    4  gid of the rule (hello)
//!     32    -  hello: name, cookie, Noise's first message; agreed: Noise's second; cookie: the cookie
//! ```
//!
//! All of a hello before Noise's message is its prologue: who changes any of it on the way breaks the
//! handshake, so nobody can talk two sides down to an older version. A cookie stands in the hello it was
//! asked for, so a hello that was overheard is no use from another address.

use crate::enrolment::EnrolmentName;
use crate::envelope::{MAGIC, Versions};
use bearing_types::{Gid, Squash, Uid};

/// Bytes of the fixed part.
pub const FIXED_BYTES: usize = 32;
/// Bytes of a cookie.
pub const COOKIE_BYTES: usize = 16;
/// A hello has at least so many bytes, so that no answer is longer than its question.
pub const HELLO_BYTES_MIN: usize = 640;
/// And at most so many.
pub const HELLO_BYTES_MAX: usize = 1024;
/// In the place of a packet's sender.
pub const HANDSHAKE: u8 = 3;

/// What a client asks with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The versions it speaks.
    pub versions: Versions,
    /// Its number for this try.
    pub try_number: u64,
    /// Its enrolment.
    pub name: EnrolmentName,
    /// The rule of that.
    pub squash: Squash,
    /// The cookie, if it was asked for one.
    pub cookie: Option<[u8; COOKIE_BYTES]>,
}

/// What a server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction<'a> {
    /// Noise's second message.
    Agreed(&'a [u8]),
    /// Say it again with this cookie.
    Cookie([u8; COOKIE_BYTES]),
    /// No.
    Refused(HelloRefusal),
}

/// Why a hello was refused. Not signed: believed as far as whoever sees the client's packets is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloRefusal {
    /// No common version.
    Version,
    /// The secret is another one.
    Secret,
    /// The enrolment was revoked.
    Revoked,
}

/// An answer with what stands before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// The versions that the server speaks.
    pub versions: Versions,
    /// The client's number.
    pub try_number: u64,
    /// The answer.
    pub reaction: Reaction<'a>,
}

/// Whether a packet belongs to a handshake.
pub fn is_handshake(packet: &[u8]) -> bool {
    packet.len() >= FIXED_BYTES && packet[0..4] == MAGIC && packet[6] == HANDSHAKE
}

fn fixed(versions: Versions, kind: u8, try_number: u64) -> Vec<u8> {
    let mut bytes = vec![0; FIXED_BYTES];
    bytes[0..4].copy_from_slice(&MAGIC);
    bytes[4..6].copy_from_slice(&versions.highest.to_le_bytes());
    bytes[6] = HANDSHAKE;
    bytes[7] = kind;
    bytes[8..10].copy_from_slice(&versions.lowest.to_le_bytes());
    bytes[10..18].copy_from_slice(&try_number.to_le_bytes());
    bytes
}

fn versions_of(bytes: &[u8]) -> Versions {
    let at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    Versions { lowest: at(8), highest: at(4) }
}

fn try_number_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[10..18].try_into().expect("eight bytes"))
}

impl Hello {
    /// Everything before Noise's message: its prologue.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = fixed(self.versions, 0, self.try_number);
        let (kind, uid, gid) = match self.squash {
            Squash::None => (0, Uid(0), Gid(0)),
            Squash::Root { uid, gid } => (1, uid, gid),
            Squash::All { uid, gid } => (2, uid, gid),
        };
        bytes[18] = self.name.as_str().len() as u8;
        bytes[19] = if self.cookie.is_some() { COOKIE_BYTES as u8 } else { 0 };
        bytes[20] = kind;
        bytes[24..28].copy_from_slice(&uid.0.to_le_bytes());
        bytes[28..32].copy_from_slice(&gid.0.to_le_bytes());
        bytes.extend_from_slice(self.name.as_str().as_bytes());
        bytes.extend(self.cookie.iter().flatten());
        bytes
    }

    /// Reads a hello: what it says, and how many bytes of it stand before Noise's message.
    pub fn decode(bytes: &[u8]) -> Option<(Hello, usize)> {
        if !is_handshake(bytes)
            || bytes[7] != 0
            || !(HELLO_BYTES_MIN..=HELLO_BYTES_MAX).contains(&bytes.len())
        {
            return None;
        }
        let id = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let (uid, gid) = (Uid(id(24)), Gid(id(28)));
        let squash = match bytes[20] {
            0 => Squash::None,
            1 => Squash::Root { uid, gid },
            2 => Squash::All { uid, gid },
            _ => return None,
        };
        let name_end = FIXED_BYTES + usize::from(bytes[18]);
        let end = name_end + usize::from(bytes[19]);
        let name = std::str::from_utf8(bytes.get(FIXED_BYTES..name_end)?).ok()?;
        let cookie = match bytes.get(name_end..end)? {
            [] => None,
            cookie => Some(cookie.try_into().ok()?),
        };
        let name = EnrolmentName::new(name)?;
        let (versions, try_number) = (versions_of(bytes), try_number_of(bytes));
        Some((Hello { versions, try_number, name, squash, cookie }, end))
    }
}

impl<'a> Answer<'a> {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, rest): (u8, &[u8]) = match &self.reaction {
            Reaction::Agreed(noise) => (1, noise),
            Reaction::Cookie(cookie) => (2, cookie),
            Reaction::Refused(_) => (3, &[]),
        };
        let mut bytes = fixed(self.versions, kind, self.try_number);
        if let Reaction::Refused(reason) = self.reaction {
            bytes[20] = match reason {
                HelloRefusal::Version => 0,
                HelloRefusal::Secret => 1,
                HelloRefusal::Revoked => 2,
            };
        }
        bytes.extend_from_slice(rest);
        bytes
    }

    /// Reads an answer.
    pub fn decode(bytes: &'a [u8]) -> Option<Answer<'a>> {
        if !is_handshake(bytes) {
            return None;
        }
        let rest = &bytes[FIXED_BYTES..];
        let reaction = match (bytes[7], bytes[20]) {
            (1, _) => Reaction::Agreed(rest),
            (2, _) => Reaction::Cookie(rest.try_into().ok()?),
            (3, 0) => Reaction::Refused(HelloRefusal::Version),
            (3, 1) => Reaction::Refused(HelloRefusal::Secret),
            (3, 2) => Reaction::Refused(HelloRefusal::Revoked),
            _ => return None,
        };
        Some(Answer { versions: versions_of(bytes), try_number: try_number_of(bytes), reaction })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_hello_and_each_answer_are_read_back() {
        let versions = Versions { lowest: 6, highest: 7 };
        for (name, cookie) in [("", None), ("laptops", Some([9; COOKIE_BYTES]))] {
            let (uid, gid) = (Uid(1), Gid(u32::MAX));
            let hello = Hello {
                versions,
                try_number: 77,
                name: EnrolmentName::new(name).unwrap(),
                squash: Squash::Root { uid, gid },
                cookie,
            };
            let prologue = hello.encode();
            let mut bytes = prologue.clone();
            bytes.resize(HELLO_BYTES_MIN, 1);
            assert_eq!(Hello::decode(&bytes), Some((hello, prologue.len())));
            assert_eq!(Hello::decode(&bytes[..HELLO_BYTES_MIN - 1]), None, "an answer might be longer");
        }
        let reactions = [
            Reaction::Agreed(b"noise"),
            Reaction::Cookie([3; COOKIE_BYTES]),
            Reaction::Refused(HelloRefusal::Version),
            Reaction::Refused(HelloRefusal::Secret),
            Reaction::Refused(HelloRefusal::Revoked),
        ];
        for reaction in reactions {
            let answer = Answer { versions, try_number: 5, reaction };
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..900), kind in 0u8..5) {
            let _ = (Hello::decode(&bytes), Answer::decode(&bytes));
            let mut with_head = b"BRNG\x07\x00\x03".to_vec();
            with_head.push(kind);
            with_head.extend(bytes);
            let _ = (Hello::decode(&with_head), Answer::decode(&with_head));
        }
    }
}
