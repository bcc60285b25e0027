//! What is lent to this client: directories that are delegated to it, the nodes in them, and the steps decided there
//! that their tablets' owners have not done yet.

pub(crate) mod delegations;
pub(crate) mod image;
pub(crate) mod ours;
pub(crate) mod tablet;
pub(crate) mod worth;
