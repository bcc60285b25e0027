//! What servers sign for clients to show to other servers: grants, tokens of open files, data capabilities.
//! Each names the session that it was given to.

use crate::handles::Handle;
use crate::keys::{Key, Mac};
use bearing_placement::Seat;
use bearing_types::{
    Access, AclHash, ChunkId, Credentials, Epoch, FilesystemId, NameKey, NodeId, ServerId, SessionId,
    Version, Wall,
};
use serde::{Deserialize, Serialize};

/// Shown with an operation on a child, a grant lets the child's owner check permission without asking
/// anybody.
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
    /// Grows with every change of these: a fragment refuses changes under an older grant than the newest that
    /// it was told of.
    pub access_version: Version,
    /// The hash of its access control list.
    pub acl: AclHash,
    /// The directory whose quota counts its entries.
    pub quota: Option<Handle>,
    /// The end of its life, by the giver's wall clock.
    pub expires: Wall,
}

/// What a file was opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OpenRights {
    /// To read it.
    Read,
    /// To change its content.
    Write,
    /// Both.
    ReadWrite,
}

/// The rights that came with an open file. They live as long as the session, as an open file does, whatever
/// the mode becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenToken {
    /// The node.
    pub node: NodeId,
    /// Whom it was given to.
    pub session: SessionId,
    /// What for.
    pub rights: OpenRights,
    /// The signature.
    pub mac: Mac,
}

/// What lets a call see where the bytes of a file lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Admission {
    /// The file is open. To read its bytes it has to be open for reading.
    Open(OpenToken),
    /// This user may open it for reading, as of now.
    User(Credentials),
}

/// Some of a frame's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FramePart {
    /// Where the frame starts in its chunk.
    pub frame: u64,
    /// Payload bytes to skip.
    pub skip: u32,
    /// Payload bytes of the part.
    pub length: u32,
}

/// What a [`Capability`] allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataRight {
    /// To read this part: what one extent of a file refers to.
    Read(FramePart),
    /// To append under this epoch of the chunk, to sync, and to read what was appended. For the session that
    /// opened the chunk: all in it is its own. The second is [`DataRight::of_servers`]: on others nobody
    /// would remove it.
    Append(Epoch, u64),
}

/// The right of a session to use a chunk on the data servers that hold it. Every data request of a client
/// carries one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// What is signed.
    pub body: CapabilityBody,
    /// The signature.
    pub mac: Mac,
}

/// The signed part of a [`Capability`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapabilityBody {
    /// Whom it was given to.
    pub session: SessionId,
    /// The chunk.
    pub chunk: ChunkId,
    /// What it allows.
    pub right: DataRight,
    /// The end of its life, by the giver's wall clock.
    pub expires: Wall,
}

/// The rights to read the extents of an answer: capabilities without what the client knows already, in the
/// order of the extents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadRights {
    /// The end of their life.
    pub expires: Wall,
    /// Their signatures.
    pub macs: Vec<Mac>,
}

impl FramePart {
    /// Whether another part lies in this one.
    pub fn covers(self, other: FramePart) -> bool {
        let end = |part: FramePart| u64::from(part.skip) + u64::from(part.length);
        self.frame == other.frame && self.skip <= other.skip && end(other) <= end(self)
    }
}

impl DataRight {
    /// To append to a chunk that lies on these servers, the first of which orders it.
    pub fn append(epoch: Epoch, servers: &[ServerId]) -> DataRight {
        DataRight::Append(epoch, DataRight::of_servers(servers))
    }

    /// What tells lists of servers apart: the first 64 bits of a BLAKE3 hash of their ids.
    pub fn of_servers(servers: &[ServerId]) -> u64 {
        let ids: Vec<u8> = servers.iter().flat_map(|server| server.0.to_le_bytes()).collect();
        let hash = blake3::hash(&ids);
        hash.as_bytes().iter().take(8).fold(0, |bits, byte| bits << 8 | u64::from(*byte))
    }

