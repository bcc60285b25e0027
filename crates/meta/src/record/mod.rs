//! What is stored: keys, records in this form and in older ones, and what a log and a store say at a start.

mod entry;
mod extents;
mod key;
mod older;
mod reach;
mod records;
mod recover;
mod stream;

pub use entry::{EntryKind, LOG_VERSION, LogEntry, LoggedChange};
pub(crate) use extents::take_range;
pub use key::Key;
pub(crate) use key::{KEYS_END, RESIDENT_TAGS};
pub use reach::Reach;
pub use records::{
    Checkpoint, CheckpointChunk, CheckpointRecord, ChunkRecord, DirectoryContent, ExtentRecord,
    FragmentRecord, InboxRecord, ItemPlace, NameEntry, NameRecord, NodeContent, NodeRecord, OutboxRecord,
    PrepareRecord, RECORD_VERSION, Record, RecordError, ReplyRecord, UsageScan,
};
pub(crate) use records::{
    Delegated, Finished, Gather, Holder, QuotaRecord, Share, UsageRecord, decode_pairs,
};
pub(crate) use recover::intent_change;
pub use recover::{KeyChange, RecoverError, Recovered, RecoveredTablet, recover};
pub use stream::{CHECKPOINT_NODE, CheckpointHeader, ReadCheckpoint, StreamError, read_checkpoint};
pub(crate) use stream::{frame_owner, push_end, push_entry};
