//! The oracle: a plain filesystem in memory, slow and obvious, keyed by the cluster's own node ids.
//!
//! `refusals` says which codes an operation deserves, in the order in which Linux finds them; `Oracle::apply`
//! does what it does once nothing refuses it; `answer` says what a question deserves. Times of files are not
//! modelled. The oracle never forgets a node: one without links stays, because a client may have it open.

mod apply;
mod lists;
mod query;
mod rules;
mod words;

pub use apply::{Oracle, Touched};
pub use lists::{List, Who};
pub use query::answer;
pub use rules::{Law, refusals};
pub use words::{Mutation, Node, Piece, Query, Seen, State, View};

#[cfg(test)]
mod tests;
