//! What an operation has gathered so far: answers that outlive a run of `decide`.
//!
//! `decide` runs again from the top whenever something it needs has arrived. Store records come back through
//! the cache; everything else is kept here, found again by its question.

use crate::record::{Key, Record};
use crate::words::Asking;
use bearing_proto::data::{DataBody, DataCall, DataError};
use bearing_proto::peer::{Part, Promise, Question, Told};
use bearing_types::{ChunkId, Code, LogIndex, NodeId, Now, Position, ServerId, TransactionId};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub(crate) struct Context {
    /// When the operation arrived: every run sees the same time.
    pub started: Now,
    /// The transaction, once a remote part was asked for.
    pub transaction: Option<TransactionId>,
    /// Whether a transaction is wanted although no part is remote.
    pub wants_transaction: bool,
    /// Keys locked for the length of the operation.
    pub holds: Vec<Key>,
    /// Remote parts, by their numbers.
    pub parts: Vec<PartSlot>,
    /// Questions to other tablets.
    pub questions: Vec<QuestionSlot>,
    /// Requests to data servers.
    pub data: Vec<DataSlot>,
    /// The last run stopped for want of a range.
    pub range_wanted: bool,
    /// Ranges read from the store; good for one run only.
    pub ranges: Ranges,
    /// Ids drawn for new nodes and chunks.
    pub ids: Vec<NodeId>,
    /// The ids lent to the client: the first, and how many.
    pub lent: Option<(NodeId, u32)>,
    /// How many bytes of the chunk counted as dead when a look at it began.
    pub dead_before: Option<u64>,
    /// Whether nobody had the chunk whole then.
    pub torn: Option<bool>,
}

#[derive(Debug)]
pub(crate) struct PartSlot {
    pub position: Position,
    pub part: Part,
    pub vote: PartVote,
    pub asked: Option<Asking>,
    /// Whether the last run asked for it.
    pub used: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum PartVote {
    Wanted,
    Sent,
    Yes(Promise),
    No(Code),
    Later,
}

/// What came of a request to a data server; `None`: no answer in time.
pub(crate) type DataResult = Option<Result<DataBody, DataError>>;

#[derive(Debug)]
pub(crate) struct DataSlot {
    pub server: ServerId,
    pub chunk: ChunkId,
    pub call: DataCall,
    /// The request's id once sent, and the log record that has to be committed before it leaves.
    pub sent: Option<(u64, LogIndex)>,
    /// What goes with it.
    pub bytes: Option<Arc<Vec<u8>>>,
    pub result: Option<DataResult>,
}

#[derive(Debug)]
pub(crate) struct QuestionSlot {
    pub position: Position,
    pub question: Question,
    pub asked: Option<Asking>,
    pub told: Option<Told>,
}

/// Ranges in the order in which they were first asked for. There may be thousands: a tree that is lent.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    slots: Vec<RangeSlot>,
    places: BTreeMap<(Key, Key, usize), usize>,
}

impl Ranges {
    /// What was asked for like this.
    pub fn find(&self, keys: &RangeInclusive<Key>, count_max: usize) -> Option<&RangeSlot> {
        self.places.get(&(*keys.start(), *keys.end(), count_max)).map(|place| &self.slots[*place])
    }

    /// Asks for one that was not asked for.
    pub fn ask(&mut self, keys: RangeInclusive<Key>, count_max: usize) {
        self.places.insert((*keys.start(), *keys.end(), count_max), self.slots.len());
        self.slots.push(RangeSlot { keys, count_max, pairs: None });
    }

    pub fn iter(&self) -> impl Iterator<Item = &RangeSlot> {
        self.slots.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut RangeSlot> {
        self.slots.iter_mut()
    }

    /// Time passes: all are read again for the next run.
    pub fn forget_pairs(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.pairs = None);
    }
}

#[derive(Debug)]
pub(crate) struct RangeSlot {
    pub keys: RangeInclusive<Key>,
    pub count_max: usize,
    pub pairs: Option<Vec<(Key, Record)>>,
}

impl Context {
    pub fn new(started: Now) -> Context {
        Context {
            started,
            transaction: None,
            wants_transaction: false,
            holds: Vec::new(),
            parts: Vec::new(),
            questions: Vec::new(),
            data: Vec::new(),
            range_wanted: false,
            ranges: Ranges::default(),
            ids: Vec::new(),
            lent: None,
            dead_before: None,
            torn: None,
        }
    }

    /// Whether other tablets may hold something for this operation.
    pub fn has_parts(&self) -> bool {
        self.parts.iter().any(|slot| !matches!(slot.vote, PartVote::Wanted))
    }
}
