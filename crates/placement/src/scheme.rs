//! The one list of schemes: how children are seated, how the ring is divided among servers, and whom to ask
//! first.
//!
//! A scheme is a pair of a placement (seating and partition) and a lookup. The three are independent, so
//! others combine: `anglecut-hashed+in-network` places as the first and asks as the second. The machines of
//! the lookups are in the room `lookup`; here are their names only.

use crate::parameters::Parameters;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A named scheme. Stored with filesystems, so the order of variants is part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Scheme {
    /// Bearing's own: AngleCut's locality (section 4.2) with hashed sub-arcs instead of sibling ranks, so
    /// that adding a sibling moves nobody.
    AnglecutHashed,
    /// Hash-based mapping, as MetaFlow and AngleCut measure against.
    Hash,
    /// AngleCut as published (section 4): sibling ranks, rings, tags.
    Anglecut,
    /// MetaFlow's baseline: every lookup asks one coordinator.
    Central,
    /// MetaFlow's baseline: every server knows all.
    OneHop,
    /// MetaFlow's baseline: finger tables.
    Chord,
    /// RDHT-MDSC section 3.1 and 3.2: fingers, and LC-RIC at the client.
    DhtMdsc,
    /// RDHT-MDSC section 3.3: copies on successors, reconstruction.
    RdhtMdsc,
    /// MetaFlow (sections 4 to 6): the switches carry requests.
    Metaflow,
    /// A subtree stays where it was put.
    StaticSubtree,
    /// Hot subtrees migrate.
    DynamicSubtree,
    /// DROP: a locality-preserving hash, balanced by histograms.
    Drop,
    /// G-HBA's predecessor: every server holds the filters of all others.
    Hba,
    /// G-HBA: groups share the filters.
    GHba,
    /// Plain Bloom filter arrays with 8 bits a file.
    Bfa8,
    /// Plain Bloom filter arrays with 16 bits a file.
    Bfa16,
}

/// How the children of a directory get their positions. Stored in seats, so the order of variants is part of
/// the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Seating {
    /// A child directory's span lies in its parent's; names lie together at the start of the span.
    AnglecutHashed,
    /// Names anywhere on the ring by hash; a directory's home by the hash of its node.
    Hash,
    /// A directory lies in a block that is chosen when it is made, or in its parent's; names by hash inside
    /// it.
    Chosen,
    /// By rank among siblings, as AngleCut was published. Adding a sibling moves others: for the lab only.
    SiblingRank,
    /// By the hashes of the path's components, one after the other, as DROP does. Renaming moves: for the lab
    /// only.
    PathKey,
}

/// How the ring is divided among servers, and how that changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PartitionKind {
    /// Equal arcs, recomputed when servers come and go.
    Even,
    /// Consistent hashing: each server at its points of the ring.
    Ring,
    /// AngleCut section 4.4: boundaries follow the distribution of accesses, damped by history.
    History,
    /// DROP: boundaries follow a histogram between neighbours.
    Histogram,
    /// MetaFlow section 5: a B-tree over the network; a full node splits.
    BTree,
    /// Subtrees are dealt out once.
    Subtrees,
    /// Subtrees are dealt out; hot ones move.
    HotSubtrees,
    /// Each server has a block of its own, and homes are chosen among them.
    Homes,
}

/// Whom to ask first. Encoded by its place in this list: new ones are added behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LookupKind {
    /// The client's map of tablets, corrected by referrals.
    ClientMap,
    /// The client computes it from the list of servers alone.
    Computed,
    /// A coordinator is asked first.
    Coordinator,
    /// Any server is asked first: all know all.
    OneHop,
    /// Relayed by finger tables.
    Fingers,
    /// Relayed by finger tables, unless the client's cache knows better (LC-RIC).
    CachedFingers,
    /// The same among servers that replace a failed neighbour by themselves (RDHT).
    RebuildingFingers,
    /// The network carries the request.
    InNetwork,
    /// The client's table of subtrees, corrected by referrals.
    SubtreeTable,
    /// Bloom filters, all at every server, in levels (LRU, array, all servers).
    BloomLevels,
    /// Bloom filters, shared out in groups.
    BloomGroups,
    /// Bloom filters, one array of 8 bits a file at every server.
    BloomArray8,
    /// Bloom filters, one array of 16 bits a file at every server.
    BloomArray16,
}

/// What a scheme is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Combination {
    /// How children are placed.
    pub seating: Seating,
    /// How the ring is divided.
    pub partition: PartitionKind,
    /// Whom to ask first.
    pub lookup: LookupKind,
}

