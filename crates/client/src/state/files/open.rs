//! How files are opened, and what is open.

use crate::run::task::Promise;
use bearing_proto::client::Handle;
use bearing_types::{Access, Credentials, FileType, NodeId, Permission};

/// How a file is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub read: bool,
    pub write: bool,
    pub truncate: bool,
    pub execute: bool,
}

impl Wish {
    /// Whether who asks may do it by these permission bits.
    pub fn is_allowed(self, access: Access, who: &Credentials) -> bool {
        let may = |permission| access.allows(who, permission, FileType::Regular);
        let reads = match self.execute {
            // A program may be executed without being readable.
            true => may(Permission::SEARCH),
            false => !self.read || may(Permission::READ),
        };
        reads && (!(self.write || self.truncate) || may(Permission::WRITE))
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) node: NodeId,
    pub(super) read: bool,
    pub(super) write: bool,
    /// It was opened to be executed, which needs no right to read it.
    pub(super) execute: bool,
    /// How many losses of the file its syncs and its flushes have told of. A flush tells somebody else, such as a child process whose end closes what it was
    /// given: whoever syncs has to hear of the same loss.
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
    pub wish: Wish,
    pub who: Credentials,
    /// Something of it was not known to be stable.
    pub lost: bool,
}
