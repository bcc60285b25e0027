//! What a server waits for: looks into its own store, and answers of others.

use crate::bloom::layout::LayoutVersion;
use crate::query::Query;
use bearing_types::{Mono, ServerId};
use std::collections::{BTreeMap, BTreeSet};

/// A look into the store that was asked for.
#[derive(Debug, Default)]
pub struct Checking {
    /// The query, if it is this server's to go on with.
    pub(super) own: Option<Query>,
    /// Who asked at L4, knowing of which layout.
    pub(super) asked_by: BTreeMap<ServerId, LayoutVersion>,
}

/// A multicast that waits for answers.
#[derive(Debug)]
pub struct Round {
    pub(super) query: Query,
    pub(super) level: u8,
    /// Whether this server's own store was looked into.
    pub(super) denied: bool,
    pub(super) waiting: BTreeSet<ServerId>,
    /// All that were asked.
    pub(super) asked: BTreeSet<ServerId>,
    /// L3: homes that were named.
    pub(super) homes: BTreeSet<ServerId>,
    /// How often the waiting ones were asked.
    pub(super) asks: u32,
    pub(super) deadline: Mono,
}

impl Round {
    /// A round that nobody was asked in yet.
    pub(super) fn of(query: Query, level: u8, denied: bool) -> Round {
        let (waiting, asked, homes) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        Round { query, level, denied, waiting, asked, homes, asks: 1, deadline: Mono::ZERO }
    }
}
