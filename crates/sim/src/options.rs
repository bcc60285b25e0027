//! What a run is like.

use bearing_placement::Scheme;

/// Options of a run, beside its seed.
#[derive(Clone, Debug)]
pub struct Options {
    /// Operations of all clients together.
    pub operations: u64,
    /// How children are placed; `None`: as the seed says.
    pub scheme: Option<Scheme>,
    /// A planted bug.
    pub planted: Planted,
    /// No faults at all, to look at the rest.
    pub calm: bool,
    /// Clients ask for delegations in three of four sessions.
    pub delegations: bool,
    /// Tell on the terminal what happens.
    pub told: bool,
    /// Tell at the end all that the history and the witness say of this node.
    pub about: Option<u64>,
}

impl Options {
    /// A run as in CI.
    pub fn usual(operations: u64) -> Options {
        Options {
            operations,
            scheme: None,
            planted: Planted::default(),
            calm: false,
            delegations: false,
            told: false,
            about: None,
        }
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
        if name == "serve-after-recall" {
            return Some(Planted { meta: None, client: Some(bearing_client::Mutant::ServeAfterRecall) });
        }
        let (_, meta) = bearing_meta::Mutant::ALL.into_iter().find(|(known, _)| *known == name)?;
        Some(Planted { meta: Some(meta), client: None })
    }

    /// The names of all.
    pub fn names() -> Vec<&'static str> {
        let meta = bearing_meta::Mutant::ALL.into_iter().map(|(name, _)| name);
        meta.chain(["serve-after-recall"]).collect()
    }
}
