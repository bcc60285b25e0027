//! What all servers of a Bloom lookup agree on: who is in, and in which group.
//!
//! Invariants: a layout never changes, it is followed by one of a higher version. Only the steward makes
//! them: the server that came first of those that are not silent. Two stewards for a while (each believes
//! that the other is gone) make two layouts; the higher version wins everywhere, and who is not in it joins
//! again. No lookup is wrong meanwhile: who is in either layout is asked. While the network is cut in two,
//! each side finds its own files; once it is healed, an answer from the other side brings that side's layout
//! (or, if it lost already, those it named), and whoever is in it is asked too.

use crate::bloom::division::{Division, GroupId};
use crate::bloom::group::{Group, Move};
use bearing_types::{ParameterError, ServerId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// So many failed servers are still asked, in case they can be reached after all.
pub const GONE_MAX: usize = 16;

/// No cluster has had so many layouts: editions of filters begin with their number, in 32 bits.
const COUNT_MAX: u64 = 1 << 31;

/// The version of a layout. Ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LayoutVersion {
    /// How many layouts came before.
    pub count: u64,
    /// Who made it.
    pub by: ServerId,
}

/// One stay of a server in the cluster: a server that restarts comes in anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Birth(pub u64);

/// Who is in.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    version: LayoutVersion,
    division: Division,
    births: BTreeMap<ServerId, Birth>,
    /// Failed servers, the newest last.
    gone: Vec<ServerId>,
}

impl Layout {
    /// The first server, alone, with groups of at most `group_most`.
    pub fn first(server: ServerId, birth: Birth, group_most: u32) -> Result<Layout, ParameterError> {
        Layout::of_all([server], birth, group_most)
    }

    /// Servers that begin together, with groups of at most `group_most`.
    pub fn of_all(
        servers: impl IntoIterator<Item = ServerId>,
        birth: Birth,
        group_most: u32,
    ) -> Result<Layout, ParameterError> {
        let mut division = Division::new(group_most)?;
        servers.into_iter().for_each(|server| _ = division.join(server));
        let births = division.servers().map(|server| (server, birth)).collect();
        let by = division.servers().next().unwrap_or(ServerId(0));
        Ok(Layout { version: LayoutVersion { count: 1, by }, division, births, gone: Vec::new() })
    }

    /// A layout as somebody made it: the stays in the order of the division's seats. `None`: nobody makes one
    /// like this.
    pub fn of_parts(
        version: LayoutVersion,
        division: Division,
        births: &[Birth],
        gone: Vec<ServerId>,
    ) -> Option<Layout> {
        let good = version.count < COUNT_MAX
            && births.len() == division.seats().len()
            && gone.len() <= GONE_MAX
            && gone.iter().all(|server| division.group_of(*server).is_none());
        let births = division.servers().zip(births.iter().copied()).collect();
        good.then_some(Layout { version, division, births, gone })
    }

    /// Its version.
    pub fn version(&self) -> LayoutVersion {
        self.version
    }

    /// Who is in which group.
    pub fn division(&self) -> &Division {
        &self.division
    }

    /// The stay of a server that is in.
    pub fn birth(&self, server: ServerId) -> Option<Birth> {
        self.births.get(&server).copied()
    }

    /// All that may have an answer: those that are in, and those that failed lately.
    pub fn everybody(&self) -> BTreeSet<ServerId> {
        self.births.keys().chain(&self.gone).copied().collect()
    }

    /// Those that failed lately, up to [`GONE_MAX`].
    pub fn gone(&self) -> &[ServerId] {
        &self.gone
    }

    /// The steward, if these are silent.
    pub fn steward(&self, silent: &BTreeSet<ServerId>) -> Option<ServerId> {
        self.division.servers().find(|server| !silent.contains(server))
    }

    /// The layout after this one, made by `by`, in which a server is in. One that is in with another birth
    /// goes first.
    pub fn with(&self, by: ServerId, server: ServerId, birth: Birth) -> Layout {
        let mut next = self.followed(by);
        next.division.remove(server);
        next.division.join(server);
        next.births.insert(server, birth);
        next.gone.retain(|gone| *gone != server);
        next
    }

