//! Open files: what is open, buffered, known of their content, and not stable yet; and the chunks that they
//! lie in.

mod accesses;
mod again;
mod buffer;
mod chunks;
mod content;
mod dirty;
mod extents;
mod file;
mod left;
mod open;
mod opening;
mod renewals;
mod rights;
mod table;
mod unsynced;

pub(crate) use buffer::{Job, Next, Piece};
pub(crate) use chunks::{Chunks, End, SealedEnd};
pub(crate) use content::{Gathered, Page, Step};
#[cfg(test)]
pub(crate) use extents::ExtentMap;
pub(crate) use extents::{Stored, end_of};
pub(crate) use file::Buffered;
pub(crate) use renewals::{Renew, Renewals};
pub(crate) use table::{Files, Stability};
pub(crate) use unsynced::UNKNOWN_END;
