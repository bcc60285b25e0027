//! The client's side.

use super::{AGREED_BYTES_MAX, NOISE_BYTES, builder};
use crate::random_u64;
use bearing_proto::enrolment::Enrolment;
use bearing_proto::envelope::Versions;
use bearing_proto::hello::{Answer, COOKIE_BYTES, HELLO_BYTES_MIN, Hello, HelloRefusal, Reaction};
use bearing_proto::keys::handshake_secret;
use bearing_proto::ticket::Agreed;

/// What came of an answer.
#[derive(Debug)]
pub enum Outcome {
    /// It is no answer to this try, or was made up: go on waiting.
    Nothing,
    /// A session. The other side knows the enrolment's secret.
    Agreed(Box<Agreed>),
    /// Begin anew with this cookie.
    Cookie([u8; COOKIE_BYTES]),
    /// No, by a server that speaks these versions. Unsigned.
    Refused(HelloRefusal, Versions),
}

/// One try. Another one, after a loss or with a cookie, is a new one.
pub struct Initiator {
    noise: snow::HandshakeState,
    try_number: u64,
    versions: Versions,
    hello: Vec<u8>,
}

impl Initiator {
    /// Begins a try.
    pub fn new(enrolment: &Enrolment, versions: Versions, cookie: Option<[u8; COOKIE_BYTES]>) -> Initiator {
        let try_number = random_u64();
        let (name, squash) = (enrolment.name.clone(), enrolment.squash);
        let prologue = Hello { versions, try_number, name, squash, cookie }.encode();
        let secret = handshake_secret(&enrolment.secret);
        let noise = builder(&prologue, secret.bytes()).and_then(snow::Builder::build_initiator);
        let mut noise = noise.expect("the pattern needs nothing but the secret");
        let padding = vec![0; HELLO_BYTES_MIN.saturating_sub(prologue.len() + NOISE_BYTES)];
        let mut message = vec![0; padding.len() + NOISE_BYTES];
        let written = noise.write_message(&padding, &mut message).expect("there is room for it");
        let hello = [&prologue, &message[..written]].concat();
        Initiator { noise, try_number, versions, hello }
    }

    /// What to send.
    pub fn hello(&self) -> &[u8] {
        &self.hello
    }

    /// Takes an answer.
    pub fn take(&mut self, bytes: &[u8]) -> Outcome {
        let Some(answer) = Answer::decode(bytes).filter(|answer| answer.try_number == self.try_number) else {
            return Outcome::Nothing;
        };
        match answer.reaction {
            Reaction::Cookie(cookie) => Outcome::Cookie(cookie),
            Reaction::Refused(reason) => Outcome::Refused(reason, answer.versions),
            Reaction::Agreed(noise) => self.agree(noise).map_or(Outcome::Nothing, Outcome::Agreed),
        }
    }

    fn agree(&mut self, noise: &[u8]) -> Option<Box<Agreed>> {
        let mut payload = [0; AGREED_BYTES_MAX];
        let length = self.noise.read_message(noise, &mut payload).ok()?;
        let agreed = Agreed::decode(&payload[..length])?;
        let is_offered = (self.versions.lowest..=self.versions.highest).contains(&agreed.version);
        is_offered.then(|| Box::new(agreed))
    }
}
