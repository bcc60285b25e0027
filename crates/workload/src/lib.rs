//! Operation generators, the oracle filesystem, and the checker of histories. Benchmarks, tests and the
//! simulator share them.
//!
//! Invariants: everything is drawn from a seed, so the same seed gives the same operations; the oracle is
//! slow and obvious on purpose; the checker verifies an order that it is given and never searches for one.
//! This crate must not know the machines: it speaks of nodes, names and what a client was told.

mod action;
mod checker;
mod generator;
mod history;
mod mix;
mod oracle;
mod rng;
mod tree;
mod zipf;

pub use action::{Action, FileSteps};
pub use checker::{Check, Checked, Observed, Record, Rule, Violation, compare_tree};
pub use generator::{Area, Generator, GeneratorOptions, Weights};
pub use history::{
    Append, ClientId, Entry, Event, History, LockHold, MutationOutcome, OwnWrites, RequestId, WitnessEvent,
    WitnessKind, WriteOpen,
};
pub use mix::{Mix, MixKind};
pub use oracle::{
    Law, List, Mutation, Node, Oracle, Piece, Query, Seen, State, Touched, View, Who, refusals,
};
pub use rng::Seeded;
pub use tree::TreeStep;
pub use zipf::Zipf;
