//! How often an operation shows the grant of its directory, and how new that has to be.

use bearing_types::Code;

/// How often a refused grant is fetched again within one operation: each time, somebody else got a chmod
/// through.
pub(crate) const GRANT_TRIES: u32 = 16;
/// How often it is fetched again because the directory is not where it was.
const MOVED_TRIES: u32 = 3;
/// A name that everybody replaces may lead elsewhere by the time a request arrives; each time, somebody else
/// got through.
const STALE_TRIES: u32 = 64;
/// How often a lookup begins again because what it found was gone a moment later.
pub(super) const VANISHED_TRIES: u32 = 4;

/// How new a directory has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    /// Its grant is leased.
    Granted,
    /// Its times and counts are leased too.
    Content,
    /// Asked for now.
    Asked,
}

/// Counts how often an operation may begin again with a new grant, or with another idea of what a name leads
/// to.
pub(super) struct Grants {
    left: u32,
    stale_left: u32,
    pub freshness: Freshness,
}

impl Grants {
    pub fn new() -> Grants {
        Grants { left: GRANT_TRIES, stale_left: MOVED_TRIES, freshness: Freshness::Granted }
    }

    /// For an operation that says what its names lead to.
    pub fn with_names() -> Grants {
        Grants { stale_left: STALE_TRIES, ..Grants::new() }
    }

    /// Whether to fetch the grant again because of this refusal.
    pub fn again(&mut self, code: Code) -> bool {
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

/// Whether a refusal means that a node which was just found is gone.
pub(super) fn vanished(code: Code) -> bool {
    matches!(code, Code::Stale | Code::NotFound)
}
