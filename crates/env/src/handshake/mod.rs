//! The handshake by which a client gets a session, and the tickets that carry it to any server.
//!
//! Noise NNpsk0 over 25519, ChaCha20-Poly1305 and BLAKE2s, by the library `snow`; the enrolment's secret is
//! the pre-shared key. One message each way. The server draws session id and secret and says them in the
//! second message. With psk0 the first message is signed by the secret already, so whoever has none makes the
//! server compute no key exchange. A server keeps nothing of a handshake.
//!
//! Invariants: arbitrary bytes never panic; whoever has no secret gets nothing but cookies and refusals, each
//! shorter than its question.

mod initiator;
mod limits;
mod responder;
mod sealed;
mod tickets;

pub use initiator::{Initiator, Outcome};
pub use responder::{Heard, Responder};
pub use sealed::Sealing;
pub use tickets::Tickets;

use bearing_proto::hello::FIXED_BYTES;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// What Noise adds to a message: a key of 32 bytes and a tag of 16.
const NOISE_BYTES: usize = 48;
/// The longest second message, with all of its frame.
const AGREED_BYTES_MAX: usize = 512 + FIXED_BYTES;

fn builder<'a>(prologue: &'a [u8], secret: &'a [u8; 32]) -> Result<snow::Builder<'a>, snow::Error> {
    let params = PATTERN.parse().expect("the pattern is one that the library knows");
    snow::Builder::new(params).prologue(prologue)?.psk(0, secret)
}

#[cfg(test)]
mod tests;
