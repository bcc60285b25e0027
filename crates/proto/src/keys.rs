//! Secrets and the MACs made with them: BLAKE3 in keyed mode, cut to 16 bytes.
//!
//! ```text
//! cluster key      servers only: packets between servers, grants and capabilities, tickets, and the secrets
//!                  of named enrolments
//! enrolment secret a client proves it in the handshake, by which it gets a session
//! session secret   random, agreed in the handshake; signs the client's packets and the answers to it.
//!                  Servers learn it from its ticket
//! ```

use crate::enrolment::EnrolmentName;
use bearing_types::Squash;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A message authentication code: the first 16 bytes of keyed BLAKE3.
#[derive(Clone, Copy, Eq, Serialize, Deserialize)]
pub struct Mac(pub [u8; 16]);

impl PartialEq for Mac {
    // Compares without an early exit, so that time tells nothing about the first wrong byte.
    fn eq(&self, other: &Mac) -> bool {
        let difference = self.0.iter().zip(&other.0).fold(0u8, |seen, (a, b)| seen | (a ^ b));
        difference == 0
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mac{:02x}{:02x}", self.0[0], self.0[1])
    }
}

/// A key of 32 bytes. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 32]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// A key from its bytes.
    pub fn new(bytes: [u8; 32]) -> Key {
        Key(bytes)
    }

    /// The bytes of the key.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The bytes as 64 hex digits.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A key from 64 hex digits, or a description of what is there instead.
    pub fn from_hex(text: &str) -> Result<Key, String> {
        let digits: Option<Vec<u8>> =
            text.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
        if text.len() != 64 {
            return Err(format!("{} characters", text.len()));
        }
        let digits = digits.ok_or("characters that are no hex digits")?;
        Ok(Key(std::array::from_fn(|at| digits[2 * at] << 4 | digits[2 * at + 1])))
    }

    /// The MAC over parts, as if they were one run of bytes. The caller makes sure that parts cannot be
    /// shifted against each other.
    pub fn sign(&self, parts: &[&[u8]]) -> Mac {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in parts {
            hasher.update(part);
        }
        let hash = hasher.finalize();
        Mac(std::array::from_fn(|index| hash.as_bytes()[index]))
    }

    /// Whether a MAC fits.
    pub fn verify(&self, parts: &[&[u8]], mac: Mac) -> bool {
        self.sign(parts) == mac
    }

    fn derive(&self, purpose: &str, salt: &[u8]) -> Key {
        let mut hasher = blake3::Hasher::new_derive_key(purpose);
        hasher.update(&self.0);
        hasher.update(salt);
        Key(*hasher.finalize().as_bytes())
    }
}

/// What a server holds.
#[derive(Clone, Debug)]
pub struct ServerKeys {
    enrolment: Key,
    named: Key,
    packets: Key,
    grants: Key,
    tickets: Key,
}

impl ServerKeys {
    /// The keys of a cluster.
    pub fn new(cluster: &Key, enrolment: Key) -> ServerKeys {
        ServerKeys {
            named: cluster.derive("bearing 2026-11 named enrolments", &[]),
            packets: cluster.derive("bearing 2026-11 packets between servers", &[]),
            grants: cluster.derive("bearing 2026-11 grants, tokens and capabilities", &[]),
            // With another default secret no ticket from before is good: who changes it wants those who knew
            // it out.
            tickets: cluster.derive("bearing 2026-11 tickets", &enrolment.0),
            enrolment,
        }
    }

    /// Signs packets between servers.
    pub fn packets(&self) -> &Key {
        &self.packets
    }

    /// Signs grants, write tokens and data capabilities.
    pub fn grants(&self) -> &Key {
        &self.grants
    }

    /// Seals tickets.
    pub fn tickets(&self) -> &Key {
        &self.tickets
    }

    /// The secret of an enrolment. Whoever shows another name or rule than it was made with has another
    /// secret.
    pub fn enrolment(&self, name: &EnrolmentName, squash: Squash) -> Key {
        if name.is_default() && squash == Squash::None {
            return self.enrolment.clone();
        }
        let shown = postcard::to_stdvec(&(name, squash)).expect("plain values always encode");
        self.named.derive("bearing 2026-11 secret of an enrolment", &shown)
    }
}

/// Seals what a host that joins is told in its session.
pub fn joining_key(session: &Key) -> Key {
    session.derive("bearing 2026-11 joining", &[])
}

/// What both sides of the handshake prove: derived, so that the secret itself serves nothing else.
pub fn handshake_secret(enrolment: &Key) -> Key {
    enrolment.derive("bearing 2026-11 handshake", &[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::{Gid, Uid};

    #[test]
    fn the_secret_of_a_named_enrolment_follows_from_its_name_and_its_rule() {
        let keys = ServerKeys::new(&Key::new([1; 32]), Key::new([2; 32]));
        let name = |text: &str| EnrolmentName::new(text).unwrap();
        let root = Squash::Root { uid: Uid(9), gid: Gid(9) };
        let secret = keys.enrolment(&name("a"), root);
        assert_eq!(secret, keys.enrolment(&name("a"), root));
        assert_ne!(secret, keys.enrolment(&name("b"), root));
        assert_ne!(secret, keys.enrolment(&name("a"), Squash::None), "a client cannot drop its rule");
        assert_eq!(keys.enrolment(&name(""), Squash::None), Key::new([2; 32]));
        assert_ne!(keys.enrolment(&name(""), root), Key::new([2; 32]));
        let rotated = ServerKeys::new(&Key::new([1; 32]), Key::new([3; 32]));
        assert_ne!(
            keys.tickets(),
            rotated.tickets(),
            "tickets from before the default secret changed are void"
        );
    }
}
