//! Operations on names and nodes, one per file.
//!
//! Every operation on a child shows its directory's grant. A grant that the child's owner refuses (expired,
//! the directory moved) is fetched anew and the operation tried again, a few times.

mod attributes;
mod create;
mod directory;
mod grants;
mod inspect;
mod link;
pub(crate) mod list;
mod lookup;
mod prefetch;
mod quota;
pub(crate) mod rename;
mod statfs;
mod unlink;
mod xattrs;

#[cfg(test)]
pub(crate) use grants::GRANT_TRIES;
