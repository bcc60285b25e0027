//! Squashing: what the enrolment of a client makes of the user ids that it speaks for.

use crate::{Credentials, Gid, Uid};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The rule of an enrolment, fixed when it was made. Servers learn it from the client's ticket, never from
/// what the client says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Squash {
    /// Ids are taken as they come.
    None,
    /// The superuser becomes this user, and group 0 this group; everybody else stays.
    Root {
        /// Stands for uid 0.
        uid: Uid,
        /// Stands for gid 0.
        gid: Gid,
    },
    /// Everybody becomes this user, with this group and no other.
    All {
        /// Stands for every uid.
        uid: Uid,
        /// Stands for every gid.
        gid: Gid,
    },
}

impl Squash {
    /// The uid and gid of nobody, as NFS uses them.
    pub const NOBODY: u32 = 65_534;

    /// What is made of credentials.
    pub fn apply(self, who: &Credentials) -> Cow<'_, Credentials> {
        match self {
            Squash::None => Cow::Borrowed(who),
            Squash::Root { uid, gid } => {
                let group = |was: Gid| if was == Gid(0) { gid } else { was };
                Cow::Owned(Credentials {
                    uid: if who.uid == Uid(0) { uid } else { who.uid },
                    gid: group(who.gid),
                    groups: who.groups.iter().copied().map(group).collect(),
                })
            }
            Squash::All { uid, gid } => Cow::Owned(Credentials { uid, gid, groups: Vec::new() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
        Credentials { uid: Uid(uid), gid: Gid(gid), groups: groups.iter().copied().map(Gid).collect() }
    }

    #[test]
    fn root_becomes_nobody_and_others_stay_unless_all_are_squashed() {
        let (uid, gid) = (Uid(Squash::NOBODY), Gid(Squash::NOBODY));
        let root = Squash::Root { uid, gid };
        assert_eq!(*root.apply(&who(0, 0, &[0, 4])), who(65_534, 65_534, &[65_534, 4]));
        assert_eq!(*root.apply(&who(1000, 0, &[27])), who(1000, 65_534, &[27]));
        let all = Squash::All { uid: Uid(7), gid: Gid(8) };
        assert_eq!(*all.apply(&who(1000, 1000, &[0])), who(7, 8, &[]));
        assert_eq!(*Squash::None.apply(&who(0, 0, &[])), who(0, 0, &[]));
    }
}
