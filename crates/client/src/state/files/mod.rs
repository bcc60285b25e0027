//! Open files: what is open, buffered, known of their content, and not stable yet; and the chunks that they lie in.

mod accesses;
mod again;
pub(crate) mod buffer;
pub(crate) mod chunks;
pub(crate) mod content;
mod dirty;
pub(crate) mod extents;
pub(crate) mod file;
mod left;
pub(crate) mod open;
mod opening;
pub(crate) mod renewals;
mod rights;
pub(crate) mod table;
pub(crate) mod unsynced;