    /// Whether it allows to read this part.
    pub fn reads(self, part: FramePart) -> bool {
        match self {
            DataRight::Read(allowed) => allowed.covers(part),
            DataRight::Append(..) => true,
        }
    }
}

impl OpenRights {
    /// Those of a file that is opened so; `None` if it is for neither.
    pub fn of(read: bool, write: bool) -> Option<OpenRights> {
        match (read, write) {
            (true, true) => Some(OpenRights::ReadWrite),
            (true, false) => Some(OpenRights::Read),
            (false, true) => Some(OpenRights::Write),
            (false, false) => None,
        }
    }

    /// Whether the file may be read.
    pub fn reads(self) -> bool {
        self != OpenRights::Write
    }

    /// Whether its content may be changed.
    pub fn writes(self) -> bool {
        self != OpenRights::Read
    }
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

impl OpenToken {
    /// Signs the rights of a session to a node.
    pub fn sign(node: NodeId, session: SessionId, rights: OpenRights, key: &Key) -> OpenToken {
        OpenToken { node, session, rights, mac: OpenToken::mac(node, session, rights, key) }
    }

    /// Whether the signature is ours and the token is this session's.
    pub fn verify(&self, session: SessionId, key: &Key) -> bool {
        self.session == session && self.mac == OpenToken::mac(self.node, session, self.rights, key)
    }

    fn mac(node: NodeId, session: SessionId, rights: OpenRights, key: &Key) -> Mac {
        key.sign(&[b"open token", &[rights as u8], &node.0.to_le_bytes(), &session.0.to_le_bytes()])
    }
}

/// Room for most grants: they are encoded with every request that shows one, to be verified.
const GRANT_BYTES: usize = 192;

fn encode<T: Serialize>(body: &T) -> Vec<u8> {
    postcard::to_extend(body, Vec::with_capacity(GRANT_BYTES)).expect("plain values always encode")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_token_is_good_for_its_session_node_and_rights_only() {
        let key = Key::new([3; 32]);
        let token = OpenToken::sign(NodeId(1), SessionId(2), OpenRights::Read, &key);
        assert!(token.verify(SessionId(2), &key) && !token.verify(SessionId(3), &key));
        assert!(!OpenToken { node: NodeId(2), ..token }.verify(SessionId(2), &key));
        assert!(!OpenToken { rights: OpenRights::ReadWrite, ..token }.verify(SessionId(2), &key));
        assert!(!token.verify(SessionId(2), &Key::new([4; 32])));
    }

    proptest! {
        #[test]
        fn a_part_covers_another_if_it_has_all_its_bytes(
            (frame, skip, length) in (0u64..2, 0u32..20, 0u32..20), (other_frame, other_skip, other_length) in (0u64..2, 0u32..20, 1u32..20)
        ) {
            let part = FramePart { frame, skip, length };
            let other = FramePart { frame: other_frame, skip: other_skip, length: other_length };
            let bytes = |part: FramePart| (part.skip..part.skip + part.length).map(move |at| (part.frame, at));
            let has_all = bytes(other).all(|byte| bytes(part).any(|own| own == byte));
            prop_assert_eq!(part.covers(other), has_all);
        }

        #[test]
        fn a_capability_that_was_changed_is_none(session in 0u64..3, chunk in 0u64..3, frame in 0u64..3, skip in 0u32..3, length in 1u32..3, expires in 0i64..3, append: bool) {
            let key = Key::new([5; 32]);
            let body = |session, chunk, part, expires| CapabilityBody { session: SessionId(session), chunk: ChunkId(chunk), right: DataRight::Read(part), expires: Wall(expires) };
            let signed = Capability::sign(body(1, 1, FramePart { frame: 1, skip: 1, length: 1 }, 1), &key);
            let mut other = body(session, chunk, FramePart { frame, skip, length }, expires);
            if append {
                other.right = DataRight::Append(Epoch(frame), 0);
            }
            let forged = Capability { body: other, mac: signed.mac };
            prop_assert_eq!(forged.verify(&key), other == signed.body);
        }
    }
}
