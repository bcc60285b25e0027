//! What the shell tells the client machine, and what the machine tells the shell to do.

use crate::operation::{Answer, Operation, Ticket};
use bearing_proto::client::ServerEntry;
use bearing_proto::delegation::Step;
use bearing_proto::envelope::{Message, Refusal};
use bearing_proto::prefix::Prefix;
use bearing_types::{Code, MapVersion, Name, NodeId, Position, ServerId, SessionId};
use std::time::Duration;

/// The other side of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// This server.
    Server(ServerId),
    /// Whoever the network carries a datagram to that goes to this position. It is sealed for this server,
    /// which is believed to be the one.
    Carried(Position, ServerId),
    /// Any of the metadata servers that the shell was given addresses of. The shell takes them in turn.
    AnySeed,
}

/// How a message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// In a datagram; messages to the same target that follow each other may share one.
    Datagram,
    /// Over a connection.
    Stream,
}

/// Something happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "most are messages, and a box for each costs more than the room"
)]
pub enum Event {
    /// An operation begins. The caller bounds how many are under way.
    Start(Ticket, Operation),
    /// A message came. Its packet's signature was checked.
    Message {
        /// Who sealed the packet.
        from: Target,
        /// The message.
        message: Message,
        /// The packet's bulk bytes.
        attachment: Vec<u8>,
    },
    /// A session was agreed on, as [`Command::Enrol`] asked for. From now on packets are signed with its
    /// secret, which is the shell's business.
    Enrolled(SessionId),
    /// A server took a packet not. `Expired` and `Revoked` are proven; the others are believed only by a
    /// client that never had a session open.
    Refused(Refusal),
    /// Nothing can be sent to this server, or a connection to it broke. A hint: requests are sent again
    /// sooner.
    Unreachable(ServerId),
    /// The kernel serves no more what [`Command::Invalidate`] of this number named.
    Invalidated(u64),
    /// Whoever began an operation does not want to wait any more: if it waits for a lock, it ends with
    /// [`Code::Interrupted`]. Anything else goes on.
    GiveUp(Ticket),
    /// The time that [`crate::Client::next_wake`] named has come.
    Tick,
}

/// Something to do, in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "most are messages, and a box for each costs more than the room"
)]
pub enum Command {
    /// Send a message.
    Send {
        /// To whom.
        to: Target,
        /// How.
        transport: Transport,
        /// What.
        message: Message,
        /// Bulk bytes of the packet; a message that has some travels alone.
        attachment: Vec<u8>,
    },
    /// Agree with any server on a session, then say [`Event::Enrolled`]. Repeated until that is done: each is
    /// one try.
    Enrol,
    /// An operation is over.
    Finish(Ticket, Result<Answer, Code>),
    /// Make the kernel forget, then say [`Event::Invalidated`]. Only after the answers of all
    /// [`Command::Finish`] given before have reached the kernel: else it might learn from them what it shall
    /// forget.
    Invalidate {
        /// Comes back with [`Event::Invalidated`].
        number: u64,
        /// What to forget.
        what: Vec<Invalidation>,
    },
    /// Servers and their addresses, learnt with a map, and the addresses of positions, if the network carries
    /// requests. Replaces all given before.
    Servers(Vec<ServerEntry>, Option<Prefix>),
    /// A change was decided here, in a directory that is delegated to us; told only if
    /// [`crate::ClientConfig::tells_steps`].
    Decided(Box<Step>),
    /// Something worth telling people.
    Note(Note),
}

/// What the kernel shall forget.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invalidation {
    /// A name in a directory.
    Entry {
        /// The directory.
        directory: NodeId,
        /// The name.
        name: Name,
    },
    /// A node's attributes, and a file's data.
    Node {
        /// The node.
        node: NodeId,
    },
}

/// What shells publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// The session is open; it has to be renewed within this time.
    SessionOpen(Duration),
    /// The session is over.
    SessionOver(Code),
    /// The servers have ended the session; another one is asked for. Operations under way fail, and what was
    /// not stable is lost.
    SessionLost,
    /// A newer map was taken.
    MapTaken(MapVersion),
    /// A chunk could not be appended to any more; its primary.
    ChunkLost(ServerId),
    /// A data server gave no good answer to a read.
    ReplicaPassedOver(ServerId),
    /// What is buffered of this file is being written out; what is written from now on is not part of that.
    WriteOut(NodeId),
    /// Buffered writes to this file could not be stored and are lost; the file's next flush, sync or close
    /// says so.
    WritesLost(NodeId, Code),
    /// So many changes that were decided here in delegated directories were not done in time and are lost;
    /// whoever asks for stability is told.
    StepsLost(u64),
    /// A server refused changes that were decided here, by the rules that it decides by too.
    StepsRefused(Code),
    /// A step of a protocol, for those who count them, or crash at one. The commands before it are all that
    /// was done.
    Step(&'static str),
}
