//! What calls are, whatever they ask: whether they change anything, and for whom they ask.

use crate::client::Call;
use crate::delegation::Change;
use crate::grant::Admission;
use bearing_types::{Credentials, Gid, SetIds, Squash};

impl Call {
    /// Whether it changes anything that outlives the reply, so that it must be executed at most once.
    pub fn mutates(&self) -> bool {
        match self {
            Call::Map { .. }
            | Call::Root { .. }
            | Call::Directory { .. }
            | Call::Lookup { .. }
            | Call::List { .. }
            | Call::Prefetch { .. }
            | Call::Attributes { .. }
            | Call::ReadLink { .. }
            // Renewing twice is renewing once.
            | Call::RenewSession
            | Call::Extents { .. }
            | Call::Chunk { .. }
            | Call::Xattr { .. }
            | Call::Xattrs { .. }
            | Call::TestLock { .. }
            | Call::Place { .. }
            | Call::Quota { .. }
            // Who waits is remembered by nobody but the owner of the moment.
            | Call::StopWaiting { .. }
            | Call::Chunks { .. }
            | Call::Describe(_)
            | Call::Statfs => false,
            Call::Open { truncate, .. } => *truncate,
            Call::OpenSession
            | Call::CloseSession
            | Call::Create { .. }
            | Call::MakeDirectory { .. }
            | Call::Unlink { .. }
            | Call::RemoveDirectory { .. }
            | Call::Link { .. }
            | Call::Rename { .. }
            | Call::SetAttributes { .. }
            | Call::Commit { .. }
            | Call::Release { .. }
            | Call::OpenChunk { .. }
            | Call::SealChunk { .. }
            | Call::FinishChunk { .. }
            | Call::Delegate { .. }
            | Call::Delegated { .. }
            | Call::MakeHole { .. }
            | Call::Accessed { .. }
            | Call::SetXattr { .. }
            | Call::Lock { .. }
            | Call::Unlock { .. }
            | Call::SetQuota { .. } => true,
        }
    }

    /// Has it ask for those as whom its users count.
    pub fn squash(&mut self, squash: Squash) {
        if squash == Squash::None {
            return;
        }
        let nobodys = SetIds::Clear(Gid(Squash::NOBODY));
        match self {
            Call::Delegated { steps, .. } => {
                for step in steps {
                    if let Change::Commit { set_ids, .. } = &mut step.change {
                        *set_ids = nobodys;
                    }
                    if let Some(who) = asked_by(&mut step.change) {
                        *who = squash.apply(who).into_owned();
                    }
                }
            }
            // A client says itself who writes, and of a squashed one nobody is root.
            Call::Commit { set_ids, .. } | Call::MakeHole { set_ids, .. } => *set_ids = nobodys,
            call => {
                if let Some(who) = call.who() {
                    *who = squash.apply(who).into_owned();
                }
            }
        }
    }

    /// For whom it asks, if it says so. Steps of delegated directories say it one by one.
    fn who(&mut self) -> Option<&mut Credentials> {
        match self {
            Call::Lookup { who, .. }
            | Call::List { who, .. }
            | Call::Prefetch { who, .. }
            | Call::Create { who, .. }
            | Call::MakeDirectory { who, .. }
            | Call::Unlink { who, .. }
            | Call::RemoveDirectory { who, .. }
            | Call::Link { who, .. }
            | Call::Rename { who, .. }
            | Call::SetAttributes { who, .. }
            | Call::Open { who, .. }
            | Call::Extents { by: Admission::User(who), .. }
            | Call::Delegate { who, .. }
            | Call::Xattr { who, .. }
            | Call::Xattrs { who, .. }
            | Call::SetXattr { who, .. }
            | Call::Chunks { who, .. }
            | Call::SetQuota { who, .. } => Some(who),
            Call::OpenSession
            | Call::RenewSession
            | Call::CloseSession
            | Call::Map { .. }
            | Call::Root { .. }
            | Call::Directory { .. }
            | Call::Attributes { .. }
            | Call::ReadLink { .. }
            | Call::Extents { by: Admission::Open(_), .. }
            | Call::Commit { .. }
            | Call::Release { .. }
            | Call::OpenChunk { .. }
            | Call::Chunk { .. }
            | Call::SealChunk { .. }
            | Call::FinishChunk { .. }
            | Call::Describe(_)
            | Call::Statfs
            | Call::Delegated { .. }
            | Call::MakeHole { .. }
            | Call::Accessed { .. }
            | Call::Lock { .. }
            | Call::Unlock { .. }
            | Call::TestLock { .. }
            | Call::StopWaiting { .. }
            | Call::Place { .. }
            | Call::Quota { .. } => None,
        }
    }
}

/// For whom a step was decided, if it says so.
fn asked_by(change: &mut Change) -> Option<&mut Credentials> {
    match change {
        Change::Create { who, .. }
        | Change::MakeDirectory { who, .. }
        | Change::Unlink { who, .. }
        | Change::RemoveDirectory { who, .. }
        | Change::Rename { who, .. }
        | Change::SetAttributes { who, .. } => Some(who),
        Change::Commit { .. } | Change::Accessed { .. } | Change::Release { .. } => None,
    }
}
