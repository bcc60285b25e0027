//! Operations on names and nodes, one per file.
//!
//! Every operation on a child shows its directory's grant. A grant that the child's owner refuses (expired, the directory moved) is
//! fetched anew and the operation tried again, a few times.

pub(crate) mod ahead;
mod attributes;
mod create;
mod directory;
mod inspect;
mod link;
pub(crate) mod list;
mod lookup;
mod quota;
pub(crate) mod rename;
mod statfs;
mod unlink;
mod xattrs;

use crate::cache::{Directory, Seen};
use crate::hub::State;
use crate::operation::{Found, Remaining};
use bearing_proto::client::{Handle, LeaseKey};
use bearing_types::{Attributes, Code, Mono, Name, NameHash, NodeId, Position};

/// How often a refused grant is fetched again within one operation: each time, somebody else got a chmod through.
pub(crate) const GRANT_TRIES: u32 = 16;
/// How often it is fetched again because the directory is not where it was.
const MOVED_TRIES: u32 = 3;
/// A name that everybody replaces may lead elsewhere by the time a request arrives; each time, somebody else got through.
const STALE_TRIES: u32 = 64;
/// How often a lookup begins again because what it found was gone a moment later.
const VANISHED_TRIES: u32 = 4;

/// How new a directory has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// Its grant is leased.
    Granted,
    /// Its times and counts are leased too.
    Content,
    /// Asked for now.
    Asked,
}

/// Counts how often an operation may begin again with a new grant, or with another idea of what a name leads to.
struct Grants {
    left: u32,
    stale_left: u32,
    freshness: Freshness,
}

impl Grants {
    fn new() -> Grants {
        Grants { left: GRANT_TRIES, stale_left: MOVED_TRIES, freshness: Freshness::Granted }
    }

    /// For an operation that says what its names lead to.
    fn with_names() -> Grants {
        Grants { stale_left: STALE_TRIES, ..Grants::new() }
    }

    /// Whether to fetch the grant again because of this refusal.
    fn again(&mut self, code: Code) -> bool {
        let left = match code {
            Code::Unauthenticated => &mut self.left,
            Code::Stale => &mut self.stale_left,
            _ => return false,
        };
        if *left == 0 {
            return false;
        }
        *left -= 1;
        self.freshness = Freshness::Asked;
        true
    }
}

impl Directory {
    fn node(&self) -> NodeId {
        self.view.node.node.node
    }

    fn hash(&self, name: &Name) -> NameHash {
        NameHash::of(self.view.grant.body.name_key, name)
    }

    fn position(&self, name: &Name) -> Position {
        self.view.grant.body.seat.position_of(self.hash(name))
    }

    fn name_key(&self, name: &Name) -> LeaseKey {
        LeaseKey::Name(self.node(), self.hash(name))
    }

    fn content_key(&self) -> LeaseKey {
        LeaseKey::Content(self.node())
    }
}

/// What a change of a node's attributes ends.
fn node_keys(node: NodeId, is_directory: bool) -> Vec<LeaseKey> {
    if is_directory {
        vec![LeaseKey::Access(node), LeaseKey::Content(node)]
    } else {
        vec![LeaseKey::File(node)]
    }
}

impl State {
    fn remaining(&self, until: Option<Mono>) -> Remaining {
        Remaining(until.map(|until| until.since(self.now.mono)).unwrap_or_default())
    }

    /// An answer about a node; own writes that are not flushed yet are seen in it.
    pub fn found(&self, seen: &Seen, name_until: Option<Mono>) -> Found {
        let attributes = self.files.overlaid(seen.node.node, seen.attributes);
        Found {
            node: seen.node,
            attributes,
            name_remaining: self.remaining(name_until),
            attributes_remaining: self.remaining(seen.until),
        }
    }

    /// A directory's attributes. Mode and owner are used under one lease, times and counts under another; while that is not given, because
    /// several clients change the directory, they may be a little late.
    pub(crate) fn directory_seen(&self, directory: &Directory) -> Seen {
        let late = self.now.mono.after(self.config.directory_lateness);
        let content = directory.content_until.unwrap_or(late);
        let until =
            directory.access_until.map(|access| access.min(content)).filter(|until| *until > self.now.mono);
        let attributes: Attributes = directory.view.node.attributes;
        let extended = directory.view.node.extended;
        Seen { node: directory.view.node.node, attributes, until, may_open: false, extended }
    }
}

/// Whether a refusal means that a node which was just found is gone.
fn vanished(code: Code) -> bool {
    matches!(code, Code::Stale | Code::NotFound)
}

/// A body of a kind that does not answer what was asked.
fn unexpected(state: &mut State) -> Code {
    state.counters.unexpected += 1;
    Code::Io
}

/// Where a handle's node lies.
fn home(handle: Handle) -> Position {
    handle.home
}
