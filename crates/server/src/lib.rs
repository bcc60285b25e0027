//! Daemons: they open stores and sockets, turn the wheel around a machine, and carry out what it commands.
//!
//! Invariants: no policy, a daemon decides nothing that a machine could decide; commands are carried out in
//! the order given; a reply leaves only after the sync that the machine waited for. Files and line numbers of
//! TOML are this crate's business.

mod chunk_threads;
mod clocks;
pub mod cluster;
pub mod config;
mod contacts;
mod coordinator;
mod data;
mod desk;
mod digests;
mod disk;
mod engine_thread;
mod error;
mod flow;
pub mod formats;
pub mod init;
pub mod joined;
mod joins;
mod log_thread;
pub mod members;
mod metadata;
pub mod metrics;
mod notify;
mod open_files;
pub mod post;
pub mod recover;
mod registers;
mod relays;
mod routes;
mod sessions;
mod shell;
mod space;
pub mod state;
mod store_thread;
pub mod toml_file;
pub mod topology_file;

pub use coordinator::run_coordinator;
pub use data::run_data;
pub use error::StartError;
pub use flow::run_flow;
pub use metadata::{run_metadata, segment_bytes};
pub use shell::{Driver, run as run_driver};
