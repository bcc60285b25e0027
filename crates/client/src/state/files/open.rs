//! How files are opened, and what is open.

use crate::run::Promise;
use bearing_proto::client::Handle;
use bearing_proto::rules::OpenWish;
use bearing_types::{Credentials, NodeId};

#[derive(Clone, Debug)]
pub(super) struct Open {
    /// As whom it is opened again if the session is lost.
    pub(super) who: Credentials,
    pub(super) node: NodeId,
    pub(super) read: bool,
    pub(super) write: bool,
    /// It was opened to be executed, which needs no right to read it.
    pub(super) execute: bool,
    /// How many losses of the file its syncs and its flushes have told of. A flush tells somebody else, such
    /// as a child process whose end closes what it was given: whoever syncs has to hear of the same loss.
    pub(super) told_by_sync: u64,
    pub(super) told_by_flush: u64,
}

#[derive(Debug)]
pub(super) struct Opening {
    pub(super) handle: Handle,
    pub(super) count: u32,
    pub(super) release_due: bool,
}

/// Releases under way, and who wants to open the file again.
#[derive(Default)]
pub(super) struct Releasing {
    pub(super) count: u32,
    pub(super) waiting: Vec<Promise<()>>,
}

/// A file that was open in the session before.
#[derive(Clone, Debug)]
pub(crate) struct Left {
    pub node: Handle,
    pub wish: OpenWish,
    pub who: Credentials,
    /// Something of it was not known to be stable.
    pub lost: bool,
}
