//! Bytes that only the holders of a key can read.
//!
//! ```text
//! 0   1 version of the format, 1
//! 1  24 nonce, random
//! 25  - XChaCha20-Poly1305 of the content, with its tag; the first byte is authenticated too
//! ```

use crate::random_bytes;
use bearing_proto::keys::Key;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

const FORMAT: u8 = 1;
const NONCE_BYTES: usize = 24;

/// Seals and opens under one key.
pub struct Sealing {
    cipher: XChaCha20Poly1305,
}

impl Sealing {
    /// Under a key that serves nothing else.
    pub fn new(key: &Key) -> Sealing {
        Sealing { cipher: XChaCha20Poly1305::new(key.bytes().into()) }
    }

    /// Seals bytes.
    pub fn seal(&self, content: &[u8]) -> Vec<u8> {
        let nonce: [u8; NONCE_BYTES] = random_bytes();
        let payload = Payload { msg: content, aad: &[FORMAT] };
        let sealed = self.cipher.encrypt(XNonce::from_slice(&nonce), payload);
        let sealed = sealed.expect("what is sealed is far shorter than what the cipher takes");
        [&[FORMAT][..], &nonce, &sealed].concat()
    }

    /// What was sealed; `None` if not under this key.
    pub fn open(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let (&format, rest) = bytes.split_first()?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_BYTES)?;
        if format != FORMAT {
            return None;
        }
        let payload = Payload { msg: sealed, aad: &[FORMAT] };
        self.cipher.decrypt(XNonce::from_slice(nonce), payload).ok()
    }
}
