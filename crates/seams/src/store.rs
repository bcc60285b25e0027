//! The entry store: a cache of the tablet log.

use crate::EngineResult;
use bearing_types::{LogIndex, TabletSerial};

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Pairs of a store, one after the other. Whoever reads them may be on another thread.
pub type Pairs = Box<dyn Iterator<Item = EngineResult<Pair>> + Send>;

/// One absolute change: a put when it has a value, a delete otherwise. Applying it twice is applying it once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: Vec<u8>,
    /// The new value, or `None` to delete.
    pub value: Option<Vec<u8>>,
}

/// Half-open range of keys; `end: None` runs to the last key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key.
    pub start: Vec<u8>,
    /// The first key after the range.
    pub end: Option<Vec<u8>>,
}

/// Entries by tablet. Whatever a crash leaves of a tablet is what some prefix of its log had made of it, no
/// shorter than what was flushed. Calls take effect in the order in which they are made.
pub trait Store {
    /// The tablets that it has, in order.
    fn tablets(&mut self) -> EngineResult<Vec<TabletSerial>>;

    /// Makes room for a tablet, which is empty, or does nothing when it has the tablet.
    fn create_tablet(&mut self, tablet: TabletSerial) -> EngineResult<()>;

    /// Drops a tablet with all that is in it. Not yet stable: after a crash it may be there as if the
    /// removal, and what came after it, had never been begun.
    fn remove_tablet(&mut self, tablet: TabletSerial) -> EngineResult<()>;

    /// The index of the last log record whose changes a tablet holds; `None` if the store does not have it.
    /// Right after opening this is the flushed index, from which the log is replayed.
    fn applied(&mut self, tablet: TabletSerial) -> EngineResult<Option<LogIndex>>;

    /// Whether it is known that some of what it had of a tablet is lost. What may have been there is an error
    /// when it is read.
    fn lacks_some(&mut self, tablet: TabletSerial) -> EngineResult<bool>;

    /// The value of a key.
    fn get(&mut self, tablet: TabletSerial, key: &[u8]) -> EngineResult<Option<Vec<u8>>>;

    /// The first `count_max` pairs of a range, in key order.
    fn range(&mut self, tablet: TabletSerial, range: &KeyRange, count_max: usize) -> EngineResult<Vec<Pair>>;

    /// The pairs of a range as they are now, in key order, whatever is applied or removed while they are
    /// read.
    fn snapshot(&mut self, tablet: TabletSerial, range: &KeyRange) -> EngineResult<Pairs>;

    /// Applies the changes of log records up to and including `applied`, atomically with the new applied
    /// index. Not yet stable.
    fn apply(&mut self, tablet: TabletSerial, applied: LogIndex, changes: &[Change]) -> EngineResult<()>;

    /// Makes all that was applied stable. After an error the store takes no more changes.
    fn flush(&mut self) -> EngineResult<()>;
}
