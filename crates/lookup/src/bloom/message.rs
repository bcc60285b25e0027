//! What the servers of a Bloom lookup say to each other. Values here; `proto` encodes them (`filters.rs`).

use crate::bloom::filter::Bloom;
use crate::bloom::layout::{Birth, Layout, LayoutVersion, Shares};
use crate::query::{FileKey, Query, QueryId};
use bearing_types::ServerId;
use std::sync::Arc;

/// The edition of a server's filter. Later ones are higher, also after a restart: it begins with the layout
/// that let the server in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edition(pub u64);

/// A filter as its server published it. Large, so shared and never changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Replica {
    /// Whose.
    pub of: ServerId,
    /// Its edition.
    pub edition: Edition,
    /// The filter.
    pub filter: Arc<Bloom>,
}

/// Between the servers of a Bloom lookup.
#[derive(Clone, Debug, PartialEq)]
pub enum BloomMessage {
    /// L3: which homes do your filters name?
    AskGroup(Query),
    /// The answer: up to three homes; more than one is as good as none.
    Homes(QueryId, Vec<ServerId>),
    /// L4: do you have it? The sender knows of this layout.
    AskStore(Query, LayoutVersion),
    /// The answer, exact; the layout, if the one who asked has another; and whom else to ask, whom that
    /// layout does not name.
    Has(QueryId, bool, Option<Arc<Layout>>, Vec<ServerId>),
    /// To the server that a query came to first: the file is at the sender.
    Found(FileKey),

    /// A new edition, to one member of each group.
    Publish(Replica),
    /// The same, from that member to whom its IDBFA names.
    Forwarded(Replica),
    /// A replica that a member gives up to another, or that was asked for.
    Handed(Replica),
    /// Send me your filter if it is newer than this.
    Want(Edition),

    /// A server asks to come in. Passed on once, to the steward.
    Join(ServerId, Birth),
    /// The sender asks to go.
    Leave,
    /// To the steward: this server is silent, in this stay.
    Silent(ServerId, Birth),
    /// Who is in.
    Layout(Arc<Layout>),
    /// How the group shares out the replicas.
    Shares(Arc<Shares>),
    /// A heart-beat, or the answer to one: what the sender knows of.
    Beat {
        /// Its layout, if it has one.
        layout: Option<LayoutVersion>,
        /// Its group's shares, if it has any.
        shares: Option<LayoutVersion>,
        /// Whether it wants an answer.
        answer: bool,
    },
}
