//! What says on which disk an engine's directory lies.

use crate::EngineResult;
use bearing_types::DiskId;

/// The disk id that an engine keeps beside its data, so that it is lost or replaced together with them.
pub trait DiskLabel {
    /// The id, if it was ever given one.
    fn disk(&mut self) -> EngineResult<Option<DiskId>>;

    /// Gives it an id. Stable when it returns.
    fn set_disk(&mut self, disk: DiskId) -> EngineResult<()>;
}
