//! How a request travels.

use crate::event::Transport;
use bearing_proto::client::{Call, XattrChange};

/// Groups and extents beyond which a request goes over a stream at once: it would not fit a datagram.
const DATAGRAM_ITEMS_MAX: usize = 24;
/// Bytes of a symbolic link's target beyond which the same holds.
const DATAGRAM_TARGET_BYTES_MAX: usize = 512;

/// Calls whose request or answer does not fit a datagram go over a stream at once.
pub(super) fn transport_of(call: &Call) -> Transport {
    let large = match call {
        Call::Map { .. }
        | Call::List { .. }
        | Call::Prefetch { .. }
        | Call::Extents { .. }
        | Call::Delegate { .. }
        | Call::Delegated { .. } => true,
        Call::Commit { extents, .. } => extents.len() > DATAGRAM_ITEMS_MAX,
        Call::Create { new, who, .. } => {
            new.target.len() > DATAGRAM_TARGET_BYTES_MAX || who.groups.len() > DATAGRAM_ITEMS_MAX
        }
        Call::SetXattr { who, change, .. } => {
            let bytes = match change {
                XattrChange::Set { value, .. } => value.len(),
                XattrChange::Remove => 0,
            };
            bytes > DATAGRAM_TARGET_BYTES_MAX || who.groups.len() > DATAGRAM_ITEMS_MAX
        }
        Call::Lookup { who, .. }
        | Call::MakeDirectory { who, .. }
        | Call::Unlink { who, .. }
        | Call::RemoveDirectory { who, .. }
        | Call::Link { who, .. }
        | Call::Rename { who, .. }
        | Call::SetAttributes { who, .. }
        | Call::Xattr { who, .. }
        | Call::Xattrs { who, .. }
        | Call::Chunks { who, .. }
        | Call::SetQuota { who, .. }
        | Call::Open { who, .. } => who.groups.len() > DATAGRAM_ITEMS_MAX,
        Call::OpenSession
        | Call::RenewSession
        | Call::CloseSession
        | Call::Root { .. }
        | Call::Directory { .. }
        | Call::Attributes { .. }
        | Call::ReadLink { .. }
        | Call::Release { .. }
        | Call::OpenChunk { .. }
        | Call::Chunk { .. }
        | Call::SealChunk { .. }
        | Call::FinishChunk { .. }
        | Call::MakeHole { .. }
        | Call::Accessed { .. }
        | Call::Lock { .. }
        | Call::Unlock { .. }
        | Call::TestLock { .. }
        | Call::StopWaiting { .. }
        | Call::Place { .. }
        | Call::Quota { .. }
        | Call::Describe { .. }
        | Call::Statfs => false,
    };
    if large { Transport::Stream } else { Transport::Datagram }
}
