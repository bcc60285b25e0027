//! What goes into the machine and what comes out.

use crate::disk_space::{DiskSpace, Headroom};
use crate::record::{KEYS_END, Recovered};
use bearing_placement::Assignment;
use bearing_proto::client::{
    Call, LockFree, OpenState, OpenStateQuery, Recall, Recalled, Reply, Request, ServerEntry,
};
use bearing_proto::coordinator::{Ask, Told};
use bearing_proto::data::{DataReply, DataRequest};
use bearing_proto::peer::PeerMessage;
use bearing_proto::replication::ReplicationMessage;
use bearing_proto::ring::RingMessage;
use bearing_proto::tablets::Digest;
use bearing_seams::{Change, EngineResult, KeyRange, LoggedRecord, Pair, Pairs, Store};
use bearing_types::{Block, DiskId, LogIndex, MapVersion, ServerId, SessionId, Squash, TabletSerial};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Identifies a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoadTicket(pub u64);

/// Counts appends, so that one sync confirms all before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppendNumber(pub u64);

/// Numbers appends.
#[derive(Debug, Default)]
pub(crate) struct Appends(u64);

impl Appends {
    /// The number of the next one.
    pub fn next(&mut self) -> AppendNumber {
        self.0 += 1;
        AppendNumber(self.0)
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.0
    }
}

/// What the store said, in the order asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadResult {
    /// The values of the keys.
    pub values: Vec<Option<Vec<u8>>>,
    /// The pairs of the ranges.
    pub ranges: Vec<Vec<Pair>>,
}

impl LoadResult {
    /// Reads what [`Command::Load`] asks of a store.
    pub fn read(
        store: &mut dyn Store,
        tablet: TabletSerial,
        keys: &[Vec<u8>],
        ranges: &[(KeyRange, usize)],
    ) -> EngineResult<LoadResult> {
        let values = keys.iter().map(|key| store.get(tablet, key)).collect::<EngineResult<_>>()?;
        let ranges = ranges
            .iter()
            .map(|(range, count_max)| store.range(tablet, range, *count_max))
            .collect::<EngineResult<_>>()?;
        Ok(LoadResult { values, ranges })
    }
}

/// What [`Command::Digest`] is the digest of: all of a tablet but what is of the server's own disk.
pub fn compared_pairs(store: &mut dyn Store, tablet: TabletSerial) -> EngineResult<Pairs> {
    store.snapshot(tablet, &KeyRange { start: Vec::new(), end: Some(KEYS_END.to_vec()) })
}

/// Something happened.
// Most events are requests: a box for each would cost more than the room.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The server starts, with what [`crate::record::recover()`] found: it asks the coordinator for its
    /// tablets.
    Start(Recovered),
    /// From a client, with what its enrolment makes of the user ids in it.
    Request(SessionId, Squash, Request),
    /// From a client.
    Recalled(SessionId, Recalled),
    /// From a client.
    OpenState(SessionId, OpenState),
    /// From another metadata server.
    Peer(ServerId, PeerMessage),
    /// From another metadata server.
    Replication(ServerId, ReplicationMessage),
    /// From another metadata server.
    Ring(ServerId, RingMessage),
    /// From a data server.
    Data(ServerId, DataReply),
    /// From the coordinator.
    Told(Told),
    /// The result of [`Command::Load`].
    Loaded(LoadTicket, EngineResult<LoadResult>),
    /// All appends up to this one are stable. An error means that none of the later ones ever will be.
    Synced(AppendNumber, EngineResult<()>),
    /// The changes of a tablet up to this record are in its store.
    Applied(TabletSerial, LogIndex, EngineResult<()>),
    /// The result of [`Command::Digest`].
    Digested(TabletSerial, LogIndex, EngineResult<Digest>),
    /// An operator wants the copies of these tablets compared, as far as they are this server's.
    Compare(Vec<TabletSerial>),
    /// An operator wants checkpoints of all tablets stored now.
    Checkpoint,
    /// Somebody wants a tablet served by another server.
    Move(Block, ServerId),
    /// The log is to be cut: all that is committed shall go to the stores.
    LogFull,
    /// This server's clock is too far from those of others, or is so no more.
    ClockOff(bool),
    /// What the disk of log and store has.
    Space(DiskSpace),
    /// The log found no space for what was appended and tries again, or has it all now.
    LogStuck(bool),
    /// Time passed.
    Tick,
}

