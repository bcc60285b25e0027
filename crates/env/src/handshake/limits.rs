//! What strangers can make a server compute: so many handshakes per second, and above a part of that only for
//! addresses that answer.
//!
//! Who writes any address into his datagrams uses up what is there for those without a cookie, and keeps
//! nobody out who shows one; who answers at his address uses up the part of that address.

use crate::random_bytes;
use bearing_proto::hello::COOKIE_BYTES;
use bearing_proto::keys::Key;
use bearing_types::Mono;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Hellos that are looked at, per second: a cookie is checked or made, a microsecond or two.
const HELLOS_MAX: u32 = 100_000;
/// Hellos without a good cookie whose first message is read, per second: some microseconds each.
const READ_FREE: u32 = 1_000;
/// Hellos with one whose first message is read, per second.
const READ_MAX: u32 = 10_000;
/// Of these, so many of one address (IPv6: of one network of 64 bits).
const READ_OF_ADDRESS_MAX: u32 = 200;
/// Key exchanges per second: some 100 microseconds each, so at most a tenth of a core.
const EXCHANGES_MAX: u32 = 1_000;
/// After so many in a second a client has to show a cookie.
const EXCHANGES_FREE: u32 = 200;
/// A cookie is good for the time that it was made in, and the next.
const COOKIE_TIME: Duration = Duration::from_secs(60);

/// What is to be done with a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Read it.
    Read,
    /// Ask for it with this cookie.
    Cookie([u8; COOKIE_BYTES]),
    /// Nothing.
    Drop,
}

/// See the module.
pub struct Limits {
    cookie_key: Key,
    second_began: Mono,
    /// Of the present second.
    done: Done,
}

#[derive(Default)]
struct Done {
    hellos: u32,
    read_free: u32,
    read: u32,
    /// As many entries as hellos are read, at most.
    read_of: BTreeMap<IpAddr, u32>,
    exchanges: u32,
}

impl Limits {
    /// Nothing was computed yet.
    pub fn new() -> Limits {
        Limits { cookie_key: Key::new(random_bytes()), second_began: Mono::ZERO, done: Done::default() }
    }

    /// What is to be done with one more hello, which shows a cookie or not.
    pub fn admit(&mut self, now: Mono, peer: SocketAddr, cookie: Option<[u8; COOKIE_BYTES]>) -> Admission {
        if now.since(self.second_began) >= Duration::from_secs(1) {
            (self.second_began, self.done) = (now, Done::default());
        }
        self.done.hellos += 1;
        if self.done.hellos > HELLOS_MAX {
            return Admission::Drop;
        }
        if cookie.is_some_and(|cookie| self.is_good(now, peer, cookie)) {
            return self.done.admit_address(peer.ip());
        }
        if self.done.read_free >= READ_FREE || self.done.exchanges >= EXCHANGES_FREE {
            return Admission::Cookie(self.cookie(now, peer));
        }
        self.done.read_free += 1;
        Admission::Read
    }

    /// Whether one more key exchange is computed.
    pub fn take_exchange(&mut self) -> bool {
        self.done.exchanges += 1;
        self.done.exchanges <= EXCHANGES_MAX
    }

    /// The cookie of an address.
    fn cookie(&self, now: Mono, peer: SocketAddr) -> [u8; COOKIE_BYTES] {
        self.cookie_of(now.0 / COOKIE_TIME.as_nanos() as u64, peer)
    }

    /// Whether a cookie was given to this address not long ago.
    fn is_good(&self, now: Mono, peer: SocketAddr, cookie: [u8; COOKIE_BYTES]) -> bool {
        let time = now.0 / COOKIE_TIME.as_nanos() as u64;
        [time, time.wrapping_sub(1)].into_iter().any(|time| self.cookie_of(time, peer) == cookie)
    }

    fn cookie_of(&self, time: u64, peer: SocketAddr) -> [u8; COOKIE_BYTES] {
        self.cookie_key.sign(&[&time.to_le_bytes(), peer.to_string().as_bytes()]).0
    }
}

impl Done {
    /// Who answers at an address has a part of what is read.
    fn admit_address(&mut self, address: IpAddr) -> Admission {
        if self.read >= READ_MAX {
            return Admission::Drop;
        }
        let read = self.read_of.entry(network(address)).or_default();
        if *read >= READ_OF_ADDRESS_MAX {
            return Admission::Drop;
        }
        (*read, self.read) = (*read + 1, self.read + 1);
        Admission::Read
    }
}

/// Addresses that one peer is likely to have all of.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
        address => address,
    }
}