impl Scheme {
    /// All schemes, in the order of their names in help texts.
    pub const ALL: [Scheme; 16] = [
        Scheme::AnglecutHashed,
        Scheme::Anglecut,
        Scheme::Hash,
        Scheme::Central,
        Scheme::OneHop,
        Scheme::Chord,
        Scheme::DhtMdsc,
        Scheme::RdhtMdsc,
        Scheme::Metaflow,
        Scheme::StaticSubtree,
        Scheme::DynamicSubtree,
        Scheme::Drop,
        Scheme::Hba,
        Scheme::GHba,
        Scheme::Bfa8,
        Scheme::Bfa16,
    ];

    /// Schemes that a cluster can run today. The others run in the lab only.
    pub const LIVE: [Scheme; 2] = [Scheme::AnglecutHashed, Scheme::Hash];

    /// The name that people use.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::AnglecutHashed => "anglecut-hashed",
            Scheme::Hash => "hash",
            Scheme::Anglecut => "anglecut",
            Scheme::Central => "central",
            Scheme::OneHop => "one-hop",
            Scheme::Chord => "chord",
            Scheme::DhtMdsc => "dht-mdsc",
            Scheme::RdhtMdsc => "rdht-mdsc",
            Scheme::Metaflow => "metaflow",
            Scheme::StaticSubtree => "static-subtree",
            Scheme::DynamicSubtree => "dynamic-subtree",
            Scheme::Drop => "drop",
            Scheme::Hba => "hba",
            Scheme::GHba => "g-hba",
            Scheme::Bfa8 => "bfa8",
            Scheme::Bfa16 => "bfa16",
        }
    }

    /// What it is made of.
    pub fn parts(self) -> Combination {
        use {LookupKind as L, PartitionKind as P, Seating as S};
        let (seating, partition, lookup) = match self {
            Scheme::AnglecutHashed => (S::AnglecutHashed, P::History, L::ClientMap),
            Scheme::Hash => (S::Hash, P::Even, L::Computed),
            Scheme::Anglecut => (S::SiblingRank, P::History, L::ClientMap),
            Scheme::Central => (S::Hash, P::Even, L::Coordinator),
            Scheme::OneHop => (S::Hash, P::Ring, L::OneHop),
            Scheme::Chord => (S::Hash, P::Ring, L::Fingers),
            Scheme::DhtMdsc => (S::Hash, P::Ring, L::CachedFingers),
            Scheme::RdhtMdsc => (S::Hash, P::Ring, L::RebuildingFingers),
            Scheme::Metaflow => (S::Hash, P::BTree, L::InNetwork),
            Scheme::StaticSubtree => (S::Chosen, P::Subtrees, L::SubtreeTable),
            Scheme::DynamicSubtree => (S::Chosen, P::HotSubtrees, L::SubtreeTable),
            Scheme::Drop => (S::PathKey, P::Histogram, L::ClientMap),
            Scheme::Hba => (S::Chosen, P::Homes, L::BloomLevels),
            Scheme::GHba => (S::Chosen, P::Homes, L::BloomGroups),
            Scheme::Bfa8 => (S::Chosen, P::Homes, L::BloomArray8),
            Scheme::Bfa16 => (S::Chosen, P::Homes, L::BloomArray16),
        };
        Combination { seating, partition, lookup }
    }

    /// How the children of directories are placed.
    pub fn seating(self) -> Seating {
        self.parts().seating
    }

    /// How many servers hold each entry, the owner and its successors, unless somebody says otherwise.
    pub fn copies(self) -> usize {
        if self == Scheme::RdhtMdsc { 2 } else { 1 }
    }

    /// Its parameters as published. The number of One-Hop's virtual nodes is not printed: 16. AngleCut
    /// (section 4.4) divides the ring among M servers by M - 1 boundaries: 1. Our own form of it leaves
    /// boundaries alone that would move by a tenth of what a server has, or less.
    pub fn parameters(self) -> Parameters {
        let virtual_nodes = if self == Scheme::OneHop { 16 } else { 1 };
        let hysteresis = if self == Scheme::AnglecutHashed { 0.1 } else { 0.0 };
        Parameters { virtual_nodes, hysteresis, ..Parameters::default() }
    }

    /// Whether a cluster can run it today.
    pub fn is_live(self) -> bool {
        Scheme::LIVE.contains(&self)
    }

    /// A scheme that a cluster can run today, by its name.
    pub fn live_from_name(name: &str) -> Result<Scheme, UnknownScheme> {
        let scheme: Scheme = name.parse()?;
        if scheme.is_live() { Ok(scheme) } else { Err(UnknownScheme::NotLive(scheme)) }
    }
}

impl LookupKind {
    /// Whether servers stand on a ring and know some of the others.
    pub fn is_ring(self) -> bool {
        matches!(self, LookupKind::Fingers | LookupKind::CachedFingers | LookupKind::RebuildingFingers)
    }

