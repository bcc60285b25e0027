//! The tablet log: the only write-ahead log. The logs of all tablets on one core share one file, so one sync
//! serves them all.

use crate::EngineResult;
use bearing_types::{Epoch, LogIndex, TabletSerial};

/// Where in the shared file a record lies, in file order. Only the engine knows what the number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogMark(pub u64);

/// One record of one tablet's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedRecord {
    /// The tablet.
    pub serial: TabletSerial,
    /// The epoch under which it was written.
    pub epoch: Epoch,
    /// Its index in the tablet's log.
    pub index: LogIndex,
    /// Everything of the tablet up to this index was committed when this was written: less than `index`, but
    /// for records of releases that wrote nothing of it.
    pub commit: LogIndex,
    /// The encoded record; the log does not look inside.
    pub bytes: Vec<u8>,
}

/// An append-only file of records with checksums. A torn tail (records after the last sync) is cut at
/// opening; damage before that is [`crate::EngineError::Corrupt`].
pub trait TabletLog {
    /// Appends records in order. Not yet stable. Returns the mark of the first record.
    fn append(&mut self, records: &[LoggedRecord]) -> EngineResult<LogMark>;

    /// Makes all appended records stable. After an error the log takes no more records.
    fn sync(&mut self) -> EngineResult<()>;

    /// Reads up to `count_max` records from a mark on (`None`: from the oldest kept), each with its mark.
    /// Fewer than `count_max` means that the end is reached.
    fn read(&mut self, from: Option<LogMark>, count_max: usize)
    -> EngineResult<Vec<(LogMark, LoggedRecord)>>;

    /// Lets go of records before a mark, in as coarse units as the engine likes (it may keep more).
    fn cut(&mut self, before: LogMark) -> EngineResult<()>;

    /// Bytes that the log takes on its device.
    fn bytes_used(&self) -> u64;
}
