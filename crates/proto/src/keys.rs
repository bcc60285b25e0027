//! Secrets and the MACs made with them: BLAKE3 in keyed mode, cut to 16 bytes.
//!
//! ```text
//! cluster key      servers only: signs packets between servers, grants, write tokens, data capabilities
//! enrolment secret servers and clients: a client proves it to open a session
//! session secret   derived from both sides' knowledge of the enrolment secret and the session id; signs the client's packets
//! ```

use bearing_types::SessionId;
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

    /// The MAC over parts, as if they were one run of bytes. The caller makes sure that parts cannot be shifted against each other.
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
    packets: Key,
    grants: Key,
}

impl ServerKeys {
    /// The keys of a cluster.
    pub fn new(cluster: &Key, enrolment: Key) -> ServerKeys {
        ServerKeys {
            enrolment,
            packets: cluster.derive("bearing 2026-11 packets between servers", &[]),
            grants: cluster.derive("bearing 2026-11 grants, tokens and capabilities", &[]),
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

    /// The secret of a client's session.
    pub fn session(&self, session: SessionId) -> Key {
        session_secret(&self.enrolment, session)
    }
}

/// The secret of a session, from the enrolment secret: a client with the wrong one signs packets that no server takes.
pub fn session_secret(enrolment: &Key, session: SessionId) -> Key {
    enrolment.derive("bearing 2026-11 session", &session.0.to_le_bytes())
}
