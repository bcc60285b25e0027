//! What a tablet has in memory of its records: the cache with changes that the store does not have yet,
//! extents of files, what quotas use.

mod cache;
mod clean;
pub(crate) mod file_extents;
pub(crate) mod quota_table;

pub(crate) use cache::Cache;
pub(crate) use file_extents::{EXTENTS_MAX, Known};
pub(crate) use quota_table::Quotas;
