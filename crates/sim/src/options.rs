//! What a run is like.

use bearing_placement::{LookupKind, Scheme};
use bearing_workload::Seeded;

/// Options of a run, beside its seed.
#[derive(Clone, Debug)]
pub struct Options {
    /// Operations of all clients together.
    pub operations: u64,
    /// How children are placed; `None`: as the seed says.
    pub scheme: Option<Scheme>,
    /// Whom clients ask first; `None`: as the seed says.
    pub lookup: Option<LookupKind>,
    /// A planted bug.
    pub planted: Planted,
    /// No faults at all, to look at the rest.
    pub calm: bool,
    /// Copies of each tablet.
    pub copies: u8,
    /// Clients ask for delegations in three of four sessions.
    pub delegations: bool,
    /// Servers have the copies of their tablets compared, again and again.
    pub compares: bool,
    /// The digest covers all that machines command, also what is in no packet: for changes that move code
    /// only.
    pub commands: bool,
    /// Tell on the terminal what happens.
    pub told: bool,
    /// Tell at the end all that the history and the witness say of this node.
    pub about: Option<u64>,
    /// Report what clients did with names.
    pub names: bool,
}

impl Options {
    /// A run as in CI.
    pub fn usual(operations: u64) -> Options {
        Options {
            operations,
            scheme: None,
            lookup: None,
            planted: Planted::default(),
            calm: false,
            copies: 1,
            delegations: false,
            compares: false,
            commands: false,
            told: false,
            about: None,
            names: false,
        }
    }

    /// Whom clients ask first in the run of a seed.
    pub fn lookup_of(&self, seed: u64) -> LookupKind {
        self.lookup.unwrap_or_else(|| match Seeded::new(seed ^ 0x0a5c).below(6) {
            0 => LookupKind::OneHop,
            1 => LookupKind::InNetwork,
            2 => LookupKind::BloomGroups,
            _ => LookupKind::ClientMap,
        })
    }
}

/// Planted bugs, by where they lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted {
    /// In metadata servers.
    pub meta: Option<bearing_meta::Mutant>,
    /// In clients.
    pub client: Option<bearing_client::Mutant>,
}

impl Planted {
    /// The bug of a name.
    pub fn named(name: &str) -> Option<Planted> {
        let mut all = bearing_meta::Mutant::ALL.into_iter();
        let meta = all.find(|(known, _)| *known == name);
        let client = bearing_client::Mutant::ALL.into_iter().find(|(known, _)| *known == name);
        let planted = Planted { meta: meta.map(|(_, bug)| bug), client: client.map(|(_, bug)| bug) };
        (planted != Planted::default()).then_some(planted)
    }

    /// The names of all.
    pub fn names() -> Vec<&'static str> {
        let meta = bearing_meta::Mutant::ALL.into_iter().map(|(name, _)| name);
        meta.chain(bearing_client::Mutant::ALL.into_iter().map(|(name, _)| name)).collect()
    }

    /// Whether it shows only with several copies of each tablet.
    pub fn is_of_copies(self) -> bool {
        self.meta.is_some_and(bearing_meta::Mutant::is_of_copies)
    }

    /// Whether it shows only when clients ask for delegated directories.
    pub fn is_of_delegation(self) -> bool {
        self.client.is_some_and(bearing_client::Mutant::is_of_delegation)
    }
}
