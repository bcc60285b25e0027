//! Rules of the namespace that operations, parts of transactions and answers share.

pub(crate) mod answers;
pub(crate) mod extents;
pub(crate) mod file_locks;
pub(crate) mod namespace;
pub(crate) mod permission;
pub(crate) mod quotas;
pub(crate) mod xattrs;
