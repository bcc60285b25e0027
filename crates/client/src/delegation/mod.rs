//! Directories that are delegated to this client: it decides in them by itself and sends what it decided as
//! steps, in order and in batches.
//!
//! Invariants: a directory is here whole (all its entries), or with a filter that knows all names that are
//! not (`thin.rs`), or not at all; a node that is *ours* was made here, or lent with the directory that names
//! it: it is reached through a delegated directory only; all
//! steps of a tablet are one queue, of which a prefix is stable at its owner; nothing is served past the end
//! of the tablet's lease: what was not sent by then waits for the owner's word (`lapse.rs`), and what the
//! owner refuses is lost, and told to whoever asks for stability. A directory is given back only when its
//! steps are done, and while one is being asked for or given back, operations in it wait for servers, never
//! for this client's kernel. The kernel goes by a name for a fraction of the lease only, and for that long
//! the names are leased on when their directory is given back.

mod attributes;
pub(crate) mod decide;
mod lapse;
mod send;
mod take;
mod thin;