impl Event {
    /// What happened, for people.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Start(_) => "start",
            Event::Request(_, _, request) if matches!(request.call, Call::Delegated { .. }) => "steps",
            Event::Request(..) => "request",
            Event::Recalled(..) => "answer to a recall",
            Event::OpenState(..) => "open files",
            Event::Peer(..) => "another server's message",
            Event::Replication(..) => "replication",
            Event::Ring(..) => "ring",
            Event::Data(..) => "data server's answer",
            Event::Told(_) => "coordinator's answer",
            Event::Loaded(..) => "records read",
            Event::Synced(..) => "log synced",
            Event::Applied(..) => "records applied",
            Event::Digested(..) => "copy compared",
            Event::Compare(_) => "comparison",
            Event::Checkpoint => "checkpoint",
            Event::Move(..) => "move",
            Event::LogFull => "log full",
            Event::ClockOff(_) => "clock",
            Event::Space(_) | Event::LogStuck(_) => "disk space",
            Event::Tick => "tick",
        }
    }
}

/// Something to do. The shell runs commands in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// To a client.
    Reply(SessionId, Reply),
    /// To a client.
    Recall(SessionId, Recall),
    /// To a client.
    OpenStateQuery(SessionId, OpenStateQuery),
    /// To a client.
    LockFree(SessionId, LockFree),
    /// To another metadata server.
    Peer(ServerId, PeerMessage),
    /// To another metadata server.
    Replication(ServerId, ReplicationMessage),
    /// To another metadata server.
    Ring(ServerId, RingMessage),
    /// To a data server, with the bytes that go with it.
    Data(ServerId, DataRequest, Option<Arc<Vec<u8>>>),
    /// To the coordinator.
    Ask(Ask),
    /// Append to the tablet log; confirmed by [`Event::Synced`] with a number at least this.
    Append(AppendNumber, LoggedRecord),
    /// Read keys and ranges of a tablet's store, all at one point of the order of commands.
    Load {
        /// Comes back with the result.
        ticket: LoadTicket,
        /// The tablet.
        tablet: TabletSerial,
        /// Keys.
        keys: Vec<Vec<u8>>,
        /// Ranges, each with the most pairs wanted.
        ranges: Vec<(KeyRange, usize)>,
    },
    /// Apply committed changes to a tablet's store.
    Apply(TabletSerial, LogIndex, Vec<Change>),
    /// Compute the digest of what a tablet's store has at this point of the order of commands: with all
    /// records up to this one, and none behind it. Commands that follow need not wait for that.
    Digest(TabletSerial, LogIndex),
    /// Give the store and the log this disk id.
    SetDisk(DiskId),
    /// Make an empty store for a tablet if it has none.
    CreateTablet(TabletSerial),
    /// Drop a tablet's store.
    RemoveTablet(TabletSerial),
    /// The map of tablets and servers changed.
    Map(MapVersion, Assignment, Vec<ServerEntry>),
    /// Something worth telling people.
    Note(Note),
}

/// Why a tablet goes on without a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// It lacks what was committed before the epoch began: only a snapshot has that.
    Lost,
    /// It answers, and has synced nothing of what it was sent for so long.
    Stuck(Duration),
    /// It has not relied on this server for so long; for so much more this server heard nobody.
    Silent(Duration, Duration),
}

impl fmt::Display for Failing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failing::Lost => write!(f, "it lacks what it had"),
            Failing::Stuck(length) => write!(f, "it has synced nothing for {} ms", length.as_millis()),
            Failing::Silent(length, deaf) => write!(
                f,
                "no lease from it for {} ms, while this server listened ({} ms more while it did not)",
                length.as_millis(),
                deaf.as_millis()
            ),
        }
    }
}

/// Something worth telling people, and worth counting in simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A tablet is served from now on.
    Serving(Block, bearing_types::Epoch),
    /// A tablet is claimed, because its owner is silent.
    TakingOver(Block, ServerId),
    /// The coordinator has given a tablet to this server, under this epoch. It is not served yet.
    Taken(Block, bearing_types::Epoch),
    /// Nothing more is committed under this epoch that this server, which has nearly all of the tablet, has
    /// not synced: it is about to become a member.
    Counting(Block, bearing_types::Epoch, ServerId),
    /// The owner of a tablet goes on without another server that has it.
    SwappedOut(Block, ServerId, Failing),
    /// A tablet, that was not served for so long, is left to another member.
    Yielded(Block, ServerId, Duration),
    /// A tablet is served elsewhere from now on.
    Left(Block),
    /// The log or the store failed: nothing is accepted any more.
    Failed(String),
    /// The coordinator holds what this program cannot read: nothing is accepted any more, and starting again
    /// would not help.
    Unreadable(String),
    /// The coordinator's registers are older than what is known of them here.
    OlderRegisters,
    /// The disk is not the one that this server was registered with, or an older state of it: nothing is
    /// served, and starting again would not help.
    WrongDisk(String),
    /// The store cannot read records: other members of the tablet have them, or nobody.
    DamagedStore(String),
    /// Stored records make no sense.
    Damaged(String),
    /// A request was carried out while one that came before waited for the same, and could have gone on. Only
    /// looked for in builds with debug assertions.
    Overtaken,
    /// There is more or less room for changes than before.
    Headroom(Headroom),
    /// Something happened in a protocol that crash tests want to hit: its name.
    Step(&'static str),
}
