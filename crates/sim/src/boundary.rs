//! Sync boundaries: the moments at which what a disk holds for certain changes. Each may be the last thing
//! that happens before a cut.
//!
//! A server that syncs meets two: its bytes are given to the disk and none is stable yet; all are stable and
//! nobody was told.

use crate::network::HostId;
use std::fmt;

/// Who stops at a boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cut {
    /// All servers and all clients lose power.
    Everything,
    /// All servers lose power; clients live and go on.
    Servers,
    /// The server whose disk it is dies.
    Server,
    /// The client that works dies, with all that it buffers.
    Client,
}

impl Cut {
    /// All kinds.
    pub const ALL: [Cut; 4] = [Cut::Everything, Cut::Servers, Cut::Server, Cut::Client];
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cut::Everything => "everything",
            Cut::Servers => "servers",
            Cut::Server => "server",
            Cut::Client => "client",
        })
    }
}

/// Counts boundaries while somebody wants to know, and says at which one it ends.
#[derive(Debug, Default)]
pub struct Boundaries {
    counting: bool,
    seen: u32,
    cut: Option<(u32, Cut)>,
    due: Option<(HostId, Cut)>,
}

impl Boundaries {
    /// From now on they count; at this one, counted from 0, the cut comes.
    pub fn count(&mut self, cut: Option<(u32, Cut)>) {
        *self = Boundaries { counting: true, seen: 0, cut, due: None };
    }

    /// They count no more. Gives how many there were.
    pub fn end(&mut self) -> u32 {
        self.counting = false;
        self.seen
    }

    /// A host meets one. Gives whether it has to stop here, in the middle of what it does.
    pub fn meet(&mut self, host: HostId) -> bool {
        if !self.counting {
            return false;
        }
        let number = self.seen;
        self.seen += 1;
        let Some((_, cut)) = self.cut.filter(|(at, _)| *at == number) else { return false };
        self.counting = false;
        self.due = Some((host, cut));
        cut != Cut::Client
    }

    /// The cut that has to be made now, and where the boundary was.
    pub fn take_due(&mut self) -> Option<(HostId, Cut)> {
        self.due.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cut_comes_at_its_boundary_and_once() {
        let mut boundaries = Boundaries::default();
        assert!(!boundaries.meet(HostId(1)), "nobody counts");
        boundaries.count(Some((1, Cut::Servers)));
        assert!(!boundaries.meet(HostId(1)));
        assert_eq!(boundaries.take_due(), None);
        assert!(boundaries.meet(HostId(2)));
        assert_eq!(boundaries.take_due(), Some((HostId(2), Cut::Servers)));
        assert!(!boundaries.meet(HostId(2)));
        assert_eq!((boundaries.take_due(), boundaries.end()), (None, 2));
    }

    #[test]
    fn servers_go_on_when_only_the_client_dies() {
        let mut boundaries = Boundaries::default();
        boundaries.count(Some((0, Cut::Client)));
        assert!(!boundaries.meet(HostId(3)));
        assert_eq!(boundaries.take_due(), Some((HostId(3), Cut::Client)));
    }
}