    /// All kinds, in the order of help texts.
    pub const ALL: [LookupKind; 13] = [
        LookupKind::ClientMap,
        LookupKind::Computed,
        LookupKind::Coordinator,
        LookupKind::OneHop,
        LookupKind::Fingers,
        LookupKind::CachedFingers,
        LookupKind::RebuildingFingers,
        LookupKind::InNetwork,
        LookupKind::SubtreeTable,
        LookupKind::BloomLevels,
        LookupKind::BloomGroups,
        LookupKind::BloomArray8,
        LookupKind::BloomArray16,
    ];

    /// The name that people use.
    pub fn name(self) -> &'static str {
        match self {
            LookupKind::ClientMap => "client-map",
            LookupKind::Computed => "computed",
            LookupKind::Coordinator => "coordinator",
            LookupKind::OneHop => "all-know-all",
            LookupKind::Fingers => "fingers",
            LookupKind::CachedFingers => "cached-fingers",
            LookupKind::RebuildingFingers => "rebuilding-fingers",
            LookupKind::InNetwork => "in-network",
            LookupKind::SubtreeTable => "subtree-table",
            LookupKind::BloomLevels => "bloom-levels",
            LookupKind::BloomGroups => "bloom-groups",
            LookupKind::BloomArray8 => "bloom-array-8",
            LookupKind::BloomArray16 => "bloom-array-16",
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for LookupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that cannot be used, with what can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnknownScheme {
    /// No scheme has this name.
    Scheme(String),
    /// No lookup has this name.
    Lookup(String),
    /// It runs in the lab only.
    NotLive(Scheme),
}

impl fmt::Display for UnknownScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnknownScheme::Scheme(name) => {
                write!(f, "unknown scheme {name:?}; the known ones are {}", joined(&Scheme::ALL))
            }
            UnknownScheme::Lookup(name) => {
                let known = joined(&LookupKind::ALL);
                write!(f, "unknown lookup {name:?} after the \"+\"; the known ones are {known}")
            }
            UnknownScheme::NotLive(scheme) => {
                let live = joined(&Scheme::LIVE);
                write!(f, "scheme {scheme} runs in the lab only so far; a cluster can run {live}")
            }
        }
    }
}

fn joined(names: &[impl ToString]) -> String {
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl std::error::Error for UnknownScheme {}

impl FromStr for Scheme {
    type Err = UnknownScheme;

    fn from_str(name: &str) -> Result<Scheme, UnknownScheme> {
        let found = Scheme::ALL.into_iter().find(|scheme| scheme.name() == name);
        found.ok_or_else(|| UnknownScheme::Scheme(name.into()))
    }
}

impl FromStr for LookupKind {
    type Err = UnknownScheme;

    fn from_str(name: &str) -> Result<LookupKind, UnknownScheme> {
        let found = LookupKind::ALL.into_iter().find(|lookup| lookup.name() == name);
        found.ok_or_else(|| UnknownScheme::Lookup(name.into()))
    }
}

/// `SCHEME` or `SCHEME+LOOKUP`.
impl FromStr for Combination {
    type Err = UnknownScheme;

    fn from_str(text: &str) -> Result<Combination, UnknownScheme> {
        let (scheme, lookup) = text.split_once('+').map_or((text, None), |(a, b)| (a, Some(b)));
        let mut parts = scheme.parse::<Scheme>()?.parts();
        if let Some(lookup) = lookup {
            parts.lookup = lookup.parse()?;
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_back_to_its_scheme_and_names_differ() {
        let names: std::collections::BTreeSet<_> = Scheme::ALL.iter().map(|scheme| scheme.name()).collect();
        assert_eq!(names.len(), Scheme::ALL.len());
        for scheme in Scheme::ALL {
            assert_eq!(scheme.name().parse(), Ok(scheme));
            assert_eq!(scheme.name().parse(), Ok(scheme.parts()));
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = "chrod".parse::<Scheme>().unwrap_err().to_string();
        assert!(error.contains("\"chrod\"") && error.contains("chord") && error.contains("bfa16"), "{error}");
        let error = "hash+magic".parse::<Combination>().unwrap_err().to_string();
        assert!(error.contains("\"magic\"") && error.contains("in-network"), "{error}");
        let error = Scheme::live_from_name("chord").unwrap_err().to_string();
        assert!(error.contains("anglecut-hashed, hash"), "{error}");
    }

    #[test]
    fn placements_combine_with_other_lookups() {
        let parts: Combination = "anglecut-hashed+in-network".parse().unwrap();
        assert_eq!(parts.seating, Seating::AnglecutHashed);
        assert_eq!(parts.lookup, LookupKind::InNetwork);
    }
}
