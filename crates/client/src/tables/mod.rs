//! Containers of bounded size that take little room.

pub(crate) mod bounded;
mod slots;
mod table;

pub(crate) use slots::{NOWHERE, Place, Slots};
pub(crate) use table::Table;
