//! `bearing bench`: measurements of this program on this machine, with raw results to keep.
//!
//! What is measured is production's code: the metadata server is this binary's own daemon in a process of its
//! own. Figures are taken in pairs, the server and what it is compared with in turn, so that what else the
//! machine does meets both.

mod anywhere;
mod bare;
mod canned;
pub mod cluster;
mod create;
pub mod drive;
mod flow;
pub mod link;
pub mod machine;
mod metadata;
mod report;
mod schemes;
pub mod stat;
pub mod tree;

pub use machine::commit;

use crate::server::DaemonFile;
use anyhow::Result;
use anywhere::{Tree, TreeWorker};
use clap::Subcommand;
use metadata::Metadata;
use schemes::Schemes;

/// What can be measured.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// One metadata server on one core: stat beside the same loop without its machine, durable create beside
    /// the bare store
    Metadata(Metadata),
    /// Any directory of any mounted filesystem: mdtest's phases, open and close, untar, rm -r, git clone, a
    /// big file
    Tree(Tree),
    /// Every scheme's placement and lookup as code alone: time to locate, tables, changes, bytes a server
    Schemes(Schemes),
    /// How long the flow server takes to decide from which replicas and by which paths a read goes
    Flow(flow::Flow),
    /// One process of `bench tree`
    #[command(hide = true)]
    TreeWorker(TreeWorker),
    /// The server whose answers are canned (started by `bench metadata`)
    #[command(hide = true)]
    Canned(DaemonFile),
}

/// Runs a measurement.
pub fn run(command: &Bench) -> Result<()> {
    match command {
        Bench::Metadata(flags) => metadata::run(flags),
        Bench::Tree(flags) => anywhere::run(flags),
        Bench::Schemes(flags) => schemes::run(flags),
        Bench::Flow(flags) => flow::run(flags),
        Bench::TreeWorker(flags) => anywhere::run_worker(flags),
        Bench::Canned(file) => canned::run(file),
    }
}
