//! What clients did and were told, and the order in which the tablets' logs say that changes were made.

use crate::{Mutation, Piece, Query, Seen};
use bearing_types::{Lock, Mono, NodeId, Outcome, Sequence, SessionId};

/// A client, for as long as the run lasts (its sessions come and go).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// What identifies a mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    /// The session.
    pub session: SessionId,
    /// Its request.
    pub sequence: Sequence,
}

/// Everything that clients did, in any order, with the times of one clock that all share.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// What they did.
    pub entries: Vec<Entry>,
    /// When files were open for writing: their sizes may be late for others.
    pub writers: Vec<WriteOpen>,
    /// Records that were appended to logs.
    pub appends: Vec<Append>,
    /// Locks that clients asked for.
    pub locks: Vec<LockHold>,
}

/// A lock that a client asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHold {
    /// The client.
    pub client: ClientId,
    /// Its session.
    pub session: SessionId,
    /// The file.
    pub node: NodeId,
    /// The lock.
    pub lock: Lock,
    /// When the client was told that it has it; `None`: never.
    pub got: Option<Mono>,
    /// When it began to give it back, died, or its session was over; `None`: never.
    pub until: Option<Mono>,
}

/// A record that was appended to a log: a file that is only appended to, with records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// By this client.
    pub client: ClientId,
    /// The log.
    pub log: NodeId,
    /// The record's number; none is used twice.
    pub record: u64,
    /// When it was written.
    pub invoked: Mono,
    /// When a flush or sync of it was answered; `None`: it never was, and the record may be there or not.
    pub acknowledged: Option<Mono>,
}

/// One thing that a client did.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The client.
    pub client: ClientId,
    /// When it began.
    pub invoked: Mono,
    /// When the answer came, or `None`: never (the client crashed, or gave up).
    pub returned: Option<Mono>,
    /// What it was.
    pub event: Event,
}

/// A change or a question, with what came of it.
#[derive(Clone, Debug)]
pub enum Event {
    /// A change.
    Mutation {
        /// What was asked.
        mutation: Mutation,
        /// The requests that carried it: mostly one; none when the client refused it from what it knew;
        /// several when a client asks again under a new number, of which only one may be done.
        requests: Vec<RequestId>,
        /// What came of it.
        outcome: MutationOutcome,
    },
    /// A question that was answered.
    Read {
        /// What was asked.
        query: Query,
        /// The answer.
        result: Outcome<Seen>,
    },
}

/// What came of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MutationOutcome {
    /// The client was told.
    Told(Outcome<Seen>),
    /// The client was never told: it may have been done once, or not.
    Unknown,
}

/// What a reader wrote itself through the file that it reads from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnWrites {
    /// When it opened the file: what others closed before that is seen.
    pub opened: Mono,
    /// The entry of the history by which it last cut the file itself: what was there before is not seen any
    /// more.
    pub cut: Option<usize>,
    /// When its last flush was answered, or `opened`.
    pub flushed: Mono,
    /// All that it wrote since `opened`, in order.
    pub since_opened: Vec<Piece>,
    /// What it wrote since `flushed`, in order.
    pub unflushed: Vec<Piece>,
}

/// A file was open for writing.
#[derive(Clone, Debug)]
pub struct WriteOpen {
    /// By this client.
    pub client: ClientId,
    /// The file.
    pub node: NodeId,
    /// From when it asked to open it.
    pub from: Mono,
    /// Until its last flush was answered; `None`: until the end.
    pub until: Option<Mono>,
}

/// One step of the witness. Its place in the list is its place in the one order of all changes.
#[derive(Clone, Debug)]
pub struct WitnessEvent {
    /// When it became stable.
    pub at: Mono,
    /// The change that it belongs to.
    pub request: RequestId,
    /// What became stable.
    pub kind: WitnessKind,
}

/// What the witness says of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WitnessKind {
    /// It is made.
    Committed {
        /// The new node, of create and mkdir.
        created: Option<NodeId>,
        /// The node that lost a name lives elsewhere: its count is lowered by a `LinkDropped` that follows.
        link_owed: bool,
    },
    /// The count of the node that lost its name is lowered.
    LinkDropped,
}
