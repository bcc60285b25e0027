//! What the servers of a ring say to each other. Values here; `proto` encodes them.

use super::points::Peer;
use bearing_types::{Position, ServerId};

/// A server's neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbours {
    /// Front predecessor.
    pub fpd: Peer,
    /// Predecessor.
    pub pd: Peer,
    /// Successor.
    pub sc: Peer,
    /// Next successor.
    pub nsc: Peer,
}

/// Between the servers of a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FingerMessage {
    /// Goes from finger to finger to the owner of a position.
    Find {
        /// The position.
        key: Position,
        /// Who asks.
        asker: Peer,
        /// What for.
        what: Find,
        /// How often it was passed on.
        hops: u8,
    },
    /// To a server that joins: its place. Its neighbours know it already.
    Welcome(Neighbours),
    /// To who asked for a finger: the successor of that position, and the next.
    Found {
        /// The position.
        key: Position,
        /// Its owner.
        owner: Peer,
        /// The owner's successor.
        next: Peer,
    },
    /// Are you there? With the neighbours of who asks, from which the other learns who is next to its own.
    Ping {
        /// The predecessor of who asks.
        pd: Peer,
        /// Its successor.
        sc: Peer,
    },
    /// The answer, with the same about who answers.
    Pong {
        /// The predecessor of who answers.
        pd: Peer,
        /// Its successor.
        sc: Peer,
    },
    /// To a server whose successor is gone, or which has got one: who follows now.
    Follows {
        /// Who is gone; nobody: `sc` has joined.
        gone: Option<ServerId>,
        /// The new successor.
        sc: Peer,
        /// The one after.
        nsc: Peer,
    },
    /// To the successor of a server that goes in order: who precedes now.
    Precedes {
        /// Who goes.
        gone: ServerId,
        /// The new predecessor.
        pd: Peer,
        /// The one before.
        fpd: Peer,
    },
    /// Walks counter-clockwise until met twice: a server has come.
    Joined {
        /// The new server.
        new: Peer,
        /// Its successor.
        next: Peer,
    },
    /// Walks clockwise until met twice: a server is gone.
    Gone {
        /// Who is gone.
        gone: Peer,
        /// Its successor, which has its entries.
        heir: Peer,
        /// The heir's successor.
        next: Peer,
        /// Whether the heir waits for an acknowledgement of this one.
        acknowledge: bool,
    },
    /// To the heir.
    Acknowledged(ServerId),
}

/// What the owner of a position is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    /// Who asks joins right before it.
    Place,
    /// For a finger of who asks.
    Finger,
    /// Its predecessor may have to change fingers, because who asks has joined.
    Update,
}
