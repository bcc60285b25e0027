//! What strangers can make a server compute: so many handshakes per second, and above a part of that only for addresses that answer.

use crate::random_bytes;
use bearing_proto::hello::COOKIE_BYTES;
use bearing_proto::keys::Key;
use bearing_types::Mono;
use std::net::SocketAddr;
use std::time::Duration;

/// Hellos whose first message is read, per second: some microseconds each.
const HELLOS_MAX: u32 = 10_000;
/// Key exchanges per second: some 100 microseconds each, so at most a tenth of a core.
const EXCHANGES_MAX: u32 = 1_000;
/// After so many in a second a client has to show a cookie.
const EXCHANGES_FREE: u32 = 200;
/// A cookie is good for the time that it was made in, and the next.
const COOKIE_TIME: Duration = Duration::from_secs(60);

/// See the module.
pub struct Limits {
    cookie_key: Key,
    second_began: Mono,
    hellos: u32,
    exchanges: u32,
}

impl Limits {
    /// Nothing was computed yet.
    pub fn new() -> Limits {
        Limits { cookie_key: Key::new(random_bytes()), second_began: Mono::ZERO, hellos: 0, exchanges: 0 }
    }

    /// Whether one more hello is read.
    pub fn take_hello(&mut self, now: Mono) -> bool {
        if now.since(self.second_began) >= Duration::from_secs(1) {
            (self.second_began, self.hellos, self.exchanges) = (now, 0, 0);
        }
        self.hellos += 1;
        self.hellos <= HELLOS_MAX
    }

    /// Whether cookies are asked for now.
    pub fn wants_cookie(&self) -> bool {
        self.exchanges >= EXCHANGES_FREE
    }

    /// Whether one more key exchange is computed.
    pub fn take_exchange(&mut self) -> bool {
        self.exchanges += 1;
        self.exchanges <= EXCHANGES_MAX
    }

    /// The cookie of an address.
    pub fn cookie(&self, now: Mono, peer: SocketAddr) -> [u8; COOKIE_BYTES] {
        self.cookie_of(now.0 / COOKIE_TIME.as_nanos() as u64, peer)
    }

    /// Whether a cookie was given to this address not long ago.
    pub fn is_good(&self, now: Mono, peer: SocketAddr, cookie: [u8; COOKIE_BYTES]) -> bool {
        let time = now.0 / COOKIE_TIME.as_nanos() as u64;
        [time, time.wrapping_sub(1)].into_iter().any(|time| self.cookie_of(time, peer) == cookie)
    }

    fn cookie_of(&self, time: u64, peer: SocketAddr) -> [u8; COOKIE_BYTES] {
        self.cookie_key.sign(&[&time.to_le_bytes(), peer.to_string().as_bytes()]).0
    }
}
