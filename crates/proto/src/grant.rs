//! What servers sign for clients to show to other servers: grants, write tokens, data capabilities.

use crate::client::Handle;
use crate::keys::{Key, Mac};
use bearing_placement::Seat;
use bearing_types::{
    Access, AclHash, ChunkId, Epoch, FilesystemId, NameKey, NodeId, SessionId, Version, Wall,
};
use serde::{Deserialize, Serialize};

/// Shown with an operation on a child, a grant lets the child's owner check permission without asking anybody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// What is signed.
    pub body: GrantBody,
    /// The signature.
    pub mac: Mac,
}

/// The signed part of a [`Grant`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantBody {
    /// The filesystem.
    pub filesystem: FilesystemId,
    /// The key of its name hash.
    pub name_key: NameKey,
    /// Whom it was given to.
    pub session: SessionId,
    /// Where the directory's children go.
    pub seat: Seat,
    /// The directory's mode, owner and group.
    pub access: Access,
    /// Grows with every change of these: a fragment refuses changes under an older grant than the newest that it was told of.
    pub access_version: Version,
    /// The hash of its access control list.
    pub acl: AclHash,
    /// The directory whose quota counts its entries.
    pub quota: Option<Handle>,
    /// The end of its life, by the giver's wall clock.
    pub expires: Wall,
}

/// The right to change the content of a node through a file that was opened for writing. It lives as long as the session, as an open
/// file does, whatever the mode becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteToken {
    /// The node.
    pub node: NodeId,
    /// Whom it was given to.
    pub session: SessionId,
    /// The signature.
    pub mac: Mac,
}

/// What a [`Capability`] allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DataRight {
    /// Read frames.
    Read,
    /// Read and append frames, and sync.
    Append,
}

/// The right to use a range of a chunk on the data servers that hold it. Every data request carries one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// What is signed.
    pub body: CapabilityBody,
    /// The signature.
    pub mac: Mac,
}

/// The signed part of a [`Capability`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapabilityBody {
    /// The chunk.
    pub chunk: ChunkId,
    /// The first byte it is good for.
    pub start: u64,
    /// The first byte after the range.
    pub end: u64,
    /// What it allows.
    pub right: DataRight,
    /// The chunk's epoch: an append under an older one is refused.
    pub epoch: Epoch,
    /// The end of its life, by the giver's wall clock.
    pub expires: Wall,
}

macro_rules! signed {
    ($signed:ident, $body:ident, $purpose:literal) => {
        impl $signed {
            /// Signs a body.
            pub fn sign(body: $body, key: &Key) -> $signed {
                let mac = key.sign(&[$purpose, &encode(&body)]);
                $signed { body, mac }
            }

            /// Whether the signature is ours. Expiry is the caller's to check.
            pub fn verify(&self, key: &Key) -> bool {
                key.verify(&[$purpose, &encode(&self.body)], self.mac)
            }
        }
    };
}

signed!(Grant, GrantBody, b"grant");
signed!(Capability, CapabilityBody, b"capability");

impl WriteToken {
    /// Signs the right of a session to write a node.
    pub fn sign(node: NodeId, session: SessionId, key: &Key) -> WriteToken {
        WriteToken { node, session, mac: WriteToken::mac(node, session, key) }
    }

    /// Whether the signature is ours and the token is this session's.
    pub fn verify(&self, session: SessionId, key: &Key) -> bool {
        self.session == session && self.mac == WriteToken::mac(self.node, session, key)
    }

    fn mac(node: NodeId, session: SessionId, key: &Key) -> Mac {
        key.sign(&[b"write token", &node.0.to_le_bytes(), &session.0.to_le_bytes()])
    }
}

/// Room for most grants: they are encoded with every request that shows one, to be verified.
const GRANT_BYTES: usize = 192;

fn encode<T: Serialize>(body: &T) -> Vec<u8> {
    postcard::to_extend(body, Vec::with_capacity(GRANT_BYTES)).expect("plain values always encode")
}
