//! What is lent to this client: directories that are delegated to it, the nodes in them, and the steps
//! decided there that their tablets' owners have not done yet.

mod delegations;
mod image;
mod ours;
mod tablet;
mod worth;

pub(crate) use delegations::Delegations;
pub(crate) use image::{LocalDirectory, LocalEntry, Place};
pub(crate) use ours::Ours;
pub(crate) use tablet::{Batch, Lent};
pub(crate) use worth::CALLED_BACK;
