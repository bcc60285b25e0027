//! Containers of bounded size that take little room.

mod bounded;
mod slots;
mod table;

pub(crate) use bounded::Bounded;
pub(crate) use slots::{NOWHERE, Place, Slots};
pub(crate) use table::Table;