    /// The layout after this one, made by `by`, without servers that left.
    pub fn without(&self, by: ServerId, left: &BTreeSet<ServerId>) -> Layout {
        let mut next = self.followed(by);
        for server in left {
            next.division.remove(*server);
            next.births.remove(server);
        }
        next
    }

    /// The same, without servers that failed: they are still asked.
    pub fn without_failed(&self, by: ServerId, failed: &BTreeSet<ServerId>) -> Layout {
        let mut next = self.without(by, failed);
        next.gone.extend(failed);
        let surplus = next.gone.len().saturating_sub(GONE_MAX);
        next.gone.drain(..surplus);
        next
    }

    fn followed(&self, by: ServerId) -> Layout {
        Layout { version: LayoutVersion { count: self.version.count + 1, by }, ..self.clone() }
    }

    /// Bytes to keep or send it.
    pub fn encoded_bytes(&self) -> usize {
        let version = size_of::<u64>() + size_of::<u32>();
        let births = size_of::<u64>() * self.births.len();
        version + self.division.encoded_bytes() + births + size_of::<u32>() * self.gone.len()
    }
}

/// How a group shares out the replicas under one layout. Its elder (the member that came first) makes it,
/// nobody else.
#[derive(Clone, Debug, PartialEq)]
pub struct Shares {
    /// The layout.
    pub version: LayoutVersion,
    /// The group.
    pub group: GroupId,
    /// The share-out.
    pub shared: Arc<Group>,
    /// What must move for it.
    pub moves: Vec<Move>,
}

/// Servers that begin together: who is in, and what each group shares out. Made once, given to each of them.
#[derive(Clone, Debug)]
pub struct Founding {
    pub(super) layout: Arc<Layout>,
    pub(super) shares: BTreeMap<GroupId, Arc<Shares>>,
}

impl Founding {
    /// A beginning of these servers. Refused with the bound: an M out of bounds.
    pub fn of(
        servers: impl IntoIterator<Item = ServerId>,
        group_most: u32,
    ) -> Result<Founding, ParameterError> {
        let layout = Layout::of_all(servers, Birth(0), group_most)?;
        let all = layout.division.all();
        let mut shares = BTreeMap::new();
        for (group, members) in layout.division.groups() {
            let mut shared = Group::default();
            shared.settle(members, &all);
            let made = Shares { version: layout.version, group, shared: Arc::new(shared), moves: Vec::new() };
            shares.insert(group, Arc::new(made));
        }
        Ok(Founding { layout: Arc::new(layout), shares })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ServerId = ServerId(1);
    const B: ServerId = ServerId(2);

    #[test]
    fn who_comes_again_is_in_once_and_who_failed_is_still_asked() {
        let layout = Layout::first(A, Birth(1), 3).unwrap();
        let layout = layout.with(A, B, Birth(2)).with(A, B, Birth(3));
        assert_eq!(layout.birth(B), Some(Birth(3)));
        assert_eq!(layout.division().servers().collect::<Vec<_>>(), [A, B]);
        let failed = layout.without_failed(B, &BTreeSet::from([A]));
        assert!(failed.version() > layout.version());
        assert_eq!(failed.division().servers().collect::<Vec<_>>(), [B]);
        assert_eq!(failed.everybody(), BTreeSet::from([A, B]));
        assert_eq!(
            failed.with(B, A, Birth(4)).without(B, &BTreeSet::from([A])).everybody(),
            BTreeSet::from([B])
        );
    }

    #[test]
    fn the_steward_is_the_first_that_is_not_silent() {
        let layout = Layout::first(B, Birth(1), 3).unwrap().with(B, A, Birth(2));
        assert_eq!(layout.steward(&BTreeSet::new()), Some(B));
        assert_eq!(layout.steward(&BTreeSet::from([B])), Some(A));
    }

    #[test]
    fn failed_servers_are_remembered_up_to_a_limit() {
        let mut layout = Layout::first(A, Birth(1), 3).unwrap();
        for id in 10..50 {
            layout =
                layout.with(A, ServerId(id), Birth(1)).without_failed(A, &BTreeSet::from([ServerId(id)]));
        }
        assert_eq!(layout.everybody().len(), 1 + GONE_MAX);
    }
}
